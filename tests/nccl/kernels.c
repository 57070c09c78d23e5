// SPDX-License-Identifier: Apache-2.0
// Their kernels for GPUs.
#include "tests/exec/cuda.c"
