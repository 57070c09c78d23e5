// SPDX-License-Identifier: Apache-2.0
// The verifier accepts sound graphs and trips on each broken invariant; sorting restores order.
#include "helper.h"

#include <stdio.h>

static uint32_t w, x, h, rows, gain;

// A parameter, a matmul, a route with rows, a record and an accumulate.
static Model *sound(void) {
    Model *m = model_create();
    x = TOKENS_OF(m, "x", 4);
    w = PARAM(m, "w", 4, 4);
    gain = PARAM(m, "gain", 3);
    h = matmul(m, OP_MATMUL, 1, 0, x, w);
    rows = rows_of_route(m, "r", route_of(m, 2, 8), 3);
    uint32_t value = model_row_sum(m, model_sum(m, h, 1), SET_ALL);
    uint32_t record = model_op1(m, OP_RECORD, model_reshape(m, value, NULL, 0));
    uint32_t gradient = matmul(m, OP_MATMUL_W, 1, 0, x, h);
    uint32_t accumulate = model_op2(m, OP_ACCUMULATE, w, gradient);
    *ARENA_PUSH(m->arena, m->records, m->n_records, m->cap_records) =
        (Record){ model_intern(m, "loss"), 1, 1 };
    *ARENA_PUSH(m->arena, m->effects, m->n_effects, m->cap_effects) = record;
    *ARENA_PUSH(m->arena, m->effects, m->n_effects, m->cap_effects) = accumulate;
    return m;
}

static void test_sound(void **state) {
    (void)state;
    Model *m = sound();
    bool ok = model_verify(m);
    if (!ok) print_message("%s\n", m->diag.message);
    assert_true(ok);
    model_destroy(m);
}

// Each case breaks one thing; the message must name it.
static void break_operand(Model *m) { m->args[m->nodes[h].args] = h; }
static void break_operand_zero(Model *m) { m->args[m->nodes[h].args] = 0; }
static void break_arity(Model *m) { m->nodes[h].n_args = 1; }
static void break_args(Model *m) { m->nodes[h].args = m->n_args; }
static void break_op(Model *m) { m->nodes[h].op = N_OPS; }
static void break_type(Model *m) { m->nodes[h].type.dim[0] = 5; }
static void break_kind(Model *m) { m->nodes[h].type.kind = KIND_INT; }
static void break_row(Model *m) { m->nodes[rows].type.route = 0; }
static void break_route(Model *m) { m->nodes[rows].type.route = x; }
static void break_stray_route(Model *m) { m->nodes[h].type.route = m->nodes[rows].type.route; }
static void break_shape(Model *m) { m->args[m->nodes[h].args + 1] = gain; }
static void break_unused(Model *m) { m->nodes[h].type.unused = 1; }
static void break_addr(Model *m) { m->nodes[h].addr = m->n_names; }
static void break_file(Model *m) { m->nodes[h].loc.file = 1; }
static void break_param(Model *m) { m->nodes[w].attr.index = 1; }
static void break_param_kind(Model *m) { m->params[0].is_state = true; }
static void break_twice(Model *m) { m->params[1].addr = m->params[0].addr; }
static void break_part(Model *m) { m->nodes[h].part = PART_BACKWARD; }
static void break_part_number(Model *m) { m->nodes[find_op(m, OP_ACCUMULATE)].part = 7; }
static void break_listed(Model *m) { m->n_effects--; }
static void break_listed_twice(Model *m) { m->effects[1] = m->effects[0]; }
static void break_effect(Model *m) { m->effects[0] = h; }
static void break_record(Model *m) { m->nodes[m->effects[0]].attr.index = 1; }
static void break_record_size(Model *m) { m->records[0].n = 2; }
static void break_accumulate(Model *m) {
    uint32_t again = model_op2(m, OP_ACCUMULATE, w, model_arg(m, m->effects[1], 1));
    *ARENA_PUSH(m->arena, m->effects, m->n_effects, m->cap_effects) = again;
}
static void break_target(Model *m) {
    m->args[m->nodes[m->effects[1]].args] = model_arg(m, m->effects[1], 1);
}

static void test_trips(void **state) {
    (void)state;
    static const struct {
        void (*spoil)(Model *m);
        const char *message;
    } cases[] = {
        { break_operand, "expected operand 1 to precede it" },
        { break_operand_zero, "expected operand 1 to precede it, got %0" },
        { break_arity, "expected 2 to 2 operands, got 1" },
        { break_args, "operands lie outside the table" },
        { break_op, "expected an operation, got number" },
        { break_type, "expected type real [T, 4], got real [T, 5]" },
        { break_kind, "expected type real [T, 4], got int [T, 4]" },
        { break_row, "expected rows of a route that precedes, got route %0" },
        { break_route, "expected rows of a route that precedes" },
        { break_stray_route, "expected no route" },
        { break_shape, "the operands do not fit: matmul" },
        { break_unused, "the type is malformed" },
        { break_addr, "expected an interned address" },
        { break_file, "expected a known file, got 1" },
        { break_param, "expected its row in the table of parameters" },
        { break_param_kind, "its row is of the other kind" },
        { break_twice, "the address 'w' is used twice" },
        { break_part, "operand 1 is computed in a later part" },
        { break_part_number, "expected a part, got 7" },
        { break_listed, "(accumulate): the effect is not listed" },
        { break_listed_twice, "the effect is listed twice" },
        { break_effect, "expected an effect at place 0" },
        { break_record, "expected one of 1 records, got 1" },
        { break_record_size, "expected 2 numbers, got 1" },
        { break_accumulate, "a second gradient for one parameter" },
        { break_target,
          "the operands do not fit: accumulate: expected the first operand to be a param" },
    };
    for (int i = 0; i < COUNT_OF(cases); i++) {
        Model *m = sound();
        cases[i].spoil(m);
        if (model_verify(m)) fail_msg("case %d (%s) was accepted", i, cases[i].message);
        if (!strstr(m->diag.message, cases[i].message)) {
            fail_msg("case %d: expected \"%s\", got \"%s\"", i, cases[i].message, m->diag.message);
        }
        model_destroy(m);
    }
}

// Swaps two independent nodes' places with their users: ids are then no longer topological.
static void test_sort(void **state) {
    (void)state;
    Model *m = sound();
    Text before = { 0 }, after = { 0 };
    model_sort(m);
    model_print(m, &before, false);
    model_sort(m); // sorted graphs stay as they are
    model_print(m, &after, false);
    assert_string_equal(text_cstr(&before), text_cstr(&after));
    text_finish(&after);

    uint32_t reader = find_op(m, OP_ROW_SUM), late = m->n_nodes;
    Node copy = m->nodes[model_arg(m, reader, 0)]; // a clone behind its reader
    *ARENA_PUSH(m->arena, m->nodes, m->n_nodes, m->cap_nodes) = copy;
    m->args[m->nodes[reader].args] = late;
    assert_false(model_verify(m));
    model_sort(m);
    bool ok = model_verify(m);
    if (!ok) print_message("%s\n", m->diag.message);
    assert_true(ok);
    assert_int_equal(m->nodes[m->params[0].node].op, OP_PARAM);
    assert_string_equal(model_name(m, m->nodes[m->params[0].node].addr), "w");
    // the table of nodes follows: an equal node is found, not made
    uint32_t n = m->n_nodes;
    matmul(m, OP_MATMUL, 1, 0, model_arg(m, find_op(m, OP_MATMUL), 0), m->params[0].node);
    assert_int_equal(m->n_nodes, n);
    text_finish(&before);
    model_destroy(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sound),
        cmocka_unit_test(test_trips),
        cmocka_unit_test(test_sort),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
