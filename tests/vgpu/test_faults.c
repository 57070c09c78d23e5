// SPDX-License-Identifier: Apache-2.0
// Faults of memory seen from PTX: a correct kernel runs clean, one edit of its text is reported
// with the instruction, its line in the template and the other party. And kernels that synchronise
// blocks in the usual ways are not accused.
#include "tests/vgpu/gpu.h"

#include <stdio.h>
#include <stdlib.h>

// A tile of 128 floats per block, reversed through shared memory; the sum of each block's warp sums
// goes to `out`. Parameters: in, out. Edits below replace one statement each.
static const char tile_text[] =
    ".version 9.0\n.target sm_80\n.address_size 64\n.file 1 \"tile.cu\"\n"
    ".visible .entry tile(.param .u64 in, .param .u64 out) {\n"
    ".reg .b64 %a, %b, %o; .reg .b32 %t, %c, %n, %s, %r, %i; .reg .f32 %x, %y; .reg .pred %p;\n"
    ".shared .align 16 .b8 buffer[512];\n"
    "ld.param.u64 %a, [in]; ld.param.u64 %b, [out]; mov.u32 %t, %tid.x; mov.u32 %c, %ctaid.x;\n"
    "mad.lo.u32 %i, %c, 128, %t; mul.wide.u32 %o, %i, 4; add.u64 %a, %a, %o; add.u64 %b, %b, %o;\n"
    ".loc 1 10 5\nld.global.f32 %x, [%a];\n"
    "mov.u32 %s, buffer; shl.b32 %r, %t, 2; add.u32 %n, %s, %r;\n"
    ".loc 1 11 5\nst.shared.f32 [%n], %x;\n"
    ".loc 1 12 5\nbar.sync 0;\n"
    "sub.u32 %r, 508, %r; add.u32 %n, %s, %r;\n"
    ".loc 1 13 5\nld.shared.f32 %y, [%n];\n"
    ".loc 1 14 5\nst.global.f32 [%b], %y;\nret;\n}\n";

typedef struct Edit { const char *from, *to; } Edit;

static void load_edited(Gpu *gpu, const char *text, const Edit *edit) {
    const char *at = strstr(text, edit->from);
    Text t = { 0 };
    assert_non_null(at);
    text_add_n(&t, text, (size_t)(at - text));
    text_add(&t, edit->to);
    text_add(&t, at + strlen(edit->from));
    gpu_load(gpu, text_cstr(&t));
    text_finish(&t);
}

static void expect(Gpu *gpu, VgFault got, VgFault want, const char *const *says, int n) {
    if (got != want) fail_msg("fault %d, expected %d:\n%s", got, want, gpu_report(gpu));
    for (int i = 0; i < n; i++)
        if (!strstr(gpu_report(gpu), says[i]))
            fail_msg("no '%s' in:\n%s", says[i], gpu_report(gpu));
}
#define SAYS(...)                                                                                  \
    (const char *const[]){ __VA_ARGS__ },                                                          \
        (int)(sizeof((const char *[]){ __VA_ARGS__ }) / sizeof(char *))

static void tile(void **state) {
    (void)state;
    for (int threads = 1; threads <= 2; threads++) {
        Gpu gpu = gpu_open("sm_80", threads);
        float in[512], out[512];
        for (int i = 0; i < 512; i++) in[i] = (float)i;
        uint64_t a = gpu_put(&gpu, in, sizeof in), b = gpu_put(&gpu, in, sizeof in);
        gpu_load(&gpu, tile_text);
        VgFault fault = gpu_launch(&gpu, "tile", 4, 128, 2, a, b);
        if (fault) fail_msg("%s", gpu_report(&gpu));
        gpu_get(&gpu, b, out, sizeof out);
        for (int i = 0; i < 512; i++) assert_true(out[i] == (float)(i / 128 * 128 + 127 - i % 128));

        load_edited(&gpu, tile_text, &(Edit){ "bar.sync 0;", "" });
        expect(
            &gpu, gpu_launch(&gpu, "tile", 4, 128, 2, a, b),
            VG_UNINITIALISED, // warp 3 has not come yet
            SAYS("uninitialised read", "tile.cu:13", "ld.shared.f32 %y, [%n];", "warp 0, lane 31"));
        load_edited(&gpu, tile_text,
                    &(Edit){ "bar.sync 0;\n", "bar.sync 0; st.shared.f32 [%n], %x;\n" });
        expect(&gpu, gpu_launch(&gpu, "tile", 1, 128, 2, a, b), VG_RACE,
               SAYS("data race: write of 4 bytes at shared",
                    "races with a read by block (0,0,0), warp 3", "st.shared.f32 [%n], %x;",
                    "tile.cu:13, PTX line 19: ld.shared.f32 %y", "a barrier"));
        load_edited(&gpu, tile_text, &(Edit){ "buffer[512]", "buffer[508]" });
        expect(&gpu, gpu_launch(&gpu, "tile", 1, 128, 2, a, b), VG_ILLEGAL_ADDRESS,
               SAYS("write of 4 bytes at shared", "offset 508 of shared memory of 508 bytes",
                    "warp 3, lane 31", "tile.cu:11"));
        load_edited(&gpu, tile_text, &(Edit){ "[%b], %y", "[%b+2], %y" });
        expect(&gpu, gpu_launch(&gpu, "tile", 1, 128, 2, a, b), VG_MISALIGNED,
               SAYS("misaligned", "tile.cu:14", "multiple of 4"));
        load_edited(&gpu, tile_text, &(Edit){ "[%b], %y", "[%b+512], %y" });
        expect(&gpu, gpu_launch(&gpu, "tile", 4, 128, 2, a, b), VG_ILLEGAL_ADDRESS,
               SAYS("write of 4 bytes at global", "block (3,0,0)",
                    "bytes past the end of test (2048 bytes)"));
        load_edited(&gpu, tile_text,
                    &(Edit){ "%i, %c, 128, %t;", "%i, %c, 64, %t;" }); // blocks overlap
        expect(&gpu, gpu_launch(&gpu, "tile", 2, 128, 2, a, b), VG_RACE,
               SAYS("write of 4 bytes at global", "races with a write by block (",
                    "st.global.f32 [%b], %y;", "release and acquire"));
        gpu_load(&gpu, tile_text);
        assert_int_equal(vg_mem_free(gpu.memory, a), OK);
        expect(&gpu, gpu_launch(&gpu, "tile", 1, 128, 2, a, b), VG_USE_AFTER_FREE,
               SAYS("offset 0 of test", "which has been freed", "tile.cu:10"));
        uint64_t fresh;
        assert_int_equal(vg_mem_alloc(gpu.memory, VG_GLOBAL, 2048, 0, "inputs", &fresh), OK);
        assert_int_equal(vg_mem_write(gpu.memory, fresh, in, 1000), OK);
        expect(&gpu, gpu_launch(&gpu, "tile", 4, 128, 2, fresh, b), VG_UNINITIALISED,
               SAYS("read of 4 bytes at global", " of inputs (2048 bytes)", "tile.cu:10"));
        if (threads == 1)
            assert_non_null(strstr(gpu_report(&gpu), "word at offset 1000 of inputs"));
        if (threads == 1)
            assert_non_null(strstr(gpu_report(&gpu), "block (1,0,0), warp 3, lane 26"));
        gpu_close(&gpu);
    }
}

/* Between blocks ------------------------------------------------------------------------------- */

#define HEAD                                                                                       \
    ".visible .entry k(.param .u64 data, .param .u64 flag, .param .u64 out) {\n"                   \
    ".reg .b64 %a, %f, %o, %d; .reg .b32 %t, %c, %v, %w, %n; .reg .pred %p, %q;\n"                 \
    "ld.param.u64 %a, [data]; ld.param.u64 %f, [flag]; ld.param.u64 %o, [out];\n"                  \
    "mov.u32 %t, %tid.x; mov.u32 %c, %ctaid.x; mov.u32 %n, %nctaid.x; mul.wide.u32 %d, %t, 4;\n"

// Block 0 writes, raises a flag; block 1 waits for it and reads.
static const char message_text[] = HEAD
    "add.u64 %a, %a, %d; add.u64 %o, %o, %d; setp.ne.u32 %p, %c, 0; @%p bra READER;\n"
    "add.u32 %v, %t, 7; st.global.u32 [%a], %v; bar.sync 0; setp.ne.u32 %q, %t, 0; @%q bra DONE;\n"
    "st.release.gpu.global.u32 [%f], 1; DONE: ret;\n"
    "READER: setp.ne.u32 %q, %t, 0; @%q bra GO;\n"
    "WAIT: ld.acquire.gpu.global.u32 %w, [%f]; setp.eq.u32 %p, %w, 0; @%p bra WAIT;\n"
    "GO: bar.sync 0; ld.global.u32 %v, [%a]; st.global.u32 [%o], %v; ret; }\n";

// Every block leaves a sum; the last one, by a counter, adds them up.
static const char last_text[] = HEAD
    "setp.ne.u32 %q, %t, 0; mul.wide.u32 %d, %c, 4; add.u64 %d, %a, %d; @%q bra END;\n"
    "add.u32 %v, %c, 1; st.global.u32 [%d], %v; fence.acq_rel.gpu;\n"
    "atom.global.add.u32 %w, [%f], 1; add.u32 %w, %w, 1; setp.ne.u32 %p, %w, %n; @%p bra END;\n"
    "membar.gl; mov.u32 %v, 0; mov.u32 %c, 0;\n"
    "SUM: ld.global.u32 %w, [%a]; add.u32 %v, %v, %w; add.u64 %a, %a, 4; add.u32 %c, %c, 1;\n"
    "setp.lt.u32 %p, %c, %n; @%p bra SUM; st.global.u32 [%o], %v;\nEND: ret; }\n";

// A barrier of the grid, twice: every block writes its word, all meet, every block reads its
// neighbour's.
static const char grid_text[] = HEAD
    ".reg .b32 %k, %goal; mov.u32 %k, 0; mov.u32 %goal, 0;\n"
    "LOOP: mul.wide.u32 %d, %c, 4; add.u64 %d, %a, %d; setp.ne.u32 %q, %t, 0;\n"
    "@%q bra MEET1; add.u32 %v, %c, %k; st.global.u32 [%d], %v;\n"
    "MEET1: bar.sync 0; add.u32 %goal, %goal, %n; @%q bra HERE1; fence.sc.gpu;\n"
    "red.global.add.u32 [%f], 1;\n"
    "SPIN1: ld.volatile.global.u32 %w, [%f]; setp.lt.u32 %p, %w, %goal; @%p bra SPIN1; "
    "fence.sc.gpu;\n"
    "HERE1: bar.sync 0; add.u32 %v, %c, 1; rem.u32 %v, %v, %n; mul.wide.u32 %d, %v, 4; add.u64 %d, "
    "%a, %d;\n"
    "ld.global.u32 %v, [%d]; bar.sync 0; add.u32 %goal, %goal, %n; @%q bra HERE2; fence.sc.gpu;\n"
    "red.global.add.u32 [%f], 1;\n"
    "SPIN2: ld.volatile.global.u32 %w, [%f]; setp.lt.u32 %p, %w, %goal; @%p bra SPIN2; "
    "fence.sc.gpu;\n"
    "HERE2: bar.sync 0; add.u32 %k, %k, 10; setp.lt.u32 %p, %k, 30; @%p bra LOOP;\n"
    "@%q bra END; mul.wide.u32 %d, %c, 4; add.u64 %d, %o, %d; st.global.u32 [%d], %v;\nEND: ret; "
    "}\n";

static void run_blocks(const char *text, const Edit *edit, uint32_t blocks, VgFault want,
                       const char *says, const uint32_t *result, int n) {
    for (int threads = 1; threads <= 2; threads++) {
        Gpu gpu = gpu_open("sm_80", threads);
        uint64_t data = gpu_alloc(&gpu, 1024), flag = gpu_alloc(&gpu, 64),
                 out = gpu_alloc(&gpu, 1024);
        uint32_t got[64];
        load_edited(&gpu, text, edit);
        VgFault fault = gpu_launch(&gpu, "k", blocks, 64, 3, data, flag, out);
        expect(&gpu, fault, want, &says, want != VG_OK);
        gpu_get(&gpu, out, got, sizeof got);
        for (int i = 0; i < n && want == VG_OK; i++) assert_int_equal(got[i], result[i]);
        gpu_close(&gpu);
    }
}

static void messages(void **state) {
    (void)state;
    uint32_t want[64];
    for (uint32_t i = 0; i < 64; i++) want[i] = i + 7;
    const char *race = "races with a write by block (0,0,0)";
    Edit none = { "", "" };
    run_blocks(message_text, &none, 2, VG_OK, NULL, want, 64);
    run_blocks(message_text, &(Edit){ "ld.acquire.gpu", "ld.relaxed.gpu" }, 2, VG_RACE, race, NULL,
               0);
    run_blocks(message_text, &(Edit){ "st.release.gpu", "st.relaxed.gpu" }, 2, VG_RACE, race, NULL,
               0);
    run_blocks(message_text,
               &(Edit){ "st.release.gpu.global.u32 [%f], 1;",
                        "membar.gl; st.volatile.global.u32 [%f], 1;" },
               2, VG_OK, NULL, want, 64);
    run_blocks(message_text, &(Edit){ "GO: bar.sync 0;", "GO:" }, 2, VG_RACE, race, NULL, 0);
    run_blocks(message_text, &(Edit){ "st.release.gpu", "st.release.cta" }, 2, VG_SCOPE, "scope",
               NULL, 0);
    run_blocks(message_text, &(Edit){ "st.release.gpu", "st" }, 2, VG_RACE, "races with", NULL, 0);
}

static void last_block(void **state) {
    (void)state;
    uint32_t want[1] = { 21 };
    run_blocks(last_text, &(Edit){ "", "" }, 6, VG_OK, NULL, want, 1);
    run_blocks(last_text, &(Edit){ "fence.acq_rel.gpu;", "" }, 6, VG_RACE, "a write by block", NULL,
               0);
    run_blocks(last_text, &(Edit){ "membar.gl;", "" }, 6, VG_RACE, "a write by block", NULL, 0);
}

static void grid_barrier(void **state) {
    (void)state;
    uint32_t want[4] = { 21, 22, 23, 20 };
    run_blocks(grid_text, &(Edit){ "", "" }, 4, VG_OK, NULL, want, 4);
    // What warp 1 has read is not covered by thread 0's release: the next round's write races with
    // it.
    run_blocks(grid_text,
               &(Edit){ "ld.global.u32 %v, [%d]; bar.sync 0;", "ld.global.u32 %v, [%d];" }, 4,
               VG_RACE, "races with a", NULL, 0);
    run_blocks(grid_text,
               &(Edit){ "fence.sc.gpu;\nred.global.add.u32 [%f], 1;\nSPIN1",
                        "red.global.add.u32 [%f], 1;\nSPIN1" },
               4, VG_RACE, "a write by block", NULL, 0);
}

// Registers that nothing has written: told where they are used, not where they are passed on.
static void registers(void **state) {
    (void)state;
    static const struct { const char *text, *name; } rows[] = { // name NULL: nothing to tell
        { "add.u32 %r1, %r2, 1;", "%r2" },
        { "mov.u32 %r2, %r3; mov.u32 %r1, %r2; st.global.u32 [%rd1], %r1;", "%r3" },
        { "st.global.u32 [%rd2], 1;", "%rd2" },
        { "st.global.v2.u32 [%rd1], {%r1, %r2};", "%r1" },
        { "fma.rn.f32 %f1, %f1, 0f3F800000, 0f3F800000;", "%f1" },
        { "add.f64 %fd1, %fd2, %fd2;", "%fd2" },
        { "@%p1 st.global.u32 [%rd1], 1;", "%p1" },
        { "@%p1 bra SKIP; mov.u32 %r1, 1;\nSKIP:", "%p1" },
        { "cvt.u32.u16 %r1, %h1;", "%h1" },
        { "cvt.u32.u64 %r1, %rd2; add.u32 %r1, %r1, 1;", "%rd2" },
        { "setp.eq.u32 %p2, %r0, 40; @%p2 add.u32 %r1, %r2, 1;", NULL }, // no lane does
        { "setp.lt.u32 %p2, %r0, 4; @%p2 add.u32 %r1, %r2, 1;", "%r2" },
        { "setp.lt.u32 %p2, %r0, 4; @%p2 mov.u32 %r2, 1; add.u32 %r1, %r2, 1;", NULL }, // some did
        { "mov.u32 %r1, %r2; mov.b64 %rd2, {%r0, %r1};", NULL },
        { "mov.b64 %rd2, {%r0, %r1}; st.global.u64 [%rd1], %rd2;", NULL },
        { "st.global.v2.u32 [%rd1], {%r0, %r1};", NULL },
        { "{ .param .b32 x; st.param.b32 [x], %r1; call pass, (x); }", NULL },
        { "setp.lt.u32 %p2, %r0, 4; selp.u32 %r2, %r0, %r1, %p2;", NULL },
        { "mov.u32 %r3, 0;\nLOOP: @%p2 add.u32 %r1, %r1, 1; add.u32 %r3, %r3, 1;"
          " setp.eq.u32 %p2, %r3, 2; mov.u32 %r1, %r3; setp.lt.u32 %p3, %r3, 4; @%p3 bra LOOP;",
          NULL },
    };
    Gpu gpu = gpu_open("sm_80", 1);
    uint64_t a = gpu_alloc(&gpu, 4096);
    for (int i = 0; i < COUNT_OF(rows); i++) {
        Text text = { 0 };
        text_printf(&text, ".version 9.0\n.target sm_80\n.address_size 64\n"
                    ".func pass(.param .b32 x) { ret; }\n"
                    ".visible .entry k(.param .u64 p) {\n.reg .b32 %%r<5>; .reg .b64 %%rd<5>;"
                    " .reg .f32 %%f<5>; .reg .f64 %%fd<5>; .reg .pred %%p<5>; .reg .b16 %%h<5>;\n"
                    "ld.param.u64 %%rd1, [p]; mov.u32 %%r0, %%tid.x;"
                    " mad.wide.u32 %%rd1, %%r0, 8, %%rd1;\n%s\nret;\n}\n", rows[i].text);
        gpu_load(&gpu, text_cstr(&text));
        text_finish(&text);
        VgFault fault = gpu_launch(&gpu, "k", 1, 32, 1, a), want =
                                      rows[i].name ? VG_UNINITIALISED : VG_OK;
        if (fault != want)
            fail_msg("%s: fault %d, expected %d\n%s", rows[i].text, fault, want, gpu_report(&gpu));
        if (!rows[i].name) continue;
        Text says = { 0 };
        text_printf(&says, "register %s, which nothing has written", rows[i].name);
        if (!strstr(gpu_report(&gpu), text_cstr(&says)) ||
            !strstr(gpu_report(&gpu), "PTX line 8"))
            fail_msg("%s: no '%s' in:\n%s", rows[i].text, text_cstr(&says), gpu_report(&gpu));
        text_finish(&says);
    }
    gpu_close(&gpu);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tile), cmocka_unit_test(messages), cmocka_unit_test(last_block),
        cmocka_unit_test(grid_barrier),
        cmocka_unit_test(registers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
