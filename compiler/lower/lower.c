// SPDX-License-Identifier: Apache-2.0
// The passes in order, and the loop over programs.
#include "compiler/lower/lower.h"

#include <stdio.h>
#include <stdlib.h>

#include "compiler/lower/pass.h"

typedef struct Pass {
    char letter; // of -d
    const char *name;
    bool (*run)(Lower *);
    void (*dump)(const Lower *, Text *);
} Pass;

static void dump_model(const Lower *l, Text *out) {
    model_print(l->m, out, true);
}

static const Pass passes[] = {
    // First: refuses what cannot be lowered before anything is built on it.
    { 'p', "precision", pass_precision, dump_model },
    // Changes what backward reads: before anything is cloned.
    { 'l', "loss", pass_loss, dump_model },
    // Before recompute, which sees to what its clones read in backward.
    { 'o', "rounds", pass_rounds, dump_model },
    // Clones nodes, so nothing may be known by number yet.
    { 'r', "recompute", pass_recompute, dump_model },
    // Before buffers exist: decides which values need one.
    { 'f', "fuse", pass_fuse, dump_fuse },
    // Names the memory of what crosses kernels; the scheduler weighs these bytes.
    { 'd', "describe", pass_describe, dump_describe },
    // Needs buffers with their readers; changes their sizes.
    { 'c', "chunk", pass_chunk, dump_chunk },
    // Before place: the order decides who lives with whom.
    { 's', "schedule", pass_schedule, dump_schedule },
    // Needs nothing of place; a kernel that cannot be generated is found before addresses are
    // sought.
    { 'g', "generate", pass_generate, NULL },
    // All lives are known now.
    { 'a', "place", pass_place, dump_place },
    // Last: copies into the plan.
    { 'e', "emit", pass_emit, NULL },
};

bool lower_fail(Lower *l, uint32_t node, const char *format, ...) {
    char message[sizeof l->from->diag.message];
    va_list list;
    va_start(list, format);
    vsnprintf(message, sizeof message, format, list);
    va_end(list);
    diag_set(l->from, "%s", message);
    if (node && l->m) l->from->diag.loc = l->m->nodes[node].loc;
    return false;
}

int64_t lower_rows(const Lower *l, const Type *type) {
    switch ((RowKind)type->row) {
    case ROW_T: return l->tokens;
    case ROW_R: return lower_capacity(l, type->route);
    case ROW_E: return lower_experts(l, type);
    case ROW_S: return l->sequences;
    default: return 1;
    }
}

static bool wants_dump(const LowerOptions *options, char letter) {
    return options->dump && options->dump_out && strchr(options->dump, letter);
}

bool lower_until_described(Lower *l) {
    for (int i = 0; i < COUNT_OF(passes); i++) {
        if (!passes[i].run(l)) return false;
        if (passes[i].run == pass_describe) break;
    }
    return true;
}

static bool run_passes(Lower *l) {
    for (int i = 0; i < COUNT_OF(passes); i++) {
        const Pass *pass = &passes[i];
        double start = time_seconds();
        if (!pass->run(l)) return false;
#ifndef NDEBUG
        if (!lower_verify(l, pass->letter)) return false;
#endif
        log_debug("lower %s %s: %.3f s", program_name[l->program], pass->name,
                  time_seconds() - start);
        if (!wants_dump(l->options, pass->letter) || !pass->dump) continue;
        text_printf(l->options->dump_out, "-- %s after %s\n", program_name[l->program], pass->name);
        pass->dump(l, l->options->dump_out);
    }
    return true;
}

// Computed values first, then what is read from memory before the program runs, then numbers.
static int operand_rank(const Model *m, uint32_t n) {
    while (op_info[m->nodes[n].op].class == CLASS_VIEW) n = model_arg(m, n, 0);
    OpClass class = op_info[m->nodes[n].op].class;
    if (m->nodes[n].op == OP_CONST || m->nodes[n].op == OP_CONSTANT) return 2;
    return class == CLASS_SOURCE || class == CLASS_GENERATOR;
}

// The graph orders operands of commutative operations by age. A number or a parameter that an
// earlier layer has used before is older than one met first here, and equal work would look
// different. The model is not built on any more, so its arguments may be swapped in place.
static void order_operands(Model *m) {
    for (uint32_t n = 1; n < m->n_nodes; n++) {
        Op op = m->nodes[n].op;
        if (op != OP_ADD && op != OP_MUL && op != OP_EQ && op != OP_NE) continue;
        uint32_t *args = m->args + m->nodes[n].args, first = args[0];
        if (operand_rank(m, args[0]) <= operand_rank(m, args[1])) continue;
        args[0] = args[1];
        args[1] = first;
    }
}

static bool is_topological(const Model *m) {
    for (uint32_t n = 1; n < m->n_nodes; n++) {
        for (int i = 0; i < m->nodes[n].n_args; i++) {
            if (model_arg(m, n, i) >= n) return false;
        }
    }
    return true;
}

// The graph of a program, of this stage; NULL: from->diag says why not.
static Model *make_graph(Lower *l, Program program) {
    bool have = program == PROGRAM_STEP && l->graph;
    Model *m = have ? model_copy(l->graph) : model_program(l->from, program);
    if (!m || l->layout->pp == 1 || cut_program(l, m)) return m;
    model_destroy(m);
    return NULL;
}

bool lower_start(Lower *l, Program program) {
    l->program = program;
    bool have = program == PROGRAM_STEP && l->shared->step;
    l->m = have ? l->shared->step : make_graph(l, program);
    if (have) l->shared->step = NULL;
    if (!l->m) return false; // from->diag says why
    if (!is_topological(l->m)) model_sort(l->m);
    order_operands(l->m);
    return true;
}

static bool lower_program(Lower *l, Program program) {
    Lower here = *l;
    here.arena = arena_create();
    bool done = lower_start(&here, program) && run_passes(&here);
    model_destroy(here.m);
    arena_destroy(here.arena);
    return done;
}

// "p precision, l loss, ..": what -d takes.
static void hint_dumps(Model *m) {
    Text text = { 0 };
    for (int i = 0; i < COUNT_OF(passes); i++)
        if (passes[i].dump)
            text_printf(&text, "%s%c %s", text.bytes ? ", " : "", passes[i].letter, passes[i].name);
    diag_hint(m, "%s", text_cstr(&text));
    text_finish(&text);
}

static bool check_dump(Lower *l) {
    for (const char *c = l->options->dump; c && *c; c++) {
        int i = 0;
        while (i < COUNT_OF(passes) && !(passes[i].letter == *c && passes[i].dump)) i++;
        if (i < COUNT_OF(passes)) continue;
        lower_fail(l, 0, "no pass '%c' to dump", *c);
        hint_dumps(l->from);
        return false;
    }
    return true;
}

static bool check_options(Lower *l) {
    const LowerOptions *options = l->options;
    if (!check_dump(l)) return false;
    int64_t tokens = (int64_t)options->microbatch * l->from->sequence;
    if (options->microbatch < 1 || options->microbatches < 1 || tokens > INT32_MAX) {
        lower_fail(l, 0,
                   "expected 1 or more sequences and microbatches of at most %d tokens, got %d "
                   "microbatches of %d "
                   "sequences of %d",
                   INT32_MAX, options->microbatches, options->microbatch, l->from->sequence);
        return false;
    }
    if (options->microbatches > LOWER_MOST_MICROBATCHES) {
        lower_fail(l, 0, "expected at most %d microbatches a step, got %d",
                   LOWER_MOST_MICROBATCHES, options->microbatches);
        diag_hint(l->from, "a larger microbatch makes fewer of them");
        return false;
    }
    PlanTarget target;
    l->target = options->target ? options->target : "cpu";
    if (!plan_target(l->target, &target)) {
        lower_fail(l, 0, "no target '%s'", l->target);
        diag_hint(l->from, "cpu, or cuda:ARCH such as cuda:sm_80 or cuda:sm_90a");
        return false;
    }
    static const Layout single = { .pp = 1, .dp = 1, .ep = 1, .chunks = 1 };
    l->layout = options->layout ? options->layout : &single;
    l->from->ranks = l->layout->dp;
    l->chunks = l->layout->chunks;
    if (l->chunks > MOST_CHUNKS) {
        lower_fail(l, 0, "expected at most %d virtual stages on a rank, got %d", MOST_CHUNKS, l->chunks);
        diag_hint(l->from, "fewer slots, or more ranks along the pipeline");
        return false;
    }
    l->tiled = l->one_order = target.cuda;
    l->tokens = tokens;
    l->sequences = options->microbatch;
    return true;
}

// Which parameters have a gradient decides their addresses, the same in plans with and without a
// step.
static bool find_gradients(Lower *l) {
    bool wanted = l->options->programs[PROGRAM_STEP];
    Model *step = l->shared->step = make_graph(l, PROGRAM_STEP);
    if (!step) return !wanted; // what cannot be trained may still be evaluated
    bool *has = l->shared->has_gradient = ARENA_ARRAY(l->plan->arena, bool, step->n_params);
    for (uint32_t n = 1; n < step->n_nodes; n++) {
        if (step->nodes[n].op == OP_ACCUMULATE)
            has[step->nodes[model_arg(step, n, 0)].attr.index] = true;
    }
    for (uint32_t i = 0; wanted && i < step->n_params; i++) {
        if (has[i] || step->params[i].is_state || !lower_holds(l, i)) continue;
        log_warn("%s: no loss depends on this parameter, it keeps its initial value",
                 model_name(step, step->params[i].addr));
    }
    return true;
}

static bool trains(const Plan *plan) {
    for (uint32_t i = 0; i < plan->n_params; i++)
        if (!plan->params[i].is_state) return true;
    return false;
}

static bool lower_programs(Lower *l) {
    Plan *plan = l->plan;
    plan->model = arena_strdup(plan->arena, l->from->name ? l->from->name : "model");
    plan->tokens = l->tokens;
    plan->sequence = l->from->sequence;
    plan->vocab = l->from->vocab;
    plan->microbatches = l->options->microbatches;
    plan->mesh = layout_mesh(l->layout, l->options->stage);
    plan->row_align = lower_align(l);
    if (l->layout->pp > 1) stages_survey(l);
    if (!find_gradients(l) || !emit_params(l)) return false;
    if (l->options->programs[PROGRAM_STEP] && l->layout->pp > 1 && !trains(plan)) {
        lower_fail(l, 0, "stage %d of the pipeline trains no parameter", l->options->stage);
        diag_hint(l->from, "give it a layer: stages=... has one number for each");
        return false;
    }
    // The step last: it packs again what the others read packed.
    for (int program = N_PROGRAMS - 1; program >= 0; program--) {
        if (l->options->programs[program] && !lower_program(l, (Program)program)) return false;
    }
    for (uint32_t i = 0, n = plan->n_programs; i < n / 2; i++) {
        PlanProgram last = plan->programs[n - 1 - i];
        plan->programs[n - 1 - i] = plan->programs[i];
        plan->programs[i] = last;
    }
    l->unplaced = false; // the one program has seen to it
    if (!emit_pack_program(l)) return false;
    plan->region_bytes[REGION_sym] = plan_window(plan) + plan_tables(plan);
    if (plan_check(plan) == OK) return true;
    return lower_fail(l, 0, "internal error: the plan does not pass its own check: %s",
                      status_message());
}

Plan *lower_model(Model *model, const LowerOptions *options) {
    Shared shared = { 0 };
    Lower l = { .from = model, .options = options, .shared = &shared };
    if (!check_options(&l)) return NULL;
    l.plan = plan_create();
    l.plan->target = arena_strdup(l.plan->arena, l.target);
    l.codegen = codegen_create(l.plan);
    bool done = l.codegen ? lower_programs(&l) : lower_fail(&l, 0, "%s", status_message());
    codegen_destroy(l.codegen);
    model_destroy(shared.step);
    if (done) return l.plan;
    plan_destroy(l.plan);
    return NULL;
}

/* Probes --------------------------------------------------------------------------------------- */

static int32_t layer_of_name(const Lower *l, const char *name) {
    if (!strncmp(name, "layers.", 7)) return atoi(name + 7) - 1;
    return strncmp(name, "embedding", 9) ? l->m->n_layers : -1;
}

static int32_t probe_layer(const Lower *l, uint32_t node) {
    return layer_of_name(l, model_name(l->m, l->m->nodes[node].addr));
}

// By bucket; parameters of one are of one layer where it is sharded.
static int32_t *layers_of_buckets(const Lower *l) {
    int32_t *layers = ARENA_ARRAY(l->arena, int32_t, l->plan->n_buckets + 1);
    for (uint32_t i = 0; i < l->plan->n_params; i++) {
        const PlanBucket *bucket = plan_bucket(l->plan, &l->plan->params[i]);
        if (bucket) layers[bucket - l->plan->buckets] = layer_of_name(l, l->plan->params[i].name);
    }
    return layers;
}

static int32_t layer_of_kernel(const Lower *l, const Kernel *k, const int32_t *of_bucket) {
    if (k->bucket) return of_bucket[k->bucket - 1];
    return probe_layer(l, k->node || !k->n_units ? k->node : l->units[k->units[0]].node);
}

static bool is_of_experts(const Lower *l, const Kernel *k) {
    return k->bucket && l->plan->buckets[k->bucket - 1].group == GROUP_edp;
}

static uint8_t grows_by(const Lower *l, const Buffer *buffer) {
    const Type *type = model_type(l->m, buffer->node);
    const Kernel *writer = &l->kernels[buffer->writer - 1];
    bool experts = writer->bucket ? is_of_experts(l, writer)
                                  : writer->op == PLAN_launch && writer->desc.family == FAMILY_PACK && writer->desc.experts > 0;
    if (experts && buffer->kind != BUFFER_VALUE) return ROW_E; // weights, gathered and packed
    switch (buffer->kind) {
    case BUFFER_ROW_OF_SLOT: return ROW_T;
    case BUFFER_SLOT_OF_ROW: return ROW_R;
    case BUFFER_PARTIALS: return type->row == ROW_NONE ? ROW_T : type->row;
    case BUFFER_VALUE: break;
    case BUFFER_SPARE: break;
    default: return ROW_NONE;
    }
    if (type->row == ROW_T && buffer->dims[0] != l->tokens) return ROW_NONE; // pieces of rows
    return type->row;
}

static void report_kernels(const Lower *l, const LowerProbe *probe, const int32_t *of_bucket) {
    for (uint32_t t = 0; t < l->n_kernels; t++) {
        const Kernel *k = &l->kernels[l->order[t]];
        bool forward = is_forward(k->segment), backward = is_backward(k->segment);
        if (k->op != PLAN_launch || !(forward || backward)) continue;
        uint32_t node = k->n_units ? l->units[k->units[0]].node : k->node;
        ProbeKernel at = { .desc = &k->desc,
                           .layer = layer_of_kernel(l, k, of_bucket),
                           .backward = backward,
                           .again = backward && node >= l->first_again && node < l->end_again,
                           .weights = k->desc.family == FAMILY_MATMUL_W || k->desc.family == FAMILY_EMBED_W,
                           .experts = is_of_experts(l, k),
                           .trips = k->repeat ? l->repeats[k->repeat - 1].trip : 1,
                           .time = k->time };
        probe->kernel(probe->user, &at);
    }
}

// What is read where node n is wanted and computed again there: from memory, or what would have to be in it.
static void mark_waiting(const Lower *l, uint32_t n, const bool *weights, bool *waits) {
    uint32_t plain = lower_plain(l, n);
    Role role = l->info[plain].role;
    if (weights[plain]) return;
    if (role == ROLE_ROW || role == ROLE_KERNEL) waits[plain] = true;
    for (int i = 0; role == ROLE_INLINE && i < l->m->nodes[plain].n_args; i++)
        mark_waiting(l, model_arg(l->m, plain, i), weights, waits);
}

// Values that gradients of weights, made later than the rest of backward, would find in memory.
static bool *find_waiting(const Lower *l) {
    bool *weights = ARENA_ARRAY(l->arena, bool, l->m->n_nodes), *waits = ARENA_ARRAY(l->arena, bool, l->m->n_nodes);
    lower_mark_weights(l, weights);
    for (uint32_t n = 1; n < l->m->n_nodes; n++)
        for (int i = 0; weights[n] && i < l->m->nodes[n].n_args; i++)
            mark_waiting(l, model_arg(l->m, n, i), weights, waits);
    return waits;
}

static void report_buffers(const Lower *l, const LowerProbe *probe, const int32_t *of_bucket) {
    int32_t backward = l->segment_first[SEGMENT_BACKWARD], end = l->segment_first[SEGMENT_UPDATE];
    bool *waits = find_waiting(l);
    for (uint32_t b = 0; b < l->n_buffers; b++) {
        const Buffer *buffer = &l->buffers[b];
        if (!buffer_is_placed(buffer) || !buffer->writer || buffer->first >= end) continue;
        const Kernel *writer = &l->kernels[buffer->writer - 1];
        ProbeBuffer at = { .bytes = round_up(buffer->bytes, PLAN_GRAIN),
                           .layer = layer_of_kernel(l, writer, of_bucket),
                           .region = buffer->region,
                           .rows = grows_by(l, buffer),
                           .saved = buffer->first < backward && buffer->last >= backward,
                           .waits = buffer->kind == BUFFER_VALUE && waits[buffer->node],
                           .gradient = writer->bucket && (writer->op == PLAN_exchange || writer->desc.family == FAMILY_CLEAR),
                           .first = buffer->first,
                           .last = buffer->last };
        if (at.waits) waits[buffer->node] = false;
        probe->buffer(probe->user, &at);
    }
    for (uint32_t n = 1; n < l->m->n_nodes; n++) { // what today is never whole in memory
        const Type *type = model_type(l->m, n);
        if (!waits[n]) continue;
        ProbeBuffer at = { .bytes = round_up(lower_rows(l, type) * type_features(type) * dtype_bytes((Dtype)l->info[n].dtype),
                                             PLAN_GRAIN),
                           .layer = probe_layer(l, n), .region = REGION_act, .rows = type->row, .waits = true,
                           .first = -1, .last = -1 };
        probe->buffer(probe->user, &at);
    }
}

static bool probe_step(Lower *l, const LowerProbe *probe) {
    if (!find_gradients(l) || !emit_params(l) || !lower_start(l, PROGRAM_STEP)) return false;
    for (int i = 0; i < COUNT_OF(passes); i++) {
        if (!passes[i].run(l)) return false;
        if (passes[i].run == pass_schedule) break;
    }
    const int32_t *of_bucket = layers_of_buckets(l);
    report_kernels(l, probe, of_bucket);
    report_buffers(l, probe, of_bucket);
    return true;
}

bool lower_probe(Model *model, const LowerOptions *options, const LowerProbe *probe) {
    Shared shared = { 0 };
    LowerOptions step = *options;
    step.programs[PROGRAM_STEP] = true;
    Lower l = { .from = model, .options = &step, .shared = &shared, .arena = arena_create(), .probe = true, .graph = probe->graph };
    bool done = check_options(&l);
    if (done) {
        l.plan = plan_create();
        l.plan->tokens = l.tokens;
        l.plan->sequence = model->sequence;
        l.plan->vocab = model->vocab;
        l.plan->microbatches = step.microbatches;
        l.plan->mesh = layout_mesh(l.layout, 0);
        done = probe_step(&l, probe);
        model_destroy(l.m ? l.m : shared.step);
        plan_destroy(l.plan);
    }
    arena_destroy(l.arena);
    return done;
}
