// SPDX-License-Identifier: Apache-2.0
// What NVRTC knows without being told, for libclang: read in front of CUDA sources when their launch
// table is made, never compiled. Only what templates use.
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __host__ __attribute__((host))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define __align__(n) __attribute__((aligned(n)))
#define __grid_constant__

struct uint3 {
    unsigned x, y, z;
};
struct __align__(8) float2 {
    float x, y;
};
struct __align__(16) float4 {
    float x, y, z, w;
};
struct __align__(8) uint2 {
    unsigned x, y;
};
struct __align__(16) uint4 {
    unsigned x, y, z, w;
};
struct __align__(16) int4 {
    int x, y, z, w;
};
extern __device__ const uint3 threadIdx, blockIdx, blockDim, gridDim;
__device__ float2 make_float2(float x, float y);
__device__ float4 make_float4(float x, float y, float z, float w);
__device__ uint2 make_uint2(unsigned x, unsigned y);
__device__ uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w);
__device__ void __syncthreads();
__device__ void __syncwarp(unsigned mask = 0xffffffffu);
template <typename T> __device__ T __shfl_sync(unsigned mask, T value, int lane, int width = 32);
template <typename T> __device__ T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32);
template <typename T> __device__ T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32);
template <typename T> __device__ T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32);
__device__ int atomicAdd(int *p, int x);
__device__ float atomicAdd(float *p, float x);
__device__ unsigned __ballot_sync(unsigned mask, int predicate);
__device__ int __any_sync(unsigned mask, int predicate);
__device__ int __all_sync(unsigned mask, int predicate);
__device__ unsigned __byte_perm(unsigned x, unsigned y, unsigned selector);
__device__ int __popc(unsigned x);
__device__ int __clz(int x);
__device__ int __ffs(int x);
__device__ float __int_as_float(int x);
__device__ int __float_as_int(float x);
__device__ float __uint_as_float(unsigned x);
__device__ unsigned __float_as_uint(float x);
__device__ float __fmaf_rn(float a, float b, float c);
__device__ float __fmul_rn(float a, float b);
__device__ float __fadd_rn(float a, float b);
__device__ float expf(float x);
__device__ float exp2f(float x);
__device__ float logf(float x);
__device__ float log2f(float x);
__device__ float log1pf(float x);
__device__ float expm1f(float x);
__device__ double sqrt(double x);
__device__ float sqrtf(float x);
__device__ float rsqrtf(float x);
__device__ float fabsf(float x);
__device__ float fmaf(float a, float b, float c);
__device__ float fmaxf(float a, float b);
__device__ float fminf(float a, float b);
__device__ float erff(float x);
__device__ float tanhf(float x);
__device__ float sinf(float x);
__device__ float cosf(float x);
__device__ double rint(double x);
__device__ double fma(double a, double b, double c);
__device__ float powf(float x, float y);
__device__ float floorf(float x);
__device__ float copysignf(float x, float y);
__device__ int min(int a, int b);
__device__ int max(int a, int b);
__device__ unsigned __umulhi(unsigned a, unsigned b);
__device__ unsigned long long __umul64hi(unsigned long long a, unsigned long long b);
__device__ unsigned long long __cvta_generic_to_shared(const void *p);
