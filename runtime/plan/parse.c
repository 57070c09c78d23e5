// SPDX-License-Identifier: Apache-2.0
// Reads the text form of a plan (print.c has the grammar). Written to survive any bytes: every
// reader checks against the end of the text, counts are bounded by the bytes that spell them,
// references by the tables. It accepts exactly what the printer prints: the end line holds the hash
// of all bytes before it, and the plan is printed again and compared, so that there is one text per
// plan.
//
// The first failure stops the parser: `failed` is set, every later reader returns at once, and
// loops ask for it. The message names the line, what was expected and what stands there.
#include "runtime/plan/words.h"

#include <limits.h>
#include <stdio.h>

typedef struct Parser {
    const char *text, *at, *end;
    int line, first_line;
    Status status; // OK until the first failure
    Plan *plan;
    Arena *scratch; // tables of names
    Names kernels;
    Names buffers, segments; // of the current program
} Parser;

static bool failed(const Parser *p) {
    return p->status != OK;
}

// What stands at the current place, for a message: up to the end of the word or 32 bytes.
static void describe_found(const Parser *p, Text *out) {
    if (p->at == p->end) {
        text_add(out, "the end of the text");
    } else if (*p->at == '\n') {
        text_add(out, "the end of the line");
    } else {
        text_add(out, "\"");
        for (const char *c = p->at; c < p->end && c < p->at + 32 && *c != '\n'; c++) {
            if (*c == ' ' && c > p->at) break;
            unsigned char byte = (unsigned char)*c;
            text_printf(out, byte < 0x20 || byte >= 0x7f ? "\\x%02x" : "%c", byte);
        }
        text_add(out, "\"");
    }
}

static void expected(Parser *p, const char *format, ...) PRINTF_LIKE(2, 3);
static void expected(Parser *p, const char *format, ...) {
    if (failed(p)) return;
    Text what = { 0 }, found = { 0 };
    va_list list;
    va_start(list, format);
    text_vprintf(&what, format, list);
    va_end(list);
    describe_found(p, &found);
    p->status = status_fail(ERR_FORMAT, "plan text, line %d: expected %s, found %s", p->line,
                            text_cstr(&what), text_cstr(&found));
    text_finish(&what);
    text_finish(&found);
}

/* Bytes and words ------------------------------------------------------------------------------ */

static size_t left(const Parser *p) {
    return (size_t)(p->end - p->at);
}

static bool ahead(const Parser *p, const char *literal) {
    size_t n = strlen(literal);
    return !failed(p) && left(p) >= n && !memcmp(p->at, literal, n);
}

static bool accept(Parser *p, const char *literal) {
    if (!ahead(p, literal)) return false;
    p->at += strlen(literal);
    return true;
}

static void literal(Parser *p, const char *text) {
    // The blank before a field is not part of what the message asks for.
    if (!accept(p, text)) expected(p, "\"%s\"", text);
}

static void newline(Parser *p) {
    if (accept(p, "\n")) {
        p->line++;
    } else {
        expected(p, "the end of the line");
    }
}

// Bytes of the word here: up to a blank, a line's end or the end of the text.
static size_t word_bytes(const Parser *p) {
    size_t n = 0;
    while (n < left(p) && p->at[n] != ' ' && p->at[n] != '\n') n++;
    return n;
}

// Index in a table of words. `stop` ends the word besides blanks, 0 for none.
static int word(Parser *p, const char *const *words, int n_words, char stop, const char *what) {
    if (failed(p)) return 0;
    size_t n = word_bytes(p);
    for (size_t i = 0; stop && i < n; i++) {
        if (p->at[i] == stop) n = i;
    }
    for (int i = 0; i < n_words; i++) {
        if (strlen(words[i]) == n && !memcmp(p->at, words[i], n)) {
            p->at += n;
            return i;
        }
    }
    expected(p, "%s", what);
    return 0;
}

static int dtype_word(Parser *p) {
    const char *words[N_DTYPES];
    for (int i = 0; i < N_DTYPES; i++) words[i] = dtype_name(i);
    return word(p, words, N_DTYPES, 0, "a type (f32, i32, i64)");
}

static int64_t integer(Parser *p, int64_t low, int64_t high, const char *what) {
    if (failed(p)) return low;
    const char *c = p->at;
    bool negative = c < p->end && *c == '-';
    if (negative) c++;
    const char *digits = c;
    int64_t value = 0; // kept negative: INT64_MIN has no positive twin
    while (c < p->end && *c >= '0' && *c <= '9') {
        if (__builtin_mul_overflow(value, 10, &value)) break;
        if (__builtin_sub_overflow(value, *c - '0', &value)) break;
        c++;
    }
    bool whole =
        c > digits && (c == p->end || *c < '0' || *c > '9') && (negative || value != INT64_MIN);
    if (!negative && whole) value = -value;
    if (!whole || value < low || value > high) {
        expected(p, "%s (an integer of %lld to %lld)", what, (long long)low, (long long)high);
        return low;
    }
    p->at = c;
    return value;
}

static int64_t count(Parser *p, const char *what) {
    return integer(p, 0, INT64_MAX, what);
}

static int64_t address(Parser *p) {
    if (failed(p)) return 0;
    const char *c = p->at;
    int64_t value = 0;
    int digits = 0;
    if (left(p) > 2 && c[0] == '0' && c[1] == 'x') {
        for (c += 2; c < p->end && digits < 17; c++, digits++) {
            int digit = *c >= '0' && *c <= '9'   ? *c - '0'
                        : *c >= 'a' && *c <= 'f' ? *c - 'a' + 10
                                                 : -1;
            if (digit < 0) break;
            if (value >> 59)
                digits = 17; // the next digit would not fit
            else
                value = value << 4 | digit;
        }
    }
    if (!digits || digits >= 17) {
        expected(p, "an address (0x and at most 15 digits or 63 bits)");
        return 0;
    }
    p->at = c;
    return value;
}

static double number(Parser *p, const char *what) {
    double value = 0;
    if (failed(p)) return value;
    size_t n = word_bytes(p);
    if (!text_parse_double(p->at, n, &value)) {
        expected(p, "%s (a number in C99 hex)", what);
    } else {
        p->at += n;
    }
    return value;
}

static Hash hash_word(Parser *p) {
    Hash hash = { 0 };
    if (failed(p)) return hash;
    size_t n = word_bytes(p);
    if (!hash_parse(p->at, n, &hash)) {
        expected(p, "a hash of 32 hex digits");
    } else {
        p->at += n;
    }
    return hash;
}

static int hex_digit(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static const char *quoted_name(Parser *p, const char *what) {
    const char *close = p->at + 1;
    while (close < p->end && *close != '"' && *close != '\n') close++;
    if (close == p->end || *close != '"') {
        expected(p, "%s with a closing quote", what);
        return "";
    }
    char *name = arena_alloc(p->plan->arena, (size_t)(close - p->at));
    size_t n = 0;
    for (const char *c = p->at + 1; c < close; c++) {
        if (*c != '\\') {
            name[n++] = *c;
            continue;
        }
        int high = close - c > 3 && c[1] == 'x' ? hex_digit(c[2]) : -1;
        int low = high >= 0 ? hex_digit(c[3]) : -1;
        if (low < 0 || high * 16 + low == 0) {
            p->at = c;
            expected(p, "\\xHH other than \\x00 in %s", what);
            return "";
        }
        name[n++] = (char)(high * 16 + low);
        c += 3;
    }
    if (strlen(name) != n) {
        expected(p, "%s without a zero byte", what);
        return "";
    }
    p->at = close + 1;
    return name;
}

static const char *name_word(Parser *p, const char *what) {
    if (failed(p)) return "";
    if (left(p) && *p->at == '"') return quoted_name(p, what);
    size_t n = 0;
    while (n < left(p) && plan_bare_byte(p->at[n])) n++;
    if (!n) {
        expected(p, "%s", what);
        return "";
    }
    const char *name = arena_strndup(p->plan->arena, p->at, n);
    p->at += n;
    return name;
}

static int dims(Parser *p, int64_t out[PLAN_MAX_DIMS]) {
    literal(p, " [");
    int n = 0;
    if (accept(p, "]")) return 0;
    do {
        if (n == PLAN_MAX_DIMS) {
            expected(p, "at most %d dimensions", PLAN_MAX_DIMS);
            break;
        }
        out[n++] = count(p, "a dimension");
    } while (accept(p, ","));
    literal(p, "]");
    return n;
}

// The name of something declared before, as an index.
static uint32_t reference(Parser *p, const Names *names, const char *what) {
    const char *start = p->at;
    const char *name = name_word(p, what);
    if (failed(p)) return 0;
    uint32_t index = names_find(names, name);
    if (index != NAME_NONE) return index;
    p->at = start;
    expected(p, "%s declared above", what);
    return 0;
}

// A name that is declared here; `start` is where it stands, for the message about a second one.
static const char *declaration(Parser *p, Names *names, uint32_t index, const char *what) {
    const char *start = p->at;
    const char *name = name_word(p, what);
    if (!failed(p) && !names_add(names, p->scratch, name, index)) {
        p->at = start;
        expected(p, "%s that is new, not a second one", what);
    }
    return name;
}

/* Sections ------------------------------------------------------------------------------------- */

static void parse_mesh(Parser *p) {
    PlanMesh *mesh = &p->plan->mesh;
    if (!accept(p, "mesh")) return;
    for (int axis = 0; axis < N_AXES; axis++) {
        literal(p, " ");
        literal(p, plan_axis_words[axis]);
        literal(p, " ");
        mesh->size[axis] = (int32_t)integer(p, 1, PLAN_MOST_RANKS, "ranks");
    }
    if (accept(p, " node ")) mesh->node = (int32_t)integer(p, 2, PLAN_MOST_RANKS, "ranks of a node");
    literal(p, " stage ");
    mesh->stage = (int32_t)integer(p, 0, PLAN_MOST_RANKS, "a stage");
    newline(p);
}

static void parse_head(Parser *p) {
    Plan *plan = p->plan;
    literal(p, "plan ");
    int64_t version = integer(p, 0, INT64_MAX, "a version");
    if (failed(p)) return;
    if (version != PLAN_VERSION) {
        p->status = status_fail(ERR_VERSION,
                                "plan text, line %d: expected version %d, found version %lld\n"
                                "  hint: make the plan again with the moec that runs it",
                                p->line, PLAN_VERSION, (long long)version);
        return;
    }
    newline(p);
    literal(p, "model ");
    plan->model = name_word(p, "the model's name");
    literal(p, " target ");
    plan->target = name_word(p, "the target's name");
    literal(p, " tokens ");
    plan->tokens = count(p, "tokens");
    literal(p, " sequence ");
    plan->sequence = count(p, "tokens");
    literal(p, " vocab ");
    plan->vocab = count(p, "a size");
    literal(p, " microbatches ");
    plan->microbatches = (int32_t)integer(p, 0, INT32_MAX, "microbatches");
    literal(p, " trained ");
    plan->n_trained = count(p, "numbers");
    newline(p);
    parse_mesh(p);
    if (accept(p, "row_align ")) {
        plan->row_align = (int32_t)integer(p, 2, PLAN_MOST_ALIGN, "rows");
        newline(p);
    }
    literal(p, "peak ");
    const char *at = p->at;
    int peak_line = p->line;
    int64_t peak = count(p, "bytes"), sum = 0;
    newline(p);
    for (int i = 0; i < N_REGIONS; i++) {
        char words[40];
        snprintf(words, sizeof words, "region %s ", plan_region_words[i]);
        if (plan_region_is_rare(i) && !ahead(p, words)) continue;
        literal(p, "region ");
        literal(p, plan_region_words[i]);
        literal(p, " ");
        plan->region_bytes[i] = count(p, "bytes");
        newline(p);
        if (failed(p)) return;
        if (__builtin_add_overflow(sum, plan->region_bytes[i], &sum)) sum = -1;
        if (sum < 0) break;
    }
    if (!failed(p) && sum != peak) {
        p->at = at;
        p->line = peak_line;
        expected(p, "the sum of the regions, %lld", (long long)sum);
    }
}

static void parse_buckets(Parser *p) {
    Plan *plan = p->plan;
    while (accept(p, "bucket ")) {
        PlanBucket *bucket =
            ARENA_PUSH(plan->arena, plan->buckets, plan->n_buckets, plan->cap_buckets);
        bucket->group = (uint8_t)word(p, plan_group_words, N_GROUPS, 0, "a group of ranks");
        bucket->sharded = accept(p, " sharded");
        literal(p, " at ");
        bucket->offset = address(p);
        literal(p, " bytes ");
        bucket->bytes = count(p, "bytes");
        literal(p, " grads ");
        bucket->grads = address(p);
        literal(p, " shard ");
        bucket->shard = address(p);
        bucket->weights = accept(p, " weights ") ? address(p) : -1;
        literal(p, " decay ");
        bucket->decay = number(p, "a multiplier");
        literal(p, " lr ");
        bucket->lr = number(p, "a multiplier");
        newline(p);
    }
}

// Rank by expert: as many numbers as experts, each of a byte and more.
static const int32_t *parse_owners(Parser *p, int32_t experts) {
    if (experts > (int64_t)left(p)) {
        expected(p, "the ranks of %d experts", experts);
        return NULL;
    }
    int32_t *owner = ARENA_ARRAY(p->plan->arena, int32_t, experts);
    for (int32_t i = 0; i < experts; i++) {
        if (i) literal(p, ",");
        owner[i] = (int32_t)integer(p, 0, PLAN_MOST_RANKS, "a rank");
    }
    return owner;
}

static void parse_params(Parser *p) {
    Plan *plan = p->plan;
    Names names = { 0 };
    while (accept(p, "param ")) {
        PlanParam *param = ARENA_PUSH(plan->arena, plan->params, plan->n_params, plan->cap_params);
        param->name = declaration(p, &names, plan->n_params - 1, "a parameter's name");
        param->n_dims = (uint8_t)dims(p, param->dims);
        literal(p, " init ");
        param->init = (uint8_t)word(p, plan_init_words, PLAN_INIT_ONES + 1, 0,
                                    "an initial value (normal, zeros, ones)");
        literal(p, " std ");
        param->std = number(p, "a standard deviation");
        literal(p, " decay ");
        param->decay = number(p, "a multiplier");
        literal(p, " lr ");
        param->lr = number(p, "a multiplier");
        param->offset = accept(p, " at ") ? address(p) : -1;
        param->grad = plan->n_buckets && accept(p, " grad ") ? address(p) : -1;
        param->per_expert = accept(p, " expert");
        if (accept(p, " of ")) param->experts = (int32_t)integer(p, 1, (int64_t)left(p), "experts");
        if (param->experts && accept(p, " on ")) param->owner = parse_owners(p, param->experts);
        param->is_state = accept(p, " state");
        if (!plan->n_buckets && !param->is_state) param->grad = param->offset;
        if (plan->mesh.size[AXIS_pp] > 1) {
            literal(p, " number ");
            param->number = (int32_t)integer(p, 0, INT32_MAX, "the parameter's place in the model");
        }
        newline(p);
    }
}

static void parse_sources(Parser *p) {
    Plan *plan = p->plan;
    while (accept(p, "source ")) {
        PlanSource *source =
            ARENA_PUSH(plan->arena, plan->sources, plan->n_sources, plan->cap_sources);
        source->text = "";
        source->hash = hash_word(p);
        literal(p, " ");
        int64_t bytes = integer(p, 0, (int64_t)left(p), "bytes of source text that are there");
        newline(p);
        if (failed(p)) return;
        if ((size_t)bytes > left(p)) {
            expected(p, "%lld bytes of source text up to the end line", (long long)bytes);
            return;
        }
        source->text = arena_strndup(plan->arena, p->at, (size_t)bytes);
        source->bytes = bytes;
        if (strlen(source->text) != (size_t)bytes) {
            expected(p, "source text without a zero byte");
            return;
        }
        for (int64_t i = 0; i < bytes; i++) p->line += p->at[i] == '\n';
        p->at += bytes;
        newline(p);
    }
}

static void parse_args(Parser *p, PlanKernel *kernel) {
    uint32_t cap = 0;
    while (accept(p, "arg ")) {
        PlanArg *arg = ARENA_PUSH(p->plan->arena, kernel->args, kernel->n_args, cap);
        arg->name = name_word(p, "a parameter's name");
        literal(p, " ");
        arg->dtype = (uint8_t)dtype_word(p);
        literal(p, " ");
        static const char *const access[] = { "mut", "const" };
        arg->is_const = word(p, access, 2, 0, "const or mut");
        newline(p);
    }
}

static void parse_shape(Parser *p, PlanShape *shape) {
    if (!accept(p, " shape ")) return;
    shape->dtype = (uint8_t)dtype_word(p);
    literal(p, " ");
    shape->m = integer(p, 1, INT64_MAX, "m");
    literal(p, " x ");
    shape->n = integer(p, 1, INT64_MAX, "n");
    literal(p, " x ");
    shape->k = integer(p, 1, INT64_MAX, "k");
    literal(p, " of ");
    shape->groups = (int32_t)integer(p, 1, INT32_MAX, "groups");
}

static void parse_kernels(Parser *p) {
    Plan *plan = p->plan;
    while (accept(p, "kernel ")) {
        PlanKernel *kernel =
            ARENA_PUSH(plan->arena, plan->kernels, plan->n_kernels, plan->cap_kernels);
        kernel->entry = declaration(p, &p->kernels, plan->n_kernels - 1, "a kernel's name");
        literal(p, " family ");
        kernel->family = name_word(p, "a family");
        literal(p, " hash ");
        kernel->hash = hash_word(p);
        literal(p, " source ");
        kernel->source = (uint32_t)integer(p, 0, (int64_t)plan->n_sources - 1, "a source above");
        literal(p, " tiles ");
        kernel->tiles = count(p, "tiles");
        if (accept(p, " threads ")) {
            kernel->threads = (int32_t)integer(p, 0, INT32_MAX, "threads");
            literal(p, " shared ");
            kernel->shared = (int32_t)integer(p, 0, INT32_MAX, "bytes");
        }
        literal(p, " flops ");
        kernel->flops = number(p, "operations");
        literal(p, " bytes ");
        kernel->bytes = number(p, "bytes");
        parse_shape(p, &kernel->shape);
        newline(p);
        parse_args(p, kernel);
    }
}

static void parse_buffers(Parser *p, PlanProgram *program) {
    Arena *arena = p->plan->arena;
    while (accept(p, "buffer ")) {
        PlanBuffer *buffer =
            ARENA_PUSH(arena, program->buffers, program->n_buffers, program->cap_buffers);
        buffer->name = declaration(p, &p->buffers, program->n_buffers - 1, "a buffer's name");
        literal(p, " ");
        buffer->dtype = (uint8_t)dtype_word(p);
        buffer->n_dims = (uint8_t)dims(p, buffer->dims);
        literal(p, " ");
        buffer->region = (uint8_t)word(p, plan_region_words, N_REGIONS, '+', "a region");
        literal(p, "+");
        buffer->offset = address(p);
        for (int32_t cap = 0; accept(p, ",");) {
            if (buffer->n_further == cap) {
                int64_t *old = buffer->further;
                cap = cap ? 2 * cap : 4;
                buffer->further = ARENA_ARRAY(arena, int64_t, cap);
                if (old) memcpy(buffer->further, old, sizeof *old * (size_t)buffer->n_further);
            }
            buffer->further[buffer->n_further++] = address(p);
        }
        literal(p, " bytes ");
        buffer->bytes = count(p, "bytes");
        literal(p, " live ");
        buffer->first = (int32_t)integer(p, INT32_MIN, INT32_MAX, "an instruction");
        literal(p, "..");
        buffer->last = (int32_t)integer(p, INT32_MIN, INT32_MAX, "an instruction");
        if (accept(p, " @ ")) buffer->loc = name_word(p, "a place in a file");
        newline(p);
    }
}

static void parse_interface(Parser *p, PlanProgram *program) {
    Arena *arena = p->plan->arena;
    while (accept(p, "input ")) {
        PlanInput *input =
            ARENA_PUSH(arena, program->inputs, program->n_inputs, program->cap_inputs);
        input->kind = (uint8_t)word(p, plan_input_words, N_INPUTS, 0, "a kind of input");
        literal(p, " ");
        input->k = (int32_t)integer(p, INT32_MIN, INT32_MAX, "a distance");
        literal(p, " ");
        input->buffer = reference(p, &p->buffers, "a buffer");
        newline(p);
    }
    Names metrics = { 0 }, outputs = { 0 };
    while (accept(p, "metric ")) {
        PlanMetric *metric =
            ARENA_PUSH(arena, program->metrics, program->n_metrics, program->cap_metrics);
        metric->name = declaration(p, &metrics, program->n_metrics - 1, "a metric's name");
        metric->sum = accept(p, " sum ");
        if (!metric->sum) {
            literal(p, " weight ");
            metric->weight = number(p, "a weight");
            literal(p, " ");
        }
        metric->buffer = reference(p, &p->buffers, "a buffer");
        newline(p);
    }
    while (accept(p, "output ")) {
        PlanOutput *output =
            ARENA_PUSH(arena, program->outputs, program->n_outputs, program->cap_outputs);
        output->name = declaration(p, &outputs, program->n_outputs - 1, "an output's name");
        literal(p, " ");
        output->buffer = reference(p, &p->buffers, "a buffer");
        newline(p);
    }
}

// A kernel, or what crosses ranks.
static void parse_what(Parser *p, PlanInstr *instr) {
    if (!accept(p, "@")) {
        instr->kernel = reference(p, &p->kernels, "a kernel");
        return;
    }
    for (int half = HALF_start; half < N_HALVES; half++) {
        if (!accept(p, plan_half_words[half])) continue;
        instr->half = (uint8_t)half;
        literal(p, " ");
        break;
    }
    instr->op = (uint8_t)word(p, plan_op_words, N_PLAN_OPS, 0, "what crosses ranks");
    instr->group = GROUP_pp;
    literal(p, " ");
    if (instr->op == PLAN_send || instr->op == PLAN_recv) {
        instr->peer = (int32_t)integer(p, 0, PLAN_MOST_RANKS, "a stage");
        if (accept(p, " back")) instr->lane = LANE_back;
    } else instr->group = (uint8_t)word(p, plan_group_words, N_GROUPS, 0, "a group of ranks");
    if (instr->op != PLAN_blocks) return;
    literal(p, " even ");
    instr->even = number(p, "a number of rows");
}

static void parse_instrs(Parser *p, PlanProgram *program, PlanSegment *segment) {
    Arena *arena = p->plan->arena;
    for (;;) {
        if (accept(p, "repeat ")) {
            PlanRepeat *repeat =
                ARENA_PUSH(arena, program->repeats, program->n_repeats, program->cap_repeats);
            repeat->first = (int32_t)program->n_instrs;
            repeat->trip = (int32_t)integer(p, 0, INT32_MAX, "a number of trips");
            literal(p, " of ");
            repeat->n = (int32_t)integer(p, 0, INT32_MAX, "a number of instructions");
            if (accept(p, " by ")) repeat->count = 1 + reference(p, &p->buffers, "a buffer");
            newline(p);
        }
        if (!accept(p, "instr ")) return;
        int64_t number = program->n_instrs;
        PlanInstr *instr =
            ARENA_PUSH(arena, program->instrs, program->n_instrs, program->cap_instrs);
        integer(p, number, number, "the next instruction's number");
        literal(p, " ");
        parse_what(p, instr);
        instr->operands = program->n_operands;
        while (accept(p, " ")) {
            instr->last = accept(p, "last");
            if (instr->last) break;
            int mode = word(p, plan_mode_words, N_OPERAND_MODES, 0, "a mode (<, >, +=, =, >>, <<, >?)");
            literal(p, " ");
            uint32_t buffer = reference(p, &p->buffers, "a buffer");
            PlanOperand *operand =
                ARENA_PUSH(arena, program->operands, program->n_operands, program->cap_operands);
            *operand = (PlanOperand){ .buffer = buffer, .mode = (uint8_t)mode };
            if (operand_is_remote(mode)) {
                literal(p, " ");
                operand->group = (uint8_t)word(p, plan_group_words, N_GROUPS, 0, "a group of ranks");
            }
            if (accept(p, " + ")) {
                operand->offset = address(p);
                literal(p, " of ");
                operand->bytes = count(p, "bytes");
            }
            if (accept(p, " step ")) operand->step = address(p);
            instr->n_operands++;
        }
        newline(p);
        segment->n++;
    }
}

static void parse_program(Parser *p, PlanProgram *program) {
    Arena *arena = p->plan->arena;
    literal(p, " act ");
    program->act_bytes = count(p, "bytes");
    literal(p, " bound ");
    program->act_bound = count(p, "bytes");
    newline(p);
    p->buffers = p->segments = (Names){ 0 };
    parse_buffers(p, program);
    parse_interface(p, program);
    while (accept(p, "segment ")) {
        PlanSegment *segment =
            ARENA_PUSH(arena, program->segments, program->n_segments, program->cap_segments);
        segment->name = declaration(p, &p->segments, program->n_segments - 1, "a segment's name");
        segment->first = (int32_t)program->n_instrs;
        newline(p);
        parse_instrs(p, program, segment);
    }
    while (accept(p, "row ")) {
        PlanRow *row = ARENA_PUSH(arena, program->rows, program->n_rows, program->cap_rows);
        row->segment = reference(p, &p->segments, "a segment");
        literal(p, " mb ");
        row->microbatch = (int32_t)integer(p, -1, INT32_MAX, "a microbatch");
        literal(p, " slot ");
        row->slot = (int32_t)integer(p, 0, INT32_MAX, "a slot");
        newline(p);
    }
}

static void parse_end(Parser *p) {
    const char *end_line = p->at;
    literal(p, "end ");
    const char *at = p->at;
    Hash hash = hash_word(p);
    newline(p);
    if (!failed(p) && p->at != p->end) expected(p, "the end of the text");
    if (failed(p)) return;
    Hash actual = hash_bytes(p->text, (size_t)(end_line - p->text));
    if (hash_equal(hash, actual)) return;
    char hex[33];
    hash_hex(actual, hex);
    p->at = at;
    p->line--;
    expected(p, "%s, the hash of the text above", hex);
}

// A second spelling of the same plan ("007", a quoted name that needs no quotes) is refused.
static void check_canonical(Parser *p) {
    if (failed(p)) return;
    Text again = { 0 };
    plan_print_text(p->plan, true, &again);
    size_t n = (size_t)(p->end - p->text), i = 0;
    p->line = p->first_line;
    while (i < n && i < again.bytes && p->text[i] == again.at[i]) p->line += p->text[i++] == '\n';
    if (i < n || i < again.bytes) {
        p->at = p->text + i;
        size_t word_end = i;
        while (word_end < again.bytes && word_end < i + 32 && again.at[word_end] > ' ') word_end++;
        expected(p, "the canonical spelling \"%.*s\"", (int)(word_end - i), again.at + i);
    }
    text_finish(&again);
}

static void parse_plan(Parser *p) {
    Plan *plan = p->plan;
    parse_head(p);
    parse_buckets(p);
    parse_params(p);
    parse_sources(p);
    parse_kernels(p);
    Names programs = { 0 };
    while (accept(p, "program ")) {
        PlanProgram *program =
            ARENA_PUSH(plan->arena, plan->programs, plan->n_programs, plan->cap_programs);
        program->name = declaration(p, &programs, plan->n_programs - 1, "a program's name");
        parse_program(p, program);
    }
    parse_end(p);
    check_canonical(p);
}

Status plan_parse(const char *text, size_t bytes, Plan **out) {
    return plan_parse_from(text, bytes, 1, out);
}

Status plan_parse_from(const char *text, size_t bytes, int line, Plan **out) {
    Parser p = { .text = text, .at = text, .end = text + bytes, .line = line, .first_line = line };
    *out = NULL;
    p.plan = plan_create();
    p.scratch = arena_create();
    parse_plan(&p);
    arena_destroy(p.scratch);
    if (p.status == OK) {
        *out = p.plan;
    } else {
        plan_destroy(p.plan);
    }
    return p.status;
}
