// SPDX-License-Identifier: Apache-2.0
// When nothing can run any more: the state of every warp of this host thread's blocks.
#include "runtime/vgpu/schedule.h"

static void warp_line(VgWarp *w, Text *text) {
    const VgModule *m = w->frame->func->module;
    VgPlace place;
    const PtxInstr *p =
        vg_source_at(w->frame->func, w->pc > w->frame->func->code ? w->pc - 1 : w->pc);
    vg_place_of(m, p, &place);
    text_printf(text, "\n  block (%u,%u,%u), warp %u: ", w->cta->id[0], w->cta->id[1],
                w->cta->id[2], w->index);
    if (w->state == VG_WAITING && w->wait.describe) w->wait.describe(w, text);
    else text_add(text, "spins on memory that does not change");
    text_add(text, ", at ");
    vg_report_place(text, &place);
}

static void states(VgWorker *worker, Text *text) {
    int shown = 0;
    for (VgCluster *c = worker->resident; c; c = c->next)
        for (uint32_t k = 0; k < c->n; k++)
            for (uint32_t n = 0; n < c->ctas[k].n_warps; n++) {
                VgWarp *w = &c->ctas[k].warps[n];
                if (w->state != VG_DONE && shown++ < 64) warp_line(w, text);
            }
    if (shown > 64) text_printf(text, "\n  and %d warps more", shown - 64);
}

void vg_deadlock(VgWorker *worker) {
    Text text = { 0 };
    text_add(&text, "no warp can run");
    states(worker, &text);
    vg_fault_grid(worker->grid, VG_DEADLOCK, text_cstr(&text));
    text_finish(&text);
}

/* spinning ----------------------------------------------------------------------------------------
 */

enum { LAPS = 3, LONGEST_LOOP = 4096 };

static Hash warp_state(const VgWarp *w) {
    const VgFunc *f = w->frame->func;
    uint32_t end = f->n_consts ? f->consts[0].at : f->frame_bytes;
    Hash h = hash_bytes(w->frame->at, end);
    h.low ^= (uint64_t)(uintptr_t)w->pc + w->mask * 0x9e3779b97f4a7c15u + w->n_splits;
    return h;
}

// The running split comes back to the same instruction with the same registers: it waits for memory
// to change. Runs it block by block on the way.
static bool split_steady(VgWarp *w) {
    Hash first = warp_state(w);
    bool same = false;
    for (int k = 0; k < LONGEST_LOOP && !same && w->state == VG_READY; k++) {
        w->budget = 1;
        vg_warp_execute(w);
        same = w->state == VG_READY && hash_equal(first, warp_state(w));
    }
    return same || w->state != VG_READY;
}

// Not when lanes wait at a join for the spinning ones: they may be who is waited for.
static bool steady(VgWarp *w) {
    if (w->state == VG_DONE) return !w->base;
    if (w->state != VG_READY) return true;
    uint32_t splits = w->n_splits;
    bool all = !vg_split_release(w);
    for (uint32_t k = 0; k < splits && all && w->state == VG_READY; k++) {
        all = split_steady(w) && w->n_splits == splits;
        if (w->state == VG_READY) vg_split_rotate(w);
    }
    return all && w->state != VG_DONE;
}

static uint64_t steady_key(uint64_t progress, uint64_t laps) { return progress << 8 | laps; }

// All threads have to find their blocks spinning several times in a row. Whoever begins to spin has
// moved before, so it makes the others look again: progress rises.
void vg_livelock(VgWorker *worker) {
    VgGrid *g = worker->grid;
    bool all = true;
    for (VgCluster *c = worker->resident; c && all; c = c->next)
        for (uint32_t k = 0; k < c->n && all; k++)
            for (uint32_t n = 0; n < c->ctas[k].n_warps && all; n++)
                all = steady(&c->ctas[k].warps[n]);
    if (atomic_load(&g->fault)) return;
    uint64_t before = atomic_load(&worker->steady), progress = atomic_load(&g->progress);
    if (!all) {
        atomic_store(&worker->steady, 0);
        return;
    }
    if (!before) progress = atomic_fetch_add(&g->progress, 1) + 1;
    uint64_t laps = before && before >> 8 == progress ? (before & 255) + 1 : 1;
    atomic_store(&worker->steady, steady_key(progress, laps < 255 ? laps : 255));
    for (int k = 0; k < g->n_workers; k++) {
        VgWorker *o = &g->workers[k];
        uint64_t key = atomic_load(&o->steady);
        if (!atomic_load(&o->idle) && (key >> 8 != progress || (key & 255) < LAPS)) return;
    }
    if (atomic_load(&g->progress) != progress) return;
    Text text = { 0 };
    text_printf(&text,
                "all resident blocks spin on memory that nobody will change (%llu of %llu blocks "
                "have ended, %llu are resident at once)",
                (unsigned long long)(atomic_load(&g->done_clusters) * g->ctas_per_cluster),
                (unsigned long long)g->n_ctas,
                (unsigned long long)(g->resident_limit * g->ctas_per_cluster));
    states(worker, &text);
    vg_fault_grid(g, VG_DEADLOCK, text_cstr(&text));
    text_finish(&text);
}
