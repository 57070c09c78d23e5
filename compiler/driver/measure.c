// SPDX-License-Identifier: Apache-2.0
// Figures of a device: moec's own kernels, launched again and again.
#include "compiler/driver/measure.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "compiler/kernel/kernel.h"
#include "runtime/device/device.h"

typedef struct Lab {
    const MeasureOptions *options;
    Arena *arena;
    Plan *plan;
    Codegen *codegen;
    Model *model;    // of row operations
    Pool *pool;
    Device *device;
    DeviceKernel *kernels;
} Lab;

// Launched for some time: seconds of one launch at its best, in the first half of the time and in the last.
typedef struct Timing { double best, first, last; } Timing;

enum { MOST_ARGS = 10, MOST_SLICES = 64 };
typedef struct Work {
    const char *what;
    KernelDesc desc;
    uint32_t kernel;
    struct { const char *name; int64_t bytes; } arg[MOST_ARGS]; // what it is bound to
    int n_args;
    Timing t;
} Work;

static Status open_lab(Lab *lab) {
    const char *target;
    TRY(device_target(lab->options->device, lab->plan->arena, &target));
    lab->plan->target = target;
    lab->codegen = codegen_create(lab->plan);
    if (!lab->codegen) return ERR_COMPILE;
    TRY(pool_create(lab->options->threads, &lab->pool));
    return device_open(lab->options->device, lab->pool, &lab->device);
}

static void close_lab(Lab *lab) {
    codegen_destroy(lab->codegen);
    model_destroy(lab->model);
    device_close(lab->device);
    pool_destroy(lab->pool);
    plan_destroy(lab->plan);
}

/* Running -------------------------------------------------------------------------------------- */

static void bind(Work *work, const char *name, int64_t bytes) {
    work->arg[work->n_args].name = name;
    work->arg[work->n_args++].bytes = round_up(bytes, PLAN_GRAIN);
}

// Numbers such as training has: what a product takes depends on them where power is the limit.
static void fill_numbers(uint8_t *at, int64_t bytes, Dtype dtype) {
    for (int64_t i = 0; dtype == DTYPE_BF16 && i < bytes / 2; i++) {
        float x = hash_uniform(1, 2, (uint64_t)i & 0xffff) - 0.5f;
        memcpy(at + 2 * i, (const char *)&x + 2, 2);
    }
    for (int64_t i = 0; dtype == DTYPE_F32 && i < bytes / 4; i++) {
        float x = hash_uniform(1, 2, (uint64_t)i & 0xffff) - 0.5f;
        memcpy(at + 4 * i, &x, 4);
    }
}

// Experts' rows: all there are, evenly.
static void fill_offsets(const Work *work, uint8_t *at) {
    for (int32_t e = 0; e <= work->desc.experts; e++) {
        int32_t first = (int32_t)(work->desc.rows * e / work->desc.experts);
        memcpy(at + 4 * e, &first, 4);
    }
}

static Status allocate(Lab *lab, const Work *work, void **args, int64_t *bytes, int *n) {
    const PlanKernel *kernel = &lab->plan->kernels[work->kernel];
    for (uint32_t i = 0; i < kernel->n_args; i++) {
        const PlanArg *arg = &kernel->args[i];
        int at = 0;
        while (at < work->n_args && strcmp(work->arg[at].name, arg->name)) at++;
        if (at == work->n_args)
            return status_fail(ERR_INTERNAL, "calibrate: %s has an argument '%s'", kernel->entry, arg->name);
        bytes[i] = work->arg[at].bytes;
        TRY(lab->device->api->alloc(lab->device, bytes[i], false, "an operand", &args[i]));
        ++*n;
        uint8_t *host = memory_alloc((size_t)bytes[i]);
        memset(host, 0, (size_t)bytes[i]);
        if (!strcmp(arg->name, "offsets")) fill_offsets(work, host);
        else fill_numbers(host, bytes[i], (Dtype)arg->dtype);
        Status status = lab->device->api->copy_in(lab->device, args[i], host, bytes[i]);
        if (status == OK) status = lab->device->api->synchronize(lab->device);
        memory_free(host);
        TRY(status);
    }
    return OK;
}

// Of one thread its own time counts, not what others do on its core meanwhile.
static double clock_s(const Lab *lab) {
    struct timespec t;
    if (!lab->options->alone || !lab->device->api->on_host || clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t))
        return time_seconds();
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static Status launches(Lab *lab, const Work *work, void *const *args, int64_t n, double *seconds) {
    double start = clock_s(lab);
    for (int64_t i = 0; i < n; i++)
        TRY(lab->device->api->launch(lab->device, &lab->kernels[work->kernel], args, NULL));
    TRY(lab->device->api->synchronize(lab->device));
    *seconds = clock_s(lab) - start;
    return OK;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// A machine's other work makes slices longer, never shorter: the first quarter of them in order.
static double quarter(double *x, int n) {
    qsort(x, (size_t)n, sizeof *x, ascending);
    return x[n / 4];
}

// Slices of launches, of about a 40th of the time each.
static Status run_for(Lab *lab, Work *work, void *const *args) {
    double wanted = lab->options->seconds, s, slices[MOST_SLICES];
    int64_t n = 1;
    TRY(launches(lab, work, args, 1, &s)); // the first one brings it into caches
    do {
        TRY(launches(lab, work, args, n, &s));
        if (s < wanted / 80) n *= 2;
    } while (s < wanted / 80);
    int taken = 0;
    for (double end = time_seconds() + wanted; taken < MOST_SLICES && (taken < 4 || time_seconds() < end); taken++) {
        TRY(lab->options->pulse(lab->options->user, work->what));
        TRY(launches(lab, work, args, n, &s));
        slices[taken] = s / (double)n;
    }
    int half = taken / 2;
    if (lab->options->crowded) {
        double sum = 0;
        for (int i = 0; i < taken; i++) sum += slices[i];
        work->t = (Timing){ sum / taken, sum / taken, sum / taken };
        return OK;
    }
    work->t.first = quarter(slices, half);
    work->t.last = quarter(slices + half, taken - half);
    work->t.best = fmin(slices[0], slices[half]); // sorted halves
    return OK;
}

static Status run_work(Lab *lab, Work *work) {
    void *args[MOST_ARGS] = { 0 };
    int64_t bytes[MOST_ARGS];
    int n = 0;
    Status status = allocate(lab, work, args, bytes, &n);
    if (status == OK) status = run_for(lab, work, args);
    for (int i = 0; i < n; i++) lab->device->api->release(lab->device, args[i], bytes[i]);
    return status;
}

/* What is measured ----------------------------------------------------------------------------- */

static Work product_work(const char *what, uint8_t precision, int64_t rows, int32_t experts, int64_t n, int32_t k) {
    Dtype narrow = precision == PRECISION_BF16 ? DTYPE_BF16 : DTYPE_F32;
    Work work = { .what = what,
                  .desc = { .family = FAMILY_MATMUL, .rows = rows, .experts = experts, .mid = 1, .each = 1, .k = k,
                            .n = n, .precision = precision, .x = narrow, .y = narrow } };
    int64_t size = dtype_bytes(narrow), groups = experts ? experts : 1;
    bind(&work, "x", rows * k * size);
    bind(&work, "w", groups * round_up(n, 32) * round_up(k, 2) * size);
    bind(&work, "y", rows * n * size);
    if (experts) bind(&work, "offsets", 4 * (experts + 1));
    return work;
}

// [rows, k]^T x [rows, n], added to nothing.
static Work wgrad_work(const char *what, uint8_t precision, int64_t rows, int64_t n, int32_t k) {
    Work work = product_work(what, precision, rows, 0, n, k);
    work.desc.family = FAMILY_MATMUL_W;
    work.desc.g = work.desc.x, work.desc.y = DTYPE_F32;
    work.n_args = 0;
    bind(&work, "x", rows * k * dtype_bytes(work.desc.x));
    bind(&work, "g", rows * n * dtype_bytes(work.desc.x));
    bind(&work, "w", n * k * 4);
    return work;
}

enum { WIDTH_CPU = 64, WIDTH_GPU = 128 }; // of heads

// Causal, of one sequence.
static Work attention_work(const char *what, bool back, uint8_t precision, int32_t sequence, int32_t heads, int32_t width) {
    Dtype narrow = precision == PRECISION_BF16 ? DTYPE_BF16 : DTYPE_F32;
    Work work = { .what = what,
                  .desc = { .family = back ? FAMILY_ATTEND_GRAD : FAMILY_ATTEND, .rows = sequence, .sequence = sequence,
                            .heads = heads, .kv_heads = heads, .qk = width, .v = width, .causal = true,
                            .scale = 1 / sqrtf((float)width), .precision = precision, .x = narrow, .g = narrow,
                            .y = narrow } };
    static const char *const rows[] = { "q", "k", "v", "y", "g", "dq", "dk", "dv" };
    for (int i = 0; i < (back ? 8 : 4); i++) bind(&work, rows[i], (int64_t)sequence * heads * width * 4);
    bind(&work, "lse", (int64_t)sequence * heads * 4);
    bind(&work, "segments", (int64_t)sequence * 4);
    return work;
}

static Work reduce_work(int64_t n) {
    Work work = { .what = "memory", .desc = { .family = FAMILY_REDUCE, .ranks = 2, .n = n } };
    bind(&work, "parts", 2 * n * 4);
    bind(&work, "y", n * 4);
    return work;
}

static Work sum_work(int64_t n) {
    Work work = { .what = "memory, reading", .desc = { .family = FAMILY_SUMSQ, .n = n } };
    bind(&work, "x", n * 4);
    bind(&work, "partials", 4 * div_up(n, SUMSQ_TILE));
    return work;
}

// x * sigmoid(x) over rows that caches keep: what row operations compute.
static Work row_work(Lab *lab, int64_t rows, int32_t n) {
    Model *m = lab->model;
    Attr attr = { .raw = { 0, 0 } };
    attr.mm.over = 1;
    attr.mm.precision = PRECISION_FP32;
    uint32_t token = model_generator(m, OP_UNIFORM, 0, &(int32_t){ 1 }, 1),
             w = model_param(m, model_intern(m, "w"), false, (int32_t[]){ 1, n }, 2, 0),
             x = model_node(m, OP_MATMUL, &attr, NULL, (uint32_t[]){ token, w }, 2);
    uint32_t *nodes = ARENA_ARRAY(lab->arena, uint32_t, 2);
    nodes[0] = model_op1(m, OP_SIGMOID, x);
    nodes[1] = model_op2(m, OP_MUL, x, nodes[0]);
    RowLoad *load = ARENA_ARRAY(lab->arena, RowLoad, 1);
    RowStore *store = ARENA_ARRAY(lab->arena, RowStore, 1);
    *load = (RowLoad){ .node = x, .what = WHAT_VALUE, .dtype = DTYPE_F32 };
    *store = (RowStore){ .node = nodes[1], .dtype = DTYPE_F32 };
    Work work = { .what = "row operations",
                  .desc = { .family = FAMILY_ROW, .rows = rows, .n = n,
                            .flops = (double)(op_info[OP_SIGMOID].flops + op_info[OP_MUL].flops) * (double)rows * n,
                            .body = { .model = m, .row = ROW_T, .nodes = nodes, .n_nodes = 2, .loads = load, .n_loads = 1,
                                      .stores = store, .n_stores = 1 } } };
    bind(&work, "l0", rows * n * 4);
    bind(&work, "s0", rows * n * 4);
    return work;
}

static Work launch_work(void) {
    Work work = { .what = "launches", .desc = { .family = FAMILY_CLEAR, .n = 64 } };
    bind(&work, "x", 256);
    return work;
}

enum { LENGTHS = 4 /* of sequences */, NEAR_SIZES = 4 /* of a kernel that caches keep: MiB, each four times the one before */ };
enum { LARGE, SHORT, EXPERTS, WGRAD, PER_PRECISION,
       BF16 = 0, FP32 = PER_PRECISION, COLD = 2 * PER_PRECISION, SUM, REDUCE, LAUNCH, ROWS, NEAR,
       ATTENTION = NEAR + NEAR_SIZES, // [LENGTHS][forward, backward][bf16, fp32]
       OTHER_HEADS = ATTENTION + 4 * LENGTHS, N_WORKS };

static bool was_run(const Work *work) {
    return work->t.best > 0;
}

static double rate_of(const Work *work, double s) {
    const KernelDesc *d = &work->desc;
    return 2.0 * (double)d->rows * (double)d->n * d->k / s;
}

// From a large product, one with a short contraction, one of experts and a wgrad; of the first ones, where the others
// have not been measured.
static CostMatmul products(const Work *of, bool on_host) {
    const Work *large = of + LARGE, *brief = of + SHORT, *experts = of + EXPERTS, *wgrad = of + WGRAD;
    CostMatmul p = { .wgrad = 1, .evidence = EVIDENCE_measured };
    if (!was_run(large)) return p;
    p.flop_per_s = rate_of(large, large->t.best);
    p.tile_m = on_host ? 64 : 256;
    p.tile_n = on_host ? 32 : 128;
    p.reach = fmin(rate_of(large, large->t.first) / p.flop_per_s, 1);
    if (!was_run(brief)) return p;
    double loss = rate_of(large, large->t.first) / rate_of(brief, brief->t.first); // (k + d) / k over (K + d) / K
    double k = brief->desc.k, K = large->desc.k;
    p.depth_k = loss > 1 && loss < K / k ? fmin((loss - 1) * k / (1 - loss * k / K), K) : 0;
    p.experts_depth_k = p.depth_k;
    if (was_run(experts))
        p.experts = fmax(fmin(rate_of(experts, experts->t.first) / rate_of(large, large->t.first), 1), 0.05);
    if (was_run(wgrad)) p.wgrad = fmax(fmin(rate_of(wgrad, wgrad->t.first) / rate_of(large, large->t.first), 1), 0.05);
    return p;
}

// Of the traffic of a product that comes from memory, what is hidden: the same product, of rows that caches keep, says what
// its arithmetic takes.
static double overlap_of(const Work *cached, const Work *cold, double bytes_per_s) {
    const KernelDesc *d = &cold->desc;
    if (!was_run(cached) || !was_run(cold)) return 1;
    double bytes = (double)d->rows * (double)(d->k + d->n) * dtype_bytes(d->x);
    double arithmetic = cached->t.first * (double)d->rows / (double)cached->desc.rows;
    return fmax(0, 1 - fmax(cold->t.first / arithmetic - 1, 0) * arithmetic * bytes_per_s / bytes);
}

// The same number of rows of heads at every length. The last work has heads of the other width.
static void make_attention(bool on_host, bool is_virtual, Work *works) {
    static const int32_t host[LENGTHS] = { 64, 256, 1024, 2048 }, gpu[LENGTHS] = { 512, 2048, 4096, 8192 };
    static const char *const what[] = { "attention", "attention, backward" };
    int32_t width = on_host ? WIDTH_CPU : WIDTH_GPU, other = WIDTH_CPU + WIDTH_GPU - width;
    for (int i = 0; i < LENGTHS; i++) {
        int32_t s = is_virtual ? 32 << i : on_host ? host[i] : gpu[i];
        int32_t heads = (is_virtual ? 256 : on_host ? host[LENGTHS - 1] : 32 * gpu[LENGTHS - 1]) / s;
        for (int k = 0; k < 4; k++)
            works[4 * i + k] = attention_work(what[k / 2], k / 2, k % 2 ? PRECISION_FP32 : PRECISION_BF16, s, heads, width);
        if (i == 2) works[4 * LENGTHS] = attention_work("other heads", false, PRECISION_BF16, s, heads, other);
    }
}

// Large ones; on a virtual GPU, whose times say nothing of a real one, small.
static void make_works(Lab *lab, bool on_host, bool is_virtual, Work *works) {
    int64_t rows = is_virtual ? 64 : on_host ? 512 : 8192, n = is_virtual ? 128 : on_host ? 1024 : 8192;
    int64_t numbers = is_virtual ? 1 << 16 : on_host ? 16 << 20 : 256 << 20;
    int32_t k = (int32_t)n, experts = 8;
    for (int i = 0; i < 2; i++) {
        uint8_t precision = i ? PRECISION_FP32 : PRECISION_BF16;
        Work *of = works + (i ? FP32 : BF16);
        of[LARGE] = product_work(i ? "products, fp32" : "products, bf16", precision, rows, 0, n, k);
        of[SHORT] = product_work(i ? "short products, fp32" : "short products, bf16", precision, rows, 0, n, k / 16);
        of[EXPERTS] = product_work(i ? "experts, fp32" : "experts, bf16", precision, rows, experts, n, k);
        of[WGRAD] = wgrad_work(i ? "wgrads, fp32" : "wgrads, bf16", precision, 4 * rows, n / 4, k / 4);
    }
    works[COLD] = product_work("cold products", PRECISION_FP32, on_host && !is_virtual ? 32 * rows : rows, 0, n, k / 16);
    works[SUM] = sum_work(numbers);
    works[REDUCE] = reduce_work(numbers / 2);
    for (int i = 0; i < NEAR_SIZES; i++) {
        works[NEAR + i] = reduce_work(((is_virtual ? 1 << 14 : 1 << 20) << 2 * i) / 12 / 64 * 64);
        works[NEAR + i].what = "memory, cached";
    }
    works[LAUNCH] = launch_work();
    works[ROWS] = row_work(lab, is_virtual ? 64 : 256, (int32_t)n);
    make_attention(on_host, is_virtual, works + ATTENTION);
}

// FLOP/s as compiler/model/count.c counts them: half of all pairs, two products forward, five backward.
static double attention_rate(const Work *work) {
    const KernelDesc *d = &work->desc;
    double pairs = (double)d->rows * (double)d->sequence / 2 * d->heads;
    return pairs * 2 * (d->family == FAMILY_ATTEND ? 2 : 5) * d->qk / work->t.first;
}

// Share of the peak by length, at heads of 128: on a CPU the mean of both precisions, whose peaks and kernels are alike
// there; on a GPU, whose fp32 kernels are others, of bf16. What narrower heads lose is measured with two widths.
static void evaluate_attention(const Work *works, bool on_host, CostDevice *out) {
    const Work *of = works + ATTENTION;
    double peaks[2] = { out->matmul[PRECISION_BF16].flop_per_s, out->matmul[PRECISION_FP32].flop_per_s };
    if (!was_run(&works[OTHER_HEADS])) return;
    double ratio = attention_rate(&of[4 * 2]) / attention_rate(&works[OTHER_HEADS]);
    if (!on_host) ratio = 1 / ratio; // 64 over 128
    out->attention_narrow = ratio < 1 ? fmin((1 - ratio) / fmax(2 * ratio - 1, 0.1), 2) : 0;
    double to_128 = on_host ? (1 + 2 * out->attention_narrow) / (1 + out->attention_narrow) : 1;
    for (int back = 0; back < 2; back++) {
        CostCurve *curve = &out->attention[back];
        *curve = (CostCurve){ .n = LENGTHS, .evidence = EVIDENCE_measured };
        for (int i = 0; i < LENGTHS; i++) {
            const Work *two = &of[4 * i + 2 * back];
            double bf16 = attention_rate(&two[0]) / peaks[0], fp32 = attention_rate(&two[1]) / peaks[1];
            curve->x[i] = (double)two->desc.sequence;
            curve->y[i] = fmin((on_host ? sqrt(bf16 * fp32) : bf16) * to_128, 1);
        }
    }
    out->attention_block = 0; // short lengths are in the curve
}

// Over the sustained rate of memory.
static void evaluate_cached(const Work *near, CostDevice *out) {
    CostCurve curve = { .evidence = EVIDENCE_measured };
    for (int i = 0; i < NEAR_SIZES && was_run(&near[i]); i++) {
        double bytes = 12.0 * (double)near[i].desc.n;
        curve.x[curve.n] = bytes;
        curve.y[curve.n++] = fmax(bytes / near[i].t.first / (out->bytes_per_s * out->stream), 1);
    }
    out->cached = curve;
}

// Figures of what has been run.
static void evaluate(const Lab *lab, const Work *works, CostDevice *out) {
    bool on_host = lab->device->api->on_host;
    DeviceInfo info = lab->device->api->info(lab->device);
    *out = (CostDevice){ .name = arena_strdup(lab->arena, info.name ? info.name : lab->options->device),
                         .arch = arena_strdup(lab->arena, on_host ? "cpu" : info.target + strlen("cuda:")),
                         .units = info.units,
                         .memory_bytes = info.memory,
                         .launch_s = works[LAUNCH].t.first,
                         .overlap = 1,
                         .sharing = 1,
                         .contention = on_host ? 1 : 1.2 };
    if (was_run(&works[REDUCE])) {
        double read = 4.0 * (double)works[SUM].desc.n / works[SUM].t.best;
        double add = 12.0 * (double)works[REDUCE].desc.n, best = add / works[REDUCE].t.best;
        out->bytes_per_s = fmax(read, best);
        out->stream = fmin(add / works[REDUCE].t.last / out->bytes_per_s, 1);
        out->adam = out->stream;
        out->move = 0.7 * out->stream;
        if (on_host) evaluate_cached(works + NEAR, out);
        if (on_host && was_run(&works[ROWS])) out->row_flop_per_s = works[ROWS].desc.flops / works[ROWS].t.first;
        if (on_host) out->overlap = overlap_of(&works[FP32 + SHORT], &works[COLD], out->bytes_per_s * out->stream);
    }
    out->matmul[PRECISION_BF16] = products(works + BF16, on_host);
    out->matmul[PRECISION_FP32] = products(works + FP32, on_host);
    evaluate_attention(works, on_host, out);
    if (was_run(&works[BF16 + LARGE])) out->sustained = fmin(works[BF16 + LARGE].t.first / works[BF16 + LARGE].t.last, 1);
}

static Status load_kernels(Lab *lab) {
    lab->kernels = ARENA_ARRAY(lab->arena, DeviceKernel, lab->plan->n_kernels);
    return lab->device->api->load(lab->device, lab->plan, NULL, NULL, NULL, lab->kernels);
}

static Status measure(Lab *lab, Work *works, CostDevice *out) {
    bool on_host = lab->device->api->on_host;
    make_works(lab, on_host, !strncmp(lab->options->device, "vgpu", 4), works);
    for (int i = 0; i < N_WORKS; i++) TRY(codegen_kernel(lab->codegen, &works[i].desc, &works[i].kernel));
    TRY(load_kernels(lab));
    Status status = OK;
    for (int i = 0; i < N_WORKS && status == OK; i++) status = run_work(lab, &works[i]);
    evaluate(lab, works, out);
    return status;
}

Status measure_device(const MeasureOptions *options, Arena *arena, CostDevice *out) {
    Lab lab = { .options = options, .arena = arena, .plan = plan_create(), .model = model_create() };
    Work *works = ARENA_ARRAY(arena, Work, N_WORKS);
    Status status = open_lab(&lab);
    if (status == OK) status = measure(&lab, works, out);
    close_lab(&lab);
    return status;
}

Status measure_products(const MeasureOptions *options, Arena *arena, double *flop_per_s) {
    Lab lab = { .options = options, .arena = arena, .plan = plan_create(), .model = model_create() };
    Work work = product_work("products alone", PRECISION_FP32, 512, 0, 1024, 1024);
    Status status = open_lab(&lab);
    if (status == OK) status = codegen_kernel(lab.codegen, &work.desc, &work.kernel);
    if (status == OK) status = load_kernels(&lab);
    if (status == OK) status = run_work(&lab, &work);
    if (status == OK) *flop_per_s = rate_of(&work, work.t.first);
    close_lab(&lab);
    return status;
}
