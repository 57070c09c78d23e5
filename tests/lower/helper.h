// SPDX-License-Identifier: Apache-2.0
// Models to lower, built by hand, and the passes run on them one by one without generating code.
#ifndef MOEC_TEST_LOWER_HELPER_H
#define MOEC_TEST_LOWER_HELPER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "compiler/lower/pass.h"

enum { VOCAB = 32, WIDTH = 16, SEQUENCE = 48 };

// A traced model: embedding, one MoE layer with a router and its losses, attention, tied head, a
// state.
Model *moe_model(void);
// The same size of everything, but operations drawn at random.
Model *random_model(uint64_t seed);
// An embedding and a head around nothing: the smallest model that trains.
Model *plain_model(void);

uint32_t param_named(Model *m, const char *name, const int32_t *dims, int rank, uint32_t route);
void add_loss(Model *m, const char *name, uint32_t node, double weight);
uint32_t linear(Model *m, const char *name, uint32_t x, int32_t n);
uint32_t rms_norm(Model *m, const char *name, uint32_t x);

// Lowers one program up to addresses. `lab` keeps what the passes need; finish with lab_end.
typedef struct Lab {
    Lower l;
    Layout layout;
    Plan *plan;
    LowerOptions options;
    Shared shared;
} Lab;
void lab_start(Lab *lab, Model *m, Program program, bool no_fusion);
// Sizes are those of lab_start: two microbatches of two sequences.
void lab_start_with(Lab *lab, Model *m, Program program, LowerOptions options);
void lab_end(Lab *lab);

#endif
