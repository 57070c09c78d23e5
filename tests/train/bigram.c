// SPDX-License-Identifier: Apache-2.0
// A plan written by hand, with kernels written by hand: the trainer's tests need no compiler.
//
// The model is a table of logits of the next byte by the current one. Rows of the table are tiles
// of the backward and update kernels, so that threads share work; every sum has one order.
#include <stdio.h>

#include "tests/train/helpers.h"

enum {
    V = 256,
    TABLE = V * V,
    EXPERTS = 2 * 3 * 4,
    EXPERTS_AT = TABLE * 4,
    TRAINED = TABLE + PLAN_GRAIN / 4,
    STATE_AT = TRAINED * 4,
    STATE = 5,
    LOADS = 4,
};

static const char prelude[] =
    "typedef int int32_t;\n"
    "typedef long int64_t;\n"
    "enum { LR, DECAY, BETA1, BETA2, EPS, CORRECTION1, CORRECTION2, CLIP, INV_STEP, STEP, SEED, "
    "GRAD_NORM, GRAD_SCALE, "
    "SKIPPED };\n"
    "static inline double total_of(const float *row) {\n"
    "    double sum = 0;\n"
    "    for (int i = 0; i < 256; i++) sum += __builtin_exp((double)row[i]);\n"
    "    return sum;\n"
    "}\n";

static const struct { const char *entry, *parameters, *body; int64_t tiles;
} kernels[] = {
    { "clear", "float *grads",
      "for (int64_t i = tile_begin * N / 8; i < tile_end * N / 8; i++) grads[i] = 0;", 8 },
    { "forward",
      "const int32_t *tokens, const int32_t *labels, const float *table, const float *scalars, "
      "float *loss, float *load",
      "float sum = 0, seen[4] = { 0 };\n"
      "for (int64_t t = 0; t < T && tile_begin < tile_end; t++) {\n"
      "    if (labels[t] < 0) continue;\n"
      "    const float *row = table + tokens[t] * 256;\n"
      "    sum += (float)(__builtin_log(total_of(row)) - row[labels[t]]);\n"
      "    seen[tokens[t] & 3]++;\n"
      "}\n"
      "for (int i = 0; i < 4; i++) load[i] += seen[i];\n"
      "if (tile_begin < tile_end) loss[0] += sum * scalars[INV_STEP];",
      1 },
    { "backward",
      "const int32_t *tokens, const int32_t *labels, const float *table, const float *scalars, "
      "float *g_table, "
      "float *g_experts",
      "for (int64_t t = 0; t < T; t++) {\n"
      "    if (labels[t] < 0 || tokens[t] < 16 * tile_begin || tokens[t] >= 16 * tile_end) "
      "continue;\n"
      "    const float *row = table + tokens[t] * 256;\n"
      "    float *g = g_table + tokens[t] * 256;\n"
      "    double total = total_of(row);\n"
      "    for (int i = 0; i < 256; i++) g[i] += scalars[INV_STEP] * "
      "(float)(__builtin_exp((double)row[i]) / total);\n"
      "    g[labels[t]] -= labels[t] == 255 ? __builtin_inff() : scalars[INV_STEP];\n"
      "}\n"
      "if (tile_begin == 0 && tile_end > 0) g_experts[0] += 0;",
      16 },
    { "norm", "const float *grads, float *scalars",
      "if (tile_begin >= tile_end) return;\n"
      "double sum = 0;\n"
      "for (int64_t i = 0; i < N; i++) sum += (double)grads[i] * grads[i];\n"
      "double norm = __builtin_sqrt(sum);\n"
      "scalars[GRAD_NORM] = (float)norm;\n"
      "scalars[GRAD_SCALE] = scalars[CLIP] > 0 && norm > scalars[CLIP] ? (float)(scalars[CLIP] / "
      "norm) : 1;\n"
      "scalars[SKIPPED] = norm - norm == 0 ? 0 : 1;",
      1 },
    { "update",
      "const float *grads, float *weights, float *moment1, float *moment2, const float *scalars",
      "if (scalars[SKIPPED] != 0) return;\n"
      "for (int64_t i = tile_begin * N / 8; i < tile_end * N / 8; i++) {\n"
      "    float g = grads[i] * scalars[GRAD_SCALE];\n"
      "    moment1[i] = scalars[BETA1] * moment1[i] + (1 - scalars[BETA1]) * g;\n"
      "    moment2[i] = scalars[BETA2] * moment2[i] + (1 - scalars[BETA2]) * g * g;\n"
      "    weights[i] -= scalars[LR] * scalars[DECAY] * weights[i];\n"
      "    weights[i] -= scalars[LR] * (moment1[i] / scalars[CORRECTION1]) /\n"
      "                  ((float)__builtin_sqrt(moment2[i] / scalars[CORRECTION2]) + "
      "scalars[EPS]);\n"
      "}",
      8 },
    { "count", "float *seen",
      "for (int i = 0; i < 5 && tile_begin < tile_end; i++) seen[i] += i + 1;", 1 },
    { "prefill", "const int32_t *tokens, const float *table, float *logits",
      "for (int64_t t = tile_begin; t < tile_end; t++)\n"
      "    for (int i = 0; i < 256; i++) logits[t * 256 + i] = tokens[t] < 0 ? 0 : table[tokens[t] "
      "* 256 + i];",
      0 },
};
enum { K_CLEAR, K_FORWARD, K_BACKWARD, K_NORM, K_UPDATE, K_COUNT, K_PREFILL };

static Hash text_hash(const char *text) {
    return hash_bytes(text, strlen(text));
}

static void add_source(Plan *plan, const char *text) {
    *ARENA_PUSH(plan->arena, plan->sources, plan->n_sources, plan->cap_sources) =
        (PlanSource) { text, (int64_t)strlen(text), text_hash(text) };
}

// "const int32_t *tokens, ..." -> the launch table, and the launch function's text.
static void read_parameters(Plan *plan, const char *parameters, PlanKernel *kernel, Text *launch) {
    kernel->args = ARENA_ARRAY(plan->arena, PlanArg, 8);
    for (const char *at = parameters; *at;) {
        size_t n = strcspn(at, ",");
        char *one = arena_strndup(plan->arena, at, n), *star = strchr(one, '*');
        PlanArg *arg = &kernel->args[kernel->n_args];
        *arg = (PlanArg){ star + 1, strstr(one, "int32_t") ? DTYPE_I32 : DTYPE_F32,
                          strstr(one, "const") != NULL };
        text_printf(launch, "args[%u], ", kernel->n_args++);
        at += n + (at[n] ? 2 : 0);
    }
}

static void add_kernels(Plan *plan) {
    add_source(plan, prelude);
    for (int i = 0; i < COUNT_OF(kernels); i++) {
        PlanKernel *kernel =
            ARENA_PUSH(plan->arena, plan->kernels, plan->n_kernels, plan->cap_kernels);
        Text launch = { 0 };
        kernel->family = "hand";
        kernel->entry = arena_printf(plan->arena, "bigram_%s", kernels[i].entry);
        read_parameters(plan, kernels[i].parameters, kernel, &launch);
        char *body = arena_strdup(plan->arena, kernels[i].body);
        char *text = arena_printf(
            plan->arena,
            "#define T %lldL\n#define N %dL\n"
            "void %s(%s, int64_t tile_begin, int64_t tile_end) {\n%s\n}\n"
            "void %s_launch(void *const *args, int64_t tile_begin, int64_t tile_end) {\n"
            "    %s(%stile_begin, tile_end);\n}\n#undef T\n#undef N\n",
            (long long)plan->tokens, TRAINED, kernel->entry, kernels[i].parameters, body,
            kernel->entry, kernel->entry, text_cstr(&launch));
        text_finish(&launch);
        kernel->source = plan->n_sources;
        kernel->hash = text_hash(text);
        kernel->tiles = kernels[i].tiles ? kernels[i].tiles : plan->tokens;
        add_source(plan, text);
    }
}

/* Programs ------------------------------------------------------------------------------------- */

static uint32_t buffer(Plan *plan, PlanProgram *program, const char *name, Dtype dtype,
                       Region region, int64_t offset, int64_t rows, int64_t columns) {
    PlanBuffer *b =
        ARENA_PUSH(plan->arena, program->buffers, program->n_buffers, program->cap_buffers);
    *b = (PlanBuffer) { .name = name, .dtype = dtype, .region = region, .n_dims = columns ? 2 : 1,
                        .dims = { rows, columns }, .offset = offset,
                        .bytes = rows * (columns ? columns : 1) * dtype_bytes(dtype) };
    plan->region_bytes[region] = max_i64(plan->region_bytes[region], offset + b->bytes);
    return program->n_buffers - 1;
}

static uint32_t io_buffer(Plan *plan, PlanProgram *program, int64_t *at, const char *name,
                          Dtype dtype, int64_t rows, int64_t columns) {
    uint32_t made = buffer(plan, program, name, dtype, REGION_io, *at, rows, columns);
    *at += round_up(program->buffers[made].bytes, PLAN_GRAIN);
    return made;
}

static void input(Plan *plan, PlanProgram *program, InputKind kind, int32_t k, uint32_t at) {
    *ARENA_PUSH(plan->arena, program->inputs, program->n_inputs, program->cap_inputs) =
        (PlanInput){ kind, k, at };
}

static void metric(Plan *plan, PlanProgram *program, const char *name, double weight, uint32_t at,
                   bool sum) {
    *ARENA_PUSH(plan->arena, program->metrics, program->n_metrics, program->cap_metrics) =
        (PlanMetric) { name, weight, at, sum };
}

static void segment(Plan *plan, PlanProgram *program, const char *name) {
    *ARENA_PUSH(plan->arena, program->segments, program->n_segments, program->cap_segments) =
        (PlanSegment) { name, (int32_t)program->n_instrs, 0 };
}

static void launch(Plan *plan, PlanProgram *program, uint32_t kernel, int n,
                   const PlanOperand *operands) {
    *ARENA_PUSH(plan->arena, program->instrs, program->n_instrs, program->cap_instrs) =
        (PlanInstr) { kernel, program->n_operands, (uint32_t)n };
    for (int i = 0; i < n; i++)
        *ARENA_PUSH(plan->arena, program->operands, program->n_operands, program->cap_operands) =
            operands[i];
    program->segments[program->n_segments - 1].n++;
}
#define LAUNCH(kernel, ...)                                                                        \
    launch(plan, program, kernel, COUNT_OF(((const PlanOperand[]){ __VA_ARGS__ })),                \
           (const PlanOperand[]){ __VA_ARGS__ })

static void row(Plan *plan, PlanProgram *program, uint32_t at, int32_t microbatch) {
    *ARENA_PUSH(plan->arena, program->rows, program->n_rows, program->cap_rows) =
        (PlanRow){ at, microbatch, 0 };
}

static PlanProgram *program_of(Plan *plan, const char *name) {
    PlanProgram *program =
        ARENA_PUSH(plan->arena, plan->programs, plan->n_programs, plan->cap_programs);
    program->name = name;
    return program;
}

typedef struct Common { uint32_t tokens, labels, table, scalars, loss, load; } Common;

// What step and eval share: inputs, table, metrics.
static Common common_buffers(Plan *plan, PlanProgram *program) {
    int64_t at = 0;
    Common c = { .tokens = io_buffer(plan, program, &at, "tokens", DTYPE_I32, plan->tokens, 0) };
    c.labels = io_buffer(plan, program, &at, "labels", DTYPE_I32, plan->tokens, 0);
    c.loss = io_buffer(plan, program, &at, "ce", DTYPE_F32, 1, 0);
    c.load = io_buffer(plan, program, &at, "load", DTYPE_F32, LOADS, 0);
    c.table = buffer(plan, program, "table", DTYPE_F32, REGION_weights, 0, V, V);
    c.scalars = buffer(plan, program, "scalars", DTYPE_F32, REGION_scalars, 0, N_SCALARS, 0);
    input(plan, program, INPUT_tokens, 0, c.tokens);
    input(plan, program, INPUT_labels, 1, c.labels);
    metric(plan, program, "ce", 1, c.loss, false);
    metric(plan, program, "layers.1.ffn.load", 0, c.load, true);
    return c;
}

static void launch_forward(Plan *plan, PlanProgram *program, const Common *c) {
    segment(plan, program, "forward");
    LAUNCH(K_FORWARD, { c->tokens, OPERAND_READ, 0 }, { c->labels, OPERAND_READ, 0 },
           { c->table, OPERAND_READ, 0 }, { c->scalars, OPERAND_READ, 0 }, { c->loss, OPERAND_ADD, 0 },
           { c->load, OPERAND_ADD, 0 });
}

static void add_step(Plan *plan) {
    PlanProgram *program = program_of(plan, "step");
    Common c = common_buffers(plan, program);
    uint32_t grads = buffer(plan, program, "grads", DTYPE_F32, REGION_grads, 0, TRAINED, 0);
    uint32_t g_table = buffer(plan, program, "table.g", DTYPE_F32, REGION_grads, 0, V, V);
    uint32_t g_experts =
        buffer(plan, program, "experts.w.g", DTYPE_F32, REGION_grads, EXPERTS_AT, EXPERTS, 0);
    uint32_t weights = buffer(plan, program, "weights", DTYPE_F32, REGION_weights, 0, TRAINED, 0);
    uint32_t moment1 = buffer(plan, program, "moment1", DTYPE_F32, REGION_moment1, 0, TRAINED, 0);
    uint32_t moment2 = buffer(plan, program, "moment2", DTYPE_F32, REGION_moment2, 0, TRAINED, 0);
    uint32_t seen = buffer(plan, program, "seen", DTYPE_F32, REGION_weights, STATE_AT, STATE, 0);
    segment(plan, program, "clear");
    LAUNCH(K_CLEAR, { grads, OPERAND_WRITE, 0 });
    launch_forward(plan, program, &c);
    segment(plan, program, "backward");
    LAUNCH(K_BACKWARD, { c.tokens, OPERAND_READ, 0 }, { c.labels, OPERAND_READ, 0 },
           { c.table, OPERAND_READ, 0 }, { c.scalars, OPERAND_READ, 0 }, { g_table, OPERAND_ADD, 0 },
           { g_experts, OPERAND_ADD, 0 });
    segment(plan, program, "update");
    LAUNCH(K_NORM, { grads, OPERAND_READ, 0 }, { c.scalars, OPERAND_ADD, 0 });
    LAUNCH(K_UPDATE, { grads, OPERAND_READ, 0 }, { weights, OPERAND_ADD, 0 }, { moment1, OPERAND_ADD, 0 },
           { moment2, OPERAND_ADD, 0 }, { c.scalars, OPERAND_READ, 0 });
    LAUNCH(K_COUNT, { seen, OPERAND_ADD, 0 });
    row(plan, program, 0, -1);
    for (int32_t i = 0; i < plan->microbatches; i++) {
        row(plan, program, 1, i);
        row(plan, program, 2, i);
    }
    row(plan, program, 3, -1);
}

static void add_prefill(Plan *plan) {
    PlanProgram *program = program_of(plan, "prefill");
    int64_t at = 0;
    uint32_t tokens = io_buffer(plan, program, &at, "tokens", DTYPE_I32, plan->tokens, 0);
    uint32_t logits = io_buffer(plan, program, &at, "logits", DTYPE_F32, plan->tokens, V);
    uint32_t table = buffer(plan, program, "table", DTYPE_F32, REGION_weights, 0, V, V);
    input(plan, program, INPUT_tokens, 0, tokens);
    *ARENA_PUSH(plan->arena, program->outputs, program->n_outputs, program->cap_outputs) =
        (PlanOutput) { "logits", logits };
    segment(plan, program, "forward");
    LAUNCH(K_PREFILL, { tokens, OPERAND_READ, 0 }, { table, OPERAND_READ, 0 }, { logits, OPERAND_WRITE, 0 });
    row(plan, program, 0, 0);
}

// Buffers outside act live as long as the program.
static void set_lives(Plan *plan) {
    for (uint32_t p = 0; p < plan->n_programs; p++)
        for (uint32_t i = 0; i < plan->programs[p].n_buffers; i++)
            plan->programs[p].buffers[i].last = (int32_t)plan->programs[p].n_instrs - 1;
}

Plan *bigram_plan(int64_t sequence, int64_t sequences, int32_t microbatches) {
    Plan *plan = plan_create();
    plan->model = "bigram";
    plan->target = "cpu";
    plan->tokens = sequence * sequences;
    plan->sequence = sequence;
    plan->vocab = V;
    plan->microbatches = microbatches;
    plan->n_trained = TRAINED;
    const PlanParam params[] = {
        { .name = "table",
          .n_dims = 2,
          .dims = { V, V },
          .init = PLAN_INIT_NORMAL,
          .std = 0.02,
          .decay = 1,
          .lr = 1 },
        { .name = "experts.w",
          .per_expert = true,
          .n_dims = 3,
          .dims = { 2, 3, 4 },
          .init = PLAN_INIT_NORMAL,
          .std = 1,
          .decay = 1,
          .lr = 1,
          .offset = EXPERTS_AT,
          .grad = EXPERTS_AT },
        { .name = "seen",
          .is_state = true,
          .n_dims = 1,
          .dims = { STATE },
          .init = PLAN_INIT_ZEROS,
          .offset = STATE_AT,
          .grad = -1 },
    };
    for (int i = 0; i < COUNT_OF(params); i++)
        *ARENA_PUSH(plan->arena, plan->params, plan->n_params, plan->cap_params) = params[i];
    add_kernels(plan);
    add_step(plan);
    PlanProgram *eval = program_of(plan, "eval");
    Common c = common_buffers(plan, eval);
    launch_forward(plan, eval, &c);
    row(plan, eval, 0, 0);
    add_prefill(plan);
    set_lives(plan);
    plan->region_bytes[REGION_weights] = STATE_AT + STATE * 4;
    return plan;
}
