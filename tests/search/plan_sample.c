// SPDX-License-Identifier: Apache-2.0
// The plans of tests/plan, for programs of this area.
#include "tests/plan/sample.c"
