// SPDX-License-Identifier: Apache-2.0
// Source 0 of every plan for GPUs: types, bf16 in memory, folds over a warp and a block, asynchronous
// copies. Device code for sm_80 and later; no header, NVRTC brings none.
//
// Bits do not depend on the order in which blocks or warps run: folds have one order, nothing is
// added atomically but whole numbers.
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;
struct bf16 {
    uint16_t bits; // the upper half of a float
};

#define DEVICE static __device__ __forceinline__
#define KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)
#define INFINITE __int_as_float(0x7f800000)
enum { WARP = 32, ALL_LANES = -1 };

// The scalars region (plan.h): SCALAR_lr, ...
enum { $scalars };

DEVICE int lane_id() { return (int)(threadIdx.x & 31); }
DEVICE int warp_id() { return (int)(threadIdx.x >> 5); }
DEVICE int64_t min_of(int64_t a, int64_t b) { return a < b ? a : b; }
DEVICE int64_t max_of(int64_t a, int64_t b) { return a > b ? a : b; }
DEVICE int64_t up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* bf16: widening is exact; narrowing is to nearest even, NaN stays NaN ------------------------- */

DEVICE float f_of(float x) { return x; }
DEVICE float f_of(bf16 x) { return __uint_as_float((uint32_t)x.bits << 16); }
// Two numbers to one word, `low` in the low half.
DEVICE uint32_t bf16_pair(float low, float high) {
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
DEVICE float low_of(uint32_t pair) { return __uint_as_float(pair << 16); }
DEVICE float high_of(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }
DEVICE void put(float *p, float x) { *p = x; }
DEVICE void put(bf16 *p, float x) { p->bits = (uint16_t)bf16_pair(x, 0.0f); }

/* Folds: butterflies over 16, 8, 4, 2, 1 lanes, then warps in ascending order ------------------- */

DEVICE float warp_sum(float x) {
    for (int i = 16; i; i >>= 1) x += __shfl_xor_sync(0xffffffffu, x, i);
    return x;
}
DEVICE float warp_max(float x) { // of numbers; NaN is passed over
    for (int i = 16; i; i >>= 1) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, i));
    return x;
}

/* Shared memory and asynchronous copies (PTX ISA 9.7.9.25) -------------------------------------- */

DEVICE uint32_t shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }
// 16 bytes, both sides aligned; only the first `bytes` (0..16) are read, the rest becomes zero.
DEVICE void copy_async(void *to, const void *from, int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(bytes)
                 : "memory");
}
DEVICE void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> DEVICE void copy_wait() { // all but the last N groups of this thread have landed
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
