// SPDX-License-Identifier: Apache-2.0
// One random program on the virtual GPU and on the reference.
#ifndef TESTS_VGPU_COMPARE_H
#define TESTS_VGPU_COMPARE_H

#include "tests/vgpu/gpu.h"
#include "tests/vgpu/program.h"

typedef enum ProgramKind { PROGRAM_STRAIGHT, PROGRAM_FLOW } ProgramKind;
// Fails the test with program, seed, thread and word when the results differ.
void compare_program(Gpu *gpu, ProgramKind kind, uint64_t seed);
// Form `i` over edge values, in 512 threads.
void compare_form(Gpu *gpu, int i);

#endif
