// SPDX-License-Identifier: Apache-2.0
// moec-bench: one run measures what this machine can do and what the kernels and whole training
// steps make of it.
//
// A rate is only worth something beside a limit measured in the same process, so every timing is
// limit, run, limit, run, ..: the median share is that of a run in the mean of the limits around it,
// the best share that of the fastest run in the highest limit of the process. Operands lie as the
// plan lays them out, in as many sets as make them several times larger than the last-level cache.
#ifndef MOEC_BENCH_H
#define MOEC_BENCH_H

#include <jansson.h>
#include <stdio.h>

#include "compiler/codegen/codegen.h"
#include "runtime/device/pool.h"
#include "runtime/jit/jit.h"

/* report.c: aligned text as it comes, JSON at the end ------------------------------------------ */

typedef struct Column {
    const char *key, *title; // in JSON, in the table
    int width;               // negative: text, left-aligned
    int decimals;
} Column;

// A number, or a text. NaN: not measured, "-" and null.
typedef struct Cell {
    double number;
    const char *text;
} Cell;
#define TEXT(x) ((Cell){.text = (x)})
#define NUMBER(x) ((Cell){.number = (double)(x)})

typedef struct Report {
    json_t *root, *rows; // rows: of the section
    const Column *columns;
    int n_columns;
} Report;

void report_open(Report *report);
void report_fact(Report *report, const char *key, Cell value); // of the machine or the run
// The same key again continues its rows under a new title.
void report_section(Report *report, const char *key, const char *title, const Column *columns, int n);
void report_row(Report *report, const Cell *cells);
void report_note(Report *report, const char *format, ...) PRINTF_LIKE(2, 3);
Status report_write(const Report *report, const char *path);
void report_close(Report *report);

/* limit.c: what the machine can do -------------------------------------------------------------- */

typedef enum Limit {
    LIMIT_FP32,   // fused multiply-adds, FLOP/s
    LIMIT_BF16,   // dot products of bf16 pairs; the fp32 limit where there is no such instruction
    LIMIT_COPY,   // plain loads and stores, bytes read and written per second
    LIMIT_UPDATE, // the same in place
    N_LIMITS
} Limit;
extern const char *const limit_name[N_LIMITS];

typedef struct Bench {
    bool quick, peer, huge_pages;
    const char *only;  // sections to run, NULL: all
    const char *match; // lines to run: those whose name holds it, NULL: all
    const char *json, *self;
    int threads;
    Pool *pool;
    Report report;
    bool has_bf16;
    int64_t cache_bytes;     // last level
    double best[N_LIMITS];   // all threads, so far
    int64_t turns[N_LIMITS]; // of a probe that takes long enough
    char *memory[2];         // of the bandwidth probes
    int64_t memory_bytes, next_piece;
} Bench;

void limit_open(Bench *bench);
void limit_close(Bench *bench);
double limit_measure(Bench *bench, Limit limit); // all threads
void limit_section(Bench *bench);

/* timing.c --------------------------------------------------------------------------------------- */

typedef struct Timing {
    double best, median, mean;       // seconds
    double best_share, median_share; // of the limit, in percent
    int rounds;
} Timing;

// `work` is what one run does, in the limit's unit.
Timing time_runs(Bench *bench, Limit limit, double work, double budget, int at_least,
                 void (*run)(void *user), void *user);
double median_of(double *values, int n); // sorts
void *map_memory(const Bench *bench, int64_t bytes); // zeroed, never NULL
void unmap_memory(void *at, int64_t bytes);
void give_up(const char *format, ...) PRINTF_LIKE(1, 2) __attribute__((noreturn));
static inline void must(Status status) {
    if (status != OK) give_up("%s", status_message());
}

/* kit.c: kernels by description, compiled together, then run one by one -------------------------- */

typedef struct Kit {
    Plan *plan;
    Codegen *codegen;
    Jit *jit;
} Kit;

// What a parameter of the entry points to. `from` NULL: random numbers where const, else zeros.
typedef struct Bound {
    const char *name;
    int64_t count;
    const int32_t *from;
} Bound;

enum { TRIAL_ARGS = 32, TRIAL_SETS = 16 };
typedef struct Trial {
    const Bench *bench;
    PoolTile function;
    int64_t tiles, bytes[TRIAL_ARGS]; // bytes: per argument
    const PlanKernel *kernel;
    void *args[TRIAL_SETS][TRIAL_ARGS];
    int n_sets, next;
} Trial;

void kit_open(Kit *kit);
uint32_t kit_add(Kit *kit, const KernelDesc *desc);
void kit_compile(Kit *kit);
void compile_progress(void *user, int done, int total, int cached); // to a terminal
void kit_close(Kit *kit);
void trial_open(Trial *trial, const Bench *bench, const Kit *kit, uint32_t kernel,
                const Bound *bound, int n);
void trial_run(void *trial); // the next set
int trial_arg(const Trial *trial, const char *name);
double trial_number(const Trial *trial, int arg, int64_t at); // of the first set
void trial_check_finite(const Trial *trial);
void trial_close(Trial *trial);
// "fp32", "bf16" of a precision; its type in memory; its limit.
const char *precision_text(int precision);
Dtype precision_dtype(int precision);
Limit precision_limit(int precision);

// Whether a line of a section is to be run: "wgrad fp32 32", "swiglu bf16", "bench_cpu fp32".
bool line_wanted(const Bench *bench, const char *format, ...) PRINTF_LIKE(2, 3);

/* sections --------------------------------------------------------------------------------------- */

void gemm_section(Bench *bench);
void attend_section(Bench *bench);
void rows_section(Bench *bench);
void step_section(Bench *bench);
void start_section(Bench *bench);
int start_child(const char *spec); // what start_section runs in a process of its own
void peer_section(Bench *bench);

#endif
