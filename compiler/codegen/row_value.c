// SPDX-License-Identifier: Apache-2.0
// Expressions of row programs: how a value is read or computed at one place of a loop.
//
// Everything is computed on demand and remembered by name for the rest of the scope, so a value
// that several others need appears once.
#include <stdio.h>

#include "compiler/codegen/row_emit.h"

static const RowVal *at(const Emit *em, uint32_t val) {
    return &em->row->vals[val];
}

/* Text ----------------------------------------------------------------------------------------- */

void emit_line(Emit *em, const char *format, ...) {
    if (em->dry) return;
    for (int i = 0; i < em->indent; i++) text_add(em->out, "    ");
    va_list list;
    va_start(list, format);
    text_vprintf(em->out, format, list);
    va_end(list);
    text_add(em->out, "\n");
}

const char *emit_text(Emit *em, const char *format, ...) {
    Text text = { 0 };
    va_list list;
    va_start(list, format);
    text_vprintf(&text, format, list);
    va_end(list);
    const char *copy = arena_strdup(em->arena, text_cstr(&text));
    text_finish(&text);
    return copy;
}

static const char *remembered(const Emit *em, const char *key) {
    for (uint32_t i = em->n_memos; i-- > 0;) {
        if (!strcmp(em->memos[i].key, key)) return em->memos[i].name;
    }
    return NULL;
}

static const char *remember(Emit *em, const char *key, const char *name) {
    *ARENA_PUSH(em->arena, em->memos, em->n_memos, em->cap_memos) = (Memo){ key, name };
    return name;
}

const char *emit_define(Emit *em, uint32_t val, const char *expression) {
    emit_line(em, "const %s x%u = %s;", emit_type(at(em, val)), val, expression);
    return emit_text(em, "x%u", val);
}

// A load that several expressions share gets a name.
static const char *name_load(Emit *em, const RowVal *val, const char *expression) {
    const char *name = remembered(em, expression);
    if (name) return name;
    name = emit_text(em, "y%u", em->n_names++);
    emit_line(em, "const %s %s = %s;", emit_type(val), name, expression);
    return remember(em, expression, name);
}

/* Places --------------------------------------------------------------------------------------- */

static int64_t stride_of(const Place *place, const int64_t *stride, int axis, bool *found) {
    for (int i = 0; i < place->n; i++) {
        if (place->axis[i] != axis) continue;
        *found = true;
        return stride[i];
    }
    *found = false;
    return 0;
}

// Two axes of the loop can be one if every index steps through them as through one.
static void note_apart(Emit *em, const Place *place, const int64_t *stride) {
    for (int i = 0; i + 1 < em->n_loop; i++) {
        bool a, b;
        int64_t outer = stride_of(place, stride, i, &a),
                inner = stride_of(place, stride, i + 1, &b);
        if (a && b && outer != inner * em->axes[i + 1].dim) em->axes[i].apart = true;
    }
}

Index emit_index(Emit *em, const Place *place, const RowShape *space, const int64_t *stride,
                 int64_t offset) {
    int64_t strides[MAX_AXES];
    int n = 0;
    for (int i = 0; i < space->rank; i++) {
        if (space->dim[i] != 1) strides[n++] = stride[i];
    }
    note_apart(em, place, strides);
    Text text = { 0 };
    Index index = { NULL, 0 };
    for (int i = 0; i < place->n; i++) {
        const Axis *axis = &em->axes[place->axis[i]];
        if (place->axis[i] == em->lane) index.lane = strides[i];
        if (!strides[i] || axis->merged) continue;
        if (text.bytes) text_add(&text, " + ");
        text_add(&text, axis->var);
        if (strides[i] != 1) text_printf(&text, " * %lld", (long long)strides[i]);
    }
    if (offset || !text.bytes)
        text_printf(&text, text.bytes ? " + %lld" : "%lld", (long long)offset);
    index.text = arena_strdup(em->arena, text_cstr(&text));
    text_finish(&text);
    return index;
}

// The number of the last axis of a space, lane by lane: that axis stays a loop of its own.
static const char *last_axis(Emit *em, const Place *place, const RowShape *space) {
    if (space->dim[space->rank - 1] == 1) return "vi_splat(0)";
    int axis = place->axis[place->n - 1];
    if (axis < em->n_loop) {
        em->axes[axis].apart = true;
        if (axis > 0) em->axes[axis - 1].apart = true;
    }
    if (axis == em->lane)
        return emit_text(em, "vi_splat((int32_t)%s) + vi_iota()", em->axes[axis].var);
    return emit_text(em, "vi_splat((int32_t)%s)", em->axes[axis].var);
}

/* Memory --------------------------------------------------------------------------------------- */

RowFind emit_find(const Row *row, uint32_t load) {
    const RowLoad *l = &row->body->loads[load];
    if (l->what == WHAT_SCALARS || l->what == WHAT_PARTIALS || l->what == WHAT_OFFSETS)
        return FIND_NONE;
    if (l->what == WHAT_ACC) return FIND_ACC;
    if (l->what != WHAT_VALUE) return FIND_SAME;
    uint8_t of = model_type(row->m, l->node)->row;
    if (of == ROW_NONE) return FIND_NONE;
    if (of == ROW_E && row->body->row == ROW_R) return FIND_EXPERT;
    if (of == ROW_S && row->body->row == ROW_T) return FIND_SEQUENCE;
    return FIND_SAME;
}

int emit_acc(const Row *row, uint32_t load) {
    int n = 0;
    for (uint32_t i = 0; i < load; i++) n += row->body->loads[i].what == WHAT_ACC;
    return n;
}

const char *emit_access(uint8_t dtype) {
    return dtype == DTYPE_BF16 ? "vh" : dtype == DTYPE_F32 ? "v" : "vi";
}

const char *emit_dtype(uint8_t dtype) {
    static const char *const c_types[N_DTYPES] = {
#define X(name, text, c_type, bytes) c_type,
        PLAN_DTYPES(X)
#undef X
    };
    return c_types[dtype];
}

static const char *access_of(const Emit *em, const RowVal *val) {
    return val->op == ROW_LOAD ? emit_access(em->row->body->loads[val->load].dtype) : emit_v(val);
}

int64_t emit_load_features(const Row *row, uint32_t load) {
    const RowLoad *l = &row->body->loads[load];
    switch (l->what) {
    case WHAT_VALUE:
    case WHAT_ACC:
    case WHAT_PARTIALS: return type_features(model_type(row->m, l->node));
    case WHAT_ROW_OF_SLOT: return type_features(model_type(row->m, model_arg(row->m, l->node, 0)));
    default: return 1;
    }
}

// 16 features of one row, or one feature of no particular row.
static const char *read_features(Emit *em, const RowVal *val, const char *pointer, Index index) {
    const char *v = access_of(em, val);
    if (em->lane < 0 || !index.lane)
        return emit_text(em, "%s_splat(%s[%s])", v, pointer, index.text);
    if (index.lane != 1) {
        return emit_text(em, "%s_load_by(%s + %s, %lld, %s)", v, pointer, index.text,
                         (long long)index.lane, em->tail ? "n" : "LANES");
    }
    if (em->tail) return emit_text(em, "%s_load_n(%s + %s, n)", v, pointer, index.text);
    return emit_text(em, "%s_load(%s + %s)", v, pointer, index.text);
}

// One feature of 16 rows of a load.
static const char *read_rows(Emit *em, const RowVal *val, Index index) {
    const char *v = access_of(em, val);
    long long features = (long long)emit_load_features(em->row, val->load);
    switch (emit_find(em->row, val->load)) {
    case FIND_NONE: return emit_text(em, "%s_splat(l%u[%s])", v, val->load, index.text);
    case FIND_EXPERT:
        return emit_text(em, "%s_pick(l%u + %s, expert, %lld, vi_splat(0), live, n)", v, val->load,
                         index.text, features);
    case FIND_SEQUENCE:
        return emit_text(em, "%s_pick(l%u + %s, sequence, %lld, vi_splat(0), live, n)", v,
                         val->load, index.text, features);
    case FIND_ACC: {
        int acc = emit_acc(em->row, val->load);
        return emit_text(em, "v_load_by(acc[%d] + (row - row_begin) * acc_stride[%d] + %s, "
                             "acc_stride[%d], n)",
                         acc, acc, index.text, acc);
    }
    case FIND_SAME: break;
    }
    if (features == 1) return emit_text(em, "%s_load_n(l%u + row, n)", v, val->load);
    return emit_text(em, "%s_load_by(l%u + row * %lld + %s, %lld, n)", v, val->load, features,
                     index.text, features);
}

// Where a leaf or a kept value starts, for the current row.
static const char *pointer_of(Emit *em, uint32_t base) {
    const RowVal *b = at(em, base);
    if (b->op == OP_CONSTANT) return emit_text(em, "t%u", base);
    if (b->op != ROW_LOAD) return emit_text(em, "m%u", base);
    return emit_text(em, "%s%u", emit_find(em->row, b->load) == FIND_NONE ? "l" : "r", b->load);
}

static const char *read_memory(Emit *em, const Place *place, const RowUse *use) {
    uint32_t base = use->map.base;
    const RowVal *b = at(em, base);
    Index index = emit_index(em, place, &use->space, use->map.stride, use->map.offset);
    if (!em->row->by_rows)
        return name_load(em, b, read_features(em, b, pointer_of(em, base), index));
    if (b->op == ROW_LOAD) return name_load(em, b, read_rows(em, b, index));
    if (b->op == OP_CONSTANT) return emit_text(em, "v_splat(t%u[%s])", base, index.text);
    return name_load(em, b,
                     emit_text(em, "%s_load(m%u + (%s) * LANES)", emit_v(b), base, index.text));
}

const char *emit_read(Emit *em, const Place *place, const RowUse *use) {
    uint32_t base = use->map.base;
    const RowVal *b = at(em, base);
    if (b->op == OP_CONST) {
        Text text = { 0 };
        expr_literal(b->attr.num, b->kind == KIND_REAL, &text);
        const char *copy = arena_strdup(em->arena, text_cstr(&text));
        text_finish(&text);
        return copy;
    }
    if (row_leaf(b)) return read_memory(em, place, use);
    bool kept = b->memory || b->stored || !row_inline(b) || row_features(&b->shape) == 1;
    if (!kept || (row_inline(b) && b->loop == em->loop)) return emit_value(em, place, base);
    if (row_features(&b->shape) == 1) return emit_text(em, "x%u", base);
    if (!b->memory) return emit_value(em, place, base); // stored only, and wide: computed again
    return read_memory(em, place, use);
}

/* Loops inside an expression ------------------------------------------------------------------- */

static int open_axis(Emit *em, int32_t dim) {
    int axis = em->n_axes++;
    em->axes[axis] = (Axis){ .dim = dim, .var = emit_text(em, "k%d", axis - em->n_loop) };
    emit_line(em, "for (int64_t %s = 0; %s < %d; %s++) {", em->axes[axis].var, em->axes[axis].var,
              dim, em->axes[axis].var);
    em->indent++;
    return axis;
}

static void close_axes(Emit *em, int n_axes) {
    while (em->n_axes > n_axes) {
        em->n_axes--;
        em->indent--;
        emit_line(em, "}");
    }
}

static const char *serial_reduction(Emit *em, const Place *place, uint32_t val) {
    const RowVal *v = at(em, val);
    RowUse uses[MAX_ARGS];
    row_uses(em->row, val, uses);
    bool sum = v->op == OP_SUM, real = v->kind == KIND_REAL;
    emit_line(em, "%s x%u = %s;", emit_type(v), val,
              !real ? sum ? "vi_splat(0)" : "vi_splat(TAKEN)"
              : sum ? "v_splat(0.0f)"
                    : "v_splat(-INFINITE)");
    uint32_t mark = em->n_memos;
    int n_axes = em->n_axes;
    Place inner = { 0 };
    for (int i = 0, kept = 0; i < uses->space.rank; i++) {
        if (uses->space.dim[i] == 1) continue;
        bool reduced = v->shape.dim[i] == 1;
        inner.axis[inner.n++] = reduced ? open_axis(em, uses->space.dim[i]) : place->axis[kept++];
    }
    const char *x = emit_read(em, &inner, uses);
    if (sum)
        emit_line(em, "x%u = x%u + %s;", val, val, x);
    else
        emit_line(em, "x%u = %s_max(%s, x%u);", val, emit_v(v), x, val);
    close_axes(em, n_axes);
    em->n_memos = mark;
    return emit_text(em, "x%u", val);
}

// Element j of a row adds up, in order, the values whose id is j.
static const char *scatter(Emit *em, const Place *place, uint32_t val) {
    const RowVal *v = at(em, val);
    RowUse uses[MAX_ARGS];
    row_uses(em->row, val, uses);
    const char *number = last_axis(em, place, &v->shape);
    emit_line(em, "V x%u = v_splat(0.0f);", val);
    uint32_t mark = em->n_memos;
    int n_axes = em->n_axes, last = uses->space.rank - 1;
    Place inner = *place;
    inner.n -= v->shape.dim[v->shape.rank - 1] != 1;
    if (uses->space.dim[last] != 1) inner.axis[inner.n++] = open_axis(em, uses->space.dim[last]);
    const char *x = emit_read(em, &inner, &uses[0]), *ids = emit_read(em, &inner, &uses[1]);
    emit_line(em, "x%u = x%u + v_select(%s == (%s), %s, v_splat(0.0f));", val, val, ids, number, x);
    close_axes(em, n_axes);
    em->n_memos = mark;
    return emit_text(em, "x%u", val);
}

static const char *partials(Emit *em, const Place *place, uint32_t val) {
    const RowVal *v = at(em, val);
    const RowLoad *l = &em->row->body->loads[v->load];
    long long features = (long long)row_features(&v->shape);
    bool max = v->attr.k;
    Index index = emit_index(em, place, &v->shape, v->map.stride, 0);
    emit_line(em, "V x%u = %s;", val, max ? "v_of_bits(vi_splat(NO_ROWS))" : "v_splat(0.0f)");
    emit_line(em, "for (int64_t t = 0; t < %d; t++) {", l->partials);
    const char *record =
        read_features(em, v, emit_text(em, "(l%u + t * %lld)", v->load, features), index);
    if (max)
        emit_line(em, "    x%u = v_max_rows(%s, x%u);", val, record, val);
    else
        emit_line(em, "    x%u = x%u + %s;", val, val, record);
    emit_line(em, "}");
    if (max)
        emit_line(em, "x%u = v_select(v_bits(x%u) == vi_splat(NO_ROWS), v_splat(0.0f), x%u);", val,
                  val, val);
    return emit_text(em, "x%u", val);
}

/* Picks ---------------------------------------------------------------------------------------- */

// Does an operand have one value for all lanes?
static bool same_lanes(Emit *em, const Place *place, const RowUse *use) {
    if (em->row->by_rows) return false;
    if (em->lane < 0) return true;
    return !emit_index(em, place, &use->space, use->map.stride, 0).lane;
}

static const char *inside(Emit *em, const char *ids, int64_t limit, bool lanes) {
    if (!lanes) {
        if (limit == INT32_MAX) return emit_text(em, "%s >= 0", ids);
        return emit_text(em, "%s >= 0 && %s < %lld", ids, ids, (long long)limit);
    }
    const char *live = em->rowless || !(em->tail || em->row->by_rows) ? "" : " & live";
    if (limit == INT32_MAX) return emit_text(em, "(%s >= 0)%s", ids, live);
    return emit_text(em, "(%s >= 0) & (%s < %lld)%s", ids, ids, (long long)limit, live);
}

// The number that all lanes have.
static const char *first_lane(Emit *em, const char *x) {
    return em->row->machine == ROW_GPU ? x : emit_text(em, "%s[0]", x);
}

// Rows of a load that lies apart on each rank, 0 where it lies here.
static int64_t apart_of(const Emit *em, uint32_t base) {
    const RowVal *b = at(em, base);
    return b->op == ROW_LOAD ? em->row->body->loads[b->load].apart : 0;
}

// Where the row's own value of a collect's rest lies.
static Index rest_index(Emit *em, const Place *place, uint32_t val) {
    int64_t stride[MAX_RANK];
    row_major(&at(em, val)->shape, stride);
    return emit_index(em, place, &at(em, val)->shape, stride, 0);
}

// One row for all lanes: an address, then an ordinary read.
static const char *pick_row(Emit *em, const Place *place, uint32_t val, const char *pointer, Index index,
                            const char *const *ids) {
    const RowVal *v = at(em, val), *base = at(em, v->far.base);
    emit_line(em, "const int64_t i%u = %s;", val, first_lane(em, ids[0]));
    const char *id = emit_text(em, "i%u", val);
    const char *second =
        v->step2
            ? emit_text(em, " + %s * %lldL", first_lane(em, ids[1]), (long long)v->step2)
            : "";
    int64_t apart = apart_of(em, v->far.base);
    if (apart)
        pointer = emit_text(em, "(const %s *)%s[%s / %lld]",
                            emit_dtype(em->row->body->loads[base->load].dtype), pointer, id,
                            (long long)apart);
    const char *row = apart ? emit_text(em, "%s %% %lld", id, (long long)apart) : id;
    const char *start =
        emit_text(em, "(%s + %s * %lld%s)", pointer, row, (long long)v->step, second);
    const char *none = emit_text(em, "%s_splat(0)", emit_v(v));
    if (v->rest) {
        const RowVal *rest = at(em, v->rest);
        none = emit_text(em, "%s < -1 ? %s : %s", id,
                         read_features(em, rest, pointer_of(em, v->rest), rest_index(em, place, val)), none);
    }
    return emit_text(em, "%s ? %s : %s", inside(em, id, v->limit, false),
                     read_features(em, base, start, index), none);
}

// Lanes whose rows are of further rounds take their own, the others `x`.
static const char *pick_rest(Emit *em, const Place *place, uint32_t val, const char *ids, const char *x) {
    const RowVal *v = at(em, val), *rest = at(em, v->rest);
    if (!v->rest) return x;
    Index index = rest_index(em, place, val);
    bool rows = em->row->by_rows;
    long long features = (long long)emit_load_features(em->row, rest->load);
    const char *start = rows ? emit_text(em, "l%u + row * %lld + %s", rest->load, features, index.text)
                             : emit_text(em, "%s + %s", pointer_of(em, v->rest), index.text),
               *where = rows ? emit_text(em, "vi_iota() * %lld", features)
                             : emit_text(em, "vi_iota() * %lld", (long long)index.lane),
               *live = rows || em->tail ? " & live" : "";
    return emit_text(em, "%s_select(%s < -1, %s_pick(%s, vi_splat(0), 0, %s, (%s < -1)%s, %s), %s)", emit_v(v), ids,
                     access_of(em, rest), start, where, ids, live, em->tail || rows ? "n" : "LANES", x);
}

static const char *pick_lanes(Emit *em, uint32_t val, uint32_t base, Index index,
                              const char *const *ids) {
    const RowVal *v = at(em, val), *b = at(em, base);
    bool rows = em->row->by_rows, load = b->op == ROW_LOAD;
    const char *pointer = v->near && !rows ? pointer_of(em, base)
                          : load           ? emit_text(em, "l%u", b->load)
                                           : pointer_of(em, base);
    const char *start = emit_text(em, "%s + %s", pointer, index.text), *where = "vi_splat(0)";
    int64_t step = v->step;
    if (rows && v->near && !load && b->op != OP_CONSTANT) { // kept values: [feature][16 rows]
        start = emit_text(em, "%s + (%s) * LANES", pointer, index.text);
        where = "vi_iota()";
        step *= emit_lanes(em);
    } else if (rows && v->near && load && emit_find(em->row, b->load) == FIND_ACC) {
        int acc = emit_acc(em->row, b->load);
        start = emit_text(em, "acc[%d] + (row - row_begin) * acc_stride[%d] + %s", acc, acc,
                          index.text);
        where = emit_text(em, "vi_iota() * (int32_t)acc_stride[%d]", acc);
    } else if (rows && v->near && load && emit_find(em->row, b->load) == FIND_SAME) {
        long long features = (long long)emit_load_features(em->row, b->load);
        start = emit_text(em, "%s + row * %lld + %s", pointer, features, index.text);
        where = emit_text(em, "vi_iota() * %lld", features);
    } else if (index.lane) {
        where = emit_text(em, "vi_iota() * %lld", (long long)index.lane);
    }
    if (v->step2) where = emit_text(em, "%s + %s * %lld", where, ids[1], (long long)v->step2);
    int64_t apart = apart_of(em, base);
    if (apart)
        return emit_text(em, "%s_pick_apart(%s, %lld, %s, %s, %lld, %s, %s, %s)", access_of(em, b),
                         pointer, (long long)apart, index.text, ids[0], (long long)step, where,
                         inside(em, ids[0], v->limit, true),
                         em->tail || (rows && !em->rowless) ? "n" : "LANES");
    return emit_text(em, "%s_pick(%s, %s, %lld, %s, %s, %s)", access_of(em, b), start, ids[0],
                     (long long)step, where, inside(em, ids[0], v->limit, true),
                     em->tail || (rows && !em->rowless) ? "n" : "LANES");
}

static const char *pick(Emit *em, const Place *place, uint32_t val) {
    const RowVal *v = at(em, val);
    RowUse uses[MAX_ARGS];
    const char *ids[2];
    bool same = true;
    int n = row_uses(em->row, val, uses);
    for (int i = 1; i < n; i++) {
        ids[i - 1] = emit_read(em, place, &uses[i]);
        same &= same_lanes(em, place, &uses[i]);
    }
    uint32_t base = v->far.base;
    if (at(em, base)->op == OP_CONST) {
        const char *mask = inside(em, ids[0], v->limit, true);
        RowUse constant = { .map = v->far, .space = v->shape };
        const char *x = emit_read(em, place, &constant);
        return emit_define(
            em, val,
            emit_text(em, "%s_select(%s, %s, %s_splat(0))", emit_v(v), mask, x, emit_v(v)));
    }
    Index index = emit_index(em, place, &v->shape, v->far.stride, v->far.offset);
    if (!same)
        return emit_define(em, val, pick_rest(em, place, val, ids[0], pick_lanes(em, val, base, index, ids)));
    const char *pointer = v->near || at(em, base)->op != ROW_LOAD
                              ? pointer_of(em, base)
                              : emit_text(em, "l%u", at(em, base)->load);
    return emit_define(em, val, pick_row(em, place, val, pointer, index, ids));
}

// The number of the row attr.k earlier, -1 where it is not of the same document.
static const char *shifted(Emit *em, uint32_t val) {
    const RowVal *v = at(em, val);
    if (!em->row->by_rows) {
        emit_line(em, "const int64_t i%u = row - (%d);", val, v->attr.k);
        return emit_define(em, val,
                           emit_text(em,
                                     "vi_splat(i%u >= 0 && i%u < rows && l%u[i%u] == l%u[row] ? "
                                     "(int32_t)i%u : -1)",
                                     val, val, v->load, val, v->load, val));
    }
    emit_line(em, "const VI i%u = vi_splat((int32_t)row - (%d)) + vi_iota();", val, v->attr.k);
    emit_line(em, "const VI in%u = (i%u >= 0) & (i%u < (int32_t)rows) & live;", val, val, val);
    emit_line(em,
              "const VI is%u = vi_pick(l%u, i%u, 1, vi_splat(0), in%u, n) == "
              "vi_load_n(l%u + row, n);",
              val, v->load, val, val, v->load);
    return emit_define(em, val,
                       emit_text(em, "vi_select(in%u & is%u, i%u, vi_splat(-1))", val, val, val));
}

/* Maps ----------------------------------------------------------------------------------------- */

static const char *uniform(Emit *em, const Place *place, uint32_t val) {
    const RowVal *v = at(em, val);
    RowUse uses[MAX_ARGS];
    row_uses(em->row, val, uses);
    const char *token = emit_read(em, place, uses);
    Index index = emit_index(em, place, &v->shape, v->map.stride, 0);
    const char *lanes =
        index.lane ? emit_text(em, " + vi_iota() * %lld", (long long)index.lane) : "";
    return emit_define(em, val,
                       emit_text(em,
                                 "v_uniform((uint32_t)f_bits(l%u[SCALAR_seed]), "
                                 "(uint32_t)f_bits(l%u[SCALAR_step]) ^ 0x%llxu, %s, %lld, "
                                 "vi_splat((int32_t)(%s))%s)",
                                 v->load, v->load, (unsigned long long)v->attr.raw[0], token,
                                 (long long)row_features(&v->shape), index.text, lanes));
}

static const char *map(Emit *em, const Place *place, uint32_t val) {
    const RowVal *v = at(em, val);
    RowUse uses[MAX_ARGS];
    const char *args[MAX_ARGS] = { 0 };
    int n = row_uses(em->row, val, uses);
    bool real = false;
    for (int i = 0; i < n; i++) {
        args[i] = emit_read(em, place, &uses[i]);
        real |= at(em, v->args[i])->kind == KIND_REAL;
    }
    if (v->op == OP_ONE_HOT) {
        return emit_define(em, val,
                           emit_text(em, "v_of_int(vi_bool(%s == (%s)))", args[0],
                                     last_axis(em, place, &v->shape)));
    }
    Text text = { 0 };
    expr_fill(expr_form(v->op, real), args, &text);
    const char *name = emit_define(em, val, text_cstr(&text));
    text_finish(&text);
    return name;
}

const char *emit_value(Emit *em, const Place *place, uint32_t val) {
    const char *key = emit_text(em, "#%u", val), *name = remembered(em, key);
    if (name) return name;
    switch (at(em, val)->op) {
    case OP_SUM:
    case OP_AMAX: name = serial_reduction(em, place, val); break;
    case OP_SCATTER: name = scatter(em, place, val); break;
    case OP_UNIFORM: name = uniform(em, place, val); break;
    case ROW_PARTIALS: name = partials(em, place, val); break;
    case ROW_FAR: name = pick(em, place, val); break;
    case ROW_SHIFTED: name = shifted(em, val); break;
    default: name = map(em, place, val);
    }
    return remember(em, key, name);
}
