// SPDX-License-Identifier: Apache-2.0
// What tests of costs share.
#ifndef MOEC_TESTS_COST_HELP_H
#define MOEC_TESTS_COST_HELP_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "compiler/cost/cost.h"

// Shipped machines, without counts.
extern const char *const machines[];
extern const int n_machines;
// By name, "b300x8"; fails with its message if it is refused.
CostCluster cluster_named(const char *name, Arena *arena);
// [m, k] x [k, n] in a precision, with its own traffic; groups > 1: of experts.
CostKernel product(uint8_t precision, double groups, double m, double n, double k);

#endif
