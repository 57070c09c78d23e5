// SPDX-License-Identifier: Apache-2.0
// Sizes of products and attention, for who asks how long they take.
#include "compiler/kernel/kernel.h"

static int64_t columns(const KernelDesc *d) {
    int64_t n = 0;
    for (int i = 0; i < d->parts && d->parts > 1; i++) n += d->part_n[i];
    return n > 0 ? n : d->n;
}

static PlanShape of_product(const KernelDesc *d) {
    int64_t each = max_i64(d->each, 1), rows = d->rows * max_i64(d->mid, 1) * each, n = columns(d), k = d->k;
    PlanShape shape = { .groups = (int32_t)(max_i64(d->experts, 1) * each),
                        .dtype = d->precision == PRECISION_BF16 ? DTYPE_BF16 : DTYPE_F32 };
    bool turned = d->family == FAMILY_MATMUL_T, weights = d->family == FAMILY_MATMUL_W;
    shape.m = weights ? k : rows;
    shape.n = turned ? k : n;
    shape.k = weights ? rows : turned ? n : k;
    return shape;
}

PlanShape kernel_shape(const KernelDesc *d) {
    switch (d->family) {
    case FAMILY_MATMUL:
    case FAMILY_MATMUL_T:
    case FAMILY_MATMUL_W: return of_product(d);
    case FAMILY_ATTEND:
    case FAMILY_ATTEND_GRAD:
        return (PlanShape){ .m = d->rows,
                            .n = d->window > 0 && d->window < d->sequence ? d->window : d->sequence,
                            .k = (int64_t)d->heads * (d->qk + d->v),
                            .groups = d->heads > 0 ? d->heads : 1,
                            .dtype = d->precision == PRECISION_BF16 ? DTYPE_BF16 : DTYPE_F32 };
    default: return (PlanShape){ 0 };
    }
}
