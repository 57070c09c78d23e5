// SPDX-License-Identifier: Apache-2.0
// Row programs: a group of nodes over one row axis as C source. The parts are listed in row.h.
#include "compiler/codegen/row.h"

Status row_check(const KernelDesc *desc, const RowBody *b) {
    if (b->row == ROW_R) {
        int32_t experts = b->model->nodes[b->route].attr.route.experts;
        if (desc->experts < 1 || experts % desc->experts) { // a rank's part of them
            return status_fail(ERR_INTERNAL,
                               "row program over expert rows: expected experts that divide %d, got %d",
                               experts, desc->experts);
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

Status row_function(const KernelDesc *desc, const RowBody *body, const char *name,
                    const char *load_prefix, const char *store_prefix, Text *out, Text *parameters,
                    Text *arguments) {
    TRY(row_check(desc, body));
    Arena *arena = arena_create();
    Row row = { .arena = arena, .desc = desc, .body = body, .m = body->model };
    Status status;
    TRY_GOTO(row_build(&row), done);
    row_plan(&row);
    TRY_GOTO(row_emit(&row, name, out), done);
    row_memory(body, load_prefix, store_prefix, parameters, arguments);
done:
    arena_destroy(arena);
    return status;
}

// A kernel of its own has no accumulators; its tiles are ROW_TILE rows.
Status row_source(const KernelDesc *desc, const char *entry, Text *out) {
    Text name = { 0 }, parameters = { 0 }, arguments = { 0 };
    text_printf(&name, "rows_%s", entry);
    Status status = row_function(desc, &desc->body, text_cstr(&name), "l", "s", out, &parameters,
                                 &arguments);
    if (status == OK) {
        text_printf(out, "#line 1 \"%s\"\n", entry);
        text_printf(out, "void %s(%sint64_t tile_begin, int64_t tile_end) {\n", entry,
                    text_cstr(&parameters));
        text_printf(out, "    %s(%s0, 0, tile_begin * %d, tile_end * %d);\n}\n", text_cstr(&name),
                    text_cstr(&arguments), ROW_TILE, ROW_TILE);
    }
    text_finish(&name), text_finish(&parameters), text_finish(&arguments);
    return status;
}
