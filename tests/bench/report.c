// SPDX-License-Identifier: Apache-2.0
// Tables: rows are printed as soon as they are known, and kept for the JSON file.
#include <math.h>
#include <stdlib.h>

#include "tests/bench/bench.h"

void report_open(Report *report) {
    *report = (Report){.root = json_object()};
    json_object_set_new(report->root, "notes", json_array());
    json_object_set_new(report->root, "sections", json_object());
}

static json_t *cell_json(Cell cell) {
    if (cell.text) return json_string(cell.text);
    return isfinite(cell.number) ? json_real(cell.number) : json_null();
}

void report_fact(Report *report, const char *key, Cell value) {
    if (value.text)
        printf("%-22s %s\n", key, value.text);
    else
        printf("%-22s %.6g\n", key, value.number);
    json_object_set_new(report->root, key, cell_json(value));
}

static void print_cell(const Column *column, Cell cell) {
    char text[64];
    if (column->width < 0) {
        printf("%-*s ", -column->width, cell.text ? cell.text : "-");
        return;
    }
    snprintf(text, sizeof text, "%.*f", column->decimals, cell.number);
    printf("%*s ", column->width, cell.text ? cell.text : isfinite(cell.number) ? text : "-");
}

void report_section(Report *report, const char *key, const char *title, const Column *columns,
                    int n) {
    json_t *sections = json_object_get(report->root, "sections");
    report->rows = json_object_get(sections, key);
    if (!report->rows) {
        report->rows = json_array();
        json_object_set_new(sections, key, report->rows);
    }
    report->columns = columns;
    report->n_columns = n;
    printf("\n%s\n", title);
    for (int i = 0; i < n; i++) {
        int width = columns[i].width;
        if (width < 0)
            printf("%-*s ", -width, columns[i].title);
        else
            printf("%*s ", width, columns[i].title);
    }
    printf("\n");
    fflush(stdout);
}

void report_row(Report *report, const Cell *cells) {
    json_t *row = json_object();
    for (int i = 0; i < report->n_columns; i++) {
        print_cell(&report->columns[i], cells[i]);
        json_object_set_new(row, report->columns[i].key, cell_json(cells[i]));
    }
    printf("\n");
    fflush(stdout);
    json_array_append_new(report->rows, row);
}

void report_note(Report *report, const char *format, ...) {
    Text text = {0};
    va_list list;
    va_start(list, format);
    text_vprintf(&text, format, list);
    va_end(list);
    printf("%s\n", text_cstr(&text));
    fflush(stdout);
    json_array_append_new(json_object_get(report->root, "notes"), json_string(text_cstr(&text)));
    text_finish(&text);
}

Status report_write(const Report *report, const char *path) {
    char *text = json_dumps(report->root, JSON_INDENT(1));
    if (!text) return status_fail(ERR_MEMORY, "no memory for the results");
    Status status = file_write_atomic(path, text, strlen(text));
    free(text);
    return status;
}

void report_close(Report *report) { json_decref(report->root); }
