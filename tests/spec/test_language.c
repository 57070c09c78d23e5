// SPDX-License-Identifier: Apache-2.0
// What a spec means: the graph, parameters, losses, metrics and updates that come out.
#include "tests/spec/helper.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static uint32_t count_ops(const Model *m, Op op) {
    uint32_t n = 0;
    for (uint32_t id = 1; id < m->n_nodes; id++) n += m->nodes[id].op == op;
    return n;
}

// What a step computes: nodes that nothing reads (the 2 of x ^ 2) are gone from it.
static void print_step(Loaded *l, Text *out) {
    Model *step = model_program(l->m, PROGRAM_STEP);
    if (!step) fail_msg("%s", l->m->diag.message);
    model_print(step, out, false);
    model_destroy(step);
}

static void assert_same_graph(const char *before_a, const char *layers_a, const char *before_b,
                              const char *layers_b) {
    Loaded a = load_layers(before_a, layers_a), b = load_layers(before_b, layers_b);
    Text x = { 0 }, y = { 0 };
    print_step(&a, &x);
    print_step(&b, &y);
    assert_true(x.bytes > 100);
    assert_string_equal(text_cstr(&x), text_cstr(&y));
    text_finish(&x);
    text_finish(&y);
    loaded_finish(&a);
    loaded_finish(&b);
}

/* Built-in blocks are what a user can write --------------------------------------------------- */

static void norm_by_hand(void **state) {
    (void)state;
    assert_same_graph("", "m.norm {}",
                      "local function norm(x)\n"
                      "  local gain = m.param('gain', { x:size() }, { on = x, init = 'ones' })\n"
                      "  return x * m.rsqrt(m.mean(x ^ 2) + 1e-6) * gain\n"
                      "end",
                      "norm");
}

static void swiglu_by_hand(void **state) {
    (void)state;
    assert_same_graph(
        "", "m.mlp { hidden = 48 }",
        "local function mlp(x)\n"
        "  local gate, up = m.unbind(m.matmul(x, m.param('w_in', { 64, 2, 48 })))\n"
        "  return m.matmul(gate * m.sigmoid(gate) * up, m.param('w_out', { 48, 64 }))\n"
        "end",
        "mlp");
}

static void softmax_by_hand(void **state) {
    (void)state;
    assert_same_graph("", "function(x) return x * m.softmax(x) * m.log_sum_exp(x) end",
                      "local function f(x)\n"
                      "  local top = m.stop_gradient(m.amax(x))\n"
                      "  local e = m.exp(x - top)\n"
                      "  return x * (e / m.sum(e)) * (m.log(m.sum(e)) + top)\n"
                      "end",
                      "f");
}

static void attention_by_hand(void **state) {
    (void)state;
    assert_same_graph("",
                      "m.attention { heads = 4, kv_heads = 2, qk_norm = 'head', rope = { theta = "
                      "5e5 }, window = 8 }",
                      "local function norm(x)\n"
                      "  local gain = m.param('gain', { x:size() }, { init = 'ones' })\n"
                      "  return x * m.rsqrt(m.mean(x ^ 2, -1, { keep = true }) + 1e-6) * gain\n"
                      "end\n"
                      "local function attention(x)\n"
                      "  local q = m.matmul(x, m.param('w_q', { 64, 4, 16 }))\n"
                      "  local k = m.matmul(x, m.param('w_k', { 64, 2, 16 }))\n"
                      "  local v = m.matmul(x, m.param('w_v', { 64, 2, 16 }))\n"
                      "  q, k = m.scope('q_norm', norm, q), m.scope('k_norm', norm, k)\n"
                      "  local freq = {}\n"
                      "  for i = 1, 8 do freq[i] = 5e5 ^ (-2 * (i - 1) / 16) end\n"
                      "  q, k = m.rotate(q, m.constant(freq)), m.rotate(k, m.constant(freq))\n"
                      "  local y = m.attend(q, k, v, { window = 8 })\n"
                      "  return m.matmul(y, m.param('w_o', { 4, 16, 64 }), { over = 2 })\n"
                      "end",
                      "attention");
}

static void experts_by_hand(void **state) {
    (void)state;
    const char *fields = "router = { normalize = true, scale = 2, balance_loss = 0.01, z_loss = "
                         "0.001, correction = 0.1 }";
    Text layers = { 0 };
    text_printf(&layers,
                "m.experts { count = 8, top_k = 2, expert = { hidden = 32 }, shared = { hidden = "
                "16 }, %s }",
                fields);
    assert_same_graph(
        "", text_cstr(&layers),
        "local router = m.define('my_router', { { 'scale', 'number' } }, function(f, x, count, "
        "top_k)\n"
        "  local logits = m.matmul(x, m.param('w_score', { x:size(), count }), { precision = "
        "'fp32' })\n"
        "  local e = m.exp(logits - m.stop_gradient(m.amax(logits)))\n"
        "  local score = e / m.sum(e)\n"
        "  local bias = m.state('correction', { count })\n"
        "  local ids = m.top_k(score + bias, top_k)\n"
        "  local weights = m.gather(score, ids)\n"
        "  weights = weights / (m.sum(weights) + 1e-20)\n"
        "  local load = m.histogram(ids, count)\n"
        "  local prob = m.mean(score / (m.sum(score) + 1e-20), 'microbatch')\n"
        "  m.loss('balance', count * m.sum(load / m.max(m.sum(load), 1) * prob), 0.01)\n"
        "  m.loss('z', m.log_sum_exp(logits) ^ 2, 0.001)\n"
        "  m.update(bias, load, function(old, total) return old + 0.1 * m.sign(m.mean(total) - "
        "total) end)\n"
        "  return ids, weights * f.scale\n"
        "end)\n"
        "local function mlp(x, hidden)\n"
        "  local gate, up = m.unbind(m.linear('in', x, { 2, hidden }))\n"
        "  return m.linear('out', m.silu(gate) * up, 64)\n"
        "end\n"
        "local experts = m.define('my_experts', { { 'router', 'my_router' } }, function(f, x)\n"
        "  local ids, weights = m.scope('router', f.router, x, 8, 2)\n"
        "  local rows = m.dispatch(x, m.route(ids, 8))\n"
        "  local y = m.combine(m.scope('experts', mlp, rows, 32), weights)\n"
        "  return y + m.scope('shared', mlp, x, 16)\n"
        "end)",
        "experts { router = { scale = 2 } }");
    text_finish(&layers);
}

/* Sharing, scopes, reading blocks ------------------------------------------------------------- */

static void sharing(void **state) {
    (void)state;
    Loaded l = load_layers("local u = m.shared('universal', m.block { ffn = { hidden = 32 } })",
                           "u, m.mlp { hidden = 32 }, u");
    assert_int_equal(l.m->n_params, 1 + 3 + 2 + 1 + 1);
    param_named(l.m, "universal.ffn.w_in");
    param_named(l.m, "layers.2.w_in");
    loaded_finish(&l);
    // What a shared function records has one address per call.
    l = load_layers(
        "local u = m.shared('u', function(x) m.metric('size', m.mean(x ^ 2)) return x end)",
        "u, u, u");
    assert_int_equal(l.m->n_metrics, 3);
    assert_string_equal(model_name(l.m, l.m->metrics[0].addr), "u.size");
    assert_string_equal(model_name(l.m, l.m->metrics[2].addr), "u.size.3");
    loaded_finish(&l);
}

static void tied_head(void **state) {
    (void)state;
    Loaded l = load_text("local m = require 'moec'\n"
                         "return m.model { name = 'a', vocab = 32, width = 64, sequence = 16, "
                         "layers = {}, head = { tied = true, cap = 30 } }",
                         NULL);
    assert_non_null(l.m);
    assert_int_equal(l.m->n_params, 2);
    const Param *table = param_named(l.m, "embedding.w");
    assert_true(table->is_weight);
    assert_true(table->decay == 1);
    assert_int_equal(count_ops(l.m, OP_TANH), 1);
    loaded_finish(&l);
}

static void with_and_fields(void **state) {
    (void)state;
    expect_print(
        "local layer = m.block { attention = { heads = 8, rope = true }, ffn = { hidden = 64 } }\n"
        "local other = layer:with { ffn = layer.ffn:with { hidden = layer.ffn.hidden / 2 }, norm = "
        "'peri' }\n"
        "print(layer.ffn.hidden, other.ffn.hidden, layer.norm, other.norm, "
        "other.attention.rope.theta)\n"
        "print(layer, layer.attention.window, layer.attention.kv_heads)",
        "64\t32\tpre\tperi\t10000\na block\tfalse\tfalse\n");
    expect_print("local list = m.stack(3, m.mlp { hidden = 2 })\nprint(#list, list[3].hidden)",
                 "3\t2\n");
    expect_print("local list = m.stack(2, function(i) return m.mlp { hidden = i } "
                 "end)\nprint(list[1].hidden, list[2].hidden)",
                 "1\t2\n");
    expect_print("print(m.arity(m.swiglu), m.arity(m.tanh), m.arity(m.relu), m.arity(function(a, "
                 "b, c) end))",
                 "2\t1\t1\t3\n");
}

static void tensors_print(void **state) {
    (void)state;
    Loaded l = load_layers("", "function(x) local h = m.linear('in', x, { 2, 8 }) print(h, "
                               "m.tokens(), m.exp(h)) print(h:size(), h:size(1)) return x end");
    assert_string_equal(
        text_cstr(&l.log),
        "real [T, 2, 8] layers.1.w_in\tint [T] tokens\treal [T, 2, 8] layers.1.w_in\n8\t2\n");
    loaded_finish(&l);
}

static void arguments(void **state) {
    (void)state;
    const char *text =
        "local m = require 'moec'\n"
        "print(m.arg('n', 8), m.arg('rate', 0.5), m.arg('name', 'x'), m.arg('on', false), "
        "m.arg('n', 8))\n"
        "return m.model { name = 'a', vocab = 32, width = 64, sequence = 16, layers = {} }";
    static const char *const cases[][2] = {
        { NULL, "8\t0.5\tx\tfalse\t8\n" },
        { "n=16 rate=1 name=big on=true", "16\t1\tbig\ttrue\t16\n" },
        { "n=1e3", "1000\t0.5\tx\tfalse\t1000\n" },
        { "n=1 n=2", "2\t0.5\tx\tfalse\t2\n" },
    };
    for (int i = 0; i < COUNT_OF(cases); i++) {
        Loaded l = load_text(text, cases[i][0]);
        if (!l.m) fail_msg("%s", text_cstr(&l.error));
        assert_string_equal(text_cstr(&l.log), cases[i][1]);
        loaded_finish(&l);
    }
    static const char *const wrong[] = { "n=1.5", "n=", "rate=fast", "on=1", "n=8x" };
    for (int i = 0; i < COUNT_OF(wrong); i++) {
        Loaded l = load_text(text, wrong[i]);
        assert_null(l.m);
        assert_non_null(strstr(text_cstr(&l.error), "expected"));
        loaded_finish(&l);
    }
}

/* Rules --------------------------------------------------------------------------------------- */

static void defaults_and_rules(void **state) {
    (void)state;
    const char *head = "local m = require 'moec'\n"
                       "return m.model { name = 'a', vocab = 32, width = 64, sequence = 16,\n"
                       "  layers = { m.block { ffn = m.experts { count = 4, top_k = 2, expert = { "
                       "hidden = 32, bias = true } } } },\n";
    Text text = { 0 };
    text_printf(&text, "%s}", head);
    Loaded l = load_text(text_cstr(&text), NULL);
    assert_non_null(l.m);
    const Param *w = param_named(l.m, "layers.1.ffn.experts.w_in"),
                *b = param_named(l.m, "layers.1.ffn.experts.b_in");
    const Param *gain = param_named(l.m, "norm.gain"), *table = param_named(l.m, "embedding.w");
    assert_true(w->std == 0.02 && w->decay == 1 && w->lr == 1 && w->init == INIT_NORMAL &&
                w->is_weight);
    assert_true(b->init == INIT_ZEROS && b->decay == 0 && !b->is_weight);
    assert_true(gain->init == INIT_ONES && gain->decay == 0);
    assert_true(table->decay == 0 && table->std == 0.02 && !table->is_weight);
    assert_int_equal(param_named(l.m, "layers.1.ffn.router.w_score")->precision, PRECISION_FP32);
    loaded_finish(&l);

    text.bytes = 0;
    text_printf(
        &text,
        "%s  parameters = {\n"
        "    { '*', init = 0.01 }, { '*.w_*, head.w', decay = 0.5 }, { 'layers.*', lr = 2 },\n"
        "    { 'layers.*.w_out', init = 'zeros', precision = 'bf16', lr = 3 },\n"
        "    { '*.router.w_score', precision = 'bf16' } } }",
        head);
    l = load_text(text_cstr(&text), NULL);
    if (!l.m) fail_msg("%s", text_cstr(&l.error));
    w = param_named(l.m, "layers.1.ffn.experts.w_in");
    assert_true(w->std == 0.01 && w->decay == 0.5 && w->lr == 2 && w->precision == PRECISION_OPEN);
    w = param_named(l.m, "layers.1.ffn.experts.w_out");
    assert_true(w->init == INIT_ZEROS && w->lr == 3 && w->precision == PRECISION_BF16);
    // The maker's word is final.
    assert_true(param_named(l.m, "norm.gain")->init == INIT_ONES);
    assert_int_equal(param_named(l.m, "layers.1.ffn.router.w_score")->precision, PRECISION_FP32);
    assert_true(param_named(l.m, "head.w")->decay == 0.5 &&
                param_named(l.m, "embedding.w")->decay == 0);
    loaded_finish(&l);
    text_finish(&text);
}

static void model_eps(void **state) {
    (void)state;
    Loaded l = load_text("local m = require 'moec'\n"
                         "return m.model { name = 'a', vocab = 32, width = 64, sequence = 16, eps "
                         "= 0.125, norm = { eps = 0.25 },\n"
                         "  layers = { m.block { attention = { heads = 4, qk_norm = 'full' } } } }",
                         NULL);
    assert_non_null(l.m);
    int eighths = 0, quarters = 0;
    for (uint32_t id = 1; id < l.m->n_nodes; id++) {
        const Node *n = model_at(l.m, id);
        if (n->op != OP_RSQRT) continue;
        const Node *sum = model_at(l.m, model_arg(l.m, id, 0));
        for (int i = 0; i < sum->n_args; i++) {
            const Node *c = model_at(l.m, model_arg(l.m, (uint32_t)(sum - l.m->nodes), i));
            if (c->op == OP_CONST) eighths += c->attr.num == 0.125, quarters += c->attr.num == 0.25;
        }
    }
    assert_int_equal(eighths, 3); // before attention, of q, of k
    assert_int_equal(quarters, 1);
    loaded_finish(&l);
}

/* Losses, metrics, updates, sets -------------------------------------------------------------- */

static void effects(void **state) {
    (void)state;
    Loaded l = load_layers(
        "", "m.block { ffn = m.experts { count = 4, top_k = 2, expert = { hidden = 32 },\n"
            "  router = { correction = 0.1, balance_loss = 0.5, balance = 'sequence' } } }");
    assert_int_equal(l.m->n_losses, 2);
    assert_string_equal(model_name(l.m, l.m->losses[0].addr), "layers.1.ffn.router.balance");
    assert_int_equal(model_type(l.m, l.m->losses[0].node)->row, ROW_S);
    assert_true(l.m->losses[0].weight == 0.5);
    assert_string_equal(model_name(l.m, l.m->losses[1].addr), "ce");
    assert_int_equal(model_type(l.m, l.m->losses[1].node)->row, ROW_T);
    assert_int_equal(l.m->n_metrics, 2);
    assert_string_equal(model_name(l.m, l.m->metrics[0].addr), "layers.1.ffn.load");
    assert_string_equal(model_name(l.m, l.m->metrics[1].addr), "layers.1.ffn.dropped");
    assert_true(l.m->metrics[0].sum && l.m->metrics[1].sum); // counts, over the step
    const Type *load = model_type(l.m, l.m->metrics[0].node);
    assert_true(load->row == ROW_NONE && load->rank == 1 && load->dim[0] == 4);
    assert_int_equal(l.m->n_updates, 1);
    const Update *u = &l.m->updates[0];
    assert_int_equal(model_at(l.m, u->state)->op, OP_STATE);
    assert_int_equal(model_at(l.m, u->total)->op, OP_TOTAL);
    assert_int_equal(model_at(l.m, u->next)->part, PART_UPDATE);
    assert_int_equal(l.m->n_effects, 0);
    assert_int_equal(l.m->losses[1].loc.line, 3);
    if (!model_verify(l.m)) fail_msg("%s", l.m->diag.message);
    loaded_finish(&l);
    l = load_layers("", "m.block { ffn = m.experts { count = 4, top_k = 2, "
                        "expert = { hidden = 8 }, "
                        "router = { balance_loss = -0.5, z_loss = -0.25 } } }");
    assert_int_equal(l.m->n_losses, 3); // a negative weight is a weight
    assert_true(l.m->losses[0].weight == -0.5 && l.m->losses[1].weight == -0.25);
    loaded_finish(&l);
}

// Sums over a set are masked by `valid`; a mean divides by the valid tokens, at least one.
static void sets(void **state) {
    (void)state;
    Loaded l = load_layers(
        "", "function(x) m.metric('mean', m.mean(m.sum(x), 'microbatch')) return x end");
    const Model *m = l.m;
    const Node *mean = model_at(m, m->metrics[0].node);
    assert_int_equal(mean->op, OP_DIV);
    const Node *sum = model_at(m, m->args[mean->args]),
               *count = model_at(m, m->args[mean->args + 1]);
    assert_int_equal(sum->op, OP_ROW_SUM);
    assert_int_equal(count->op, OP_MAX);
    const Node *masked = model_at(m, m->args[sum->args]);
    assert_int_equal(masked->op, OP_MUL);
    bool valid = model_at(m, m->args[masked->args])->op == OP_VALID ||
                 model_at(m, m->args[masked->args + 1])->op == OP_VALID;
    assert_true(valid);
    loaded_finish(&l);

    l = load_layers("", "function(x) m.metric('most', m.amax(x, 'sequence'):size() and "
                        "m.amax(m.sum(x), 'sequence')) return x end");
    assert_int_equal(model_type(l.m, l.m->metrics[0].node)->row, ROW_S);
    assert_int_equal(model_at(l.m, l.m->metrics[0].node)->op, OP_WHERE);
    loaded_finish(&l);
    expect_error("local m = require 'moec'\nlocal x = m.sum(m.constant { 1, 2 }, 'microbatch')",
                 "needs a token axis");
}

static void uniform_draws_differ(void **state) {
    (void)state;
    Loaded l = load_layers("", "function(x) return x * m.uniform(64) * m.uniform(64) end, "
                               "function(x) return x * m.uniform(64) end");
    assert_int_equal(count_ops(l.m, OP_UNIFORM), 3);
    loaded_finish(&l);
}

// Each node carries the user's line and the address of its scope.
static void places(void **state) {
    (void)state;
    Loaded l = load_layers("local function f(x)\n  local y = m.silu(x)\n  return m.relu(y)\nend",
                           "function(x) return m.scope('inner', f, x) end");
    bool sigmoid = false, max = false;
    for (uint32_t id = 1; id < l.m->n_nodes; id++) {
        const Node *n = model_at(l.m, id);
        if (n->op == OP_SIGMOID)
            sigmoid = n->loc.line == 3 && !strcmp(model_name(l.m, n->addr), "layers.1.inner");
        if (n->op == OP_MAX && n->type.rank) max = n->loc.line == 4;
    }
    assert_true(sigmoid);
    assert_true(max); // also where a tail call has removed the Lua frame
    loaded_finish(&l);
}

/* Unusual layers ------------------------------------------------------------------------------ */

static void unusual(void **state) {
    (void)state;
    Loaded l = load_layers(
        "local attention = m.attention { heads = 4, rope = true }\n"
        "local function parallel(x)\n"
        "  local h = m.scope('norm', m.norm {}, x)\n"
        "  return x + m.scope('attention', attention, h) + m.scope('ffn', m.mlp { hidden = 96, "
        "activation = m.relu2 }, h)\n"
        "end\n"
        "local function conv(x)\n"
        "  local y = x * m.param('tap_0', { x:size() }, { init = 'ones' })\n"
        "  for i = 1, 3 do y = y + m.shift(x, i) * m.param('tap_' .. i, { x:size() }, { init = "
        "'zeros' }) end\n"
        "  return x + m.silu(y)\n"
        "end\n"
        "local universal = m.shared('universal', m.block { attention = attention })\n"
        "local function picky(x)\n"
        "  local score = m.sigmoid(m.linear('score', x + 0.01 * m.uniform(x:size()), 8))\n"
        "  local ids = m.top_k(score, 4)\n"
        "  local weights = m.gather(score, ids)\n"
        "  local open = m.ge(weights, 0.3)\n"
        "  local rows = m.dispatch(x, m.route(m.where(open, ids, -1), 8, { capacity = 1.5 }))\n"
        "  local y = m.scope('experts', function(r)\n"
        "    r = m.scope('norm', m.norm {}, r)\n"
        "    return m.linear('out', m.gelu(m.linear('in', r, 24, { bias = true })), r:size())\n"
        "  end, rows)\n"
        "  m.metric('chosen', m.sum(m.where(open, 1, 0)))\n"
        "  return x + m.combine(y, weights)\n"
        "end\n"
        "local first\n"
        "local function gated(x)\n"
        "  local q, k, v = m.linear('q', x, { 4, 16 }), m.linear('k', x, { 4, 16 }), m.linear('v', "
        "x, { 4, 16 })\n"
        "  first = first or v\n"
        "  local mix = m.param('mix', {}, { init = 'zeros' })\n"
        "  local y = m.attend(q, k, v + m.sigmoid(mix) * first, { causal = true, sinks = "
        "m.param('sinks', { 4 }, { init = 'zeros' }) })\n"
        "  local gate = m.reshape(m.sigmoid(m.linear('gate', x, 4)), 4, 1)\n"
        "  return x + m.linear('o', y * gate, x:size(), { over = 2 })\n"
        "end\n"
        "local function per_head(x)\n"
        "  return x + m.reshape(m.linear('mix', m.reshape(x, 4, -1), 16, { each = 1 }), x:size())\n"
        "end\n"
        "local function pieces(x)\n"
        "  local a, b = m.split(x, { 16, 48 })\n"
        "  local c, d = m.split(b, 2)\n"
        "  local each = m.top_k(a, 2)\n"
        "  local rows = m.dispatch(m.reshape(x, 2, 32), m.route(each, 16), { each = true })\n"
        "  return x + m.concat(m.keep(a), m.recompute(c), m.cast(d, 'bf16')) + "
        "m.concat(m.combine(rows), m.combine(rows))\n"
        "end",
        "gated, parallel, conv, universal, picky, universal, gated, per_head, pieces");
    if (!model_verify(l.m)) fail_msg("%s", l.m->diag.message);
    Model *step = model_program(l.m, PROGRAM_STEP);
    if (!step) fail_msg("%s", l.m->diag.message);
    const Type *norm = model_type(l.m, param_named(l.m, "layers.5.experts.norm.gain")->node);
    assert_int_equal(norm->row, ROW_E);
    const Type *mix = model_type(l.m, param_named(l.m, "layers.8.w_mix")->node);
    assert_true(mix->rank == 3 && mix->dim[0] == 4 && mix->dim[1] == 16 && mix->dim[2] == 16);
    assert_int_equal(model_type(l.m, param_named(l.m, "layers.1.mix")->node)->rank, 0);
    model_destroy(step);
    loaded_finish(&l);
}

static void every_program(void **state) {
    (void)state;
    static const char *const files[] = { "tiny", "latent_moe", "gpt_oss_20b", "deepseek_v3",
                                         "olmo3_7b" };
    for (int i = 0; i < COUNT_OF(files); i++) {
        Text path = { 0 };
        text_printf(&path, MOEC_SOURCE_DIR "/models/%s.lua", files[i]);
        Loaded l = load_file(text_cstr(&path), NULL);
        assert_non_null(l.m);
        for (Program p = 0; p < N_PROGRAMS; p++) {
            Model *program = model_program(l.m, p);
            if (!program) fail_msg("%s %s: %s", files[i], program_name[p], l.m->diag.message);
            model_destroy(program);
        }
        loaded_finish(&l);
        text_finish(&path);
    }
}

static void machines(void **state) {
    (void)state;
    expect_print(
        "local c = m.cluster { name = 'c', device = { name = 'B300', arch = 'sm_103a', units = "
        "148, memory = 275040 * 2^20,\n"
        "  bandwidth = 8e12, bf16 = 2.25e15, mxfp8 = 4.5e15, shared = 227 * 1024, l2 = 126 * 2^20 "
        "},\n"
        "  links = { m.link { name = 'nvlink', size = 8, rate = 900e9 } } }\n"
        "local l = m.layout { mesh = { 'pp=2', 'dp=32', 'ep=8' }, schedule = 'interleaved', slots "
        "= 2, microbatch = 2,\n"
        "  recompute = 'cheap', capacity = 1.25, placement = function(layer, expert) return expert "
        "% 8 end }\n"
        "print(c.device.l2, c.links[1].latency, l.schedule, l.capacity, l.placement(1, 9))",
        "132120576\t2e-06\tinterleaved\t1.25\t1\n");
}

// The whole folder of blocks and models, by the linter that users have.
static void lint(void **state) {
    (void)state;
    if (system("command -v luacheck > /dev/null 2>&1")) skip();
    assert_int_equal(system("cd '" MOEC_SOURCE_DIR
                            "' && luacheck -q --no-color --config .luacheckrc dsl models"),
                     0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norm_by_hand),
        cmocka_unit_test(swiglu_by_hand),
        cmocka_unit_test(softmax_by_hand),
        cmocka_unit_test(attention_by_hand),
        cmocka_unit_test(experts_by_hand),
        cmocka_unit_test(sharing),
        cmocka_unit_test(tied_head),
        cmocka_unit_test(with_and_fields),
        cmocka_unit_test(tensors_print),
        cmocka_unit_test(arguments),
        cmocka_unit_test(defaults_and_rules),
        cmocka_unit_test(model_eps),
        cmocka_unit_test(effects),
        cmocka_unit_test(sets),
        cmocka_unit_test(uniform_draws_differ),
        cmocka_unit_test(places),
        cmocka_unit_test(unusual),
        cmocka_unit_test(every_program),
        cmocka_unit_test(machines),
        cmocka_unit_test(lint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
