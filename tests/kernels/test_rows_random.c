// SPDX-License-Identifier: Apache-2.0
// Row programs of random groups: whatever fusion may put together, in shapes nobody thought of.
#include "tests/kernels/rows_case.h"
#include "tests/kernels/rows_graph.h"

#include <stdio.h>

enum { POOL = 64, N_DRAWN = 24 };

typedef struct Maker {
    Model *m;
    uint64_t seed, drawn;
    uint32_t pool[POOL];
    int n;
    uint32_t route; // 0: tokens
} Maker;

static uint32_t draw(Maker *k, uint32_t below) {
    return (uint32_t)(hash_mix(k->seed, 9, k->drawn++) % below);
}

static void keep(Maker *k, uint32_t x) {
    if (x && k->n < POOL) k->pool[k->n++] = x;
}

static uint32_t any(Maker *k) {
    return k->pool[draw(k, (uint32_t)k->n)];
}

static uint32_t fresh(Maker *k, Dims d) {
    return k->route ? g_rows(k->m, k->route, d) : g_tokens(k->m, d);
}

static Dims random_dims(Maker *k) {
    static const int32_t sizes[] = { 1, 2, 3, 5, 16, 17, 20, 31 };
    Dims d = { .rank = (int)draw(k, 3) };
    int64_t n = 1;
    for (int i = 0; i < d.rank; i++) {
        d.at[i] = sizes[draw(k, COUNT_OF(sizes))];
        n *= d.at[i];
    }
    if (n > 700) d.rank = 1;
    return d;
}

static uint32_t unary(Maker *k, uint32_t x) {
    static const Op ops[] = { OP_NEG, OP_SIGMOID, OP_TANH, OP_ERF, OP_ABS, OP_STOP_GRADIENT };
    switch (draw(k, 3)) {
    case 0: return model_op1(k->m, OP_TANH, model_op1(k->m, OP_EXP, model_op1(k->m, OP_TANH, x)));
    case 1: return g_mul(k->m, x, g_number(k->m, 0.5 + draw(k, 4)));
    default: return model_op1(k->m, ops[draw(k, COUNT_OF(ops))], x);
    }
}

static uint32_t view(Maker *k, uint32_t x) {
    const Type t = *model_type(k->m, x);
    int axis = t.rank ? (int)draw(k, t.rank) : 0;
    switch (draw(k, 5)) {
    case 0: return t.rank > 1 ? model_op1(k->m, OP_TRANSPOSE, x) : 0;
    case 1: {
        int32_t flat = (int32_t)type_features(&t);
        return model_reshape(k->m, x, &flat, 1);
    }
    case 2: {
        if (!t.rank) return 0;
        int32_t at = (int32_t)draw(k, (uint32_t)t.dim[axis]);
        return model_slice(k->m, x, axis, at, 1 + (int32_t)draw(k, (uint32_t)(t.dim[axis] - at)));
    }
    case 3: {
        Dims d = { .rank = t.rank + 1, .at = { 2 } };
        if (t.rank > 2 || type_features(&t) > 200) return 0;
        for (int i = 0; i < t.rank; i++) d.at[i + 1] = t.dim[i];
        return g_broadcast(k->m, x, d, 0);
    }
    default: {
        Dims d = { .rank = 2, .at = { (int32_t)type_features(&t), 1 } };
        if (draw(k, 2)) d.at[1] = d.at[0], d.at[0] = 1;
        return g_reshape(k->m, x, d);
    }
    }
}

static uint32_t whole(Maker *k, uint32_t x) {
    const Type t = *model_type(k->m, x);
    if (!t.rank) return 0;
    int32_t n = t.dim[t.rank - 1];
    uint32_t exact =
        t.row && draw(k, 2) ? x : 0; // a choice among loaded numbers is the same in fp32
    switch (draw(k, 5)) {
    case 0: return g_pad(k->m, x, 0, (int32_t)draw(k, 3), t.dim[0] + 2);
    case 1: return g_concat(k->m, t.rank - 1, x, model_op1(k->m, OP_TANH, x));
    case 2: {
        uint32_t from = fresh(k, (Dims){ t.rank, { t.dim[0], t.dim[1], t.dim[2] } });
        uint32_t ids =
            g_k(k->m, OP_TOP_K, from, 0, 1 + (int32_t)draw(k, (uint32_t)(n < 4 ? n : 4)));
        uint32_t y = model_op2(k->m, OP_GATHER, x, ids);
        return exact ? g_k(k->m, OP_SCATTER, y, ids, n + 1) : y;
    }
    default: {
        Attr attr = { .raw = { 0, 0 } };
        attr.axes = 1 + draw(k, (1u << t.rank) - 1);
        uint32_t y = g_attr(k->m, draw(k, 4) ? OP_SUM : OP_AMAX, attr, x, 0, 0);
        return y ? model_op1(k->m, OP_TANH, y) : 0;
    }
    }
}

static uint32_t binary(Maker *k, uint32_t x, uint32_t y) {
    static const Op ops[] = { OP_ADD, OP_SUB, OP_MUL, OP_MIN, OP_MAX };
    if (!draw(k, 4))
        return g_div(k->m, x, g_add(k->m, model_op1(k->m, OP_ABS, y), g_number(k->m, 0.5)));
    return model_op1(k->m, OP_TANH, model_op2(k->m, ops[draw(k, COUNT_OF(ops))], x, y));
}

// About `ops` operations; roots are values along rows that nobody reads, and some that somebody
// does.
static void add_case(Rows *rows, uint64_t seed, int ops, bool routed) {
    Maker k = { .m = model_create(), .seed = seed };
    if (routed) k.route = g_route(k.m, 4, 2, seed % 2);
    uint32_t first = fresh(&k, random_dims(&k));
    keep(&k, first);
    keep(&k, fresh(&k, random_dims(&k)));
    keep(&k, g_param(k.m, random_dims(&k)));
    if (routed)
        keep(&k, g_expert(k.m, k.route, random_dims(&k)));
    else
        keep(&k, g_broadcast(k.m, g_sequences(k.m, DIMS(5)), DIMS(5), first));
    for (int i = 0; i < ops; i++) {
        uint32_t x = any(&k), made = 0;
        switch (draw(&k, 4)) {
        case 0: made = unary(&k, x); break;
        case 1: made = view(&k, x); break;
        case 2: made = whole(&k, x); break;
        default: made = binary(&k, x, any(&k)); break; // 0 where the shapes do not fit
        }
        if (made && type_features(model_type(k.m, made)) <= 1500) keep(&k, made);
    }
    uint32_t roots[6];
    int n = 0;
    uint8_t row = routed ? ROW_R : ROW_T;
    for (int i = k.n; i-- > 0 && n < COUNT_OF(roots);) {
        bool here =
            model_type(k.m, k.pool[i])->row == row && model_type(k.m, k.pool[i])->kind == KIND_REAL;
        bool again = false;
        for (int j = 0; j < n; j++) again |= roots[j] == k.pool[i];
        if (here && !again && (n < 2 || draw(&k, 2))) roots[n++] = k.pool[i];
    }
    if (seed % 5 == 0 && n) { // as partial sums
        for (int i = 0; i < n; i++) roots[i] = model_row_sum(k.m, roots[i], SET_ALL);
    }
    char *name = arena_printf(k.m->arena, "random group %llu%s", (unsigned long long)seed,
                              routed ? " of expert rows" : "");
    RowsHow how = {
        .tokens = 40 + (int32_t)(seed % 3) * 44, .sequence = 4, .bound = 3e-5, .add = seed % 7 == 3
    };
    rows_add(rows, name, k.m, roots, n, &how);
}

static void test_random(void **state) {
    (void)state;
    Rows rows;
    rows_open(&rows);
    for (uint64_t seed = 1; seed <= N_DRAWN; seed++)
        add_case(&rows, seed, 10 + (int)(seed % 20), seed % 3 == 2);
    rows_check(&rows);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_random) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
