// SPDX-License-Identifier: Apache-2.0
// Finds the virtual GPU's library: the one that the program has opened, which lies beside this one or
// where MOEC_VGPU_LIBRARY says. A second copy would be another GPU.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/base/library.h"
#include "runtime/nccl/standin.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static Driver table;
static bool found;
static char problem[1024];

static const LibrarySymbol symbols[] = {
#define X(name, parameters) { #name, offsetof(Driver, name), false },
    DRIVER_CALLS(X)
#undef X
    { "vgpuLastMessage", offsetof(Driver, message), false },
    { "vgpuHostFunctionsMayWait", offsetof(Driver, may_wait), false },
};

static void add_beside(LibraryPlaces *places) {
    Dl_info own;
    if (!dladdr((void *)symbols, &own) || !own.dli_fname) return;
    const char *slash = strrchr(own.dli_fname, '/');
    if (!slash) return;
    library_add(places, arena_printf(places->arena, "%.*s/libmoec-vgpu.so",
                                     (int)(slash - own.dli_fname), own.dli_fname));
}

static void find(void) {
    Arena *arena = arena_create();
    LibraryPlaces places = { .arena = arena };
    const char *own = getenv("MOEC_VGPU_LIBRARY"), *where;
    void *handle;
    if (own && *own) library_add(&places, own);
    add_beside(&places);
    Status status = library_open(&places, "the virtual GPU",
                                 "set MOEC_VGPU_LIBRARY to its path, for the program too", &handle, &where);
    if (status == OK) status = library_fill(handle, where, symbols, COUNT_OF(symbols), &table);
    found = status == OK;
    if (found) table.may_wait(1); // for other ranks
    else snprintf(problem, sizeof problem, "%s", status_message());
    arena_destroy(arena);
}

const Driver *driver(void) {
    pthread_once(&once, find);
    if (found) return &table;
    say(NCCL_SYSTEM_ERROR, "%s", problem);
    return NULL;
}
