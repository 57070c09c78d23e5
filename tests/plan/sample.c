// SPDX-License-Identifier: Apache-2.0
// Builders of plans for tests. Plans are small: searches are linear, texts short.
#include "tests/plan/sample.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

static const char prelude[] =
    "typedef int int32_t;\n"
    "typedef long long int64_t;\n"
    "static inline int64_t sample_max(int64_t a, int64_t b) { return a > b ? a : b; }\n";

// Of the plan under construction: programs do not know their plan. Ranks may be threads that build one each.
static _Thread_local Arena *arena;

uint32_t sample_source(Plan *plan, const char *text) {
    PlanSource *source = ARENA_PUSH(plan->arena, plan->sources, plan->n_sources, plan->cap_sources);
    source->text = arena_strdup(plan->arena, text);
    source->bytes = (int64_t)strlen(text);
    source->hash = hash_bytes(text, strlen(text));
    return plan->n_sources - 1;
}

static Dtype dtype_of(const char *name) {
    for (int i = 0; i < N_DTYPES; i++) {
        if (!strcmp(dtype_name(i), name)) return i;
    }
    abort();
}

uint32_t sample_kernel(Plan *plan, const char *entry, const char *args, const char *body,
                       int64_t tiles) {
    static const char *const c_types[] = {
#define X(name, text, c_type, bytes) c_type,
        PLAN_DTYPES(X)
#undef X
    };
    PlanKernel *kernel = ARENA_PUSH(plan->arena, plan->kernels, plan->n_kernels, plan->cap_kernels);
    Text text = { 0 }, call = { 0 };
    uint32_t cap = 0;
    text_printf(&text, "static void %s(", entry);
    for (const char *at = args; *at;) {
        char access[8], dtype[8], name[32];
        int n = 0;
        if (sscanf(at, "%7s %7s %31[a-z_0-9]%n", access, dtype, name, &n) != 3) abort();
        at += n;
        at += strspn(at, ", ");
        PlanArg *arg = ARENA_PUSH(plan->arena, kernel->args, kernel->n_args, cap);
        arg->name = arena_strdup(plan->arena, name);
        arg->dtype = (uint8_t)dtype_of(dtype);
        arg->is_const = !strcmp(access, "const");
        text_printf(&text, "%s%s *%s, ", arg->is_const ? "const " : "", c_types[arg->dtype], name);
        text_printf(&call, "args[%u], ", kernel->n_args - 1);
    }
    text_printf(&text, "int64_t tile_begin, int64_t tile_end) {\n%s\n}\n", body);
    text_printf(&text,
                "void %s_launch(void *const *args, int64_t tile_begin, int64_t tile_end) {\n"
                "    %s(%stile_begin, tile_end);\n}\n",
                entry, entry, text_cstr(&call));
    kernel->entry = arena_strdup(plan->arena, entry);
    kernel->family = "row";
    kernel->tiles = tiles;
    kernel->flops = 1.5;
    kernel->bytes = 1e9;
    kernel->source = sample_source(plan, text.at);
    kernel->hash = hash_bytes(text.at, text.bytes);
    text_finish(&text);
    text_finish(&call);
    return plan->n_kernels - 1;
}

uint32_t sample_buffer(PlanProgram *program, const char *name, Dtype dtype, Region region,
                       int64_t offset, int64_t n, int first, int last) {
    PlanBuffer *buffer =
        ARENA_PUSH(arena, program->buffers, program->n_buffers, program->cap_buffers);
    *buffer = (PlanBuffer){
        .name = arena_strdup(arena, name),
        .dtype = (uint8_t)dtype,
        .region = (uint8_t)region,
        .n_dims = 1,
        .dims = { n },
        .offset = offset,
        .bytes = n * dtype_bytes(dtype),
        .first = first,
        .last = last,
        .loc = program->n_buffers % 2 ? NULL : "models/sample.lua:14",
    };
    return program->n_buffers - 1;
}

void sample_segment(PlanProgram *program, const char *name) {
    PlanSegment *segment =
        ARENA_PUSH(arena, program->segments, program->n_segments, program->cap_segments);
    *segment = (PlanSegment){ arena_strdup(arena, name), (int32_t)program->n_instrs, 0 };
}

static uint32_t find_buffer(const PlanProgram *program, const char *name) {
    for (uint32_t i = 0; i < program->n_buffers; i++) {
        if (!strcmp(program->buffers[i].name, name)) return i;
    }
    abort();
}

static void add_operands(PlanProgram *program, PlanInstr *instr, const char *operands) {
    instr->operands = program->n_operands;
    for (const char *at = operands; *at;) {
        static const char *const modes[N_OPERAND_MODES] = {
#define X(name, word) word,
            PLAN_MODES(X)
#undef X
        };
        char mode[4], name[32];
        int n = 0;
        if (sscanf(at, "%3s %31[a-z_0-9]%n", mode, name, &n) != 2) abort();
        at += n;
        at += strspn(at, ", ");
        PlanOperand *operand =
            ARENA_PUSH(arena, program->operands, program->n_operands, program->cap_operands);
        operand->buffer = find_buffer(program, name);
        for (int i = 0; i < N_OPERAND_MODES; i++) {
            if (!strcmp(modes[i], mode)) operand->mode = (uint8_t)i;
        }
        if (operand_is_remote(operand->mode)) operand->group = GROUP_ep;
        instr->n_operands++;
    }
    program->segments[program->n_segments - 1].n++;
}

void sample_crossing(PlanProgram *program, PlanOp op, PlanGroup group, int peer,
                     const char *operands) {
    PlanInstr *instr = ARENA_PUSH(arena, program->instrs, program->n_instrs, program->cap_instrs);
    *instr = (PlanInstr){ .op = (uint8_t)op, .group = (uint8_t)group, .peer = peer };
    add_operands(program, instr, operands);
}

void sample_instr(Plan *plan, PlanProgram *program, const char *kernel, const char *operands) {
    PlanInstr *instr = ARENA_PUSH(arena, program->instrs, program->n_instrs, program->cap_instrs);
    instr->kernel = UINT32_MAX;
    for (uint32_t i = 0; i < plan->n_kernels; i++) {
        if (!strcmp(plan->kernels[i].entry, kernel)) instr->kernel = i;
    }
    assert(instr->kernel != UINT32_MAX);
    add_operands(program, instr, operands);
}

void sample_row(PlanProgram *program, uint32_t segment, int microbatch) {
    *ARENA_PUSH(arena, program->rows, program->n_rows, program->cap_rows) =
        (PlanRow){ segment, microbatch, 0 };
}

PlanProgram *sample_program(Plan *plan, const char *name) {
    arena = plan->arena;
    PlanProgram *program =
        ARENA_PUSH(plan->arena, plan->programs, plan->n_programs, plan->cap_programs);
    program->name = arena_strdup(plan->arena, name);
    return program;
}

static void finish_program(Plan *plan, PlanProgram *program) {
    program->act_bytes = program->act_bound = 0;
    for (uint32_t i = 0; i < program->n_buffers; i++) {
        PlanBuffer *buffer = &program->buffers[i];
        if (buffer->region != REGION_act && buffer->region != REGION_sym) {
            buffer->first = 0;
            buffer->last = program->n_instrs ? (int32_t)program->n_instrs - 1 : 0;
        } else if (buffer->region == REGION_act) {
            program->act_bytes = max_i64(program->act_bytes, buffer->offset + buffer->bytes);
        }
        int64_t *region = &plan->region_bytes[buffer->region];
        *region = max_i64(*region, buffer->offset + buffer->bytes);
    }
    for (int32_t now = 0; now < (int32_t)program->n_instrs; now++) {
        int64_t sum = 0;
        for (uint32_t i = 0; i < program->n_buffers; i++) {
            const PlanBuffer *buffer = &program->buffers[i];
            bool live = buffer->region == REGION_act && buffer->first <= now && now <= buffer->last;
            if (live) sum += buffer->bytes;
        }
        program->act_bound = max_i64(program->act_bound, sum);
    }
}

void sample_finish(Plan *plan) {
    memset(plan->region_bytes, 0, sizeof plan->region_bytes);
    for (uint32_t i = 0; i < plan->n_programs; i++) finish_program(plan, &plan->programs[i]);
    int64_t trained = plan->n_trained * 4;
    plan->region_bytes[REGION_weights] = max_i64(plan->region_bytes[REGION_weights], trained);
    for (uint32_t i = 0; i < plan->n_params; i++) {
        const PlanParam *param = &plan->params[i];
        int64_t bytes = 4;
        for (int d = 0; d < param->n_dims; d++) bytes *= param->dims[d];
        plan->region_bytes[REGION_weights] =
            max_i64(plan->region_bytes[REGION_weights], param->offset + bytes);
    }
    plan->region_bytes[REGION_grads] = trained;
    plan->region_bytes[REGION_moment1] = plan->region_bytes[REGION_moment2] = trained;
    plan->region_bytes[REGION_scalars] = N_SCALARS * 4;
    plan->region_bytes[REGION_sym] = plan_window(plan) + plan_tables(plan);
}

/* The sample ---------------------------------------------------------------------------------- */

static void add_param(Plan *plan, const char *name, int64_t n, int64_t offset, PlanInit init,
                      bool state) {
    PlanParam *param = ARENA_PUSH(plan->arena, plan->params, plan->n_params, plan->cap_params);
    *param = (PlanParam){
        .name = name,
        .is_state = state,
        .n_dims = 1,
        .dims = { n },
        .init = init,
        .std = init == PLAN_INIT_NORMAL ? 0.5 : 0,
        .decay = 0.1,
        .lr = 1,
        .offset = offset,
        .grad = state ? -1 : offset,
    };
}

static void add_kernels(Plan *plan, int64_t tokens) {
    sample_source(plan, prelude);
    sample_kernel(plan, "clear_1", "mut f32 x",
                  "    for (int64_t i = tile_begin * 64; i < tile_end * 64; i++) x[i] = 0;",
                  plan->n_trained / 64);
    sample_kernel(plan, "clear_2", "mut f32 x", "    for (int i = 0; i < 4; i++) x[i] = 0;", 1);
    sample_kernel(plan, "affine", "const f32 scale, const f32 bias, const i32 tokens, mut f32 y",
                  "    for (int64_t t = tile_begin; t < tile_end; t++)\n"
                  "        y[t] = scale[t] * (float)sample_max(tokens[t], 0) + bias[t % 70];",
                  tokens);
    Text body = { 0 };
    text_printf(
        &body,
        "    (void)tile_begin; (void)tile_end;\n    float sum = 0;\n"
        "    for (int64_t t = 0; t < %lld; t++) { sum += 0.5f * y[t] * y[t]; dy[t] = y[t]; }\n"
        "    loss[0] += sum;",
        (long long)tokens);
    sample_kernel(plan, "loss", "const f32 y, mut f32 loss, mut f32 dy", body.at, 1);
    text_finish(&body);
    sample_kernel(plan, "scale_w", "const f32 dy, const i32 tokens, mut f32 w",
                  "    for (int64_t t = tile_begin; t < tile_end; t++)\n"
                  "        w[t] += dy[t] * (float)sample_max(tokens[t], 0);",
                  tokens);
    text_printf(&body,
                "    for (int64_t i = tile_begin; i < tile_end; i++)\n"
                "        for (int64_t t = i; t < %lld; t += 70) b[i] += dy[t];",
                (long long)tokens);
    sample_kernel(plan, "bias_w", "const f32 dy, mut f32 b", body.at, SAMPLE_BIAS);
    text_finish(&body);
    text_printf(&body,
                "    (void)tile_begin; (void)tile_end;\n"
                "    for (int64_t t = 0; t < %lld; t++) counts[tokens[t] & 3] += 1;",
                (long long)tokens);
    sample_kernel(plan, "count", "const i32 tokens, mut f32 counts", body.at, 1);
    text_finish(&body);
    sample_kernel(
        plan, "square", "const f32 g, mut f32 s",
        "    for (int64_t i = tile_begin * 64; i < tile_end * 64; i++) s[i] = g[i] * g[i];",
        plan->n_trained / 64);
    sample_kernel(plan, "descend", "const f32 s, const f32 g, const f32 scalars, mut f32 w",
                  "    for (int64_t i = tile_begin * 64; i < tile_end * 64; i++)\n"
                  "        w[i] -= scalars[0] * g[i] / (1 + s[i]);",
                  plan->n_trained / 64);
    sample_kernel(plan, "keep", "const f32 total, mut f32 state",
                  "    for (int i = 0; i < 4; i++) state[i] = total[i];", 1);
}

// Buffers both programs have.
static void add_common(Plan *plan, PlanProgram *program) {
    int64_t tokens = plan->tokens, io = 0;
    sample_buffer(program, "tokens", DTYPE_I32, REGION_io, 0, tokens, -1, -1);
    io += round_up(tokens * 4, PLAN_GRAIN);
    sample_buffer(program, "loss", DTYPE_F32, REGION_io, io, 1, -1, -1);
    sample_buffer(program, "y", DTYPE_F32, REGION_io, io + PLAN_GRAIN, tokens, -1, -1);
    sample_buffer(program, "scale", DTYPE_F32, REGION_weights, plan->params[0].offset, tokens, -1,
                  -1);
    sample_buffer(program, "bias", DTYPE_F32, REGION_weights, plan->params[1].offset, SAMPLE_BIAS,
                  -1, -1);
    *ARENA_PUSH(arena, program->inputs, program->n_inputs, program->cap_inputs) =
        (PlanInput){ INPUT_tokens, 0, 0 };
    *ARENA_PUSH(arena, program->metrics, program->n_metrics, program->cap_metrics) =
        (PlanMetric){ "loss", 1, 1 };
    *ARENA_PUSH(arena, program->outputs, program->n_outputs, program->cap_outputs) =
        (PlanOutput){ "y", 2 };
}

static void add_step(Plan *plan) {
    int64_t tokens = plan->tokens, trained = plan->n_trained;
    PlanProgram *step = sample_program(plan, "step");
    add_common(plan, step);
    sample_buffer(step, "all_grads", DTYPE_F32, REGION_grads, 0, trained, -1, -1);
    sample_buffer(step, "all_weights", DTYPE_F32, REGION_weights, 0, trained, -1, -1);
    sample_buffer(step, "g_scale", DTYPE_F32, REGION_grads, plan->params[0].offset, tokens, -1, -1);
    sample_buffer(step, "g_bias", DTYPE_F32, REGION_grads, plan->params[1].offset, SAMPLE_BIAS, -1,
                  -1);
    sample_buffer(step, "total", DTYPE_F32, REGION_totals, 0, SAMPLE_COUNTS, -1, -1);
    sample_buffer(step, "state", DTYPE_F32, REGION_weights, plan->params[2].offset, SAMPLE_COUNTS,
                  -1, -1);
    sample_buffer(step, "scalars", DTYPE_F32, REGION_scalars, 0, N_SCALARS, -1, -1);
    sample_buffer(step, "dy", DTYPE_F32, REGION_act, 0, tokens, 3, 6);
    sample_buffer(step, "squares", DTYPE_F32, REGION_act, 0, trained, 7, 8);
    sample_segment(step, "clear");
    sample_instr(plan, step, "clear_1", "> all_grads");
    sample_instr(plan, step, "clear_2", "> total");
    sample_segment(step, "forward");
    sample_instr(plan, step, "affine", "< scale, < bias, < tokens, > y");
    sample_instr(plan, step, "loss", "< y, += loss, > dy");
    sample_segment(step, "backward");
    sample_instr(plan, step, "scale_w", "< dy, < tokens, += g_scale");
    sample_instr(plan, step, "count", "< tokens, += total");
    sample_instr(plan, step, "bias_w", "< dy, += g_bias");
    sample_segment(step, "update");
    sample_instr(plan, step, "square", "< all_grads, > squares");
    sample_instr(plan, step, "descend", "< squares, < all_grads, < scalars, = all_weights");
    sample_instr(plan, step, "keep", "< total, > state");
    sample_row(step, 0, -1);
    for (int i = 0; i < plan->microbatches; i++) {
        sample_row(step, 1, i);
        sample_row(step, 2, i);
    }
    sample_row(step, 3, -1);
}

static void add_eval(Plan *plan) {
    PlanProgram *eval = sample_program(plan, "eval");
    add_common(plan, eval);
    sample_buffer(eval, "dy", DTYPE_F32, REGION_act, 0, plan->tokens, 1, 1);
    sample_segment(eval, "forward");
    sample_instr(plan, eval, "affine", "< scale, < bias, < tokens, > y");
    sample_instr(plan, eval, "loss", "< y, += loss, > dy");
    sample_row(eval, 0, 0);
}

Plan *sample_plan(int tokens, int microbatches) {
    Plan *plan = plan_create();
    assert(plan && tokens % 4 == 0);
    plan->model = "sample";
    plan->target = "cpu";
    plan->tokens = tokens;
    plan->sequence = 4;
    plan->vocab = 256;
    plan->microbatches = microbatches;
    int64_t bias = round_up((int64_t)tokens * 4, PLAN_GRAIN);
    int64_t state = bias + round_up(SAMPLE_BIAS * 4, PLAN_GRAIN);
    plan->n_trained = state / 4;
    add_param(plan, "layers.0.scale", tokens, 0, PLAN_INIT_NORMAL, false);
    add_param(plan, "layers.0.bias", SAMPLE_BIAS, bias, PLAN_INIT_ZEROS, false);
    add_param(plan, "layers.0.counts", SAMPLE_COUNTS, state, PLAN_INIT_ONES, true);
    add_kernels(plan, tokens);
    add_step(plan);
    add_eval(plan);
    sample_finish(plan);
    return plan;
}

void sample_pack(Plan *plan) {
    int64_t tokens = plan->tokens;
    sample_kernel(plan, "twice", "const f32 w, mut f32 packed",
                  "    for (int64_t i = tile_begin; i < tile_end; i++)\n"
                  "        packed[2 * i] = packed[2 * i + 1] = w[i];",
                  tokens);
    arena = plan->arena;
    PlanProgram *step = plan_program(plan, "step");
    sample_buffer(step, "packed", DTYPE_F32, REGION_packed, 0, 2 * tokens, -1, -1);
    sample_instr(plan, step, "twice", "< scale, > packed");
    PlanProgram *pack = sample_program(plan, "pack");
    sample_buffer(pack, "scale", DTYPE_F32, REGION_weights, 0, tokens, -1, -1);
    sample_buffer(pack, "packed", DTYPE_F32, REGION_packed, 0, 2 * tokens, -1, -1);
    sample_segment(pack, "pack");
    sample_instr(plan, pack, "twice", "< scale, > packed");
    sample_row(pack, 0, -1);
    sample_finish(plan);
}

void sample_halves(Plan *plan) {
    int64_t tokens = plan->tokens, half = tokens / 2;
    sample_kernel(plan, "doubled", "const f32 x, mut f32 t",
                  "    for (int64_t i = tile_begin; i < tile_end; i++) t[i] = 2 * x[i];", half);
    sample_kernel(plan, "plus", "const f32 t, mut f32 y",
                  "    for (int64_t i = tile_begin; i < tile_end; i++) y[i] = t[i] + 1;", half);
    PlanProgram *program = sample_program(plan, "halves");
    sample_buffer(program, "scale", DTYPE_F32, REGION_weights, 0, tokens, -1, -1);
    sample_buffer(program, "t", DTYPE_F32, REGION_act, 0, half, 0, 1);
    sample_buffer(program, "y", DTYPE_F32, REGION_io, 0, tokens, -1, -1);
    *ARENA_PUSH(arena, program->outputs, program->n_outputs, program->cap_outputs) =
        (PlanOutput){ "y", 2 };
    sample_segment(program, "forward");
    *ARENA_PUSH(arena, program->repeats, program->n_repeats, program->cap_repeats) =
        (PlanRepeat){ 0, 2, 2 };
    sample_instr(plan, program, "doubled", "< scale, > t");
    sample_instr(plan, program, "plus", "< t, > y");
    program->operands[0].step = program->operands[3].step = half * 4;
    sample_row(program, 0, 0);
    sample_finish(plan);
}

/* Ranks --------------------------------------------------------------------------------------- */

static void add_io(PlanProgram *program) {
    sample_buffer(program, "tokens", DTYPE_I32, REGION_io, 0, 4, -1, -1);
    sample_buffer(program, "y", DTYPE_F32, REGION_io, PLAN_GRAIN, 4, -1, -1);
    *ARENA_PUSH(arena, program->inputs, program->n_inputs, program->cap_inputs) =
        (PlanInput){ INPUT_tokens, 0, 0 };
    *ARENA_PUSH(arena, program->outputs, program->n_outputs, program->cap_outputs) =
        (PlanOutput){ "y", 1 };
}

static void add_group(Plan *plan, PlanProgram *program, int n) {
    Text body = { 0 };
    text_printf(&body, "    (void)tile_begin; (void)tile_end;\n"
                       "    for (int i = 0; i < 4; i++) y[i] = 0;\n"
                       "    for (int j = 0; j < %d; j++) y[j %% 4] += mine[j] * (float)(1 + j);", n);
    sample_kernel(plan, "weigh", "const f32 mine, mut f32 y", body.at, 1);
    text_finish(&body);
    text_printf(&body, "    (void)tile_begin; (void)tile_end;\n"
                       "    for (int i = 0; i < %d; i++) part[i] = all[i];", n);
    sample_kernel(plan, "cut", "const f32 all, mut f32 part", body.at, 1);
    text_finish(&body);
    sample_buffer(program, "all", DTYPE_F32, REGION_act, PLAN_GRAIN, 4 * n, 1, 2);
    sample_buffer(program, "part", DTYPE_F32, REGION_act, PLAN_GRAIN * 9, n, 2, 3);
    sample_buffer(program, "mine", DTYPE_F32, REGION_act, PLAN_GRAIN * 10, n, 3, 4);
    sample_crossing(program, PLAN_gather, GROUP_dp, 0, "< x, > all");
    sample_instr(plan, program, "cut", "< all, > part");
    sample_crossing(program, PLAN_exchange, GROUP_dp, 0, "< part, > mine");
    sample_instr(plan, program, "weigh", "< mine, > y");
}

static void add_stage(Plan *plan, PlanProgram *program, int stage) {
    sample_kernel(plan, "keep", "const f32 x, mut f32 y",
                  "    (void)tile_begin; (void)tile_end;\n"
                  "    for (int i = 0; i < 4; i++) y[i] = x[i];", 1);
    sample_kernel(plan, "twice", "const f32 x, mut f32 y",
                  "    (void)tile_begin; (void)tile_end;\n"
                  "    for (int i = 0; i < 4; i++) y[i] = 2 * x[i];", 1);
    sample_buffer(program, "got", DTYPE_F32, REGION_act, PLAN_GRAIN, 4, stage ? 1 : 2, 4);
    if (stage == 0) {
        sample_crossing(program, PLAN_send, GROUP_pp, 1, "< x");
        sample_crossing(program, PLAN_recv, GROUP_pp, 1, "> got");
        program->instrs[program->n_instrs - 1].lane = LANE_back;
        sample_crossing(program, PLAN_barrier, GROUP_world, 0, "");
        sample_instr(plan, program, "keep", "< got, > y");
        return;
    }
    sample_buffer(program, "more", DTYPE_F32, REGION_act, PLAN_GRAIN * 2, 4, 2, 4);
    sample_crossing(program, PLAN_recv, GROUP_pp, 0, "> got");
    sample_instr(plan, program, "twice", "< got, > more");
    sample_crossing(program, PLAN_send, GROUP_pp, 0, "< more");
    program->instrs[program->n_instrs - 1].lane = LANE_back;
    sample_instr(plan, program, "keep", "< got, > y");
    sample_crossing(program, PLAN_barrier, GROUP_world, 0, "");
}

Plan *sample_ranks(int pp, int dp, int stage) {
    Plan *plan = plan_create();
    plan->model = "ranks";
    plan->tokens = plan->sequence = 4;
    plan->microbatches = 1;
    plan->mesh = (PlanMesh){ { pp, dp, 1 }, stage };
    PlanProgram *program = sample_program(plan, "eval");
    sample_source(plan, prelude);
    sample_kernel(plan, "real", "const i32 tokens, mut f32 x",
                  "    (void)tile_begin; (void)tile_end;\n"
                  "    for (int i = 0; i < 4; i++) x[i] = (float)tokens[i];", 1);
    add_io(program);
    sample_buffer(program, "x", DTYPE_F32, REGION_act, 0, 4, 0, 1 + (pp > 1) * 3);
    sample_segment(program, "forward");
    sample_instr(plan, program, "real", "< tokens, > x");
    if (pp > 1) add_stage(plan, program, stage);
    else add_group(plan, program, dp);
    sample_row(program, 0, 0);
    sample_finish(plan);
    return plan;
}

/* Memory of other ranks ----------------------------------------------------------------------- */

#define SERIAL "    (void)tile_begin; (void)tile_end;\n"

static void add_remote_kernels(Plan *plan) {
    sample_kernel(plan, "real", "const i32 tokens, mut f32 x",
                  SERIAL "    for (int i = 0; i < 4; i++) x[i] = (float)tokens[i];", 1);
    sample_kernel(plan, "members", "mut i32 all", SERIAL "    all[0] = 0; all[1] = 1;", 1);
    sample_kernel(plan, "spread", "const f32 x, const i32 own, const i64 rows",
                  SERIAL "    for (int m = 0; m < 2; m++)\n"
                         "        for (int i = 0; i < 4; i++)\n"
                         "            ((float *)rows[m])[4 * own[0] + i] = x[i] * (float)(1 + m);", 1);
    sample_kernel(plan, "join", "const f32 rows, mut f32 more",
                  SERIAL "    for (int i = 0; i < 4; i++) more[i] = rows[i] + 10 * rows[4 + i];", 1);
    sample_kernel(plan, "fetch", "const i64 more, mut f32 y",
                  SERIAL "    for (int i = 0; i < 4; i++)\n"
                         "        y[i] = ((float *)more[0])[i] + 2 * ((float *)more[1])[i];", 1);
    sample_kernel(plan, "end", "const f32 back, const f32 rows, mut f32 y",
                  SERIAL "    for (int i = 0; i < 4; i++) y[i] += back[i] + rows[4 + i];", 1);
}

Plan *sample_remote(int microbatches) {
    Plan *plan = plan_create();
    plan->model = "remote";
    plan->tokens = plan->sequence = 4;
    plan->microbatches = microbatches;
    plan->mesh = (PlanMesh){ { 1, 1, 2 }, 0 };
    PlanProgram *program = sample_program(plan, "eval");
    sample_source(plan, prelude);
    add_remote_kernels(plan);
    add_io(program);
    sample_buffer(program, "x", DTYPE_F32, REGION_act, 0, 4, 0, 9);
    sample_buffer(program, "all", DTYPE_I32, REGION_act, PLAN_GRAIN, 2, 1, 2);
    sample_buffer(program, "own", DTYPE_I32, REGION_act, 2 * PLAN_GRAIN, 2, 2, 9);
    sample_buffer(program, "rows", DTYPE_F32, REGION_sym, 0, 8, 2, 11);
    sample_buffer(program, "more", DTYPE_F32, REGION_sym, PLAN_GRAIN, 4, 5, 7);
    sample_buffer(program, "back", DTYPE_F32, REGION_sym, PLAN_GRAIN, 8, 8, 11);
    sample_segment(program, "forward");
    sample_instr(plan, program, "real", "< tokens, > x");
    sample_instr(plan, program, "members", "> all");
    sample_crossing(program, PLAN_exchange, GROUP_ep, 0, "< all, > own");
    sample_instr(plan, program, "spread", "< x, < own, >> rows");
    sample_crossing(program, PLAN_barrier, GROUP_dp, 0, "");
    sample_instr(plan, program, "join", "< rows, > more");
    sample_crossing(program, PLAN_barrier, GROUP_ep, 0, "");
    sample_instr(plan, program, "fetch", "<< more, > y");
    sample_segment(program, "backward");
    sample_crossing(program, PLAN_barrier, GROUP_ep, 0, "");
    sample_instr(plan, program, "spread", "< x, < own, >> back");
    sample_crossing(program, PLAN_barrier, GROUP_ep, 0, "");
    sample_instr(plan, program, "end", "< back, < rows, += y");
    for (int i = 0; i < microbatches; i++) {
        sample_row(program, 0, i);
        sample_row(program, 1, i);
    }
    sample_finish(plan);
    return plan;
}

Plan *sample_rounds(int microbatches) {
    Plan *plan = plan_create();
    plan->model = "rounds";
    plan->tokens = plan->sequence = 4;
    plan->microbatches = microbatches;
    plan->mesh = (PlanMesh){ { 1, 1, 2 }, 0 };
    PlanProgram *program = sample_program(plan, "eval");
    sample_source(plan, prelude);
    add_remote_kernels(plan);
    sample_kernel(plan, "wish", "const i32 tokens, mut i32 n",
                  SERIAL "    n[0] = tokens[0] / 1000 * (tokens[0] % 1000 / 100);", 1);
    sample_kernel(plan, "zero", "mut f32 y", SERIAL "    for (int i = 0; i < 4; i++) y[i] = 0;", 1);
    sample_kernel(plan, "gain", "const f32 rows, mut f32 y",
                  SERIAL "    for (int i = 0; i < 4; i++) y[i] += rows[i] + rows[4 + i];", 1);
    add_io(program);
    sample_buffer(program, "x", DTYPE_F32, REGION_act, 0, 4, 0, 9);
    sample_buffer(program, "all", DTYPE_I32, REGION_act, PLAN_GRAIN, 2, 1, 2);
    sample_buffer(program, "own", DTYPE_I32, REGION_act, 2 * PLAN_GRAIN, 2, 2, 9);
    sample_buffer(program, "wished", DTYPE_I32, REGION_act, 3 * PLAN_GRAIN, 1, 3, 4);
    sample_buffer(program, "rounds", DTYPE_I32, REGION_act, PLAN_GRAIN, 2, 4, 6);
    sample_buffer(program, "rows", DTYPE_F32, REGION_sym, 0, 8, 4, 9);
    sample_segment(program, "forward");
    sample_instr(plan, program, "real", "< tokens, > x");
    sample_instr(plan, program, "members", "> all");
    sample_crossing(program, PLAN_exchange, GROUP_ep, 0, "< all, > own");
    sample_instr(plan, program, "wish", "< tokens, > wished");
    sample_crossing(program, PLAN_gather, GROUP_ep, 0, "< wished, > rounds");
    sample_instr(plan, program, "zero", "> y");
    sample_instr(plan, program, "spread", "< x, < own, >> rows");
    sample_crossing(program, PLAN_barrier, GROUP_ep, 0, "");
    sample_instr(plan, program, "gain", "< rows, += y");
    sample_crossing(program, PLAN_barrier, GROUP_ep, 0, "");
    uint32_t count = 0;
    while (strcmp(program->buffers[count].name, "rounds")) count++;
    *ARENA_PUSH(plan->arena, program->repeats, program->n_repeats, program->cap_repeats) =
        (PlanRepeat){ 6, 4, SAMPLE_ROUNDS, 1 + count };
    for (int i = 0; i < microbatches; i++) sample_row(program, 0, i);
    sample_finish(plan);
    return plan;
}

void sample_begun(Plan *plan, PlanProgram *program) {
    uint32_t n = program->n_instrs, to = 0, *start = arena_alloc(plan->arena, (n + 1) * sizeof *start);
    PlanInstr *instrs = arena_alloc(plan->arena, 2 * n * sizeof *instrs);
    for (uint32_t i = 0; i < n; i++) {
        PlanInstr instr = program->instrs[i];
        bool halves = instr.group == GROUP_dp && (instr.op == PLAN_gather || instr.op == PLAN_exchange);
        start[i] = to;
        instrs[to++] = instr;
        if (!halves) continue;
        instrs[to - 1].half = HALF_start;
        instr.half = HALF_wait;
        instr.operands = program->n_operands;
        for (uint32_t k = 0; k < 2; k++)
            *ARENA_PUSH(plan->arena, program->operands, program->n_operands, program->cap_operands) =
                program->operands[instrs[to - 1].operands + k];
        program->operands[instr.operands + 1].mode = OPERAND_INPLACE;
        instrs[to++] = instr;
    }
    start[n] = to;
    program->instrs = instrs;
    program->n_instrs = program->cap_instrs = to;
    for (uint32_t i = 0; i < program->n_segments; i++) {
        PlanSegment *segment = &program->segments[i];
        uint32_t end = start[segment->first + segment->n];
        segment->first = (int32_t)start[segment->first];
        segment->n = (int32_t)end - segment->first;
    }
    for (uint32_t i = 0; i < program->n_buffers; i++) {
        PlanBuffer *buffer = &program->buffers[i];
        buffer->first = (int32_t)start[buffer->first];
        buffer->last = (int32_t)start[buffer->last + 1] - 1;
    }
}
