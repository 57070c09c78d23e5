// SPDX-License-Identifier: Apache-2.0
// Source 0: sums of pairs of bf16, and the mode of the processor they need where there is no such
// instruction.

typedef int32_t Pair __attribute__((aligned(2), may_alias));

#if defined __AVX512BF16__
enum { PAIRS_AT_ONCE = 1 }; // there is an instruction
INLINE V v_dot_pairs(V sum, VI a, VI b) {
#if defined __clang__
    typedef __bf16 Operand __attribute__((vector_size(64)));
    return __builtin_ia32_dpbf16ps_512(sum, (Operand)a, (Operand)b);
#else
    typedef short Operand __attribute__((vector_size(64)));
    return __builtin_ia32_dpbf16ps_v16sf(sum, (Operand)a, (Operand)b);
#endif
}
#else
enum { PAIRS_AT_ONCE = 0 };
INLINE V v_dot_pairs(V sum, VI a, VI b) {
    VI odd = vi_splat(-65536);
    sum = v_fma((V)(a & odd), (V)(b & odd), sum);
    return v_fma((V)(a << 16), (V)(b << 16), sum);
}
#endif

// Denormals are zero between these two. `result` is where sums computed in between lie: it keeps
// the compiler from moving them out.
INLINE uint64_t denormals_off(void) {
    uint64_t old = 0;
#if defined __AVX512BF16__
#elif defined __x86_64__
    uint32_t mode, off;
    __asm__ volatile("stmxcsr %0" : "=m"(mode));
    off = mode | 0x8040;
    __asm__ volatile("ldmxcsr %0" : : "m"(off) : "memory");
    old = mode;
#elif defined __aarch64__
    __asm__ volatile("mrs %0, fpcr" : "=r"(old));
    __asm__ volatile("msr fpcr, %0" : : "r"(old | 1 << 24) : "memory");
#endif
    return old;
}
INLINE void denormals_back(uint64_t old, const void *result) {
#if defined __AVX512BF16__
    (void)old, (void)result;
#elif defined __x86_64__
    uint32_t mode = (uint32_t)old;
    __asm__ volatile("ldmxcsr %0" : : "m"(mode), "r"(result) : "memory");
#elif defined __aarch64__
    __asm__ volatile("msr fpcr, %0" : : "r"(old), "r"(result) : "memory");
#endif
}
