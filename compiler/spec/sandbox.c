// SPDX-License-Identifier: Apache-2.0
// The environment of a spec: what it can name, and what each of those may cost.
//
// Every chunk, of a user or of dsl/, sees one read-only table of names. Reading a missing name and
// making a global are errors. The limits are sticky: `pcall` passes them on.
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "compiler/spec/internal.h"

void sandbox_charge(Spec *S, int64_t steps) {
    S->steps += steps;
    // Bytes allocated count too: joining long strings costs time that no instruction shows.
    if (S->steps + (int64_t)(S->churn >> 8) <= LIMIT_STEPS) return;
    fault_fatal(S,
                &(Fault){ .plain = true,
                          .hint = "a spec runs once, at compile time; is this loop meant to end?" },
                "the spec ran for 20,000,000 steps without ending");
}

/* Missing names and refused writes ------------------------------------------------------------ */

static int compare_names(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

// The string key of the table at `i` nearest to `word`, or NULL. Leaves a value on the stack that
// keeps the names alive.
static const char *nearest_key(lua_State *L, int i, const char *word) {
    int n = 0;
    for (lua_pushnil(L); lua_next(L, i); lua_pop(L, 1)) n++;
    const char **names = lua_newuserdatauv(L, sizeof *names * (size_t)(n + 1), 0);
    n = 0;
    for (lua_pushnil(L); lua_next(L, i); lua_pop(L, 1)) {
        if (lua_type(L, -2) == LUA_TSTRING) names[n++] = lua_tostring(L, -2);
    }
    qsort(names, (size_t)n, sizeof *names, compare_names);
    return spec_nearest(word, names, n);
}

static _Noreturn void unknown_global(lua_State *L, const char *name) {
    static const char *const refused[] = { "_G",       "collectgarbage", "coroutine", "debug",
                                           "dofile",   "getmetatable",   "io",        "load",
                                           "loadfile", "next",           "os",        "package",
                                           "rawequal", "rawget",         "rawlen",    "rawset",
                                           "utf8",     "warn",           "xpcall" };
    Spec *S = spec_of(L);
    Fault fault = { .word = name };
    for (int i = 0; i < COUNT_OF(refused); i++) {
        if (strcmp(name, refused[i])) continue;
        fault.hint = "a spec may only describe; arguments come in by m.arg(name, default)";
        fault_raise(S, &fault, "'%s' is not available in a spec", name);
    }
    const char *near = nearest_key(L, 1, name);
    fault.hint = near ? fault_hint(S, "did you mean '%s'?", near) : "locals need 'local'";
    fault_raise(S, &fault, "unknown name '%s'", name);
}

// __index of the real tables. Upvalue: the table's name.
static int missing(lua_State *L) {
    Spec *S = spec_of(L);
    const char *where = lua_tostring(L, lua_upvalueindex(1));
    if (lua_type(L, 2) != LUA_TSTRING) fault_simple(S, "%s has no entry %s", where, describe(L, 2));
    const char *name = lua_tostring(L, 2);
    if (!*where) unknown_global(L, name);
    bool module = !strcmp(where, "moec");
    const char *near = nearest_key(L, 1, name);
    Fault fault = { .word = name };
    if (near) fault.hint = fault_hint(S, "did you mean '%s.%s'?", module ? "m" : where, near);
    if (!strncmp(name, "random", 6) && !strcmp(where, "math"))
        fault.hint =
            "a spec says the same in every run; m.uniform(n...) draws numbers in the model";
    fault_raise(S, &fault, "%s has no '%s'", where, name);
}

static int refuse_write(lua_State *L) {
    Spec *S = spec_of(L);
    const char *where = lua_tostring(L, lua_upvalueindex(1));
    const char *name = lua_type(L, 2) == LUA_TSTRING ? lua_tostring(L, 2) : "?";
    Fault fault = { .word = name };
    if (!*where) {
        fault.hint = fault_hint(S, "write: local %s = ...", name);
        fault_raise(S, &fault, "assignment to the global '%s'", name);
    }
    fault.hint = "keep your own functions in locals";
    fault_raise(S, &fault, "%s cannot be changed: assignment to '%s'", where, name);
}

static int sandbox_pairs(lua_State *L);
static int proxy_pairs(lua_State *L) {
    lua_settop(L, 0);
    lua_pushcfunction(L, sandbox_pairs);
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_call(L, 1, 3);
    return 3;
}

void sandbox_proxy(lua_State *L, const char *name) {
    int real = lua_gettop(L);
    lua_createtable(L, 0, 1);
    lua_pushstring(L, name);
    lua_pushcclosure(L, missing, 1);
    lua_setfield(L, -2, "__index");
    lua_setmetatable(L, real);

    lua_newtable(L);
    lua_createtable(L, 0, 4);
    lua_pushvalue(L, real);
    lua_setfield(L, -2, "__index");
    lua_pushstring(L, name);
    lua_pushcclosure(L, refuse_write, 1);
    lua_setfield(L, -2, "__newindex");
    lua_pushvalue(L, real);
    lua_pushcclosure(L, proxy_pairs, 1);
    lua_setfield(L, -2, "__pairs");
    lua_pushboolean(L, false);
    lua_setfield(L, -2, "__metatable");
    lua_setmetatable(L, -2);
    lua_remove(L, real);
}

/* pairs --------------------------------------------------------------------------------------- */

// Numbers, then strings, then false and true.
static int rank_of(lua_State *L, int i) {
    switch (lua_type(L, i)) {
    case LUA_TNUMBER: return 0;
    case LUA_TSTRING: return 1;
    default: return 2;
    }
}

static int key_before(lua_State *L) {
    int a = rank_of(L, 1), b = rank_of(L, 2);
    if (a != b || a == 2)
        lua_pushboolean(L, a != b ? a < b : lua_toboolean(L, 1) < lua_toboolean(L, 2));
    else
        lua_pushboolean(L, lua_compare(L, 1, 2, LUA_OPLT));
    return 1;
}

// Upvalues: the keys in order, how many have been given.
static int pairs_next(lua_State *L) {
    lua_Integer i = lua_tointeger(L, lua_upvalueindex(2));
    for (;;) {
        lua_pushinteger(L, ++i);
        lua_replace(L, lua_upvalueindex(2));
        if (lua_geti(L, lua_upvalueindex(1), i) == LUA_TNIL) return 1;
        lua_pushvalue(L, -1);
        if (lua_gettable(L, 1) != LUA_TNIL) return 2;
        lua_pop(L, 2); // removed since
    }
}

static int sandbox_pairs(lua_State *L) {
    luaL_checkany(L, 1);
    if (luaL_getmetafield(L, 1, "__pairs") != LUA_TNIL) {
        lua_pushvalue(L, 1);
        lua_call(L, 1, 3);
        return 3;
    }
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 1);
    lua_newtable(L);
    lua_Integer n = 0;
    for (lua_pushnil(L); lua_next(L, 1); lua_pop(L, 1)) {
        int type = lua_type(L, -2);
        if (type != LUA_TNUMBER && type != LUA_TSTRING && type != LUA_TBOOLEAN)
            return luaL_error(L, "pairs: keys have an order here, and %s has none",
                              describe(L, -2));
        lua_pushvalue(L, -2);
        lua_rawseti(L, 2, ++n);
    }
    sandbox_charge(spec_of(L), n);
    lua_getfield(L, LUA_REGISTRYINDEX, "moec.sort");
    lua_pushvalue(L, 2);
    lua_pushcfunction(L, key_before);
    lua_call(L, 2, 0);
    lua_pushinteger(L, 0);
    lua_pushcclosure(L, pairs_next, 2);
    lua_pushvalue(L, 1);
    lua_pushnil(L);
    return 3;
}

/* Functions ----------------------------------------------------------------------------------- */

static int sandbox_pcall(lua_State *L) {
    Spec *S = spec_of(L);
    luaL_checkany(L, 1);
    Scope *scope = S->scope;
    BlockFrame *blocks = S->blocks;
    uint8_t part = S->m->part;
    bool tracing = S->tracing;
    uint32_t depth = S->depth_include;
    int status = lua_pcall(L, lua_gettop(L) - 1, LUA_MULTRET, 0);
    if (status == LUA_OK) {
        lua_pushboolean(L, true);
        lua_insert(L, 1);
        return lua_gettop(L);
    }
    S->scope = scope;
    S->blocks = blocks;
    S->m->part = part;
    S->tracing = tracing;
    S->depth_include = depth;
    if (S->fatal) fault_again(S);
    // A buffer that cannot grow says so in an error of its own.
    S->out_of_memory |= status == LUA_ERRMEM || (lua_type(L, -1) == LUA_TSTRING &&
                                                 !strcmp(lua_tostring(L, -1), "not enough memory"));
    if (S->out_of_memory) lua_error(L);
    if (luaL_testudata(L, -1, spec_diag_type)) lua_getiuservalue(L, -1, 1);
    lua_pushboolean(L, false);
    lua_insert(L, -2);
    return 2;
}

// A finaliser would run outside of every hook.
static int sandbox_setmetatable(lua_State *L) {
    luaL_checktype(L, 1, LUA_TTABLE);
    luaL_argexpected(L, lua_istable(L, 2) || lua_isnil(L, 2), 2, "nil or table");
    if (lua_istable(L, 2)) {
        lua_pushliteral(L, "__gc");
        if (lua_rawget(L, 2) != LUA_TNIL)
            return luaL_error(L, "setmetatable: '__gc' is not available in a spec");
        lua_pop(L, 1);
    }
    lua_settop(L, 2);
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, 2, 1);
    return 1;
}

// Lua's own gives the addresses of tables and functions, which differ between runs.
int sandbox_tostring(lua_State *L) {
    luaL_checkany(L, 1);
    int type = lua_type(L, 1);
    bool plain = type == LUA_TTABLE || type == LUA_TFUNCTION;
    if (plain && luaL_getmetafield(L, 1, "__tostring") == LUA_TNIL)
        lua_pushstring(L, lua_typename(L, type));
    else
        luaL_tolstring(L, 1, NULL);
    return 1;
}

int sandbox_print(lua_State *L) {
    Spec *S = spec_of(L);
    int n = lua_gettop(L);
    luaL_Buffer line;
    luaL_buffinit(L, &line);
    for (int i = 1; i <= n; i++) {
        if (i > 1) luaL_addchar(&line, '\t');
        lua_pushcfunction(L, sandbox_tostring);
        lua_pushvalue(L, i);
        lua_call(L, 1, 1);
        luaL_addvalue(&line);
    }
    luaL_addchar(&line, '\n');
    luaL_pushresult(&line);
    size_t bytes;
    const char *text = lua_tolstring(L, -1, &bytes);
    S->logged += bytes;
    if (S->logged > LIMIT_LOG)
        fault_simple(S, "print: more than %d bytes of output", (int)LIMIT_LOG);
    if (S->options && S->options->log)
        text_add_n(S->options->log, text, bytes);
    else
        fwrite(text, 1, bytes, stderr);
    return 0;
}

static int sandbox_require(lua_State *L) {
    Spec *S = spec_of(L);
    const char *name = luaL_checkstring(L, 1);
    if (strcmp(name, "moec")) {
        fault_raise(S, &(Fault){ .hint = "m.include \"file.lua\" reads another spec" },
                    "a spec can require only \"moec\", not \"%s\"", name);
    }
    lua_getfield(L, LUA_REGISTRYINDEX, S->builtin ? "moec.module" : "moec.proxy");
    return 1;
}

/* Chunks -------------------------------------------------------------------------------------- */

char *sandbox_text(char *text, size_t *bytes) {
    static const char mark[] = "\xef\xbb\xbf";
    if (*bytes < 3 || memcmp(text, mark, 3)) return text;
    *bytes -= 3;
    return text + 3;
}

void sandbox_run(Spec *S, const char *chunk, const char *text, size_t bytes, bool user,
                 int n_args) {
    lua_State *L = S->L;
    // Text only: bytecode can break the interpreter.
    if (bytes && *text == *LUA_SIGNATURE) {
        Fault fault = { .hint = "expected the text of a spec" };
        for (uint32_t i = 0; i < S->n_sources; i++) {
            if (!strcmp(S->sources[i].chunk, chunk)) fault.at.loc.file = S->sources[i].file;
        }
        fault_raise(S, &fault, "the file is a binary chunk of Lua");
    }
    if (bytes && *text == '#') { // as Lua itself: the end of that line stays and is counted
        const char *end = memchr(text, '\n', bytes);
        bytes = end ? bytes - (size_t)(end - text) : 0;
        text = end ? end : text;
    }
    if (luaL_loadbufferx(L, text, bytes, chunk, "t")) {
        fault_handler(L); // syntax: the message has the line
        lua_error(L);
    }
    lua_getfield(L, LUA_REGISTRYINDEX, "moec.env");
    lua_setupvalue(L, -2, 1);
    lua_insert(L, -1 - n_args);
    lua_call(L, n_args, user ? 1 : 0);
}

static bool stays_inside(const char *name) {
    if (!*name || *name == '/') return false;
    for (const char *s = name; s; s = strchr(s, '/')) {
        s += *s == '/';
        if (!strncmp(s, "..", 2) && (!s[2] || s[2] == '/')) return false;
    }
    return true;
}

// Whether the file, links followed, lies below the spec's folder.
static bool is_below(const char *folder, const char *path) {
    char top[PATH_MAX], file[PATH_MAX];
    if (!realpath(folder, top) || !realpath(path, file))
        return true; // reading it fails with the reason
    size_t n = strlen(top);
    return !strcmp(top, "/") || (!strncmp(file, top, n) && file[n] == '/');
}

int sandbox_include(lua_State *L) {
    Spec *S = spec_of(L);
    const char *name = luaL_checkstring(L, 1);
    const char *path = strcmp(S->folder, ".") ? lua_pushfstring(L, "%s/%s", S->folder, name) : name;
    if (!stays_inside(name) || !is_below(S->folder, path)) {
        fault_raise(S, &(Fault){ .hint = "name a file in the spec's folder or below it" },
                    "include: '%s' lies outside of the spec's folder", name);
    }
    if (S->depth_include >= 16)
        fault_simple(S, "include: '%s' is nested 16 deep; does a file include itself?", name);
    char *text;
    size_t bytes;
    if (!file_exists(path)) fault_simple(S, "include: there is no file '%s'", path);
    if (file_read(path, S->arena, &text, &bytes) != OK)
        fault_simple(S, "include: %s", status_message());
    text = sandbox_text(text, &bytes);
    if (bytes > LIMIT_SOURCE)
        fault_simple(S, "include: '%s' has more than %d bytes", path, (int)LIMIT_SOURCE);
    sandbox_charge(S, HOOK_PERIOD + (int64_t)bytes);
    uint32_t file = place_add_source(S, path, text);
    const char *chunk = NULL;
    for (uint32_t i = 0; i < S->n_sources; i++) {
        if (S->sources[i].file == file) chunk = S->sources[i].chunk;
    }
    S->depth_include++;
    sandbox_run(S, chunk, text, bytes, true, 0);
    S->depth_include--;
    return 1;
}

/* The environment ----------------------------------------------------------------------------- */

static void copy_named(lua_State *L, int from, int to, const char *const *names) {
    for (; *names; names++) {
        lua_getfield(L, from, *names);
        lua_setfield(L, to, *names);
    }
}

static void open_math(lua_State *L) {
    luaL_requiref(L, LUA_MATHLIBNAME, luaopen_math, 0);
    static const char *const kept[] = {
        "abs",  "acos", "asin", "atan", "ceil",       "cos",  "deg",        "exp",  "floor",
        "fmod", "huge", "log",  "max",  "maxinteger", "min",  "mininteger", "modf", "pi",
        "rad",  "sin",  "sqrt", "tan",  "tointeger",  "type", "ult",        NULL
    };
    lua_newtable(L);
    copy_named(L, lua_gettop(L) - 1, lua_gettop(L), kept);
    lua_remove(L, -2);
}

void sandbox_open(Spec *S) {
    lua_State *L = S->L;
    static const luaL_Reg own[] = {
        { "pairs", sandbox_pairs },       { "pcall", sandbox_pcall },
        { "tostring", sandbox_tostring }, { "print", sandbox_print },
        { "require", sandbox_require },   { NULL, NULL },
    };
    static const char *const kept[] = { "assert",   "error", "ipairs", "select",
                                        "tonumber", "type",  NULL };
    luaL_requiref(L, LUA_GNAME, luaopen_base, 0);
    int base = lua_gettop(L);
    lua_newtable(L);
    int env = lua_gettop(L);
    copy_named(L, base, env, kept);
    luaL_setfuncs(L, own, 0);
    lua_getfield(L, base, "setmetatable");
    lua_pushcclosure(L, sandbox_setmetatable, 1);
    lua_setfield(L, env, "setmetatable");
    open_math(L);
    sandbox_proxy(L, "math");
    lua_setfield(L, env, "math");
    strings_open(L);
    sandbox_proxy(L, "string");
    lua_setfield(L, env, "string");
    tables_open(L);
    lua_getfield(L, -1, "sort");
    lua_setfield(L, LUA_REGISTRYINDEX, "moec.sort");
    sandbox_proxy(L, "table");
    lua_setfield(L, env, "table");
    lua_pushvalue(L, env);
    sandbox_proxy(L, "");
    lua_setfield(L, LUA_REGISTRYINDEX, "moec.env");
    lua_settop(L, base - 1);
}

// The caller's line would be lost when a spec ends with `return m.softmax(x)`: a tail call replaces
// a Lua frame, but a C function is called from within it. Upvalue: the function of dsl/.
int sandbox_call_through(lua_State *L) {
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
    return lua_gettop(L);
}

void sandbox_seal(Spec *S) {
    lua_State *L = S->L;
    lua_getfield(L, LUA_REGISTRYINDEX, "moec.module");
    int module = lua_gettop(L);
    for (lua_pushnil(L); lua_next(L, module); lua_pop(L, 1)) {
        if (!lua_isfunction(L, -1) || lua_iscfunction(L, -1)) continue;
        lua_pushvalue(L, -2);
        lua_pushvalue(L, -2);
        lua_pushcclosure(L, sandbox_call_through, 1);
        lua_settable(L, module); // an existing field may be assigned while walking
    }
    lua_pushvalue(L, module);
    sandbox_proxy(L, "moec");
    lua_setfield(L, LUA_REGISTRYINDEX, "moec.proxy");
    lua_settop(L, module - 1);
}
