// SPDX-License-Identifier: Apache-2.0
// From Model to Plan: an ordered list of passes (lower.c).
#ifndef MOEC_LOWER_H
#define MOEC_LOWER_H

#include "compiler/layout/layout.h"
#include "compiler/model/model.h"
#include "runtime/plan/plan.h"

enum { LOWER_MOST_MICROBATCHES = 1000000 }; // per step: a plan has rows for each

typedef struct LowerOptions {
    int32_t microbatch;          // sequences per microbatch
    int32_t microbatches;        // per step
    bool programs[N_PROGRAMS];   // which to build
    const char *target;          // where it runs: plan.h, PlanTarget; NULL: "cpu"
    uint8_t precision;           // of the run: PRECISION_OPEN means fp32; PRECISION_BF16
    uint8_t recompute;           // LayoutRecompute, where there is no layout
    const Layout *layout;        // NULL: one rank
    int32_t stage;               // of the layout: whose plan to make
    int64_t piece;               // numbers of a loss's product at a time; 0: what suits caches
    int64_t bucket;              // most bytes of a bucket of parameters; 0: what suits memory
    bool no_fusion;              // one kernel per operation: for tests
    bool whole_blocks;           // rows between nodes in parts of one size, as for GPUs: for tests
    const char *dump;            // letters of passes to dump to `dump_out`, or NULL
    Text *dump_out;
} LowerOptions;

// NULL when refused: model->diag has message, hint and location.
Plan *lower_model(Model *model, const LowerOptions *options);

// What the step of a plan would consist of, without making it: no sources, no addresses.
typedef struct KernelDesc KernelDesc; // compiler/kernel/kernel.h
typedef struct ProbeKernel {
    const KernelDesc *desc;
    int32_t layer;   // from 0; -1: before the first; as many as there are layers: after the last
    bool backward;   // not in forward
    bool again;      // backward computes it once more
    bool weights;    // makes gradients of weights
    bool experts;    // works on weights or gradients of experts that cross ranks
    int32_t trips;   // launches a microbatch
    int32_t time;    // instruction
} ProbeKernel;
typedef struct ProbeBuffer {
    int64_t bytes;
    int32_t layer;        // of the kernel that writes it
    uint8_t region;       // act or sym
    uint8_t rows;         // RowKind by which its bytes grow; ROW_NONE: they stay
    bool saved;           // from forward to backward
    bool waits;           // gradients of weights read it: it stays until they are made, where those come later (zb)
    bool gradient;        // of weights: the whole of a bucket that is exchanged in each microbatch
    int32_t first, last;  // instructions; first < 0: it is in memory only where it waits
} ProbeBuffer;
typedef struct LowerProbe {
    void (*kernel)(void *user, const ProbeKernel *kernel);  // in order of time; of forward and backward
    void (*buffer)(void *user, const ProbeBuffer *buffer);  // of these
    void *user;
    const Model *graph; // of model_program for the step, of this model with as many ranks; NULL: it is made here
} LowerProbe;
// One rank, or `layout` with pp = 1. False when refused, as above.
bool lower_probe(Model *model, const LowerOptions *options, const LowerProbe *probe);

#endif
