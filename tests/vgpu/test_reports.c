// SPDX-License-Identifier: Apache-2.0
// Each class of memory fault trips, and its report says where, what and what to do, word for word.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/vgpu/rig.h"

static const RigShape shape = { .n_ctas = 4, .threads = 64, .shared = 1024 };

// Every site is in one line of a template, inlined once.
static bool locate(const void *data, uint32_t site, VgPlace *place) {
    static char text[2][64];
    static int next;
    (void)data;
    char *ptx = text[next++ % 2];
    snprintf(ptx, sizeof text[0], "instruction %u;", site);
    *place = (VgPlace){ .ptx_line = 100 + site,
                        .ptx = ptx,
                        .file = "softmax.cu",
                        .line = 41,
                        .n_inlined = 2,
                        .inlined = { { "softmax.cu", 77 }, { "main.cu", 5 } } };
    return true;
}

static const VgScene scene = {
    .kernel = "softmax", .grid = { 2, 2, 1 }, .block = { 8, 4, 2 }, .locate = locate
};

// The whole report; "%llx" stands for `address`.
static void expect(Rig *rig, VgFault got, VgFault want, uint64_t address, const char *report) {
    Text text = { 0 };
    char wanted[2000];
    assert_int_equal(got, want);
    snprintf(wanted, sizeof wanted, report, (unsigned long long)address);
    vg_report_text(&text, rig_record(rig), &scene);
    assert_string_equal(text_cstr(&text), wanted);
    text_finish(&text);
}

#define WHERE(lane, thread, site)                                                                  \
    "  kernel softmax, block (1,1,0), warp 1, lane " lane ", thread " thread "\n"                  \
    "  softmax.cu:41 (inlined at softmax.cu:77, at main.cu:5), PTX line 1" site                    \
    ": instruction " site ";\n"

static VgSite numbered(VgSite site, uint32_t id) {
    site.id = id;
    return site;
}

static void global_faults(void **state) {
    (void)state;
    Rig rig;
    rig_begin(&rig, &shape);
    VgWarpMem *w = &rig.warp[3][1];
    VgSite ld = numbered(rig_site(VG_READ, VG_GLOBAL, 4, 1), 10),
           st = numbered(rig_site(VG_WRITE, VG_GLOBAL, 4, 1), 11);
    VgSite ld4 = numbered(rig_site(VG_READ, VG_GLOBAL, 4, 4), 12);
    uint64_t a = rig_alloc(&rig, 100, "weights");
    assert_int_equal(vg_mem_fill(rig.memory, a, 1, 4, 20), OK); // the last 5 words are not written

    expect(&rig, rig_run(&rig, w, &ld, ~0u >> 8, a, 4), VG_UNINITIALISED, a + 80,
           "uninitialised read: read of 4 bytes at global 0x%llx\n" WHERE("20", "(4,2,1)", "10")
           "  word at offset 80 of weights (100 bytes)\n");
    expect(&rig, rig_run(&rig, w, &st, ~0u, a, 4), VG_ILLEGAL_ADDRESS, a + 100,
           "illegal address: write of 4 bytes at global 0x%llx\n" WHERE("25", "(1,3,1)", "11")
           "  0 bytes past the end of weights (100 bytes)\n");
    expect(&rig, rig_run(&rig, w, &ld4, 2, a + 80, 16), VG_ILLEGAL_ADDRESS, a + 96,
           "illegal address: read of 16 bytes at global 0x%llx\n" WHERE("1", "(1,0,1)", "12")
           "  16 bytes at offset 96 reach beyond the end of weights (100 bytes)\n");
    expect(&rig, rig_run(&rig, w, &st, 1, a - 8, 0), VG_ILLEGAL_ADDRESS, a - 8,
           "illegal address: write of 4 bytes at global 0x%llx\n" WHERE("0", "(0,0,1)", "11")
           "  8 bytes before weights (100 bytes)\n");
    expect(&rig, rig_run(&rig, w, &st, 1, a + 4096 + 100, 0), VG_ILLEGAL_ADDRESS,
           a + 4196, // the red zone
           "illegal address: write of 4 bytes at global 0x%llx\n" WHERE(
               "0", "(0,0,1)", "11") "  4096 bytes past the end of weights (100 bytes)\n");
    expect(&rig, rig_run(&rig, w, &ld, 1, 16, 0), VG_ILLEGAL_ADDRESS, 16,
           "illegal address: read of 4 bytes at global 0x%llx\n" WHERE("0", "(0,0,1)", "10")
           "  no allocation near this address\n"
           "  hint: a null pointer, or an index taken for one\n");
    expect(&rig, rig_run(&rig, w, &ld, 4, a, 1), VG_MISALIGNED, a + 2,
           "misaligned access: read of 4 bytes at global 0x%llx\n" WHERE("2", "(2,0,1)", "10")
           "  4 bytes need an address that is a multiple of 4\n");
    expect(&rig, rig_run(&rig, w, &ld4, ~0u, a + 4, 0), VG_MISALIGNED, a + 4,
           "misaligned access: read of 16 bytes at global 0x%llx\n" WHERE("0", "(0,0,1)", "12")
           "  16 bytes need an address that is a multiple of 16\n"
           "  hint: a vector access is aligned to the whole vector\n");
    assert_int_equal(vg_mem_free(rig.memory, a), OK);
    expect(&rig, rig_run(&rig, w, &ld, 1, a + 4, 0), VG_USE_AFTER_FREE, a + 4,
           "use after free: read of 4 bytes at global 0x%llx\n" WHERE("0", "(0,0,1)", "10")
           "  offset 4 of weights (100 bytes), which has been freed\n");
    uint64_t c;
    assert_int_equal(vg_mem_alloc(rig.memory, VG_CONST, 16, 0, "table", &c), OK);
    assert_int_equal(vg_mem_fill(rig.memory, c, 1, 4, 4), OK);
    VgSite ldc = rig_site(VG_READ, VG_CONST, 4, 1);
    assert_int_equal(rig_run(&rig, w, &ldc, ~0u, c + 4, 0), VG_OK);
    VgSite stg = numbered(rig_site(VG_WRITE, VG_GENERIC, 4, 1), 13);
    expect(&rig, rig_run(&rig, w, &stg, 1, c + 4, 0), VG_READ_ONLY, c + 4,
           "write to read-only memory: write of 4 bytes at const 0x%llx\n" WHERE(
               "0", "(0,0,1)", "13") "  offset 4 of constant table\n");
    rig_end(&rig);
}

// Lanes that do not execute are not looked at.
static void masked_lanes(void **state) {
    (void)state;
    Rig rig;
    rig_begin(&rig, &shape);
    VgSite st = rig_site(VG_WRITE, VG_GLOBAL, 4, 1), ld = rig_site(VG_READ, VG_GLOBAL, 4, 1);
    uint64_t a = rig_alloc(&rig, 64, "small");
    assert_int_equal(rig_run(&rig, &rig.warp[0][0], &st, 0xffff, a, 4), VG_OK);
    assert_int_equal(rig_run(&rig, &rig.warp[0][0], &st, 0x1ffff, a, 4), VG_ILLEGAL_ADDRESS);
    for (int l = 0; l < 32; l++)
        rig_u64(&rig, RIG_ADDRESS)[l] = l == 9 ? a + 12 : (uint64_t)l * 12345;
    assert_int_equal(rig_run_at(&rig, &rig.warp[0][0], &ld, 1 << 9), VG_OK);
    rig_end(&rig);
}

static void shared_faults(void **state) {
    (void)state;
    Rig rig;
    rig_begin(&rig, &shape);
    VgWarpMem *w = &rig.warp[3][1];
    VgSite ld = numbered(rig_site(VG_READ, VG_SHARED, 4, 1), 20),
           st = numbered(rig_site(VG_WRITE, VG_SHARED, 4, 1), 21);
    VgSite generic = numbered(rig_site(VG_READ, VG_GENERIC, 4, 1), 22);
    expect(&rig, rig_run(&rig, w, &ld, 6, 0x100, 4), VG_UNINITIALISED, 0x104,
           "uninitialised read: read of 4 bytes at shared 0x%llx\n" WHERE("1", "(1,0,1)", "20")
           "  word at offset 260 of shared memory\n");
    expect(&rig, rig_run(&rig, w, &st, ~0u, 1020, 4), VG_ILLEGAL_ADDRESS, 1024,
           "illegal address: write of 4 bytes at shared 0x%llx\n" WHERE("1", "(1,0,1)", "21")
           "  offset 1024 of shared memory of 1024 bytes\n");
    expect(&rig, rig_run(&rig, w, &generic, 1, VG_SHARED_WINDOW + 4000, 4), VG_ILLEGAL_ADDRESS,
           VG_SHARED_WINDOW + 4000,
           "illegal address: read of 4 bytes at shared 0x%llx\n" WHERE(
               "0", "(0,0,1)", "22") "  offset 4000 of shared memory of 1024 bytes\n");
    expect(
        &rig, rig_run(&rig, w, &ld, 1, VG_SHARED_WINDOW, 4), VG_ILLEGAL_ADDRESS, VG_SHARED_WINDOW,
        "illegal address: read of 4 bytes at shared 0x%llx\n" WHERE(
            "0", "(0,0,1)", "20") "  outside of shared memory, which is 1024 bytes from 0x0 on\n");
    expect(&rig, rig_run(&rig, w, &generic, 1, 0x050000000000, 4), VG_ILLEGAL_ADDRESS,
           0x050000000000,
           "illegal address: read of 4 bytes at address 0x%llx\n" WHERE(
               "0", "(0,0,1)", "22") "  no allocation near this address\n");
    expect(&rig, rig_run(&rig, w, &generic, 1, VG_CODE_WINDOW + 16, 4), VG_ILLEGAL_ADDRESS,
           VG_CODE_WINDOW + 16,
           "illegal address: read of 4 bytes at address 0x%llx\n" WHERE(
               "0", "(0,0,1)", "22") "  a function's address\n");
    rig_end(&rig);
}

static void races(void **state) {
    (void)state;
    Rig rig;
    rig_begin(&rig, &shape);
    VgWarpMem *w = &rig.warp[3][1];
    VgSite ld = numbered(rig_site(VG_READ, VG_SHARED, 4, 1), 30),
           st = numbered(rig_site(VG_WRITE, VG_SHARED, 4, 1), 31);
    VgSite gst = numbered(rig_site(VG_WRITE, VG_GLOBAL, 4, 1), 33);
    assert_int_equal(rig_run(&rig, &rig.warp[3][0], &st, ~0u, 256, 4), VG_OK);
    expect(&rig, rig_run(&rig, w, &ld, ~0u, 132, 4), VG_UNINITIALISED, 132, // first things first
           "uninitialised read: read of 4 bytes at shared 0x%llx\n" WHERE("0", "(0,0,1)", "30")
           "  word at offset 132 of shared memory\n");
    expect(&rig, rig_run(&rig, w, &ld, ~0u, 256, 4), VG_RACE, 256,
           "data race: read of 4 bytes at shared 0x%llx\n" WHERE(
               "0", "(0,0,1)",
               "30") "  word at offset 256 of shared memory\n"
                     "  races with a write by block (1,1,0), warp 0, not ordered with it\n"
                     "    softmax.cu:41 (inlined at softmax.cu:77, at main.cu:5), PTX line 131: "
                     "instruction 31;\n"
                     "  hint: a barrier (or an acquire of what the other released) is missing "
                     "between them\n");
    uint64_t a = rig_alloc(&rig, 4096, "partial sums");
    assert_int_equal(rig_run(&rig, &rig.warp[2][0], &gst, ~0u, a + 1024, 4), VG_OK);
    expect(&rig, rig_run(&rig, w, &gst, ~0u, a + 1024 - 64, 4), VG_RACE, a + 1024,
           "data race: write of 4 bytes at global 0x%llx\n" WHERE(
               "16", "(0,2,1)",
               "33") "  word at offset 1024 of partial sums (4096 bytes)\n"
                     "  races with a write by block (0,1,0), warp 0, not ordered with it\n"
                     "    softmax.cu:41 (inlined at softmax.cu:77, at main.cu:5), PTX line 133: "
                     "instruction 33;\n"
                     "  hint: blocks of one launch are ordered only by release and acquire\n");
    VgSite add = numbered(rig_atom(VG_GLOBAL, VG_ATOM_ADD, VG_ATOM_B32, 4), 34);
    expect(&rig, rig_run(&rig, w, &add, 1, a + 1024, 0), VG_RACE, a + 1024,
           "data race: atomic of 4 bytes at global 0x%llx\n" WHERE(
               "0", "(0,0,1)",
               "34") "  word at offset 1024 of partial sums (4096 bytes)\n"
                     "  races with a write by block (0,1,0), warp 0, not ordered with it\n"
                     "    softmax.cu:41 (inlined at softmax.cu:77, at main.cu:5), PTX line 133: "
                     "instruction 33;\n"
                     "  hint: blocks of one launch are ordered only by release and acquire\n");
    assert_int_equal(vg_mem_fill(rig.memory, a, 0, 4, 16), OK);
    add.scope = VG_SCOPE_CTA;
    assert_int_equal(rig_run(&rig, &rig.warp[0][1], &add, 1, a, 0), VG_OK);
    expect(&rig, rig_run(&rig, w, &add, 1, a, 0), VG_SCOPE, a,
           "scope too narrow: atomic of 4 bytes at global 0x%llx\n" WHERE(
               "0", "(0,0,1)",
               "34") "  word at offset 0 of partial sums (4096 bytes)\n"
                     "  races with an atomic by block (0,0,0), warp 1, not ordered with it\n"
                     "    softmax.cu:41 (inlined at softmax.cu:77, at main.cu:5), PTX line 134: "
                     "instruction 34;\n"
                     "  hint: both are strong, but the scope of one does not include the other\n");
    VgSite local = numbered(rig_atom(VG_GENERIC, VG_ATOM_ADD, VG_ATOM_B32, 4), 35);
    assert_int_equal(rig_run(&rig, w, &local, 1, VG_LOCAL_WINDOW, 0), VG_ILLEGAL_ADDRESS);
    rig_end(&rig);
}

static void kept_reports(void **state) {
    (void)state;
    VgReports *reports = vg_reports_create();
    assert_non_null(reports);
    assert_string_equal(vg_reports_last(reports), "");
    vg_reports_add(reports, VG_RACE, "one");
    vg_reports_add(reports, VG_TRAP, "two");
    vg_reports_add(reports, VG_RACE, "three");
    assert_string_equal(vg_reports_last(reports), "three");
    assert_int_equal(vg_reports_count(reports, VG_RACE), 2);
    assert_int_equal(vg_reports_count(reports, VG_TRAP), 1);
    assert_int_equal(vg_reports_count(reports, VG_OK), 3);
    vg_reports_clear(reports);
    assert_string_equal(vg_reports_last(reports), "");
    assert_int_equal(vg_reports_count(reports, VG_OK), 0);
    assert_string_equal(vg_fault_title(VG_RACE), "data race");
    assert_string_equal(vg_fault_title((VgFault)1000), "unknown fault");
    vg_reports_destroy(reports);
    vg_reports_destroy(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(global_faults), cmocka_unit_test(masked_lanes),
        cmocka_unit_test(shared_faults), cmocka_unit_test(races),
        cmocka_unit_test(kept_reports),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
