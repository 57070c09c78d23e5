// SPDX-License-Identifier: Apache-2.0
// Both forms become a row of numbers for each step, as wide as the experts of all layers. The first step says which
// layers there are and where in a row each begins; every other step must have the same.
#include "compiler/search/load.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

// In fp64 sums of so many are whole, and no sum is infinite.
#define LOAD_MOST 1e12

// A number as it was found.
typedef struct Cell { int64_t step, line; int32_t layer, expert; double rows; } Cell;

typedef struct Reader {
    const char *name;
    Arena *arena;
    Load *out;
    int64_t line;                // from 1
    int32_t cap_layers, cap_steps;
    double speed; int64_t n_speeds;
} Reader;

static Status refuse(const Reader *r, int64_t line, const char *format, ...) PRINTF_LIKE(3, 4);
static Status refuse(const Reader *r, int64_t line, const char *format, ...) {
    Text text = { 0 };
    va_list list;
    va_start(list, format);
    text_vprintf(&text, format, list);
    va_end(list);
    Status status = status_fail(ERR_INPUT, "%s:%lld: %s", r->name, (long long)line, text_cstr(&text));
    text_finish(&text);
    return status;
}

static Status refuse_load(const Reader *r, int64_t line, int32_t layer, int64_t expert, const char *found) {
    return refuse(r, line, "the load of expert %lld of layer %d must be a number from 0 to %g, got %s",
                  (long long)expert, layer, LOAD_MOST, found);
}

/* Rows of all layers --------------------------------------------------------------------------- */

static LoadLayer *find_layer(Load *load, int32_t layer) {
    for (int32_t i = 0; i < load->n_layers; i++)
        if (load->layers[i].layer == layer) return &load->layers[i];
    return NULL;
}

// The place of a layer in rows; before the first row is complete it is made. NULL: refused.
static LoadLayer *place_of(Reader *r, int32_t layer, int64_t experts, Status *status) {
    Load *load = r->out;
    LoadLayer *found = find_layer(load, layer);
    if (found) found->line = r->line;
    if (!found && load->n_steps) {
        *status = refuse(r, r->line, "a load of layer %d, which step %lld does not have", layer,
                         (long long)load->steps[0]);
        return NULL;
    }
    if (found && found->experts != experts) {
        *status = refuse(r, r->line, "layer %d has %lld experts, and %d before", layer, (long long)experts,
                         found->experts);
        return NULL;
    }
    if (found) return found;
    int32_t at = load->n_layers;
    ARENA_PUSH(r->arena, load->layers, load->n_layers, r->cap_layers);
    for (; at > 0 && load->layers[at - 1].layer > layer; at--) load->layers[at] = load->layers[at - 1];
    load->layers[at] = (LoadLayer){ .layer = layer, .experts = (int32_t)experts, .line = r->line };
    load->width = 0;
    for (int32_t i = 0; i < load->n_layers; i++) {
        load->layers[i].at = load->width;
        load->width += load->layers[i].experts;
    }
    return &load->layers[at];
}

// The row of a step, zeroed. Its width is known.
static double *add_step(Reader *r, int64_t step) {
    Load *load = r->out;
    int32_t n = load->n_steps;
    if (n == r->cap_steps) {
        int32_t cap = r->cap_steps ? 2 * r->cap_steps : 16;
        size_t row = sizeof *load->rows * (size_t)load->width;
        load->rows = arena_grow(r->arena, load->rows, row * (size_t)n, row * (size_t)cap);
        load->steps = arena_grow(r->arena, load->steps, sizeof *load->steps * (size_t)n,
                                 sizeof *load->steps * (size_t)cap);
        r->cap_steps = cap;
    }
    load->steps[n] = step;
    load->n_steps++;
    return load->rows + n * load->width;
}

/* Lines of JSON -------------------------------------------------------------------------------- */

// The layer of "train/block 02/load", or of a second route of a layer, "train/layers.2.ffn.other.load";
// 0: another key.
static int32_t layer_of_key(const char *key) {
    int layer = 0, end = 0;
    size_t n = strlen(key);
    if (sscanf(key, "train/block %5d/load%n", &layer, &end) == 1 && end == (int)n)
        return layer > 0 ? layer : 0;
    if (n < 5 || strcmp(key + n - 5, ".load")) return 0;
    return sscanf(key, "train/layers.%5d.", &layer) == 1 && layer > 0 ? layer : 0;
}

static const char *kind_of(const json_t *value, char out[40]) {
    if (!json_is_number(value))
        return json_is_null(value) ? "null, which stands for what is not finite" : "no number";
    snprintf(out, 40, "%g", json_number_value(value));
    return out;
}

// Makes the place of a list of loads.
static Status see_list(Reader *r, const char *key, const json_t *list) {
    Status status = OK;
    size_t n = json_array_size(list);
    if (!json_is_array(list) || n < 1 || n > LOAD_MOST_EXPERTS)
        return refuse(r, r->line, "\"%s\" must be a list of 1 to %d loads", key, LOAD_MOST_EXPERTS);
    place_of(r, layer_of_key(key), (int64_t)n, &status);
    return status;
}

static Status add_list(Reader *r, int32_t layer, const json_t *list, double *row) {
    const LoadLayer *place = find_layer(r->out, layer);
    for (int32_t e = 0; e < place->experts; e++) {
        char text[40];
        const json_t *value = json_array_get(list, (size_t)e);
        double rows = json_is_number(value) ? json_number_value(value) : -1;
        if (!(rows >= 0 && rows <= LOAD_MOST)) return refuse_load(r, r->line, layer, e, kind_of(value, text));
        row[place->at + e] += rows; // of all routes of the layer
    }
    return OK;
}

static Status read_step(Reader *r, const json_t *object, int64_t *step) {
    const json_t *value = json_object_get(object, "step");
    const Load *load = r->out;
    int64_t last = load->n_steps ? load->steps[load->n_steps - 1] : -1;
    *step = value ? json_integer_value(value) : last + 1;
    if (value && (!json_is_integer(value) || *step < 0))
        return refuse(r, r->line, "\"step\" must be a whole number from 0 on");
    if (*step <= last)
        return refuse(r, r->line, "step %lld after step %lld", (long long)*step, (long long)last);
    return OK;
}

static Status read_object(Reader *r, json_t *object) {
    const char *key;
    json_t *value;
    int64_t step;
    Load *load = r->out;
    json_object_foreach(object, key, value)
        if (layer_of_key(key)) TRY(see_list(r, key, value));
    TRY(read_step(r, object, &step));
    double *row = NULL;
    json_object_foreach(object, key, value) {
        int32_t layer = layer_of_key(key);
        if (!layer) continue;
        if (!row) row = add_step(r, step);
        TRY(add_list(r, layer, value, row));
    }
    for (int32_t i = 0; i < load->n_layers && row; i++)
        if (load->layers[i].line != r->line)
            return refuse(r, r->line, "no load of layer %d, which step %lld has", load->layers[i].layer,
                          (long long)load->steps[0]);
    const json_t *speed = json_object_get(object, "throughput/device/TPS");
    if (row && json_is_number(speed) && json_number_value(speed) > 0) {
        r->speed += json_number_value(speed);
        r->n_speeds++;
    }
    return OK;
}

static Status read_line(Reader *r, const char *text, size_t bytes, bool torn) {
    json_error_t error;
    json_t *object = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (!json_is_object(object)) {
        json_decref(object);
        if (torn) return OK;
        return refuse(r, r->line, "expected an object of JSON%s%s", object ? "" : ": ",
                      object ? "" : error.text);
    }
    Status status = read_object(r, object);
    json_decref(object);
    return status;
}

static Status read_lines(Reader *r, const char *text, size_t bytes) {
    for (const char *end = text + bytes; text < end; r->line++) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        size_t n = (size_t)((stop ? stop : end) - text);
        if (n && strspn(text, " \t\r") < n) TRY(read_line(r, text, n, !stop));
        text += n + (stop != NULL);
    }
    return OK;
}

/* CSV ------------------------------------------------------------------------------------------ */

enum { COLUMN_layer, COLUMN_expert, COLUMN_load, COLUMN_step, N_COLUMNS };
static const char *const columns[N_COLUMNS] = { "layer", "expert", "load", "step" };

// Cuts the next field of a line off, without blanks around it.
static bool next_field(const char **at, const char *end, const char **field, size_t *bytes) {
    if (!*at) return false;
    const char *comma = memchr(*at, ',', (size_t)(end - *at)), *stop = comma ? comma : end;
    while (*at < stop && strchr(" \t\r", **at)) ++*at;
    *field = *at;
    *bytes = (size_t)(stop - *at);
    while (*bytes && strchr(" \t\r", (*field)[*bytes - 1])) --*bytes;
    *at = comma ? comma + 1 : NULL;
    return true;
}

static Status read_header(Reader *r, const char *at, const char *end, int32_t place[N_COLUMNS]) {
    const char *field, *from = at;
    size_t bytes;
    for (int c = 0; c < N_COLUMNS; c++) place[c] = -1;
    for (int32_t i = 0; next_field(&at, end, &field, &bytes); i++)
        for (int c = 0; c < N_COLUMNS; c++) {
            if (strlen(columns[c]) != bytes || memcmp(columns[c], field, bytes)) continue;
            if (place[c] >= 0) return refuse(r, r->line, "two columns '%s'", columns[c]);
            place[c] = i;
        }
    for (int c = 0; c < COLUMN_step; c++)
        if (place[c] < 0)
            return refuse(r, r->line, "no column '%s', the header is '%.*s'\n"
                          "  hint: layer,expert,load and, with several steps, step; or lines of JSON as in a "
                          "run's metrics.jsonl", columns[c], (int)min_i64(end - from, 200), from);
    return OK;
}

static bool read_number(const char *field, size_t bytes, double *out) {
    char text[64], *end;
    if (!bytes || bytes >= sizeof text) return false;
    memcpy(text, field, bytes);
    text[bytes] = 0;
    *out = strtod(text, &end);
    return !*end && strspn(text, "0123456789.eE+-") == bytes && isfinite(*out);
}

static Status read_cell(Reader *r, int column, const char *field, size_t bytes, Cell *cell) {
    double value;
    bool number = read_number(field, bytes, &value);
    static const double least[] = { 1, 0, 0, 0 },
                        most[] = { LOAD_MOST_LAYERS, LOAD_MOST_EXPERTS - 1, LOAD_MOST, 1e15 };
    int shown = (int)min_i64((int64_t)bytes, 40);
    bool whole = column != COLUMN_load;
    if (!number || (whole && value != nearbyint(value)) || value < least[column] || value > most[column])
        return refuse(r, r->line, "the %s must be a %snumber from %g to %g, got '%.*s'", columns[column],
                      whole ? "whole " : "", least[column], most[column], shown, field);
    if (column == COLUMN_layer) cell->layer = (int32_t)value;
    if (column == COLUMN_expert) cell->expert = (int32_t)value;
    if (column == COLUMN_load) cell->rows = value;
    if (column == COLUMN_step) cell->step = (int64_t)value;
    return OK;
}

static Status read_cells(Reader *r, const char *at, const char *end, const int32_t place[N_COLUMNS], Cell *cell) {
    const char *field;
    size_t bytes;
    int found = 0, wanted = 3 + (place[COLUMN_step] >= 0);
    *cell = (Cell){ .line = r->line };
    for (int32_t i = 0; next_field(&at, end, &field, &bytes); i++)
        for (int c = 0; c < N_COLUMNS; c++)
            if (place[c] == i) {
                TRY(read_cell(r, c, field, bytes, cell));
                found++;
            }
    return found == wanted ? OK : refuse(r, r->line, "%d of the %d columns", found, wanted);
}

static int by_place(const void *left, const void *right) {
    const Cell *a = left, *b = right;
    if (a->step != b->step) return a->step < b->step ? -1 : 1;
    if (a->layer != b->layer) return a->layer < b->layer ? -1 : 1;
    return (a->expert > b->expert) - (a->expert < b->expert);
}

// A cell of a layer, after another one of it; `expert` is next.
static Status check_cell(Reader *r, const Cell *cell, const Cell *before, int64_t expert) {
    r->line = cell->line;
    if (cell->expert == expert) return OK;
    if (before && cell->expert == before->expert)
        return refuse(r, r->line, "expert %d of layer %d again", cell->expert, cell->layer);
    return refuse(r, r->line, "layer %d has an expert %d and no expert %lld", cell->layer, cell->expert,
                  (long long)expert);
}

// The cells of one step, in order.
static Status add_cells(Reader *r, const Cell *cells, int64_t n) {
    double *row = NULL;
    int32_t layers = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0, k; i < n; i = k) {
            Status status = OK;
            for (k = i; k < n && cells[k].layer == cells[i].layer; k++)
                TRY(check_cell(r, &cells[k], k > i ? &cells[k - 1] : NULL, k - i));
            r->line = cells[i].line;
            const LoadLayer *place = place_of(r, cells[i].layer, k - i, &status);
            if (!place) return status;
            for (int64_t e = i; e < k && pass; e++) row[place->at + e - i] = cells[e].rows;
            layers += !pass;
        }
        if (!pass) row = add_step(r, cells[0].step);
    }
    if (layers == r->out->n_layers) return OK;
    return refuse(r, r->line, "step %lld has loads of %d layers, and step %lld of %d", (long long)cells[0].step,
                  layers, (long long)r->out->steps[0], r->out->n_layers);
}

static Status read_csv(Reader *r, const char *text, size_t bytes) {
    int32_t place[N_COLUMNS];
    Cell *cells = NULL;
    int64_t n = 0, cap = 0;
    for (const char *end = text + bytes; text < end; r->line++) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        if (!stop) stop = end;
        if (r->line == 1) TRY(read_header(r, text, stop, place));
        else if (stop > text && strspn(text, " \t\r") < (size_t)(stop - text))
            TRY(read_cells(r, text, stop, place, ARENA_PUSH(r->arena, cells, n, cap)));
        text = stop + (stop < end);
    }
    if (n) qsort(cells, (size_t)n, sizeof *cells, by_place);
    for (int64_t i = 0, k; i < n; i = k) {
        for (k = i; k < n && cells[k].step == cells[i].step;) k++;
        TRY(add_cells(r, cells + i, k - i));
    }
    return OK;
}

/* Files ---------------------------------------------------------------------------------------- */

static bool is_json(const char *text, size_t bytes) {
    size_t blank = strspn(text, " \t\r\n");
    return blank < bytes && text[blank] == '{';
}

// Where the last `lines` lines begin; *line is the number of the first.
static size_t find_end(const char *text, size_t bytes, int64_t lines, int64_t *line) {
    size_t at = bytes;
    if (at && text[at - 1] == '\n') at--;
    for (int64_t found = 0; at > 0; at--)
        if (text[at - 1] == '\n' && ++found == lines) break;
    for (size_t i = 0; i < at; i++) *line += text[i] == '\n';
    return at;
}

static void keep_last(Load *load, int64_t last) {
    int64_t first = load->n_steps - last;
    if (last <= 0 || first <= 0) return;
    load->steps += first;
    load->rows += first * load->width;
    load->n_steps = (int32_t)last;
}

Status load_parse(const char *name, const char *text, size_t bytes, int64_t last, Arena *arena, Load *out) {
    Reader r = { .name = name, .arena = arena, .out = out, .line = 1 };
    *out = (Load){ 0 };
    if (bytes >= 3 && !memcmp(text, "\xef\xbb\xbf", 3)) text += 3, bytes -= 3; // byte order mark
    if (is_json(text, bytes)) {
        size_t at = last > 0 ? find_end(text, bytes, last, &r.line) : 0;
        TRY(read_lines(&r, text + at, bytes - at));
    } else {
        TRY(read_csv(&r, text, bytes));
        keep_last(out, last);
    }
    if (r.n_speeds) out->tokens_per_s = r.speed / (double)r.n_speeds;
    return OK;
}

Status load_read(const char *path, int64_t last, Arena *arena, Load *out) {
    char *text;
    size_t bytes;
    TRY(file_read(path, arena, &text, &bytes));
    return load_parse(path, text, bytes, last, arena, out);
}

void load_sum(const Load *load, int32_t first, int32_t end, double *out) {
    for (int64_t i = 0; i < load->width; i++) out[i] = 0;
    for (int32_t s = first; s < end; s++)
        for (int64_t i = 0; i < load->width; i++) out[i] += load->rows[s * load->width + i];
}
