// SPDX-License-Identifier: Apache-2.0
// The plan's tables: parameters once, then buffers, inputs, metrics, outputs, instructions and rows
// of each program. Everything is copied into the plan's arena.
#include "compiler/lower/pass.h"

/* Parameters ----------------------------------------------------------------------------------- */

// What no loss depends on keeps its initial value: it lies with the states, without gradient and
// moments.
bool lower_is_trained(const Lower *l, uint32_t index) {
    const bool *has_gradient = l->shared->has_gradient;
    return !l->from->params[index].is_state && lower_owns(l, index) &&
           (!has_gradient || has_gradient[index]);
}

// Of parameters per expert a rank has its experts' parts.
static void emit_experts(Lower *l, PlanParam *to, const Type *type) {
    int32_t experts = model_experts(l->from, type), ep = lower_ep(l);
    const int32_t *owner = ep > 1 ? lower_owners(l, to->name) : NULL;
    to->dims[to->n_dims++] = experts / ep;
    if (ep == 1) return;
    to->experts = experts;
    if (!owner) return;
    int32_t *copy = ARENA_ARRAY(l->plan->arena, int32_t, experts);
    memcpy(copy, owner, sizeof *copy * (size_t)experts);
    to->owner = copy;
}

static void emit_param(Lower *l, uint32_t index) {
    Plan *plan = l->plan;
    const Model *m = l->from;
    const Param *param = &m->params[index];
    const Type *type = model_type(m, param->node);
    PlanParam *to = ARENA_PUSH(plan->arena, plan->params, plan->n_params, plan->cap_params);
    l->shared->param_index[index] = plan->n_params - 1;
    to->name = arena_strdup(plan->arena, model_name(m, param->addr));
    to->is_state = !lower_is_trained(l, index);
    to->per_expert = type->row == ROW_E;
    if (to->per_expert) emit_experts(l, to, type);
    for (int i = 0; i < type->rank; i++) to->dims[to->n_dims++] = type->dim[i];
    to->init = param->init == INIT_NORMAL ? PLAN_INIT_NORMAL
               : param->init == INIT_ONES ? PLAN_INIT_ONES
                                          : PLAN_INIT_ZEROS;
    to->std = param->std;
    to->number = l->layout && l->layout->pp > 1 ? (int32_t)index : 0;
    to->decay = param->decay;
    to->lr = param->lr;
}

bool emit_params(Lower *l) {
    Plan *plan = l->plan;
    const Model *m = l->from;
    l->shared->param_index = ARENA_ARRAY(plan->arena, uint32_t, m->n_params);
    for (uint32_t i = 0; i < m->n_params; i++) {
        if (lower_holds(l, i) && lower_is_trained(l, i)) emit_param(l, i);
    }
    for (uint32_t i = 0; i < m->n_params; i++) {
        if (lower_holds(l, i) && !lower_is_trained(l, i)) emit_param(l, i);
    }
    return lower_place_params(l);
}

const PlanParam *lower_param(const Lower *l, uint32_t param) {
    return &l->plan->params[l->shared->param_index[param]];
}

static const PlanParam *param_of(const Lower *l, uint32_t node) {
    return lower_param(l, l->m->nodes[node].attr.index);
}

/* Names ---------------------------------------------------------------------------------------- */

// Names given out, with how often: the second "x" becomes "x_2".
typedef struct NameSlot {
    const char *name;
    int n;
} NameSlot;
typedef struct NameTable {
    NameSlot *slots;
    uint32_t mask;
    Arena *arena, *scratch;
} NameTable;

static NameSlot *name_slot(NameTable *table, const char *name) {
    uint32_t at = (uint32_t)hash_bytes(name, strlen(name)).low & table->mask;
    while (table->slots[at].name && strcmp(table->slots[at].name, name))
        at = (at + 1) & table->mask;
    return &table->slots[at];
}

static const char *unique_name(NameTable *table, const char *wish) {
    NameSlot *slot = name_slot(table, wish);
    const char *name = wish;
    if (!slot->name) slot->name = wish;
    while (slot->n++ > 0) {
        name = arena_printf(table->arena, "%s_%d", wish, slot->n);
        NameSlot *other = name_slot(table, name);
        if (other->name) continue;
        *other = (NameSlot){ name, 1 };
        break;
    }
    return name;
}

static const char *input_name(int32_t k, Arena *arena) {
    static const char *const names[] = {
#define X(name) #name,
        PLAN_INPUTS(X)
#undef X
    };
    int kind = k >> 16;
    if (kind != INPUT_tokens && kind != INPUT_labels) return names[kind];
    return arena_printf(arena, "%s.%d", names[kind], (int16_t)(k & 0xffff));
}

static const char *wished_name(const Lower *l, const Buffer *buffer, Arena *arena) {
    static const char *const flat[] = {
#define X(name) #name ".all",
        PLAN_REGIONS(X)
#undef X
    };
    static const char *const endings[] = {
        [BUFFER_PARTIALS] = ".partials",
        [BUFFER_ROW_OF_SLOT] = ".row_of_slot",
        [BUFFER_SLOT_OF_ROW] = ".slot_of_row",
        [BUFFER_OFFSETS] = ".offsets",
        [BUFFER_COUNTS] = ".counts",
        [BUFFER_STARTS] = ".starts",
        [BUFFER_NUMBERS] = ".numbers",
        [BUFFER_ROUNDS] = ".rounds",
        [BUFFER_SPARE] = ".unread",
        [BUFFER_PACKED_VALUE] = ".packed",
    };
    const Model *m = l->m;
    const Node *node = model_at(m, buffer->node);
    static const char *const tables[] = { ".all",  ".there", ".token", ".put",  ".home",
                                          ".first", ".back",  ".get",   ".place" },
                      *const sent[] = { ".sent", ".blocks", ".came" }, *const back[] = { "", ".returned", ".back" };
    const char *ending = buffer->kind < COUNT_OF(endings) && endings[buffer->kind] ? endings[buffer->kind] : "";
    switch ((BufferKind)buffer->kind) {
    case BUFFER_PARAM: return param_of(l, buffer->node)->name;
    case BUFFER_GRADIENT:
        return arena_printf(arena, "%s.gradient", param_of(l, buffer->node)->name);
    case BUFFER_METRIC:
        return arena_printf(arena, "metric.%s", model_name(m, m->records[buffer->k].addr));
    case BUFFER_OUTPUT: return arena_printf(arena, "output.%u", node->attr.index);
    case BUFFER_INPUT: return input_name(buffer->k, arena);
    case BUFFER_SCALARS: return "scalars";
    case BUFFER_FLAT: return flat[buffer->k];
    case BUFFER_NORM: return "grads.sumsq";
    case BUFFER_RANGE: return arena_strdup(arena, l->ranges[buffer->k].name);
    case BUFFER_PACKED:
        return arena_printf(arena, "%s.packed%s", param_of(l, buffer->node)->name,
                            l->shared->packs[buffer->k].turned ? ".turned" : "");
    case BUFFER_TABLE: ending = tables[buffer->k]; break;
    case BUFFER_SENT: ending = sent[buffer->k]; break;
    case BUFFER_BACK: ending = back[buffer->k % N_BLOCKS_STAGES]; break;
    default: break;
    }
    const char *addr = model_name(m, node->addr), *op = op_info[node->op].name;
    return arena_printf(arena, "%s%s%s%s", addr, *addr ? "." : "", op, ending);
}

/* Offsets outside act -------------------------------------------------------------------------- */

static int64_t take_io(Lower *l, int64_t bytes) {
    int64_t offset = l->shared->io_bytes;
    l->shared->io_bytes += round_up(bytes, PLAN_GRAIN);
    return offset;
}

// Programs share inputs; metrics and outputs are each one's own.
static int64_t input_offset(Lower *l, const Buffer *buffer) {
    Shared *shared = l->shared;
    for (int i = 0; i < shared->n_inputs; i++) {
        if (shared->inputs[i].k == buffer->k) return shared->inputs[i].offset;
    }
    int64_t offset = take_io(l, buffer->bytes);
    if (shared->n_inputs == COUNT_OF(shared->inputs))
        return offset; // then each program has its own
    shared->inputs[shared->n_inputs].k = buffer->k;
    shared->inputs[shared->n_inputs++].offset = offset;
    return offset;
}

// Microbatches that are under way at once have inputs of their own.
static void place_input(Lower *l, Buffer *buffer) {
    buffer->offset = input_offset(l, buffer);
    buffer->n_further = l->slots - 1;
    buffer->further = ARENA_ARRAY(l->arena, int64_t, l->slots);
    for (int32_t i = 0; i < buffer->n_further; i++) buffer->further[i] = take_io(l, buffer->bytes);
}

static void fill_offset(Lower *l, Buffer *buffer) {
    switch ((BufferKind)buffer->kind) {
    case BUFFER_PARAM: lower_param_place(l, param_of(l, buffer->node), &buffer->offset); break;
    case BUFFER_GRADIENT: buffer->offset = plan_gradient(l->plan, param_of(l, buffer->node)); break;
    case BUFFER_PACKED: buffer->offset = l->shared->packs[buffer->k].offset; break;
    case BUFFER_INPUT: place_input(l, buffer); break;
    case BUFFER_METRIC:
    case BUFFER_OUTPUT: buffer->offset = take_io(l, buffer->bytes); break;
    case BUFFER_VALUE:
        if (buffer->region == REGION_io) buffer->offset = take_io(l, buffer->bytes);
        break;
    default: break; // act and totals are placed, the rest begins at 0
    }
}

/* Programs ------------------------------------------------------------------------------------- */

static int64_t *further_of(const Lower *l, const Buffer *buffer) {
    if (!buffer->n_further) return NULL;
    int64_t *further = ARENA_ARRAY(l->plan->arena, int64_t, buffer->n_further);
    memcpy(further, buffer->further, sizeof *further * (size_t)buffer->n_further);
    return further;
}

static uint32_t emit_buffer(Lower *l, PlanProgram *program, NameTable *names, uint32_t index) {
    Arena *arena = l->plan->arena;
    Buffer *buffer = &l->buffers[index];
    if (buffer->plan) return buffer->plan - 1;
    fill_offset(l, buffer);
    PlanBuffer *to = ARENA_PUSH(arena, program->buffers, program->n_buffers, program->cap_buffers);
    *to = (PlanBuffer){ .dtype = buffer->dtype,
                        .region = buffer->region,
                        .n_dims = buffer->n_dims,
                        .offset = buffer->offset,
                        .bytes = buffer->bytes,
                        .further = further_of(l, buffer),
                        .n_further = buffer->n_further,
                        .first = buffer->first,
                        .last = buffer->last };
    memcpy(to->dims, buffer->dims, sizeof to->dims);
    to->name = unique_name(names, wished_name(l, buffer, arena));
    Loc loc = l->m->nodes[buffer->node].loc;
    bool of_spec = buffer->node && loc.file && loc.file <= l->m->n_files;
    if (of_spec) to->loc = arena_printf(arena, "%s:%u", l->m->files[loc.file - 1].path, loc.line);
    buffer->plan = program->n_buffers;
    if (buffer->kind == BUFFER_INPUT) {
        *ARENA_PUSH(arena, program->inputs, program->n_inputs, program->cap_inputs) =
            (PlanInput){ (uint8_t)(buffer->k >> 16), (int16_t)(buffer->k & 0xffff),
                         buffer->plan - 1 };
    }
    return buffer->plan - 1;
}

// What a kernel's i-th parameter is bound to; a crossing's operands are as they were bound.
static const Bind *bind_at(const Lower *l, const Kernel *kernel, uint32_t i) {
    const Bind *bind = kernel->binds;
    if (kernel->op != PLAN_launch) return &bind[i];
    const char *name = l->plan->kernels[kernel->plan].args[i].name;
    while (strcmp(bind->name, name)) bind++; // all are there: pass_generate
    return bind;
}

static uint8_t mode_of(const Bind *bind) {
    if (bind->some) return OPERAND_SOME;
    if (!bind->remote) return bind->mode;
    return bind->mode == OPERAND_WRITE ? OPERAND_PUT : OPERAND_GET;
}

static void emit_instructions(Lower *l, PlanProgram *program, NameTable *names) {
    Arena *arena = l->plan->arena;
    for (uint32_t t = 0; t < l->n_kernels; t++) {
        const Kernel *kernel = &l->kernels[l->order[t]];
        *ARENA_PUSH(arena, program->instrs, program->n_instrs, program->cap_instrs) =
            (PlanInstr){ .kernel = kernel->plan,
                         .operands = program->n_operands,
                         .n_operands = kernel->n_binds,
                         .op = kernel->op,
                         .group = kernel->group,
                         .lane = kernel->lane,
                         .half = kernel->half,
                         .last = kernel->last,
                         .peer = kernel->peer,
                         .even = kernel->even };
        for (uint32_t i = 0; i < kernel->n_binds; i++) {
            const Bind *bind = bind_at(l, kernel, i);
            uint32_t buffer = emit_buffer(l, program, names, bind->buffer);
            *ARENA_PUSH(arena, program->operands, program->n_operands, program->cap_operands) =
                (PlanOperand){ .buffer = buffer, .mode = mode_of(bind), .step = bind->step,
                               .offset = bind->offset, .bytes = bind->bytes,
                               .group = bind->remote ? lower_reach(l) : 0 };
        }
    }
}

static void emit_repeats(Lower *l, PlanProgram *program) {
    for (uint32_t t = 0; t < l->n_kernels; t++) {
        const Kernel *kernel = &l->kernels[l->order[t]];
        const Repeat *repeat = kernel->repeat ? &l->repeats[kernel->repeat - 1] : NULL;
        if (!repeat || repeat->kernels[0] != l->order[t]) continue;
        *ARENA_PUSH(l->plan->arena, program->repeats, program->n_repeats, program->cap_repeats) =
            (PlanRepeat){ (int32_t)t, (int32_t)repeat->n, repeat->trip,
                          repeat->count ? l->buffers[repeat->count - 1].plan : 0 };
    }
}

// Rows name segments by their number in the plan.
static void emit_segments(Lower *l, PlanProgram *program) {
    uint32_t number[N_SEGMENTS] = { 0 };
    for (int s = 0; s < N_SEGMENTS; s++) {
        if (!lower_has_segment(l, s)) continue;
        number[s] = program->n_segments;
        *ARENA_PUSH(l->plan->arena, program->segments, program->n_segments, program->cap_segments) =
            (PlanSegment){ lower_segment_name(l, s), l->segment_first[s],
                           l->segment_first[s + 1] - l->segment_first[s] };
    }
    for (uint32_t i = 0; i < l->n_rows; i++) {
        const PlanRow *row = &l->rows[i];
        *ARENA_PUSH(l->plan->arena, program->rows, program->n_rows, program->cap_rows) =
            (PlanRow){ number[row->segment], row->microbatch, row->slot };
    }
}

static void emit_metrics(Lower *l, PlanProgram *program) {
    const Model *m = l->m;
    for (uint32_t i = 0; i < m->n_records; i++) {
        uint32_t found = lower_find_buffer(l, BUFFER_METRIC, 0, (int32_t)i);
        if (!found) continue; // nothing records it in this program
        *ARENA_PUSH(l->plan->arena, program->metrics, program->n_metrics, program->cap_metrics) =
            (PlanMetric){ arena_strdup(l->plan->arena, model_name(m, m->records[i].addr)),
                          m->records[i].weight, l->buffers[found - 1].plan - 1,
                          m->records[i].sum };
    }
}

static void emit_outputs(Lower *l, PlanProgram *program) {
    const Model *m = l->m;
    for (uint32_t n = 1; n < m->n_nodes; n++) {
        if (m->nodes[n].op != OP_OUTPUT || l->info[n].role == ROLE_DEAD) continue;
        uint32_t value = lower_plain(l, model_arg(m, n, 0)), index = m->nodes[n].attr.index;
        uint32_t found = l->info[n].absorbed ? lower_find_buffer(l, BUFFER_VALUE, value, 0)
                                             : lower_find_buffer(l, BUFFER_OUTPUT, n, 0);
        const char *name = index == 0 && l->program == PROGRAM_PREFILL
                               ? "logits"
                               : arena_printf(l->plan->arena, "output.%u", index);
        *ARENA_PUSH(l->plan->arena, program->outputs, program->n_outputs, program->cap_outputs) =
            (PlanOutput){ name, l->buffers[found - 1].plan - 1 };
    }
}

bool pass_emit(Lower *l) {
    Plan *plan = l->plan;
    PlanProgram *program =
        ARENA_PUSH(plan->arena, plan->programs, plan->n_programs, plan->cap_programs);
    program->name = program_name[l->program];
    uint32_t slots = 16;
    while (slots < 4 * l->n_buffers) slots *= 2;
    NameTable names = { ARENA_ARRAY(l->arena, NameSlot, slots), slots - 1, plan->arena, l->arena };
    emit_instructions(l, program, &names);
    emit_repeats(l, program);
    emit_segments(l, program);
    emit_metrics(l, program);
    emit_outputs(l, program);
    program->act_bytes = l->act_bytes;
    program->act_bound = l->act_bound;
    int64_t *bytes = plan->region_bytes;
    bytes[REGION_act] = max_i64(bytes[REGION_act], l->act_bytes);
    bytes[REGION_totals] = max_i64(bytes[REGION_totals], l->totals_bytes);
    bytes[REGION_io] = l->shared->io_bytes;
    bytes[REGION_scalars] = round_up(N_SCALARS * dtype_bytes(DTYPE_F32), PLAN_GRAIN);
    if (l->program != PROGRAM_STEP) return true;
    bytes[REGION_grads] = plan->n_trained * dtype_bytes(DTYPE_F32);
    bytes[REGION_moment1] = bytes[REGION_moment2] =
        plan->n_buckets ? plan_master_bytes(plan) : bytes[REGION_grads];
    return true;
}
