// SPDX-License-Identifier: Apache-2.0
// Private to runtime/jit: NVIDIA's run-time compiler, found at run time, and what came out of it.
#ifndef MOEC_JIT_NVRTC_H
#define MOEC_JIT_NVRTC_H

#include "runtime/jit/jit.h"

// Version and the places are found once per process; later calls cost nothing.
Status nvrtc_version(int *major, int *minor);

typedef struct CudaUnit {
    const char *name;   // of the file in messages: "matmul_1234.cu"
    const char *source; // 0-terminated
    JitImage image;     // the result: memory from malloc, one block at `block`
    void *block;
} CudaUnit;

// Compiles with NVRTC alone, as many at once as there are cores, or as `share` (may be NULL) allows.
// `done` is called in this thread
// once per unit, in order of completion. The first failure stops the others; its message has the
// compiler's lines from the first error on.
Status nvrtc_compile(CudaUnit *units, int n, const char *const *options, int n_options, int code,
                     const JitShare *share, void (*done)(void *user, int unit), void *user);

#endif
