// SPDX-License-Identifier: Apache-2.0
// Finds the driver's library. A library stays open for the life of the process: drivers do not like
// to be unloaded.
#include "runtime/device/driver.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/base/library.h"

typedef struct Loaded {
    pthread_mutex_t lock;
    bool tried;
    Driver driver;
    Status status;
    char message[2048];
} Loaded;

static Loaded loaded[2] = { { .lock = PTHREAD_MUTEX_INITIALIZER },
                            { .lock = PTHREAD_MUTEX_INITIALIZER } };

static const LibrarySymbol symbols[] = {
#define X(field, symbol, parameters) { #symbol, offsetof(Driver, field), false },
    DRIVER_TABLE(X)
#undef X
#define X(field, symbol, type, parameters) { #symbol, offsetof(Driver, field), true },
    DRIVER_OPTIONAL(X)
#undef X
};

static Status open_library(bool virtual, Arena *arena, void **handle, const char **where) {
    static const char name[] = "libmoec-vgpu.so";
    LibraryPlaces places = { .arena = arena };
    if (!virtual) {
        static const char *const folders[] = {
            "/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", // containers
            "/usr/lib/wsl/lib",                                 // Windows
            "/usr/lib/x86_64-linux-gnu/nvidia/current", "/run/opengl-driver/lib",
        };
        library_add(&places, "libcuda.so.1");
        for (int i = 0; i < COUNT_OF(folders); i++)
            library_add_folders(&places, folders[i], "libcuda.so.1");
        return library_open(&places, "the CUDA driver",
                            "it comes with NVIDIA's driver for a GPU; --device vgpu:sm_80 needs "
                            "neither",
                            handle, where);
    }
    const char *own = getenv("MOEC_VGPU_LIBRARY");
    if (own && *own) {
        library_add(&places, own);
    } else {
        library_add_beside_binary(&places, name);
        library_add(&places, name);
    }
    return library_open(&places, "the virtual GPU",
                        "build it beside moec, or set MOEC_VGPU_LIBRARY to its path", handle, where);
}

static Status load(bool virtual, Driver *out) {
    Arena *arena = arena_create();
    void *handle;
    const char *where;
    Status status = open_library(virtual, arena, &handle, &where);
    if (status == OK) status = library_fill(handle, where, symbols, COUNT_OF(symbols), out);
    if (status == OK && out->vgpu_print_faults) out->vgpu_print_faults(0); // see details
    arena_destroy(arena);
    return status;
}

Status driver_open(bool virtual, const Driver **out) {
    Loaded *l = &loaded[virtual];
    pthread_mutex_lock(&l->lock);
    if (!l->tried) {
        l->status = load(virtual, &l->driver);
        if (l->status != OK) snprintf(l->message, sizeof l->message, "%s", status_message());
        l->tried = true;
    }
    pthread_mutex_unlock(&l->lock);
    *out = &l->driver;
    return l->status == OK ? OK : status_fail(l->status, "%s", l->message);
}

// Faults of kernels are numbers from 700 on; the last report may be of an older one otherwise.
static const char *details(const Driver *driver, CUresult result) {
    enum { FIRST_FAULT = 700, LAST_FAULT = 799 };
    const char *text = driver->vgpu_message ? driver->vgpu_message() : NULL;
    if (driver->vgpu_report && result >= FIRST_FAULT && result <= LAST_FAULT)
        text = driver->vgpu_report();
    return text ? text : "";
}

Status driver_fail_with(const Driver *driver, CUresult result, const char *what) {
    const char *name = NULL, *text = NULL;
    if (driver->error_name(result, &name) != 0 || !name) name = "an error without a name";
    if (driver->error_text(result, &text) != 0 || !text) text = "";
    const char *more = details(driver, result);
    return status_fail(result == CU_OUT_OF_MEMORY ? ERR_MEMORY : ERR_DEVICE, "%s: %s%s%s (%d)%s%s",
                       what, text, text[0] ? ", " : "", name, result, more[0] ? "\n" : "", more);
}
