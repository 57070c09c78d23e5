// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/choices.h"

#include "runtime/base/base.h"

int32_t choose(Chooser c, int rank, int64_t slot) {
    uint64_t any = hash_mix(c.seed, (uint64_t)rank, (uint64_t)slot);
    int32_t e = c.experts;
    switch (c.kind) {
    case ANY: return (int32_t)(any % (uint64_t)e);
    case ONE_TAKES_ALL: return e - 1;
    case NONE: return -1;
    case SOME_OUTSIDE: return (int32_t)(any % (uint64_t)(e + 4)) - 2;
    case ONE_RANK: return rank == c.ranks - 1 ? (int32_t)(any % (uint64_t)e) : -1;
    case SAME: return (int32_t)(hash_mix(c.seed, (uint64_t)rank, (uint64_t)(slot / c.top_k)) % (uint64_t)e);
    case UPPER_HALF: return e / 2 + (int32_t)(any % (uint64_t)(e - e / 2));
    }
    return -1;
}

int32_t choice_owner(Chooser c, int32_t expert) {
    return c.turned ? (expert * 3 + 1) % c.ranks : expert / (c.experts / c.ranks);
}
