// SPDX-License-Identifier: Apache-2.0
// Files of several plans: one per stage of a pipeline, one text after another. Where a text ends is found
// by its lines; only the sources, whose bytes are counted, can hold anything. So a rank parses its own
// stage and no other.
#include "runtime/plan/words.h"

#include <stdlib.h>

static bool starts(const char *at, const char *end, const char *word) {
    size_t n = strlen(word);
    return (size_t)(end - at) >= n && !memcmp(at, word, n);
}

static const char *next_line(const char *at, const char *end, int *lines) {
    const char *newline = memchr(at, '\n', (size_t)(end - at));
    ++*lines;
    return newline ? newline + 1 : end;
}

// Past the raw bytes that the line "source HASH N" at `at` counts.
static const char *skip_source(const char *at, const char *end, int *lines) {
    const char *line = at, *body = next_line(at, end, lines);
    const char *number = body - 1;
    while (number > line && number[-1] != ' ') number--;
    int64_t bytes = 0;
    while (*number >= '0' && *number <= '9' && bytes <= end - body)
        bytes = bytes * 10 + (*number++ - '0');
    bytes = min_i64(bytes, end - body);
    for (int64_t i = 0; i < bytes; i++) *lines += body[i] == '\n';
    return body + bytes;
}

// The end of the plan that starts at `at`: past its line "end HASH", or the end of everything.
static const char *skip_plan(const char *at, const char *end, int *lines) {
    while (at < end) {
        bool last = starts(at, end, "end ");
        at = starts(at, end, "source ") ? skip_source(at, end, lines) : next_line(at, end, lines);
        if (last) break;
    }
    return at;
}

// What the other texts must be for this plan to be the one of `stage`. `stray`: the line after the last of
// n texts, where there is more; else 0.
static Status check_stages(const Plan *plan, int32_t stage, int32_t n, int stray) {
    int32_t pp = plan->mesh.size[AXIS_pp];
    if (stray)
        return status_fail(ERR_FORMAT,
                           "plan text, line %d: expected %s, found more text that is no plan", stray,
                           n < pp ? "the plan of the next stage" : "the end of the text");
    if (n != pp)
        return status_fail(ERR_FORMAT,
                           "expected the plans of %d stage%s one after another, found %d plan%s", pp,
                           pp == 1 ? "" : "s", n, n == 1 ? "" : "s");
    if (plan->mesh.stage == stage) return OK;
    return status_fail(ERR_FORMAT, "expected the plan of stage %d in its place, found that of %d",
                       stage, plan->mesh.stage);
}

Status plan_parse_stage(const char *text, size_t bytes, int32_t stage, Plan **out) {
    const char *end = text + bytes, *from = text, *to = end, *at = text;
    int32_t n = 0;
    int lines = 0, first = 0;
    *out = NULL;
    do {
        int before = lines;
        const char *start = at;
        at = skip_plan(at, end, &lines);
        if (n++ != stage) continue;
        from = start;
        to = at;
        first = before;
    } while (starts(at, end, "plan "));
    if (stage < 0 || stage >= n)
        return status_fail(ERR_ARGUMENT, "the plan of stage %d was asked for, and the text has %s%d",
                           stage, n == 1 ? "only that of " : "those of 0 to ", n - 1);
    TRY(plan_parse_from(from, (size_t)(to - from), first + 1, out));
    Status status = check_stages(*out, stage, n, at < end ? lines + 1 : 0);
    if (status == OK) return OK;
    plan_destroy(*out);
    *out = NULL;
    return status;
}
