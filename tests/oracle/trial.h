// SPDX-License-Identifier: Apache-2.0
// Trials of lowered plans against the interpreter; each returns how many failed and prints which.
#ifndef MOEC_TEST_TRIAL_H
#define MOEC_TEST_TRIAL_H

#include "tests/oracle/pair.h"

// A whole model: every value passes some 100 roundings forward and back, and normalisations divide by
// numbers of order one: 200 u = 1.2e-5, u = 2^-24. The bound of a spec is a multiple of it (compare.c).
#define TRIAL_BOUND 1.2e-5

// Operations of cases first, first + every, ... : 40 of them as the losses of one model, which is
// compiled once; each within its own bound.
int trial_cases(int first, int every, bool no_fusion);
// A model within its bound; the same bits from a second run, with 2 and 3 threads, and without poison.
int trial_spec(const Spec *spec, bool no_fusion);
int trial_random(uint64_t seed, int n_ops, int32_t sequence, int32_t sequences, int batches, bool no_fusion);
// Does the plan refuse the case? Then by the name of what has no kernel: *why.
bool trial_refused(const Case *c, char why[128]);

#endif
