// SPDX-License-Identifier: Apache-2.0
// Row programs on GPUs: the same values and loops as on a CPU (row.h), a warp for a vector.
#include "compiler/codegen/row.h"

Status cuda_row_source(const KernelDesc *desc, const char *entry, const char *target, Arena *scratch,
                       Text *out, CudaShape *shape) {
    TRY(row_check(desc, &desc->body));
    Row row = { .arena = scratch,
                .machine = ROW_GPU,
                .desc = desc,
                .body = &desc->body,
                .m = desc->body.model };
    TRY(row_build(&row));
    row_plan(&row);
    return row_emit_gpu(&row, entry, target, out, shape);
}
