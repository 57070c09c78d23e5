// SPDX-License-Identifier: Apache-2.0
// Rows into the memory of their owners and back, whatever lies between: by address within a node, in
// blocks across nodes. A row that has several owners on one other node goes there once, all rows for a
// node in one block, to the rank that answers for this one there (its gate), which writes them into their
// owners' memory. Counts are known on both sides before a block goes.
#ifndef MOEC_ROWS_H
#define MOEC_ROWS_H

#include "runtime/comm/comm.h"

typedef struct CommRows {
    PlanGroup group;            // of the owners, within a stage
    int64_t row_bytes;
    int64_t n_rows;             // of this rank; each has `slots` slots
    int slots;
    int64_t capacity;           // rows of an owner
    // [n_rows][slots]: owner * capacity + row of the owner's; negative: nowhere. No row twice.
    const int32_t *row_of_slot;
    struct RowsWork *work;      // made by the first call, kept for the next
} CommRows;

// at [members]: where each member's rows lie in this process (NULL: on another node), which are of
// windows. All members call these, and all is done on all of them when they return.
// put: row i of `from` [n_rows][row_bytes] into all its owners' rows.
Status comm_put_rows(Comm *comm, CommRows *rows, const void *from, void *const *at);
// get: `to` [n_rows][slots][row_bytes] from the owners' rows; slots that are nowhere stay.
Status comm_get_rows(Comm *comm, CommRows *rows, void *const *at, void *to);
void comm_rows_finish(CommRows *rows);

#endif
