// SPDX-License-Identifier: Apache-2.0
// The float64 interpreter, for the tests of row programs.
#include "tests/oracle/interp_contract.c"
