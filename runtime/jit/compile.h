// SPDX-License-Identifier: Apache-2.0
// Private to runtime/jit: which compiler, for which instruction set, and running several at once.
#ifndef MOEC_JIT_COMPILE_H
#define MOEC_JIT_COMPILE_H

#include "runtime/jit/jit.h"

#include <sys/types.h>

enum { JIT_MAX_FLAGS = 16 };

typedef struct Compiler {
    const char *path;
    const char *identity;             // first line of --version
    const char *isa;                  // "x86-64-v4"
    const char *flags[JIT_MAX_FLAGS]; // ended by NULL
    const char *linker;               // ld; NULL: the compiler links
} Compiler;

// A translation unit on its way to a shared object.
typedef struct Unit {
    const char *name; // of its files: a hash in hex
    const char *source;
    char *object;
    size_t object_bytes; // in the arena given to compile_units
} Unit;

/* compiler.c */
// `dir`: the cache, which remembers what a compiler binary says of itself: a warm start runs none.
Status compiler_find(const char *dir, Arena *arena, Compiler *out);
int compiler_cores(const JitShare *share); // this process may use; share may be NULL

/* compile.c */
// Compiles the units, as many at once as there are cores, or as `share` (may be NULL) allows. `done`
// is called in this thread, once per unit, in order of completion. The first failure stops the others.
Status compile_units(const Compiler *compiler, Unit *units, int n, const JitShare *share, Arena *arena,
                     void (*done)(void *user, int unit), void *user);

/* process.c */
// A private folder under $TMPDIR or /tmp. Removal takes the files in it along.
typedef struct Scratch { const char *dir; Held held; } Scratch;
Status scratch_create(Arena *arena, Scratch *out);
void scratch_remove(Scratch *scratch);
// Starts a program with stdout and stderr going to a file, stdin empty, signals as at login, and
// its own temporary files in the scratch folder.
Status process_start(const char *const *argv, const char *scratch, const char *output, pid_t *pid);
// Waits until it has ended, without reaping it: its pid stays its own. Then process_reap.
void process_wait(pid_t pid);
int process_reap(pid_t pid); // wait status, -1 when somebody else took it

#endif
