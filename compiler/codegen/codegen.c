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
    bool cuda;
};

// How a kernel is cut. `chunk` x `range` are rows x columns of a tile, or what the template takes
// them for.
typedef struct Tiling {
    int64_t chunk, range, tiles;
} Tiling;

enum {
    FLAT_TILE = 32768, // numbers per tile of clear, adamw and reduce
    VOCAB_TILES = 32,
    RAIL_TILE = 4096,  // tokens
};

/* tiles -------------------------------------------------------------------------------------- */

static Tiling flat_tiling(int64_t n, int64_t chunk) {
    return (Tiling){.chunk = chunk, .tiles = div_up(n, chunk)};
}

static Tiling tiling(const KernelDesc *d) {
    int64_t sequences = d->sequence ? d->rows / d->sequence : 0;
    Tiling t = {.tiles = 1};
    switch (d->family) {
    case FAMILY_MOVE:
    case FAMILY_ROW: return flat_tiling(d->rows, ROW_TILE);
    case FAMILY_EMBED_W: return flat_tiling(d->vocab, div_up(d->vocab, VOCAB_TILES));
    case FAMILY_PADS: t.tiles = d->experts; return t;
    case FAMILY_SEGMENT_SUM: t.tiles = d->experts ? d->experts : sequences; return t;
    case FAMILY_ROUND: return flat_tiling(d->rows * d->top_k, FLAT_TILE);
    case FAMILY_RAIL: return flat_tiling(d->ranks * d->rows, RAIL_TILE);
    case FAMILY_CLEAR:
    case FAMILY_REDUCE:
    case FAMILY_ADAMW: return flat_tiling(d->n, FLAT_TILE);
    case FAMILY_SUMSQ: return flat_tiling(d->n, SUMSQ_TILE);
    case FAMILY_PACK:
    case FAMILY_MATMUL:
    case FAMILY_MATMUL_T:
    case FAMILY_MATMUL_W: // contract.c
    case FAMILY_ATTEND:
    case FAMILY_ATTEND_GRAD: // attend.c
    case FAMILY_ROUTE:
    case FAMILY_COUNT:
    case FAMILY_ROUTE_RANKS:
    case FAMILY_BLOCKS:
    case FAMILY_CLIP:
    case FAMILY_FOLD:
    case N_FAMILIES: break;
    }
    return t;
}

/* sources ------------------------------------------------------------------------------------ */

static const char *const template_name[N_FAMILIES] = {
    [FAMILY_EMBED_W] = "cpu/embed_w.c",
    [FAMILY_ROUTE] = "cpu/route.c",
    [FAMILY_COUNT] = "cpu/count.c",
    [FAMILY_ROUTE_RANKS] = "cpu/route_ranks.c",
    [FAMILY_BLOCKS] = "cpu/blocks.c",
    [FAMILY_MOVE] = "cpu/move.c",
    [FAMILY_ROUND] = "cpu/round.c",
    [FAMILY_RAIL] = "cpu/rail.c",
    [FAMILY_PADS] = "cpu/pads.c",
    [FAMILY_SEGMENT_SUM] = "cpu/segment_sum.c",
    [FAMILY_CLEAR] = "cpu/clear.c",
    [FAMILY_SUMSQ] = "cpu/sumsq.c",
    [FAMILY_CLIP] = "cpu/clip.c",
    [FAMILY_ADAMW] = "cpu/adamw.c",
    [FAMILY_REDUCE] = "cpu/reduce.c",
    [FAMILY_FOLD] = "cpu/fold.c",
};

static Status expand_family(const KernelDesc *d, const Tiling *t, const char *entry, Arena *scratch,
                            Text *out) {
    Filler f = {.arena = scratch};
    fill_desc(&f, d, entry);
    bool half = d->x == DTYPE_BF16;
    if (d->family != FAMILY_MOVE) fill_hole(&f, "x_type", half ? "bf16" : d->x == DTYPE_I32 ? "int32_t" : "float");
    fill_hole(&f, "load", half ? "v_load_bf16" : "v_load");
    fill_hole(&f, "load_part", half ? "v_load_bf16_part" : "v_load_part");
    bool rounded = d->family == FAMILY_REDUCE && d->y == DTYPE_BF16;
    if (d->family == FAMILY_REDUCE) {
        fill_hole(&f, "y_type", rounded ? "bf16" : "float");
        fill_hole(&f, "store", rounded ? "v_store_bf16" : "v_store");
        fill_hole(&f, "store_part", rounded ? "v_store_bf16_part" : "v_store_part");
    }
    fill_size(&f, "chunk", t->chunk);
    fill_size(&f, "range", t->range);
    if (d->family == FAMILY_ADAMW) fill_table(&f, d);
    if (d->family == FAMILY_MOVE) fill_move(&f, d);
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
static const char *const cpu_prelude[] = {"cpu/prelude.h", "cpu/pairs.h", "cpu/gemm.h",
                                          "cpu/panels.h",  "cpu/quads.h", "cpu/math.h",
                                          "cpu/rows.h",    NULL};
static const char *const cuda_prelude[] = {"cuda/prelude.h", NULL};

static Status make_prelude(bool cuda, Text *out) {
#define X(name) "SCALAR_" #name ", "
    static const Hole holes[] = {{"scalars", PLAN_SCALARS(X) "N_SCALARS"}};
#undef X
    for (const char *const *part = cuda ? cuda_prelude : cpu_prelude; *part; part++)
        TRY(template_expand(*part, holes, COUNT_OF(holes), out));
    return OK;
}

Codegen *codegen_create(Plan *plan) {
    PlanTarget target;
    if (!plan_target(plan->target, &target)) {
        status_fail(ERR_ARGUMENT, "no kernels for target \"%s\"", plan->target);
        return NULL;
    }
    if (plan->n_sources == 0) {
        Text text = {0};
        Status status = make_prelude(target.cuda, &text);
        if (status == OK) add_source(plan, &text);
        text_finish(&text);
        if (status != OK) return NULL;
    }
    Codegen *cg = memory_alloc(sizeof *cg);
    cg->plan = plan;
    cg->prelude = plan->sources[0].text;
    cg->cuda = target.cuda;
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

static bool is_contraction(const KernelDesc *desc) {
    return desc->family == FAMILY_PACK || desc->family == FAMILY_MATMUL ||
           desc->family == FAMILY_MATMUL_T || desc->family == FAMILY_MATMUL_W;
}

static bool is_attention(const KernelDesc *desc) {
    return desc->family == FAMILY_ATTEND || desc->family == FAMILY_ATTEND_GRAD;
}

static Status cpu_source(const KernelDesc *desc, PlanKernel *made, Arena *scratch, Text *out) {
    Tiling t = tiling(desc);
    made->tiles = t.tiles;
    if (desc->family == FAMILY_ROW) return row_source(desc, made->entry, out);
    if (is_contraction(desc)) return contract_source(desc, made->entry, scratch, out, &made->tiles);
    if (is_attention(desc)) return attend_source(desc, made->entry, scratch, out, &made->tiles);
    return expand_family(desc, &t, made->entry, scratch, out);
}

static Status cuda_source(const KernelDesc *desc, const char *target, PlanKernel *made, Arena *scratch,
                          Text *out) {
    CudaShape shape = {0};
    Status (*source)(const KernelDesc *, const char *, Arena *, Text *, CudaShape *) =
        is_contraction(desc) ? cuda_contract_source
        : is_attention(desc) ? cuda_attend_source
                             : cuda_flat_source;
    TRY(desc->family == FAMILY_ROW ? cuda_row_source(desc, made->entry, target, scratch, out, &shape)
                                   : source(desc, made->entry, scratch, out, &shape));
    made->tiles = shape.tiles;
    made->threads = shape.threads;
    made->shared = shape.shared;
    return OK;
}

static Status make_kernel(Codegen *cg, const KernelDesc *desc, Hash hash, Arena *scratch,
                          Text *source) {
    Plan *plan = cg->plan;
    char hex[33];
    hash_hex(hash, hex);
    PlanKernel made = {.family = family_name[desc->family],
                       .hash = hash,
                       .flops = desc->flops,
                       .bytes = desc->bytes};
    made.entry = arena_printf(plan->arena, "%s_%.16s", made.family, hex);
    TRY(cg->cuda ? cuda_source(desc, plan->target, &made, scratch, source)
                 : cpu_source(desc, &made, scratch, source));
    made.shape = kernel_shape(desc); // of what has a source
    TRY(reflect(cg->cuda, cg->prelude, text_cstr(source), made.entry, plan->arena, &made.args,
                &made.n_args));
    if (!cg->cuda) add_launch(&made, source);
    made.source = add_source(plan, source);
    *ARENA_PUSH(plan->arena, plan->kernels, plan->n_kernels, plan->cap_kernels) = made;
    return OK;
}

Status codegen_kernel(Codegen *cg, const KernelDesc *desc, uint32_t *out) {
    Text text = {0}, source = {0};
    if (cg->cuda) text_add(&text, "cuda ");
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
