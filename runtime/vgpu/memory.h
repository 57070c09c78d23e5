// SPDX-License-Identifier: Apache-2.0
// Memory of the virtual GPU, and the checks that watch it.
//
// Device memory (VgMemory) is a set of allocations, each alone in its own 2 MiB pages of device
// addresses, so that one table of pages finds the allocation of any address and everything around
// it is a red zone. An allocation has its bytes, one bit per byte "has been written", and one
// history word per 4 bytes. What is freed keeps its record: a later touch is told apart from a wild
// one.
//
// A kernel reaches memory by warp: one call per instruction, for all lanes of the mask. The decoder
// fills a VgSite per memory instruction and asks vg_access_select for the function that does it;
// the handler only computes mask and address register and calls. All checks happen inside: address,
// alignment, initialisation, races. A fault is returned, its VgRecord is in the host thread's
// VgMemThread.
//
// Objects by lifetime: VgMemory (device) > VgLaunchMem (one launch) > VgMemThread (host thread of a
// launch) > VgTeam (a resident cluster of blocks, owned by one host thread: shared memory needs no
// locks) > VgWarpMem (a warp; the core embeds it in its warp).
//
// Order between accesses is known by vector clocks. Agents of a team are its warps, and later its
// asynchronous operations. The core tells of every edge: barriers (vg_clock_*, vg_team_barrier),
// fences; loads and stores with .acquire/.release make theirs here.
#ifndef MOEC_VGPU_MEMORY_H
#define MOEC_VGPU_MEMORY_H

#include "runtime/vgpu/report.h"

/* Spaces --------------------------------------------------------------------------------------- */

typedef enum VgSpace {
    VG_GENERIC, VG_GLOBAL, VG_SHARED, VG_LOCAL, VG_CONST, VG_PARAM,
    VG_NOWHERE                 // a generic address in no window
} VgSpace;

// Windows of generic addresses. An address within its space plus the window's start is generic; for
// global and const memory both are the same.
#define VG_SHARED_WINDOW 0x010000000000u
#define VG_LOCAL_WINDOW 0x020000000000u
#define VG_CONST_WINDOW 0x030000000000u
#define VG_PARAM_WINDOW 0x040000000000u
#define VG_CODE_WINDOW 0x0f0000000000u     // function addresses; never loaded from
#define VG_GLOBAL_WINDOW 0x7f0000000000u
#define VG_WINDOW_BYTES 0x010000000000u
VgSpace vg_space_of(uint64_t generic);

/* Device memory (mem_alloc.c) ------------------------------------------------------------------ */

typedef struct VgMemory VgMemory;
typedef struct VgMemoryOptions {
    uint64_t total_bytes;      // 0: 64 GiB. More is refused
    bool no_races, no_init;    // checks turned off
    bool lanes_may_conflict;   // lanes of one store may write different values to one place
} VgMemoryOptions;

Status vg_memory_create(const VgMemoryOptions *options, VgMemory **memory);
void vg_memory_destroy(VgMemory *memory);

// `space` is VG_GLOBAL or VG_CONST (read-only to kernels). `what` names it in reports and is
// copied. Aligned to 512 and, on purpose, to no more (align larger: to that). Bytes are unwritten.
Status vg_mem_alloc(VgMemory *memory, VgSpace space, size_t bytes, size_t align, const char *what,
                    uint64_t *address);
Status vg_mem_free(VgMemory *memory, uint64_t address);   // double and wild frees are errors
// Copies by the host. A read of bytes never written is an error unless `unchecked`.
Status vg_mem_write(VgMemory *memory, uint64_t to, const void *from, size_t bytes);
Status vg_mem_read(VgMemory *memory, uint64_t from, void *to, size_t bytes, bool unchecked);
Status vg_mem_copy(VgMemory *memory, uint64_t to, uint64_t from, size_t bytes); // carries init bits
Status vg_mem_fill(VgMemory *memory, uint64_t to, uint64_t value, int value_bytes, size_t count);
// The allocation that begins at `address`, all of it, counts as written: what nobody has written is
// zero. Touches none of its bytes.
Status vg_mem_zero_rest(VgMemory *memory, uint64_t address);
// Host pointer to [address, address + bytes) of one live allocation, else NULL. No checks beyond
// that.
void *vg_mem_host(VgMemory *memory, uint64_t address, size_t bytes);
// Start, size and name of the live allocation that holds `address`; false: none.
bool vg_mem_find(VgMemory *memory, uint64_t address, uint64_t *start, size_t *bytes,
                 const char **what);
void vg_mem_usage(VgMemory *memory, uint64_t *total, uint64_t *used);
// Memory of several processes. From vg_mem_share on, the allocation at `address` lies in a file (its
// bytes, and which of them were written) that others map by vg_mem_guest, at an address of their own.
// Races are found among the accesses of one process. No launch runs meanwhile. The file stays the
// allocation's; vg_mem_guest takes over the one it is given.
Status vg_mem_share(VgMemory *memory, uint64_t address, int *file);
Status vg_mem_guest(VgMemory *memory, int file, size_t bytes, const char *what, uint64_t *address);

/* A launch (mem_launch.c) ---------------------------------------------------------------------- */

typedef struct VgLaunchMem VgLaunchMem;
typedef struct VgMemThread VgMemThread;
typedef struct VgTeam VgTeam;
typedef struct VgWarpMem VgWarpMem;
typedef struct VgClock VgClock;

typedef struct VgLaunchShape {
    uint32_t n_ctas, cluster_ctas;      // of the grid; CTAs per cluster, 1 without clusters
    uint32_t cta_threads;
    uint32_t shared_bytes;              // per CTA: static, dynamic, reserved
    uint32_t reserved_bytes;            // the last ones of these, the system's: written zeros at
                                        // the start
    uint32_t local_bytes;               // per thread, all frames
    const void *params; uint32_t param_bytes;  // kept by the caller for the launch
    uint32_t shared_base;               // shared address of offset 0: 0x400 from sm_90 on, else 0
    bool ranked; // shared addresses carry the CTA's rank << 24 (sm_90 and later)
} VgLaunchShape;

Status vg_launch_begin(VgMemory *memory, const VgLaunchShape *shape, VgLaunchMem **launch);
void vg_launch_end(VgLaunchMem *launch);
// Histories that could not be kept (tables full): accesses in them may have raced unseen. 0 but
// for very long kernels.
uint64_t vg_launch_forgotten(const VgLaunchMem *launch);
Status vg_mem_thread_begin(VgLaunchMem *launch, VgMemThread **thread);  // one per host thread
void vg_mem_thread_end(VgMemThread *thread);
VgRecord *vg_mem_record(VgMemThread *thread);            // of the last fault on this thread

// A resident cluster. begin: `cluster` is its linear index; shared memory starts unwritten. The
// object is reused for the next cluster by another begin.
Status vg_team_create(VgMemThread *thread, VgTeam **team);
void vg_team_destroy(VgTeam *team);
void vg_team_begin(VgTeam *team, uint32_t cluster);
// Fills `warp` (embedded in the core's warp) for warp `index` of the CTA with `rank` in the
// cluster.
void vg_warp_begin(VgTeam *team, VgWarpMem *warp, uint32_t rank, uint32_t index);
void vg_warp_exit(VgWarpMem *warp);                      // all lanes have exited
uint32_t vg_shared_address(const VgWarpMem *warp, uint32_t offset); // of the warp's own CTA
uint8_t *vg_shared_host(VgTeam *team, uint32_t rank);    // bytes of a CTA's shared memory

/* Order (shadow_clock.c) ----------------------------------------------------------------------- */

// A clock is what a barrier or a message carries: "everything up to here has happened". Barriers
// keep theirs; memory belongs to the team and is taken back at its next begin.
VgClock *vg_clock_create(VgTeam *team);                  // knows nothing
void vg_clock_clear(VgClock *clock);                     // forgets
void vg_clock_release(VgClock *clock, VgWarpMem *warp);  // the warp arrives; its clock ticks
void vg_clock_acquire(const VgClock *clock, VgWarpMem *warp); // the warp passes: learns of it
void vg_clock_join(VgTeam *team, VgClock *to, const VgClock *from);
// All warps of the team that have not exited have arrived at one barrier and pass it together: the
// usual bar.sync 0. Equal to a release of all followed by an acquire of all, and much cheaper.
void vg_team_barrier(VgTeam *team);

typedef enum VgSem {
    VG_WEAK, VG_NC, VG_VOLATILE, VG_RELAXED, VG_ACQUIRE, VG_RELEASE, VG_ACQ_REL, VG_SC
} VgSem;
typedef enum VgScope { VG_SCOPE_CTA, VG_SCOPE_CLUSTER, VG_SCOPE_GPU, VG_SCOPE_SYS } VgScope;
// fence.{acq_rel,sc}.SCOPE; membar.{cta,gl,sys} is fence.sc.
void vg_fence(VgWarpMem *warp, VgSem sem, VgScope scope);

/* Access by a warp (exec_access.c) ------------------------------------------------------------- */

typedef enum VgAtomOp {
    VG_ATOM_NONE, VG_ATOM_ADD, VG_ATOM_MIN, VG_ATOM_MAX, VG_ATOM_AND, VG_ATOM_OR, VG_ATOM_XOR,
    VG_ATOM_EXCH, VG_ATOM_CAS, VG_ATOM_INC, VG_ATOM_DEC
} VgAtomOp;
typedef enum VgAtomType {
    VG_ATOM_B32, VG_ATOM_S32, VG_ATOM_B64, VG_ATOM_S64, VG_ATOM_F32, VG_ATOM_F64, VG_ATOM_F16,
    VG_ATOM_BF16, VG_ATOM_F16X2, VG_ATOM_BF16X2, VG_ATOM_B16, VG_ATOM_B128
} VgAtomType;

// An asynchronous operation's accesses: a source is read when it takes off, a destination is
// written when it lands, and in between nobody may touch the one or write the other.
typedef enum VgFlight {
    VG_NO_FLIGHT,
    VG_TAKES_OFF,              // a load moves its data now; a store moves nothing yet
    VG_LANDING                 // a store moves its data now; a load moves nothing
} VgFlight;

typedef struct VgSite VgSite;
// `mask`: lanes that execute (not 0). `address`: the address register, 32 lanes of
// site->address_bytes; NULL when it is 0. Register operands are at frame + site->reg[...]: a 32-bit
// register (and any narrower one) is uint32_t[32], a 64-bit one uint64_t[32], a 128-bit one two of
// those, low half first; each aligned to 64 bytes. Loads write only lanes of the mask.
typedef VgFault VgAccessFn(VgWarpMem *warp, const VgSite *site, uint32_t mask, const void *address,
                           char *frame);

// One memory instruction, filled by the decoder, constant afterwards.
struct VgSite {
    VgAccessFn *run;          // set by vg_access_select
    int64_t offset;           // the immediate in [reg + imm], or the address of [symbol + imm]
    uint32_t id;              // number of the instruction for VgScene.locate
    uint8_t space;            // VgSpace
    uint8_t address_bytes;    // 4, 8, or 0: no address register
    uint8_t access;           // VgAccess
    uint8_t bytes;            // of one element: 1, 2, 4, 8, 16
    uint8_t vector;           // elements: 1, 2, 4, 8
    uint8_t reg_bytes;        // of one register: 4 (for all up to 32 bits), 8, 16
    bool sign;                // loads: extend the sign into the register
    uint8_t sem, scope;       // VgSem, VgScope
    uint8_t atom, type;       // VgAtomOp, VgAtomType
    bool result;              // atom: the old value is wanted; red: not
    bool cluster;             // .shared::cluster: other CTAs of the cluster may be meant
    uint8_t flight;           // VgFlight, of a weak load or store
    bool rows; // of matrices: reg and source [0..3] take rows of 16 bytes, eight lanes' each
    uint32_t reg[8];          // of loads and of results. VG_SINK: the value is dropped
    uint32_t source[8];       // of stores, and operand b of atom and red
    uint32_t compare; // atom.cas: the value compared (operand b); source[0] is then the new one
};
#define VG_SINK UINT32_MAX
VgAccessFn *vg_access_select(const VgSite *site);

// Access to a run of bytes by one thread or engine: what ldmatrix rows, bulk copies and printf
// read. All checks of a warp's access. *host points to the bytes (never local memory, which is
// interleaved).
VgFault vg_range(VgWarpMem *warp, const VgSite *site, VgAccess access, uint32_t lane,
                 uint64_t address, uint32_t bytes, uint8_t **host);

/* State of a warp; the core reads `cta` and `index`, the rest is this library's ---------------- */

struct VgWarpMem {
    VgTeam *team;
    uint32_t cta, index, rank; // linear CTA of the grid, warp in the CTA, CTA's rank in the cluster
    uint32_t agent;              // in the team: rank * warps per CTA + index
    bool exited;
    uint32_t shared_base;        // what its shared addresses start from, rank included
    uint32_t flight, landed;     // its last asynchronous read of global memory; all up to this ended
    uint32_t view; // interned vector clock: key of memoised transitions of shared words
    uint32_t turn; // rises whenever the warp's knowledge changes: key of global accesses
    struct VgPlaceMem *own;      // shared memory of its CTA
    uint8_t *local;              // 4 bytes of lane 0, of lane 1, ... lane 31, then the next 4 bytes
    uint32_t (*local_init)[4];   // per word of local memory: lanes whose byte 0..3 was written
    VgClock *clock;              // of the agents of its team
    const struct VgKnown *known; // of other teams; NULL: nothing
    const struct VgKnown *fenced,
        *seen; // what the last fence released; what the next one will acquire
    struct { uint64_t key; uint32_t id; } cache[8]; // (site, turn) -> id of its global access
};

#endif
