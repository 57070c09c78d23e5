// SPDX-License-Identifier: Apache-2.0
// One line to stderr per call, written at once so that lines of several processes do not mix.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/base/base.h"

static const char *const level_names[] = { "error", "warn", "info", "debug" };

static char prefix[24];

void log_rank(int rank) {
    if (rank) snprintf(prefix, sizeof prefix, "[rank %d] ", rank);
}

const char *log_prefix(void) {
    return prefix;
}

bool log_enabled(LogLevel level) {
    const char *wanted = getenv("MOEC_LOG");
    LogLevel limit = LOG_INFO;
    for (int i = 0; wanted && i < COUNT_OF(level_names); i++)
        if (!strcmp(wanted, level_names[i])) limit = (LogLevel)i;
    return level <= limit;
}

void log_line(LogLevel level, const char *format, ...) {
    if (!log_enabled(level)) return;
    char line[4096];
    int n = snprintf(line, sizeof line, "%s%s%s", prefix, level == LOG_INFO ? "" : level_names[level],
                     level == LOG_INFO ? "" : ": ");
    va_list list;
    va_start(list, format);
    int more = vsnprintf(line + n, sizeof line - (size_t)n - 1, format, list);
    va_end(list);
    n += more < (int)sizeof line - n - 1 ? more : (int)sizeof line - n - 2;
    line[n++] = '\n';
    ssize_t written = write(STDERR_FILENO, line, (size_t)n);
    (void)written; // a closed stderr must not stop a run
}
