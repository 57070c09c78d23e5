// SPDX-License-Identifier: Apache-2.0
// Runs PTX on a virtual GPU from a test: whole modules, or one instruction over many values.
#ifndef MOEC_TESTS_VGPU_GPU_H
#define MOEC_TESTS_VGPU_GPU_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/vgpu/core.h"
#include "runtime/vgpu/memory.h"

typedef struct Gpu { VgDevice *device; VgMemory *memory; VgModule *module; } Gpu;

Gpu gpu_open(const char *arch, int threads);
void gpu_close(Gpu *gpu);
// Replaces the module; a header is put before the text when it has none. Fails the test on an
// error.
void gpu_load(Gpu *gpu, const char *ptx);
Status gpu_try_load(Gpu *gpu, const char *ptx);
extern void (*gpu_on_load)(VgModule *module);                 // when set: sees what was loaded
uint64_t gpu_alloc(Gpu *gpu, size_t bytes);                   // zeroed
uint64_t gpu_put(Gpu *gpu, const void *from, size_t bytes);   // a new allocation
void gpu_get(Gpu *gpu, uint64_t from, void *to, size_t bytes);
// Kernel `name` with parameters of 8 bytes each.
VgFault gpu_launch(Gpu *gpu, const char *name, uint32_t blocks, uint32_t threads, int n_params,
                   ...);
const char *gpu_report(Gpu *gpu);

// One statement over n items: registers d, a, b, c of the given widths (1: predicate, 0: none). d
// starts as the item's bits of `d`, results replace them.
typedef struct GpuOp { const char *text; int d, a, b, c; } GpuOp;
void gpu_op(Gpu *gpu, const GpuOp *op, int n, const uint64_t *a, const uint64_t *b,
            const uint64_t *c, uint64_t *d);

#endif
