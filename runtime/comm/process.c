// SPDX-License-Identifier: Apache-2.0
// The life of a rank that is a process: start, mesh, windows, end.
//
// Whatever of the engine waits for other ranks is called right after all of them have met (or at the
// start), so that a rank which is gone is noticed by the meeting. After a failure nothing of the engine
// is called: the process is to end, and its launcher ends the rest.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/comm/process.h"

Status process_said(const char *what, const char *problem) {
    return problem ? status_fail(ERR_RANK, "%s: %s", what, problem) : OK;
}

// Calls of the engine that wait, of ranks of a node.
static Status share_memory(Process *p, const int *ranks, int n, int64_t bytes, void **at, void **handle) {
    pthread_mutex_lock(&p->engine_lock);
    const char *problem = p->engine->share(ranks, n, bytes, at, handle);
    pthread_mutex_unlock(&p->engine_lock);
    return process_said("shared memory", problem);
}

static Status unshare_memory(Process *p, void *handle) {
    pthread_mutex_lock(&p->engine_lock);
    const char *problem = p->engine->unshare(handle);
    pthread_mutex_unlock(&p->engine_lock);
    return process_said("shared memory", problem);
}

static bool failed(const Process *p) {
    return atomic_load(&p->control.board->failed);
}

/* Groups --------------------------------------------------------------------------------------- */

static void team_nodes(Process *p, Arena *arena, Team *team) {
    team->here = ARENA_ARRAY(arena, int, team->n);
    team->leaders = ARENA_ARRAY(arena, int, team->n);
    team->node = ARENA_ARRAY(arena, int, team->n);
    for (int i = 0; i < team->n; i++) {
        int node = 0, of = p->node_of[team->ranks[i]];
        while (node < team->n_nodes && p->node_of[team->ranks[team->leaders[node]]] != of) node++;
        if (node == team->n_nodes) team->leaders[team->n_nodes++] = i;
        team->node[i] = node;
    }
    team->own_node = team->node[team->own];
    for (int i = 0; i < team->n; i++) {
        if (team->node[i] != team->own_node) continue;
        if (i == team->own) team->own_here = team->n_here;
        team->here[team->n_here++] = i;
    }
}

static void team_init(Process *p, Arena *arena, PlanGroup group, int n, int own, int *ranks, bool behind) {
    Team *team = behind ? &p->behind.teams[group] : &p->teams[group];
    *team = (Team){ .group = group, .tag = (behind ? TAG_BEHIND : TAG_GROUP) + (int)group,
                    .n = n, .own = own, .ranks = ranks };
    team_nodes(p, arena, team);
    team->cell = &p->control.cells[ranks[team->leaders[team->own_node]]][behind][group];
    team->boxes = ARENA_ARRAY(arena, char *, team->n_here);
    team->tickets = ARENA_ARRAY(arena, Ticket *, 2 * team->n + team->n_nodes * team->n_here);
}

static void world_init(Process *p) {
    int *ranks = ARENA_ARRAY(p->arena, int, p->base.n_ranks);
    for (int i = 0; i < p->base.n_ranks; i++) ranks[i] = i;
    team_init(p, p->arena, GROUP_world, p->base.n_ranks, p->base.rank, ranks, false);
}

static Status drop_boxes(Process *p) {
    void *handle = p->boxes_handle;
    p->boxes_handle = NULL;
    return handle ? unshare_memory(p, handle) : OK;
}

static void give_boxes(const Process *p, Team *team, void *const *at, int box) {
    for (int h = 0; h < team->n_here; h++) {
        int i = 0;
        while (p->node[i] != team->ranks[team->here[h]]) i++;
        team->boxes[h] = (char *)at[i] + (int64_t)box * 4 * BOX;
    }
}

static bool can_begin(int group) {
    return plan_group_holds(GROUP_dp, (PlanGroup)group);
}

// A box of every group for every rank of the node, whether or not the group has others; and one for calls that
// only begin.
static Status make_boxes(Process *p) {
    void **at = ARENA_ARRAY(p->mesh_arena, void *, p->n_node);
    int n = 0, box = 0;
    for (int g = 0; g < N_GROUPS; g++) n += 1 + can_begin(g);
    TRY(share_memory(p, p->node, p->n_node, (int64_t)n * 4 * BOX, at, &p->boxes_handle));
    for (int g = 0; g < N_GROUPS; g++) {
        give_boxes(p, &p->teams[g], at, box++);
        if (can_begin(g)) give_boxes(p, &p->behind.teams[g], at, box++);
    }
    return OK;
}

static Status process_mesh(Comm *comm) {
    Process *p = process_of(comm);
    TRY(team_meet(p, GROUP_world, CALL_barrier));
    TRY(drop_boxes(p));
    arena_destroy(p->mesh_arena);
    p->mesh_arena = arena_create();
    for (int g = 0; g < N_GROUPS; g++) {
        PlanGroup group = (PlanGroup)g;
        int n = comm_members(comm, group), *ranks = ARENA_ARRAY(p->mesh_arena, int, n);
        for (int i = 0; i < n; i++) ranks[i] = comm_world_rank(comm, group, i);
        team_init(p, p->mesh_arena, group, n, comm_member(comm, group), ranks, false);
        if (can_begin(g)) team_init(p, p->mesh_arena, group, n, comm_member(comm, group), ranks, true);
    }
    TRY(make_boxes(p));
    return team_meet(p, GROUP_world, CALL_barrier);
}

static int process_node(const Comm *comm, int rank) {
    return ((const Process *)comm)->node_of[rank];
}

/* Windows -------------------------------------------------------------------------------------- */

static Status process_window(Comm *comm, int64_t bytes, void **own, void **peers) {
    Process *p = process_of(comm);
    Team *team = &p->teams[GROUP_dp];
    Window *window = memory_alloc(sizeof *window);
    int *ranks = memory_alloc(sizeof(int) * (size_t)team->n_here);
    void **at = memory_alloc(sizeof(void *) * (size_t)team->n_here);
    Status status = OK;
    for (int h = 0; h < team->n_here; h++) ranks[h] = team->ranks[team->here[h]];
    TRY_GOTO(team_meet(p, GROUP_dp, CALL_window), end);
    TRY_GOTO(share_memory(p, ranks, team->n_here, bytes, at, &window->handle), end);
    for (int i = 0; i < team->n; i++) peers[i] = NULL;
    for (int h = 0; h < team->n_here; h++) peers[team->here[h]] = at[h];
    *own = window->own = at[team->own_here];
    window->next = p->windows;
    p->windows = window;
    window = NULL;
    status = team_meet(p, GROUP_dp, CALL_window);
end:
    memory_free(window);
    memory_free(ranks);
    memory_free(at);
    return status;
}

// All of the group; one that cannot reach the others keeps it, which its end gives back.
static void process_release(Comm *comm, void *own, int64_t bytes) {
    Process *p = process_of(comm);
    (void)bytes;
    for (Window **at = &p->windows; *at; at = &(*at)->next) {
        Window *window = *at;
        if (window->own != own) continue;
        *at = window->next;
        if (team_meet(p, GROUP_dp, CALL_window) == OK) (void)unshare_memory(p, window->handle);
        memory_free(window);
        return;
    }
}

/* Place ---------------------------------------------------------------------------------------- */

// A line per rank, in place.
static void show(Process *p) {
    char line[BOARD_LINE];
    if (!p->lines) return;
    board_line(p->control.board, p->base.rank, line);
    size_t n = strlen(line);
    memset(line + n, ' ', sizeof line - n);
    line[BOARD_LINE - 1] = '\n';
    memcpy(p->lines + p->own_line * BOARD_LINE, line, BOARD_LINE);
}

static void process_at(Comm *comm, const char *where) {
    Process *p = process_of(comm);
    if (failed(p)) return; // what was reported stays
    if (!where) {
        board_moved(p->control.board, comm->rank);
        return;
    }
    board_at(p->control.board, comm->rank, where);
    show(p);
}

static Status process_check(Comm *comm) {
    Process *p = process_of(comm);
    return failed(p) ? board_status(p->control.board) : OK;
}

static Status map_lines(Process *p, const char *path) {
    int64_t bytes = (int64_t)p->n_node * BOARD_LINE;
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    void *at = MAP_FAILED;
    if (file >= 0 && ftruncate(file, bytes) == 0)
        at = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    int error = errno;
    if (file >= 0) close(file);
    if (at == MAP_FAILED)
        return status_fail(status_errno(error), "%s: %s", path, strerror(error));
    p->lines = at;
    return OK;
}

// Nodes may share the folder but not what is mapped: a file per node.
static Status process_keep(Comm *comm, const char *folder) {
    Process *p = process_of(comm);
    int node = 0, lowest = p->node[0];
    for (int r = 0; r < lowest; r++) node += p->node_of[r] == r;
    char *path = arena_printf(p->arena, "%s/failure.txt", folder);
    if (comm->rank == 0 && unlink(path) != 0 && errno != ENOENT)
        return status_fail(status_errno(errno), "%s: %s", path, strerror(errno));
    path = node ? arena_printf(p->arena, "%s/ranks.%d.board", folder, node)
                : arena_printf(p->arena, "%s/ranks.board", folder);
    if (!p->lines) TRY(map_lines(p, path));
    pthread_mutex_lock(&p->lock);
    p->folder = arena_strdup(p->arena, folder);
    pthread_mutex_unlock(&p->lock);
    show(p);
    return OK;
}

static void process_fail(Comm *comm, const char *why) {
    Process *p = process_of(comm);
    board_give_up(p->control.board, comm, why, p->folder);
}

/* Start and end -------------------------------------------------------------------------------- */

static const CommApi process_api;

// From the start on, who is on which node; then a node's control block.
static Status find_nodes(Process *p, int node_ranks) {
    int n = p->base.n_ranks;
    p->node_of = ARENA_ARRAY(p->arena, int, n);
    p->node = ARENA_ARRAY(p->arena, int, n);
    TRY(process_said("the ranks' nodes", p->engine->nodes(p->node_of)));
    for (int r = 0; node_ranks && r < n; r++)
        p->node_of[r] = (int)max_i64(p->node_of[r], r / node_ranks * node_ranks);
    for (int r = 0; r < n; r++) {
        if (p->node_of[r] != p->node_of[p->base.rank]) continue;
        if (r == p->base.rank) p->own_line = p->n_node;
        p->node[p->n_node++] = r;
    }
    return OK;
}

static Status make_control(Process *p) {
    int64_t n = p->base.n_ranks, board = round_up(board_bytes((int)n), 64);
    int64_t bells = n * (int64_t)sizeof(Bell), cells = n * (int64_t)sizeof(Cell[2][N_GROUPS]);
    void **at = ARENA_ARRAY(p->arena, void *, p->n_node);
    TRY(share_memory(p, p->node, p->n_node, board + bells + cells, at, &p->control_handle));
    char *first = at[0];
    p->control.board = (Board *)first;
    p->control.bells = (Bell *)(first + board);
    p->control.cells = (Cell(*)[2][N_GROUPS])(first + board + bells);
    if (p->base.rank == p->node[0]) p->control.board->n_ranks = (int32_t)n;
    return OK;
}

typedef struct Identity {
    int32_t pid;
    char host[64];
} Identity;

// Ranks of other nodes are known by name; the lowest of a node writes that down for all of it.
static Status meet_all(Process *p) {
    Board *board = p->control.board;
    int rank = p->base.rank;
    board_enter(board, rank);
    Identity own = { .pid = board->entries[rank].pid };
    memcpy(own.host, board->entries[rank].host, sizeof own.host);
    Identity *all = ARENA_ARRAY(p->arena, Identity, p->base.n_ranks);
    TRY(process_said("the ranks' names", p->engine->collect(&own, all, sizeof own)));
    for (int r = 0; rank == p->node[0] && r < p->base.n_ranks; r++) {
        if (p->node_of[r] == p->node_of[rank]) continue;
        board_at(board, r, "its start");
        board->entries[r].pid = all[r].pid;
        memcpy(board->entries[r].host, all[r].host, sizeof own.host);
    }
    return OK;
}

static Status start(Process *p, const CommOptions *options) {
    const char *problem = p->engine->open(&p->base.rank, &p->base.n_ranks);
    TRY(process_said("the start of MPI", problem));
    TRY(find_nodes(p, options->node_ranks));
    TRY(make_control(p));
    TRY(meet_all(p));
    world_init(p);
    news_start(p);
    return watch_start(p);
}

Status process_open(const Engine *engine, const CommOptions *options, Comm **out) {
    Process *p = memory_alloc(sizeof *p);
    *p = (Process){ .base.api = &process_api, .engine = engine, .deadline = options->deadline };
    for (int axis = 0; axis < N_AXES; axis++) p->base.mesh.size[axis] = 1;
    p->arena = arena_create();
    behind_init(p);
    pthread_mutex_init(&p->lock, NULL);
    pthread_mutex_init(&p->engine_lock, NULL);
    Status status = start(p, options);
    if (status == OK) {
        *out = &p->base;
        return OK;
    }
    behind_close(p);
    pthread_mutex_destroy(&p->lock);
    pthread_mutex_destroy(&p->engine_lock);
    arena_destroy(p->arena);
    memory_free(p);
    return status;
}

// After a failure the engine is left as it is.
static void end_engine(Process *p) {
    while (p->windows) {
        Window *window = p->windows;
        p->windows = window->next;
        (void)unshare_memory(p, window->handle);
        memory_free(window);
    }
    (void)drop_boxes(p);
    (void)unshare_memory(p, p->control_handle);
    p->engine->close();
}

static void process_close(Comm *comm) {
    Process *p = process_of(comm);
    board_end(p->control.board, comm->rank);
    behind_close(p);
    bool fine = !failed(p) && team_end(p) == OK;
    watch_stop(p);
    if (fine) fine = news_end(p) == OK;
    if (p->lines) munmap(p->lines, (size_t)p->n_node * BOARD_LINE);
    if (fine) end_engine(p);
    requests_free(&p->requests);
    arena_destroy(p->mesh_arena);
    arena_destroy(p->arena);
    pthread_mutex_destroy(&p->lock);
    pthread_mutex_destroy(&p->engine_lock);
    memory_free(p);
}

static const CommApi process_api = {
    .name = "mpi",
    .processes = true,
    .close = process_close,
    .mesh = process_mesh,
    .barrier = process_barrier,
    .gather = process_gather,
    .exchange = process_exchange,
    .begin = process_begin,
    .ended = process_ended,
    .blocks = process_blocks,
    .node = process_node,
    .send = process_send,
    .sent = process_sent,
    .recv = process_recv,
    .window = process_window,
    .release = process_release,
    .at = process_at,
    .check = process_check,
    .keep = process_keep,
    .fail = process_fail,
};
