// SPDX-License-Identifier: Apache-2.0
// Seconds of one kernel. The shapes of tiles that are tried stand for the variants among which a library or
// a tuner chooses; the best one counts.
#include <math.h>

#include "compiler/cost/cost.h"
#include "compiler/kernel/kernel.h"

/* From descriptions ---------------------------------------------------------------------------- */

static bool reads_rows_elsewhere(const RowBody *body) {
    for (uint32_t i = 0; i < body->n_loads; i++) {
        if (body->loads[i].what == WHAT_SLOT_OF_ROW || body->loads[i].what == WHAT_ROW_OF_SLOT) return true;
    }
    return false;
}

// Widths of rows that go or come; of several, their sum.
static CostRemote remote_of(const RowBody *body, double *row_bytes) {
    CostRemote remote = COST_HERE;
    for (uint32_t i = 0; i < body->n_stores; i++) {
        if (!body->stores[i].apart) continue;
        remote = COST_PUTS;
        *row_bytes += (double)type_features(model_type(body->model, body->stores[i].node)) *
                      dtype_bytes((Dtype)body->stores[i].dtype);
    }
    for (uint32_t i = 0; i < body->n_loads; i++) {
        if (!body->loads[i].apart) continue;
        remote = COST_GETS;
        *row_bytes += (double)type_features(model_type(body->model, body->loads[i].node)) *
                      dtype_bytes((Dtype)body->loads[i].dtype);
    }
    return remote;
}

static void of_row(const KernelDesc *d, double load, CostKernel *out) {
    out->remote = (uint8_t)remote_of(&d->body, &out->row_bytes);
    out->class = out->remote || reads_rows_elsewhere(&d->body) ? COST_move : COST_row;
    if (d->body.row == ROW_R) {
        out->bytes *= load;
        out->flops *= load;
    }
}

static void of_shape(PlanShape shape, CostKernel *out) {
    out->m = (double)shape.m;
    out->n = (double)shape.n;
    out->k = (double)shape.k;
    out->groups = (double)shape.groups;
}

// Of experts' rows only those that exist are read and written; weights are, all the same.
void cost_of_rows(CostKernel *k, double load) {
    bool wgrad = k->role == COST_WGRAD;
    double numbers = wgrad ? k->groups * k->m * k->n : k->groups * k->n * k->k;
    double weights = (wgrad || k->precision == PRECISION_FP32 ? 4.0 : 2.0) * numbers;
    k->bytes -= fmax(k->bytes - weights, 0) * (1 - load);
    k->flops *= load;
    if (wgrad) k->k *= load;
    else k->m *= load;
}

CostClass cost_family_class(int family) {
    switch ((Family)family) {
    case FAMILY_MATMUL:
    case FAMILY_MATMUL_T:
    case FAMILY_MATMUL_W: return COST_dense;
    case FAMILY_ATTEND:
    case FAMILY_ATTEND_GRAD: return COST_attention;
    case FAMILY_ROUTE:
    case FAMILY_ROUTE_RANKS:
    case FAMILY_ROUND:
    case FAMILY_PADS:
    case FAMILY_COUNT: return COST_move;
    case FAMILY_SUMSQ:
    case FAMILY_CLIP:
    case FAMILY_ADAMW:
    case FAMILY_REDUCE: return COST_optimizer;
    default: return COST_row;
    }
}

CostRole cost_family_role(int family) {
    if (family == FAMILY_MATMUL_W) return COST_WGRAD;
    return family == FAMILY_MATMUL_T || family == FAMILY_ATTEND_GRAD ? COST_DGRAD : COST_FORWARD;
}

void cost_of_kernel(const KernelDesc *d, double load, CostKernel *out) {
    CostClass class = cost_family_class(d->family);
    *out = (CostKernel){ .class = (uint8_t)class, .role = (uint8_t)cost_family_role(d->family),
                         .precision = d->precision ? d->precision : PRECISION_FP32,
                         .groups = 1, .flops = d->flops, .bytes = d->bytes };
    if (class == COST_dense || class == COST_attention) of_shape(kernel_shape(d), out);
    if (class == COST_dense && d->experts) {
        out->class = COST_experts;
        cost_of_rows(out, load);
    }
    if (d->family == FAMILY_ROW) of_row(d, load, out);
}

static double traffic_s(const CostDevice *dev, double bytes, double share) {
    double times = dev->cached.n ? fmax(cost_curve(&dev->cached, bytes), 1) : 1;
    return bytes / (dev->bytes_per_s * share * times);
}

/* Products ------------------------------------------------------------------------------------- */

// Seconds of arithmetic of `groups` products of [m, k] x [k, n] in tiles of tm x tn, each cut `cuts` times
// along k.
static double tiled_s(const CostDevice *dev, const CostMatmul *p, double reach, double depth, double groups,
                      double m, double n, double k, double tm, double tn, double cuts) {
    double tiles = groups * ceil(m / tm) * ceil(n / tn) * cuts, rounds = ceil(tiles / dev->units), part = k / cuts;
    double edge = 1 + p->edge * (1 / tm + 1 / tn);
    double s = rounds * dev->units * 2 * tm * tn * (part + depth) / (p->flop_per_s * reach) * edge;
    if (cuts > 1) s += groups * m * n * 4 * cuts / (dev->bytes_per_s * dev->stream);
    return s;
}

static double product_s(const CostDevice *dev, const CostMatmul *p, const CostKernel *kernel) {
    bool experts = kernel->class == COST_experts, wgrad = kernel->role == COST_WGRAD;
    double groups = fmax(kernel->groups, 1);
    double m = wgrad ? kernel->m : kernel->m / groups, k = wgrad ? kernel->k / groups : kernel->k, n = kernel->n;
    if (!(m > 0 && n > 0 && k > 0)) return 0;
    double reach = p->reach * (experts ? p->experts : 1) * (wgrad ? p->wgrad : 1) * dev->sustained;
    double depth = experts ? p->experts_depth_k : p->depth_k;
    static const struct { double m, n; } part[] = { { 1, 1 }, { .5, 1 }, { .5, .5 }, { .25, .5 }, { .25, .25 },
                                                    { .25, 1 }, { .125, 1 }, { .0625, 1 } };
    double best = INFINITY;
    for (int i = 0; i < COUNT_OF(part); i++) {
        double tm = fmax(p->tile_m * part[i].m, 1), tn = fmax(p->tile_n * part[i].n, 1);
        for (double cuts = 1; cuts <= 8 && (cuts == 1 || (groups == 1 && k / cuts >= 256)); cuts *= 2)
            best = fmin(best, tiled_s(dev, p, reach, depth, groups, m, n, k, tm, tn, cuts));
    }
    return best;
}

// MXFP8 halves what a product of bf16 reads of its operands.
static double product_bytes(const CostKernel *kernel) {
    if (kernel->precision != PRECISION_MXFP8) return kernel->bytes;
    double groups = fmax(kernel->groups, 1);
    double weights = kernel->role == COST_WGRAD ? kernel->k * kernel->n : groups * kernel->n * kernel->k;
    double left = kernel->m * kernel->k;
    return fmax(kernel->bytes - (left + weights) * (1 - 1.0 / 32), 0);
}

static double product_kernel_s(const CostDevice *dev, const CostKernel *kernel) {
    const CostMatmul *p = &dev->matmul[kernel->precision];
    if (p->flop_per_s <= 0) p = &dev->matmul[PRECISION_FP32];
    if (p->flop_per_s <= 0) p = &dev->matmul[PRECISION_BF16];
    double arithmetic = product_s(dev, p, kernel);
    double traffic = traffic_s(dev, product_bytes(kernel), dev->stream);
    double products = 2 * kernel->m * kernel->n * kernel->k, others = fmax(kernel->flops - products, 0);
    arithmetic = fmax(arithmetic, kernel->flops / p->flop_per_s);
    if (dev->row_flop_per_s > 0) arithmetic += others / dev->row_flop_per_s;
    double s = fmax(arithmetic, traffic) + (1 - dev->overlap) * fmin(arithmetic, traffic) + dev->launch_s;
    if (p->quantise_bytes > 0) { // weights are quantised once a step; a wgrad has none
        double numbers = kernel->m * kernel->k + (kernel->role == COST_WGRAD ? kernel->k * kernel->n : 0);
        s += numbers * p->quantise_bytes / (dev->bytes_per_s * dev->stream) + p->quantise_s;
    }
    return s;
}

/* All ------------------------------------------------------------------------------------------ */

// Narrower heads than the curve's of 128 have more exponentials per product; a window's products are made in blocks of
// keys, whole ones at both of its ends.
static double attention_shape(const CostDevice *dev, const CostKernel *kernel, double share) {
    enum { CURVE_WIDTH = 2 * 128 };
    double width = kernel->groups > 0 ? kernel->k / kernel->groups : CURVE_WIDTH, narrow = dev->attention_narrow;
    share *= fmin((1 + narrow) / (1 + narrow * CURVE_WIDTH / width), 1);
    return fmin(share * kernel->n / (kernel->n + dev->attention_block), 1);
}

static double attention_s(const CostDevice *dev, const CostKernel *kernel) {
    const CostMatmul *p = &dev->matmul[kernel->precision == PRECISION_FP32 ? PRECISION_FP32 : PRECISION_BF16];
    if (p->flop_per_s <= 0) p = &dev->matmul[PRECISION_BF16];
    double share = cost_curve(&dev->attention[kernel->role != COST_FORWARD], kernel->n);
    if (share <= 0) share = 0.5 * p->reach;
    share = attention_shape(dev, kernel, share);
    double traffic = traffic_s(dev, kernel->bytes, dev->stream);
    return fmax(kernel->flops / (p->flop_per_s * share * dev->sustained), traffic) + dev->launch_s;
}

static double row_kernel_s(const CostDevice *dev, const CostKernel *kernel) {
    double arithmetic = dev->row_flop_per_s > 0 ? kernel->flops / dev->row_flop_per_s : 0;
    return fmax(traffic_s(dev, kernel->bytes, dev->stream), arithmetic) + dev->launch_s;
}

double cost_remote_s(const CostDevice *dev, const CostKernel *kernel, double rows_s) {
    return fmax(traffic_s(dev, kernel->bytes, dev->move) - rows_s, 0) + dev->launch_s;
}

double cost_kernel_s(const CostDevice *dev, const CostKernel *kernel) {
    switch ((CostClass)kernel->class) {
    case COST_dense:
    case COST_experts: return product_kernel_s(dev, kernel);
    case COST_attention: return attention_s(dev, kernel);
    case COST_move:
        if (kernel->remote) return cost_remote_s(dev, kernel, INFINITY);
        return traffic_s(dev, kernel->bytes, dev->move) + dev->launch_s;
    case COST_optimizer: return kernel->bytes / (dev->bytes_per_s * dev->adam) + dev->launch_s;
    default: return row_kernel_s(dev, kernel);
    }
}
