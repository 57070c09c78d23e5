// SPDX-License-Identifier: Apache-2.0
// What lowering chooses changes speed and memory, not results: losses in pieces of the rows, values
// computed again, precision.
//
// Bounds (pair.h says of what). fp32: 200 u = 1.2e-5, u = 2^-24, as in test_lowered.c. bf16: every
// operand of a contraction and every wide value between kernels is rounded to u = 2^-9, some 40 of
// them one after the other from the embedding to the loss and back, 40 u = 0.08. Models here choose
// no expert by scores, or choose all: a choice that rounding changes is an error without a bound.
#include "tests/oracle/pair.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static const double FP32_BOUND = 1.2e-5, BF16_BOUND = 0.08;

typedef struct Trial {
    Model *m;
    Step microbatches;
    Interp *values;
    Pair pair;
} Trial;

static Trial start_trial(const Spec *spec, How how) {
    Trial t = { .m = spec_model(spec) };
    assert_non_null(t.m);
    if (how.piece) how.piece *= t.m->vocab;
    t.microbatches = step_make(23, t.m, spec->sequences, spec->batches);
    t.values = interp_create(t.m);
    interp_fill(t.values, 5, spec->std);
    t.pair = pair_start(t.m, &t.microbatches, t.values, spec->sequences, how, 2);
    return t;
}

static void finish(Trial *t) {
    pair_end(&t->pair);
    interp_destroy(t->values);
    step_free(&t->microbatches);
    model_destroy(t->m);
}

static void within(Trial *t, const Spec *spec, const char *what, double bound) {
    pair_compare(&t->pair, NULL, bound);
    printf("%s, %s: %u kernels, act %lld bytes, worst error %.2g of the bound at %s\n",
           spec_title(spec), what, t->pair.plan->n_kernels, (long long)t->pair.program->act_bytes,
           t->pair.worst, t->pair.where);
    if (t->pair.worst > 1) fail_msg("%s, %s: %s", spec_title(spec), what, t->pair.where);
}

static Hash bits_of(const Trial *t) {
    return machine_results(t->pair.exec, t->pair.plan);
}

static bool has_whole(const PlanProgram *program, int64_t rows, int64_t columns) {
    for (uint32_t b = 0; b < program->n_buffers; b++) {
        const PlanBuffer *buffer = &program->buffers[b];
        if (buffer->region == REGION_act && buffer->n_dims == 2 && buffer->dims[0] == rows &&
            buffer->dims[1] == columns)
            return true;
    }
    return false;
}

// 256 tokens in pieces of 64 rows.
static void losses_in_pieces(void **state) {
    (void)state;
    static const struct {
        Spec spec;
        uint32_t repeats;
    } chosen[] = {
        { { "olmo.lua", 32, 8, 2, 0.3 }, 1 },
        { { "gpt_oss.lua", 32, 8, 2, 0.4 }, 1 },  // a tied table
        { { "deepseek.lua", 32, 8, 1, 0.4 }, 3 }, // predictions further ahead share the head
    };
    for (int i = 0; i < COUNT_OF(chosen); i++) {
        Trial t = start_trial(&chosen[i].spec, (How){ .piece = 64 });
        const PlanProgram *program = t.pair.program;
        assert_int_equal(program->n_repeats, chosen[i].repeats);
        for (uint32_t r = 0; r < program->n_repeats; r++) {
            assert_int_equal(program->repeats[r].trip, 4);
            assert_int_equal(program->repeats[r].n, 3);
        }
        assert_false(has_whole(program, t.pair.plan->tokens, t.pair.plan->vocab));
        within(&t, &chosen[i].spec, "loss in pieces", FP32_BOUND);
        Exec *exec = machine_exec(t.pair.plan, 3, false); // on one more thread
        machine_load(exec, t.pair.plan, t.values);
        machine_step(exec, t.pair.plan, &t.microbatches);
        assert_true(hash_equal(bits_of(&t), machine_results(exec, t.pair.plan)));
        exec_destroy(exec);
        finish(&t);
    }
}

// There the product and its loss are two kernels.
static void losses_in_pieces_on_a_gpu(void **state) {
    (void)state;
    static const struct {
        Spec spec;
        uint32_t repeats;
    } chosen[] = {
        { { "olmo.lua", 32, 8, 2, 0.3 }, 1 },
        { { "gpt_oss.lua", 32, 8, 1, 0.4 }, 1 },
        { { "deepseek.lua", 32, 8, 1, 0.4 }, 3 },
    };
    if (!machine_has_gpu("sm_80")) skip();
    for (int i = 0; i < COUNT_OF(chosen); i++) {
        Trial t = start_trial(&chosen[i].spec, (How){ .piece = 64, .gpu = "sm_80" });
        const PlanProgram *program = t.pair.program;
        assert_int_equal(program->n_repeats, chosen[i].repeats);
        for (uint32_t r = 0; r < program->n_repeats; r++) {
            assert_int_equal(program->repeats[r].trip, 4);
            assert_int_equal(program->repeats[r].n, 4);
        }
        assert_false(has_whole(program, t.pair.plan->tokens, t.pair.plan->vocab));
        within(&t, &chosen[i].spec, "loss in pieces on a GPU", FP32_BOUND);
        finish(&t);
    }
}

// Sums over short rows may be taken in another order, so bits may differ.
static void computing_again_saves_memory(void **state) {
    (void)state;
    const Spec *chosen[] = { &specs[2], &specs[5], &specs[7] };
    for (int i = 0; i < COUNT_OF(chosen); i++) {
        Trial saved = start_trial(chosen[i], (How){ .recompute = RECOMPUTE_NONE });
        Trial again = start_trial(chosen[i], (How){ .recompute = RECOMPUTE_CHEAP });
        within(&saved, chosen[i], "everything saved", FP32_BOUND);
        within(&again, chosen[i], "computed again", FP32_BOUND);
        assert_true(again.pair.program->act_bytes < saved.pair.program->act_bytes);
        finish(&saved);
        finish(&again);
    }
}

// The gradients of `again` are those of `saved` within the bound.
static void near(const Trial *saved, const Trial *again, double bound) {
    const Plan *plan = saved->pair.plan;
    double most = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < plan->n_params; i++) {
            if (plan->params[i].is_state) continue;
            int64_t n = plan_param_n(&plan->params[i]);
            double *x = machine_gradient(saved->pair.exec, plan, i);
            double *y = machine_gradient(again->pair.exec, again->pair.plan, i);
            double size = norm(x, n), error = distance(x, y, n);
            most = size > most ? size : most;
            free(x);
            free(y);
            if (pass && error > bound * (size + 1e-2 * most))
                fail_msg("%s: error %.3g of %.3g", plan->params[i].name, error, size);
        }
    }
}

// Whole blocks again: products, attention and moves run twice, what they report is counted once. Where
// rows are wide enough for all policies to have one order of sums, gradients, losses and metrics have the
// same bits.
static void blocks_again(void **state) {
    (void)state;
    static const struct { const Spec *spec; bool same_bits; } chosen[] = {
        { &specs[0], false }, { &specs[2], false }, { &specs[3], false },
        { &specs[4], true },  { &specs[7], false }, { &spec_tiny, true },
    };
    for (int i = 0; i < COUNT_OF(chosen); i++) {
        const Spec *spec = chosen[i].spec;
        Trial saved = start_trial(spec, (How){ .recompute = RECOMPUTE_NONE });
        Trial again = start_trial(spec, (How){ .recompute = RECOMPUTE_BLOCK });
        int64_t bytes = again.pair.program->act_bytes, most = saved.pair.program->act_bytes;
        printf("%s: blocks again, act %lld bytes of %lld\n", spec_title(spec), (long long)bytes,
               (long long)most);
        near(&saved, &again, FP32_BOUND * spec->amplified);
        if (chosen[i].same_bits) assert_true(hash_equal(bits_of(&saved), bits_of(&again)));
        assert_true(bytes * 10 < most * 6);
        finish(&saved);
        finish(&again);
    }
    static const Spec half = { "one_expert.lua", 0, 3, 2, 0.5 };
    Trial t = start_trial(&half, (How){ .precision = PRECISION_BF16, .recompute = RECOMPUTE_BLOCK });
    within(&t, &half, "blocks again in bf16", BF16_BOUND);
    finish(&t);
}

static void in_bf16(void **state) {
    (void)state;
    static const Spec chosen[] = {
        { "ids.lua", 0, 1, 2, 0.5 },
        { "one_expert.lua", 0, 3, 2, 0.5 },
        { "sets.lua", 0, 3, 2, 0.4 },
    };
    for (int i = 0; i < COUNT_OF(chosen); i++) {
        for (int no_fusion = 0; no_fusion < 2; no_fusion++) {
            How how = { .precision = PRECISION_BF16, .no_fusion = no_fusion };
            Trial t = start_trial(&chosen[i], how);
            within(&t, &chosen[i], no_fusion ? "bf16, not fused" : "bf16", BF16_BOUND);
            if (t.pair.worst < 0.001) fail_msg("%s: not in bf16", spec_title(&chosen[i]));
            Exec *exec = machine_exec(t.pair.plan, 1, false);
            machine_load(exec, t.pair.plan, t.values);
            machine_step(exec, t.pair.plan, &t.microbatches);
            assert_true(hash_equal(bits_of(&t), machine_results(exec, t.pair.plan)));
            exec_destroy(exec);
            finish(&t);
        }
    }
}

// Rules choose for contractions what the run chooses for the others.
static void by_rule(void **state) {
    (void)state;
    static const Spec spec = { "rules.lua", 0, 3, 2, 0.4 };
    for (uint8_t precision = PRECISION_FP32; precision <= PRECISION_BF16; precision++) {
        Trial t = start_trial(&spec, (How){ .precision = precision });
        const Plan *plan = t.pair.plan;
        int widths[2] = { 0 }; // packed weights of 4 and of 2 bytes
        const PlanProgram *pack = plan_program(plan, "pack");
        for (uint32_t b = 0; b < pack->n_buffers; b++)
            if (pack->buffers[b].region == REGION_packed)
                widths[pack->buffers[b].dtype == DTYPE_BF16]++;
        // Both ways of q, k, v, o, w_out of a layer, shared w_in of another; without the rest.
        if (precision == PRECISION_FP32) assert_int_equal(widths[1], 2 * 6);
        // The routers too: they state fp32.
        if (precision == PRECISION_BF16) assert_int_equal(widths[0], 2 * (4 + 1 + 2));
        within(&t, &spec, precision == PRECISION_FP32 ? "fp32 with rules" : "bf16 with rules",
               BF16_BOUND);
        assert_true(t.pair.worst > 0.001);
        finish(&t);
    }
}

int main(void) {
    machine_use_cache();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_in_pieces),
        cmocka_unit_test(losses_in_pieces_on_a_gpu),
        cmocka_unit_test(computing_again_saves_memory),
        cmocka_unit_test(blocks_again),
        cmocka_unit_test(in_bf16),
        cmocka_unit_test(by_rule),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
