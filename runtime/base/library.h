// SPDX-License-Identifier: Apache-2.0
// Libraries that may be missing, resolved at run time: a struct of function pointers per library,
// its fields filled by name from one table, so that a binary links none of them and a machine
// without one hears what is missing and where it was looked for.
#ifndef MOEC_LIBRARY_H
#define MOEC_LIBRARY_H

#include "runtime/base/base.h"

typedef struct LibrarySymbol {
    const char *name;
    size_t offset; // of its pointer in the struct
    bool optional; // NULL where the library lacks it
} LibrarySymbol;

// Where to look, in order: file names (the system's search) and paths. In `arena`.
typedef struct LibraryPlaces {
    Arena *arena;
    const char **at;
    uint32_t n, cap;
} LibraryPlaces;

void library_add(LibraryPlaces *places, const char *path);
// FOLDER/NAME for every folder that the pattern names, the last in order of names first.
void library_add_folders(LibraryPlaces *places, const char *pattern, const char *name);
void library_add_beside_binary(LibraryPlaces *places, const char *name);
// Opens the first that loads. `what` begins the message ("the CUDA driver"), `hint` ends it.
Status library_open(const LibraryPlaces *places, const char *what, const char *hint, void **handle,
                    const char **where);
Status library_fill(void *handle, const char *where, const LibrarySymbol *symbols, int n,
                    void *table);
void library_close(void *handle); // NULL is fine

#endif
