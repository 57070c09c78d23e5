// SPDX-License-Identifier: Apache-2.0
// Ranks started by torchrun: what their hosts say to each other, over TCP, through rank 0. For words, not
// for data: that goes from GPU to GPU (nccl.c).
#ifndef MOEC_STAR_H
#define MOEC_STAR_H

#include "runtime/comm/comm.h"

typedef struct StarPlace {
    int rank, n_ranks, local_rank;
    const char *address, *job; // of rank 0's machine; what tells this job from others
    int port;                  // the first that rank 0 may listen on
    double deadline;           // seconds, to meet, and without a word afterwards
} StarPlace;

// Whether torchrun's variables are there.
bool star_started(void);
// Reads them; ERR_ARGUMENT with the one that is missing or wrong.
Status star_place(StarPlace *out);
Status star_open(const StarPlace *place, Comm **out);

#endif
