// SPDX-License-Identifier: Apache-2.0
// A second opinion: PTX executed one lane at a time, from the manual, with nothing of runtime/vgpu.
//
// It takes what program.c writes: one entry, one instruction per line, no scopes and no calls. A
// lane runs by itself until it meets an instruction that names others (.sync); there it waits until
// every lane of its membermask waits at the same place. Convergence is never assumed. Floating
// point is integers: an exact value, rounded once (ref_real.c).
#ifndef TESTS_VGPU_REF_H
#define TESTS_VGPU_REF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Programs (ref_parse.c) ----------------------------------------------------------------------- */

enum { REF_WORDS = 10, REF_OPERANDS = 6, REF_REGISTERS = 256 };

typedef struct RefType {
    char kind;               // u, s, b, f, p (predicate), h (bf16), t (tf32), 0: none
    int bits;                // of one element
    int lanes;               // 2 for .f16x2 and .bf16x2, else 1
} RefType;

typedef enum RefKind { REF_NONE, REF_REG, REF_IMMEDIATE, REF_LABEL, REF_PAIR } RefKind;
typedef struct RefOperand {
    RefKind kind;
    int reg, second;         // second: of {a, b} and of p|q, else -1
    bool negated;            // !%p
    uint64_t value;          // of an immediate; offset of an address
    char label[24];
} RefOperand;

typedef struct RefInstr {
    char word[REF_WORDS][20]; // "cvt", "rn", "f32", "s32"
    int n_words;
    int guard;               // register, or -1
    bool guard_negated;
    RefOperand operand[REF_OPERANDS];
    int n_operands;
    int target;              // of bra
    char text[128];
} RefInstr;

typedef struct RefProgram {
    RefInstr *instr;
    int n;
    char names[REF_REGISTERS][16];
    int n_names;
} RefProgram;

bool ref_parse(const char *ptx, RefProgram *program, char error[256]);
void ref_finish(RefProgram *program);
bool ref_has(const RefInstr *instr, const char *word);
RefType ref_type(const char *word);             // kind 0: the word is no type
// The i-th type among the words, from the front.
RefType ref_nth_type(const RefInstr *instr, int i);

/* Values (ref_real.c) -------------------------------------------------------------------------- */

typedef unsigned __int128 RefWide;
typedef enum RefClass { REF_ZERO, REF_FINITE, REF_INFINITE, REF_NAN } RefClass;
// (-1)^negative * mantissa * 2^exponent, plus something less than one unit of it when inexact.
typedef struct RefReal {
    RefClass class;
    bool negative, inexact;
    RefWide mantissa;
    int exponent;
} RefReal;
typedef enum RefRound { REF_RN, REF_RZ, REF_RM, REF_RP, REF_RNA } RefRound;

RefReal ref_real(uint64_t bits, RefType type, bool ftz);
RefReal ref_real_int(uint64_t bits, RefType type);
// Rounded once. A NaN is the type's canonical one.
uint64_t ref_round(RefReal value, RefType type, RefRound round, bool ftz, bool sat);
RefReal ref_add(RefReal a, RefReal b, RefRound round);
RefReal ref_mul(RefReal a, RefReal b);
RefReal ref_div(RefReal a, RefReal b);
RefReal ref_sqrt(RefReal a);
int ref_compare(RefReal a, RefReal b);          // -1, 0, 1; 2: unordered
// To an integer value, by `round`; then to the type's range.
RefReal ref_integral(RefReal a, RefRound round);
uint64_t ref_to_int(RefReal a, RefType type);
RefRound ref_rounding(const RefInstr *instr, RefRound otherwise);

/* Instructions of one lane (ref_int.c, ref_float.c, ref_cvt.c) --------------------------------- */

// `a`: source values; `d`: results, the second of pairs. false: not an instruction of that file.
bool ref_int(const RefInstr *instr, const uint64_t a[4], uint64_t d[2], bool *carry);
bool ref_float(const RefInstr *instr, const uint64_t a[4], uint64_t d[2]);
bool ref_cvt(const RefInstr *instr, const uint64_t a[4], uint64_t d[2]);
// Of both: setp, set. The comparison's word is among the instruction's.
bool ref_holds(const RefInstr *instr, RefType type, uint64_t a, uint64_t b);

/* Running (ref_run.c) -------------------------------------------------------------------------- */

// One block of `threads`. in and out are the parameters of that name: arrays of 32-bit words, of
// which each thread has its own `in_words` and `out_words`. false: the program is not legal, or not
// known.
bool ref_run(const RefProgram *program, int threads, const uint32_t *in, int in_words,
             uint32_t *out,
             int out_words, char error[256]);

#endif
