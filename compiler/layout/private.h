// SPDX-License-Identifier: Apache-2.0
// What the files of this room share: the facts about a model that rules ask for; a field as text.
#ifndef MOEC_LAYOUT_PRIVATE_H
#define MOEC_LAYOUT_PRIVATE_H

#include "compiler/layout/layout.h"

typedef struct RouteFact {
    int32_t layer; // from 0; -1: outside of the layers
    const char *name;
    int32_t experts, top_k;
    double capacity; // 0: dropless
} RouteFact;

typedef struct Facts {
    int32_t n_layers;
    int64_t sequence, ranks, batch;
    const RouteFact *routes;
    int32_t n_routes;
    bool devices; // see LayoutRun
} Facts;

// A rule: whether the layout keeps it; if not, and `why` is there, what is broken.
typedef bool (*Rule)(const Facts *facts, const Layout *layout, Text *why);

enum {
    RULE_ranks, RULE_ep, RULE_experts, RULE_node, RULE_schedule, RULE_stages, RULE_batch,
    RULE_microbatches, RULE_rows, RULE_capacity, RULE_recompute, RULE_placement, N_RULES
};
extern const Rule layout_rules[N_RULES];
// The first rule that is broken, else N_RULES.
int layout_first_broken(const Facts *facts, const Layout *layout, Text *why);
// Copies that a rank has room for in one microbatch of the route, ep * T * k at most.
double layout_rows_of(const Facts *facts, const Layout *layout, const RouteFact *route);

// The nearest layout that keeps every rule; false: there is none of that number of ranks.
bool layout_nearest(const Facts *facts, const Layout *from, Arena *arena, Layout *out);

/* text.c: a field of the short form */

bool layout_leaves_out(const Layout *layout, LayoutField field); // it has what a layout has that says nothing

#endif
