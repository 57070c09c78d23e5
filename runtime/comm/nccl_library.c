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
} loaded = { .lock = PTHREAD_MUTEX_INITIALIZER };

static const LibrarySymbol symbols[] = {
#define X(field, symbol, type, parameters) { #symbol, offsetof(Nccl, field), false },
    NCCL_TABLE(X)
#undef X
#define X(field, symbol, type, parameters) { #symbol, offsetof(Nccl, field), true },
    NCCL_OPTIONAL(X)
#undef X
};

// A variable that names the library is an order: nothing else is looked at.
static Status load(Arena *arena, Nccl *out) {
    LibraryPlaces places = { .arena = arena };
    const char *own = getenv("MOEC_NCCL_LIBRARY"), *where;
    void *handle;
    if (own && *own) {
        library_add(&places, own);
    } else {
        library_add(&places, "libnccl.so.2");
        library_add_folders(&places, "/usr/local/cuda*/lib64", "libnccl.so.2");
        library_add_folders(&places, "/usr/local/cuda*/lib", "libnccl.so.2");
    }
    TRY(library_open(&places, "NCCL, through which GPUs talk to each other,",
                     "install NCCL 2.28 or newer, or set MOEC_NCCL_LIBRARY to its path; "
                     "libmoec-nccl.so beside moec stands in for it on virtual GPUs",
                     &handle, &where));
    TRY(library_fill(handle, where, symbols, COUNT_OF(symbols), out));
    int version = 0;
    out->version(&version);
    log_debug("NCCL %d from %s", version, where);
    return OK;
}

Status nccl_open(const Nccl **out) {
    pthread_mutex_lock(&loaded.lock);
    if (!loaded.tried) {
        Arena *arena = arena_create();
        loaded.status = load(arena, &loaded.table);
        arena_destroy(arena);
        if (loaded.status != OK)
            snprintf(loaded.message, sizeof loaded.message, "%s", status_message());
        loaded.tried = true;
    }
    pthread_mutex_unlock(&loaded.lock);
    *out = &loaded.table;
    return loaded.status == OK ? OK : status_fail(loaded.status, "%s", loaded.message);
}
