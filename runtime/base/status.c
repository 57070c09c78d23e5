// SPDX-License-Identifier: Apache-2.0
// The last failure of each thread: its message, and the places it passed through.
#include <stdio.h>

#include "runtime/base/base.h"

static _Thread_local char message[2048];
static _Thread_local char trail[512];

static const struct { int exit_status; const char *text; } statuses[] = {
#define X(name, exit_status, text) { exit_status, text },
    STATUS_TABLE(X)
#undef X
};

Status status_fail(Status status, const char *format, ...) {
    // The message may quote the previous one, so it is built aside.
    char next[sizeof message];
    va_list list;
    va_start(list, format);
    vsnprintf(next, sizeof next, format, list);
    va_end(list);
    memcpy(message, next, sizeof message);
    if (!message[0]) snprintf(message, sizeof message, "%s", statuses[status].text);
    trail[0] = 0;
    return status;
}

Status status_trail(Status status, const char *file, int line) {
    size_t used = strlen(trail);
    snprintf(trail + used, sizeof trail - used, "%s%s:%d", used ? " < " : "", file, line);
    return status;
}

const char *status_message(void) {
    return message;
}

const char *status_trail_text(void) {
    return trail;
}

int status_exit(Status status) {
    return statuses[status].exit_status;
}
