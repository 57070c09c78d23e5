// SPDX-License-Identifier: Apache-2.0
// One step of a lowered plan beside the float64 interpreter, and the measure of their difference.
//
// A parameter's gradient g has error e with  |e| <= B (|g| + 1e-2 max over parameters |g|), in 2-norms:
// entries that cancel within a parameter, and parameters whose gradient nearly vanishes (a key's bias, an
// ideally balanced router), carry the rounding of what cancelled. A loss L has error at most
// B (|L| + sum over parameters |g| |p|), the change that a relative rounding B of every parameter makes.
#ifndef MOEC_TEST_PAIR_H
#define MOEC_TEST_PAIR_H

#include "tests/oracle/cases.h"
#include "tests/oracle/machine.h"

typedef struct Pair {
    Interp *want; // of the program's graph
    Plan *plan;
    Exec *exec; // with a poisoned act region
    const PlanProgram *program;
    double largest; // of the norms of gradients
    double change;  // sum of |g| |p|
    double worst;   // error / bound
    char where[160];
} Pair;

// Lowers, loads `values`, runs one step on both sides.
Pair pair_start(Model *m, const Step *step, const Interp *values, int32_t sequences, How how, int threads);
// Compares what belongs to the case, or everything; fills worst and where.
void pair_compare(Pair *p, const Case *only, double bound);
void pair_end(Pair *p);

#endif
