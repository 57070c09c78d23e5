// SPDX-License-Identifier: Apache-2.0
// Probes: independent chains of fused multiply-adds and of bf16 dot products, as many as the
// registers hold; copies and updates of arrays larger than the last-level cache. Their results are
// kept, so that nothing of them may be left out.
#include <math.h>
#include <stdlib.h>
#include <unistd.h>
#if defined __x86_64__
#include <immintrin.h>
#endif

#include "tests/bench/bench.h"

#if defined __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 32")
#endif

const char *const limit_name[N_LIMITS] = {"fp32 FMA", "bf16 dot", "copy", "update in place"};
static volatile float sink;

/* Arithmetic: `turns` of a loop; returns FLOPs ---------------------------------------------------- */

typedef double (*Probe)(int64_t turns);

#if defined __x86_64__
enum { CHAINS = 24, FEW_CHAINS = 12 };

__attribute__((target("avx512f"), noinline)) static double fma_512(int64_t turns) {
    const __m512 a = _mm512_set1_ps(0.9990234375f), b = _mm512_set1_ps(0.001f);
    __m512 x[CHAINS];
    UNROLL
    for (int j = 0; j < CHAINS; j++) x[j] = _mm512_set1_ps((float)j);
    for (int64_t i = 0; i < turns; i++) {
        UNROLL
        for (int j = 0; j < CHAINS; j++) x[j] = _mm512_fmadd_ps(x[j], a, b);
    }
    UNROLL
    for (int j = 1; j < CHAINS; j++) x[0] = _mm512_add_ps(x[0], x[j]);
    sink = _mm512_cvtss_f32(x[0]);
    return (double)turns * CHAINS * 16 * 2;
}

__attribute__((target("avx512f,avx512bf16"), noinline)) static double dot_512(int64_t turns) {
    const __m512i bits = _mm512_set1_epi16(0x3a80); // 2^-10
    const __m512bh a = (__m512bh)bits, b = a;
    __m512 x[CHAINS];
    UNROLL
    for (int j = 0; j < CHAINS; j++) x[j] = _mm512_set1_ps((float)j);
    for (int64_t i = 0; i < turns; i++) {
        UNROLL
        for (int j = 0; j < CHAINS; j++) x[j] = _mm512_dpbf16_ps(x[j], a, b);
    }
    UNROLL
    for (int j = 1; j < CHAINS; j++) x[0] = _mm512_add_ps(x[0], x[j]);
    sink = _mm512_cvtss_f32(x[0]);
    return (double)turns * CHAINS * 16 * 4;
}

__attribute__((target("avx2,fma"), noinline)) static double fma_256(int64_t turns) {
    const __m256 a = _mm256_set1_ps(0.9990234375f), b = _mm256_set1_ps(0.001f);
    __m256 x[FEW_CHAINS];
    UNROLL
    for (int j = 0; j < FEW_CHAINS; j++) x[j] = _mm256_set1_ps((float)j);
    for (int64_t i = 0; i < turns; i++) {
        UNROLL
        for (int j = 0; j < FEW_CHAINS; j++) x[j] = _mm256_fmadd_ps(x[j], a, b);
    }
    UNROLL
    for (int j = 1; j < FEW_CHAINS; j++) x[0] = _mm256_add_ps(x[0], x[j]);
    sink = _mm256_cvtss_f32(x[0]);
    return (double)turns * FEW_CHAINS * 8 * 2;
}
#endif

// Multiply, then add, in the vectors of the baseline.
__attribute__((noinline)) static double multiply_add(int64_t turns) {
    typedef float V4 __attribute__((vector_size(16)));
    enum { N = 12 };
    const V4 a = {0.999f, 0.999f, 0.999f, 0.999f}, b = {0.001f, 0.001f, 0.001f, 0.001f};
    V4 x[N];
    UNROLL
    for (int j = 0; j < N; j++) x[j] = a * (float)j;
    for (int64_t i = 0; i < turns; i++) {
        UNROLL
        for (int j = 0; j < N; j++) x[j] = x[j] * a + b;
    }
    UNROLL
    for (int j = 1; j < N; j++) x[0] += x[j];
    sink = x[0][0];
    return (double)turns * N * 4 * 2;
}

static Probe probe_of(const Bench *bench, Limit limit) {
#if defined __x86_64__
    if (limit == LIMIT_BF16 && bench->has_bf16) return dot_512;
    if (__builtin_cpu_supports("avx512f")) return fma_512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return fma_256;
#endif
    (void)bench, (void)limit;
    return multiply_add;
}

/* Memory ------------------------------------------------------------------------------------------ */

enum { PIECE = 1 << 18, WINDOW = 64 }; // pieces of one measurement; the next goes on after them

static void copy_piece(char *to, const char *from, int64_t bytes) {
    typedef float V8 __attribute__((vector_size(32), aligned(32), may_alias));
    for (int64_t i = 0; i < bytes; i += 128) {
        for (int j = 0; j < 128; j += 32) *(V8 *)(to + i + j) = *(const V8 *)(from + i + j);
        __asm__ volatile("" ::: "memory"); // a loop of plain stores, not a call that may bypass caches
    }
}

static void update_piece(char *at, int64_t bytes) {
    typedef float V8 __attribute__((vector_size(32), aligned(32), may_alias));
    for (int64_t i = 0; i < bytes; i += 32) {
        V8 *x = (V8 *)(at + i);
        *x = *x * 0.5f + 1.0f;
    }
}

/* All threads ------------------------------------------------------------------------------------- */

typedef struct Job {
    const Bench *bench;
    Limit limit;
    Probe probe;
    int64_t turns, first; // first: piece of memory
} Job;

enum { PARTS = 4 }; // tiles per thread: another program on a core does not decide all

static void probe_tiles(void *const *args, int64_t begin, int64_t end) {
    const Job *job = args[0];
    for (int64_t i = begin; i < end; i++) {
        char *const *memory = job->bench->memory;
        int64_t at = (job->first + i) * PIECE % job->bench->memory_bytes;
        if (job->limit == LIMIT_COPY)
            copy_piece(memory[1] + at, memory[0] + at, PIECE);
        else if (job->limit == LIMIT_UPDATE)
            update_piece(memory[0] + at, PIECE);
        else
            job->probe(job->turns);
    }
}

// FLOP/s or bytes/s of `pool`, or of this thread if NULL.
static double measure(Bench *bench, Limit limit, Pool *pool) {
    Job job = {bench, limit, probe_of(bench, limit), bench->turns[limit], bench->next_piece};
    void *const args[] = {&job};
    bool memory = limit == LIMIT_COPY || limit == LIMIT_UPDATE;
    int64_t tiles = memory ? WINDOW : PARTS * (pool ? bench->threads : 1);
    if (memory) bench->next_piece += WINDOW;
    double start = time_seconds();
    if (pool)
        pool_run(pool, probe_tiles, args, tiles);
    else
        probe_tiles(args, 0, tiles);
    double seconds = time_seconds() - start;
    double work = memory ? 2.0 * WINDOW * PIECE
                         : (double)tiles * job.probe(1) * (double)job.turns;
    return work / seconds;
}

double limit_measure(Bench *bench, Limit limit) {
    double rate = measure(bench, limit, bench->pool);
    bench->best[limit] = fmax(bench->best[limit], rate);
    return rate;
}

// Of the last level that a core can reach, as Linux says (what the processor says of itself may be of
// all its parts together); else by sysconf, else a guess.
static int64_t find_cache(void) {
    long long bytes = 0, size;
    for (int i = 0; i < 8; i++) {
        char path[96], unit;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", i);
        FILE *file = fopen(path, "r");
        if (!file) break;
        if (fscanf(file, "%lld%c", &size, &unit) == 2 && (unit == 'K' || unit == 'M'))
            bytes = max_i64(bytes, size << (unit == 'K' ? 10 : 20));
        fclose(file);
    }
    if (!bytes) bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
    return bytes > 0 ? bytes : 32 << 20;
}

static int64_t find_turns(const Bench *bench, Limit limit) {
    Probe probe = probe_of(bench, limit);
    int64_t turns = 1 << 10;
    for (double seconds = 0; seconds < 2e-4; turns *= 2) { // a tile; PARTS of them per thread
        double start = time_seconds();
        probe(turns);
        seconds = time_seconds() - start;
    }
    return turns;
}

void limit_open(Bench *bench) {
#if defined __x86_64__
    bench->has_bf16 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bf16");
#endif
    bench->cache_bytes = find_cache();
    bench->memory_bytes = min_i64(round_up(4 * bench->cache_bytes, PIECE), 512 << 20);
    for (int i = 0; i < 2; i++) {
        bench->memory[i] = map_memory(bench, bench->memory_bytes);
        memset(bench->memory[i], 0, (size_t)bench->memory_bytes);
    }
    bench->turns[LIMIT_FP32] = find_turns(bench, LIMIT_FP32);
    bench->turns[LIMIT_BF16] = find_turns(bench, LIMIT_BF16);
}

void limit_close(Bench *bench) {
    for (int i = 0; i < 2; i++) unmap_memory(bench->memory[i], bench->memory_bytes);
}

/* The section -------------------------------------------------------------------------------------- */

static void cpu_name(char *out, size_t size) {
    snprintf(out, size, "unknown");
    FILE *file = fopen("/proc/cpuinfo", "r");
    char line[256];
    while (file && fgets(line, sizeof line, file)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) || !colon) continue;
        snprintf(out, size, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
        break;
    }
    if (file) fclose(file);
}

void limit_section(Bench *bench) {
    static const Column columns[] = {
        {"limit", "limit", -16, 0},          {"core_best", "one core", 12, 1},
        {"core_median", "(median)", 9, 1},   {"all_best", "all threads", 12, 1},
        {"all_median", "(median)", 9, 1},    {"unit", "", -8, 0},
    };
    char name[128];
    cpu_name(name, sizeof name);
    report_fact(&bench->report, "cpu", TEXT(name));
    report_fact(&bench->report, "threads", NUMBER(bench->threads));
    report_fact(&bench->report, "cache_mib", NUMBER((double)bench->cache_bytes / (1 << 20)));
    const char *isa = getenv("MOEC_ISA");
    report_fact(&bench->report, "kernels_built_for", TEXT(isa && *isa ? isa : "this machine"));
    report_fact(&bench->report, "bf16_dot", TEXT(bench->has_bf16 ? "yes" : "no"));
    report_section(&bench->report, "limits",
                   "Limits of the machine (GB/s count bytes read and bytes written)", columns,
                   COUNT_OF(columns));
    for (int limit = 0; limit < N_LIMITS; limit++) {
        enum { ROUNDS = 100 };
        double core[ROUNDS], all[ROUNDS], best = 0;
        for (int i = 0; i < ROUNDS; i++) {
            core[i] = measure(bench, limit, NULL) / 1e9;
            all[i] = limit_measure(bench, limit) / 1e9;
            best = fmax(best, core[i]);
        }
        report_row(&bench->report,
                   (Cell[]){TEXT(limit_name[limit]), NUMBER(best), NUMBER(median_of(core, ROUNDS)),
                            NUMBER(bench->best[limit] / 1e9), NUMBER(median_of(all, ROUNDS)),
                            TEXT(limit < LIMIT_COPY ? "GFLOP/s" : "GB/s")});
    }
    if (!bench->has_bf16)
        report_note(&bench->report, "This machine has no bf16 dot product: bf16 kernels emulate it and "
                                    "are measured against the fp32 limit.");
}
