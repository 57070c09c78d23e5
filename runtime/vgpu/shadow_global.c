// SPDX-License-Identifier: Apache-2.0
// Histories of global memory: touches, lists of touches, and the step from one word to the next.
//
// The rules are those of shadow_state.c; the other party may be of another team, and only what this
// launch did counts. Words are read and written without locks: two teams on two host threads that
// touch a granule in the same few nanoseconds may miss each other; on one thread nothing is missed.
// Lists that readers of more than VG_LIST_TEAMS teams would make are not kept: a later write by a
// team that has heard of no other one races with them, one that has is given the benefit of the
// doubt.
#include <stdlib.h>

#include "runtime/vgpu/shadow.h"

const VgTouch *vg_touch_at(const VgLaunchMem *launch, uint32_t id) {
    uint32_t at = id - launch->first_id;
    if (id < launch->first_id || at >= VG_LAUNCH_IDS) return NULL; // of another launch
    const VgTouch *chunk =
        atomic_load_explicit(&launch->chunks[at >> VG_CHUNK_SHIFT], memory_order_acquire);
    return chunk ? &chunk[at & ((1u << VG_CHUNK_SHIFT) - 1)] : NULL;
}

// A new touch of this thread; NULL when the launch has made too many.
static VgTouch *new_touch(VgMemThread *thread, uint32_t *id) {
    VgLaunchMem *launch = thread->launch;
    if (!thread->chunk || thread->chunk_at == 1u << VG_CHUNK_SHIFT) {
        uint32_t n = launch->n_chunks < VG_MAX_CHUNKS ? launch->n_chunks++ : VG_MAX_CHUNKS;
        VgTouch *chunk = n < VG_MAX_CHUNKS ? calloc(1u << VG_CHUNK_SHIFT, sizeof *chunk) : NULL;
        if (!chunk) {
            launch->forgotten++;
            return NULL;
        }
        atomic_store_explicit(&launch->chunks[n], chunk, memory_order_release);
        thread->chunk = chunk;
        thread->chunk_at = 0;
        thread->chunk_id = launch->first_id + (n << VG_CHUNK_SHIFT);
    }
    *id = thread->chunk_id + thread->chunk_at;
    return &thread->chunk[thread->chunk_at++];
}

uint32_t vg_touch_of(VgWarpMem *warp, const VgSite *site, uint32_t kind, uint32_t bytes) {
    uint64_t key = (uint64_t)warp->turn << 40 | (uint64_t)site->id << 12 | kind << 4 | bytes;
    uint32_t slot = (site->id ^ bytes) % (uint32_t)COUNT_OF(warp->cache), id;
    if (warp->cache[slot].key == key) return warp->cache[slot].id;
    VgTouch *touch = new_touch(warp->team->thread, &id);
    if (!touch) return 0;
    *touch = (VgTouch){ .team = warp->team->cluster,
                        .gen = warp->team->gen,
                        .clock = warp->clock->at[warp->agent],
                        .site = site->id,
                        .flight = kind & VG_FLYING ? warp->flight : 0,
                        .agent = (uint16_t)warp->agent,
                        .kind = (uint8_t)kind,
                        .bytes = (uint8_t)bytes };
    warp->cache[slot].key = key;
    warp->cache[slot].id = id;
    return id;
}

// Of this team: what other teams have in flight is not ordered anyway.
static bool in_flight(const VgWarpMem *warp, const VgTouch *touch) {
    if (!(touch->kind & VG_FLYING) || touch->team != warp->team->cluster) return false;
    return warp->team->warps[touch->agent]->landed < touch->flight;
}

static bool race(VgWarpMem *warp, const VgTouch *touch, VgFault fault) {
    VgMemThread *thread = warp->team->thread;
    const VgLaunchMem *launch = thread->launch;
    thread->record.fault = fault;
    thread->record.other = (VgOther){
        .known = true, .access = (VgAccess)(touch->kind & VG_KIND_ACCESS), .site = touch->site,
        .cta = touch->team * launch->shape.cluster_ctas + touch->agent / launch->warps_per_cta,
        .warp = touch->agent % launch->warps_per_cta, .same_launch = true,
        .flying = in_flight(warp, touch),
    };
    return false;
}

// VG_OK, or why the touch and an access of `kind` by the warp must not meet.
static VgFault conflict(const VgWarpMem *warp, const VgTouch *touch, uint32_t kind) {
    if ((kind & VG_KIND_ACCESS) == VG_READ && (touch->kind & VG_KIND_ACCESS) == VG_READ)
        return VG_OK;
    if (!(kind & VG_STRONG) || !(touch->kind & VG_STRONG)) return VG_RACE;
    VgScope scope = VG_KIND_SCOPE(kind), other = VG_KIND_SCOPE(touch->kind);
    scope = scope < other ? scope : other;
    bool team = touch->team == warp->team->cluster;
    bool cta = team && touch->agent / warp->team->thread->launch->warps_per_cta == warp->rank;
    return scope >= VG_SCOPE_GPU || cta || (team && scope == VG_SCOPE_CLUSTER) ? VG_OK : VG_SCOPE;
}

// Of a list's survivors and the new touch. Touches whose bytes were partly covered are kept whole:
// a granule's bytes are seldom split, and an ordered touch more does no harm.
static bool make_list(VgMemThread *thread, const uint32_t *ids, int n, uint32_t *to) {
    uint32_t id;
    int teams = 0;
    bool reads = true;
    if (n == 1) {
        *to = ids[0];
        return true;
    }
    for (int i = 0; i < n; i++) {
        const VgTouch *touch = vg_touch_at(thread->launch, ids[i]);
        bool seen = false;
        for (int k = 0; k < i; k++)
            seen |= vg_touch_at(thread->launch, ids[k])->team == touch->team;
        teams += !seen;
        reads &= (touch->kind & VG_KIND_ACCESS) == VG_READ;
    }
    VgTouch *list = new_touch(thread, &id);
    if (!list) return false;
    list->n = (uint8_t)n;
    list->everyone = teams > VG_LIST_TEAMS && reads;
    list->items = ARENA_ARRAY(thread->arena, uint32_t, n);
    memcpy(list->items, ids, (size_t)n * sizeof *ids);
    *to = id;
    return true;
}

// Whether one of the `later` touches, which the warp comes after, has seen all of this write.
static bool observed(const VgWarpMem *warp, const VgTouch *touch, const uint32_t *later, int n) {
    bool last = touch->kind & VG_STRONG;
    for (int i = 0; i < n; i++) {
        const VgTouch *it = vg_touch_at(warp->team->thread->launch, later[i]);
        uint32_t access = it->kind & VG_KIND_ACCESS;
        if (!(touch->bytes & it->bytes)) continue;
        if (access == VG_WRITE) last = false;
        else if (!(touch->bytes & ~it->bytes) &&
                 (access == VG_ATOMIC || (last && it->kind & VG_STRONG)) &&
                 vg_touch_ordered(warp, it))
            return true;
    }
    return false;
}

// Whether read `n` is strong and may be the warp's only link to a write before it.
static bool links(const VgWarpMem *warp, const uint32_t *items, int n_items, int n, uint32_t kind) {
    const VgLaunchMem *launch = warp->team->thread->launch;
    const VgTouch *read = vg_touch_at(launch, items[n]);
    bool before = false, after = !(kind & VG_STRONG);
    for (int i = 0; i < n_items; i++) {
        const VgTouch *it = vg_touch_at(launch, items[i]);
        if ((it->kind & VG_KIND_ACCESS) == VG_READ || !(it->bytes & read->bytes)) continue;
        if (i > n) after = true;
        else before |= !vg_touch_ordered(warp, it);
    }
    return read->kind & VG_STRONG && before && after;
}

static bool step(VgWarpMem *warp, const VgTouch *from, uint32_t from_id, uint32_t touch_id,
                 uint32_t *to) {
    VgMemThread *thread = warp->team->thread;
    const VgTouch *mine = vg_touch_at(thread->launch, touch_id);
    uint32_t ids[VG_MAX_TOUCHES + 1], access = mine->kind & VG_KIND_ACCESS;
    int n = 0;
    uint32_t one[1] = { from_id };
    const uint32_t *items = from->n ? from->items : one;
    int n_items = from->n ? from->n : 1;
    bool add = true;
    if (from->everyone) {
        if (access == VG_READ) {
            *to = from_id;
            return true;
        }
        bool strong = mine->kind & VG_STRONG; // a flag that many poll
        for (int i = 0; i < n_items; i++)
            strong = strong && vg_touch_at(thread->launch, items[i])->kind & VG_STRONG;
        if (!warp->known && !strong)
            return race(warp,
                        vg_touch_at(thread->launch, items[0])->team == mine->team
                            ? vg_touch_at(thread->launch, items[n_items - 1])
                            : vg_touch_at(thread->launch, items[0]),
                        VG_RACE);
        *to = touch_id;
        return true;
    }
    for (int i = 0; i < n_items; i++) {
        const VgTouch *touch = vg_touch_at(thread->launch, items[i]);
        bool reads = (touch->kind & VG_KIND_ACCESS) == VG_READ, keep = true;
        bool flying = in_flight(warp, touch), ordered = !flying && vg_touch_ordered(warp, touch);
        if (touch->bytes & mine->bytes) {
            bool seen = !reads && !flying && observed(warp, touch, items + i + 1, n_items - i - 1);
            VgFault fault = ordered || seen ? VG_OK : conflict(warp, touch, mine->kind);
            if (fault != VG_OK) return race(warp, touch, fault);
            bool covered = access == VG_READ ? ordered && reads &&
                                                   !links(warp, items, n_items, i, mine->kind)
                                             : ordered || (seen && access == VG_WRITE);
            if (covered && !(touch->bytes & ~mine->bytes)) keep = false;
            if (access == VG_READ && touch->kind == VG_WRITE && touch->team == mine->team &&
                touch->agent == mine->agent && touch->gen == mine->gen &&
                touch->clock == mine->clock && !(mine->bytes & ~touch->bytes))
                add = false;
        }
        if (keep) ids[n++] = items[i];
    }
    if (add) ids[n++] = touch_id;
    if (n > VG_MAX_TOUCHES) {
        memmove(ids, ids + 1, (size_t)--n * sizeof *ids);
        thread->launch->forgotten++;
    }
    if (add || n < n_items) return make_list(thread, ids, n, to);
    *to = from_id;
    return true;
}

bool vg_global_step(VgWarpMem *warp, uint32_t word, uint32_t touch, uint32_t *to) {
    VgMemThread *thread = warp->team->thread;
    *to = touch;
    if (word == touch) return true;
    const VgTouch *from = vg_touch_at(thread->launch, word);
    if (!from) return true; // of an earlier launch
    uint64_t key = (uint64_t)word << 32 | touch;
    VgMemo *memo = &thread->global_memo[vg_memo_slot(key)];
    if (memo->key == key) {
        *to = memo->to;
        return true;
    }
    thread->record.fault = VG_OK;
    if (!step(warp, from, word, touch, to)) {
        if (thread->record.fault != VG_OK) return false;
        *to = word; // no ids left
        return true;
    }
    *memo = (VgMemo){ key, *to };
    return true;
}
