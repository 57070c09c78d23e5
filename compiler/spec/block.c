// SPDX-License-Identifier: Apache-2.0
// Blocks: functions with named, checked fields. m.define makes a kind of block from rows; its
// constructor is a C function, so that a spec that returns its result (a tail call) keeps the line
// of the call.
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "compiler/spec/internal.h"

const char spec_block_type[] = "moec.block";
enum { MAX_ROWS = 32, MAX_DEFINES = 1000, MAX_NESTING = 16 };

const Block *is_block(lua_State *L, int i) { return luaL_testudata(L, i, spec_block_type); }

bool is_callable(lua_State *L, int i) { return lua_isfunction(L, i) || is_block(L, i); }

static bool is_plain_table(lua_State *L, int i) {
    if (!lua_istable(L, i)) return false;
    if (!lua_getmetatable(L, i)) return true;
    lua_pop(L, 1);
    return false;
}

static int row_of(const Define *d, const char *name) {
    for (int i = 0; i < d->n_rows; i++) {
        if (!strcmp(d->rows[i].name, name)) return i;
    }
    return -1;
}

static const Define *define_named(const Spec *S, const char *name) {
    for (uint32_t i = 0; i < S->n_defines; i++) {
        if (!strcmp(S->defines[i]->name, name)) return S->defines[i];
    }
    return NULL;
}

/* Types of fields ----------------------------------------------------------------------------- */

static const struct {
    const char *type, *says;
} plain_types[] = {
    { "size", "a positive integer" },     { "integer", "an integer" }, { "number", "a number" },
    { "boolean", "true or false" },       { "string", "a string" },    { "function", "a function" },
    { "block", "a block or a function" }, { "list", "a list" },
};

static const char *says_plain(const char *type) {
    for (int i = 0; i < COUNT_OF(plain_types); i++) {
        if (!strcmp(plain_types[i].type, type)) return plain_types[i].says;
    }
    return NULL;
}

// A table of entries 1 .. n and nothing else.
static bool is_list(lua_State *L, int i) {
    if (!is_plain_table(L, i)) return false;
    lua_Integer n = luaL_len(L, i), found = 0;
    for (lua_pushnil(L); lua_next(L, i); lua_pop(L, 1)) {
        lua_Integer at = lua_isinteger(L, -2) ? lua_tointeger(L, -2) : 0;
        found += at >= 1 && at <= n ? 1 : n + 1;
    }
    return found == n;
}

// Whether the value on top is of the plain type; a whole float becomes an integer.
static bool fits_plain(lua_State *L, const char *type) {
    int lua = lua_type(L, -1), whole = 0;
    lua_Integer n = lua == LUA_TNUMBER ? lua_tointegerx(L, -1, &whole) : 0;
    if (!strcmp(type, "size") || !strcmp(type, "integer")) {
        if (!whole) return false;
        lua_pushinteger(L, n);
        lua_replace(L, -2);
        return !strcmp(type, "integer") || (n > 0 && n <= INT32_MAX);
    }
    if (!strcmp(type, "number")) return lua == LUA_TNUMBER && fabs(lua_tonumber(L, -1)) <= FLT_MAX;
    if (!strcmp(type, "boolean")) return lua == LUA_TBOOLEAN;
    if (!strcmp(type, "string")) return lua == LUA_TSTRING;
    if (!strcmp(type, "list")) return is_list(L, lua_gettop(L));
    return is_callable(L, lua_gettop(L)); // function, block
}

static bool is_choice(const char *type) { return *type == '"'; }

static bool fits_choice(lua_State *L, const char *type) {
    if (lua_type(L, -1) != LUA_TSTRING) return false;
    size_t n;
    const char *value = lua_tolstring(L, -1, &n);
    return strlen(type) == n + 2 && !memcmp(type + 1, value, n);
}

static bool row_has_type(const Row *row, const char *type) {
    for (int i = 0; i < row->n_types; i++) {
        if (!strcmp(row->types[i], type)) return true;
    }
    return false;
}

// "a, b or c" of what the row takes.
static void push_expected(Spec *S, const Row *row) {
    Text text = { 0 };
    for (int i = 0; i < row->n_types; i++) {
        const char *type = row->types[i], *says = says_plain(type);
        if (i) text_add(&text, i + 1 < row->n_types ? ", " : " or ");
        if (says)
            text_add(&text, says);
        else if (is_choice(type))
            text_add(&text, type);
        else
            text_printf(&text, "the fields of %s, or a block", type);
    }
    lua_pushlstring(S->L, text_cstr(&text), text.bytes);
    text_finish(&text);
}

static const char *hint_for_value(Spec *S, const Row *row, int value) {
    lua_State *L = S->L;
    bool size = row_has_type(row, "size");
    if (size && lua_type(L, value) == LUA_TNUMBER && lua_tonumber(L, value) > INT32_MAX)
        return fault_hint(S, "sizes go up to %d", (int)INT32_MAX);
    if (lua_type(L, value) == LUA_TNUMBER && fabs(lua_tonumber(L, value)) > FLT_MAX)
        return "numbers are fp32 ones, up to 3.4e38";
    if (row_has_type(row, "list") && is_plain_table(L, value))
        return "a list has no named entries and no gaps: { a, b }";
    if (size && lua_type(L, value) == LUA_TNUMBER && !lua_isinteger(L, value) &&
        lua_tonumber(L, value) > 0 && lua_tonumber(L, value) < INT32_MAX) {
        return fault_hint(S,
                          "whole numbers only: // divides without remainder; rounded up to a "
                          "multiple of 128 this is %lld",
                          (long long)round_up((int64_t)ceil(lua_tonumber(L, value)), 128));
    }
    if (lua_type(L, value) == LUA_TSTRING) {
        if ((size || row_has_type(row, "number")) && lua_stringtonumber(L, lua_tostring(L, value)))
            return "without quotes";
        const char *words[MAX_ROWS];
        int n = 0;
        for (int i = 0; i < row->n_types && n < MAX_ROWS; i++) {
            const char *type = row->types[i];
            if (is_choice(type)) words[n++] = lua_pushlstring(L, type + 1, strlen(type) - 2);
        }
        const char *near = spec_nearest(lua_tostring(L, value), words, n);
        if (near) return fault_hint(S, "did you mean \"%s\"?", near);
    }
    return row->doc ? fault_hint(S, "%s: %s", row->name, row->doc) : NULL;
}

/* Construction -------------------------------------------------------------------------------- */

static void construct(Spec *S, const Define *d, int given, Place place, int depth);

static void unknown_field(Spec *S, const Define *d, const char *name, Place place, bool field) {
    const char *words[MAX_ROWS];
    for (int i = 0; i < d->n_rows; i++) words[i] = d->rows[i].name;
    const char *near = spec_nearest(name, words, d->n_rows);
    Text list = { 0 };
    if (near) text_printf(&list, "did you mean '%s'? ", near);
    text_add(&list, d->n_rows ? "fields: " : "it takes none");
    for (int i = 0; i < d->n_rows; i++) text_printf(&list, "%s%s", i ? ", " : "", words[i]);
    Fault fault = { .at = place, .word = name, .field = field, .plain = true };
    fault.hint = fault_hint(S, "%s", text_cstr(&list));
    text_finish(&list);
    fault_raise(S, &fault, "%s has no field '%s'", d->name, name);
}

static void check_names(Spec *S, const Define *d, int given, Place place) {
    lua_State *L = S->L;
    const char *first = NULL; // in order, so that the same one is told in every run
    for (lua_pushnil(L); lua_next(L, given); lua_pop(L, 1)) {
        if (lua_type(L, -2) != LUA_TSTRING) {
            fault_raise(
                S,
                &(Fault){ .at = place, .plain = true, .hint = "fields have names: { heads = 8 }" },
                "%s has no field %s", d->name, describe(L, -2));
        }
        const char *name = lua_tostring(L, -2);
        if (row_of(d, name) < 0 && (!first || strcmp(name, first) < 0)) first = name;
    }
    if (first) unknown_field(S, d, first, place, true);
}

// The value on top becomes what the row takes: itself, or the block that its fields make.
static void take_value(Spec *S, const Define *d, const Row *row, Place place, int depth) {
    lua_State *L = S->L;
    bool ok = row->optional && lua_type(L, -1) == LUA_TBOOLEAN && !lua_toboolean(L, -1);
    for (int i = 0; i < row->n_types && !ok; i++) {
        const char *type = row->types[i];
        if (is_choice(type)) {
            ok = fits_choice(L, type);
        } else if (says_plain(type)) {
            ok = fits_plain(L, type);
        } else {
            bool defaults = lua_isboolean(L, -1) && lua_toboolean(L, -1);
            if (defaults) lua_newtable(L);
            if (defaults || is_plain_table(L, lua_gettop(L))) {
                lua_pushfstring(L, "%s/%s", place.path, row->name);
                uint32_t path =
                    model_intern(S->m, lua_tostring(L, -1)); // once, however often it is made
                lua_pop(L, 1);
                Place inner = { place.loc, model_name(S->m, path) };
                construct(S, define_named(S, type), lua_gettop(L), inner, depth + 1);
                if (defaults) lua_remove(L, -2);
                lua_replace(L, -2);
            }
            ok = is_callable(L, lua_gettop(L));
        }
    }
    if (ok) return;
    int value = lua_gettop(L);
    const char *got = describe(L, value);
    push_expected(S, row);
    const char *want = lua_tostring(L, -1), *who = S->setting ? "--set: " : "";
    S->setting = false;
    fault_raise(S,
                &(Fault){ .at = place,
                          .word = row->name,
                          .field = true,
                          .plain = true,
                          .hint = hint_for_value(S, row, value) },
                "%s%s.%s must be %s, got %s", who, d->name, row->name, want, got);
}

static void missing_field(Spec *S, const Define *d, const Row *row, Place place) {
    push_expected(S, row);
    Fault fault = { .at = place, .plain = true };
    if (row->doc) fault.hint = fault_hint(S, "%s: %s", row->name, row->doc);
    fault_raise(S, &fault, "%s needs '%s', %s", d->name, row->name, lua_tostring(S->L, -1));
}

// Pushes the block that the table at `given` makes.
static void construct(Spec *S, const Define *d, int given, Place place, int depth) {
    lua_State *L = S->L;
    luaL_checkstack(L, 16, "blocks are nested too deep");
    if (depth > MAX_NESTING) fault_simple(S, "%s: tables are nested too deep", d->name);
    if (!is_plain_table(L, given)) {
        fault_raise(S, &(Fault){ .at = place, .plain = true }, "%s takes a table of fields, got %s",
                    d->name, describe(L, given));
    }
    check_names(S, d, given, place);
    Block *b = lua_newuserdatauv(L, sizeof *b, 1);
    *b = (Block){ d, place };
    lua_createtable(L, d->n_rows, 0);
    for (int i = 0; i < d->n_rows; i++) {
        const Row *row = &d->rows[i];
        lua_getfield(L, given, row->name);
        if (lua_isnil(L, -1)) {
            if (row->required) missing_field(S, d, row, place);
            lua_pop(L, 1);
            lua_rawgeti(L, LUA_REGISTRYINDEX, d->values);
            lua_rawgeti(L, -1, i + 2);
            lua_remove(L, -2);
        }
        take_value(S, d, row, place, depth);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setiuservalue(L, -2, 1);
    luaL_setmetatable(L, spec_block_type);
}

// Upvalue: the Define.
static int constructor(lua_State *L) {
    Spec *S = spec_of(L);
    const Define *d = lua_touserdata(L, lua_upvalueindex(1));
    Place place = { place_now(S), d->name };
    if (lua_gettop(L) > 1) fault_simple(S, "%s takes one table of fields", d->name);
    if (lua_isnone(L, 1)) lua_newtable(L);
    construct(S, d, 1, place, 0);
    return 1;
}

/* Blocks as values ---------------------------------------------------------------------------- */

void block_field(lua_State *L, int i, const char *name) {
    i = lua_absindex(L, i);
    const Block *b = is_block(L, i);
    lua_getiuservalue(L, i, 1);
    lua_rawgeti(L, -1, row_of(b->define, name) + 1);
    lua_remove(L, -2);
}

static int block_with(lua_State *L) {
    Spec *S = spec_of(L);
    const Block *b = is_block(L, 1);
    if (!b) {
        fault_raise(S, &(Fault){ .hint = "write block:with { field = value }, with a colon" },
                    "with: expected a block, got %s", describe(L, 1));
    }
    Place place = { place_now(S), "with" };
    if (!is_plain_table(L, 2)) {
        fault_raise(S, &(Fault){ .at = place, .plain = true },
                    "%s:with takes a table of fields, got %s", b->define->name, describe(L, 2));
    }
    lua_settop(L, 2);
    lua_newtable(L);
    for (int i = 0; i < b->define->n_rows; i++) {
        block_field(L, 1, b->define->rows[i].name);
        lua_setfield(L, 3, b->define->rows[i].name);
    }
    for (lua_pushnil(L); lua_next(L, 2); lua_pop(L, 1)) {
        lua_pushvalue(L, -2);
        lua_pushvalue(L, -2);
        lua_settable(L, 3);
    }
    construct(S, b->define, 3, place, 0);
    return 1;
}

static int block_index(lua_State *L) {
    const Block *b = is_block(L, 1);
    const char *name = lua_type(L, 2) == LUA_TSTRING ? lua_tostring(L, 2) : describe(L, 2);
    if (!strcmp(name, "with")) {
        lua_pushcfunction(L, block_with);
    } else {
        if (row_of(b->define, name) < 0)
            unknown_field(spec_of(L), b->define, name, (Place){ 0 }, false);
        block_field(L, 1, name);
    }
    return 1;
}

static int block_newindex(lua_State *L) {
    const char *name = lua_type(L, 2) == LUA_TSTRING ? lua_tostring(L, 2) : "?";
    const char *hint = fault_hint(spec_of(L), "block:with { %s = ... } is a changed copy", name);
    fault_raise(spec_of(L), &(Fault){ .word = name, .hint = hint }, "a %s cannot be changed",
                is_block(L, 1)->define->name);
}

static int block_text(lua_State *L) {
    lua_pushfstring(L, "a %s", is_block(L, 1)->define->name);
    return 1;
}

// Pushes what a word of the command line means to the row: a boolean or a number where it takes one.
static void push_word(lua_State *L, const Row *row, const char *word) {
    bool is_true = !strcmp(word, "true"), is_false = !strcmp(word, "false");
    bool boolean = row->optional && is_false, number = false;
    for (int i = 0; i < row->n_types; i++) {
        const char *type = row->types[i];
        boolean |= !strcmp(type, "boolean") || (!is_choice(type) && !says_plain(type));
        number |= !strcmp(type, "size") || !strcmp(type, "integer") || !strcmp(type, "number");
    }
    if (boolean && (is_true || is_false))
        lua_pushboolean(L, is_true);
    else if (!number || !lua_stringtonumber(L, word))
        lua_pushstring(L, word);
}

bool block_set(Spec *S, int i, const char *field, const char *value) {
    lua_State *L = S->L;
    luaL_checkstack(L, 16, "blocks are nested too deep");
    i = lua_absindex(L, i);
    const Block *old = is_block(L, i);
    const Define *d = old->define;
    int at = row_of(d, field);
    if (at < 0) return false;
    Block *b = lua_newuserdatauv(L, sizeof *b, 1);
    *b = *old;
    lua_createtable(L, d->n_rows, 0);
    for (int k = 0; k < d->n_rows; k++) {
        block_field(L, i, d->rows[k].name);
        lua_rawseti(L, -2, k + 1);
    }
    push_word(L, &d->rows[at], value);
    S->setting = true;
    take_value(S, d, &d->rows[at], old->place, 0);
    S->setting = false;
    lua_rawseti(L, -2, at + 1);
    lua_setiuservalue(L, -2, 1);
    luaL_setmetatable(L, spec_block_type);
    lua_replace(L, i);
    return true;
}

// The function gets the block itself for its fields.
int block_call(lua_State *L) {
    Spec *S = spec_of(L);
    set_apply(S, 1);
    const Block *b = is_block(L, 1);
    BlockFrame frame = { S->blocks, b };
    S->blocks = &frame;
    lua_rawgeti(L, LUA_REGISTRYINDEX, b->define->values);
    lua_rawgeti(L, -1, 1);
    lua_remove(L, -2);
    lua_insert(L, 1);
    lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
    S->blocks = frame.up;
    return lua_gettop(L);
}

/* m.define ------------------------------------------------------------------------------------ */

static void parse_types(Spec *S, Row *row, const char *text, const char *block) {
    char *copy = arena_strdup(S->arena, text), *save;
    row->types = ARENA_ARRAY(S->arena, const char *, strlen(text) / 2 + 1);
    for (char *t = strtok_r(copy, "|", &save); t; t = strtok_r(NULL, "|", &save)) {
        t += strspn(t, " ");
        size_t n = strlen(t);
        while (n && t[n - 1] == ' ') t[--n] = 0;
        if (!is_choice(t) && !says_plain(t) && !define_named(S, t)) {
            const char *words[COUNT_OF(plain_types)];
            for (int i = 0; i < COUNT_OF(plain_types); i++) words[i] = plain_types[i].type;
            const char *near = spec_nearest(t, words, COUNT_OF(words));
            const char *hint = near ? fault_hint(S, "did you mean '%s'?", near)
                                    : "size, integer, number, boolean, string, function, block, "
                                      "list, a block's name or \"a word\"";
            fault_raise(S, &(Fault){ .plain = true, .hint = hint },
                        "define '%s': field '%s' has the unknown type '%s'", block, row->name, t);
        }
        row->types[row->n_types++] = t;
    }
    if (!row->n_types) fault_simple(S, "define '%s': field '%s' has no type", block, row->name);
}

// Row `i` of the list at index 2; its default goes into the table at index 4.
static void read_row(lua_State *L, Define *d, int i) {
    Spec *S = spec_of(L);
    Row *row = &d->rows[i];
    lua_geti(L, 2, i + 1);
    int at = lua_gettop(L);
    if (!lua_istable(L, at) || lua_geti(L, at, 1) != LUA_TSTRING ||
        lua_geti(L, at, 2) != LUA_TSTRING) {
        fault_simple(S, "define '%s': row %d must be { name, type, default, doc = \"\" }", d->name,
                     i + 1);
    }
    row->name = arena_strdup(S->arena, lua_tostring(L, at + 1));
    if (!strcmp(row->name, "with") || row_of(d, row->name) != i) {
        fault_simple(S, "define '%s': a field cannot be named '%s'%s", d->name, row->name,
                     strcmp(row->name, "with") ? " twice" : "");
    }
    d->n_rows = i + 1;
    parse_types(S, row, lua_tostring(L, at + 2), d->name);
    lua_geti(L, at, 3);
    row->required = lua_isnil(L, -1);
    row->optional = lua_isboolean(L, -1) && !lua_toboolean(L, -1);
    lua_rawseti(L, 4, i + 2);
    if (lua_getfield(L, at, "doc") == LUA_TSTRING)
        row->doc = arena_strdup(S->arena, lua_tostring(L, -1));
    lua_settop(L, at - 1);
}

static int op_define(lua_State *L) {
    Spec *S = spec_of(L);
    const char *name = need_name(L, 1, "define");
    if (!lua_istable(L, 2))
        fault_simple(S, "define '%s': the rows must be a list, got %s", name, describe(L, 2));
    if (!lua_isfunction(L, 3))
        fault_simple(S, "define '%s': expected a function of (fields, ...), got %s", name,
                     describe(L, 3));
    lua_Integer n = luaL_len(L, 2);
    if (n > MAX_ROWS) fault_simple(S, "define '%s': at most %d fields", name, MAX_ROWS);
    const Define *old = define_named(S, name);
    if ((old && old->builtin) ||
        (!S->builtin && says_plain(name))) { // m.block itself is named like a type
        fault_raise(
            S,
            &(Fault){
                .hint = "choose another name; the local that holds the constructor may have any" },
            "define: '%s' is built in", name);
    }
    if (S->n_defines >= MAX_DEFINES)
        fault_simple(S, "define: more than %d kinds of block", MAX_DEFINES);
    lua_settop(L, 3);
    lua_createtable(L, (int)n + 1, 0);
    lua_pushvalue(L, 3);
    lua_rawseti(L, 4, 1);
    Define *d = ARENA_NEW(S->arena, Define);
    d->name = arena_strdup(S->arena, name);
    d->builtin = S->builtin;
    d->rows = ARENA_ARRAY(S->arena, Row, n + 1);
    // While row i is read the rows before it count, and it: a name used twice is found at its first
    // place.
    for (int i = 0; i < n; i++) {
        d->n_rows = i + 1;
        d->rows[i].name = "";
        read_row(L, d, i);
    }
    d->values = luaL_ref(L, LUA_REGISTRYINDEX);
    // A later definition of the same name (a file included twice) replaces the earlier one for new
    // blocks.
    for (uint32_t i = 0; i < S->n_defines; i++) {
        if (S->defines[i] == old) S->defines[i] = d;
    }
    if (!old) *ARENA_PUSH(S->arena, S->defines, S->n_defines, S->cap_defines) = d;
    lua_pushlightuserdata(L, d);
    lua_pushcclosure(L, constructor, 1);
    return 1;
}

/* m.arity ------------------------------------------------------------------------------------- */

// The number of arguments that a function or block names.
static int op_arity(lua_State *L) {
    Spec *S = spec_of(L);
    luaL_checkany(L, 1);
    lua_settop(L, 1);
    const Block *b = is_block(L, 1);
    if (b) {
        lua_rawgeti(L, LUA_REGISTRYINDEX, b->define->values);
        lua_rawgeti(L, -1, 1);
    }
    if (lua_tocfunction(L, -1) == sandbox_call_through) lua_getupvalue(L, -1, 1);
    if (!lua_isfunction(L, -1))
        fault_simple(S, "arity: expected a function or a block, got %s", describe(L, 1));
    int n = tensor_arity(L, lua_gettop(L));
    if (!n) {
        lua_Debug ar;
        lua_getinfo(L, ">u", &ar);
        n = ar.isvararg ? 0 : ar.nparams - (b != NULL);
    }
    if (n < 1) {
        fault_raise(S, &(Fault){ .word = "activation", .field = true },
                    "an activation must name its arguments: (h) or (gate, up)");
    }
    lua_pushinteger(L, n);
    return 1;
}

void block_open(Spec *S, int module) {
    lua_State *L = S->L;
    static const luaL_Reg events[] = {
        { "__index", block_index },
        { "__newindex", block_newindex },
        { "__call", block_call },
        { "__tostring", block_text },
        { NULL, NULL },
    };
    static const luaL_Reg shown[] = { { "define", op_define },
                                      { "arity", op_arity },
                                      { NULL, NULL } };
    luaL_newmetatable(L, spec_block_type);
    luaL_setfuncs(L, events, 0);
    lua_pop(L, 1);
    lua_pushvalue(L, module);
    luaL_setfuncs(L, shown, 0);
    lua_pop(L, 1);
}
