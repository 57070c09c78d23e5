// SPDX-License-Identifier: Apache-2.0
// The Plan: everything that decides speed, memory and placement of a run, as one printable value.
//
// A plan holds parameters (where each lives), kernels (with their sources) and programs. A program is
// segments of instructions over planned buffers, and rows (segment, microbatch, slot) that say in which
// order segments run. Every buffer has an address: region + offset. Times are instruction numbers,
// consecutive over the segments of a program in file order.
//
//   region    holds                                              life
//   weights   fp32 parameters, then states                       the run; in checkpoints
//   grads     gradients, same offsets as weights                 a step
//   moment1   AdamW's first moments, same offsets                the run; in checkpoints
//   moment2   second moments, same offsets                       the run; in checkpoints
//   master    of many ranks: see PlanBucket                      the run; in checkpoints
//   totals    sums over microbatches that m.update reads         a step
//   packed    weights as kernels read them, in the precision they compute in (kernel.h: pack); made from
//             `weights` by program "pack" after init or load, and by the update segment of "step"
//   act       everything else a program computes                 as placed; programs share it
//   sym       what a program computes and other ranks read or write by address: a window of the
//             transport; the tables of those addresses follow its buffers (plan_window)
//   io        inputs the host writes, outputs and metrics it reads
//   scalars   step scalars (ScalarSlot below)
//
// Many ranks run one plan, each with its own memory; a plan is made for one pipeline stage. A rank's place
// is a coordinate on every axis of the mesh; ranks that differ only on the axes of a group are a group.
// What crosses ranks is an instruction (PlanOp), the same on all ranks of its group and in the same order.
//
// `step` of a training plan: row "clear", then per microbatch "forward", "backward", then "update".
// The text form is the only format: plan_print and plan_parse are inverse, byte for byte. Its hash (of
// the text without locations) is the plan's identity. Version line: "plan 1".
#ifndef MOEC_PLAN_H
#define MOEC_PLAN_H

#include "runtime/base/base.h"

enum { PLAN_VERSION = 1, PLAN_MAX_DIMS = 8, PLAN_MOST_RANKS = 1 << 20, PLAN_MOST_ALIGN = 128, PLAN_GRAIN = 256 /* bytes: address alignment of buffers */ };

#define PLAN_DTYPES(X) X(F32, "f32", "float", 4) X(I32, "i32", "int32_t", 4) X(I64, "i64", "int64_t", 8) X(BF16, "bf16", "bf16", 2)
typedef enum Dtype {
#define X(name, text, c_type, bytes) DTYPE_##name,
    PLAN_DTYPES(X)
#undef X
    N_DTYPES
} Dtype;

#define PLAN_REGIONS(X) X(weights) X(grads) X(moment1) X(moment2) X(totals) X(packed) X(act) X(io) X(scalars) X(master) X(sym)
typedef enum Region {
#define X(name) REGION_##name,
    PLAN_REGIONS(X)
#undef X
    N_REGIONS
} Region;

// The scalars region: f32 [N_SCALARS]. The host writes the first group before each step, kernels the
// second; `step` and `seed` are int32 bit patterns. ORDER SCALAR (templates/cpu/prelude.h)
#define PLAN_SCALARS(X)                                                                            \
    X(lr) X(decay) X(beta1) X(beta2) X(eps) X(correction1) X(correction2) X(clip) X(inv_step)      \
    X(step) X(seed)                                                                                \
    X(grad_norm) X(grad_scale) X(skipped)
typedef enum ScalarSlot {
#define X(name) SCALAR_##name,
    PLAN_SCALARS(X)
#undef X
    N_SCALARS
} ScalarSlot;

// Inputs of a microbatch, by meaning: what the host (runtime/train) must write before its row runs.
//   tokens k     i32 [T]   id k tokens ahead in the document, -1 past its end
//   labels k     i32 [T]   target k ahead, -1 where masked
//   positions    i32 [T]   position in the document
//   segments     i32 [T]   document number, never falling
//   index        i32 [T]   global number of the token in the run (mod 2^32): feeds the counter-based hash
//   n_valid      f32 [1]   valid tokens of the microbatch;   n_valid_sequence f32 [S]: of each sequence
#define PLAN_INPUTS(X) X(tokens) X(labels) X(positions) X(segments) X(index) X(n_valid) X(n_valid_sequence)
typedef enum InputKind {
#define X(name) INPUT_##name,
    PLAN_INPUTS(X)
#undef X
    N_INPUTS
} InputKind;

// Axes of the mesh, outermost first: rank = ((pp * edp size) + edp) * ep size + ep. The ranks of a stage
// divide the tokens (dp = edp x ep); ep ones hold different experts, edp ones copies of the same.
#define PLAN_AXES(X) X(pp) X(edp) X(ep)
typedef enum PlanAxis {
#define X(name) AXIS_##name,
    PLAN_AXES(X)
#undef X
    N_AXES
} PlanAxis;
// The ranks of ep in turn are on nodes of `node` ranks, which reach each other's memory: the innermost
// side of the mesh, AXIS_ep counting the nodes. On a rail are the ranks with one place on every node.
enum { SIDE_node = N_AXES, N_SIDES };
// X(name, sides on which its members differ)
#define PLAN_GROUPS(X)                                                                             \
    X(world, 1 << AXIS_pp | 1 << AXIS_edp | 1 << AXIS_ep | 1 << SIDE_node) X(pp, 1 << AXIS_pp)     \
    X(dp, 1 << AXIS_edp | 1 << AXIS_ep | 1 << SIDE_node) X(edp, 1 << AXIS_edp)                     \
    X(ep, 1 << AXIS_ep | 1 << SIDE_node) X(rail, 1 << AXIS_ep) X(node, 1 << SIDE_node)
typedef enum PlanGroup {
#define X(name, sides) GROUP_##name,
    PLAN_GROUPS(X)
#undef X
    N_GROUPS
} PlanGroup;
typedef struct PlanMesh {
    int32_t size[N_AXES];
    int32_t stage; // on axis pp: whose plan this is
    int32_t node;  // divides the size of ep; 0: 1
} PlanMesh;
static inline int32_t plan_side(const PlanMesh *mesh, int side) {
    int32_t node = mesh->node > 1 ? mesh->node : 1;
    return side == SIDE_node ? node : side == AXIS_ep ? mesh->size[AXIS_ep] / node : mesh->size[side];
}

// What an instruction does. All but launch are done by every rank of `group`, of n members; i is the rank's
// number in it. They end when this rank may use the result and reuse what it gave.
//   launch    a kernel, on this rank
//   barrier   no operands. What members wrote before it, anywhere, is seen by all after it
//   gather    < src  > dst: member j's src becomes part j of dst, on all
//   exchange  < src  > dst: part i of member j's src becomes part j of dst
//   blocks    < sizes < src > dst: rows of src, parts for members 0, 1, .. one after another, become theirs of
//             dst: sizes i32 [2, n] says how many rows each gets, then how many come from each. All know what
//             they get, nobody waits for who sends nothing. `even`: rows to each other member at even loads
//   send      < src     to the rank with the same coordinates on stage `peer`; the group is pp. The k-th
//   recv      > dst     recv takes the k-th send between each two ranks, on each lane
#define PLAN_OPS(X) X(launch) X(barrier) X(gather) X(exchange) X(send) X(recv) X(blocks)
typedef enum PlanOp {
#define X(name) PLAN_##name,
    PLAN_OPS(X)
#undef X
    N_PLAN_OPS
} PlanOp;

// A gather or an exchange among ranks of one stage may be two instructions with the same operands: its start, which
// waits for nobody, and later its wait, which ends when the whole has. What runs between leaves alone what it
// writes, and does not write what it reads. Pairs may lie in one another.
//   start     < src  > dst
//   wait      < src  = dst
#define PLAN_HALVES(X) X(whole) X(start) X(wait)
typedef enum PlanHalf {
#define X(name) HALF_##name,
    PLAN_HALVES(X)
#undef X
    N_HALVES
} PlanHalf;

// Activations and gradients of a pipeline meet between the same two ranks in orders of their own.
#define PLAN_LANES(X) X(forward) X(back)
typedef enum PlanLane {
#define X(name) LANE_##name,
    PLAN_LANES(X)
#undef X
    N_LANES
} PlanLane;

typedef enum PlanInit { PLAN_INIT_NORMAL, PLAN_INIT_ZEROS, PLAN_INIT_ONES } PlanInit;
// put and get reach a buffer of sym on every member of a group: what the kernel has is a table of int64
// [members], the address of that buffer on each. check_remote.c has what must lie between them. SOME: writes
// rows of it that a table names and leaves the others as they are, so that several launches fill it together.
#define PLAN_MODES(X) X(READ, "<") X(WRITE, ">") X(ADD, "+=") X(INPLACE, "=") X(PUT, ">>") X(GET, "<<") X(SOME, ">?")
typedef enum OperandMode {
#define X(name, word) OPERAND_##name,
    PLAN_MODES(X)
#undef X
    N_OPERAND_MODES
} OperandMode;
static inline bool operand_is_remote(int mode) { return mode == OPERAND_PUT || mode == OPERAND_GET; }
static inline bool operand_writes(int mode) { return mode != OPERAND_READ && mode != OPERAND_GET; }
static inline bool operand_reads(int mode) { return mode != OPERAND_WRITE && mode != OPERAND_PUT && mode != OPERAND_SOME; }

typedef struct PlanParam {
    const char *name;            // address: "layers.3.ffn.experts.w_in"
    bool is_state;
    bool per_expert;             // first dimension is the expert
    uint8_t n_dims; int64_t dims[PLAN_MAX_DIMS];
    uint8_t init; double std;    // PlanInit
    double decay, lr;            // multipliers
    int32_t number;              // with stages: its place in the model; else 0, and params are in order
    int64_t offset;              // bytes in weights; -1: it is not there (PlanBucket)
    int32_t experts;             // of all ranks of ep, which hold dims[0] each; 0: this rank has all
    const int32_t *owner;        // [experts]: rank of ep; NULL: expert e on rank e / dims[0]
    int64_t grad;                // bytes in the row of buckets; -1: a state. One rank: bytes in grads, as offset
} PlanParam;

// Of many ranks, each updates a part of every parameter. Trained parameters with equal group, lr and decay
// lie in buckets, all of which stand in one row. A group has n members; member r's shard of a bucket is bytes
// [r, r + 1) * bytes / n of it. Shards lie one after another in master, moment1 and moment2, the same in all
// three; the sum of the gradients over the group comes to lie there in grads.
//
//   group of one  first in the row. Kernels read the master; all places are the same
//   sharded       then these, which no rank keeps whole: whoever reads them gathers the masters into act,
//                 in every segment anew; their gradients are whole in act only, exchanged and added to the
//                 sum by every microbatch. They lie in grads where their shards lie
//   others        whole in grads, one after another behind all these, exchanged after the microbatches; their
//                 sums are written over what has been exchanged already. Whole in weights where kernels read
//                 them as they are, else in packed; both are made of gathered masters
typedef struct PlanBucket {
    uint8_t group;               // dp; of parameters per expert edp
    bool sharded;
    int64_t offset, bytes;       // in the row; bytes are whole grains for each member
    int64_t grads;               // bytes in grads: of all of it, of a sharded one of this rank's shard
    int64_t shard;               // bytes in master, moment1, moment2, where this rank's shard begins
    int64_t weights;             // bytes in weights; -1: it is not there
    double decay, lr;
} PlanBucket;

// Numbers [first, first + n) of a parameter, at a byte of master and moments, or on one rank of weights and
// moments.
typedef struct PlanPart { int64_t first, n, at; } PlanPart;

typedef struct PlanBuffer {
    const char *name;            // unique in its program: address + operation, numbered
    uint8_t dtype, region;
    uint8_t n_dims; int64_t dims[PLAN_MAX_DIMS];
    int64_t offset, bytes;
    int64_t *further;            // [n_further] offset in slots 1, 2, ..; none: one place for all slots
    int32_t n_further;
    int32_t first, last;         // instructions; act and sym only, else 0 .. last instruction
    const char *loc;             // "models/tiny.lua:14" or NULL
} PlanBuffer;

// Where a plan runs: "cpu", or "cuda:ARCH" with ARCH the oldest GPU architecture its kernels are built for, as
// compilers name it: sm_80, sm_90a (the letter: only this one, and all it can do), sm_100a.
typedef struct PlanTarget { bool cuda; int sm; char letter; /* 0: none */ } PlanTarget;
// False when it is neither.
enum { PLAN_OLDEST_SM = 80 }; // whose instructions kernels use
bool plan_target(const char *text, PlanTarget *out);
// Shared memory, in bytes, that a block of a GPU of this architecture may have at most (CUDA C++ Programming
// Guide, table of compute capabilities), static included; of one that is not known the least of all. 0: a CPU.
int32_t plan_shared_bytes(const PlanTarget *target);

// One parameter of a kernel's entry, as libclang read it from the expanded source: the launch table.
typedef struct PlanArg { const char *name; uint8_t dtype; bool is_const; } PlanArg;

// void ENTRY(arg pointers in order..., int64_t tile_begin, int64_t tile_end): computes tiles
// [tile_begin, tile_end) of `tiles`; tiles are independent of each other, and bits do not depend on who
// runs which. Every source also defines, generated from the launch table,
// void ENTRY_launch(void *const *args, int64_t tile_begin, int64_t tile_end).
// On CUDA: extern "C" __global__ void ENTRY(arg pointers in order...), `tiles` blocks along x of `threads`
// threads each, with `shared` bytes of dynamic shared memory; no launch function.
// What a kernel's time depends on beside its operations and bytes. Of products [m, k] x [k, n], `groups` of them
// (of experts, or sets of columns): m counts the rows of all groups, of gradients of weights k does. Of attention m
// rows, n keys at most each, groups heads, k = heads x (qk + v). Of others all is 0.
typedef struct PlanShape {
    int64_t m, n, k;
    int32_t groups;
    uint8_t dtype;               // Dtype of the products' operands
} PlanShape;

typedef struct PlanKernel {
    const char *family;          // "row", "matmul", "attend", ...
    const char *entry;           // C identifier, unique in the plan
    Hash hash;                   // of family, sizes, bodies, tunables
    uint32_t source;             // index into sources
    int64_t tiles;
    int32_t threads, shared;     // CUDA; 0 on a CPU
    double flops, bytes;         // of one launch, for the simulator and the reports
    PlanShape shape;
    PlanArg *args; uint32_t n_args;
} PlanKernel;

// A C source text. Source 0 is the prelude (types, vector helpers, math); a translation unit is the prelude
// followed by any of the others, in any number: their names do not clash. None includes a header.
typedef struct PlanSource { const char *text; int64_t bytes; Hash hash; } PlanSource;

// In the order of the kernel's args. `step`: bytes by which its address moves on with each trip of a repeat.
// `bytes`, if not 0: the kernel is given a part of the buffer only, from `offset` on, and touches no more.
typedef struct PlanOperand { uint32_t buffer; uint8_t mode; int64_t step, offset, bytes; uint8_t group; /* put, get: PlanGroup */ } PlanOperand;
typedef struct PlanInstr {
    uint32_t kernel;             // launch
    uint32_t operands, n_operands; // first, in program->operands
    uint8_t op, group;           // PlanOp; PlanGroup of all but launch
    uint8_t lane;                // send, recv: PlanLane
    uint8_t half;                // gather, exchange: PlanHalf
    bool last;                   // done only in the last of its segment's rows: what follows the microbatches
                                 // begins while the last one still computes
    int32_t peer;                // send, recv: the other stage
    double even;                 // blocks
} PlanInstr;
typedef struct PlanSegment { const char *name; int32_t first, n; } PlanSegment; // instructions
// Instructions [first, first + n) of one segment run `trip` times over: a piece of some operands at a time
// (step * trip is the buffer's size), the whole of the others (step 0). With a `count` (index + 1 of a buffer of
// i32 in act) they run as often as the largest number in it says when the first is reached: from no time up to
// `trip`. A gather has made it, so that all members of that group run them equally often; only then may
// what they say to each other lie inside.
typedef struct PlanRepeat { int32_t first, n, trip; uint32_t count; } PlanRepeat;
// Rows run segments in any order that keeps each microbatch's own. A microbatch has one slot from its first
// row to its last: where what lives between its rows lies, apart from that of others under way.
typedef struct PlanRow { uint32_t segment; int32_t microbatch /* -1: none */, slot; } PlanRow;
typedef struct PlanInput { uint8_t kind; int32_t k; uint32_t buffer; } PlanInput;
// One number (or vector) the program reports: buffer in io, added to by every microbatch. A mean over
// the step's targets, or a sum over the step.
typedef struct PlanMetric { const char *name; double weight /* losses; 0: metric */; uint32_t buffer; bool sum; } PlanMetric;
typedef struct PlanOutput { const char *name; uint32_t buffer; } PlanOutput;

typedef struct PlanProgram {
    const char *name;            // "step", "eval", "prefill"
    PlanBuffer *buffers; uint32_t n_buffers, cap_buffers;
    PlanInput *inputs; uint32_t n_inputs, cap_inputs;
    PlanMetric *metrics; uint32_t n_metrics, cap_metrics;
    PlanOutput *outputs; uint32_t n_outputs, cap_outputs;
    PlanSegment *segments; uint32_t n_segments, cap_segments;
    PlanInstr *instrs; uint32_t n_instrs, cap_instrs;
    PlanRepeat *repeats; uint32_t n_repeats, cap_repeats; // ascending, apart
    PlanOperand *operands; uint32_t n_operands, cap_operands;
    PlanRow *rows; uint32_t n_rows, cap_rows;
    int64_t act_bytes, act_bound;     // peak of act, and its lower bound (largest sum of live bytes)
} PlanProgram;

// Rows of experts. A route gives every expert of this rank a segment of the rows of a buffer: `offsets`, i32
// [experts + 1], says where each begins. With row_align above 1, a power of two up to PLAN_MOST_ALIGN, segments are
// whole multiples of it, and [experts] more numbers behind say where the rows of each end; what is left of a
// segment are *pads*. In whatever kernels of the plan make, pads are zero: kernels may work on whole segments. What
// other ranks put they do not put there: a launch of family "pads" does, before the rows are read.
typedef struct Plan {
    Arena *arena;
    const char *model, *target;  // "tiny", "cpu" (PlanTarget)
    int64_t tokens;              // per microbatch (T)
    int64_t sequence, vocab;
    int32_t microbatches;        // per step, of this rank
    PlanMesh mesh;
    int32_t row_align;           // first rows of experts are multiples of it; see below
    int64_t region_bytes[N_REGIONS];
    int64_t n_trained;           // fp32 numbers in grads (padding included); as many of weights precede the
                                 // states where there are no buckets
    PlanBucket *buckets; uint32_t n_buckets, cap_buckets; // of many ranks, by place
    PlanParam *params; uint32_t n_params, cap_params;
    PlanKernel *kernels; uint32_t n_kernels, cap_kernels;
    PlanSource *sources; uint32_t n_sources, cap_sources;
    PlanProgram *programs; uint32_t n_programs, cap_programs;
} Plan;

Plan *plan_create(void);                                       // of one rank
void plan_destroy(Plan *plan);                                 // NULL is fine
int64_t plan_peak(const Plan *plan);                           // bytes, sum of regions
PlanProgram *plan_program(const Plan *plan, const char *name); // NULL if it has none
const PlanRepeat *plan_repeat(const PlanProgram *program, int64_t instr); // that it belongs to, or NULL
int32_t plan_trips(const PlanProgram *program, int64_t instr); // of an instruction, at even loads: counted ones 0
int32_t plan_slots(const PlanProgram *program);                // that its rows use, 1 or more
bool *plan_last_rows(const PlanProgram *program, Arena *arena); // [n_rows]: is it the last one of its segment?
static inline int64_t plan_offset(const PlanBuffer *buffer, int32_t slot) {
    return slot > 0 && buffer->n_further ? buffer->further[slot - 1] : buffer->offset;
}
int32_t plan_ranks(const Plan *plan);                          // of all stages
const char *plan_group_name(PlanGroup group);                  // "ep"
bool plan_group_along(PlanGroup group, int side);              // do its members differ on the side of the mesh?
int32_t plan_group_size(const Plan *plan, PlanGroup group);
bool plan_group_holds(PlanGroup group, PlanGroup inner);       // are members of `inner` members of `group`?
// Bytes of sym that other ranks reach: to the end of its highest buffer, in whole grains. Behind them lie
// the tables of puts and gets, int64 [slots that have a place of their own][members] each, in the order of
// programs and operands.
int64_t plan_window(const Plan *plan);
int64_t plan_tables(const Plan *plan);                         // bytes of all tables
int64_t plan_numbers(const PlanParam *param);
int64_t plan_shard_bytes(const Plan *plan, const PlanBucket *bucket);       // bytes / members
int64_t plan_master_bytes(const Plan *plan);                   // of all shards; 0 without buckets
const PlanBucket *plan_bucket(const Plan *plan, const PlanParam *param);    // NULL: a state, or one rank
int64_t plan_gradient(const Plan *plan, const PlanParam *param); // bytes in grads; -1: it is not whole there
Region plan_master(const Plan *plan);                          // where fp32 parameters that are trained lie
// What member `member` of the bucket's group has of a parameter; n = 0: nothing. On one rank, and of a state:
// all of it. Parts of the members in turn are the parameter in order.
PlanPart plan_part(const Plan *plan, const PlanParam *param, int32_t member);
// The number among all experts of the i-th that rank `member` of ep holds, in ascending order.
int32_t plan_expert(const PlanParam *param, int32_t member, int32_t i);
int64_t plan_whole_numbers(const PlanParam *param);            // over all ranks of ep
// What number `i` of a parameter on rank `member` of ep is in the whole parameter.
int64_t plan_whole_number(const PlanParam *param, int32_t member, int64_t i);
int dtype_bytes(Dtype dtype);
const char *dtype_name(Dtype dtype);

/* print.c, parse.c */
void plan_print(const Plan *plan, Text *out);
Hash plan_hash(const Plan *plan);
// Errors name line and what was expected. `text` is not kept.
Status plan_parse(const char *text, size_t bytes, Plan **out);
// stages.c: of a pipeline's plans, one text after another in the order of stages, that of one stage. Another
// number of texts than the pipeline has stages, or anything after the last, is an error.
Status plan_parse_stage(const char *text, size_t bytes, int32_t stage, Plan **out);

/* traffic.c: bytes that cross ranks */

#define PLAN_MOVES(X) X(gather) X(exchange) X(put) X(get) X(send) X(blocks)
typedef enum PlanMove {
#define X(name) MOVE_##name,
    PLAN_MOVES(X)
#undef X
    N_MOVES
} PlanMove;
enum { LINK_stage, LINK_stages, N_LINKS }; // between ranks of one stage; of several
// What a rank gives others (get: takes from others) in one run of a program. Puts and gets of rows are
// counted at even loads: every member is the place of as many as any other, and repeats that are counted
// do not run.
typedef struct PlanTraffic { double bytes[N_MOVES][N_LINKS]; } PlanTraffic;
void plan_traffic(const Plan *plan, const PlanProgram *program, PlanTraffic *out);
// Which operand of a launch that puts or gets rows is its table of rows, i32 [T, k]: member * rows of the
// buffer + row, or -1. -1: it has none.
int32_t plan_row_table(const Plan *plan, const PlanProgram *program, const PlanInstr *instr);

/* lives.c: what lives when, over all rows. A tick is one instruction of one row, in the order in which they
   run; trips of a repeat are one. Of a buffer of act or sym in one slot, its lives are from the first
   tick of a microbatch that touches it to the last; longer by what `first` and `last` say; and what is sent, to
   the next row of that segment and slot, which waits until it has been taken. What instructions of last rows
   touch has one life over all rows. */

typedef struct PlanLife { uint32_t buffer; int32_t slot; int64_t first, last; /* ticks */ } PlanLife;
typedef struct PlanLives {
    PlanLife *items; uint32_t n, cap;
    int64_t *row; // [n_rows + 1] first tick of each row, and the end
} PlanLives;
// References must be in range; rows are as check_rows wants them.
void plan_lives(const PlanProgram *program, Region region, Arena *arena, PlanLives *out);

/* check.c: what must hold of any plan, however it was made (shared with nobody who made it) */
Status plan_check(const Plan *plan);
// check_stages.c: of plans that pass it, one per stage: messages and calls of all pair up, nobody waits for ever.
Status plan_check_stages(const Plan *const *plans, int32_t n);

#endif
