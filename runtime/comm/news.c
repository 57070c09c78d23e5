// SPDX-License-Identifier: Apache-2.0
// One board for all nodes: the lowest ranks of the nodes (leaders) send each other the entries of their
// ranks, and a report once there is one. The watcher does so, so that news go out while a rank computes.
// Times are a node's own: when a rank moved is, elsewhere, when that was heard.
//
// Each leader has one message under way to every other and takes one from every other, until the last,
// which is marked: so nothing is left over when the engine is closed.
#include <time.h>

#include "runtime/comm/process.h"

typedef struct Packet {
    uint32_t last, failed;
    char report[BOARD_REPORT];
    BoardEntry entries[];      // of the sender's node, in order of ranks
} Packet;

typedef struct Line {
    int leader, n, *ranks;     // of the other node
    Packet *out, *in;
    void *sending, *taking;    // requests; NULL: none
    bool heard_last;
    int64_t *moved;            // [n] by the sender's clock
} Line;

struct News {
    int n;
    Line *lines;
};

static int64_t packet_bytes(int n) {
    return (int64_t)sizeof(Packet) + n * (int64_t)sizeof(BoardEntry);
}

void news_start(Process *p) {
    int n = p->base.n_ranks, rank = p->base.rank;
    if (p->node[0] != rank || p->n_node == n) return;
    News *news = ARENA_NEW(p->arena, News);
    news->lines = ARENA_ARRAY(p->arena, Line, n);
    for (int r = 0; r < n; r++) {
        if (p->node_of[r] != r || r == rank) continue;
        Line *line = &news->lines[news->n++];
        line->leader = r;
        line->ranks = ARENA_ARRAY(p->arena, int, n);
        for (int other = r; other < n; other++)
            if (p->node_of[other] == r) line->ranks[line->n++] = other;
        line->out = arena_alloc(p->arena, (size_t)packet_bytes(p->n_node));
        line->in = arena_alloc(p->arena, (size_t)packet_bytes(line->n));
        line->moved = ARENA_ARRAY(p->arena, int64_t, line->n);
    }
    p->news = news;
}

/* Out ------------------------------------------------------------------------------------------ */

static void copy_entry(BoardEntry *to, const BoardEntry *from) {
    atomic_store(&to->call, atomic_load(&from->call));
    atomic_store(&to->peer, atomic_load(&from->peer));
    atomic_store(&to->group, atomic_load(&from->group));
    atomic_store(&to->behind, atomic_load(&from->behind));
    for (int g = 0; g < N_GROUPS; g++) {
        atomic_store(&to->entered[g], atomic_load(&from->entered[g]));
        atomic_store(&to->begun[g], atomic_load(&from->begun[g]));
    }
    atomic_store(&to->beats, atomic_load(&from->beats));
    atomic_store(&to->state, atomic_load(&from->state));
    uint32_t shown = atomic_load(&from->shown) & 1;
    memcpy(to->where[shown], from->where[shown], BOARD_TEXT);
    atomic_store(&to->shown, shown);
}

static Status send_news(Process *p, Line *line, bool last) {
    const Board *board = p->control.board;
    Packet *out = line->out;
    bool done = true;
    if (line->sending) TRY(request_test(p, line->sending, &done));
    if (!done) return OK;
    line->sending = NULL;
    out->last = last;
    out->failed = atomic_load(&board->failed) == BOARD_FAILED;
    if (out->failed) memcpy(out->report, board->report, sizeof out->report);
    for (int i = 0; i < p->n_node; i++) {
        const BoardEntry *e = &board->entries[p->node[i]];
        copy_entry(&out->entries[i], e);
        atomic_store(&out->entries[i].moved, atomic_load(&e->moved));
    }
    return request_send(p, line->leader, TAG_NEWS, out, packet_bytes(p->n_node), &line->sending);
}

/* In ------------------------------------------------------------------------------------------- */

static void take_report(Process *p, const Packet *in) {
    Board *board = p->control.board;
    uint32_t none = 0;
    if (!in->failed || !atomic_compare_exchange_strong(&board->failed, &none, BOARD_FAILING)) return;
    memcpy(board->report, in->report, sizeof board->report);
    atomic_store(&board->failed, BOARD_FAILED);
}

static void take(Process *p, Line *line) {
    const Packet *in = line->in;
    Board *board = p->control.board;
    for (int i = 0; i < line->n; i++) {
        BoardEntry *e = &board->entries[line->ranks[i]];
        int64_t moved = atomic_load(&in->entries[i].moved);
        copy_entry(e, &in->entries[i]);
        if (moved != line->moved[i]) atomic_store(&e->moved, board_now());
        line->moved[i] = moved;
    }
    line->heard_last = in->last;
    take_report(p, in);
}

static Status take_news(Process *p, Line *line) {
    while (!line->heard_last) {
        bool done = false;
        if (!line->taking)
            TRY(request_recv(p, line->leader, TAG_NEWS, line->in, packet_bytes(line->n), &line->taking));
        TRY(request_test(p, line->taking, &done));
        if (!done) return OK;
        line->taking = NULL;
        take(p, line);
    }
    return OK;
}

Status news_turn(Process *p) {
    for (int i = 0; p->news && i < p->news->n; i++) {
        TRY(take_news(p, &p->news->lines[i]));
        TRY(send_news(p, &p->news->lines[i], false));
    }
    return OK;
}

/* The last ------------------------------------------------------------------------------------- */

// Until nothing is under way on the line; all ranks do this now, so it takes a moment.
static Status finish_line(Process *p, Line *line, int64_t until) {
    struct timespec moment = { .tv_nsec = 200000 };
    bool marked = false, sent = false;
    while (!sent || !line->heard_last) {
        bool done = true;
        TRY(take_news(p, line));
        if (line->sending) TRY(request_test(p, line->sending, &done));
        if (done) line->sending = NULL;
        if (done && marked) sent = true;
        if (done && !marked) {
            TRY(send_news(p, line, true));
            marked = true;
        }
        if (board_now() > until)
            return status_fail(ERR_RANK, "rank %d does not end", line->leader);
        if (!sent || !line->heard_last) nanosleep(&moment, NULL);
    }
    return OK;
}

Status news_end(Process *p) {
    int64_t until = board_now() + (int64_t)(p->deadline * 1000);
    for (int i = 0; p->news && i < p->news->n; i++) TRY(finish_line(p, &p->news->lines[i], until));
    return OK;
}
