// SPDX-License-Identifier: Apache-2.0
// Calls of groups, by rounds. In a round every member lays a piece into its box, all meet, all take from
// the boxes of their node. Members on other nodes: the first member on each node (its leader) sends what
// its node gave to the other leaders, once per node, between the coming together of its own and letting
// them go. An exchange sends its parts straight between the ranks.
#include "runtime/comm/process.h"

/* Meeting -------------------------------------------------------------------------------------- */

// What leaders do while their node waits: round `half` of the box, `bytes` of each member.
typedef Status (*Between)(Team *team, Wait *wait, int half, int64_t bytes);

// All members of this node have come when it returns; `between` (NULL: nothing, the other nodes do not
// matter) is done by the leader before anybody leaves.
static Status meet(Team *team, Wait *wait, Between between, int half, int64_t bytes) {
    Cell *cell = team->cell;
    Board *board = wait->process->control.board;
    int rank = wait->process->base.rank;
    uint32_t turn = atomic_load(&cell->turn), here = (uint32_t)team->n_here;
    bool leads = between && team->n_nodes > 1;
    board_moved(board, rank);
    // Nodes may differ in how many rounds a call has for them; a call that only began was counted then.
    if (team->n_nodes == 1 && !wait->behind)
        atomic_fetch_add(&board->entries[rank].entered[team->group], 1);
    uint32_t arrived = atomic_fetch_add(&cell->arrived, 1) + 1;
    if (leads && team->own_here == 0) {
        for (; arrived != here; arrived = atomic_load(&cell->arrived))
            TRY(wait_word(wait, &cell->arrived, arrived));
        TRY(between(team, wait, half, bytes));
    } else if (leads || arrived != here) {
        if (leads && arrived == here) wake_all(&cell->arrived);
        return wait_word(wait, &cell->turn, turn);
    }
    atomic_store(&cell->arrived, 0);
    atomic_store(&cell->turn, turn + 1);
    if (here > 1) wake_all(&cell->turn);
    return OK;
}

static Wait enter(Process *p, PlanGroup group, BoardCall call) {
    atomic_fetch_add(&p->control.board->entries[p->base.rank].entered[group], 1);
    return wait_begin(p, call, (int)group, -1);
}

// A step of a barrier among leaders: in step k a leader hears from the one 2^k before it.
static Status leaders_meet(Team *team, Wait *wait, int half, int64_t bytes) {
    char sent = 0, came;
    (void)half, (void)bytes;
    for (int step = 1; step < team->n_nodes; step *= 2) {
        int to = (team->own_node + step) % team->n_nodes;
        int from = (team->own_node - step + team->n_nodes) % team->n_nodes;
        Ticket *out, *in;
        TRY(ticket_recv(wait, team->ranks[team->leaders[from]], team->tag, &came, 1, &in));
        TRY(ticket_send(wait, team->ranks[team->leaders[to]], team->tag, &sent, 1, &out));
        TRY(wait_ticket(wait, in));
        TRY(wait_ticket(wait, out));
    }
    return OK;
}

Status team_meet(Process *p, PlanGroup group, BoardCall call) {
    Team *team = &p->teams[group];
    if (team->n == 1) return OK;
    Wait wait = enter(p, group, call);
    TRY(meet(team, &wait, leaders_meet, 0, 0));
    wait_end(&wait);
    return OK;
}

Status team_end(Process *p) {
    Team *team = &p->teams[GROUP_world];
    Wait wait = { .process = p, .requests = &p->requests, .looked = board_now() };
    return meet(team, &wait, leaders_meet, 0, 0);
}

Status process_barrier(Comm *comm, PlanGroup group) {
    return team_meet(process_of(comm), group, CALL_barrier);
}

/* Gather --------------------------------------------------------------------------------------- */

// A box: two halves of what this rank gives, two of what came from other nodes (a leader's is used).
static char *given(const Team *team, int here, int half) {
    return team->boxes[here] + half * BOX;
}

static char *came(const Team *team, int half) {
    return team->boxes[0] + (2 + half) * BOX;
}

// Members of other nodes, in order: their places in what came.
static int place_of(const Team *team, int member) {
    int place = 0;
    for (int i = 0; i < member; i++) place += team->node[i] != team->own_node;
    return place;
}

static Status leaders_gather(Team *team, Wait *wait, int half, int64_t bytes) {
    int n = 0;
    Ticket **tickets = team->tickets;
    for (int i = 0; i < team->n; i++) {
        int leader = team->leaders[team->node[i]];
        if (team->node[i] == team->own_node) continue;
        TRY(ticket_recv(wait, team->ranks[leader], team->tag, came(team, half) + place_of(team, i) * bytes,
                        bytes, &tickets[n]));
        n++;
    }
    for (int node = 0; node < team->n_nodes; node++) {
        for (int h = 0; node != team->own_node && h < team->n_here; h++, n++)
            TRY(ticket_send(wait, team->ranks[team->leaders[node]], team->tag, given(team, h, half), bytes,
                            &tickets[n]));
    }
    for (int i = 0; i < n; i++) TRY(wait_ticket(wait, tickets[i]));
    return OK;
}

// Bytes from each member in a round, the same on all nodes: what came from others fits half a box too.
static int64_t gather_round(const Team *team) {
    return team->n_nodes > 1 ? max_i64(BOX / team->n / 64, 1) * 64 : BOX;
}

Status team_gather(Team *team, Wait *wait, const void *from, void *to, int64_t bytes) {
    int64_t round = gather_round(team);
    char *own = (char *)to + team->own * bytes;
    if (own != from) memmove(own, from, (size_t)bytes);
    for (int64_t at = 0; team->n > 1 && at < bytes; at += round) {
        int half = (int)(team->rounds++ & 1);
        int64_t now = min_i64(round, bytes - at);
        memcpy(given(team, team->own_here, half), own + at, (size_t)now);
        TRY(meet(team, wait, leaders_gather, half, now));
        for (int h = 1; h < team->n_here; h++) {
            int here = (team->own_here + h) % team->n_here;
            memcpy((char *)to + team->here[here] * bytes + at, given(team, here, half), (size_t)now);
        }
        for (int i = 0, place = 0; team->n_nodes > 1 && i < team->n; i++) {
            if (team->node[i] == team->own_node) continue;
            memcpy((char *)to + i * bytes + at, came(team, half) + place++ * now, (size_t)now);
        }
    }
    return OK;
}

Status process_gather(Comm *comm, PlanGroup group, const void *from, void *to, int64_t bytes) {
    Process *p = process_of(comm);
    Team *team = &p->teams[group];
    Wait alone = { .process = p };
    if (team->n == 1) return team_gather(team, &alone, from, to, bytes);
    Wait wait = enter(p, group, CALL_gather);
    TRY(team_gather(team, &wait, from, to, bytes));
    wait_end(&wait);
    return OK;
}

/* Exchange ------------------------------------------------------------------------------------- */

// With members on other nodes, straight from and to where the parts lie.
static Status begin_far(Team *team, Wait *wait, const char *from, char *to, int64_t bytes, int *n) {
    for (int i = 0; i < team->n; i++) {
        if (team->node[i] == team->own_node) continue;
        TRY(ticket_recv(wait, team->ranks[i], team->tag, to + i * bytes, bytes, &team->tickets[(*n)++]));
    }
    for (int i = 0; i < team->n; i++) {
        if (team->node[i] == team->own_node) continue;
        TRY(ticket_send(wait, team->ranks[i], team->tag, from + i * bytes, bytes, &team->tickets[(*n)++]));
    }
    return OK;
}

static Status exchange_near(Team *team, Wait *wait, const char *from, char *to, int64_t bytes) {
    int n = team->n_here;
    int64_t round = BOX / n / 64 * 64;
    memcpy(to + team->own * bytes, from + team->own * bytes, (size_t)bytes);
    for (int64_t at = 0; n > 1 && at < bytes; at += round) {
        int half = (int)(team->rounds++ & 1);
        int64_t now = min_i64(round, bytes - at);
        for (int h = 0; h < n; h++)
            if (h != team->own_here)
                memcpy(given(team, team->own_here, half) + h * now, from + team->here[h] * bytes + at,
                       (size_t)now);
        TRY(meet(team, wait, NULL, half, now));
        for (int h = 1; h < n; h++) {
            int here = (team->own_here + h) % n;
            memcpy(to + team->here[here] * bytes + at,
                   given(team, here, half) + team->own_here * now, (size_t)now);
        }
    }
    return OK;
}

Status team_exchange(Team *team, Wait *wait, const void *from, void *to, int64_t bytes) {
    int n = 0;
    TRY(begin_far(team, wait, from, to, bytes, &n));
    TRY(exchange_near(team, wait, from, to, bytes));
    for (int i = 0; i < n; i++) TRY(wait_ticket(wait, team->tickets[i]));
    return OK;
}

Status process_exchange(Comm *comm, PlanGroup group, const void *from, void *to, int64_t bytes) {
    Process *p = process_of(comm);
    Team *team = &p->teams[group];
    Wait alone = { .process = p };
    if (team->n == 1) return team_exchange(team, &alone, from, to, bytes);
    Wait wait = enter(p, group, CALL_exchange);
    TRY(team_exchange(team, &wait, from, to, bytes));
    wait_end(&wait);
    return OK;
}

/* Blocks --------------------------------------------------------------------------------------- */

// Messages between all pairs, near ones too: who else gives how much is nobody's knowledge, so there are
// no rounds.
static Status begin_blocks(Team *team, Wait *wait, const char *from, const int64_t *out, char *to,
                           const int64_t *in, int *n) {
    for (int i = 0; i < team->n; to += in[i++])
        if (in[i] && i != team->own)
            TRY(ticket_recv(wait, team->ranks[i], team->tag, to, in[i], &team->tickets[(*n)++]));
    for (int i = 0; i < team->n; from += out[i++])
        if (out[i] && i != team->own)
            TRY(ticket_send(wait, team->ranks[i], team->tag, from, out[i], &team->tickets[(*n)++]));
    return OK;
}

static void copy_own(const Team *team, const char *from, const int64_t *out, char *to, const int64_t *in) {
    for (int i = 0; i < team->own; i++) {
        from += out[i];
        to += in[i];
    }
    if (in[team->own]) memcpy(to, from, (size_t)in[team->own]);
}

Status process_blocks(Comm *comm, PlanGroup group, const void *from, const int64_t *out, void *to,
                      const int64_t *in) {
    Process *p = process_of(comm);
    Team *team = &p->teams[group];
    int n = 0;
    Wait wait = enter(p, group, CALL_blocks);
    TRY(begin_blocks(team, &wait, from, out, to, in, &n));
    copy_own(team, from, out, to, in);
    for (int i = 0; i < n; i++) TRY(wait_ticket(&wait, team->tickets[i]));
    wait_end(&wait);
    return OK;
}
