// SPDX-License-Identifier: Apache-2.0
// A persistent thread pool: tiles of a launch are claimed from an atomic counter. A launch ends when all
// tiles are finished, not when all workers report, so a descheduled worker holds nothing up unless it
// holds a tile. Workers spin briefly, then sleep on a futex. The caller works too.
#ifndef MOEC_POOL_H
#define MOEC_POOL_H

#include "runtime/base/base.h"

typedef struct Pool Pool;
typedef void (*PoolTile)(void *const *args, int64_t tile_begin, int64_t tile_end);

Status pool_create(int threads /* 0: all cores this process may use */, Pool **out);
void pool_destroy(Pool *pool);                                 // NULL is fine
int pool_threads(const Pool *pool);
void pool_run(Pool *pool, PoolTile function, void *const *args, int64_t tiles);

#endif
