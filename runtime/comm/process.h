// SPDX-License-Identifier: Apache-2.0
// Ranks that are processes: what the files of this transport share (process.c, team.c, message.c,
// behind.c, watch.c, news.c).
//
// Ranks of a node meet in memory that they share: a control block made at the start (the board, a bell
// per rank, a cell per group) and boxes made with the mesh, in which members of a group lay what they
// give. Ranks of different nodes send messages of the engine. Nobody spins for long: a wait sleeps on a
// word of the control block, with a limit, and looks at the board between sleeps.
#ifndef MOEC_PROCESS_H
#define MOEC_PROCESS_H

#include <pthread.h>

#include "runtime/comm/board.h"
#include "runtime/comm/engine.h"

typedef struct Ticket Ticket;  // of a request
typedef struct News News;

// Requests of one thread: those that have not ended, and what can be had again.
typedef struct Requests {
    Ticket *open, *spare;
} Requests;

// Half a box: what a member gives in one round of a call. Two rounds share a box, so a round needs one
// meeting: who writes a half again has met everybody after they read it.
enum { BOX = 1 << 18 };

// Where a group's members of one node meet. `turn` counts meetings; who comes last moves it on.
typedef struct Cell {
    _Alignas(64) _Atomic uint32_t arrived;
    _Alignas(64) _Atomic uint32_t turn;
} Cell;

// Rings when something for the rank may have happened.
typedef struct Bell {
    _Alignas(64) _Atomic uint32_t rings;
    _Atomic uint32_t sleeping;
} Bell;

// A node's control block, as offsets.
typedef struct Control {
    Board *board;
    Bell *bells;               // [n_ranks]
    Cell (*cells)[2][N_GROUPS]; // [lowest rank of the members here][0: calls, 1: those that only begin][group]
} Control;

// The group of this rank, for the calls of one of its threads.
typedef struct Team {
    PlanGroup group;
    int tag;                   // of its messages
    int n, own;                // members, which of them this rank is
    int *ranks;                // [n] of the world
    int n_here, own_here;      // members on this node, which of them
    int *here;                 // [n_here] member numbers
    int n_nodes, own_node;
    int *leaders;              // [n_nodes] member numbers: the first member on each node
    int *node;                 // [n] which node of the group's
    Cell *cell;
    uint32_t rounds;           // of boxes
    Ticket **tickets;          // of one call: room for its most
    char **boxes;              // [n_here] two halves each for what is given here, two for what came
} Team;


typedef struct Window {
    struct Window *next;
    void *own, *handle;
} Window;

// A call that only began, in the order in which they did.
typedef struct Begun {
    struct Begun *next;
    PlanGroup group;
    PlanOp op;
    const void *from;
    void *to;
    int64_t bytes;
    uint32_t number;           // of its group, from 1
    bool done;
    Status status;
    char message[512];         // unless OK
} Begun;

// The thread that makes them, and what it has of its own. `lock` is for the list and what is done.
typedef struct Behind {
    pthread_t thread;
    bool started;
    _Atomic bool stop;
    pthread_mutex_t lock;
    pthread_cond_t more, done;
    Begun *first, *last, *spare;
    Requests requests;
    Team teams[N_GROUPS];      // of groups inside a stage
} Behind;

typedef struct Process {
    Comm base;
    const Engine *engine;
    double deadline;
    char *folder;              // of the run; NULL: not known
    int *node_of;              // [n_ranks]
    int n_node, *node;         // ranks of this node
    Control control;
    void *control_handle, *boxes_handle;
    Arena *arena, *mesh_arena;
    Team teams[N_GROUPS];
    Requests requests;
    Behind behind;
    Window *windows;
    char *lines;               // of the board's file, mapped: one for each rank of the node
    int64_t own_line;
    News *news;                // of a node's lowest rank, where there are other nodes
    pthread_mutex_t lock;      // of folder, for the watcher
    pthread_mutex_t engine_lock;
    pthread_t watcher;
    int stop[2];               // a pipe: closing it ends the watcher
} Process;

static inline Process *process_of(Comm *comm) {
    return (Process *)comm;
}

/* process.c */
Status process_open(const Engine *engine, const CommOptions *options, Comm **out);
// Of something the engine said: NULL is OK.
Status process_said(const char *what, const char *problem);

// Begun by a call, ended by it: what the board shows meanwhile, and how long it has waited.
typedef struct Wait {
    Process *process;
    Requests *requests;
    int64_t looked;            // at the board
    int naps;
    bool behind;               // of the thread of calls that only began: the board shows what the rank's own does
} Wait;

/* message.c: requests of the engine, and sleeping */
// The engine's, one thread at a time.
Status request_send(Process *p, int rank, int tag, const void *from, int64_t bytes, void **request);
Status request_recv(Process *p, int rank, int tag, void *to, int64_t bytes, void **request);
Status request_test(Process *p, void *request, bool *done);
Wait wait_begin(Process *p, BoardCall call, int group, int peer);
void wait_end(Wait *wait);
// Until the word is not `old`.
Status wait_word(Wait *wait, _Atomic uint32_t *word, uint32_t old);
void wake_all(_Atomic uint32_t *word);
void ring(Process *p, int rank);
// The rest of the wait is in vain: ERR_RANK.
Status wait_look(Wait *wait);
// Begins, for the thread that waits; the ticket ends with wait_ticket.
Status ticket_send(Wait *wait, int rank, int tag, const void *from, int64_t bytes, Ticket **out);
Status ticket_recv(Wait *wait, int rank, int tag, void *to, int64_t bytes, Ticket **out);
Status wait_ticket(Wait *wait, Ticket *ticket);
void requests_free(Requests *requests);
Status process_send(Comm *comm, int rank, PlanLane lane, const void *from, int64_t bytes,
                    void **ticket);
Status process_sent(Comm *comm, void *ticket);
Status process_recv(Comm *comm, int rank, PlanLane lane, void *to, int64_t bytes);

/* team.c: calls of groups */
enum {
    TAG_MESSAGE, TAG_GROUP = N_LANES, TAG_NEWS = TAG_GROUP + N_GROUPS, TAG_BEHIND // + lane, + group
};
Status team_meet(Process *p, PlanGroup group, BoardCall call);
Status team_end(Process *p); // all ranks have ended
Status process_barrier(Comm *comm, PlanGroup group);
Status process_gather(Comm *comm, PlanGroup group, const void *from, void *to, int64_t bytes);
Status process_exchange(Comm *comm, PlanGroup group, const void *from, void *to, int64_t bytes);

Status process_blocks(Comm *comm, PlanGroup group, const void *from, const int64_t *out, void *to,
                      const int64_t *in);

// With the team's other members, from any thread: one call of a team at a time.
Status team_gather(Team *team, Wait *wait, const void *from, void *to, int64_t bytes);
Status team_exchange(Team *team, Wait *wait, const void *from, void *to, int64_t bytes);

/* behind.c: calls that only begin */
void behind_init(Process *p);
Status process_begin(Comm *comm, PlanGroup group, PlanOp op, const void *from, void *to, int64_t bytes,
                     void **ticket);
Status process_ended(Comm *comm, void *ticket);
void behind_close(Process *p);         // what has begun is given up

/* watch.c: the thread that keeps beating and sees ranks go */
Status watch_start(Process *p);
void watch_stop(Process *p);

/* news.c: the board across nodes */
void news_start(Process *p);
Status news_turn(Process *p);          // the watcher's, at every beat
Status news_end(Process *p);           // after watch_stop, once all ranks have ended

#endif
