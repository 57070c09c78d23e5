// SPDX-License-Identifier: Apache-2.0
// Reads rows of published speeds: comma-separated, no commas and no quotes in cells, one line each. A word that is not one of
// its column's, or a number that is none, would make a wrong prediction look like a published one, so each cell is checked.
#include "compiler/driver/published_rows.h"

#include <math.h>
#include <stdlib.h>

typedef enum CellKind { CELL_TEXT, CELL_NAME /* some text */, CELL_WORD, CELL_COUNT, CELL_COUNT_OR_NONE, CELL_SHARE,
                        CELL_NUMBER_OR_NONE } CellKind;

enum { MOST_WORDS = 3 + 1 /* a NULL ends them */, MOST_COUNT = 1 << 24 };

static const struct { const char *name; CellKind kind; const char *words[MOST_WORDS]; } columns[N_COLUMNS] = {
#define WORDS(kind, ...) kind, { __VA_ARGS__ }
#define X(name, ...) { #name, WORDS(__VA_ARGS__, NULL) },
    PUBLISHED_COLUMNS(X)
#undef X
#undef WORDS
};

static const char form[] = "\n  hint: tests/search/published.csv has rows of this form, docs/search.md says what they mean";

/* Cells ---------------------------------------------------------------------------------------- */

static Status wrong_cell(const Table *t, const Row *row, Column c, const char *expected) {
    return status_fail(ERR_FORMAT, "%s:%d: %s is '%s', expected %s%s", t->path, row->line, columns[c].name, row->cell[c],
                       expected, form);
}

static Status check_word(const Table *t, const Row *row, Column c) {
    const char *const *words = columns[c].words;
    Text expected = { 0 };
    int n = 0;
    for (; words[n]; n++) {
        if (!strcmp(words[n], row->cell[c])) {
            text_finish(&expected);
            return OK;
        }
        text_printf(&expected, "%s%s", n ? "|" : "", words[n]);
    }
    const char *near = text_nearest(row->cell[c], words, n);
    Status status = near ? status_fail(ERR_FORMAT, "%s:%d: %s is '%s', expected %s\n  hint: did you mean '%s'?", t->path,
                                       row->line, columns[c].name, row->cell[c], text_cstr(&expected), near)
                         : wrong_cell(t, row, c, text_cstr(&expected));
    text_finish(&expected);
    return status;
}

// What atof would take of "64x", and infinity, are no numbers.
static bool read_number(const char *text, double *out) {
    char *end;
    *out = strtod(text, &end);
    return end != text && !*end && strspn(text, "0123456789.eE+-") == strlen(text) && isfinite(*out);
}

static Status check_number(const Table *t, Row *row, Column c) {
    CellKind kind = columns[c].kind;
    const char *text = row->cell[c];
    double *x = &row->number[c];
    bool none = kind == CELL_COUNT_OR_NONE || kind == CELL_NUMBER_OR_NONE;
    if (none && !*text) return OK;
    bool is_number = read_number(text, x);
    if (kind == CELL_SHARE) return is_number && *x >= 0 && *x <= 1 ? OK : wrong_cell(t, row, c, "a share from 0 to 1");
    if (kind == CELL_NUMBER_OR_NONE)
        return is_number && *x > 0 ? OK : wrong_cell(t, row, c, "a number above 0, or nothing");
    bool whole = is_number && *x >= 1 && *x <= MOST_COUNT && *x == floor(*x);
    return whole ? OK : wrong_cell(t, row, c, none ? "a whole number from 1 to 16777216, or nothing"
                                                   : "a whole number from 1 to 16777216");
}

static Status check_cell(const Table *t, Row *row, Column c) {
    switch (columns[c].kind) {
    case CELL_TEXT: return OK;
    case CELL_NAME: return *row->cell[c] ? OK : wrong_cell(t, row, c, "a name");
    case CELL_WORD:
        row->number[c] = atof(row->cell[c]); // of words that are numbers
        return check_word(t, row, c);
    default: return check_number(t, row, c);
    }
}

static Status check_row(const Table *t, Row *row) {
    for (Column c = 0; c < N_COLUMNS; c++) TRY(check_cell(t, row, c));
    if (row->number[COLUMN_tokens_per_s] > 0 || row->number[COLUMN_tflop_per_s] > 0) return OK;
    return status_fail(ERR_FORMAT, "%s:%d: expected tokens_per_s or tflop_per_s, found neither%s", t->path, row->line, form);
}

/* Lines ---------------------------------------------------------------------------------------- */

// How many cells the line has, of which the first N_COLUMNS are kept.
static int split_line(char *line, const char *cells[N_COLUMNS]) {
    for (int n = 0;; line++) {
        if (n < N_COLUMNS) cells[n] = line;
        n++;
        line += strcspn(line, ",");
        if (!*line) return n;
        *line = 0;
    }
}

static Status check_head(const char *path, char *line) {
    const char *head[N_COLUMNS];
    int n = split_line(line, head);
    for (int i = 0; i < N_COLUMNS; i++)
        if (i >= n || strcmp(head[i], columns[i].name))
            return status_fail(ERR_FORMAT, "%s:1: column %d is '%s', expected '%s'%s", path, i + 1, i < n ? head[i] : "",
                               columns[i].name, form);
    if (n == N_COLUMNS) return OK;
    return status_fail(ERR_FORMAT, "%s:1: expected %d columns, found %d%s", path, N_COLUMNS, n, form);
}

static Status read_row(Table *t, Arena *arena, char *text, int line) {
    Row *row = ARENA_PUSH(arena, t->rows, t->n, t->cap);
    *row = (Row){ .line = line };
    int n = split_line(text, row->cell);
    if (n != N_COLUMNS)
        return status_fail(ERR_FORMAT, "%s:%d: expected %d columns, found %d\n  hint: cells have no commas, and quotes mean "
                           "nothing", t->path, line, N_COLUMNS, n);
    return check_row(t, row);
}

Status published_read(const char *path, Arena *arena, Table *out) {
    char *text;
    size_t bytes;
    TRY(file_read(path, arena, &text, &bytes));
    *out = (Table){ .path = path };
    if (strlen(text) != bytes) return status_fail(ERR_FORMAT, "%s: expected text, found a byte that is 0%s", path, form);
    int line = 0;
    for (char *at = text, *next; *at; at = next) {
        char *end = at + strcspn(at, "\n");
        next = end + (*end == '\n');
        if (end > at && end[-1] == '\r') end--;
        *end = 0;
        if (++line == 1) TRY(check_head(path, at));
        else if (*at) TRY(read_row(out, arena, at, line));
    }
    return out->n ? OK : status_fail(ERR_FORMAT, "%s: no rows%s", path, form);
}

Status published_refuse(const Table *table, const Row *row) {
    const char *hint = strstr(status_message(), "\n  hint: ") ? "" : form;
    return status_fail(ERR_FORMAT, "%s:%d: %s%s", table->path, row->line, status_message(), hint);
}
