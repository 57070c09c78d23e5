// SPDX-License-Identifier: Apache-2.0
// What a run writes about itself while it trains, in the run's folder:
//
//   metrics.jsonl   an object per step          loss.svg                 a picture, at each save
//   eval.jsonl      an object per evaluation    events.out.tfevents.*    the same for TensorBoard
//
// Lines go out whole, one write each, and are on disk before a checkpoint that follows them. A
// session that goes on from a checkpoint cuts what was written past it, then repeats it.
#ifndef MOEC_JOURNAL_H
#define MOEC_JOURNAL_H

#include <jansson.h>
#include <stdio.h>

#include "runtime/base/base.h"

/* metrics.c ------------------------------------------------------------------------------------ */

// Called for each line that stays.
typedef void (*MetricsVisit)(void *user, const json_t *line);
// Opens for appending, without the lines past `step` and without a torn last line.
Status metrics_open(const char *path, int64_t step, MetricsVisit visit, void *user, FILE **out);
Status metrics_write(FILE *file, const char *path, const json_t *line);

/* events.c ------------------------------------------------------------------------------------- */

typedef struct Events {
    FILE *file;                  // NULL: none is written
    char path[4096];
    Text event, summary, value;
} Events;

// A session that goes on from `step`.
Status events_open(const char *run, int64_t step, Events *out);
// The numbers of a line whose names have a slash, at the line's "step".
Status events_write(Events *events, const json_t *line);
void events_close(Events *events);                             // zeroed is fine
uint32_t crc32c(const void *bytes, size_t n);

/* picture.c ------------------------------------------------------------------------------------ */

// A curve in bounded memory: means over `stride` values in a row. When all points are taken,
// neighbours are merged and the stride doubles, so it is a function of the values alone.
enum { CURVE_POINTS = 1024 };
typedef struct CurvePoint { double step, value; int64_t n; } CurvePoint; // sums over n
typedef struct Curve {
    int64_t stride;              // 0: no value yet
    int n;
    CurvePoint at[CURVE_POINTS];
} Curve;

void curve_add(Curve *curve, int64_t step, double value);      // one that is not finite is left out
// An SVG picture of loss over steps.
void picture_print(const char *title, const Curve *train, const Curve *held_out, Text *out);

/* journal.c ------------------------------------------------------------------------------------ */

typedef struct Journal {
    const char *run;
    char metrics_path[4096], evals_path[4096];
    FILE *metrics, *evals;
    Events events;
    Curve train, held_out;
    Held held;                   // while it is open
    int64_t eval_step, eval_tokens; // of the last evaluation written, step -1: none
} Journal;

// A session that goes on from `step`.
Status journal_open(const char *run, int64_t step, bool tensorboard, Journal *out);
Status journal_step(Journal *journal, json_t *line);              // takes the line
Status journal_eval(Journal *journal, json_t *line);              // takes it
Status journal_sync(Journal *journal);                            // what was written is on disk
Status journal_failed(const char *path, int error);               // ERR_IO: a file cannot be written
Status journal_picture(const Journal *journal, const char *title);
void journal_close(Journal *journal);                             // zeroed is fine

#endif
