// SPDX-License-Identifier: Apache-2.0
// Attention on GPUs, forward and backward: which template, how it is cut into blocks, its shared memory.
#include "compiler/codegen/codegen.h"

enum {
    ROWS_MMA = 64, COLUMNS_MMA = 32, THREADS_MMA = 128, // attend_mma.cu, attend_grad_mma.cu
    ROWS = 32, THREADS = 256,                           // attend.cu, attend_grad.cu
    MOST_SHARED = 99 << 10,                             // what every GPU from sm_80 on gives a block
};

static int64_t pitch(int64_t width) { // of rows of bf16 that matrices are loaded from
    return div_up(width, 16) * 16 + 8;
}

static int64_t shared_bytes(const KernelDesc *d) {
    bool grad = d->family == FAMILY_ATTEND_GRAD;
    int64_t queries = 16 * (d->precision == PRECISION_BF16 ? ROWS_MMA : ROWS); // sees, numbers
    if (d->precision == PRECISION_BF16) {
        int64_t qk = 2 * pitch(d->qk), v = 2 * pitch(d->v);
        return grad ? (ROWS_MMA + COLUMNS_MMA) * (qk + v) + queries : ROWS_MMA * (2 * qk + v);
    }
    int64_t qk = 4 * (d->qk + 1), v = 4 * (d->v + 1), weights = 4 * ROWS * 33;
    return grad ? 2 * ROWS * (qk + v) + 2 * weights + queries : ROWS * (2 * qk + v) + weights;
}

Status cuda_attend_source(const KernelDesc *d, const char *entry, Arena *scratch, Text *out,
                          CudaShape *shape) {
    const char *family = family_name[d->family];
    bool grad = d->family == FAMILY_ATTEND_GRAD, pairs = d->precision == PRECISION_BF16;
    if (d->precision == PRECISION_MXFP8)
        return status_fail(ERR_INPUT, "%s: mxfp8 has no kernel on this target", family);
    if (d->sequence < 1 || d->rows % d->sequence || d->kv_heads < 1 || d->heads % d->kv_heads)
        return status_fail(ERR_INTERNAL,
                           "%s: %lld rows in sequences of %lld, %d heads over %d: expected multiples",
                           family, (long long)d->rows, (long long)d->sequence, d->heads,
                           d->kv_heads);
    int64_t bytes = shared_bytes(d);
    if (bytes > MOST_SHARED)
        return status_fail(ERR_INPUT,
                           "%s with heads of %d and %d numbers wants %lld KiB of shared memory, a "
                           "block has %d\n  hint: smaller heads",
                           family, d->qk, d->v, (long long)(bytes >> 10), MOST_SHARED >> 10);
    int64_t blocks = d->rows / d->sequence * div_up(d->sequence, pairs ? ROWS_MMA : ROWS);
    *shape = (CudaShape){ .tiles = blocks * (d->heads + (grad ? d->kv_heads : 0)) +
                                   (grad && d->sinks ? d->heads : 0),
                          .threads = pairs ? THREADS_MMA : THREADS,
                          .shared = (int32_t)bytes };
    Filler f = { .arena = scratch };
    fill_desc(&f, d, entry);
    fill_size(&f, "threads", shape->threads);
    fill_type(&f, "x", d->x);
    fill_type(&f, "g", d->g);
    fill_type(&f, "y", d->y);
    TRY(template_expand("cuda/tiles.h", f.holes, f.n, out));
    if (pairs) TRY(template_expand("ptx/mma_bf16.cuh", f.holes, f.n, out));
    TRY(template_expand("cuda/attend.h", f.holes, f.n, out));
    if (grad) TRY(template_expand("cuda/attend_grad.h", f.holes, f.n, out));
    const char *name = grad ? (pairs ? "cuda/attend_grad_mma.cu" : "cuda/attend_grad.cu")
                            : (pairs ? "cuda/attend_mma.cu" : "cuda/attend.cu");
    return template_expand(name, f.holes, f.n, out);
}
