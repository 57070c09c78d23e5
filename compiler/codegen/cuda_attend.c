// SPDX-License-Identifier: Apache-2.0
#include "compiler/codegen/codegen.h"

Status cuda_attend_source(const KernelDesc *desc, const char *entry, Arena *scratch, Text *out,
                        CudaShape *shape) {
    (void)entry, (void)scratch, (void)out, (void)shape;
    return status_fail(ERR_INPUT, "%s has no kernel for GPUs", family_name[desc->family]);
}
