// SPDX-License-Identifier: Apache-2.0
// Histories of shared memory: interned states and views, and the step from one state to the next.
//
// Step. An access A of agent a to bytes B, against the touches of the state:
//   * a touch that overlaps B, is not ordered before A, and conflicts with it (one of both writes,
//   and
//     they are not both strong with scopes that include each other) is a race;
//   * a write forgets the ordered touches it covers: who races with them races with the write too,
//   or
//     is ordered after it;
//   * who comes after an atomic comes after the writes and atomics on the same bytes before it: it
//     has read what they left; who comes after a strong read comes after the strong write that it
//     read (observation order in PTX's memory model);
//   * a read forgets ordered reads it covers, except strong ones that saw a write it has not seen
//     itself, and keeps writes;
//   * a read by who has just written there adds nothing;
//   * what is in flight is never ordered, until the access that lands it.
// A read of unwritten bytes is a fault of its own. When states run out all histories of the thread
// are cut back to their written bytes and interning starts again.
#include <stdlib.h>

#include "runtime/vgpu/shadow.h"

#define SET_SLOTS (VG_MAX_STATES * 2)
#define VIEW_SLOTS (VG_MAX_VIEWS * 2)
#define FIRST_STATE 16

static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 32)) * 0x9e3779b97f4a7c15u;
    return x ^ (x >> 29);
}

static uint64_t hash_touches(const VgSharedTouch *touches, int n, uint32_t written) {
    uint64_t h = written + 1;
    for (int i = 0; i < n; i++) {
        uint64_t bits;
        memcpy(&bits, &touches[i], sizeof bits);
        h = mix(h ^ bits);
    }
    return h;
}

static void clear_interned(VgMemThread *thread) {
    memset(thread->state_set, 0, SET_SLOTS * sizeof *thread->state_set);
    memset(thread->view_set, 0, VIEW_SLOTS * sizeof *thread->view_set);
    memset(thread->memo, 0, sizeof *thread->memo << VG_MEMO_SHIFT);
    for (uint32_t i = 0; i < FIRST_STATE; i++)
        thread->states[i] = (VgState){ .written = (uint8_t)i, .kept = (uint16_t)i };
    thread->n_states = FIRST_STATE;
    thread->n_touches = 0;
    thread->n_views = 1; // 0 is nobody's
    memset(thread->fresh_views, 0, thread->launch->n_agents * sizeof *thread->fresh_views);
}

Status vg_states_create(VgMemThread *thread) {
    size_t n_agents = thread->launch->n_agents;
    thread->states = malloc(VG_MAX_STATES * sizeof *thread->states);
    thread->state_set = malloc(SET_SLOTS * sizeof *thread->state_set);
    thread->cap_touches = VG_MAX_STATES * 8;
    thread->touches = malloc(thread->cap_touches * sizeof *thread->touches);
    thread->views = malloc(VG_MAX_VIEWS * sizeof *thread->views);
    thread->view_set = malloc(VIEW_SLOTS * sizeof *thread->view_set);
    thread->view_clocks = malloc(VG_MAX_VIEWS * n_agents * sizeof *thread->view_clocks);
    thread->memo = malloc(sizeof *thread->memo << VG_MEMO_SHIFT);
    thread->fresh_views = calloc(n_agents, sizeof *thread->fresh_views);
    if (!thread->states || !thread->state_set || !thread->touches || !thread->views ||
        !thread->view_set || !thread->view_clocks || !thread->memo || !thread->fresh_views)
        return status_fail(ERR_MEMORY, "no memory for access histories");
    clear_interned(thread);
    return OK;
}

void vg_states_destroy(VgMemThread *thread) {
    free(thread->states);
    free(thread->state_set);
    free(thread->touches);
    free(thread->views);
    free(thread->view_set);
    free(thread->view_clocks);
    free(thread->memo);
    free(thread->fresh_views);
}

// Words of all generations to their written bytes; then nothing refers to states or views.
void vg_states_reset(VgMemThread *thread) {
    for (VgTeam *team = thread->teams; team; team = team->next) {
        for (uint32_t rank = 0; rank < team->n_ctas; rank++) {
            VgPlaceMem *cta = &team->cta[rank];
            size_t n = VG_LINES(cta->bytes) * (size_t)(VG_LINE / 4);
            for (size_t i = 0; i < n; i++)
                cta->history[i] = thread->states[cta->history[i] & 0xffff].written |
                                  (team->gen & 0xffff) << 16;
        }
    }
    thread->launch->forgotten += thread->n_states - FIRST_STATE;
    clear_interned(thread);
    for (VgTeam *team = thread->teams; team; team = team->next)
        for (uint32_t i = 0; i < thread->launch->n_agents; i++)
            if (team->warps[i]) team->warps[i]->view = 0;
}

uint32_t vg_view_of(VgMemThread *thread, uint32_t agent, const uint32_t *clocks) {
    uint32_t n = thread->launch->n_agents;
    uint64_t h = agent + 1;
    for (uint32_t i = 0; i < n; i++) h = mix(h ^ clocks[i]);
    uint32_t slot = (uint32_t)(h >> 32) & (VIEW_SLOTS - 1);
    for (; thread->view_set[slot]; slot = (slot + 1) & (VIEW_SLOTS - 1)) {
        const VgView *view = &thread->views[thread->view_set[slot]];
        if (view->agent == agent &&
            !memcmp(thread->view_clocks + view->at, clocks, n * sizeof *clocks))
            return thread->view_set[slot];
    }
    if (thread->n_views == VG_MAX_VIEWS) {
        vg_states_reset(thread);
        return vg_view_of(thread, agent, clocks);
    }
    uint32_t id = thread->n_views++;
    thread->views[id] = (VgView){ agent, id * n };
    memcpy(thread->view_clocks + (size_t)id * n, clocks, n * sizeof *clocks);
    thread->view_set[slot] = id;
    return id;
}

static uint32_t intern(VgMemThread *thread, const VgSharedTouch *touches, int n, uint32_t written) {
    if (!n) return written;
    VgSharedTouch flying[VG_MAX_TOUCHES];
    int n_flying = 0;
    for (int i = 0; i < n; i++)
        if (touches[i].kind & VG_FLYING) flying[n_flying++] = touches[i];
    uint32_t kept = n_flying < n ? intern(thread, flying, n_flying, written) : 0, slot = (uint32_t)(hash_touches(touches, n, written) >> 24) & (SET_SLOTS - 1);
    for (; thread->state_set[slot]; slot = (slot + 1) & (SET_SLOTS - 1)) {
        const VgState *state = &thread->states[thread->state_set[slot]];
        if (state->n == n && state->written == written &&
            !memcmp(thread->touches + state->at, touches, (size_t)n * sizeof *touches))
            return thread->state_set[slot];
    }
    if (thread->n_states == VG_MAX_STATES ||
        thread->n_touches + (uint32_t)n > thread->cap_touches) {
        vg_states_reset(thread);
        return written; // this access is forgotten with the rest
    }
    uint32_t id = thread->n_states++;
    thread->states[id] = (VgState){ thread->n_touches, (uint8_t)n, (uint8_t)written,
                                    (uint16_t)(n_flying < n ? kept : id) };
    memcpy(thread->touches + thread->n_touches, touches, (size_t)n * sizeof *touches);
    thread->n_touches += (uint32_t)n;
    thread->state_set[slot] = (uint16_t)id;
    return id;
}

// Both strong, and each one's scope includes the other.
static bool morally_strong(const VgWarpMem *warp, uint32_t kind, const VgSharedTouch *touch,
                           bool *narrow) {
    *narrow = false;
    if (!(kind & VG_STRONG) || !(touch->kind & VG_STRONG)) return false;
    bool same_cta = touch->agent / warp->team->thread->launch->warps_per_cta == warp->rank;
    *narrow = !same_cta && (VG_KIND_SCOPE(kind) == VG_SCOPE_CTA ||
                            VG_KIND_SCOPE(touch->kind) == VG_SCOPE_CTA);
    return !*narrow;
}

static bool race(VgWarpMem *warp, const VgSharedTouch *touch, bool narrow) {
    VgMemThread *thread = warp->team->thread;
    uint32_t per_cta = thread->launch->warps_per_cta;
    VgAccess access = (VgAccess)(touch->kind & VG_KIND_ACCESS);
    thread->record.fault = narrow ? VG_SCOPE : VG_RACE;
    thread->record.other = (VgOther){
        .known = true, .access = access, .site = VG_NO_SITE, .same_launch = true,
        .flying = touch->kind & VG_FLYING,
        .cta = warp->cta - warp->rank + touch->agent / per_cta, .warp = touch->agent % per_cta,
    };
    return false;
}

// Whether touch `n` writes, and one after it that the warp comes after has seen all of that: an
// atomic, or a strong read of it and not of a later write.
static bool observed(const VgWarpMem *warp, const VgState *state, int n) {
    const VgSharedTouch *touches = &warp->team->thread->touches[state->at], *it = &touches[n];
    if ((it->kind & VG_KIND_ACCESS) == VG_READ) return false;
    bool last = it->kind & VG_STRONG;
    for (int i = n + 1; i < state->n; i++) {
        uint32_t access = touches[i].kind & VG_KIND_ACCESS;
        if (!(it->bytes & touches[i].bytes)) continue;
        if (access == VG_WRITE) last = false;
        else if (!(it->bytes & ~touches[i].bytes) &&
                 (access == VG_ATOMIC || (last && touches[i].kind & VG_STRONG)) &&
                 vg_ordered(warp, touches[i].agent, touches[i].clock))
            return true;
    }
    return false;
}

// Whether read `n` is strong and may be the warp's only link to a write before it: another read, of
// `kind`, has not seen that one itself if it is weak or a write came between.
static bool links(const VgWarpMem *warp, const VgState *state, int n, uint32_t kind) {
    const VgSharedTouch *touches = &warp->team->thread->touches[state->at], *it = &touches[n];
    bool before = false, after = !(kind & VG_STRONG);
    for (int i = 0; i < state->n; i++) {
        if ((touches[i].kind & VG_KIND_ACCESS) == VG_READ || !(touches[i].bytes & it->bytes))
            continue;
        if (i > n) after = true;
        else before |= !vg_ordered(warp, touches[i].agent, touches[i].clock);
    }
    return it->kind & VG_STRONG && before && after;
}

static bool step(VgWarpMem *warp, uint32_t from, uint32_t kind, uint32_t bytes, uint32_t *to) {
    VgMemThread *thread = warp->team->thread;
    const VgState *state = &thread->states[from];
    uint32_t written = state->written, access = kind & VG_KIND_ACCESS, me = warp->agent;
    uint32_t landing = kind & VG_LANDS ? bytes : 0; // what is still to be found in flight
    VgSharedTouch list[VG_MAX_TOUCHES + 1];
    int n = 0;
    bool add = true;
    if (access != VG_WRITE && thread->launch->init && (written & bytes) != bytes) {
        thread->record.fault = VG_UNINITIALISED;
        return false;
    }
    for (int i = 0; i < state->n; i++) {
        VgSharedTouch touch = thread->touches[state->at + (uint32_t)i];
        bool flying = touch.kind & VG_FLYING, narrow;
        bool ordered = !flying && vg_ordered(warp, touch.agent, touch.clock);
        bool reads = access == VG_READ && (touch.kind & VG_KIND_ACCESS) == VG_READ;
        if (flying && landing & touch.bytes && touch.agent == me &&
            (touch.kind & VG_KIND_ACCESS) == access) {
            uint32_t down = landing & touch.bytes;
            landing &= ~down;
            touch.bytes &= (uint8_t)~down;
        }
        if (touch.bytes & bytes) {
            bool seen = !ordered && !flying && observed(warp, state, i);
            if (!ordered && !seen && !reads && !morally_strong(warp, kind, &touch, &narrow))
                return race(warp, &touch, narrow);
            bool covered = access == VG_READ ? ordered && reads && !links(warp, state, i, kind)
                                             : ordered || (seen && access == VG_WRITE);
            if (covered) touch.bytes &= (uint8_t)~bytes;
            if (access == VG_READ && touch.kind == VG_WRITE && touch.agent == me &&
                touch.clock == warp->clock->at[me] && (touch.bytes & bytes) == bytes)
                add = false;
        }
        if (touch.bytes) list[n++] = touch;
    }
    if (add)
        list[n++] =
            (VgSharedTouch){ warp->clock->at[me], (uint16_t)me, (uint8_t)(kind & ~VG_LANDS),
                             (uint8_t)bytes };
    if (n > VG_MAX_TOUCHES) { // the oldest is let go
        memmove(list, list + 1, (size_t)--n * sizeof *list);
        thread->launch->forgotten++;
    }
    *to = intern(thread, list, n, access == VG_READ ? written : written | bytes);
    return true;
}

bool vg_shared_step(VgWarpMem *warp, uint32_t word, uint32_t kind, uint32_t bytes, uint32_t *to) {
    VgTeam *team = warp->team;
    VgMemThread *thread = team->thread;
    uint32_t gen = team->gen & 0xffff, from = word & 0xffff, next;
    if (word >> 16 != gen) from = thread->states[from].kept;
    if (!warp->view) vg_view_update(warp);
    if (!thread->launch->races) {
        if (thread->launch->init && (kind & VG_KIND_ACCESS) != VG_WRITE &&
            (from & bytes) != bytes) {
            thread->record.fault = VG_UNINITIALISED;
            return false;
        }
        *to = gen << 16 | from | ((kind & VG_KIND_ACCESS) == VG_READ ? 0 : bytes);
        return true;
    }
    uint64_t key = vg_shared_key(warp, from, kind, bytes);
    VgMemo *memo = &thread->memo[vg_memo_slot(key)];
    if (memo->key == key) {
        *to = gen << 16 | memo->to;
        return true;
    }
    if (!step(warp, from, kind, bytes, &next)) return false;
    if (warp->view) *memo = (VgMemo){ key, next }; // interning may have begun again
    *to = (team->gen & 0xffff) << 16 | next;
    return true;
}
