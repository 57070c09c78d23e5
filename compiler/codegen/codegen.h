// SPDX-License-Identifier: Apache-2.0
// Inside codegen: template expansion, reflection, and the row-program generator.
//
// Source 0 of a plan is its target's prelude.h and what codegen.c lists after it. Sources of kernels
// are concatenated into translation units in any number and order, so every file-scope name of a
// kernel contains its entry ("pack_$entry"); what several kernels share belongs into source 0.
//
// CPU and CUDA take the same descriptions. contract.c, attend.c, row_emit.c and row_value.c write for
// the CPU, cuda_*.c for CUDA; row_build.c and row_plan.c serve both.
#ifndef MOEC_CODEGEN_H
#define MOEC_CODEGEN_H

#include "compiler/kernel/kernel.h"

/* expand.c ----------------------------------------------------------------------------------- */

// A hole: `$name` in a template becomes `text`. The longest run of letters, digits and underscores
// after the $ is the name, so `pack_$entry` works and `$entry_launch` is another hole.
typedef struct Hole {
    const char *name, *text;
} Hole;

// Text of templates/NAME ("cpu/row.c"), from $MOEC_TEMPLATES/NAME where that exists, else from the
// binary. Lives in `arena`. ERR_INTERNAL when there is none.
Status template_read(const char *name, Arena *arena, const char **text);
// Appends the template with all holes filled, `#line` first, and again after a filling of several
// lines, so that compilers point at the template's own lines. An unknown hole is an error with file
// and line. Holes that a template does not use are fine.
Status template_expand(const char *name, const Hole *holes, int n_holes, Text *out);

/* reflect.c ---------------------------------------------------------------------------------- */

// Reads the parameter list of the function definition `entry` in prelude + source with libclang:
// pointers to (const) float, bf16, int32_t or int64_t, then on a CPU `int64_t tile_begin, int64_t
// tile_end`; CUDA sources are read as C++ behind templates/cuda/shim.h, and an entry must be a kernel. Names
// and array in `arena`. Errors name the template's file and line. Answers are kept in the kernel
// cache.
Status reflect(bool cuda, const char *prelude, const char *source, const char *entry, Arena *arena,
               PlanArg **args, uint32_t *n_args);

/* contract.c --------------------------------------------------------------------------------- */

// The complete source, except its launch function, of pack, matmul, matmul_t and matmul_w, and its
// number of tiles. Strings in `arena`.
Status contract_source(const KernelDesc *desc, const char *entry, Arena *arena, Text *out,
                       int64_t *tiles);

/* attend.c ----------------------------------------------------------------------------------- */

// The complete source of attention or its gradient except the launch function, and its tiles.
Status attend_source(const KernelDesc *desc, const char *entry, Arena *scratch, Text *out,
                     int64_t *tiles);

/* row_*.c ------------------------------------------------------------------------------------ */

// The complete source of a row program except its launch function: defines
// void ENTRY(l0.., s0.., int64_t tile_begin, int64_t tile_end), tiles of ROW_TILE rows.
// ERR_INPUT when an operation has no row code.
Status row_source(const KernelDesc *desc, const char *entry, Text *out);

// A row program as a function inside another kernel's source: the post or pre of a contraction
// (`body` is &desc->body or &desc->pre).
//
//   static void NAME(loads.., stores.., const float *const *acc, const int64_t *acc_stride,
//                    [T *operand, int64_t operand_stride,] int64_t row_begin, int64_t row_end)
//
// Loads and stores stand in the order of the body, without WHAT_ACC loads and operand stores: row r
// of the i-th WHAT_ACC load lies at acc[i] + (r - row_begin) * acc_stride[i], row r of the operand at
// operand + (r - row_begin) * operand_stride. The operand's two parameters exist if the body has
// such a store; T is its type (float or bf16). Strides count numbers, features lie side by side.
// With partial stores row_begin must be a multiple of ROW_TILE, and row_end too or the last row's
// end. `parameters` gets the declarations of loads and stores, numbered as in the body behind the
// prefixes ("const float *l0, bf16 *s0, "), `arguments` their names ("l0, s0, "), each with a comma
// behind it. Both may be NULL. The i-th WHAT_ACC load is sibling i of the contraction.
Status row_function(const KernelDesc *desc, const RowBody *body, const char *name,
                    const char *load_prefix, const char *store_prefix, Text *out, Text *parameters,
                    Text *arguments);

/* cuda_*.c ----------------------------------------------------------------------------------- */

// How a kernel is launched: fields of PlanKernel.
typedef struct CudaShape {
    int64_t tiles;          // blocks
    int32_t threads, shared; // of a block; bytes of dynamic shared memory
} CudaShape;

// The complete source of a kernel for GPUs from sm_80 on, in each family's file. Contractions there
// have no post, pre, siblings or terms (LowerOptions.target). Strings in `scratch`. A row program's
// block may need more shared memory than other architectures than `target` (plan.h) have.
Status cuda_row_source(const KernelDesc *desc, const char *entry, const char *target, Arena *scratch,
                       Text *out, CudaShape *shape); // cuda_row.c: row
Status cuda_contract_source(const KernelDesc *desc, const char *entry, Arena *scratch, Text *out,
                            CudaShape *shape); // cuda_contract.c: pack, matmul, matmul_t, matmul_w
Status cuda_attend_source(const KernelDesc *desc, const char *entry, Arena *scratch, Text *out,
                          CudaShape *shape);   // cuda_attend.c: attend, attend_grad
Status cuda_flat_source(const KernelDesc *desc, const char *entry, Arena *scratch, Text *out,
                        CudaShape *shape);     // cuda_flat.c: the rest

/* fill.c ------------------------------------------------------------------------------------- */

// Holes of one expansion; their texts live in `arena`. Names and texts are kept, not copied.
typedef struct Filler {
    Arena *arena;
    Hole holes[64];
    int n;
} Filler;
void fill_hole(Filler *f, const char *name, const char *text);
void fill_size(Filler *f, const char *name, int64_t value);
void fill_real(Filler *f, const char *name, double value);   // a float literal
void fill_text(Filler *f, const char *name, Text *text);     // copied; finishes the text
// $NAME_type: float or bf16; $NAME_narrow: 0 or 1.
void fill_type(Filler *f, const char *name, uint8_t dtype);
// $entry and every size of a description under its own name: $rows, $k, $scale, ..
void fill_desc(Filler *f, const KernelDesc *d, const char *entry);
void fill_table(Filler *f, const KernelDesc *d);             // adamw: $table, $n_table
void fill_move(Filler *f, const KernelDesc *d);              // move: $type, $x_type, $y_type, $way

#endif
