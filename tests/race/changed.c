// SPDX-License-Identifier: Apache-2.0
// As shared.c; in a file of its own, since it names things as the others do.
#include "tests/fence/changed.c"
