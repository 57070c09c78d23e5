// SPDX-License-Identifier: Apache-2.0
// Shared by stages.c and cut.c: which virtual stage of a pipeline each node of a program belongs to.
#ifndef MOEC_LOWER_STAGES_H
#define MOEC_LOWER_STAGES_H

#include "compiler/lower/pass.h"

typedef enum Place {
    PLACED,       // on one virtual stage
    COPIED,       // made by every stage that reads it: functions of generators, routes, views of
                  // parameters, and what updates compute of totals
    COPIED_WEIGHT // of these, parameters, states and views of them: `param` says which
} Place;

typedef struct Stages {
    Lower *l;
    Model *m; // the program of all stages
    Arena *arena;
    int32_t ranks, chunks, n; // n: virtual stages; stage i is chunk i / ranks of rank i % ranks
    uint8_t *place;
    int32_t *at;     // of a placed node; of a copied one: the highest of what it is made of, or -1
    uint32_t *param; // of a weight: index in m->params
} Stages;

void stages_find(Stages *s, Lower *l, Model *m, Arena *arena);
static inline int32_t stages_rank(const Stages *s, uint32_t n) {
    return s->at[n] % s->ranks;
}

#endif
