// SPDX-License-Identifier: Apache-2.0
// Losses over a product: their gradient is made where the loss is.
//
// The seed of a loss is made of generators, so what backward computes of the logits hangs on
// forward values only. Where that holds of every backward reader of a product and of what rows make
// of it, these readers move to forward: the gradient of the logits is stored instead of the logits,
// and the loss, its softmax and the gradient are one row program on the product. Where that is
// large still, so do the products of the gradient: chunk.c runs all of them over pieces of the
// rows.
#include "compiler/lower/pass.h"

typedef struct Reach {
    Lower *l;
    bool *rows;    // forward row values made of the product
    bool *hanging; // backward row values made of forward values only
    bool *moving;  // those of them made of the product
    bool *blocked; // forward values of which backward reads something in another way
} Reach;

static bool is_row_op(const Model *m, uint32_t n) {
    switch ((OpClass)op_info[m->nodes[n].op].class) {
    case CLASS_VIEW:
    case CLASS_MAP:
    case CLASS_REDUCE:
    case CLASS_WHOLE: return true;
    default: return false;
    }
}

static bool is_at_hand(const Model *m, uint32_t n) {
    OpClass class = op_info[m->nodes[n].op].class;
    return m->nodes[n].part == PART_FORWARD || class == CLASS_SOURCE ||
           (class == CLASS_GENERATOR && m->nodes[n].op != OP_TOTAL);
}

static void find_hanging(Reach *r) {
    const Model *m = r->l->m;
    for (uint32_t n = 1; n < m->n_nodes; n++) {
        if (m->nodes[n].part != PART_BACKWARD || !is_row_op(m, n)) continue;
        r->hanging[n] = true;
        for (int i = 0; i < m->nodes[n].n_args; i++) {
            uint32_t arg = model_arg(m, n, i);
            r->hanging[n] &= is_at_hand(m, arg) || r->hanging[arg];
        }
    }
}

// What `follow` would find of each value, for all in one pass.
static void find_blocked(Reach *r) {
    const Model *m = r->l->m;
    memset(r->blocked, 0, sizeof *r->blocked * m->n_nodes);
    for (uint32_t n = m->n_nodes - 1; n > 0; n--) {
        bool forward = m->nodes[n].part == PART_FORWARD;
        bool blocks = forward ? r->blocked[n] && is_row_op(m, n) && m->nodes[n].type.row == ROW_T : !r->hanging[n];
        for (int i = 0; blocks && i < m->nodes[n].n_args; i++) r->blocked[model_arg(m, n, i)] = true;
    }
}

// Follows what is made of the product v; false: backward reads it in another way.
static bool follow(Reach *r, uint32_t v) {
    const Model *m = r->l->m;
    bool any = false;
    memset(r->rows, 0, sizeof *r->rows * m->n_nodes);
    memset(r->moving, 0, sizeof *r->moving * m->n_nodes);
    r->rows[v] = true;
    for (uint32_t n = v + 1; n < m->n_nodes; n++) {
        bool reads = false, made = false;
        for (int i = 0; i < m->nodes[n].n_args; i++) {
            reads |= r->rows[model_arg(m, n, i)];
            made |= r->moving[model_arg(m, n, i)];
        }
        if (m->nodes[n].part == PART_FORWARD) {
            r->rows[n] = reads && is_row_op(m, n) && m->nodes[n].type.row == ROW_T;
        } else if (reads || (made && r->hanging[n])) {
            if (!r->hanging[n]) return false;
            r->moving[n] = any = true;
        }
    }
    return any;
}

// With all that backward makes it of: weights of the loss, say.
static void move(const Reach *r) {
    Model *m = r->l->m;
    bool *needed = ARENA_ARRAY(r->l->arena, bool, m->n_nodes);
    for (uint32_t n = m->n_nodes - 1; n > 0; n--) {
        if (!r->moving[n] && !needed[n]) continue;
        for (int i = 0; i < m->nodes[n].n_args; i++)
            needed[model_arg(m, n, i)] |= m->nodes[model_arg(m, n, i)].part == PART_BACKWARD;
        m->nodes[n].part = PART_FORWARD;
    }
}

// Row by row, do only products and sums read what has moved and what it is made of? Then they can
// run on pieces of the rows, and move too.
static bool fits_pieces(const Reach *r, uint32_t n) {
    const Model *m = r->l->m;
    const Node *node = model_at(m, n);
    bool inside = r->rows[n] || r->moving[n], left = false, reads = false;
    for (int i = 0; i < node->n_args; i++) {
        uint32_t arg = model_arg(m, n, i);
        bool row = m->nodes[arg].type.row == ROW_T && (r->rows[arg] || r->moving[arg]);
        reads |= row;
        left |= row && i == 0;
        if (inside && m->nodes[arg].type.row == ROW_S) return false;
    }
    if (inside) return node->type.row == ROW_T || node->type.row == ROW_NONE;
    bool product = node->op == OP_MATMUL_T ? left : node->op == OP_MATMUL_W && !left;
    return !reads || (product && contract_is_simple(r->l, n)) || lower_is_partial(r->l, n);
}

// Moves the products of the gradient of product v if it is large.
static void move_products(const Reach *r, uint32_t v) {
    Model *m = r->l->m;
    if (!chunk_pays(r->l, v)) return;
    for (uint32_t n = 1; n < m->n_nodes; n++)
        if (!fits_pieces(r, n)) return;
    for (uint32_t n = 1; n < m->n_nodes; n++) {
        bool reads = false;
        for (int i = 0; i < m->nodes[n].n_args; i++) reads |= r->moving[model_arg(m, n, i)];
        if (reads && (op_info[m->nodes[n].op].class == CLASS_CONTRACT || lower_is_partial(r->l, n)))
            m->nodes[n].part = PART_FORWARD;
    }
}

static void order_by_part(Model *m) {
    uint32_t *order = ARENA_ARRAY(m->arena, uint32_t, m->n_nodes), n = 0;
    for (uint8_t part = PART_FORWARD; part <= PART_UPDATE; part++) {
        for (uint32_t id = 1; id < m->n_nodes; id++)
            if (m->nodes[id].part == part) order[++n] = id;
    }
    model_renumber(m, order, n);
}

bool pass_loss(Lower *l) {
    Model *m = l->m;
    if (l->program != PROGRAM_STEP || l->options->no_fusion) return true;
    accumulate_apart(l);
    order_by_part(m);
    Reach r = { l, ARENA_ARRAY(l->arena, bool, m->n_nodes), ARENA_ARRAY(l->arena, bool, m->n_nodes),
                ARENA_ARRAY(l->arena, bool, m->n_nodes), ARENA_ARRAY(l->arena, bool, m->n_nodes) };
    find_hanging(&r);
    find_blocked(&r);
    for (uint32_t v = 1; v < m->n_nodes; v++) {
        const Node *node = model_at(m, v);
        if (node->op != OP_MATMUL || node->part != PART_FORWARD || node->type.row != ROW_T ||
            r.blocked[v] || !follow(&r, v))
            continue;
        move(&r);
        move_products(&r, v);
        find_blocked(&r);
    }
    order_by_part(m);
    return true;
}
