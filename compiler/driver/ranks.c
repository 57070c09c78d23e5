// SPDX-License-Identifier: Apache-2.0
// `moec plan --layout`: what a rank holds and what it gives to others. Ranks of one stage run one plan, so
// they share a line.
#include <stdio.h>

#include "compiler/driver/plan_args.h"

// "0..7", "3"
static void add_range(int32_t first, int32_t last, Text *out) {
    text_printf(out, "%d", first);
    if (last > first) text_printf(out, "..%d", last);
}

static void add_ranks(const Layout *layout, int32_t stage, char out[32]) {
    Text text = { 0 };
    add_range(stage * layout->dp, (stage + 1) * layout->dp - 1, &text);
    snprintf(out, 32, "%s", text_cstr(&text));
    text_finish(&text);
}

// Layers from 1, of all virtual stages of the rank: "1..3,7..9".
static void add_layers(const StagePlans *stages, int32_t stage, Text *out) {
    const Layout *layout = &stages->layout;
    int32_t first = 0;
    bool any = false;
    for (int32_t i = 1; i <= stages->n_layers + 1; i++) {
        bool here = i <= stages->n_layers &&
                    layout_stage_of_layer(layout, i - 1, stages->n_layers) % layout->pp == stage;
        if (here && !first) first = i;
        if (here || !first) continue;
        if (any) text_add(out, ",");
        add_range(first, i - 1, out);
        any = true;
        first = 0;
    }
    if (!any) text_add(out, "none");
}

static int64_t parameters_of(const Plan *plan) {
    int64_t sum = 0;
    for (uint32_t i = 0; i < plan->n_params; i++) {
        int64_t n = !plan->params[i].is_state;
        for (int k = 0; k < plan->params[i].n_dims; k++) n *= plan->params[i].dims[k];
        sum += n;
    }
    return sum;
}

/* Memory --------------------------------------------------------------------------------------- */

static const char *const region_names[N_REGIONS] = {
#define X(name) #name,
    PLAN_REGIONS(X)
#undef X
};

static bool is_optimizers(int region) {
    return !strncmp(region_names[region], "moment", 6) || !strcmp(region_names[region], "master");
}

static bool some_have(const StagePlans *stages, int region) {
    for (int32_t i = 0; i < stages->layout.pp; i++)
        if (stages->plans[i]->region_bytes[region]) return true;
    return false;
}

static void print_memory(const StagePlans *stages, Text *out) {
    text_printf(out, "memory of a rank\n  %-9s %-12s %13s %11s", "ranks", "layers", "parameters",
                "peak");
    text_printf(out, " %11s", "optimizer");
    for (int r = 0; r < N_REGIONS; r++)
        if (some_have(stages, r)) text_printf(out, " %11s", region_names[r]);
    text_add(out, "\n");
    for (int32_t i = 0; i < stages->layout.pp; i++) {
        const Plan *plan = stages->plans[i];
        char ranks[32], bytes[32];
        Text layers = { 0 };
        add_ranks(&stages->layout, i, ranks);
        add_layers(stages, i, &layers);
        int64_t optimizer = 0;
        for (int r = 0; r < N_REGIONS; r++)
            if (is_optimizers(r)) optimizer += plan->region_bytes[r];
        text_printf(out, "  %-9s %-12s %13lld %11s", ranks, text_cstr(&layers),
                    (long long)parameters_of(plan), bytes_text(plan_peak(plan), bytes));
        text_printf(out, " %11s", bytes_text(optimizer, bytes));
        for (int r = 0; r < N_REGIONS; r++)
            if (some_have(stages, r))
                text_printf(out, " %11s", bytes_text(plan->region_bytes[r], bytes));
        text_add(out, "\n");
        text_finish(&layers);
    }
}

/* Traffic -------------------------------------------------------------------------------------- */

static const char *const move_names[N_MOVES] = {
#define X(name) #name,
    PLAN_MOVES(X)
#undef X
};

// Few plans have blocks, and then a column for them.
static bool is_shown(const StagePlans *stages, int move) {
    const PlanProgram *step = plan_program(stages->plans[0], "step");
    PlanTraffic traffic;
    if (move != MOVE_blocks || !step) return move != MOVE_blocks;
    plan_traffic(stages->plans[0], step, &traffic);
    return traffic.bytes[move][LINK_stage] > 0;
}

static void print_traffic(const StagePlans *stages, Text *out) {
    text_printf(out, "given by a rank to others in a step\n  %-9s", "ranks");
    for (int k = 0; k < N_MOVES; k++)
        if (is_shown(stages, k)) text_printf(out, " %11s", move_names[k]);
    text_printf(out, " %13s %14s\n", "in the stage", "between stages");
    for (int32_t i = 0; i < stages->layout.pp; i++) {
        const Plan *plan = stages->plans[i];
        PlanProgram *step = plan_program(plan, "step");
        if (!step) continue;
        PlanTraffic traffic;
        plan_traffic(plan, step, &traffic);
        char text[32];
        double links[N_LINKS] = { 0 };
        add_ranks(&stages->layout, i, text);
        text_printf(out, "  %-9s", text);
        for (int k = 0; k < N_MOVES; k++) {
            double sum = 0;
            for (int link = 0; link < N_LINKS; link++) {
                sum += traffic.bytes[k][link];
                links[link] += traffic.bytes[k][link];
            }
            if (is_shown(stages, k)) text_printf(out, " %11s", bytes_text((int64_t)sum, text));
        }
        text_printf(out, " %13s", bytes_text((int64_t)links[LINK_stage], text));
        text_printf(out, " %14s\n", bytes_text((int64_t)links[LINK_stages], text));
    }
}

void ranks_print(const StagePlans *stages, Text *out) {
    int32_t ranks = layout_ranks(&stages->layout);
    text_add(out, "layout  ");
    layout_print(&stages->layout, out);
    text_printf(out, ": %d rank%s\n", ranks, ranks == 1 ? "" : "s");
    print_memory(stages, out);
    if (ranks > 1) print_traffic(stages, out);
}
