// SPDX-License-Identifier: Apache-2.0
// The command line of what lowers a spec without training it, and the way from there to a Plan.
#include <stdio.h>
#include <stdlib.h>

#include "compiler/driver/plan_args.h"
#include "runtime/exec/exec.h"

/* The command line ----------------------------------------------------------------------------- */

// Whether a plan can be for it; `shown` is what the user wrote.
static Status check_target(const char *flag, const char *shown, const char *target, bool architecture) {
    PlanTarget parsed;
    if (plan_target(target, &parsed) && (!parsed.cuda || parsed.sm >= PLAN_OLDEST_SM)) return OK;
    return status_fail(ERR_ARGUMENT, "%s: expected %s from sm_80 on, got '%s'\n  hint: for example %s", flag,
                       architecture ? "an architecture" : "cpu or cuda:ARCH", shown,
                       architecture ? "sm_90a" : "cuda:sm_90a");
}

static Status read_target(PlanArgs *args) {
    const Options *o = args->options;
    if (o->given[OPT_arch]) {
        args->target = arena_printf(o->arena, "cuda:%s", o->arch);
        return check_target("--arch", o->arch, args->target, true);
    }
    if (o->given[OPT_device] && o->given[OPT_target])
        return status_fail(ERR_ARGUMENT, "--device and --target both say what it is for\n  hint: one of them");
    if (o->given[OPT_device]) return exec_target(o->device, o->arena, &args->target);
    args->target = o->given[OPT_target] ? o->target : NULL;
    return args->target ? check_target("--target", args->target, args->target, false) : OK;
}

Status plan_args_read(PlanArgs *args, int command, Options *options, int argc, char **argv) {
    *args = (PlanArgs){ .command = command, .options = options };
    TRY(line_spec(options, command, argc, argv,
                  command == FOR_PLAN      ? "plan models/tiny.lua"
                  : command == FOR_KERNELS ? "kernels models/tiny.lua --arch sm_90a -o kernels"
                                           : "simulate models/tiny.lua",
                  &args->spec, &args->spec_options));
    args->dump = line_text(options->dump);
    args->layout = line_text(options->layout);
    args->microbatch = options->microbatch;
    args->microbatches = options->microbatches;
    args->precision = line_precision(options, command == FOR_SIMULATE ? OPT_costed : OPT_precision);
    args->recompute = (uint8_t)options->recompute;
    return read_target(args);
}

/* The plans ------------------------------------------------------------------------------------ */

static Status choose_microbatch(PlanArgs *args, int64_t sequence) {
    if (!args->microbatch)
        args->microbatch = max_i64(sequence, USUAL_MICROBATCH / sequence * sequence);
    if (args->microbatch % sequence == 0) return OK;
    return status_fail(ERR_ARGUMENT,
                       "--microbatch is %lld tokens, expected a multiple of the sequence of %lld",
                       (long long)args->microbatch, (long long)sequence);
}

// Fills in the layout and what it says of microbatches.
static int choose_layout(Model *model, PlanArgs *args, Arena *arena, Layout *layout,
                         LowerOptions *options) {
    *layout = layout_single();
    if (args->layout) {
        LayoutArgs given = { .text = args->layout,
                             .microbatch = args->microbatch,
                             .microbatches = args->microbatches,
                             .recompute = args->recompute };
        int result = driver_layout(&given, model, arena, layout, &options->microbatches);
        options->microbatch = layout->microbatch;
        options->layout = layout;
        return result;
    }
    Status status = choose_microbatch(args, model->sequence);
    if (status != OK) return driver_fail(status);
    options->microbatch = (int32_t)(args->microbatch / model->sequence);
    options->microbatches = (int32_t)max_i64(args->microbatches, 1);
    return 0;
}

static int lower(Model *model, PlanArgs *args, Arena *arena, StagePlans *out) {
    Text dump = { 0 };
    LowerOptions options = { .target = args->target,
                             .precision = args->precision,
                             .recompute = args->recompute,
                             .dump = args->dump,
                             .dump_out = &dump };
    options.programs[PROGRAM_STEP] = true;
    options.programs[PROGRAM_EVAL] = args->command != FOR_SIMULATE;
    int result = choose_layout(model, args, arena, &out->layout, &options);
    out->n_layers = model->n_layers;
    out->plans = ARENA_ARRAY(arena, Plan *, out->layout.pp);
    for (; !result && options.stage < out->layout.pp; options.stage++) {
        Plan *plan = out->plans[options.stage] = lower_model(model, &options);
        if (!plan) result = driver_refuse(model);
    }
    if (!result && plan_check_stages((const Plan *const *)out->plans, out->layout.pp) != OK) {
        fprintf(stderr, "moec: internal error: %s\n", status_message());
        result = 1;
    }
    fputs(text_cstr(&dump), stdout);
    text_finish(&dump);
    if (result) stage_plans_destroy(out);
    return result;
}

void stage_plans_destroy(StagePlans *stages) {
    for (int32_t i = 0; i < stages->layout.pp; i++) plan_destroy(stages->plans[i]);
}

int plan_args_lower(PlanArgs *args, Arena *arena, StagePlans *out) {
    Text error = { 0 };
    Model *model = spec_load(args->spec, &args->spec_options, &error);
    if (!model) fputs(text_cstr(&error), stderr);
    int result = model ? lower(model, args, arena, out) : status_exit(ERR_INPUT);
    model_destroy(model);
    text_finish(&error);
    return result;
}
