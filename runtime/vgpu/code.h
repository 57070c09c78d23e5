// SPDX-License-Identifier: Apache-2.0
// The decoded form of PTX: arrays of 64-byte instructions whose operands are byte offsets into the
// frame of a warp.
//
// Frame. First 32-bit words, one bit per lane: word 0 is always all ones, then the predicates. Then
// slots of 128 bytes, aligned to 128: a 32-bit value is 32 x u32, a 64-bit value two slots seen as
// 32 x u64, 128 bits four slots as 32 x u64 low then 32 x u64 high. 8 and 16 bits live zero-extended
// in a 32-bit slot, always. Then the constants (immediates, parameters, special registers,
// addresses), filled when a frame is entered: every operand is "frame + offset". Handlers write only
// lanes of their mask. A destination is a source's slot exactly or disjoint from it.
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

// Executes *i for the lanes of the running split and goes on (VG_NEXT); NULL leaves the warp: it has
// blocked, finished, faulted or used its quantum, and warp->pc says where to resume.
typedef const VgInstr *(*VgHandler)(const VgInstr *i, VgWarp *w, char *frame);

struct VgInstr {
    VgHandler run;
    uint32_t d, a, b, c;    // frame offsets of the first operands
    uint32_t guard;         // frame offset of the guard's word, 0 = the word of all ones
    uint32_t flip;          // 0, or ~0 for @!p
    int64_t imm;            // displacement, comparison, shape: the handler's business
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

typedef struct VgBlock {   // basic block
    uint32_t first, n;     // instructions, the terminator included
    uint32_t to[2];        // successors; ~0 = none (to[0] of the fall-through, to[1] of the branch)
    uint32_t join;         // immediate post-dominator, ~0 = the exit
    bool is_join;          // it is the post-dominator of a branch
    const uint32_t *targets; // of brx.idx
    uint32_t n_targets;
} VgBlock;

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
    uint32_t *block_of;          // per instruction
    VgBlock *blocks;
    uint32_t n_blocks;
    VgConst *consts;
    uint32_t n_consts;
    uint32_t slots;              // 128-byte slots of values, without constants
    uint32_t frame_bytes;        // multiple of 128
    uint32_t pred_bytes;         // words at the frame's start, padded
    uint32_t local_bytes;        // of one activation, 16-aligned
    uint32_t args_at, ret_at;    // frame offset of the parameter area (see exec_call.c)
    uint32_t args_bytes, ret_bytes; // per lane
    uint64_t va;                 // function address
    bool calls;                  // calls anything
    const char **slot_names;     // virtual register that owns each slot at first, for reports
};

/* Memory instructions (exec_mem.c): imm = the VgSite of memory.h, a = the address register or 0. ---- */

/* decode.c, for files that decode instructions ---------------------------------------------------- */

typedef struct VgDecoder VgDecoder;
// One row per root. `decode` consumes modifiers and emits; what it leaves is reported as unknown.
typedef struct VgRoot {
    const char *root;
    Status (*decode)(VgDecoder *d, const PtxInstr *p);
    const char *forms; // for the message about an unknown form: "add{.sat}.s32, add{.rnd}{.ftz}.f32"
} VgRoot;

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
    const VgRoot *roots[10];  // ended by NULL
} VgIsa;
extern const VgIsa vg_isa_v3, vg_isa_v4; // isa.c
const VgIsa *vg_isa(void);               // what this processor runs; VGPU_ISA=v3 asks for less

// Modifiers. Order is free, as in practice; each is consumed once.
bool vg_take(VgDecoder *d, const char *mod);            // true when it was there
int vg_take_one(VgDecoder *d, const char *const *mods); // index in a NULL-ended list, -1
PtxType vg_take_type(VgDecoder *d);                     // first remaining type, PTX_NONE
bool vg_has(const VgDecoder *d, const char *mod);
Status vg_bad(VgDecoder *d, const char *format, ...) PRINTF_LIKE(2, 3); // ERR_INPUT, located

// Operands as frame offsets of `bits` wide values (8, 16 and 32 are one slot; 64; 128; 1: predicate
// word). vg_src makes constants and narrows or zero-extends registers of another width through a
// temporary; vg_dst does it after the instruction (sign: extend by sign).
Status vg_src(VgDecoder *d, const PtxOperand *op, int bits, uint32_t *at);
Status vg_dst(VgDecoder *d, const PtxOperand *op, int bits, bool sign, uint32_t *at);
Status vg_pred(VgDecoder *d, const PtxOperand *op, uint32_t *at, bool *negate); // source predicate
Status vg_address(VgDecoder *d, const PtxOperand *op, VgInstr *i, bool *addr32); // i->a, i->imm
uint32_t vg_const_bits(VgDecoder *d, uint64_t value, int bits);
uint32_t vg_temp(VgDecoder *d, int bits);               // a value slot of this instruction
uint32_t *vg_ops(VgDecoder *d, uint32_t n);             // operand list in the module's arena
// Appends an instruction with the guard of the current PTX instruction; the offsets among d, a, b,
// c, ops that are frame values must have come from the functions above (they are renumbered when
// slots are allotted). Returns it for further filling; valid until the next emit.
VgInstr *vg_emit(VgDecoder *d, VgHandler run);
void vg_emit_ops(VgDecoder *d, const uint32_t *ops, uint32_t n, uint32_t n_dst); // lists of ops[]:
        // the first n_dst are destinations, unless vg_ops_inout said that they are both
int vg_cc(const VgDecoder *d);                          // 80, 90, ...
bool vg_arch_has(const VgDecoder *d, const char *feature); // 'a' features: "wgmma", "tcgen05"

#endif
