// SPDX-License-Identifier: Apache-2.0
// Operations with options, sources, and what dsl/ops.lua builds the named row operations from
// (`core`, never seen by a spec).
#include <float.h>
#include <math.h>
#include <stdio.h>

#include "compiler/spec/internal.h"

/* Reading arguments --------------------------------------------------------------------------- */

static int64_t option_integer(lua_State *L, int i, const char *name, const char *op,
                              int64_t otherwise, int64_t lo) {
    if (!has_option(L, i, name)) return otherwise;
    int64_t n = need_integer(L, lua_gettop(L), op, name, lo, INT32_MAX);
    lua_pop(L, 1);
    return n;
}

static double option_number(lua_State *L, int i, const char *name, const char *op,
                            double otherwise) {
    if (!has_option(L, i, name)) return otherwise;
    double x = need_number(L, lua_gettop(L), op, name);
    lua_pop(L, 1);
    return x;
}

// One of `words` (as many as values 0..n-1); fails naming them.
static int need_choice(lua_State *L, int i, const char *op, const char *what,
                       const char *const *words, int n) {
    const char *given = lua_type(L, i) == LUA_TSTRING ? lua_tostring(L, i) : NULL;
    Text list = { 0 };
    for (int k = 0; k < n; k++) {
        if (given && !strcmp(given, words[k])) {
            text_finish(&list);
            return k;
        }
        text_printf(&list, "%s\"%s\"", !k ? "" : k + 1 < n ? ", " : " or ", words[k]);
    }
    lua_pushstring(L, text_cstr(&list));
    text_finish(&list);
    fault_simple(spec_of(L), "%s: %s must be %s, got %s", op, what, lua_tostring(L, -1),
                 describe(L, i));
}

static int need_precision(lua_State *L, int i, const char *op, int n) {
    static const char *const words[] = { "fp32", "bf16", "mxfp8" };
    return PRECISION_FP32 + need_choice(L, i, op, "the precision", words, n);
}

// Sizes from arguments i.. or from the list at i, into dims; returns their number.
static int need_sizes(lua_State *L, int i, const char *op, int32_t *dims, int64_t lo) {
    int last = lua_gettop(L);
    bool list = last == i && lua_istable(L, i);
    int n = list ? (int)min_i64(luaL_len(L, i), MAX_RANK + 1) : last - i + 1;
    if (n > MAX_RANK) fault_simple(spec_of(L), "%s: at most %d feature axes", op, MAX_RANK);
    for (int k = 0; k < n; k++) {
        char what[16];
        snprintf(what, sizeof what, "axis %d", k + 1);
        if (list)
            lua_geti(L, i, k + 1);
        else
            lua_pushvalue(L, i + k);
        dims[k] = (int32_t)need_integer(L, lua_gettop(L), op, what, lo, INT32_MAX);
        lua_pop(L, 1);
    }
    return n;
}

// Feature axis given as 1.. or -1..; 0-based.
static int need_axis(lua_State *L, int i, const char *op, uint32_t x) {
    Spec *S = spec_of(L);
    int rank = model_type(S->m, x)->rank;
    if (is_tensor(L, i)) {
        fault_raise(
            S,
            &(Fault){ .hint = "put it in parentheses to keep its first result: (m.split(x, 2))" },
            "%s: the axis is a tensor; a call that gives two results was passed on whole", op);
    }
    int64_t axis =
        lua_isnoneornil(L, i) ? -1 : need_integer(L, i, op, "the axis", INT32_MIN, INT32_MAX);
    int64_t at = axis < 0 ? rank + axis : axis - 1;
    if (at < 0 || at >= rank)
        fault_simple(S, "%s: no feature axis %lld in %s", op, (long long)axis, type_text(S, x));
    return (int)at;
}

static uint32_t generator(Spec *S, Op op, int32_t k) {
    spec_here(S);
    return spec_checked(S, model_generator(S->m, op, k, NULL, 0), NULL);
}

static int push(lua_State *L, uint32_t id) {
    push_tensor(L, id);
    return 1;
}

/* Sources ------------------------------------------------------------------------------------- */

static int op_tokens(lua_State *L) {
    int64_t k = lua_isnoneornil(L, 1) ? 0 : need_integer(L, 1, "tokens", "k", 0, 1 << 20);
    return push(L, generator(spec_of(L), OP_TOKENS, (int32_t)k));
}

static int op_labels(lua_State *L) {
    int64_t k = lua_isnoneornil(L, 1) ? 1 : need_integer(L, 1, "labels", "k", 1, 1 << 20);
    return push(L, generator(spec_of(L), OP_LABELS, (int32_t)k));
}

static int op_positions(lua_State *L) { return push(L, generator(spec_of(L), OP_POSITIONS, 0)); }

// Two calls in one scope draw different numbers: each has an address of its own.
static int op_uniform(lua_State *L) {
    Spec *S = spec_of(L);
    Type type = { .kind = KIND_REAL, .row = ROW_T };
    type.rank = (uint8_t)need_sizes(L, 1, "uniform", type.dim, 1);
    uint32_t addr = scope_address(S, "uniform");
    for (int i = 2; known_at(S, addr)->record; i++) {
        sandbox_charge(S, 8);
        char name[32];
        snprintf(name, sizeof name, "uniform.%d", i);
        addr = scope_address(S, name);
    }
    Attr attr = { .raw = { 0, 0 } };
    attr.index = addr;
    uint32_t id = spec_node(S, OP_UNIFORM, &attr, &type, NULL, 0);
    known_at(S, addr)->record = id;
    return push(L, id);
}

static int op_constant(lua_State *L) {
    Spec *S = spec_of(L);
    if (!lua_istable(L, 1))
        fault_simple(S, "constant takes a list of numbers, got %s", describe(L, 1));
    lua_Integer n = luaL_len(L, 1);
    if (n < 1) fault_simple(S, "constant: the list has no numbers");
    if (n > LIMIT_CONSTANTS - (lua_Integer)S->m->n_constants)
        fault_simple(S, "constant: more than %d numbers", (int)LIMIT_CONSTANTS);
    sandbox_charge(S, n + (int64_t)S->m->n_constants / 16); // the model looks for an equal vector
    double *values = lua_newuserdatauv(L, sizeof *values * (size_t)n, 0);
    for (lua_Integer i = 0; i < n; i++) {
        lua_geti(L, 1, i + 1);
        values[i] = need_number(L, lua_gettop(L), "constant", "every entry");
        lua_pop(L, 1);
    }
    spec_here(S);
    return push(L, spec_checked(S, model_constant(S->m, values, (int)n), NULL));
}

/* Contractions -------------------------------------------------------------------------------- */

// Whether the line that called matmul, through linear perhaps, is the user's: a precision that a
// built-in block states is not what the user asked for.
static bool is_stated_by_user(lua_State *L) {
    lua_Debug ar;
    for (int level = 1; lua_getstack(L, level, &ar); level++) {
        lua_getinfo(L, "S", &ar);
        if (*ar.source == '@') return true;
        if (*ar.what != 'C' && strcmp(ar.source, "=dsl/ops.lua")) return false;
    }
    return false;
}

static int op_matmul(lua_State *L) {
    Spec *S = spec_of(L);
    uint32_t args[2] = { need_tensor(L, 1, "matmul", "x"), need_tensor(L, 2, "matmul", "w") };
    check_options(L, 3, "matmul", "over each precision");
    Attr attr = { .raw = { 0, 0 } };
    attr.mm.over = (int32_t)option_integer(L, 3, "over", "matmul", 1, 1);
    attr.mm.each = (int32_t)option_integer(L, 3, "each", "matmul", 0, 0);
    if (has_option(L, 3, "precision"))
        attr.mm.precision = (uint8_t)need_precision(L, lua_gettop(L), "matmul", 3);
    uint32_t id = spec_node(S, OP_MATMUL, &attr, NULL, args, 2);
    int hops = 0;
    uint32_t weight = weight_of(S->m, args[1], &hops);
    sandbox_charge(S, hops);
    if (weight && attr.mm.precision) { // stated here: rules may not change it
        uint32_t p = S->m->nodes[weight].attr.index;
        S->m->params[p].precision = attr.mm.precision;
        S->m->params[p].precision_loc = is_stated_by_user(L) ? place_now(S) : (Loc){ 0 };
        S->origins[p].precision_final = true;
    }
    return push(L, id);
}

static bool has_wide_heads(Spec *S, uint32_t x) {
    const Type *t = model_type(S->m, x);
    return t->rank && t->dim[t->rank - 1] > MODEL_MAX_HEAD;
}

// The field behind a wrong attend: of m.attention, or of m.mla, which has other names for widths.
static const char *attend_blames(Spec *S, uint32_t q, uint32_t v) {
    if (!has_wide_heads(S, q) && !has_wide_heads(S, v)) return "kv_heads";
    if (place_blames(S, "head_dim")) return "head_dim";
    return has_wide_heads(S, q) ? "nope_dim" : "v_dim";
}

static int op_attend(lua_State *L) {
    Spec *S = spec_of(L);
    uint32_t args[5] = { need_tensor(L, 1, "attend", "q"), need_tensor(L, 2, "attend", "k"),
                         need_tensor(L, 3, "attend", "v"), generator(S, OP_SEGMENTS, 0) };
    check_options(L, 4, "attend", "causal window sinks scale");
    int n = 4;
    Attr attr = { .raw = { 0, 0 } };
    attr.attend.causal = true;
    if (lua_istable(L, 4) && lua_getfield(L, 4, "causal") != LUA_TNIL) {
        if (!lua_isboolean(L, -1))
            fault_simple(S, "attend: causal must be true or false, got %s", describe(L, -1));
        attr.attend.causal = lua_toboolean(L, -1);
    }
    attr.attend.window = (int32_t)option_integer(L, 4, "window", "attend", 0, 1);
    if (has_option(L, 4, "sinks")) args[n++] = need_tensor(L, lua_gettop(L), "attend", "sinks");
    const Type *q = model_type(S->m, args[0]);
    double scale = q->rank ? 1 / sqrt(q->dim[q->rank - 1]) : 1;
    scale = option_number(L, 4, "scale", "attend", scale);
    if (!((float)scale > 0 && scale <= FLT_MAX))
        fault_simple(S, "attend: scale must be a finite number above 0, got %.14g", scale);
    attr.attend.scale = (float)scale;
    spec_here(S);
    return push(L, spec_checked(S, model_node(S->m, OP_ATTEND, &attr, NULL, args, n),
                                attend_blames(S, args[0], args[2])));
}

/* Whole rows and moves ------------------------------------------------------------------------ */

static int op_rotate(lua_State *L) {
    static const char *const pairs[] = { "half", "adjacent" };
    Spec *S = spec_of(L);
    uint32_t args[3] = { need_tensor(L, 1, "rotate", "x"), need_tensor(L, 2, "rotate", "freq"),
                         generator(S, OP_POSITIONS, 0) };
    check_options(L, 3, "rotate", "pairs factor");
    Attr attr = { .raw = { 0, 0 } };
    attr.turn.sign = 1;
    attr.turn.factor = (float)option_number(L, 3, "factor", "rotate", 1);
    if (has_option(L, 3, "pairs"))
        attr.turn.pairs = (uint8_t)need_choice(L, lua_gettop(L), "rotate", "pairs", pairs, 2);
    spec_here(S);
    return push(L, spec_checked(S, model_node(S->m, OP_ROTATE, &attr, NULL, args, 3), "dims"));
}

static int with_count(lua_State *L, Op op, const char *what, int64_t lo, int64_t hi,
                      const char *field) {
    Spec *S = spec_of(L);
    const char *name = op_info[op].text;
    uint32_t x = need_tensor(L, 1, name, "the first operand");
    Attr attr = { .raw = { 0, 0 } };
    attr.k = (int32_t)need_integer(L, 2, name, what, lo, hi);
    spec_here(S);
    return push(L, spec_checked(S, model_node(S->m, op, &attr, NULL, &x, 1), field));
}

static int op_top_k(lua_State *L) { return with_count(L, OP_TOP_K, "k", 1, INT32_MAX, "top_k"); }
static int op_one_hot(lua_State *L) { return with_count(L, OP_ONE_HOT, "n", 1, INT32_MAX, NULL); }

static int op_shift(lua_State *L) {
    Spec *S = spec_of(L);
    uint32_t args[2] = { need_tensor(L, 1, "shift", "x"), generator(S, OP_SEGMENTS, 0) };
    Attr attr = { .raw = { 0, 0 } };
    attr.k = (int32_t)need_integer(L, 2, "shift", "k", 0, 1 << 20);
    return push(L, spec_node(S, OP_SHIFT, &attr, NULL, args, 2));
}

static int op_cast(lua_State *L) {
    uint32_t x = need_tensor(L, 1, "cast", "x");
    Attr attr = { .raw = { 0, 0 } };
    attr.precision = (uint8_t)need_precision(L, 2, "cast", 2);
    return push(L, spec_node(spec_of(L), OP_CAST, &attr, NULL, &x, 1));
}

/* Shapes -------------------------------------------------------------------------------------- */

static int op_reshape(lua_State *L) {
    Spec *S = spec_of(L);
    uint32_t x = need_tensor(L, 1, "reshape", "x");
    int32_t dims[MAX_RANK];
    int n = need_sizes(L, 2, "reshape", dims, -1), hole = -1;
    int64_t total = type_features(model_type(S->m, x)), rest = 1;
    for (int i = 0; i < n; i++) {
        if (!dims[i] || (dims[i] < 0 && hole >= 0))
            fault_simple(S, "reshape: sizes must be positive, one of them may be -1");
        if (dims[i] < 0)
            hole = i;
        else
            rest = min_i64(rest * dims[i], LIMIT_FEATURES + 1);
    }
    if (hole >= 0) {
        if (total % rest || total / rest > INT32_MAX) {
            fault_simple(S, "reshape: %s holds %lld features, which %lld does not divide",
                         type_text(S, x), (long long)total, (long long)rest);
        }
        dims[hole] = (int32_t)(total / rest);
    } else if (rest != total) {
        fault_simple(S, "reshape: %s holds %lld features, the new shape holds %lld",
                     type_text(S, x), (long long)total, (long long)rest);
    }
    spec_here(S);
    return push(L, spec_checked(S, model_reshape(S->m, x, dims, n), NULL));
}

// The type that all parts broadcast to, the last axis apart.
static Type common_type(Spec *S, const uint32_t *parts, int n) {
    Type to = *model_type(S->m, parts[0]);
    for (int i = 1; i < n; i++) {
        const Type *t = model_type(S->m, parts[i]);
        if (t->row != ROW_NONE && (to.row == ROW_NONE || (to.row == ROW_E && t->row == ROW_R))) {
            to.row = t->row;
            to.route = t->route;
        }
        if (t->rank != to.rank) continue; // the shape rule refuses
        for (int a = 0; a + 1 < t->rank; a++) {
            if (to.dim[a] == 1) to.dim[a] = t->dim[a];
        }
    }
    return to;
}

static int op_concat(lua_State *L) {
    Spec *S = spec_of(L);
    int n = lua_gettop(L);
    if (n < 2 || n > MAX_ARGS) fault_simple(S, "concat takes 2 to %d tensors, got %d", MAX_ARGS, n);
    uint32_t parts[MAX_ARGS];
    for (int i = 0; i < n; i++) {
        char what[16];
        snprintf(what, sizeof what, "operand %d", i + 1);
        parts[i] = need_tensor(L, i + 1, "concat", what);
    }
    Type to = common_type(S, parts, n);
    if (!to.rank) fault_simple(S, "concat: no feature axis in %s", type_text(S, parts[0]));
    for (int i = 0; i < n; i++) {
        const Type *t = model_type(S->m, parts[i]);
        if (t->rank != to.rank) continue;
        Type wide = to;
        wide.dim[to.rank - 1] = t->dim[t->rank - 1];
        bool fits =
            t->row == to.row || t->row == ROW_NONE || (t->row == ROW_E && t->route == to.route);
        for (int a = 0; a + 1 < to.rank; a++)
            fits = fits && (t->dim[a] == 1 || t->dim[a] == to.dim[a]);
        wide.kind = t->kind;
        if (!fits || type_equal(t, &wide)) continue;
        spec_here(S);
        parts[i] = spec_checked(S, model_broadcast(S->m, parts[i], &wide), NULL);
    }
    Attr attr = { .raw = { 0, 0 } };
    attr.cut.axis = to.rank - 1;
    return push(L, spec_node(S, OP_CONCAT, &attr, NULL, parts, n));
}

/* core: for dsl/ops.lua ----------------------------------------------------------------------- */

// core.tensor(op, what, x): x, or the error that it is none.
static int core_tensor(lua_State *L) {
    need_tensor(L, 3, luaL_checkstring(L, 1), luaL_checkstring(L, 2));
    lua_settop(L, 3);
    return 1;
}

// core.axis(op, x, axis): counted from 1.
static int core_axis(lua_State *L) {
    const char *op = luaL_checkstring(L, 1);
    lua_pushinteger(L, need_axis(L, 3, op, need_tensor(L, 2, op, "x")) + 1);
    return 1;
}

static int core_rank(lua_State *L) {
    lua_pushinteger(L, model_type(spec_of(L)->m, need_tensor(L, 1, "rank", "x"))->rank);
    return 1;
}

static int core_row(lua_State *L) {
    static const char *const names[] = { "", "T", "R", "E", "S" };
    lua_pushstring(L, names[model_type(spec_of(L)->m, need_tensor(L, 1, "row", "x"))->row]);
    return 1;
}

static int core_shape(lua_State *L) {
    lua_pushstring(L, type_text(spec_of(L), need_tensor(L, 1, "shape", "x")));
    return 1;
}

// core.reduce("sum" | "amax", x, first, last): those axes, counted from 1, become 1.
static int core_reduce(lua_State *L) {
    static const char *const names[] = { "sum", "amax" };
    int which = luaL_checkoption(L, 1, NULL, (const char *const[]){ "sum", "amax", NULL });
    uint32_t x = need_tensor(L, 2, names[which], "x");
    Attr attr = { .raw = { 0, 0 } };
    for (lua_Integer i = luaL_checkinteger(L, 3); i <= luaL_checkinteger(L, 4); i++)
        attr.axes |= 1u << (i - 1);
    return push(L, spec_node(spec_of(L), which ? OP_AMAX : OP_SUM, &attr, NULL, &x, 1));
}

static int set_of(lua_State *L, int i) {
    static const char *const names[] = { "microbatch", "sequence", "global" };
    static const int sets[] = { SET_MICROBATCH, SET_SEQUENCE, SET_GLOBAL };
    return sets[need_choice(L, i, "reduction", "the set", names, 3)];
}

// core.rows("sum" | "amax", x, set)
static int core_rows(lua_State *L) {
    int which = luaL_checkoption(L, 1, NULL, (const char *const[]){ "sum", "amax", NULL });
    uint32_t x = need_tensor(L, 2, "reduction", "x");
    Attr attr = { .raw = { 0, 0 } };
    attr.set = (uint8_t)set_of(L, 3);
    return push(L, spec_node(spec_of(L), which ? OP_ROW_MAX : OP_ROW_SUM, &attr, NULL, &x, 1));
}

static int core_valid(lua_State *L) { return push(L, generator(spec_of(L), OP_VALID, 0)); }

// core.n_valid(set): the "global" number is a sum like any other.
static int core_n_valid(lua_State *L) {
    Spec *S = spec_of(L);
    int set = set_of(L, 1);
    if (set != SET_GLOBAL) return push(L, generator(S, OP_N_VALID, set));
    uint32_t valid = generator(S, OP_VALID, 0);
    return push(L, spec_checked(S, model_row_sum(S->m, valid, SET_GLOBAL), NULL));
}

// core.slice(x, axis, at, size): axis from 1, at from 0.
static int core_slice(lua_State *L) {
    Spec *S = spec_of(L);
    uint32_t x = need_tensor(L, 1, "slice", "x");
    spec_here(S);
    return push(L, spec_checked(S,
                                model_slice(S->m, x, (int)luaL_checkinteger(L, 2) - 1,
                                            (int32_t)luaL_checkinteger(L, 3),
                                            (int32_t)luaL_checkinteger(L, 4)),
                                NULL));
}

static uint32_t need_route(lua_State *L, int i, const char *op) {
    Spec *S = spec_of(L);
    uint32_t id = is_tensor(L, i);
    if (id && model_type(S->m, id)->kind == KIND_ROUTE) return id;
    fault_raise(S, &(Fault){ .hint = "m.route(ids, experts) makes one" },
                "%s: expected a route, got %s", op, describe(L, i));
}

// core.route(ids, experts, capacity): capacity 0 is dropless.
static int core_route(lua_State *L) {
    uint32_t ids = need_tensor(L, 1, "route", "ids");
    Attr attr = { .raw = { 0, 0 } };
    attr.route.experts =
        (int32_t)need_integer(L, 2, "route", "the number of experts", 1, INT32_MAX);
    attr.route.capacity = (float)need_number(L, 3, "route", "capacity");
    return push(L, spec_node(spec_of(L), OP_ROUTE, &attr, NULL, &ids, 1));
}

static int route_top_k(const Model *m, uint32_t route) {
    return model_type(m, model_arg(m, route, 0))->dim[0];
}

// core.dispatch(x, route, each): a token goes to all its rows, or with `each` every choice is its
// own.
static int core_dispatch(lua_State *L) {
    Spec *S = spec_of(L);
    uint32_t x = need_tensor(L, 1, "dispatch", "x"), route = need_route(L, 2, "dispatch");
    const Type *t = model_type(S->m, x);
    if (t->row != ROW_T) fault_simple(S, "dispatch: x must be per token, is %s", type_text(S, x));
    if (!lua_toboolean(L, 3)) {
        if (t->rank == MAX_RANK)
            fault_simple(S, "dispatch: at most %d feature axes, x is %s", MAX_RANK - 1,
                         type_text(S, x));
        Type to = *t;
        memmove(to.dim + 1, to.dim, sizeof *to.dim * to.rank);
        to.dim[0] = 1;
        to.rank++;
        spec_here(S);
        x = spec_checked(S, model_reshape(S->m, x, to.dim, to.rank), NULL);
        to.dim[0] = route_top_k(S->m, route);
        x = spec_checked(S, model_broadcast(S->m, x, &to), NULL);
    }
    return push(L, spec_node(S, OP_DISPATCH, NULL, NULL, (uint32_t[]){ x, route }, 2));
}

// core.collect(rows): [T, k, n...]
static int core_collect(lua_State *L) {
    Spec *S = spec_of(L);
    uint32_t x = need_tensor(L, 1, "combine", "rows");
    const Type *t = model_type(S->m, x);
    if (t->row != ROW_R) {
        fault_raise(S, &(Fault){ .hint = "m.dispatch(x, route) makes rows" },
                    "combine: the first operand must be expert rows, is %s", type_text(S, x));
    }
    return push(L, spec_node(S, OP_COLLECT, NULL, NULL, (uint32_t[]){ x, t->route }, 2));
}

// core.experts(x): experts and choices of the route of rows x.
static int core_experts(lua_State *L) {
    Spec *S = spec_of(L);
    const Type *t = model_type(S->m, need_tensor(L, 1, "combine", "rows"));
    if (t->row != ROW_R) return 0;
    lua_pushinteger(L, model_experts(S->m, t));
    lua_pushinteger(L, model_top_k(S->m, t));
    return 2;
}

// core.options(op, options, "name name ...")
static int core_options(lua_State *L) {
    check_options(L, 2, luaL_checkstring(L, 1), luaL_checkstring(L, 3));
    if (lua_istable(L, 2))
        lua_settop(L, 2);
    else
        lua_newtable(L);
    return 1;
}

// core.fail(message, hint, field)
static int core_fail(lua_State *L) {
    const char *field = luaL_optstring(L, 3, NULL);
    fault_raise(
        spec_of(L),
        &(Fault){ .hint = luaL_optstring(L, 2, NULL), .word = field, .field = field != NULL }, "%s",
        luaL_checkstring(L, 1));
}

// core.field(name, ...): the first name that is a field of a block at work, or nil.
static int core_field(lua_State *L) {
    for (int i = 1; i <= lua_gettop(L); i++) {
        if (!place_blames(spec_of(L), luaL_checkstring(L, i))) continue;
        lua_pushvalue(L, i);
        return 1;
    }
    return 0;
}

static int core_describe(lua_State *L) {
    luaL_checkany(L, 1);
    lua_pushstring(L, describe(L, 1));
    return 1;
}

static int core_eps(lua_State *L) {
    lua_pushnumber(L, spec_of(L)->eps);
    return 1;
}

void ops_open(Spec *S, int module, int core) {
    static const luaL_Reg shown[] = {
        { "tokens", op_tokens },   { "labels", op_labels },     { "positions", op_positions },
        { "uniform", op_uniform }, { "constant", op_constant }, { "matmul", op_matmul },
        { "attend", op_attend },   { "rotate", op_rotate },     { "top_k", op_top_k },
        { "one_hot", op_one_hot }, { "shift", op_shift },       { "cast", op_cast },
        { "reshape", op_reshape }, { "concat", op_concat },     { NULL, NULL },
    };
    static const luaL_Reg hidden[] = {
        { "tensor", core_tensor },
        { "axis", core_axis },
        { "rank", core_rank },
        { "row", core_row },
        { "shape", core_shape },
        { "reduce", core_reduce },
        { "rows", core_rows },
        { "valid", core_valid },
        { "n_valid", core_n_valid },
        { "slice", core_slice },
        { "route", core_route },
        { "dispatch", core_dispatch },
        { "collect", core_collect },
        { "experts", core_experts },
        { "options", core_options },
        { "fail", core_fail },
        { "field", core_field },
        { "describe", core_describe },
        { "eps", core_eps },
        { NULL, NULL },
    };
    lua_State *L = S->L;
    lua_pushvalue(L, module);
    luaL_setfuncs(L, shown, 0);
    lua_pushvalue(L, core);
    luaL_setfuncs(L, hidden, 0);
    lua_pop(L, 2);
}
