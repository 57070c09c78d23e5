// SPDX-License-Identifier: Apache-2.0
// The grammar: what compilers emit is taken, what is wrong is refused with its line.
#include "tests/vgpu/gpu.h"

#include <stdlib.h>
#include <sys/resource.h>

#include "runtime/vgpu/ptx.h"

#define HEAD ".version 9.0\n.target sm_80\n.address_size 64\n"

static PtxModule *parse(Arena *arena, const char *text) {
    PtxModule *m = NULL;
    if (ptx_parse(arena, text, strlen(text), &m) != OK) fail_msg("%s", status_message());
    return m;
}

static void tokens(void **state) {
    (void)state;
    static const char text[] =
        "ld.shared::cta.u32 %r1, [$L_x+0x10]; // c\n/* a\nb */ 0f3F800000 0d4000000000000000 "
        "1.5 017 0b101 12U \"s\\\"t\" @!p";
    PtxLexer x = { text, text + sizeof text - 1, 1 };
    PtxToken t[40];
    int n = 0;
    while ((t[n] = ptx_next(&x)).kind != PTX_T_END) n++;
    assert_int_equal(t[0].kind, PTX_T_NAME);
    assert_int_equal(t[0].n, 2);
    assert_memory_equal(t[1].at, ".shared::cta", 12);
    assert_int_equal(t[1].n, 12);
    assert_int_equal(t[2].n, 4);
    assert_int_equal(t[8].bits, 16);
    assert_int_equal(t[11].kind, PTX_T_FLOAT);
    assert_int_equal(t[11].line, 3);
    assert_int_equal(t[11].bits, 0x3f800000);
    assert_int_equal(t[11].float_bits, 32);
    assert_int_equal(t[12].bits, 0x4000000000000000);
    assert_int_equal(t[13].bits, 0x3ff8000000000000);
    assert_int_equal(t[14].bits, 15);
    assert_int_equal(t[15].bits, 5);
    assert_int_equal(t[16].bits, 12);
    assert_int_equal(t[17].kind, PTX_T_STRING);
    assert_int_equal(t[17].n, 4);
    assert_int_equal(n, 21);
}

static const char module_text[] =
    ".version 9.0\n.target sm_90a, debug\n.address_size 64\n"
    ".file 1 \"a/x.cu\", 123, 45\n.file 2 \"b/y.cuh\"\n"
    ".extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 v) ;\n"
    ".extern .shared .align 1024 .b8 dyn[];\n"
    ".visible .global .align 4 .f32 table[2][3] = {{0f3F800000, 2.0, -1.5}, {0f00000000}};\n"
    ".global .u64 fs[2] = {f, generic(table)+8};\n"
    ".const .u16 k = 65535; .global .b8 str[] = {104, 105, 0};\n"
    ".weak .func (.param .align 16 .b8 ret[16]) f (.param .u64 .ptr .global .align 8 p, .param "
    ".b32 q)\n;\n"
    ".func (.param .align 16 .b8 ret[16]) f (.param .u64 .ptr .global .align 8 p, .param .b32 q) "
    ".noreturn { ret; }\n"
    ".visible .entry k1(.param .u64 a, .param .align 64 .b8 blob[128]) .maxntid 384, 1, 1 "
    ".minnctapersm 2\n"
    ".explicitcluster .reqnctapercluster 2,1,1 .maxclusterrank 8\n{\n"
    ".reg .pred %p<3>; .reg .b32 %r<10>, x; .reg .b64 %rd<4>; .reg .f32 %f<2>;\n"
    ".shared .align 16 .b8 tile[256];\n"
    ".loc 1 7 3, function_name $L__info+4, inlined_at 2 30 5\n"
    "{ .reg .b32 x; LAB: mov.u32 x, %tid.x; @!%p1 bra LAB; }\n"
    "{ .reg .b64 x; LAB: mov.b64 {%r1, %r2}, x; @%p2 bra.uni LAB; }\n"
    "ld.global.v4.u32 {%r1, _, %r3, %r4}, [%rd1+-16]; setp.lt.and.s32 %p1|%p2, %r1, -(3+4)*2, "
    "!%p1;\n"
    "ts: .branchtargets A, B, A;\n proto: .callprototype (.param .b32 _) _ (.param .b32 _, .param "
    ".b64 _);\n"
    "brx.idx %r1, ts; A: mov.u64 %rd1, dyn+4; B: .pragma \"nounroll\"; ret;\n}\n"
    ".section .debug_str { .b8 1, 2, 3 { } }\n";

static void whole_module(void **state) {
    (void)state;
    Arena *arena = arena_create();
    PtxModule *m = parse(arena, module_text);
    assert_int_equal(m->version, 90);
    assert_string_equal(m->target, "sm_90a");
    assert_string_equal(m->files[2], "b/y.cuh");
    PtxVar *table = ptx_find_var(m, "table");
    assert_int_equal(ptx_var_bytes(table), 24);
    assert_int_equal(table->n_inits, 4);
    assert_int_equal(table->inits[1].bits, 0x40000000);
    assert_int_equal(table->inits[2].bits, 0xbfc00000);
    PtxVar *fs = ptx_find_var(m, "fs");
    assert_string_equal(fs->inits[0].symbol, "f");
    assert_true(fs->inits[1].generic);
    assert_int_equal(fs->inits[1].bits, 8);
    assert_int_equal(ptx_find_var(m, "str")->count, 3);
    assert_int_equal(ptx_find_var(m, "dyn")->count, 0);
    assert_int_equal(ptx_find_var(m, "dyn")->align, 1024);
    PtxFunc *f = ptx_find_func(m, "f");
    assert_true(f->has_body && f->noreturn);
    assert_int_equal(ptx_var_align(f->rets[0]), 16);
    assert_int_equal(ptx_var_align(f->params[0]), 8);
    PtxFunc *k = ptx_find_func(m, "k1");
    assert_int_equal(k->maxntid[0], 384);
    assert_int_equal(k->min_ctas, 2);
    assert_int_equal(k->cluster[0], 2);
    assert_int_equal(ptx_var_bytes(k->params[1]), 128);
    // Two registers x and two labels LAB, each of its scope.
    const PtxInstr *i = k->instrs;
    assert_int_equal(i[0].operands[0].var->type, PTX_B32);
    assert_int_equal(i[1].operands[0].label, 0);
    assert_true(i[1].guard_not);
    assert_int_equal(i[2].operands[1].var->type, PTX_B64);
    assert_int_equal(i[3].operands[0].label, 2);
    assert_string_equal(i[0].operands[1].name, "%tid.x");
    assert_int_equal(i[4].operands[0].items[1].kind, PTX_OP_SINK);
    assert_int_equal((int64_t)i[4].operands[1].bits, -16);
    assert_int_equal(i[5].operands[0].kind, PTX_OP_PAIR);
    assert_int_equal((int64_t)i[5].operands[2].bits, -14);
    assert_true(i[5].operands[3].negate);
    assert_int_equal(k->tables[0].labels[0], 7);
    assert_int_equal(k->tables[0].labels[1], 8);
    assert_int_equal(k->tables[1].prototype->n_params, 2);
    assert_int_equal(i[7].operands[1].bits, 4);
    Text where = { 0 };
    ptx_loc_text(m, i[0].loc, &where);
    assert_string_equal(text_cstr(&where), "x.cu:7 (inlined at y.cuh:30)");
    text_finish(&where);
    arena_destroy(arena);
}

// {text, what the message must hold}. The line is that of the wrong token.
static const struct { const char *text, *says;
} wrong[] = {
    { "mov", "expected .version" },
    { ".version 9.0\n.target sm_80\n.address_size 32\n", "64-bit addresses" },
    { ".version 99.9\n.target sm_80\n", "PTX ISA 99.9 is not known; the newest that is known is 9.0" },
    { ".version 10.0\n.target sm_80\n", "the newest that is known is 9.0" },
    { ".version nine\n.target sm_80\n", "expected a version" },
    { HEAD "/* never ends", "PTX line 4" },
    { HEAD ".entry k( { }", "expected" },
    { HEAD ".entry k() { add.s32 %r1, %r2, %r3; }", "unknown register '%r2'" },
    { HEAD ".entry k() { .reg .b32 a, a; }", "declared twice" },
    { HEAD ".entry k() { L: L: ret; }", "defined twice" },
    { HEAD ".entry k() { bra NOWHERE; }", "no label 'NOWHERE'" },
    { HEAD ".entry k() { { X: ret; } bra X; }", "no label 'X'" },
    { HEAD ".entry k() { .reg .b32 a;\n\nadd.s33 a, a, a; }", "PTX line 6" },
    { HEAD ".entry k() { .reg .b32 a; addd.s32 a, a, a; }", "nearest known one is add" },
    { HEAD ".entry k() { .reg .b32 a; add.s32 a, a; }", "expected 3 operands, found 2" },
    { HEAD ".entry k() { .reg .b32 a; add.s32.wild a, a, a; }", "the nearest known one is add.s32" },
    { HEAD ".entry k() { .reg .pred p; .reg .b32 a; add.s32 a, p, a; }", "'p' is a predicate" },
    { HEAD ".entry k() { .reg .b32 a; @a ret; }", "'a' is no predicate" },
    { HEAD ".entry k() { .reg .b32 a; mov.u32 a, %tid.w; }", "did you mean '%tid" },
    { HEAD ".entry k() { ret }", "expected" },
    { HEAD ".entry k() { ", "has no end" },
    { HEAD ".entry k() { .reg .b32 a; mov.b32 a, 0f12; }", "expected" },
    { HEAD ".global .u32 x[2] = {1,2,3};", "more initialisers" },
    { HEAD ".entry k() { .local .b8 x[4294967312]; }", "too large" },
    { HEAD ".entry k(.param .b8 x[4294967312]) { ret; }", "too large" },
    { HEAD ".func f(.param .b8 x[4294967312]) { ret; }", "too large" },
    { HEAD ".shared .b8 x[4294967312];", "does not fit shared memory" },
    { HEAD ".entry k() { .shared .b8 x[4294967312]; }", "too large" },
    { HEAD ".global .u64 x = nobody;", "has no address" },
    { HEAD ".entry k() { call nobody; }", "no function or prototype 'nobody'" },
    { HEAD ".func f(.param .b32 x) { ret; } .entry k() { call f; }",
      "0 arguments given, the function has 1" },
    { ".version 9.0\n.target sm_90a\n.address_size 64\n", "runs only on it" },
    { ".version 9.0\n.target sm_100\n.address_size 64\n", "newer device" },
};

static void errors(void **state) {
    (void)state;
    Gpu gpu = gpu_open("sm_80", 1);
    for (int k = 0; k < COUNT_OF(wrong); k++) {
        VgModule *m;
        Status status = vg_module_load(gpu.device, wrong[k].text, strlen(wrong[k].text), &m);
        if (status == OK || !strstr(status_message(), wrong[k].says))
            fail_msg("%s\ngives: %s\nexpected: %s", wrong[k].text,
                     status == OK ? "no error" : status_message(), wrong[k].says);
        assert_null(m);
    }
    gpu_close(&gpu);
}

// Every prefix of a module, and the module with each byte replaced, is taken or refused, nothing
// worse.
static void damaged(void **state) {
    (void)state;
    Gpu gpu = gpu_open("sm_90a", 1);
    size_t n = sizeof module_text - 1;
    char *copy = malloc(n);
    int refused = 0;
    for (size_t k = 0; k < n; k++) {
        VgModule *m;
        if (vg_module_load(gpu.device, module_text, k, &m) != OK) refused++;
        vg_module_unload(m);
        for (int r = 0; r < 3; r++) {
            memcpy(copy, module_text, n);
            copy[k] = "{9\xff"[r];
            if (vg_module_load(gpu.device, copy, n, &m) != OK) refused++;
            vg_module_unload(m);
        }
    }
    assert_true(refused > (int)n);
    free(copy);
    gpu_close(&gpu);
}

// A variable costs the host what is written of it: its initialisers, not all its zeros.
static void large_variables(void **state) {
    (void)state;
    Gpu gpu = gpu_open("sm_80", 1);
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    gpu_load(&gpu, ".global .align 8 .b32 table[2147483648] = {1, 2, 3};\n"
                   ".visible .entry k(.param .u64 out) { .reg .b64 %o, %t; .reg .b32 %x, %y;\n"
                   "ld.param.u64 %o, [out]; mov.u64 %t, table; ld.global.u32 %x, [%t+8];\n"
                   "add.s64 %t, %t, 8589934588; ld.global.u32 %y, [%t]; add.u32 %x, %x, %y;\n"
                   "st.global.u32 [%t], 5; ld.global.u32 %y, [%t]; add.u32 %x, %x, %y;\n"
                   "atom.global.add.u32 %y, [%t-4096], 1; add.u32 %x, %x, %y;\n"
                   "st.global.u32 [%o], %x; ret; }\n");
    uint64_t out = gpu_alloc(&gpu, 4);
    uint32_t got;
    if (gpu_launch(&gpu, "k", 1, 1, 1, out)) fail_msg("%s", gpu_report(&gpu));
    gpu_get(&gpu, out, &got, 4);
    assert_int_equal(got, 3 + 0 + 5 + 0);
    getrusage(RUSAGE_SELF, &after);
    assert_true(after.ru_maxrss - before.ru_maxrss < 256 * 1024); // KiB, of 8 GiB
    gpu_close(&gpu);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(tokens), cmocka_unit_test(whole_module),
                                        cmocka_unit_test(errors), cmocka_unit_test(damaged),
                                        cmocka_unit_test(large_variables) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
