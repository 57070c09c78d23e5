// SPDX-License-Identifier: Apache-2.0
// What every transport must do, checked by each of its ranks: made for threads and processes alike.
#ifndef MOEC_TEST_EXPECT_H
#define MOEC_TEST_EXPECT_H

#include "runtime/comm/comm.h"

// With the ranks laid out as the mesh says: every group, messages in and out of order, windows.
// ERR_INTERNAL says what was expected and found.
Status expect_all(Comm *comm, const PlanMesh *mesh);
// The meshes of n ranks that are tried; returns how many.
int expect_meshes(int n, PlanMesh *meshes, int most);

#endif
