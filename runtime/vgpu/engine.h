// SPDX-License-Identifier: Apache-2.0
// Objects of a cluster that outlive an instruction: mbarriers, bulk copies, the cluster's barrier.
//
// An mbarrier's state is kept here, by place; the 8 bytes in shared memory are in flight for the
// shadow from init to inval, so that plain accesses to them are reported. Bulk copies read their
// source when they are issued and land as late as the rules allow: those that count transactions
// when somebody waits for a phase that all of them together complete; those of bulk groups when
// their group is waited for. Deferred arrivals of cp.async are the same: the copies land, then the
// arrival counts.
#ifndef MOEC_VGPU_ENGINE_H
#define MOEC_VGPU_ENGINE_H

#include "runtime/vgpu/control.h"
#include "runtime/vgpu/shadow.h"

typedef struct VgMbarrier VgMbarrier;
typedef struct VgBulk VgBulk;

// What completes later: bytes of a bulk copy, or arrivals when cp.async copies have landed.
struct VgBulk {
    VgBulk *next;
    VgWarp *warp; // who issued it
    const VgInstr *instr;
    const VgSite *site;   // of the destination; NULL: deferred arrivals
    const VgSite *source; // in shared memory, to be given back; else NULL
    uint32_t lane, bytes, flight;
    uint64_t to, from;                // addresses as the sites see them
    uint8_t *data;                    // bytes
    uint32_t group;                   // of a bulk group
    bool read_done;                   // its source has been given back
    uint32_t lanes, copies, arrivals; // deferred: lanes and number of copies before it
    VgWarpMem agent;                  // the warp as it was then
    VgClock clock;
    uint32_t at[];
};

struct VgMbarrier {
    VgMbarrier *next;
    uint32_t rank, offset; // place in the cluster's shared memory
    uint32_t expected, pending;
    uint64_t phase;          // completed so far
    int64_t tx;              // bytes that are expected and have not come
    VgClock *clock, *done;   // of arrivals in this phase; of all phases before
    VgBulk *flying;          // land here, in order of issue
    uint32_t agent, gen, at; // who made it, and when
};

typedef struct VgEngine { // of a cluster: VgCluster.async
    uint64_t linear;      // of the cluster it is for
    VgMbarrier *mbarriers;
    struct VgClusterBarrier {
        uint64_t phase;
        uint32_t arrived; // warps
        VgClock *clock, *done;
    } barrier;
    struct VgWarpEngine { // by warp of the cluster
        uint64_t arrived; // phase of the cluster's barrier it has arrived in + 1, 0: waits for none
        uint32_t groups[32]; // bulk groups committed, by lane
        VgBulk *bulk;        // of bulk groups, in order
    } * warps;
    uint32_t n_warps;
} VgEngine;

VgEngine *vg_engine(VgWarp *w); // of its cluster; NULL: no memory
struct VgWarpEngine *vg_warp_engine(VgWarp *w);
void vg_engine_destroy(VgCluster *c);
bool vg_engine_warp_exit(VgWarp *w); // false: a fault

/* mbarrier.c */
// The live mbarrier at an address, or NULL with *next what the handler returns.
VgMbarrier *vg_mbarrier_at(VgWarp *w, const VgInstr *i, const VgSite *site, uint32_t lane,
                           uint64_t address, const VgInstr **next);
void vg_mbarrier_fly(VgMbarrier *b, VgBulk *op);
Status vg_decode_mbarrier(VgDecoder *d, const PtxInstr *p);
Status vg_decode_async_arrive(VgDecoder *d, const PtxInstr *p); // cp.async.mbarrier.arrive
/* bulk.c */
VgFault vg_bulk_land(VgBulk *op); // the destination; the record is of the fault
void vg_bulk_free(VgBulk *op);
VgBulk *vg_bulk_new(VgWarp *w, const VgInstr *i, const VgSite *site, uint32_t lane, uint32_t bytes);
Status vg_decode_bulk(VgDecoder *d, const PtxInstr *p); // cp.async.bulk, .bulk already taken

bool vg_bulk_warp_exit(VgWarp *w, struct VgWarpEngine *e); // false: a fault
/* cluster.c */
Status vg_decode_cluster_barrier(VgDecoder *d,
                                 const PtxInstr *p); // barrier, .cluster already taken

extern const VgRoot vg_roots_engine[];

// Values of an operand: 32 lanes of 4 or 8 bytes at a frame offset, 0: none.
static inline uint64_t vg_lane(const char *f, uint32_t at, int bytes, uint32_t lane) {
    if (!at) return 0;
    return bytes == 8 ? ((const uint64_t *)(f + at))[lane] : ((const uint32_t *)(f + at))[lane];
}

#endif
