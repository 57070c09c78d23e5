// SPDX-License-Identifier: Apache-2.0
// Running a grid: host threads take clusters of blocks in order, warps take turns.
//
// A host thread keeps a cluster until it has retired. When a cluster makes no progress for many
// turns (its warps may spin on another block), the thread admits one more, up to what would be
// resident on the device, and rotates among them. Waits (barriers, asynchronous operations) are
// always for things of the same cluster: if no warp of a thread's clusters can run, it is a
// deadlock.
#include <sched.h>
#include <stdlib.h>

#include "runtime/vgpu/engine.h"
#include "runtime/vgpu/schedule.h"

enum {
    TURNS = 64,
    PATIENCE = 128000
}; // instructions of a warp without progress of its cluster before
   // another is admitted

// Kernels do with memory what they like, and it is the virtual GPU that looks for their races, in a
// history that goes without locks itself (shadow_global.c). ThreadSanitizer is to see only what
// synchronises meanwhile.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define KERNELS_UNSEEN 1
#endif
#endif
#ifdef KERNELS_UNSEEN
void AnnotateIgnoreReadsBegin(const char *file, int line); // its runtime's; no header has them
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);
static void kernel_begin(void) {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}
static void kernel_end(void) {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
}
#else
static inline void kernel_begin(void) { }
static inline void kernel_end(void) { }
#endif

void vg_warp_execute(VgWarp *w) {
    kernel_begin();
    const VgInstr *i = w->pc;
    while (i) i = i->run(i, w, w->frame->at);
    kernel_end();
}

bool vg_warp_step(VgWarp *w) {
    VgGrid *g = w->cta->grid;
    w->budget = (int32_t)g->device->quantum;
    vg_warp_execute(w);
    if (w->state == VG_READY) {
        w->stall += g->device->quantum;
        if (w->n_splits > 1 || w->stall > VG_STALL) vg_split_rotate(w);
    }
    return !atomic_load_explicit(&g->fault, memory_order_relaxed);
}

const VgInstr *vg_wait(VgWarp *w, const VgInstr *pc, bool (*poll)(VgWarp *),
                       void (*describe)(VgWarp *, Text *), const void *object) {
    w->pc = pc;
    vg_split_save(w, pc);
    w->state = VG_WAITING;
    w->wait = (VgWait){ .poll = poll, .describe = describe, .object = object };
    return NULL;
}

/* clusters ------------------------------------------------------------------------------------ */

static uint32_t lanes_of(const VgGrid *g, uint32_t warp) {
    uint32_t left = g->threads - warp * 32;
    return left >= 32 ? ~0u : (1u << left) - 1;
}

static VgCluster *cluster_create(VgWorker *worker) {
    VgGrid *g = worker->grid;
    VgCluster *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->n = g->ctas_per_cluster;
    c->ctas = calloc(c->n, sizeof *c->ctas);
    if (!c->ctas || vg_team_create(worker->memory, &c->team) != OK) goto failed;
    for (uint32_t k = 0; k < c->n; k++) {
        c->ctas[k].n_warps = g->warps_per_cta;
        c->ctas[k].warps =
            aligned_alloc(64, (size_t)round_up((int64_t)sizeof(VgWarp) * g->warps_per_cta, 64));
        if (!c->ctas[k].warps) goto failed;
        memset(c->ctas[k].warps, 0, sizeof(VgWarp) * g->warps_per_cta);
    }
    return c;
failed:
    vg_cluster_destroy(c);
    return NULL;
}

void vg_cluster_destroy(VgCluster *c) {
    if (!c) return;
    for (uint32_t k = 0; c->ctas && k < c->n; k++) {
        for (uint32_t n = 0; c->ctas[k].warps && n < c->ctas[k].n_warps; n++)
            vg_warp_destroy(&c->ctas[k].warps[n]);
        free(c->ctas[k].warps);
    }
    free(c->ctas);
    vg_engine_destroy(c);
    if (c->team) vg_team_destroy(c->team);
    free(c);
}

static void cta_begin(VgWorker *worker, VgCluster *c, uint32_t rank) {
    VgGrid *g = worker->grid;
    VgCta *cta = &c->ctas[rank];
    uint64_t per[3], at = c->linear;
    for (int k = 0; k < 3; k++) per[k] = g->grid[k] / g->cluster[k];
    uint64_t origin[3] = { at % per[0], at / per[0] % per[1], at / (per[0] * per[1]) };
    uint32_t inside[3] = { rank % g->cluster[0], rank / g->cluster[0] % g->cluster[1],
                           rank / (g->cluster[0] * g->cluster[1]) };
    for (int k = 0; k < 3; k++) cta->id[k] = (uint32_t)origin[k] * g->cluster[k] + inside[k];
    cta->linear = cta->id[0] + g->grid[0] * (cta->id[1] + (uint64_t)g->grid[1] * cta->id[2]);
    cta->grid = g;
    cta->worker = worker;
    cta->cluster = c;
    cta->cluster_rank = rank;
    cta->team = c->team;
    cta->n_done = cta->next_warp = 0;
    cta->shared_bytes = g->kernel->info.static_shared + g->launch->dynamic_shared;
    cta->dynamic_at = g->dynamic_at;
    memset(cta->barriers, 0, sizeof cta->barriers);
    for (uint32_t n = 0; n < cta->n_warps; n++) {
        VgWarp *w = &cta->warps[n];
        w->cta = cta;
        w->index = n;
        vg_warp_begin(c->team, &w->mem, rank, n);
        vg_warp_reset(w, g->func, lanes_of(g, n));
    }
}

// Takes the next cluster of the grid, if there is one and it may be resident. NULL: not now.
static VgCluster *admit(VgWorker *worker) {
    VgGrid *g = worker->grid;
    if (atomic_fetch_add(&g->resident, 1) >= g->resident_limit) {
        atomic_fetch_sub(&g->resident, 1);
        return NULL;
    }
    uint64_t next = atomic_fetch_add(&g->next_cluster, 1);
    if (next >= g->n_clusters) {
        atomic_store(&g->next_cluster, g->n_clusters); // must not wrap
        atomic_fetch_sub(&g->resident, 1);
        return NULL;
    }
    VgCluster *c = worker->spare;
    if (c) worker->spare = c->next;
    else c = cluster_create(worker);
    if (!c) {
        vg_fault_grid(g, VG_NO_MEMORY, "no host memory for another resident block");
        return NULL;
    }
    atomic_store(&worker->idle, false);
    c->linear = next;
    c->n_done = c->idle = 0;
    vg_team_begin(c->team, (uint32_t)next);
    for (uint32_t k = 0; k < c->n; k++) cta_begin(worker, c, k);
    c->next = worker->resident;
    worker->resident = c;
    return c;
}

static void count_warp(VgWorker *worker, VgWarp *w) {
    worker->warp_instrs += w->warp_instrs;
    worker->thread_instrs += w->thread_instrs;
    w->warp_instrs = w->thread_instrs = 0;
}

static void retire(VgWorker *worker, VgCluster *c) {
    VgGrid *g = worker->grid;
    for (VgCluster **p = &worker->resident; *p; p = &(*p)->next)
        if (*p == c) {
            *p = c->next;
            break;
        }
    c->next = worker->spare;
    worker->spare = c;
    atomic_fetch_sub(&g->resident, 1);
    atomic_fetch_add(&g->done_clusters, 1);
    atomic_fetch_add(&g->progress, 1);
}

static void warp_done(VgWorker *worker, VgWarp *w) {
    VgCta *cta = w->cta;
    count_warp(worker, w);
    if (!vg_engine_warp_exit(w)) return;
    vg_warp_finish(w);
    vg_warp_exit(&w->mem);
    cta->n_done++;
    cta->progress++;
    vg_barriers_warp_exit(w);
    if (cta->n_done == cta->n_warps) cta->cluster->n_done++;
}

/* turns --------------------------------------------------------------------------------------- */

static bool runnable(VgWarp *w) {
    if (w->state == VG_WAITING && w->wait.poll && w->wait.poll(w)) {
        w->wait = (VgWait){ 0 };
        w->state = VG_READY;
    }
    return w->state == VG_READY;
}

// One turn of all warps of a cluster. *ran: anything ran; false: a fault.
static bool turn(VgWorker *worker, VgCluster *c, bool *ran) {
    uint64_t before = 0, after = 0;
    for (uint32_t k = 0; k < c->n; k++) {
        VgCta *cta = &c->ctas[k];
        before += cta->progress;
        for (uint32_t n = 0; n < cta->n_warps; n++) {
            VgWarp *w = &cta->warps[n];
            if (runnable(w)) {
                *ran = true;
                if (!vg_warp_step(w)) return false;
            }
            if (w->state == VG_DONE && w->base) warp_done(worker, w);
        }
        after += cta->progress;
    }
    c->idle = before == after ? c->idle + worker->grid->device->quantum : 0;
    return true;
}

static bool run_cluster(VgWorker *worker, VgCluster *c, bool *ran) {
    for (int k = 0; k < TURNS; k++) {
        bool some = false;
        if (!turn(worker, c, &some)) return false;
        if (c->n_done == c->n) {
            retire(worker, c);
            *ran = true;
            return true;
        }
        if (!some) return true;
        *ran = true;
        if (c->idle >= PATIENCE) return true;
    }
    return true;
}

void vg_worker_run(VgWorker *worker) {
    VgGrid *g = worker->grid;
    while (!atomic_load(&g->fault)) {
        bool ran = false, spinning = worker->resident != NULL;
        for (VgCluster *c = worker->resident, *next; c; c = next) {
            next = c->next;
            if (!run_cluster(worker, c, &ran)) return;
            spinning = spinning && c->idle >= PATIENCE;
        }
        if (!spinning) atomic_store(&worker->steady, 0);
        if (!worker->resident || spinning || !ran) {
            if (admit(worker)) continue;
            atomic_store(&worker->idle, !worker->resident);
            if (!worker->resident) {
                if (atomic_load(&g->next_cluster) >= g->n_clusters) return;
                sched_yield(); // others hold all the places
                continue;
            }
            if (!ran) vg_deadlock(worker);
            else if (spinning) vg_livelock(worker);
        }
    }
}
