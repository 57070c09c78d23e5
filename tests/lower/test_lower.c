// SPDX-License-Identifier: Apache-2.0
// Whole plans: they pass the plan's own checks, come out the same every time, and what cannot be
// lowered is refused with its name and line. User code that computes what a block computes gets its
// kernels.
#include "tests/lower/helper.h"

#include <stdio.h>
#include <stdlib.h>

#include "compiler/spec/spec.h"

static LowerOptions all_programs(bool no_fusion) {
    return (LowerOptions){
        .microbatch = 2, .microbatches = 3, .programs = { true, true, true }, .no_fusion = no_fusion
    };
}

static Plan *lowered(Model *m, const LowerOptions *options) {
    Plan *plan = lower_model(m, options);
    if (!plan) fail_msg("%s: %s\n  hint: %s", m->name, m->diag.message, m->diag.hint);
    return plan;
}

static Model *traced(const char *text) {
    Text error = { 0 };
    Model *m = spec_load_text("model.lua", text, strlen(text), &(SpecOptions){ 0 }, &error);
    if (!m) fail_msg("%s", text_cstr(&error));
    text_finish(&error);
    return m;
}

/* Plans ---------------------------------------------------------------------------------------- */

// Plans are long: the message is the first line that differs.
static void assert_same_text(const Text *a, const Text *b) {
    const char *x = a->at, *y = b->at;
    size_t n = a->bytes < b->bytes ? a->bytes : b->bytes, line = 0;
    for (size_t i = 0; i < n && x[i] == y[i]; i++)
        if (x[i] == '\n') line = i + 1;
    if (a->bytes == b->bytes && !memcmp(x, y, n)) return;
    fail_msg("\n%.*s\n%.*s", (int)strcspn(x + line, "\n"), x + line, (int)strcspn(y + line, "\n"),
             y + line);
}

static void same_text_twice(Model *(*make)(void), bool no_fusion) {
    Text texts[2] = { { 0 }, { 0 } };
    LowerOptions options = all_programs(no_fusion);
    for (int i = 0; i < 2; i++) {
        Model *m = make();
        Plan *plan = lowered(m, &options);
        if (plan_check(plan) != OK) fail_msg("%s", status_message());
        plan_print(plan, &texts[i]);
        plan_destroy(plan);
        model_destroy(m);
    }
    assert_same_text(&texts[0], &texts[1]);
    Plan *again = NULL;
    if (plan_parse(texts[0].at, texts[0].bytes, &again) != OK) fail_msg("%s", status_message());
    Text printed = { 0 };
    plan_print(again, &printed);
    assert_same_text(&texts[0], &printed);
    plan_destroy(again);
    text_finish(&printed);
    for (int i = 0; i < 2; i++) text_finish(&texts[i]);
}

static Model *random_seven(void) {
    return random_model(7);
}

static void plans_are_checked_and_repeat(void **state) {
    (void)state;
    Model *(*const makers[])(void) = { plain_model, moe_model, random_seven };
    for (int i = 0; i < COUNT_OF(makers); i++) {
        same_text_twice(makers[i], false);
        same_text_twice(makers[i], true);
    }
}

static void random_plans_are_checked(void **state) {
    (void)state;
    for (uint64_t seed = 100; seed < 110; seed++) {
        Model *m = random_model(seed);
        for (int fused = 0; fused < 2; fused++) {
            LowerOptions options = all_programs(!fused);
            plan_destroy(lowered(m, &options));
        }
        model_destroy(m);
    }
}

static void programs_are_chosen(void **state) {
    (void)state;
    Model *m = moe_model();
    int64_t weights = 0;
    for (int which = 0; which < N_PROGRAMS; which++) {
        LowerOptions options = { .microbatch = 1, .microbatches = 1 };
        options.programs[which] = true;
        Plan *plan = lowered(m, &options);
        assert_int_equal(plan->n_programs, 2); // and "pack"
        assert_non_null(plan_program(plan, "pack"));
        const PlanProgram *program = plan_program(plan, program_name[which]);
        assert_non_null(program);
        assert_int_equal(program->n_outputs, which == PROGRAM_PREFILL);
        assert_int_equal(program->n_metrics, which == PROGRAM_PREFILL ? 0 : 2);
        if (which == PROGRAM_PREFILL)
            assert_string_equal(program->outputs[0].name, "logits");
        else
            assert_string_equal(program->metrics[1].name, "loss");
        assert_int_equal(plan->region_bytes[REGION_moment1] > 0, which == PROGRAM_STEP);
        // Weights lie where they lie, whatever is done with them.
        if (!weights) weights = plan->region_bytes[REGION_weights];
        assert_int_equal(plan->region_bytes[REGION_weights], weights);
        plan_destroy(plan);
    }
    model_destroy(m);
}

static const PlanParam *find_param(const Plan *plan, const char *name) {
    for (uint32_t i = 0; i < plan->n_params; i++) {
        if (!strcmp(plan->params[i].name, name)) return &plan->params[i];
    }
    fail_msg("no parameter %s", name);
    return NULL;
}

static void parameters_without_gradient_are_states(void **state) {
    (void)state;
    setenv("MOEC_LOG", "error", 1);
    Model *m = plain_model();
    uint32_t x = model_arg(m, m->logits, 0);
    uint32_t still = model_op1(m, OP_STOP_GRADIENT,
                               param_named(m, "frozen.gain", (const int32_t[]){ WIDTH }, 1, 0));
    uint32_t y = linear(m, "last.w", model_op2(m, OP_MUL, x, still), 4);
    add_loss(m, "square", model_reshape(m, model_sum(m, model_op2(m, OP_MUL, y, y), 1), NULL, 0),
             1);
    LowerOptions options = all_programs(false);
    Plan *plan = lowered(m, &options);
    const PlanParam *frozen = find_param(plan, "frozen.gain");
    assert_true(frozen->is_state);
    assert_true(frozen->offset >= plan->n_trained * 4);
    assert_false(find_param(plan, "last.w")->is_state);
    plan_destroy(plan);
    // The same addresses where nothing trains.
    options.programs[PROGRAM_STEP] = false;
    Plan *still_plan = lowered(m, &options);
    assert_true(find_param(still_plan, "frozen.gain")->is_state);
    plan_destroy(still_plan);
    model_destroy(m);
}

static void locations_and_names(void **state) {
    (void)state;
    Model *m = moe_model();
    LowerOptions options = all_programs(false);
    Plan *plan = lowered(m, &options);
    const PlanProgram *step = plan_program(plan, "step");
    int located = 0;
    for (uint32_t i = 0; i < step->n_buffers; i++) {
        const PlanBuffer *buffer = &step->buffers[i];
        for (uint32_t j = 0; j < i; j++)
            assert_string_not_equal(buffer->name, step->buffers[j].name);
        if (buffer->region != REGION_act || !buffer->loc) continue;
        assert_string_equal(buffer->loc, "hand.lua:2");
        located++;
    }
    assert_true(located > 20);
    plan_destroy(plan);
    model_destroy(m);
}

/* Equal kernels -------------------------------------------------------------------------------- */

static const char *const built_in = "local m = require 'moec'\n"
                                    "return m.model { name = 'blocks', vocab = 32, width = 32, "
                                    "sequence = 16, layers = m.stack(2, m.block {\n"
                                    "  ffn = { hidden = 48 } }) }\n";

// The same with the norm, the activation and the block written out.
static const char *const by_hand =
    "local m = require 'moec'\n"
    "local function norm(x)\n"
    "  local gain = m.param('gain', { x:size() }, { init = 'ones' })\n"
    "  return x * m.rsqrt(m.mean(x * x) + 1e-6) * gain\n"
    "end\n"
    "local function ffn(x)\n"
    "  local gate, up = m.unbind(m.linear('in', x, { 2, 48 }))\n"
    "  return m.linear('out', gate * m.sigmoid(gate) * up, x:size())\n"
    "end\n"
    "local function layer(x)\n"
    "  return x + m.scope('ffn', ffn, m.scope('ffn_norm', norm, x))\n"
    "end\n"
    "return m.model { name = 'blocks', vocab = 32, width = 32, sequence = 16, layers = { layer, "
    "layer } }\n";

// A block of experts with a clamped activation, its pieces taken from the library or written here.
static const char *const clamped_experts =
    "local m = require 'moec'\n"
    "local function act(gate, up)\n"
    "  gate, up = m.min(gate, 7), m.clamp(up, -7, 7)\n"
    "  return (up + 1) * gate * m.sigmoid(1.702 * gate)\n"
    "end\n"
    "return m.model { name = 'blocks', vocab = 32, width = 32, sequence = 16, layers = m.stack(2, "
    "m.block {\n"
    "  ffn = m.experts { count = 4, top_k = 2, expert = { hidden = 48, activation = act } } }) }\n";
static const char *const clamped_by_hand =
    "local m = require 'moec'\n"
    "local function expert(x)\n"
    "  local gate, up = m.unbind(m.linear('in', x, { 2, 48 }))\n"
    "  gate = m.min(gate, 7)\n"
    "  up = m.min(m.max(up, -7), 7)\n"
    "  return m.linear('out', (up + 1) * gate * m.sigmoid(1.702 * gate), x:size())\n"
    "end\n"
    "local function norm(x)\n"
    "  local gain = m.param('gain', { x:size() }, { init = 'ones' })\n"
    "  return x * m.rsqrt(m.mean(x * x) + 1e-6) * gain\n"
    "end\n"
    "local function layer(x)\n"
    "  local ffn = m.experts { count = 4, top_k = 2, expert = expert }\n"
    "  return x + m.scope('ffn', ffn, m.scope('ffn_norm', norm, x))\n"
    "end\n"
    "return m.model { name = 'blocks', vocab = 32, width = 32, sequence = 16, layers = { layer, "
    "layer } }\n";

static void same_plans(const char *const specs[2], uint8_t precision) {
    Plan *plans[2];
    LowerOptions options = all_programs(false);
    options.precision = precision;
    for (int i = 0; i < 2; i++) {
        Model *m = traced(specs[i]);
        plans[i] = lowered(m, &options);
        model_destroy(m);
    }
    assert_int_equal(plans[0]->n_kernels, plans[1]->n_kernels);
    for (uint32_t i = 0; i < plans[0]->n_kernels; i++)
        assert_true(hash_equal(plans[0]->kernels[i].hash, plans[1]->kernels[i].hash));
    assert_true(hash_equal(plan_hash(plans[0]),
                           plan_hash(plans[1]))); // names, addresses, bytes, order: everything
    for (int i = 0; i < 2; i++) plan_destroy(plans[i]);
}

static void user_code_gets_the_same_kernels(void **state) {
    (void)state;
    for (int precision = PRECISION_FP32; precision <= PRECISION_BF16; precision++) {
        same_plans((const char *const[]){ built_in, by_hand }, (uint8_t)precision);
        same_plans((const char *const[]){ clamped_experts, clamped_by_hand }, (uint8_t)precision);
    }
}

// A clamped activation changes the kernel of the activation and its gradient, and no contraction.
static void another_activation_changes_its_kernels(void **state) {
    (void)state;
    static const char *const clamped = "local m = require 'moec'\n"
                                       "local function act(gate, up)\n"
                                       "  gate = m.min(gate, 7)\n"
                                       "  return gate * m.sigmoid(gate) * up\n"
                                       "end\n"
                                       "return m.model { name = 'blocks', vocab = 32, width = 32, "
                                       "sequence = 16, layers = m.stack(2, m.block {\n"
                                       "  ffn = { hidden = 48, activation = act } }) }\n";
    Plan *plans[2];
    LowerOptions options = { .microbatch = 2,
                             .microbatches = 1,
                             .programs = { [PROGRAM_PREFILL] = true } };
    for (int i = 0; i < 2; i++) {
        Model *m = traced(i ? clamped : built_in);
        plans[i] = lowered(m, &options);
        model_destroy(m);
    }
    int other = 0;
    assert_int_equal(plans[0]->n_kernels, plans[1]->n_kernels);
    for (uint32_t i = 0; i < plans[0]->n_kernels; i++) {
        if (hash_equal(plans[0]->kernels[i].hash, plans[1]->kernels[i].hash)) continue;
        // The product whose post it is; its weights and those of the others stay.
        assert_string_equal(plans[0]->kernels[i].family, "matmul");
        other++;
    }
    assert_int_equal(other, 1);
    for (int i = 0; i < 2; i++) plan_destroy(plans[i]);
}

/* Refusals ------------------------------------------------------------------------------------- */

typedef struct Refusal {
    const char *spec, *message;
} Refusal;

static const Refusal refusals[] = {
    { "local m = require 'moec'\n"
      "return m.model { name = 'x', vocab = 32, width = 32, sequence = 16,\n"
      "  layers = m.stack(1, m.block { ffn = { hidden = 48 } }),\n"
      "  parameters = { { '*.ffn.w_in', precision = 'mxfp8' } } }\n",
      "model.lua:3: error: matmul: no kernel computes in mxfp8\n"
      "   3 |   layers = m.stack(1, m.block { ffn = { hidden = 48 } }),\n"
      "  hint: set precision = \"bf16\", or leave it out\n" },
    { "local m = require 'moec'\n"
      "return m.model { name = 'x', vocab = 32, width = 32, sequence = 16,\n"
      "  layers = { function(x)\n"
      "    m.metric('largest', m.mean(m.amax(x, 'sequence')))\n"
      "    return x\n"
      "  end } }\n",
      "model.lua:4: error: row_max: no kernel covers row_max over the tokens of a sequence\n"
      "   4 |     m.metric('largest', m.mean(m.amax(x, 'sequence')))\n"
      "  hint: moec check accepts the model; to run it, write this line with operations that have "
      "kernels\n" },
    { "local m = require 'moec'\n"
      "return m.model { name = 'x', vocab = 32, width = 32, sequence = 16, layers = m.stack(1, "
      "m.block {\n"
      "  ffn = m.experts { count = 4, top_k = 2, expert = { hidden = 8 }, capacity = 0.5 } }) }\n",
      "model.lua:3: error: route: a capacity factor of 0.5 drops copies, and no kernel drops any "
      "on one rank\n"
      "   3 |   ffn = m.experts { count = 4, top_k = 2, expert = { hidden = 8 }, capacity = 0.5 } "
      "}) }\n"
      "  hint: give 1 or more, or leave capacity out: one rank has room for every copy\n" },
};

static void refused_by_name_and_line(void **state) {
    (void)state;
    for (int i = 0; i < COUNT_OF(refusals); i++) {
        Model *m = traced(refusals[i].spec);
        LowerOptions options = { .microbatch = 1,
                                 .microbatches = 1,
                                 .programs = { [PROGRAM_STEP] = true } };
        assert_null(lower_model(m, &options));
        Text text = { 0 };
        diag_print(m, m->diag.loc, m->diag.message, NULL, NULL, 0, m->diag.hint, &text);
        assert_string_equal(text_cstr(&text), refusals[i].message);
        text_finish(&text);
        model_destroy(m);
    }
}

static void a_capacity_of_one_drops_nothing(void **state) {
    (void)state;
    Model *m = traced("local m = require 'moec'\n"
                      "return m.model { name = 'x', vocab = 32, width = 32, sequence = 16, layers "
                      "= m.stack(1, m.block {\n"
                      "  ffn = m.experts { count = 4, top_k = 2, expert = { hidden = 8 }, capacity "
                      "= 1.25 } }) }\n");
    LowerOptions options = all_programs(false);
    plan_destroy(lowered(m, &options));
    model_destroy(m);
}

// Launches of program "pack" that read `buffer`.
static int copies_of(const PlanProgram *pack, uint32_t buffer) {
    int n = 0;
    for (uint32_t i = 0; i < pack->n_instrs; i++) {
        const PlanOperand *read = &pack->operands[pack->instrs[i].operands];
        n += read->buffer == buffer && read->mode == OPERAND_READ;
    }
    return n;
}

// Forward and the gradient of its input read one copy of a matrix on GPUs, a tied table's as well, and two on CPUs.
static void gpus_pack_once(void **state) {
    (void)state;
    int64_t bytes[2][2];
    for (int gpu = 0; gpu < 2; gpu++) {
        for (int narrow = 0; narrow < 2; narrow++) {
            Model *m = moe_model();
            LowerOptions options = all_programs(false);
            options.target = gpu ? "cuda:sm_80" : "cpu";
            options.precision = narrow ? PRECISION_BF16 : PRECISION_FP32;
            Plan *plan = lowered(m, &options);
            const PlanProgram *pack = plan_program(plan, "pack");
            int most = 0;
            for (uint32_t i = 0; i < pack->n_buffers; i++) {
                int n = copies_of(pack, i);
                if (n > most) most = n;
            }
            assert_int_equal(most, gpu ? 1 : 2);
            bytes[gpu][narrow] = plan->region_bytes[REGION_packed];
            plan_destroy(plan);
            model_destroy(m);
        }
    }
    for (int narrow = 0; narrow < 2; narrow++) assert_true(bytes[1][narrow] > 0);
    // Panels are whole, so it is half but for what is beyond narrow matrices.
    for (int narrow = 0; narrow < 2; narrow++) assert_true(bytes[1][narrow] * 3 < bytes[0][narrow] * 2);
}

static void wrong_sizes(void **state) {
    (void)state;
    Model *m = plain_model();
    LowerOptions options = { .microbatch = 0, .microbatches = 1, .programs = { true } };
    assert_null(lower_model(m, &options));
    assert_string_equal(
        m->diag.message,
        "expected 1 or more sequences and microbatches of at most 2147483647 tokens, got "
        "1 microbatches of 0 sequences of 48");
    options.microbatch = INT32_MAX;
    assert_null(lower_model(m, &options));
    options = (LowerOptions){ .microbatch = 1, .microbatches = 0, .programs = { true } };
    assert_null(lower_model(m, &options));
    options.microbatches = INT32_MAX;
    assert_null(lower_model(m, &options));
    assert_string_equal(m->diag.message,
                        "expected at most 1000000 microbatches a step, got 2147483647");
    model_destroy(m);
}

int main(void) {
    setenv("MOEC_CACHE_DIR", MOEC_BINARY_DIR "/test-cache", 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_are_checked_and_repeat),
        cmocka_unit_test(random_plans_are_checked),
        cmocka_unit_test(programs_are_chosen),
        cmocka_unit_test(parameters_without_gradient_are_states),
        cmocka_unit_test(locations_and_names),
        cmocka_unit_test(user_code_gets_the_same_kernels),
        cmocka_unit_test(another_activation_changes_its_kernels),
        cmocka_unit_test(refused_by_name_and_line),
        cmocka_unit_test(a_capacity_of_one_drops_nothing),
        cmocka_unit_test(gpus_pack_once),
        cmocka_unit_test(wrong_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
