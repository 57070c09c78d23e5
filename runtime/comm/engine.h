// SPDX-License-Identifier: Apache-2.0
// What ranks that are processes (process.c) need of a launcher's library: few functions, none of which
// waits for another rank longer than that rank needs to make the same call. A library that implements
// them (mpi/mpi.c) is a module opened at run time, so that programs link no such library. It uses
// nothing of the program: what goes wrong comes back as text, NULL is success. One thread at a time calls
// it.
#ifndef MOEC_ENGINE_H
#define MOEC_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#define ENGINE_VERSION 1
#define ENGINE_ENTRY "moec_engine" // const Engine *moec_engine(void)

typedef struct Engine {
    int version;
    const char *name;
    // All ranks call these two. After a failure nobody closes: its end is the process's.
    const char *(*open)(int *rank, int *n_ranks);
    const char *(*close)(void);
    // node_of [n_ranks]: the lowest of the ranks that a rank shares memory with.
    const char *(*nodes)(int *node_of);
    // Zeroed memory of n ranks of a node (ascending, this one among them), which all call it: at[i] is
    // where the `bytes` of ranks[i] lie in this process, aligned to a page.
    const char *(*share)(const int *ranks, int n, int64_t bytes, void **at, void **handle);
    const char *(*unshare)(void *handle); // all of them call it
    // `bytes` of each rank, in order of ranks, to every rank. All ranks call it.
    const char *(*collect)(const void *from, void *to, int bytes);
    // Messages between two ranks arrive in order per tag (0..32767). A request begins; test ends it
    // once it says done.
    const char *(*send)(int rank, int tag, const void *from, int64_t bytes, void **request);
    const char *(*recv)(int rank, int tag, void *to, int64_t bytes, void **request);
    const char *(*test)(void *request, bool *done);
} Engine;

#endif
