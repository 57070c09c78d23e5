// SPDX-License-Identifier: Apache-2.0
#include "tests/lower/helper.h"

#include <stdio.h>

#define DIMS(...) (const int32_t[]){ __VA_ARGS__ }, COUNT_OF(((const int32_t[]){ __VA_ARGS__ }))

uint32_t param_named(Model *m, const char *name, const int32_t *dims, int rank, uint32_t route) {
    uint32_t node = model_param(m, model_intern(m, name), false, dims, rank, route);
    assert_int_not_equal(node, 0);
    Param *param = &m->params[m->nodes[node].attr.index];
    param->std = 0.02;
    param->decay = param->lr = 1;
    return node;
}

void add_loss(Model *m, const char *name, uint32_t node, double weight) {
    *ARENA_PUSH(m->arena, m->losses, m->n_losses, m->cap_losses) =
        (Loss){ .node = node, .addr = model_intern(m, name), .weight = weight };
}

static uint32_t made(Model *m, uint32_t node) {
    if (!node) fail_msg("%s", m->diag.message);
    return node;
}

static uint32_t matmul(Model *m, uint32_t x, uint32_t w) {
    Attr attr = { 0 };
    attr.mm.over = 1;
    return made(m, model_node(m, OP_MATMUL, &attr, NULL, (uint32_t[]){ x, w }, 2));
}

uint32_t linear(Model *m, const char *name, uint32_t x, int32_t n) {
    const Type *type = model_type(m, x);
    int32_t k = type->dim[type->rank - 1];
    return matmul(m, x, param_named(m, name, DIMS(k, n), type->row == ROW_R ? type->route : 0));
}

static uint32_t reshape(Model *m, uint32_t x, const int32_t *dims, int rank) {
    return made(m, model_reshape(m, x, dims, rank));
}

uint32_t rms_norm(Model *m, const char *name, uint32_t x) {
    int32_t n = model_type(m, x)->dim[0];
    uint32_t mean = model_op2(m, OP_MUL, model_sum(m, model_op2(m, OP_MUL, x, x), 1),
                              model_const(m, 1.0 / n, KIND_REAL));
    uint32_t scale =
        model_op1(m, OP_RSQRT, model_op2(m, OP_ADD, mean, model_const(m, 1e-6, KIND_REAL)));
    uint32_t gain = param_named(m, name, &n, 1, 0);
    return made(m, model_op2(m, OP_MUL, model_op2(m, OP_MUL, x, scale), gain));
}

static Model *start(const char *name) {
    Model *m = model_create();
    assert_non_null(m);
    m->name = name;
    m->vocab = VOCAB;
    m->width = WIDTH;
    m->sequence = SEQUENCE;
    static const char *const text = "-- the spec\nlocal m = require \"moec\"\n";
    m->loc = (Loc){ .file = model_add_file(m, "hand.lua", text), .line = 2, .col = 1, .len = 5 };
    return m;
}

static uint32_t embedded(Model *m, uint32_t *table) {
    *table = param_named(m, "embedding.w", DIMS(VOCAB, WIDTH), 0);
    return made(m, model_op2(m, OP_EMBED, *table, model_generator(m, OP_TOKENS, 0, NULL, 0)));
}

static void cross_entropy(Model *m, uint32_t logits) {
    Attr over = { .raw = { 0, 0 } }; // attributes compare by memcmp
    over.axes = 1;
    m->logits = logits;
    uint32_t most =
        model_op1(m, OP_STOP_GRADIENT,
                  made(m, model_node(m, OP_AMAX, &over, NULL, &logits, 1)));
    uint32_t sum = model_sum(m, model_op1(m, OP_EXP, model_op2(m, OP_SUB, logits, most)), 1);
    uint32_t lse = reshape(m, model_op2(m, OP_ADD, model_op1(m, OP_LOG, sum), most), NULL, 0);
    uint32_t label = model_generator(m, OP_LABELS, 1, NULL, 0);
    Attr wide = { 0 };
    wide.k = model_type(m, logits)->dim[0];
    uint32_t hot = made(m, model_node(m, OP_ONE_HOT, &wide, NULL, &label, 1));
    uint32_t at = reshape(m, model_sum(m, model_op2(m, OP_MUL, logits, hot), 1), NULL, 0);
    uint32_t valid = model_op2(m, OP_GE, label, model_const(m, 0, KIND_INT));
    uint32_t zero = model_const(m, 0, KIND_REAL);
    add_loss(m, "loss", made(m, model_op3(m, OP_WHERE, valid, model_op2(m, OP_SUB, lse, at), zero)),
             1);
}

Model *plain_model(void) {
    Model *m = start("plain");
    uint32_t table, x = embedded(m, &table);
    cross_entropy(m, linear(m, "head.w", x, VOCAB));
    return m;
}

/* A MoE model ---------------------------------------------------------------------------------- */

static uint32_t attention(Model *m, uint32_t x) {
    enum { HEADS = 2, SIZE = 8 };
    uint32_t qkv[3];
    for (int i = 0; i < 3; i++) {
        char name[32];
        snprintf(name, sizeof name, "attention.w_%c", "qkv"[i]);
        uint32_t flat = linear(m, name, x, i ? SIZE : HEADS * SIZE);
        qkv[i] = reshape(m, flat, DIMS(i ? 1 : HEADS, SIZE));
    }
    Attr attr = { 0 };
    attr.attend.scale = 0.35f;
    attr.attend.causal = 1;
    uint32_t segments = model_generator(m, OP_SEGMENTS, 0, NULL, 0);
    uint32_t y = made(m, model_node(m, OP_ATTEND, &attr, NULL,
                                    (uint32_t[]){ qkv[0], qkv[1], qkv[2], segments }, 4));
    return linear(m, "attention.w_o", reshape(m, y, DIMS(HEADS * SIZE)), WIDTH);
}

static uint32_t expert(Model *m, uint32_t rows) {
    enum { HIDDEN = 12 };
    uint32_t both = linear(m, "ffn.w_in", rows, 2 * HIDDEN);
    uint32_t gate = made(m, model_slice(m, both, 0, 0, HIDDEN)),
             up = made(m, model_slice(m, both, 0, HIDDEN, HIDDEN));
    uint32_t h =
        model_op2(m, OP_MUL, model_op2(m, OP_MUL, gate, model_op1(m, OP_SIGMOID, gate)), up);
    return linear(m, "ffn.w_out", h, WIDTH);
}

// Top 2 of 4 experts, a balance loss over the microbatch, and a correction that the load updates.
static uint32_t moe(Model *m, uint32_t x) {
    enum { EXPERTS = 4, TOP_K = 2 };
    uint32_t score = model_op1(m, OP_SIGMOID, linear(m, "router.w", x, EXPERTS));
    uint32_t bias = model_param(m, model_intern(m, "router.correction"), true, DIMS(EXPERTS), 0);
    Attr k = { 0 };
    k.k = TOP_K;
    uint32_t corrected = model_op2(m, OP_ADD, score, bias);
    uint32_t ids = made(m, model_node(m, OP_TOP_K, &k, NULL, &corrected, 1));
    uint32_t weights = made(m, model_op2(m, OP_GATHER, score, ids));
    Attr attr = { 0 };
    attr.route.experts = EXPERTS;
    uint32_t route = made(m, model_node(m, OP_ROUTE, &attr, NULL, &ids, 1));
    Type wide = *model_type(m, x);
    wide.rank = 2;
    wide.dim[1] = wide.dim[0];
    wide.dim[0] = TOP_K;
    uint32_t rows =
        made(m, model_op2(m, OP_DISPATCH, made(m, model_broadcast(m, x, &wide)), route));
    uint32_t back = made(m, model_op2(m, OP_COLLECT, expert(m, rows), route));
    uint32_t weighted = model_op2(m, OP_MUL, back, reshape(m, weights, DIMS(TOP_K, 1)));
    Attr hot = { 0 };
    hot.k = EXPERTS;
    uint32_t chosen = made(m, model_node(m, OP_ONE_HOT, &hot, NULL, &ids, 1));
    uint32_t load =
        model_row_sum(m, reshape(m, model_sum(m, chosen, 1), DIMS(EXPERTS)), SET_MICROBATCH);
    uint32_t mean = model_row_sum(m, score, SET_MICROBATCH);
    add_loss(m, "router.balance",
             reshape(m, model_sum(m, model_op2(m, OP_MUL, load, mean), 1), NULL, 0), 0.01);
    uint32_t total = made(m, model_op1(m, OP_TOTAL, load));
    uint32_t next = model_op2(
        m, OP_SUB, bias,
        model_op2(m, OP_MUL, model_op1(m, OP_SIGN, total), model_const(m, 0.01, KIND_REAL)));
    *ARENA_PUSH(m->arena, m->updates, m->n_updates, m->cap_updates) =
        (Update){ .state = bias, .total = total, .next = next };
    return reshape(m, made(m, model_sum(m, weighted, 1)), DIMS(WIDTH));
}

Model *moe_model(void) {
    Model *m = start("moe");
    uint32_t table, x = embedded(m, &table);
    x = made(m, model_op2(m, OP_ADD, x, attention(m, rms_norm(m, "attention.gain", x))));
    x = made(m, model_op2(m, OP_ADD, x, moe(m, rms_norm(m, "ffn.gain", x))));
    uint32_t turned = made(m, model_op1(m, OP_TRANSPOSE, table));
    cross_entropy(m, matmul(m, rms_norm(m, "head.gain", x), turned));
    return m;
}

/* Random models -------------------------------------------------------------------------------- */

typedef struct Random {
    Model *m;
    uint64_t seed, drawn;
    uint32_t values[64];
    int n;
    uint32_t route;
    int params;
} Random;

static uint32_t draw(Random *r, uint32_t n) {
    return (uint32_t)(hash_uniform(r->seed, 7, r->drawn++) * (float)n);
}

static uint32_t pick(Random *r) {
    return r->values[draw(r, (uint32_t)r->n)];
}

static const char *next_name(Random *r) {
    return arena_printf(r->m->arena, "p%d", r->params++);
}

// Copies to experts and back through a shared route, with something on the way.
static uint32_t random_trip(Random *r, uint32_t x) {
    Model *m = r->m;
    Type wide = *model_type(m, x);
    wide.rank = 2;
    wide.dim[1] = wide.dim[0];
    wide.dim[0] = model_top_k(m, &(Type){ .row = ROW_R, .route = r->route });
    uint32_t rows =
        made(m, model_op2(m, OP_DISPATCH, made(m, model_broadcast(m, x, &wide)), r->route));
    if (draw(r, 2)) rows = linear(m, next_name(r), rows, WIDTH);
    if (draw(r, 2))
        rows = model_op2(m, OP_ADD, rows, param_named(m, next_name(r), DIMS(WIDTH), r->route));
    if (draw(r, 2)) rows = model_op1(m, OP_TANH, rows);
    if (draw(r, 2)) { // the sum over its expert's rows
        Type type = *model_type(m, rows);
        rows = model_op2(m, OP_ADD, rows,
                         made(m, model_broadcast(m, model_row_sum(m, rows, SET_EXPERT), &type)));
    }
    uint32_t back = made(m, model_op2(m, OP_COLLECT, rows, r->route));
    return reshape(m, model_sum(m, back, 1), DIMS(WIDTH));
}

// A [T, WIDTH] value from others.
static uint32_t random_value(Random *r) {
    Model *m = r->m;
    uint32_t x = pick(r), y = pick(r);
    switch (draw(r, 10)) {
    case 0: return model_op2(m, OP_ADD, x, y);
    case 1: return model_op2(m, OP_MUL, x, y);
    case 2: return model_op1(m, OP_TANH, x);
    case 3: return linear(m, next_name(r), x, WIDTH);
    case 4: return rms_norm(m, next_name(r), x);
    case 5: {
        Attr attr = { 0 };
        attr.k = 1 + (int32_t)draw(r, 2);
        uint32_t segments = model_generator(m, OP_SEGMENTS, 0, NULL, 0);
        return model_node(m, OP_SHIFT, &attr, NULL, (uint32_t[]){ x, segments }, 2);
    }
    case 6: return random_trip(r, x);
    case 7: { // the rowless mean, spread over the tokens again
        uint32_t mean = model_row_sum(
            m, model_op2(m, OP_MUL, x, model_generator(m, OP_VALID, 0, NULL, 0)), SET_MICROBATCH);
        return model_op2(m, OP_ADD, y, model_op1(m, OP_TANH, mean));
    }
    case 8: { // the sum over its sequence
        Type type = *model_type(m, x);
        return model_op2(m, OP_ADD, y,
                         made(m, model_broadcast(m, model_row_sum(m, x, SET_SEQUENCE), &type)));
    }
    default: { // cut and joined the other way round
        uint32_t parts[] = { model_slice(m, x, 0, WIDTH / 2, WIDTH / 2),
                             model_slice(m, y, 0, 0, WIDTH / 2) };
        return model_node(m, OP_CONCAT, &(Attr){ .raw = { 0 } }, NULL, parts, 2);
    }
    }
}

Model *random_model(uint64_t seed) {
    Random r = { .m = start("random"), .seed = seed };
    Model *m = r.m;
    uint32_t table;
    r.values[r.n++] = embedded(m, &table);
    uint32_t score = linear(m, next_name(&r), r.values[0], 4);
    Attr k = { 0 };
    k.k = 1 + (int32_t)draw(&r, 3);
    uint32_t ids = made(m, model_node(m, OP_TOP_K, &k, NULL, &score, 1));
    Attr attr = { 0 };
    attr.route.experts = 4;
    r.route = made(m, model_node(m, OP_ROUTE, &attr, NULL, &ids, 1));
    int n = 3 + (int)draw(&r, 20);
    for (int i = 0; i < n; i++) {
        uint32_t value = made(m, random_value(&r));
        r.values[r.n++] = value;
        if (draw(&r, 6) == 0)
            add_loss(m, arena_printf(m->arena, "extra%d", i),
                     made(m, reshape(m, model_sum(m, value, 1), NULL, 0)), 0.1);
    }
    // Everything reaches the loss, so that every parameter has a gradient.
    uint32_t x = r.values[0];
    for (int i = 1; i < r.n; i++) x = model_op2(m, OP_ADD, x, r.values[i]);
    add_loss(m, "scores", reshape(m, model_sum(m, score, 1), NULL, 0), 0.5);
    cross_entropy(m, linear(m, "head.w", x, VOCAB));
    return m;
}

/* Passes --------------------------------------------------------------------------------------- */

void lab_start(Lab *lab, Model *m, Program program, bool no_fusion) {
    lab_start_with(lab, m, program, (LowerOptions){ .no_fusion = no_fusion });
}

void lab_start_with(Lab *lab, Model *m, Program program, LowerOptions options) {
    options.microbatch = options.microbatches = 2;
    *lab = (Lab){ .options = options };
    lab->plan = plan_create();
    lab->plan->microbatches = 2;
    lab->layout = layout_single();
    lab->l = (Lower){ .from = m,
                      .layout = &lab->layout,
                      .options = &lab->options,
                      .plan = lab->plan,
                      .arena = arena_create(),
                      .shared = &lab->shared,
                      .chunks = 1,
                      .tokens = 2 * m->sequence,
                      .sequences = 2 };
    Lower *l = &lab->l;
    assert_true(emit_params(l));
    bool (*const passes[])(Lower *) = { pass_precision, pass_loss,  pass_recompute, pass_fuse,
                                        pass_describe,  pass_chunk, pass_schedule,  pass_place };
    static const char letters[] = "plrfdcsa";
    if (!lower_start(l, program)) fail_msg("%s", m->diag.message);
    for (int i = 0; i < COUNT_OF(passes); i++) {
        if (!passes[i](l) || !lower_verify(l, letters[i]))
            fail_msg("pass %c: %s", letters[i], m->diag.message);
    }
}

void lab_end(Lab *lab) {
    model_destroy(lab->l.m);
    arena_destroy(lab->l.arena);
    plan_destroy(lab->plan);
}
