// SPDX-License-Identifier: Apache-2.0
// From the nodes of a group to values (row.h): views become index maps, operands of mixed kinds are
// converted, rotate, pad and concat become pieces, moves become picks from far rows.
//
// The first failure stays in row->status; value 0 stands for "failed" and passes through.
#include "compiler/codegen/row.h"

static uint32_t fail(Row *row, uint32_t node, const char *why) {
    if (row->status != OK) return 0;
    const Node *n = model_at(row->m, node);
    const char *address = model_name(row->m, n->addr);
    row->status = status_fail(ERR_INPUT, "%s%s%s: no row kernel: %s", op_info[n->op].text,
                              *address ? " in " : "", address, why);
    return 0;
}

static RowVal *at(Row *row, uint32_t val) {
    return &row->vals[val];
}

static RowShape shape_of(const Type *type) {
    RowShape shape = { .rank = type->rank };
    memcpy(shape.dim, type->dim, sizeof shape.dim);
    return shape;
}

static bool shape_equal(const RowShape *a, const RowShape *b) {
    return a->rank == b->rank && !memcmp(a->dim, b->dim, sizeof *a->dim * (size_t)a->rank);
}

/* Values --------------------------------------------------------------------------------------- */

bool row_leaf(const RowVal *val) {
    return val->op == ROW_LOAD || val->op == OP_CONST || val->op == OP_CONSTANT;
}

bool row_inline(const RowVal *val) {
    bool reduction = val->op == OP_SUM || val->op == OP_AMAX;
    return !row_leaf(val) && val->op != ROW_VIEW && val->op != ROW_PIECES && val->op != OP_TOP_K &&
           (!reduction || val->serial);
}

// The pure function of operands that exists already, or 0. Keys are used up by their top_k: never
// shared.
static uint32_t find(const Row *row, const RowVal *val) {
    if (val->op >= N_OPS ? val->op != ROW_FLOAT && val->op != ROW_COS && val->op != ROW_SIN
                         : op_info[val->op].class != CLASS_MAP)
        return 0;
    for (uint32_t i = 1; i < row->n_vals; i++) {
        const RowVal *old = &row->vals[i];
        if (old->op == val->op && old->kind == val->kind && old->n_args == val->n_args &&
            shape_equal(&old->shape, &val->shape) &&
            !memcmp(old->args, val->args, sizeof val->args))
            return i;
    }
    return 0;
}

static uint32_t add(Row *row, RowVal val) {
    if (row->status != OK) return 0;
    for (int i = 0; i < val.n_args; i++) {
        if (!val.args[i]) return 0;
    }
    uint32_t id = find(row, &val);
    if (id) return id;
    if (!row_leaf(&val) && val.op != ROW_PARTIALS && val.op != OP_UNIFORM &&
        val.op != ROW_SHIFTED) {
        val.rowless = true;
        for (int i = 0; i < val.n_args; i++) val.rowless &= at(row, val.args[i])->rowless;
    }
    if (row->body->row == ROW_NONE) val.rowless = false;
    id = row->n_vals;
    if (val.op != ROW_VIEW) {
        val.map.base = id;
        row_major(&val.shape, val.map.stride);
    }
    *ARENA_PUSH(row->arena, row->vals, row->n_vals, row->cap_vals) = val;
    return id;
}

static uint32_t literal(Row *row, double value, uint8_t kind) {
    return add(row, (RowVal){ .op = OP_CONST, .kind = kind, .attr.num = value, .rowless = true });
}

static uint32_t view(Row *row, uint32_t of, const RowShape *shape, const RowMap *map) {
    if (!of) return 0;
    const RowVal *val = at(row, of);
    if (shape_equal(shape, &val->shape) && !memcmp(map, &val->map, sizeof *map)) return of;
    return add(row, (RowVal){ .op = ROW_VIEW,
                              .kind = val->kind,
                              .n_args = 1,
                              .args = { of },
                              .shape = *shape,
                              .map = *map });
}

static uint32_t copy(Row *row, uint32_t of) {
    if (!of) return 0;
    return add(row, (RowVal){ .op = ROW_COPY,
                              .kind = at(row, of)->kind,
                              .n_args = 1,
                              .args = { of },
                              .shape = at(row, of)->shape });
}

static uint32_t reshape(Row *row, uint32_t of, const RowShape *shape) {
    if (!of) return 0;
    RowMap map;
    if (!row_reshape(&at(row, of)->map, &at(row, of)->shape, shape, &map)) {
        of = copy(row, of);
        if (!of) return 0;
        row_reshape(&at(row, of)->map, &at(row, of)->shape, shape, &map);
    }
    return view(row, of, shape, &map);
}

// [a..] as [a.., 1..], so that it broadcasts along `n` more axes on the right.
static uint32_t append_units(Row *row, uint32_t of, int n) {
    if (!of) return 0;
    RowShape shape = at(row, of)->shape;
    for (int i = 0; i < n; i++) shape.dim[shape.rank++] = 1;
    return reshape(row, of, &shape);
}

static uint32_t to_float(Row *row, uint32_t of) {
    if (!of || at(row, of)->kind == KIND_REAL) return of;
    return add(
        row, (RowVal){ .op = ROW_FLOAT, .n_args = 1, .args = { of }, .shape = at(row, of)->shape });
}

static RowShape join(const RowShape *a, const RowShape *b) {
    RowShape out = a->rank >= b->rank ? *a : *b;
    const RowShape *other = a->rank >= b->rank ? b : a;
    for (int i = 1; i <= other->rank; i++) {
        if (out.dim[out.rank - i] == 1) out.dim[out.rank - i] = other->dim[other->rank - i];
    }
    return out;
}

static uint32_t binary(Row *row, int op, uint32_t a, uint32_t b) {
    if (!a || !b) return 0;
    return add(row, (RowVal){ .op = (uint16_t)op,
                              .kind = at(row, a)->kind,
                              .n_args = 2,
                              .args = { a, b },
                              .shape = join(&at(row, a)->shape, &at(row, b)->shape) });
}

/* Loads ---------------------------------------------------------------------------------------- */

static uint32_t load_value(Row *row, uint32_t load, const Type *type, uint8_t kind,
                           const RowShape *shape, int64_t offset) {
    return add(row, (RowVal){ .op = ROW_LOAD,
                              .kind = kind,
                              .load = load,
                              .shape = *shape,
                              .map.offset = offset,
                              .rowless = type->row == ROW_NONE });
}

static int find_load(const Row *row, int what, uint32_t node) {
    int found = -1;
    for (uint32_t i = 0; i < row->body->n_loads; i++) {
        if (row->body->loads[i].what != what) continue;
        if (node && row->body->loads[i].node == node) return (int)i;
        found = (int)i;
    }
    return found;
}

static void bind(Row *row, uint32_t node, uint32_t val) {
    *ARENA_PUSH(row->arena, row->names, row->n_names, row->cap_names) =
        (struct RowName){ node, val };
}

static void check_dtype(Row *row, uint32_t load) {
    const RowLoad *l = &row->body->loads[load];
    bool real = l->what == WHAT_SCALARS || l->what == WHAT_PARTIALS ||
                l->what == WHAT_ACC ||
                (l->what == WHAT_VALUE && model_type(row->m, l->node)->kind == KIND_REAL &&
                 model_at(row->m, l->node)->op != OP_VALID);
    bool narrow = real && l->what == WHAT_VALUE && l->dtype == DTYPE_BF16;
    if (row->status == OK && !narrow && l->dtype != (real ? DTYPE_F32 : DTYPE_I32)) {
        row->status = status_fail(ERR_INPUT, "row program: load l%u must be %s, is %s", load,
                                  real ? "f32" : "i32", dtype_name(l->dtype));
    }
}

static void build_load(Row *row, uint32_t load) {
    const RowLoad *l = &row->body->loads[load];
    check_dtype(row, load);
    if (l->what != WHAT_VALUE && l->what != WHAT_PARTIALS && l->what != WHAT_ACC) return;
    const Node *node = model_at(row->m, l->node);
    RowShape shape = shape_of(&node->type);
    uint32_t val;
    if (l->what == WHAT_PARTIALS) {
        val = add(row, (RowVal){ .op = ROW_PARTIALS,
                                 .load = load,
                                 .shape = shape,
                                 .rowless = true,
                                 .attr.k = node->op == OP_ROW_MAX });
    } else if (node->op == OP_VALID) {
        uint32_t label = load_value(row, load, &node->type, KIND_INT, &shape, 0);
        val = to_float(row, binary(row, OP_GE, label, literal(row, 0, KIND_INT)));
    } else {
        val = load_value(row, load, &node->type, node->type.kind, &shape, 0);
    }
    bind(row, l->node, val);
}

static uint32_t build_uniform(Row *row, uint32_t node) {
    int scalars = find_load(row, WHAT_SCALARS, 0), index = find_load(row, WHAT_INDEX, 0);
    if (scalars < 0 || index < 0)
        return fail(row, node, "it reads the scalars and the index of tokens");
    const Type *type = model_type(row->m, node);
    const char *address = model_name(row->m, model_at(row->m, node)->attr.index);
    Attr attr = { .raw = { hash_bytes(address, strlen(address)).low, 0 } };
    RowShape one = { 0 };
    uint32_t token = load_value(row, (uint32_t)index, type, KIND_INT, &one, 0);
    return add(row, (RowVal){ .op = OP_UNIFORM,
                              .n_args = 1,
                              .args = { token },
                              .shape = shape_of(type),
                              .attr = attr,
                              .load = (uint32_t)scalars });
}

// The value of an operand: computed here, loaded, or made where first met.
static uint32_t value_of(Row *row, uint32_t node) {
    for (uint32_t i = row->n_names; i-- > 0;) {
        if (row->names[i].node == node) return row->names[i].val;
    }
    const Node *n = model_at(row->m, node);
    uint32_t val = 0;
    int scalars;
    switch (n->op) {
    case OP_CONST: val = literal(row, n->attr.num, n->type.kind); break;
    case OP_CONSTANT:
        val = add(row, (RowVal){ .op = OP_CONSTANT,
                                 .shape = shape_of(&n->type),
                                 .attr = n->attr,
                                 .rowless = true });
        break;
    case OP_INV_STEP:
        scalars = find_load(row, WHAT_SCALARS, node);
        if (scalars < 0) return fail(row, node, "it reads the scalars");
        val = load_value(row, (uint32_t)scalars, &n->type, KIND_REAL, &(RowShape){ 0 },
                         SCALAR_inv_step);
        break;
    case OP_UNIFORM: val = build_uniform(row, node); break;
    default: return fail(row, node, "an operand is neither computed in the group nor loaded");
    }
    bind(row, node, val);
    return val;
}

static uint32_t arg_of(Row *row, uint32_t node, int i) {
    return value_of(row, model_arg(row->m, node, i));
}

/* Maps and views ------------------------------------------------------------------------------- */

static uint32_t build_map(Row *row, uint32_t node) {
    const Node *n = model_at(row->m, node);
    if (n->op == OP_CAST && n->attr.precision != PRECISION_BF16) {
        if (n->attr.precision == PRECISION_FP32) return arg_of(row, node, 0);
        return fail(row, node, "a cast to another precision than fp32 and bf16");
    }
    RowVal val = {
        .op = n->op, .kind = n->type.kind, .n_args = n->n_args, .shape = shape_of(&n->type)
    };
    bool real = n->type.kind == KIND_REAL;
    for (int i = 0; i < n->n_args; i++) {
        val.args[i] = arg_of(row, node, i);
        if (!val.args[i]) return 0;
        real |= at(row, val.args[i])->kind == KIND_REAL;
    }
    for (int i = n->op == OP_WHERE; real && i < n->n_args; i++)
        val.args[i] = to_float(row, val.args[i]);
    if (!expr_form(n->op, real)) return fail(row, node, "not of this kind of numbers");
    return add(row, val);
}

static uint32_t build_view(Row *row, uint32_t node) {
    const Node *n = model_at(row->m, node);
    uint32_t x = arg_of(row, node, 0);
    if (!x) return 0;
    RowShape shape = shape_of(&n->type);
    RowMap map;
    switch (n->op) {
    case OP_RESHAPE: return reshape(row, x, &shape);
    case OP_BROADCAST: map = row_onto(at(row, x), &shape); return view(row, x, &shape, &map);
    case OP_SLICE:
        map = row_slice(at(row, x), n->attr.cut.axis, n->attr.cut.at, 1,
                        shape.dim[n->attr.cut.axis], &shape);
        return view(row, x, &shape, &map);
    case OP_TRANSPOSE: {
        map = at(row, x)->map;
        int64_t last = map.stride[shape.rank - 1];
        map.stride[shape.rank - 1] = map.stride[shape.rank - 2];
        map.stride[shape.rank - 2] = last;
        return view(row, x, &shape, &map);
    }
    default: return x; // stop_gradient, keep, recompute
    }
}

static uint32_t reduction(Row *row, int op, uint32_t x, uint32_t axes, bool serial) {
    if (!x || !axes) return x;
    RowShape shape = at(row, x)->shape;
    for (int i = 0; i < shape.rank; i++) {
        if (axes >> i & 1) shape.dim[i] = 1;
    }
    return add(row, (RowVal){ .op = (uint16_t)op,
                              .kind = at(row, x)->kind,
                              .n_args = 1,
                              .args = { x },
                              .shape = shape,
                              .serial = serial });
}

// Axes at the right end are summed by lanes, those left of a kept axis one entry after the other.
static uint32_t build_reduction(Row *row, uint32_t node) {
    const Node *n = model_at(row->m, node);
    uint32_t x = arg_of(row, node, 0);
    if (!x) return 0;
    RowShape shape = at(row, x)->shape;
    uint32_t axes = 0, lanes = 0;
    bool right = !row->by_rows;
    for (int i = shape.rank - 1; i >= 0; i--) {
        if (shape.dim[i] == 1) continue;
        bool reduced = n->attr.axes >> i & 1;
        right = right && reduced;
        if (right)
            lanes |= 1u << i;
        else if (reduced)
            axes |= 1u << i;
    }
    return reduction(row, n->op, reduction(row, n->op, x, lanes, false), axes, true);
}

/* Pieces --------------------------------------------------------------------------------------- */

typedef struct Parts {
    RowVal val;
    RowPiece *list;
    int n;
} Parts;

static Parts parts(Row *row, const Type *type) {
    return (Parts){ .val = { .op = ROW_PIECES, .kind = type->kind, .shape = shape_of(type) },
                    .list = ARENA_ARRAY(row->arena, RowPiece, MAX_ARGS) };
}

// `arg`, broadcast to the result's shape except `size` entries of `axis`, goes to entries at, at +
// step, ..
static void part(Parts *p, uint32_t arg, int axis, int64_t first, int64_t step, int32_t size) {
    if (!size) return;
    RowPiece *piece = &p->list[p->n];
    *piece = (RowPiece){ .arg = arg, .shape = p->val.shape };
    piece->shape.dim[axis] = size;
    int64_t n = 1;
    for (int i = p->val.shape.rank - 1; i >= 0; n *= p->val.shape.dim[i--]) {
        piece->stride[i] = i == axis ? n * step : n;
        if (i == axis) piece->offset = first * n;
    }
    p->val.args[p->n++] = arg;
}

static uint32_t finish_parts(Row *row, Parts *p) {
    p->val.pieces = p->list;
    p->val.n_pieces = p->n;
    p->val.n_args = (uint8_t)p->n;
    return add(row, p->val);
}

static uint32_t build_concat(Row *row, uint32_t node) {
    const Node *n = model_at(row->m, node);
    Parts p = parts(row, &n->type);
    int axis = n->attr.cut.axis;
    int64_t first = 0;
    for (int i = 0; i < n->n_args; i++) {
        int32_t size = model_type(row->m, model_arg(row->m, node, i))->dim[axis];
        part(&p, arg_of(row, node, i), axis, first, 1, size);
        first += size;
    }
    return finish_parts(row, &p);
}

static uint32_t build_pad(Row *row, uint32_t node) {
    const Node *n = model_at(row->m, node);
    Parts p = parts(row, &n->type);
    int axis = n->attr.cut.axis;
    int32_t first = n->attr.cut.at,
            size = model_type(row->m, model_arg(row->m, node, 0))->dim[axis];
    uint32_t zero = literal(row, 0, n->type.kind);
    part(&p, zero, axis, 0, 1, first);
    part(&p, arg_of(row, node, 0), axis, first, 1, size);
    part(&p, zero, axis, first + size, 1, n->type.dim[axis] - first - size);
    return finish_parts(row, &p);
}

static uint32_t scaled(Row *row, uint32_t x, double factor) {
    return factor == 1 ? x : binary(row, OP_MUL, x, literal(row, factor, KIND_REAL));
}

// (a, b) -> factor * (a cos - sign b sin, b cos + sign a sin); the rest is copied.
static uint32_t build_rotate(Row *row, uint32_t node) {
    const Node *n = model_at(row->m, node);
    uint32_t x = arg_of(row, node, 0), freq = arg_of(row, node, 1), place = arg_of(row, node, 2);
    if (!x || !freq || !place) return 0;
    int axis = n->type.rank - 1;
    int32_t size = n->type.dim[axis], pairs = at(row, freq)->shape.dim[0];
    bool half = n->attr.turn.pairs == PAIRS_HALF;
    int64_t step = half ? 1 : 2, second = half ? pairs : 1;
    RowShape shape;
    RowMap a_map = row_slice(at(row, x), axis, 0, step, pairs, &shape);
    uint32_t a = view(row, x, &shape, &a_map);
    RowMap b_map = row_slice(at(row, x), axis, second, step, pairs, &shape);
    uint32_t b = view(row, x, &shape, &b_map);
    uint32_t angle = binary(row, OP_MUL, to_float(row, place), freq);
    if (!angle) return 0;
    RowVal turn = { .n_args = 1, .args = { angle }, .shape = at(row, angle)->shape };
    turn.op = ROW_COS;
    uint32_t cosine = add(row, turn);
    turn.op = ROW_SIN;
    uint32_t sine = add(row, turn);
    int minus = n->attr.turn.sign > 0 ? OP_SUB : OP_ADD,
        plus = n->attr.turn.sign > 0 ? OP_ADD : OP_SUB;
    uint32_t y1 = binary(row, minus, binary(row, OP_MUL, a, cosine), binary(row, OP_MUL, b, sine));
    uint32_t y2 = binary(row, plus, binary(row, OP_MUL, b, cosine), binary(row, OP_MUL, a, sine));
    Parts p = parts(row, &n->type);
    part(&p, scaled(row, y1, n->attr.turn.factor), axis, 0, step, pairs);
    part(&p, scaled(row, y2, n->attr.turn.factor), axis, second, step, pairs);
    if (size > 2 * pairs) {
        RowMap rest = row_slice(at(row, x), axis, 2 * pairs, 1, size - 2 * pairs, &shape);
        part(&p, view(row, x, &shape, &rest), axis, 2 * pairs, 1, size - 2 * pairs);
    }
    return finish_parts(row, &p);
}

/* Whole rows and picks ------------------------------------------------------------------------- */

static uint32_t build_top_k(Row *row, uint32_t node) {
    const Node *n = model_at(row->m, node);
    uint32_t x = arg_of(row, node, 0);
    if (!x) return 0;
    RowVal key = {
        .op = ROW_KEY, .kind = KIND_INT, .n_args = 1, .args = { x }, .shape = at(row, x)->shape
    };
    return add(row, (RowVal){ .op = OP_TOP_K,
                              .kind = KIND_INT,
                              .n_args = 1,
                              .args = { add(row, key) },
                              .shape = shape_of(&n->type),
                              .attr = n->attr });
}

static uint32_t build_one_hot(Row *row, uint32_t node) {
    const Node *n = model_at(row->m, node);
    return add(row, (RowVal){ .op = OP_ONE_HOT,
                              .n_args = 1,
                              .args = { append_units(row, arg_of(row, node, 0), 1) },
                              .shape = shape_of(&n->type) });
}

static uint32_t build_scatter(Row *row, uint32_t node) {
    const Node *n = model_at(row->m, node);
    return add(row, (RowVal){ .op = OP_SCATTER,
                              .n_args = 2,
                              .args = { arg_of(row, node, 0), arg_of(row, node, 1) },
                              .shape = shape_of(&n->type) });
}

// How x's row is found decides whether lanes along rows can read it by address.
static bool addressable(const Row *row, const RowVal *base) {
    if (base->op == OP_CONST) return false;
    if (!row->by_rows || base->op != ROW_LOAD) return true;
    uint8_t of = model_type(row->m, row->body->loads[base->load].node)->row;
    return of == row->body->row || of == ROW_NONE;
}

static uint32_t build_gather(Row *row, uint32_t node) {
    const Node *n = model_at(row->m, node);
    uint32_t x = arg_of(row, node, 0), ids = arg_of(row, node, 1);
    if (!x || !ids) return 0;
    RowShape shape = shape_of(&n->type);
    if (!addressable(row, at(row, at(row, x)->map.base))) x = copy(row, x);
    if (!x) return 0;
    RowVal val = { .op = ROW_FAR,
                   .kind = n->type.kind,
                   .n_args = 2,
                   .args = { x, ids },
                   .shape = shape,
                   .near = true };
    const RowVal *from = at(row, x);
    val.far = row_onto(from, &shape);
    val.far.stride[shape.rank - 1] = 0;
    val.step = from->map.stride[from->shape.rank - 1];
    val.limit = from->shape.dim[from->shape.rank - 1];
    return add(row, val);
}

// x picked through ids from any row of a load: result axes [ids' axes.., x's axes from `skip`
// on..].
static uint32_t far(Row *row, uint32_t node, uint32_t ids, int skip, int64_t step, int64_t limit) {
    const Node *n = model_at(row->m, node);
    uint32_t x = arg_of(row, node, 0);
    if (!x || !ids) return 0;
    const RowVal *from = at(row, x), *base = at(row, from->map.base);
    bool stored = row_leaf(base) && (base->op != ROW_LOAD ||
                                     row->body->loads[base->load].what != WHAT_ACC);
    if (!stored) return fail(row, node, "its operand must be stored by an earlier kernel");
    int own = from->shape.rank - skip;
    RowVal val = { .op = ROW_FAR,
                   .kind = n->type.kind,
                   .n_args = 2,
                   .shape = shape_of(&n->type),
                   .limit = limit };
    val.far = (RowMap){ .base = from->map.base, .offset = from->map.offset };
    for (int i = 0; i < own; i++)
        val.far.stride[val.shape.rank - own + i] = from->map.stride[skip + i];
    bool rows = base->op == ROW_LOAD &&
                model_type(row->m, row->body->loads[base->load].node)->row != ROW_NONE;
    val.step = step >= 0 ? step : rows ? row_features(&base->shape) : 0;
    val.args[0] = x;
    val.args[1] = append_units(row, ids, own);
    return add(row, val);
}

static uint32_t build_embed(Row *row, uint32_t node) {
    uint32_t w = arg_of(row, node, 0), ids = arg_of(row, node, 1);
    if (!w || !ids) return 0;
    return far(row, node, ids, 1, at(row, w)->map.stride[0], at(row, w)->shape.dim[0]);
}

static uint32_t route_load(Row *row, uint32_t node, int what, const RowShape *shape) {
    int load = find_load(row, what, model_arg(row->m, node, 1));
    if (load < 0) return fail(row, node, "it reads the route");
    return load_value(row, (uint32_t)load, model_type(row->m, node), KIND_INT, shape, 0);
}

static uint32_t build_dispatch(Row *row, uint32_t node) {
    uint32_t slot = route_load(row, node, WHAT_SLOT_OF_ROW, &(RowShape){ 0 }),
             x = arg_of(row, node, 0);
    if (!slot || !x) return 0;
    int32_t k = at(row, x)->shape.dim[0];
    uint32_t token = binary(row, OP_IDIV, slot, literal(row, k, KIND_INT));
    uint32_t id = far(row, node, token, 1, -1, INT32_MAX);
    if (!id || !at(row, x)->map.stride[0]) return id;
    uint32_t choice = binary(row, OP_MOD, slot, literal(row, k, KIND_INT));
    // `far` was the last value made before `choice`: operands come first, so it is made again
    // behind it.
    RowVal val = *at(row, id);
    val.step2 = at(row, x)->map.stride[0];
    val.args[val.n_args++] = append_units(row, choice, val.shape.rank);
    return add(row, val);
}

static uint32_t build_collect(Row *row, uint32_t node) {
    RowShape shape = { .rank = 1, .dim = { model_type(row->m, node)->dim[0] } };
    uint32_t val = far(row, node, route_load(row, node, WHAT_ROW_OF_SLOT, &shape), 0, -1, INT32_MAX);
    if (!val || model_at(row->m, node)->n_args < 3) return val;
    uint32_t rest = arg_of(row, node, 2);
    if (!rest || at(row, rest)->op != ROW_LOAD)
        return fail(row, node, "what further rounds give must be loaded");
    at(row, val)->rest = rest;
    return val;
}

static uint32_t build_shift(Row *row, uint32_t node) {
    int load = find_load(row, WHAT_VALUE, model_arg(row->m, node, 1));
    if (load < 0 || row->body->loads[load].node != model_arg(row->m, node, 1)) {
        return fail(row, node, "its segments must be loaded");
    }
    RowVal from = { .op = ROW_SHIFTED,
                    .kind = KIND_INT,
                    .load = (uint32_t)load,
                    .attr = model_at(row->m, node)->attr };
    return far(row, node, add(row, from), 0, -1, INT32_MAX);
}

/* The group ------------------------------------------------------------------------------------ */

static uint32_t build_node(Row *row, uint32_t node) {
    switch (model_at(row->m, node)->op) {
    case OP_ROTATE: return build_rotate(row, node);
    case OP_PAD: return build_pad(row, node);
    case OP_CONCAT: return build_concat(row, node);
    case OP_SUM:
    case OP_AMAX: return build_reduction(row, node);
    case OP_TOP_K: return build_top_k(row, node);
    case OP_ONE_HOT: return build_one_hot(row, node);
    case OP_GATHER: return build_gather(row, node);
    case OP_SCATTER: return build_scatter(row, node);
    case OP_EMBED: return build_embed(row, node);
    case OP_DISPATCH: return build_dispatch(row, node);
    case OP_COLLECT: return build_collect(row, node);
    case OP_SHIFT: return build_shift(row, node);
    }
    switch (op_info[model_at(row->m, node)->op].class) {
    case CLASS_MAP: return build_map(row, node);
    case CLASS_VIEW: return build_view(row, node);
    case CLASS_PARTIAL: return arg_of(row, node, 0); // its store sums over rows
    case CLASS_GENERATOR:
    case CLASS_SOURCE: return value_of(row, node);
    default: return fail(row, node, "not an operation on rows");
    }
}

static void build_store(Row *row, uint32_t store) {
    const RowStore *s = &row->body->stores[store];
    uint32_t node = s->node, val;
    const Type *type = model_type(row->m, node);
    bool over_rows = op_info[model_at(row->m, node)->op].class == CLASS_PARTIAL;
    if (s->partial && !over_rows) {
        fail(row, node, "only row_sum and row_max are stored as partial records");
        return;
    }
    if (!s->partial && !s->apart && type->row != row->body->row) {
        fail(row, node, "the stored value lies along another row axis than the group");
        return;
    }
    bool real = type->kind == KIND_REAL;
    if (s->dtype != (real ? DTYPE_F32 : DTYPE_I32) && (!real || s->dtype != DTYPE_BF16)) {
        fail(row, node, "reals are stored as f32 or bf16, ints as i32");
        return;
    }
    if (s->partial && s->dtype != DTYPE_F32) {
        fail(row, node, "partial records are f32");
        return;
    }
    if (s->some && model_at(row->m, node)->op != OP_COLLECT) {
        fail(row, node, "only what a collect gives is stored in part");
        return;
    }
    if (s->apart && find_load(row, WHAT_ROW_OF_SLOT, model_arg(row->m, node, 1)) < 0) {
        fail(row, node, "it reads the route");
        return;
    }
    val = s->partial || s->apart ? arg_of(row, node, 0) : value_of(row, node);
    if (!val) return;
    // Stores happen in row loops, where values that are not computed there are copied.
    bool pieces = at(row, val)->op == ROW_PIECES && !s->apart;
    bool direct = !at(row, val)->rowless && (pieces || row_inline(at(row, val)));
    if (!direct) val = copy(row, val);
    if (!val) return;
    at(row, val)->rowless = false;
    *ARENA_PUSH(row->arena, row->sinks, row->n_sinks, row->cap_sinks) = (RowSink){ val, store };
}

// The widest space that some loop will run over.
static int64_t widest(const Row *row) {
    const RowBody *b = row->body;
    int64_t most = 1;
    for (uint32_t i = 0; i < b->n_nodes; i++) {
        const Node *n = model_at(row->m, b->nodes[i]);
        int class = op_info[n->op].class;
        if (class == CLASS_VIEW) continue;
        most = max_i64(most, type_features(&n->type));
        bool reads_all = class == CLASS_REDUCE || n->op == OP_TOP_K || n->op == OP_SCATTER;
        if (reads_all)
            most =
                max_i64(most, type_features(model_type(row->m, model_arg(row->m, b->nodes[i], 0))));
    }
    for (uint32_t i = 0; i < b->n_stores; i++) {
        uint32_t node = b->stores[i].node;
        if (b->stores[i].apart) node = model_arg(row->m, node, 0);
        most = max_i64(most, type_features(model_type(row->m, node)));
    }
    return most;
}

Status row_build(Row *row) {
    const RowBody *b = row->body;
    row->by_rows = b->row != ROW_NONE && widest(row) < 16;
    row->offsets = find_load(row, WHAT_OFFSETS, b->route);
    ARENA_PUSH(row->arena, row->vals, row->n_vals, row->cap_vals);
    if (b->row == ROW_R && row->offsets < 0) {
        return status_fail(ERR_INPUT,
                           "row program over expert rows: the offsets of its route are not loaded");
    }
    for (uint32_t i = 0; i < b->n_loads; i++) build_load(row, i);
    for (uint32_t i = 0; i < b->n_nodes && row->status == OK; i++) {
        bind(row, b->nodes[i], build_node(row, b->nodes[i]));
    }
    for (uint32_t i = 0; i < b->n_stores && row->status == OK; i++) build_store(row, i);
    return row->status;
}
