// SPDX-License-Identifier: Apache-2.0
#include "tests/exec/own_cache.h"

#include <stdio.h>
#include <stdlib.h>

static char folder[] = "/tmp/moec-test-cache-XXXXXX";

int own_cache_make(void **state) {
    (void)state;
    return mkdtemp(folder) ? setenv("MOEC_CACHE_DIR", folder, 1) : 1;
}

int own_cache_remove(void **state) {
    (void)state;
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}
