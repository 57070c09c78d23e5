// SPDX-License-Identifier: Apache-2.0
// Every allocation of every stage fails in its turn, of lowering every fourth: see stages.c.
#include "tests/starve/stages.h"

int main(void) {
    return stages_run("long_starve", 0);
}
