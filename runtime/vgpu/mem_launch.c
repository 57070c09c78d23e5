// SPDX-License-Identifier: Apache-2.0
// Lifetimes within a launch: the launch, its host threads, resident teams of blocks, their warps.
#include <stdlib.h>
#include <sys/mman.h>

#include "runtime/vgpu/shadow.h"

/* Launch --------------------------------------------------------------------------------------- */

// Ids have run out: what they say is history. Only between launches.
static void forget_history(VgMemory *memory) {
    for (size_t page = 0; page < memory->end_page[0]; page++) {
        VgAlloc *alloc = memory->pages[0][page];
        if (alloc && alloc->live && alloc->history)
            memset(alloc->history, 0,
                   VG_LINES(alloc->bytes) * (VG_LINE / 4) * sizeof *alloc->history);
    }
    memory->next_id = 1u << VG_CHUNK_SHIFT;
}

Status vg_launch_begin(VgMemory *memory, const VgLaunchShape *shape, VgLaunchMem **out) {
    if (shape->cluster_ctas < 1 || shape->cluster_ctas > 16 || !shape->cta_threads)
        return status_fail(ERR_ARGUMENT, "a cluster of %u blocks of %u threads",
                           shape->cluster_ctas, shape->cta_threads);
    VgLaunchMem *launch = calloc(1, sizeof *launch);
    if (!launch) return status_fail(ERR_MEMORY, "no memory for a launch");
    launch->memory = memory;
    launch->shape = *shape;
    launch->warps_per_cta = (shape->cta_threads + 31) / 32;
    launch->n_agents = launch->warps_per_cta * shape->cluster_ctas;
    launch->races = !memory->options.no_races;
    launch->init = !memory->options.no_init;
    launch->params = (VgPlaceMem){ .host = (uint8_t *)(uintptr_t)shape->params,
                                   .bytes = shape->param_bytes };
    for (int i = 0; i < COUNT_OF(launch->message_lock); i++)
        pthread_mutex_init(&launch->message_lock[i], NULL);
    pthread_mutex_lock(&memory->lock);
    if (memory->next_id > UINT32_MAX - VG_LAUNCH_IDS && !memory->launches) forget_history(memory);
    if (memory->next_id > UINT32_MAX - VG_LAUNCH_IDS) { // others run, and use what is left
        launch->forgotten = launch->races;
        launch->races = false;
    }
    memory->launches++;
    launch->first_id = memory->next_id;
    if (launch->races) memory->next_id += VG_LAUNCH_IDS;
    pthread_mutex_unlock(&memory->lock);
    *out = launch;
    return OK;
}

uint64_t vg_launch_forgotten(const VgLaunchMem *launch) { return launch->forgotten; }

static void bury_dead(VgMemory *memory) {
    while (memory->dead) {
        VgAlloc *alloc = memory->dead;
        memory->dead = alloc->next_dead;
        vg_alloc_unmap(alloc);
    }
}

void vg_launch_end(VgLaunchMem *launch) {
    if (!launch) return;
    VgMemory *memory = launch->memory;
    uint32_t n = launch->n_chunks < VG_MAX_CHUNKS ? launch->n_chunks : VG_MAX_CHUNKS;
    for (uint32_t i = 0; i < n; i++) free(launch->chunks[i]);
    vg_messages_free(launch);
    pthread_mutex_lock(&memory->lock);
    if (launch->races && memory->next_id == launch->first_id + VG_LAUNCH_IDS)
        memory->next_id = launch->first_id + (n << VG_CHUNK_SHIFT);
    if (!--memory->launches) bury_dead(memory);
    pthread_mutex_unlock(&memory->lock);
    for (int i = 0; i < COUNT_OF(launch->message_lock); i++)
        pthread_mutex_destroy(&launch->message_lock[i]);
    free(launch);
}

/* Host threads --------------------------------------------------------------------------------- */

Status vg_mem_thread_begin(VgLaunchMem *launch, VgMemThread **out) {
    VgMemThread *thread = calloc(1, sizeof *thread);
    if (!thread) return status_fail(ERR_MEMORY, "no memory for a worker of the virtual GPU");
    thread->launch = launch;
    thread->arena = arena_create();
    thread->global_memo = calloc((size_t)1 << VG_MEMO_SHIFT, sizeof *thread->global_memo);
    Status status = thread->arena && thread->global_memo
                        ? vg_states_create(thread)
                        : status_fail(ERR_MEMORY, "no memory for a worker of the virtual GPU");
    if (status != OK) {
        vg_mem_thread_end(thread);
        return status;
    }
    *out = thread;
    return OK;
}

void vg_mem_thread_end(VgMemThread *thread) {
    if (!thread) return;
    while (thread->teams) vg_team_destroy(thread->teams);
    vg_states_destroy(thread);
    free(thread->global_memo);
    arena_destroy(thread->arena);
    free(thread);
}

VgRecord *vg_mem_record(VgMemThread *thread) { return &thread->record; }

/* Teams ---------------------------------------------------------------------------------------- */

// One mapping for all CTAs: bytes, history, sites; each CTA's part a whole number of lines.
static Status team_map(VgTeam *team, const VgLaunchMem *launch) {
    uint32_t lines = VG_LINES(launch->shape.shared_bytes) + 1;
    size_t granules = (size_t)lines * (VG_LINE / 4);
    size_t one = granules * (4 + sizeof(uint32_t) + 2 * sizeof(uint16_t));
    team->mapped = one * team->n_ctas;
    team->bytes =
        mmap(NULL, team->mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (team->bytes == MAP_FAILED) {
        team->bytes = NULL;
        return status_fail(ERR_MEMORY, "no host memory for shared memory of %zu bytes",
                           team->mapped);
    }
    for (uint32_t rank = 0; rank < team->n_ctas; rank++) {
        uint8_t *at = team->bytes + one * rank;
        VgPlaceMem *cta = &team->cta[rank];
        *cta = (VgPlaceMem){ .host = at, .bytes = launch->shape.shared_bytes, .shared = true,
                             .team = team, .rank = rank };
        cta->history = (uint32_t *)(at + granules * 4);
        cta->read_site = (uint16_t *)(at + granules * 8);
        cta->write_site = cta->read_site + granules;
    }
    return OK;
}

Status vg_team_create(VgMemThread *thread, VgTeam **out) {
    VgLaunchMem *launch = thread->launch;
    VgTeam *team = calloc(1, sizeof *team);
    if (!team) return status_fail(ERR_MEMORY, "no memory for a block");
    team->thread = thread;
    team->n_ctas = launch->shape.cluster_ctas;
    team->last_clock = &team->clocks;
    size_t words = (size_t)(launch->shape.local_bytes + 3) / 4 * launch->n_agents;
    team->arena = arena_create();
    team->warps = calloc(launch->n_agents, sizeof *team->warps);
    team->local = words ? aligned_alloc(64, words * 128) : NULL;
    team->local_init = words ? calloc(words, sizeof *team->local_init) : NULL;
    team->next = thread->teams;
    thread->teams = team;
    Status status = team_map(team, launch);
    if (status == OK &&
        (!team->arena || !team->warps || (words && (!team->local || !team->local_init))))
        status = status_fail(ERR_MEMORY, "no memory for a block's local memory");
    if (status != OK) {
        vg_team_destroy(team);
        return status;
    }
    *out = team;
    return OK;
}

void vg_team_destroy(VgTeam *team) {
    if (!team) return;
    for (VgTeam **link = &team->thread->teams; *link; link = &(*link)->next) {
        if (*link != team) continue;
        *link = team->next;
        break;
    }
    if (team->bytes) munmap(team->bytes, team->mapped);
    arena_destroy(team->arena);
    free(team->warps);
    free(team->local);
    free(team->local_init);
    free(team);
}

static void begin_reserved(VgPlaceMem *cta, const VgLaunchShape *shape) {
    const uint32_t written = 15; // shadow.h: all bytes, by nobody
    uint32_t start = shape->shared_bytes - shape->reserved_bytes;
    memset(cta->host + start, 0, shape->reserved_bytes);
    for (uint32_t at = start; at < shape->shared_bytes; at += 4) cta->history[at / 4] = written;
}

void vg_team_begin(VgTeam *team, uint32_t cluster) {
    VgLaunchMem *launch = team->thread->launch;
    size_t granules = VG_LINES(launch->shape.shared_bytes) * (size_t)(VG_LINE / 4);
    team->cluster = cluster;
    team->gen = 1;
    team->n_live = 0;
    for (uint32_t rank = 0; rank < team->n_ctas; rank++) {
        VgPlaceMem *cta = &team->cta[rank];
        cta->gone = false;
        memset(cta->history, 0, granules * sizeof *cta->history);
        memset(cta->read_site, 0, granules * sizeof *cta->read_site);
        memset(cta->write_site, 0, granules * sizeof *cta->write_site);
        begin_reserved(cta, &launch->shape);
    }
    memset(team->warps, 0, launch->n_agents * sizeof *team->warps);
    team->free_clocks = team->clocks; // all may be handed out again
}

void vg_warp_begin(VgTeam *team, VgWarpMem *warp, uint32_t rank, uint32_t index) {
    const VgLaunchMem *launch = team->thread->launch;
    uint32_t agent = rank * launch->warps_per_cta + index;
    size_t words = (size_t)(launch->shape.local_bytes + 3) / 4;
    memset(warp, 0, sizeof *warp);
    warp->team = team;
    warp->rank = rank;
    warp->index = index;
    warp->agent = agent;
    warp->cta = team->cluster * launch->shape.cluster_ctas + rank;
    warp->own = &team->cta[rank];
    warp->shared_base = launch->shape.shared_base + (launch->shape.ranked ? rank << 24 : 0);
    if (words) {
        warp->local = team->local + words * agent * 128;
        warp->local_init = team->local_init + words * agent;
        memset(warp->local_init, 0, words * sizeof *warp->local_init);
    }
    warp->clock = vg_clock_create(team);
    warp->clock->gen = team->gen;
    warp->clock->at[agent] = 1;
    warp->turn = 1;
    team->warps[agent] = warp;
    team->n_live++;
    vg_view_update(warp);
}

void vg_warp_exit(VgWarpMem *warp) {
    VgTeam *team = warp->team;
    if (warp->exited) return;
    warp->exited = true;
    team->n_live--;
    uint32_t first = warp->rank * team->thread->launch->warps_per_cta, live = 0;
    for (uint32_t i = 0; i < team->thread->launch->warps_per_cta; i++) {
        const VgWarpMem *other = team->warps[first + i];
        live += other && !other->exited;
    }
    if (!live) team->cta[warp->rank].gone = true;
}

uint32_t vg_shared_address(const VgWarpMem *warp, uint32_t offset) {
    return warp->shared_base + offset;
}
uint8_t *vg_shared_host(VgTeam *team, uint32_t rank) { return team->cta[rank].host; }
