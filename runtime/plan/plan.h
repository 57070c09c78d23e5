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
//   totals    sums over microbatches that m.update reads         a step
//   packed    weights as kernels read them, in the precision they compute in (kernel.h: pack); made from
//             `weights` by program "pack" after init or load, and by the update segment of "step"
//   act       everything else a program computes                 as placed; programs share it
//   io        inputs the host writes, outputs and metrics it reads
//   scalars   step scalars (ScalarSlot below)
//
// `step` of a training plan: row "clear", then per microbatch "forward", "backward", then "update".
// The text form is the only format: plan_print and plan_parse are inverse, byte for byte. Its hash (of
// the text without locations) is the plan's identity. Version line: "plan 1".
#ifndef MOEC_PLAN_H
#define MOEC_PLAN_H

#include "runtime/base/base.h"

enum { PLAN_VERSION = 1, PLAN_MAX_DIMS = 8, PLAN_GRAIN = 256 /* bytes: address alignment of buffers */ };

#define PLAN_DTYPES(X) X(F32, "f32", "float", 4) X(I32, "i32", "int32_t", 4) X(I64, "i64", "int64_t", 8) X(BF16, "bf16", "bf16", 2)
typedef enum Dtype {
#define X(name, text, c_type, bytes) DTYPE_##name,
    PLAN_DTYPES(X)
#undef X
    N_DTYPES
} Dtype;

#define PLAN_REGIONS(X) X(weights) X(grads) X(moment1) X(moment2) X(totals) X(packed) X(act) X(io) X(scalars)
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

typedef enum PlanInit { PLAN_INIT_NORMAL, PLAN_INIT_ZEROS, PLAN_INIT_ONES } PlanInit;
typedef enum OperandMode { OPERAND_READ, OPERAND_WRITE, OPERAND_ADD, OPERAND_INPLACE } OperandMode; // < > += =

typedef struct PlanParam {
    const char *name;            // address: "layers.3.ffn.experts.w_in"
    bool is_state;
    bool per_expert;             // first dimension is the expert
    uint8_t n_dims; int64_t dims[PLAN_MAX_DIMS];
    uint8_t init; double std;    // PlanInit
    double decay, lr;            // multipliers
    int64_t offset;              // bytes in weights; the same in grads, moment1, moment2 unless a state
} PlanParam;

typedef struct PlanBuffer {
    const char *name;            // unique in its program: address + operation, numbered
    uint8_t dtype, region;
    uint8_t n_dims; int64_t dims[PLAN_MAX_DIMS];
    int64_t offset, bytes;
    int32_t first, last;         // instructions; act only, else 0 .. last instruction
    const char *loc;             // "models/tiny.lua:14" or NULL
} PlanBuffer;

// Where a plan runs: "cpu", or "cuda:ARCH" with ARCH the oldest GPU architecture its kernels are built for, as
// compilers name it: sm_80, sm_90a (the letter: only this one, and all it can do), sm_100a.
typedef struct PlanTarget { bool cuda; int sm; char letter; /* 0: none */ } PlanTarget;
// False when it is neither.
enum { PLAN_OLDEST_SM = 80 }; // whose instructions kernels use
bool plan_target(const char *text, PlanTarget *out);

// One parameter of a kernel's entry, as libclang read it from the expanded source: the launch table.
typedef struct PlanArg { const char *name; uint8_t dtype; bool is_const; } PlanArg;

// void ENTRY(arg pointers in order..., int64_t tile_begin, int64_t tile_end): computes tiles
// [tile_begin, tile_end) of `tiles`; tiles are independent of each other, and bits do not depend on who
// runs which. Every source also defines, generated from the launch table,
// void ENTRY_launch(void *const *args, int64_t tile_begin, int64_t tile_end).
// On CUDA: extern "C" __global__ void ENTRY(arg pointers in order...), `tiles` blocks along x of `threads`
// threads each, with `shared` bytes of dynamic shared memory; no launch function.
typedef struct PlanKernel {
    const char *family;          // "row", "matmul", "attend", ...
    const char *entry;           // C identifier, unique in the plan
    Hash hash;                   // of family, sizes, bodies, tunables
    uint32_t source;             // index into sources
    int64_t tiles;
    int32_t threads, shared;     // CUDA; 0 on a CPU
    double flops, bytes;         // of one launch, for the simulator and the reports
    PlanArg *args; uint32_t n_args;
} PlanKernel;

// A C source text. Source 0 is the prelude (types, vector helpers, math); a translation unit is the prelude
// followed by any of the others, in any number: their names do not clash. None includes a header.
typedef struct PlanSource { const char *text; int64_t bytes; Hash hash; } PlanSource;

// In the order of the kernel's args. `step`: bytes by which its address moves on with each trip of a repeat.
typedef struct PlanOperand { uint32_t buffer; uint8_t mode; int64_t step; } PlanOperand;
typedef struct PlanInstr { uint32_t kernel, operands /* first, in program->operands */, n_operands; } PlanInstr;
typedef struct PlanSegment { const char *name; int32_t first, n; } PlanSegment; // instructions
// Instructions [first, first + n) of one segment run `trip` times over: a piece of some operands at a time
// (step * trip is the buffer's size), the whole of the others (step 0).
typedef struct PlanRepeat { int32_t first, n, trip; } PlanRepeat;
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

typedef struct Plan {
    Arena *arena;
    const char *model, *target;  // "tiny", "cpu" (PlanTarget)
    int64_t tokens;              // per microbatch (T)
    int64_t sequence, vocab;
    int32_t microbatches;        // per step
    int64_t region_bytes[N_REGIONS];
    int64_t n_trained;           // fp32 numbers in weights before the states (padding included)
    PlanParam *params; uint32_t n_params, cap_params;
    PlanKernel *kernels; uint32_t n_kernels, cap_kernels;
    PlanSource *sources; uint32_t n_sources, cap_sources;
    PlanProgram *programs; uint32_t n_programs, cap_programs;
} Plan;

Plan *plan_create(void);
void plan_destroy(Plan *plan);                                 // NULL is fine
int64_t plan_peak(const Plan *plan);                           // bytes, sum of regions
PlanProgram *plan_program(const Plan *plan, const char *name); // NULL if it has none
const PlanRepeat *plan_repeat(const PlanProgram *program, int64_t instr); // that it belongs to, or NULL
int dtype_bytes(Dtype dtype);
const char *dtype_name(Dtype dtype);

/* print.c, parse.c */
void plan_print(const Plan *plan, Text *out);
Hash plan_hash(const Plan *plan);
// Errors name line and what was expected. `text` is not kept.
Status plan_parse(const char *text, size_t bytes, Plan **out);

/* check.c: what must hold of any plan, however it was made (shared with nobody who made it) */
Status plan_check(const Plan *plan);

#endif
