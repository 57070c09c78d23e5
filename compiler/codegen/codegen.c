// SPDX-License-Identifier: Apache-2.0
// Kernel descriptions to kernels of a plan: describe, find the equal one, expand, reflect, tile.
//
// A kernel's name is its family and half of the hash of its description, so that equal kernels have
// equal sources in every plan and the kernel cache serves them all. How work is cut into tiles is
// decided here, from the sizes alone, and written into the source: the runtime only counts tiles.
#include <stdlib.h>

#include "compiler/codegen/codegen.h"

struct Codegen {
    Plan *plan;
    const char *prelude;
};

// How a kernel is cut. `chunk` x `range` are rows x columns of a tile, or what the template takes
// them for.
typedef struct Tiling {
    int64_t chunk, range, tiles;
} Tiling;

enum {
    FLAT_TILE = 32768, // numbers per tile of clear and adamw
    VOCAB_TILES = 32,
};

/* tiles -------------------------------------------------------------------------------------- */

static Tiling flat_tiling(int64_t n, int64_t chunk) {
    return (Tiling){.chunk = chunk, .tiles = div_up(n, chunk)};
}

static Tiling tiling(const KernelDesc *d) {
    int64_t sequences = d->sequence ? d->rows / d->sequence : 0;
    Tiling t = {.tiles = 1};
    switch (d->family) {
    case FAMILY_ROW: return flat_tiling(d->rows, ROW_TILE);
    case FAMILY_EMBED_W: return flat_tiling(d->vocab, div_up(d->vocab, VOCAB_TILES));
    case FAMILY_SEGMENT_SUM: t.tiles = d->experts ? d->experts : sequences; return t;
    case FAMILY_CLEAR:
    case FAMILY_ADAMW: return flat_tiling(d->n, FLAT_TILE);
    case FAMILY_SUMSQ: return flat_tiling(d->n, SUMSQ_TILE);
    case FAMILY_PACK:
    case FAMILY_MATMUL:
    case FAMILY_MATMUL_T:
    case FAMILY_MATMUL_W: // contract.c
    case FAMILY_ATTEND:
    case FAMILY_ATTEND_GRAD: // attend.c
    case FAMILY_ROUTE:
    case FAMILY_CLIP:
    case N_FAMILIES: break;
    }
    return t;
}

/* sources ------------------------------------------------------------------------------------ */

static const char *const template_name[N_FAMILIES] = {
    [FAMILY_EMBED_W] = "embed_w.c",
    [FAMILY_ROUTE] = "route.c",
    [FAMILY_SEGMENT_SUM] = "segment_sum.c",
    [FAMILY_CLEAR] = "clear.c",
    [FAMILY_SUMSQ] = "sumsq.c",
    [FAMILY_CLIP] = "clip.c",
    [FAMILY_ADAMW] = "adamw.c",
};

typedef struct Filler {
    Arena *arena;
    Hole holes[40];
    int n;
} Filler;

static void fill(Filler *f, const char *name, const char *text) {
    f->holes[f->n++] = (Hole){name, text};
}

static void fill_size(Filler *f, const char *name, int64_t value) {
    fill(f, name, arena_printf(f->arena, "%lld", (long long)value));
}

static void fill_real(Filler *f, const char *name, double value) {
    Text text = {0};
    text_add_double(&text, (float)value);
    fill(f, name, arena_printf(f->arena, "%sf", text_cstr(&text)));
    text_finish(&text);
}

// {first number, lr, decay} of every trained parameter, by place.
static int by_offset(const void *a, const void *b) {
    const PlanParam *p = *(const PlanParam *const *)a, *q = *(const PlanParam *const *)b;
    return (p->offset > q->offset) - (p->offset < q->offset);
}

static void fill_table(Filler *f, const KernelDesc *d) {
    const PlanParam **sorted = ARENA_ARRAY(f->arena, const PlanParam *, d->n_params + 1);
    uint32_t n = 0;
    for (uint32_t i = 0; i < d->n_params; i++)
        if (!d->params[i].is_state) sorted[n++] = &d->params[i];
    qsort(sorted, n, sizeof *sorted, by_offset);
    Text rows = {0};
    for (uint32_t i = 0; i < n; i++) {
        text_printf(&rows, "%s{%lld, ", i ? "\n    " : "", (long long)(sorted[i]->offset / 4));
        text_add_double(&rows, (float)sorted[i]->lr);
        text_add(&rows, "f, ");
        text_add_double(&rows, (float)sorted[i]->decay);
        text_add(&rows, "f},");
    }
    fill(f, "table", arena_strdup(f->arena, text_cstr(&rows)));
    fill_size(f, "n_table", n);
    text_finish(&rows);
}

static Status expand_family(const KernelDesc *d, const Tiling *t, const char *entry, Arena *scratch,
                            Text *out) {
    Filler f = {.arena = scratch};
    fill(&f, "entry", entry);
    fill_size(&f, "rows", d->rows);
    fill_size(&f, "sequence", d->sequence);
    fill_size(&f, "experts", d->experts);
    fill_size(&f, "mid", d->mid);
    fill_size(&f, "each", d->each);
    fill_size(&f, "k", d->k);
    fill_size(&f, "n", d->n);
    fill_size(&f, "heads", d->heads);
    fill_size(&f, "kv_heads", d->kv_heads);
    fill_size(&f, "qk", d->qk);
    fill_size(&f, "v", d->v);
    fill_size(&f, "window", d->window);
    fill_size(&f, "top_k", d->top_k);
    fill_size(&f, "vocab", d->vocab);
    fill_size(&f, "ids", d->ids);
    bool half = d->x == DTYPE_BF16;
    fill(&f, "x_type", half ? "bf16" : "float");
    fill(&f, "load", half ? "v_load_bf16" : "v_load");
    fill(&f, "load_part", half ? "v_load_bf16_part" : "v_load_part");
    fill_real(&f, "scale", d->scale);
    fill_size(&f, "causal", d->causal);
    fill_size(&f, "sinks", d->sinks);
    fill_size(&f, "accumulate", d->accumulate);
    fill_size(&f, "chunk", t->chunk);
    fill_size(&f, "range", t->range);
    if (d->family == FAMILY_ADAMW) fill_table(&f, d);
    return template_expand(template_name[d->family], f.holes, f.n, out);
}

// void ENTRY_launch(void *const *args, int64_t tile_begin, int64_t tile_end), from the launch
// table.
static void add_launch(const PlanKernel *k, Text *out) {
    static const char *const c_types[N_DTYPES] = {
#define X(name, text, c_type, bytes) c_type,
        PLAN_DTYPES(X)
#undef X
    };
    static const char signature[] =
        "void %s_launch(void *const *args, int64_t tile_begin, int64_t tile_end)";
    text_printf(out, "#line 1 \"%s_launch\"\n", k->entry);
    text_printf(out, signature, k->entry);
    text_add(out, ";\n");
    text_printf(out, signature, k->entry);
    text_printf(out, " {\n    %s(", k->entry);
    for (uint32_t i = 0; i < k->n_args; i++)
        text_printf(out, "(%s%s *)args[%u], ", k->args[i].is_const ? "const " : "",
                    c_types[k->args[i].dtype], i);
    text_add(out, "tile_begin, tile_end);\n}\n");
}

static uint32_t add_source(Plan *plan, const Text *text) {
    PlanSource *source = ARENA_PUSH(plan->arena, plan->sources, plan->n_sources, plan->cap_sources);
    source->text = arena_strndup(plan->arena, text->at, text->bytes);
    source->bytes = (int64_t)text->bytes;
    source->hash = hash_bytes(text->at, text->bytes);
    return plan->n_sources - 1;
}

/* interface ---------------------------------------------------------------------------------- */

// Source 0, in this order: each uses those before it.
static const char *const prelude_parts[] = {"prelude.h", "pairs.h", "gemm.h", "panels.h",
                                            "quads.h",   "math.h",  "rows.h"};

static Status make_prelude(Text *out) {
#define X(name) "SCALAR_" #name ", "
    static const Hole holes[] = {{"scalars", PLAN_SCALARS(X) "N_SCALARS"}};
#undef X
    for (int i = 0; i < COUNT_OF(prelude_parts); i++)
        TRY(template_expand(prelude_parts[i], holes, COUNT_OF(holes), out));
    return OK;
}

Codegen *codegen_create(Plan *plan) {
    if (plan->n_sources == 0) {
        Text text = {0};
        Status status = make_prelude(&text);
        if (status == OK) add_source(plan, &text);
        text_finish(&text);
        if (status != OK) return NULL;
    }
    Codegen *cg = memory_alloc(sizeof *cg);
    cg->plan = plan;
    cg->prelude = plan->sources[0].text;
    return cg;
}

void codegen_destroy(Codegen *cg) { memory_free(cg); }

static bool find_kernel(const Plan *plan, Hash hash, uint32_t *out) {
    for (uint32_t i = 0; i < plan->n_kernels; i++) {
        if (!hash_equal(plan->kernels[i].hash, hash)) continue;
        *out = i;
        return true;
    }
    return false;
}

static Status make_kernel(Codegen *cg, const KernelDesc *desc, Hash hash, Arena *scratch,
                          Text *source) {
    Plan *plan = cg->plan;
    char hex[33];
    hash_hex(hash, hex);
    Tiling t = tiling(desc);
    PlanKernel made = {.family = family_name[desc->family],
                       .hash = hash,
                       .tiles = t.tiles,
                       .flops = desc->flops,
                       .bytes = desc->bytes};
    made.entry = arena_printf(plan->arena, "%s_%.16s", made.family, hex);
    bool contraction = desc->family == FAMILY_PACK || desc->family == FAMILY_MATMUL ||
                       desc->family == FAMILY_MATMUL_T || desc->family == FAMILY_MATMUL_W;
    if (desc->family == FAMILY_ROW)
        TRY(row_source(desc, made.entry, source));
    else if (contraction)
        TRY(contract_source(desc, made.entry, scratch, source, &made.tiles));
    else if (desc->family == FAMILY_ATTEND || desc->family == FAMILY_ATTEND_GRAD)
        TRY(attend_source(desc, made.entry, scratch, source, &made.tiles));
    else
        TRY(expand_family(desc, &t, made.entry, scratch, source));
    TRY(reflect(cg->prelude, text_cstr(source), made.entry, plan->arena, &made.args, &made.n_args));
    add_launch(&made, source);
    made.source = add_source(plan, source);
    *ARENA_PUSH(plan->arena, plan->kernels, plan->n_kernels, plan->cap_kernels) = made;
    return OK;
}

Status codegen_kernel(Codegen *cg, const KernelDesc *desc, uint32_t *out) {
    Text text = {0}, source = {0};
    kernel_describe(desc, &text);
    Hash hash = hash_bytes(text_cstr(&text), text.bytes);
    text_finish(&text);
    if (find_kernel(cg->plan, hash, out)) return OK;
    Arena *scratch = arena_create();
    Status status;
    TRY_GOTO(make_kernel(cg, desc, hash, scratch, &source), done);
    *out = cg->plan->n_kernels - 1;
done:
    arena_destroy(scratch);
    text_finish(&source);
    return status;
}
