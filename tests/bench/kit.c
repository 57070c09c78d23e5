// SPDX-License-Identifier: Apache-2.0
// Kernels through the real path: described, generated, read by libclang, compiled, run by the pool.
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/bench/bench.h"

enum { PATTERN = 1000003 }; // numbers that are repeated to fill operands; prime

const char *precision_text(int precision) { return precision == PRECISION_BF16 ? "bf16" : "fp32"; }

Dtype precision_dtype(int precision) {
    return precision == PRECISION_BF16 ? DTYPE_BF16 : DTYPE_F32;
}

Limit precision_limit(int precision) {
    return precision == PRECISION_BF16 ? LIMIT_BF16 : LIMIT_FP32;
}

void kit_open(Kit *kit) {
    *kit = (Kit){.plan = plan_create()};
    kit->codegen = kit->plan ? codegen_create(kit->plan) : NULL;
    if (!kit->codegen) give_up("%s", status_message());
}

uint32_t kit_add(Kit *kit, const KernelDesc *desc) {
    uint32_t kernel;
    must(codegen_kernel(kit->codegen, desc, &kernel));
    return kernel;
}

void compile_progress(void *user, int done, int total, int cached) {
    (void)user, (void)cached;
    if (isatty(STDERR_FILENO))
        fprintf(stderr, done < total ? "\rcompiling kernel %d of %d " : "\r\033[K", done, total);
}

void kit_compile(Kit *kit) { must(jit_load(kit->plan, compile_progress, NULL, NULL, &kit->jit)); }

void kit_close(Kit *kit) {
    jit_destroy(kit->jit);
    codegen_destroy(kit->codegen);
    plan_destroy(kit->plan);
}

/* Operands ---------------------------------------------------------------------------------------- */

static uint16_t bf16_of(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

// Numbers in [-1/2, 1/2), far from denormal.
static const void *pattern(Dtype dtype) {
    static float *wide;
    static uint16_t *narrow;
    if (!wide) {
        wide = malloc(PATTERN * sizeof *wide);
        narrow = malloc(PATTERN * sizeof *narrow);
        if (!wide || !narrow) give_up("no memory for random numbers");
        for (int i = 0; i < PATTERN; i++) {
            wide[i] = hash_uniform(1, 2, (uint64_t)i) - 0.5f;
            narrow[i] = bf16_of(wide[i]);
        }
    }
    return dtype == DTYPE_BF16 ? (const void *)narrow : wide;
}

static void fill(char *at, Dtype dtype, int64_t bytes, const Bound *bound) {
    int64_t step = PATTERN * (int64_t)dtype_bytes(dtype);
    if (bound->from)
        memcpy(at, bound->from, (size_t)bytes);
    else
        for (int64_t i = 0; i < bytes; i += step)
            memcpy(at + i, pattern(dtype), (size_t)min_i64(step, bytes - i));
}

static const Bound *find_bound(const char *name, const Bound *bound, int n, const char *entry) {
    for (int i = 0; i < n; i++)
        if (!strcmp(bound[i].name, name)) return &bound[i];
    give_up("kernel %s has a parameter %s that this program does not know", entry, name);
}

// Enough sets that together they are several times the cache, in a quarter of the memory.
static int count_sets(const Bench *bench, int64_t bytes) {
    int64_t memory = sysconf(_SC_AVPHYS_PAGES) * (int64_t)sysconf(_SC_PAGESIZE) / 4;
    int64_t sets = max_i64(2, div_up(4 * bench->cache_bytes, bytes));
    return (int)max_i64(1, min_i64(min_i64(sets, memory / bytes), TRIAL_SETS));
}

void trial_open(Trial *trial, const Bench *bench, const Kit *kit, uint32_t kernel,
                const Bound *bound, int n) {
    const PlanKernel *k = &kit->plan->kernels[kernel];
    *trial = (Trial){.bench = bench,
                     .function = jit_function(kit->jit, kernel),
                     .tiles = k->tiles,
                     .kernel = k};
    if (k->n_args > TRIAL_ARGS) give_up("kernel %s has %u parameters", k->entry, k->n_args);
    const Bound *of[TRIAL_ARGS];
    int64_t all = 0;
    for (uint32_t i = 0; i < k->n_args; i++) {
        of[i] = find_bound(k->args[i].name, bound, n, k->entry);
        trial->bytes[i] = of[i]->count * dtype_bytes(k->args[i].dtype);
        all += trial->bytes[i];
    }
    trial->n_sets = count_sets(bench, all);
    for (int set = 0; set < trial->n_sets; set++) {
        for (uint32_t i = 0; i < k->n_args; i++) {
            char *at = trial->args[set][i] = map_memory(bench, trial->bytes[i]);
            if (k->args[i].is_const)
                fill(at, k->args[i].dtype, trial->bytes[i], of[i]);
            else
                memset(at, 0, (size_t)trial->bytes[i]); // the pages are there before the first run
        }
    }
}

void trial_run(void *user) {
    Trial *trial = user;
    pool_run(trial->bench->pool, trial->function, trial->args[trial->next], trial->tiles);
    trial->next = (trial->next + 1) % trial->n_sets;
}

int trial_arg(const Trial *trial, const char *name) {
    for (uint32_t i = 0; i < trial->kernel->n_args; i++)
        if (!strcmp(trial->kernel->args[i].name, name)) return (int)i;
    give_up("kernel %s has no parameter %s", trial->kernel->entry, name);
}

double trial_number(const Trial *trial, int arg, int64_t at) {
    const void *from = trial->args[0][arg];
    if (trial->kernel->args[arg].dtype == DTYPE_F32) return (double)((const float *)from)[at];
    uint32_t wide = (uint32_t)((const uint16_t *)from)[at] << 16;
    float x;
    memcpy(&x, &wide, sizeof x);
    return (double)x;
}

// Results of the first set, after its first run: finite, and not all what they were.
void trial_check_finite(const Trial *trial) {
    bool changed = false;
    for (uint32_t i = 0; i < trial->kernel->n_args; i++) {
        const PlanArg *arg = &trial->kernel->args[i];
        bool real = arg->dtype == DTYPE_F32 || arg->dtype == DTYPE_BF16;
        int64_t n = trial->bytes[i] / dtype_bytes(arg->dtype);
        for (int64_t at = 0; !arg->is_const && at < n; at += 1 + n / 100003) {
            if (!real) {
                changed |= ((const int32_t *)trial->args[0][i])[at] != 0;
                continue;
            }
            double x = trial_number(trial, (int)i, at);
            changed |= fabs(x) > 0;
            if (!isfinite(x))
                give_up("%s: %s[%lld] is %g", trial->kernel->entry, arg->name, (long long)at, x);
        }
    }
    if (!changed) give_up("%s has computed nothing but zeros", trial->kernel->entry);
}

void trial_close(Trial *trial) {
    for (int set = 0; set < trial->n_sets; set++)
        for (uint32_t i = 0; i < trial->kernel->n_args; i++)
            unmap_memory(trial->args[set][i], trial->bytes[i]);
}
