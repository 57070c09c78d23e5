// SPDX-License-Identifier: Apache-2.0
// Routing that the run chooses: every reader of the ids sees the replacement, whatever the router.
#include "tests/spec/helper.h"

#include <stdio.h>
#include <string.h>

#include "runtime/base/base.h"

// `router` makes ids, [T, k], and weights from `score`, [T, 6].
static Model *load(const char *router, int k, Routing routing) {
    Text text = { 0 }, error = { 0 };
    text_printf(&text,
                "local m = require \"moec\"\n"
                "return m.model {\n"
                "  name = \"r\", vocab = 64, width = 8, sequence = 16,\n"
                "  layers = m.stack(2, function() return m.experts {\n"
                "    count = 6, top_k = %d, expert = { hidden = 8 },\n"
                "    router = function(x, count, top_k)\n"
                "      local score = m.softmax(m.linear(\"score\", x, count))\n"
                "      local ids, weights\n"
                "      %s\n"
                "      m.loss(\"own\", m.sum(m.histogram(ids, count) * m.mean(score)))\n"
                "      return ids, weights\n"
                "    end }\n"
                "  end),\n"
                "}\n",
                k, router);
    SpecOptions options = { .routing = routing };
    Model *m = spec_load_text("model.lua", text_cstr(&text), text.bytes, &options, &error);
    if (!m) fail_msg("%s", text_cstr(&error));
    text_finish(&text);
    text_finish(&error);
    return m;
}

static const char usual[] = "ids = m.top_k(score, top_k) weights = m.gather(score, ids)";

static uint32_t count_ops(const Model *m, Op op) {
    uint32_t n = 0;
    for (uint32_t id = 1; id < m->n_nodes; id++) n += m->nodes[id].op == op;
    return n;
}

// Whether a node depends on a parameter: what a router learned.
static uint8_t *learned(const Model *m) {
    uint8_t *is = ARENA_ARRAY(m->arena, uint8_t, m->n_nodes);
    for (uint32_t id = 1; id < m->n_nodes; id++) {
        is[id] = m->nodes[id].op == OP_PARAM;
        for (int i = 0; i < m->nodes[id].n_args; i++) is[id] |= is[model_arg(m, id, i)];
    }
    return is;
}

// The ids of each route, one_hot and gather: `want` says whether they are learned.
static void expect_ids(const Model *m, bool want) {
    const uint8_t *is = learned(m);
    uint32_t n[3] = { 0 };
    for (uint32_t id = 1; id < m->n_nodes; id++) {
        Op op = m->nodes[id].op;
        bool gather = op == OP_GATHER, reads = op == OP_ROUTE || op == OP_ONE_HOT || gather;
        if (!reads || strncmp(model_name(m, m->nodes[id].addr), "layers.", 7)) continue;
        assert_int_equal(is[model_arg(m, id, gather)], want);
        n[gather ? 2 : op == OP_ONE_HOT]++;
    }
    for (int i = 0; i < 3; i++) assert_true(n[i] >= 2); // of both layers
}

static void every_reader(void **state) {
    (void)state;
    static const Routing routings[] = { ROUTING_LEARNED, ROUTING_UNIFORM, ROUTING_RANDOM };
    for (int i = 0; i < COUNT_OF(routings); i++) {
        Model *m = load(usual, 2, routings[i]);
        expect_ids(m, routings[i] == ROUTING_LEARNED);
        assert_int_equal(count_ops(m, OP_ROUTE), 2);
        assert_int_equal(count_ops(m, OP_UNIFORM), routings[i] == ROUTING_RANDOM ? 2 : 0);
        assert_true(model_verify(m));
        for (int p = 0; p < N_PROGRAMS; p++) { // and the gradients are those of the new graph
            Model *program = model_program(m, (Program)p);
            assert_non_null(program);
            assert_true(model_verify(program));
            assert_int_equal(count_ops(program, OP_ROUTE), 2);
            model_destroy(program);
        }
        model_destroy(m);
    }
}

// The route takes a view, the weights what is behind it.
static void behind_views(void **state) {
    (void)state;
    Model *m = load("local own = m.top_k(score, top_k) weights = m.gather(score, own) "
                    "ids = m.reshape(m.reshape(own, top_k, 1), top_k)",
                    3, ROUTING_UNIFORM);
    expect_ids(m, false);
    model_destroy(m);
}

// Ids that are tokens go on being tokens elsewhere.
static void tokens_stay(void **state) {
    (void)state;
    Model *m = load("ids = m.reshape(m.tokens(0), 1) weights = m.reshape(m.sum(score), 1)", 1,
                    ROUTING_RANDOM);
    for (uint32_t id = 1; id < m->n_nodes; id++) {
        if (m->nodes[id].op != OP_EMBED) continue;
        assert_int_equal(m->nodes[model_arg(m, id, 1)].op, OP_TOKENS);
    }
    for (uint32_t id = 1; id < m->n_nodes; id++) {
        if (m->nodes[id].op == OP_ROUTE)
            assert_int_equal(m->nodes[model_arg(m, id, 0)].op, OP_TOP_K);
    }
    model_destroy(m);
}

// More choices than experts: rounds of all of them.
static void more_choices_than_experts(void **state) {
    (void)state;
    const char *router = "ids = m.concat(m.top_k(score, 6), m.top_k(score, 6)) "
                         "weights = m.gather(score, ids)";
    Model *m = load(router, 12, ROUTING_UNIFORM);
    for (uint32_t id = 1; id < m->n_nodes; id++) {
        if (m->nodes[id].op != OP_ROUTE) continue;
        uint32_t ids = model_arg(m, id, 0);
        assert_int_equal(m->nodes[ids].op, OP_MOD);
        assert_int_equal(model_type(m, ids)->dim[0], 12);
    }
    expect_ids(m, false);
    model_destroy(m);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_reader),
                                        cmocka_unit_test(behind_views),
                                        cmocka_unit_test(tokens_stay),
                                        cmocka_unit_test(more_choices_than_experts) };
    return cmocka_run_group_tests_name("routing", tests, NULL, NULL);
}
