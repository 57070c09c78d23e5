// SPDX-License-Identifier: Apache-2.0
// --set of fields of blocks: what they change, and what is refused.
#include "tests/spec/helper.h"

#include <stdio.h>
#include <string.h>

static const char spec[] =
    "local m = require \"moec\"\n"
    "return m.model {\n"
    "  name = \"s\", vocab = 64, width = 32, sequence = 16,\n"
    "  layers = m.stack(2, function() return m.block {\n"
    "    attention = { heads = 2, rope = { theta = 1e4 } },\n"
    "    ffn = m.experts { count = 6, top_k = 2, expert = { hidden = 8 }, shared = { hidden = 8 },\n"
    "                      router = { balance_loss = 0.01 } },\n"
    "  } end),\n"
    "}\n";

// Settings are pairs, ended by NULL.
static Model *load(Text *error, const char *const *pairs) {
    SpecArg sets[4];
    SpecOptions options = { .sets = sets };
    for (; pairs[0]; pairs += 2) sets[options.n_sets++] = (SpecArg){ pairs[0], pairs[1] };
    return spec_load_text("model.lua", spec, strlen(spec), &options, error);
}
#define LOAD(error, ...) load(error, (const char *[]){ __VA_ARGS__, NULL })

static Model *need(Model *m, Text *error) {
    if (!m) fail_msg("%s", text_cstr(error));
    assert_int_equal(error->bytes, 0);
    return m;
}

static bool has_param(const Model *m, const char *address) {
    for (uint32_t i = 0; i < m->n_params; i++)
        if (!strcmp(model_name(m, m->params[i].addr), address)) return true;
    return false;
}

static void fields(void **state) {
    (void)state;
    Text error = { 0 };
    // A number: no layer has the loss, or one of them another weight, and the later setting wins.
    Model *m = need(load(&error, (const char *[]){ NULL }), &error);
    uint32_t n = m->n_losses;
    model_destroy(m);
    m = need(LOAD(&error, "layers.*.ffn.router.balance_loss", "0"), &error);
    assert_int_equal(m->n_losses, n - 2);
    model_destroy(m);
    m = need(LOAD(&error, "layers.*.ffn.router.balance_loss", "0", "layers.2.ffn.router.balance_loss",
                  "0.5"),
             &error);
    assert_int_equal(m->n_losses, n - 1);
    bool found = false;
    for (uint32_t i = 0; i < m->n_losses; i++) {
        if (strcmp(model_name(m, m->losses[i].addr), "layers.2.ffn.router.balance")) continue;
        assert_true(m->losses[i].weight == 0.5);
        found = true;
    }
    assert_true(found);
    model_destroy(m);
    // A size, a choice, a boolean; false takes an optional block away, true makes one of defaults.
    m = need(LOAD(&error, "layers.1.ffn.top_k", "3"), &error);
    uint32_t route = 0;
    for (uint32_t id = 1; id < m->n_nodes && !route; id++)
        if (m->nodes[id].op == OP_ROUTE) route = id;
    assert_int_equal(model_type(m, model_arg(m, route, 0))->dim[0], 3);
    model_destroy(m);
    m = need(LOAD(&error, "layers.1.ffn.router.bias", "true", "layers.2.ffn.shared", "false",
                  "layers.2.norm", "none"),
             &error);
    assert_true(has_param(m, "layers.1.ffn.router.b_score"));
    assert_false(has_param(m, "layers.2.ffn.router.b_score"));
    assert_true(has_param(m, "layers.1.ffn.shared.w_out"));
    assert_false(has_param(m, "layers.2.ffn.shared.w_out"));
    assert_true(has_param(m, "layers.1.ffn_norm.gain"));
    assert_false(has_param(m, "layers.2.ffn_norm.gain"));
    model_destroy(m);
    text_finish(&error);
}

static void refusals(void **state) {
    (void)state;
    static const struct {
        const char *path, *value, *want;
    } cases[] = {
        { "layers.*.fnn.router.balance_loss", "0",
          "model.lua: error: --set: no block is called at 'layers.*.fnn.router'\n"
          "  hint: did you mean 'layers.*.ffn.router.balance_loss'?\n" },
        { "layers.3.ffn.top_k", "1",
          "model.lua: error: --set: no block is called at 'layers.3.ffn'\n"
          "  hint: did you mean 'layers.1.ffn.top_k'?\n" },
        { "layers.1.ffn.topk", "1",
          "model.lua: error: --set: experts at 'layers.1.ffn' has no field 'topk'\n"
          "  hint: did you mean 'top_k'? fields: count, top_k, expert, router, shared, capacity\n" },
        { "*.balance_lost", "1",
          "model.lua: error: --set: a block at '*' has no field 'balance_lost'\n"
          "  hint: did you mean 'balance_loss'?\n" },
        { "top_k", "1",
          "model.lua: error: --set: expected an address and a field, got 'top_k'\n"
          "  hint: for example layers.*.ffn.router.balance_loss=0\n" },
        { "layers.1.ffn.top_k", "two",
          "--set: experts.top_k must be a positive integer, got \"two\"\n" },
        { "layers.1.ffn.top_k", "0", "--set: experts.top_k must be a positive integer, got 0\n" },
        { "layers.1.ffn.top_k", "false",
          "--set: experts.top_k must be a positive integer, got \"false\"\n" },
        { "layers.1.ffn.router.balance", "sequences",
          "--set: router.balance must be \"microbatch\", \"sequence\" or \"global\", got "
          "\"sequences\"\n" },
        { "layers.1.ffn.router.score", "sigmoid",
          "--set: router.score must be a function, got \"sigmoid\"\n" },
    };
    for (int i = 0; i < COUNT_OF(cases); i++) {
        Text error = { 0 };
        Model *m = LOAD(&error, cases[i].path, cases[i].value);
        if (m || !strstr(text_cstr(&error), cases[i].want))
            fail_msg("'%s' is not in: %s", cases[i].want, text_cstr(&error));
        text_finish(&error);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(fields), cmocka_unit_test(refusals) };
    return cmocka_run_group_tests_name("set", tests, NULL, NULL);
}
