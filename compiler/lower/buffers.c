// SPDX-License-Identifier: Apache-2.0
// Buffers of a program: what memory each value has, by kind and node; made when first asked for.
#include "compiler/lower/pass.h"

// The heads of the lists: by node, and one for what belongs to no node.
static uint32_t *list_of(Lower *l, uint32_t node) {
    return node ? &l->info[node].buffers : &l->loose;
}

uint32_t lower_find_buffer(const Lower *l, BufferKind kind, uint32_t node, int32_t k) {
    uint32_t at = node ? l->info[node].buffers : l->loose;
    for (; at; at = l->buffers[at - 1].next) {
        const Buffer *buffer = &l->buffers[at - 1];
        if (buffer->kind == kind && buffer->k == k) return at;
    }
    return 0;
}

static void set_dims(Buffer *buffer, int n, const int64_t *dims) {
    buffer->n_dims = (uint8_t)n;
    buffer->bytes = dtype_bytes((Dtype)buffer->dtype);
    for (int i = 0; i < n; i++) {
        buffer->dims[i] = dims[i];
        buffer->bytes *= dims[i];
    }
}

static void set_type(const Lower *l, Buffer *buffer, const Type *type, uint8_t dtype) {
    int64_t dims[PLAN_MAX_DIMS];
    int n = 0;
    if (type->row != ROW_NONE) dims[n++] = lower_rows(l, type);
    for (int i = 0; i < type->rank; i++) dims[n++] = type->dim[i];
    if (n == 0) dims[n++] = 1;
    buffer->dtype = type->kind != KIND_REAL ? DTYPE_I32 : dtype;
    set_dims(buffer, n, dims);
}

static void set_input(const Lower *l, Buffer *buffer) {
    int kind = buffer->k >> 16;
    bool counts = kind == INPUT_n_valid || kind == INPUT_n_valid_sequence;
    buffer->dtype = counts ? DTYPE_F32 : DTYPE_I32;
    int64_t n = kind == INPUT_n_valid            ? 1
                : kind == INPUT_n_valid_sequence ? l->sequences
                                                 : l->tokens;
    set_dims(buffer, 1, &n);
}

static void set_route(const Lower *l, Buffer *buffer) {
    Type rows = { .row = ROW_R, .route = buffer->node };
    int64_t top_k = model_top_k(l->m, &rows);
    buffer->dtype = DTYPE_I32;
    if (buffer->kind == BUFFER_ROW_OF_SLOT)
        set_dims(buffer, 2, (int64_t[]){ l->tokens, top_k });
    else if (buffer->kind == BUFFER_SLOT_OF_ROW)
        set_dims(buffer, 1, (int64_t[]){ lower_rows(l, &rows) });
    else if (buffer->kind == BUFFER_COUNTS)
        set_dims(buffer, 2, (int64_t[]){ lower_ep(l), 1 + model_experts(l->m, &rows) });
    else if (buffer->kind == BUFFER_NUMBERS)
        set_dims(buffer, 1, (int64_t[]){ lower_rounds(l, buffer->node) });
    else if (buffer->kind == BUFFER_ROUNDS)
        set_dims(buffer, 1, (int64_t[]){ buffer->k ? lower_ep(l) : 1 });
    else // offsets, starts: first rows of experts; with row_align, where they end
        set_dims(buffer, 1, (int64_t[]){ lower_experts(l, &rows) * (lower_align(l) > 1 ? 2 : 1) + 1 });
}

// Attention's results, as spares: 0 the output, 1 the log-sum-exp; 8 + i: part i of the gradient.
static void set_spare(const Lower *l, Buffer *buffer) {
    const Type *q = model_type(l->m, model_arg(l->m, buffer->node, 0));
    Type type = *q;
    bool small = buffer->k == 1 || buffer->k == 8 + 3; // statistics, the gradient of sinks
    if (buffer->k == 0) {
        type.dim[1] = model_type(l->m, model_arg(l->m, buffer->node, 2))->dim[1];
    } else if (buffer->k == 1) {
        type.rank = 1;
    } else {
        int part = buffer->k - 8;
        type = *model_type(l->m, model_arg(l->m, buffer->node, part == 3 ? 7 : part));
    }
    set_type(l, buffer, &type, l->info[buffer->node].pairs && !small ? DTYPE_BF16 : DTYPE_F32);
}

static void set_partials(const Lower *l, Buffer *buffer) {
    const Type *type = model_type(l->m, buffer->node);
    int64_t rows = lower_rows(l, model_type(l->m, model_arg(l->m, buffer->node, 0)));
    int64_t dims[PLAN_MAX_DIMS] = { div_up(rows, ROW_TILE) };
    for (int i = 0; i < type->rank; i++) dims[1 + i] = type->dim[i];
    set_dims(buffer, 1 + type->rank, dims);
}

static void set_blocks(const Lower *l, Buffer *buffer) {
    int64_t dims[2];
    const Type *type = model_type(l->m, buffer->node);
    if (buffer->kind == BUFFER_TABLE) blocks_table_dims(l, buffer->node, buffer->k, dims);
    else if (buffer->kind == BUFFER_SENT) blocks_sent_dims(l, buffer->node, buffer->k, dims);
    else blocks_back_dims(l, buffer->node, buffer->k, dims);
    bool numbers = buffer->kind != BUFFER_TABLE && type->kind == KIND_REAL;
    buffer->dtype = numbers ? l->info[buffer->node].dtype : DTYPE_I32;
    set_dims(buffer, 2, dims);
}

static const Region region_of[] = {
    [BUFFER_VALUE] = REGION_act,       [BUFFER_PARTIALS] = REGION_act,
    [BUFFER_ROW_OF_SLOT] = REGION_act, [BUFFER_SLOT_OF_ROW] = REGION_act,
    [BUFFER_OFFSETS] = REGION_act,     [BUFFER_SPARE] = REGION_act,
    [BUFFER_COUNTS] = REGION_act,      [BUFFER_TABLE] = REGION_act,
    [BUFFER_SENT] = REGION_act,        [BUFFER_BACK] = REGION_act,
    [BUFFER_STARTS] = REGION_act,      [BUFFER_NUMBERS] = REGION_act,
    [BUFFER_ROUNDS] = REGION_act,
    [BUFFER_PARAM] = REGION_weights,   [BUFFER_GRADIENT] = REGION_grads,
    [BUFFER_TOTAL] = REGION_totals,    [BUFFER_OUTPUT] = REGION_io,
    [BUFFER_METRIC] = REGION_io,       [BUFFER_INPUT] = REGION_io,
    [BUFFER_SCALARS] = REGION_scalars, [BUFFER_NORM] = REGION_act,
    [BUFFER_PACKED] = REGION_packed,   [BUFFER_PACKED_VALUE] = REGION_act,
};

static void set_packed(Buffer *buffer, const Pack *pack) {
    int64_t dims[PLAN_MAX_DIMS];
    int n;
    pack_dims(pack, dims, &n);
    buffer->dtype = pack->dtype;
    set_dims(buffer, n, dims);
}

static Region region_of_param(const Lower *l, uint32_t node) {
    int64_t offset;
    if (l->trial || l->unplaced) return REGION_weights;
    return lower_param_place(l, lower_param(l, l->m->nodes[node].attr.index), &offset);
}

// Numbers of a region that one kernel takes as a whole.
static int64_t flat_numbers(const Lower *l, Region region) {
    int64_t masters = plan_master_bytes(l->plan) / dtype_bytes(DTYPE_F32);
    if (region == REGION_totals) return l->totals_bytes / dtype_bytes(DTYPE_F32);
    return masters && region != REGION_grads ? masters : l->plan->n_trained;
}

static void set_buffer(Lower *l, Buffer *buffer) {
    const Model *m = l->m;
    buffer->region =
        buffer->kind == BUFFER_FLAT ? (uint8_t)buffer->k : (uint8_t)region_of[buffer->kind];
    if (buffer->kind == BUFFER_PARAM) buffer->region = (uint8_t)region_of_param(l, buffer->node);
    switch ((BufferKind)buffer->kind) {
    case BUFFER_VALUE:
        if (l->info[buffer->node].into) buffer->region = REGION_io;
        if (l->info[buffer->node].shared) buffer->region = REGION_sym;
        set_type(l, buffer, model_type(m, buffer->node), l->info[buffer->node].dtype);
        break;
    case BUFFER_PARTIALS: set_partials(l, buffer); break;
    case BUFFER_ROW_OF_SLOT:
    case BUFFER_SLOT_OF_ROW:
    case BUFFER_COUNTS:
    case BUFFER_STARTS:
    case BUFFER_NUMBERS:
    case BUFFER_ROUNDS:
    case BUFFER_OFFSETS: set_route(l, buffer); break;
    case BUFFER_TABLE:
    case BUFFER_SENT:
    case BUFFER_BACK: set_blocks(l, buffer); break;
    case BUFFER_SPARE: set_spare(l, buffer); break;
    case BUFFER_PARAM:
    case BUFFER_GRADIENT:
    case BUFFER_TOTAL: set_type(l, buffer, model_type(m, buffer->node), DTYPE_F32); break;
    case BUFFER_OUTPUT:
        set_type(l, buffer, model_type(m, model_arg(m, buffer->node, 0)), DTYPE_F32);
        break;
    case BUFFER_METRIC: set_dims(buffer, 1, (int64_t[]){ m->records[buffer->k].n }); break;
    case BUFFER_INPUT: set_input(l, buffer); break;
    case BUFFER_SCALARS: set_dims(buffer, 1, (int64_t[]){ N_SCALARS }); break;
    case BUFFER_FLAT:
        set_dims(buffer, 1, (int64_t[]){ flat_numbers(l, (Region)buffer->k) });
        break;
    case BUFFER_RANGE: {
        const Range *range = &l->ranges[buffer->k];
        buffer->region = (uint8_t)range->region;
        buffer->offset = range->offset;
        buffer->dtype = (uint8_t)range->dtype;
        set_dims(buffer, 1, (int64_t[]){ range->bytes / dtype_bytes(range->dtype) });
        break;
    }
    case BUFFER_PACKED: set_packed(buffer, &l->shared->packs[buffer->k]); break;
    case BUFFER_PACKED_VALUE: set_packed(buffer, &l->packs[buffer->k]); break;
    case BUFFER_NORM:
        set_dims(buffer, 1, (int64_t[]){ div_up(flat_numbers(l, plan_master(l->plan)), SUMSQ_TILE) });
        break;
    }
    if (buffer->kind != BUFFER_TOTAL) return;
    buffer->offset = l->totals_bytes;
    l->totals_bytes += round_up(buffer->bytes, PLAN_GRAIN);
}

static uint32_t new_buffer(Lower *l, BufferKind kind, uint32_t node, int32_t k) {
    Buffer *buffer = ARENA_PUSH(l->arena, l->buffers, l->n_buffers, l->cap_buffers);
    *buffer = (Buffer){ .kind = (uint8_t)kind, .node = node, .k = k, .dtype = DTYPE_F32 };
    set_buffer(l, buffer);
    uint32_t *list = list_of(l, node);
    buffer->next = *list;
    *list = l->n_buffers;
    return l->n_buffers - 1;
}

uint32_t lower_buffer(Lower *l, BufferKind kind, uint32_t node, int32_t k) {
    uint32_t found = lower_find_buffer(l, kind, node, k);
    return found ? found - 1 : new_buffer(l, kind, node, k);
}

uint32_t lower_range(Lower *l, const char *name, Region region, int64_t offset, int64_t bytes) {
    return lower_range_of(l, name, region, offset, bytes, DTYPE_F32);
}

uint32_t lower_range_of(Lower *l, const char *name, Region region, int64_t offset, int64_t bytes, Dtype dtype) {
    *ARENA_PUSH(l->arena, l->ranges, l->n_ranges, l->cap_ranges) =
        (Range){ name, region, offset, bytes, dtype };
    return new_buffer(l, BUFFER_RANGE, 0, (int32_t)l->n_ranges - 1); // each range is of its own
}

static int32_t input_key(const Lower *l, uint32_t n) {
    const Node *node = model_at(l->m, n);
    switch (node->op) {
    case OP_TOKENS: return INPUT_tokens << 16 | (uint16_t)node->attr.k;
    case OP_LABELS: return INPUT_labels << 16 | (uint16_t)node->attr.k;
    case OP_VALID: return INPUT_labels << 16 | 1;
    case OP_POSITIONS: return INPUT_positions << 16;
    case OP_SEGMENTS: return INPUT_segments << 16;
    default:
        return (node->type.row == ROW_S ? INPUT_n_valid_sequence : INPUT_n_valid) << 16; // n_valid
    }
}

uint32_t lower_value(Lower *l, uint32_t read) {
    uint32_t n = read_node(read);
    if (!(read & READ_STORED)) {
        const Node *node = model_at(l->m, n);
        if (node->op == OP_TOTAL) return lower_buffer(l, BUFFER_TOTAL, n, 0);
        if (l->info[n].role == ROLE_SOURCE) return lower_buffer(l, BUFFER_PARAM, n, 0);
        if (l->info[n].role == ROLE_GENERATOR)
            return lower_buffer(l, BUFFER_INPUT, 0, input_key(l, n));
    }
    return lower_buffer(l, BUFFER_VALUE, n, 0);
}

bool buffer_is_made(const Buffer *buffer) {
    return buffer_is_placed(buffer) || buffer->kind == BUFFER_VALUE;
}

// Kernel and buffer learn of each other; the kernel's traffic grows.
void lower_bind(Lower *l, uint32_t kernel, const char *name, uint32_t buffer, OperandMode mode) {
    Kernel *to = &l->kernels[kernel];
    Buffer *b = &l->buffers[buffer];
    *ARENA_PUSH(l->arena, to->binds, to->n_binds, to->cap_binds) =
        (Bind){ .name = name, .buffer = buffer, .mode = (uint8_t)mode };
    to->desc.bytes += (double)b->bytes * (mode == OPERAND_ADD || mode == OPERAND_INPLACE ? 2 : 1);
    if (mode == OPERAND_READ) b->n_readers++;
    if (mode == OPERAND_WRITE) b->writer = kernel + 1;
}
