// SPDX-License-Identifier: Apache-2.0
// --layout of commands that lower a spec: from its text to a layout that is possible for the model.
#ifndef MOEC_DRIVER_LAYOUT_H
#define MOEC_DRIVER_LAYOUT_H

#include "compiler/driver/driver.h"
#include "compiler/layout/layout.h"

enum { USUAL_MICROBATCH = 2048 /* tokens */ };

typedef struct LayoutArgs {
    const char *text;      // a file of Lua if it ends in .lua, else the short form
    int64_t ranks;         // that were started; 0: as many as the layout has
    bool devices;          // `ranks` are those of a machine that is described: nothing was started
    // What the layout leaves open.
    int64_t microbatch;    // tokens; 0: about USUAL_MICROBATCH
    int64_t microbatches;  // of a rank in a step; 0: as the batch says
    int64_t batch;         // tokens of a step, of all ranks; 0: as few microbatches as the schedule needs
    uint8_t recompute;     // LayoutRecompute
} LayoutArgs;

// The layout with its microbatch, and how many of those a rank has in a step. Rules of precision of a file
// become the model's. Prints what is wrong; returns the exit status.
int driver_layout(const LayoutArgs *args, Model *model, Arena *arena, Layout *layout,
                  int32_t *microbatches);

#endif
