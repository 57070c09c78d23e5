// SPDX-License-Identifier: Apache-2.0
// Where every rank is: an entry per rank in memory that the ranks of a node share, written by its rank
// alone (of a rank on another node: by the node's lowest rank, from what that node sends). It serves
// two ends: a rank that waits finds out whom all this waiting is about, and the report about a rank that
// is no more says where it was.
//
// A rank's `moved` is when it last came anywhere: an instruction, progress of a long task, the begin of a
// wait. Its `beats` count on as long as its process runs, whatever it does: a stopped process is told
// from a slow one by them.
//
// Waiting is followed through the board: rank 0 waits for rank 1, which waits for rank 2, which
// computes. While any rank on the way moves, there is nothing to report. When none has moved for the
// deadline, the one that does not wait is at fault.
//
// The first to notice a failure fills in the report, once; everyone's next call ends with it.
#ifndef MOEC_BOARD_H
#define MOEC_BOARD_H

#include <stdatomic.h>

#include "runtime/comm/comm.h"

enum { BOARD_TEXT = 192, BOARD_REPORT = 1600, BOARD_LINE = 320 };

typedef enum RankState { RANK_RUNS, RANK_WAITS, RANK_ENDED, RANK_FAILED } RankState;

// What a rank waits in.
#define BOARD_CALLS(X) X(barrier) X(gather) X(exchange) X(blocks) X(send) X(recv) X(window)
typedef enum BoardCall {
#define X(name) CALL_##name,
    BOARD_CALLS(X)
#undef X
} BoardCall;

typedef struct BoardEntry {
    int32_t pid;
    uint64_t pid_space;               // numbers of processes mean something within it
    char host[64];
    _Atomic uint32_t state, call;
    _Atomic int32_t peer;             // of send and recv; else -1
    _Atomic int32_t group;            // of the others
    // Meetings of groups it has come to, one or more to a call: a member that has come to fewer is
    // waited for.
    _Atomic uint32_t entered[N_GROUPS];
    _Atomic uint32_t begun[N_GROUPS];   // calls of groups that only began
    _Atomic uint32_t behind;          // the number of such a call that is waited for; 0: of another call
    _Atomic uint32_t beats;
    _Atomic int64_t moved;            // milliseconds, of this node's clock
    _Atomic uint32_t shown;           // which of the texts; the other is being written
    char where[2][BOARD_TEXT];
} BoardEntry;

typedef struct Board {
    _Atomic uint32_t failed;          // 0, BOARD_FAILING while the report is written, BOARD_FAILED
    char report[BOARD_REPORT];
    int32_t n_ranks;
    BoardEntry entries[];
} Board;

enum { BOARD_FAILING = 1, BOARD_FAILED };

int64_t board_bytes(int n_ranks);
int64_t board_now(void); // milliseconds, monotonic
void board_enter(Board *board, int rank); // fills in what says who this process is
void board_at(Board *board, int rank, const char *where);
const char *board_where(const Board *board, int rank);
void board_wait(Board *board, int rank, BoardCall call, int group, int peer);
// For call `number` (from 1) of those that only began.
void board_wait_begun(Board *board, int rank, BoardCall call, int group, uint32_t number);
// The rank is done, and waits for the others to be.
void board_end(Board *board, int rank);
void board_go_on(Board *board, int rank);
void board_moved(Board *board, int rank); // it has come further within its call
// One line, for the file of the board: rank, process, place.
void board_line(const Board *board, int rank, char line[BOARD_LINE]);

// Whether `comm`'s rank, which waits, waits in vain: true after a report was written (by anyone).
bool board_in_vain(Board *board, const Comm *comm, double deadline, const char *folder);
// Reports that the rank is at fault, unless something was reported before. `what` says how it is known:
// "is gone". folder: where failure.txt goes; NULL: nowhere.
void board_fail(Board *board, const Comm *comm, int rank, const char *what, const char *folder);
// Reports that the rank itself ends with an error.
void board_give_up(Board *board, const Comm *comm, const char *why, const char *folder);
// ERR_RANK with the report.
Status board_status(Board *board);

#endif
