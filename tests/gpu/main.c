// SPDX-License-Identifier: Apache-2.0
// moec-gpu PLAN DEVICE [STEPS]: times every kernel of a plan's training step on a device, beside
// cuBLAS where the kernel is a product and cuBLAS is there (cublas.h): one dense product of as many
// multiply-adds, the same types and the same inner and outer sizes. A measurement, not a test.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/exec/exec.h"
#include "tests/gpu/cublas.h"

static _Noreturn void give_up(void) {
    fprintf(stderr, "moec-gpu: error: %s\n", status_message());
    exit(1);
}

static void must(Status status) {
    if (status != OK) give_up();
}

// Text of bytes in sequences without padding; which bytes does not matter to time.
static Status fill(void *user, Exec *exec, const PlanProgram *program, int microbatch) {
    const Plan *plan = user;
    for (uint32_t i = 0; i < program->n_inputs; i++) {
        const PlanInput *input = &program->inputs[i];
        int32_t *ids = exec_input(exec, program, (InputKind)input->kind, input->k);
        float *counts = (float *)ids;
        if (input->kind == INPUT_n_valid) {
            counts[0] = (float)plan->tokens;
            continue;
        }
        if (input->kind == INPUT_n_valid_sequence) {
            for (int64_t s = 0; s < plan->tokens / plan->sequence; s++)
                counts[s] = (float)plan->sequence;
            continue;
        }
        for (int64_t t = 0; t < plan->tokens; t++) {
            uint64_t at = (uint64_t)(t + input->k);
            switch (input->kind) {
            case INPUT_positions: ids[t] = (int32_t)(t % plan->sequence); break;
            case INPUT_segments: ids[t] = (int32_t)(t / plan->sequence); break;
            case INPUT_index: ids[t] = (int32_t)(microbatch * plan->tokens + t); break;
            default:
                ids[t] = (int32_t)(hash_mix(1, (uint64_t)microbatch, at) % (uint64_t)plan->vocab);
            }
        }
    }
    return OK;
}

static void set_scalars(Exec *exec, const Plan *plan) {
    float *s = exec_scalars(exec);
    s[SCALAR_lr] = 1e-3f;
    s[SCALAR_beta1] = 0.9f;
    s[SCALAR_beta2] = 0.95f;
    s[SCALAR_eps] = 1e-8f;
    s[SCALAR_correction1] = s[SCALAR_correction2] = 1;
    s[SCALAR_clip] = 1;
    s[SCALAR_inv_step] = 1 / (float)(plan->tokens * plan->microbatches);
}

typedef struct Line {
    uint32_t kernel, instr; // the first that launches it
    int64_t launches;       // in a step
    double seconds;
} Line;

static int by_seconds(const void *a, const void *b) {
    double x = ((const Line *)a)->seconds, y = ((const Line *)b)->seconds;
    return (x < y) - (x > y);
}

// One line per kernel.
static int make_lines(const Exec *exec, const PlanProgram *program, int steps, Line *lines) {
    const double *seconds = exec_profile(exec, program);
    int n = 0;
    for (uint32_t g = 0; g < program->n_segments; g++) {
        const PlanSegment *segment = &program->segments[g];
        int64_t times = 0;
        for (uint32_t r = 0; r < program->n_rows; r++) times += program->rows[r].segment == g;
        for (int32_t i = segment->first; i < segment->first + segment->n; i++) {
            const PlanRepeat *repeat = plan_repeat(program, i);
            int at = 0;
            while (at < n && lines[at].kernel != program->instrs[i].kernel) at++;
            if (at == n) lines[n++] = (Line){ program->instrs[i].kernel, (uint32_t)i, 0, 0 };
            lines[at].launches += times * (repeat ? repeat->trip : 1);
            lines[at].seconds += seconds[i] / steps;
        }
    }
    qsort(lines, (size_t)n, sizeof *lines, by_seconds);
    return n;
}

// Sizes of a product from what it reads and writes: the last dimensions of its first and last operand
// that are two or more dimensions, and as many rows as its operations say.
static bool product_of(const Plan *plan, const PlanProgram *program, const Line *line,
                       Product *out) {
    const PlanKernel *kernel = &plan->kernels[line->kernel];
    if (strncmp(kernel->family, "matmul", 6)) return false;
    const PlanInstr *instr = &program->instrs[line->instr];
    const PlanBuffer *first = NULL, *last = NULL;
    for (uint32_t i = 0; i < instr->n_operands; i++) {
        const PlanBuffer *b = &program->buffers[program->operands[instr->operands + i].buffer];
        if (b->n_dims < 2 || b->dtype == DTYPE_I32) continue;
        if (!first) first = b;
        last = b;
    }
    if (!first || first == last) return false;
    int64_t k = first->dims[first->n_dims - 1], n = last->dims[last->n_dims - 1];
    int64_t m = (int64_t)(kernel->flops / 2 / (double)k / (double)n);
    *out = (Product){ m, n, k, first->dtype == DTYPE_BF16 };
    return m > 0;
}

// What cuBLAS takes for the same, NaN where there is nothing to compare. Whatever fails there is no failure
// of ours: it is said, and the times of kernels stand alone.
static void ask_cublas(const char *device, const Plan *plan, const PlanProgram *program, const Line *lines, int n,
                       double *peers) {
    Product *products = calloc((size_t)n + 1, sizeof *products);
    double *seconds = calloc((size_t)n + 1, sizeof *seconds);
    if (!products || !seconds) must(status_fail(ERR_MEMORY, "out of memory"));
    int m = 0;
    for (int i = 0; i < n; i++) m += product_of(plan, program, &lines[i], &products[m]);
    bool there = !strncmp(device, "cuda", 4) && m;
    if (there && cublas_measure(device, products, m, seconds) != OK) printf("no cuBLAS beside: %s\n", status_message());
    m = 0;
    for (int i = 0; i < n; i++) {
        Product unused;
        peers[i] = product_of(plan, program, &lines[i], &unused) && there ? seconds[m++] : (double)NAN;
    }
    free(products);
    free(seconds);
}

static void print_lines(const Plan *plan, const Line *lines, int n, const double *peers) {
    printf("%-28s %8s %10s %9s %10s %8s %12s %7s\n", "kernel", "launches", "us each", "% of step",
           "GFLOP/s", "GB/s", "cuBLAS us", "ratio");
    double sum = 0;
    for (int i = 0; i < n; i++) sum += lines[i].seconds;
    for (int i = 0; i < n; i++) {
        const Line *line = &lines[i];
        const PlanKernel *kernel = &plan->kernels[line->kernel];
        double each = line->seconds / (double)max_i64(line->launches, 1);
        printf("%-28s %8lld %10.2f %9.2f %10.1f %8.1f", kernel->entry, (long long)line->launches,
               each * 1e6, 100 * line->seconds / sum, kernel->flops / each / 1e9,
               kernel->bytes / each / 1e9);
        if (isnan(peers[i])) printf(" %12s %7s\n", "-", "-");
        else printf(" %12.2f %7.2f\n", peers[i] * 1e6, peers[i] / each);
    }
    printf("all kernels of a step: %.3f ms\n", sum * 1e3);
}

static double run_steps(Exec *exec, const Plan *plan, const PlanProgram *program, int steps) {
    double begin = time_seconds();
    for (int i = 0; i < steps; i++) {
        set_scalars(exec, plan);
        must(exec_run(exec, program, fill, (void *)(uintptr_t)plan));
    }
    return (time_seconds() - begin) / steps;
}

static void measure(const Plan *plan, const char *device, int steps) {
    const PlanProgram *program = plan_program(plan, "step");
    if (!program) must(status_fail(ERR_INPUT, "the plan has no program 'step'"));
    Exec *exec;
    must(exec_create(plan, &(ExecOptions){ .device = device, .graph = true }, &exec));
    must(exec_init(exec, 1));
    run_steps(exec, plan, program, 1); // records the graph
    double whole = run_steps(exec, plan, program, steps);
    printf("%s on %s (%s): step %.3f ms, %.0f tokens/s, %d nodes in its graph\n", plan->model,
           exec_device(exec), plan->target, whole * 1e3,
           (double)(plan->tokens * plan->microbatches) / whole, exec_graph_nodes(exec, program));
    exec_destroy(exec);
    must(exec_create(plan, &(ExecOptions){ .device = device, .profile = true }, &exec));
    must(exec_init(exec, 1));
    run_steps(exec, plan, program, 1);
    memset(exec_profile(exec, program), 0, program->n_instrs * sizeof(double));
    run_steps(exec, plan, program, steps);
    Line *lines = calloc(program->n_instrs + 1, sizeof *lines);
    if (!lines) must(status_fail(ERR_MEMORY, "out of memory"));
    int n = make_lines(exec, program, steps, lines);
    exec_destroy(exec); // its memory is cuBLAS's now
    double *peers = calloc((size_t)n + 1, sizeof *peers);
    if (!peers) must(status_fail(ERR_MEMORY, "out of memory"));
    ask_cublas(device, plan, program, lines, n, peers);
    print_lines(plan, lines, n, peers);
    free(peers);
    free(lines);
}

int main(int argc, char **argv) {
    if (argc > 2 && !strcmp(argv[1], "--cublas")) return cublas_main(argv[2], argv + 3, argc - 3);
    if (argc < 3 || argc > 4) {
        fprintf(stderr, "moec-gpu PLAN DEVICE [STEPS]: times the kernels of a training step\n");
        return 2;
    }
    Arena *arena = arena_create();
    char *text;
    size_t n;
    Plan *plan;
    if (!arena) return 1;
    must(file_read(argv[1], arena, &text, &n));
    must(plan_parse(text, n, &plan));
    measure(plan, argv[2], argc > 3 ? atoi(argv[3]) : 10);
    plan_destroy(plan);
    arena_destroy(arena);
    return 0;
}
