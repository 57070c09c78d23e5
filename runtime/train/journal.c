// SPDX-License-Identifier: Apache-2.0
// The files of journal.h, kept together: a line goes to its file, to TensorBoard, to the picture.
#include <errno.h>
#include <unistd.h>

#include "runtime/train/journal.h"

static void add_point(Curve *curve, const json_t *line, const char *name) {
    const json_t *value = json_object_get(line, name);
    if (json_is_number(value))
        curve_add(curve, json_integer_value(json_object_get(line, "step")),
                  json_number_value(value));
}

static void see_step(void *user, const json_t *line) {
    Journal *journal = user;
    add_point(&journal->train, line, "train/CE loss");
}

static void see_eval(void *user, const json_t *line) {
    Journal *journal = user;
    add_point(&journal->held_out, line, "eval/CE loss");
    journal->eval_step = json_integer_value(json_object_get(line, "step"));
    journal->eval_tokens = json_integer_value(json_object_get(line, "eval/tokens"));
}

static Status join(char out[4096], const char *run, const char *name) {
    int n = snprintf(out, 4096, "%s/%s", run, name);
    return n < 4096 ? OK : status_fail(ERR_ARGUMENT, "path too long: %s/%s", run, name);
}

// The texts of the events are held by themselves.
static void close_files(void *user) {
    Journal *journal = user;
    memory_drop(&journal->held);
    if (journal->metrics) fclose(journal->metrics);
    if (journal->evals) fclose(journal->evals);
    if (journal->events.file) fclose(journal->events.file);
    journal->metrics = journal->evals = journal->events.file = NULL;
}

Status journal_open(const char *run, int64_t step, bool tensorboard, Journal *out) {
    *out = (Journal) { .run = run, .eval_step = -1 };
    memory_hold(&out->held, close_files, out);
    TRY(join(out->metrics_path, run, "metrics.jsonl"));
    TRY(join(out->evals_path, run, "eval.jsonl"));
    TRY(metrics_open(out->metrics_path, step, see_step, out, &out->metrics));
    TRY(metrics_open(out->evals_path, step, see_eval, out, &out->evals));
    return tensorboard ? events_open(run, step, &out->events) : OK;
}

Status journal_step(Journal *journal, json_t *line) {
    if (line) see_step(journal, line);
    Status status = metrics_write(journal->metrics, journal->metrics_path, line);
    if (status == OK) status = events_write(&journal->events, line);
    json_decref(line);
    return status;
}

Status journal_eval(Journal *journal, json_t *line) {
    if (line) see_eval(journal, line);
    Status status = metrics_write(journal->evals, journal->evals_path, line);
    if (status == OK) status = events_write(&journal->events, line);
    json_decref(line);
    return status;
}

Status journal_failed(const char *path, int error) {
    bool full = error == ENOSPC || error == EFBIG || error == EDQUOT;
    return status_fail(ERR_IO, "cannot write %s: %s%s", path, strerror(error),
                       full ? "\n  hint: free some space; 'moec resume' goes on from the last "
                              "checkpoint"
                            : "");
}

static Status sync_one(FILE *file, const char *path) {
    if (fflush(file) == 0 && fdatasync(fileno(file)) == 0) return OK;
    return journal_failed(path, errno);
}

Status journal_sync(Journal *journal) {
    TRY(sync_one(journal->metrics, journal->metrics_path));
    TRY(sync_one(journal->evals, journal->evals_path));
    return journal->events.file ? sync_one(journal->events.file, journal->events.path) : OK;
}

Status journal_picture(const Journal *journal, const char *title) {
    char path[4096];
    TRY(join(path, journal->run, "loss.svg"));
    Text text = { 0 };
    picture_print(title, &journal->train, &journal->held_out, &text);
    Status status = file_write_atomic(path, text.at, text.bytes);
    text_finish(&text);
    return status;
}

void journal_close(Journal *journal) {
    close_files(journal);
    events_close(&journal->events);
}
