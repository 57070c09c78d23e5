// SPDX-License-Identifier: Apache-2.0
// Asynchronous copies of a warp: what has been asked for and not yet been waited for.
//
// A copy reads its source when it is issued and writes its destination when a wait finds it
// complete: the latest moment the rules allow. In between both are in flight for the shadow
// (VgFlight): who reads or writes the destination, or writes the source, is reported. From the wait
// on the destination counts as written by the waiting warp, so a barrier must follow before other
// warps may read, and the shadow finds the one that is missing.
#ifndef MOEC_VGPU_ASYNC_H
#define MOEC_VGPU_ASYNC_H

#include "runtime/vgpu/warp.h"

typedef struct VgCopy {
    const VgSite *land;   // up to four words per lane, from this record as the frame
    const VgInstr *instr; // for reports
    uint32_t mask;        // lanes whose copy has not landed
    uint32_t flight;      // VgWarpMem.flight of its source's touches
    uint32_t number;      // copies of the warp before it
    uint32_t group[32];   // of each lane: how many groups it had committed at issue
    uint64_t address[32] __attribute__((aligned(64)));
    uint32_t data[4][32] __attribute__((aligned(64)));
} VgCopy;

typedef struct VgCopies {
    VgCopy **items; // [n] in the order of issue; beyond: to be used again
    uint32_t n, made, cap;
    uint32_t issued;        // in all
    uint32_t committed[32]; // groups of each lane
    bool open;              // the last copy's group has not been committed by anyone
} VgCopies;

VgCopies *vg_copies(VgWarp *w); // of the warp, made at first use; NULL: no memory
VgCopy *vg_copy_new(VgWarp *w); // the next item, for the group that is open; NULL: no memory
// Lanes `lanes` of the first `n` copies of all whose group is below their lane's `before` (NULL:
// all) land, by the agent `by`: the warp's, or a memory of it. *instr: whose copy a fault is of.
VgFault vg_copies_land(VgWarp *w, VgWarpMem *by, uint32_t n, uint32_t lanes, const int64_t *before,
                       const VgInstr **instr);
void vg_copies_reset(VgWarp *w); // a warp starts or ends
void vg_copies_destroy(VgWarp *w);

#endif
