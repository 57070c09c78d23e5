// SPDX-License-Identifier: Apache-2.0
// Arenas: a list of chunks, each filled from the front, freed together. Chunks double up to 1 MiB. What is given out is
// zeroed then, about to be used, not when its chunk is made; something larger than a chunk comes zeroed from the system.
#include <stdio.h>
#include <stdlib.h>

#include "runtime/base/base.h"

enum { ALIGN = 16, FIRST_CHUNK = 4096, LAST_CHUNK = 1 << 20 };

typedef struct Chunk { struct Chunk *next; size_t used, cap; bool zeroed; } Chunk; // bytes follow, from CHUNK_HEAD
enum { CHUNK_HEAD = (sizeof(Chunk) + ALIGN - 1) / ALIGN * ALIGN };

struct Arena { Chunk *chunks; size_t next_bytes, taken; Held held; };

static void give_back(void *arena) {
    arena_destroy(arena);
}

Arena *arena_create(void) {
    Arena *arena = calloc(1, sizeof *arena);
    if (!arena) memory_fail(sizeof *arena);
    arena->next_bytes = FIRST_CHUNK;
    memory_hold(&arena->held, give_back, arena);
    return arena;
}

void arena_destroy(Arena *arena) {
    if (!arena) return;
    memory_drop(&arena->held);
    for (Chunk *chunk = arena->chunks, *next; chunk; chunk = next) {
        next = chunk->next;
        free(chunk);
    }
    free(arena);
}

static Chunk *add_chunk(Arena *arena, size_t bytes) {
    bool own = bytes > arena->next_bytes;
    size_t cap = own ? bytes : arena->next_bytes;
    Chunk *chunk = own ? calloc(1, CHUNK_HEAD + cap) : malloc(CHUNK_HEAD + cap);
    if (!chunk) memory_fail(bytes);
    *chunk = (Chunk){ .cap = cap, .next = arena->chunks, .zeroed = own };
    arena->chunks = chunk;
    arena->taken += CHUNK_HEAD + cap;
    if (arena->next_bytes < LAST_CHUNK) arena->next_bytes *= 2;
    return chunk;
}

// Of what is given out, the first `kept` bytes are written by the caller: only the rest is zeroed.
static void *take(Arena *arena, size_t bytes, size_t kept) {
    if (bytes > SIZE_MAX / 2) memory_fail(bytes);
    bytes = bytes ? (bytes + ALIGN - 1) / ALIGN * ALIGN : ALIGN;
    Chunk *chunk = arena->chunks;
    if (!chunk || chunk->cap - chunk->used < bytes) chunk = add_chunk(arena, bytes);
    char *at = (char *)chunk + CHUNK_HEAD + chunk->used;
    chunk->used += bytes;
    if (!chunk->zeroed) memset(at + kept, 0, bytes - kept);
    return at;
}

void *arena_alloc(Arena *arena, size_t bytes) {
    return take(arena, bytes, 0);
}

void *arena_grow(Arena *arena, void *old, size_t old_bytes, size_t new_bytes) {
    void *at = take(arena, new_bytes, old_bytes);
    if (old_bytes) memcpy(at, old, old_bytes);
    return at;
}

char *arena_strndup(Arena *arena, const char *text, size_t bytes) {
    char *at = arena_alloc(arena, bytes + 1);
    if (bytes) memcpy(at, text, bytes);
    return at;
}

char *arena_strdup(Arena *arena, const char *text) {
    return arena_strndup(arena, text, strlen(text));
}

char *arena_printf(Arena *arena, const char *format, ...) {
    va_list list;
    va_start(list, format);
    int n = vsnprintf(NULL, 0, format, list);
    va_end(list);
    char *at = arena_alloc(arena, (size_t)n + 1);
    va_start(list, format);
    vsnprintf(at, (size_t)n + 1, format, list);
    va_end(list);
    return at;
}

size_t arena_bytes(const Arena *arena) {
    return arena->taken;
}
