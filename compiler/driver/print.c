// SPDX-License-Identifier: Apache-2.0
// What is printed fits the terminal: lines that are too long go on below the field in which they end. Into files and
// pipes lines go as they are.
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "compiler/driver/driver.h"

enum { NARROWEST = 40 };

// Columns of the terminal, or of $COLUMNS where that is set; 0: no limit.
static size_t columns(void) {
    const char *said = getenv("COLUMNS");
    long n = said ? strtol(said, NULL, 10) : 0;
    struct winsize size;
    if (n <= 0 && isatty(1) && !ioctl(1, TIOCGWINSZ, &size)) n = size.ws_col;
    return n >= NARROWEST ? (size_t)n : 0;
}

// Where the last field of the line begins that has a third of the width at least: fields are two blanks apart.
static size_t field_of(const char *line, size_t n, size_t width) {
    size_t at = 4;
    for (size_t i = 2; i < n && i <= width * 2 / 3; i++)
        if (line[i] != ' ' && line[i - 1] == ' ' && line[i - 2] == ' ') at = i;
    return at;
}

// How much of what is left goes into `room` columns: up to the last blank, or comma within a layout, that is beyond
// `least`.
static size_t piece(const char *line, size_t n, size_t least, size_t room) {
    if (n <= room) return n;
    for (size_t i = room; i > least; i--)
        if (line[i] == ' ' || line[i - 1] == ',') return i;
    return room;
}

static void wrap(const char *line, size_t n, size_t width, Text *out) {
    size_t field = field_of(line, n, width), room = width;
    for (bool first = true; n; first = false, room = width - field) {
        size_t part = piece(line, n, first ? field : 0, room);
        if (!first) text_printf(out, "%*s", (int)field, "");
        text_add_n(out, line, part);
        line += part;
        n -= part;
        while (n && *line == ' ') line++, n--;
        if (n) text_add(out, "\n");
    }
}

void driver_print(const char *text) {
    size_t width = columns();
    Text out = { 0 };
    while (*text) {
        size_t n = strcspn(text, "\n");
        if (width && n > width) wrap(text, n, width, &out);
        else text_add_n(&out, text, n);
        text += n;
        if (*text) text_add_n(&out, text++, 1);
    }
    fputs(text_cstr(&out), stdout);
    text_finish(&out);
}
