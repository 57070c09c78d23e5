// SPDX-License-Identifier: Apache-2.0
// What any machine's costs obey: never faster than peak or bandwidth, more work never faster, and a few
// measured figures with their sources.
#include "compiler/kernel/kernel.h"
#include "tests/cost/help.h"

static const uint8_t precisions[] = { PRECISION_FP32, PRECISION_BF16, PRECISION_MXFP8 };

/* Kernels -------------------------------------------------------------------------------------- */

static void never_faster_than_peak(void **state) {
    (void)state;
    Arena *arena = arena_create();
    for (int i = 0; i < n_machines; i++) {
        CostDevice d = cluster_named(machines[i], arena).device;
        for (int p = 0; p < COUNT_OF(precisions); p++) {
            const CostMatmul *peak = &d.matmul[precisions[p]];
            if (peak->flop_per_s <= 0) continue;
            for (double m = 1; m < 100000; m *= 7) {
                for (double n = 16; n < 40000; n *= 5) {
                    for (double groups = 1; groups <= 64; groups *= 8) {
                        CostKernel k = product(precisions[p], groups, m * groups, n, 4096);
                        double s = cost_kernel_s(&d, &k);
                        if (!(s >= k.flops / peak->flop_per_s)) fail_msg("%s: faster than its peak", machines[i]);
                        double least = precisions[p] == PRECISION_MXFP8 ? k.bytes / 2 : k.bytes;
                        if (!(s >= least / d.bytes_per_s)) fail_msg("%s: faster than its memory", machines[i]);
                    }
                }
            }
        }
    }
    arena_destroy(arena);
}

// Whole tiles more of anything never take less time.
static void more_is_never_faster(void **state) {
    (void)state;
    Arena *arena = arena_create();
    for (int i = 0; i < n_machines; i++) {
        CostDevice d = cluster_named(machines[i], arena).device;
        for (int which = 0; which < 3; which++) {
            double before = 0;
            for (double x = 256; x <= 32768; x *= 2) {
                CostKernel k = product(PRECISION_BF16, 1, which == 0 ? x : 1024, which == 1 ? x : 1024,
                                       which == 2 ? x : 1024);
                double s = cost_kernel_s(&d, &k);
                if (!(s >= before)) fail_msg("%s: %g of dimension %d is faster than half of it", machines[i], x, which);
                before = s;
            }
        }
    }
    arena_destroy(arena);
}

static void few_rows_cost_more_each(void **state) {
    (void)state;
    Arena *arena = arena_create();
    CostDevice d = cluster_named("b300", arena).device;
    double before = INFINITY;
    for (double rows = 16; rows <= 4096; rows *= 4) {
        CostKernel k = product(PRECISION_BF16, 16, 16 * rows, 8192, 4096);
        double each = cost_kernel_s(&d, &k) / rows;
        assert_true(each <= before * 1.0001);
        before = each;
    }
    arena_destroy(arena);
}

// NVIDIA AIConfigurator's published latencies: microseconds.
static void measured_products(void **state) {
    (void)state;
    static const struct {
        const char *machine;
        double m, n, k, us, within;
    } rows[] = {
        { "b300", 4096, 4096, 8192, 194.5, 0.15 },   { "b300", 16384, 8192, 8192, 1356.7, 0.15 },
        { "b300", 1024, 8192, 8192, 83.62, 0.25 },   { "b300", 64, 4096, 8192, 16.21, 0.35 },
        { "a100", 8192, 16384, 8192, 8413.1, 0.15 }, { "a100", 8192, 16384, 2048, 2185.8, 0.15 },
    };
    Arena *arena = arena_create();
    for (int i = 0; i < COUNT_OF(rows); i++) {
        CostDevice d = cluster_named(rows[i].machine, arena).device;
        d.sustained = 1; // these were measured one by one
        CostKernel k = product(PRECISION_BF16, 1, rows[i].m, rows[i].n, rows[i].k);
        double us = cost_kernel_s(&d, &k) * 1e6;
        if (fabs(log(us / rows[i].us)) > rows[i].within)
            fail_msg("%s %g x %g x %g: %.1f us, measured %.1f", rows[i].machine, rows[i].m, rows[i].n, rows[i].k, us,
                     rows[i].us);
    }
    arena_destroy(arena);
}

static void of_descriptions(void **state) {
    (void)state;
    KernelDesc d = { .family = FAMILY_MATMUL_T, .rows = 1000, .experts = 4, .n = 64, .k = 128, .flops = 2e3 * 64 * 128,
                     .bytes = 1e6, .precision = PRECISION_BF16 };
    CostKernel k;
    cost_of_kernel(&d, 1, &k);
    assert_int_equal(k.class, COST_experts);
    assert_true(k.m == 1000 && k.n == 128 && k.k == 64 && k.groups == 4 && k.bytes == 1e6);
    cost_of_kernel(&d, 0.5, &k);
    assert_true(k.m == 500 && k.flops == 1e3 * 64 * 128);
    assert_true(k.bytes > 0.5e6 && k.bytes < 1e6); // weights are read all the same
    d.family = FAMILY_MATMUL_W;
    cost_of_kernel(&d, 1, &k);
    assert_int_equal(k.role, COST_WGRAD);
    assert_true(k.m == 128 && k.n == 64 && k.k == 1000);
}

// A device on which every part of the formula is plain: a tile is a row, and nothing waits for anything.
static CostDevice plain_core(void) {
    CostDevice d = { .units = 1, .bytes_per_s = 1e9, .stream = 1, .move = 0.5, .adam = 1, .sustained = 1, .overlap = 1 };
    d.matmul[PRECISION_FP32] = (CostMatmul){ .flop_per_s = 1e9, .reach = 1, .tile_m = 1, .tile_n = 1, .experts = 1, .wgrad = 1 };
    return d;
}

static bool near(double x, double y) {
    return fabs(x - y) <= 1e-9 * fabs(y);
}

static void what_a_core_does_one_by_one(void **state) {
    (void)state;
    CostDevice d = plain_core();
    CostKernel k = { .class = COST_dense, .precision = PRECISION_FP32, .m = 1000, .n = 100, .k = 50, .groups = 1,
                     .flops = 1e7, .bytes = 4e6 };
    assert_true(near(cost_kernel_s(&d, &k), 0.01));
    d.overlap = 0.25;
    assert_true(near(cost_kernel_s(&d, &k), 0.013)); // 10 ms and three quarters of 4
    k.bytes = 4e7;
    assert_true(near(cost_kernel_s(&d, &k), 0.0475)); // 40 ms and three quarters of 10
    d.overlap = 0;
    k.bytes = 4e6, k.flops = 1.1e7; // a tenth are of row operations
    assert_true(near(cost_kernel_s(&d, &k), 0.011 + 0.004));
    d.row_flop_per_s = 1e8; // which go at a tenth of the rate
    assert_true(cost_kernel_s(&d, &k) > 0.01 + 0.01 + 0.004 - 1e-12 && cost_kernel_s(&d, &k) < 0.0251);
    k.role = COST_WGRAD, k.flops = 1e7;
    d.matmul[PRECISION_FP32].wgrad = 0.5;
    assert_true(near(cost_kernel_s(&d, &k), 0.02 + 0.004));
    CostKernel row = { .class = COST_row, .flops = 1e6, .bytes = 4e6 };
    assert_true(near(cost_kernel_s(&d, &row), 0.01));
    d.row_flop_per_s = 0; // only memory decides
    assert_true(near(cost_kernel_s(&d, &row), 0.004));
    d.cached = (CostCurve){ .n = 2, .x = { 1e6, 1.6e7 }, .y = { 4, 1 } }; // the half of both in log-log
    assert_true(near(cost_kernel_s(&d, &row), 0.004 / 2));
    row.bytes = 1.6e8;
    assert_true(near(cost_kernel_s(&d, &row), 0.16));
    row.bytes = 1e3;
    assert_true(near(cost_kernel_s(&d, &row), 1e-6 / 4));
}

// Of rows that go to other ranks: what the kernel's own memory takes longer than the rows that cross.
static void rows_that_cross(void **state) {
    (void)state;
    CostDevice d = plain_core();
    CostKernel k = { .class = COST_move, .remote = COST_PUTS, .bytes = 1e6 };
    d.launch_s = 1e-5;
    assert_true(near(cost_remote_s(&d, &k, 0), 2e-3 + 1e-5));
    assert_true(near(cost_remote_s(&d, &k, 5e-4), 1.5e-3 + 1e-5));
    assert_true(near(cost_remote_s(&d, &k, 1), 1e-5));
    assert_true(near(cost_kernel_s(&d, &k), 1e-5));
}

/* Between ranks -------------------------------------------------------------------------------- */

static void collectives(void **state) {
    (void)state;
    Arena *arena = arena_create();
    for (int i = 0; i < n_machines; i++) {
        char name[32];
        snprintf(name, sizeof name, "%sx256", machines[i]);
        CostCluster c = cluster_named(name, arena);
        assert_int_equal(cost_cluster_devices(&c), 256);
        for (CostCollective what = 0; what < N_COLLECTIVES; what++) {
            for (int32_t stride = 1; stride <= 64; stride *= 8) {
                double before = 0;
                assert_true(cost_collective_s(&c, what, (CostGroup){ 1, stride }, 1e6) == 0 || what == COLLECTIVE_send);
                for (double bytes = 1e3; bytes < 1e11; bytes *= 3) {
                    double s = cost_collective_s(&c, what, (CostGroup){ 4, stride }, bytes);
                    if (!(s > 0 && s >= before)) fail_msg("%s: more bytes are faster", name);
                    double least = what == COLLECTIVE_send ? bytes : bytes / 4 * 3;
                    double fastest = c.links[0].bytes_per_s;
                    if (what != COLLECTIVE_send && c.n_links > 1) least /= 4; // links carry parts of it
                    if (!(s >= least / fastest)) fail_msg("%s: faster than its link", name);
                    before = s;
                }
            }
        }
        // The same ranks further apart are not faster, but where a host's PCIe is shared by all its devices; half
        // the rate of all links is never faster.
        CostCluster slow = cost_cluster_scaled(&c, 0, 0.5);
        double near = cost_collective_s(&c, COLLECTIVE_gather, (CostGroup){ 4, 1 }, 1e9);
        assert_true(cost_collective_s(&c, COLLECTIVE_gather, (CostGroup){ 4, 64 }, 1e9) >= near ||
                    !strcmp(c.links[0].name, "pcie"));
        assert_true(cost_collective_s(&slow, COLLECTIVE_gather, (CostGroup){ 4, 1 }, 1e9) >= near);
    }
    arena_destroy(arena);
}

// The same tables: NCCL among 8 and 2, microseconds by bytes that each has afterwards or before.
static void measured_collectives(void **state) {
    (void)state;
    static const struct {
        const char *machine;
        uint8_t what;
        int32_t ranks;
        double bytes, us, within;
    } rows[] = {
        { "h100x8", COLLECTIVE_gather, 8, 134217728, 392.82, 0.1 },
        { "h100x8", COLLECTIVE_all_to_all, 8, 134217728, 402.42, 0.1 },
        { "b300x8", COLLECTIVE_reduce_scatter, 8, 134217728, 204.73, 0.1 },
        { "b300x8", COLLECTIVE_all_to_all, 8, 134217728, 229.34, 0.1 },
    };
    Arena *arena = arena_create();
    for (int i = 0; i < COUNT_OF(rows); i++) {
        CostCluster c = cluster_named(rows[i].machine, arena);
        double us = 1e6 * cost_collective_s(&c, rows[i].what, (CostGroup){ rows[i].ranks, 1 }, rows[i].bytes);
        if (fabs(log(us / rows[i].us)) > rows[i].within)
            fail_msg("%s %s: %.1f us, measured %.1f", rows[i].machine, cost_collective_name[rows[i].what], us,
                     rows[i].us);
    }
    arena_destroy(arena);
}

// Values of G [1 - C(E - E/G, k) / C(E, k)] worked out apart.
static void deduplication(void **state) {
    (void)state;
    assert_true(fabs(cost_reached(8, 2, 2) - 2 * (1 - 6.0 / 28)) < 1e-12);
    assert_true(fabs(cost_reached(8, 2, 4) - 4 * (1 - 15.0 / 28)) < 1e-12);
    assert_true(cost_reached(256, 8, 1) == 1);
    assert_true(fabs(cost_reached(256, 8, 8) - 5.3) < 0.05);
    assert_true(cost_reached(128, 4, 128) <= 4 + 1e-9);
}

static void rows_to_experts(void **state) {
    (void)state;
    Arena *arena = arena_create();
    CostCluster one = cluster_named("h100x8", arena), many = cluster_named("h100x64", arena);
    CostRows rows = { .tokens = 4096, .top_k = 8, .experts = 256, .row_bytes = 7168 * 2, .load = 1, .combine = true,
                      .blocks = true };
    // DeepEP in AIConfigurator's tables: combine of 4096 tokens of 7168 over 8 H100 961 us; over 4 nodes 3.52 ms
    double near = cost_rows_s(&one, (CostGroup){ 8, 1 }, &rows), far = cost_rows_s(&many, (CostGroup){ 32, 1 }, &rows);
    assert_true(fabs(log(near / 961e-6)) < 0.15);
    assert_true(fabs(log(far / 3.52e-3)) < 0.3);
    rows.blocks = false; // every choice by itself: more bytes across nodes
    assert_true(cost_rows_s(&many, (CostGroup){ 32, 1 }, &rows) > far);
    // As moec's plans have it: all tokens to all 4 nodes, at any load, then every choice within its node.
    rows.blocks = rows.whole = true;
    double whole = cost_rows_s(&many, (CostGroup){ 32, 1 }, &rows);
    double exchange = many.links[1].latency_s + 4096 * 3 * rows.row_bytes / (many.links[1].bytes_per_s * many.links[1].share);
    double inside = many.links[0].row_fixed_s + 4096 * 7 * rows.row_bytes / many.links[0].row_bytes_per_s[1];
    assert_true(fabs(whole / (exchange + inside) - 1) < 1e-9);
    assert_true(cost_rows_s(&one, (CostGroup){ 8, 1 }, &rows) == near);
    rows.load = 2;
    rows.load = 1; // of a share of the tokens parts go whole
    rows.tokens /= 4, rows.part_tokens = 4096;
    double quarter = exchange + many.links[0].row_fixed_s + (inside - many.links[0].row_fixed_s) / 4;
    assert_true(fabs(cost_rows_s(&many, (CostGroup){ 32, 1 }, &rows) / quarter - 1) < 1e-9);
    rows.load = 2;
    rows.tokens *= 4, rows.part_tokens = 0;
    double busy = exchange + inside + (inside - many.links[0].row_fixed_s);
    assert_true(fabs(cost_rows_s(&many, (CostGroup){ 32, 1 }, &rows) / busy - 1) < 1e-9);
    rows.blocks = false;
    assert_true(cost_rows_s(&many, (CostGroup){ 32, 1 }, &rows) > 1.5 * far);
    assert_true(cost_rows_s(&one, (CostGroup){ 1, 1 }, &rows) == 0);
    arena_destroy(arena);
}

// Simulated: E = 256, k = 8, random routing.
static void imbalance(void **state) {
    (void)state;
    assert_true(cost_imbalance(COST_UNIFORM, 4096, 8, 256, 32) == 1);
    assert_true(cost_imbalance(COST_RANDOM, 4096, 8, 256, 1) == 1);
    assert_true(fabs(cost_imbalance(COST_RANDOM, 4096, 8, 256, 8) - 1.02) < 0.01);
    assert_true(fabs(cost_imbalance(COST_RANDOM, 4096, 8, 256, 32) - 1.07) < 0.02);
    assert_true(fabs(cost_imbalance(COST_RANDOM, 32768, 8, 256, 32) - 1.02) < 0.01);
    assert_true(fabs(cost_imbalance(COST_LEARNED, 32768, 8, 128, 8) - 1.07) < 0.03);  // Dirichlet(32)
    assert_true(fabs(cost_imbalance(COST_LEARNED, 32768, 8, 128, 32) - 1.18) < 0.04);
    double before = 1;
    for (double ranks = 2; ranks <= 256; ranks *= 2) {
        double x = cost_imbalance(COST_LEARNED, 32768, 8, 256, ranks);
        assert_true(x >= before && x <= ranks);
        before = x;
    }
}

static void beside_compute(void **state) {
    (void)state;
    CostDevice d = { .contention = 1.25, .sustained = 1 };
    assert_true(cost_exposed_s(&d, 1, 1, 0) == 0);
    assert_true(fabs(cost_exposed_s(&d, 1, 10, 1) - 0.2) < 1e-12);   // slows what runs beside it
    assert_true(fabs(cost_exposed_s(&d, 1, 1, 10) - 9) < 1e-12);     // hides what computes
    assert_true(fabs(cost_exposed_s(&d, 0.5, 10, 1) - 0.6) < 1e-12); // half of it waited for
    assert_true(cost_exposed_s(&d, 0, 10, 1) == 1);
    assert_true(cost_exposed_s(&d, 1, 1, 1.25) <= cost_exposed_s(&d, 1, 1, 1.3));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(never_faster_than_peak), cmocka_unit_test(more_is_never_faster),
        cmocka_unit_test(few_rows_cost_more_each), cmocka_unit_test(measured_products),
        cmocka_unit_test(of_descriptions),
        cmocka_unit_test(what_a_core_does_one_by_one),
        cmocka_unit_test(rows_that_cross),        cmocka_unit_test(collectives),
        cmocka_unit_test(measured_collectives),   cmocka_unit_test(deduplication),
        cmocka_unit_test(rows_to_experts),        cmocka_unit_test(imbalance),
        cmocka_unit_test(beside_compute),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
