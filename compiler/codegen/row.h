// SPDX-License-Identifier: Apache-2.0
// Inside the row-program generator: from a RowBody to C, in three steps.
//
//   row_build.c  the group's nodes become values: maps with implicit broadcasting, leaves read from
//   memory,
//                and a few that need their own code. Views are no values of their own but index
//                maps (offset and strides over feature axes) of another one. rotate, pad and concat
//                become pieces.
//   row_plan.c   which values are kept in memory, and the order of loops: a loop runs over one
//   feature space
//                and computes every map of that space that can be ready by then; the rest stays in
//                registers.
//   row_emit.c, row_value.c   the text.
//
// Lanes. A vector is 16 features of a row, or, when every space of the group is narrower than 16,
// one feature of 16 rows (`by_rows`). Chosen from the sizes alone, so it is part of the kernel.
#ifndef MOEC_ROW_H
#define MOEC_ROW_H

#include "compiler/codegen/codegen.h"

// Operations of values beyond the model's.
enum {
    ROW_LOAD = N_OPS, // a load of the body
    ROW_VIEW,         // an index map of another value; never computed
    ROW_COPY, // the operand in its own order: a reshape that strides cannot express, or for a store
    ROW_PIECES,   // the result's parts are computed one by one (concat, pad, rotate)
    ROW_PARTIALS, // sum or maximum of partial records
    ROW_FAR,      // x picked through ids: gather, embed, dispatch, collect, shift
    ROW_SHIFTED,  // the row attr.k earlier if it is of the same document, else -1
    ROW_KEY,      // an int that orders like the operand (top_k)
    ROW_FLOAT,
    ROW_COS,
    ROW_SIN,
    N_ROW_OPS
};

enum {
    ROW_WIDE = 8192,         // `wide` of a row at first
    ROW_STACK = 256 << 10,   // bytes of scratch on the stack; more lives in thread-local memory
    ROW_SCRATCH = 256 << 20, // bytes of scratch at most
};

typedef struct RowShape {
    int rank;
    int32_t dim[MAX_RANK];
} RowShape;
// Element (i0, i1, ..) is number offset + sum of i * stride of `base`. Strides of unit axes are 0.
typedef struct RowMap {
    uint32_t base;
    int64_t offset, stride[MAX_RANK];
} RowMap;
// The part of a ROW_PIECES value that `arg` fills: element (i..) of the piece goes to offset + sum
// i * stride.
typedef struct RowPiece {
    uint32_t arg;
    RowShape shape;
    int64_t offset, stride[MAX_RANK];
    int loop;
} RowPiece;

typedef struct RowVal {
    uint16_t op;
    uint8_t kind; // KIND_REAL: V, else VI
    uint8_t n_args;
    bool rowless; // the same for every row: computed once, before the rows
    bool serial;  // sum, amax: loops inside the expression; else lanes are folded after a loop
    RowShape shape;
    RowMap map; // of a view; else of the value itself
    uint32_t args[MAX_ARGS];
    Attr attr;
    uint32_t load; // ROW_LOAD, ROW_PARTIALS, ROW_SHIFTED: index into body->loads
    // ROW_FAR: args are x, ids and, if step2 is not 0, second ids. Element = far + id * step + id2
    // * step2.
    RowMap far;
    int64_t step, step2, limit; // ids outside [0, limit) give 0
    uint32_t rest;              // ids below -1 take the row's own value of this, if it is not 0
    bool near;                  // x is the row's own; else ids pick among all rows of a load
    RowPiece *pieces;
    int n_pieces;
    // set by row_plan
    bool live, stored; // needed; has sinks
    bool memory;       // kept in a scratch array (one-element values: in a variable unless `array`)
    bool array;        // read by address
    bool saved;        // in memory for no other reason than that several loops need it
    int loop, seen;
} RowVal;

typedef struct RowSink {
    uint32_t val, store;
} RowSink;
typedef struct RowTask {
    uint32_t val;
    int piece /* -1: the whole value */;
} RowTask;
typedef struct RowLoop {
    RowShape space;      // without unit axes
    bool rowless, alone; // alone: a top_k, which is no loop over a space
    RowTask *tasks;
    uint32_t n_tasks, cap_tasks;
} RowLoop;

// Where a row program runs: as vectors of a CPU, or as warps of a GPU, which hold kept values in
// shared memory.
typedef enum RowMachine { ROW_CPU, ROW_GPU } RowMachine;

typedef struct Row {
    Arena *arena;
    RowMachine machine;
    const KernelDesc *desc;
    const RowBody *body;
    const Model *m;
    bool by_rows;
    RowVal *vals;
    uint32_t n_vals, cap_vals; // vals[0] is unused
    struct RowName {
        uint32_t node, val;
    } *names;
    uint32_t n_names, cap_names;
    RowSink *sinks;
    uint32_t n_sinks, cap_sinks;
    RowLoop *loops;
    uint32_t n_loops, cap_loops;
    int offsets;   // load of the route's offsets, -1: none
    int64_t wide;  // features from which on maps are recomputed rather than kept
    Status status; // first failure of row_build
} Row;

/* row_build.c, row_view.c ---------------------------------------------------------------------- */

Status row_build(Row *row);
int64_t row_features(const RowShape *shape);
void row_major(const RowShape *shape, int64_t stride[MAX_RANK]);
RowShape row_strip(const RowShape *shape);                 // without unit axes
RowMap row_onto(const RowVal *val, const RowShape *space); // broadcast: aligned at the right
// New axes for the same elements; false if strides cannot express it.
bool row_reshape(const RowMap *map, const RowShape *from, const RowShape *to, RowMap *out);
RowMap row_slice(const RowVal *val, int axis, int64_t at, int64_t step, int32_t size,
                 RowShape *shape);
bool row_leaf(const RowVal *val);   // read from memory or a literal
bool row_inline(const RowVal *val); // may be computed where it is used

/* row_plan.c ----------------------------------------------------------------------------------- */

// One operand of a value: how the loop over `space` reads it.
typedef struct RowUse {
    uint32_t arg;
    RowShape space;
    RowMap map;
    bool address /* must be in memory */;
} RowUse;
int row_uses(const Row *row, uint32_t val, RowUse uses[MAX_ARGS]);
// Does the map read `base` element by element in the order of the space?
bool row_identity(const Row *row, const RowMap *map, const RowShape *space);
void row_plan(Row *row);
// Plans anew with the widest of those values computed again that are kept only to be computed once. False: there
// are none.
bool row_keep_less(Row *row);

/* row_emit.c ----------------------------------------------------------------------------------- */

Status row_emit(Row *row, const char *name, Text *out); // the function, for a CPU
// The kernel, for a GPU: of target's architecture (plan.h) where it keeps more than every GPU has room for.
Status row_emit_gpu(Row *row, const char *entry, const char *target, Text *out, CudaShape *shape);
Status row_check(const KernelDesc *desc, const RowBody *body); // that a description makes sense
void row_memory(const RowBody *body, const char *load_prefix, const char *store_prefix,
                Text *parameters, Text *arguments);

/* expr.c --------------------------------------------------------------------------------------- */

// C expression of a map, `$0`, `$1`, `$2` standing for its operands; NULL if there is none. `real`:
// of the operands. What is 1 FLOP and has a form is cheap enough to be computed twice.
const char *expr_form(int op, bool real);
void expr_fill(const char *form, const char *const *args, Text *out);
void expr_literal(double value, bool real, Text *out); // a vector of it
const char *row_op_name(int op);

#endif
