// SPDX-License-Identifier: Apache-2.0
// Source to function: the host's C compiler, and the kernel cache on disk.
//
// Cache: $MOEC_CACHE_DIR, else $XDG_CACHE_HOME/moec, else ~/.cache/moec. Content-addressed,
// self-validating files; written under a temporary name and renamed; safe for many processes at once. A
// damaged or foreign entry is a miss, never an error. Compiler: $MOEC_CC, else clang-19, else clang, else
// gcc. The key holds format version, source text, flags, instruction-set level and compiler identity.
#ifndef MOEC_JIT_H
#define MOEC_JIT_H

#include "runtime/plan/plan.h"

typedef struct Jit Jit; // loaded objects; functions live as long as it

Status jit_load(const Plan *plan, void (*progress)(void *user, int done, int total, int cached), void *user, Jit **out);
void jit_destroy(Jit *jit);                                    // NULL is fine
// The ENTRY_launch function of a kernel.
void (*jit_function(const Jit *jit, uint32_t kernel))(void *const *args, int64_t tile_begin, int64_t tile_end);
const char *jit_cache_dir(Arena *arena);                       // created on demand by its users

/* cache.c: blobs by key, also used by compiler/codegen for launch tables read by libclang */
Status cache_get(const char *dir, Hash key, Arena *arena, char **bytes, size_t *n); // OK and *bytes NULL: miss
Status cache_put(const char *dir, Hash key, const void *bytes, size_t n);

#endif
