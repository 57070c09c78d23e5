// SPDX-License-Identifier: Apache-2.0
// The interpreter's contractions: matmul and its two adjoints, attention and its gradient. The gradient
// of attention is taken from the definition (softmax's Jacobian), not from the saved y and lse.
#include "tests/oracle/interp.h"

#include <math.h>
#include <stdlib.h>

/* matmul: sizes of e.., a.., k.., n.. ---------------------------------------------------------------- */

typedef struct Sizes {
    int64_t e, a, k, n;
} Sizes;

static int64_t product(const Type *type, int from, int to) {
    int64_t n = 1;
    for (int i = from; i < to; i++) n *= type->dim[i];
    return n;
}

// From the two operands that have them: `x` is [e.., a.., k..] or [e.., a.., n..], `w` [e.., k.., n..].
static Sizes sizes_of(const Interp *in, uint32_t id) {
    const Node *node = &in->m->nodes[id];
    int each = node->attr.mm.each, over = node->attr.mm.over;
    const Type *first = &in->m->nodes[model_arg(in->m, id, 0)].type;
    const Type *second = &in->m->nodes[model_arg(in->m, id, 1)].type;
    const Type *w = node->op == OP_MATMUL_W ? &node->type : second;
    int n_rank = w->rank - each - over;
    int tail = node->op == OP_MATMUL_T ? n_rank : over; // axes of `first` after a..
    return (Sizes){ product(w, 0, each), product(first, each, first->rank - tail), product(w, each, each + over),
                    product(w, each + over, w->rank) };
}

static void matmul(Interp *in, uint32_t id) {
    const Node *node = &in->m->nodes[id];
    const Value *x = &in->values[model_arg(in->m, id, 0)], *w = &in->values[model_arg(in->m, id, 1)];
    const Type *wt = &in->m->nodes[model_arg(in->m, id, 1)].type;
    Value *y = &in->values[id];
    Sizes s = sizes_of(in, id);
    bool transposed = node->op == OP_MATMUL_T;
    int64_t from = transposed ? s.n : s.k, to = transposed ? s.k : s.n;
    if (x->n != s.e * s.a * from || y->n != s.e * s.a * to || w->n != s.e * s.k * s.n) {
        interp_fail(in, id, "sizes do not agree");
    }
    for (int64_t row = 0; row < y->rows; row++) {
        const double *matrix = w->x + interp_row(in, wt, &node->type, row) * w->n;
        for (int64_t e = 0; e < s.e; e++) {
            for (int64_t a = 0; a < s.a; a++) {
                const double *xr = x->x + row * x->n + (e * s.a + a) * from;
                double *yr = y->x + row * y->n + (e * s.a + a) * to;
                for (int64_t j = 0; j < to; j++) yr[j] = 0;
                for (int64_t k = 0; k < s.k; k++) {
                    const double *wr = matrix + (e * s.k + k) * s.n;
                    for (int64_t n = 0; n < s.n; n++) {
                        if (transposed)
                            yr[k] += xr[n] * wr[n];
                        else
                            yr[n] += xr[k] * wr[n];
                    }
                }
            }
        }
    }
}

static void matmul_w(Interp *in, uint32_t id) {
    const Node *node = &in->m->nodes[id];
    const Type *xt = &in->m->nodes[model_arg(in->m, id, 0)].type;
    const Value *x = &in->values[model_arg(in->m, id, 0)], *g = &in->values[model_arg(in->m, id, 1)];
    Value *w = &in->values[id];
    Sizes s = sizes_of(in, id);
    if (x->n != s.e * s.a * s.k || g->n != s.e * s.a * s.n || x->rows != g->rows) {
        interp_fail(in, id, "sizes do not agree");
    }
    memset(w->x, 0, (size_t)(w->rows * w->n) * sizeof(double));
    for (int64_t row = 0; row < x->rows; row++) {
        double *matrix = w->x + interp_row(in, &node->type, xt, row) * w->n;
        for (int64_t e = 0; e < s.e; e++) {
            for (int64_t a = 0; a < s.a; a++) {
                const double *xr = x->x + row * x->n + (e * s.a + a) * s.k;
                const double *gr = g->x + row * g->n + (e * s.a + a) * s.n;
                for (int64_t k = 0; k < s.k; k++) {
                    for (int64_t n = 0; n < s.n; n++) matrix[(e * s.k + k) * s.n + n] += xr[k] * gr[n];
                }
            }
        }
    }
}

/* attention ------------------------------------------------------------------------------------------- */

typedef struct Attention {
    const double *q, *k, *v, *segments, *sinks;
    int64_t tokens, heads, groups, a, b;
    double scale;
    bool causal;
    int64_t window;
} Attention;

static Attention attention_of(const Interp *in, uint32_t id, int sinks_at) {
    const Node *node = &in->m->nodes[id];
    const Type *q = &in->m->nodes[model_arg(in->m, id, 0)].type, *v = &in->m->nodes[model_arg(in->m, id, 2)].type;
    const double *x[MAX_ARGS] = { 0 };
    for (int i = 0; i < node->n_args; i++) x[i] = in->values[model_arg(in->m, id, i)].x;
    return (Attention){
        .q = x[0],
        .k = x[1],
        .v = x[2],
        .segments = x[3],
        .sinks = node->n_args > sinks_at ? x[sinks_at] : NULL,
        .tokens = in->batch->tokens,
        .heads = q->dim[0],
        .a = q->dim[1],
        .groups = v->dim[0],
        .b = v->dim[1],
        .scale = node->attr.attend.scale,
        .causal = node->attr.attend.causal,
        .window = node->attr.attend.window,
    };
}

static bool sees(const Attention *t, int64_t query, int64_t key) {
    if (t->segments[query] != t->segments[key]) return false;
    if (t->causal && key > query) return false;
    return t->window <= 0 || key > query - t->window;
}

// p[key] of one query and head, and the sink's share; returns the log of the denominator.
static double shares(const Attention *t, int64_t query, int64_t head, double *p, double *sink) {
    int64_t group = head / (t->heads / t->groups);
    double top = t->sinks ? t->sinks[head] : -INFINITY, sum = 0;
    for (int64_t key = 0; key < t->tokens; key++) {
        p[key] = -INFINITY;
        if (!sees(t, query, key)) continue;
        double dot = 0;
        for (int64_t i = 0; i < t->a; i++) {
            dot += t->q[(query * t->heads + head) * t->a + i] * t->k[(key * t->groups + group) * t->a + i];
        }
        p[key] = t->scale * dot;
        top = fmax(top, p[key]);
    }
    for (int64_t key = 0; key < t->tokens; key++) sum += p[key] = exp(p[key] - top);
    *sink = t->sinks ? exp(t->sinks[head] - top) : 0;
    sum += *sink;
    for (int64_t key = 0; key < t->tokens; key++) p[key] /= sum;
    *sink /= sum;
    return top + log(sum);
}

static void attend(Interp *in, uint32_t id) {
    Attention t = attention_of(in, id, 4);
    double *y = in->values[id].x, *p = malloc((size_t)t.tokens * sizeof *p), sink;
    bool lse = in->m->nodes[id].op == OP_ATTEND_LSE;
    for (int64_t query = 0; query < t.tokens; query++) {
        for (int64_t head = 0; head < t.heads; head++) {
            int64_t group = head / (t.heads / t.groups);
            double log_sum = shares(&t, query, head, p, &sink);
            if (lse) {
                y[query * t.heads + head] = log_sum;
                continue;
            }
            for (int64_t j = 0; j < t.b; j++) {
                double sum = 0;
                for (int64_t key = 0; key < t.tokens; key++) sum += p[key] * t.v[(key * t.groups + group) * t.b + j];
                y[(query * t.heads + head) * t.b + j] = sum;
            }
        }
    }
    free(p);
}

// y = sum_k p_k v_k, p = softmax(s), s = scale q.k: ds_k = p_k (g.v_k - sum_j p_j g.v_j).
static void attend_grad(Interp *in, uint32_t id) {
    Attention t = attention_of(in, id, 7);
    const double *g = in->values[model_arg(in->m, id, 6)].x;
    int part = in->m->nodes[id].attr.attend.part;
    Value *out = &in->values[id];
    size_t bytes = (size_t)t.tokens * sizeof(double);
    double *p = malloc(bytes), *gv = malloc(bytes), sink;
    memset(out->x, 0, (size_t)(out->rows * out->n) * sizeof(double));
    for (int64_t query = 0; query < t.tokens; query++) {
        for (int64_t head = 0; head < t.heads; head++) {
            int64_t group = head / (t.heads / t.groups), at = query * t.heads + head;
            shares(&t, query, head, p, &sink);
            double mean = 0;
            for (int64_t key = 0; key < t.tokens; key++) {
                gv[key] = 0;
                for (int64_t j = 0; j < t.b; j++) gv[key] += g[at * t.b + j] * t.v[(key * t.groups + group) * t.b + j];
                mean += p[key] * gv[key];
            }
            if (part == 3) out->x[head] -= sink * mean;
            for (int64_t key = 0; key < t.tokens && part < 3; key++) {
                int64_t kv = key * t.groups + group;
                double ds = t.scale * p[key] * (gv[key] - mean);
                for (int64_t i = 0; i < t.a && part == 0; i++) out->x[at * t.a + i] += ds * t.k[kv * t.a + i];
                for (int64_t i = 0; i < t.a && part == 1; i++) out->x[kv * t.a + i] += ds * t.q[at * t.a + i];
                for (int64_t j = 0; j < t.b && part == 2; j++) out->x[kv * t.b + j] += p[key] * g[at * t.b + j];
            }
        }
    }
    free(p), free(gv);
}

bool interp_contraction(Interp *in, uint32_t id) {
    switch (in->m->nodes[id].op) {
    case OP_MATMUL:
    case OP_MATMUL_T: matmul(in, id); return true;
    case OP_MATMUL_W: matmul_w(in, id); return true;
    case OP_ATTEND:
    case OP_ATTEND_LSE: attend(in, id); return true;
    case OP_ATTEND_GRAD: attend_grad(in, id); return true;
    default: return false;
    }
}
