// SPDX-License-Identifier: Apache-2.0
// Whole training steps of models/bench_cpu.lua and its dense twin, and where their time goes.
//
// Model FLOPs are compiler/model/count.c's: contractions, three times forward, attention causal, the
// router left out. A kernel's own limit is the longer of its FLOPs at the peak of its type and its
// bytes at the copy bandwidth (in place for AdamW). FLOPs of a row program inside a contraction count
// as the contraction's.
#include <math.h>
#include <stdlib.h>

#include "compiler/lower/lower.h"
#include "compiler/spec/spec.h"
#include "runtime/train/train.h"
#include "tests/bench/bench.h"

typedef struct Size {
    int64_t microbatch; // tokens
    int microbatches, rounds;
} Size;

typedef struct Step {
    Bench *bench;
    Plan *plan;
    const PlanProgram *program;
    Exec *exec;
    Options *options;
    int64_t number; // of the next step
    double flops;   // of one, the model's
    int precision;
} Step;

/* One step ------------------------------------------------------------------------------------------ */

static void set_ints(const Step *s, InputKind kind, int32_t k, int64_t first) {
    int32_t *at = exec_input(s->exec, s->program, kind, k);
    for (int64_t t = 0; at && t < s->plan->tokens; t++) {
        int64_t token = first + t, place = token % s->plan->sequence;
        int64_t ahead = token + k;
        uint64_t id = hash_mix(9, 9, (uint64_t)ahead) % (uint64_t)s->plan->vocab;
        bool past = place + k >= s->plan->sequence;
        switch (kind) {
        case INPUT_tokens:
        case INPUT_labels: at[t] = past ? -1 : (int32_t)id; break;
        case INPUT_positions: at[t] = (int32_t)place; break;
        case INPUT_segments: at[t] = (int32_t)(t / s->plan->sequence); break;
        default: at[t] = (int32_t)token; break;
        }
    }
}

static Status fill(void *user, Exec *exec, const PlanProgram *program, int microbatch) {
    const Step *s = user;
    int64_t sequences = s->plan->tokens / s->plan->sequence, valid = s->plan->sequence - 1;
    int64_t first = (s->number * s->plan->microbatches + microbatch) * s->plan->tokens;
    for (uint32_t i = 0; i < program->n_inputs; i++) {
        const PlanInput *input = &program->inputs[i];
        float *at = exec_input(exec, program, (InputKind)input->kind, input->k);
        if (input->kind == INPUT_n_valid)
            at[0] = (float)(sequences * valid);
        else if (input->kind == INPUT_n_valid_sequence)
            for (int64_t q = 0; q < sequences; q++) at[q] = (float)valid;
        else
            set_ints(s, (InputKind)input->kind, input->k, first);
    }
    return OK;
}

static void run_step(void *user) {
    Step *s = user;
    int64_t targets = s->plan->tokens / s->plan->sequence * (s->plan->sequence - 1) * s->plan->microbatches;
    schedule_scalars(s->options, s->number, 1e-3, targets, exec_scalars(s->exec));
    must(exec_run(s->exec, s->program, fill, s));
    s->number++;
}

// The loss of the last step: a wrong one makes the times worthless.
static double loss_of(const Step *s) {
    int which = metrics_main_loss(s->program->metrics, s->program->n_metrics);
    if (which < 0) give_up("the plan reports no loss");
    double loss = (double)exec_metric(s->exec, s->program, (uint32_t)which, NULL)[0];
    double most = 2 * log((double)s->plan->vocab);
    if (!(loss > 0 && loss < most)) give_up("the loss of a step is %g, expected 0 to %g", loss, most);
    return loss;
}

/* Kernel by kernel ---------------------------------------------------------------------------------- */

typedef struct Line {
    uint32_t kernel;
    const char *segment, *result;
    double launches, seconds; // per step
    double limit;             // seconds of one launch
    bool compute;             // the limit is arithmetic
} Line;

static bool is_contraction(const char *family) {
    return !strncmp(family, "matmul", 6) || !strncmp(family, "attend", 6);
}

static bool in_pairs(const PlanKernel *k, const Plan *plan) {
    if (strstr(plan->sources[k->source].text, "PAIRS = 1")) return true;
    return !strncmp(k->family, "attend", 6) && k->args[0].dtype == DTYPE_BF16;
}

static void set_limit(const Step *s, Line *line) {
    const PlanKernel *k = &s->plan->kernels[line->kernel];
    Limit memory = strcmp(k->family, "adamw") ? LIMIT_COPY : LIMIT_UPDATE;
    Limit type = in_pairs(k, s->plan) ? LIMIT_BF16 : LIMIT_FP32;
    double bytes = k->bytes / s->bench->best[memory];
    double flops = is_contraction(k->family) ? k->flops / s->bench->best[type] : 0;
    line->compute = flops > bytes;
    line->limit = fmax(flops, bytes);
}

static const char *result_name(const PlanProgram *program, const PlanInstr *instr) {
    for (uint32_t i = 0; i < instr->n_operands; i++) {
        const PlanOperand *o = &program->operands[instr->operands + i];
        if (o->mode != OPERAND_READ) return program->buffers[o->buffer].name;
    }
    return "";
}

static int by_seconds(const void *a, const void *b) {
    double x = ((const Line *)a)->seconds, y = ((const Line *)b)->seconds;
    return (x < y) - (x > y);
}

// Equal kernels of a segment are one line.
static int make_lines(const Step *s, int steps, Line *lines) {
    const PlanProgram *p = s->program;
    const double *seconds = exec_profile(s->exec, p);
    int n = 0;
    for (uint32_t g = 0; g < p->n_segments; g++) {
        const PlanSegment *segment = &p->segments[g];
        int times = 0, first = n;
        for (uint32_t r = 0; r < p->n_rows; r++) times += p->rows[r].segment == g;
        for (int32_t i = segment->first; i < segment->first + segment->n; i++) {
            int at = first;
            while (at < n && lines[at].kernel != p->instrs[i].kernel) at++;
            if (at == n) {
                lines[n] = (Line){.kernel = p->instrs[i].kernel, .segment = segment->name,
                                  .result = result_name(p, &p->instrs[i])};
                set_limit(s, &lines[n++]);
            }
            const PlanRepeat *repeat = plan_repeat(p, i); // FLOPs and bytes are those of a trip
            lines[at].launches += times * (repeat ? repeat->trip : 1);
            lines[at].seconds += seconds[i] / steps;
        }
    }
    qsort(lines, (size_t)n, sizeof *lines, by_seconds);
    return n;
}

static void print_line(Step *s, const char *model, const Line *line, double step_seconds) {
    const PlanKernel *k = &s->plan->kernels[line->kernel];
    double each = line->seconds / line->launches;
    char family[32], result[48];
    snprintf(family, sizeof family, "%s%s", k->family,
             !is_contraction(k->family) ? "" : in_pairs(k, s->plan) ? " bf16" : " fp32");
    snprintf(result, sizeof result, "%.44s", line->result);
    report_row(&s->bench->report,
               (Cell[]){TEXT(model), TEXT(line->segment), TEXT(family), TEXT(result),
                        NUMBER(line->launches), NUMBER(line->seconds * 1e3),
                        NUMBER(100 * line->seconds / step_seconds),
                        NUMBER(is_contraction(k->family) ? k->flops / each / 1e9 : (double)NAN),
                        NUMBER(k->bytes / each / 1e9), TEXT(line->compute ? "flops" : "bytes"),
                        NUMBER(100 * line->limit / each)});
}

static void kernel_table(Step *s, const char *title, const char *model, int steps, double step_seconds) {
    static const Column columns[] = {
        {"model", "model", -10, 0},     {"segment", "segment", -8, 0},
        {"kernel", "kernel", -16, 0},   {"result", "first result of the first", -44, 0},
        {"launches", "times", 6, 0},    {"ms", "ms", 9, 2},
        {"share", "% time", 7, 2},      {"gflops", "GFLOP/s", 8, 1},
        {"gbs", "GB/s", 7, 1},          {"limit", "limit", -6, 0},
        {"own", "% of it", 7, 1},
    };
    enum { SHOWN = 97 }; // percent of the time in kernels
    Line *lines = calloc(s->program->n_instrs, sizeof *lines);
    if (!lines) give_up("out of memory");
    int n = make_lines(s, steps, lines), i = 0;
    double sum = 0, ideal = 0, shown = 0, rest_ideal = 0;
    for (int j = 0; j < n; j++) sum += lines[j].seconds, ideal += lines[j].limit * lines[j].launches;
    report_section(&s->bench->report, "kernels", title, columns, COUNT_OF(columns));
    rest_ideal = ideal;
    for (; i < n && shown < sum * SHOWN / 100; i++) {
        print_line(s, model, &lines[i], step_seconds);
        shown += lines[i].seconds;
        rest_ideal -= lines[i].limit * lines[i].launches;
    }
    Cell none = NUMBER(NAN);
    report_row(&s->bench->report,
               (Cell[]){TEXT(model), TEXT(""), TEXT("other kernels"), TEXT(""), NUMBER(n - i),
                        NUMBER((sum - shown) * 1e3), NUMBER(100 * (sum - shown) / step_seconds), none,
                        none, TEXT(""), NUMBER(i < n ? 100 * rest_ideal / (sum - shown) : (double)NAN)});
    report_row(&s->bench->report,
               (Cell[]){TEXT(model), TEXT(""), TEXT("between kernels"), TEXT(""), none,
                        NUMBER((step_seconds - sum) * 1e3),
                        NUMBER(100 * (step_seconds - sum) / step_seconds), none, none, TEXT(""), none});
    report_row(&s->bench->report,
               (Cell[]){TEXT(model), TEXT(""), TEXT("whole step"), TEXT(""), none,
                        NUMBER(step_seconds * 1e3), NUMBER(100), none, none, TEXT(""),
                        NUMBER(100 * ideal / step_seconds)});
    free(lines);
}

/* One model in one precision ------------------------------------------------------------------------ */

typedef struct Result {
    Timing timing;
    double flops, tokens, loss, peak_bytes;
} Result;

// What is run: the model with its router's choices, and with those of benchmarks elsewhere; and its twin.
typedef struct Variant {
    const char *name, *routing;
    bool dense;
    uint8_t precision, mode; // Precision, Routing
} Variant;

static Model *load(const Variant *variant) {
    SpecArg arg = {"dense", variant->dense ? "true" : "false"};
    SpecOptions options = {.args = &arg, .n_args = 1, .routing = (Routing)variant->mode};
    Text error = {0};
    Model *model = spec_load("models/bench_cpu.lua", &options, &error);
    if (!model) give_up("%s", text_cstr(&error));
    text_finish(&error);
    return model;
}

static void run_model(Bench *bench, Step *s, const Variant *variant, Size size, Result *result) {
    Model *model = load(variant);
    LowerOptions lower = {.microbatch = (int32_t)(size.microbatch / model->sequence),
                          .microbatches = size.microbatches,
                          .precision = (uint8_t)s->precision};
    lower.programs[PROGRAM_STEP] = true;
    s->plan = lower_model(model, &lower);
    if (!s->plan) give_up("bench_cpu: %s", model->diag.message);
    s->program = plan_program(s->plan, "step");
    result->tokens = (double)(s->plan->tokens * s->plan->microbatches);
    s->flops = result->flops = model_counts(model).train_flops_per_token * result->tokens;
    model_destroy(model);
    ExecOptions exec = {.threads = bench->threads, .profile = true,
                        .progress = compile_progress};
    must(exec_create(s->plan, &exec, &s->exec));
    exec_init(s->exec, 1);
    run_step(s); // pages and caches
    loss_of(s);
    for (int i = 0; i < 3; i++) limit_measure(bench, LIMIT_COPY), limit_measure(bench, LIMIT_UPDATE);
    memset(exec_profile(s->exec, s->program), 0, s->program->n_instrs * sizeof(double));
    result->timing = time_runs(bench, precision_limit(s->precision), s->flops, 0, size.rounds, run_step, s);
    result->loss = loss_of(s);
    result->peak_bytes = (double)plan_peak(s->plan);
}

static void summary_row(Bench *bench, const Column *columns, int n, const Variant *variant, const Result *r) {
    report_section(&bench->report, "steps", "Training step", columns, n);
    const Timing *t = &r->timing;
    report_row(&bench->report,
               (Cell[]){TEXT(variant->name), TEXT(precision_text(variant->precision)), TEXT(variant->routing),
                        NUMBER(r->tokens), NUMBER(t->best), NUMBER(t->median), NUMBER(r->tokens / t->best),
                        NUMBER(r->flops / r->tokens / 1e6), NUMBER(r->flops / t->best / 1e9),
                        NUMBER(t->best_share), NUMBER(t->median_share), NUMBER(r->peak_bytes / (1 << 20)),
                        NUMBER(r->loss), NUMBER(t->rounds)});
}

static void run_variant(Bench *bench, const Variant *variant, const Column *columns, int n) {
    // Steps in fp32 take so long that one, after the one that warms up, must do.
    Size size = {8192, 4, variant->precision == PRECISION_BF16 && variant->mode == ROUTING_LEARNED ? 2 : 1};
    if (bench->quick) size = (Size){2048, 1, 1};
    Step s = {.bench = bench, .precision = variant->precision, .options = options_create()};
    Result result = {0};
    if (!s.options) give_up("out of memory");
    run_model(bench, &s, variant, size, &result);
    summary_row(bench, columns, n, variant, &result);
    if (variant->mode == ROUTING_LEARNED) {
        char title[96], model[32];
        snprintf(title, sizeof title, "Kernels of %s in %s, a step", variant->name, precision_text(variant->precision));
        snprintf(model, sizeof model, "%s %s", variant->dense ? "dense" : "moe", precision_text(variant->precision));
        kernel_table(&s, title, model, result.timing.rounds, result.timing.mean);
    }
    exec_destroy(s.exec);
    plan_destroy(s.plan);
    options_destroy(s.options);
}

void step_section(Bench *bench) {
    static const Column columns[] = {
        {"model", "model", -10, 0},          {"precision", "type", -5, 0},
        {"routing", "routing", -8, 0},       {"tokens", "tokens", 7, 0},
        {"best_s", "s best", 8, 3},          {"median_s", "s median", 8, 3},
        {"tokens_per_s", "tokens/s", 9, 0},  {"mflop_per_token", "MFLOP/tok", 9, 1},
        {"gflops", "GFLOP/s", 8, 1},         {"best", "% best", 7, 1},
        {"median", "% median", 8, 1},        {"peak_mib", "MiB", 7, 0},
        {"loss", "loss", 7, 4},              {"steps", "steps", 5, 0},
    };
    static const Variant variants[] = {
        {"bench_cpu", "learned", false, PRECISION_BF16, ROUTING_LEARNED},
        {"bench_cpu", "uniform", false, PRECISION_BF16, ROUTING_UNIFORM},
        {"bench_cpu", "random", false, PRECISION_BF16, ROUTING_RANDOM},
        {"dense twin", "none", true, PRECISION_BF16, ROUTING_LEARNED},
        {"bench_cpu", "learned", false, PRECISION_FP32, ROUTING_LEARNED},
        {"dense twin", "none", true, PRECISION_FP32, ROUTING_LEARNED},
    };
    for (int i = 0; i < COUNT_OF(variants); i++) {
        const Variant *v = &variants[i];
        if (line_wanted(bench, "%s %s %s", v->name, precision_text(v->precision), v->routing))
            run_variant(bench, v, columns, COUNT_OF(columns));
    }
}
