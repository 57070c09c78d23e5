// SPDX-License-Identifier: Apache-2.0
// The form of a program: references, sizes, launches, rows. Rules are listed in check.c.
#include "runtime/plan/check.h"

#define REFUSE_IN(c, rule, format, ...)                                                            \
    REFUSE(rule, "program \"%s\", " format, (c)->program->name, __VA_ARGS__)

/* References and sizes ------------------------------------------------------------------------ */

// Where the buffer lies, in every slot that has a place of its own.
static Status check_places(const ProgramCheck *c, const PlanBuffer *buffer) {
    bool slotted = plan_region_is_placed(buffer->region) || buffer->region == REGION_io;
    if (buffer->n_further && (!slotted || buffer->n_further != c->slots - 1))
        REFUSE_IN(c, "sizes", "buffer \"%s\": expected one place, or in %s one for each of %d slots, found %d in %s",
                  buffer->name, "act, sym and io", c->slots, 1 + buffer->n_further,
                  plan_region_words[buffer->region]);
    int64_t region = c->plan->region_bytes[buffer->region];
    for (int32_t slot = 0; slot <= buffer->n_further; slot++) {
        int64_t offset = plan_offset(buffer, slot);
        if (offset < 0 || offset % PLAN_GRAIN)
            REFUSE_IN(c, "sizes", "buffer \"%s\": expected an offset in steps of %d, found %lld",
                      buffer->name, PLAN_GRAIN, (long long)offset);
        if (offset > region || buffer->bytes > region - offset)
            REFUSE_IN(
                c, "sizes",
                "buffer \"%s\": expected to end inside the %lld bytes of %s, found %lld bytes at "
                "%lld",
                buffer->name, (long long)region, plan_region_words[buffer->region],
                (long long)buffer->bytes, (long long)offset);
    }
    return OK;
}

static Status check_buffers(const ProgramCheck *c) {
    const PlanProgram *program = c->program;
    Names names = { 0 };
    for (uint32_t i = 0; i < program->n_buffers; i++) {
        const PlanBuffer *buffer = &program->buffers[i];
        if (!buffer->name || !*buffer->name) {
            REFUSE_IN(c, "names", "buffer %u: expected a name, found none", i);
        }
        if (!names_add(&names, c->scratch, buffer->name, i)) {
            REFUSE_IN(c, "names", "buffer \"%s\": expected a new name, found a second one",
                      buffer->name);
        }
        if (buffer->dtype >= N_DTYPES || buffer->region >= N_REGIONS ||
            buffer->n_dims > PLAN_MAX_DIMS) {
            REFUSE_IN(c, "references",
                      "buffer \"%s\": expected a type below %d, a region below %d, at most %d "
                      "dimensions, found %d, %d, %d",
                      buffer->name, N_DTYPES, N_REGIONS, PLAN_MAX_DIMS, buffer->dtype,
                      buffer->region, buffer->n_dims);
        }
        int64_t bytes = checked_bytes(buffer->dims, buffer->n_dims, dtype_bytes(buffer->dtype));
        if (bytes != buffer->bytes || bytes < 0) {
            REFUSE_IN(c, "sizes",
                      "buffer \"%s\": expected %lld bytes (dimensions times type), found %lld",
                      buffer->name, (long long)bytes, (long long)buffer->bytes);
        }
        TRY(check_places(c, buffer));
    }
    return OK;
}

static Status check_segments(const ProgramCheck *c) {
    const PlanProgram *program = c->program;
    Names names = { 0 };
    int64_t next = 0;
    if (program->n_instrs > INT32_MAX)
        REFUSE_IN(c, "references", "too many instructions: %u", program->n_instrs);
    for (uint32_t i = 0; i < program->n_segments; i++) {
        const PlanSegment *segment = &program->segments[i];
        if (!segment->name || !*segment->name || !names_add(&names, c->scratch, segment->name, i)) {
            REFUSE_IN(c, "names", "segment %u: expected a new name, found \"%s\"", i,
                      segment->name ? segment->name : "");
        }
        if (segment->first != next || segment->n < 0 || next + segment->n > program->n_instrs) {
            REFUSE_IN(c, "references",
                      "segment \"%s\": expected instructions from %lld, at most %lld, found %d "
                      "from %d",
                      segment->name, (long long)next, (long long)(program->n_instrs - next),
                      segment->n, segment->first);
        }
        next += segment->n;
    }
    if (next != program->n_instrs) {
        REFUSE_IN(c, "references", "expected segments that cover %u instructions, found %lld",
                  program->n_instrs, (long long)next);
    }
    return OK;
}

static Status check_references(const ProgramCheck *c) {
    const PlanProgram *program = c->program;
    for (uint32_t i = 0; i < program->n_instrs; i++) {
        const PlanInstr *instr = &program->instrs[i];
        if (instr->op >= N_PLAN_OPS || instr->group >= N_GROUPS || instr->lane >= N_LANES) {
            REFUSE_IN(c, "references",
                      "instruction %u: expected an operation below %d, a group below %d and a lane "
                      "below %d, found %d, %d and %d",
                      i, N_PLAN_OPS, N_GROUPS, N_LANES, instr->op, instr->group, instr->lane);
        }
        bool parts = instr->op == PLAN_gather || instr->op == PLAN_exchange;
        if (instr->half >= N_HALVES || (instr->half && !parts)) {
            REFUSE_IN(c, "references",
                      "instruction %u: expected a start or a wait of a gather or an exchange, found "
                      "half %d of %s",
                      i, instr->half, plan_op_words[instr->op]);
        }
        if (instr->op == PLAN_launch && instr->kernel >= c->plan->n_kernels) {
            REFUSE_IN(c, "references", "instruction %u: expected a kernel below %u, found %u", i,
                      c->plan->n_kernels, instr->kernel);
        }
        if ((uint64_t)instr->operands + instr->n_operands > program->n_operands) {
            REFUSE_IN(c, "references",
                      "instruction %u: expected operands below %u, found %u from %u", i,
                      program->n_operands, instr->n_operands, instr->operands);
        }
    }
    for (uint32_t i = 0; i < program->n_operands; i++) {
        const PlanOperand *operand = &program->operands[i];
        if (operand->buffer >= program->n_buffers || operand->mode >= N_OPERAND_MODES ||
            operand->group >= N_GROUPS) {
            REFUSE_IN(c, "references",
                      "operand %u: expected a buffer below %u, a mode below %d and a group below %d, "
                      "found %u, %d and %d",
                      i, program->n_buffers, N_OPERAND_MODES, N_GROUPS, operand->buffer, operand->mode,
                      operand->group);
        }
    }
    return OK;
}

/* Launches ------------------------------------------------------------------------------------ */

static Status check_operand(const ProgramCheck *c, uint32_t number, const PlanKernel *kernel,
                            uint32_t i, const PlanOperand *operand) {
    const PlanArg *arg = &kernel->args[i];
    const PlanBuffer *buffer = &c->program->buffers[operand->buffer];
    bool remote = operand_is_remote(operand->mode);
    if (remote) TRY(check_remote_operand(c, number, operand));
    Dtype dtype = remote ? DTYPE_I64 : (Dtype)buffer->dtype;
    if (dtype != arg->dtype) {
        REFUSE_IN(
            c, "launch",
            "instruction %u, buffer \"%s\": expected %s for parameter \"%s\" of kernel \"%s\", "
            "found %s",
            number, buffer->name, dtype_name(arg->dtype), arg->name, kernel->entry,
            dtype_name(dtype));
    }
    if (arg->is_const != (remote || operand->mode == OPERAND_READ)) {
        REFUSE_IN(c, "launch",
                  "instruction %u, buffer \"%s\": expected mode %s for the %s parameter \"%s\" of "
                  "kernel \"%s\", found %s",
                  number, buffer->name,
                  arg->is_const ? "<" : "> or += or =", arg->is_const ? "const" : "written",
                  arg->name, kernel->entry, plan_mode_words[operand->mode]);
    }
    return OK;
}

// A part lies inside its buffer and starts where addresses may.
static Status check_part(const ProgramCheck *c, uint32_t number, const PlanOperand *operand) {
    const PlanBuffer *buffer = &c->program->buffers[operand->buffer];
    if (!operand->offset && !operand->bytes) return OK;
    bool partial = operand->mode == OPERAND_READ || operand->mode == OPERAND_ADD;
    if (partial && !operand->step && operand->offset >= 0 && operand->offset % PLAN_GRAIN == 0 &&
        operand->offset < buffer->bytes && operand->bytes > 0 &&
        operand->bytes <= buffer->bytes - operand->offset && operand->bytes % dtype_bytes(buffer->dtype) == 0)
        return OK;
    REFUSE_IN(c, "launch",
              "instruction %u, buffer \"%s\": expected a part inside its %lld bytes from a multiple of "
              "%d on, read or added to, without a step, found %s %lld from %lld",
              number, buffer->name, (long long)buffer->bytes, PLAN_GRAIN,
              plan_mode_words[operand->mode], (long long)operand->bytes, (long long)operand->offset);
}

// Parts of one buffer that share no byte are as good as two buffers.
static bool is_apart(const PlanOperand *a, const PlanOperand *b) {
    return a->bytes && b->bytes &&
           (a->offset + a->bytes <= b->offset || b->offset + b->bytes <= a->offset);
}

static Status check_launches(const ProgramCheck *c) {
    const PlanProgram *program = c->program;
    for (uint32_t i = 0; i < program->n_instrs; i++) {
        const PlanInstr *instr = &program->instrs[i];
        if (instr->op != PLAN_launch) {
            TRY(check_crossing(c, i));
            continue;
        }
        const PlanKernel *kernel = &c->plan->kernels[instr->kernel];
        const PlanOperand *operands = check_operands(program, instr);
        if (instr->n_operands != kernel->n_args) {
            REFUSE_IN(c, "launch",
                      "instruction %u: expected %u operands for kernel \"%s\", found %u", i,
                      kernel->n_args, kernel->entry, instr->n_operands);
        }
        for (uint32_t j = 0; j < instr->n_operands; j++) {
            TRY(check_operand(c, i, kernel, j, &operands[j]));
            TRY(check_part(c, i, &operands[j]));
            for (uint32_t k = 0; k < j; k++) {
                bool writes = operand_writes(operands[j].mode) || operand_writes(operands[k].mode);
                if (writes && operands[j].buffer == operands[k].buffer &&
                    !is_apart(&operands[j], &operands[k])) {
                    REFUSE_IN(c, "alias",
                              "instruction %u: expected a written buffer once, found \"%s\" twice",
                              i, program->buffers[operands[j].buffer].name);
                }
            }
        }
    }
    return OK;
}

/* Rows ---------------------------------------------------------------------------------------- */

// Rows are some before, the body once per microbatch, some after; together the segments in file
// order, since times are instruction numbers.
static Status check_rows(ProgramCheck *c) {
    const PlanProgram *program = c->program;
    const PlanRow *rows = program->rows;
    uint32_t n = program->n_rows, before = 0, after = 0;
    while (before < n && rows[before].microbatch < 0) before++;
    while (after < n - before && rows[n - 1 - after].microbatch < 0) after++;
    uint32_t middle = n - before - after;
    int64_t n_microbatches = middle ? (int64_t)rows[n - 1 - after].microbatch + 1 : 1;
    uint32_t body = middle / (uint32_t)n_microbatches;
    if ((int64_t)body * n_microbatches != middle || before + body + after != program->n_segments) {
        REFUSE_IN(
            c, "rows",
            "expected rows for each of %u segments, once or in each of %lld microbatches, found %u "
            "before, %u within, %u after",
            program->n_segments, (long long)n_microbatches, before, middle, after);
    }
    for (uint32_t i = 0; i < n; i++) {
        bool within = i >= before && i < before + middle;
        int32_t microbatch = within ? (int32_t)((i - before) / body) : -1;
        uint32_t segment = i < before ? i
                           : within   ? before + (i - before) % body
                                      : i - middle + body;
        if (rows[i].segment != segment || rows[i].microbatch != microbatch || rows[i].slot != 0) {
            REFUSE_IN(
                c, "rows",
                "row %u: expected segment %u (\"%s\") of microbatch %d in slot 0, found segment %u "
                "of microbatch %d in slot %d",
                i, segment, program->segments[segment].name, microbatch, rows[i].segment,
                rows[i].microbatch, rows[i].slot);
        }
    }
    c->n_microbatches = middle ? (int32_t)n_microbatches : 0;
    c->phase = arena_alloc(c->scratch, program->n_instrs);
    for (uint32_t i = 0; i < program->n_segments; i++) {
        const PlanSegment *segment = &program->segments[i];
        Phase phase = i < before ? PHASE_BEFORE : i < before + body ? PHASE_BODY : PHASE_AFTER;
        memset(c->phase + segment->first, phase, (size_t)segment->n);
    }
    return OK;
}

static Status check_step_rows(const ProgramCheck *c) {
    static const char *const names[] = { "clear", "forward", "backward", "update" };
    const PlanProgram *program = c->program;
    if (program->n_segments != COUNT_OF(names)) {
        REFUSE_IN(c, "rows",
                  "expected the segments clear, forward, backward, update, found %u segments",
                  program->n_segments);
    }
    for (int i = 0; i < COUNT_OF(names); i++) {
        if (strcmp(program->segments[i].name, names[i])) {
            REFUSE_IN(c, "rows", "segment %d: expected \"%s\", found \"%s\"", i, names[i],
                      program->segments[i].name);
        }
    }
    // One run of clear, n of forward and backward, one of update.
    uint32_t rows = 2 + 2 * (uint32_t)c->plan->microbatches;
    if (c->n_microbatches != c->plan->microbatches || program->n_rows != rows ||
        program->rows[0].microbatch != -1 || program->rows[2].microbatch != 0) {
        REFUSE_IN(
            c, "rows",
            "expected clear, forward and backward of %d microbatches, update, found %u rows of %d "
            "microbatches",
            c->plan->microbatches, program->n_rows, c->n_microbatches);
    }
    return OK;
}

// In which segment an instruction is, and the last row of each segment.
static void fill_segments(ProgramCheck *c) {
    const PlanProgram *program = c->program;
    c->segment = ARENA_ARRAY(c->scratch, uint32_t, program->n_instrs + 1);
    c->last_row = ARENA_ARRAY(c->scratch, uint32_t, program->n_segments + 1);
    for (uint32_t s = 0; s < program->n_segments; s++)
        for (int32_t i = 0; i < program->segments[s].n; i++)
            c->segment[program->segments[s].first + i] = s;
    for (uint32_t r = 0; r < program->n_rows; r++) c->last_row[program->rows[r].segment] = r;
}

Status check_program(const Plan *plan, const PlanProgram *program, Arena *scratch) {
    ProgramCheck c = {
        .plan = plan,
        .program = program,
        .scratch = scratch,
        .is_step = !strcmp(program->name, "step"),
        .is_pack = !strcmp(program->name, "pack"),
        .slots = plan_slots(program),
        .pipelined = plan->mesh.size[AXIS_pp] > 1,
    };
    TRY(check_buffers(&c));
    TRY(check_segments(&c));
    TRY(check_references(&c));
    TRY(check_repeats(&c));
    TRY(check_launches(&c));
    TRY(c.pipelined ? check_pipelined_rows(&c) : check_rows(&c));
    if (c.is_step && !c.pipelined) TRY(check_step_rows(&c));
    fill_segments(&c);
    TRY(check_last(&c));
    TRY(check_interface(&c));
    TRY(check_lives(&c));
    TRY(check_repeat_flow(&c));
    TRY(check_clashes(&c));
    TRY(check_remote(&c));
    TRY(check_align(&c));
    TRY(check_halves(&c));
    TRY(check_order(&c));
    if (c.is_step) TRY(check_gradients(&c));
    if (c.is_step && plan->n_buckets) TRY(check_shards(&c));
    TRY(check_sharded(&c));
    return OK;
}
