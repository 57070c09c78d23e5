// SPDX-License-Identifier: Apache-2.0
// Row programs against the float64 interpreter: a graph and its roots become one kernel.
//
// The group is everything that the roots need up to values that a row program cannot compute itself
// (results of contractions, of row sums, of other row axes, far operands): those are loads, with
// the interpreter's numbers. Rows past the last that exists hold NaN in loads and must stay as they
// are in stores.
#ifndef MOEC_TESTS_ROWS_CASE_H
#define MOEC_TESTS_ROWS_CASE_H

#include "tests/kernels/lab.h"
#include "tests/oracle/interp.h"

enum { ROWS_MAX_ROOTS = 12, ROWS_MAX_CASES = 160 };

typedef struct RowsCase {
    const char *name;
    Model *m; // owned
    Interp *interp;
    Batch batch;
    KernelDesc desc;
    RowLoad loads[16];
    RowStore stores[ROWS_MAX_ROOTS];
    uint32_t kernel;
    double bound; // of errors, relative to the largest number of the store
} RowsCase;

typedef struct Rows {
    Lab lab;
    RowsCase *cases[ROWS_MAX_CASES];
    int n;
} Rows;

// What a case may do differently from plain stores of all roots.
typedef struct RowsHow {
    int32_t tokens, sequence; // 0: 100, tokens
    bool add;                 // += instead of =
    bool partials;            // row sums among the operands are loaded as partial records
    double bound;             // 0: 1e-5
    void (*fill)(Interp *in); // changes parameters after the random fill
} RowsHow;

void rows_open(Rows *rows);
// Roots that are row sums are stored as partial records. All of one row axis.
RowsCase *rows_add(Rows *rows, const char *name, Model *m, const uint32_t *roots, int n_roots,
                   const RowsHow *how);
void rows_check(Rows *rows); // compiles, runs, compares, frees
KernelDesc rows_desc(RowsCase *c, Arena *arena, const uint32_t *roots, int n_roots,
                     const RowsHow *how);

#endif
