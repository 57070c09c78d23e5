// SPDX-License-Identifier: Apache-2.0
// Rows of published training speeds, as tests/search/published.csv has them.
#ifndef MOEC_DRIVER_PUBLISHED_ROWS_H
#define MOEC_DRIVER_PUBLISHED_ROWS_H

#include "compiler/driver/published.h"

// By the name of a column: what its cells are (CellKind in published_rows.c) and, of words, which. Columns are in the order of
// the file; what a row was published of comes before `tokens_per_s`, what was published and where from that on.
#define PUBLISHED_COLUMNS(X)                                                                       \
    X(stack, CELL_NAME) X(gpu, CELL_NAME) X(spec, CELL_NAME)                                       \
    X(args, CELL_TEXT)                                  /* of the spec: "experts=8 layers=2" */    \
    X(gpus, CELL_COUNT) X(precision, CELL_WORD, "bf16", "mxfp8")                                   \
    X(batch, CELL_COUNT_OR_NONE)                        /* sequences of a step */                  \
    X(microbatch, CELL_COUNT) X(sequence, CELL_COUNT) X(params, CELL_WORD, "resident", "fsdp")     \
    X(pp, CELL_COUNT) X(slots, CELL_COUNT)                                                         \
    X(stages, CELL_TEXT)                                /* as a layout has them */                 \
    X(ep, CELL_COUNT) X(routing, CELL_WORD, "random", "uniform", "learned")                        \
    X(transport, CELL_WORD, "blocks", "alltoall", "rows")                                          \
    X(recompute, CELL_NAME)                             /* as a layout has it */                   \
    X(experts, CELL_WORD, "fused", "apart") X(rows_hidden, CELL_SHARE) X(params_hidden, CELL_SHARE) \
    X(reduce, CELL_WORD, "2", "4")                      /* bytes a number */                       \
    X(tokens_per_s, CELL_NUMBER_OR_NONE)                /* of a device, as tflop_per_s; one is stated */ \
    X(tflop_per_s, CELL_NUMBER_OR_NONE) X(memory_gib, CELL_NUMBER_OR_NONE)                         \
    X(source, CELL_NAME) X(note, CELL_TEXT)
typedef enum Column {
#define X(name, ...) COLUMN_##name,
    PUBLISHED_COLUMNS(X)
#undef X
    N_COLUMNS
} Column;

typedef enum Use { USE_FIT, USE_TEST, USE_ALONE } Use;

typedef struct Row {
    const char *cell[N_COLUMNS];
    double number[N_COLUMNS];      // of cells that are one; 0: the cell is empty
    int line;
    uint8_t use;                   // Use
    double published, raw, scaled; // tokens per second and device; scaled: by the group's scale
    BenchResult result;
} Row;

typedef struct Table { const char *path; Row *rows; uint32_t n, cap; } Table;

// Cells and numbers of all rows. ERR_FORMAT with place and next step for a cell that is not what its column has.
Status published_read(const char *path, Arena *arena, Table *out);
// ERR_FORMAT: the last failure's message behind the place of a row.
Status published_refuse(const Table *table, const Row *row);

#endif
