// SPDX-License-Identifier: Apache-2.0
// PTX text and its syntax tree.
//
// The parser knows the grammar and names, not instructions: an instruction is a root, modifiers in
// the order written, and operands. Registers are resolved to their variables while parsing (scopes
// nest); labels at the end of the function. What an instruction means is decided in decode*.c.
// Everything lives in the arena given to ptx_parse.
#ifndef MOEC_VGPU_PTX_H
#define MOEC_VGPU_PTX_H

#include "runtime/base/base.h"

enum { PTX_NEWEST = 90 /* 9.0, the newest version whose instructions are known */ };

// X(name, spelling, bits, class) class: p predicate, b bits, u unsigned, s signed, f float, x other
#define PTX_TYPE_TABLE(X)                                                                          \
    X(PTX_PRED, "pred", 1, 'p') X(PTX_B8, "b8", 8, 'b') X(PTX_B16, "b16", 16, 'b')                 \
    X(PTX_B32, "b32", 32, 'b') X(PTX_B64, "b64", 64, 'b') X(PTX_B128, "b128", 128, 'b')            \
    X(PTX_U8, "u8", 8, 'u') X(PTX_U16, "u16", 16, 'u') X(PTX_U32, "u32", 32, 'u')                  \
    X(PTX_U64, "u64", 64, 'u') X(PTX_S8, "s8", 8, 's') X(PTX_S16, "s16", 16, 's')                  \
    X(PTX_S32, "s32", 32, 's') X(PTX_S64, "s64", 64, 's') X(PTX_F16, "f16", 16, 'f')               \
    X(PTX_F16X2, "f16x2", 32, 'f') X(PTX_BF16, "bf16", 16, 'f') X(PTX_BF16X2, "bf16x2", 32, 'f')   \
    X(PTX_F32, "f32", 32, 'f') X(PTX_F64, "f64", 64, 'f') X(PTX_TF32, "tf32", 32, 'f')             \
    X(PTX_F32X2, "f32x2", 64, 'f') X(PTX_U16X2, "u16x2", 32, 'u') X(PTX_S16X2, "s16x2", 32, 's')   \
    X(PTX_E4M3, "e4m3", 8, 'x') X(PTX_E5M2, "e5m2", 8, 'x') X(PTX_E4M3X2, "e4m3x2", 16, 'x')       \
    X(PTX_E5M2X2, "e5m2x2", 16, 'x') X(PTX_E4M3X4, "e4m3x4", 32, 'x')                              \
    X(PTX_E5M2X4, "e5m2x4", 32, 'x') X(PTX_E2M3X2, "e2m3x2", 16, 'x')                              \
    X(PTX_E3M2X2, "e3m2x2", 16, 'x') X(PTX_E2M1X2, "e2m1x2", 8, 'x')                               \
    X(PTX_E2M3X4, "e2m3x4", 32, 'x') X(PTX_E3M2X4, "e3m2x4", 32, 'x')                              \
    X(PTX_E2M1X4, "e2m1x4", 16, 'x') X(PTX_UE8M0X2, "ue8m0x2", 16, 'x')                            \
    X(PTX_E2M3, "e2m3", 8, 'x') X(PTX_E3M2, "e3m2", 8, 'x') X(PTX_E2M1, "e2m1", 8, 'x')            \
    X(PTX_UE8M0, "ue8m0", 8, 'x') X(PTX_UE4M3, "ue4m3", 8, 'x') X(PTX_B4X16, "b4x16", 64, 'x')     \
    X(PTX_B1, "b1", 1, 'x') X(PTX_U4, "u4", 4, 'x') X(PTX_S4, "s4", 4, 'x')                        \
    X(PTX_B1024, "b1024", 1024, 'x')
#define X(name, spelling, bits, class) name,
typedef enum PtxType { PTX_NONE, PTX_TYPE_TABLE(X) PTX_TYPE_COUNT } PtxType;
#undef X
const char *ptx_type_name(PtxType type);   // "s32"
int ptx_type_bits(PtxType type);
char ptx_type_class(PtxType type);
PtxType ptx_type_find(const char *name);   // without the dot; PTX_NONE when it is no type

typedef enum PtxSpace {
    PTX_GENERIC, PTX_REG, PTX_GLOBAL, PTX_SHARED, PTX_LOCAL, PTX_CONST, PTX_PARAM, PTX_SREG
} PtxSpace;

// A place in the source that was compiled to PTX, with the chain of calls it was inlined through.
typedef struct PtxLoc PtxLoc;
struct PtxLoc {
    uint32_t file, line, column;
    const char *function;  // inlined function's name, NULL at the outermost level
    const PtxLoc *inlined; // where it was inlined
};

typedef struct PtxVar PtxVar;
typedef struct PtxFunc PtxFunc;
typedef struct PtxInit PtxInit; // one element of an initialiser
struct PtxInit {
    const char *symbol; // its address (generic() when `generic`), or NULL: the bits
    bool generic;
    uint64_t bits;      // value, or offset to the symbol
    uint32_t mask_shift, bytes; // 0xFF(sym) forms: which byte; bytes of the element
};
struct PtxVar {
    const char *name;
    PtxSpace space;
    PtxType type;
    uint32_t vector;       // 1, 2, 4
    uint32_t align;        // bytes, 0 = natural
    uint64_t count;        // elements; 0 for []
    bool array, is_extern, visible, weak;
    PtxInit *inits;        // in order, trailing ones absent
    uint32_t n_inits;
    uint32_t line;         // of the PTX text
    uint32_t index;        // in its list (registers: PtxFunc.regs)
    int64_t user;          // free for the decoder: placement, -1 before
};

typedef enum PtxOperandKind {
    PTX_OP_REG,     // var; lane component of a vector register is not in use since PTX 1.x
    PTX_OP_SPECIAL, // name "%tid.x"
    PTX_OP_IMM,     // bits, is_float with float_bits 32 or 64
    PTX_OP_SYMBOL,  // name (+ bits): variable, function or label; resolved through var/func/label
    PTX_OP_ADDRESS, // [base + bits], base = items[0] (REG, SYMBOL, IMM), items[1..] of [a, {b, c}]
    PTX_OP_VECTOR,  // {items}
    PTX_OP_PAIR,    // p|q, items[0], items[1]
    PTX_OP_LIST,    // (items) of a call
    PTX_OP_SINK     // _
} PtxOperandKind;
typedef struct PtxOperand PtxOperand;
struct PtxOperand {
    PtxOperandKind kind;
    bool negate;           // !p, -r
    bool is_float;
    uint8_t float_bits;    // 32: 0f..., 64: 0d... or decimal
    int32_t label;         // index of the statement a label names, -1
    PtxVar *var;
    PtxFunc *func;
    const char *name;
    uint64_t bits;         // integer as two's complement, float as the bits of float_bits
    PtxOperand *items;
    uint32_t n_items;
};

typedef struct PtxInstr {
    const char *root;          // "ld"
    const char **mods;         // "global", "v4", "f32": without the dots
    uint32_t n_mods;
    PtxVar *guard;             // NULL when unguarded
    bool guard_not;
    PtxOperand *operands;
    uint32_t n_operands;
    uint32_t line;             // of the PTX text
    const PtxLoc *loc;
} PtxInstr;

typedef struct PtxTable { // .branchtargets, .calltargets, .callprototype
    const char *name;
    char kind;             // 'b', 'c', 'p'
    const char **names;
    int32_t *labels;       // of 'b', resolved
    uint32_t n;
    PtxFunc *prototype;    // of 'p': params and rets only
} PtxTable;

struct PtxFunc {
    const char *name;
    bool is_entry, is_extern, visible, weak, has_body, noreturn;
    PtxVar **rets, **params;
    uint32_t n_rets, n_params, cap_rets, cap_params;
    PtxVar **regs, **vars;      // all registers; .shared .local .const .global .param of the body
    uint32_t n_regs, n_vars, cap_regs, cap_vars;
    PtxInstr *instrs;
    uint32_t n_instrs, cap_instrs;
    PtxTable *tables;
    uint32_t n_tables, cap_tables;
    uint32_t maxntid[3], reqntid[3], min_ctas, cluster[3], max_cluster;
    bool explicit_cluster;
    uint32_t line;
    void *user;                 // of the decoder
};

typedef struct PtxModule {
    int version;               // 90 for 9.0, see PTX_NEWEST
    const char *target;        // "sm_90a"
    const char **files;        // by .file number, NULL holes
    uint32_t n_files;
    PtxVar **vars;             // module scope
    uint32_t n_vars, cap_vars;
    PtxFunc **funcs;
    uint32_t n_funcs, cap_funcs;
} PtxModule;

// The text need not end with 0. ERR_INPUT names the PTX line and, where known, the source line.
Status ptx_parse(Arena *arena, const char *text, size_t n, PtxModule **module);
PtxVar *ptx_find_var(const PtxModule *module, const char *name);
PtxFunc *ptx_find_func(const PtxModule *module, const char *name);
uint64_t ptx_var_bytes(const PtxVar *var);  // elements x vector x type
uint32_t ptx_var_align(const PtxVar *var);
// "x.cu:12 (in f, inlined at y.cu:3)" or "" when there is no .loc
void ptx_loc_text(const PtxModule *module, const PtxLoc *loc, Text *text);

/* ptx_lex.c: tokens -------------------------------------------------------------------------- */

typedef enum PtxTokenKind {
    PTX_T_END, PTX_T_NAME, PTX_T_DIRECTIVE, PTX_T_INT, PTX_T_FLOAT, PTX_T_STRING, PTX_T_PUNCT, PTX_T_BAD
} PtxTokenKind;
typedef struct PtxToken {
    PtxTokenKind kind;
    const char *at;     // into the text
    uint32_t n, line;
    uint64_t bits;      // INT and FLOAT
    uint8_t float_bits;
} PtxToken;
typedef struct PtxLexer { const char *at, *end; uint32_t line; } PtxLexer;
// A NAME is an instruction root, register, label or symbol; with %, $, _ and :: inside. Dots are not
// part of names: `ld.global.u32` is NAME ld, DIRECTIVE .global, DIRECTIVE .u32 (which may hold ::).
PtxToken ptx_next(PtxLexer *lexer);

#endif
