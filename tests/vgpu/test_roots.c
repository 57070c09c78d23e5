// SPDX-License-Identifier: Apache-2.0
// Every instruction of the table (VgIsa) is executed here, and compared with what it is to do.
//
// Arithmetic: the first form of each root, against the reference. The others: a small kernel each,
// of one warp; and each with operands that it does not take. What was executed is traced; the last
// test asks it of every root of the table, so that an instruction without a test is found.
#include "tests/vgpu/compare.h"
#include "tests/vgpu/trace.h"

static Gpu gpu;

// A body over 32 lanes: lane, `at` of the lane's word in global memory, which begins as 1000 + lane,
// and what is in `d` at the end, base + step * lane + odd * (lane & 1). `box` is shared memory, `u`
// the lane's word of it. `before`: at module scope.
typedef struct Body { const char *text, *before; uint32_t base, step, odd; } Body;

#define FLOAT(op, bits) "mov.b32 f, " bits "; " op ".f32 f, f; cvt.rni.u32.f32 d, f;"
#define OTHER_WORD "xor.b32 t, lane, 31; mad.lo.u32 t, t, 4, box32; ld.shared.u32 d, [t];"

static const Body bodies[] = {
    // moves, carries, functions
    { "mov.b32 d, lane;", NULL, 0, 1, 0 },
    { "add.cc.u32 d, 0xffffffff, 1; addc.u32 d, lane, 0;", NULL, 1, 1, 0 },
    { "sub.cc.u32 d, lane, 32; subc.u32 d, lane, 0;", NULL, ~0u, 1, 0 },
    { "mad.lo.cc.u32 d, 3, 1, 0xffffffff; madc.lo.u32 d, lane, 2, 5;", NULL, 6, 2, 0 },
    { FLOAT("cos.approx", "0"), NULL, 1, 0, 0 },
    { FLOAT("sin.approx", "0f3fc90fdb"), NULL, 1, 0, 0 },
    { FLOAT("ex2.approx", "0f40400000"), NULL, 8, 0, 0 },
    { FLOAT("lg2.approx", "0f41000000"), NULL, 3, 0, 0 },
    { FLOAT("rsqrt.approx", "0f3d800000"), NULL, 4, 0, 0 },
    { FLOAT("tanh.approx", "0f41a00000"), NULL, 1, 0, 0 },
    // memory
    { "ld.global.u32 d, [at]; st.global.u32 [at+4096], d; ld.global.u32 d, [at+4096];", NULL, 1000,
      1, 0 },
    { "ldu.global.u32 d, [at];", NULL, 1000, 1, 0 },
    { "atom.global.add.u32 t, [at], lane; ld.global.u32 d, [at]; sub.u32 d, d, t;", NULL, 0, 1, 0 },
    { "red.global.add.u32 [at], lane; ld.global.u32 d, [at];", NULL, 1000, 2, 0 },
    { "st.global.u32 [at], lane; fence.acq_rel.gpu; membar.gl; ld.global.u32 d, [at];", NULL, 0, 1,
      0 },
    { "cvt.u64.u32 x, u; cvta.shared.u64 x, x; st.u32 [x], lane; ld.shared.u32 d, [u];", NULL, 0, 1,
      0 },
    { "prefetch.global.L2 [at]; prefetchu.L1 [at]; ld.global.u32 d, [at];", NULL, 1000, 1, 0 },
    { "and.b64 x, at, -128; applypriority.global.L2::evict_normal [x], 128; ld.global.u32 d, [at];",
      NULL, 1000, 1, 0 },
    { "createpolicy.fractional.L2::evict_last.b64 x, 0f3f000000; "
      "ld.global.L2::cache_hint.u32 d, [at], x;",
      NULL, 1000, 1, 0 },
    { "isspacep.global p, at; selp.u32 d, 7, 0, p;", NULL, 7, 0, 0 },
    { "cp.async.ca.shared.global [u], [at], 4; cp.async.wait_all; ld.shared.u32 d, [u];", NULL,
      1000, 1, 0 },
    // matrices: row r of 8 x 8 halves is words 4 r to 4 r + 3 of the box, and lane 4 r + c has word c
    { "st.shared.u32 [u], lane; bar.warp.sync -1; and.b32 t, lane, 7; mad.lo.u32 t, t, 16, box32; "
      "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {d}, [t];",
      NULL, 0, 1, 0 },
    { "and.b32 t, lane, 7; mad.lo.u32 t, t, 16, box32; "
      "stmatrix.sync.aligned.m8n8.x1.shared.b16 [t], {lane}; bar.warp.sync -1; "
      "ld.shared.u32 d, [u];",
      NULL, 0, 1, 0 },
    { "shr.u32 t, lane, 2; mul.lo.u32 t, t, 0x10001; movmatrix.sync.aligned.m8n8.trans.b16 d, t; "
      "and.b32 t, lane, 3; mad.lo.u32 t, t, 0x20002, 0x10000; sub.u32 d, d, t;",
      NULL, 0, 0, 0 },
    { "mov.b32 t, 0x01010101; mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {d, t}, {t}, {t}, "
      "{lane, lane};",
      NULL, 16, 1, 0 },
    // between lanes
    { "activemask.b32 d; popc.b32 d, d;", NULL, 32, 0, 0 },
    { "shfl.sync.bfly.b32 d, lane, 31, 31, -1;", NULL, 31, ~0u, 0 },
    { "setp.lt.u32 p, lane, 5; vote.sync.ballot.b32 d, p, -1;", NULL, 31, 0, 0 },
    { "shr.u32 t, lane, 1; match.any.sync.b32 d, t, -1; popc.b32 d, d;", NULL, 2, 0, 0 },
    { "redux.sync.add.s32 d, lane, -1;", NULL, 496, 0, 0 },
    { "elect.sync t|p, -1; setp.eq.xor.u32 q, t, lane, p; selp.u32 d, 1, 9, q;", NULL, 9, 0, 0 },
    // blocks and clusters
    { "st.shared.u32 [u], lane; bar.sync 0; " OTHER_WORD, NULL, 31, ~0u, 0 },
    { "st.shared.u32 [u], lane; barrier.sync 1; " OTHER_WORD, NULL, 31, ~0u, 0 },
    { "setp.eq.u32 p, lane, 0; @p mbarrier.init.shared.b64 [box], 32; bar.sync 0; "
      "mbarrier.arrive.shared.b64 x, [box]; WAIT: mbarrier.test_wait.shared.b64 q, [box], x; "
      "@!q bra WAIT; bar.sync 0; @p mbarrier.inval.shared.b64 [box]; selp.u32 d, 3, 0, q;",
      NULL, 3, 0, 0 },
    { "mapa.shared::cluster.u32 t, u, 0; st.shared.u32 [u], lane; ld.shared::cluster.u32 d, [t];",
      NULL, 0, 1, 0 },
    { "getctarank.shared::cluster.u32 d, u; add.u32 d, d, 6;", NULL, 6, 0, 0 },
    { "griddepcontrol.wait; griddepcontrol.launch_dependents; mov.u32 d, 2;", NULL, 2, 0, 0 },
    { "nanosleep.u32 20; mov.u32 d, 4;", NULL, 4, 0, 0 },
    // control
    { "mov.u32 d, 0; mov.u32 t, 0; AGAIN: add.u32 d, d, 3; setp.lt.u32 p, t, lane; "
      "add.u32 t, t, 1; @p bra AGAIN;",
      NULL, 3, 3, 0 },
    { "and.b32 t, lane, 1; TO: .branchtargets EVEN, ODD; brx.idx t, TO; EVEN: mov.u32 d, lane; "
      "bra MEET; ODD: add.u32 d, lane, 50; MEET:",
      NULL, 0, 1, 50 },
    { "{ .param .b32 n; .param .b32 r; st.param.b32 [n], lane; call.uni (r), twice, (n); "
      "ld.param.b32 d, [r]; }",
      ".func (.param .b32 r) twice(.param .b32 n) { .reg .b32 t; ld.param.b32 t, [n]; "
      "shl.b32 t, t, 1; st.param.b32 [r], t; ret; }\n",
      0, 2, 0 },
    { "st.global.u32 [at], 12; exit; mov.u32 d, 13;", NULL, 12, 0, 0 },
};

static void body_text(Text *t, const Body *body) {
    text_printf(t,
                ".version 9.0\n.target sm_90a\n.address_size 64\n%s"
                ".visible .entry k(.param .u64 data) {\n"
                ".reg .b32 lane, d, t, u, box32; .reg .f32 f; .reg .b64 at, x, y; .reg .pred p, q;\n"
                ".shared .align 128 .b8 box[128];\n"
                "mov.u32 lane, %%tid.x; ld.param.u64 at, [data]; mad.wide.u32 at, lane, 4, at;\n"
                "mov.u32 box32, box; mad.lo.u32 u, lane, 4, box32;\n%s\n"
                "st.global.u32 [at], d; ret; }\n",
                body->before ? body->before : "", body->text);
}

static VgFault run_body(const Body *body, uint32_t got[32]) {
    uint32_t words[2048] = { 0 };
    for (uint32_t l = 0; l < 32; l++) words[l] = 1000 + l;
    Text t = { 0 };
    body_text(&t, body);
    gpu_load(&gpu, t.at);
    text_finish(&t);
    uint64_t data = gpu_put(&gpu, words, sizeof words);
    VgFault fault = gpu_launch(&gpu, "k", 1, 32, 1, data);
    if (!fault) gpu_get(&gpu, data, got, 128);
    assert_int_equal(vg_mem_free(gpu.memory, data), OK);
    return fault;
}

static void kernels(void **state) {
    (void)state;
    for (int k = 0; k < COUNT_OF(bodies); k++) {
        const Body *body = &bodies[k];
        uint32_t got[32];
        if (run_body(body, got)) fail_msg("%s: %s", body->text, gpu_report(&gpu));
        for (uint32_t l = 0; l < 32; l++) {
            uint32_t want = body->base + body->step * l + body->odd * (l & 1);
            if (got[l] != want)
                fail_msg("%s: lane %u has %u, not %u", body->text, l, got[l], want);
        }
    }
}

// Of the lanes whose guard holds, and only of them.
static void stops(void **state) {
    (void)state;
    static const struct { const char *text, *says; } rows[] = {
        { "setp.eq.u32 p, lane, 7; @p trap; mov.u32 d, 1;", "trap reached" },
        { "setp.eq.u32 p, lane, 7; @p brkpt; mov.u32 d, 1;", "breakpoint reached" },
    };
    for (int r = 0; r < COUNT_OF(rows); r++) {
        uint32_t got[32];
        VgFault fault = run_body(&(Body){ .text = rows[r].text }, got);
        if (fault != VG_TRAP || !strstr(gpu_report(&gpu), rows[r].says))
            fail_msg("%s: fault %d, expected %d with '%s':\n%s", rows[r].text, fault, VG_TRAP,
                     rows[r].says, gpu_report(&gpu));
    }
    static const char *const passed[] = { "setp.eq.u32 p, lane, 32; @p trap; mov.u32 d, 1;",
                                          "setp.eq.u32 p, lane, 32; @p brkpt; mov.u32 d, 1;" };
    for (int r = 0; r < COUNT_OF(passed); r++) {
        uint32_t got[32];
        assert_int_equal(run_body(&(Body){ .text = passed[r] }, got), VG_OK);
        for (int l = 0; l < 32; l++) assert_int_equal(got[l], 1);
    }
}

// Which windows an address lies in, seen from both blocks of a cluster.
static void windows(void **state) {
    (void)state;
    static const char *const spaces[] = {
        "global", "shared", "shared::cta", "shared::cluster", "local", "const", "param",
        "param::entry"
    };
    static const struct { const char *name, *text; uint32_t in; } rows[] = {
        { "global", "ld.param.u64 x, [data];", 0x01 },
        { "module's", "mov.u64 x, datum; cvta.global.u64 x, x;", 0x01 },
        { "shared", "mov.u64 x, box; cvta.shared.u64 x, x;", 0x0e },
        { "peer's", "mov.u64 x, box; cvta.shared.u64 x, x; mapa.u64 x, x, peer;", 0x08 },
        { "own, mapped", "mov.u64 x, box; cvta.shared.u64 x, x; mapa.u64 x, x, rank;", 0x0e },
        { "local", "mov.u64 x, depot; cvta.local.u64 x, x;", 0x10 },
        { "const", "mov.u64 x, table; cvta.const.u64 x, x;", 0x20 },
        { "parameter", "mov.u64 x, data; cvta.param.u64 x, x;", 0xc1 }, // and within global
        { "nowhere", "mov.u64 x, 0;", 0x00 },
    };
    for (int r = 0; r < COUNT_OF(rows); r++) {
        Text t = { 0 };
        text_printf(&t, ".version 9.0\n.target sm_90a\n.address_size 64\n"
                        ".const .b32 table[4] = {1, 2, 3, 4};\n.global .b32 datum;\n"
                        ".visible .entry k(.param .u64 data) .reqnctapercluster 2 {\n"
                        ".reg .b32 d, t, rank, peer; .reg .b64 at, x; .reg .pred p;\n"
                        ".shared .align 16 .b8 box[64];\n.local .align 16 .b8 depot[64];\n"
                        "mov.u32 rank, %%cluster_ctarank; xor.b32 peer, rank, 1; mov.u32 d, 0;\n%s\n",
                    rows[r].text);
        for (int s = 0; s < COUNT_OF(spaces); s++)
            text_printf(&t, "isspacep.%s p, x; selp.b32 t, %u, 0, p; or.b32 d, d, t;\n", spaces[s],
                        1u << s);
        text_add(&t, "ld.param.u64 at, [data]; mad.wide.u32 at, rank, 4, at; "
                     "st.global.u32 [at], d; ret; }\n");
        gpu_load(&gpu, t.at);
        text_finish(&t);
        uint64_t data = gpu_alloc(&gpu, 8);
        if (gpu_launch(&gpu, "k", 2, 1, 1, data)) fail_msg("%s: %s", rows[r].name, gpu_report(&gpu));
        uint32_t got[2];
        gpu_get(&gpu, data, got, sizeof got);
        for (int block = 0; block < 2; block++)
            if (got[block] != rows[r].in)
                fail_msg("%s address in block %d: in windows %02x, not %02x", rows[r].name, block,
                         got[block], rows[r].in);
    }
}

// Hints leave results alone, in all their forms; what is no form of theirs is refused.
static void hints(void **state) {
    (void)state;
#define HINTED "ld.global.L2::cache_hint.u32 d, [at], x;"
    static const char *const forms[] = {
        "createpolicy.fractional.L2::evict_first.b64 x; " HINTED,
        "createpolicy.fractional.L2::evict_last.L2::evict_unchanged.b64 x, 0f3e800000; " HINTED,
        "createpolicy.range.global.L2::evict_last.L2::evict_first.b64 x, [at], 128, 256; " HINTED,
        "mov.b64 y, 0; createpolicy.cvt.L2.b64 x, y; " HINTED,
        "createpolicy.fractional.L2::evict_normal.b64 x, 0f3f800000; ld.global.u32 t, [at]; "
        "st.global.L2::cache_hint.u32 [at+4096], t, x; ld.global.u32 d, [at+4096];",
        "and.b64 x, at, -128; applypriority.L2::evict_normal [x], 128; ld.global.u32 d, [at];",
        "prefetch.global.L2::evict_last [at]; prefetch.L1 [at]; ld.global.u32 d, [at];",
    };
    for (int k = 0; k < COUNT_OF(forms); k++) {
        uint32_t got[32];
        if (run_body(&(Body){ .text = forms[k] }, got))
            fail_msg("%s: %s", forms[k], gpu_report(&gpu));
        for (uint32_t l = 0; l < 32; l++) assert_int_equal(got[l], 1000 + l);
    }
    static const struct { const char *text, *says; } wrong[] = {
        { "createpolicy.fractional.L3::evict_last.b64 %rd;", "unknown modifier .L3::evict_last" },
        { "createpolicy.fractional.L2::evict_last.b64 %p;", "'%p' is a predicate" },
        { "applypriority.global.L2::evict_normal [%rd], 64;", "expected 128" },
        { "applypriority.global.L2::evict_normal [%rd];", "operands" },
        { "prefetch.global.L2 %rd;", "expected an address" },
        { "isspacep %p, %rd;", "expected a space" },
        { "brkpt 1;", "operands" },
    };
    for (int k = 0; k < COUNT_OF(wrong); k++) {
        Text t = { 0 };
        text_printf(&t, ".visible .entry k() { .reg .b64 %%rd; .reg .pred %%p; mov.b64 %%rd, 0; %s "
                        "ret; }\n", wrong[k].text);
        if (gpu_try_load(&gpu, t.at) == OK || !strstr(status_message(), wrong[k].says))
            fail_msg("%s: expected '%s', found: %s", wrong[k].text, wrong[k].says,
                     status_message());
        text_finish(&t);
    }
}

// Up to five operands of every kind, which are wrong for nearly all instructions: those are refused.
static int refused(const char *op) {
    static const char *const kinds[] = { "r", "x", "p", "!p", "7", "0f3f800000", "[x]", "[x, {r, r}]",
                                         "{r, r}", "r|p", "(r)", "HERE", "k", "%tid.x", "_" };
    int n = 0;
    for (int kind = 0; kind < COUNT_OF(kinds); kind++)
        for (int count = kind ? 1 : 0; count <= 5; count++) {
            Text t = { 0 };
            text_printf(&t, ".visible .entry k() { .reg .b32 r; .reg .b64 x; .reg .pred p; HERE: %s ",
                        op);
            for (int c = 0; c < count; c++) text_printf(&t, "%s%s", c ? ", " : "", kinds[kind]);
            text_add(&t, "; ret; }\n");
            if (gpu_try_load(&gpu, t.at) != OK) {
                assert_true(*status_message());
                n++;
            }
            text_finish(&t);
        }
    return n;
}

static void wrong_operands(void **state) {
    (void)state;
    gpu_on_load = NULL; // not executed
    for (int k = 0; k < COUNT_OF(bodies); k++) {
        Text t = { 0 };
        PtxModule *module;
        Arena *arena = arena_create();
        body_text(&t, &(Body){ .text = bodies[k].text, .before = bodies[k].before });
        assert_int_equal(ptx_parse(arena, t.at, t.bytes, &module), OK);
        const PtxFunc *f = module->funcs[module->n_funcs - 1];
        for (uint32_t i = 5; i + 2 < f->n_instrs; i++) { // those of the body
            Text op = { 0 };
            text_add(&op, f->instrs[i].root);
            for (uint32_t m = 0; m < f->instrs[i].n_mods; m++)
                text_printf(&op, ".%s", f->instrs[i].mods[m]);
            assert_true(refused(op.at) > 0);
            text_finish(&op);
        }
        arena_destroy(arena);
        text_finish(&t);
    }
    for (int k = 0; k < program_n_forms; k += 7) assert_true(refused(program_forms[k].op) > 0);
    gpu_on_load = trace_module;
}

static bool same_root(const char *op, const char *other) {
    size_t n = strcspn(op, ".");
    return n == strcspn(other, ".") && !memcmp(op, other, n);
}

static void arithmetic(void **state) {
    (void)state;
    for (int k = 0; k < program_n_forms; k++) {
        bool first = true;
        for (int j = 0; j < k; j++)
            first = first && !same_root(program_forms[j].op, program_forms[k].op);
        if (first) compare_form(&gpu, k);
    }
}

static void all_of_the_table(void **state) {
    (void)state;
    const char *roots[400];
    Text missing = { 0 };
    int n = trace_roots(roots, COUNT_OF(roots));
    assert_true(n > 0);
    for (int k = 0; k < n; k++)
        if (!trace_executed(roots[k])) text_printf(&missing, " %s", roots[k]);
    if (missing.bytes)
        fail_msg("instructions of the table that no test here executes:%s\n"
                 "  hint: a row of bodies[], or of program_forms[] if it is arithmetic",
                 missing.at);
    text_finish(&missing);
}

static int begin(void **state) {
    (void)state;
    gpu = gpu_open("sm_90a", 1);
    gpu_on_load = trace_module;
    return 0;
}

static int end(void **state) {
    (void)state;
    gpu_close(&gpu);
    trace_finish();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels), cmocka_unit_test(stops), cmocka_unit_test(windows),
        cmocka_unit_test(hints), cmocka_unit_test(wrong_operands), cmocka_unit_test(arithmetic),
        cmocka_unit_test(all_of_the_table),
    };
    return cmocka_run_group_tests_name("vgpu.roots", tests, begin, end);
}
