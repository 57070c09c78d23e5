// SPDX-License-Identifier: Apache-2.0
// Tensors as a spec sees them: a userdata that holds a node. Operators, the functions of one, two
// and three operands that need no options, and how arguments are read and refused.
#include <math.h>
#include <stdio.h>

#include "compiler/spec/internal.h"

const char spec_tensor_type[] = "moec.tensor";

/* Nodes --------------------------------------------------------------------------------------- */

void spec_here(Spec *S) {
    S->m->loc = place_now(S);
    S->m->addr = S->scope ? S->scope->addr : 0;
}

static void check_size(Spec *S, uint32_t id) {
    const Type *t = model_type(S->m, id);
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++) {
        if (n > LIMIT_FEATURES / t->dim[i])
            fault_simple(S, "%s has more than 2^40 features", type_text(S, id));
        n *= t->dim[i];
    }
    if (S->m->n_nodes > LIMIT_NODES) {
        fault_fatal(
            S,
            &(Fault){ .hint = "layers are made once each; is a loop over tokens or a size meant?" },
            "the graph has more than 1,000,000 nodes");
    }
}

uint32_t spec_checked(Spec *S, uint32_t id, const char *field) {
    if (!id) fault_of_model(S, field);
    check_size(S, id);
    return id;
}

uint32_t spec_node(Spec *S, Op op, const Attr *attr, const Type *declared, const uint32_t *args,
                   int n) {
    spec_here(S);
    return spec_checked(S, model_node(S->m, op, attr, declared, args, n), NULL);
}

/* Values -------------------------------------------------------------------------------------- */

void push_tensor(lua_State *L, uint32_t id) {
    Tensor *t = lua_newuserdatauv(L, sizeof *t, 0);
    t->id = id;
    luaL_setmetatable(L, spec_tensor_type);
}

uint32_t is_tensor(lua_State *L, int i) {
    const Tensor *t = luaL_testudata(L, i, spec_tensor_type);
    return t ? t->id : 0;
}

const char *type_text(Spec *S, uint32_t id) {
    Text text = { 0 };
    type_print(S->m, model_type(S->m, id), &text);
    lua_pushlstring(S->L, text_cstr(&text), text.bytes); // stays on the stack while it is read
    text_finish(&text);
    return lua_tostring(S->L, -1);
}

const char *kind_text(Spec *S, uint32_t id) {
    static const char *const names[] = { "real", "int", "bool", "route", "effect" };
    uint8_t kind = model_type(S->m, id)->kind;
    if (kind >= KIND_ROUTE) return "a route";
    return lua_pushfstring(S->L, "%s %s", names[kind], type_text(S, id));
}

const char *describe(lua_State *L, int i) {
    uint32_t id = is_tensor(L, i);
    if (id) return model_type(spec_of(L)->m, id)->kind == KIND_ROUTE ? "a route" : "a tensor";
    const Block *b = is_block(L, i);
    if (b) return lua_pushfstring(L, "a %s", b->define->name);
    switch (lua_type(L, i)) {
    case LUA_TNONE:
    case LUA_TNIL: return "nothing";
    case LUA_TBOOLEAN: return lua_toboolean(L, i) ? "true" : "false";
    case LUA_TSTRING: return lua_pushfstring(L, "\"%s\"", lua_tostring(L, i));
    case LUA_TNUMBER: {
        char text[40];
        if (lua_isinteger(L, i))
            snprintf(text, sizeof text, "%lld", lua_tointeger(L, i));
        else if (isnan(lua_tonumber(L, i)))
            return "NaN";
        else
            snprintf(text, sizeof text, "%.14g", lua_tonumber(L, i));
        return lua_pushstring(L, text);
    }
    default: return lua_pushfstring(L, "a %s", luaL_typename(L, i));
    }
}

uint32_t need_tensor(lua_State *L, int i, const char *op, const char *what) {
    uint32_t id = is_tensor(L, i);
    if (id && model_type(spec_of(L)->m, id)->kind < KIND_ROUTE) return id;
    Fault fault = { 0 };
    if (id) fault.hint = "a route is read by m.dispatch and m.combine only";
    fault_raise(spec_of(L), &fault, "%s: %s must be a tensor, got %s", op, what, describe(L, i));
}

int64_t need_integer(lua_State *L, int i, const char *op, const char *what, int64_t lo,
                     int64_t hi) {
    int is_whole = 0;
    lua_Integer n = lua_type(L, i) == LUA_TNUMBER ? lua_tointegerx(L, i, &is_whole) : 0;
    if (is_whole && n >= lo && n <= hi) return n;
    if (is_whole) {
        fault_simple(spec_of(L), "%s: %s must be from %lld to %lld, got %lld", op, what,
                     (long long)lo, (long long)hi, n);
    }
    fault_simple(spec_of(L), "%s: %s must be a whole number, got %s", op, what, describe(L, i));
}

double need_number(lua_State *L, int i, const char *op, const char *what) {
    if (lua_type(L, i) != LUA_TNUMBER)
        fault_simple(spec_of(L), "%s: %s must be a number, got %s", op, what, describe(L, i));
    double x = lua_tonumber(L, i);
    if (isnan(x)) fault_simple(spec_of(L), "%s: %s must be a number, got NaN", op, what);
    return x;
}

const char *need_name(lua_State *L, int i, const char *op) {
    int type = lua_type(L, i);
    if (type == LUA_TNUMBER && lua_isinteger(L, i))
        lua_tolstring(L, i, NULL);
    else if (type != LUA_TSTRING)
        fault_simple(spec_of(L), "%s: the name must be a string, got %s", op, describe(L, i));
    size_t n;
    const char *name = lua_tolstring(L, i, &n);
    size_t good = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-");
    bool dots = name[0] == '.' || (n && name[n - 1] == '.') || strstr(name, "..");
    if (n && good == n && n < 200 && !dots) return name;
    fault_raise(spec_of(L),
                &(Fault){ .hint = "letters, digits, '_' and '-', with '.' between parts" },
                "%s: '%s' cannot be part of an address", op, name);
}

/* Options ------------------------------------------------------------------------------------- */

void check_options(lua_State *L, int i, const char *op, const char *names) {
    if (lua_isnoneornil(L, i)) return;
    Spec *S = spec_of(L);
    if (lua_type(L, i) != LUA_TTABLE)
        fault_simple(S, "%s: options must be a table, got %s", op, describe(L, i));
    const char *words[16];
    char buffer[160];
    int n = 0;
    snprintf(buffer, sizeof buffer, "%s", names);
    for (char *save, *w = strtok_r(buffer, " ", &save); w; w = strtok_r(NULL, " ", &save))
        words[n++] = w;
    for (lua_pushnil(L); lua_next(L, i); lua_pop(L, 1)) {
        const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : NULL;
        bool known = false;
        for (int k = 0; key && k < n; k++) known |= !strcmp(key, words[k]);
        if (known) continue;
        const char *near = key ? spec_nearest(key, words, n) : NULL;
        Fault fault = { .word = key };
        if (near)
            fault.hint = fault_hint(S, "did you mean '%s'?", near);
        else
            fault.hint = fault_hint(S, "options: %s", names);
        fault_raise(S, &fault, "%s has no option '%s'", op, key ? key : describe(L, -2));
    }
}

bool has_option(lua_State *L, int i, const char *name) {
    if (!lua_istable(L, i)) return false;
    if (lua_getfield(L, i, name) != LUA_TNIL &&
        (lua_type(L, -1) != LUA_TBOOLEAN || lua_toboolean(L, -1)))
        return true;
    lua_pop(L, 1);
    return false;
}

/* Operations without options ------------------------------------------------------------------ */

static const char *operation_name(Op op) { return op_info[op].text; }

// A tensor, or a number beside one: of its kind if it is an int and the number whole.
static uint32_t operand(lua_State *L, int i, Op op, Kind beside) {
    Spec *S = spec_of(L);
    if (lua_type(L, i) != LUA_TNUMBER) {
        char what[16];
        if (op_info[op].hi == 1)
            snprintf(what, sizeof what, "the operand");
        else
            snprintf(what, sizeof what, "operand %d", i);
        return need_tensor(L, i, operation_name(op), what);
    }
    double x = need_number(L, i, operation_name(op), "the number");
    bool whole = x == floor(x) && fabs(x) < 0x1p31;
    spec_here(S);
    return spec_checked(S, model_const(S->m, x, beside == KIND_INT && whole ? KIND_INT : KIND_REAL),
                        NULL);
}

// The kind that numbers take: int if the tensors among first..last are.
static Kind kind_beside(lua_State *L, int first, int last, Op op) {
    int tensors = 0;
    Kind kind = KIND_INT;
    for (int i = first; i <= last; i++) {
        uint32_t id = is_tensor(L, i);
        if (!id) continue;
        tensors++;
        if (model_type(spec_of(L)->m, id)->kind != KIND_INT) kind = KIND_REAL;
    }
    if (tensors) return kind;
    for (int i = first; i <= last && op != OP_WHERE; i++) {
        if (lua_type(L, i) != LUA_TNUMBER) operand(L, i, op, KIND_REAL); // says what it is
    }
    if (op == OP_WHERE) return KIND_REAL;
    fault_raise(spec_of(L), &(Fault){ .hint = "math.* and Lua's operators compute with numbers" },
                "%s: no tensor among the operands", operation_name(op));
}

static int apply(lua_State *L, Op op, int n) {
    uint32_t args[3] = { 0 };
    int first = op == OP_WHERE ? 1 : 0;
    Kind kind = kind_beside(L, first + 1, n, op);
    for (int i = 0; i < n; i++)
        args[i] =
            i < first ? need_tensor(L, 1, "where", "the condition") : operand(L, i + 1, op, kind);
    push_tensor(L, spec_node(spec_of(L), op, NULL, NULL, args, n));
    return 1;
}

// Upvalue: the operation.
static int simple(lua_State *L) {
    Op op = (Op)lua_tointeger(L, lua_upvalueindex(1));
    int n = op_info[op].lo;
    if (lua_gettop(L) > n)
        fault_simple(spec_of(L), "%s takes %d operand%s, got %d", operation_name(op), n,
                     n == 1 ? "" : "s", lua_gettop(L));
    lua_settop(L, n);
    return apply(L, op, n);
}

static int operator(lua_State *L) {
    Op op = (Op)lua_tointeger(L, lua_upvalueindex(1));
    for (int i = 1; i <= 2; i++) {
        if (lua_type(L, i) == LUA_TNUMBER || is_tensor(L, i)) continue;
        fault_simple(spec_of(L), "%s between a tensor and %s", operation_name(op), describe(L, i));
    }
    lua_settop(L, 2);
    return apply(L, op, 2);
}

static int negate(lua_State *L) {
    lua_settop(L, 1);
    return apply(L, OP_NEG, 1);
}

// Upvalues: the operator, the function to use instead.
static int refuse_comparison(lua_State *L) {
    Spec *S = spec_of(L);
    const char *hint = fault_hint(S, "use m.%s(a, b), and m.where(c, a, b) instead of if",
                                  lua_tostring(L, lua_upvalueindex(2)));
    fault_raise(S, &(Fault){ .hint = hint },
                "'%s' on a tensor: Lua's comparison gives one boolean while tracing, not a tensor",
                lua_tostring(L, lua_upvalueindex(1)));
}

// Upvalues: what is refused, the hint.
static int refuse(lua_State *L) {
    fault_raise(spec_of(L), &(Fault){ .hint = lua_tostring(L, lua_upvalueindex(2)) },
                "a tensor has no %s", lua_tostring(L, lua_upvalueindex(1)));
}

static int tensor_size(lua_State *L) {
    Spec *S = spec_of(L);
    uint32_t id = need_tensor(L, 1, "size", "the value");
    const Type *t = model_type(S->m, id);
    int64_t i =
        lua_isnoneornil(L, 2) ? -1 : need_integer(L, 2, "size", "the axis", INT32_MIN, INT32_MAX);
    int64_t axis = i < 0 ? t->rank + i : i - 1;
    if (axis < 0 || axis >= t->rank)
        fault_simple(S, "size(%lld): the tensor is %s", (long long)i, type_text(S, id));
    lua_pushinteger(L, t->dim[axis]);
    return 1;
}

static int tensor_index(lua_State *L) {
    const char *key = lua_type(L, 2) == LUA_TSTRING ? lua_tostring(L, 2) : NULL;
    if (key && !strcmp(key, "size")) {
        lua_pushcfunction(L, tensor_size);
        return 1;
    }
    fault_raise(spec_of(L),
                &(Fault){ .word = key,
                          .hint = "x:size(axis) is a size; everything else is a function of m" },
                "a tensor has no field '%s'", key ? key : describe(L, 2));
}

static int tensor_text(lua_State *L) {
    Spec *S = spec_of(L);
    uint32_t id = is_tensor(L, 1);
    if (!id) return luaL_error(L, "not a tensor");
    Text text = { 0 };
    place_origin(S, id, &text);
    const char *from = lua_pushlstring(L, text_cstr(&text), text.bytes), *kind = kind_text(S, id);
    text_finish(&text);
    lua_pushfstring(L, "%s %s", kind, from);
    return 1;
}

static void set_metatable(lua_State *L) {
    static const struct {
        const char *event;
        Op op;
    } arithmetic[] = {
        { "__add", OP_ADD }, { "__sub", OP_SUB }, { "__mul", OP_MUL },   { "__div", OP_DIV },
        { "__pow", OP_POW }, { "__mod", OP_MOD }, { "__idiv", OP_IDIV },
    };
    static const char *const comparisons[][3] = { { "__lt", "<", "lt" },
                                                  { "__le", "<=", "le" },
                                                  { "__eq", "==", "eq" } };
    static const char *const refused[][3] = {
        { "__len", "length", "x:size(axis) is the size of an axis" },
        { "__concat", "text to join with",
          "tostring(x) gives its shape; m.concat(a, b) joins tensors" },
        { "__newindex", "fields to assign to", "tensors are values: operations make new ones" },
        { "__call", "call", "blocks and functions can be called" },
    };
    luaL_newmetatable(L, spec_tensor_type);
    for (int i = 0; i < COUNT_OF(arithmetic); i++) {
        lua_pushinteger(L, arithmetic[i].op);
        lua_pushcclosure(L, operator, 1);
        lua_setfield(L, -2, arithmetic[i].event);
    }
    for (int i = 0; i < COUNT_OF(comparisons); i++) {
        lua_pushstring(L, comparisons[i][1]);
        lua_pushstring(L, comparisons[i][2]);
        lua_pushcclosure(L, refuse_comparison, 2);
        lua_setfield(L, -2, comparisons[i][0]);
    }
    for (int i = 0; i < COUNT_OF(refused); i++) {
        lua_pushstring(L, refused[i][1]);
        lua_pushstring(L, refused[i][2]);
        lua_pushcclosure(L, refuse, 2);
        lua_setfield(L, -2, refused[i][0]);
    }
    static const luaL_Reg own[] = {
        { "__unm", negate },
        { "__index", tensor_index },
        { "__tostring", tensor_text },
        { NULL, NULL },
    };
    luaL_setfuncs(L, own, 0);
    lua_pop(L, 1);
}

// The number of operands of a function made by `simple`, 0 for others.
int tensor_arity(lua_State *L, int i) {
    if (lua_tocfunction(L, i) != simple) return 0;
    lua_getupvalue(L, i, 1);
    int n = op_info[lua_tointeger(L, -1)].lo;
    lua_pop(L, 1);
    return n;
}

void tensor_open(Spec *S, int module) {
    static const Op shown[] = {
        OP_EXP,  OP_LOG,       OP_SQRT,  OP_RSQRT,     OP_ABS,
        OP_SIGN, OP_SIGMOID,   OP_TANH,  OP_ERF,       OP_MIN,
        OP_MAX,  OP_LT,        OP_LE,    OP_GT,        OP_GE,
        OP_EQ,   OP_NE,        OP_WHERE, OP_TRANSPOSE, OP_STOP_GRADIENT,
        OP_KEEP, OP_RECOMPUTE, OP_EMBED, OP_GATHER,
    };
    lua_State *L = S->L;
    set_metatable(L);
    for (int i = 0; i < COUNT_OF(shown); i++) {
        lua_pushinteger(L, shown[i]);
        lua_pushcclosure(L, simple, 1);
        lua_setfield(L, module, op_info[shown[i]].name);
    }
}
