// SPDX-License-Identifier: Apache-2.0
// Attacks on the sandbox: what must end, what must fit, what must not be reachable, what must be
// the same in every run.
#include "tests/spec/helper.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define STEPS "the spec ran for 20,000,000 steps without ending"
#define MEMORY "more than 64 MiB"

static void endless(void **state) {
    (void)state;
    expect_error("while true do end", STEPS);
    expect_error("while true do pcall(function() while true do end end) end", STEPS);
    expect_error("local function f() return pcall(f) end while true do f() end", "");
    expect_error("local mt = { __close = function() while true do end end }\n"
                 "local function f() local x <close> = setmetatable({}, mt); error('x') end\n"
                 "while true do pcall(f) end",
                 STEPS);
    expect_error("local t = setmetatable({}, { __index = function(t, k) return k end })\nfor i, v "
                 "in ipairs(t) do end",
                 STEPS);
    expect_error("goto a ::a:: ::b:: goto b", STEPS);
    // The limit stays hit: pcall cannot turn it into a value, not even in another pcall.
    expect_error("local ok = pcall(pcall, function() while true do end end)\nprint('survived', ok)",
                 STEPS);
}

static void tracing_is_limited_too(void **state) {
    (void)state;
    expect_error(
        "local m = require 'moec'\n"
        "local function f(x) while true do end end\n"
        "return m.model { name = 'a', vocab = 32, width = 64, sequence = 16, layers = { f } }",
        STEPS);
    expect_error(
        "local m = require 'moec'\n"
        "local function f(x) for i = 1, 2000000 do x = x + i end return x end\n"
        "return m.model { name = 'a', vocab = 32, width = 64, sequence = 16, layers = { f } }",
        "the graph has more than 1,000,000 nodes");
    expect_error("local m = require 'moec'\nwhile true do pcall(m.constant, { 1, 2 }) end", STEPS);
    expect_error(
        "local m = require 'moec'\nfor i = 1, 1e7 do m.constant { i, i / 3, i / 7, -i } end", "");
}

static void memory(void **state) {
    (void)state;
    expect_error("local t = {}\nfor i = 1, 1e8 do t[i] = { i } end", MEMORY);
    expect_error(
        "local t = {}\nwhile true do pcall(function() t[#t + 1] = ('x'):rep(60000) .. #t end) end",
        MEMORY);
    expect_error("local s = 'x'\nwhile true do s = s .. s end", MEMORY);
    expect_error("local s = ('x'):rep(2^40)", "rep makes a string of more than");
    expect_error("local s = ('x'):rep(1 << 62, 'yy')", "rep makes a string of more than");
    expect_error("local s = ('x'):rep(60000):gsub('x', ('y'):rep(1000))", MEMORY);
    expect_error(
        "local t = {}\nfor i = 1, 1000 do t[i] = ('x'):rep(1000) end\nlocal s = table.concat(t)",
        MEMORY);
    expect_error("local function f(n) return 1 + f(n + 1) end\nf(1)", "stack overflow");
    expect_error("local s = ('x'):rep(60000)\nlocal a = { s:byte(1, -1) }\nlocal b = { "
                 "table.unpack(a, 1, 1e6) }",
                 "");
    expect_error("while true do print(('x'):rep(60000)) end", "print: more than");
    // Met while the source is read, where no line is known: the file is named.
    Text literal = { 0 };
    text_add(&literal, "local s = '");
    for (int i = 0; i < 70000; i++) text_add(&literal, "x");
    text_add(&literal, "'");
    expect_error(text_cstr(&literal), "model.lua: error: the spec needs more than 64 MiB");
    text_finish(&literal);
}

// Work that no instruction shows: each of these would take minutes if steps alone were counted.
static void hidden_work(void **state) {
    (void)state;
    expect_error("local function f(...) return f(1, ...) end\nf()", STEPS);
    expect_error("local s = ('x'):rep(60000)\nwhile true do local a = { s:byte(1, -1) } end",
                 STEPS);
    expect_error("local a, b = ('x'):rep(60000), ('x'):rep(60000)\nwhile a == b do a = "
                 "a:upper():lower() end",
                 STEPS);
    expect_error("local t, keep = {}, {}\nfor i = 1, 600000 do keep[i] = {} end\nwhile true do t = "
                 "{ {}, {}, {} } end",
                 "");
    expect_error("local m = require 'moec'\nwhile true do pcall(m.mlp, { hiden = 1 }) end", STEPS);
    expect_error("local m = require 'moec'\nwhile true do pcall(function() return m.foo end) end",
                 STEPS);
    expect_error("while true do tostring(1) pcall(error) end", STEPS);
    expect_error("local m = require 'moec'\nlocal b = m.mlp { hidden = 1 }\nwhile true do "
                 "m.stack(1000000, b) end",
                 STEPS);
    expect_error(
        "local m = require 'moec'\nlocal function f(x) for i = 1, 1e6 do m.metric('a', m.sum(x)) "
        "end return x end\n"
        "return m.model { name = 'a', vocab = 32, width = 64, sequence = 16, layers = { f } }",
        "exists already");
    expect_error(
        "local m = require 'moec'\nlocal function f(x) local ids = m.top_k(x, 2) for i = 1, 1e6 do "
        "m.route(ids, 64 + i) end return x end\n"
        "return m.model { name = 'a', vocab = 32, width = 64, sequence = 16, layers = { f } }",
        STEPS);
}

static void ranges(void **state) {
    (void)state;
    expect_error("table.move({}, 1, 1 << 62, 2)", STEPS);
    expect_error("table.move({}, math.mininteger, math.maxinteger, 2)", STEPS);
    expect_error("table.concat(setmetatable({}, { __index = tostring }), '', 1, 1 << 60)", STEPS);
    expect_error("table.unpack({}, 1, 1 << 60)", STEPS);
    expect_error("table.insert(setmetatable({}, { __len = function() return 1 << 60 end }), 1, 1)",
                 STEPS);
    expect_error("table.sort(setmetatable({}, { __len = function() return 1 << 60 end }))", STEPS);
    expect_error("local t = {}\nfor i = 1, 100000 do t[i] = i end\nfor i = 1, 1e6 do "
                 "table.insert(t, 1, i) end",
                 STEPS);
    expect_error("local t = {}\nfor i = 1, 100000 do t[i] = i end\nfor i = 1, 1e6 do for k in "
                 "pairs(t) do break end end",
                 STEPS);
}

static void patterns(void **state) {
    (void)state;
    expect_error("local s = ('a'):rep(40)\ns:find(('a?'):rep(40) .. s .. 'b')", STEPS);
    expect_error("('a'):rep(60000):find('.-.-.-.-b')", STEPS);
    expect_error("('a'):rep(60000):gsub('.-b', '')", STEPS);
    expect_error("for w in ('a'):rep(60000):gmatch('a*a*a*b') do end", STEPS);
    expect_error("('x'):find(('('):rep(50))", "captures");
    expect_error("('x'):rep(300):find(('x?'):rep(300))", "too complex");
    expect_error("local a, b = ('x'):find('[a')", "has no ']'");
    expect_error("('x'):find('%')", "ends with '%'");
    expect_error("('x'):gsub('x', '%9')", "no capture");
    expect_error("while true do ('a'):rep(60000):find('b', 1, true) end", STEPS);
}

static void unreachable(void **state) {
    (void)state;
    static const char *const names[] = {
        "io",     "os",       "debug",    "package",    "coroutine",
        "load",   "loadfile", "dofile",   "loadstring", "collectgarbage",
        "rawset", "rawget",   "rawequal", "rawlen",     "getmetatable",
        "next",   "xpcall",   "utf8",     "_G",         "warn"
    };
    for (int i = 0; i < COUNT_OF(names); i++) {
        Text text = { 0 };
        text_printf(&text, "local x = %s", names[i]);
        expect_error(text_cstr(&text), names[i]);
        text_finish(&text);
    }
    expect_error("local f = string.dump", "string has no 'dump'");
    expect_error("local f = ('x').dump", "string has no 'dump'");
    expect_error("local f = ('x').pack", "string has no 'pack'");
    expect_error("('x'):rep(1 << 40)",
                 "rep makes a string"); // the bounded one, through the metatable too
    expect_error("local r = math.random", "math has no 'random'");
    expect_error("setmetatable({}, { __gc = function() end })", "'__gc' is not available");
    expect_error("setmetatable(_ENV, {})", "protected metatable");
    expect_error("setmetatable(string, {})", "protected metatable");
    expect_error("string.rep = nil", "string cannot be changed");
    expect_error("math.floor = nil", "math cannot be changed");
    expect_error("_ENV.x = 1", "assignment to the global 'x'");
    expect_error("_ENV.math = {}", "assignment to the global 'math'");
    expect_error("require 'os'", "can require only");
    expect_error("\x1bLua", "model.lua: error: the file is a binary chunk of Lua");
    expect_error("local m = require 'moec'\nm.core = 1", "moec cannot be changed");
    expect_error("local m = require 'moec'\nlocal x = m.reduce", "moec has no 'reduce'");
}

// A file of its own folder can be read, nothing else.
static void including(void **state) {
    (void)state;
    char folder[] = "/tmp/moec-include-XXXXXX", path[96];
    assert_non_null(mkdtemp(folder));
    static const struct {
        const char *name, *text;
    } files[] = {
        { "sub/part.lua", "local m = require 'moec'\nreturn { width = m.arg('width', 64) }" },
        { "loop.lua", "local m = require 'moec'\nreturn m.include 'loop.lua'" },
        { "broken.lua", "return {" },
        { "spec.lua", "local m = require 'moec'\nlocal part = m.include 'sub/part.lua'\n"
                      "return m.model { name = 'a', vocab = 32, width = part.width, sequence = 16, "
                      "layers = {} }" },
        { "bytes.lua", "local m = require 'moec'\nreturn m.include 'code.lua'" },
        { "code.lua", "\x1bLua" },
        { "marked.lua", "\xef\xbb\xbf#!/usr/bin/moec\nreturn 96" },
        { "marks.lua", "\xef\xbb\xbf#!/usr/bin/moec\nlocal m = require 'moec'\n"
                       "return m.model { name = 'a', vocab = 32, width = m.include 'marked.lua', "
                       "sequence = 16, layers = {} }" },
        { "up.lua", "local m = require 'moec'\nreturn m.include 'sub/../../x.lua'" },
        { "absolute.lua", "local m = require 'moec'\nreturn m.include '/etc/passwd'" },
        { "link.lua", "local m = require 'moec'\nreturn m.include 'linked.lua'" },
        { "syntax.lua", "local m = require 'moec'\nreturn m.include 'broken.lua'" },
    };
    snprintf(path, sizeof path, "%s/sub", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    for (int i = 0; i < COUNT_OF(files); i++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[i].name);
        assert_int_equal(file_write_atomic(path, files[i].text, strlen(files[i].text)), OK);
    }
    snprintf(path, sizeof path, "%s/linked.lua", folder);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    static const struct {
        const char *name, *want;
    } wrong[] = {
        { "loop.lua", "16 deep" },
        { "up.lua", "outside of the spec's folder" },
        { "bytes.lua", "/code.lua: error: the file is a binary chunk of Lua" },
        { "absolute.lua", "outside of the spec's folder" },
        { "link.lua", "outside of the spec's folder" },
        { "syntax.lua", "/broken.lua:1:1: error: unexpected symbol" },
    };
    for (int i = 0; i < COUNT_OF(wrong); i++) {
        snprintf(path, sizeof path, "%s/%s", folder, wrong[i].name);
        Loaded l = load_file(path, NULL);
        assert_null(l.m);
        if (!strstr(text_cstr(&l.error), wrong[i].want)) fail_msg("%s", text_cstr(&l.error));
        loaded_finish(&l);
    }
    snprintf(path, sizeof path, "%s/spec.lua", folder);
    Loaded l = load_file(path, "width=96");
    if (!l.m) fail_msg("%s", text_cstr(&l.error));
    assert_int_equal(l.m->width, 96);
    assert_int_equal(l.m->n_files, 2);
    loaded_finish(&l);
    snprintf(path, sizeof path, "%s/marks.lua", folder);
    l = load_file(path, NULL);
    if (!l.m) fail_msg("%s", text_cstr(&l.error));
    assert_int_equal(l.m->width, 96);
    loaded_finish(&l);
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    assert_int_equal(system(command), 0);
}

static void same_in_every_run(void **state) {
    (void)state;
    expect_print("local t = { b = 1, a = 2, [3] = 1, [1] = 1, [2.5] = 1, c = 3, [true] = 1 }\n"
                 "for k in pairs(t) do print(k) end",
                 "1\n2.5\n3\na\nb\nc\ntrue\n");
    expect_print("local t = { a = 1, b = 2, c = 3 }\nfor k in pairs(t) do t.b = nil print(k) end",
                 "a\nc\n");
    expect_print("print({}, print, function() end, math)", "table\tfunction\tfunction\ttable\n");
    expect_print("print(('%s %s'):format({}, print))", "table function\n");
    expect_print("print(setmetatable({}, { __tostring = function() return 'mine' end }))",
                 "mine\n");
    expect_error("print(('%p'):format({}))", "no %p");
    expect_error("for k in pairs { [{}] = 1 } do end", "keys have an order");
    // A stable sort, also where Lua's own would take a random pivot.
    expect_print("local t = {}\nfor i = 1, 1000 do t[i] = { i % 3, i } end\n"
                 "table.sort(t, function(a, b) return a[1] < b[1] end)\n"
                 "local last, ok = t[1], true\nfor i = 2, 1000 do ok = ok and (last[1] < t[i][1] "
                 "or last[2] < t[i][2]) last = t[i] end\n"
                 "print(ok, t[1][2], t[1000][2])",
                 "true\t3\t998\n");
    expect_print("local t = { 3, 1, 2 }\ntable.sort(t)\nprint(table.concat(t, ' '))", "1 2 3\n");
    expect_print("local n = 0\nfor k in pairs(math) do n = n + 1 end\nprint(n > 20)", "true\n");
}

static void errors_as_values(void **state) {
    (void)state;
    expect_print("print(pcall(error, 'text', 0))", "false\ttext\n");
    expect_print("print(pcall(error, { 1 }))", "false\ttable\n");
    expect_print("print(select('#', pcall(error)))", "2\n");
    expect_print("print(pcall(m.stack, 2, 3))",
                 "false\tstack needs a block or a function of the layer's number, got 3\n");
    expect_print("local ok, text = pcall(function() return m.mlp { hiden = 1 } "
                 "end)\nprint(type(text), text)",
                 "string\tmlp has no field 'hiden'\n");
    expect_error("local ok, text = pcall(function() error('first') end)\nerror(text)",
                 "model.lua:2:1: error: model.lua:1: first");
    expect_error("assert(false)", "assertion failed!");
    expect_error("assert(nil, 'width must be even')", "width must be even");
    expect_error("error()", "nothing");
    expect_error("local x = nil + 1", "attempt to perform arithmetic on a nil value");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(endless),
        cmocka_unit_test(tracing_is_limited_too),
        cmocka_unit_test(memory),
        cmocka_unit_test(hidden_work),
        cmocka_unit_test(ranges),
        cmocka_unit_test(patterns),
        cmocka_unit_test(unreachable),
        cmocka_unit_test(including),
        cmocka_unit_test(same_in_every_run),
        cmocka_unit_test(errors_as_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
