// SPDX-License-Identifier: Apache-2.0
// Rows of experts on other nodes, in blocks (transport=blocks). The ranks of ep are in turn on nodes of
// `node` ranks, which reach each other's memory; nobody reaches further. A rank's rail has the member with its
// place on every node.
//
//   route      route_ranks -> @gather rail (everybody's row_of_slot) -> blocks (tables; templates/cpu/blocks.c)
//   dispatch   rows [T] -> move here (a token once for each node) -> @blocks rail -> move to the owners on the
//              node, a row as often as its token has copies there
//   collect    move here from the owners on the node, what the rail asks for -> @blocks rail -> read in place
//
// Of a collect that is only summed over a token's choices (a combine, and the adjoint of a dispatch) a node gives
// back the sum of a token's copies there, in the order of choices, once; the token's own rank adds those of the
// nodes in the order of their first choices. Of other collects copies come back one by one. Both are fp32 sums in
// an order that the choices alone decide. Of a dispatch whose choices have values of their own a row holds them
// all: these are weights, one number each. Buffers have the room of the worst case, the tables' counts say what
// is used.
//
// On GPUs nobody reads counts while a step runs, so that it can be recorded: there parts are whole, of one size, and
// every token goes to every node.
//
//   route      route_ranks -> @gather rail -> rail (tables; templates/cpu/rail.c)
//   dispatch   rows [T] -> @gather rail -> move to the owners on the node
//   collect    move here, a row for every token of the rail, or for each of its choices -> @exchange rail -> read
//
// What has no copy on a node comes back as zeros, and is not read.
//
// These kernels are made when all others are described: a row program that would put rows stores them, one
// that would get rows reads what has come back.
#include <math.h>

#include "compiler/lower/pass.h"

bool lower_in_blocks(const Lower *l) {
    return l->layout->transport == TRANSPORT_BLOCKS && lower_ep(l) > 1;
}

static int32_t node_ranks(const Lower *l) {
    return lower_in_blocks(l) && l->layout->node > 1 ? l->layout->node : 1;
}

static int32_t nodes(const Lower *l) {
    return lower_ep(l) / node_ranks(l);
}

PlanGroup lower_reach(const Lower *l) {
    return lower_in_blocks(l) ? GROUP_node : GROUP_ep;
}

static bool in_whole_parts(const Lower *l) {
    return l->tiled || l->options->whole_blocks;
}

static int32_t top_k(const Lower *l, uint32_t route) {
    Type rows = { .row = ROW_R, .route = route };
    return model_top_k(l->m, &rows);
}

/* Room ----------------------------------------------------------------------------------------- */

// Rows of all experts on a node.
static int64_t node_rows(const Lower *l, uint32_t route) {
    return node_ranks(l) * lower_capacity(l, route);
}

// Rows that can come to a rank, and copies that it can be asked for.
static int64_t most_come(const Lower *l, uint32_t route) {
    int64_t tokens = nodes(l) * l->tokens;
    return in_whole_parts(l) ? tokens : min_i64(tokens, node_rows(l, route));
}

static int64_t most_copies(const Lower *l, uint32_t route) {
    int64_t k = top_k(l, route), copies = nodes(l) * l->tokens * k;
    return in_whole_parts(l) ? copies : round_up(min_i64(copies, node_rows(l, route)), k);
}

static int64_t most_go(const Lower *l, uint32_t route) {
    return l->tokens * (in_whole_parts(l) ? nodes(l) : min_i64(nodes(l), top_k(l, route)));
}

int64_t blocks_most_places(const Lower *l, uint32_t route) {
    return lower_in_blocks(l) ? nodes(l) * l->tokens * top_k(l, route) : 0;
}

void blocks_table_dims(const Lower *l, uint32_t route, int32_t which, int64_t dims[2]) {
    int32_t k = top_k(l, route);
    dims[0] = l->tokens;
    dims[1] = k;
    switch ((BlocksTable)which) {
    case TABLE_ALL: dims[0] = nodes(l) * l->tokens; break;
    case TABLE_THERE:
    case TABLE_HOME:
    case TABLE_BACK:
        dims[0] = 2;
        dims[1] = nodes(l);
        break;
    case TABLE_TOKEN: dims[1] = min_i64(nodes(l), k); break;
    case TABLE_PUT: dims[0] = most_come(l, route); break;
    case TABLE_GET: dims[0] = most_copies(l, route) / k; break;
    case TABLE_FIRST:
    case TABLE_PLACE: break;
    }
}

// Does the view give every choice of a token the same?
static bool repeats_token(const Lower *l, uint32_t n, int32_t choices) {
    if (l->m->nodes[n].op != OP_BROADCAST) return false;
    const Type *to = model_type(l->m, n), *from = model_type(l->m, model_arg(l->m, n, 0));
    int skip = to->rank - from->rank;
    if (from->row != to->row || to->rank < 1 || to->dim[0] != choices || skip < 0 || skip > 1) return false;
    if (!skip && from->dim[0] != 1) return false;
    for (int i = 1; i < to->rank; i++)
        if (to->dim[i] != from->dim[i - skip]) return false;
    return true;
}

uint32_t blocks_token_value(const Lower *l, uint32_t dispatch) {
    uint32_t x = model_arg(l->m, dispatch, 0), plain = lower_plain(l, x);
    return repeats_token(l, plain, top_k(l, model_arg(l->m, dispatch, 1))) ? model_arg(l->m, plain, 0) : x;
}

void blocks_sent_dims(const Lower *l, uint32_t dispatch, int32_t stage, int64_t dims[2]) {
    uint32_t route = model_arg(l->m, dispatch, 1);
    dims[0] = stage == BLOCKS_ROWS ? l->tokens : stage == BLOCKS_OUT ? most_go(l, route) : most_come(l, route);
    dims[1] = type_features(model_type(l->m, blocks_token_value(l, dispatch)));
}

void blocks_back_dims(const Lower *l, uint32_t value, int32_t k, int64_t dims[2]) {
    const Type *type = model_type(l->m, value);
    bool out = k % N_BLOCKS_STAGES == BLOCKS_OUT, summed = k / N_BLOCKS_STAGES % 2;
    if (summed) dims[0] = out ? most_come(l, type->route) : most_go(l, type->route);
    else if (out || in_whole_parts(l)) dims[0] = most_copies(l, type->route);
    else dims[0] = l->tokens * top_k(l, type->route);
    dims[1] = type_features(type);
}

uint32_t blocks_table(Lower *l, uint32_t route, BlocksTable which) {
    return lower_buffer(l, BUFFER_TABLE, route, (int32_t)which);
}

static uint32_t back_buffer(Lower *l, uint32_t value, int segment, bool summed, BlocksStage stage) {
    return lower_buffer(l, BUFFER_BACK, value, (2 * segment + summed) * N_BLOCKS_STAGES + (int32_t)stage);
}

uint32_t blocks_back(Lower *l, uint32_t value, int segment, bool summed) {
    return back_buffer(l, value, segment, summed, BLOCKS_IN);
}

/* Sums ----------------------------------------------------------------------------------------- */

// What a further round brings back for a collect; 0: nothing.
static uint32_t rest_of(const Model *m, uint32_t n) {
    bool has = m->nodes[n].op == OP_COLLECT && m->nodes[n].n_args == 3;
    return has && m->nodes[model_arg(m, n, 2)].op == OP_COLLECT ? model_arg(m, n, 2) : 0;
}

// A row program has one table of a route: all its collects are summed, or none is.
static bool agree_in_kernel(Lower *l, const Kernel *kernel) {
    bool changed = false;
    for (uint32_t i = 0; i < kernel->n_units; i++) {
        uint32_t n = l->units[kernel->units[i]].node;
        if (l->m->nodes[n].op != OP_COLLECT || l->info[n].summed) continue;
        for (uint32_t k = 0; k < kernel->n_units; k++) {
            uint32_t other = l->units[kernel->units[k]].node;
            bool same = l->m->nodes[other].op == OP_COLLECT && model_arg(l->m, other, 1) == model_arg(l->m, n, 1);
            if (!same || !l->info[other].summed) continue;
            l->info[other].summed = false;
            changed = true;
        }
    }
    return changed;
}

// Nor is what a further round brings back summed if the first round's is not, and the other way round.
static bool agree_in_rounds(Lower *l) {
    bool changed = false;
    for (uint32_t n = 1; n < l->m->n_nodes; n++) {
        uint32_t rest = rest_of(l->m, n);
        if (!rest || l->info[n].summed == l->info[rest].summed) continue;
        l->info[n].summed = l->info[rest].summed = false;
        changed = true;
    }
    return changed;
}

void blocks_find_sums(Lower *l) {
    const Model *m = l->m;
    for (uint32_t n = 1; n < m->n_nodes; n++)
        l->info[n].summed = m->nodes[n].op == OP_COLLECT && m->nodes[n].type.kind == KIND_REAL;
    for (uint32_t n = 1; n < m->n_nodes; n++) {
        bool sums = m->nodes[n].op == OP_SUM && m->nodes[n].attr.axes & 1;
        if (l->info[n].role == ROLE_DEAD) continue;
        for (int i = 0; i < m->nodes[n].n_args && !sums; i++)
            if (i < 2 || !rest_of(m, n)) l->info[model_arg(m, n, i)].summed = false;
    }
    for (bool changed = true; changed;) {
        changed = agree_in_rounds(l);
        for (uint32_t k = 0; k < l->n_kernels; k++) changed |= agree_in_kernel(l, &l->kernels[k]);
    }
}

/* The route ------------------------------------------------------------------------------------ */

typedef struct Made { const char *name; BlocksTable table; } Made;

void blocks_describe_route(Lower *l, SegmentKind segment, int32_t depth, uint32_t n) {
    static const Made of_any_size[] = {
        { "there", TABLE_THERE }, { "token", TABLE_TOKEN }, { "put", TABLE_PUT },
        { "home", TABLE_HOME },   { "first", TABLE_FIRST }, { "back", TABLE_BACK },
        { "get", TABLE_GET },     { "place", TABLE_PLACE },
    }, whole[] = { { "here", TABLE_PUT }, { "first", TABLE_FIRST }, { "place", TABLE_PLACE } };
    uint32_t counted = l->m->nodes[n].round ? model_arg(l->m, n, 1) : n; // a round of that
    const Made *made = in_whole_parts(l) ? whole : of_any_size;
    int n_made = in_whole_parts(l) ? COUNT_OF(whole) : COUNT_OF(of_any_size);
    uint32_t gather = lower_add_crossing(l, segment, depth, PLAN_gather, GROUP_rail),
             kernel = lower_add_kernel(l, segment, depth, in_whole_parts(l) ? FAMILY_RAIL : FAMILY_BLOCKS);
    KernelDesc *d = &l->kernels[kernel].desc;
    d->rows = l->tokens;
    d->top_k = top_k(l, n);
    d->ranks = nodes(l);
    d->each = node_ranks(l);
    d->capacity = lower_capacity(l, n);
    d->loc = l->m->nodes[n].loc;
    l->kernels[gather].node = l->kernels[kernel].node = n;
    lower_bind(l, gather, "from", lower_buffer(l, BUFFER_ROW_OF_SLOT, n, 0), OPERAND_READ);
    lower_bind(l, gather, "to", blocks_table(l, n, TABLE_ALL), OPERAND_WRITE);
    lower_bind(l, kernel, "all", blocks_table(l, n, TABLE_ALL), OPERAND_READ);
    lower_bind(l, kernel, "counts", lower_buffer(l, BUFFER_COUNTS, counted, 1), OPERAND_READ);
    for (int i = 0; i < n_made; i++)
        lower_bind(l, kernel, made[i].name, blocks_table(l, n, made[i].table), OPERAND_WRITE);
}

/* Rows ----------------------------------------------------------------------------------------- */

typedef struct Way {
    SegmentKind segment;
    int32_t depth;
    uint32_t node, route;
} Way;

// features: of a row of y; parts: how many such a row of x has.
static void add_move(Lower *l, const Way *way, MoveWay how, uint32_t x, uint32_t table, uint32_t y,
                         int64_t features, int32_t parts) {
    uint32_t kernel = lower_add_kernel(l, way->segment, way->depth, FAMILY_MOVE);
    KernelDesc *d = &l->kernels[kernel].desc;
    const Buffer *rows = &l->buffers[table];
    d->way = (uint8_t)how;
    d->whole = in_whole_parts(l) && how != MOVE_SPREAD;
    bool by_choice = how == MOVE_SPREAD || how == MOVE_SUM;
    d->rows = rows->dims[0] * (by_choice ? 1 : rows->dims[1]);
    d->top_k = by_choice ? (int32_t)rows->dims[1] : 1;
    d->n = features;
    d->each = parts;
    d->capacity = how == MOVE_HERE ? 0 : lower_capacity(l, way->route);
    d->x = l->buffers[x].dtype;
    d->loc = l->m->nodes[way->node].loc;
    l->kernels[kernel].node = way->node;
    lower_bind(l, kernel, "x", x, OPERAND_READ);
    l->kernels[kernel].binds[0].remote = how == MOVE_FETCH || how == MOVE_SUM;
    lower_bind(l, kernel, "table", table, OPERAND_READ);
    lower_bind(l, kernel, "y", y, OPERAND_WRITE);
    l->kernels[kernel].binds[2].remote = how == MOVE_SPREAD;
}

static void add_blocks(Lower *l, const Way *way, uint32_t sizes, uint32_t from, uint32_t to, double even) {
    uint32_t crossing = lower_add_crossing(l, way->segment, way->depth, PLAN_blocks, GROUP_rail);
    l->kernels[crossing].node = way->node;
    l->kernels[crossing].even = fmin(even, (double)l->buffers[from].dims[0]);
    lower_bind(l, crossing, "sizes", sizes, OPERAND_READ);
    lower_bind(l, crossing, "from", from, OPERAND_READ);
    lower_bind(l, crossing, "to", to, OPERAND_WRITE);
}

// Tokens with a copy on a given node, if any choices of different experts are as likely as others.
static double even_tokens(const Lower *l, uint32_t route) {
    Type rows = { .row = ROW_R, .route = route };
    double experts = model_experts(l->m, &rows), elsewhere = experts - experts / nodes(l), none = 1;
    for (int32_t k = 0; k < top_k(l, route); k++) none *= fmax(elsewhere - k, 0) / fmax(experts - k, 1);
    return (double)l->tokens * (1 - none);
}

// Whole parts: of a gather the rank's own, of an exchange one for each member.
static void add_parts(Lower *l, const Way *way, PlanOp op, uint32_t from, uint32_t to) {
    uint32_t crossing = lower_add_crossing(l, way->segment, way->depth, op, GROUP_rail);
    l->kernels[crossing].node = way->node;
    lower_bind(l, crossing, "from", from, OPERAND_READ);
    lower_bind(l, crossing, "to", to, OPERAND_WRITE);
}

static void describe_sent(Lower *l, uint32_t n, const Kernel *writer) {
    uint32_t route = model_arg(l->m, n, 1);
    Way way = { (SegmentKind)writer->segment, writer->depth, n, route };
    uint32_t rows = lower_buffer(l, BUFFER_SENT, n, BLOCKS_ROWS), in = lower_buffer(l, BUFFER_SENT, n, BLOCKS_IN);
    int64_t features = type_features(model_type(l->m, n)), sent = l->buffers[rows].dims[1];
    if (in_whole_parts(l)) {
        add_parts(l, &way, PLAN_gather, rows, in);
    } else {
        uint32_t out = lower_buffer(l, BUFFER_SENT, n, BLOCKS_OUT);
        add_move(l, &way, MOVE_HERE, rows, blocks_table(l, route, TABLE_TOKEN), out, sent, 1);
        add_blocks(l, &way, blocks_table(l, route, TABLE_THERE), out, in, even_tokens(l, route));
    }
    add_move(l, &way, MOVE_SPREAD, in, blocks_table(l, route, TABLE_PUT), lower_value(l, n), features,
             (int32_t)(sent / features));
}

static void describe_back(Lower *l, uint32_t value, int segment, bool summed, int32_t depth) {
    uint32_t route = model_type(l->m, value)->route;
    Way way = { (SegmentKind)segment, depth, value, route };
    uint32_t out = back_buffer(l, value, segment, summed, BLOCKS_OUT),
             in = back_buffer(l, value, segment, summed, BLOCKS_IN);
    double copies = (double)l->tokens * top_k(l, route) / nodes(l);
    add_move(l, &way, summed ? MOVE_SUM : MOVE_FETCH, lower_value(l, value),
             blocks_table(l, route, summed || in_whole_parts(l) ? TABLE_PUT : TABLE_GET), out, l->buffers[out].dims[1],
             1);
    if (in_whole_parts(l)) add_parts(l, &way, PLAN_exchange, out, in);
    else add_blocks(l, &way, blocks_table(l, route, summed ? TABLE_HOME : TABLE_BACK), out, in,
                    summed ? even_tokens(l, route) : copies);
}

// The depth of the first kernel that reads it.
static int32_t depth_of_reader(const Lower *l, uint32_t buffer) {
    int32_t depth = INT32_MAX;
    for (uint32_t k = 0; k < l->n_kernels; k++)
        for (uint32_t i = 0; i < l->kernels[k].n_binds; i++)
            if (l->kernels[k].binds[i].buffer == buffer && l->kernels[k].depth < depth)
                depth = l->kernels[k].depth;
    return depth;
}

void blocks_describe(Lower *l) {
    for (uint32_t b = 0, n = l->n_buffers; b < n; b++) {
        Buffer buffer = l->buffers[b];
        if (buffer.kind == BUFFER_SENT) {
            Kernel writer = l->kernels[buffer.writer - 1];
            describe_sent(l, buffer.node, &writer);
        } else if (buffer.kind == BUFFER_BACK) {
            int32_t which = buffer.k / N_BLOCKS_STAGES;
            describe_back(l, buffer.node, which / 2, which % 2, depth_of_reader(l, b));
        }
    }
}
