// SPDX-License-Identifier: Apache-2.0
// Running state: warps, blocks, grids, and what may stop a warp.
//
// Divergence. The lanes of a warp are partitioned into splits, usually one. A branch that divides a
// split makes a Join (where the lanes meet again: the immediate post-dominator) and two splits that
// point to it; a split that reaches its join's place arrives there and disappears; when all lanes
// that are pending have arrived, or exited, one split goes on with the join's parent. A call is a
// join too: its lanes meet at `ret`. Any split may run next, so lanes that spin on others cannot
// starve them.
//
// Threads. All warps of a block run on one host thread, one at a time. Only global memory and the
// grid's counters are shared between threads.
#ifndef MOEC_VGPU_WARP_H
#define MOEC_VGPU_WARP_H

#include "runtime/vgpu/code.h"

typedef struct VgCta VgCta;
typedef struct VgGrid VgGrid;
typedef struct VgWorker VgWorker;

typedef struct VgFrame VgFrame; // registers of one activation
struct VgFrame {
    const VgFunc *func;
    char *at;
    uint32_t local_base;  // of this activation, bytes within the thread's local memory
    VgFrame *next_free;
    uint32_t capacity;
};

typedef struct VgJoin VgJoin;
struct VgJoin {
    VgJoin *parent;
    VgFrame *frame;           // where execution goes on
    const VgInstr *pc;        // first instruction of the block, or after the call
    uint32_t pending, arrived;
    uint32_t depth;           // call depth it belongs to
    bool call;
    VgFrame *callee;          // freed when the call has returned
    VgJoin *next_free;
};

typedef struct VgSplit {
    const VgInstr *pc;
    uint32_t mask;
    VgJoin *join;             // NULL: lanes meet only at the exit
    VgFrame *frame;
    uint32_t depth;
    uint32_t spins;           // backward branches since other splits last ran
    uint32_t sync_mask;       // waits at a .sync instruction for these lanes, 0 = does not
    bool sync_any;            // bar.warp.sync: other lanes may wait at other places
} VgSplit;

// Why a warp does not run. A handler that must wait fills this, sets warp->pc to the instruction to
// run when poll is true (itself, to try again), and returns NULL.
typedef struct VgWait {
    bool (*poll)(VgWarp *w);                  // may it run? NULL: someone else clears the wait
    void (*describe)(VgWarp *w, Text *text);  // "barrier 3: 96 of 128 arrived"
    const void *object;                       // barrier, mbarrier, ...
    uint64_t value[2];
    bool spinning;                            // only a poll loop: wakes when nothing else can run
} VgWait;

typedef enum VgWarpState { VG_READY, VG_WAITING, VG_DONE } VgWarpState;
struct VgWarp {
    uint32_t mask;            // lanes of the running split
    uint32_t alive;           // lanes that have not exited
    int32_t budget;           // instructions left in the quantum
    uint32_t index;           // in the block
    const VgInstr *pc;        // when not running
    VgFrame *frame;           // of the running split
    VgCta *cta;
    const VgFunc *func;       // of frame
    uint64_t warp_instrs, thread_instrs;
    VgWarpMem mem;            // memory.h
    void *async;              // of the async engines
    VgWarpState state;
    VgWait wait;
    uint32_t n_splits, running;
    uint32_t depth;           // of the running split
    VgJoin *join;             // of the running split
    uint32_t launched;        // lanes that exist
    uint32_t sync_wait;       // bits of splits that wait at a .sync
    bool warned_exit;
    VgSplit splits[32];
    VgJoin *free_joins;
    VgFrame *free_frames;
    const VgInstr *spin_pc;   // last backward branch taken, for spin detection
    uint32_t spin_count;
};

typedef struct VgBarrier {    // bar.sync and friends
    uint32_t arrived, expected; // threads; expected 0 = no phase in progress
    uint32_t phase;
    uint64_t arrived_warps, synced_warps; // bits by warp index
    uint32_t reduce_and, reduce_or, reduce_count; // of bar.red
    bool reduces;
    VgClock *clock;           // made at first use
} VgBarrier;

struct VgCta {
    VgGrid *grid;
    VgWorker *worker;
    uint32_t id[3];           // %ctaid
    uint64_t linear;          // in the grid
    uint32_t cluster_rank;
    struct VgCluster *cluster; // of the async engines; NULL without clusters
    VgWarp *warps;
    uint32_t n_warps, n_done, next_warp;
    uint32_t shared_bytes, dynamic_at; // static + dynamic; where the dynamic part starts
    VgTeam *team;             // memory of the cluster, memory.h
    void *async;              // of the async engines
    VgBarrier barriers[16];
    uint64_t progress;        // rises when something changed that could wake a spinning warp
    VgCta *next;              // resident list of the worker
};

struct VgGrid {
    VgDevice *device;
    const VgLaunch *launch;
    const VgKernel *kernel;
    const VgFunc *func;
    uint32_t grid[3], block[3], cluster[3];
    uint32_t threads, warps_per_cta;
    uint64_t n_ctas;
    const char *params;
    VgLaunchMem *memory;
    void *async;
    _Atomic uint64_t next_cta, done_ctas;
    _Atomic uint64_t progress; // of global memory: rises at global stores that could wake a spinner
    _Atomic int fault;        // VgFault, first one wins
    uint64_t id;              // launches of this device, counted
};

struct VgWorker {             // one host thread
    VgGrid *grid;
    uint32_t index;
    uint64_t clock;           // virtual cycles
    VgCta *resident;
    uint64_t random;
    VgMemThread *memory;
};

struct VgDevice {
    char arch[16];
    int cc, threads, sm_count;
    uint32_t quantum;
    uint64_t seed;
    VgMemory *memory;
    VgReports *reports;
    VgModule *modules;
    VgRunStats stats;
    uint64_t launches, functions;
    uint32_t stack_limit;     // bytes of local memory per thread for calls, beyond the entry's own
    void *lock;               // of core.c
};

// What runs where, for reports.
const VgFunc *vg_func_of(const VgWarp *w, const VgInstr *i); // the function whose code holds *i
const PtxInstr *vg_source_of(const VgWarp *w, const VgInstr *i);

/* Faults (fault.c) ------------------------------------------------------------------------------- */

// Stops the launch with a report; always returns NULL so that handlers `return vg_fault(...)`.
const VgInstr *vg_fault(VgWarp *w, const VgInstr *i, VgFault kind, uint32_t lanes,
                        const char *format, ...) PRINTF_LIKE(5, 6);
// The same for a fault whose record a check of memory.h has filled.
const VgInstr *vg_fault_record(VgWarp *w, const VgInstr *i, VgFault fault);
// A finding that does not stop the launch.
void vg_warn(VgWarp *w, const VgInstr *i, uint32_t lanes, const char *format, ...) PRINTF_LIKE(4, 5);
// A fault of no single warp: deadlock, launch.
void vg_fault_grid(VgGrid *grid, VgFault kind, const char *text);

/* exec_control.c ----------------------------------------------------------------------------------- */

// Blocks the warp at *pc until poll says true; returns NULL.
const VgInstr *vg_wait(VgWarp *w, const VgInstr *pc, bool (*poll)(VgWarp *),
                       void (*describe)(VgWarp *, Text *), const void *object);
// For `.sync` instructions with a membermask: true when the lanes `mask` of the running split may
// execute *i now. False: *next is what the handler must return (other lanes run first, or a fault).
bool vg_converge(const VgInstr *i, VgWarp *w, uint32_t mask, uint32_t members, const VgInstr **next);
// For `.aligned` instructions: all lanes that have not exited are here, else a fault.
bool vg_aligned(const VgInstr *i, VgWarp *w, const VgInstr **next);
bool vg_warp_step(VgWarp *w); // runs until it blocks, finishes or uses its quantum; false: fault

#endif
