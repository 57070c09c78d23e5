// SPDX-License-Identifier: Apache-2.0
// The interpreter's operations except contractions: sources, generators, maps, views, reductions, moves.
// Each follows the sentence of compiler/model/ops.h that defines it.
#include "tests/oracle/interp.h"

#include <math.h>
#include <stdlib.h>

// A node under evaluation, its operands' types and values.
typedef struct Here {
    Interp *in;
    uint32_t id;
    const Node *node;
    const Type *type;
    double *y; // result, [rows, n]
    int64_t rows, n;
    const Type *at[MAX_ARGS];
    const Value *arg[MAX_ARGS];
} Here;

/* Where element j of the result lies in an operand that broadcasts: aligned at the right, unit axes repeat. */
static int64_t feature_at(const Type *from, const Type *to, int64_t j) {
    int64_t at = 0, stride = 1;
    for (int i = 1; i <= to->rank; i++) {
        int64_t size = to->dim[to->rank - i], here = j % size;
        j /= size;
        if (i > from->rank) continue;
        int64_t own = from->dim[from->rank - i];
        if (own != 1) at += here * stride;
        stride *= own;
    }
    return at;
}

static int64_t *feature_map(const Type *from, const Type *to) {
    int64_t n = features(to), *map = malloc((size_t)(n + 1) * sizeof *map);
    for (int64_t j = 0; j < n; j++) map[j] = feature_at(from, to, j);
    return map;
}

/* Sources and generators ------------------------------------------------------------------------------- */

// Round to nearest, ties to even, to 8 significant bits: bf16's, whose exponents are fp32's.
static double to_bf16(double x) {
    if (x == 0 || !isfinite(x)) return x;
    int exponent;
    double fraction = frexp(x, &exponent); // in [0.5, 1)
    int bits = exponent < -125 ? 8 - (-125 - exponent) : 8;
    double rounded = ldexp(nearbyint(ldexp(fraction, bits)), exponent - bits);
    return fabs(rounded) > 0x1.fep127 ? copysign(INFINITY, x) : rounded;
}

static void generate_ints(Here *h, const int32_t *from) {
    for (int64_t t = 0; t < h->rows; t++) h->y[t] = from[t];
}

static void source(Here *h) {
    const Batch *b = h->in->batch;
    const Attr *attr = &h->node->attr;
    int64_t all = h->rows * h->n;
    switch (h->node->op) {
    case OP_PARAM:
    case OP_STATE: memcpy(h->y, h->in->params[attr->index], (size_t)all * sizeof(double)); return;
    case OP_CONST:
        for (int64_t i = 0; i < all; i++) h->y[i] = attr->num;
        return;
    case OP_CONSTANT:
        for (int64_t i = 0; i < all; i++) h->y[i] = h->in->m->constants[attr->index + i];
        return;
    case OP_TOKENS:
    case OP_LABELS:
        if (attr->k < 0 || attr->k >= INTERP_AHEAD) interp_fail(h->in, h->id, "looks too far ahead");
        generate_ints(h, h->node->op == OP_TOKENS ? b->ahead[attr->k] : b->labels[attr->k]);
        return;
    case OP_POSITIONS: generate_ints(h, b->positions); return;
    case OP_SEGMENTS: generate_ints(h, b->segments); return;
    case OP_VALID:
        for (int64_t t = 0; t < h->rows; t++) h->y[t] = b->labels[1][t] >= 0;
        return;
    case OP_N_VALID:
        for (int64_t s = 0; s < h->rows; s++) {
            int64_t wide = h->type->row == ROW_S ? b->sequence : b->tokens;
            h->y[s] = (double)batch_valid(b, s * wide, (s + 1) * wide);
        }
        return;
    case OP_INV_STEP: h->y[0] = h->in->inv_step; return;
    default: interp_fail(h->in, h->id, "is no source");
    }
}

static void uniform(Here *h) {
    const char *address = model_name(h->in->m, h->node->attr.index);
    uint64_t stream = h->in->step ^ hash_bytes(address, strlen(address)).low;
    for (int64_t t = 0; t < h->rows; t++) {
        for (int64_t j = 0; j < h->n; j++) {
            uint64_t element = (uint64_t)(uint32_t)h->in->batch->index[t] * (uint64_t)h->n + (uint64_t)j;
            h->y[t * h->n + j] = hash_uniform(h->in->seed, stream, element);
        }
    }
}

/* Maps ---------------------------------------------------------------------------------------------- */

static double map_real(Here *h, double a, double b, double c) {
    switch (h->node->op) {
    case OP_ADD: return a + b;
    case OP_SUB: return a - b;
    case OP_MUL: return a * b;
    case OP_DIV: return a / b;
    case OP_NEG: return -a;
    case OP_RECIP: return 1 / a;
    case OP_POW: return pow(a, b);
    case OP_IDIV: return floor(a / b);
    case OP_MOD: return a - b * floor(a / b);
    case OP_EXP: return exp(a);
    case OP_LOG: return log(a);
    case OP_SQRT: return sqrt(a);
    case OP_RSQRT: return 1 / sqrt(a);
    case OP_ABS: return fabs(a);
    case OP_SIGN: return a > 0 ? 1 : a < 0 ? -1 : a;
    case OP_SIGMOID: return 1 / (1 + exp(-a));
    case OP_TANH: return tanh(a);
    case OP_ERF: return erf(a);
    case OP_MIN: return a < b ? a : b;
    case OP_MAX: return a > b ? a : b;
    case OP_LT: return a < b;
    case OP_LE: return a <= b;
    case OP_GT: return a > b;
    case OP_GE: return a >= b;
    case OP_EQ: return a == b;
    case OP_NE: return a != b;
    case OP_WHERE: return a != 0 ? b : c;
    case OP_CAST: return h->node->attr.precision == PRECISION_BF16 ? to_bf16(a) : a;
    case OP_STOP_GRADIENT:
    case OP_KEEP:
    case OP_RECOMPUTE:
    case OP_BROADCAST: return a;
    default: interp_fail(h->in, h->id, "is not known to the interpreter");
    }
}

static void map(Here *h) {
    int64_t *where[3] = { 0 };
    for (int i = 0; i < h->node->n_args; i++) where[i] = feature_map(h->at[i], h->type);
    for (int64_t row = 0; row < h->rows; row++) {
        const double *from[3] = { 0 };
        for (int i = 0; i < h->node->n_args; i++) {
            from[i] = h->arg[i]->x + interp_row(h->in, h->at[i], h->type, row) * h->arg[i]->n;
        }
        for (int64_t j = 0; j < h->n; j++) {
            double v[3] = { 0 };
            for (int i = 0; i < h->node->n_args; i++) v[i] = from[i][where[i][j]];
            h->y[row * h->n + j] = map_real(h, v[0], v[1], v[2]);
        }
    }
    for (int i = 0; i < 3; i++) free(where[i]);
}

// rotate(x, freq, positions)
static void rotate(Here *h) {
    int64_t n = h->type->dim[h->type->rank - 1], pairs = h->arg[1]->n, blocks = h->n / n;
    double factor = h->node->attr.turn.factor, sign = h->node->attr.turn.sign;
    bool half = h->node->attr.turn.pairs == PAIRS_HALF;
    for (int64_t row = 0; row < h->rows; row++) {
        double position = h->arg[2]->x[interp_row(h->in, h->at[2], h->type, row)];
        for (int64_t block = 0; block < blocks; block++) {
            const double *x = h->arg[0]->x + row * h->n + block * n;
            double *y = h->y + row * h->n + block * n;
            for (int64_t i = 2 * pairs; i < n; i++) y[i] = x[i];
            for (int64_t i = 0; i < pairs; i++) {
                int64_t p = half ? i : 2 * i, q = half ? i + pairs : 2 * i + 1;
                double angle = position * h->arg[1]->x[i];
                y[p] = factor * (x[p] * cos(angle) - sign * x[q] * sin(angle));
                y[q] = factor * (x[q] * cos(angle) + sign * x[p] * sin(angle));
            }
        }
    }
}

/* Pieces of an axis: both tensors seen as [outer, axis, inner] ----------------------------------------- */

static int64_t product(const Type *type, int from, int to) {
    int64_t n = 1;
    for (int i = from; i < to; i++) n *= type->dim[i];
    return n;
}

// Copies `size` entries of `axis` from x (starting at x_at) to y (starting at y_at), for one row.
static void copy_axis(const Type *xt, const double *x, int64_t x_at, const Type *yt, double *y, int64_t y_at, int axis,
                      int64_t size) {
    int64_t outer = product(yt, 0, axis), inner = product(yt, axis + 1, yt->rank);
    for (int64_t o = 0; o < outer; o++) {
        for (int64_t i = 0; i < size; i++) {
            for (int64_t j = 0; j < inner; j++) {
                y[(o * yt->dim[axis] + y_at + i) * inner + j] = x[(o * xt->dim[axis] + x_at + i) * inner + j];
            }
        }
    }
}

static void cut_or_pad(Here *h) {
    int axis = h->node->attr.cut.axis, at = h->node->attr.cut.at;
    const Type *xt = h->at[0];
    bool slice = h->node->op == OP_SLICE;
    if (!slice) memset(h->y, 0, (size_t)(h->rows * h->n) * sizeof(double));
    for (int64_t row = 0; row < h->rows; row++) {
        copy_axis(xt, h->arg[0]->x + row * h->arg[0]->n, slice ? at : 0, h->type, h->y + row * h->n, slice ? 0 : at,
                  axis, slice ? h->type->dim[axis] : xt->dim[axis]);
    }
}

static void concat(Here *h) {
    int axis = h->node->attr.cut.axis;
    int64_t at = 0;
    for (int i = 0; i < h->node->n_args; i++) {
        const Type *xt = h->at[i];
        if (xt->rank != h->type->rank) interp_fail(h->in, h->id, "concat of different ranks");
        for (int64_t row = 0; row < h->rows; row++) {
            int64_t from = interp_row(h->in, xt, h->type, row);
            copy_axis(xt, h->arg[i]->x + from * h->arg[i]->n, 0, h->type, h->y + row * h->n, at, axis, xt->dim[axis]);
        }
        at += xt->dim[axis];
    }
    if (at != h->type->dim[axis]) interp_fail(h->in, h->id, "concat's parts do not fill the axis");
}

static void transpose(Here *h) {
    int64_t a = h->at[0]->dim[h->at[0]->rank - 2], b = h->at[0]->dim[h->at[0]->rank - 1];
    int64_t blocks = h->rows * h->n / (a * b);
    for (int64_t block = 0; block < blocks; block++) {
        for (int64_t i = 0; i < a; i++) {
            for (int64_t j = 0; j < b; j++) {
                h->y[block * a * b + j * a + i] = h->arg[0]->x[block * a * b + i * b + j];
            }
        }
    }
}

/* Reductions ---------------------------------------------------------------------------------------- */

// The result has 1 where x has a reduced axis: element j of x goes where broadcasting would have read it.
static void reduce(Here *h) {
    bool max = h->node->op == OP_AMAX;
    const Value *x = h->arg[0];
    int64_t *to = feature_map(h->type, h->at[0]);
    for (int i = 0; i < h->type->rank; i++) {
        bool reduced = h->node->attr.axes >> i & 1;
        if (h->type->dim[i] != (reduced ? 1 : h->at[0]->dim[i])) interp_fail(h->in, h->id, "wrong type");
    }
    for (int64_t i = 0; i < h->rows * h->n; i++) h->y[i] = max ? -INFINITY : 0;
    for (int64_t row = 0; row < h->rows; row++) {
        for (int64_t j = 0; j < x->n; j++) {
            double *y = &h->y[row * h->n + to[j]], v = x->x[row * x->n + j];
            *y = max ? (v > *y ? v : *y) : *y + v;
        }
    }
    free(to);
}

// Over rows: the result's row of each operand row is where broadcasting would have read it.
static void row_reduce(Here *h) {
    bool max = h->node->op == OP_ROW_MAX;
    const Value *x = h->arg[0];
    bool *seen = calloc((size_t)(h->rows + 1), sizeof *seen);
    memset(h->y, 0, (size_t)(h->rows * h->n) * sizeof(double));
    for (int64_t row = 0; row < x->rows; row++) {
        int64_t to = interp_row(h->in, h->type, h->at[0], row);
        for (int64_t j = 0; j < h->n; j++) {
            double *y = &h->y[to * h->n + j], v = x->x[row * x->n + j];
            *y = !max ? *y + v : !seen[to] || v > *y ? v : *y;
        }
        seen[to] = true;
    }
    free(seen);
}

/* Ids ------------------------------------------------------------------------------------------------ */

static void top_k(Here *h) {
    int64_t n = h->at[0]->dim[h->at[0]->rank - 1], k = h->node->attr.k, blocks = h->rows * h->n / k;
    bool *taken = malloc((size_t)n * sizeof *taken);
    for (int64_t block = 0; block < blocks; block++) {
        const double *x = h->arg[0]->x + block * n;
        memset(taken, 0, (size_t)n * sizeof *taken);
        for (int64_t i = 0; i < k; i++) {
            int64_t best = -1;
            for (int64_t j = 0; j < n; j++) {
                if (taken[j]) continue;
                double v = isnan(x[j]) ? -INFINITY : x[j];
                double top = best < 0 || isnan(x[best]) ? -INFINITY : x[best];
                if (best < 0 || v > top) best = j;
            }
            taken[best] = true;
            h->y[block * k + i] = (double)best;
        }
    }
    free(taken);
}

static void one_hot(Here *h) {
    int64_t n = h->node->attr.k;
    for (int64_t i = 0; i < h->rows * h->n; i++) h->y[i] = h->arg[0]->x[i / n] == (double)(i % n);
}

// gather: y[.., i] = x[.., ids[.., i]]. scatter: y[.., ids[.., i]] += g[.., i].
static void gather_scatter(Here *h) {
    bool gather = h->node->op == OP_GATHER;
    Type wide = gather ? *h->at[1] : *h->type; // leading axes of the result
    int64_t k = h->at[1]->dim[h->at[1]->rank - 1];
    int64_t n = gather ? h->at[0]->dim[h->at[0]->rank - 1] : h->node->attr.k;
    int64_t blocks = h->n / h->type->dim[h->type->rank - 1];
    wide.dim[wide.rank - 1] = 1;
    Type x = *h->at[0], ids = *h->at[1];
    x.dim[x.rank - 1] = ids.dim[ids.rank - 1] = 1;
    int64_t *x_block = feature_map(&x, &wide), *id_block = feature_map(&ids, &wide);
    if (!gather) memset(h->y, 0, (size_t)(h->rows * h->n) * sizeof(double));
    for (int64_t row = 0; row < h->rows; row++) {
        int64_t x_row = interp_row(h->in, h->at[0], h->type, row);
        int64_t id_row = interp_row(h->in, h->at[1], h->type, row);
        for (int64_t block = 0; block < blocks; block++) {
            for (int64_t i = 0; i < k; i++) {
                int64_t id = (int64_t)h->arg[1]->x[id_row * h->arg[1]->n + id_block[block] * k + i];
                bool inside = id >= 0 && id < n;
                const double *from = h->arg[0]->x + x_row * h->arg[0]->n + x_block[block] * (gather ? n : k);
                if (gather)
                    h->y[row * h->n + block * k + i] = inside ? from[id] : 0;
                else if (inside)
                    h->y[row * h->n + block * n + id] += from[i];
            }
        }
    }
    free(x_block), free(id_block);
}

/* Moves ---------------------------------------------------------------------------------------------- */

static void embed(Here *h) {
    int64_t vocab = h->at[0]->dim[0], n = h->arg[0]->n / vocab, per_row = h->arg[1]->n;
    for (int64_t i = 0; i < h->rows * per_row; i++) {
        int64_t id = (int64_t)h->arg[1]->x[i];
        for (int64_t j = 0; j < n; j++) h->y[i * n + j] = id >= 0 && id < vocab ? h->arg[0]->x[id * n + j] : 0;
    }
}

static void embed_w(Here *h) {
    int64_t vocab = h->node->attr.k, n = h->n / vocab, per_row = h->arg[1]->n, rows = h->arg[1]->rows;
    if (h->arg[0]->rows != rows) interp_fail(h->in, h->id, "gradient and ids differ in rows");
    memset(h->y, 0, (size_t)h->n * sizeof(double));
    for (int64_t i = 0; i < rows * per_row; i++) {
        int64_t id = (int64_t)h->arg[1]->x[i];
        for (int64_t j = 0; j < n && id >= 0 && id < vocab; j++) h->y[id * n + j] += h->arg[0]->x[i * n + j];
    }
}

static void shift(Here *h) {
    const double *segments = h->arg[1]->x;
    for (int64_t t = 0; t < h->rows; t++) {
        int64_t from = t - h->node->attr.k;
        bool inside = from >= 0 && from < h->rows && segments[from] == segments[t];
        for (int64_t j = 0; j < h->n; j++) h->y[t * h->n + j] = inside ? h->arg[0]->x[from * h->n + j] : 0;
    }
}

// Expert-major, then by token, then by choice.
static void route(Here *h) {
    RouteMap *r = &h->in->routes[h->id];
    free(r->row_of_slot), free(r->slot_of_row), free(r->expert_of_row);
    const Value *ids = h->arg[0];
    *r = (RouteMap){ .slots = ids->rows * ids->n, .top_k = (int32_t)ids->n, .experts = h->node->attr.route.experts };
    size_t bytes = (size_t)(r->slots + 1) * sizeof(int64_t);
    r->row_of_slot = malloc(bytes), r->slot_of_row = malloc(bytes), r->expert_of_row = malloc(bytes);
    for (int64_t slot = 0; slot < r->slots; slot++) r->row_of_slot[slot] = -1;
    for (int64_t e = 0; e < r->experts; e++) {
        for (int64_t slot = 0; slot < r->slots; slot++) {
            if (ids->x[slot] != (double)e) continue;
            r->row_of_slot[slot] = r->rows;
            r->slot_of_row[r->rows] = slot;
            r->expert_of_row[r->rows++] = e;
        }
    }
}

static void dispatch(Here *h) {
    const RouteMap *r = &h->in->routes[model_arg(h->in->m, h->id, 1)];
    for (int64_t row = 0; row < h->rows; row++) {
        for (int64_t j = 0; j < h->n; j++) h->y[row * h->n + j] = h->arg[0]->x[r->slot_of_row[row] * h->n + j];
    }
}

static void collect(Here *h) {
    const RouteMap *r = &h->in->routes[model_arg(h->in->m, h->id, 1)];
    int64_t n = h->n / r->top_k;
    for (int64_t slot = 0; slot < r->slots; slot++) {
        int64_t row = r->row_of_slot[slot];
        for (int64_t j = 0; j < n; j++) h->y[slot * n + j] = row < 0 ? 0 : h->arg[0]->x[row * n + j];
    }
}

/* Effects -------------------------------------------------------------------------------------------- */

static void effect(Here *h) {
    Interp *in = h->in;
    uint32_t index = h->node->attr.index;
    switch (h->node->op) {
    case OP_ACCUMULATE:
    case OP_UPDATE: {
        const Value *x = h->arg[1];
        index = in->m->nodes[model_arg(in->m, h->id, 0)].attr.index;
        if (x->rows * x->n != in->param_n[index]) interp_fail(in, h->id, "differs in size from its target");
        if (h->node->op == OP_UPDATE) {
            in->next[index] = realloc(in->next[index], (size_t)in->param_n[index] * sizeof(double));
            memcpy(in->next[index], x->x, (size_t)in->param_n[index] * sizeof(double));
            return;
        }
        in->accumulated[index] = true;
        for (int64_t i = 0; i < in->param_n[index]; i++) in->gradients[index][i] += x->x[i];
        return;
    }
    case OP_RECORD:
        if (index >= in->n_records || in->records[index].n != h->arg[0]->n * h->arg[0]->rows) {
            interp_fail(in, h->id, "differs in size from its record");
        }
        for (int64_t i = 0; i < h->arg[0]->n; i++) in->records[index].x[i] += h->arg[0]->x[i];
        return;
    case OP_OUTPUT: {
        Value *out = &in->outputs[index];
        free(out->x);
        *out = *h->arg[0];
        out->x = malloc((size_t)(out->rows * out->n + 1) * sizeof(double));
        memcpy(out->x, h->arg[0]->x, (size_t)(out->rows * out->n) * sizeof(double));
        return;
    }
    default: interp_fail(in, h->id, "is no effect");
    }
}

void interp_node(Interp *in, uint32_t id) {
    const Node *node = &in->m->nodes[id];
    const Value *v = &in->values[id];
    Here here = { .in = in, .id = id, .node = node, .type = &node->type, .y = v->x, .rows = v->rows, .n = v->n };
    for (int i = 0; i < node->n_args; i++) {
        here.at[i] = &in->m->nodes[model_arg(in->m, id, i)].type;
        here.arg[i] = &in->values[model_arg(in->m, id, i)];
    }
    if (interp_contraction(in, id)) return;
    switch (node->op) {
    case OP_PARAM:
    case OP_STATE:
    case OP_CONST:
    case OP_CONSTANT:
    case OP_TOKENS:
    case OP_LABELS:
    case OP_POSITIONS:
    case OP_SEGMENTS:
    case OP_VALID:
    case OP_N_VALID:
    case OP_INV_STEP: source(&here); return;
    case OP_UNIFORM: uniform(&here); return;
    case OP_ROTATE: rotate(&here); return;
    case OP_SLICE:
    case OP_PAD: cut_or_pad(&here); return;
    case OP_CONCAT: concat(&here); return;
    case OP_ACROSS: // of one rank
    case OP_RESHAPE: memcpy(here.y, here.arg[0]->x, (size_t)(here.rows * here.n) * sizeof(double)); return;
    case OP_TRANSPOSE: transpose(&here); return;
    case OP_SUM:
    case OP_AMAX: reduce(&here); return;
    case OP_ROW_SUM:
    case OP_ROW_MAX: row_reduce(&here); return;
    case OP_TOP_K: top_k(&here); return;
    case OP_ONE_HOT: one_hot(&here); return;
    case OP_GATHER:
    case OP_SCATTER: gather_scatter(&here); return;
    case OP_EMBED: embed(&here); return;
    case OP_EMBED_W: embed_w(&here); return;
    case OP_SHIFT: shift(&here); return;
    case OP_ROUTE: route(&here); return;
    case OP_DISPATCH: dispatch(&here); return;
    case OP_COLLECT: collect(&here); return;
    case OP_ACCUMULATE:
    case OP_RECORD:
    case OP_UPDATE:
    case OP_OUTPUT: effect(&here); return;
    default: map(&here); return;
    }
}
