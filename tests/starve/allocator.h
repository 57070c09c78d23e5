// SPDX-License-Identifier: Apache-2.0
// An allocator that fails on request. The programs of this area are linked so that every allocation
// of the project's own code (and of Lua and jansson, which allocate through it) is counted here:
// malloc and its kin, mappings, streams, folders, threads.
#ifndef MOEC_TEST_STARVE_ALLOCATOR_H
#define MOEC_TEST_STARVE_ALLOCATOR_H

#include <stdbool.h>

// Fails the `n`-th allocation from here, counting from 1, and if `for_good` all that follow. 0:
// none.
void allocator_starve(long n, bool for_good);
// Ends it; returns how many allocations were asked for since.
long allocator_feed(void);

// What is open now and was not given back: mappings, loaded objects, descriptors, threads.
typedef struct Balance { long mappings, objects, files, threads; } Balance;
Balance allocator_balance(void);

#endif
