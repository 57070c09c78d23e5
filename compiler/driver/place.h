// SPDX-License-Identifier: Apache-2.0
// What `moec place` knows of a run, finds, and shows. Layers are those that have experts.
#ifndef MOEC_DRIVER_PLACE_H
#define MOEC_DRIVER_PLACE_H

#include "compiler/cost/cost.h"
#include "compiler/layout/layout.h"
#include "compiler/search/load.h"
#include "compiler/search/placement.h"

typedef struct PlaceLayer {
    int32_t layer, experts;      // layer from 1
    double numbers;              // of an expert's weights; 0: not known
    int32_t *owner;              // [experts] rank now; after place_all
    bool even;                   // nothing was recorded: even loads are taken
    double *load;                // [experts] rows of all steps
    double *rank_now, *rank_then; // [ranks] rows
    double now, then;            // of the busiest
    Placement placed;            // what was found; the rank of each expert then:
    int32_t *place;              // [experts]
    int32_t moved;
    Placement copies;            // with --slots; slots 0: without
} PlaceLayer;

typedef struct Place {
    const char *source;          // RUN or a file of loads
    const char *loads;           // the file that was read
    bool of_run, in_order;       // nobody says where experts are: on these ranks they would be in order
    int32_t ranks, slots;        // of ep; places of each rank, 0: as many as experts need
    Load load;
    PlaceLayer *layers; int32_t n_layers, cap_layers;
    int32_t edp;                 // ranks that hold the same experts
    double bytes_per_s, flops_per_s; // 0: not known
    CostCluster *cluster;        // that experts would move on, if bytes_per_s is 0; NULL: none
    int32_t shown;               // layer to draw; 0: the one that gains most
    Layout layout;               // with the placement
    int32_t model_layers;        // rows of its placement
} Place;

// Fills in what follows from loads and owners.
void place_all(Place *place, Arena *arena);
// Sum over layers of the busiest rank's rows over that of the mean, of loads [width] with the owners that
// `then` chooses.
double place_imbalance(const Place *place, const double *loads, bool then, Arena *arena);
// As place_imbalance of steps [middle, end), with a placement made for steps [0, middle).
double place_judged(const Place *place, int32_t middle, Arena *arena);
void place_print(const Place *place, Text *out);

#endif
