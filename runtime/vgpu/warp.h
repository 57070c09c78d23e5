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
typedef struct VgCluster VgCluster;
typedef struct VgWorker VgWorker;

typedef struct VgFrame VgFrame; // registers of one activation
struct VgFrame {
    const VgFunc *func;
    char *at;
    uint32_t local_base;  // of this activation, bytes within the thread's local memory
    VgFrame *next_free, *next_all;
    uint32_t capacity;
    uint64_t launch;      // whose constants it holds
};

typedef struct VgJoin VgJoin;
struct VgJoin {
    VgJoin *parent;
    VgFrame *frame;           // where execution goes on
    const VgInstr *pc;        // first instruction of the block, or after the call
    uint32_t pending, arrived;
    bool call;
    const struct VgCall *site; // of a call
    VgFrame *callee;          // freed when the call has returned
    VgJoin *next_free, *next_all;
};

typedef struct VgSplit {
    const VgInstr *pc;
    uint32_t mask;
    VgJoin *join;             // NULL: lanes meet only at the exit
    VgFrame *frame;
    uint32_t sync_mask;       // waits at a .sync instruction for these lanes, 0 = does not
    bool sync_any;            // bar.warp.sync: other lanes may wait at other places
    bool sync_aligned;        // waits for all lanes that have not exited
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
    VgFrame *frame, *base;    // of the running split; of the kernel itself
    VgCta *cta;
    const VgInstr *meet; // where the running split arrives at its join, NULL: nowhere by branching
    uint64_t warp_instrs, thread_instrs;
    VgWarpMem mem;            // memory.h
    void *async;              // of the async engines
    VgWarpState state;
    VgWait wait;
    uint32_t n_splits, running;
    VgJoin *join;             // of the running split
    uint32_t stall;           // instructions of quanta since lanes last met or parted
    uint32_t depth;           // frames in use
    VgJoin *free_joins, *all_joins;
    VgFrame *free_frames, *all_frames;
    VgSplit splits[32];       // the running one's fields are above, stale here
};

typedef struct VgBarrier {    // bar.sync and friends
    uint32_t arrived, expected; // threads; expected 0 = no phase in progress
    uint32_t phase;
    uint64_t arrived_warps, synced_warps; // bits by warp index
    uint32_t reduce_and, reduce_or, reduce_count; // of bar.red
    uint32_t kind;            // of the phase's waiters, barrier.c
    VgClock *clock;           // made at first use
} VgBarrier;

struct VgCta {
    VgGrid *grid;
    VgWorker *worker;
    uint32_t id[3];           // %ctaid
    uint64_t linear;          // in the grid
    uint32_t cluster_rank;
    VgCluster *cluster;       // never NULL; one block without clusters
    VgWarp *warps;
    uint32_t n_warps, n_done, next_warp;
    uint32_t shared_bytes, dynamic_at; // static + dynamic; where the dynamic part starts
    VgTeam *team;             // of the cluster
    void *async;              // of the async engines
    VgBarrier barriers[16];
    uint64_t progress;        // rises when something changed that could wake a spinning warp
};

struct VgCluster {            // what a host thread takes from the grid, runs and retires as a whole
    VgTeam *team;             // its memory, memory.h
    VgCta *ctas;
    uint32_t n, n_done;
    uint64_t linear;
    void *async;              // cluster barrier and the like, of the async engines
    uint64_t idle;            // instructions of turns without progress
    VgCluster *next;          // resident or spare list of the worker
};

struct VgGrid {
    VgDevice *device;
    const VgLaunch *launch;
    const VgKernel *kernel;
    const VgFunc *func;
    uint32_t grid[3], block[3], cluster[3];
    uint32_t threads, warps_per_cta, ctas_per_cluster;
    uint64_t n_ctas;
    const char *params;
    uint64_t workspace;       // of a cooperative launch: what grid-wide barriers use, else 0
    VgLaunchMem *memory;
    void *async;
    _Atomic uint64_t next_cluster, done_clusters, resident;
    uint64_t n_clusters, resident_limit;
    uint32_t dynamic_at;      // shared offset of the dynamic part
    uint32_t reserved_at, shared_end; // of the system's part; of everything
    _Atomic uint64_t progress; // rises when a block ends or a barrier completes anywhere
    _Atomic int fault;        // VgFault, first one wins
    VgWorker *workers;
    int n_workers;
    uint64_t id;              // launches of this device, counted
};

struct VgWorker {             // one host thread
    VgGrid *grid;
    uint32_t index;
    uint64_t clock;           // virtual cycles
    VgCluster *resident, *spare;
    uint64_t warp_instrs, thread_instrs;
    _Atomic uint64_t
        steady; // progress << 8 | times in a row that all its blocks were found spinning
    _Atomic bool idle;        // it has no block and gets none
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
    struct VgPool *pool;      // host threads, pool.c
    Text warnings;
};

// What runs where, for reports.
const PtxInstr *vg_source_at(const VgFunc *func, const VgInstr *i); // NULL: made by the decoder

/* Faults (fault.c) -------------------------------------------------------------------------------
 */

// Stops the launch with a report; always returns NULL so that handlers `return vg_fault(...)`.
const VgInstr *vg_fault(VgWarp *w, const VgInstr *i, VgFault kind, uint32_t lanes,
                        const char *format, ...) PRINTF_LIKE(5, 6);
// The same for a fault whose record a check of memory.h has filled.
const VgInstr *vg_fault_record(VgWarp *w, const VgInstr *i, VgFault fault);
// A finding that does not stop the launch.
void vg_warn(VgWarp *w, const VgInstr *i, uint32_t lanes, const char *format, ...)
    PRINTF_LIKE(4, 5);
// A fault of no single warp: deadlock, launch.
void vg_fault_grid(VgGrid *grid, VgFault kind, const char *text);

/* divergence.c, barrier.c ---------------------------------------------------------------------- */

// Blocks the warp at *pc until poll says true; returns NULL.
const VgInstr *vg_wait(VgWarp *w, const VgInstr *pc, bool (*poll)(VgWarp *),
                       void (*describe)(VgWarp *, Text *), const void *object);
// For `.sync` instructions with a membermask: true when the lanes `mask` of the running split may
// execute *i now. False: *next is what the handler must return (other lanes run first, or a fault).
// After true the running split may have grown: the mask is to be computed anew. `any`: lanes may
// wait at other instructions of the same kind.
bool vg_converge(const VgInstr *i, VgWarp *w, uint32_t mask, uint32_t members, bool any,
                 const VgInstr **next);
// For `.aligned` instructions: all lanes that have not exited are here, else a fault.
bool vg_aligned(const VgInstr *i, VgWarp *w, const VgInstr **next);
bool vg_warp_step(VgWarp *w); // runs until it blocks, finishes or uses its quantum; false: fault

#endif
