// SPDX-License-Identifier: Apache-2.0
// Asynchronous copies of a warp: what has been asked for and not yet been waited for.
//
// A copy reads its source when it is issued and writes its destination when a wait finds it complete:
// the latest moment the rules allow. Until then other readers find what was there before, and a
// destination that nobody waits for is never written. The write is the waiting warp's own, so a
// barrier must follow before other warps may read, and the shadow finds the one that is missing.
#ifndef MOEC_VGPU_ASYNC_H
#define MOEC_VGPU_ASYNC_H

#include "runtime/vgpu/warp.h"

typedef struct VgCopy {
    const VgSite *write;      // four words per lane, from this record as the frame
    const VgInstr *instr;     // for reports
    uint32_t mask;            // lanes whose copy has not been published
    uint32_t group[32];       // of each lane: how many groups it had committed at issue
    uint64_t address[32] __attribute__((aligned(64)));
    uint32_t data[4][32] __attribute__((aligned(64)));
} VgCopy;

typedef struct VgCopies {
    VgCopy *items;
    uint32_t n, cap;
    uint32_t committed[32];   // groups of each lane
} VgCopies;

VgCopies *vg_copies(VgWarp *w);      // of the warp, made at first use; NULL: no memory
void vg_copies_reset(VgWarp *w);     // a warp starts or ends
void vg_copies_destroy(VgWarp *w);

#endif
