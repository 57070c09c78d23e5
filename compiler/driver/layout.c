// SPDX-License-Identifier: Apache-2.0
#include "compiler/driver/layout.h"

#include <stdio.h>

#include "compiler/lower/lower.h"
#include "compiler/spec/spec.h"

static bool ends_in_lua(const char *text) {
    size_t n = strlen(text);
    return n >= 4 && !strcmp(text + n - 4, ".lua");
}

static int read_layout(const LayoutArgs *args, Model *model, Arena *arena, Layout *layout) {
    *layout = layout_single();
    layout->recompute = args->recompute;
    layout->microbatch = (int32_t)min_i64(args->microbatch / model->sequence, INT32_MAX);
    if (!ends_in_lua(args->text)) {
        Status status = layout_parse(args->text, arena, layout);
        return status == OK ? 0 : driver_fail(status);
    }
    Text error = { 0 };
    bool done = spec_load_layout(args->text, model, arena, layout, &error);
    if (!done) driver_say(text_cstr(&error));
    text_finish(&error);
    return done ? 0 : status_exit(ERR_INPUT);
}

static Status check_layout(const LayoutArgs *args, const Model *model, Layout *layout,
                           int32_t *microbatches) {
    if (args->microbatch % model->sequence)
        return status_fail(
            ERR_ARGUMENT,
            "--microbatch is %lld tokens, expected a multiple of the sequence of %d",
            (long long)args->microbatch, model->sequence);
    LayoutRun run = { .ranks = args->ranks, .batch = args->batch, .devices = args->devices };
    TRY(layout_check(layout, model, &run));
    if (!layout->microbatch)
        layout->microbatch = layout_choose_microbatch(layout, model, &run, USUAL_MICROBATCH);
    if (args->microbatches)
        run.batch = args->microbatches * layout->dp * layout->microbatch * model->sequence;
    TRY(layout_check(layout, model, &run));
    int64_t n = layout_microbatches(layout, model, &run);
    if (n > LOWER_MOST_MICROBATCHES)
        return status_fail(ERR_ARGUMENT,
                           "layout: %lld microbatches a step on each rank, expected up to %d\n"
                           "  hint: a larger microbatch makes fewer of them",
                           (long long)n, LOWER_MOST_MICROBATCHES);
    *microbatches = (int32_t)n;
    return OK;
}

int driver_layout(const LayoutArgs *args, Model *model, Arena *arena, Layout *layout,
                  int32_t *microbatches) {
    int result = read_layout(args, model, arena, layout);
    if (result) return result;
    Status status = check_layout(args, model, layout, microbatches);
    return status == OK ? 0 : driver_fail(status);
}
