// SPDX-License-Identifier: Apache-2.0
// How many rows each expert got, by step and layer: what a trainer recorded. Two forms, told apart by the
// first character:
//
//   lines of JSON   as a run's metrics.jsonl has them (docs/run.md): {"step":7,"train/block 02/load":[..]};
//                   other keys are passed by, a line without loads too, and a last line that is torn
//   CSV             a header that names the columns layer, expert, load and, if there are several, step, in
//                   any order; a line per expert; other columns are passed by
//
// Layers count from 1, experts from 0. Every step has the same layers, every layer of every step the same
// experts, from 0 without a gap; loads are numbers from 0 to 1e12. What is otherwise is refused with its line.
#ifndef MOEC_SEARCH_LOAD_H
#define MOEC_SEARCH_LOAD_H

#include "runtime/base/base.h"

enum { LOAD_MOST_EXPERTS = 1 << 16, LOAD_MOST_LAYERS = 1 << 16 };

typedef struct LoadLayer {
    int32_t layer, experts;
    int64_t at;                  // of its first expert in a row
    int64_t line;                // of the text, where it was read last
} LoadLayer;

typedef struct Load {
    LoadLayer *layers; int32_t n_layers; // ascending; none: nothing was recorded
    int64_t width;               // experts of all layers
    int64_t *steps;              // [n_steps] ascending
    double *rows;                // [n_steps][width]
    int32_t n_steps;
    double tokens_per_s;         // mean of a rank, "throughput/device/TPS"; 0: not recorded
} Load;

// Of the last `last` steps, or lines of JSON, which are all that is looked at of those (0: all). `name` is told
// in messages; text[bytes] is 0. Arrays live in the arena.
Status load_parse(const char *name, const char *text, size_t bytes, int64_t last, Arena *arena, Load *out);
Status load_read(const char *path, int64_t last, Arena *arena, Load *out);
// Sums over steps [first, end), [width].
void load_sum(const Load *load, int32_t first, int32_t end, double *out);

#endif
