// SPDX-License-Identifier: Apache-2.0
// What a rank of a test can do (main.c has their names).
#ifndef MOEC_TEST_RANK_H
#define MOEC_TEST_RANK_H

#include "runtime/comm/comm.h"

Status rank_measure(Comm *comm, char **arguments);
Status rank_steps(Comm *comm, char **arguments);

#endif
