// SPDX-License-Identifier: Apache-2.0
// Names: scopes, sharing, parameters and states, arguments, stacks of layers.
#include <float.h>
#include <stdio.h>
#include <stdlib.h>

#include "compiler/spec/internal.h"

Known *known_at(Spec *S, uint32_t name) {
    if (name >= S->cap_known) {
        uint32_t cap = S->cap_known ? S->cap_known : 256;
        while (cap <= name) cap *= 2;
        S->known =
            arena_grow(S->arena, S->known, S->cap_known * sizeof *S->known, cap * sizeof *S->known);
        S->cap_known = cap;
    }
    return &S->known[name];
}

uint32_t scope_address(Spec *S, const char *name) {
    const char *scope = S->scope ? model_name(S->m, S->scope->addr) : "";
    if (!*scope) return model_intern(S->m, name);
    const char *full = lua_pushfstring(S->L, "%s.%s", scope, name);
    if (strlen(full) > 1000) fault_simple(S, "scopes are nested too deep: '%.60s...'", full);
    uint32_t addr = model_intern(S->m, full);
    lua_pop(S->L, 1);
    return addr;
}

void need_tracing(Spec *S, const char *op) {
    if (S->tracing) return;
    fault_raise(S, &(Fault){ .hint = "call it in a layer, or in a function that one calls" },
                "%s: no model is being traced", op);
}

/* Scopes -------------------------------------------------------------------------------------- */

static void need_callable(lua_State *L, int i, const char *op, const char *name) {
    if (is_callable(L, i)) return;
    fault_raise(spec_of(L),
                &(Fault){ .hint = lua_istable(L, i)
                                      ? "a table of fields needs its noun: m.mlp { hidden = 64 }"
                                      : NULL },
                "%s '%s': expected a function or a block, got %s", op, name, describe(L, i));
}

// Calls the function at index `f` with what follows it.
static int call_in(lua_State *L, int f, Scope *scope) {
    Spec *S = spec_of(L);
    scope->up = S->scope;
    S->scope = scope;
    lua_call(L, lua_gettop(L) - f, LUA_MULTRET);
    S->scope = scope->up;
    return lua_gettop(L) - f + 1;
}

static int op_scope(lua_State *L) {
    Spec *S = spec_of(L);
    const char *name = need_name(L, 1, "scope");
    need_callable(L, 2, "scope", name);
    Scope scope = { .addr = scope_address(S, name) };
    if (S->scope) {
        scope.shared = S->scope->shared;
        scope.base = S->scope->base;
    }
    return call_in(L, 2, &scope);
}

// Upvalues: name, function.
static int call_shared(lua_State *L) {
    Spec *S = spec_of(L);
    Scope scope = { .addr = model_intern(S->m, lua_tostring(L, lua_upvalueindex(1))),
                    .shared = ++S->shared_calls };
    scope.base = scope.addr;
    lua_pushvalue(L, lua_upvalueindex(2));
    lua_insert(L, 1);
    return call_in(L, 1, &scope);
}

static int op_shared(lua_State *L) {
    need_callable(L, 2, "shared", need_name(L, 1, "shared"));
    lua_settop(L, 2);
    lua_pushcclosure(L, call_shared, 2);
    return 1;
}

/* Parameters and states ----------------------------------------------------------------------- */

static const char *sizes_text(Spec *S, const Type *type) {
    Text text = { 0 };
    type_print(S->m, type, &text);
    lua_pushlstring(S->L, text_cstr(&text), text.bytes);
    text_finish(&text);
    return lua_tostring(S->L, -1);
}

// The parameter that a later call of an m.shared function asks for; 0: make it.
static uint32_t shared_already(Spec *S, uint32_t addr, const char *what, const Type *want) {
    const Known *known = known_at(S, addr);
    if (!known->param) return 0;
    const Param *p = &S->m->params[known->param - 1];
    Origin *origin = &S->origins[known->param - 1];
    bool again = S->scope && S->scope->shared && origin->base == S->scope->base &&
                 origin->call != S->scope->shared;
    if (!again) {
        Fault fault = { .hint = "give it another name, put each use into its own m.scope(name, f, "
                                "...), or share one "
                                "with m.shared(name, f)" };
        if (!p->loc.line)
            fault_raise(S, &fault, "%s '%s' exists already", what, model_name(S->m, addr));
        fault_raise(S, &fault, "%s '%s' exists already, made at %s:%u", what,
                    model_name(S->m, addr), S->m->files[p->loc.file - 1].path, p->loc.line);
    }
    origin->call = S->scope->shared;
    const Type *have = model_type(S->m, p->node);
    if (type_equal(have, want)) return p->node;
    if (have->row == ROW_E && want->row == ROW_E && have->rank == want->rank &&
        !memcmp(have->dim, want->dim, sizeof have->dim)) {
        fault_raise(
            S, &(Fault){ .hint = "share the route as well, or keep experts out of m.shared" },
            "shared %s '%s' belongs to the experts of another route", what, model_name(S->m, addr));
    }
    fault_simple(S, "shared %s '%s' is %s, this use asks for %s", what, model_name(S->m, addr),
                 sizes_text(S, have), sizes_text(S, want));
}

// The sizes in the list at index 2.
static void read_sizes(lua_State *L, const char *what, const char *name, Type *type) {
    Spec *S = spec_of(L);
    if (!lua_istable(L, 2)) {
        fault_raise(S, &(Fault){ .hint = "a list of sizes: { 64 }, or {} for one number" },
                    "%s '%s': sizes must be a list, got %s", what, name, describe(L, 2));
    }
    lua_Integer n = luaL_len(L, 2);
    if (n > MAX_RANK)
        fault_simple(S, "%s '%s': at most %d axes, got %lld", what, name, MAX_RANK, n);
    for (int i = 0; i < n; i++) {
        int whole;
        lua_geti(L, 2, i + 1);
        lua_Integer size = lua_type(L, -1) == LUA_TNUMBER ? lua_tointegerx(L, -1, &whole) : 0;
        if (size < 1 || size > INT32_MAX)
            fault_simple(S, "%s '%s': axis %d is %s, must be an integer from 1 to %d", what, name,
                         i + 1, describe(L, -1), INT32_MAX);
        type->dim[i] = (int32_t)size;
        lua_pop(L, 1);
    }
    type->rank = (uint8_t)n;
}

static void check_total(Spec *S, const char *what, const char *name, const Type *type) {
    int64_t n = type->route ? model_experts(S->m, type) : 1;
    for (int i = 0; i < type->rank; i++) {
        if (n > LIMIT_FEATURES / type->dim[i])
            fault_simple(S, "%s '%s' has more than 2^40 elements", what, name);
        n *= type->dim[i];
    }
}

static void read_init(lua_State *L, Param *p, const char *name) {
    if (!has_option(L, 3, "init")) return;
    const char *word = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : NULL;
    if (word && !strcmp(word, "zeros")) {
        p->init = INIT_ZEROS;
    } else if (word && !strcmp(word, "ones")) {
        p->init = INIT_ONES;
    } else if (lua_type(L, -1) == LUA_TNUMBER && lua_tonumber(L, -1) >= 0 &&
               lua_tonumber(L, -1) <= FLT_MAX) {
        p->std = lua_tonumber(L, -1);
    } else {
        fault_simple(spec_of(L),
                     "parameter '%s': init must be a number >= 0, \"zeros\" or \"ones\", got %s",
                     name, describe(L, -1));
    }
    p->init_final = true;
}

static int make_variable(lua_State *L, bool is_state) {
    Spec *S = spec_of(L);
    const char *what = is_state ? "state" : "parameter";
    const char *name = need_name(L, 1, is_state ? "state" : "param");
    need_tracing(S, is_state ? "state" : "param");
    check_options(L, 3, is_state ? "state" : "param", is_state ? "" : "on init");
    Type type = { .kind = KIND_REAL };
    read_sizes(L, what, name, &type);
    if (!is_state && has_option(L, 3, "on")) {
        const Type *on = model_type(S->m, need_tensor(L, lua_gettop(L), "param", "on"));
        type.route = on->route;
        type.row = on->route ? ROW_E : ROW_NONE;
    }
    check_total(S, what, name, &type);
    uint32_t addr = scope_address(S, name);
    uint32_t id = shared_already(S, addr, what, &type);
    if (!id) {
        spec_here(S);
        id = spec_checked(S, model_param(S->m, addr, is_state, type.dim, type.rank, type.route),
                          NULL);
        Param *p = &S->m->params[S->m->n_params - 1];
        Origin *origin = ARENA_PUSH(S->arena, S->origins, S->n_origins, S->cap_origins);
        *origin = (Origin){ .base = S->scope ? S->scope->base : 0,
                            .call = S->scope ? S->scope->shared : 0 };
        known_at(S, addr)->param = S->m->n_params;
        if (is_state)
            p->init = INIT_ZEROS, p->init_final = true;
        else
            read_init(L, p, name);
    }
    push_tensor(L, id);
    return 1;
}

static int op_param(lua_State *L) { return make_variable(L, false); }
static int op_state(lua_State *L) { return make_variable(L, true); }

static int op_get(lua_State *L) {
    Spec *S = spec_of(L);
    const char *name = need_name(L, 1, "get");
    sandbox_charge(S, S->m->n_params / 16);
    const char **words = lua_newuserdatauv(L, sizeof *words * (S->m->n_params + 1), 0);
    int n = 0;
    for (uint32_t i = 0; i < S->m->n_params; i++) {
        const Param *p = &S->m->params[i];
        words[n++] = model_name(S->m, p->addr);
        if (strcmp(words[n - 1], name)) continue;
        push_tensor(L, p->node);
        return 1;
    }
    sandbox_charge(S, 4 * n);
    const char *near = spec_nearest(name, words, n);
    const char *hint = near ? fault_hint(S, "did you mean '%s'?", near)
                            : "parameters exist once the block that makes them has run";
    fault_raise(S, &(Fault){ .hint = hint }, "get: there is no parameter '%s' yet", name);
}

/* Stacks and expectations --------------------------------------------------------------------- */

static int op_stack(lua_State *L) {
    Spec *S = spec_of(L);
    int64_t n = need_integer(L, 1, "stack", "the number of layers", 0, LIMIT_NODES);
    bool repeat = is_block(L, 2) != NULL;
    if (!is_callable(L, 2)) {
        fault_raise(S, &(Fault){ .plain = true },
                    "stack needs a block or a function of the layer's number, got %s",
                    describe(L, 2));
    }
    sandbox_charge(S, n);
    lua_settop(L, 2);
    lua_createtable(L, (int)min_i64(n, 4096), 0);
    for (int64_t i = 1; i <= n; i++) {
        lua_pushvalue(L, 2);
        if (!repeat) {
            lua_pushinteger(L, i);
            lua_call(L, 1, 1);
        }
        if (!is_callable(L, -1)) {
            lua_Debug ar;
            lua_pushvalue(L, 2);
            lua_getinfo(L, ">S", &ar);
            Fault fault = { .plain = true,
                            .hint = lua_isnil(L, -1) ? "is 'return' missing?" : NULL };
            for (uint32_t k = 0; k < S->n_sources; k++) {
                if (!strcmp(S->sources[k].chunk, ar.source))
                    fault.at.loc =
                        (Loc){ .file = S->sources[k].file, .line = (uint32_t)ar.linedefined };
            }
            fault_raise(
                S, &fault,
                "stack: the function gave %s for layer %lld, expected a block or a function",
                describe(L, -1), (long long)i);
        }
        lua_seti(L, 3, i);
    }
    return 1;
}

// "the router's ids" blames the field `router`.
static const char *owner_in(lua_State *L, const char *what) {
    const char *end = strstr(what, "'s");
    if (!end) return NULL;
    const char *start = end;
    while (start > what && start[-1] != ' ') start--;
    return lua_pushlstring(L, start, (size_t)(end - start));
}

static int op_expect(lua_State *L) {
    Spec *S = spec_of(L);
    const char *what = luaL_checkstring(L, 1);
    int n = lua_gettop(L) - 2;
    uint32_t id = is_tensor(L, 2);
    const Type *t = id ? model_type(S->m, id) : NULL;
    bool fits = t && t->kind <= KIND_BOOL && t->row == ROW_T && t->rank == n;
    Text want = { 0 };
    text_add(&want, "[T");
    for (int i = 0; i < n; i++) {
        int whole = 0;
        lua_Integer size = lua_tointegerx(L, 3 + i, &whole);
        fits = fits && whole && t->dim[i] == size;
        text_printf(&want, ", %lld", size);
    }
    lua_pushstring(L, text_cstr(&want));
    text_finish(&want);
    if (fits) {
        lua_pushvalue(L, 2);
        return 1;
    }
    const char *dims = lua_tostring(L, -1), *owner = owner_in(L, what);
    fault_raise(S, &(Fault){ .word = owner, .field = owner != NULL }, "%s must be %s], got %s",
                what, dims, id ? kind_text(S, id) : describe(L, 2));
}

/* Arguments ----------------------------------------------------------------------------------- */

static const char *given_value(const Spec *S, const char *name) {
    const char *value = NULL;
    for (int i = 0; S->options && i < S->options->n_args; i++) {
        if (!strcmp(S->options->args[i].key, name))
            value = S->options->args[i].value; // the last one counts
    }
    return value;
}

// Pushes `value` read as the default's type; false if it is not one.
static bool push_argument(lua_State *L, const char *value, int otherwise) {
    switch (lua_type(L, otherwise)) {
    case LUA_TSTRING: lua_pushstring(L, value); return true;
    case LUA_TBOOLEAN:
        lua_pushboolean(L, !strcmp(value, "true"));
        return !strcmp(value, "true") || !strcmp(value, "false");
    default:
        if (lua_stringtonumber(L, value) != strlen(value) + 1) return false;
        if (!lua_isinteger(L, otherwise)) return true;
        int whole;
        lua_Integer n = lua_tointegerx(L, -1, &whole);
        lua_pushinteger(L, n);
        return whole;
    }
}

static int op_arg(lua_State *L) {
    Spec *S = spec_of(L);
    const char *name = need_name(L, 1, "arg");
    int type = lua_type(L, 2);
    if (type != LUA_TSTRING && type != LUA_TBOOLEAN && type != LUA_TNUMBER) {
        fault_raise(S, &(Fault){ .hint = "the default says what type the argument has" },
                    "arg '%s': the default must be a number, a string or a boolean, got %s", name,
                    describe(L, 2));
    }
    bool known = false;
    for (uint32_t i = 0; i < S->n_declared; i++) known |= !strcmp(S->declared[i], name);
    if (!known)
        *ARENA_PUSH(S->arena, S->declared, S->n_declared, S->cap_declared) =
            arena_strdup(S->arena, name);
    const char *value = given_value(S, name);
    if (!value) {
        lua_pushvalue(L, 2);
    } else if (!push_argument(L, value, 2)) {
        fault_simple(S, "argument %s=%s: expected %s like %s", name, value,
                     type == LUA_TBOOLEAN  ? "true or false,"
                     : lua_isinteger(L, 2) ? "an integer"
                                           : "a number",
                     describe(L, 2));
    }
    return 1;
}

void scope_open(Spec *S, int module) {
    static const luaL_Reg shown[] = {
        { "scope", op_scope },   { "shared", op_shared }, { "param", op_param },
        { "state", op_state },   { "get", op_get },       { "stack", op_stack },
        { "expect", op_expect }, { "arg", op_arg },       { "include", sandbox_include },
        { NULL, NULL },
    };
    lua_pushvalue(S->L, module);
    luaL_setfuncs(S->L, shown, 0);
    lua_pop(S->L, 1);
}
