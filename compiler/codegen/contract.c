// SPDX-License-Identifier: Apache-2.0
// Contractions with packed weights: pack, matmul, matmul_t, matmul_w. How each is cut into tiles,
// which buffers it needs, and what fills its template.
//
// The cut follows from the sizes alone. A row program on the results (post) needs whole rows, so a
// tile has all columns and as few rows as its accumulators leave in the second cache; one that
// makes the left operand (pre) runs once per chunk, so again a tile has all columns.
#include "compiler/codegen/codegen.h"

enum {
    PANEL = 32, // ORDER PANEL (templates/cpu/gemm.h)
    MAX_PARTS = 4,
    ENOUGH_TILES = 16,    // per launch, so that a few threads share the work evenly
    CHUNK_ROWS = 256,     // of a tile at most
    NEAR = 512 << 10,     // bytes of a buffer that shall stay in the second cache
    STACK = 1 << 20,      // bytes of buffers on the stack; larger ones live in thread-local memory
    PACK_NUMBERS = 32768, // per tile of pack
};

typedef struct Contract {
    const KernelDesc *d;
    const RowBody *post, *pre; // NULL: none
    bool pairs;                // bf16 arithmetic
    int terms, siblings;
    int64_t in[MAX_PARTS], out[MAX_PARTS]; // numbers per row of each term, of each result
    int64_t panels, pieces;
    bool copy, keep;
    int64_t steps, copy_row, chunk, range /* panels */, tiles;
} Contract;

static const char *c_type(uint8_t dtype) { return dtype == DTYPE_BF16 ? "bf16" : "float"; }

/* checks ------------------------------------------------------------------------------------- */

static Status check(const KernelDesc *d) {
    const char *family = family_name[d->family];
    bool weights = d->family == FAMILY_MATMUL_W, post = d->body.n_stores, pre = d->pre.n_stores;
    if (d->precision == PRECISION_MXFP8)
        return status_fail(ERR_INPUT, "%s: mxfp8 has no kernel on this target", family);
    if (d->parts < 0 || d->parts > MAX_PARTS || (d->parts > 1 && weights))
        return status_fail(ERR_INTERNAL, "%s: %d parts, expected 1 to %d", family, d->parts,
                           weights ? 1 : MAX_PARTS);
    if ((post || pre || d->parts > 1) && (d->mid != 1 || d->each != 1))
        return status_fail(ERR_INTERNAL,
                           "%s: parts and row programs expect mid and each 1, got %d "
                           "and %d",
                           family, d->mid, d->each);
    if (weights && (post || d->y != DTYPE_F32))
        return status_fail(ERR_INTERNAL, "matmul_w: its result is f32 and has no post");
    if (pre && d->family == FAMILY_MATMUL_T && d->parts > 1)
        return status_fail(ERR_INTERNAL, "matmul_t: a pre makes the operand of one term");
    uint32_t operands = 0;
    for (uint32_t i = 0; i < d->pre.n_stores; i++) {
        operands += d->pre.stores[i].operand;
        if (d->pre.stores[i].partial && d->experts)
            return status_fail(ERR_INTERNAL, "%s: a grouped pre has no partial stores", family);
        if (d->pre.stores[i].operand != true && weights)
            return status_fail(ERR_INTERNAL, "matmul_w: a pre stores its operand only");
    }
    if (pre && operands != 1)
        return status_fail(ERR_INTERNAL, "%s: a pre makes one operand", family);
    for (uint32_t i = 0; i < d->body.n_stores; i++)
        if (d->body.stores[i].partial && d->experts)
            return status_fail(ERR_INTERNAL, "%s: a grouped post has no partial stores", family);
    return OK;
}

/* matmul, matmul_t --------------------------------------------------------------------------- */

// Rows at multiples of this many bytes share few sets of the first cache.
enum { ALIKE_BYTES = 4096 };

static void find_operands(Contract *c) {
    const KernelDesc *d = c->d;
    int parts = d->parts > 1 ? d->parts : 1;
    bool turned = d->family == FAMILY_MATMUL_T;
    c->terms = turned ? parts : 1, c->siblings = turned ? 1 : parts;
    c->in[0] = turned ? d->n : d->k, c->out[0] = turned ? d->k : d->n;
    for (int i = 0; i < parts && parts > 1; i++) *(turned ? &c->in[i] : &c->out[i]) = d->part_n[i];
    for (int i = 0; i < c->siblings; i++) c->panels += div_up(c->out[i], PANEL);
}

// Which left operands are read where they lie.
static void choose_copy(Contract *c) {
    const KernelDesc *d = c->d;
    int64_t apart = (int64_t)d->each * (d->mid > 1 && d->each > 1 ? d->mid : 1);
    int bytes = c->pairs ? 2 : 4;
    c->copy = c->pre || d->x != (c->pairs ? DTYPE_BF16 : DTYPE_F32);
    int64_t longest = 0;
    for (int i = 0; i < c->terms; i++) {
        c->copy =
            c->copy || (c->pairs && c->in[i] % 2) || apart * c->in[i] * bytes % ALIKE_BYTES == 0;
        longest = max_i64(longest, c->in[i]);
    }
    int64_t limit = c->pre ? longest : (c->copy ? 4096 : 16384) / bytes;
    c->steps = round_up(div_up(longest, div_up(longest, limit)), PANEL);
    for (int i = 0; i < c->terms; i++) c->pieces += div_up(c->in[i], c->steps);
    c->copy_row = c->steps + 64 / bytes;
}

static int64_t chunks(const Contract *c, int64_t rows) {
    // Every expert may end with a partial chunk.
    return c->d->experts ? rows / c->chunk + c->d->experts : div_up(rows, c->chunk);
}

// The size of nearly equal parts of n, at most `limit` each, as a multiple of `grain`.
static int64_t even(int64_t n, int64_t limit, int64_t grain) {
    return round_up(div_up(n, div_up(n, limit)), grain);
}

static void cut(Contract *c) {
    const KernelDesc *d = c->d;
    bool both = d->mid > 1 && d->each > 1;
    int64_t problems = both ? d->mid * d->each : d->each, rows = both ? d->rows : d->rows * d->mid;
    bool whole = c->post || c->pre;
    c->chunk = CHUNK_ROWS;
    c->range = whole ? c->panels : even(c->panels, c->copy ? 16 : 8, 1);
    int64_t row_bytes = max_i64(c->post ? c->panels * PANEL * 4 : 0, c->pre ? c->copy_row * 4 : 0);
    if (c->copy && !c->pre) row_bytes = max_i64(row_bytes, c->steps * (c->pairs ? 2 : 4));
    while (c->chunk > ROW_TILE && c->chunk * row_bytes > NEAR) c->chunk /= 2;
    while (problems * div_up(rows, c->chunk) * div_up(c->panels, c->range) < ENOUGH_TILES) {
        if (!whole && c->range > 2)
            c->range /= 2;
        else if (c->chunk > ROW_TILE)
            c->chunk /= 2;
        else
            break;
    }
    c->tiles = problems * chunks(c, rows) * div_up(c->panels, c->range);
}

static Status plan_contract(const KernelDesc *d, Contract *c) {
    *c = (Contract){.d = d, .pairs = d->precision == PRECISION_BF16};
    TRY(check(d));
    if (d->body.n_stores) c->post = &d->body;
    if (d->pre.n_stores) c->pre = &d->pre;
    find_operands(c);
    choose_copy(c);
    c->keep = c->post || (c->pieces > 1 && d->y == DTYPE_BF16);
    cut(c);
    return OK;
}

/* text --------------------------------------------------------------------------------------- */

static void fill_sizes(Filler *f, const char *name, const int64_t *sizes, int n) {
    Text text = {0};
    for (int i = 0; i < n; i++) text_printf(&text, "%s%lld", i ? ", " : "", (long long)sizes[i]);
    fill_text(f, name, &text);
}

// "x", "w, w1, w2": parameters of several parts.
static void fill_names(Filler *f, const char *hole, const char *name, int n) {
    Text text = {0};
    for (int i = 0; i < n; i++)
        i ? text_printf(&text, ", %s%d", name, i) : text_add(&text, n ? name : "0");
    fill_text(f, hole, &text);
}

static void declare(Text *parameters, Text *arguments, const char *type, const char *name, int n) {
    for (int i = 0; i < n; i++) {
        char number[4] = {i ? (char)('0' + i) : 0};
        text_printf(parameters, "%s *%s%s, ", type, name, number);
        text_printf(arguments, "%s%s, ", name, number);
    }
}

// The row program as a function before the kernel; its loads and stores join the parameters.
static Status add_program(const KernelDesc *d, const RowBody *body, const char *name,
                          const char *load, const char *store, Text *functions, Text *parameters,
                          Text *arguments, Filler *f, const char *hole) {
    Text own = {0};
    Status status;
    TRY_GOTO(row_function(d, body, name, load, store, functions, parameters, &own), done);
    text_add(arguments, text_cstr(&own));
    fill_hole(f, hole, arena_strdup(f->arena, text_cstr(&own)));
done:
    text_finish(&own);
    return status;
}

typedef struct Signature {
    Text parameters, arguments, functions;
} Signature;

static void signature_finish(Signature *s) {
    text_finish(&s->parameters), text_finish(&s->arguments), text_finish(&s->functions);
}

static void fill_signature(Filler *f, const Signature *s) {
    fill_hole(f, "parameters", arena_strdup(f->arena, text_cstr(&s->parameters)));
    fill_hole(f, "arguments", arena_strdup(f->arena, text_cstr(&s->arguments)));
    fill_hole(f, "functions", arena_strdup(f->arena, text_cstr(&s->functions)));
}

static const char *finish_text(Filler *f, const Contract *c, const char *entry,
                               const char *post_arguments) {
    if (!c->keep) return "";
    Text text = {0};
    if (!c->post) {
        text_add(
            &text,
            "for (int64_t p = panel0; p < last_panel; p++) {\n"
            "        PanelPlace at = panel_place(out_size, p);\n"
            "        int64_t wide = out_size[at.part], out_row = apart * wide;\n"
            "        rows_float_bf16(out[at.part] + begin * out_row + problem * wide + at.column,\n"
            "                        out_row, sums + (p - panel0) * PANEL, RANGE * PANEL, rows,\n"
            "                        min_of(PANEL, wide - at.column));\n"
            "    }");
    } else {
        text_add(&text, "const float *const acc[SIBLINGS] = {");
        int64_t panel = 0;
        for (int i = 0; i < c->siblings; panel += div_up(c->out[i++], PANEL))
            text_printf(&text, "%ssums + %lld", i ? ", " : "", (long long)panel * PANEL);
        text_add(&text, "};\n    static const int64_t acc_stride[SIBLINGS] = {");
        for (int i = 0; i < c->siblings; i++) text_printf(&text, "%sRANGE * PANEL", i ? ", " : "");
        text_printf(&text, "};\n    post_%s(%sacc, acc_stride, begin, begin + rows);", entry,
                    post_arguments);
    }
    const char *copy = arena_strdup(f->arena, text_cstr(&text));
    text_finish(&text);
    return copy;
}

static const char *hole_text(const Filler *f, const char *name) {
    for (int i = 0; i < f->n; i++)
        if (!strcmp(f->holes[i].name, name)) return f->holes[i].text;
    return "";
}

static void fill_operand(Filler *f, const Contract *c, const char *entry) {
    const char *a_type = c->pairs ? "bf16" : "float", *text = "";
    if (c->pre) {
        text = arena_printf(f->arena, "pre_%s(%s0, 0, copy, COPY_ROW, begin, begin + rows);", entry,
                            hole_text(f, "pre_arguments"));
    } else if (c->copy) {
        text =
            arena_printf(f->arena, "rows_%s_%s(copy, COPY_ROW, in[t] + from, in_row, rows, steps);",
                         c_type(c->d->x), a_type);
    }
    fill_hole(f, "make_operand", text);
    fill_hole(f, "a_type", a_type);
}

static Status make_signature(const Contract *c, const char *entry, Filler *f, Signature *s) {
    const KernelDesc *d = c->d;
    bool turned = d->family == FAMILY_MATMUL_T;
    const char *x_type = arena_printf(f->arena, "const %s", c_type(d->x));
    const char *w_type = c->pairs ? "const bf16" : "const float";
    Text *p = &s->parameters, *a = &s->arguments;
    if (c->pre)
        TRY(add_program(d, c->pre, arena_printf(f->arena, "pre_%s", entry), "a", "b", &s->functions,
                        p, a, f, "pre_arguments"));
    else
        declare(p, a, x_type, turned ? "g" : "x", c->terms);
    declare(p, a, w_type, "w", c->terms * c->siblings);
    if (d->experts) declare(p, a, "const int32_t", "offsets", 1);
    if (c->post)
        TRY(add_program(d, c->post, arena_printf(f->arena, "post_%s", entry), "l", "s",
                        &s->functions, p, a, f, "post_arguments"));
    else
        declare(p, a, c_type(d->y), turned ? "x" : "y", c->siblings);
    return OK;
}

static Status rows_source(const KernelDesc *d, const char *entry, Arena *arena, Text *out,
                          int64_t *tiles) {
    Contract c;
    Signature s = {0};
    Filler f = {.arena = arena};
    bool turned = d->family == FAMILY_MATMUL_T;
    Status status;
    TRY(plan_contract(d, &c));
    TRY_GOTO(make_signature(&c, entry, &f, &s), done);
    fill_signature(&f, &s);
    fill_hole(&f, "entry", entry);
    fill_size(&f, "rows", d->rows);
    fill_size(&f, "experts", d->experts);
    fill_size(&f, "mid", d->mid);
    fill_size(&f, "each", d->each);
    fill_size(&f, "chunk", c.chunk);
    fill_size(&f, "range", c.range);
    fill_size(&f, "steps", c.steps);
    fill_size(&f, "panels", c.panels);
    fill_size(&f, "terms", c.terms);
    fill_size(&f, "siblings", c.siblings);
    fill_size(&f, "pairs", c.pairs);
    fill_size(&f, "copy", c.copy);
    fill_size(&f, "copy_row", c.copy_row);
    fill_size(&f, "keep", c.keep);
    fill_hole(&f, "first", !c.keep && d->y == DTYPE_BF16 ? "GEMM_ROUND" : "GEMM_START");
    fill_sizes(&f, "in_sizes", c.in, c.terms);
    fill_sizes(&f, "out_sizes", c.out, c.siblings);
    fill_hole(&f, "x_type", c_type(d->x));
    fill_hole(&f, "y_type", c.post ? "float" : c_type(d->y));
    fill_hole(&f, "w_type", c.pairs ? "bf16" : "float");
    fill_hole(&f, "kind", c.pairs ? "pairs" : "floats");
    fill_names(&f, "in", turned ? "g" : "x", c.pre ? 0 : c.terms);
    fill_names(&f, "out", turned ? "x" : "y", c.post ? 0 : c.siblings);
    fill_names(&f, "weights", "w", c.terms * c.siblings);
    fill_hole(&f, "offsets", d->experts ? "offsets" : "0");
    int64_t bytes = (c.copy ? c.chunk * c.copy_row * (c.pairs ? 2 : 4) : 0) +
                    (c.keep ? c.chunk * c.range * PANEL * 4 : 0);
    fill_hole(&f, "storage", bytes > STACK ? "static _Thread_local" : "");
    fill_operand(&f, &c, entry);
    fill_hole(&f, "finish", finish_text(&f, &c, entry, hole_text(&f, "post_arguments")));
    *tiles = c.tiles;
    TRY_GOTO(template_expand("cpu/gemm.c", f.holes, f.n, out), done);
done:
    signature_finish(&s);
    return status;
}

/* pack --------------------------------------------------------------------------------------- */

static Status pack_source(const KernelDesc *d, const char *entry, Arena *arena, Text *out,
                          int64_t *tiles) {
    Filler f = {.arena = arena};
    bool pairs = d->precision == PRECISION_BF16;
    int64_t matrices = max_i64(d->experts, 1) * max_i64(d->each, 1);
    int64_t steps = d->turned ? d->n : d->k, panels = div_up(d->turned ? d->k : d->n, PANEL);
    int64_t chunk = max_i64(1, PACK_NUMBERS / (steps * PANEL));
    if (d->precision == PRECISION_MXFP8)
        return status_fail(ERR_INPUT, "pack: mxfp8 has no kernel on this target");
    if (d->x == DTYPE_BF16 && !pairs)
        return status_fail(ERR_INPUT, "pack: from bf16 to fp32 has no kernel");
    fill_hole(&f, "entry", entry);
    fill_size(&f, "k", d->k);
    fill_size(&f, "n", d->n);
    fill_size(&f, "turned", d->turned);
    fill_size(&f, "pairs", pairs);
    fill_size(&f, "matrices", matrices);
    fill_size(&f, "chunk", chunk);
    fill_hole(&f, "w_type", pairs ? "bf16" : "float");
    fill_hole(&f, "pack",
         pairs ? (d->turned ? "pack_pairs_turned" : "pack_pairs")
               : (d->turned ? "pack_turned" : "pack_rows"));
    *tiles = div_up(matrices * panels, chunk);
    return template_expand(d->x == DTYPE_BF16 ? "cpu/pack_bf16.c" : "cpu/pack.c", f.holes, f.n, out);
}

/* matmul_w ----------------------------------------------------------------------------------- */

// Both operands are packed anew for every tile, so tiles are large, and rather square than long.
static void cut_weights(const KernelDesc *d, int64_t problems, int64_t *k, int64_t *n) {
    *k = even(d->k, d->precision == PRECISION_BF16 ? 1024 : 512, PANEL);
    *n = even(d->n, 1024, 2 * PANEL);
    while (problems * div_up(d->k, *k) * div_up(d->n, *n) < ENOUGH_TILES / 2) {
        if (*n > 2 * PANEL && *n >= *k)
            *n = round_up(*n / 2, 2 * PANEL);
        else if (*k > PANEL)
            *k = round_up(*k / 2, PANEL);
        else
            break;
    }
}

static Status weights_source(const KernelDesc *d, const char *entry, Arena *arena, Text *out,
                             int64_t *tiles) {
    TRY(check(d));
    Filler f = {.arena = arena};
    Signature s = {0};
    Status status;
    bool pairs = d->precision == PRECISION_BF16;
    int64_t problems = (int64_t)max_i64(d->experts, 1) * d->each, k, n;
    cut_weights(d, problems, &k, &n);
    if (d->pre.n_stores)
        TRY_GOTO(add_program(d, &d->pre, arena_printf(arena, "pre_%s", entry), "a", "b",
                             &s.functions, &s.parameters, &s.arguments, &f, "pre_arguments"),
                 done);
    else
        declare(&s.parameters, &s.arguments, arena_printf(arena, "const %s", c_type(d->x)), "x", 1);
    declare(&s.parameters, &s.arguments, arena_printf(arena, "const %s", c_type(d->g)), "g", 1);
    if (d->experts) declare(&s.parameters, &s.arguments, "const int32_t", "offsets", 1);
    declare(&s.parameters, &s.arguments, "float", "w", 1);
    const char *x_type = pairs && d->pre.n_stores ? "bf16"
                         : d->pre.n_stores        ? "float"
                                                  : c_type(d->x);
    fill_signature(&f, &s);
    fill_hole(&f, "entry", entry);
    fill_size(&f, "rows", d->rows);
    fill_size(&f, "experts", d->experts);
    fill_size(&f, "mid", d->mid);
    fill_size(&f, "each", d->each);
    fill_size(&f, "k", d->k);
    fill_size(&f, "n", d->n);
    fill_size(&f, "accumulate", d->accumulate);
    fill_size(&f, "range_k", k);
    fill_size(&f, "range_n", n);
    fill_size(&f, "pairs", pairs);
    fill_size(&f, "pre", d->pre.n_stores != 0);
    fill_hole(&f, "x_type", x_type);
    fill_hole(&f, "g_type", c_type(d->g));
    fill_hole(&f, "x", d->pre.n_stores ? "0" : "x");
    const char *kind = pairs ? "pairs" : "floats";
    fill_hole(&f, "kind", kind);
    fill_hole(&f, "pack_x", arena_printf(arena, "pack_quads_%s_%s", kind, x_type));
    fill_hole(&f, "pack_g", arena_printf(arena, "pack_wide_%s_%s", kind, c_type(d->g)));
    fill_hole(&f, "storage",
         d->pre.n_stores && 256 * d->k * 4 > STACK / 2 ? "static _Thread_local" : "");
    fill_hole(&f, "offsets", d->experts ? "offsets" : "0");
    fill_hole(&f, "make_operand",
         d->pre.n_stores ? arena_printf(arena, "pre_%s(%s0, 0, made, K, from, from + rows);", entry,
                                        hole_text(&f, "pre_arguments"))
                         : "");
    *tiles = problems * div_up(d->k, k) * div_up(d->n, n);
    TRY_GOTO(template_expand("cpu/gemm_w.c", f.holes, f.n, out), done);
done:
    signature_finish(&s);
    return status;
}

Status contract_source(const KernelDesc *d, const char *entry, Arena *arena, Text *out,
                       int64_t *tiles) {
    if (d->family == FAMILY_PACK) return pack_source(d, entry, arena, out, tiles);
    if (d->family == FAMILY_MATMUL_W) return weights_source(d, entry, arena, out, tiles);
    return rows_source(d, entry, arena, out, tiles);
}
