// SPDX-License-Identifier: Apache-2.0
// Measures a device and the transport between ranks, for `moec calibrate`. Every figure is taken over `seconds` of
// work without a pause.
#ifndef MOEC_DRIVER_MEASURE_H
#define MOEC_DRIVER_MEASURE_H

#include "compiler/cost/cost.h"
#include "runtime/base/base.h"

struct Comm;

typedef struct MeasureOptions {
    const char *device;  // "cpu", "cuda", ..
    int threads;         // of a CPU; 0: all cores
    double seconds;      // for each figure
    bool alone;          // one thread of one process: what else runs on its core is not counted
    bool crowded;        // more ranks than cores: they take turns, and all turns count, not the best ones
    // Called before each figure and now and then; ERR_INTERRUPTED ends it.
    Status (*pulse)(void *user, const char *what);
    void *user;
} MeasureOptions;

// Fills name, arch, units, memory and what can be timed: peaks (the best second of large products), reach and
// depth, what remains of it under load that lasts, products of experts, memory, launches, attention. Where it is interrupted
// figures that it had no time for are 0. Texts live in `arena`.
Status measure_device(const MeasureOptions *options, Arena *arena, CostDevice *out);
// FLOP per second of large products in fp32, as measure_device takes them.
Status measure_products(const MeasureOptions *options, Arena *arena, double *flop_per_s);
// All ranks call it, of a mesh whose only axis is ep: collectives and rows. The link joins them.
Status measure_link(struct Comm *comm, const MeasureOptions *options, CostLink *out);

#endif
