// SPDX-License-Identifier: Apache-2.0
// What every transport must do, checked by each of its ranks: made for threads and processes alike.
#ifndef MOEC_TEST_EXPECT_H
#define MOEC_TEST_EXPECT_H

#include "runtime/comm/comm.h"

// With the ranks laid out as the mesh says: every group, messages in and out of order, windows.
// ERR_INTERNAL says what was expected and found.
Status expect_all(Comm *comm, const PlanMesh *mesh);
// Part of these: parts of any size.
Status expect_blocks(Comm *comm, PlanGroup group);
// Bytes that only this giver gives to this taker, and whether they came.
void expect_fill(uint8_t *to, int64_t bytes, int giver, int taker, int salt);
Status expect_same(const char *what, const Comm *comm, const uint8_t *at, int64_t bytes, int giver,
                   int taker, int salt);
// The meshes of n ranks that are tried; returns how many.
int expect_meshes(int n, PlanMesh *meshes, int most);

#endif
