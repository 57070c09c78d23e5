// SPDX-License-Identifier: Apache-2.0
// cp.async from PTX: what arrives where, groups, sizes; and a correct kernel of which each edit of
// one statement (a wait, a commit, a barrier left out; buffers used while a copy is under way) is
// reported with both instructions.
#include "tests/vgpu/edit.h"

#include <stdio.h>

static void expect(Gpu *gpu, VgFault got, VgFault want, const char *const *says, int n) {
    if (got != want) fail_msg("fault %d, expected %d:\n%s", got, want, gpu_report(gpu));
    for (int i = 0; i < n; i++)
        if (!strstr(gpu_report(gpu), says[i]))
            fail_msg("no '%s' in:\n%s", says[i], gpu_report(gpu));
}
#define SAYS(...)                                                                                  \
    (const char *const[]){ __VA_ARGS__ },                                                          \
        (int)(sizeof((const char *[]){ __VA_ARGS__ }) / sizeof(char *))

/* A pipeline of two stages --------------------------------------------------------------------- */

// 128 threads, 16 bytes each and stage; out[t] = sum over tiles of word 3 of the element of thread
// 127 - t. Parameters: in (tiles * 2048 bytes), out, tiles.
static const char pipeline[] =
    ".version 9.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry k(.param .u64 in, .param .u64 out, .param .u64 tiles) {\n"
    ".reg .b64 %a, %o, %w; .reg .b32 %t, %n, %k, %s, %d, %r, %v, %sum, %x; .reg .pred %p, %q;\n"
    ".shared .align 16 .b8 buffer[4096];\n"
    "ld.param.u64 %a, [in]; ld.param.u64 %o, [out]; ld.param.u32 %n, [tiles]; mov.u32 %t, %tid.x;\n"
    "mul.wide.u32 %w, %t, 16; add.u64 %a, %a, %w; mul.wide.u32 %w, %t, 4; add.u64 %o, %o, %w;\n"
    "mov.u32 %s, buffer; shl.b32 %d, %t, 4; add.u32 %d, %d, %s; sub.u32 %r, 127, %t; shl.b32 %r, "
    "%r, 4;\n"
    "add.u32 %r, %r, %s; mov.u32 %k, 0; mov.u32 %sum, 0;\n"
    "cp.async.cg.shared.global [%d], [%a], 16; // first\ncp.async.commit_group; // one\n"
    "LOOP: add.u32 %x, %k, 1; setp.ge.u32 %p, %x, %n; and.b32 %x, %x, 1; shl.b32 %x, %x, 11;\n"
    "add.u64 %a, %a, 2048; add.u32 %x, %x, %d; @%p bra LAST;\n"
    "cp.async.cg.shared.global.L2::128B [%x], [%a], 16; // next\n"
    "LAST: cp.async.commit_group; // two\n"
    "cp.async.wait_group 1; // wait\nbar.sync 0; // full\n"
    "and.b32 %x, %k, 1; shl.b32 %x, %x, 11; add.u32 %x, %x, %r; ld.shared.u32 %v, [%x+12]; // use\n"
    "add.u32 %sum, %sum, %v; bar.sync 0; // empty\n"
    "add.u32 %k, %k, 1; setp.lt.u32 %p, %k, %n; @%p bra LOOP;\n"
    "st.global.u32 [%o], %sum; ret; }\n";

static VgFault run_pipeline(Gpu *gpu, const Edit *edit, uint32_t *out) {
    uint32_t in[7 * 512], zeros[128] = { 0 };
    for (uint32_t i = 0; i < 7 * 512; i++) in[i] = i * 2654435761u;
    uint64_t a = gpu_put(gpu, in, sizeof in), o = gpu_put(gpu, zeros, sizeof zeros);
    edit_load(gpu, pipeline, edit);
    VgFault fault = gpu_launch(gpu, "k", 1, 128, 3, a, o, (uint64_t)7);
    gpu_get(gpu, o, out, sizeof zeros);
    return fault;
}

static void pipelines(void **state) {
    (void)state;
    Gpu gpu = gpu_open("sm_80", 1);
    uint32_t out[128];
    static const uint32_t quanta[] = { 2000, 1, 7 };
    for (int k = 0; k < COUNT_OF(quanta); k++) {
        vg_device_schedule(gpu.device, quanta[k], (uint64_t)k);
        if (run_pipeline(&gpu, &(Edit){ .from = "", .to = "" }, out) != VG_OK)
            fail_msg("%s", gpu_report(&gpu));
        for (uint32_t t = 0; t < 128; t++) {
            uint32_t sum = 0;
            for (uint32_t tile = 0; tile < 7; tile++)
                sum += (tile * 512 + (127 - t) * 4 + 3) * 2654435761u;
            assert_int_equal(out[t], sum);
        }
    }
    vg_device_schedule(gpu.device, 2000, 0);
    const char *still = "still in flight";
    expect(&gpu, run_pipeline(&gpu, &(Edit){ .from = "cp.async.wait_group 1;", .to = "" }, out),
           VG_RACE,
           SAYS("data race: read of 4 bytes at shared",
                "an asynchronous write by block (0,0,0), warp", still,
                "ld.shared.u32 %v, [%x+12]; // use", "// first"));
    expect(&gpu, run_pipeline(&gpu, &(Edit){ .from = "wait_group 1;", .to = "wait_group 2;" }, out),
           VG_RACE, SAYS("// use", still));
    expect(&gpu,
           run_pipeline(&gpu, &(Edit){ .from = "cp.async.commit_group; // one", .to = "" }, out),
           VG_RACE, // one group less
           SAYS("read of 4 bytes at shared", still));
    expect(&gpu, run_pipeline(&gpu, &(Edit){ .from = "bar.sync 0; // full", .to = "" }, out),
           VG_UNINITIALISED,
           SAYS("read of 4 bytes at shared", "// use")); // the other warps have not come yet
    expect(&gpu, run_pipeline(&gpu, &(Edit){ .from = "bar.sync 0; // empty", .to = "" }, out),
           VG_RACE, SAYS("// next", "// use", "an asynchronous write by block (0,0,0), warp 3"));
    // The copy overwrites the tile in use: a stage that is not switched.
    expect(&gpu,
           run_pipeline(&gpu,
                        &(Edit){ .from = "shl.b32 %x, %x, 11;\nadd.u64",
                                 .to = "shl.b32 %x, %x, 12; mov.u32 %x, 0;\nadd.u64" },
                        out),
           VG_RACE,
           SAYS("write of 16 bytes at shared", "an asynchronous write", "// next", "// first"));
    assert_int_equal(vg_run_stats(gpu.device)->forgotten, 0);
    gpu_close(&gpu);
}

/* One warp ------------------------------------------------------------------------------------- */

// Parameters: data (64 * 16 bytes), out. Edits go to the place of EDIT.
static const char one_warp[] =
    ".version 9.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry k(.param .u64 data, .param .u64 out) {\n"
    ".reg .b64 %a, %o, %w; .reg .b32 %t, %d, %v, %z, %u; .reg .pred %p, %odd; .shared .align 16 "
    ".b8 buffer[1024];\n"
    "ld.param.u64 %a, [data]; ld.param.u64 %o, [out]; mov.u32 %t, %tid.x; mul.wide.u32 %w, %t, "
    "16;\n"
    "add.u64 %a, %a, %w; add.u64 %o, %o, %w; mov.u32 %d, buffer; mad.lo.u32 %d, %t, 16, %d; "
    "mov.u32 %z, 0;\n"
    "and.b32 %u, %t, 1; setp.ne.u32 %odd, %u, 0; and.b32 %u, %t, 3; shl.b32 %u, %u, 2;\n"
    "EDIT\nret; }\n";

static VgFault run_one(Gpu *gpu, const char *body, uint32_t *out) {
    uint32_t in[256], zeros[256] = { 0 };
    for (uint32_t i = 0; i < 256; i++) in[i] = 0x1000 + i;
    uint64_t a = gpu_put(gpu, in, sizeof in), o = gpu_put(gpu, zeros, sizeof zeros);
    edit_load(gpu, one_warp, &(Edit){ .from = "EDIT", .to = body });
    VgFault fault = gpu_launch(gpu, "k", 1, 32, 2, a, o);
    gpu_get(gpu, o, out, sizeof zeros);
    return fault;
}

#define OUT " ld.shared.v4.u32 {%v, %z, %u, %t}, [%d]; st.global.v4.u32 [%o], {%v, %z, %u, %t};"

static void sizes(void **state) {
    (void)state;
    Gpu gpu = gpu_open("sm_80", 1);
    uint32_t out[256];
    // Parts of 4, 8 and 16 bytes; what is beyond src-size is zero and not read.
    static const struct {
        const char *body;
        int words, have;
    } rows[] = {
        { "st.shared.v4.u32 [%d], {%z, %z, %z, %z}; cp.async.ca.shared.global [%d], [%a], 4; "
          "cp.async.wait_all;",
          4, 1 },
        { "st.shared.v4.u32 [%d], {%z, %z, %z, %z}; cp.async.ca.shared.global [%d], [%a], 8; "
          "cp.async.wait_all;",
          4, 2 },
        { "cp.async.ca.shared.global [%d], [%a], 16; cp.async.wait_all;", 4, 4 },
        { "cp.async.cg.shared.global [%d], [%a], 16, 8; cp.async.wait_all;", 4, 2 },
        { "cp.async.cg.shared.global.L2::256B [%d], [%a], 16, 16; cp.async.commit_group; "
          "cp.async.wait_group 0;",
          4, 4 },
        { "cp.async.cg.shared.global [%d], [0], 16, 0; cp.async.wait_all;", 4,
          0 }, // any address will do
        { "setp.eq.u32 %p, %z, 0; cp.async.cg.shared.global [%d], [0], 16, %p; cp.async.wait_all;",
          4, 0 },
        { "setp.ne.u32 %p, %z, 0; cp.async.cg.shared.global [%d], [%a], 16, %p; cp.async.wait_all;",
          4, 4 },
        { "cp.async.cg.shared.global [%d], [%a], 16; cp.async.commit_group; cp.async.commit_group; "
          "cp.async.wait_group 1;",
          4, 4 },
    };
    for (int r = 0; r < COUNT_OF(rows); r++) {
        char body[400];
        snprintf(body, sizeof body, "%s%s", rows[r].body, OUT);
        if (run_one(&gpu, body, out) != VG_OK) fail_msg("%s\n%s", rows[r].body, gpu_report(&gpu));
        for (uint32_t i = 0; i < 128; i++)
            assert_int_equal(out[i], (int)i % 4 < rows[r].have ? 0x1000 + i : 0);
    }
    // Each lane its own size; half the lanes by a guard.
    if (run_one(&gpu, "cp.async.cg.shared.global [%d], [%a], 16, %u; cp.async.wait_all;" OUT, out))
        fail_msg("%s", gpu_report(&gpu));
    for (uint32_t i = 0; i < 128; i++) assert_int_equal(out[i], i % 4 < i / 4 % 4 ? 0x1000 + i : 0);
    if (run_one(&gpu,
                "st.shared.v4.u32 [%d], {%z, %z, %z, %z}; @%odd cp.async.cg.shared.global [%d], "
                "[%a], 16; cp.async.wait_all;" OUT,
                out))
        fail_msg("%s", gpu_report(&gpu));
    for (uint32_t i = 0; i < 128; i++) assert_int_equal(out[i], i / 4 % 2 ? 0x1000 + i : 0);
    // Lanes whose groups differ: the odd ones have committed once more.
    if (run_one(&gpu,
                "cp.async.cg.shared.global [%d], [%a], 16; cp.async.commit_group; @%odd "
                "cp.async.commit_group; @%odd cp.async.wait_group 1;"
                "@!%odd cp.async.wait_group 0;" OUT,
                out))
        fail_msg("%s", gpu_report(&gpu));
    for (uint32_t i = 0; i < 128; i++) assert_int_equal(out[i], 0x1000 + i);
    gpu_close(&gpu);
}

static void misuse(void **state) {
    (void)state;
    Gpu gpu = gpu_open("sm_80", 1);
    uint32_t out[256];
#define COPY "cp.async.cg.shared.global [%d], [%a], 16; cp.async.commit_group;"
    static const struct {
        const char *body;
        VgFault fault;
        const char *says[3];
    } rows[] = {
        { COPY " cp.async.wait_group 1;" OUT,
          VG_RACE,
          { "read of 16 bytes at shared", "an asynchronous write by block (0,0,0), warp 0",
            "wait" } },
        { COPY " st.shared.u32 [%d], %z; cp.async.wait_all;",
          VG_RACE,
          { "write of 4 bytes at shared", "an asynchronous write" } },
        { COPY " atom.shared.add.u32 %v, [%d], 1; cp.async.wait_all;",
          VG_RACE,
          { "at shared", "an asynchronous write" } },
        { COPY " bar.sync 0; ld.shared.u32 %v, [%d+8]; cp.async.wait_all;",
          VG_RACE,
          { "read of 4 bytes", "an asynchronous write" } },
        { COPY COPY " cp.async.wait_all;",
          VG_RACE,
          { "write of 16 bytes at shared", "an asynchronous write" } },
        { COPY " st.global.u32 [%a], %z; cp.async.wait_all;",
          VG_RACE,
          { "write of 4 bytes at global", "an asynchronous read by block (0,0,0), warp 0",
            "still in flight" } },
        { COPY " bar.sync 0; st.global.u32 [%a+4], %z; cp.async.wait_all;",
          VG_RACE,
          { "write of 4 bytes at global", "an asynchronous read" } },
        { COPY " ld.global.u32 %v, [%a]; cp.async.wait_all; st.global.u32 [%a], %z;",
          VG_OK,
          { "" } },
        { COPY " cp.async.wait_all; st.shared.u32 [%d], %z;" COPY
               "cp.async.wait_all; ld.shared.u32 %v, [%d];",
          VG_OK,
          { "" } },
        { "@%odd " COPY " cp.async.wait_all; ld.shared.u32 %v, [%d];",
          VG_UNINITIALISED,
          { "lane 0" } },
        { "cp.async.cg.shared.global [%d+8], [%a], 16; cp.async.wait_all;",
          VG_MISALIGNED,
          { "multiple of 16" } },
        { "cp.async.cg.shared.global [%d+1024], [%a], 16; cp.async.wait_all;",
          VG_ILLEGAL_ADDRESS,
          { "shared memory of 1024 bytes" } },
        { "cp.async.cg.shared.global [%d], [%a+1024], 16; cp.async.wait_all;",
          VG_ILLEGAL_ADDRESS,
          { "past the end of test (1024 bytes)" } },
        { "mov.u32 %u, 17; cp.async.cg.shared.global [%d], [%a], 16, %u;",
          VG_ILLEGAL_INSTRUCTION,
          { "src-size 17" } },
    };
    for (int r = 0; r < COUNT_OF(rows); r++) {
        VgFault fault = run_one(&gpu, rows[r].body, out);
        if (fault != rows[r].fault) fail_msg("%s: %d\n%s", rows[r].body, fault, gpu_report(&gpu));
        for (int k = 0; k < 3 && fault && rows[r].says[k]; k++)
            if (!strstr(gpu_report(&gpu), rows[r].says[k]))
                fail_msg("%s: no '%s' in\n%s", rows[r].body, rows[r].says[k], gpu_report(&gpu));
    }
    static const char *const refused[][2] = {
        { "cp.async.cg.shared.global [%d], [%a], 8;", "expected a size of 16" },
        { "cp.async.ca.shared.global [%d], [%a], 12;", "4, 8 or 16" },
        { "cp.async.shared.global [%d], [%a], 16;", ".ca or .cg" },
        { "cp.async.cg.global [%d], [%a], 16;", "expected .shared" },
        { "cp.async.wait_group %u;", "a number of groups" },
    };
    for (int r = 0; r < COUNT_OF(refused); r++) {
        Text t = { 0 };
        text_printf(&t, ".visible .entry k() { .reg .b64 %%a; .reg .b32 %%d, %%u; %s ret; }",
                    refused[r][0]);
        assert_int_equal(gpu_try_load(&gpu, t.at), ERR_INPUT);
        if (!strstr(status_message(), refused[r][1]))
            fail_msg("%s: %s", refused[r][0], status_message());
        text_finish(&t);
    }
    gpu_close(&gpu);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(pipelines), cmocka_unit_test(sizes),
                                        cmocka_unit_test(misuse) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
