// SPDX-License-Identifier: Apache-2.0
// The large models that layouts are searched for: a stage of a layout that suits each lowers to a plan that
// holds, with the parameters that it should have.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "compiler/lower/lower.h"
#include "compiler/spec/spec.h"

typedef struct Case {
    const char *spec, *layout;
    int32_t stage;
    int64_t parameters;          // of a rank of the stage
} Case;
// Per layer: attention with what is beside it, router, experts / ep; the last stage has norm and head besides.
static const Case cases[] = {
    { "qwen3_235b_a22b", "pp=47,dp=32,ep=32,microbatch=1", 1,
      2 * (2 * 4096 * 8192 + 2 * 4096 * 512 + 2 * 128 + 2 * 4096 + 4096 * 128 + 4 * (3 * 4096 * 1536)) },
    { "gpt_oss_120b", "pp=18,dp=64,ep=32,microbatch=1", 3,
      2 * (2881 * 4096 + 2 * 2881 * 512 + 4097 * 2880 + 64 + 2 * 2880 + 2881 * 128 +
           4 * (2881 * 5760 + 2881 * 2880)) },
    { "mixtral_8x22b", "pp=28,dp=8,ep=8,microbatch=1", 2,
      2 * (2 * 6144 * 6144 + 2 * 6144 * 1024 + 2 * 6144 + 6144 * 8 + 3 * 6144 * 16384) },
    { "kimi_k2", "pp=61,dp=64,ep=64,microbatch=1", 60,
      7168 * 1536 + 1536 + 1536 * 64 * 192 + 7168 * 576 + 512 + 512 * 64 * 256 + 64 * 128 * 7168 + 2 * 7168 +
          7168 * 384 + 7 * (3 * 7168 * 2048) + 7168 + 7168 * (int64_t)163840 },
};

static int64_t parameters_of(const Plan *plan) {
    int64_t sum = 0;
    for (uint32_t i = 0; i < plan->n_params; i++)
        if (!plan->params[i].is_state) sum += plan_numbers(&plan->params[i]);
    return sum;
}

static void lowers(void **state) {
    const Case *c = *state;
    Text error = { 0 }, path = { 0 };
    Arena *arena = arena_create();
    text_printf(&path, MOEC_SOURCE_DIR "/models/%s.lua", c->spec);
    Model *model = spec_load(text_cstr(&path), NULL, &error);
    if (!model) fail_msg("%s", text_cstr(&error));
    Layout layout = layout_single();
    LayoutRun run = { 0 };
    if (layout_parse(c->layout, arena, &layout) != OK || layout_check(&layout, model, &run) != OK)
        fail_msg("%s", status_message());
    LowerOptions options = { .layout = &layout, .stage = c->stage, .microbatch = 1, .microbatches = 1,
                             .precision = PRECISION_BF16 };
    options.programs[PROGRAM_STEP] = true;
    Plan *plan = lower_model(model, &options);
    if (!plan) fail_msg("%s", model->diag.message);
    if (plan_check(plan) != OK) fail_msg("%s", status_message());
    printf("%s: %.6f B parameters on a rank, peak %.1f GiB\n", c->spec, (double)parameters_of(plan) / 1e9,
           (double)plan_peak(plan) / 0x1p30);
    assert_int_equal(parameters_of(plan), c->parameters);
    plan_destroy(plan);
    model_destroy(model);
    arena_destroy(arena);
    text_finish(&error);
    text_finish(&path);
}

int main(void) {
    struct CMUnitTest tests[COUNT_OF(cases)];
    for (int i = 0; i < COUNT_OF(cases); i++)
        tests[i] = (struct CMUnitTest){ cases[i].spec, lowers, NULL, NULL, (void *)&cases[i] };
    return cmocka_run_group_tests_name("search.specs", tests, NULL, NULL);
}
