// SPDX-License-Identifier: Apache-2.0
// Finds NCCL's library. It stays open for the life of the process: its threads do.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/base/library.h"
#include "runtime/comm/nccl_api.h"

static struct {
    pthread_mutex_t lock;
    bool tried;
    Nccl table;
    Status status;
    char message[2048];
} loaded[2] = { { .lock = PTHREAD_MUTEX_INITIALIZER }, { .lock = PTHREAD_MUTEX_INITIALIZER } };

static const LibrarySymbol symbols[] = {
#define X(field, symbol, type, parameters) { #symbol, offsetof(Nccl, field), false },
    NCCL_TABLE(X)
#undef X
#define X(field, symbol, type, parameters) { #symbol, offsetof(Nccl, field), true },
    NCCL_OPTIONAL(X)
#undef X
};

// A variable that names the library is an order: nothing else is looked at.
static Status open_library(bool virtual, Arena *arena, void **handle, const char **where) {
    static const char stand_in[] = "libmoec-nccl.so";
    LibraryPlaces places = { .arena = arena };
    const char *own = getenv("MOEC_NCCL_LIBRARY");
    if (own && *own) {
        library_add(&places, own);
    } else if (virtual) {
        library_add_beside_binary(&places, stand_in);
        library_add(&places, stand_in);
    } else {
        library_add(&places, "libnccl.so.2");
        library_add_folders(&places, "/usr/local/cuda*/lib64", "libnccl.so.2");
        library_add_folders(&places, "/usr/local/cuda*/lib", "libnccl.so.2");
    }
    if (virtual)
        return library_open(&places, "what stands in for NCCL on virtual GPUs",
                            "build libmoec-nccl.so beside moec, or set MOEC_NCCL_LIBRARY to its path",
                            handle, where);
    return library_open(&places, "NCCL, through which GPUs talk to each other,",
                        "install NCCL 2.28 or newer, or set MOEC_NCCL_LIBRARY to its path", handle, where);
}

static Status load(bool virtual, Arena *arena, Nccl *out) {
    const char *where;
    void *handle;
    TRY(open_library(virtual, arena, &handle, &where));
    TRY(library_fill(handle, where, symbols, COUNT_OF(symbols), out));
    int version = 0;
    out->version(&version);
    log_debug("NCCL %d from %s", version, where);
    return OK;
}

Status nccl_open(bool virtual, const Nccl **out) {
    pthread_mutex_lock(&loaded[virtual].lock);
    if (!loaded[virtual].tried) {
        Arena *arena = arena_create();
        loaded[virtual].status = load(virtual, arena, &loaded[virtual].table);
        arena_destroy(arena);
        if (loaded[virtual].status != OK)
            snprintf(loaded[virtual].message, sizeof loaded->message, "%s", status_message());
        loaded[virtual].tried = true;
    }
    pthread_mutex_unlock(&loaded[virtual].lock);
    *out = &loaded[virtual].table;
    return loaded[virtual].status == OK ? OK : status_fail(loaded[virtual].status, "%s", loaded[virtual].message);
}
