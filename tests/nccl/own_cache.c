// SPDX-License-Identifier: Apache-2.0
// Tests of another room use the same fixtures.
#include "tests/exec/own_cache.c"
