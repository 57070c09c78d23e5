// SPDX-License-Identifier: Apache-2.0
// Entries, whom a wait is about, and the report.
#include "runtime/comm/board.h"

#include <sched.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char *const call_names[] = {
#define X(name) #name,
    BOARD_CALLS(X)
#undef X
};

int64_t board_bytes(int n_ranks) {
    return (int64_t)sizeof(Board) + n_ranks * (int64_t)sizeof(BoardEntry);
}

int64_t board_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Entries -------------------------------------------------------------------------------------- */

void board_enter(Board *board, int rank) {
    BoardEntry *e = &board->entries[rank];
    struct stat space = { 0 };
    stat("/proc/self/ns/pid", &space);
    gethostname(e->host, sizeof e->host - 1);
    e->pid_space = space.st_ino;
    e->pid = (int32_t)getpid();
    atomic_store(&e->peer, -1);
    board_at(board, rank, "its start");
}

void board_at(Board *board, int rank, const char *where) {
    BoardEntry *e = &board->entries[rank];
    uint32_t next = !atomic_load_explicit(&e->shown, memory_order_relaxed);
    size_t n = strnlen(where, BOARD_TEXT - 1);
    memcpy(e->where[next], where, n);
    e->where[next][n] = 0;
    atomic_store_explicit(&e->shown, next, memory_order_release);
    atomic_store_explicit(&e->moved, board_now(), memory_order_relaxed);
}

const char *board_where(const Board *board, int rank) {
    const BoardEntry *e = &board->entries[rank];
    return e->where[atomic_load_explicit(&e->shown, memory_order_acquire) & 1];
}

static void wait_for(Board *board, int rank, BoardCall call, int group, int peer, uint32_t behind) {
    BoardEntry *e = &board->entries[rank];
    atomic_store(&e->behind, behind);
    atomic_store(&e->call, call);
    atomic_store(&e->group, group);
    atomic_store(&e->peer, peer);
    atomic_store(&e->moved, board_now());
    atomic_store(&e->state, RANK_WAITS);
}

void board_wait(Board *board, int rank, BoardCall call, int group, int peer) {
    wait_for(board, rank, call, group, peer, 0);
}

void board_wait_begun(Board *board, int rank, BoardCall call, int group, uint32_t number) {
    wait_for(board, rank, call, group, -1, number);
}

void board_end(Board *board, int rank) {
    BoardEntry *e = &board->entries[rank];
    atomic_store(&e->moved, board_now());
    atomic_store(&e->state, RANK_ENDED);
}

void board_go_on(Board *board, int rank) {
    BoardEntry *e = &board->entries[rank];
    atomic_store(&e->moved, board_now());
    atomic_store(&e->state, RANK_RUNS);
}

void board_moved(Board *board, int rank) {
    atomic_store_explicit(&board->entries[rank].moved, board_now(), memory_order_relaxed);
}

static bool is(const Board *board, int rank, RankState state) {
    return atomic_load(&board->entries[rank].state) == state;
}

static void add_wait(Text *text, const BoardEntry *e) {
    text_printf(text, "%s", call_names[atomic_load(&e->call)]);
    int peer = atomic_load(&e->peer), group = atomic_load(&e->group);
    if (peer >= 0) text_printf(text, " with rank %d", peer);
    else if (group >= 0) text_printf(text, " %s", plan_group_name((PlanGroup)group));
}

void board_line(const Board *board, int rank, char line[BOARD_LINE]) {
    const BoardEntry *e = &board->entries[rank];
    snprintf(line, BOARD_LINE, "rank %d, pid %d on %s, at %s", rank, e->pid, e->host,
             board_where(board, rank));
}

/* Whom a wait is about ------------------------------------------------------------------------- */

// The same mesh, seen by another rank.
static Comm as_rank(const Comm *comm, int rank) {
    Comm as = *comm;
    as.rank = rank;
    for (int axis = N_AXES - 1, rest = rank; axis >= 0; axis--) {
        as.coord[axis] = rest % as.mesh.size[axis];
        rest /= as.mesh.size[axis];
    }
    return as;
}

// Whether `rank`, which waits, does so for `other`.
static bool waits_for(const Board *board, const Comm *comm, int rank, int other) {
    const BoardEntry *e = &board->entries[rank], *o = &board->entries[other];
    int group = atomic_load(&e->group), peer = atomic_load(&e->peer);
    if (is(board, rank, RANK_ENDED)) return !is(board, other, RANK_ENDED);
    if (!is(board, rank, RANK_WAITS) || rank == other) return false;
    if (peer >= 0) return peer == other;
    if (group < 0) return false;
    uint32_t behind = atomic_load(&e->behind);
    if (behind ? atomic_load(&o->begun[group]) >= behind
               : atomic_load(&o->entered[group]) >= atomic_load(&e->entered[group]))
        return false;
    if (group == GROUP_world) return true;
    Comm as = as_rank(comm, rank);
    for (int i = 0, n = comm_members(&as, (PlanGroup)group); i < n; i++)
        if (comm_world_rank(&as, (PlanGroup)group, i) == other) return true;
    return false;
}

// What a rank is to the one that looks: not waited for; waited for; waited for and waiting for others
// itself. A rank within a call that it could leave, because all others have come, does not wait: it has
// not had its turn on a core.
enum { APART, REACHED, HELD };

// All that `from` waits for, directly or not: reached[rank]. The time the last of them moved.
static int64_t follow(const Board *board, const Comm *comm, int from, uint8_t *reached) {
    int n = board->n_ranks, found = 1;
    int *todo = memory_alloc(sizeof(int) * (size_t)n);
    int64_t moved = 0;
    memset(reached, APART, (size_t)n);
    todo[0] = from;
    reached[from] = REACHED;
    for (int i = 0; i < found; i++) {
        moved = max_i64(moved, atomic_load(&board->entries[todo[i]].moved));
        for (int r = 0; r < n; r++) {
            if (!waits_for(board, comm, todo[i], r)) continue;
            reached[todo[i]] = HELD;
            if (reached[r]) continue;
            reached[r] = REACHED;
            todo[found++] = r;
        }
    }
    memory_free(todo);
    return moved;
}

// The one to name: who has ended (and will not come), else of those that do not wait the one that moved
// least recently. Where all wait in a circle: the first.
static int at_fault(const Board *board, const uint8_t *reached, int from) {
    static const int blame[] = { [RANK_WAITS] = 1, [RANK_RUNS] = 1, [RANK_FAILED] = 2, [RANK_ENDED] = 3 };
    int fault = -1, most = -1;
    for (int r = 0; r < board->n_ranks; r++) {
        const BoardEntry *e = &board->entries[r];
        uint32_t state = atomic_load(&e->state);
        bool held = r == from || (state == RANK_WAITS && reached[r] == HELD);
        int own = held ? 0 : blame[state % COUNT_OF(blame)];
        if (reached[r] == APART || own < most) continue;
        if (own == most && (!own || atomic_load(&e->moved) >= atomic_load(&board->entries[fault].moved)))
            continue;
        fault = r;
        most = own;
    }
    return fault;
}

bool board_in_vain(Board *board, const Comm *comm, double deadline, const char *folder) {
    if (atomic_load(&board->failed)) return true;
    uint8_t *reached = memory_alloc((size_t)board->n_ranks);
    int64_t quiet = board_now() - follow(board, comm, comm->rank, reached);
    int fault = at_fault(board, reached, comm->rank);
    bool held = reached[fault] == HELD || fault == comm->rank;
    memory_free(reached);
    // What an ended rank sent is on its way for a moment.
    bool ended = is(board, fault, RANK_ENDED) && quiet > 1000;
    char what[96];
    if (ended) snprintf(what, sizeof what, "has ended");
    else if (quiet > (int64_t)(deadline * 1000))
        snprintf(what, sizeof what, "%s for %.1f s",
                 held && is(board, fault, RANK_WAITS) ? "waits for ranks that wait for it," : "has come no further",
                 (double)quiet / 1000);
    else return false;
    board_fail(board, comm, fault, what, folder);
    return true;
}

/* The report ----------------------------------------------------------------------------------- */

static void add_ranks(Text *text, const bool *which, int n) {
    int count = 0, said = 0;
    for (int r = 0; r < n; r++) count += which[r];
    text_add(text, count == 1 ? "rank" : "ranks");
    for (int r = 0; r < n; r++)
        if (which[r]) text_printf(text, "%s %d", said++ ? "," : "", r);
}

// "; ranks 0, 2 wait in gather ep": the calls of those that wait, but for the one at fault.
static void add_waiting(Text *text, const Board *board, int fault) {
    int n = board->n_ranks;
    bool *told = memory_alloc((size_t)n), *same = memory_alloc((size_t)n);
    for (int r = 0; r < n; r++) {
        if (told[r] || r == fault || !is(board, r, RANK_WAITS)) continue;
        Text call = { 0 };
        add_wait(&call, &board->entries[r]);
        int count = 0;
        for (int other = r; other < n; other++) {
            Text its = { 0 };
            if (other != fault && is(board, other, RANK_WAITS)) add_wait(&its, &board->entries[other]);
            same[other] = its.at && strcmp(its.at, call.at) == 0;
            told[other] = told[other] || same[other];
            count += same[other];
            text_finish(&its);
        }
        for (int other = 0; other < r; other++) same[other] = false;
        text_add(text, "; ");
        add_ranks(text, same, n);
        text_printf(text, " wait%s in %s", count == 1 ? "s" : "", call.at);
        text_finish(&call);
    }
    memory_free(told);
    memory_free(same);
}

static void write_file(const Board *board, const char *folder) {
    Text text = { 0 }, path = { 0 };
    text_printf(&text, "%s\n\n", board->report);
    for (int r = 0; r < board->n_ranks; r++) {
        char line[BOARD_LINE];
        board_line(board, r, line);
        text_add(&text, line);
        if (is(board, r, RANK_WAITS)) {
            text_add(&text, ", waits in ");
            add_wait(&text, &board->entries[r]);
        }
        text_printf(&text, ", %.1f s ago\n",
                    (double)(board_now() - atomic_load(&board->entries[r].moved)) / 1000);
    }
    text_printf(&path, "%s/failure.txt", folder);
    // Another node may have been first. Where it cannot be written the report still is every rank's
    // message.
    if (!file_exists(path.at)) (void)file_write_atomic(path.at, text.at, text.bytes);
    text_finish(&text);
    text_finish(&path);
}

void board_fail(Board *board, const Comm *comm, int rank, const char *what, const char *folder) {
    uint32_t none = 0;
    if (!atomic_compare_exchange_strong(&board->failed, &none, BOARD_FAILING)) return;
    const BoardEntry *e = &board->entries[rank];
    Text text = { 0 };
    text_printf(&text, "rank %d (pid %d on %s) %s; its last place: %s", rank, e->pid, e->host, what,
                board_where(board, rank));
    if (is(board, rank, RANK_WAITS)) {
        text_add(&text, ", in ");
        add_wait(&text, e);
    }
    add_waiting(&text, board, rank);
    text_printf(&text, " (noticed by rank %d)", comm->rank);
    snprintf(board->report, sizeof board->report, "%s", text.at);
    text_finish(&text);
    if (folder) write_file(board, folder);
    atomic_store(&board->failed, BOARD_FAILED);
}

void board_give_up(Board *board, const Comm *comm, const char *why, const char *folder) {
    Text what = { 0 };
    text_printf(&what, "failed: %.*s", (int)strcspn(why, "\n"), why);
    board_fail(board, comm, comm->rank, what.at, folder);
    atomic_store(&board->entries[comm->rank].state, RANK_FAILED);
    text_finish(&what);
}

Status board_status(Board *board) {
    // The report takes a moment of whoever writes it, which may not live to its end.
    struct timespec moment = { .tv_nsec = 1000000 };
    for (int i = 0; i < 1000 && atomic_load(&board->failed) != BOARD_FAILED; i++)
        nanosleep(&moment, NULL);
    if (atomic_load(&board->failed) != BOARD_FAILED)
        return status_fail(ERR_RANK, "a rank failed, and another while it reported that");
    return status_fail(ERR_RANK, "%s", board->report);
}
