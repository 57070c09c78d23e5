// SPDX-License-Identifier: Apache-2.0
// The helpers of tests/fence, built into the programs of this area too.
#include "tests/fence/shared.c"
