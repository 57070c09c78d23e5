// SPDX-License-Identifier: Apache-2.0
// The text form of a plan: one canonical text per plan. Single spaces, fixed order of fields, '\n'
// only.
//
//   plan 1
//   model NAME target NAME tokens INT sequence INT vocab INT microbatches INT trained INT
//   [mesh {AXIS INT} [node INT] stage INT]                of more than one rank: every axis, in order; node if
//                                                         above 1
//   peak INT
//   {region WORD INT}                                     in order; master and sym where they have bytes, the others
//                                                         always; they sum to peak
//   {bucket GROUP [sharded] at HEX bytes INT grads HEX shard HEX [weights HEX] decay FLOAT lr FLOAT}
//   {param NAME DIMS init WORD std FLOAT decay FLOAT lr FLOAT [at HEX] [grad HEX] [expert [of INT [on INT{,INT}]]]
//       [state] [number INT]}                             grad only of a plan with buckets; experts of all ranks of
//                                                         ep, and each one's rank where they are not in order
//   {source HASH INT, newline, so many raw bytes, newline}
//   {kernel NAME family NAME hash HASH source INT tiles INT [threads INT shared INT] flops FLOAT bytes FLOAT
//       [shape DTYPE INT x INT x INT of INT]              m, n, k, groups
//       {arg NAME DTYPE const|mut}}
//   {program NAME act INT bound INT
//       {buffer NAME DTYPE DIMS REGION+HEX{,HEX} bytes INT live INT..INT [@ NAME]}
//       {input WORD INT NAME}  {metric NAME weight FLOAT NAME}  {output NAME NAME}
//       {segment NAME {[repeat TRIP of INT [by BUFFER]] of so many of the next instructions
//           instr INT WHAT {MODE BUFFER [+ HEX of INT] [step HEX]}}} MODE: < read, > write, += add, = in place;
//               >> put, << get, then BUFFER GROUP; >? writes some
//       {row SEGMENT mb INT slot INT}}
//   (WHAT: KERNEL, or @OP GROUP, or @send INT [back] and @recv INT [back], the other stage, or @blocks GROUP
//   even FLOAT)
//   end HASH                                              of all bytes before this line
//
// NAME is bare when every byte is a letter, a digit or one of _.$:/- and quoted otherwise, with
// \xHH for control bytes, quotes and backslashes. FLOAT is C99 hex. DIMS is [INT,INT,...].
//
// A plan whose references are out of range prints "?" for them and does not parse back; plan_check
// names them.
#include "runtime/plan/words.h"

static void add_name(Text *out, const char *name) {
    if (!name) name = "";
    size_t n = 0;
    while (plan_bare_byte(name[n])) n++;
    if (n && !name[n]) {
        text_add_n(out, name, n);
        return;
    }
    text_add(out, "\"");
    for (const char *c = name; *c; c++) {
        unsigned char byte = (unsigned char)*c;
        if (byte < 0x20 || byte == 0x7f || byte == '"' || byte == '\\') {
            text_printf(out, "\\x%02x", byte);
        } else {
            text_add_n(out, c, 1);
        }
    }
    text_add(out, "\"");
}

static void add_named(Text *out, const char *field, const char *name) {
    text_add(out, field);
    add_name(out, name);
}

static void add_int(Text *out, const char *field, int64_t value) {
    text_printf(out, "%s%lld", field, (long long)value);
}

static void add_float(Text *out, const char *field, double value) {
    text_add(out, field);
    text_add_double(out, value);
}

static void add_hash(Text *out, const char *field, Hash hash) {
    char hex[33];
    hash_hex(hash, hex);
    text_add(out, field);
    text_add(out, hex);
}

static void add_dims(Text *out, const int64_t *dims, int n) {
    text_add(out, " [");
    for (int i = 0; i < n; i++) add_int(out, i ? "," : "", dims[i]);
    text_add(out, "]");
}

// A word of a table, or "?" when the index is none of it.
static void add_word(Text *out, const char *field, const char *const *words, int n, int index) {
    text_add(out, field);
    text_add(out, index < n ? words[index] : "?");
}

static const char *buffer_name(const PlanProgram *program, uint32_t buffer) {
    return buffer < program->n_buffers ? program->buffers[buffer].name : "?";
}

static void add_address(Text *out, const char *field, int64_t value) {
    text_printf(out, "%s0x%llx", field, (unsigned long long)value);
}

static void print_bucket(const PlanBucket *bucket, Text *out) {
    add_word(out, "bucket ", plan_group_words, N_GROUPS, bucket->group);
    if (bucket->sharded) text_add(out, " sharded");
    add_address(out, " at ", bucket->offset);
    add_int(out, " bytes ", bucket->bytes);
    add_address(out, " grads ", bucket->grads);
    add_address(out, " shard ", bucket->shard);
    if (bucket->weights != -1) add_address(out, " weights ", bucket->weights);
    add_float(out, " decay ", bucket->decay);
    add_float(out, " lr ", bucket->lr);
    text_add(out, "\n");
}

static void print_param(const Plan *plan, const PlanParam *param, Text *out) {
    add_named(out, "param ", param->name);
    add_dims(out, param->dims, param->n_dims);
    add_word(out, " init ", plan_init_words, PLAN_INIT_ONES + 1, param->init);
    add_float(out, " std ", param->std);
    add_float(out, " decay ", param->decay);
    add_float(out, " lr ", param->lr);
    if (param->offset != -1) add_address(out, " at ", param->offset);
    if (plan->n_buckets && param->grad != -1) add_address(out, " grad ", param->grad);
    if (param->per_expert) text_add(out, " expert");
    if (param->experts) add_int(out, " of ", param->experts);
    for (int32_t i = 0; param->owner && i < param->experts; i++)
        add_int(out, i ? "," : " on ", param->owner[i]);
    if (param->is_state) text_add(out, " state");
    if (plan->mesh.size[AXIS_pp] > 1) add_int(out, " number ", param->number);
    text_add(out, "\n");
}

static void print_kernel(const PlanKernel *kernel, Text *out) {
    add_named(out, "kernel ", kernel->entry);
    add_named(out, " family ", kernel->family);
    add_hash(out, " hash ", kernel->hash);
    add_int(out, " source ", kernel->source);
    add_int(out, " tiles ", kernel->tiles);
    if (kernel->threads || kernel->shared) {
        add_int(out, " threads ", kernel->threads);
        add_int(out, " shared ", kernel->shared);
    }
    add_float(out, " flops ", kernel->flops);
    add_float(out, " bytes ", kernel->bytes);
    if (kernel->shape.k) {
        const PlanShape *shape = &kernel->shape;
        text_printf(out, " shape %s", shape->dtype < N_DTYPES ? dtype_name(shape->dtype) : "?");
        add_int(out, " ", shape->m);
        add_int(out, " x ", shape->n);
        add_int(out, " x ", shape->k);
        add_int(out, " of ", shape->groups);
    }
    text_add(out, "\n");
    for (uint32_t i = 0; i < kernel->n_args; i++) {
        const PlanArg *arg = &kernel->args[i];
        add_named(out, "arg ", arg->name);
        text_printf(out, " %s %s\n", arg->dtype < N_DTYPES ? dtype_name(arg->dtype) : "?",
                    arg->is_const ? "const" : "mut");
    }
}

static void print_buffer(const PlanBuffer *buffer, bool locations, Text *out) {
    add_named(out, "buffer ", buffer->name);
    text_printf(out, " %s", buffer->dtype < N_DTYPES ? dtype_name(buffer->dtype) : "?");
    add_dims(out, buffer->dims, buffer->n_dims);
    add_word(out, " ", plan_region_words, N_REGIONS, buffer->region);
    text_printf(out, "+0x%llx", (unsigned long long)buffer->offset);
    for (int32_t i = 0; i < buffer->n_further; i++)
        text_printf(out, ",0x%llx", (unsigned long long)buffer->further[i]);
    add_int(out, " bytes ", buffer->bytes);
    add_int(out, " live ", buffer->first);
    add_int(out, "..", buffer->last);
    if (locations && buffer->loc) add_named(out, " @ ", buffer->loc);
    text_add(out, "\n");
}

static void print_what(const Plan *plan, const PlanInstr *instr, Text *out) {
    if (instr->op == PLAN_launch) {
        add_named(out, " ",
                  instr->kernel < plan->n_kernels ? plan->kernels[instr->kernel].entry : "?");
        return;
    }
    if (instr->half) add_word(out, " @", plan_half_words, N_HALVES, instr->half);
    add_word(out, instr->half ? " " : " @", plan_op_words, N_PLAN_OPS, instr->op);
    if (instr->op == PLAN_send || instr->op == PLAN_recv) {
        add_int(out, " ", instr->peer);
        if (instr->lane) add_word(out, " ", plan_lane_words, N_LANES, instr->lane);
    } else add_word(out, " ", plan_group_words, N_GROUPS, instr->group);
    if (instr->op == PLAN_blocks) add_float(out, " even ", instr->even);
}

static void print_instr(const Plan *plan, const PlanProgram *program, uint32_t number, Text *out) {
    const PlanInstr *instr = &program->instrs[number];
    add_int(out, "instr ", number);
    print_what(plan, instr, out);
    for (uint32_t i = 0; i < instr->n_operands; i++) {
        uint64_t at = (uint64_t)instr->operands + i;
        if (at >= program->n_operands) {
            text_add(out, " ?");
            break;
        }
        const PlanOperand *operand = &program->operands[at];
        add_word(out, " ", plan_mode_words, N_OPERAND_MODES, operand->mode);
        add_named(out, " ", buffer_name(program, operand->buffer));
        if (operand_is_remote(operand->mode))
            add_word(out, " ", plan_group_words, N_GROUPS, operand->group);
        if (operand->bytes || operand->offset) {
            add_address(out, " + ", operand->offset);
            add_int(out, " of ", operand->bytes);
        }
        if (operand->step) add_address(out, " step ", operand->step);
    }
    if (instr->last) text_add(out, " last");
    text_add(out, "\n");
}

static void print_segments(const Plan *plan, const PlanProgram *program, Text *out) {
    for (uint32_t i = 0; i < program->n_segments; i++) {
        const PlanSegment *segment = &program->segments[i];
        add_named(out, "segment ", segment->name);
        text_add(out, "\n");
        for (int64_t at = segment->first; at < (int64_t)segment->first + segment->n; at++) {
            if (at < 0 || at >= program->n_instrs) {
                text_add(out, "?\n");
                break;
            }
            for (uint32_t r = 0; r < program->n_repeats; r++) {
                const PlanRepeat *repeat = &program->repeats[r];
                if (repeat->first != at) continue;
                text_printf(out, "repeat %d of %d", repeat->trip, repeat->n);
                if (repeat->count) add_named(out, " by ", buffer_name(program, repeat->count - 1));
                text_add(out, "\n");
            }
            print_instr(plan, program, (uint32_t)at, out);
        }
    }
    for (uint32_t i = 0; i < program->n_rows; i++) {
        const PlanRow *row = &program->rows[i];
        bool known = row->segment < program->n_segments;
        add_named(out, "row ", known ? program->segments[row->segment].name : "?");
        add_int(out, " mb ", row->microbatch);
        add_int(out, " slot ", row->slot);
        text_add(out, "\n");
    }
}

static void print_program(const Plan *plan, const PlanProgram *program, bool locations, Text *out) {
    add_named(out, "program ", program->name);
    add_int(out, " act ", program->act_bytes);
    add_int(out, " bound ", program->act_bound);
    text_add(out, "\n");
    for (uint32_t i = 0; i < program->n_buffers; i++) {
        print_buffer(&program->buffers[i], locations, out);
    }
    for (uint32_t i = 0; i < program->n_inputs; i++) {
        const PlanInput *input = &program->inputs[i];
        add_word(out, "input ", plan_input_words, N_INPUTS, input->kind);
        add_int(out, " ", input->k);
        add_named(out, " ", buffer_name(program, input->buffer));
        text_add(out, "\n");
    }
    for (uint32_t i = 0; i < program->n_metrics; i++) {
        const PlanMetric *metric = &program->metrics[i];
        add_named(out, "metric ", metric->name);
        if (metric->sum) text_add(out, " sum");
        else add_float(out, " weight ", metric->weight);
        add_named(out, " ", buffer_name(program, metric->buffer));
        text_add(out, "\n");
    }
    for (uint32_t i = 0; i < program->n_outputs; i++) {
        const PlanOutput *output = &program->outputs[i];
        add_named(out, "output ", output->name);
        add_named(out, " ", buffer_name(program, output->buffer));
        text_add(out, "\n");
    }
    print_segments(plan, program, out);
}

void plan_print_text(const Plan *plan, bool locations, Text *out) {
    size_t start = out->bytes;
    add_int(out, "plan ", PLAN_VERSION);
    add_named(out, "\nmodel ", plan->model);
    add_named(out, " target ", plan->target);
    add_int(out, " tokens ", plan->tokens);
    add_int(out, " sequence ", plan->sequence);
    add_int(out, " vocab ", plan->vocab);
    add_int(out, " microbatches ", plan->microbatches);
    add_int(out, " trained ", plan->n_trained);
    text_add(out, "\n");
    if (plan_ranks(plan) > 1) {
        text_add(out, "mesh");
        for (int axis = 0; axis < N_AXES; axis++)
            text_printf(out, " %s %d", plan_axis_words[axis], plan->mesh.size[axis]);
        if (plan->mesh.node > 1) text_printf(out, " node %d", plan->mesh.node);
        text_printf(out, " stage %d\n", plan->mesh.stage);
    }
    if (plan->row_align != 1) text_printf(out, "row_align %d\n", plan->row_align);
    add_int(out, "peak ", plan_peak(plan));
    text_add(out, "\n");
    for (int region = 0; region < N_REGIONS; region++) {
        if (plan_region_is_rare(region) && !plan->region_bytes[region]) continue;
        text_printf(out, "region %s %lld\n", plan_region_words[region],
                    (long long)plan->region_bytes[region]);
    }
    for (uint32_t i = 0; i < plan->n_buckets; i++) print_bucket(&plan->buckets[i], out);
    for (uint32_t i = 0; i < plan->n_params; i++) print_param(plan, &plan->params[i], out);
    for (uint32_t i = 0; i < plan->n_sources; i++) {
        const PlanSource *source = &plan->sources[i];
        add_hash(out, "source ", source->hash);
        add_int(out, " ", source->bytes);
        text_add(out, "\n");
        text_add_n(out, source->text, source->bytes > 0 ? (size_t)source->bytes : 0);
        text_add(out, "\n");
    }
    for (uint32_t i = 0; i < plan->n_kernels; i++) print_kernel(&plan->kernels[i], out);
    for (uint32_t i = 0; i < plan->n_programs; i++) {
        print_program(plan, &plan->programs[i], locations, out);
    }
    Hash hash = hash_bytes(out->at + start, out->bytes - start);
    add_hash(out, "end ", hash);
    text_add(out, "\n");
}

void plan_print(const Plan *plan, Text *out) {
    plan_print_text(plan, true, out);
}

Hash plan_hash(const Plan *plan) {
    Text text = { 0 };
    plan_print_text(plan, false, &text);
    Hash hash = hash_bytes(text.at, text.bytes);
    text_finish(&text);
    return hash;
}
