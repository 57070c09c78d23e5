// SPDX-License-Identifier: Apache-2.0
// Row programs: a group of nodes over one row axis as C source. The parts are listed in row.h.
#include "compiler/codegen/row.h"

static Status check(const KernelDesc *desc) {
    const RowBody *b = &desc->body;
    if (b->row == ROW_R) {
        int32_t experts = b->model->nodes[b->route].attr.route.experts;
        if (desc->experts != experts) {
            return status_fail(ERR_INTERNAL,
                               "row program over expert rows: expected experts %d, got %d", experts,
                               desc->experts);
        }
    }
    for (uint32_t i = 0; i < b->n_loads; i++) {
        const RowLoad *l = &b->loads[i];
        bool sequences =
            l->what == WHAT_VALUE && model_type(b->model, l->node)->row == ROW_S && b->row == ROW_T;
        if (sequences && desc->sequence < 1) {
            return status_fail(
                ERR_INTERNAL,
                "row program over tokens reads sequences: expected their length, got %lld",
                (long long)desc->sequence);
        }
    }
    return OK;
}

Status row_source(const KernelDesc *desc, const char *entry, Text *out) {
    TRY(check(desc));
    Arena *arena = arena_create();
    if (!arena) return status_fail(ERR_MEMORY, "out of memory");
    Row row = { .arena = arena, .desc = desc, .body = &desc->body, .m = desc->body.model };
    Status status;
    TRY_GOTO(row_build(&row), done);
    row_plan(&row);
    TRY_GOTO(row_emit(&row, entry, out), done);
done:
    arena_destroy(arena);
    return status;
}
