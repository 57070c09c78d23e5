// SPDX-License-Identifier: Apache-2.0
// The decoded form of PTX: arrays of 64-byte instructions whose operands are byte offsets into the
// frame of a warp.
//
// Frame. First 32-bit words, one bit per lane: word 0 is always all ones, word 1 the carry
// of add.cc, then the predicates. Then
// slots of 128 bytes, aligned to 128: a 32-bit value is 32 x u32, a 64-bit value two slots seen as
// 32 x u64, 128 bits four slots as 32 x u64 low then 32 x u64 high. 8 and 16 bits live
// zero-extended in a 32-bit slot, always. Then the constants (immediates, parameters, special
// registers, addresses), filled when a frame is entered: every operand is "frame + offset".
// Handlers write only lanes of their mask. A destination is a source's slot exactly or disjoint
// from it.
//
// Control. A basic block ends in a terminator (branch, exit, return, or a fall-through made by the
// decoder); terminators count, give the quantum up, and meet other lanes at joins (warp.h).
#ifndef MOEC_VGPU_CODE_H
#define MOEC_VGPU_CODE_H

#include "runtime/vgpu/core.h"
#include "runtime/vgpu/memory.h"
#include "runtime/vgpu/ptx.h"

typedef struct VgWarp VgWarp;
typedef struct VgInstr VgInstr;
typedef struct VgFunc VgFunc;
typedef struct VgUndefined VgUndefined;

// Executes *i for the lanes of the running split and goes on (VG_NEXT); NULL leaves the warp: it
// has blocked, finished, faulted or used its quantum, and warp->pc says where to resume.
typedef const VgInstr *(*VgHandler)(const VgInstr *i, VgWarp *w, char *frame);

struct VgInstr {
    VgHandler run;
    uint32_t d, a, b, c;    // frame offsets of the first operands
    uint32_t guard;         // frame offset of the guard's word, 0 = the word of all ones
    uint32_t flip;          // 0, or ~0 for @!p
    int64_t imm;            // immediate, comparison, shape: the handler's business
    const void *extra;      // VgSite of a memory access, VgBlock of a terminator, ...
    const uint32_t *ops;    // more frame offsets (vectors, fragments), NULL when there are none
    uint64_t site;          // cache of the place, owned by the handler; written racily by threads
};
_Static_assert(sizeof(VgInstr) == 64, "one cache line");

// Lanes that execute *i: of the split and of the guard.
#define VG_MASK(i, w, f) ((w)->mask & (*(const uint32_t *)((f) + (i)->guard) ^ (i)->flip))
#if defined(__clang__) && defined(__OPTIMIZE__)
#define VG_NEXT(i, w, f) __attribute__((musttail)) return (i)[1].run((i) + 1, (w), (f))
#define VG_GOTO(to, w, f) __attribute__((musttail)) return (to)->run((to), (w), (f))
#else // the loop of vg_warp_run goes on
#define VG_NEXT(i, w, f) return (i) + 1
#define VG_GOTO(to, w, f) return (to)
#endif

// What a terminator needs: VgInstr.extra. Instructions are pointers into the function's code.
typedef struct VgBlock {
    const VgInstr *first;  // of the block
    uint32_t n;            // instructions in it, the terminator included
    const VgInstr *next;   // the following block, NULL at the end
    const VgInstr *target; // of a branch
    const VgInstr *join;   // first of the immediate post-dominator, NULL: the exit
    const VgInstr **targets; // of brx.idx
    uint32_t n_targets;
} VgBlock;

// Special registers that are constant for a warp; %clock and the like are read by instructions.
#define VG_SPECIAL_TABLE(X)                                                                        \
    X(VG_TID_X, "%tid.x") X(VG_TID_Y, "%tid.y") X(VG_TID_Z, "%tid.z")                              \
    X(VG_NTID_X, "%ntid.x") X(VG_NTID_Y, "%ntid.y") X(VG_NTID_Z, "%ntid.z")                        \
    X(VG_CTAID_X, "%ctaid.x") X(VG_CTAID_Y, "%ctaid.y") X(VG_CTAID_Z, "%ctaid.z")                  \
    X(VG_NCTAID_X, "%nctaid.x") X(VG_NCTAID_Y, "%nctaid.y") X(VG_NCTAID_Z, "%nctaid.z")            \
    X(VG_LANEID, "%laneid") X(VG_WARPID, "%warpid") X(VG_NWARPID, "%nwarpid")                      \
    X(VG_LANEMASK_EQ, "%lanemask_eq") X(VG_LANEMASK_LT, "%lanemask_lt")                            \
    X(VG_LANEMASK_LE, "%lanemask_le") X(VG_LANEMASK_GT, "%lanemask_gt")                            \
    X(VG_LANEMASK_GE, "%lanemask_ge") X(VG_SMID, "%smid") X(VG_NSMID, "%nsmid")                    \
    X(VG_GRIDID, "%gridid") X(VG_CLUSTER_EXPLICIT, "%is_explicit_cluster")                         \
    X(VG_CLUSTERID_X, "%clusterid.x") X(VG_CLUSTERID_Y, "%clusterid.y")                            \
    X(VG_CLUSTERID_Z, "%clusterid.z") X(VG_NCLUSTERID_X, "%nclusterid.x")                          \
    X(VG_NCLUSTERID_Y, "%nclusterid.y") X(VG_NCLUSTERID_Z, "%nclusterid.z")                        \
    X(VG_CLUSTER_CTAID_X, "%cluster_ctaid.x") X(VG_CLUSTER_CTAID_Y, "%cluster_ctaid.y")            \
    X(VG_CLUSTER_CTAID_Z, "%cluster_ctaid.z") X(VG_CLUSTER_NCTAID_X, "%cluster_nctaid.x")          \
    X(VG_CLUSTER_NCTAID_Y, "%cluster_nctaid.y") X(VG_CLUSTER_NCTAID_Z, "%cluster_nctaid.z")        \
    X(VG_CLUSTER_CTARANK, "%cluster_ctarank") X(VG_CLUSTER_NCTARANK, "%cluster_nctarank")          \
    X(VG_TOTAL_SMEM, "%total_smem_size") X(VG_DYNAMIC_SMEM, "%dynamic_smem_size")                  \
    X(VG_AGGR_SMEM, "%aggr_smem_size") X(VG_ENVREG1, "%envreg1") X(VG_ENVREG2, "%envreg2")         \
    X(VG_RESERVED_BEGIN, "%reserved_smem_offset_begin")                                            \
    X(VG_RESERVED_END, "%reserved_smem_offset_end")                                                \
    X(VG_RESERVED_CAP, "%reserved_smem_offset_cap")                                                \
    X(VG_RESERVED_0, "%reserved_smem_offset_0") X(VG_RESERVED_1, "%reserved_smem_offset_1")
#define X(name, spelling) name,
typedef enum VgSpecial { VG_SPECIAL_TABLE(X) } VgSpecial;
#undef X

typedef enum VgConstKind {
    VG_CONST_BITS,    // value
    VG_CONST_PARAM,   // kernel parameter at byte `value`, `bytes` long, sign-extended if `sign`
    VG_CONST_SHARED,  // address in the shared space: the block's window + value
    VG_CONST_DYNAMIC, // address of dynamic shared memory + value
    VG_CONST_LOCAL,   // address in the local space: the frame's local base + value
    VG_CONST_SPECIAL  // special register `value` (VgSpecial)
} VgConstKind;
typedef struct VgConst { VgConstKind kind; uint32_t at, bytes; bool sign; uint64_t value; } VgConst;

struct VgFunc {
    PtxFunc *ptx;
    VgModule *module;
    VgInstr *code;
    uint32_t n_code;
    const PtxInstr **source;     // per instruction, NULL for those the decoder made
    VgBlock *blocks;
    uint32_t n_blocks;
    VgConst *consts;
    uint32_t n_consts;
    uint32_t slots;              // 128-byte slots of values, without constants
    uint32_t frame_bytes;        // multiple of 128
    uint32_t pred_bytes;         // words at the frame's start, padded
    uint32_t local_bytes;        // of one activation, 16-aligned
    uint32_t area_at, area_bytes; // parameter area: frame offset, bytes per lane (control.c)
    uint64_t va;                 // function address
    bool calls;                  // calls anything
    bool reserved;               // reads %reserved_smem_offset_...
    VgUndefined **undefined;     // per instruction: reads a register that nothing wrote; NULL: none does
    const char **slot_names;     // virtual register that owns each slot at first, for reports
};

/* Memory instructions (exec_mem.c): extra = the VgSite of memory.h, a = the address register or 0.
 * ---- */

/* decode.c, for files that decode instructions ----------------------------------------------------
 */

typedef struct VgDecoder VgDecoder;
// One row per root. `decode` consumes modifiers and emits; what it leaves is reported as unknown.
typedef struct VgRoot {
    const char *root;
    Status (*decode)(VgDecoder *d, const PtxInstr *p);
    const char
        *forms; // for the message about an unknown form: "add{.sat}.s32, add{.rnd}{.ftz}.f32"
} VgRoot;

// Forms whose operands are plain: one row says all. `mods` is the set of modifiers, joined by dots,
// in any order; bits of d, a, b, c (0: no such operand; 1: predicate).
typedef struct VgForm {
    const char *root, *mods;
    VgHandler run;
    uint8_t bits[4];
    int32_t imm;
    uint8_t is_float; // literals are floats; a result that is narrower than its register is not
} VgForm;

// Instruction sets of the host. Every exec_*.c is compiled for x86-64-v3 and for x86-64-v4, so what
// such a file defines is static or named through VG_NAME; the better of the two is chosen at load.
// A file of handlers holds the rows (VgRoot) that emit them: exec_alu.c defines
// `const VgRoot VG_NAME(vg_roots_alu)[]`, ended by a NULL root.
#ifdef VG_V4
#define VG_NAME(x) x##_v4
#else
#define VG_NAME(x) x##_v3
#endif
typedef struct VgIsa {
    const VgForm *forms[10];  // looked at first
    const VgRoot *roots[10];
    VgHandler move32, move64;
    VgHandler narrow, widen, widen_signed; // moves that the decoder adds: 64 -> 32 bits, 32 -> 64
} VgIsa;

// Shared by files of handlers, each defined once per instruction set.
#define VG_SHARED_HANDLERS(X) /* moves of exec_int.c, widenings of exec_half.c */                  \
    X(vg_move32) X(vg_move64) X(vg_narrow) X(vg_widen) X(vg_widen_signed) X(vg_low16) X(vg_pack16) \
    X(vg_select32) X(vg_half_widen) X(vg_bf16_widen)
#define X(name) const VgInstr *VG_NAME(name)(const VgInstr *i, VgWarp *w, char *f);
VG_SHARED_HANDLERS(X)
#undef X
// Comparison of f16x2 and bf16x2 (operands 1, 2, and 3 if `op`) into the predicates of the low and
// high halves (exec_half.c); handler of a comparison, 0.. as exec_float.c lists them.
Status VG_NAME(vg_compare_pair)(VgDecoder *d, const PtxInstr *p, PtxType type, int comparison,
                                bool ftz, int op, const uint32_t to[2]);
Status VG_NAME(vg_decode_clock)(VgDecoder *d, const PtxInstr *p, bool *done); // mov from %clock...
float VG_NAME(vg_exp2)(float x);
float VG_NAME(vg_tanh)(float x);
VgHandler VG_NAME(vg_comparer)(PtxType type, int comparison, bool ftz);

extern const VgIsa vg_isa_v3, vg_isa_v4; // isa.c
const VgIsa *vg_isa(void);               // what this processor runs; MOEC_VGPU_ISA=v3 asks for less

// Modifiers. Order is free, as in practice; each is consumed once.
bool vg_take(VgDecoder *d, const char *mod);            // true when it was there
int vg_take_one(VgDecoder *d, const char *const *mods); // index in a NULL-ended list, -1
PtxType vg_take_type(VgDecoder *d);                     // first remaining type, PTX_NONE
bool vg_has(const VgDecoder *d, const char *mod);
Status vg_bad(VgDecoder *d, const char *format, ...) PRINTF_LIKE(2, 3); // ERR_INPUT, located
Status vg_count(VgDecoder *d, uint32_t least, uint32_t most);           // of operands

// Operands become *references* until slots are allotted; after the function is decoded they are
// frame offsets. `bits` is the width the instruction works on: 8, 16, 32 (one slot), 64, 128.
// vg_src makes constants, and reads a register of another width through a temporary (narrowed or
// zero-extended); vg_dst writes one through a temporary afterwards (extended by sign if `sign`).
Status vg_src(VgDecoder *d, const PtxOperand *op, int bits, uint32_t *at);
Status vg_src_float(VgDecoder *d, const PtxOperand *op, int bits,
                    uint32_t *at); // literals are floats
Status vg_dst(VgDecoder *d, const PtxOperand *op, int bits, bool sign, uint32_t *at);
Status vg_pred(VgDecoder *d, const PtxOperand *op, uint32_t *at, bool *negate); // source predicate
Status vg_pred_dst(VgDecoder *d, const PtxOperand *op, uint32_t *at); // `_` gives a scratch
uint32_t vg_temp(VgDecoder *d, int bits);
uint32_t vg_temp_pred(VgDecoder *d);
uint32_t vg_const_bits(VgDecoder *d, uint64_t value, int bits);
uint32_t vg_const_param(VgDecoder *d, uint32_t at, uint32_t bytes, bool sign, int bits);
bool vg_is_const(const VgDecoder *d, uint32_t ref, uint64_t *value);            // of known bits
// [base + displacement]: register (any width) or constant address; *bytes 4 or 8, 0 = only *offset.
Status vg_address(VgDecoder *d, const PtxOperand *op, uint32_t *base, int64_t *offset, int *bytes);
// Appends an instruction guarded as the current one. Fields d (written), a, b, c (read) hold
// references, 0 = none; valid until the next emit. Lists are renumbered in place: n_dst written
// ones, then read ones; they must live in vg_arena.
VgInstr *vg_emit(VgDecoder *d, VgHandler run);
void vg_emit_list(VgDecoder *d, uint32_t *refs, uint32_t n_dst,
                  uint32_t n_src);                            // of the last emitted
void vg_emit_reads(VgDecoder *d, uint32_t *refs, uint32_t n); // a second list, read only
// The last emitted ends a block: label = PTX instruction it branches to or -1; falls: may go on to
// the next block (guarded ones do anyway).
void vg_emit_terminator(VgDecoder *d, int32_t label, const PtxTable *table, bool falls);
const VgInstr *vg_fall(const VgInstr *i, VgWarp *w, char *f); // control.c
const VgInstr *vg_ret(const VgInstr *i, VgWarp *w, char *f);
// ld.param and st.param; *done false: a general access, of the parameter space (control.c).
Status vg_decode_param(VgDecoder *d, const PtxInstr *p, PtxType type, uint32_t vector, bool store,
                       bool *done);
Arena *vg_arena(VgDecoder *d);
VgSite *vg_site(VgDecoder *d);                          // zeroed, with its id
int vg_cc(const VgDecoder *d);                          // 80, 90, ...
const VgIsa *vg_decoder_isa(const VgDecoder *d);

#endif
