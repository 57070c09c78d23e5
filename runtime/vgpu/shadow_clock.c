// SPDX-License-Identifier: Apache-2.0
// Order: vector clocks of a team's agents, what is known of other teams, and the edges that carry
// both.
//
// In a team a clock counts the releases of an agent within a generation; what an older generation
// did is known to all. Of another team one knows a snapshot: its generation and clocks at the
// release that was heard of. Snapshots never change once made, so that messages can share them
// between threads.
//
// Releases and acquires follow the PTX model: a release pattern is a strong write that is .release,
// or follows a fence; an acquire pattern a strong read that is .acquire, or is followed by a fence.
// A read-modify-write leaves the message of earlier releases in place, a plain strong write
// replaces it.
#include <stdlib.h>

#include "runtime/vgpu/shadow.h"

/* Within a team -------------------------------------------------------------------------------- */

VgClock *vg_clock_create(VgTeam *team) {
    VgClock *clock = team->free_clocks;
    if (clock) {
        team->free_clocks = clock->next;
    } else {
        clock = ARENA_NEW(team->arena, VgClock);
        clock->at = ARENA_ARRAY(team->arena, uint32_t, team->thread->launch->n_agents);
        *team->last_clock = clock;
        team->last_clock = &clock->next;
    }
    memset(clock->at, 0, team->thread->launch->n_agents * sizeof *clock->at);
    clock->gen = 0;
    clock->known = NULL;
    return clock;
}

void vg_clock_clear(VgClock *clock) {
    clock->gen = 0;
    clock->known = NULL;
}

// Into `to`, of `team` now, what `from` holds; true: something was new.
static bool join_clocks(const VgTeam *team, VgClock *to, const VgClock *from) {
    uint32_t n = team->thread->launch->n_agents, *at = to->at;
    bool news = false;
    if (from->gen != team->gen) return false;
    if (to->gen != team->gen) {
        memset(at, 0, n * sizeof *at);
        to->gen = team->gen;
    }
    for (uint32_t i = 0; i < n; i++) {
        news |= from->at[i] > at[i];
        at[i] = from->at[i] > at[i] ? from->at[i] : at[i];
    }
    return news;
}

bool vg_ordered(const VgWarpMem *warp, uint32_t agent, uint32_t clock) {
    return agent == warp->agent || clock <= warp->clock->at[agent];
}

void vg_view_update(VgWarpMem *warp) {
    warp->turn++;
    warp->view = vg_view_of(warp->team->thread, warp->agent, warp->clock->at);
}

static void tick(VgWarpMem *warp) {
    warp->clock->at[warp->agent]++;
    vg_view_update(warp);
}

/* Other teams ---------------------------------------------------------------------------------- */

static const VgKnownTeam *find_team(const VgKnown *known, uint32_t team) {
    uint32_t low = 0, high = known ? known->n : 0;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (known->teams[middle].team < team)
            low = middle + 1;
        else
            high = middle;
    }
    return known && low < known->n && known->teams[low].team == team ? &known->teams[low] : NULL;
}

static bool covers(const VgKnownTeam *a, const VgKnownTeam *b, uint32_t n) {
    if (!a || a->gen < b->gen) return false;
    if (a->gen > b->gen) return true;
    for (uint32_t i = 0; i < n; i++)
        if (a->at[i] < b->at[i]) return false;
    return true;
}

static bool known_covers(const VgKnown *a, const VgKnown *b, uint32_t n) {
    for (uint32_t i = 0; b && i < b->n; i++)
        if (!covers(find_team(a, b->teams[i].team), &b->teams[i], n)) return false;
    return true;
}

static VgKnownTeam join_team(Arena *arena, const VgKnownTeam *a, const VgKnownTeam *b, uint32_t n) {
    if (covers(a, b, n)) return *a;
    if (covers(b, a, n)) return *b;
    VgKnownTeam both = { a->team, a->gen, ARENA_ARRAY(arena, uint32_t, n) };
    for (uint32_t i = 0; i < n; i++) both.at[i] = a->at[i] > b->at[i] ? a->at[i] : b->at[i];
    return both;
}

// Shares what it can; a or b itself when that says it all.
static const VgKnown *join_known(VgMemThread *thread, const VgKnown *a, const VgKnown *b) {
    uint32_t n = thread->launch->n_agents, i = 0, k = 0;
    if (a == b || known_covers(a, b, n)) return a;
    if (known_covers(b, a, n)) return b;
    VgKnown *both = arena_alloc(thread->arena, sizeof *both + (a->n + b->n) * sizeof *both->teams);
    while (i < a->n || k < b->n) {
        VgKnownTeam *to = &both->teams[both->n++];
        if (k == b->n || (i < a->n && a->teams[i].team < b->teams[k].team))
            *to = a->teams[i++];
        else if (i == a->n || b->teams[k].team < a->teams[i].team)
            *to = b->teams[k++];
        else
            *to = join_team(thread->arena, &a->teams[i++], &b->teams[k++], n);
    }
    return both;
}

// A clock of a team as others may know it, with what it knows itself.
static const VgKnown *export_clock(const VgTeam *team, const VgClock *clock, const VgKnown *known) {
    VgMemThread *thread = team->thread;
    uint32_t n = thread->launch->n_agents;
    VgKnown *own = arena_alloc(thread->arena, sizeof *own + sizeof *own->teams);
    own->n = 1;
    own->teams[0] =
        (VgKnownTeam){ team->cluster, clock->gen, ARENA_ARRAY(thread->arena, uint32_t, n) };
    memcpy(own->teams[0].at, clock->at, n * sizeof *clock->at);
    return join_known(thread, known, own);
}

bool vg_touch_ordered(const VgWarpMem *warp, const VgTouch *touch) {
    if (touch->team == warp->team->cluster)
        return touch->gen < warp->team->gen || vg_ordered(warp, touch->agent, touch->clock);
    const VgKnownTeam *team = find_team(warp->known, touch->team);
    return team && (touch->gen < team->gen ||
                    (touch->gen == team->gen && touch->clock <= team->at[touch->agent]));
}

/* Edges ---------------------------------------------------------------------------------------- */

void vg_clock_release(VgClock *clock, VgWarpMem *warp) {
    join_clocks(warp->team, clock, warp->clock);
    clock->known = join_known(warp->team->thread, clock->known, warp->known);
    tick(warp);
}

void vg_clock_join(VgTeam *team, VgClock *to, const VgClock *from) {
    join_clocks(team, to, from);
    to->known = join_known(team->thread, to->known, from->known);
}

void vg_agent_save(VgWarpMem *to, VgClock *clock, uint32_t *at, VgWarpMem *from) {
    *clock = (VgClock){ .gen = from->clock->gen, .at = at, .known = from->known };
    memcpy(at, from->clock->at, from->team->thread->launch->n_agents * sizeof *at);
    *to = *from;
    to->clock = clock;
    tick(from);
}

void vg_agent_wake(VgWarpMem *agent) {
    uint32_t n = agent->team->thread->launch->n_agents;
    if (agent->clock->gen != agent->team->gen) {
        memset(agent->clock->at, 0, n * sizeof *agent->clock->at);
        agent->clock->at[agent->agent] = 1;
        agent->clock->gen = agent->team->gen;
    }
    agent->view = vg_view_of(agent->team->thread, agent->agent, agent->clock->at);
}

static void learn(VgWarpMem *warp, const VgClock *clock) {
    const VgKnown *known = join_known(warp->team->thread, warp->known, clock->known);
    bool news = join_clocks(warp->team, warp->clock, clock) || known != warp->known;
    warp->known = known;
    if (news) vg_view_update(warp);
}

void vg_clock_acquire(const VgClock *clock, VgWarpMem *warp) { learn(warp, clock); }

// Generations of words are 16 bits: before they come round again, old words are made plain.
static void plain_words(VgTeam *team) {
    for (uint32_t rank = 0; rank < team->n_ctas; rank++) {
        VgPlaceMem *cta = &team->cta[rank];
        size_t n = VG_LINES(cta->bytes) * (size_t)(VG_LINE / 4);
        for (size_t i = 0; i < n; i++)
            cta->history[i] = team->thread->states[cta->history[i] & 0xffff].kept |
                              (team->gen & 0xffff) << 16;
    }
}

void vg_team_barrier(VgTeam *team) {
    VgMemThread *thread = team->thread;
    uint32_t n = thread->launch->n_agents;
    const VgKnown *known = NULL;
    team->gen++;
    if (!(team->gen & 0xffff)) plain_words(team);
    for (uint32_t i = 0; i < n; i++)
        if (team->warps[i] && team->warps[i]->known)
            known = join_known(thread, known, team->warps[i]->known);
    for (uint32_t i = 0; i < n; i++) {
        VgWarpMem *warp = team->warps[i];
        if (!warp || warp->exited) continue;
        memset(warp->clock->at, 0, n * sizeof *warp->clock->at);
        warp->clock->at[i] = 1;
        warp->clock->gen = team->gen;
        warp->known = known;
        warp->turn++;
        if (!thread->fresh_views[i]) { // a reset of the tables may happen inside
            uint32_t view = vg_view_of(thread, i, warp->clock->at);
            thread->fresh_views[i] = view;
        }
        warp->view = thread->fresh_views[i];
    }
}

/* Messages: what is published at an address ---------------------------------------------------- */

struct VgMessage {
    VgMessage *next;
    uint64_t address;            // of the 4-byte granule; shared ones with their team
    uint32_t team;
    const VgKnown *known;        // NULL: replaced by a write that released nothing
};

static VgMessage **message_slot(VgLaunchMem *launch, uint64_t address, uint32_t team,
                                pthread_mutex_t **lock) {
    uint64_t h = hash_mix(team, address, 0);
    *lock = &launch->message_lock[h % (unsigned)COUNT_OF(launch->message_lock)];
    return &launch->message[h % VG_MESSAGE_SLOTS];
}
_Static_assert(VG_MESSAGE_SLOTS % 16 == 0, "a slot has one lock");

static VgMessage *find_message(VgMessage *at, uint64_t address, uint32_t team) {
    while (at && (at->address != address || at->team != team)) at = at->next;
    return at;
}

// Global messages belong to no team; those in shared memory to their cluster.
static uint32_t message_team(const VgWarpMem *warp, uint64_t address) {
    return vg_space_of(address) == VG_GLOBAL ? UINT32_MAX : warp->team->cluster;
}

void vg_message_publish(VgWarpMem *warp, const VgSite *site, uint64_t address) {
    VgLaunchMem *launch = warp->team->thread->launch;
    bool releases = site->sem == VG_RELEASE || site->sem == VG_ACQ_REL || site->sem == VG_SC;
    bool plain = site->access == VG_WRITE;
    if (!releases && !warp->fenced && !(plain && launch->messages)) return;
    const VgKnown *known = NULL;
    if (releases)
        known = export_clock(warp->team, warp->clock, warp->known);
    else if (warp->fenced)
        known = warp->fenced;
    address &= ~(uint64_t)3;
    uint32_t team = message_team(warp, address);
    pthread_mutex_t *lock;
    VgMessage **slot = message_slot(launch, address, team, &lock);
    pthread_mutex_lock(lock);
    VgMessage *message = find_message(*slot, address, team);
    if (!message && known) {
        message = calloc(1, sizeof *message);
        if (message) {
            *message = (VgMessage){ *slot, address, team, NULL };
            *slot = message;
        }
    }
    if (message)
        message->known = plain ? known : join_known(warp->team->thread, message->known, known);
    pthread_mutex_unlock(lock);
    if (known) launch->messages = true;
    if (releases) tick(warp);
}

// Knowledge of the own team arrives as a snapshot too: it joins the clock.
static void learn_known(VgWarpMem *warp, const VgKnown *known) {
    const VgKnownTeam *own = find_team(known, warp->team->cluster);
    VgClock clock = { .gen = own ? own->gen : 0, .at = own ? own->at : NULL, .known = known };
    if (!known) return;
    if (!own) clock.gen = 0;
    learn(warp, &clock);
}

void vg_message_learn(VgWarpMem *warp, const VgSite *site, uint64_t address) {
    VgMemThread *thread = warp->team->thread;
    VgLaunchMem *launch = thread->launch;
    if (!launch->messages) return;
    address &= ~(uint64_t)3;
    uint32_t team = message_team(warp, address);
    pthread_mutex_t *lock;
    VgMessage **slot = message_slot(launch, address, team, &lock);
    pthread_mutex_lock(lock);
    VgMessage *message = find_message(*slot, address, team);
    const VgKnown *known = message ? message->known : NULL;
    pthread_mutex_unlock(lock);
    if (!known) return;
    if (site->sem == VG_ACQUIRE || site->sem == VG_ACQ_REL || site->sem == VG_SC)
        learn_known(warp, known);
    else
        warp->seen = join_known(thread, warp->seen, known);
}

void vg_fence(VgWarpMem *warp, VgSem sem, VgScope scope) {
    (void)sem;
    (void)scope; // messages carry no scope: too narrow ones show as VG_SCOPE at the location itself
    atomic_thread_fence(memory_order_seq_cst);
    if (!warp->team->thread->launch->races) return;
    if (warp->seen) learn_known(warp, warp->seen);
    warp->seen = NULL;
    warp->fenced = export_clock(warp->team, warp->clock, warp->known);
    tick(warp);
}

void vg_messages_free(VgLaunchMem *launch) {
    for (int i = 0; i < VG_MESSAGE_SLOTS; i++) {
        while (launch->message[i]) {
            VgMessage *message = launch->message[i];
            launch->message[i] = message->next;
            free(message);
        }
    }
}
