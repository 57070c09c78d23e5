// SPDX-License-Identifier: Apache-2.0
// The bounded pattern matcher against Lua's own, on patterns and texts drawn at random and on
// chosen ones.
#include "tests/spec/helper.h"

#include <lauxlib.h>
#include <lualib.h>
#include <stdio.h>
#include <stdlib.h>

#include "compiler/spec/pattern.h"

// string.find of Lua itself: "start end capture capture ...", "nil", or "error".
static void lua_answer(lua_State *L, const char *text, const char *pattern, Text *out) {
    lua_settop(L, 0);
    lua_getglobal(L, "string");
    lua_getfield(L, -1, "find");
    lua_replace(L, 1);
    lua_pushstring(L, text);
    lua_pushstring(L, pattern);
    if (lua_pcall(L, 2, LUA_MULTRET, 0)) {
        text_add(out, "error");
        return;
    }
    for (int i = 1; i <= lua_gettop(L); i++)
        text_printf(out, "%s ", lua_isnil(L, i) ? "nil" : lua_tostring(L, i));
}

static void our_answer(const char *text, const char *pattern, Text *out) {
    bool anchored = *pattern == '^';
    Pattern p = { .text = text,
                  .text_end = text + strlen(text),
                  .pattern = pattern + anchored,
                  .max_steps = 1 << 20 };
    p.pattern_end = pattern + strlen(pattern);
    for (const char *s = text; s <= p.text_end; s++) {
        const char *end = pattern_match(&p, s);
        if (p.error) {
            text_add(out, "error");
            return;
        }
        assert_true(p.steps < p.max_steps);
        if (end) {
            text_printf(out, "%d %d ", (int)(s - text) + 1, (int)(end - text));
            for (int i = 0; i < p.n_captures; i++) {
                const Capture *c = &p.captures[i];
                if (c->bytes == CAPTURE_POSITION)
                    text_printf(out, "%d ", (int)(c->at - text) + 1);
                else
                    text_printf(out, "%.*s ", (int)c->bytes, c->at);
            }
            return;
        }
        if (anchored) break;
    }
    text_add(out, "nil ");
}

static void compare(lua_State *L, const char *text, const char *pattern) {
    if (!strpbrk(pattern, "^$*+?.([%-")) return; // Lua does not run its matcher then
    Text want = { 0 }, got = { 0 };
    lua_answer(L, text, pattern, &want);
    our_answer(text, pattern, &got);
    if (strcmp(text_cstr(&want), text_cstr(&got)))
        fail_msg("'%s' in '%s': '%s', Lua gives '%s'", pattern, text, text_cstr(&got),
                 text_cstr(&want));
    text_finish(&want);
    text_finish(&got);
}

static lua_State *new_lua(void) {
    lua_State *L = luaL_newstate();
    assert_non_null(L);
    luaL_openlibs(L);
    return L;
}

static void chosen(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        { "hello world", "o w" },
        { "hello", "l+" },
        { "hello", "l*" },
        { "hello", "^h" },
        { "hello", "^e" },
        { "hello", "o$" },
        { "a.b", "%." },
        { "key = value", "^(%w+)%s*=%s*(%w+)$" },
        { "THE (quick) fox", "%((%a+)%)" },
        { "f(a(b)c)d", "%b()" },
        { "THE (quick) fox", "%f[%a]%a+%f[%A]" },
        { "abcabc", "(abc)%1" },
        { "abab", "((a)(b))%1" },
        { "x", "()" },
        { "xy", "()y()" },
        { "a-b", "[a-]+" },
        { "]", "[]]" },
        { "^", "[%^]" },
        { "a^", "[a^]+" },
        { "abc", "[^a]" },
        { "a]b", "[^]]+" },
        { "", "" },
        { "", ".*" },
        { "aaa", "a-b" },
        { "aaab", "a-b" },
        { "x%y", "%%" },
        { "$", "%$" },
        { "a$b", "a$b" },
        { "(", "(" },
        { ")", ")" },
        { "a", "%" },
        { "a", "[" },
        { "a", "[a" },
        { "a", "%b" },
        { "a", "%bx" },
        { "a", "%f" },
        { "a", "%1" },
        { "aa", "(a%1)" },
        { "a", "a?a?a" },
        { "0x1F", "%x+" },
        { "tab\there", "%s" },
        { "A1!", "%p" },
        { "ab", "a()b" },
        { "x=1,y=2", "(%w)=(%w),(%w)=(%w)" },
    };
    lua_State *L = new_lua();
    for (int i = 0; i < COUNT_OF(cases); i++) compare(L, cases[i][0], cases[i][1]);
    lua_close(L);
}

static void random_ones(void **state) {
    (void)state;
    static const char pattern_letters[] = "aab.%^$*+-?()[]1bfw", text_letters[] = "aab.(1-";
    lua_State *L = new_lua();
    for (uint64_t i = 0; i < 60000; i++) {
        char text[12] = "", pattern[10] = "";
        int n = (int)(hash_mix(1, i, 0) % 10), k = (int)(hash_mix(1, i, 1) % 9);
        for (int j = 0; j < n; j++)
            text[j] = text_letters[hash_mix(2, i, (uint64_t)j) % (sizeof text_letters - 1)];
        for (int j = 0; j < k; j++)
            pattern[j] =
                pattern_letters[hash_mix(3, i, (uint64_t)j) % (sizeof pattern_letters - 1)];
        compare(L, text, pattern);
    }
    lua_close(L);
}

// The functions around the matcher, through a spec.
static void functions(void **state) {
    (void)state;
    expect_print("print(('hello world'):gsub('o', '0'))", "hell0 w0rld\t2\n");
    expect_print("print(('hello'):gsub('', '-'))", "-h-e-l-l-o-\t6\n");
    expect_print("print(('abc'):gsub('%w', '%0%0'))", "aabbcc\t3\n");
    expect_print("print(('a b'):gsub('(%w) (%w)', '%2 %1'))", "b a\t1\n");
    expect_print("print(('$x $y'):gsub('%$(%w)', { x = 1, y = false }))", "1 $y\t2\n");
    expect_print("print(('abc'):gsub('%w', function(c) if c ~= 'b' then return c:upper() end end))",
                 "AbC\t3\n");
    expect_print("print(('abc'):gsub('%w', '%%', 2))", "%%c\t2\n");
    expect_print("print(('abcabc'):gsub('^a', 'x'))", "xbcabc\t1\n");
    expect_print("for k, v in ('a=1, b=2'):gmatch('(%w)=(%w)') do print(k, v) end", "a\t1\nb\t2\n");
    expect_print("for w in ('one two'):gmatch('%a+') do print(w) end", "one\ntwo\n");
    expect_print("for p in ('ab'):gmatch('()') do print(p) end", "1\n2\n3\n");
    expect_print("print(('hello'):find('l', 1, true), ('hello'):find('l', -1), ('hello'):find('', "
                 "10), ('a.b'):find('.', 2, true))",
                 "3\tnil\tnil\t2\t2\n");
    expect_print("print(('key=value'):match('=(.*)'), ('x'):match('y'), ('2024'):match('%d%d', 3))",
                 "value\tnil\t24\n");
    expect_print("print(('ab'):rep(3), ('ab'):rep(2, '-'), ('x'):rep(0), ('x'):rep(-1))",
                 "ababab\tab-ab\t\t\n");
    expect_print("print(('%d %5.2f %s %q %%'):format(3, 2.5, 'x', 'y'), ('abc'):byte(1, -1))",
                 "3  2.50 x \"y\" %\t97\t98\t99\n");
    expect_error("('x'):gsub('x', '%2')", "no capture");
    expect_error("('x'):gsub('x', '%z')", "must be followed by a digit");
    expect_error("('x'):gsub('x', function() return {} end)", "must be a string");
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(chosen), cmocka_unit_test(random_ones),
                                        cmocka_unit_test(functions) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
