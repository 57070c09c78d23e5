// SPDX-License-Identifier: Apache-2.0
// What fills the holes of templates: sizes and numbers of a kernel description as text.
#include <stdlib.h>

#include "compiler/codegen/codegen.h"

void fill_hole(Filler *f, const char *name, const char *text) {
    f->holes[f->n++] = (Hole){name, text};
}

void fill_text(Filler *f, const char *name, Text *text) {
    fill_hole(f, name, arena_strdup(f->arena, text_cstr(text)));
    text_finish(text);
}

void fill_type(Filler *f, const char *name, uint8_t dtype) {
    bool narrow = dtype == DTYPE_BF16;
    fill_hole(f, arena_printf(f->arena, "%s_type", name), narrow              ? "bf16"
                                                          : dtype == DTYPE_I32 ? "int32_t"
                                                                               : "float");
    fill_hole(f, arena_printf(f->arena, "%s_narrow", name), narrow ? "1" : "0");
}

void fill_size(Filler *f, const char *name, int64_t value) {
    fill_hole(f, name, arena_printf(f->arena, "%lld", (long long)value));
}

void fill_real(Filler *f, const char *name, double value) {
    Text text = {0};
    text_add_double(&text, (float)value);
    fill_hole(f, name, arena_printf(f->arena, "%sf", text_cstr(&text)));
    text_finish(&text);
}

// {first number, lr, decay} of every trained parameter, or of buckets, by place.
typedef struct Rate {
    int64_t at;
    double lr, decay;
} Rate;

static int by_place(const void *a, const void *b) {
    const Rate *p = a, *q = b;
    return (p->at > q->at) - (p->at < q->at);
}

void fill_table(Filler *f, const KernelDesc *d) {
    Rate *rates = ARENA_ARRAY(f->arena, Rate, d->n_params + d->n_buckets + 1);
    uint32_t n = 0;
    for (uint32_t i = 0; i < d->n_params; i++) {
        const PlanParam *p = &d->params[i];
        if (!p->is_state) rates[n++] = (Rate){p->offset, p->lr, p->decay};
    }
    for (uint32_t i = 0; i < d->n_buckets; i++)
        rates[n++] = (Rate){d->buckets[i].shard, d->buckets[i].lr, d->buckets[i].decay};
    qsort(rates, n, sizeof *rates, by_place);
    Text rows = {0};
    for (uint32_t i = 0; i < n; i++) {
        text_printf(&rows, "%s{%lld, ", i ? "\n    " : "", (long long)(rates[i].at / 4));
        text_add_double(&rows, (float)rates[i].lr);
        text_add(&rows, "f, ");
        text_add_double(&rows, (float)rates[i].decay);
        text_add(&rows, "f},");
    }
    fill_hole(f, "table", arena_strdup(f->arena, text_cstr(&rows)));
    fill_size(f, "n_table", n);
    text_finish(&rows);
}

// route_ranks: $at, experts in the order of ranks; $drops and what they need.
static void fill_route(Filler *f, const KernelDesc *d) {
    Text at = {0};
    int32_t here = d->experts / d->ranks, n = 0;
    for (int32_t rank = 0; rank < d->ranks; rank++)
        for (int32_t e = 0; e < d->experts; e++)
            if ((d->owner ? d->owner[e] : e / here) == rank) text_printf(&at, n++ ? ", %d" : "%d", e);
    fill_text(f, "at", &at);
    fill_size(f, "drops", d->drops);
    fill_hole(f, "stream", arena_printf(f->arena, "0x%llxu", (unsigned long long)d->stream));
    fill_size(f, "rounds", d->rounds);
    fill_hole(f, "starts", d->rounds ? ", starts" : "");
    fill_hole(f, "starts_parameter", d->rounds ? ", int32_t *starts" : "");
    fill_hole(f, "round_parameters", d->rounds ? ", int32_t *starts, int32_t *numbers, int32_t *rounds" : "");
    fill_hole(f, "drop_parameters", !d->drops ? ""
                                       : d->accumulate ? "const int32_t *index, const float *scalars, "
                                                         "const int32_t *labels, float *load, float *dropped,"
                                                       : "const int32_t *index, const float *scalars,");
}

void fill_move(Filler *f, const KernelDesc *d) {
    const char *type = d->x == DTYPE_BF16 ? "bf16" : d->x == DTYPE_I32 ? "int32_t" : "float";
    fill_hole(f, "type", type);
    fill_hole(f, "x_type", d->way == MOVE_FETCH || d->way == MOVE_SUM ? "int64_t" : type);
    fill_hole(f, "store", d->x == DTYPE_BF16 ? "v_store_bf16" : "v_store");
    fill_hole(f, "store_part", d->x == DTYPE_BF16 ? "v_store_bf16_part" : "v_store_part");
    fill_hole(f, "y_type", d->way == MOVE_SPREAD ? "const int64_t" : type);
    fill_size(f, "way", d->way);
    fill_size(f, "whole", d->whole);
}

void fill_desc(Filler *f, const KernelDesc *d, const char *entry) {
    fill_hole(f, "entry", entry);
    fill_size(f, "rows", d->rows);
    fill_size(f, "sequence", d->sequence);
    fill_size(f, "experts", d->experts);
    fill_size(f, "mid", d->mid);
    fill_size(f, "each", d->each);
    fill_size(f, "k", d->k);
    fill_size(f, "n", d->n);
    fill_size(f, "heads", d->heads);
    fill_size(f, "kv_heads", d->kv_heads);
    fill_size(f, "qk", d->qk);
    fill_size(f, "v", d->v);
    fill_size(f, "window", d->window);
    fill_size(f, "top_k", d->top_k);
    fill_size(f, "vocab", d->vocab);
    fill_size(f, "ids", d->ids);
    fill_size(f, "ranks", d->ranks);
    fill_real(f, "scale", d->scale);
    fill_size(f, "causal", d->causal);
    fill_size(f, "sinks", d->sinks);
    fill_size(f, "accumulate", d->accumulate);
    fill_size(f, "capacity", d->capacity);
    fill_size(f, "limit", d->limit ? d->limit : d->capacity);
    fill_size(f, "align", d->align ? d->align : 1);
    if (d->family == FAMILY_ROUTE_RANKS) fill_route(f, d);
}
