// SPDX-License-Identifier: Apache-2.0
// model_replace: readers and tables follow, a replacement keeps what it is made of.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "compiler/model/model.h"

static uint32_t param(Model *m, const char *name) {
    return model_param(m, model_intern(m, name), false, (int32_t[]){ 4 }, 1, 0);
}

static void replaces(void **state) {
    (void)state;
    Model *m = model_create();
    uint32_t p = param(m, "p"), x = model_op1(m, OP_EXP, p), reader = model_op1(m, OP_SQRT, x);
    *ARENA_PUSH(m->arena, m->metrics, m->n_metrics, m->cap_metrics) = (Metric){ .node = x };
    *ARENA_PUSH(m->arena, m->metrics, m->n_metrics, m->cap_metrics) = (Metric){ .node = reader };
    uint32_t other = model_op2(m, OP_MUL, x, param(m, "q")); // made of what it replaces
    uint32_t *with = ARENA_ARRAY(m->arena, uint32_t, m->n_nodes);
    with[x] = other;
    assert_true(model_replace(m, with));
    assert_true(model_verify(m)); // in order: `other` precedes its new reader
    uint32_t metric = m->metrics[0].node, root = m->metrics[1].node;
    assert_int_equal(m->nodes[metric].op, OP_MUL);
    assert_int_equal(m->nodes[root].op, OP_SQRT);
    assert_int_equal(model_arg(m, root, 0), metric);
    Op a = m->nodes[model_arg(m, metric, 0)].op, b = m->nodes[model_arg(m, metric, 1)].op;
    assert_true((a == OP_EXP && b == OP_PARAM) || (a == OP_PARAM && b == OP_EXP));
    model_destroy(m);
}

static void refuses_another_type(void **state) {
    (void)state;
    Model *m = model_create();
    uint32_t x = model_op1(m, OP_EXP, param(m, "p")), sum = model_sum(m, x, 1);
    uint32_t *with = ARENA_ARRAY(m->arena, uint32_t, m->n_nodes);
    with[x] = sum;
    assert_false(model_replace(m, with));
    assert_string_equal(m->diag.message, "replace: expected a node of type [4], got [1]");
    model_destroy(m);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(replaces),
                                        cmocka_unit_test(refuses_another_type) };
    return cmocka_run_group_tests_name("replace", tests, NULL, NULL);
}
