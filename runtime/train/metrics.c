// SPDX-License-Identifier: Apache-2.0
// metrics.jsonl: one object per line, names as OLMo-core's where it has the same thing.
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/train/train.h"

/* The file ------------------------------------------------------------------------------------- */

// Bytes of the leading lines that are whole objects of steps up to `step`.
static size_t good_bytes(const char *text, size_t n, int64_t step) {
    size_t good = 0;
    while (good < n) {
        const char *end = memchr(text + good, '\n', n - good);
        if (!end) break;
        json_t *object = json_loadb(text + good, (size_t)(end - text) - good, 0, NULL);
        const json_t *at = json_object_get(object, "step");
        bool keep = json_is_integer(at) && json_integer_value(at) <= step;
        json_decref(object);
        if (!keep) break;
        good = (size_t)(end - text) + 1;
    }
    return good;
}

Status metrics_open(const char *path, int64_t step, FILE **out) {
    if (file_exists(path)) {
        Arena *arena = arena_create();
        if (!arena) return status_fail(ERR_MEMORY, "out of memory");
        char *text;
        size_t n;
        Status status = file_read(path, arena, &text, &n);
        size_t keep = status == OK ? good_bytes(text, n, step) : 0;
        if (status == OK && keep < n && truncate(path, (off_t)keep) < 0)
            status = status_fail(ERR_IO, "cannot cut %s: %s", path, strerror(errno));
        arena_destroy(arena);
        TRY(status);
    }
    *out = fopen(path, "ae");
    if (!*out) return status_fail(ERR_IO, "cannot open %s: %s", path, strerror(errno));
    return OK;
}

Status metrics_write(FILE *file, const char *path, json_t *object) {
    char *line = object ? json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(object);
    if (!line) return status_fail(ERR_MEMORY, "no memory for a line of %s", path);
    // One write per line, so that a killed run leaves at most one torn line.
    bool good = fprintf(file, "%s\n", line) > 0 && fflush(file) == 0;
    free(line);
    return good ? OK : status_fail(ERR_IO, "cannot write %s: %s", path, strerror(errno));
}

/* A program's metrics -------------------------------------------------------------------------- */

int metrics_main_loss(const PlanProgram *program) {
    int first = -1;
    for (uint32_t i = 0; i < program->n_metrics; i++) {
        const PlanMetric *metric = &program->metrics[i];
        if (metric->weight == 0) continue;
        if (!strcmp(metric->name, "ce")) return (int)i;
        if (first < 0) first = (int)i;
    }
    return first;
}

static json_t *number(double value) {
    return isfinite(value) ? json_real(value) : json_null(); // JSON has no other numbers
}

static json_t *vector(const float *values, int64_t n) {
    json_t *list = json_array();
    for (int64_t i = 0; list && i < n; i++) json_array_append_new(list, number(values[i]));
    return list;
}

// Largest over mean: 1 is perfect balance, n is everything in one place.
static double imbalance(const float *values, int64_t n) {
    double sum = 0, most = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += values[i];
        most = fmax(most, values[i]);
    }
    return sum > 0 ? most * (double)n / sum : 1;
}

Status metrics_of_program(const Exec *exec, const PlanProgram *program, json_t *object) {
    int main_loss = metrics_main_loss(program);
    double total = 0;
    for (uint32_t i = 0; i < program->n_metrics; i++) {
        const PlanMetric *metric = &program->metrics[i];
        int64_t n;
        const float *values = exec_metric(exec, program, i, &n);
        char name[256];
        snprintf(name, sizeof name, "train/%s", (int)i == main_loss ? "CE loss" : metric->name);
        json_object_set_new(object, name, n == 1 ? number(values[0]) : vector(values, n));
        if (metric->weight != 0 && n == 1) total += metric->weight * values[0];
        const char *last = strrchr(metric->name, '.');
        int layer;
        if (n == 1 || strcmp(last ? last + 1 : metric->name, "load")) continue;
        if (sscanf(metric->name, "layers.%d.", &layer) == 1)
            snprintf(name, sizeof name, "train/block %02d/load imbalance", layer);
        else snprintf(name, sizeof name, "train/%s imbalance", metric->name);
        json_object_set_new(object, name, number(imbalance(values, n)));
    }
    json_object_set_new(object, "train/total loss", number(total));
    return OK;
}
