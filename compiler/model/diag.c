// SPDX-License-Identifier: Apache-2.0
// Diagnostics: the message of the last failure, and its printed form with the source line and a
// caret.
#include "compiler/model/private.h"

#include <stdio.h>

void diag_set(Model *m, const char *format, ...) {
    memset(&m->diag, 0, sizeof m->diag);
    va_list list;
    va_start(list, format);
    vsnprintf(m->diag.message, sizeof m->diag.message, format, list);
    va_end(list);
}

void diag_hint(Model *m, const char *format, ...) {
    va_list list;
    va_start(list, format);
    vsnprintf(m->diag.hint, sizeof m->diag.hint, format, list);
    va_end(list);
}

// The line `number` (from 1) of a text, without its end; NULL if there is none.
static const char *find_line(const char *text, uint32_t number, size_t *bytes) {
    for (uint32_t i = 1; text && i < number; i++) {
        text = strchr(text, '\n');
        if (text) text++;
    }
    if (!text || !number) return NULL;
    *bytes = strcspn(text, "\r\n");
    return text;
}

// Whether a terminal would act on the byte instead of showing it.
static bool is_control(const char *line, size_t bytes, size_t i) {
    unsigned char c = (unsigned char)line[i];
    if (i && line[i - 1] == '\xc2' && c >= 0x80 && c < 0xa0) return true; // C1 in UTF-8
    if (c == 0xc2 && i + 1 < bytes) return (unsigned char)line[i + 1] < 0xa0;
    return (c < ' ' && c != '\t') || c == 0x7f;
}

static void print_line(const char *line, size_t bytes, Text *out) {
    for (size_t i = 0; i < bytes; i++) {
        if (is_control(line, bytes, i))
            text_printf(out, "\\x%02x", (unsigned char)line[i]);
        else
            text_add_n(out, line + i, 1);
    }
}

// The same for text of several lines: messages quote the spec.
static void print_text(const char *before, const char *text, Text *out) {
    text_add(out, before);
    for (size_t n; n = strcspn(text, "\n"), text[n]; text += n + 1) {
        print_line(text, n, out);
        text_add(out, "\n");
    }
    print_line(text, strlen(text), out);
    text_add(out, "\n");
}

// Columns that the byte takes where the line is shown: those of its character if it is the first
// of one, 0 after that. Kana, ideographs, Hangul and what lies beyond them, mostly emoji, take two.
static int columns_of(const char *line, size_t bytes, size_t i) {
    if (i >= bytes) return 1;
    if (is_control(line, bytes, i)) return 4;
    unsigned char c = (unsigned char)line[i];
    if (c >= 0x80 && c < 0xc0) return 0;
    return (c >= 0xe3 && c <= 0xed) || c >= 0xf0 ? 2 : 1;
}

static void print_caret(const char *line, size_t bytes, Loc loc, Text *out) {
    size_t from = loc.col - 1u;
    text_add(out, "     | ");
    // Tabs stay tabs, so that the caret stands under its column whatever their width.
    for (size_t i = 0; i < from; i++) {
        bool tab = i < bytes && line[i] == '\t';
        text_printf(out, "%*s", tab ? 1 : columns_of(line, bytes, i), tab ? "\t" : "");
    }
    text_add(out, "^");
    size_t to = from + (loc.len ? loc.len : 1u);
    if (to > bytes) to = bytes;
    for (size_t i = from + 1; i < to; i++)
        text_printf(out, "%.*s", columns_of(line, bytes, i), "~~~~");
    text_add(out, "\n");
}

void diag_print(const Model *m, Loc loc, const char *message, const char *in,
                const char *const *notes, int n_notes, const char *hint, Text *out) {
    const SourceFile *file = loc.file && loc.file <= m->n_files ? &m->files[loc.file - 1] : NULL;
    if (file) {
        print_line(file->path, strlen(file->path), out);
        text_add(out, ":");
        if (loc.line) text_printf(out, "%u:", loc.line);
        if (loc.line && loc.col) text_printf(out, "%u:", (unsigned)loc.col);
        text_add(out, " ");
    }
    print_text("error: ", message, out);
    size_t bytes = 0;
    const char *line = file ? find_line(file->text, loc.line, &bytes) : NULL;
    if (line) {
        text_printf(out, "%4u | ", loc.line);
        print_line(line, bytes, out);
        text_add(out, "\n");
        if (loc.col) print_caret(line, bytes, loc, out);
    }
    if (in && *in) print_text("  in:   ", in, out);
    for (int i = 0; i < n_notes; i++) print_text("  note: ", notes[i], out);
    if (hint && *hint) print_text("  hint: ", hint, out);
}
