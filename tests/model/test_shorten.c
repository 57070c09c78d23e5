// SPDX-License-Identifier: Apache-2.0
// model_without_layers: what remains is joined where one value passes, and is otherwise as it was.
#include "tests/model/helper.h"

#include <stdio.h>
#include <string.h>

enum { LAYERS = 5, WIDTH = 4 };

static void name(Model *m, const char *text) {
    m->addr = model_intern(m, text);
}

static uint32_t weight(Model *m, const char *scope, int32_t rows, int32_t columns) {
    char text[64];
    snprintf(text, sizeof text, "%s.w", scope);
    return model_param(m, model_intern(m, text), false, (int32_t[]){ rows, columns }, 2, 0);
}

// [T] of [T, n].
static uint32_t sum_of(Model *m, uint32_t x) {
    return model_reshape(m, model_sum(m, x, 1), NULL, 0);
}

// x + tanh(x W) * angle a layer; `angle` is made in the third of them, of no parameter. Every layer has a loss.
// second: later ones read what the second one made, too; skips: only the one after the next does.
static Model *stack(bool second, bool skips) {
    Model *m = model_create();
    uint32_t x[LAYERS + 1], angle = 0;
    m->name = "stack";
    m->n_layers = LAYERS;
    m->vocab = 8;
    m->width = WIDTH;
    m->sequence = 16;
    name(m, "embedding");
    x[0] = model_op2(m, OP_EMBED, weight(m, "embedding", 8, WIDTH), model_generator(m, OP_TOKENS, 0, NULL, 0));
    for (int i = 0; i < LAYERS; i++) {
        char scope[32];
        snprintf(scope, sizeof scope, "layers.%d", i + 1);
        name(m, scope);
        if (i == 2) angle = model_constant(m, (double[]){ 1, 2, 3, 4 }, WIDTH);
        uint32_t y = model_op1(m, OP_TANH, matmul(m, OP_MATMUL, 1, 0, x[i], weight(m, scope, WIDTH, WIDTH)));
        if (i >= 2) y = model_op2(m, OP_MUL, y, angle);
        if (second && i > 2) y = model_op2(m, OP_ADD, y, x[2]);
        if (skips && i == 3) y = model_op2(m, OP_ADD, y, x[2]);
        x[i + 1] = model_op2(m, OP_ADD, x[i], y);
        *ARENA_PUSH(m->arena, m->losses, m->n_losses, m->cap_losses) =
            (Loss){ .node = sum_of(m, y), .addr = m->addr, .weight = 1 };
    }
    name(m, "head");
    m->logits = matmul(m, OP_MATMUL, 1, 0, x[LAYERS], weight(m, "head", WIDTH, 8));
    *ARENA_PUSH(m->arena, m->metrics, m->n_metrics, m->cap_metrics) =
        (Metric){ .node = sum_of(m, m->logits), .addr = m->addr };
    return m;
}

static int count_params(const Model *m, const char *prefix) {
    int n = 0;
    for (uint32_t i = 0; i < m->n_params; i++)
        n += !strncmp(model_name(m, m->params[i].addr), prefix, strlen(prefix));
    return n;
}

static void joins(void **state) {
    (void)state;
    Model *m = stack(false, false);
    bool without[LAYERS] = { [1] = true, [2] = true };
    Model *few = model_without_layers(m, without);
    assert_non_null(few);
    assert_true(model_verify(few));
    assert_int_equal(count_op(few, OP_TANH), 3);
    assert_int_equal(count_op(few, OP_CONSTANT), 1); // made in a layer that is gone, and read
    assert_int_equal(few->n_losses, 3);
    assert_int_equal(few->n_metrics, 1);
    assert_int_equal(few->n_layers, LAYERS);
    assert_int_equal(few->n_params, 5);
    assert_int_equal(count_params(few, "layers.2") + count_params(few, "layers.3"), 0);
    for (uint32_t i = 0; i < few->n_params; i++) assert_int_equal(few->nodes[few->params[i].node].attr.index, i);
    // It trains, with a gradient of each but the head, which is of no loss.
    Model *step = model_program(few, PROGRAM_STEP);
    if (!step) fail_msg("%s", few->diag.message);
    assert_int_equal(count_op(step, OP_ACCUMULATE), 4);
    model_destroy(step);
    model_destroy(few);
    // Two runs at once; the first layer may go, the last one stays.
    bool two[LAYERS] = { [0] = true, [2] = true };
    few = model_without_layers(m, two);
    assert_non_null(few);
    assert_int_equal(count_op(few, OP_TANH), 3);
    model_destroy(few);
    two[LAYERS - 1] = true;
    assert_null(model_without_layers(m, two));
    model_destroy(m);
}

static void refuses(void **state) {
    (void)state;
    bool without[LAYERS] = { [1] = true, [2] = true };
    Model *m = stack(true, false);
    assert_null(model_without_layers(m, without)); // what layer 2 made is read behind
    bool later[LAYERS] = { [3] = true };
    Model *few = model_without_layers(m, later); // both before and behind: it stays
    assert_non_null(few);
    model_destroy(few);
    model_destroy(m);
    m = stack(false, true);
    bool between[LAYERS] = { [2] = true };
    assert_null(model_without_layers(m, between)); // its input is read behind, too: nothing is left to join
    model_destroy(m);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(joins), cmocka_unit_test(refuses) };
    return cmocka_run_group_tests_name("shorten", tests, NULL, NULL);
}
