// SPDX-License-Identifier: Apache-2.0
// Kernels one by one, through the real path: described, generated, read by libclang, compiled,
// launched.
//
// lab_run runs a kernel several times from the same state: tiles in one call, one by one backwards,
// odd then even; and all of that at every instruction-set level of this machine. All results must
// be equal, bit for bit. Arrays made by lab_array end at a page that may not be touched and start
// behind a canary.
//
// $MOEC_TEST_DEVICE names a GPU instead (vgpu:sm_80, cuda): the same tests of the kernels it has, run
// twice from the same state on arrays of exactly their size.
#ifndef MOEC_TESTS_LAB_H
#define MOEC_TESTS_LAB_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "compiler/codegen/codegen.h"
#include "runtime/device/device.h"
#include "runtime/jit/jit.h"

enum { LAB_LEVELS = 4 };

typedef struct Lab {
    Plan *plan;
    Codegen *codegen;
    Jit *jit[LAB_LEVELS]; // best level first
    int n_levels;
    Pool *pool;     // of a GPU
    Device *device; // NULL: the CPU
    DeviceKernel *kernels;
} Lab;

typedef struct Binding {
    const char *name;
    Dtype dtype;
    bool is_const;
    void *at;
    // Of addresses: the arrays, of one size, whose addresses they are. `at` is filled with them, and the kernel may
    // write what lies there; all of it is as alike from run to run as what is bound.
    void *const *far;
    int n_far;
} Binding;
#define READ_F32(name, at)                                                                         \
    { name, DTYPE_F32, true, at }
#define READ_I32(name, at)                                                                         \
    { name, DTYPE_I32, true, at }
#define WRITE_F32(name, at)                                                                        \
    { name, DTYPE_F32, false, at }
#define WRITE_I32(name, at)                                                                        \
    { name, DTYPE_I32, false, at }

void lab_open(Lab *lab);
// The GPU that tests run on, or NULL. A test of what only the CPU has asks this and returns.
const char *lab_gpu(void);
uint32_t lab_add(Lab *lab, const KernelDesc *desc);
void lab_compile(Lab *lab);
// Every parameter must be bound, with its type and constness, and nothing else.
void lab_run(Lab *lab, uint32_t kernel, const Binding *bindings, int n);
void lab_close(Lab *lab);

bool lab_has_bf16(void); // the instruction VDPBF16PS

// `count` numbers of 4 bytes. lab_free checks the canary.
void *lab_array(int64_t count);
int64_t lab_count(const void *array);
void *lab_memory(size_t bytes); // the same for any size
size_t lab_bytes(const void *array);
void lab_free(void *array);
float *lab_random(int64_t count, uint64_t seed); // in [-1, 1)
float *lab_filled(int64_t count, float value);
uint16_t lab_bf16(float x); // to nearest even, denormals to zero
float lab_wide(uint16_t x);
uint16_t *lab_narrow(const float *x); // a new array
void lab_equal_bits(const float *a, const float *b, int64_t count);
// |got - want| <= bound, NaN never.
void lab_near(double got, double want, double bound, const char *what, int64_t at);

#endif
