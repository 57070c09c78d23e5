// SPDX-License-Identifier: Apache-2.0
// The text of row programs: what row_emit.c (loops, stores, the frame) and row_value.c
// (expressions) share.
//
// Names in the source: l, s: parameters; r, w: the same at the current row; p: where a choice of the row is
// put on its rank; t: constant vectors; m:
// values kept in memory; x: values in registers; a: accumulators of lanes; q: partial sums of
// lanes; j: the axis that lanes run along, n: how many of the 16 are live, `live` the mask of them;
// i, k: other axes. On a GPU lanes are the threads of a warp (templates/cuda/rows.h), and a value kept
// in memory is seen by other lanes after the __syncwarp at the head of the next loop.
#ifndef MOEC_ROW_EMIT_H
#define MOEC_ROW_EMIT_H

#include "compiler/codegen/row.h"

enum { MAX_AXES = 4 * MAX_RANK };

typedef struct Axis {
    int32_t dim;
    const char *var;
    bool merged /* into the next */, apart /* cannot be */;
} Axis;
// A space under evaluation: its axes without unit ones, each an axis of the emitter.
typedef struct Place {
    int n;
    int axis[MAX_AXES];
} Place;
typedef struct Memo {
    const char *key, *name;
} Memo;

typedef struct Emit {
    Row *row;
    Arena *arena;
    Text *out;
    int indent;
    bool dry; // finds which axes can be one loop; writes nothing
    Axis axes[MAX_AXES];
    int n_axes, n_loop; // those of the loop come first, then those of serial sums
    int lane;           // axis that lanes run along, -1: none
    bool tail;          // some lanes past n
    int loop;
    bool rowless; // being written
    Memo *memos;
    uint32_t n_memos, cap_memos;
    uint32_t n_names; // of loads, never reused: scopes may end without a brace
} Emit;

/* row_value.c ---------------------------------------------------------------------------------- */

void emit_line(Emit *em, const char *format, ...) PRINTF_LIKE(2, 3);
const char *emit_text(Emit *em, const char *format, ...) PRINTF_LIKE(2, 3);
const char *emit_define(Emit *em, uint32_t val,
                        const char *expression); // const V x7 = ..; gives "x7"
static inline int emit_lanes(const Emit *em) { // LANES of the source
    return em->row->machine == ROW_GPU ? 32 : 16;
}
static inline const char *emit_v(const RowVal *val) {
    return val->kind == KIND_REAL ? "v" : "vi";
}
static inline const char *emit_type(const RowVal *val) {
    return val->kind == KIND_REAL ? "V" : "VI";
}
static inline const char *emit_c_type(const RowVal *val) {
    return val->kind == KIND_REAL ? "float" : "int32_t";
}

// Strides of a map over the axes of a place, and the index they make, as text; `lane` its stride
// per lane.
typedef struct Index {
    const char *text;
    int64_t lane;
} Index;
Index emit_index(Emit *em, const Place *place, const RowShape *space, const int64_t *stride,
                 int64_t offset);
const char *emit_read(Emit *em, const Place *place, const RowUse *use);
const char *emit_value(Emit *em, const Place *place, uint32_t val);
// How a load finds its row.
typedef enum RowFind { FIND_SAME, FIND_NONE, FIND_EXPERT, FIND_SEQUENCE, FIND_ACC } RowFind;
RowFind emit_find(const Row *row, uint32_t load);
int64_t emit_load_features(const Row *row, uint32_t load);
// The number of a WHAT_ACC load among those.
int emit_acc(const Row *row, uint32_t load);
// Prefix of the functions that read and write numbers of a type: v, vi, vh (bf16 in memory).
const char *emit_access(uint8_t dtype);
const char *emit_dtype(uint8_t dtype); // the type in C

#endif
