// SPDX-License-Identifier: Apache-2.0
// The libraries `string` and `table` of a spec. What Lua's own do in time or memory that no hook
// sees is bounded here: patterns, repetition, ranges, shifting and sorting are charged to the
// spec's steps. What differs between runs is gone: addresses in text, and the random pivots of
// Lua's sort (this one is a merge sort: stable).
#include <stdio.h>

#include "compiler/spec/internal.h"
#include "compiler/spec/pattern.h"

/* Patterns ------------------------------------------------------------------------------------ */

static void pattern_start(lua_State *L, Pattern *p, int text, int pattern) {
    size_t n, k;
    const char *s = luaL_checklstring(L, text, &n), *q = luaL_checklstring(L, pattern, &k);
    *p = (Pattern){
        .text = s, .text_end = s + n, .pattern = q, .pattern_end = q + k, .max_steps = LIMIT_STEPS
    };
}

// Matches at `s`; work and errors are settled with the spec.
static const char *pattern_try(lua_State *L, Pattern *p, const char *s) {
    int64_t before = p->steps;
    const char *end = pattern_match(p, s);
    sandbox_charge(spec_of(L), p->steps - before);
    if (p->error) luaL_error(L, "%s", p->error);
    return end;
}

static void push_capture(lua_State *L, const Pattern *p, int i, const char *s, const char *end) {
    if (i >= p->n_captures) {
        if (i) luaL_error(L, "there is no capture %%%d", i + 1);
        lua_pushlstring(L, s, (size_t)(end - s));
    } else if (p->captures[i].bytes == CAPTURE_POSITION) {
        lua_pushinteger(L, p->captures[i].at - p->text + 1);
    } else {
        lua_pushlstring(L, p->captures[i].at, (size_t)p->captures[i].bytes);
    }
}

// All captures; without any, the whole match if `whole`.
static int push_captures(lua_State *L, const Pattern *p, const char *s, const char *end,
                         bool whole) {
    int n = p->n_captures || !whole ? p->n_captures : 1;
    luaL_checkstack(L, n, "captures");
    for (int i = 0; i < n; i++) push_capture(L, p, i, s, end);
    return n;
}

static size_t start_index(lua_State *L, int i, size_t n) {
    lua_Integer at = luaL_optinteger(L, i, 1);
    if (at > 0) return (size_t)at - 1;
    if (at == 0 || at < -(lua_Integer)n) return 0;
    return n + (size_t)at;
}

static int find_plain(lua_State *L, size_t from) {
    size_t n, k;
    const char *s = lua_tolstring(L, 1, &n), *word = lua_tolstring(L, 2, &k);
    const char *at = memmem(s + from, n - from, word, k);
    sandbox_charge(spec_of(L), (int64_t)(n - from) / 16);
    if (!at) {
        lua_pushnil(L);
        return 1;
    }
    lua_pushinteger(L, at - s + 1);
    lua_pushinteger(L, at - s + (lua_Integer)k);
    return 2;
}

static int find_or_match(lua_State *L, bool find) {
    Pattern p;
    pattern_start(L, &p, 1, 2);
    size_t n = (size_t)(p.text_end - p.text), from = start_index(L, 3, n);
    if (from > n) {
        lua_pushnil(L);
        return 1;
    }
    // As in Lua, a pattern without special characters is searched for as it is (a ')' too).
    bool special = memchr(p.pattern, 0, (size_t)(p.pattern_end - p.pattern)) ||
                   strpbrk(p.pattern, "^$*+?.([%-");
    if (find && (lua_toboolean(L, 4) || !special)) return find_plain(L, from);
    bool anchored = p.pattern < p.pattern_end && *p.pattern == '^';
    p.pattern += anchored;
    for (const char *s = p.text + from; s <= p.text_end; s++) {
        const char *end = pattern_try(L, &p, s);
        if (end && find) {
            lua_pushinteger(L, s - p.text + 1);
            lua_pushinteger(L, end - p.text);
            return 2 + push_captures(L, &p, s, end, false);
        }
        if (end) return push_captures(L, &p, s, end, true);
        if (anchored) break;
    }
    lua_pushnil(L);
    return 1;
}

static int string_find(lua_State *L) { return find_or_match(L, true); }
static int string_match(lua_State *L) { return find_or_match(L, false); }

// Upvalues: text, pattern, offset to go on from, end of the last match (-1: none).
static int gmatch_next(lua_State *L) {
    Pattern p;
    pattern_start(L, &p, lua_upvalueindex(1), lua_upvalueindex(2));
    lua_Integer last = lua_tointeger(L, lua_upvalueindex(4));
    for (const char *s = p.text + lua_tointeger(L, lua_upvalueindex(3)); s <= p.text_end; s++) {
        const char *end = pattern_try(L, &p, s);
        if (!end || end - p.text == last) continue;
        lua_pushinteger(L, end - p.text);
        lua_pushvalue(L, -1);
        lua_replace(L, lua_upvalueindex(3));
        lua_replace(L, lua_upvalueindex(4));
        return push_captures(L, &p, s, end, true);
    }
    return 0;
}

static int string_gmatch(lua_State *L) {
    size_t n;
    luaL_checklstring(L, 1, &n);
    luaL_checkstring(L, 2);
    size_t from = start_index(L, 3, n);
    lua_settop(L, 2);
    lua_pushinteger(L, (lua_Integer)(from > n ? n + 1 : from));
    lua_pushinteger(L, -1);
    lua_pushcclosure(L, gmatch_next, 4);
    return 1;
}

static void add_replacement_text(lua_State *L, luaL_Buffer *out, const Pattern *p, const char *s,
                                 const char *end) {
    size_t n;
    const char *r = lua_tolstring(L, 3, &n);
    for (size_t i = 0; i < n; i++) {
        if (r[i] != '%') {
            luaL_addchar(out, r[i]);
            continue;
        }
        i++;
        if (i < n && r[i] == '%') {
            luaL_addchar(out, '%');
        } else if (i < n && r[i] == '0') {
            luaL_addlstring(out, s, (size_t)(end - s));
        } else if (i < n && r[i] >= '1' && r[i] <= '9') {
            push_capture(L, p, r[i] - '1', s, end);
            luaL_tolstring(L, -1, NULL);
            lua_remove(L, -2);
            luaL_addvalue(out);
        } else {
            luaL_error(L, "'%%' in the replacement must be followed by a digit or '%%'");
        }
    }
}

static void add_replacement(lua_State *L, luaL_Buffer *out, const Pattern *p, const char *s,
                            const char *end) {
    int kind = lua_type(L, 3);
    if (kind == LUA_TSTRING || kind == LUA_TNUMBER) {
        add_replacement_text(L, out, p, s, end);
        return;
    }
    if (kind == LUA_TTABLE) {
        push_capture(L, p, 0, s, end);
        lua_gettable(L, 3);
    } else {
        lua_pushvalue(L, 3);
        lua_call(L, push_captures(L, p, s, end, true), 1);
    }
    if (!lua_toboolean(L, -1)) {
        lua_pop(L, 1);
        luaL_addlstring(out, s, (size_t)(end - s));
    } else if (lua_isstring(L, -1)) {
        luaL_addvalue(out);
    } else {
        luaL_error(L, "the replacement is %s, must be a string", describe(L, -1));
    }
}

static int string_gsub(lua_State *L) {
    Pattern p;
    pattern_start(L, &p, 1, 2);
    int kind = lua_type(L, 3);
    luaL_argexpected(L,
                     kind == LUA_TSTRING || kind == LUA_TNUMBER || kind == LUA_TTABLE ||
                         kind == LUA_TFUNCTION,
                     3, "string, function or table");
    lua_Integer most = luaL_optinteger(L, 4, LUA_MAXINTEGER), n = 0;
    bool anchored = p.pattern < p.pattern_end && *p.pattern == '^';
    p.pattern += anchored;
    lua_settop(L, 4);
    luaL_Buffer out;
    luaL_buffinit(L, &out);
    const char *s = p.text, *last = NULL;
    while (n < most) {
        const char *end = pattern_try(L, &p, s);
        if (end && end != last) {
            n++;
            add_replacement(L, &out, &p, s, end);
            s = last = end;
        } else if (s < p.text_end) {
            luaL_addchar(&out, *s++);
        } else {
            break;
        }
        if (anchored) break;
    }
    luaL_addlstring(&out, s, (size_t)(p.text_end - s));
    luaL_pushresult(&out);
    lua_pushinteger(L, n);
    return 2;
}

/* string -------------------------------------------------------------------------------------- */

static int string_rep(lua_State *L) {
    size_t n, k;
    const char *s = luaL_checklstring(L, 1, &n);
    lua_Integer times = luaL_checkinteger(L, 2);
    const char *between = luaL_optlstring(L, 3, "", &k);
    if (times <= 0) {
        lua_pushliteral(L, "");
        return 1;
    }
    if (n + k && times > (lua_Integer)(LIMIT_STRING / (n + k)))
        return luaL_error(L, "rep makes a string of more than %d bytes", (int)LIMIT_STRING);
    if (!(n + k)) times = 1;
    luaL_Buffer out;
    luaL_buffinit(L, &out);
    for (lua_Integer i = 0; i < times; i++) {
        if (i) luaL_addlstring(&out, between, k);
        luaL_addlstring(&out, s, n);
    }
    sandbox_charge(spec_of(L), times / 8); // a copy is cheaper than a step
    luaL_pushresult(&out);
    return 1;
}

// As many results as bytes asked for. Upvalue: string.byte.
static int string_byte(lua_State *L) {
    luaL_checkstring(L, 1);
    if (lua_gettop(L) > 2) sandbox_charge(spec_of(L), (int64_t)lua_rawlen(L, 1));
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
    return lua_gettop(L);
}

// Lua's own, without %p, and with every other value as `tostring` here gives it. Upvalue:
// string.format.
static int string_format(lua_State *L) {
    const char *format = luaL_checkstring(L, 1);
    int n = lua_gettop(L), arg = 1;
    for (const char *s = strchr(format, '%'); s; s = strchr(s, '%')) {
        s += 1 + strspn(s + 1, "-+ #0123456789.");
        if (*s == '%') {
            s++;
            continue;
        }
        if (*s == 'p') return luaL_error(L, "format has no %%p: addresses differ between runs");
        arg++;
        int kind = lua_type(L, arg);
        if (arg <= n && *s == 's' && kind != LUA_TSTRING && kind != LUA_TNUMBER) {
            lua_pushcfunction(L, sandbox_tostring);
            lua_pushvalue(L, arg);
            lua_call(L, 1, 1);
            lua_replace(L, arg);
        }
    }
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, n, 1);
    return 1;
}

static void copy_functions(lua_State *L, const char *const *names) { // from the table below the top
    for (; *names; names++) {
        lua_getfield(L, -2, *names);
        lua_setfield(L, -2, *names);
    }
}

void strings_open(lua_State *L) {
    static const char *const kept[] = { "char", "len", "lower", "reverse", "sub", "upper", NULL };
    static const luaL_Reg own[] = {
        { "find", string_find }, { "match", string_match }, { "gmatch", string_gmatch },
        { "gsub", string_gsub }, { "rep", string_rep },     { NULL, NULL },
    };
    luaL_requiref(L, LUA_STRLIBNAME, luaopen_string, 0);
    lua_newtable(L);
    copy_functions(L, kept);
    luaL_setfuncs(L, own, 0);
    lua_getfield(L, -2, "format");
    lua_pushcclosure(L, string_format, 1);
    lua_setfield(L, -2, "format");
    lua_getfield(L, -2, "byte");
    lua_pushcclosure(L, string_byte, 1);
    lua_setfield(L, -2, "byte");
    // ("x"):rep() goes through the metatable of strings: it must not lead to Lua's own functions.
    lua_pushliteral(L, "");
    lua_getmetatable(L, -1);
    lua_pushvalue(L, -3);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 2);
    lua_remove(L, -2);
}

/* table --------------------------------------------------------------------------------------- */

// Charges for `last - first + 1` accesses, which may not fit in an integer.
static void charge_range(lua_State *L, lua_Integer first, lua_Integer last) {
    if (last < first) return;
    uint64_t n = (uint64_t)last - (uint64_t)first + 1;
    sandbox_charge(spec_of(L), n - 1 < LIMIT_STEPS ? (int64_t)n : LIMIT_STEPS + 1);
}

// Lua's own function (upvalue 1) for ranges given as arguments `first` and `last`.
static int ranged(lua_State *L, int first, int last) {
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_Integer to = lua_isnoneornil(L, last) ? luaL_len(L, 1) : luaL_checkinteger(L, last);
    charge_range(L, luaL_optinteger(L, first, 1), to);
    int n = lua_gettop(L);
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, n, LUA_MULTRET);
    return lua_gettop(L);
}

static int table_concat(lua_State *L) { return ranged(L, 3, 4); }
static int table_unpack(lua_State *L) { return ranged(L, 2, 3); }
static int table_move(lua_State *L) { return ranged(L, 2, 3); }

// insert and remove: everything behind the position moves.
static int shifting(lua_State *L, int position) {
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_Integer n = luaL_len(L, 1);
    if (position && lua_isinteger(L, position)) charge_range(L, lua_tointeger(L, position), n);
    int args = lua_gettop(L);
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, args, LUA_MULTRET);
    return lua_gettop(L);
}

static int table_insert(lua_State *L) { return shifting(L, lua_gettop(L) > 2 ? 2 : 0); }
static int table_remove(lua_State *L) { return shifting(L, lua_gettop(L) > 1 ? 2 : 0); }

// Whether the value at stack index `a` comes before the one at `b`.
static bool before(lua_State *L, int a, int b) {
    if (lua_isnil(L, 2)) return lua_compare(L, a, b, LUA_OPLT);
    lua_pushvalue(L, 2);
    lua_pushvalue(L, a);
    lua_pushvalue(L, b);
    lua_call(L, 2, 1);
    bool yes = lua_toboolean(L, -1);
    lua_pop(L, 1);
    return yes;
}

// Merges the runs [lo, mid) and [mid, hi) of the table at `from` into the one at `to`.
static void merge(lua_State *L, int from, int to, lua_Integer lo, lua_Integer mid, lua_Integer hi) {
    lua_Integer a = lo, b = mid;
    for (lua_Integer i = lo; i < hi; i++) {
        bool second = a == mid;
        if (!second && b < hi) {
            lua_rawgeti(L, from, b);
            lua_rawgeti(L, from, a);
            int top = lua_gettop(L);
            second = before(L, top - 1, top);
            lua_pop(L, 2);
        }
        lua_rawgeti(L, from, second ? b : a);
        lua_rawseti(L, to, i);
        if (second)
            b++;
        else
            a++;
    }
}

static int table_sort(lua_State *L) {
    luaL_checktype(L, 1, LUA_TTABLE);
    if (!lua_isnoneornil(L, 2)) luaL_checktype(L, 2, LUA_TFUNCTION);
    lua_settop(L, 2);
    lua_Integer n = luaL_len(L, 1);
    charge_range(L, 1, n);
    lua_createtable(L, (int)n, 0); // 3, 4: the values go to and fro
    lua_createtable(L, (int)n, 0);
    for (lua_Integer i = 1; i <= n; i++) {
        lua_geti(L, 1, i);
        lua_rawseti(L, 3, i);
    }
    int from = 3, to = 4;
    for (lua_Integer run = 1; run < n; run *= 2) {
        charge_range(L, 1, n);
        for (lua_Integer lo = 1; lo <= n; lo += 2 * run) {
            lua_Integer mid = min_i64(lo + run, n + 1), hi = min_i64(lo + 2 * run, n + 1);
            merge(L, from, to, lo, mid, hi);
        }
        int swap = from;
        from = to;
        to = swap;
    }
    for (lua_Integer i = 1; i <= n; i++) {
        lua_rawgeti(L, from, i);
        lua_seti(L, 1, i);
    }
    return 0;
}

void tables_open(lua_State *L) {
    static const luaL_Reg wrapped[] = {
        { "concat", table_concat }, { "unpack", table_unpack }, { "move", table_move },
        { "insert", table_insert }, { "remove", table_remove },
    };
    luaL_requiref(L, LUA_TABLIBNAME, luaopen_table, 0);
    lua_newtable(L);
    lua_getfield(L, -2, "pack");
    lua_setfield(L, -2, "pack");
    lua_pushcfunction(L, table_sort);
    lua_setfield(L, -2, "sort");
    for (int i = 0; i < COUNT_OF(wrapped); i++) {
        lua_getfield(L, -2, wrapped[i].name);
        lua_pushcclosure(L, wrapped[i].func, 1);
        lua_setfield(L, -2, wrapped[i].name);
    }
    lua_remove(L, -2);
}
