// SPDX-License-Identifier: Apache-2.0
// runtime/comm/engine.h on MPI: a module of its own, so that what links MPI is no part of a program.
//
// Only calls that begin and test are made once ranks work; those that wait (open, share, collect, close)
// are made by all ranks at one point, which process.c makes sure of. Messages have a communicator of
// their own. A count of MPI is an int: larger messages go in pieces.
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/comm/engine.h"

enum { PAGE = 4096, PIECE = 1 << 30 };

static MPI_Comm messages = MPI_COMM_NULL;
static char problem[MPI_MAX_ERROR_STRING + 128];

#define MPI_TRY(call)                                                                              \
    do {                                                                                           \
        int mpi_error_ = (call);                                                                   \
        if (mpi_error_ != MPI_SUCCESS) return explain(mpi_error_, #call);                          \
    } while (0)

static const char *explain(int error, const char *call) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int n = 0;
    MPI_Error_string(error, text, &n);
    snprintf(problem, sizeof problem, "%.*s: %s", (int)strcspn(call, "("), call, text);
    return problem;
}

// Open MPI's own modules look for its symbols among the global ones.
static void make_global(void) {
    Dl_info info;
    if (dladdr((void *)MPI_Init_thread, &info) && info.dli_fname)
        dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL);
}

static const char *mpi_open(int *rank, int *n_ranks) {
    int given;
    make_global();
    MPI_TRY(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &given));
    if (given < MPI_THREAD_SERIALIZED) return "this MPI can be called by one thread only";
    MPI_TRY(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    MPI_TRY(MPI_Comm_dup(MPI_COMM_WORLD, &messages));
    MPI_TRY(MPI_Comm_set_errhandler(messages, MPI_ERRORS_RETURN));
    MPI_TRY(MPI_Comm_rank(MPI_COMM_WORLD, rank));
    MPI_TRY(MPI_Comm_size(MPI_COMM_WORLD, n_ranks));
    return NULL;
}

static const char *mpi_nodes(int *node_of) {
    MPI_Comm node;
    int rank, lowest;
    MPI_TRY(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    MPI_TRY(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node));
    MPI_TRY(MPI_Allreduce(&rank, &lowest, 1, MPI_INT, MPI_MIN, node));
    MPI_TRY(MPI_Comm_free(&node));
    MPI_TRY(MPI_Allgather(&lowest, 1, MPI_INT, node_of, 1, MPI_INT, MPI_COMM_WORLD));
    return NULL;
}

static const char *mpi_collect(const void *from, void *to, int bytes) {
    MPI_TRY(MPI_Allgather(from, bytes, MPI_BYTE, to, bytes, MPI_BYTE, MPI_COMM_WORLD));
    return NULL;
}

/* Shared memory -------------------------------------------------------------------------------- */

typedef struct Share {
    MPI_Comm comm;
    MPI_Win window;
    void *alone;                // of one rank
    size_t bytes;
} Share;

static const char *group_comm(const int *ranks, int n, MPI_Comm *comm) {
    MPI_Group world, group;
    MPI_TRY(MPI_Comm_group(MPI_COMM_WORLD, &world));
    MPI_TRY(MPI_Group_incl(world, n, ranks, &group));
    MPI_TRY(MPI_Comm_create_group(MPI_COMM_WORLD, group, 0, comm));
    MPI_TRY(MPI_Comm_set_errhandler(*comm, MPI_ERRORS_RETURN));
    MPI_TRY(MPI_Group_free(&group));
    MPI_TRY(MPI_Group_free(&world));
    return NULL;
}

static void *page_of(void *at) {
    return (void *)(((uintptr_t)at + PAGE - 1) / PAGE * PAGE);
}

// MPI may give a single rank memory that is not zeroed.
static const char *share_alone(Share *share, int64_t bytes, void **at) {
    share->bytes = (size_t)(bytes ? bytes : 1);
    share->alone = *at = mmap(NULL, share->bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return *at == MAP_FAILED ? "no memory" : NULL;
}

// A page more for each: where a window begins is the library's business, but all see it at the same
// place of a page.
static const char *mpi_share(const int *ranks, int n, int64_t bytes, void **at, void **handle) {
    Share *share = calloc(1, sizeof *share);
    void *own;
    if (!share) return "no memory";
    *handle = share;
    if (n == 1) return share_alone(share, bytes, at);
    const char *error = group_comm(ranks, n, &share->comm);
    if (error) return error;
    MPI_Aint size = (bytes + PAGE - 1) / PAGE * PAGE + PAGE;
    MPI_TRY(MPI_Win_allocate_shared(size, 1, MPI_INFO_NULL, share->comm, &own, &share->window));
    for (int i = 0; i < n; i++) {
        int unit;
        MPI_Aint there;
        void *base;
        MPI_TRY(MPI_Win_shared_query(share->window, i, &there, &unit, &base));
        at[i] = page_of(base);
    }
    return NULL;
}

static const char *mpi_unshare(void *handle) {
    Share *share = handle;
    if (share->alone) {
        munmap(share->alone, share->bytes);
    } else {
        MPI_TRY(MPI_Win_free(&share->window));
        MPI_TRY(MPI_Comm_free(&share->comm));
    }
    free(share);
    return NULL;
}

/* Messages ------------------------------------------------------------------------------------- */

typedef struct Request {
    struct Request *next;       // of the spare ones
    int n;
    MPI_Request pieces[];
} Request;

static Request *spare;          // of one piece

static Request *request_new(int64_t bytes) {
    int n = bytes > PIECE ? (int)((bytes + PIECE - 1) / PIECE) : 1;
    Request *request = n == 1 ? spare : NULL;
    if (request) spare = request->next;
    else request = malloc(sizeof *request + (size_t)n * sizeof(MPI_Request));
    if (request) request->n = n;
    return request;
}

static void request_end(Request *request) {
    if (request->n > 1) {
        free(request);
        return;
    }
    request->next = spare;
    spare = request;
}

static int piece_bytes(int64_t bytes, int i) {
    int64_t rest = bytes - (int64_t)i * PIECE;
    return rest > PIECE ? PIECE : (int)rest;
}

static const char *mpi_send(int rank, int tag, const void *from, int64_t bytes, void **request) {
    Request *r = request_new(bytes);
    if (!r) return "no memory";
    for (int i = 0; i < r->n; i++)
        MPI_TRY(MPI_Isend((const char *)from + (int64_t)i * PIECE, piece_bytes(bytes, i), MPI_BYTE,
                          rank, tag, messages, &r->pieces[i]));
    *request = r;
    return NULL;
}

static const char *mpi_recv(int rank, int tag, void *to, int64_t bytes, void **request) {
    Request *r = request_new(bytes);
    if (!r) return "no memory";
    for (int i = 0; i < r->n; i++)
        MPI_TRY(MPI_Irecv((char *)to + (int64_t)i * PIECE, piece_bytes(bytes, i), MPI_BYTE, rank,
                          tag, messages, &r->pieces[i]));
    *request = r;
    return NULL;
}

static const char *mpi_test(void *request, bool *done) {
    Request *r = request;
    int all;
    MPI_TRY(MPI_Testall(r->n, r->pieces, &all, MPI_STATUSES_IGNORE));
    *done = all;
    if (all) request_end(r);
    return NULL;
}

static const char *mpi_close(void) {
    MPI_TRY(MPI_Comm_free(&messages));
    MPI_TRY(MPI_Finalize());
    while (spare) {
        Request *next = spare->next;
        free(spare);
        spare = next;
    }
    return NULL;
}

__attribute__((visibility("default"))) const Engine *moec_engine(void);

const Engine *moec_engine(void) {
    static const Engine engine = {
        .version = ENGINE_VERSION,
        .name = "mpi",
        .open = mpi_open,
        .close = mpi_close,
        .nodes = mpi_nodes,
        .share = mpi_share,
        .unshare = mpi_unshare,
        .collect = mpi_collect,
        .send = mpi_send,
        .recv = mpi_recv,
        .test = mpi_test,
    };
    return &engine;
}
