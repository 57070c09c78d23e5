// SPDX-License-Identifier: Apache-2.0
// What `moec search` knows, finds and shows.
#ifndef MOEC_DRIVER_SEARCH_H
#define MOEC_DRIVER_SEARCH_H

#include "compiler/driver/driver.h"
#include "compiler/driver/layout.h"
#include "compiler/driver/line.h"
#include "compiler/search/costed.h"
#include "compiler/search/profile.h"
#include "compiler/search/search.h"

enum { HUNT_KEPT = 64 /* layouts that are looked at again */, HUNT_STEPS = 12 /* of memory */ };

typedef struct HuntArgs {
    const Options *options;
    const char *spec, *cluster, *layout, *out;
    int64_t gpus, tokens, top;  // 0: not said
    double memory_gib;          // of a device; 0: the cluster's
    uint8_t precisions[SEARCH_MOST_LISTED];
    int32_t n_precisions; // Precision; 0 until the cluster is known
    double capacities[SEARCH_MOST_LISTED], rounds[SEARCH_MOST_LISTED];
    int32_t n_capacities, n_rounds;
    bool any_precision, planned;
    SpecOptions spec_options;
    bool brief;                 // without what takes further searches
} HuntArgs;

// One cluster under which the model was searched.
typedef struct Ground {
    CostCluster cluster;
    CostProfile *costs;
    Costed costed;
    SearchProfile profile;
    Search *search;
} Ground;

typedef struct Hunt {
    HuntArgs *args;
    Model *model;
    Arena *arena;
    SearchSpace space;
    Ground at;
    double memory;              // bytes of a device that are searched
    double left_bytes;          // of a device besides: what plans take more than predicted
    const int32_t *planned;     // stages of the layout whose fullest stage was lowered last, and its bytes; 0: it has no plan
    double planned_bytes;
    SearchFound found;          // HUNT_KEPT
    SearchFront front;
    double seconds;             // of the search
    Layout named;               // args->layout
    Load load;                  // args->options->recorded
    Placed *placed;             // by it; NULL: none
    const char *unit;           // of a step's time, as it is shown: s, ms or us
    double units;               // how many of them a second has
} Hunt;

// A search over the same space on another cluster, `bare` for single points only. `load`: imbalance over what
// is expected. *out stays where it is. Prints what is wrong; returns the exit status.
int hunt_ground(const Hunt *h, const CostCluster *cluster, double load, bool bare, Ground *out);
void ground_finish(Ground *ground);
// The layout of compiler/layout, with what only the cluster says.
Layout hunt_layout(const Hunt *h, const SearchLayout *found);
// In the short form, but for recomputes that are mixed: "recompute=block of 3, cheap of 5".
void hunt_name(const Hunt *h, const SearchLayout *found, Text *out);
extern const char *const hunt_precision[];              // by Precision
// The same stages and recomputes at the same point.
bool hunt_same_layout(const SearchLayout *a, const SearchLayout *b, int32_t layers);
double hunt_tokens_per_s(const Hunt *h, double step_s); // of a device

/* search_show.c */
void hunt_show(const Hunt *h, Text *out);
// Plans of the fullest stages of listed layouts beside what was predicted.
void hunt_confirm(Hunt *h, Text *out);
// The commands that take what -o has written, with all that a layout does not say; or how to have it written.
void hunt_next(const Hunt *h, Text *out);
// Bytes of the first's fullest stage, the fullest by prediction: by its plan less predicted. 0: it fits, or has no plan.
double hunt_short(Hunt *h);

/* search_why.c */
void hunt_neighbours(Hunt *h, Text *out);
void hunt_binding(Hunt *h, Text *out);
void hunt_why_not(Hunt *h, Text *out); // `named`
void hunt_nothing(Hunt *h, Text *out); // fits: what is the least that must change

#endif
