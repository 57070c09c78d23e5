// SPDX-License-Identifier: Apache-2.0
// Who writes and reads what, and when. Rules are listed in check.c.
#include "runtime/plan/check.h"

#include <stdlib.h>

typedef enum Role { ROLE_NONE, ROLE_INPUT, ROLE_METRIC, ROLE_OUTPUT } Role;

#define REFUSE_BUFFER(c, rule, buffer, format, ...)                                                \
    REFUSE(rule, "program \"%s\", buffer \"%s\": " format, (c)->program->name, (buffer)->name,     \
           __VA_ARGS__)
#define REFUSE_ACCESS(c, rule, number, buffer, ...)                                                \
    REFUSE(rule, "program \"%s\", instruction %u, buffer \"%s\": %s", (c)->program->name, number,  \
           (buffer)->name, __VA_ARGS__)

/* Interface ----------------------------------------------------------------------------------- */

// Type and number of elements the host writes for an input.
static Status check_input(const ProgramCheck *c, const PlanInput *input) {
    const PlanBuffer *buffer = &c->program->buffers[input->buffer];
    Dtype dtype = DTYPE_I32;
    int64_t n = c->plan->tokens;
    switch ((InputKind)input->kind) {
    case INPUT_tokens:
    case INPUT_labels:
    case INPUT_positions:
    case INPUT_segments:
    case INPUT_index: break;
    case INPUT_n_valid:
        dtype = DTYPE_F32;
        n = 1;
        break;
    case INPUT_n_valid_sequence:
        dtype = DTYPE_F32;
        n = c->plan->tokens / c->plan->sequence;
        break;
    case N_INPUTS: break;
    }
    if (buffer->dtype != dtype || buffer->bytes != n * dtype_bytes(dtype)) {
        REFUSE_BUFFER(
            c, "interface", buffer, "expected %lld numbers of %s for input %s, found %lld of %s",
            (long long)n, dtype_name(dtype), plan_input_words[input->kind],
            (long long)(buffer->bytes / dtype_bytes(buffer->dtype)), dtype_name(buffer->dtype));
    }
    return OK;
}

static Status take_role(const ProgramCheck *c, uint8_t *roles, uint32_t buffer, Role role,
                        const char *what) {
    const PlanProgram *program = c->program;
    if (buffer >= program->n_buffers) {
        REFUSE("references", "program \"%s\": expected a buffer below %u for %s, found %u",
               program->name, program->n_buffers, what, buffer);
    }
    const PlanBuffer *b = &program->buffers[buffer];
    if (b->region != REGION_io || roles[buffer]) {
        REFUSE_BUFFER(c, "interface", b, "expected one of its own in io for %s, found %s", what,
                      b->region != REGION_io ? plan_region_words[b->region] : "it taken");
    }
    roles[buffer] = role;
    return OK;
}

typedef struct Place {
    const PlanBuffer *buffer;
    int64_t offset;
} Place;

static int by_offset(const void *left, const void *right) {
    const Place *a = left, *b = right;
    return (a->offset > b->offset) - (a->offset < b->offset);
}

// Every slot of a microbatch has inputs of its own.
static Status check_io_apart(const ProgramCheck *c, const uint8_t *roles) {
    const PlanProgram *program = c->program;
    Place *io = ARENA_ARRAY(c->scratch, Place, (size_t)program->n_buffers * (size_t)c->slots);
    uint32_t n = 0;
    for (uint32_t i = 0; i < program->n_buffers; i++) {
        const PlanBuffer *buffer = &program->buffers[i];
        if (buffer->region != REGION_io) continue;
        for (int32_t slot = 0; slot <= buffer->n_further; slot++)
            io[n++] = (Place){ buffer, plan_offset(buffer, slot) };
        if (!roles[i]) {
            REFUSE_BUFFER(c, "interface", buffer, "expected an input, metric or output%s",
                          ", found none");
        }
        if (roles[i] == ROLE_INPUT ? buffer->n_further != c->slots - 1 : buffer->n_further)
            REFUSE_BUFFER(c, "interface", buffer, "expected a place for each of %d slots if an input, "
                          "else one, found %d", c->slots, 1 + buffer->n_further);
    }
    if (n) qsort(io, n, sizeof *io, by_offset);
    for (uint32_t i = 1; i < n; i++) {
        int64_t end = io[i - 1].offset + io[i - 1].buffer->bytes;
        if (io[i].offset < end) {
            REFUSE_BUFFER(c, "interface", io[i].buffer,
                          "expected to begin after \"%s\" at %lld, found %lld", io[i - 1].buffer->name,
                          (long long)end, (long long)io[i].offset);
        }
    }
    return OK;
}

static Status fill_roles(const ProgramCheck *c, uint8_t *roles) {
    const PlanProgram *program = c->program;
    for (uint32_t i = 0; i < program->n_inputs; i++) {
        const PlanInput *input = &program->inputs[i];
        if (input->kind >= N_INPUTS) {
            REFUSE("references", "program \"%s\", input %u: expected a kind below %d, found %d",
                   program->name, i, N_INPUTS, input->kind);
        }
        TRY(take_role(c, roles, input->buffer, ROLE_INPUT, plan_input_words[input->kind]));
        TRY(check_input(c, input));
        for (uint32_t j = 0; j < i; j++) {
            if (program->inputs[j].kind == input->kind && program->inputs[j].k == input->k) {
                REFUSE("interface", "program \"%s\": expected input %s %d once, found it twice",
                       program->name, plan_input_words[input->kind], input->k);
            }
        }
    }
    for (uint32_t i = 0; i < program->n_metrics; i++) {
        const PlanMetric *metric = &program->metrics[i];
        TRY(take_role(c, roles, metric->buffer, ROLE_METRIC, "a metric"));
        if (program->buffers[metric->buffer].dtype != DTYPE_F32 ||
            metric->weight != metric->weight || (metric->sum && metric->weight != 0)) {
            REFUSE("interface",
                   "program \"%s\", metric \"%s\": expected f32 and a weight, 0 of a sum, "
                   "found %s and %g",
                   program->name, metric->name, dtype_name(program->buffers[metric->buffer].dtype),
                   metric->weight);
        }
    }
    for (uint32_t i = 0; i < program->n_outputs; i++) {
        TRY(take_role(c, roles, program->outputs[i].buffer, ROLE_OUTPUT, "an output"));
    }
    return OK;
}

static Status check_interface_names(const ProgramCheck *c) {
    const PlanProgram *program = c->program;
    Names metrics = { 0 }, outputs = { 0 };
    for (uint32_t i = 0; i < program->n_metrics; i++) {
        const char *name = program->metrics[i].name;
        if (!name || !*name || !names_add(&metrics, c->scratch, name, i)) {
            REFUSE("names", "program \"%s\", metric %u: expected a new name, found \"%s\"",
                   program->name, i, name ? name : "");
        }
    }
    for (uint32_t i = 0; i < program->n_outputs; i++) {
        const char *name = program->outputs[i].name;
        if (!name || !*name || !names_add(&outputs, c->scratch, name, i)) {
            REFUSE("names", "program \"%s\", output %u: expected a new name, found \"%s\"",
                   program->name, i, name ? name : "");
        }
    }
    return OK;
}

Status check_interface(const ProgramCheck *c) {
    uint8_t *roles = arena_alloc(c->scratch, c->program->n_buffers);
    TRY(check_interface_names(c));
    TRY(fill_roles(c, roles));
    return check_io_apart(c, roles);
}

/* Order --------------------------------------------------------------------------------------- */

typedef struct Flow {
    const ProgramCheck *c;
    uint8_t *roles;
    uint8_t *written; // per buffer: 1 + phase of its writes so far, 0: none
    uint32_t *maker;  // per buffer: the instruction of its last write
} Flow;

static Status check_read(const Flow *flow, uint32_t number, const PlanOperand *operand) {
    const ProgramCheck *c = flow->c;
    const PlanBuffer *buffer = &c->program->buffers[operand->buffer];
    uint8_t written = flow->written[operand->buffer];
    bool now = written == 1 + c->phase[number];
    bool made_last = written && c->program->instrs[flow->maker[operand->buffer]].last;
    switch ((Region)buffer->region) {
    case REGION_act:
    case REGION_sym:
        if (!now && !(made_last && c->phase[number] == PHASE_AFTER)) {
            REFUSE_ACCESS(
                c, "order", number, buffer,
                written ? "expected a write earlier in the same microbatch, found one in other rows"
                        : "expected a write earlier in the same microbatch, found none");
        }
        if (c->pipelined) {
            uint32_t from = c->segment[flow->maker[operand->buffer]], to = c->segment[number];
            bool before = made_last ? c->last_row[from] < c->last_row[to]
                                    : c->precedes[from * c->program->n_segments + to];
            if (from != to && !before)
                REFUSE_ACCESS(c, "order", number, buffer,
                              "expected the row that writes it before this one in every microbatch");
        }
        break;
    case REGION_io:
        if (flow->roles[operand->buffer] == ROLE_OUTPUT && !now) {
            REFUSE_ACCESS(c, "order", number, buffer,
                          "expected a write before an output is read, found none");
        }
        if (flow->roles[operand->buffer] == ROLE_INPUT && c->phase[number] != PHASE_BODY) {
            REFUSE_ACCESS(c, "order", number, buffer,
                          "expected inputs to be read in a microbatch, found another row");
        }
        break;
    default: break; // parameters, states and sums of a step: check_gradients; scalars: the host's
    }
    return OK;
}

static Status check_write(const Flow *flow, uint32_t number, const PlanOperand *operand) {
    const ProgramCheck *c = flow->c;
    const PlanBuffer *buffer = &c->program->buffers[operand->buffer];
    Role role = buffer->region == REGION_io ? flow->roles[operand->buffer] : ROLE_NONE;
    switch ((Region)buffer->region) {
    case REGION_weights:
        if (c->is_pack && check_gathers(c, number)) break;
        // fall through
    case REGION_moment1:
    case REGION_moment2:
    case REGION_master:
        if (!c->is_step || c->phase[number] != PHASE_AFTER) {
            REFUSE_ACCESS(c, "order", number, buffer,
                          "expected writes to weights and moments only in a step's update");
        }
        break;
    case REGION_grads:
    case REGION_totals:
        if (!c->is_step)
            REFUSE_ACCESS(c, "order", number, buffer,
                          "expected writes to grads and totals only in a step");
        if (c->phase[number] == PHASE_BODY && operand->mode != OPERAND_ADD &&
            c->n_microbatches > 1 && !c->program->instrs[number].last) {
            REFUSE_ACCESS(c, "order", number, buffer,
                          "expected += where several microbatches add up");
        }
        break;
    case REGION_packed:
        if (operand->mode != OPERAND_WRITE ||
            !(c->is_pack || (c->is_step && c->phase[number] == PHASE_AFTER))) {
            REFUSE_ACCESS(c, "order", number, buffer,
                          "expected packed weights to be written only by program \"pack\" and in "
                          "a step's update");
        }
        break;
    case REGION_io:
        if (role == ROLE_INPUT)
            REFUSE_ACCESS(c, "order", number, buffer, "expected inputs to be only read");
        if (role == ROLE_METRIC && operand->mode != OPERAND_ADD) {
            REFUSE_ACCESS(c, "order", number, buffer, "expected += into a metric");
        }
        break;
    default: break;
    }
    return OK;
}

static Status check_written(const Flow *flow) {
    const ProgramCheck *c = flow->c;
    for (uint32_t i = 0; i < c->program->n_buffers; i++) {
        Role role = flow->roles[i];
        if ((role == ROLE_METRIC || role == ROLE_OUTPUT) && !flow->written[i]) {
            REFUSE_BUFFER(c, "order", &c->program->buffers[i],
                          "expected a write to a %s, found none",
                          role == ROLE_METRIC ? "metric" : "output");
        }
    }
    return OK;
}

Status check_order(const ProgramCheck *c) {
    const PlanProgram *program = c->program;
    Flow flow = {
        .c = c,
        .roles = arena_alloc(c->scratch, program->n_buffers),
        .written = arena_alloc(c->scratch, program->n_buffers),
        .maker = ARENA_ARRAY(c->scratch, uint32_t, program->n_buffers),
    };
    TRY(fill_roles(c, flow.roles));
    for (uint32_t i = 0; i < program->n_instrs; i++) {
        const PlanInstr *instr = &program->instrs[i];
        const PlanOperand *operands = check_operands(program, instr);
        const PlanRepeat *repeat = plan_repeat(program, i);
        if (repeat && repeat->count && (uint32_t)repeat->first == i)
            TRY(check_read(&flow, i, &(PlanOperand){ .buffer = repeat->count - 1 }));
        for (uint32_t j = 0; j < instr->n_operands; j++) {
            if (operand_reads(operands[j].mode)) TRY(check_read(&flow, i, &operands[j]));
        }
        for (uint32_t j = 0; j < instr->n_operands; j++) {
            if (!operand_writes(operands[j].mode)) continue;
            TRY(check_write(&flow, i, &operands[j]));
            flow.written[operands[j].buffer] = 1 + c->phase[i];
            flow.maker[operands[j].buffer] = i;
        }
    }
    return check_written(&flow);
}

/* Gradients ----------------------------------------------------------------------------------- */

typedef struct StepSpans {
    Spans cleared[N_REGIONS]; // > before the microbatches
    Spans added;              // gradients written by a microbatch, or added by another stage
    Spans updated;            // masters written after them
} StepSpans;

static Status collect_spans(const ProgramCheck *c, StepSpans *spans) {
    const PlanProgram *program = c->program;
    for (uint32_t i = 0; i < program->n_instrs; i++) {
        const PlanInstr *instr = &program->instrs[i];
        for (uint32_t j = 0; j < instr->n_operands; j++) {
            const PlanOperand *operand = &program->operands[instr->operands + j];
            const PlanBuffer *buffer = &program->buffers[operand->buffer];
            Phase phase = c->phase[i];
            if (!operand_writes(operand->mode)) continue;
            if (phase == PHASE_BEFORE && operand->mode == OPERAND_WRITE) {
                spans_add(&spans->cleared[buffer->region], c->scratch, buffer->offset,
                          buffer->bytes);
            }
            bool adds = (phase == PHASE_BODY && !instr->last) || (c->pipelined && operand->mode == OPERAND_ADD);
            if (adds && buffer->region == REGION_grads) {
                spans_add(&spans->added, c->scratch, buffer->offset, buffer->bytes);
            }
            if (phase == PHASE_AFTER && buffer->region == plan_master(c->plan)) {
                spans_add(&spans->updated, c->scratch, buffer->offset, buffer->bytes);
            }
        }
    }
    return OK;
}

// Sums of a step start from what "clear" wrote.
static Status check_cleared(const ProgramCheck *c, const StepSpans *spans) {
    const PlanProgram *program = c->program;
    for (uint32_t i = 0; i < program->n_instrs; i++) {
        const PlanInstr *instr = &program->instrs[i];
        for (uint32_t j = 0; j < instr->n_operands; j++) {
            const PlanOperand *operand = &program->operands[instr->operands + j];
            const PlanBuffer *buffer = &program->buffers[operand->buffer];
            bool sums = buffer->region == REGION_grads || buffer->region == REGION_totals;
            if (!sums || operand->mode != OPERAND_ADD) continue;
            if (!spans_cover(&spans->cleared[buffer->region], buffer->offset, buffer->bytes)) {
                REFUSE_ACCESS(c, "gradients", i, buffer,
                              "expected \"clear\" to write all of it before the first +=");
            }
        }
    }
    return OK;
}

Status check_gradients(const ProgramCheck *c) {
    StepSpans spans = { 0 };
    TRY(collect_spans(c, &spans));
    int64_t updated = 0, joined = 0;
    for (uint32_t i = 0; i < spans.updated.n; i++)
        updated += spans.updated.items[i].end - spans.updated.items[i].begin;
    for (int i = 0; i < N_REGIONS; i++) spans_merge(&spans.cleared[i]);
    spans_merge(&spans.added);
    spans_merge(&spans.updated);
    for (uint32_t i = 0; i < spans.updated.n; i++)
        joined += spans.updated.items[i].end - spans.updated.items[i].begin;
    if (updated != joined) {
        REFUSE("gradients",
               "program \"%s\": expected each byte of %s updated once, found %lld bytes "
               "written over "
               "%lld",
               c->program->name, plan_region_words[plan_master(c->plan)], (long long)updated,
               (long long)joined);
    }
    TRY(check_cleared(c, &spans));
    for (uint32_t i = 0; i < c->plan->n_params; i++) {
        const PlanParam *param = &c->plan->params[i];
        int64_t bytes = checked_bytes(param->dims, param->n_dims, (int64_t)sizeof(float));
        if (param->is_state) continue;
        int64_t gradient = plan_gradient(c->plan, param);
        if (gradient >= 0 && !spans_cover(&spans.added, gradient, bytes)) { // else check_sharded

            REFUSE("gradients",
                   "program \"%s\", parameter \"%s\": expected its gradient, %lld bytes at %lld, "
                   "written "
                   "in a microbatch, found a part without",
                   c->program->name, param->name, (long long)bytes, (long long)gradient);
        }
        if (!c->plan->n_buckets && !spans_cover(&spans.updated, param->offset, bytes)) {
            REFUSE(
                "gradients",
                "program \"%s\", parameter \"%s\": expected an update of %lld bytes of weights at "
                "%lld, found a part without",
                c->program->name, param->name, (long long)bytes, (long long)param->offset);
        }
    }
    return OK;
}
