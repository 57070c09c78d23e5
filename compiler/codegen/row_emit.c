// SPDX-License-Identifier: Apache-2.0
// Loops, stores and the frame of a row program; names are explained in row_emit.h.
//
// A loop over a space becomes as few C loops as the indices in it allow: a first, dry run over its
// body finds which neighbouring axes are stepped through as one. The last axis carries the lanes.
// Sums over the right end of a space keep one accumulator of 16 lanes (lane l takes elements l, l +
// 16, ..; folded 8, 4, 2, 1) that is opened before the first summed axis.
#include <stdio.h>

#include "compiler/codegen/row_emit.h"

static RowVal *at(const Emit *em, uint32_t val) {
    return &em->row->vals[val];
}

static bool is_gpu(const Emit *em) {
    return em->row->machine == ROW_GPU;
}

static bool lane_sum(const RowVal *v) {
    return (v->op == OP_SUM || v->op == OP_AMAX) && !v->serial;
}

/* Stores --------------------------------------------------------------------------------------- */

static bool is_max(const Emit *em, const RowStore *s) {
    return model_at(em->row->m, s->node)->op == OP_ROW_MAX;
}

// Writes lanes to features of one row: `pointer` + index.
static void write_features(Emit *em, const char *access, const char *pointer, Index index,
                           const char *x) {
    if (em->lane < 0 || !index.lane)
        emit_line(em, "%s_store_n(%s + %s, %s, 1);", access, pointer, index.text, x);
    else if (index.lane != 1) {
        emit_line(em, "%s_store_by(%s + %s, %s, %lld, %s);", access, pointer, index.text, x,
                  (long long)index.lane, em->tail ? "n" : "LANES");
    } else if (em->tail)
        emit_line(em, "%s_store_n(%s + %s, %s, n);", access, pointer, index.text, x);
    else
        emit_line(em, "%s_store(%s + %s, %s);", access, pointer, index.text, x);
}

static const char *old_features(Emit *em, const char *access, const char *pointer, Index index) {
    if (em->lane < 0 || !index.lane)
        return emit_text(em, "%s_splat(%s[%s])", access, pointer, index.text);
    if (index.lane != 1) {
        return emit_text(em, "%s_load_by(%s + %s, %lld, %s)", access, pointer, index.text,
                         (long long)index.lane, em->tail ? "n" : "LANES");
    }
    return emit_text(em, em->tail ? "%s_load_n(%s + %s, n)" : "%s_load(%s + %s)", access, pointer,
                     index.text);
}

static void store_features(Emit *em, uint32_t store, Index index, const char *x) {
    const RowStore *s = &em->row->body->stores[store];
    const char *pointer = emit_text(em, "w%u", store), *access = emit_access(s->dtype);
    if (s->partial || s->add) {
        const char *old = old_features(em, access, pointer, index);
        x = s->partial && is_max(em, s) ? emit_text(em, "v_max_rows(%s, %s)", x, old)
                                        : emit_text(em, "(%s + %s)", old, x);
    }
    write_features(em, access, pointer, index, x);
}

static void store_operand(Emit *em, uint32_t store, Index index, const char *x) {
    emit_line(em, "%s_store_by(operand + (row - row_begin) * operand_stride + %s, %s, "
                  "operand_stride, n);",
              emit_access(em->row->body->stores[store].dtype), index.text, x);
}

static void store_rows(Emit *em, uint32_t store, Index index, const char *x) {
    const RowStore *s = &em->row->body->stores[store];
    const char *access = emit_access(s->dtype);
    long long features = (long long)type_features(model_type(em->row->m, s->node));
    if (s->partial) {
        const char *sums = emit_text(em, "q%u + (%s) * LANES", store, index.text);
        emit_line(em,
                  is_max(em, s)
                      ? "v_store(%s, v_select(live, v_max_rows(%s, v_load(%s)), v_load(%s)));"
                      : "v_store(%s, v_select(live, %s + v_load(%s), v_load(%s)));",
                  sums, x, sums, sums);
        return;
    }
    if (s->operand) {
        store_operand(em, store, index, x);
        return;
    }
    const char *where = features == 1
                            ? emit_text(em, "s%u + row", store)
                            : emit_text(em, "s%u + row * %lld + %s", store, features, index.text);
    if (s->add) {
        x = features == 1
                ? emit_text(em, "%s_load_n(%s, n) + %s", access, where, x)
                : emit_text(em, "%s_load_by(%s, %lld, n) + %s", access, where, features, x);
    }
    if (features == 1)
        emit_line(em, "%s_store_n(%s, %s, n);", access, where, x);
    else
        emit_line(em, "%s_store_by(%s, %s, %lld, n);", access, where, x, features);
}

/* Puts ----------------------------------------------------------------------------------------- */

// A dispatch whose rows lie apart: choice k of the row goes where the route says. Or a collect of which only
// what has a row is stored: choice k goes to its own place, or nowhere. Lanes run along
// features, where a choice's address is found once for all of them (p), or along choices or rows.
typedef struct Put {
    const RowStore *store;
    int ids;      // load of the route
    int choices;
    int64_t features;
} Put;

static bool is_put(const RowStore *s) {
    return s->apart || s->some;
}

static Put put_of(const Emit *em, uint32_t store) {
    const RowBody *b = em->row->body;
    const RowStore *s = &b->stores[store];
    uint32_t x = s->some ? s->node : model_arg(em->row->m, s->node, 0), route = model_arg(em->row->m, s->node, 1);
    Put put = { .store = s, .choices = model_type(em->row->m, x)->dim[0] };
    put.features = type_features(model_type(em->row->m, x)) / put.choices;
    while (b->loads[put.ids].what != WHAT_ROW_OF_SLOT || b->loads[put.ids].node != route) put.ids++;
    return put;
}

static bool is_along_features(const Emit *em, const Put *put) {
    return !em->row->by_rows && (put->features > 1 || put->choices == 1);
}

// What lies before the loops over features.
static void open_puts(Emit *em, int axis) {
    const RowLoop *l = &em->row->loops[em->loop];
    for (uint32_t i = 0; i < em->row->n_sinks; i++) {
        const RowSink *sink = &em->row->sinks[i];
        if (!is_put(&em->row->body->stores[sink->store])) continue;
        Put put = put_of(em, sink->store);
        if (!is_along_features(em, &put) || axis != (put.choices > 1)) continue;
        for (uint32_t t = 0; t < l->n_tasks; t++) {
            if (l->tasks[t].val != sink->val) continue;
            const char *type = emit_dtype(put.store->dtype),
                       *id = emit_text(em, "r%d[%s]", put.ids, axis ? em->axes[0].var : "0");
            if (put.store->some) {
                emit_line(em, "%s *const p%u = %s < 0 ? 0 : w%u + %s * %lldL;", type, sink->store, id, sink->store,
                          axis ? em->axes[0].var : "0", (long long)put.features);
                continue;
            }
            emit_line(em, "%s *const p%u = %s < 0 ? 0 : (%s *)s%u[%s / %lld] + %s %% %lld * %lldL;", type,
                      sink->store, id, type, sink->store, id, (long long)put.store->apart, id,
                      (long long)put.store->apart, (long long)put.features);
        }
    }
}

// As if all slots were rows of one rank, this one; those without a row, `rows` below 0, go nowhere.
static void store_some(Emit *em, const Put *put, const char *access, const char *choice, const char *feature,
                       const char *rows, const char *x, const char *n) {
    const char *first = em->row->by_rows ? emit_text(em, "(vi_splat((int32_t)row) + vi_iota()) * %d + (int32_t)(%s)",
                                                     put->choices, choice)
                                         : emit_text(em, "vi_splat((int32_t)(row * %d + (%s))) + vi_iota()",
                                                     put->choices, choice);
    emit_line(em, "{");
    emit_line(em, "    const int64_t here = (int64_t)s%u;", (unsigned)(put->store - em->row->body->stores));
    emit_line(em, "    %s_put_apart(&here, %d, %s, vi_select(%s >= 0, %s, vi_splat(-1)), %lld, %s, %s);", access,
              INT32_MAX, feature, rows, first, (long long)put->features, x, n);
    emit_line(em, "}");
}

static void store_apart(Emit *em, const Place *place, uint32_t store, const RowShape *space,
                        const int64_t *stride, const char *x) {
    Put put = put_of(em, store);
    int64_t along[MAX_RANK] = { put.choices > 1 }, within[MAX_RANK] = { 0 };
    memcpy(within + 1, stride + 1, sizeof *stride * (MAX_RANK - 1));
    Index choice = emit_index(em, place, space, along, 0),
          feature = emit_index(em, place, space, within, 0);
    const char *access = emit_access(put.store->dtype),
               *n = em->tail || em->row->by_rows ? "n" : "LANES";
    if (is_along_features(em, &put)) {
        emit_line(em, "if (p%u)", store);
        em->indent++;
        write_features(em, access, emit_text(em, "p%u", store), feature, x);
        em->indent--;
        return;
    }
    const char *rows = em->row->by_rows ? emit_text(em, "vi_load_by(l%d + row * %d + %s, %d, n)", put.ids,
                                                    put.choices, choice.text, put.choices)
                                        : emit_text(em, "vi_load_n(r%d + %s, %s)", put.ids, choice.text, n);
    if (put.store->some) {
        store_some(em, &put, access, choice.text, feature.text, rows, x, n);
        return;
    }
    emit_line(em, "%s_put_apart(s%u, %lld, %s, %s, %lld, %s, %s);", access, store,
              (long long)put.store->apart, feature.text, rows, (long long)put.features, x, n);
}

static bool in_array(const RowVal *v) {
    return v->array || (v->memory && row_features(&v->shape) > 1);
}

// Expert rows that may have pads between them (kernel.h: WHAT_OFFSETS); `real` is the mask of those that are none.
static bool has_pads(const Emit *em) {
    return em->row->body->row == ROW_R && em->row->desc->align > 1;
}

// What the store gets of a row that may be a pad: zero, or what changes no record.
static const char *without_pads(Emit *em, uint32_t val, const RowStore *s, const char *x) {
    const char *v = emit_v(at(em, val));
    if (!has_pads(em)) return x;
    const char *none = s->partial && is_max(em, s) ? "v_of_bits(vi_splat(NO_ROWS))" : emit_text(em, "%s_splat(0)", v);
    return emit_text(em, "%s_select(real, %s, %s)", v, x, none);
}

// Where the value `name` of val, or of a piece of it, goes.
static void sink(Emit *em, const Place *place, uint32_t val, const RowShape *space,
                 const int64_t *stride, int64_t offset, const char *name) {
    const RowVal *v = at(em, val);
    Index index = emit_index(em, place, space, stride, offset);
    if (in_array(v)) {
        if (em->row->by_rows)
            emit_line(em, "%s_store(m%u + (%s) * LANES, %s);", emit_v(v), val, index.text, name);
        else
            write_features(em, emit_v(v), emit_text(em, "m%u", val), index, name);
    }
    for (uint32_t i = 0; i < em->row->n_sinks; i++) {
        if (em->row->sinks[i].val != val) continue;
        if (is_put(&em->row->body->stores[em->row->sinks[i].store]))
            store_apart(em, place, em->row->sinks[i].store, space, stride, name);
        else {
            uint32_t store = em->row->sinks[i].store;
            const char *x = without_pads(em, val, &em->row->body->stores[store], name);
            (em->row->by_rows ? store_rows : store_features)(em, store, index, x);
        }
    }
}

/* Lane sums ------------------------------------------------------------------------------------ */

// The first summed axis of a lane sum among the loop's axes.
static int first_summed(const Emit *em, const RowVal *v) {
    const RowShape *from = &at(em, v->args[0])->shape;
    int kept = 0;
    for (int i = 0; i < from->rank; i++) kept += from->dim[i] != 1 && v->shape.dim[i] != 1;
    return kept;
}

static const char *identity(const RowVal *v) {
    if (v->kind != KIND_REAL) return v->op == OP_SUM ? "vi_splat(0)" : "vi_splat(TAKEN)";
    return v->op == OP_SUM ? "v_splat(0.0f)" : "v_splat(-INFINITE)";
}

static void open_sums(Emit *em, int axis) {
    const RowLoop *l = &em->row->loops[em->loop];
    for (uint32_t t = 0; t < l->n_tasks; t++) {
        const RowVal *v = at(em, l->tasks[t].val);
        if (!lane_sum(v) || first_summed(em, v) != axis) continue;
        emit_line(em, "%s a%u = %s;", emit_type(v), l->tasks[t].val, identity(v));
    }
}

static void add_to_sum(Emit *em, const Place *place, uint32_t val) {
    const RowVal *v = at(em, val);
    RowUse uses[MAX_ARGS];
    row_uses(em->row, val, uses);
    const char *x = emit_read(em, place, uses);
    if (em->tail) x = emit_text(em, "%s_select(live, %s, %s)", emit_v(v), x, identity(v));
    if (v->op == OP_SUM)
        emit_line(em, "a%u = a%u + %s;", val, val, x);
    else
        emit_line(em, "a%u = %s_max(%s, a%u);", val, emit_v(v), x, val);
}

static void close_sums(Emit *em, int axis) {
    const RowLoop *l = &em->row->loops[em->loop];
    for (uint32_t t = 0; t < l->n_tasks; t++) {
        uint32_t val = l->tasks[t].val;
        const RowVal *v = at(em, val);
        if (!lane_sum(v) || first_summed(em, v) != axis) continue;
        const char *fold =
            emit_text(em, "%s_%s(a%u)", emit_v(v), v->op == OP_SUM ? "sum" : "max_lane", val);
        Place place = { .n = axis };
        for (int i = 0; i < axis; i++) place.axis[i] = i;
        Index index = emit_index(em, &place, &v->shape, v->map.stride, 0);
        if (in_array(v)) emit_line(em, "m%u[%s] = %s;", val, index.text, fold);
        if (!axis) emit_define(em, val, emit_text(em, "%s_splat(%s)", emit_v(v), fold));
    }
}

/* Loops ---------------------------------------------------------------------------------------- */

static void task(Emit *em, const Place *place, const RowTask *task) {
    uint32_t val = task->val;
    const RowVal *v = at(em, val);
    if (lane_sum(v)) {
        add_to_sum(em, place, val);
    } else if (v->op == ROW_PIECES) {
        RowUse uses[MAX_ARGS];
        row_uses(em->row, val, uses);
        const RowPiece *piece = &v->pieces[task->piece];
        const char *name = emit_read(em, place, &uses[task->piece]);
        if (row_features(&v->shape) == 1) name = emit_define(em, val, name);
        sink(em, place, val, &piece->shape, piece->stride, piece->offset, name);
    } else {
        const char *name = emit_value(em, place, val);
        sink(em, place, val, &v->shape, v->map.stride, 0, name);
    }
}

static void body(Emit *em) {
    const RowLoop *l = &em->row->loops[em->loop];
    Place place = { .n = l->space.rank };
    for (int i = 0; i < place.n; i++) place.axis[i] = i;
    for (uint32_t t = 0; t < l->n_tasks; t++) task(em, &place, &l->tasks[t]);
}

// The axes from `axis` on, those that are one loop as one.
static void nest(Emit *em, int axis) {
    open_puts(em, axis);
    if (axis == em->n_loop) {
        body(em);
        return;
    }
    open_sums(em, axis);
    int last = axis;
    int64_t size = em->axes[axis].dim;
    while (em->axes[last].merged) size *= em->axes[++last].dim;
    const char *var = em->axes[last].var;
    bool lanes = last == em->lane;
    emit_line(em, "for (int64_t %s = 0; %s < %lld; %s%s) {", var, var, (long long)size, var,
              lanes ? " += LANES" : "++");
    em->indent++;
    em->tail = lanes && size % emit_lanes(em);
    uint32_t mark = em->n_memos;
    if (em->tail) {
        emit_line(em, "const int64_t n = min_of(%lld - %s, LANES);", (long long)size, var);
        emit_line(em, "const VI live = vi_below(n);");
    }
    nest(em, last + 1);
    em->n_memos = mark;
    em->tail = false;
    em->indent--;
    emit_line(em, "}");
    close_sums(em, axis);
}

// Sizes of merged loops decide whether there is a tail, so the dry run treats every size as odd.
static void find_loops(Emit *em) {
    em->dry = true;
    uint32_t mark = em->n_memos, names = em->n_names;
    nest(em, 0);
    em->n_memos = mark;
    em->n_names = names;
    em->dry = false;
    const RowLoop *l = &em->row->loops[em->loop];
    for (uint32_t t = 0; t < l->n_tasks; t++) {
        const RowVal *v = at(em, l->tasks[t].val);
        int summed = lane_sum(v) ? first_summed(em, v) : 0;
        if (summed > 0) em->axes[summed - 1].apart = true;
    }
    for (int i = 0; i + 1 < em->n_loop; i++) em->axes[i].merged = !em->axes[i].apart;
}

static void heading(Emit *em, const RowLoop *l) {
    Text text = { 0 };
    text_add(&text, "// [");
    for (int i = 0; i < l->space.rank; i++) text_printf(&text, i ? ", %d" : "%d", l->space.dim[i]);
    text_add(&text, "]");
    for (uint32_t t = 0; t < l->n_tasks; t++) {
        uint32_t val = l->tasks[t].val;
        text_printf(&text, "%s %s %u", t ? "," : "", row_op_name(at(em, val)->op), val);
        for (uint32_t i = 0; i < em->row->n_sinks; i++) {
            if (em->row->sinks[i].val == val)
                text_printf(&text, " -> s%u", em->row->sinks[i].store);
        }
    }
    emit_line(em, "%s", text_cstr(&text));
    text_finish(&text);
}

// k passes over the keys, which are used up.
static void top_k(Emit *em, const RowLoop *l) {
    uint32_t val = l->tasks->val, from = at(em, val)->args[0];
    const RowVal *v = at(em, val), *keys = at(em, from);
    bool rows = em->row->by_rows, one = row_features(&v->shape) == 1;
    int32_t n = keys->shape.dim[keys->shape.rank - 1], k = v->attr.k;
    long long times = (long long)(row_features(&v->shape) / k);
    const char *key = emit_text(em, "m%u + i * %d%s", from, n, rows ? " * LANES" : "");
    if (one) {
        emit_line(em, "%s t%u%s;", rows ? "VI" : "int32_t", val, rows ? "" : "[1]");
        if (rows)
            emit_line(em, "t%u = top_one_rows(m%u, %d);", val, from, n);
        else
            emit_line(em, "top_row(m%u, %d, 1, t%u);", from, n, val);
        emit_define(em, val, emit_text(em, rows ? "t%u" : "vi_splat(t%u[0])", val));
        if (v->array) emit_line(em, rows ? "vi_store(m%u, x%u);" : "m%u[0] = t%u[0];", val, val);
        return;
    }
    emit_line(em, "for (int64_t i = 0; i < %lld; i++) {", times);
    if (rows) {
        emit_line(em,
                  "    for (int64_t k = 0; k < %d; k++) vi_store(m%u + (i * %d + k) * LANES, "
                  "top_one_rows(%s, %d));",
                  k, val, k, key, n);
    } else {
        emit_line(em, "    top_row(%s, %d, %d, m%u + i * %d);", key, n, k, val, k);
    }
    emit_line(em, "}");
}

static void loop(Emit *em, int number) {
    const RowLoop *l = &em->row->loops[number];
    heading(em, l);
    if (is_gpu(em)) emit_line(em, "__syncwarp();");
    em->loop = number;
    if (l->alone) {
        top_k(em, l);
        return;
    }
    em->n_loop = em->n_axes = l->space.rank;
    for (int i = 0; i < em->n_loop; i++) {
        bool last = i == em->n_loop - 1;
        em->axes[i] = (Axis){ .dim = l->space.dim[i],
                              .var = last && !em->row->by_rows ? "j" : emit_text(em, "i%d", i) };
    }
    em->lane = em->row->by_rows ? -1 : em->n_loop - 1;
    find_loops(em);
    nest(em, 0);
}

static void loops(Emit *em, bool rowless) {
    em->rowless = rowless;
    em->n_memos = 0;
    for (uint32_t i = 0; i < em->row->n_loops; i++) {
        if (em->row->loops[i].rowless == rowless) loop(em, (int)i);
    }
}

/* The frame ------------------------------------------------------------------------------------ */

// Loads, then stores, in the order of the body: those that are memory of the plan.
static void list_memory(const RowBody *b, const char *load, const char *store, bool types,
                        Text *out) {
    for (uint32_t i = 0; i < b->n_loads; i++) {
        if (b->loads[i].what == WHAT_ACC) continue;
        if (types)
            text_printf(out, "const %s *", b->loads[i].apart ? "int64_t" : emit_dtype(b->loads[i].dtype));
        text_printf(out, "%s%u, ", load, i);
    }
    for (uint32_t i = 0; i < b->n_stores; i++) {
        if (b->stores[i].operand) continue;
        if (types)
            text_printf(out, "%s *", b->stores[i].apart ? "const int64_t" : emit_dtype(b->stores[i].dtype));
        text_printf(out, "%s%u, ", store, i);
    }
}

void row_memory(const RowBody *body, const char *load_prefix, const char *store_prefix,
                Text *parameters, Text *arguments) {
    if (parameters) list_memory(body, load_prefix, store_prefix, true, parameters);
    if (arguments) list_memory(body, load_prefix, store_prefix, false, arguments);
}

static void parameters(Emit *em) {
    const RowBody *b = em->row->body;
    list_memory(b, "l", "s", true, em->out);
    if (is_gpu(em)) { // a kernel's own parameters, and nothing after them
        while (em->out->bytes && strchr(", ", em->out->at[em->out->bytes - 1]))
            em->out->at[--em->out->bytes] = 0;
        return;
    }
    text_add(em->out, "const float *const *acc, const int64_t *acc_stride, ");
    for (uint32_t i = 0; i < b->n_stores; i++) {
        if (!b->stores[i].operand) continue;
        text_printf(em->out, "%s *operand, int64_t operand_stride, ",
                    emit_dtype(b->stores[i].dtype));
    }
}

static int64_t scratch_bytes(const Emit *em) {
    int64_t bytes = 0;
    for (uint32_t val = 1; val < em->row->n_vals; val++) {
        const RowVal *v = at(em, val);
        if (v->live && in_array(v))
            bytes += 4 * row_features(&v->shape) * (em->row->by_rows ? emit_lanes(em) : 1);
    }
    return bytes;
}

static void memory(Emit *em) {
    const Row *row = em->row;
    int64_t used = 0; // of a warp's scratch, in numbers
    const char *where = scratch_bytes(em) > ROW_STACK ? "static _Thread_local " : "";
    for (uint32_t val = 1; val < row->n_vals; val++) {
        const RowVal *v = at(em, val);
        if (!v->live) continue;
        long long n = (long long)row_features(&v->shape);
        if (v->op == OP_CONSTANT) {
            Text text = { 0 };
            for (long long i = 0; i < n; i++) {
                text_add(&text, i % 8 ? ", " : i ? ",\n        " : "\n        ");
                text_add_double(&text, (float)row->m->constants[v->attr.index + (uint32_t)i]);
                text_add(&text, "f");
            }
            emit_line(em, "static const float t%u[%lld] = {%s\n    };", val, n, text_cstr(&text));
            text_finish(&text);
        } else if (!row_leaf(v) && v->op != ROW_VIEW && in_array(v)) {
            if (is_gpu(em)) {
                emit_line(em, "%s *const m%u = (%s *)scratch + %lld;", emit_c_type(v), val,
                          emit_c_type(v), (long long)used);
                used += n * (row->by_rows ? emit_lanes(em) : 1);
                continue;
            }
            emit_line(em, "%s_Alignas(64) %s m%u[%lld%s];", where, emit_c_type(v), val, n,
                      row->by_rows ? " * LANES" : "");
        }
    }
}

static bool finds(const Row *row, RowFind how) {
    for (uint32_t i = 0; i < row->body->n_loads; i++) {
        if (emit_find(row, i) == how) return true;
    }
    return false;
}

static int32_t experts_of(const Row *row) {
    return row->desc->experts; // of this rank
}

static bool asks_expert(const Emit *em) {
    return finds(em->row, FIND_EXPERT) || has_pads(em);
}

// Numbers of all partial records of a tile.
static int64_t record_numbers(const Row *row) {
    int64_t n = 0;
    for (uint32_t i = 0; i < row->body->n_stores; i++) {
        const RowStore *s = &row->body->stores[i];
        if (s->partial) n += type_features(model_type(row->m, s->node));
    }
    return n * (row->by_rows && row->machine == ROW_GPU ? 32 : 1);
}

// A warp's records: in shared memory behind the scratch of all warps.
static void start_records(Emit *em) {
    const Row *row = em->row;
    int64_t used = 0;
    for (uint32_t i = 0; i < row->body->n_stores; i++) {
        const RowStore *s = &row->body->stores[i];
        if (!s->partial) continue;
        long long n = (long long)type_features(model_type(row->m, s->node)) *
                      (row->by_rows ? emit_lanes(em) : 1);
        emit_line(em, "float *%c%u = records + warp_id() * %lld + %lld;", row->by_rows ? 'q' : 'w',
                  i, (long long)record_numbers(row), (long long)used);
        emit_line(em, "for (int64_t j = 0; j < %lld; j += LANES) v_store_n(%c%u + j, %s, %lld - j);",
                  n, row->by_rows ? 'q' : 'w', i,
                  is_max(em, s) ? "v_of_bits(vi_splat(NO_ROWS))" : "v_splat(0.0f)", n);
        used += n;
    }
    if (row->body->row == ROW_R && !row->by_rows && asks_expert(em)) {
        emit_line(em, "int32_t expert_now = first < last ? expert_of(l%d, %d, first) : 0;",
                  row->offsets, experts_of(row));
    }
}

// Records of warps joined in their order, then, of rows on lanes, over lanes.
static void finish_records(Emit *em) {
    const Row *row = em->row;
    int64_t used = 0;
    if (record_numbers(row)) emit_line(em, "__syncthreads();");
    for (uint32_t i = 0; i < row->body->n_stores; i++) {
        const RowStore *s = &row->body->stores[i];
        if (!s->partial) continue;
        long long features = (long long)type_features(model_type(row->m, s->node)),
                  n = (long long)record_numbers(row);
        bool max = is_max(em, s);
        // A warp for a feature of which every lane has a part, or a thread for a feature.
        emit_line(em, row->by_rows
                          ? "for (int64_t i = warp_id(); i < %lld; i += blockDim.x / WARP) {"
                          : "for (int64_t i = threadIdx.x; i < %lld; i += blockDim.x) {",
                  features);
        emit_line(em, "    float x = %s;", max ? "__int_as_float(NO_ROWS)" : "0.0f");
        emit_line(em, "    for (int w = 0; w < blockDim.x / WARP; w++) {");
        const char *part =
            row->by_rows ? emit_text(em, "records[w * %lld + %lld + i * LANES + lane_id()]", n,
                                     (long long)used)
                         : emit_text(em, "records[w * %lld + %lld + i]", n, (long long)used);
        emit_line(em, max ? "        x = v_max_rows(%s, x);" : "        x = x + %s;", part);
        emit_line(em, "    }");
        if (row->by_rows) emit_line(em, "    x = %s(x);", max ? "v_max_rows_lane" : "v_sum");
        emit_line(em, row->by_rows ? "    if (lane_id() == 0) s%u[blockIdx.x * %lldL + i] = x;"
                                   : "    s%u[blockIdx.x * %lldL + i] = x;",
                  i, features);
        emit_line(em, "}");
        used += features * (row->by_rows ? emit_lanes(em) : 1);
    }
}

static void start_tile(Emit *em) {
    const Row *row = em->row;
    if (is_gpu(em)) {
        start_records(em);
        return;
    }
    for (uint32_t i = 0; i < row->body->n_stores; i++) {
        const RowStore *s = &row->body->stores[i];
        if (!s->partial) continue;
        long long n = (long long)type_features(model_type(row->m, s->node));
        const char *empty = is_max(em, s) ? "v_of_bits(vi_splat(NO_ROWS))" : "v_splat(0.0f)";
        emit_line(em, "float *w%u = s%u + tile * %lld;", i, i, n);
        if (row->by_rows) {
            emit_line(em, "_Alignas(64) float q%u[%lld * LANES];", i, n);
            emit_line(em, "for (int64_t i = 0; i < %lld; i++) v_store(q%u + i * LANES, %s);", n, i,
                      empty);
        } else {
            emit_line(em,
                      "for (int64_t j = 0; j < %lld; j += LANES) v_store_n(w%u + j, %s, %lld - j);",
                      n, i, empty, n);
        }
    }
    if (row->body->row == ROW_R) emit_line(em, "int32_t expert_now = 0;");
}

static void finish_tile(Emit *em) {
    const Row *row = em->row;
    if (is_gpu(em)) {
        finish_records(em);
        return;
    }
    for (uint32_t i = 0; row->by_rows && i < row->body->n_stores; i++) {
        const RowStore *s = &row->body->stores[i];
        if (!s->partial) continue;
        emit_line(em, "for (int64_t i = 0; i < %lld; i++) w%u[i] = %s(v_load(q%u + i * LANES));",
                  (long long)type_features(model_type(row->m, s->node)), i,
                  is_max(em, s) ? "v_max_rows_lane" : "v_sum", i);
    }
}

static void start_row(Emit *em) {
    const Row *row = em->row;
    const RowBody *b = row->body;
    if (has_pads(em)) {
        emit_line(em, "while (row >= l%d[expert_now + 1]) expert_now++;", row->offsets);
        emit_line(em, "const VI real = vi_splat(-(row < l%d[%d + expert_now]));", row->offsets, experts_of(row) + 1);
    }
    for (uint32_t i = 0; i < b->n_loads; i++) {
        long long n = (long long)emit_load_features(row, i);
        const char *type = emit_dtype(b->loads[i].dtype);
        static const char *const which[] = { "row", "", "expert_now", "row / sequence" };
        RowFind find = emit_find(row, i);
        if (find == FIND_ACC) {
            int acc = emit_acc(row, i);
            emit_line(em, "const float *r%u = acc[%d] + (row - row_begin) * acc_stride[%d];", i,
                      acc, acc);
            continue;
        }
        if (find == FIND_EXPERT)
            emit_line(em, "while (row >= l%d[expert_now + 1]) expert_now++;", row->offsets);
        if (find != FIND_NONE && !b->loads[i].apart)
            emit_line(em, "const %s *r%u = l%u + %s * %lld;", type, i, i, which[find], n);
    }
    for (uint32_t i = 0; i < b->n_stores; i++) {
        const RowStore *s = &b->stores[i];
        if (s->partial || s->apart) continue;
        if (s->operand) {
            emit_line(em, "%s *w%u = operand + (row - row_begin) * operand_stride;",
                      emit_dtype(s->dtype), i);
            continue;
        }
        emit_line(em, "%s *w%u = s%u + row * %lld;", emit_dtype(s->dtype), i, i,
                  (long long)type_features(model_type(row->m, s->node)));
    }
}

static void start_rows(Emit *em) {
    emit_line(em, "const int64_t n = min_of(last - row, LANES);");
    emit_line(em, "const VI live = vi_below(n);");
    if (is_gpu(em)) {
        const char *mine = "(lane_id() < n ? row + lane_id() : row)";
        if (asks_expert(em))
            emit_line(em, "const VI expert = expert_of(l%d, %d, %s);", em->row->offsets,
                      experts_of(em->row), mine);
        if (has_pads(em))
            emit_line(em, "const VI real = live && %s < l%d[%d + expert];", mine, em->row->offsets,
                      experts_of(em->row) + 1);
        if (finds(em->row, FIND_SEQUENCE))
            emit_line(em, "const VI sequence = (int32_t)(%s / %lld);", mine,
                      (long long)em->row->desc->sequence);
        return;
    }
    if (has_pads(em)) emit_line(em, "VI real;");
    if (asks_expert(em)) {
        emit_line(em, "VI expert;");
        emit_line(em, "for (int64_t i = 0; i < LANES; i++) {");
        emit_line(em, "    while (i < n && row + i >= l%d[expert_now + 1]) expert_now++;",
                  em->row->offsets);
        emit_line(em, "    expert[i] = expert_now;");
        if (has_pads(em))
            emit_line(em, "    real[i] = -(i < n && row + i < l%d[%d + expert_now]);", em->row->offsets,
                      experts_of(em->row) + 1);
        emit_line(em, "}");
    }
    if (finds(em->row, FIND_SEQUENCE)) {
        emit_line(em, "VI sequence;");
        emit_line(em,
                  "for (int64_t i = 0; i < LANES; i++) sequence[i] = (int32_t)((row + i) / %lld);",
                  (long long)em->row->desc->sequence);
    }
}

static const char *filling(Emit *em, int indent, void (*write)(Emit *)) {
    Text text = { 0 };
    em->out = &text;
    em->indent = indent;
    write(em);
    while (text.bytes && text.at[text.bytes - 1] == '\n') text.at[--text.bytes] = 0;
    const char *copy = arena_strdup(em->arena, text_cstr(&text));
    text_finish(&text);
    return copy;
}

static void write_before(Emit *em) {
    if (!em->row->by_rows && finds(em->row, FIND_SEQUENCE)) {
        emit_line(em, "const int64_t sequence = %lld;", (long long)em->row->desc->sequence);
    }
    loops(em, true);
}

static void write_row(Emit *em) {
    if (em->row->by_rows)
        start_rows(em);
    else
        start_row(em);
    loops(em, false);
}

static Status check_scratch(Emit *em) {
    int64_t bytes = scratch_bytes(em);
    if (bytes <= ROW_SCRATCH) return OK;
    return status_fail(
        ERR_INPUT,
        "a row program keeps %lld MiB per thread, expected at most %d\n"
        "  hint: reshapes, transposes and slices of very wide computed rows are what is kept",
        (long long)(bytes >> 20), ROW_SCRATCH >> 20);
}

static const char *number(Emit *em, int64_t n) {
    return emit_text(em, "%lld", (long long)n);
}

Status row_emit(Row *row, const char *name, Text *out) {
    Emit em = { .row = row, .arena = row->arena };
    TRY(check_scratch(&em));
    const char *rows = number(&em, row->desc->rows);
    if (row->body->row == ROW_R) {
        rows = emit_text(&em, "min_of(%s, l%d[%d])", rows, row->offsets,
                         experts_of(row));
    }
    char tile[16];
    snprintf(tile, sizeof tile, "%d", ROW_TILE);
    const Hole holes[] = {
        { "name", name },
        { "parameters", filling(&em, 0, parameters) },
        { "rows", rows },
        { "tile", tile },
        { "step", row->by_rows ? "LANES" : "1" },
        { "memory", filling(&em, 1, memory) },
        { "before", filling(&em, 1, write_before) },
        { "start", filling(&em, 2, start_tile) },
        { "row", filling(&em, 3, write_row) },
        { "finish", filling(&em, 2, finish_tile) },
    };
    return template_expand("cpu/row.c", holes, COUNT_OF(holes), out);
}

/* On a GPU ------------------------------------------------------------------------------------- */

enum {
    GPU_WARPS = 8,             // per block, where shared memory has room for as many
    GPU_SHARED = 96 << 10,     // bytes per block that every GPU from sm_80 on has
    GPU_AGAIN = 8,             // rows per warp where something is computed once for all of them
};

// Of every warp: its own scratch and records.
static int64_t warp_bytes(const Emit *em) {
    return scratch_bytes(em) + 4 * record_numbers(em->row);
}

// Warps per block. Where not even one fits, wide values are computed again rather than kept; what has to be
// kept may take all that a block has on this one architecture.
static Status gpu_warps(const Emit *em, bool partial, const char *target, int *warps) {
    PlanTarget parsed;
    if (!plan_target(target, &parsed)) return status_fail(ERR_INTERNAL, "no target \"%s\"", target);
    int64_t bytes = warp_bytes(em), most = plan_shared_bytes(&parsed);
    while (bytes > GPU_SHARED && row_keep_less(em->row)) bytes = warp_bytes(em);
    *warps = bytes > GPU_SHARED ? bytes <= most : bytes ? (int)min_i64(GPU_WARPS, GPU_SHARED / bytes) : GPU_WARPS;
    while (*warps & (*warps - 1)) (*warps)--; // of a tile each has the same share
    if (partial && em->row->by_rows) *warps = (int)min_i64(*warps, ROW_TILE / emit_lanes(em));
    if (*warps) return OK;
    return status_fail(ERR_INPUT,
                       "a row program keeps %lld KiB per row, expected at most %lld on %s\n"
                       "  hint: reshapes, transposes and slices of very wide computed rows and "
                       "sums over rows are what is kept",
                       (long long)(bytes >> 10), (long long)(most >> 10), target);
}

static bool has_rowless(const Row *row) {
    for (uint32_t i = 0; i < row->n_loops; i++)
        if (row->loops[i].rowless) return true;
    return false;
}

Status row_emit_gpu(Row *row, const char *entry, const char *target, Text *out, CudaShape *shape) {
    Emit em = { .row = row, .arena = row->arena };
    bool partial = record_numbers(row) != 0;
    int warps;
    TRY(gpu_warps(&em, partial, target, &warps));
    int step = row->by_rows ? emit_lanes(&em) : 1;
    int64_t per_warp = partial             ? ROW_TILE / warps
                       : has_rowless(row)  ? max_i64(GPU_AGAIN, step)
                                           : step;
    int64_t scratch = scratch_bytes(&em) / 4;
    *shape = (CudaShape){ .tiles = div_up(row->desc->rows, per_warp * warps),
                          .threads = warps * 32,
                          .shared = (int32_t)(4 * warps * (scratch + record_numbers(row))) };
    const char *rows = number(&em, row->desc->rows);
    if (row->body->row == ROW_R)
        rows = emit_text(&em, "min_of(%s, l%d[%d])", rows, row->offsets, experts_of(row));
    const char *records =
        partial ? emit_text(&em, "    float *const records = (float *)memory + %lld;\n",
                            (long long)(warps * scratch))
                : "";
    const Hole holes[] = {
        { "entry", entry },
        { "parameters", filling(&em, 0, parameters) },
        { "threads", number(&em, shape->threads) },
        { "scratch", number(&em, scratch) },
        { "per_warp", number(&em, per_warp) },
        { "step", number(&em, step) },
        { "tile", number(&em, ROW_TILE) },
        { "partial", partial ? "1" : "0" },
        { "rows", rows },
        { "memory", emit_text(&em, "%s%s", records, filling(&em, 1, memory)) },
        { "before", filling(&em, 1, write_before) },
        { "start", filling(&em, 2, start_tile) },
        { "row", filling(&em, 3, write_row) },
        { "finish", filling(&em, 2, finish_tile) },
    };
    TRY(template_expand("cuda/rows.h", NULL, 0, out));
    return template_expand("cuda/row.cu", holes, COUNT_OF(holes), out);
}
