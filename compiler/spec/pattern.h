// SPDX-License-Identifier: Apache-2.0
// Lua's string patterns with a bound on the work: a hostile pattern takes exponential time, and no
// hook of the interpreter runs inside a C function.
#ifndef MOEC_SPEC_PATTERN_H
#define MOEC_SPEC_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PATTERN_CAPTURES = 32, PATTERN_DEPTH = 200 };

typedef struct Capture {
    const char *at;
    ptrdiff_t bytes; // CAPTURE_OPEN while open, CAPTURE_POSITION for "()"
} Capture;
enum { CAPTURE_OPEN = -1, CAPTURE_POSITION = -2 };

typedef struct Pattern {
    const char *text, *text_end, *pattern, *pattern_end;
    int64_t steps, max_steps; // done so far, over all calls; past the bound the match fails
    const char *error;        // a malformed pattern, or NULL
    int depth, n_captures;
    Capture captures[PATTERN_CAPTURES];
} Pattern;

// Matches the whole pattern (a leading ^ already skipped) at `at`; returns the end of the match or
// NULL. After NULL look at `error`, and at steps > max_steps.
const char *pattern_match(Pattern *p, const char *at);

#endif
