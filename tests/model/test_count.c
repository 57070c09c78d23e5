// SPDX-License-Identifier: Apache-2.0
// Counts against numbers worked out by hand.
#include "helper.h"

static void add_loss(Model *m, uint32_t node) {
    *ARENA_PUSH(m->arena, m->losses, m->n_losses, m->cap_losses) =
        (Loss){ .node = node, .addr = model_intern(m, "loss"), .weight = 1 };
}

static void close(double got, double want) {
    if (got < want * (1 - 1e-12) || got > want * (1 + 1e-12))
        fail_msg("got %.17g, expected %.17g", got, want);
}

static void test_parameters(void **state) {
    (void)state;
    Model *m = model_create();
    uint32_t table = PARAM(m, "embedding.w", 100, 4), route = route_of(m, 2, 8);
    uint32_t we = EXPERT_PARAM(m, "experts.w", route, 4, 3), head = PARAM(m, "head.w", 4, 100);
    PARAM(m, "mtp.1.join.w", 8, 4);
    PARAM(m, "gain", 4);
    SCALARS_OF(m, "correction", 8);
    uint32_t x = model_op2(m, OP_EMBED, table, model_generator(m, OP_TOKENS, 0, NULL, 0));
    matmul(m, OP_MATMUL, 1, 0, rows_of_route(m, "r", route, 4), we);
    m->logits = matmul(m, OP_MATMUL, 1, 0, x, head);
    Counts c = model_counts(m);
    assert_int_equal(c.total, 400 + 8 * 12 + 400 + 4);
    assert_int_equal(c.active, 400 + 2 * 12 + 400 + 4);
    assert_int_equal(c.active_without_table, 2 * 12 + 400 + 4);
    assert_int_equal(c.mtp, 32);
    assert_int_equal(c.state, 8);
    assert_int_equal(c.tensors, 5);
    // a tied table is the head's weight: it works for its living
    matmul(m, OP_MATMUL, 1, 0, x, model_op1(m, OP_TRANSPOSE, table));
    assert_int_equal(model_counts(m).active_without_table, 400 + 2 * 12 + 400 + 4);
    model_destroy(m);
}

static void test_macs(void **state) {
    (void)state;
    Model *m = model_create();
    m->sequence = 64;
    uint32_t x = TOKENS_OF(m, "x", 3, 4), route = route_of(m, 2, 8);
    uint32_t y = matmul(m, OP_MATMUL, 1, 0, x, PARAM(m, "w", 4, 5));         // 3 * 4 * 5
    uint32_t b = matmul(m, OP_MATMUL, 1, 1, x, PARAM(m, "blocks", 3, 4, 5)); // 3 * 4 * 5
    uint32_t e = matmul(m, OP_MATMUL, 1, 0, rows_of_route(m, "r", route, 4),
                        EXPERT_PARAM(m, "we", route, 4, 6)); // 2 * 4 * 6
    Attr attr = { .raw = { 0, 0 } };
    attr.mm.over = 1;
    attr.mm.precision = PRECISION_FP32;
    uint32_t s = model_node(m, OP_MATMUL, &attr, NULL,
                            (uint32_t[]){ TOKENS_OF(m, "z", 7), PARAM(m, "score", 7, 8) }, 2); // 56
    uint32_t dead = matmul(m, OP_MATMUL, 1, 0, x, PARAM(m, "dead", 4, 50));
    uint32_t weights =
        matmul(m, OP_MATMUL, 1, 0, PARAM(m, "u", 2, 3), PARAM(m, "v", 3, 2)); // no tokens
    add_loss(m, y), add_loss(m, b), add_loss(m, e), add_loss(m, s), add_loss(m, weights);
    Counts c = model_counts(m);
    assert_int_not_equal(dead, 0);
    close(c.train_flops_per_token, 6 * (60 + 60 + 48));
    close(c.router_flops_per_token, 6 * 56);
    close(c.forward_flops_per_token, 2 * (60 + 60 + 48 + 56));
    close(node_flops(m, y, 10), 2 * 60 * 10);
    close(node_flops(m, b, 10), 2 * 60 * 10);
    close(node_flops(m, e, 10), 2 * 48 * 10);
    close(node_flops(m, weights, 10), 2 * 2 * 3 * 2);
    close(node_flops(m, matmul(m, OP_MATMUL_T, 1, 0, y, model_arg(m, y, 1)), 10), 2 * 60 * 10);
    close(node_flops(m, matmul(m, OP_MATMUL_W, 1, 0, x, y), 10), 2 * 60 * 10);
    close(node_flops(m, matmul(m, OP_MATMUL_W, 1, 0, model_arg(m, e, 0), e), 10), 2 * 48 * 10);
    model_destroy(m);
}

static void test_attention(void **state) {
    (void)state;
    Model *m = model_create();
    m->sequence = 64;
    uint32_t q = TOKENS_OF(m, "q", 4, 8), k = TOKENS_OF(m, "k", 2, 8), v = TOKENS_OF(m, "v", 2, 6);
    uint32_t full = attend(m, q, k, v, 0, 0), window = attend(m, q, k, v, 0, 16),
             wide = attend(m, q, k, v, 0, 64);
    close(node_flops(m, full, 1), 2 * 4 * (8 + 6) * 32.0);
    close(node_flops(m, window, 1), 2 * 4 * (8 + 6) * (16 - 16 * 16 / 128.0));
    close(node_flops(m, wide, 1),
          2 * 4 * (8 + 6) * 32.0); // a window as long as the sequence is none
    Attr open = m->nodes[full].attr;
    open.attend.causal = 0;
    uint32_t args[4] = { q, k, v, model_arg(m, full, 3) };
    uint32_t both = model_node(m, OP_ATTEND, &open, NULL, args, 4);
    close(node_flops(m, both, 1), 2 * 4 * (8 + 6) * 64.0);
    add_loss(m, full);
    close(model_counts(m).train_flops_per_token, 6 * 4 * (8 + 6) * 32.0);
    // backward: five products where forward has two
    uint32_t lse = model_node(m, OP_ATTEND_LSE, &m->nodes[full].attr, NULL, args, 4);
    uint32_t all[7] = { q, k, v, args[3], full, lse, TOKENS_OF(m, "g", 4, 6) };
    double flops = 0;
    for (uint8_t part = 0; part < 3; part++) {
        Attr attr = m->nodes[full].attr;
        attr.attend.part = part;
        flops += node_flops(m, model_node(m, OP_ATTEND_GRAD, &attr, NULL, all, 7), 1);
    }
    close(flops, 2 * 4 * (3 * 8 + 2 * 6) * 32.0);
    close(node_flops(m, lse, 1) + 1, 1);
    model_destroy(m);
}

static void test_rows_and_bytes(void **state) {
    (void)state;
    Model *m = model_create();
    m->sequence = 5;
    uint32_t x = TOKENS_OF(m, "x", 4), w = PARAM(m, "w", 4, 6), table = PARAM(m, "table", 1000, 4),
             gain = PARAM(m, "gain", 4);
    uint32_t y = model_op2(m, OP_EMBED, table, model_generator(m, OP_TOKENS, 0, NULL, 0)),
             exp = model_op1(m, OP_EXP, y);
    close(node_flops(m, exp, 10), 8 * 40);
    close(node_bytes(m, exp, 10), 4 * (40 + 40));
    close(node_bytes(m, y, 10), 4 * (40 + 40)); // the rows touched, not the table
    close(node_bytes(m, model_op2(m, OP_MUL, y, y), 10), 4 * (40 + 40)); // one operand, read once
    close(node_bytes(m, model_op2(m, OP_MUL, y, gain), 10), 4 * (40 + 4 + 40));
    close(node_bytes(m, model_op2(m, OP_MUL, y, x), 10), 4 * (40 + 40)); // generators are free
    close(node_bytes(m, matmul(m, OP_MATMUL, 1, 0, y, w), 10), 4 * (40 + 24 + 60));
    close(node_bytes(m, model_op1(m, OP_EXP, model_slice(m, y, 0, 1, 2)), 10), 4 * (20 + 20));
    Type wide = TYPE(ROW_T, 3, 4);
    close(node_bytes(m, model_op1(m, OP_EXP, model_broadcast(m, y, &wide)), 10), 4 * (40 + 120));
    close(node_bytes(m, model_slice(m, y, 0, 1, 2), 10) + 1, 1);
    close(node_flops(m, model_sum(m, y, 1), 10), 40);
    close(node_flops(m, model_row_sum(m, y, SET_SEQUENCE), 10), 40);
    close(node_bytes(m, model_row_sum(m, y, SET_SEQUENCE), 10), 4 * (40 + 2 * 4));
    close(node_flops(m, node_k(m, OP_TOP_K, 3, y, 0), 10), 3 * 40);
    close(node_bytes(m, model_op2(m, OP_ACCUMULATE, gain, model_row_sum(m, y, SET_ALL)), 10),
          4 * (4 + 4 + 4));
    model_destroy(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parameters),
        cmocka_unit_test(test_macs),
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_rows_and_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
