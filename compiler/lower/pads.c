// SPDX-License-Identifier: Apache-2.0
// Pads of expert rows (plan.h: row_align). Nobody puts a row there, so the rank that has the experts zeroes them:
//
//   put .. @barrier .. pads .. experts
//
// of every dispatch to other ranks, in forward and in backward. From there on kernels keep them so: products of zero
// rows are zero, row programs store zeros there and leave them out of sums over rows (kernel.h: WHAT_OFFSETS), so
// neither a bias nor an activation with f(0) != 0 makes one that a gradient would see. On one rank dispatch is a row
// program over expert rows itself, and there is nothing to do here.
#include "compiler/lower/pass.h"

// The buffer that the kernel puts rows of a dispatch into through its bind.
static bool puts(const Lower *l, const Bind *bind) {
    const Buffer *buffer = &l->buffers[bind->buffer];
    return bind->remote && bind->mode == OPERAND_WRITE && l->m->nodes[buffer->node].op == OP_DISPATCH;
}

static void add_pads(Lower *l, uint32_t put, uint32_t buffer) {
    uint32_t n = l->buffers[buffer].node, route = model_arg(l->m, n, 1), count = l->n_kernels,
             kernel = lower_add_kernel(l, (SegmentKind)l->kernels[put].segment, l->kernels[put].depth, FAMILY_PADS);
    const Type *type = model_type(l->m, n);
    KernelDesc *d = &l->kernels[kernel].desc;
    d->rows = lower_rows(l, type);
    d->experts = lower_experts(l, type);
    d->n = type_features(type);
    d->align = lower_align(l);
    d->x = l->buffers[buffer].dtype;
    d->loc = l->m->nodes[n].loc;
    l->kernels[kernel].node = n;
    lower_bind(l, kernel, "offsets", lower_buffer(l, BUFFER_OFFSETS, route, 0), OPERAND_READ);
    lower_bind(l, kernel, "x", buffer, OPERAND_INPLACE);
    l->kernels[kernel].binds[1].some = true;
    // Half of what there can be.
    l->kernels[kernel].desc.bytes = 0.5 * (double)d->experts * (d->align - 1) * (double)d->n * dtype_bytes((Dtype)d->x);
    lower_after(l, kernel, put);
    for (uint32_t k = 0; k < count; k++)
        for (uint32_t i = 0; l->kernels[k].segment == l->kernels[put].segment && i < l->kernels[k].n_binds; i++)
            if (l->kernels[k].binds[i].buffer == buffer && l->kernels[k].binds[i].mode == OPERAND_READ)
                lower_after(l, k, kernel);
}

void pads_describe(Lower *l) {
    for (uint32_t k = 0, n = l->n_kernels; k < n; k++)
        for (uint32_t i = 0; i < l->kernels[k].n_binds; i++)
            if (puts(l, &l->kernels[k].binds[i])) add_pads(l, k, l->kernels[k].binds[i].buffer);
}
