// SPDX-License-Identifier: Apache-2.0
// Programs: what each keeps, how losses become records and seeds, and what is refused.
#include "helper.h"

static void add_loss(Model *m, const char *name, uint32_t node, double weight) {
    Loss loss = { .node = node, .addr = model_intern(m, name), .weight = weight, .loc = m->loc };
    *ARENA_PUSH(m->arena, m->losses, m->n_losses, m->cap_losses) = loss;
}

static void add_metric(Model *m, const char *name, uint32_t node) {
    Metric metric = { .node = node, .addr = model_intern(m, name), .loc = m->loc };
    *ARENA_PUSH(m->arena, m->metrics, m->n_metrics, m->cap_metrics) = metric;
}

static void add_update(Model *m, uint32_t state, uint32_t total, uint32_t next) {
    *ARENA_PUSH(m->arena, m->updates, m->n_updates, m->cap_updates) =
        (Update){ state, total, next, m->loc };
}

static uint32_t scalar(Model *m, uint32_t x) { return model_reshape(m, x, NULL, 0); }

// Two layers' worth of everything: a head, a token loss, a balance loss over the microbatch, a sequence
// loss, metrics of all shapes, a state with its update, a parameter that nothing reads, dead nodes.
static Model *whole(void) {
    Model *m = model_create();
    m->vocab = 10, m->width = 4, m->sequence = 8, m->n_layers = 1, m->name = "whole";
    uint32_t table = PARAM(m, "embedding.w", 10, 4), head = PARAM(m, "head.w", 4, 10);
    PARAM(m, "unread", 3);
    uint32_t w_score = PARAM(m, "router.w_score", 4, 4),
             correction = SCALARS_OF(m, "router.correction", 4);
    uint32_t x = model_op2(m, OP_EMBED, table, model_generator(m, OP_TOKENS, 0, NULL, 0));
    uint32_t score = model_op1(m, OP_SIGMOID, matmul(m, OP_MATMUL, 1, 0, x, w_score));
    uint32_t ids = node_k(m, OP_TOP_K, 2, model_op2(m, OP_ADD, score, correction), 0);
    uint32_t hot =
        model_reshape(m, model_sum(m, node_k(m, OP_ONE_HOT, 4, ids, 0), 1), (int32_t[]){ 4 }, 1);
    uint32_t load = model_row_sum(m, hot, SET_MICROBATCH);
    uint32_t mean = model_op2(m, OP_MUL, model_row_sum(m, score, SET_MICROBATCH),
                              model_const(m, 0.125, KIND_REAL));
    uint32_t balance = scalar(m, model_sum(m, model_op2(m, OP_MUL, load, mean), 1));
    m->logits = matmul(m, OP_MATMUL, 1, 0, x, head);
    uint32_t square = scalar(m, model_sum(m, model_op2(m, OP_MUL, m->logits, m->logits), 1));
    add_loss(m, "loss", square, 1);
    add_loss(m, "router.balance", balance, 0.01);
    add_loss(m, "router.sequence",
             scalar(m, model_sum(m, model_row_sum(m, score, SET_SEQUENCE), 1)), 0.5);
    add_metric(m, "router.load", load);
    add_metric(m, "ids", scalar(m, model_slice(m, ids, 0, 0, 1)));
    add_metric(m, "positive", model_op2(m, OP_GT, square, model_const(m, 0, KIND_REAL)));
    model_op1(m, OP_EXP, m->logits); // dead
    uint32_t total = model_op1(m, OP_TOTAL, load), half = model_const(m, 0.5, KIND_REAL);
    m->part = PART_UPDATE;
    uint32_t step = model_op1(m, OP_SIGN, model_op2(m, OP_SUB, half, total));
    uint32_t kept = model_op2(m, OP_MUL, correction, half);
    add_update(m, correction, total, model_op2(m, OP_ADD, step, kept));
    m->part = PART_FORWARD;
    assert_true(model_verify(m));
    return m;
}

static Model *program(Model *from, Program which) {
    Model *m = model_program(from, which);
    if (!m) fail_msg("%s", from->diag.message);
    if (!model_verify(m)) fail_msg("%s", m->diag.message);
    return m;
}

static int count_part(const Model *m, Part part) {
    int n = 0;
    for (uint32_t id = 1; id < m->n_nodes; id++) n += m->nodes[id].part == part;
    return n;
}

static void test_step(void **state) {
    (void)state;
    Model *from = whole(), *m = program(from, PROGRAM_STEP);
    assert_int_equal(count_op(m, OP_RECORD), 6);
    assert_int_equal(count_op(m, OP_ACCUMULATE), 3); // the unread parameter has no gradient
    assert_int_equal(count_op(m, OP_UPDATE), 1);
    assert_int_equal(count_op(m, OP_OUTPUT), 0);
    assert_int_equal(m->n_effects, 10);
    assert_int_equal(count_op(m, OP_EXP), 0); // dead
    assert_int_equal(m->n_params, from->n_params);
    for (uint32_t i = 0; i < m->n_params; i++) {
        assert_string_equal(model_name(m, m->params[i].addr),
                            model_name(from, from->params[i].addr));
        if (i == 2)
            assert_int_equal(m->params[i].node, 0);
        else
            assert_int_equal(m->nodes[m->params[i].node].attr.index, i);
    }
    assert_string_equal(m->name, "whole");
    assert_int_equal(m->sequence, 8);
    model_destroy(m);
    model_destroy(from);
}

static void test_order_of_parts(void **state) {
    (void)state;
    Model *from = whole(), *m = program(from, PROGRAM_STEP);
    for (uint32_t id = 2; id < m->n_nodes; id++)
        assert_in_range(m->nodes[id].part, m->nodes[id - 1].part, PART_UPDATE);
    for (uint32_t i = 0; i < m->n_effects; i++) {
        const Node *n = model_at(m, m->effects[i]);
        assert_int_equal(n->part, n->op == OP_RECORD       ? PART_FORWARD
                                  : n->op == OP_ACCUMULATE ? PART_BACKWARD
                                                           : PART_UPDATE);
    }
    // everything that depends on the total runs after the optimizer, and so does what only it reads
    assert_int_equal(m->nodes[find_op(m, OP_TOTAL)].part, PART_UPDATE);
    assert_int_equal(m->nodes[find_op(m, OP_SIGN)].part, PART_UPDATE);
    uint32_t update = find_op(m, OP_UPDATE), next = model_arg(m, update, 1);
    assert_text(m, next,
                "add(sign(sub(0.5, total(row_sum(reshape(sum(one_hot(top_k(add(router.correction, "
                "sigmoid(matmul(embed(embedding.w, tokens), router.w_score))))))))))), "
                "mul(router.correction, 0.5))");
    assert_int_equal(m->nodes[model_arg(m, next, 1)].part, PART_UPDATE);
    assert_int_equal(m->nodes[model_arg(m, find_op(m, OP_TOTAL), 0)].part, PART_FORWARD);
    model_destroy(m);
    model_destroy(from);
}

static void test_eval_and_prefill(void **state) {
    (void)state;
    Model *from = whole(), *m = program(from, PROGRAM_EVAL);
    assert_int_equal(count_part(m, PART_FORWARD), (int)m->n_nodes - 1);
    assert_int_equal(count_op(m, OP_RECORD), 6);
    assert_int_equal(m->n_effects, 6);
    assert_int_equal(count_op(m, OP_TOTAL), 0);
    model_destroy(m);
    m = program(from, PROGRAM_PREFILL);
    assert_int_equal(m->n_effects, 1);
    assert_int_equal(m->nodes[m->effects[0]].op, OP_OUTPUT);
    assert_int_equal(m->nodes[m->effects[0]].attr.index, 0);
    assert_text(m, model_arg(m, m->effects[0], 0), "matmul(embed(embedding.w, tokens), head.w)");
    assert_int_equal(m->logits, model_arg(m, m->effects[0], 0));
    assert_int_equal(m->n_nodes - 1, 6);
    assert_int_equal(m->n_records, 0);
    assert_int_equal(m->params[3].node, 0); // the router is not read
    model_destroy(m);
    from->logits = 0;
    assert_null(model_program(from, PROGRAM_PREFILL));
    assert_string_equal(from->diag.message, "prefill: expected a model with logits, got none");
    model_destroy(from);
}

static const char *record_text(Model *m, int i) {
    return text_of(m, model_arg(m, m->effects[i], 0));
}

static void test_records(void **state) {
    (void)state;
    Model *from = model_create();
    uint32_t t = TOKENS_OF(from, "t"), v = SCALARS_OF(from, "v", 4), c = SCALARS_OF(from, "c");
    add_loss(from, "a.token", t, 0.25);
    add_loss(from, "a.scalar", c, 2);
    add_loss(from, "a.sequence", model_row_sum(from, t, SET_SEQUENCE), 3);
    add_metric(from, "b.vector", v);
    add_metric(from, "b.bool", model_op2(from, OP_GT, t, c));
    add_metric(from, "b.int", model_generator(from, OP_POSITIONS, 0, NULL, 0));
    add_metric(from, "c.token", t);
    add_metric(from, "c.sequence", model_row_sum(from, t, SET_SEQUENCE));
    add_metric(from, "c.vector", v);
    for (uint32_t i = 3; i < from->n_metrics; i++) from->metrics[i].sum = true;
    Model *m = program(from, PROGRAM_EVAL);
    assert_string_equal(record_text(m, 0), "mul(row_sum(mul(t, valid)), inv_step)");
    assert_string_equal(record_text(m, 1), "mul(inv_step, mul(c, n_valid))");
    assert_string_equal(record_text(m, 2), "mul(inv_step, row_sum(mul(row_sum(t), n_valid)))");
    assert_string_equal(record_text(m, 3), "mul(inv_step, mul(v, n_valid))");
    assert_string_equal(record_text(m, 4),
                        "mul(inv_step, row_sum(mul(valid, where(gt(t, c), 1, 0))))");
    assert_string_equal(record_text(m, 5), "mul(inv_step, row_sum(mul(valid, mul(positions, 1))))");
    assert_string_equal(record_text(m, 6), "row_sum(mul(t, valid))"); // a sum: no weight, no mean
    assert_string_equal(record_text(m, 7), "row_sum(row_sum(t))");
    assert_string_equal(record_text(m, 8), "v");
    static const struct {
        const char *name;
        int n;
        double weight;
        bool sum;
    } want[] = {
        { "a.token", 1, 0.25, false }, { "a.scalar", 1, 2, false }, { "a.sequence", 1, 3, false },
        { "b.vector", 4, 0, false },   { "b.bool", 1, 0, false },   { "b.int", 1, 0, false },
        { "c.token", 1, 0, true },     { "c.sequence", 1, 0, true }, { "c.vector", 4, 0, true },
    };
    assert_int_equal(m->n_records, COUNT_OF(want));
    for (int i = 0; i < COUNT_OF(want); i++) {
        assert_string_equal(model_name(m, m->records[i].addr), want[i].name);
        assert_int_equal(m->records[i].n, want[i].n);
        assert_true(m->records[i].weight == want[i].weight);
        assert_int_equal(m->records[i].sum, want[i].sum);
        assert_int_equal(m->nodes[m->effects[i]].attr.index, i);
        assert_int_equal(m->nodes[m->effects[i]].addr, m->records[i].addr);
    }
    // the sets of the two counts differ
    uint32_t scalar_count = model_arg(m, model_arg(m, model_arg(m, m->effects[1], 0), 1), 1);
    assert_int_equal(m->nodes[scalar_count].attr.set, SET_MICROBATCH);
    model_destroy(m);
    model_destroy(from);
}

static void test_seeds(void **state) {
    (void)state;
    Model *from = model_create();
    uint32_t p = PARAM(from, "p"), q = PARAM(from, "q"), r = PARAM(from, "r"), z = PARAM(from, "z"),
             t = TOKENS_OF(from, "t");
    add_loss(from, "token", model_op2(from, OP_MUL, t, p), 0.25);
    add_loss(from, "scalar", model_op1(from, OP_TANH, q), 2);
    add_loss(from, "sequence", model_op2(from, OP_MUL, model_row_sum(from, t, SET_SEQUENCE), r), 1);
    add_loss(from, "off", z, 0);
    Model *m = program(from, PROGRAM_STEP);
    assert_int_equal(count_op(m, OP_ACCUMULATE), 3); // a loss of weight 0 trains nothing
    assert_int_equal(count_op(m, OP_RECORD), 4);     // but is reported
    const char *want[] = {
        "row_sum(mul(t, mul(valid, mul(inv_step, 0.25))))",
        "mul(mul(n_valid, mul(inv_step, 2)), sub(1, mul(tanh(q), tanh(q))))",
        "row_sum(mul(row_sum(t), mul(inv_step, n_valid)))",
    };
    int at = 0;
    for (uint32_t i = 0; i < m->n_effects; i++) {
        if (m->nodes[m->effects[i]].op != OP_ACCUMULATE) continue;
        assert_int_equal(model_arg(m, m->effects[i], 0), m->params[at].node);
        assert_text(m, model_arg(m, m->effects[i], 1), want[at]);
        at++;
    }
    assert_int_equal(at, 3);
    model_destroy(m);
    model_destroy(from);
}

// The balance loss: its slope by the score is load * constants * seed, known when forward ends.
static void test_coefficients_move_to_forward(void **state) {
    (void)state;
    Model *from = whole(), *m = program(from, PROGRAM_STEP);
    bool found = false;
    for (uint32_t id = 1; id < m->n_nodes; id++) {
        const Node *n = model_at(m, id);
        bool summed = n->type.row == ROW_NONE && n->op == OP_MUL &&
                      strstr(text_of(m, id), "row_sum(reshape(sum(one_hot");
        if (!summed || !strstr(text_of(m, id), "n_valid")) continue;
        assert_int_equal(n->part, PART_FORWARD);
        found = true;
    }
    assert_true(found);
    // seeds that no sum needs stay where they are read
    int seeds = 0;
    for (uint32_t id = 1; id < m->n_nodes; id++) {
        if (strcmp(text_of(m, id), "mul(inv_step, 0.5)")) continue;
        assert_int_equal(m->nodes[id].part, PART_BACKWARD);
        seeds++;
    }
    assert_int_equal(seeds, 1);
    model_destroy(m);
    model_destroy(from);
}

static void test_same_text_each_time(void **state) {
    (void)state;
    Model *from = whole();
    Text a = { 0 }, b = { 0 };
    Model *m = program(from, PROGRAM_STEP), *again = program(from, PROGRAM_STEP);
    model_print(m, &a, true);
    model_print(again, &b, true);
    assert_string_equal(text_cstr(&a), text_cstr(&b));
    text_finish(&a);
    text_finish(&b);
    model_destroy(m);
    model_destroy(again);
    model_destroy(from);
}

static void refused(Model *from, Program which, const char *message, const char *hint) {
    assert_null(model_program(from, which));
    assert_string_equal(from->diag.message, message);
    assert_string_equal(from->diag.hint, hint);
    assert_int_equal(from->diag.loc.line, 5);
    model_destroy(from);
}

static Model *on_line_five(void) {
    Model *m = model_create();
    m->loc = (Loc){ model_add_file(m, "model.lua", NULL), 5, 1, 1 };
    return m;
}

static void test_refused(void **state) {
    (void)state;
    Model *m = on_line_five();
    add_loss(m, "wide", TOKENS_OF(m, "x", 4), 1);
    refused(m, PROGRAM_EVAL, "loss 'wide' must be [T], [S] or a scalar; it is [T, 4]",
            "m.sum(x) and m.mean(x) reduce a feature axis");
    m = on_line_five();
    add_metric(m, "rows", rows_of_route(m, "r", route_of(m, 2, 8), 1));
    refused(
        m, PROGRAM_EVAL,
        "metric 'rows' must be [T], [S] or a scalar, or a vector without row axis; it is [R, 1]",
        "m.combine(rows, weights) brings rows back to tokens");
    m = on_line_five();
    uint32_t s = SCALARS_OF(m, "s"), x = TOKENS_OF(m, "x"),
             total = model_op1(m, OP_TOTAL, model_row_sum(m, x, SET_MICROBATCH));
    add_update(m, s, total, model_op2(m, OP_ADD, total, model_row_sum(m, x, SET_MICROBATCH)));
    refused(
        m, PROGRAM_STEP,
        "update: the new state may depend on the old one and the total only, it reads uniform [T]",
        "pass what it needs as the contribution: m.update(state, x, f) calls f(state, total of x)");
    m = on_line_five();
    s = SCALARS_OF(m, "s", 3);
    total = model_op1(m, OP_TOTAL, model_row_sum(m, TOKENS_OF(m, "y", 2), SET_MICROBATCH));
    add_update(m, s, total, total);
    refused(m, PROGRAM_STEP, "update: expected real [3], got real [2]", "");
}

// What only an update reads is not shared with forward, even where the expressions are equal: the state
// changes in between.
static void test_updates_compute_anew(void **state) {
    (void)state;
    Model *from = model_create();
    uint32_t s = SCALARS_OF(from, "s"), x = TOKENS_OF(from, "x"),
             twice = model_op2(from, OP_MUL, s, model_const(from, 2, KIND_REAL));
    uint32_t total = model_op1(from, OP_TOTAL, model_row_sum(from, x, SET_MICROBATCH));
    add_loss(from, "loss", model_op2(from, OP_MUL, x, twice), 1);
    add_update(from, s, total, model_op2(from, OP_ADD, twice, total));
    Model *m = program(from, PROGRAM_STEP);
    int forward = 0, update = 0;
    for (uint32_t id = 1; id < m->n_nodes; id++) {
        if (strcmp(text_of(m, id), "mul(s, 2)")) continue;
        forward += m->nodes[id].part == PART_FORWARD;
        update += m->nodes[id].part == PART_UPDATE;
    }
    assert_int_equal(forward, 1);
    assert_int_equal(update, 1);
    model_destroy(m);
    model_destroy(from);
}

// Weighted results of experts, as a sum over each token's choices; `bias`: an addend to the results.
static Model *combined(bool bias) {
    Model *m = model_create();
    m->vocab = 10, m->width = 4, m->sequence = 8, m->name = "combined";
    uint32_t table = PARAM(m, "table", 10, 4), w_score = PARAM(m, "w_score", 4, 3);
    uint32_t x = model_op2(m, OP_EMBED, table, model_generator(m, OP_TOKENS, 0, NULL, 0));
    uint32_t score = matmul(m, OP_MATMUL, 1, 0, x, w_score), ids = node_k(m, OP_TOP_K, 2, score, 0);
    Attr attr = { .raw = { 0, 0 } };
    attr.route.experts = 3;
    uint32_t route = model_node(m, OP_ROUTE, &attr, NULL, &ids, 1);
    Type choices = TYPE(ROW_T, 2, 4);
    uint32_t rows = model_op2(m, OP_DISPATCH, model_broadcast(m, x, &choices), route);
    uint32_t h = model_op1(m, OP_TANH, rows);
    uint32_t y = matmul(m, OP_MATMUL, 1, 0, h, EXPERT_PARAM(m, "w", route, 4, 4));
    if (bias) y = model_op2(m, OP_ADD, y, EXPERT_PARAM(m, "b", route, 4));
    uint32_t weights = model_reshape(m, model_op2(m, OP_GATHER, score, ids), (int32_t[]){ 2, 1 }, 2);
    uint32_t back = model_op2(m, OP_MUL, weights, model_op2(m, OP_COLLECT, y, route));
    add_loss(m, "loss", scalar(m, model_sum(m, model_sum(m, back, 1), 2)), 1);
    assert_true(model_verify(m));
    return m;
}

static void test_weights_meet_rows(void **state) {
    (void)state;
    for (int bias = 0; bias < 2; bias++) {
        Model *from = combined(bias);
        for (int which = PROGRAM_STEP; which <= PROGRAM_EVAL; which++) {
            Model *m = program(from, (Program)which);
            uint32_t collect = 0;
            for (uint32_t id = m->n_nodes - 1; id > 0; id--)
                if (m->nodes[id].op == OP_COLLECT && m->nodes[id].part == PART_FORWARD) collect = id;
            assert_int_not_equal(collect, 0);
            uint32_t product = model_arg(m, collect, 0);
            bool weighted = m->nodes[product].op == OP_MATMUL &&
                            m->nodes[model_arg(m, product, 0)].op == OP_MUL;
            assert_int_equal(weighted, !bias);
            if (!bias) assert_type(m, model_arg(m, model_arg(m, product, 0), 1), "real [R, 1]");
            model_destroy(m);
        }
        model_destroy(from);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_step),
        cmocka_unit_test(test_order_of_parts),
        cmocka_unit_test(test_eval_and_prefill),
        cmocka_unit_test(test_records),
        cmocka_unit_test(test_seeds),
        cmocka_unit_test(test_coefficients_move_to_forward),
        cmocka_unit_test(test_same_text_each_time),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_updates_compute_anew),
        cmocka_unit_test(test_weights_meet_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
