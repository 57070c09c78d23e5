// SPDX-License-Identifier: Apache-2.0
// GPU kernels of contractions: which template, how the result is cut into blocks.
//
// Grouped by experts, the number of row tiles is data: sum of ceil(rows of an expert / BM) is at most
// capacity / BM + experts, so that many are launched, and those past the end leave at once.
#include "compiler/codegen/codegen.h"

typedef struct Cut {
    int bm, bn, warps_m, warps_n, stages, threads;
    int64_t stage_bytes;
} Cut;

enum {
    ENOUGH_BLOCKS = 128, // from which on blocks are large: about one for each multiprocessor
    PACK_LINES = 32,     // pack.cu
    PACK_THREADS = 256,
};

static int64_t problem_rows(const KernelDesc *d) {
    return d->rows * d->mid;
}

static int64_t row_tiles(const KernelDesc *d, int64_t bm) {
    return d->experts ? problem_rows(d) / bm + d->experts : div_up(problem_rows(d), bm);
}

static int64_t blocks(const KernelDesc *d, int64_t columns, const Cut *cut) {
    if (d->family != FAMILY_MATMUL_W)
        return row_tiles(d, cut->bm) * d->each * div_up(columns, cut->bn);
    return max_i64(d->experts, 1) * d->each * div_up(d->k, cut->bm) * div_up(d->n, cut->bn);
}

static int64_t stage_bytes(const KernelDesc *d, const Cut *c) {
    bool pairs = d->precision == PRECISION_BF16;
    if (d->family == FAMILY_MATMUL_W)
        return pairs ? 2 * 32 * (c->bm + 8 + c->bn + 8) : 4 * 16 * (c->bm + c->bn);
    if (pairs) return 2 * 40 * c->bm + 4 * 40 * (c->bn / 2);
    return 4 * 20 * c->bm + 4 * (d->across ? 20 : 16) * c->bn;
}

static Cut cut(const KernelDesc *d, int64_t columns) {
    static const Cut large_mma = { 128, 128, 2, 4, 3, 256, 0 }, small_mma = { 64, 64, 2, 2, 4, 128, 0 };
    static const Cut large = { 128, 128, 0, 0, 3, 256, 0 }, small = { 64, 64, 0, 0, 3, 256, 0 };
    bool pairs = d->precision == PRECISION_BF16;
    Cut c = pairs ? large_mma : large;
    if (blocks(d, columns, &c) < ENOUGH_BLOCKS) c = pairs ? small_mma : small;
    c.stage_bytes = stage_bytes(d, &c);
    return c;
}

static Status pack_source(const KernelDesc *d, Filler *f, Text *out, CudaShape *shape) {
    bool pairs = d->precision == PRECISION_BF16;
    int64_t lines = pairs ? div_up(d->k, 2) : d->k;
    if (d->turned) return status_fail(ERR_INTERNAL, "pack turned has no kernel for GPUs: products read across");
    *shape = (CudaShape){
        .tiles = max_i64(d->experts, 1) * d->each * div_up(d->n, 32) * div_up(lines, PACK_LINES),
        .threads = PACK_THREADS,
    };
    fill_size(f, "pairs", pairs);
    fill_size(f, "threads", shape->threads);
    fill_hole(f, "w_type", pairs ? "bf16" : "float");
    fill_type(f, "x", d->x);
    return template_expand("cuda/pack.cu", f->holes, f->n, out);
}

// `d`: with each and mid at least 1.
static Status family_source(const KernelDesc *d, Filler *f, Text *out, CudaShape *shape) {
    bool turned = d->family == FAMILY_MATMUL_T, weights = d->family == FAMILY_MATMUL_W;
    bool pairs = d->precision == PRECISION_BF16;
    Cut c = cut(d, turned ? d->k : d->n);
    *shape = (CudaShape){ .tiles = blocks(d, turned ? d->k : d->n, &c),
                          .threads = c.threads,
                          .shared = (int32_t)(c.stages * c.stage_bytes) };
    fill_size(f, "bm", c.bm);
    fill_size(f, "bn", c.bn);
    fill_size(f, "warps_m", c.warps_m);
    fill_size(f, "warps_n", c.warps_n);
    fill_size(f, "stages", c.stages);
    fill_size(f, "threads", c.threads);
    fill_size(f, "across", d->across);
    fill_hole(f, "left", turned ? "g" : "x");
    fill_hole(f, "result", turned ? "x" : "y");
    fill_type(f, "x", d->x);
    fill_type(f, "g", d->g);
    fill_type(f, "y", d->y);
    TRY(template_expand("cuda/tiles.h", f->holes, f->n, out));
    if (pairs) TRY(template_expand("ptx/mma_bf16.cuh", f->holes, f->n, out));
    const char *name = weights ? (pairs ? "cuda/gemm_w_mma.cu" : "cuda/gemm_w.cu")
                               : (pairs ? "cuda/gemm_mma.cu" : "cuda/gemm.cu");
    return template_expand(name, f->holes, f->n, out);
}

Status cuda_contract_source(const KernelDesc *desc, const char *entry, Arena *scratch, Text *out,
                            CudaShape *shape) {
    const char *family = family_name[desc->family];
    if (desc->precision == PRECISION_MXFP8)
        return status_fail(ERR_INPUT, "%s: mxfp8 has no kernel on this target", family);
    if (desc->body.n_stores || desc->pre.n_stores || desc->parts > 1)
        return status_fail(ERR_INTERNAL, "%s joined with other work has no kernel for GPUs", family);
    KernelDesc d = *desc, product;
    d.each = max_i64(d.each, 1), d.mid = max_i64(d.mid, 1);
    product = d;
    if (d.family == FAMILY_MATMUL_T) product.k = (int32_t)d.n, product.n = d.k; // contraction, columns
    Filler f = { .arena = scratch };
    fill_desc(&f, &product, entry);
    if (d.family == FAMILY_PACK) return pack_source(&d, &f, out, shape);
    return family_source(&d, &f, out, shape);
}
