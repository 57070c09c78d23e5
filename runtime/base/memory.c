// SPDX-License-Identifier: Apache-2.0
// When memory runs out: guards, and what is held inside them. base.h has the rules.
//
// A guard is a place to jump to and a ring of what was taken since, oldest first. Everything is
// given back from where memory ran out, before the jump, so that what is held may lie in frames
// that the jump drops. A thing is newer than the arena it lies in, so newest first is always
// possible.
#include <errno.h>
#include <stdlib.h>

#include "runtime/base/base.h"

typedef struct Guard {
    jmp_buf leave;
    struct Guard *outer;
    Held taken; // of the ring: before it the newest, after it the oldest
} Guard;

static _Thread_local Guard *guard; // the innermost

static void unlink_held(Held *held) {
    held->before->after = held->after;
    held->after->before = held->before;
    held->before = held->after = NULL;
}

void memory_hold(Held *held, void (*give_back)(void *what), void *what) {
    *held = (Held){ .give_back = give_back, .what = what };
    if (!guard) return;
    held->after = &guard->taken;
    held->before = guard->taken.before;
    held->before->after = held->after->before = held;
}

void memory_drop(Held *held) {
    if (held->before) unlink_held(held);
}

// What outlives a guard goes to the one around it, or to none.
static void pass_on(Guard *from) {
    while (from->taken.after != &from->taken) {
        Held *oldest = from->taken.after;
        unlink_held(oldest);
        memory_hold(oldest, oldest->give_back, oldest->what);
    }
}

Status memory_guard(Status (*body)(void *user), void *user) {
    Guard here = { .outer = guard };
    here.taken.before = here.taken.after = &here.taken;
    guard = &here;
    if (setjmp(here.leave)) return ERR_MEMORY;
    Status status = body(user);
    guard = here.outer;
    pass_on(&here);
    return status;
}

void memory_fail(size_t bytes) {
    Guard *from = guard;
    while (from && from->taken.before != &from->taken) {
        Held *newest = from->taken.before;
        unlink_held(newest);
        newest->give_back(newest->what);
    }
    status_fail(ERR_MEMORY, "out of memory: %zu bytes more were asked for\n"
                "  hint: use a smaller model or microbatch, or a machine with more memory", bytes);
    if (!from) abort();
    guard = from->outer;
    longjmp(from->leave, 1);
}

/* Blocks: a Held, then the caller's bytes ------------------------------------------------------ */

_Static_assert(sizeof(Held) % 16 == 0, "blocks are aligned to 16");

void *memory_alloc(size_t bytes) {
    Held *block = bytes < SIZE_MAX / 2 ? calloc(1, sizeof *block + bytes) : NULL;
    if (!block) memory_fail(bytes);
    memory_hold(block, free, block);
    return block + 1;
}

void *memory_grow(void *old, size_t bytes) {
    if (!old) return memory_alloc(bytes);
    Held *block = (Held *)old - 1;
    Held *moved = bytes < SIZE_MAX / 2 ? realloc(block, sizeof *block + bytes) : NULL;
    if (!moved) memory_fail(bytes);
    moved->what = moved;
    if (moved->before) moved->before->after = moved->after->before = moved;
    return moved + 1;
}

void memory_free(void *at) {
    if (!at) return;
    Held *block = (Held *)at - 1;
    memory_drop(block);
    free(block);
}

Status status_errno(int error) {
    return error == ENOMEM || error == EMFILE || error == ENFILE ? ERR_MEMORY : ERR_IO;
}
