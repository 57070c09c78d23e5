// SPDX-License-Identifier: Apache-2.0
// Fixtures of a test program: an empty cache of compiled kernels, that goes with it.
#ifndef MOEC_TESTS_OWN_CACHE_H
#define MOEC_TESTS_OWN_CACHE_H

int own_cache_make(void **state);   // a group's setup: MOEC_CACHE_DIR is a new folder
int own_cache_remove(void **state); // its teardown

#endif
