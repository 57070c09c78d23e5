// SPDX-License-Identifier: Apache-2.0
// `moec simulate`: what a step of a spec under a layout, or of a saved plan, would take on a machine: the plans of
// all stages through the simulator, with seconds from the description of the machine or from a step that was
// measured.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "compiler/driver/measured.h"
#include "compiler/driver/simulate.h"
#include "compiler/search/profile.h"
#include "compiler/search/simulate_plan.h"
#include "runtime/base/trace.h"

typedef struct Simulation {
    PlanArgs args;
    const char *trace, *svg, *times; // files; NULL: not asked for
    Arena *arena;
    StagePlans stages;
    int32_t n;               // stages
    const Plan *const *plans;
    CostCluster cluster;
    Measured measured;       // with --times
    int32_t found, missed;   // of kernels: in the trace, not
    SimSeconds **seconds;
    double load;
    SimStage *ops;
    SimPicture picture;
    Sim sim;
} Simulation;

/* Plans and machine ---------------------------------------------------------------------------- */

static bool ends_in(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

static int read_plans(Simulation *s) {
    const PlanArgs *a = &s->args;
    if (a->layout || a->target || a->microbatch || a->microbatches || a->spec_options.n_args || a->spec_options.n_sets ||
        line_account(a->options))
        return driver_fail(status_fail(ERR_ARGUMENT,
                                       "%s is a plan, which has decided how it runs\n"
                                       "  hint: give its spec to simulate it otherwise", a->spec));
    Plan *first;
    Status status = plan_read(a->spec, 0, &first);
    if (status != OK) return driver_fail(status);
    s->stages.layout = layout_single();
    s->stages.layout.pp = 1; // that there is one to destroy
    s->stages.plans = ARENA_ARRAY(s->arena, Plan *, first->mesh.size[AXIS_pp]);
    s->stages.plans[0] = first;
    for (int32_t i = 1; i < first->mesh.size[AXIS_pp] && status == OK; i++) {
        status = plan_read(a->spec, i, &s->stages.plans[i]);
        s->stages.layout.pp += status == OK;
    }
    return status == OK ? 0 : driver_fail(status);
}

static const char *cluster_name(const PlanArgs *args, Arena *arena, int32_t ranks) {
    const char *given = args->options->cluster, *name = given[0] ? given : "cpu", *digits = name + strlen(name);
    if (ends_in(name, ".lua")) return name;
    while (digits > name && digits[-1] >= '0' && digits[-1] <= '9') digits--;
    // "rtx4090" has no count yet.
    bool counted = *digits && digits > name && digits[-1] == 'x' && strncmp(name, "rtx", (size_t)(digits - name));
    return counted ? name : arena_printf(arena, "%sx%d", name, ranks);
}

int simulate_cluster(const PlanArgs *args, Arena *arena, int32_t ranks, CostCluster *out) {
    Text error = { 0 };
    const char *name = cluster_name(args, arena, ranks);
    bool loaded = spec_load_cluster(name, arena, out, &error);
    if (!loaded) driver_say(text_cstr(&error));
    text_finish(&error);
    if (!loaded) return status_exit(ERR_INPUT);
    int64_t devices = cost_cluster_devices(out);
    if (ranks <= devices) return 0;
    return driver_fail(status_fail(ERR_ARGUMENT, "--cluster %s has %lld device%s, the layout %d ranks\n"
                                   "  hint: a larger cluster, or a --layout of fewer ranks", name, (long long)devices,
                                   devices == 1 ? "" : "s", ranks));
}

// Kernels are made for the machine's GPUs, unless somebody says otherwise.
static int make_plans(Simulation *s) {
    bool spec = ends_in(s->args.spec, ".lua");
    if (spec && s->args.options->cluster[0] && !s->args.target) {
        int result = simulate_cluster(&s->args, s->arena, 1, &s->cluster); // only its device counts yet
        if (result) return result;
        const char *arch = s->cluster.device.arch;
        if (!strncmp(arch, "sm_", 3)) s->args.target = arena_printf(s->arena, "cuda:%s", arch);
    }
    int result = spec ? plan_args_lower(&s->args, s->arena, &s->stages) : read_plans(s);
    if (result && spec) s->stages.plans = NULL; // none is left
    if (result) return result;
    s->n = s->stages.layout.pp;
    s->plans = (const Plan *const *)s->stages.plans;
    if (!s->args.options->cluster[0] && strcmp(s->plans[0]->target, "cpu"))
        return driver_fail(status_fail(ERR_ARGUMENT, "no --cluster given, and the plan is for %s\n  hint: --cluster h100, or "
                                                     "another of dsl/hardware.lua", s->plans[0]->target));
    return simulate_cluster(&s->args, s->arena, plan_ranks(s->plans[0]), &s->cluster);
}

/* Seconds and loads ---------------------------------------------------------------------------- */

static void use_measured(Simulation *s, int32_t stage, const PlanProgram *program) {
    const Plan *plan = s->plans[stage];
    const uint8_t *work = plan_work(plan, program, s->arena);
    for (uint32_t i = 0; i < program->n_instrs; i++) {
        double seconds = measured_s(&s->measured, plan, program, (int32_t)i);
        PlanOp op = (PlanOp)program->instrs[i].op;
        if (op == PLAN_launch) *(seconds < 0 ? &s->missed : &s->found) += 1;
        // Of messages and of halves a rank sees only its wait.
        if (seconds < 0 || op == PLAN_send || op == PLAN_recv || program->instrs[i].half) continue;
        SimSeconds *to = &s->seconds[stage][i];
        to->here = work[i] == WORK_rows && op == PLAN_launch ? 0 : seconds;
        to->rows = work[i] == WORK_rows && op == PLAN_launch ? seconds : 0;
    }
}

static int find_seconds(Simulation *s) {
    s->seconds = ARENA_ARRAY(s->arena, SimSeconds *, s->n);
    for (int32_t i = 0; i < s->n; i++) {
        const PlanProgram *step = plan_program(s->plans[i], "step");
        if (!step) return 0; // sim_stages says so
        s->seconds[i] = sim_seconds(s->plans[i], step, &s->cluster, s->arena);
        if (s->times) use_measured(s, i, step);
    }
    if (!s->times || s->found) return 0;
    return driver_fail(status_fail(ERR_INPUT,
                                   "--times %s has none of this plan's kernels\n"
                                   "  hint: it must be of the same model, microbatch, precision and machine",
                                   s->times));
}

// Of the busiest rank over the mean: as asked for, as measured, or as the routing lets expect. Rows beyond what
// experts have room for are dropped.
static double find_load(const Simulation *s) {
    if (s->args.options->load > 0) return s->args.options->load;
    if (s->times) return s->measured.load;
    double load = 1;
    for (int32_t i = 0; i < s->n; i++) {
        const PlanProgram *step = plan_program(s->plans[i], "step");
        const CostLaunch *launches = step ? cost_of_program(s->plans[i], step, s->arena) : NULL;
        double ranks = s->plans[i]->mesh.size[AXIS_ep];
        for (uint32_t k = 0; step && k < step->n_instrs; k++) {
            const CostLaunch *products = &launches[k];
            double expected = cost_imbalance((CostRouting)s->args.spec_options.routing, products->tokens * ranks,
                                             products->top_k, products->experts * ranks, ranks);
            load = fmax(load, products->room > 0 ? fmin(expected, products->room) : expected);
        }
    }
    return load;
}

/* What is printed ------------------------------------------------------------------------------ */

static int64_t tokens_of(const Simulation *s) {
    const Plan *plan = s->plans[0];
    return plan->tokens * plan->microbatches * plan_group_size(plan, GROUP_dp);
}

static const char *title(const Simulation *s) {
    const Plan *plan = s->plans[0];
    Text layout = { 0 };
    if (s->args.layout) layout_print(&s->stages.layout, &layout);
    else if (plan_ranks(plan) > 1)
        text_printf(&layout, "pp=%d,dp=%d,ep=%d", plan->mesh.size[AXIS_pp], plan_group_size(plan, GROUP_dp),
                    plan->mesh.size[AXIS_ep]);
    const char *text = arena_printf(s->arena, "%s on %s%s%s", plan->model, s->cluster.name, layout.bytes ? ", " : "",
                                    text_cstr(&layout));
    text_finish(&layout);
    return text;
}

static void print_evidence(const Simulation *s) {
    const CostDevice *d = &s->cluster.device;
    int used = PRECISION_FP32;
    for (int32_t i = 0; i < s->n; i++)
        for (uint32_t k = 0; k < s->plans[i]->n_kernels; k++)
            if (s->plans[i]->kernels[k].shape.k && s->plans[i]->kernels[k].shape.dtype == DTYPE_BF16)
                used = PRECISION_BF16;
    Text line = { 0 };
    text_printf(&line, "known by  products: %s, memory of a device: %s", cost_evidence_name[d->matmul[used].evidence],
           cost_evidence_name[d->evidence[0]]);
    for (int32_t i = 0; i < s->cluster.n_links && plan_ranks(s->plans[0]) > 1; i++)
        text_printf(&line, ", link %s: %s", s->cluster.links[i].name, cost_evidence_name[s->cluster.links[i].evidence]);
    if (s->times) text_printf(&line, "; %d of %d kernels: %s", s->found, s->found + s->missed, s->times);
    text_add(&line, "\n");
    driver_print(text_cstr(&line));
    text_finish(&line);
}

static void print_memory(const Simulation *s) {
    int32_t fullest = 0;
    char peak[32], room[32];
    for (int32_t i = 1; i < s->n; i++)
        if (plan_peak(s->plans[i]) > plan_peak(s->plans[fullest])) fullest = i;
    int64_t has = s->cluster.device.memory_bytes - s->cluster.device.reserved_bytes,
            takes = plan_peak(s->plans[fullest]);
    printf("peak      %s of %s a rank", bytes_text(takes, peak), bytes_text(has, room));
    if (s->n > 1) printf(", on stage %d", fullest);
    printf("%s\n", takes > has ? ": does not fit" : "");
}

// Of another stack only a spec tells it. The microbatch is the plans'.
static Status print_account(const Simulation *s) {
    const CostAccount *account = line_account(s->args.options);
    const Plan *plan = s->plans[0];
    if (!account) return OK;
    Text error = { 0 };
    Model *model = spec_load(s->args.spec, &s->args.spec_options, &error);
    if (!model) return driver_quote("", &error);
    text_finish(&error);
    CostProfile *profile = profile_create(model, &s->cluster);
    Layout layout = s->stages.layout;
    layout.microbatch = (int32_t)(plan->tokens / plan->sequence);
    CostRun run = { .layout = &layout, .precision = s->args.precision ? s->args.precision : PRECISION_FP32,
                    .routing = (uint8_t)s->args.spec_options.routing, .sequences = tokens_of(s) / plan->sequence };
    Status status = profile ? OK : status_fail(ERR_INPUT, "%s: %s", s->args.spec, model->diag.message);
    if (profile) simulate_account(account, profile, &run);
    profile_destroy(profile);
    model_destroy(model);
    return status;
}

static Status print_step(const Simulation *s) {
    double seconds = (double)s->sim.step_ps * 1e-12;
    int32_t ranks = plan_ranks(s->plans[0]);
    double rate = (double)tokens_of(s) / seconds;
    driver_print(arena_printf(s->arena, "simulate  %s\n", title(s)));
    printf("step      %.3f ms, %lld tokens, %.0f tokens/s", seconds * 1e3, (long long)tokens_of(s), rate);
    if (ranks > 1) printf(", %.0f of each of %d ranks", rate / ranks, ranks);
    if (s->load > 1) printf("\nload      %.3f: the busiest rank of experts over the mean", s->load);
    printf("\n");
    print_memory(s);
    TRY(print_account(s));
    print_evidence(s);
    Text text = { 0 };
    sim_waterfall_print(&s->sim, &text);
    if (s->n > 1) sim_picture_print(&s->picture, &s->sim, PICTURE_COLUMNS, &text);
    fputs(text_cstr(&text), stdout);
    text_finish(&text);
    return OK;
}

// Ranks wait for each other in what crosses them, so there only the sums compare.
static void print_comparison(const Simulation *s) {
    const Measured *m = &s->measured;
    double simulated = (double)s->sim.step_ps * 1e-12, waits[2] = { 0 };
    if (m->ranks != plan_ranks(s->plans[0])) {
        printf("measured  %.3f ms on %d rank%s\n", m->step_s * 1e3, m->ranks, m->ranks == 1 ? "" : "s");
        return;
    }
    printf("measured  %.3f ms, mean of %d step%s: simulated %+.1f %%\n", m->step_s * 1e3, m->steps,
           m->steps == 1 ? "" : "s", 100 * (simulated / m->step_s - 1));
    printf("  %-26s %12s %12s\n", "of a rank", "simulated ms", "measured ms");
    for (int kind = 0; kind < N_SIM_KINDS; kind++) {
        double ours = sim_share_s(&s->sim, kind), theirs = kind < N_WORK ? m->work_s[kind] : 0;
        if (kind >= WORK_rows) {
            waits[0] += ours;
            waits[1] += theirs;
        } else if (ours > 0 || theirs > 0) {
            printf("  %-26s %12.3f %12.3f\n", sim_kind_name(kind), ours * 1e3, theirs * 1e3);
        }
    }
    if (waits[0] > 0 || waits[1] > 0)
        printf("  %-26s %12.3f %12.3f\n", "between ranks, and waits", waits[0] * 1e3, waits[1] * 1e3);
}

static Status write_trace(const Simulation *s) {
    Text text = { 0 };
    trace_open(&text);
    for (int32_t i = 0; i < s->n; i++) {
        PlanTimelineOf of = { .rank = i * plan_group_size(s->plans[i], GROUP_dp), .process = SIMULATED + i,
                              .label = "simulated " };
        PlanTimeline timeline =
            sim_picture_timeline(&s->picture, &s->sim, i, s->plans[i], plan_program(s->plans[i], "step"));
        plan_timeline_print(&timeline, &of, &text);
    }
    if (s->measured.n_lines) {
        text_add(&text, ",");
        text_add_n(&text, s->measured.lines, s->measured.n_lines);
    }
    trace_close(&text);
    Status status = file_write_atomic(s->trace, text_cstr(&text), text.bytes);
    text_finish(&text);
    return status;
}

Status simulate_svg(const SimPicture *picture, const Sim *sim, const char *title, const char *path, Arena *arena) {
    Text text = { 0 };
    sim_picture_svg(picture, sim, arena_printf(arena, "%s: %.3f ms", title, (double)sim->step_ps * 1e-9), &text);
    Status status = file_write_atomic(path, text_cstr(&text), text.bytes);
    text_finish(&text);
    return status;
}

/* The command ---------------------------------------------------------------------------------- */

static Status run(Simulation *s) {
    s->load = find_load(s);
    TRY(sim_stages(s->plans, s->n, "step", s->seconds, s->arena, &s->ops));
    s->picture = sim_picture(s->ops, s->n, s->arena);
    SimOptions options = { .contention = s->cluster.device.contention, .load = s->load,
                           .sharing = s->cluster.device.sharing, .span = sim_picture_span, .user = &s->picture };
    TRY(simulate(s->ops, s->n, &options, s->arena, &s->sim));
    TRY(print_step(s));
    if (s->times) print_comparison(s);
    if (s->trace) TRY(write_trace(s));
    return s->svg ? simulate_svg(&s->picture, &s->sim, title(s), s->svg, s->arena) : OK;
}

static int simulate_args(Simulation *s) {
    const Options *o = s->args.options;
    s->trace = line_text(o->picture);
    s->svg = line_text(o->svg);
    s->times = line_text(o->times);
    if (o->load > 0 && o->load < 1)
        return driver_fail(status_fail(ERR_ARGUMENT, "--load is %g, expected at least 1: the busiest rank over the mean", o->load));
    const char *const needed[] = { s->args.spec, s->times, line_text(o->cluster), s->args.layout };
    Status apart = driver_apart("--svg", s->svg, s->trace);
    if (apart == OK && s->svg) apart = driver_writable(s->svg);
    for (int i = 0; i < COUNT_OF(needed) && apart == OK; i++) {
        apart = driver_apart("--svg", s->svg, needed[i]);
        if (apart == OK) apart = driver_apart("--trace", s->trace, needed[i]);
    }
    if (apart == OK && s->trace) apart = trace_may_replace(s->trace);
    if (apart != OK) return driver_fail(apart);
    if (o->quick) return simulate_quick(&s->args, s->arena);
    if (s->args.precision == PRECISION_MXFP8)
        return driver_fail(status_fail(ERR_ARGUMENT, "--precision mxfp8: no plan has it yet\n"
                                                     "  hint: --quick simulates what it would cost"));
    Status status = s->times ? measured_read(s->times, s->arena, &s->measured) : OK;
    if (status != OK) return driver_fail(status);
    int result = make_plans(s);
    if (!result) result = find_seconds(s);
    if (!result) {
        status = run(s);
        result = status == OK ? 0 : driver_fail(status);
    }
    if (s->stages.plans) stage_plans_destroy(&s->stages);
    return result;
}

int cmd_simulate(int argc, char **argv) {
    Options *options = options_create();
    Simulation s = { .arena = options->arena };
    Status status = plan_args_read(&s.args, FOR_SIMULATE, options, argc, argv);
    int result = status == OK ? simulate_args(&s) : driver_fail(status);
    options_destroy(options);
    return result;
}
