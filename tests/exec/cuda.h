// SPDX-License-Identifier: Apache-2.0
// The sample plan of tests/plan for GPUs.
#ifndef MOEC_TESTS_EXEC_CUDA_H
#define MOEC_TESTS_EXEC_CUDA_H

#include "tests/plan/sample.h"

// Rewrites a plan whose kernels are sample_kernel's: the same bodies as CUDA C++, computed by one
// thread of each block, so that every sum has the CPU's order and every bit the CPU's value.
void sample_cuda(Plan *plan, const char *target);
// Replaces the body of a kernel, which may use all `threads` and `shared` bytes of dynamic memory.
void sample_cuda_body(Plan *plan, const char *entry, const char *body, int threads, int shared);
bool has_nvrtc(void); // says so if not
#endif
