// SPDX-License-Identifier: Apache-2.0
// A loss over a large product in pieces of its rows, so that neither the product nor its gradient
// is ever whole: the product, its loss (in the same kernel, or in one of its own where products
// are made in tiles), then the products of the gradient (loss.c has moved them to forward),
// repeated over the rows.
//
// What lives between these kernels only shrinks to one piece; what else has rows is read and
// written a piece at a time. Sums over rows keep their records, so they keep their bits; the
// gradient of the weight is added to piece by piece.
#include "compiler/lower/pass.h"

// Numbers of a piece: what a CPU's caches hold; what keeps all of a GPU busy.
enum { NUMBERS = 4 << 20, NUMBERS_TILED = 64 << 20, LEAST_ROWS = 256, LEAST_PIECES = 4 };

static int64_t piece_of(const Lower *l) {
    return l->options->piece ? l->options->piece : l->tiled ? NUMBERS_TILED : NUMBERS;
}

bool chunk_pays(const Lower *l, uint32_t n) {
    const Type *type = model_type(l->m, n);
    return lower_rows(l, type) * type_features(type) >= LEAST_PIECES * piece_of(l);
}

static uint32_t maker_of(const Lower *l, uint32_t n) {
    return l->units[n].kind == UNIT_NONE ? 0 : l->units[n].kernel;
}

// A product of the segment, a forward one.
static bool is_product(const Lower *l, uint32_t kernel, uint8_t segment, bool with_post) {
    const Kernel *k = &l->kernels[kernel];
    return k->segment == segment && k->desc.family == FAMILY_MATMUL &&
           kernel_has_post(l, k) == with_post;
}

// The large product whose rows a row program of forward reads; index + 1 or 0.
static uint32_t product_of(const Lower *l, const Kernel *rows) {
    uint32_t found = 0;
    if (!is_forward(rows->segment) || kernel_is_family(l, rows)) return 0;
    for (uint32_t i = 0; i < rows->n_binds; i++) {
        const Buffer *buffer = &l->buffers[rows->binds[i].buffer];
        bool made = rows->binds[i].mode == OPERAND_READ && buffer->kind == BUFFER_VALUE &&
                    buffer->writer && is_product(l, buffer->writer - 1, rows->segment, false);
        if (!made || !chunk_pays(l, buffer->node)) continue;
        if (found && found != buffer->writer) return 0;
        found = buffer->writer;
    }
    return found;
}

// The kernel of the product whose gradient a product of forward reads, and in `rows` that of the
// gradient where it is another; index + 1 or 0.
static uint32_t head_of(const Lower *l, const Kernel *kernel, uint32_t *rows) {
    const Node *node = model_at(l->m, kernel->node);
    *rows = 0;
    if (!is_forward(kernel->segment) || !kernel_is_family(l, kernel)) return 0;
    bool turned = node->op == OP_MATMUL_T && !l->info[kernel->node].term;
    if ((!turned && node->op != OP_MATMUL_W) || kernel_has_post(l, kernel)) return 0;
    uint32_t made = maker_of(l, lower_plain(l, model_arg(l->m, kernel->node, turned ? 0 : 1)));
    if (!made || is_product(l, made - 1, kernel->segment, true)) return made;
    *rows = made;
    return l->kernels[made - 1].segment != kernel->segment ? 0 : product_of(l, &l->kernels[made - 1]);
}

/* Rows of buffers ------------------------------------------------------------------------------ */

typedef enum Along { ALONG_NOTHING, ALONG_ROWS, ALONG_TILES, ALONG_OTHER } Along;

static Along along(const Lower *l, const Buffer *buffer) {
    uint8_t row = ROW_NONE;
    switch ((BufferKind)buffer->kind) {
    case BUFFER_VALUE: row = l->m->nodes[buffer->node].type.row; break;
    case BUFFER_PARTIALS: return ALONG_TILES;
    case BUFFER_INPUT:
        switch (buffer->k >> 16) {
        case INPUT_n_valid: return ALONG_NOTHING;
        case INPUT_n_valid_sequence: return ALONG_OTHER;
        default: return ALONG_ROWS;
        }
    case BUFFER_ROW_OF_SLOT:
    case BUFFER_SLOT_OF_ROW:
    case BUFFER_OFFSETS:
    case BUFFER_SPARE: return ALONG_OTHER;
    default: return ALONG_NOTHING;
    }
    return row == ROW_T ? ALONG_ROWS : row == ROW_NONE ? ALONG_NOTHING : ALONG_OTHER;
}

static bool is_inside(const Lower *l, uint32_t kernel, uint32_t repeat) {
    return l->kernels[kernel].repeat == repeat + 1;
}

/* Sets ----------------------------------------------------------------------------------------- */

static bool reads_other_rows(const Lower *l, const Kernel *kernel) {
    const RowBody *body = &kernel->desc.body;
    for (uint32_t i = 0; i < body->n_nodes; i++) {
        uint16_t op = l->m->nodes[body->nodes[i]].op;
        if (op_info[op].class == CLASS_INDEX && op != OP_EMBED) return true;
    }
    return false;
}

static bool can_repeat(const Lower *l, const Repeat *repeat) {
    for (uint32_t i = 0; i < repeat->n; i++) {
        const Kernel *kernel = &l->kernels[repeat->kernels[i]];
        bool weights = kernel->desc.family == FAMILY_MATMUL_W;
        if ((weights && !kernel->desc.accumulate) || reads_other_rows(l, kernel)) return false;
        for (uint32_t b = 0; b < kernel->n_binds; b++)
            if (along(l, &l->buffers[kernel->binds[b].buffer]) == ALONG_OTHER) return false;
    }
    return true;
}

// The most rows that divide all, in whole tiles, for a product of so many columns.
static int64_t rows_of_piece(const Lower *l, int64_t columns) {
    int64_t least = l->options->piece ? ROW_TILE : LEAST_ROWS;
    int64_t most = max_i64(piece_of(l) / columns, least) / ROW_TILE * ROW_TILE;
    for (int64_t rows = most; rows >= ROW_TILE; rows -= ROW_TILE)
        if (l->tokens % rows == 0) return rows;
    return 0;
}

static void join(Lower *l, uint32_t kernel, uint32_t repeat) {
    Repeat *to = &l->repeats[repeat - 1];
    if (l->kernels[kernel].repeat) return;
    l->kernels[kernel].repeat = repeat;
    *ARENA_PUSH(l->arena, to->kernels, to->n, to->cap) = kernel;
}

static void find_sets(Lower *l) {
    for (uint32_t k = 0; k < l->n_kernels; k++) {
        uint32_t rows, head = head_of(l, &l->kernels[k], &rows);
        if (!head) continue;
        uint32_t repeat = l->kernels[head - 1].repeat;
        if (!repeat) {
            ARENA_PUSH(l->arena, l->repeats, l->n_repeats, l->cap_repeats);
            repeat = l->n_repeats;
        }
        join(l, head - 1, repeat);
        if (rows) join(l, rows - 1, repeat);
        join(l, k, repeat);
    }
}

static void dissolve(Lower *l, Repeat *repeat) {
    for (uint32_t i = 0; i < repeat->n; i++) l->kernels[repeat->kernels[i]].repeat = 0;
    repeat->n = 0;
}

/* Cutting -------------------------------------------------------------------------------------- */

// Is all that reads what the set makes in the set?
static bool is_local(const Lower *l, uint32_t buffer, uint32_t repeat) {
    const Buffer *b = &l->buffers[buffer];
    uint32_t readers = 0;
    if (b->kind != BUFFER_VALUE || b->region != REGION_act || !b->writer ||
        !is_inside(l, b->writer - 1, repeat))
        return false;
    for (uint32_t i = 0; i < l->repeats[repeat].n; i++) {
        const Kernel *kernel = &l->kernels[l->repeats[repeat].kernels[i]];
        for (uint32_t k = 0; k < kernel->n_binds; k++)
            readers += kernel->binds[k].buffer == buffer && kernel->binds[k].mode == OPERAND_READ;
    }
    return readers == b->n_readers;
}

static void cut_set(Lower *l, uint32_t index, int64_t rows) {
    Repeat *repeat = &l->repeats[index];
    bool *local = ARENA_ARRAY(l->arena, bool, l->n_buffers);
    repeat->trip = (int32_t)(l->tokens / rows);
    for (uint32_t b = 0; b < l->n_buffers; b++)
        local[b] = along(l, &l->buffers[b]) == ALONG_ROWS && is_local(l, b, index);
    for (uint32_t i = 0; i < repeat->n; i++) {
        Kernel *kernel = &l->kernels[repeat->kernels[i]];
        kernel->desc.rows = rows;
        kernel->desc.flops /= repeat->trip;
        kernel->desc.bytes = 0;
        for (uint32_t k = 0; k < kernel->n_binds; k++) {
            Bind *bind = &kernel->binds[k];
            const Buffer *buffer = &l->buffers[bind->buffer];
            bool pieces = along(l, buffer) != ALONG_NOTHING;
            int64_t bytes = pieces ? buffer->bytes / repeat->trip : buffer->bytes;
            if (pieces && !local[bind->buffer]) bind->step = bytes;
            kernel->desc.bytes += (double)(bind->mode == OPERAND_ADD ? 2 * bytes : bytes);
        }
    }
    for (uint32_t b = 0; b < l->n_buffers; b++) {
        if (!local[b]) continue;
        l->buffers[b].dims[0] = rows;
        l->buffers[b].bytes /= repeat->trip;
    }
}

bool pass_chunk(Lower *l) {
    if (l->options->no_fusion) return true;
    find_sets(l);
    for (uint32_t i = 0; i < l->n_repeats; i++) {
        Repeat *repeat = &l->repeats[i];
        if (repeat->count || !repeat->n) continue; // rounds.c
        int64_t rows = rows_of_piece(l, l->kernels[repeat->kernels[0]].desc.n);
        if (rows && rows < l->tokens && can_repeat(l, repeat))
            cut_set(l, i, rows);
        else
            dissolve(l, repeat);
    }
    return true;
}

void dump_chunk(const Lower *l, Text *out) {
    for (uint32_t i = 0; i < l->n_repeats; i++) {
        const Repeat *repeat = &l->repeats[i];
        if (!repeat->n) continue;
        text_printf(out, "repeat %d", repeat->trip);
        for (uint32_t k = 0; k < repeat->n; k++)
            text_printf(out, " %s", family_name[l->kernels[repeat->kernels[k]].desc.family]);
        text_add(out, "\n");
    }
}
