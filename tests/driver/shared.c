// SPDX-License-Identifier: Apache-2.0
// The helpers of tests/train, built into the programs of this area too.
#include "tests/train/command.c"
#include "tests/train/helpers.c"
