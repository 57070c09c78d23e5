// SPDX-License-Identifier: Apache-2.0
// Ranks for tests: processes, each with its virtual GPU, or threads of one process on one.
#ifndef TESTS_NCCL_RANKS_H
#define TESTS_NCCL_RANKS_H

#include "runtime/comm/nccl_api.h"
#include "runtime/device/device.h"

typedef struct Page Page;
typedef struct Rank {
    int rank, n;
    NcclId id;           // of all
    const Nccl *nccl;
    Device *device;
    NcclStream stream;   // the device's own
    NcclComm comm;       // of all ranks, blocking, made before the body runs
    Page *page;          // of all
} Rank;

// Rank 0's bytes to all, once. `rank`: a Rank.
Status rank_share(void *rank, void *bytes, int64_t n);

// Runs `body` on n ranks; the test fails if one of them does, or is not done in a minute.
void run_ranks(int n, bool threads, void (*body)(Rank *rank));

// For bodies: ends the rank with the text.
#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition)) rank_fail(__FILE__, __LINE__, #condition);                               \
    } while (0)
_Noreturn void rank_fail(const char *file, int line, const char *what);
#define FINE(r, call) rank_fine((r), (call), __FILE__, __LINE__, #call)
void rank_fine(Rank *r, NcclResult result, const char *file, int line, const char *what);
#define GOOD(call) rank_good((call), __FILE__, __LINE__, #call)
void rank_good(Status status, const char *file, int line, const char *what);
// The call, or what is waited for, ends with an error whose text has all of `parts` (ended by NULL).
void expect_text(Rank *r, const char *const *parts);
#define EXPECT_ERROR(r, call, ...)                                                                 \
    do {                                                                                           \
        CHECK((call) != NCCL_OK);                                                                  \
        expect_text(r, (const char *const[]){ __VA_ARGS__, NULL });                                \
    } while (0)
// Until the stream is done or the communicator has failed; true: done, without an error.
bool settle(Rank *r, NcclComm comm);
#define EXPECT_ASYNC(r, comm, ...)                                                                 \
    do {                                                                                           \
        CHECK(!settle(r, comm));                                                                   \
        expect_text(r, (const char *const[]){ __VA_ARGS__, NULL });                                \
    } while (0)

// Device memory that holds n numbers: from + i.
void *numbers(Rank *r, int n, int from);
void *empty(Rank *r, int n);
void expect_numbers(Rank *r, const void *at, int n, int from);
// The configuration of a communicator.
NcclConfig config_of(bool blocking);

#endif
