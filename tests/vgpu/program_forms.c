// SPDX-License-Identifier: Apache-2.0
// The arithmetic forms under comparison.
#include "tests/vgpu/program.h"

#define I16(X) X("u16", "h", "k") X("s16", "h", "k")
#define I32(X) X("u32", "r", "n") X("s32", "r", "n")
#define I64(X) X("u64", "R", "N") X("s64", "R", "N")
#define INTS(X) I16(X) I32(X) I64(X)

#define ARITHMETIC(t, r, n)                                                                        \
    { "add." t, r r r }, { "sub." t, r r r }, { "mul.lo." t, r r r }, { "mul.hi." t, r r r },      \
    { "mad.lo." t, r r r r }, { "sad." t, r r r r }, { "min." t, r r r }, { "max." t, r r r },     \
    { "div." t, r r n }, { "rem." t, r r n }, { "shr." t, r r "r" }, { "setp.lt." t, "p" r r },    \
    { "setp.ge.and." t, "q" r r "P" }, { "setp.ne.xor." t, "q" r r "P" },                          \
    { "set.le.u32." t, "r" r r }, { "set.gt.or.s32." t, "r" r r "P" }, { "set.eq.f32." t, "f" r r },
#define MAD_HI(t, r, n) { "mad.hi." t, r r r r },
#define WIDE16(t, r, n) { "mul.wide." t, "rhh" }, { "mad.wide." t, "rhhr" },
#define WIDE32(t, r, n) { "mul.wide." t, "Rrr" }, { "mad.wide." t, "RrrR" },
#define UNSIGNED_ORDER(t, r)                                                                       \
    { "setp.lo." t, "p" r r }, { "setp.ls." t, "p" r r }, { "setp.hi." t, "p" r r },               \
    { "setp.hs." t, "p" r r },
#define NARROW(t, r, n)                                                                            \
    { "mul24.lo." t, r r r }, { "mul24.hi." t, r r r }, { "mad24.lo." t, r r r r },                \
    { "mad24.hi." t, r r r r },
#define SIGNED(t, r) { "abs." t, r r }, { "neg." t, r r },
#define BITS(t, r)                                                                                 \
    { "and.b" t, r r r }, { "or.b" t, r r r }, { "xor.b" t, r r r }, { "not.b" t, r r },           \
    { "cnot.b" t, r r }, { "shl.b" t, r r "r" }, { "shr.b" t, r r "r" },         \
    { "selp.b" t, r r r "p" }, { "setp.eq.b" t, "p" r r },
#define COUNTS(t, r)                                                                               \
    { "popc.b" t, "r" r }, { "clz.b" t, "r" r }, { "brev.b" t, r r }, { "bfi.b" t, r r r "rr" },   \
    { "bfe.u" t, r r "rr" }, { "bfe.s" t, r r "rr" }, { "bfind.u" t, "r" r },                      \
    { "bfind.s" t, "r" r }, { "bfind.shiftamt.u" t, "r" r }, { "bfind.shiftamt.s" t, "r" r },

#define ROUNDS(X, op, type, operands)                                                              \
    X(op ".rn" type, operands) X(op ".rz" type, operands) X(op ".rm" type, operands)               \
    X(op ".rp" type, operands)
#define ROW(op, operands) { op, operands },
#define FTZ(op, operands) { op ".f32", operands }, { op ".ftz.f32", operands },
#define FTZ_SAT(op, operands)                                                                      \
    FTZ(op, operands) { op ".sat.f32", operands }, { op ".ftz.sat.f32", operands },

#define COMPARE(t, r)                                                                              \
    { "setp.eq" t, "p" r r }, { "setp.ne" t, "p" r r }, { "setp.lt" t, "p" r r },                  \
    { "setp.le" t, "p" r r }, { "setp.gt" t, "p" r r }, { "setp.ge" t, "p" r r },                  \
    { "setp.equ" t, "p" r r }, { "setp.neu" t, "p" r r }, { "setp.ltu" t, "p" r r },               \
    { "setp.leu" t, "p" r r }, { "setp.gtu" t, "p" r r }, { "setp.geu" t, "p" r r },               \
    { "setp.num" t, "p" r r }, { "setp.nan" t, "p" r r }, { "setp.lt.or" t, "q" r r "P" },
#define TESTS(t, r)                                                                                \
    { "testp.finite." t, "p" r }, { "testp.infinite." t, "p" r }, { "testp.number." t, "p" r },    \
    { "testp.notanumber." t, "p" r }, { "testp.normal." t, "p" r }, { "testp.subnormal." t, "p" r },

// Half types: `t` with its point, registers of one or of two.
#define HALF(t, r)                                                                                 \
    { "fma.rn" t, r r r r }, { "fma.rn.relu" t, r r r r }, { "neg" t, r r }, { "abs" t, r r },     \
    { "min" t, r r r }, { "max" t, r r r }, { "min.NaN" t, r r r }, { "max.NaN" t, r r r },        \
    { "min.xorsign.abs" t, r r r }, { "max.NaN.xorsign.abs" t, r r r }, { "add.rn" t, r r r },     \
    { "sub.rn" t, r r r }, { "mul.rn" t, r r r },
#define HALF_FTZ(t, r)                                                                             \
    { "add" t, r r r }, { "add.ftz" t, r r r }, { "add.sat" t, r r r },                            \
    { "sub.ftz.sat" t, r r r },                                                                    \
    { "mul.ftz" t, r r r }, { "mul.sat" t, r r r }, { "fma.rn.ftz" t, r r r r },                   \
    { "fma.rn.sat" t, r r r r }, { "fma.rn.ftz.relu" t, r r r r }, { "min.ftz" t, r r r },         \
    { "max.ftz.NaN" t, r r r }, { "neg.ftz" t, r r }, { "abs.ftz" t, r r },

#define TO_INT(from, r)                                                                            \
    { "cvt.rni.s32." from, "r" r }, { "cvt.rzi.u32." from, "r" r },                                \
    { "cvt.rmi.s64." from, "R" r },                                                                \
    { "cvt.rpi.u64." from, "R" r }, { "cvt.rzi.s16." from, "h" r },                                \
    { "cvt.rni.u16." from, "h" r },                                                                \
    { "cvt.rpi.s32." from, "r" r }, { "cvt.rmi.u32." from, "r" r }, { "cvt.rzi.s64." from, "R" r },
#define FROM_INT(to, d)                                                                            \
    { "cvt.rn." to ".s32", d "r" }, { "cvt.rz." to ".u32", d "r" },                                \
    { "cvt.rm." to ".s64", d "R" },                                                                \
    { "cvt.rp." to ".u64", d "R" }, { "cvt.rn." to ".u64", d "R" },                                \
    { "cvt.rp." to ".s16", d "h" },                                                                \
    { "cvt.rm." to ".u16", d "h" }, { "cvt.rn." to ".u8", d "r" }, { "cvt.rn." to ".s8", d "r" },
#define INT_TO(to, d)                                                                              \
    { "cvt." to ".u8", d "r" }, { "cvt." to ".s8", d "r" }, { "cvt." to ".u16", d "h" },           \
    { "cvt." to ".s16", d "h" }, { "cvt." to ".u32", d "r" }, { "cvt." to ".s32", d "r" },         \
    { "cvt." to ".u64", d "R" }, { "cvt." to ".s64", d "R" }, { "cvt.sat." to ".s16", d "h" },     \
    { "cvt.sat." to ".u32", d "r" }, { "cvt.sat." to ".s32", d "r" },                              \
    { "cvt.sat." to ".u64", d "R" },                                                               \
    { "cvt.sat." to ".s64", d "R" },

const Form program_forms[] = {
    INTS(ARITHMETIC) I16(MAD_HI) I32(MAD_HI) I64(MAD_HI) I16(WIDE16) I32(WIDE32) I32(NARROW)
    UNSIGNED_ORDER("u16", "h") UNSIGNED_ORDER("u32", "r") UNSIGNED_ORDER("u64", "R")
    SIGNED("s16", "h") SIGNED("s32", "r") SIGNED("s64", "R")
    BITS("16", "h") BITS("32", "r") BITS("64", "R") COUNTS("32", "r") COUNTS("64", "R")
    { "add.sat.s32", "rrr" }, { "sub.sat.s32", "rrr" }, { "mad.hi.sat.s32", "rrrr" },
    { "min.relu.s32", "rrr" }, { "max.relu.s32", "rrr" },
    { "and.pred", "ppp" }, { "or.pred", "ppp" }, { "xor.pred", "ppp" }, { "not.pred", "pp" },
    { "lop3.b32", "rrrrm" }, { "shf.l.clamp.b32", "rrrr" }, { "shf.l.wrap.b32", "rrrr" },
    { "shf.r.clamp.b32", "rrrr" }, { "shf.r.wrap.b32", "rrrr" }, { "prmt.b32", "rrrr" },
    { "prmt.b32.f4e", "rrrr" }, { "prmt.b32.b4e", "rrrr" }, { "prmt.b32.rc8", "rrrr" },
    { "prmt.b32.ecl", "rrrr" }, { "prmt.b32.ecr", "rrrr" }, { "prmt.b32.rc16", "rrrr" },
    { "fns.b32", "rrBr" }, { "bmsk.clamp.b32", "rrr" }, { "bmsk.wrap.b32", "rrr" },
    { "szext.clamp.u32", "rrr" }, { "szext.clamp.s32", "rrr" }, { "szext.wrap.u32", "rrr" },
    { "szext.wrap.s32", "rrr" }, { "dp4a.u32.u32", "rrrr" }, { "dp4a.s32.u32", "rrrr" },
    { "dp4a.u32.s32", "rrrr" }, { "dp4a.s32.s32", "rrrr" }, { "dp2a.lo.u32.u32", "rrrr" },
    { "dp2a.hi.s32.u32", "rrrr" }, { "dp2a.lo.s32.s32", "rrrr" }, { "dp2a.hi.u32.s32", "rrrr" },
    { "slct.u32.s32", "rrrr" }, { "slct.s64.s32", "RRRr" }, { "slct.b16.f32", "hhhf" },
    { "slct.ftz.f32.f32", "ffff" }, { "selp.f32", "fffp" }, { "selp.f64", "gggp" },

    FTZ_SAT("add.rn", "fff") FTZ_SAT("sub.rz", "fff") FTZ_SAT("mul.rp", "fff")
    FTZ_SAT("fma.rn", "ffff")
    ROUNDS(FTZ, "add", "", "fff") ROUNDS(FTZ, "mul", "", "fff") ROUNDS(FTZ_SAT, "fma", "", "ffff")
    ROUNDS(FTZ, "div", "", "fff") ROUNDS(FTZ, "rcp", "", "ff") ROUNDS(FTZ, "sqrt", "", "ff")
    FTZ_SAT("add", "fff") FTZ_SAT("mul", "fff") FTZ("sub", "fff")
    FTZ("abs", "ff") FTZ("neg", "ff") FTZ("min", "fff") FTZ("max", "fff")
    { "min.NaN.f32", "fff" }, { "max.ftz.NaN.f32", "fff" }, { "min.xorsign.abs.f32", "fff" },
    { "max.NaN.xorsign.abs.f32", "fff" }, { "copysign.f32", "fff" }, TESTS("f32", "f")
    COMPARE(".f32", "f") COMPARE(".ftz.f32", "f") { "set.lt.f32.f32", "fff" },
    { "set.geu.u32.f32", "rff" }, { "set.num.and.s32.f32", "rffP" },

    ROUNDS(ROW, "add", ".f64", "ggg") ROUNDS(ROW, "sub", ".f64", "ggg")
    ROUNDS(ROW, "mul", ".f64", "ggg")
    ROUNDS(ROW, "fma", ".f64", "gggg") ROUNDS(ROW, "div", ".f64", "ggg")
    ROUNDS(ROW, "rcp", ".f64", "gg")
    ROUNDS(ROW, "sqrt", ".f64", "gg") { "min.f64", "ggg" }, { "max.f64", "ggg" },
    { "abs.f64", "gg" },
    { "neg.f64", "gg" }, { "copysign.f64", "ggg" }, TESTS("f64", "g") COMPARE(".f64", "g")

    HALF(".f16", "h") HALF(".f16x2", "r") HALF(".bf16", "h") HALF(".bf16x2", "r")
    HALF_FTZ(".f16", "h") HALF_FTZ(".f16x2", "r") COMPARE(".f16", "h") COMPARE(".bf16", "h")

    INT_TO("u8", "r") INT_TO("s8", "r") INT_TO("u16", "h") INT_TO("s16", "h") INT_TO("u32", "r")
    INT_TO("s32", "r") INT_TO("u64", "R") INT_TO("s64", "R")
    TO_INT("f32", "f") TO_INT("f64", "g") TO_INT("f16", "h")
    { "cvt.rzi.ftz.s32.f32", "rf" }, { "cvt.rpi.ftz.u64.f32", "Rf" },
    FROM_INT("f32", "f") FROM_INT("f64", "g") FROM_INT("f16", "h")
    ROUNDS(ROW, "cvt", ".f32.f64", "fg") { "cvt.rn.ftz.f32.f64", "fg" },
    { "cvt.rz.sat.f32.f64", "fg" },
    { "cvt.f64.f32", "gf" }, { "cvt.ftz.f64.f32", "gf" }, { "cvt.rni.f32.f32", "ff" },
    { "cvt.rzi.ftz.f32.f32", "ff" }, { "cvt.rmi.f32.f32", "ff" }, { "cvt.rpi.f32.f32", "ff" },
    { "cvt.sat.f32.f32", "ff" }, { "cvt.rni.f64.f64", "gg" }, { "cvt.rpi.f64.f64", "gg" },
    { "cvt.rn.f16.f32", "hf" }, { "cvt.rz.f16.f32", "hf" }, { "cvt.rn.relu.f16.f32", "hf" },
    { "cvt.rn.sat.f16.f32", "hf" }, { "cvt.rn.f16.f64", "hg" }, { "cvt.f32.f16", "fh" },
    { "cvt.f64.f16", "gh" }, { "cvt.rni.f16.f16", "hh" }, { "cvt.rn.bf16.f32", "hf" },
    { "cvt.rz.bf16.f32", "hf" }, { "cvt.rn.relu.bf16.f32", "hf" }, { "cvt.f32.bf16", "fh" },
    { "cvt.rn.f16x2.f32", "rff" }, { "cvt.rz.f16x2.f32", "rff" },
    { "cvt.rn.relu.f16x2.f32", "rff" },
    { "cvt.rn.bf16x2.f32", "rff" }, { "cvt.rz.bf16x2.f32", "rff" },
    { "cvt.rn.relu.bf16x2.f32", "rff" },
};
const int program_n_forms = sizeof program_forms / sizeof program_forms[0];
