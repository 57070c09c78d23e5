// SPDX-License-Identifier: Apache-2.0
// Control flow of a warp: what the scheduler and the decoder's rows need of control.c and
// divergence.c.
#ifndef MOEC_VGPU_CONTROL_H
#define MOEC_VGPU_CONTROL_H

#include "runtime/vgpu/module.h"

typedef struct VgCall {            // of a call instruction
    VgFunc *callee;                // NULL: indirect, address in i->a
    uint32_t n_args, n_rets;
    struct { uint32_t from, to, bytes; } *args, *rets; // bytes of the parameter areas
} VgCall;

/* divergence.c */
enum { VG_STALL = 16000 }; // instructions that a split may run while lanes wait for it at a join
void vg_split_save(VgWarp *w, const VgInstr *pc);   // the running split's fields into its entry
const VgInstr *vg_split_resume(VgWarp *w, uint32_t n);
const VgInstr *vg_split_pick(VgWarp *w); // after the running one disappeared: next, or NULL
const VgInstr *vg_arrive(VgWarp *w);                // the running split is at its join
VgJoin *vg_join_new(VgWarp *w, const VgInstr *pc, uint32_t pending);
void vg_split_add(VgWarp *w, uint32_t mask, const VgInstr *pc, VgJoin *join, VgFrame *frame);
const VgInstr *vg_diverge(VgWarp *w, const VgBlock *b, const VgInstr *i, uint32_t taken);
const VgInstr *vg_lanes_exit(VgWarp *w, const VgInstr *i, uint32_t lanes);
void vg_set_join(VgWarp *w, VgJoin *join);
void vg_join_leave(VgWarp *w, uint32_t lanes, VgJoin *from, const VgJoin *until);
bool vg_split_release(VgWarp *w);                   // lets lanes that wait at a join go on alone
bool vg_split_rotate(VgWarp *w); // another split gets its turn; frees stalled joins

/* frame.c */
VgFrame *vg_frame_new(VgWarp *w, const VgFunc *func, uint32_t local_base);
void vg_frame_free(VgWarp *w, VgFrame *frame);
void vg_warp_reset(VgWarp *w, const VgFunc *func, uint32_t lanes); // ready to run from the start
void vg_warp_finish(VgWarp *w);                     // all lanes have exited
void vg_warp_destroy(VgWarp *w);

/* barrier.c */
void vg_barriers_warp_exit(VgWarp *w);
Status vg_decode_bar(VgDecoder *d, const PtxInstr *p);

// Counts a block's instructions and gives the quantum up when it is used.
#define VG_LEAVE_BLOCK(b, w)                                                                       \
    ((w)->budget -= (int32_t)(b)->n, (w)->warp_instrs += (b)->n,                                   \
     (w)->thread_instrs += (uint64_t)(b)->n * (uint32_t)__builtin_popcount((w)->mask))

#endif
