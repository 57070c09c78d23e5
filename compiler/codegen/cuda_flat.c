// SPDX-License-Identifier: Apache-2.0
// GPU kernels of fixed form: how each is cut into blocks, and what fills its template.
#include "compiler/codegen/codegen.h"

enum {
    THREADS = 256,
    FLAT = 4096,       // numbers per block of clear, adamw and reduce
    VOCAB_ROWS = 32,   // rows of the table per block of embed_w: each block reads all ids
    SUM_COLUMNS = 64,  // columns per block of segment_sum
    MOVE_UNITS = 1024, // per block of move
};

typedef struct Flat {
    const char *name;
    bool ranks; // uses ranks.h
} Flat;

static const Flat flat[N_FAMILIES] = {
    [FAMILY_EMBED_W] = { "cuda/embed_w.cu", true },
    [FAMILY_ROUTE] = { "cuda/route.cu", true },
    [FAMILY_COUNT] = { "cuda/count.cu", false },
    [FAMILY_ROUTE_RANKS] = { "cuda/route_ranks.cu", true },
    [FAMILY_ROUND] = { "cuda/round.cu", false },
    [FAMILY_RAIL] = { "cuda/rail.cu", false },
    [FAMILY_MOVE] = { "cuda/move.cu", false },
    [FAMILY_PADS] = { "cuda/pads.cu", false },
    [FAMILY_SEGMENT_SUM] = { "cuda/segment_sum.cu", false },
    [FAMILY_CLEAR] = { "cuda/clear.cu", false },
    [FAMILY_SUMSQ] = { "cuda/sumsq.cu", false },
    [FAMILY_CLIP] = { "cuda/clip.cu", false },
    [FAMILY_ADAMW] = { "cuda/adamw.cu", false },
    [FAMILY_REDUCE] = { "cuda/reduce.cu", false },
    [FAMILY_FOLD] = { "cuda/fold.cu", false },
};

static int64_t segments(const KernelDesc *d) {
    return d->experts ? d->experts : d->sequence ? d->rows / d->sequence : 0;
}

// Words of 4 bytes of what a thread of a move copies at a time; 0: a number.
static int32_t unit_words(const KernelDesc *d) {
    int64_t row_bytes = d->n * dtype_bytes((Dtype)d->x);
    return row_bytes % 16 == 0 ? 4 : row_bytes % 4 == 0 ? 1 : 0;
}

// Of a row of a move.
static int64_t units(const KernelDesc *d) {
    int32_t words = unit_words(d);
    return words ? d->n * dtype_bytes((Dtype)d->x) / (4 * words) : d->n;
}

// Places in y, but for those of a move that spreads rows: in its table.
static int64_t slots(const KernelDesc *d) {
    return d->rows * (d->way == MOVE_SUM ? 1 : d->top_k);
}

// `chunk`: what a block takes of that of which there is most.
static void cut(const KernelDesc *d, CudaShape *shape, int64_t *chunk) {
    *shape = (CudaShape){ .tiles = 1, .threads = THREADS };
    *chunk = 1;
    switch (d->family) {
    case FAMILY_CLEAR:
    case FAMILY_REDUCE:
    case FAMILY_ADAMW: shape->tiles = div_up(d->n, *chunk = FLAT); break;
    case FAMILY_ROUND: shape->tiles = div_up(d->rows * d->top_k, *chunk = FLAT); break;
    case FAMILY_RAIL: shape->tiles = div_up(d->ranks * d->rows * d->top_k, *chunk = FLAT); break;
    case FAMILY_MOVE: shape->tiles = div_up(slots(d) * units(d), *chunk = MOVE_UNITS); break;
    case FAMILY_SUMSQ: shape->tiles = div_up(d->n, *chunk = SUMSQ_TILE); break;
    case FAMILY_EMBED_W: shape->tiles = div_up(d->vocab, *chunk = VOCAB_ROWS); break;
    case FAMILY_ROUTE:
    case FAMILY_COUNT:
    case FAMILY_PADS:
    case FAMILY_ROUTE_RANKS: shape->tiles = d->experts; break;
    case FAMILY_SEGMENT_SUM:
        shape->threads = SUM_COLUMNS;
        shape->tiles = segments(d) * div_up(d->n, SUM_COLUMNS);
        break;
    default: break; // clip, fold: one block
    }
}

static void fill_units(Filler *f, const KernelDesc *d) {
    fill_move(f, d);
    fill_size(f, "unit_words", unit_words(d));
    fill_size(f, "units", units(d));
    fill_size(f, "slots", slots(d));
}

Status cuda_flat_source(const KernelDesc *d, const char *entry, Arena *scratch, Text *out,
                        CudaShape *shape) {
    const Flat *family = &flat[d->family];
    if (!family->name)
        return status_fail(ERR_INTERNAL, "%s is no kernel of fixed form", family_name[d->family]);
    int64_t chunk;
    cut(d, shape, &chunk);
    Filler f = { .arena = scratch };
    fill_desc(&f, d, entry);
    if (d->family == FAMILY_MOVE) fill_units(&f, d);
    else fill_type(&f, "x", d->x);
    if (d->family == FAMILY_REDUCE) fill_type(&f, "y", d->y);
    fill_size(&f, "threads", shape->threads);
    fill_size(&f, "chunk", chunk);
    if (d->family == FAMILY_ADAMW) fill_table(&f, d);
    if (family->ranks) TRY(template_expand("cuda/ranks.h", f.holes, f.n, out));
    return template_expand(family->name, f.holes, f.n, out);
}
