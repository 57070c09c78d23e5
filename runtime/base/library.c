// SPDX-License-Identifier: Apache-2.0
// dlopen over a list of places, and tables of function pointers.
#include "runtime/base/library.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdlib.h>
#include <unistd.h>

_Static_assert(sizeof(void *) == sizeof(void (*)(void)), "dlsym gives functions as objects");

void library_add(LibraryPlaces *places, const char *path) {
    *ARENA_PUSH(places->arena, places->at, places->n, places->cap) =
        arena_strdup(places->arena, path);
}

void library_add_folders(LibraryPlaces *places, const char *pattern, const char *name) {
    glob_t found;
    if (glob(pattern, 0, NULL, &found) != 0) return;
    for (size_t i = found.gl_pathc; i-- > 0;)
        library_add(places, arena_printf(places->arena, "%s/%s", found.gl_pathv[i], name));
    globfree(&found);
}

void library_add_beside_binary(LibraryPlaces *places, const char *name) {
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n <= 0) return;
    path[n] = 0;
    char *slash = strrchr(path, '/');
    if (!slash) return;
    *slash = 0;
    library_add(places, arena_printf(places->arena, "%s/%s", path, name));
}

// A file that is there and does not load says more than the many that are not.
static bool worth_telling(const char *place) {
    return place[0] == '/' && access(place, F_OK) == 0;
}

Status library_open(const LibraryPlaces *places, const char *what, const char *hint, void **handle,
                    const char **where) {
    Text looked = { 0 };
    const char *broken = NULL;
    *handle = NULL;
    for (uint32_t i = 0; i < places->n && !*handle; i++) {
        *handle = dlopen(places->at[i], RTLD_NOW | RTLD_LOCAL);
        *where = places->at[i];
        if (*handle) break;
        const char *error = dlerror();
        if (!broken && error && worth_telling(places->at[i]))
            broken = arena_strdup(places->arena, error);
        text_printf(&looked, "%s%s", i ? ", " : "", places->at[i]);
    }
    Status status = OK;
    if (!*handle && broken) {
        status = status_fail(ERR_INPUT, "%s does not load: %s\n  hint: %s", what, broken, hint);
    } else if (!*handle) {
        status = status_fail(ERR_INPUT, "%s was not found; looked for %s\n  hint: %s", what,
                             text_cstr(&looked), hint);
    }
    text_finish(&looked);
    return status;
}

Status library_fill(void *handle, const char *where, const LibrarySymbol *symbols, int n,
                    void *table) {
    for (int i = 0; i < n; i++) {
        void *found = dlsym(handle, symbols[i].name);
        if (!found && !symbols[i].optional)
            return status_fail(ERR_VERSION, "%s: expected a function %s, found none\n"
                               "  hint: a newer version of the library has it",
                               where, symbols[i].name);
        memcpy((char *)table + symbols[i].offset, &found, sizeof found);
    }
    return OK;
}

void library_close(void *handle) {
    if (handle) dlclose(handle);
}
