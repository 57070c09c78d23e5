// SPDX-License-Identifier: Apache-2.0
// A small model, some data, and `moec train` over them: what the tests of this area share.
#ifndef MOEC_TEST_SMALL_H
#define MOEC_TEST_SMALL_H

#include "tests/train/command.h"
#include "tests/train/helpers.h"

enum { SMALL_HELD_OUT = 700, SMALL_DATA = 9000 };
extern const char small_spec[];                                // text of the spec

typedef struct Small { char *folder, *moec, *spec, *data; } Small;

// Writes spec and data into a scratch folder. Compiled kernels are kept between runs of the suite.
Small small_make(void);
// moec train with the usual words and --steps, then `more` (at most 24, NULL-ended).
int small_train(const Small *small, char *run, const char *steps, char *const *more);
void expect_exit(int expected, int found);
void expect_error(const char *part);
// The states of two runs' checkpoints of a step are equal, byte for byte.
void same_state(const char *a, const char *b, int step);
// Their metrics are of the same steps and equal but for times; their evaluations are equal.
void same_history(const char *a, const char *b);

#endif
