// SPDX-License-Identifier: Apache-2.0
#include "runtime/vgpu/cuda_api.h"
#include "tests/vgpu/layout.h"

const Layout layout_ours[] = { LAYOUT_ROWS { 0 } };
