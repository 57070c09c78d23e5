// SPDX-License-Identifier: Apache-2.0
// The helpers of tests/train and tests/driver, built into the programs of this area too.
#include "tests/driver/small.c"
#include "tests/train/command.c"
#include "tests/train/helpers.c"
