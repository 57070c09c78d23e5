// SPDX-License-Identifier: Apache-2.0
// Kernel descriptions: what lowering asks for and codegen turns into source text.
//
// A description is family, named sizes and, for row programs, a body. Its text (kernel_describe) is its
// identity: equal text, equal kernel. The parameter list of the generated entry is not written here: it
// is read from the expanded source by libclang (compiler/codegen/reflect.c) and lowering binds buffers to
// it by parameter name; an unknown or missing name, or another type, is an error.
#ifndef MOEC_KERNEL_H
#define MOEC_KERNEL_H

#include "compiler/model/model.h"
#include "runtime/plan/plan.h"

// One row per family (templates/cpu, templates/cuda), with the entry's parameters as lowering binds them.
// (r = const input, w = output, a = added to.) Sizes are compile-time constants in the source.
//
//   family      parameters                                                        sizes
//   row         l0.. (const), s0..: see body below                                rows sequence
//   pack        r w, w packed                  (a weight as matmul reads it)      experts each k n turned
//   matmul      r x | pre, r w [w1 w2 w3,] [r offsets,] w y [y1 y2 y3] | post     rows experts mid each k n parts across
//   matmul_t    r g [g1 g2 g3] | pre, r w [w1 w2 w3,] [r offsets,] w x | post     rows experts mid each k n parts across
//   matmul_w    r x | pre, r g, [r offsets,] w w | a w                            rows experts mid each k n accumulate
//   attend      r q, r k, r v, r segments, [r sinks,] w y, w lse                  rows heads kv_heads qk v causal window scale sequence sinks
//   attend_grad r q, r k, r v, r segments, r y, r lse, r g, [r sinks,] w dq, w dk, w dv, [w dsinks]
//   embed_w     r g, r ids, w w | a w                                             rows vocab n ids accumulate
//   route       r ids, w row_of_slot, w slot_of_row, w offsets                    rows top_k experts
//   count       r ids, w counts                                                   rows top_k experts ranks
//   route_ranks r ids, r counts, [r index, r scalars, r labels, a load, a dropped,] w row_of_slot, w offsets
//                                                  rows top_k experts ranks capacity, drops stream accumulate, owner
//               [, w starts, w numbers, w rounds]                               rounds
//   round       r table, r starts, r number, w row_of_slot, w offsets             rows top_k experts ranks capacity
//   pads        r offsets, a x                 (rows of it that are none: zero)   rows experts n align, x
//   blocks      r all, r counts, w there, w token, w put, w home, w first, w back, w get, w place
//                                                                                 rows top_k ranks each capacity
//               (ranks: nodes; each: ranks of a node; CPU only, as is move)
//   move        r x, r table, w y              (x or y may lie on several ranks)  rows top_k n each capacity way, x
//   segment_sum r x, [r offsets,] w y | a y    (T -> S, R -> E)                   rows segments n accumulate
//   clear       w x                            (bytes as f32 numbers)             n
//   sumsq       r x, w partials                (global gradient norm, 1 of 2)     n
//   clip        r partials, a scalars          (2 of 2: norm, scale, skip)        n
//   adamw       r grads, a weights, a moment1, a moment2, r scalars               n + table of (first, lr, decay)
//   reduce      r parts, w y | a y             (y = what ranks have, in order)    ranks n accumulate
//   fold        r x, w sum                     (one number: of partials)          n
//
// Templates are real C files. `$name` (clang takes $ in identifiers) is a hole: sizes, `$entry`, and
// `$body`-like lines for generated text. prelude.h of the target's folder and its parts are the plan's source 0,
// which comes first in every translation unit; templates include nothing.
//
// matmul: x is [rows, each, mid, k], w [experts,] [each, k, n], y [rows, each, mid, n]; experts 0: not
// grouped, else rows is the capacity and `offsets` i32 [experts + 1] says which rows exist. mid and each
// are 1 where an operation has no such axis. `accumulate` 1: result is added to what is there.
// segment_sum: T -> S has `sequence`, R -> E has `experts` (and `offsets`). embed_w: `ids` per row.
// clear, sumsq, adamw, reduce, fold: n numbers. sumsq writes one number per tile of SUMSQ_TILE; clip's n counts those.
//
// Precision of a contraction (KernelDesc.precision). fp32: operands fp32 (a bf16 operand in memory is
// widened), fma in ascending order. bf16: operands bf16, pairs along the contraction summed as VDPBF16PS
// does (two fused multiply-adds, the odd element first, denormals flushed), ascending, fp32 accumulators.
// Types in memory: desc.x (left operand: x or g), desc.g (matmul_w's second), desc.y (results).
// Attention: precision is that of its products; powers, sums and lse are fp32. x: q, k, v, and y where it
// is an operand; g: g; y: results (y; dq, dk, dv). Any mix of types goes with either precision. Segments
// must not descend within a sequence.
//
// pack: from fp32 (x; or bf16, then only to bf16) [experts,] [each, k, n] to panels of PANEL = 32 columns, zero-padded:
//   turned 0 (for matmul, contraction over k): fp32 [.., n/32, k, 32]; bf16 [.., n/32, k/2, 32, 2], a pair is
//            (w[2p][c], w[2p+1][c]); odd k is padded with a zero row
//   turned 1 (for matmul_t, contraction over n): the same of the transposed weight: [.., k/32, n(/2), 32(, 2)]
// The second operand of matmul and matmul_t is always packed: a parameter's copy lies in region packed, any
// other value's in act. GPUs pack with turned 0 only, once for all readers: `across` 1 says that the panels are of
// the transpose of what rows are multiplied by (w of matmul, w^T of matmul_t), which the kernel turns as it reads.
//
// parts > 1, matmul: sibling weights w, w1, .. of part_n[i] columns over the same x (q, k, v), one kernel.
// matmul_t: terms summed in order, x = g w^T + g1 w1^T + ..; part_n[i] is the contraction length of each.
//
// post: a row program over the result's rows, run on chunks of rows as they are finished: reads the fp32
// accumulators through WHAT_ACC loads (node = the matmul's node, one per sibling) and anything a row program
// may read; nothing of y is stored except by the post's stores. Its loads are parameters l0.., its stores
// s0... WHAT_ACC loads keep their number but are no parameter. Only where mid = each = 1. A grouped post
// has no partial stores.
// pre: a row program that makes the left operand of a chunk: the store with `operand` set. Its loads are
// a0.., its other stores b0...
typedef enum Family {
    FAMILY_ROW, FAMILY_PACK, FAMILY_MATMUL, FAMILY_MATMUL_T, FAMILY_MATMUL_W, FAMILY_ATTEND, FAMILY_ATTEND_GRAD,
    FAMILY_EMBED_W, FAMILY_ROUTE, FAMILY_SEGMENT_SUM, FAMILY_CLEAR, FAMILY_SUMSQ, FAMILY_CLIP, FAMILY_ADAMW,
    FAMILY_REDUCE, FAMILY_FOLD, FAMILY_COUNT, FAMILY_ROUTE_RANKS, FAMILY_BLOCKS, FAMILY_MOVE,
    FAMILY_ROUND, FAMILY_RAIL, FAMILY_PADS, N_FAMILIES
} Family;
extern const char *const family_name[N_FAMILIES];

/* Row programs ---------------------------------------------------------------------------------- */

// A group of nodes over one row axis, evaluated row by row. Values are numbered in topological order.
// Entry parameters are l0, l1, ... (loads, const) and s0, s1, ... (stores), in the order of the arrays:
// lowering binds load i to parameter "l<i>", store i to "s<i>". CONST nodes are literals, CONSTANT nodes
// static arrays in the source: neither is a load. Everything else read from memory is a load:
typedef enum RowWhat {
    WHAT_VALUE,       // parameter, state, input (tokens, labels, positions, segments, n_valid: i32 or f32 as
                      // in plan.h), total, or a value stored by an earlier kernel. A VALID node is a load of
                      // labels(1): 1.0 where >= 0.
    WHAT_PARTIALS,    // partial records [partials, features] of the row_sum / row_max `node`: summed (maxed)
                      // in ascending order
    WHAT_SCALARS,     // the scalars region, f32: inv_step; seed and step of `uniform`
    WHAT_INDEX,       // i32 [T] global token numbers, for `uniform`
    WHAT_OFFSETS,     // i32 [experts + 1] of the group's route; every R group has it: rows past
                      // offsets[experts] do not exist, partial records of tiles without rows are zero. With align
                      // i32 [2 experts + 1]: the rows of expert e end at offsets[experts + 1 + e], and what is stored
                      // of the pads behind them is zero, or nothing if it is a partial record
    WHAT_SLOT_OF_ROW, // i32 [R]: token * top_k + choice; dispatch reads through it
    WHAT_ROW_OF_SLOT, // i32 [T, top_k]: row, -1, or below: of a further round; collect reads through it
    WHAT_ACC,         // fp32 accumulators of the contraction this program is the `post` of
} RowWhat;

enum { ROW_TILE = 64 }; // rows per tile of a row program and per partial record: part of the bits
enum { SUMSQ_TILE = 65536 }; // numbers per partial of the gradient norm: part of the bits

// How a WHAT_VALUE is found for a row follows from the types: same row axis: the same row; rowless: no
// row; E on R: the row's expert; S on T: row / sequence. The first operand of an INDEX node (embed's
// table, dispatch's and collect's x, shift's x) is read at any row, so it is always a load, or a chain of
// views over one load; the same load may not also be used as the same row.
// `apart`: the value lies on all ranks of a group, so many rows on each; the parameter is a plan's table of
// int64 addresses. Of a load: x of a collect only. 0: it lies here. A collect with a third operand takes what has
// its row in a further round from that, at the same row.
typedef struct RowLoad { uint32_t node; uint8_t what, dtype; int32_t partials; int64_t apart; } RowLoad;
typedef struct RowStore {
    uint32_t node;
    uint8_t dtype;
    bool partial;            // node is row_sum / row_max: store the tile's record [tiles, features]
    bool add;                // += : accumulate, record, total (node is the value added)
    bool operand;            // of a `pre`: the left operand of the contraction
    int64_t apart;           // node is a dispatch whose rows lie apart (RowLoad): the program is over tokens
                             // and stores, for every choice, the operand where WHAT_ROW_OF_SLOT says
    bool some;               // node is a collect: only choices that have a row are stored
} RowStore;

typedef struct RowBody {
    const Model *model;      // of the program; nodes' types, attributes, operands
    uint8_t row;             // RowKind of the group. T, R, E, S, or none: one row
    uint32_t route;          // of R and E groups
    const uint32_t *nodes; uint32_t n_nodes;     // computed here, topological; views included, no effects
    const RowLoad *loads; uint32_t n_loads;
    const RowStore *stores; uint32_t n_stores;   // each feature array is row-major [row, features]
} RowBody;

// Of a move: rows here to rows here; each to several ranks; from several ranks to here; sums of some.
typedef enum MoveWay { MOVE_HERE, MOVE_SPREAD, MOVE_FETCH, MOVE_SUM } MoveWay;

typedef struct KernelDesc {
    Family family;
    int64_t rows;                 // T, capacity of R, experts, sequences; 1 for rowless
    int64_t sequence;             // tokens per sequence, where the family uses it
    int64_t n;
    int32_t experts, mid, each, k, heads, kv_heads, qk, v, window, top_k, vocab, ids;
    float scale;
    bool causal, sinks, accumulate, turned, across;
    int32_t ranks;                // of reduce; of count and route_ranks: they hold experts / ranks each
    int64_t capacity;             // rows of a rank, pads among them
    int64_t limit;                // of route_ranks: copies that a rank takes; 0: capacity
    int32_t align;                // of what makes or reads offsets: row_align (plan.h); 0: 1
    uint8_t way;                  // MoveWay
    bool whole;                   // of a move here: y is zero where the table names no row
    int32_t rounds;               // of route_ranks: further ones there may be
    bool drops;                   // more may be asked for; `stream` feeds the hash that says what stays
    uint64_t stream;
    const int32_t *owner;         // rank by expert; NULL: expert e on rank e / (experts / ranks)
    uint8_t precision;                              // contractions and attention: Precision, fp32 or bf16
    uint8_t x, g, y;                                // Dtype in memory
    int32_t parts;                                  // 0 and 1: one
    int64_t part_n[4];
    RowBody body;                                   // FAMILY_ROW; of a contraction: its post (n_stores 0: none)
    RowBody pre;                                    // n_stores 0: none
    const PlanParam *params; uint32_t n_params;     // FAMILY_ADAMW: the table, of parameters by offset ...
    const PlanBucket *buckets; uint32_t n_buckets;  // ... or of buckets by shard
    double flops, bytes;                            // of one launch, by compiler/model/count.c
    Loc loc;                                        // what an error points at
} KernelDesc;

// Appends the description as text: one line, for a row program one more per load, node and store. Node
// numbers, parameter names and locations are not in it.
void kernel_describe(const KernelDesc *desc, Text *out);

// Sizes as a plan has them.
PlanShape kernel_shape(const KernelDesc *desc);

// What codegen returns; lives in the plan's arena.
typedef struct Codegen Codegen;
Codegen *codegen_create(Plan *plan);
void codegen_destroy(Codegen *cg);
// Adds the kernel (or finds the equal one) in plan->kernels, with source, launch table and tiles; its index
// through *out. ERR_INPUT with a message that names the operation when no kernel covers it.
Status codegen_kernel(Codegen *cg, const KernelDesc *desc, uint32_t *out);
// Is there a kernel for this operation? Else *why says what is missing ("row_max over tokens").
bool kernel_covers(const Model *m, uint32_t node, const char **why);

#endif
