// SPDX-License-Identifier: Apache-2.0
#include "tests/vgpu/layout.h"

#if __has_include(<cuda.h>)
#include <cuda.h>
#endif
#if defined CUDA_VERSION && CUDA_VERSION >= 13000
#include "runtime/vgpu/cuda_tables.h"
const Layout layout_theirs[] = { LAYOUT_ROWS { 0 } };
#else
const Layout layout_theirs[] = { { 0 } };
#endif
