// SPDX-License-Identifier: Apache-2.0
// A launch by hand: memory, one host thread, teams and warps, and accesses made through sites
// without any PTX. What is under test is memory and its shadow alone.
#ifndef TESTS_VGPU_RIG_H
#define TESTS_VGPU_RIG_H

#include "runtime/vgpu/memory.h"

typedef struct RigShape {
    uint32_t n_ctas, cluster, threads, shared, local;
    const void *params;
    uint32_t param_bytes;
    bool ranked;
    VgMemoryOptions options;
} RigShape;

#define RIG_TEAMS 8
typedef struct Rig {
    VgMemory *memory;
    VgLaunchMem *launch;
    VgMemThread *thread;
    VgTeam *team[RIG_TEAMS];
    VgWarpMem warp[RIG_TEAMS][32]; // by team and agent
    uint32_t n_teams, warps_per_team;
    char *frame;                   // 64 registers of 256 bytes
} Rig;

void rig_begin(Rig *rig, const RigShape *shape);
void rig_relaunch(Rig *rig, const RigShape *shape); // a further launch over the same memory
void rig_end(Rig *rig);

// Sites. rig_ld(VG_GLOBAL, 4, 1): register 1 is the address (64 bits), 8... the data.
VgSite rig_site(VgAccess access, VgSpace space, uint32_t bytes, uint32_t vector);
VgSite rig_strong(VgAccess access, VgSpace space, uint32_t bytes, VgSem sem, VgScope scope);
VgSite rig_atom(VgSpace space, VgAtomOp op, VgAtomType type, uint32_t bytes);
#define RIG_ADDRESS 1
#define RIG_DATA 8
#define RIG_RESULT 24
#define RIG_COMPARE 40
uint32_t *rig_u32(Rig *rig, int reg);
uint64_t *rig_u64(Rig *rig, int reg);

// All lanes of `mask`: lane l at address + step * l.
VgFault rig_run(Rig *rig, VgWarpMem *warp, const VgSite *site, uint32_t mask, uint64_t address,
                int64_t step);
// With the addresses as they are in the address register.
VgFault rig_run_at(Rig *rig, VgWarpMem *warp, const VgSite *site, uint32_t mask);
uint64_t rig_alloc(Rig *rig, size_t bytes, const char *what);
const VgRecord *rig_record(Rig *rig);
// The report's text, in a buffer of the rig's own.
const char *rig_report(Rig *rig);

#endif
