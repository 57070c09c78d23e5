// SPDX-License-Identifier: Apache-2.0
// Row programs that would keep more of a row than every GPU's block has room for: what may be computed
// again is, so that they run on all of them; what has to be kept takes what the architecture has, and
// is refused by name where that is not enough.
#include "tests/kernels/rows_case.h"
#include "tests/kernels/rows_graph.h"

enum { WIDTH = 7168, KEPT_BYTES = 160 * 192 * 4, USUAL_BYTES = 96 << 10 };

static uint32_t row_sum(Model *m, uint32_t x) {
    return g_attr(m, OP_ROW_SUM, (Attr){ .raw = { 0, 0 } }, x, 0, 0);
}

// Four values of 28 KiB that a loop after the sum over a row reads again.
static RowsCase *add_rows(Rows *rows) {
    Model *m = model_create();
    uint32_t x = g_tokens(m, DIMS(WIDTH)), y = g_tokens(m, DIMS(WIDTH)), roots[4];
    uint32_t parts[4] = { model_op1(m, OP_TANH, x), model_op1(m, OP_SIGMOID, y),
                          model_op1(m, OP_ERF, g_add(m, x, y)), model_op1(m, OP_EXP, g_mul(m, x, y)) };
    uint32_t sum = g_add(m, g_mul(m, parts[0], parts[1]), g_mul(m, parts[2], parts[3]));
    uint32_t mean = g_mul(m, model_sum(m, sum, 1), g_number(m, 1.0 / WIDTH));
    for (int i = 0; i < 4; i++) roots[i] = g_mul(m, parts[i], mean);
    return rows_add(rows, "wide", m, roots, 4, &(RowsHow){ .tokens = 11 });
}

// The same beside sums over rows, whose records of 28 KiB each stay: two tiles.
static RowsCase *add_records(Rows *rows) {
    Model *m = model_create();
    uint32_t x = g_tokens(m, DIMS(WIDTH)), y = g_tokens(m, DIMS(WIDTH)), roots[2];
    uint32_t a = g_add(m, model_op1(m, OP_TANH, x), y), b = g_mul(m, model_op1(m, OP_SIGMOID, y), x);
    uint32_t mean = g_mul(m, model_sum(m, g_mul(m, a, b), 1), g_number(m, 1.0 / WIDTH));
    roots[0] = row_sum(m, g_mul(m, a, mean));
    roots[1] = row_sum(m, g_add(m, b, mean));
    return rows_add(rows, "wide records", m, roots, 2, &(RowsHow){ .tokens = ROW_TILE + 6 });
}

// 120 KiB in another order than it is computed in.
static RowsCase *add_turned(Rows *rows) {
    Model *m = model_create();
    uint32_t x = model_op1(m, OP_TANH, g_tokens(m, DIMS(160, 192)));
    uint32_t root = g_add(m, model_op1(m, OP_TRANSPOSE, x), g_number(m, 1));
    return rows_add(rows, "turned", m, &root, 1, &(RowsHow){ .tokens = 5 });
}

// Bytes of shared memory of the kernel for an architecture; -1: refused.
static int32_t shared_on(const char *target, const KernelDesc *desc) {
    Plan *plan = plan_create();
    plan->target = target;
    Codegen *codegen = codegen_create(plan);
    assert_non_null(codegen);
    uint32_t kernel;
    Status status = codegen_kernel(codegen, desc, &kernel);
    int32_t shared = status == OK ? plan->kernels[kernel].shared : -1;
    if (status != OK && (status != ERR_INPUT || !strstr(status_message(), "120 KiB per row, expected at most 99 on ") ||
                         !strstr(status_message(), target)))
        fail_msg("%s: %s", target, status_message());
    codegen_destroy(codegen);
    plan_destroy(plan);
    return shared;
}

static bool has_room(const char *target) {
    PlanTarget parsed;
    assert_true(plan_target(target, &parsed));
    return !parsed.cuda || plan_shared_bytes(&parsed) >= KEPT_BYTES;
}

static void test_wide(void **state) {
    (void)state;
    static const char *const targets[] = { "cuda:sm_80",   "cuda:sm_89",   "cuda:sm_90a",
                                           "cuda:sm_100a", "cuda:sm_103a", "cuda:sm_120a" };
    Rows rows;
    rows_open(&rows);
    const RowsCase *again[] = { add_rows(&rows), add_records(&rows) };
    bool room = has_room(rows.lab.plan->target);
    const RowsCase *kept = room ? add_turned(&rows) : NULL;
    for (int t = 0; t < COUNT_OF(targets); t++) {
        for (int i = 0; i < COUNT_OF(again); i++) {
            int32_t shared = shared_on(targets[t], &again[i]->desc);
            assert_true(shared >= 0 && shared <= USUAL_BYTES);
        }
        if (kept) assert_int_equal(shared_on(targets[t], &kept->desc), has_room(targets[t]) ? KEPT_BYTES : -1);
    }
    rows_check(&rows);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_wide) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
