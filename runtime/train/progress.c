// SPDX-License-Identifier: Apache-2.0
// Progress for people: a line that rewrites itself on a terminal, plain lines elsewhere.
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "runtime/train/train.h"

void progress_start(Progress *progress, FILE *out, double interval) {
    const char *term = getenv("TERM");
    bool live = out && isatty(fileno(out)) && term && strcmp(term, "dumb");
    *progress = (Progress) { .out = out, .live = live, .interval = interval, .last = -1e300 };
}

static int columns(FILE *out) {
    struct winsize size;
    return ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col - 1 : 79;
}

void progress_show(Progress *progress, bool force, const char *format, ...) {
    if (!progress->out) return;
    // A terminal is redrawn at most ten times a second.
    double now = time_seconds(), interval = progress->live ? 0.1 : progress->interval;
    if (!force && now - progress->last < interval) return;
    progress->last = now;
    char line[512];
    va_list list;
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    if (progress->live) fprintf(progress->out, "\r\033[K%.*s", columns(progress->out), line);
    else fprintf(progress->out, "%s\n", line);
    fflush(progress->out);
    progress->shown = progress->live;
}

void progress_say(Progress *progress, const char *format, ...) {
    if (!progress->out) return;
    if (progress->shown) fputc('\n', progress->out);
    progress->shown = false;
    va_list list;
    va_start(list, format);
    vfprintf(progress->out, format, list);
    va_end(list);
    fputc('\n', progress->out);
    fflush(progress->out);
}

void progress_compile(void *user, int done, int total, int cached) {
    progress_show(user, done == total, "compiling kernels: %d of %d (%d from the cache)", done,
                  total, cached);
}
