// SPDX-License-Identifier: Apache-2.0
// What forward saves: on random graphs never more than what backward reads, and what m.keep and
// m.recompute say.
#include "tests/lower/helper.h"

#include <stdio.h>
#include <stdlib.h>

#include "compiler/spec/spec.h"

// Bytes that forward makes and backward reads.
static int64_t saved_bytes(const Lower *l) {
    int64_t bytes = 0;
    uint8_t *seen = calloc(l->n_buffers, 1);
    for (uint32_t k = 0; k < l->n_kernels; k++) {
        const Kernel *kernel = &l->kernels[k];
        if (kernel->segment != SEGMENT_BACKWARD) continue;
        for (uint32_t i = 0; i < kernel->n_binds; i++) {
            const Buffer *buffer = &l->buffers[kernel->binds[i].buffer];
            bool saved = buffer->kind == BUFFER_VALUE && buffer->writer &&
                         l->kernels[buffer->writer - 1].segment == SEGMENT_FORWARD;
            if (!saved || seen[kernel->binds[i].buffer]++) continue;
            bytes += buffer->bytes;
        }
    }
    free(seen);
    return bytes;
}

static int64_t bytes_of(Model *m, LayoutRecompute recompute, uint32_t *again) {
    Lab lab;
    lab_start_with(&lab, m, PROGRAM_STEP, (LowerOptions){ .recompute = (uint8_t)recompute });
    int64_t bytes = saved_bytes(&lab.l);
    *again = lab.l.end_again - lab.l.first_again;
    lab_end(&lab);
    return bytes;
}

static void never_more_than_what_is_read(void **state) {
    (void)state;
    int64_t all = 0, kept = 0, blocks = 0;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        Model *m = random_model(seed);
        uint32_t again, none, block;
        int64_t most = bytes_of(m, RECOMPUTE_NONE, &none),
                bytes = bytes_of(m, RECOMPUTE_CHEAP, &again),
                least = bytes_of(m, RECOMPUTE_BLOCK, &block);
        assert_int_equal(none, 0);
        if (bytes > most || least > most)
            fail_msg("graph %d: %lld bytes saved, %lld without recomputation", (int)seed,
                     (long long)bytes, (long long)most);
        all += most;
        blocks += least;
        kept += bytes;
        model_destroy(m);
    }
    printf("100 random graphs: %lld bytes saved, %lld by blocks, %lld without recomputation\n",
           (long long)kept, (long long)blocks, (long long)all);
    assert_true(kept * 10 < all * 9);
}

/* Hints ---------------------------------------------------------------------------------------- */

// An MLP with a hint around its hidden value, around its first product, or none.
static Model *hinted(const char *hidden, const char *product) {
    Text spec = { 0 }, error = { 0 };
    text_printf(&spec,
                "local m = require 'moec'\n"
                "local function layer(x)\n"
                "  local gate, up = m.unbind(%s(m.linear('in', x, { 2, 48 })))\n"
                "  local hidden = %s(gate * m.sigmoid(gate) * up)\n"
                "  return x + m.linear('out', hidden, x:size())\n"
                "end\n"
                "return m.model { name = 'hints', vocab = 32, width = 32, sequence = 48, layers = "
                "{ layer, layer } }\n",
                product, hidden);
    Model *m =
        spec_load_text("hints.lua", text_cstr(&spec), spec.bytes, &(SpecOptions){ 0 }, &error);
    if (!m) fail_msg("%s", text_cstr(&error));
    text_finish(&spec);
    return m;
}

static int count(const Lower *l, Op op, Part part) {
    int n = 0;
    for (uint32_t id = 1; id < l->m->n_nodes; id++)
        n += l->m->nodes[id].op == op && l->m->nodes[id].part == part;
    return n;
}

static void hints(void **state) {
    (void)state;
    const struct {
        const char *hidden, *product;
        int sigmoids, products; // in backward
    } cases[] = {
        { "", "", 2, 0 },            // gate * sigmoid(gate) is made again for both of its uses
        { "m.keep", "", 2, 0 },      // the gradient of the gate wants its sigmoid still
        { "", "m.recompute", 2, 2 }, // the products too
        { "", "m.keep", 2, 0 },
    };
    int64_t bytes[COUNT_OF(cases)];
    for (int i = 0; i < COUNT_OF(cases); i++) {
        Model *m = hinted(cases[i].hidden, cases[i].product);
        Lab lab;
        lab_start(&lab, m, PROGRAM_STEP, false);
        assert_int_equal(count(&lab.l, OP_SIGMOID, PART_BACKWARD), cases[i].sigmoids);
        assert_int_equal(count(&lab.l, OP_MATMUL, PART_BACKWARD), cases[i].products);
        bytes[i] = saved_bytes(&lab.l);
        lab_end(&lab);
        model_destroy(m);
    }
    const int64_t hidden = 2 * 48 * 48 * 4, product = 2 * hidden; // of 96 tokens
    assert_int_equal(bytes[1] - bytes[0], 2 * hidden);            // two layers
    assert_int_equal(bytes[0] - bytes[2], 2 * product);
    assert_int_equal(bytes[3], bytes[0]);
}

/* Policies by layer ---------------------------------------------------------------------------- */

static int products_again(const Lower *l, int layer) {
    int n = 0;
    for (uint32_t id = l->first_again; id < l->end_again; id++)
        n += l->m->nodes[id].op == OP_MATMUL && lower_layer(l, id) == layer;
    return n;
}

static int records(const Lower *l) {
    return count(l, OP_RECORD, PART_FORWARD) + count(l, OP_RECORD, PART_BACKWARD);
}

// A block makes its products again and saves what enters it; the others do as their policy says.
static void by_layer(void **state) {
    (void)state;
    Text error = { 0 };
    static const char spec[] =
        "local m = require 'moec'\n"
        "return m.model { name = 'mixed', vocab = 32, width = 32, sequence = 48,\n"
        "  layers = m.stack(3, m.block { attention = { heads = 2, rope = true },\n"
        "    ffn = m.experts { count = 4, top_k = 2, expert = { hidden = 24 },\n"
        "                      router = { balance_loss = 0.1, z_loss = 0.1 } } }) }\n";
    Model *m = spec_load_text("mixed.lua", spec, sizeof spec - 1, &(SpecOptions){ 0 }, &error);
    if (!m) fail_msg("%s", text_cstr(&error));
    double flops = model_counts(m).train_flops_per_token;
    enum { NONE = RECOMPUTE_NONE, CHEAP = RECOMPUTE_CHEAP, BLOCK = RECOMPUTE_BLOCK };
    uint8_t policies[][3] = { { NONE, NONE, NONE },    { CHEAP, CHEAP, CHEAP },
                              { BLOCK, BLOCK, BLOCK }, { NONE, BLOCK, CHEAP },
                              { BLOCK, NONE, NONE } };
    int64_t bytes[COUNT_OF(policies)];
    int effects[COUNT_OF(policies)];
    for (int i = 0; i < COUNT_OF(policies); i++) {
        Layout layout = layout_single();
        layout.recompute = policies[i][0];
        layout.layer_recompute = policies[i];
        layout.n_layer_recompute = 3;
        Lab lab;
        lab_start_with(&lab, m, PROGRAM_STEP, (LowerOptions){ .layout = &layout });
        for (int layer = 1; layer <= 3; layer++) {
            int n = products_again(&lab.l, layer);
            if ((n > 0) != (policies[i][layer - 1] == BLOCK))
                fail_msg("layer %d of case %d makes %d products again", layer, i, n);
        }
        bytes[i] = saved_bytes(&lab.l);
        effects[i] = records(&lab.l);
        lab_end(&lab);
    }
    printf("saved of three layers: none %lld, cheap %lld, block %lld, one each %lld bytes\n",
           (long long)bytes[0], (long long)bytes[1], (long long)bytes[2], (long long)bytes[3]);
    assert_true(bytes[2] * 3 < bytes[1] && bytes[1] < bytes[0]);
    assert_true(bytes[2] < bytes[3] && bytes[3] < bytes[0]);
    assert_true(bytes[2] < bytes[4] && bytes[4] < bytes[0]);
    for (int i = 1; i < COUNT_OF(policies); i++) assert_int_equal(effects[i], effects[0]);
    assert_true(model_counts(m).train_flops_per_token == flops);
    model_destroy(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(never_more_than_what_is_read),
        cmocka_unit_test(hints),
        cmocka_unit_test(by_layer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
