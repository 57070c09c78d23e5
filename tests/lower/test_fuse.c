// SPDX-License-Identifier: Apache-2.0
// Fusion, descriptions and order on hand-made and random graphs, against rules stated here again:
// kernels read only what an earlier kernel has stored, bodies are complete, effects happen once.
#include "tests/lower/helper.h"

#include <stdio.h>
#include <stdlib.h>

static OpClass class_of(const Model *m, uint32_t n) {
    return op_info[m->nodes[n].op].class;
}

static uint32_t through_views(const Model *m, uint32_t n) {
    while (class_of(m, n) == CLASS_VIEW) n = model_arg(m, n, 0);
    return n;
}

// What an indexed node may read at any row: views of it, as long as they lie along the same rows.
static uint32_t far_base(const Model *m, uint32_t n) {
    while (class_of(m, n) == CLASS_VIEW &&
           model_type(m, n)->row == model_type(m, model_arg(m, n, 0))->row)
        n = model_arg(m, n, 0);
    return n;
}

/* Bodies --------------------------------------------------------------------------------------- */

typedef struct Body {
    const Model *m;
    const RowBody *b;
    uint8_t *computed;
    uint32_t kernel;
} Body;

static bool is_loaded(const Body *body, RowWhat what, uint32_t node) {
    for (uint32_t i = 0; i < body->b->n_loads; i++) {
        if (body->b->loads[i].what == what &&
            (body->b->loads[i].node == node || !body->b->loads[i].node))
            return true;
    }
    return false;
}

static bool is_known(const Body *body, uint32_t n) {
    Op op = body->m->nodes[n].op;
    if (op == OP_CONST || op == OP_CONSTANT || body->computed[n]) return true;
    if (op == OP_INV_STEP) return is_loaded(body, WHAT_SCALARS, 0);
    return is_loaded(body, WHAT_VALUE, n) || is_loaded(body, WHAT_PARTIALS, n) ||
           is_loaded(body, WHAT_ACC, n);
}

static void check_known(const Body *body, uint32_t n, uint32_t reader) {
    if (!is_known(body, n))
        fail_msg("kernel %u: %s %%%u reads %s %%%u, neither loaded nor computed before",
                 body->kernel, op_info[body->m->nodes[reader].op].name, reader,
                 op_info[body->m->nodes[n].op].name, n);
}

// Can the row find the value by its type?
static bool fits_row(const Body *body, const Type *type) {
    const RowBody *b = body->b;
    if (type->row == ROW_NONE || (type->row == b->row && type->route == b->route)) return true;
    return (type->row == ROW_E && b->row == ROW_R && type->route == b->route) ||
           (type->row == ROW_S && b->row == ROW_T);
}

static void check_node(const Body *body, uint32_t n) {
    const Model *m = body->m;
    bool indexed = class_of(m, n) == CLASS_INDEX;
    Op op = m->nodes[n].op;
    assert_false(body->computed[n]);
    assert_true(class_of(m, n) != CLASS_EFFECT && class_of(m, n) != CLASS_CONTRACT &&
                class_of(m, n) != CLASS_SOURCE);
    for (int i = 0; i < m->nodes[n].n_args; i++) {
        uint32_t arg = model_arg(m, n, i);
        if (op == OP_DISPATCH && i == 1)
            assert_true(is_loaded(body, WHAT_SLOT_OF_ROW, arg));
        else if (op == OP_COLLECT && i == 1)
            assert_true(is_loaded(body, WHAT_ROW_OF_SLOT, arg));
        else if (indexed && i == 0) {
            uint32_t base = far_base(m, arg);
            assert_true(is_loaded(body, WHAT_VALUE, base) && !body->computed[base]);
        } else
            check_known(body, arg, n);
    }
}

// What an indexed node reads at any row may not be read at the row itself.
static void check_indexed_apart(const Body *body) {
    const Model *m = body->m;
    for (uint32_t i = 0; i < body->b->n_nodes; i++) {
        uint32_t index = body->b->nodes[i];
        if (class_of(m, index) != CLASS_INDEX) continue;
        uint32_t base = far_base(m, model_arg(m, index, 0));
        for (uint32_t j = 0; j < body->b->n_nodes; j++) {
            uint32_t n = body->b->nodes[j];
            if (class_of(m, n) == CLASS_VIEW) continue;
            for (int k = class_of(m, n) == CLASS_INDEX; k < m->nodes[n].n_args; k++) {
                if (through_views(m, model_arg(m, n, k)) != base) continue;
                fail_msg("kernel %u reads %%%u at any row and at its own", body->kernel, base);
            }
        }
    }
}

static void check_loads(const Body *body) {
    const Model *m = body->m;
    for (uint32_t i = 0; i < body->b->n_loads; i++) {
        const RowLoad *load = &body->b->loads[i];
        for (uint32_t j = 0; j < i; j++)
            assert_false(body->b->loads[j].what == load->what &&
                         body->b->loads[j].node == load->node);
        if (load->what == WHAT_PARTIALS)
            assert_true(body->b->row == ROW_NONE && load->partials > 0);
        if (load->what != WHAT_VALUE || fits_row(body, model_type(m, load->node))) continue;
        bool used = false; // only by an index
        for (uint32_t j = 0; j < body->b->n_nodes; j++) {
            uint32_t n = body->b->nodes[j];
            used |= class_of(m, n) == CLASS_INDEX && far_base(m, model_arg(m, n, 0)) == load->node;
        }
        assert_true(used);
    }
    if (body->b->row == ROW_R) assert_true(is_loaded(body, WHAT_OFFSETS, body->b->route));
}

static void check_body(const Lower *l, uint32_t kernel, const RowBody *b,
                       uint32_t *times_computed) {
    Body body = { l->m, b, calloc(l->m->n_nodes, 1), kernel };
    check_loads(&body);
    for (uint32_t i = 0; i < b->n_nodes; i++) {
        check_node(&body, b->nodes[i]);
        body.computed[b->nodes[i]] = 1;
        times_computed[b->nodes[i]]++;
    }
    for (uint32_t i = 0; i < b->n_stores; i++) {
        uint32_t n = b->stores[i].node;
        check_known(&body, b->stores[i].partial ? model_arg(l->m, n, 0) : n, n);
        const Type *type = model_type(l->m, b->stores[i].partial ? model_arg(l->m, n, 0) : n);
        assert_int_equal(type->row, b->row);
        assert_int_equal(type->route, b->route);
    }
    check_indexed_apart(&body);
    free(body.computed);
}

/* Programs ------------------------------------------------------------------------------------- */

static void check_flow(const Lower *l) {
    uint8_t *made = calloc(l->n_buffers, 1);
    for (uint32_t t = 0; t < l->n_kernels; t++) {
        const Kernel *kernel = &l->kernels[l->order[t]];
        for (uint32_t i = 0; i < kernel->n_binds; i++) {
            const Buffer *buffer = &l->buffers[kernel->binds[i].buffer];
            if (kernel->binds[i].mode != OPERAND_READ || buffer->region != REGION_act) continue;
            if (!made[kernel->binds[i].buffer])
                fail_msg("instruction %u reads %%%u before it is made", t, buffer->node);
            assert_in_range(t, buffer->first, buffer->last);
        }
        for (uint32_t i = 0; i < kernel->n_binds; i++) {
            uint32_t b = kernel->binds[i].buffer;
            if (kernel->binds[i].mode == OPERAND_READ || l->buffers[b].region != REGION_act)
                continue;
            assert_false(made[b]);
            made[b] = 1;
        }
    }
    free(made);
}

static int writes_to(const Lower *l, uint32_t buffer, OperandMode mode) {
    int n = 0;
    for (uint32_t k = 0; k < l->n_kernels; k++) {
        for (uint32_t i = 0; i < l->kernels[k].n_binds; i++)
            n += l->kernels[k].binds[i].buffer == buffer && l->kernels[k].binds[i].mode == mode;
    }
    return n;
}

static void check_effects(const Lower *l) {
    const Model *m = l->m;
    for (uint32_t i = 0; i < m->n_effects; i++) {
        uint32_t n = m->effects[i], found = 0;
        Op op = m->nodes[n].op;
        OperandMode mode = op == OP_UPDATE || op == OP_OUTPUT ? OPERAND_WRITE : OPERAND_ADD;
        if (op == OP_ACCUMULATE)
            found = lower_find_buffer(l, BUFFER_GRADIENT, model_arg(m, n, 0), 0);
        else if (op == OP_RECORD)
            found = lower_find_buffer(l, BUFFER_METRIC, 0, (int32_t)m->nodes[n].attr.index);
        else if (op == OP_UPDATE)
            found = lower_find_buffer(l, BUFFER_PARAM, model_arg(m, n, 0), 0);
        else if (l->info[n].absorbed)
            found = lower_find_buffer(l, BUFFER_VALUE, lower_plain(l, model_arg(m, n, 0)), 0);
        else
            found = lower_find_buffer(l, BUFFER_OUTPUT, n, 0);
        assert_int_not_equal(found, 0);
        int times = 0; // a parameter used in several places gets several additions
        for (uint32_t k = 0; k < m->n_effects; k++)
            times += op == OP_ACCUMULATE ? m->nodes[m->effects[k]].op == op &&
                                               model_arg(m, m->effects[k], 0) == model_arg(m, n, 0)
                                         : k == i;
        assert_int_equal(writes_to(l, found - 1, mode), times);
    }
}

// Kernels and times in one line, for the eye.
static void check_program(Model *m, Program program, bool no_fusion, uint32_t *n_kernels) {
    Lab lab;
    lab_start(&lab, m, program, no_fusion);
    const Lower *l = &lab.l;
    uint32_t *times = calloc(l->m->n_nodes, sizeof *times);
    for (uint32_t k = 0; k < l->n_kernels; k++) {
        const KernelDesc *desc = &l->kernels[k].desc;
        if (desc->pre.n_stores) check_body(l, k, &desc->pre, times);
        if (!desc->body.n_stores) continue;
        check_body(l, k, &desc->body, times);
        // One operation per kernel: views apart.
        uint32_t n = 0;
        const RowBody *b = &l->kernels[k].desc.body;
        for (uint32_t i = 0; i < b->n_nodes; i++) n += class_of(l->m, b->nodes[i]) != CLASS_VIEW;
        if (no_fusion && n > 1) fail_msg("kernel %u has %u operations without fusion", k, n);
    }
    for (uint32_t n = 1; n < l->m->n_nodes; n++) {
        OpClass class = class_of(l->m, n);
        bool cheap = class == CLASS_VIEW || class == CLASS_GENERATOR ||
                     l->info[n].role == ROLE_INLINE ||
                     l->info[n].gathered; // by each product that reads it
        if (!cheap && times[n] > 1) fail_msg("%%%u is computed %u times", n, times[n]);
        if (l->info[n].role != ROLE_ROW || class == CLASS_PARTIAL) continue;
        if (l->info[n].gathered)
            assert_in_range(times[n], 1, 8);
        else
            assert_int_equal(times[n], 1);
    }
    check_flow(l);
    check_effects(l);
    *n_kernels = l->n_kernels;
    free(times);
    lab_end(&lab);
}

static void check_model(Model *m, uint32_t *fused, uint32_t *alone) {
    for (int program = N_PROGRAMS - 1; program >= 0; program--) {
        check_program(m, (Program)program, true, alone);
        check_program(m, (Program)program, false, fused);
        assert_true(*fused <= *alone);
    }
}

static void hand_made(void **state) {
    (void)state;
    Model *(*const models[])(void) = { plain_model, moe_model };
    for (int i = 0; i < COUNT_OF(models); i++) {
        Model *m = models[i]();
        uint32_t fused, alone;
        check_model(m, &fused, &alone);
        printf("%s: %u kernels of a step, %u without fusion\n", m->name, fused, alone);
        model_destroy(m);
    }
}

static void random_graphs(void **state) {
    (void)state;
    uint32_t sum_fused = 0, sum_alone = 0;
    enum { GRAPHS = 150 };
    for (uint64_t seed = 1; seed <= GRAPHS; seed++) {
        Model *m = random_model(seed);
        uint32_t fused, alone;
        check_model(m, &fused, &alone);
        sum_fused += fused;
        sum_alone += alone;
        model_destroy(m);
    }
    printf("%d random graphs: %u kernels, %u without fusion\n", GRAPHS, sum_fused, sum_alone);
    assert_true(sum_fused * 2 < sum_alone);
}

// The groups of the hand-made MoE step, as a person has looked at them: a change here is meant or a
// bug.
static void groups_of_a_moe_layer(void **state) {
    (void)state;
    Model *m = moe_model();
    Lab lab;
    lab_start(&lab, m, PROGRAM_STEP, false);
    Text text = { 0 };
    dump_fuse(&lab.l, &text);
    char *expected;
    size_t bytes;
    assert_int_equal(
        file_read(MOEC_SOURCE_DIR "/tests/lower/moe_step.txt", lab.l.arena, &expected, &bytes), OK);
    bool equal = !strcmp(text_cstr(&text), expected);
    if (!equal) fprintf(stderr, "tests/lower/moe_step.txt should be\n%s", text_cstr(&text));
    assert_true(equal);
    text_finish(&text);
    lab_end(&lab);
    model_destroy(m);
}

/* Particular decisions ------------------------------------------------------------------------- */

static uint32_t count_family(const Lower *l, Family family, bool accumulate) {
    uint32_t n = 0;
    for (uint32_t k = 0; k < l->n_kernels; k++)
        n += l->kernels[k].desc.family == family && l->kernels[k].desc.accumulate == accumulate;
    return n;
}

static void gradients_are_added_in_place(void **state) {
    (void)state;
    Model *m = moe_model();
    Lab lab;
    lab_start(&lab, m, PROGRAM_STEP, false);
    // q, k, v, o, router, two of the experts; and both gradients of the tied table.
    assert_int_equal(count_family(&lab.l, FAMILY_MATMUL_W, true), 8);
    assert_int_equal(count_family(&lab.l, FAMILY_MATMUL_W, false), 0);
    assert_int_equal(count_family(&lab.l, FAMILY_EMBED_W, true), 1);
    assert_int_equal(count_family(&lab.l, FAMILY_ATTEND_GRAD, false), 1);
    lab_end(&lab);
    model_destroy(m);
    m = plain_model();
    lab_start(&lab, m, PROGRAM_STEP, false);
    assert_int_equal(count_family(&lab.l, FAMILY_EMBED_W, true), 1);
    lab_end(&lab);
    model_destroy(m);
}

static void states_are_written_last(void **state) {
    (void)state;
    Model *m = moe_model();
    Lab lab;
    lab_start(&lab, m, PROGRAM_STEP, false);
    const Lower *l = &lab.l;
    uint32_t t = l->n_kernels - 1;
    while (l->kernels[l->order[t]].desc.family == FAMILY_PACK) t--; // copies of what is new by then
    assert_int_equal(l->n_kernels - 1 - t, l->shared->n_packs);
    const Kernel *last = &l->kernels[l->order[t]];
    assert_int_equal(l->m->nodes[last->node].op, OP_UPDATE);
    for (uint32_t i = 0; i < last->n_binds; i++) {
        const Buffer *buffer = &l->buffers[last->binds[i].buffer];
        if (last->binds[i].mode == OPERAND_READ)
            assert_int_equal(buffer->region, REGION_act);
        else
            assert_int_equal(buffer->region, REGION_weights);
    }
    lab_end(&lab);
    model_destroy(m);
}

// Losses of two layers meet in nothing but their seeds: their kernels stay apart.
static void a_seed_joins_nothing(void **state) {
    (void)state;
    Model *m = plain_model();
    for (int i = 0; i < 2; i++) {
        uint32_t in = model_arg(m, m->logits, 0);
        uint32_t x = linear(m, i ? "a.w" : "b.w", i ? model_op1(m, OP_TANH, in) : in, 4);
        uint32_t square = model_sum(m, model_op2(m, OP_MUL, x, x), 1);
        add_loss(m, i ? "a.z" : "b.z", model_reshape(m, square, NULL, 0), 1e-3);
    }
    Lab lab;
    lab_start(&lab, m, PROGRAM_STEP, false);
    const Lower *l = &lab.l;
    for (uint32_t k = 0; k < l->n_kernels; k++) {
        const RowBody *b = &l->kernels[k].desc.body;
        if (!b->n_stores) continue;
        uint32_t wide = 0; // the two [T, 4] products
        for (uint32_t i = 0; i < b->n_loads; i++) {
            const Type *type = model_type(l->m, b->loads[i].node);
            bool value = b->loads[i].what == WHAT_VALUE || b->loads[i].what == WHAT_ACC;
            wide += value && type->rank == 1 && type->dim[0] == 4;
        }
        assert_in_range(wide, 0, 1);
    }
    lab_end(&lab);
    model_destroy(m);
}

// Equal graphs give equal kernels, whatever else was traced before.
static void equal_work_is_one_kernel(void **state) {
    (void)state;
    Model *m = plain_model();
    uint32_t x = model_arg(m, m->logits, 0);
    for (int i = 0; i < 3; i++) {
        char name[2][16];
        snprintf(name[0], sizeof name[0], "l%d.gain", i);
        snprintf(name[1], sizeof name[1], "l%d.w", i);
        x = linear(m, name[1], model_op1(m, OP_TANH, rms_norm(m, name[0], x)), WIDTH);
    }
    add_loss(m, "square", model_reshape(m, model_sum(m, model_op2(m, OP_MUL, x, x), 1), NULL, 0),
             1);
    Lab lab;
    lab_start(&lab, m, PROGRAM_STEP, false);
    const Lower *l = &lab.l;
    Text texts[8] = { 0 };
    int n = 0, equal = 0;
    for (uint32_t k = 0; k < l->n_kernels && n < COUNT_OF(texts); k++) {
        if (l->kernels[k].segment != SEGMENT_FORWARD) continue;
        kernel_describe(&l->kernels[k].desc, &texts[n]);
        if (!strstr(text_cstr(&texts[n]), "tanh")) {
            text_finish(&texts[n]);
            continue;
        }
        for (int i = 0; i < n; i++) equal += !strcmp(text_cstr(&texts[i]), text_cstr(&texts[n]));
        n++;
    }
    // The first layer's norm shares a kernel with the embedding, those of the others are posts of
    // the products before them.
    assert_int_equal(n, 3);
    assert_int_equal(equal, 1);
    for (int i = 0; i < n; i++) text_finish(&texts[i]);
    lab_end(&lab);
    model_destroy(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hand_made),
        cmocka_unit_test(random_graphs),
        cmocka_unit_test(groups_of_a_moe_layer),
        cmocka_unit_test(gradients_are_added_in_place),
        cmocka_unit_test(states_are_written_last),
        cmocka_unit_test(a_seed_joins_nothing),
        cmocka_unit_test(equal_work_is_one_kernel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
