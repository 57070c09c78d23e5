// SPDX-License-Identifier: Apache-2.0
// Inside of memory and its shadow: what mem_*.c, shadow_*.c and exec_access.c share.
//
// Shadow memory goes by lines of 256 bytes: 64 granules of 4 bytes, so that what a warp touches in
// a line is one 64-bit map. Per granule there is one history word.
//
// Shared memory. Word = generation << 16 | state. A state (VgState) is an interned value: which of
// the 4 bytes are written, and the touches (who, when, how) that a later access could race with.
// States 0..15 have no touches, only written bytes. A barrier of the whole team starts a
// generation: words of an older one stand for their written bytes (and what is in flight) alone, so
// nothing needs to be swept, clocks start again, and the same few states return in every interval. f(state, view, kind)
// -> state is memoised; a view is an interned (agent, vector clock).
//
// Global memory. Word = id of a VgTouch of this launch, or of a list of them; what is below the
// launch's first id is of an earlier launch, and ordered before everything. Ids are handed out in
// chunks to host threads and never change, so that any thread may read what another has made.
// Whether a byte was written is in the line's four maps: maps[b] bit g = byte b of granule g.
#ifndef MOEC_VGPU_SHADOW_H
#define MOEC_VGPU_SHADOW_H

#include <pthread.h>
#include <stdatomic.h>

#include "runtime/vgpu/memory.h"

#define VG_LINE 256u
#define VG_LINES(bytes) (((bytes) + VG_LINE - 1) / VG_LINE)

/* Memory --------------------------------------------------------------------------------------- */

typedef struct VgAlloc {
    uint64_t start, bytes;       // device addresses; start is a multiple of 512
    uint8_t *host;               // of `start`, readable to the end of its last line
    uint32_t *history;           // a word per granule
    uint64_t (*written)[4];      // a line each
    size_t mapped;               // bytes of host address space behind the three
    int file;                    // + 1: that holds data and written, for other processes. 0: none
    bool guest;                  // another process's memory
    bool read_only;
    _Atomic bool live;
    _Atomic bool whole;          // every byte has been written: no need to look
    uint64_t serial;             // of allocation, for reports
    char what[64];
    struct VgAlloc *next_dead;   // freed while a launch ran
} VgAlloc;

#define VG_PAGE_SHIFT 21
#define VG_WINDOW_PAGES ((size_t)1 << 19) // 1 TiB
struct VgMemory {
    VgMemoryOptions options;
    pthread_mutex_t lock;
    _Atomic(VgAlloc *) *pages[2];        // global, const: the allocation that owns a page
    uint64_t next_page[2], end_page[2];  // where to go on; beyond all that were ever used
    uint64_t used, serial;
    VgAlloc *dead;               // to be unmapped when no launch runs
    int launches;                // running
    uint32_t next_id;            // of touches
};
VgAlloc *vg_alloc_at(const VgMemory *memory, uint64_t address); // owner of the page, dead or alive
void vg_alloc_unmap(VgAlloc *alloc);
void vg_written_mark(VgAlloc *alloc, uint64_t offset, uint64_t bytes);
// First byte of the range that was not written, or `bytes`.
uint64_t vg_written_check(const VgAlloc *alloc, uint64_t offset, uint64_t bytes);

// What an address resolves to: memory with its shadow, offsets from its start.
typedef struct VgPlaceMem {
    uint8_t *host;
    uint64_t bytes;
    uint32_t *history;           // NULL: no races here
    uint64_t (*written)[4];      // NULL: not looked at
    uint16_t *read_site, *write_site; // shared: the last site that read or wrote a granule, + 1
    VgAlloc *alloc;              // global and const
    VgTeam *team;                // shared
    uint32_t rank;
    uint64_t origin;             // of host within its allocation, a multiple of VG_LINE
    bool shared, gone;           // gone: the CTA has exited
} VgPlaceMem;

/* Touches -------------------------------------------------------------------------------------- */

// kind of a touch: access (VgAccess) | VG_STRONG | scope << 3 | VG_FLYING
// An asynchronous operation is in flight from its issue to the moment somebody has waited for it. Its
// touches are marked so, by the warp that issued it; they are ordered before nothing, not even
// before what that warp itself does next, and outlive the team's barriers. Landing ends them: they
// become ordinary touches of who lands them. An access of kind VG_LANDS does that.
#define VG_KIND_ACCESS 3u
#define VG_STRONG 4u
#define VG_FLYING 32u
#define VG_LANDS 64u
#define VG_KIND(access, strong, scope)                                                             \
    ((uint32_t)(access) | ((strong) ? VG_STRONG | (uint32_t)(scope) << 3 : 0))
#define VG_KIND_SCOPE(kind) ((kind) >> 3 & 3)

typedef struct VgSharedTouch { uint32_t clock; uint16_t agent; uint8_t kind, bytes; } VgSharedTouch;
#define VG_MAX_TOUCHES 40
typedef struct VgState {
    uint32_t at;                 // first touch in the pool
    uint8_t n, written;
    uint16_t kept;               // what an older generation's word of this state stands for
} VgState;
#define VG_MAX_STATES 65536

typedef struct VgTouch {         // of global memory; or a list of touches
    uint32_t team, gen, clock, site;
    uint32_t flight;             // of VG_FLYING: its warp's number for it
    uint16_t agent;
    uint8_t kind, bytes;
    uint8_t n;                   // > 0: a list, items[n]
    bool everyone;               // a list no longer kept: many readers
    uint32_t *items;
} VgTouch;
#define VG_CHUNK_SHIFT 12
#define VG_MAX_CHUNKS 4096u      // 16 Mi touches in a launch; then histories stop to grow
#define VG_LAUNCH_IDS (VG_MAX_CHUNKS << VG_CHUNK_SHIFT)
#define VG_LIST_TEAMS 4          // readers of more teams become "everyone"

struct VgClock {
    uint32_t gen;                // of the team; an older one stands for nothing
    uint32_t *at;                // team->n_agents
    const struct VgKnown *known;
    VgClock *next;
};

// What is known of other teams: for each the generation and the clocks up to which it has happened.
typedef struct VgKnownTeam { uint32_t team, gen; uint32_t *at; } VgKnownTeam;
typedef struct VgKnown { uint32_t n; VgKnownTeam teams[]; } VgKnown; // by team; never changes

/* Objects of a launch -------------------------------------------------------------------------- */

typedef struct VgMessage VgMessage;      // published at an address by a release
#define VG_MESSAGE_SLOTS 1024
struct VgLaunchMem {
    VgMemory *memory;
    VgLaunchShape shape;
    uint32_t warps_per_cta, n_agents;    // agents of a team
    uint32_t first_id;
    _Atomic uint32_t n_chunks;
    VgTouch *_Atomic chunks[VG_MAX_CHUNKS];
    _Atomic uint64_t forgotten;          // touches that were not kept
    _Atomic bool messages;               // any at all
    pthread_mutex_t message_lock[16];
    VgMessage *message[VG_MESSAGE_SLOTS];
    VgPlaceMem params;
    bool races, init;
};

typedef struct VgMemo { uint64_t key; uint32_t to; } VgMemo;
#define VG_MEMO_SHIFT 13
typedef struct VgView { uint32_t agent; uint32_t at; } VgView;  // clocks at pool + at
struct VgMemThread {
    VgLaunchMem *launch;
    VgRecord record;
    VgAlloc *recent[16];
    VgTeam *teams;
    // shared states and views
    VgState *states;
    uint32_t n_states;
    uint16_t *state_set;                 // hash set of states, VG_MAX_STATES * 2
    VgSharedTouch *touches;
    uint32_t n_touches, cap_touches;
    VgView *views;
    uint32_t *view_clocks, *view_set;
    uint32_t n_views;
    uint32_t *fresh_views; // by agent: of one who has just passed a barrier of its team
    VgMemo *memo;                        // (state, view, kind, bytes) -> state
    // global
    VgMemo *global_memo;                 // (id, touch) -> id
    VgTouch *chunk;
    uint32_t chunk_at, chunk_id;         // used of the chunk; id of its first
    Arena *arena;                        // lists, knowledge
};
#define VG_MAX_VIEWS 65536

struct VgTeam {
    VgMemThread *thread;
    VgTeam *next;
    uint32_t cluster, gen;
    uint32_t n_ctas;
    VgPlaceMem cta[16];
    uint8_t *bytes;                      // of all CTAs, one mapping
    size_t mapped;
    VgWarpMem **warps;                   // by agent; NULL: not begun or exited
    uint32_t n_live;
    uint8_t *local;
    uint32_t (*local_init)[4];
    VgClock *clocks, **last_clock,
        *free_clocks; // all; the list's end; those to be handed out again
    Arena *arena;
};

/* shadow_state.c */
static inline uint32_t vg_memo_slot(uint64_t key) {
    return (uint32_t)(key * 0x9e3779b97f4a7c15u >> (64 - VG_MEMO_SHIFT));
}
// What a step depends on. Never 0.
static inline uint64_t vg_shared_key(const VgWarpMem *warp, uint32_t state, uint32_t kind,
                                     uint32_t bytes) {
    return (uint64_t)1 << 63 | (uint64_t)warp->view << 32 | (uint64_t)state << 16 | kind << 8 |
           bytes;
}
// The word of shared memory after an access by the warp. false: a fault, in the record.
bool vg_shared_step(VgWarpMem *warp, uint32_t word, uint32_t kind, uint32_t bytes, uint32_t *to);
void vg_states_reset(VgMemThread *thread);
Status vg_states_create(VgMemThread *thread);
void vg_states_destroy(VgMemThread *thread);
uint32_t vg_view_of(VgMemThread *thread, uint32_t agent, const uint32_t *clocks);

/* shadow_global.c */
// The id of this warp's accesses of `kind` to `bytes` of granules by `site`, as of now. 0: not
// kept.
uint32_t vg_touch_of(VgWarpMem *warp, const VgSite *site, uint32_t kind, uint32_t bytes);
bool vg_global_step(VgWarpMem *warp, uint32_t word, uint32_t touch, uint32_t *to);
const VgTouch *vg_touch_at(const VgLaunchMem *launch, uint32_t id);

/* shadow_clock.c */
bool vg_ordered(const VgWarpMem *warp, uint32_t agent,
                uint32_t clock); // in this team and generation
bool vg_touch_ordered(const VgWarpMem *warp, const VgTouch *touch);
void vg_view_update(VgWarpMem *warp);
// A warp as it is now, which has asked for something that happens later on its behalf: `clock` and
// `at` (an entry per agent) are the copy's. What the warp does from now on is later. Before it acts, it
// is woken: a barrier of the team may have passed.
void vg_agent_save(VgWarpMem *to, VgClock *clock, uint32_t *at, VgWarpMem *from);
void vg_agent_wake(VgWarpMem *agent);
// A strong write publishes, a strong read learns. `site`'s sem tells what.
void vg_message_publish(VgWarpMem *warp, const VgSite *site, uint64_t address);
void vg_message_learn(VgWarpMem *warp, const VgSite *site, uint64_t address);
void vg_messages_free(VgLaunchMem *launch);

/* mem_fault.c: finding the place of an address, and the words for what is wrong with it */
// Resolves an address of `bytes`; *offset from the place's start. VG_LOCAL is told by place->host
// NULL.
VgFault vg_resolve(VgWarpMem *warp, const VgSite *site, uint32_t lane, uint64_t address,
                   uint32_t bytes, VgPlaceMem *place, uint64_t *offset, VgSpace *space);
// Fills the record's head; returns `fault`.
VgFault vg_mem_fault(VgWarpMem *warp, const VgSite *site, VgFault fault, uint32_t lane,
                     uint64_t address, const char *detail, ...) PRINTF_LIKE(6, 7);
// The address, as the program sees it, of an offset in a place.
uint64_t vg_place_address(const VgWarpMem *warp, const VgSite *site, const VgPlaceMem *place,
                          uint64_t offset);
// Completes the record of a fault that the shadow found at a granule: `offsets` are the lanes'.
VgFault vg_shadow_fault(VgWarpMem *warp, const VgSite *site, const VgPlaceMem *place, uint32_t mask,
                        const uint32_t *offsets, uint64_t granule);
const char *vg_space_name(VgSpace space);

// The shadow's part of an access to a run of bytes.
VgFault vg_touch_run(VgWarpMem *warp, const VgSite *site, VgAccess access, uint32_t lane,
                     const VgPlaceMem *place, uint64_t offset, uint32_t bytes);

extern VgAccessFn vg_atom_access; // mem_atom.c

static inline uint32_t vg_weak_kind(VgAccess access, VgFlight flight) {
    return access | (flight == VG_TAKES_OFF ? VG_FLYING : flight == VG_LANDING ? VG_LANDS : 0);
}
static inline uint32_t vg_site_kind(const VgSite *site, VgAccess access) {
    if (site->flight) return vg_weak_kind(access, (VgFlight)site->flight);
    return VG_KIND(access, access == VG_ATOMIC || site->sem >= VG_VOLATILE, site->scope);
}

#endif
