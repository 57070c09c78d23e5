// SPDX-License-Identifier: Apache-2.0
// The order in which a stage of a pipeline runs its microbatches: pure functions of the layout.
//
// A rank holds `chunks` virtual stages; a *unit* is one pass of one microbatch through one of them:
// forward, backward, or the gradients of its weights where those are apart (zero bubble). All stages
// walk the same list of forward units, groups of pp microbatches with chunk after chunk inside, and the
// same of backward units with chunks falling; they differ in how many forward units run before the
// first backward one. Hence what two stages say to each other in one direction has one order on both.
//
// A microbatch keeps one *slot* of a stage from its first unit there to its last: which copy of what
// lives between its units it uses. Microbatches begin in order and end in order, so those in flight are
// neighbours and microbatch m takes slot m mod slots.
#ifndef MOEC_PIPELINE_H
#define MOEC_PIPELINE_H

#include "compiler/layout/layout.h"

typedef enum PipelineKind { PIPELINE_FORWARD, PIPELINE_BACKWARD, PIPELINE_WGRAD } PipelineKind;
enum { N_PIPELINE_KINDS = PIPELINE_WGRAD + 1 };
typedef struct PipelineUnit { uint8_t kind; int32_t chunk, microbatch; } PipelineUnit;

// Are gradients of weights units of their own?
bool pipeline_splits(const Layout *layout);
// The units of a stage in the order it runs them, and how many there are.
uint32_t pipeline_units(const Layout *layout, int32_t stage, int32_t microbatches, Arena *arena,
                        PipelineUnit **units);
// How many slots they need: the most microbatches in flight at once. (A stage that sends further back than to the one
// before has more, segments.c.)
int32_t pipeline_slots(const PipelineUnit *units, uint32_t n);
// The most pairs of chunk and microbatch between forward and the last that reads what it left: what
// memory follows.
int32_t pipeline_in_flight(const PipelineUnit *units, uint32_t n);

#endif
