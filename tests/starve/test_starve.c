// SPDX-License-Identifier: Apache-2.0
// A sample of the allocations of every stage fails: see stages.c.
#include "tests/starve/stages.h"

int main(void) {
    return stages_run("starve", 24);
}
