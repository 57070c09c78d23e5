// SPDX-License-Identifier: Apache-2.0
// metrics.jsonl: one object per line, names as OLMo-core's where it has the same thing.
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/train/train.h"

/* The file ------------------------------------------------------------------------------------- */

// Whether a line is a whole object of a step up to `step`; visited if so.
static bool good_line(const char *line, size_t n, int64_t step, MetricsVisit visit, void *user) {
    if (line[n - 1] != '\n') return false;
    json_t *object = json_loadb(line, n - 1, 0, NULL);
    const json_t *at = json_object_get(object, "step");
    bool keep = json_is_integer(at) && json_integer_value(at) <= step;
    if (keep && visit) visit(user, object);
    json_decref(object);
    return keep;
}

typedef struct Lines {
    FILE *file;
    char *line;
    size_t cap;
    Held held;
} Lines;

static void close_lines(void *user) {
    Lines *lines = user;
    memory_drop(&lines->held);
    free(lines->line);
    fclose(lines->file);
}

// Cuts the file after its leading good lines. A line at a time: files of long runs are large.
static Status cut(const char *path, int64_t step, MetricsVisit visit, void *user) {
    Lines lines = { .file = fopen(path, "re") };
    if (!lines.file)
        return status_fail(status_errno(errno), "cannot open %s: %s", path, strerror(errno));
    memory_hold(&lines.held, close_lines, &lines);
    off_t good = 0;
    ssize_t n;
    while ((n = getline(&lines.line, &lines.cap, lines.file)) > 0 &&
           good_line(lines.line, (size_t)n, step, visit, user))
        good += n;
    // getline also ends where it finds no memory.
    bool failed = (n < 0 && !feof(lines.file)) || (n > 0 && truncate(path, good) < 0);
    Status status =
        failed ? status_fail(status_errno(errno), "cannot cut %s: %s", path, strerror(errno)) : OK;
    close_lines(&lines);
    return status;
}

Status metrics_open(const char *path, int64_t step, MetricsVisit visit, void *user, FILE **out) {
    if (file_exists(path)) TRY(cut(path, step, visit, user));
    *out = fopen(path, "ae");
    if (!*out) return status_fail(status_errno(errno), "cannot open %s: %s", path, strerror(errno));
    return OK;
}

Status metrics_write(FILE *file, const char *path, const json_t *object) {
    Text line = { 0 };
    if (!json_print(object, JSON_COMPACT | JSON_REAL_PRECISION(9), &line)) {
        text_finish(&line);
        return status_fail(ERR_MEMORY, "no memory for a line of %s", path);
    }
    bool good = fprintf(file, "%s\n", line.at) > 0 && fflush(file) == 0;
    int error = errno;
    text_finish(&line);
    return good ? OK : journal_failed(path, error);
}

/* A program's metrics -------------------------------------------------------------------------- */

int metrics_main_loss(const PlanMetric *metrics, uint32_t n) {
    int first = -1;
    for (uint32_t i = 0; i < n; i++) {
        const PlanMetric *metric = &metrics[i];
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

// A metric's address apart: "layers.3.ffn.router.balance" is `balance` of layer 3.
typedef struct Address { int layer; const char *last; } Address; // layer -1: of none

static Address address_of(const char *name) {
    Address address = { -1, strrchr(name, '.') };
    address.last = address.last ? address.last + 1 : name;
    if (sscanf(name, "layers.%d.", &address.layer) != 1) address.layer = -1;
    return address;
}

// "train/block 03/WHAT"; outside of layers, or where a layer has two, "train/ADDRESS/WHAT" or, if
// WHAT is the address's own last word, "train/ADDRESS".
static void set_for_block(json_t *object, const char *metric, const char *what, json_t *value) {
    Address address = address_of(metric);
    char name[320];
    snprintf(name, sizeof name, "train/block %02d/%s", address.layer, what);
    if (address.layer < 0 || json_object_get(object, name))
        snprintf(name, sizeof name, "train/%s%s%s", metric, strcmp(address.last, what) ? "/" : "",
                 strcmp(address.last, what) ? what : "");
    json_object_set_new(object, name, value);
}

static void add_to(json_t *object, const char *name, double value) {
    const json_t *old = json_object_get(object, name);
    double sum = value + (json_is_null(old) ? NAN : json_number_value(old));
    json_object_set_new(object, name, number(sum));
}

// OLMo-core's names of the losses that models here usually have; NULL: another.
static const char *loss_name(const PlanMetric *metric) {
    Address address = address_of(metric->name);
    if (!strcmp(metric->name, "z")) return "Z loss";
    if (address.layer >= 0 && !strcmp(address.last, "balance")) return "load balancing loss";
    if (address.layer >= 0 && !strcmp(address.last, "z")) return "router Z loss";
    return NULL;
}

// As it is weighed, which is what the total holds, and as it is; summed over layers.
static void set_loss(json_t *object, const PlanMetric *metric, const char *olmo, double value) {
    char name[320];
    snprintf(name, sizeof name, "train/%s", olmo);
    add_to(object, name, metric->weight * value);
    snprintf(name, sizeof name, "train/%s unscaled", olmo);
    add_to(object, name, value);
    if (address_of(metric->name).layer >= 0)
        set_for_block(object, metric->name, olmo, number(metric->weight * value));
}

// A sum of whole numbers: exact in fp32 up to 2^24.
static json_t *count(double value) {
    return value == nearbyint(value) && fabs(value) < 0x1p53 ? json_integer((json_int_t)value)
                                                             : number(value);
}

static json_t *counts(const float *values, int64_t n) {
    json_t *list = json_array();
    for (int64_t i = 0; list && i < n; i++) json_array_append_new(list, count(values[i]));
    return list;
}

static double sum_of(const float *values, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += values[i];
    return sum;
}

// How many tokens every expert of a route got in the step.
static void set_load(json_t *object, const PlanMetric *metric, const float *load, int64_t n) {
    double uneven = imbalance(load, n),
           most = json_number_value(json_object_get(object, "train/load imbalance"));
    set_for_block(object, metric->name, "load imbalance", number(uneven));
    json_object_set_new(object, "train/load imbalance", number(fmax(most, uneven)));
    set_for_block(object, metric->name, "load", counts(load, n));
}

// Choices that no expert served, and their part of all. What was served is the metric before: a
// route records its load, then this.
static void set_dropped(json_t *object, const PlanMetric *metric, double dropped, double served) {
    set_for_block(object, metric->name, "dropped", count(dropped));
    set_for_block(object, metric->name, "token drop rate",
                  number(dropped / fmax(dropped + served, 1)));
}

// Sets what routes record; false for another metric.
static bool set_routed(json_t *object, const PlanMetric *metric, const float *values, int64_t n,
                       double *served) {
    const char *last = address_of(metric->name).last;
    if (!metric->sum) return false;
    if (!strcmp(last, "load") && n > 1) {
        *served = sum_of(values, n);
        set_load(object, metric, values, n);
    } else if (!strcmp(last, "dropped") && n == 1) {
        set_dropped(object, metric, values[0], *served);
    } else {
        return false;
    }
    return true;
}

void metrics_print(const MetricSet *set, json_t *object) {
    int main_loss = metrics_main_loss(set->metrics, set->n);
    double total = 0, served = 0;
    for (uint32_t i = 0; i < set->n; i++) {
        const PlanMetric *metric = &set->metrics[i];
        int64_t n = set->parts[i].n;
        const float *values = set->parts[i].at;
        if (metric->weight != 0 && n == 1) total += metric->weight * values[0];
        const char *olmo = metric->weight != 0 && n == 1 ? loss_name(metric) : NULL;
        if ((int)i == main_loss) {
            json_object_set_new(object, "train/CE loss", number(values[0]));
            json_object_set_new(object, "train/PPL", number(exp(values[0])));
        } else if (olmo) {
            set_loss(object, metric, olmo, values[0]);
        } else if (!set_routed(object, metric, values, n, &served)) {
            char name[320];
            snprintf(name, sizeof name, "train/%s", metric->name);
            json_object_set_new(object, name, n == 1 ? number(values[0]) : vector(values, n));
        }
    }
    json_object_set_new(object, "train/total loss", number(total));
}
