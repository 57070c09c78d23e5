// SPDX-License-Identifier: Apache-2.0
// Basic blocks and where their diverged lanes meet: immediate post-dominators.
//
// Post-dominators are dominators of the reversed graph, found by the iteration of Cooper, Harvey
// and Kennedy with one virtual exit after all blocks that end the thread. A block from which no
// path leads to the exit (an endless loop) has none: its lanes meet nowhere. Nor do lanes meet in
// order to leave the kernel together: others may wait in a bar.warp.sync for those that have left.
#include "runtime/vgpu/decode.h"

static Status find_blocks(VgDecoder *d) {
    uint32_t n = 0;
    for (uint32_t k = 0; k < d->n_emits; k++) n += d->emits[k].terminator;
    d->blocks = ARENA_ARRAY(d->scratch, VgFlow, n);
    d->n_blocks = n;
    uint32_t b = 0, first = 0;
    for (uint32_t k = 0; k < d->n_emits; k++) {
        d->emits[k].block = b;
        if (!d->emits[k].terminator) continue;
        d->blocks[b].first = first;
        d->blocks[b].n = k + 1 - first;
        first = k + 1;
        b++;
    }
    return OK;
}

static void add_edge(VgFlow *b, uint32_t to) {
    for (uint32_t k = 0; k < b->n_to; k++)
        if (b->to[k] == to) return;
    b->to[b->n_to++] = to;
}

static Status find_edges(VgDecoder *d) {
    for (uint32_t b = 0; b < d->n_blocks; b++) {
        VgFlow *f = &d->blocks[b];
        VgEmit *e = &d->emits[f->first + f->n - 1];
        f->to = ARENA_ARRAY(d->scratch, uint32_t, 2 + (e->table ? e->table->n : 0));
        if (e->falls) add_edge(f, b + 1);
        if (e->label >= 0) add_edge(f, d->emits[d->at_label[e->label]].block);
        for (uint32_t k = 0; e->table && k < e->table->n; k++)
            add_edge(f, d->emits[d->at_label[e->table->labels[k]]].block);
    }
    return OK;
}

// Postorder of the reversed graph from the exit, without recursion.
static uint32_t reverse_order(VgDecoder *d, uint32_t *order, uint32_t **preds, uint32_t *n_preds) {
    uint32_t n = d->n_blocks, n_order = 0, top = 0;
    uint32_t *stack = ARENA_ARRAY(d->scratch, uint32_t, n + 1);
    uint32_t *next = ARENA_ARRAY(d->scratch, uint32_t, n + 1);
    bool *seen = ARENA_ARRAY(d->scratch, bool, n + 1);
    stack[top++] = n;
    seen[n] = true;
    while (top) {
        uint32_t b = stack[top - 1];
        if (next[b] == n_preds[b]) {
            order[n_order++] = b;
            top--;
            continue;
        }
        uint32_t to = preds[b][next[b]++];
        if (!seen[to]) {
            seen[to] = true;
            stack[top++] = to;
        }
    }
    return n_order;
}

static bool only_exits(const VgDecoder *d, uint32_t block) {
    return d->ptx->is_entry && d->blocks[block].n == 1 && !d->blocks[block].n_to;
}

static void find_joins(VgDecoder *d) {
    uint32_t n = d->n_blocks;
    uint32_t *n_preds = ARENA_ARRAY(d->scratch, uint32_t, n + 1);
    uint32_t **preds = ARENA_ARRAY(d->scratch, uint32_t *, n + 1);
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t b = 0; b < n; b++) {
            VgFlow *f = &d->blocks[b];
            uint32_t none = n;
            uint32_t *to = f->n_to ? f->to : &none, n_to = f->n_to ? f->n_to : 1;
            for (uint32_t k = 0; k < n_to; k++) {
                if (pass) preds[to[k]][n_preds[to[k]]] = b;
                n_preds[to[k]]++;
            }
        }
        for (uint32_t b = 0; !pass && b <= n; b++) {
            preds[b] = ARENA_ARRAY(d->scratch, uint32_t, n_preds[b]);
            n_preds[b] = 0;
        }
    }
    uint32_t *order = ARENA_ARRAY(d->scratch, uint32_t, n + 1);
    uint32_t *number = ARENA_ARRAY(d->scratch, uint32_t, n + 1);
    int32_t *idom = ARENA_ARRAY(d->scratch, int32_t, n + 1);
    uint32_t n_order = reverse_order(d, order, preds, n_preds);
    for (uint32_t b = 0; b <= n; b++) idom[b] = -1;
    for (uint32_t k = 0; k < n_order; k++) number[order[k]] = k;
    idom[n] = (int32_t)n;
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t k = n_order - 1; k-- > 0;) { // reverse postorder, without the exit
            uint32_t b = order[k];
            VgFlow *f = &d->blocks[b];
            int32_t best = f->n_to ? -1 : (int32_t)n;
            for (uint32_t s = 0; s < f->n_to; s++) {
                int32_t x = (int32_t)f->to[s];
                if (idom[x] < 0) continue;
                if (best < 0) {
                    best = x;
                    continue;
                }
                while (x != best) {
                    while (number[x] < number[best]) x = idom[x];
                    while (number[best] < number[x]) best = idom[best];
                }
            }
            if (best != idom[b]) {
                idom[b] = best;
                changed = true;
            }
        }
    }
    for (uint32_t b = 0; b < n; b++) {
        bool leaves = idom[b] >= 0 && idom[b] < (int32_t)n && only_exits(d, (uint32_t)idom[b]);
        d->blocks[b].join = leaves ? (int32_t)n : idom[b];
    }
}

Status vg_decode_blocks(VgDecoder *d) {
    TRY(find_blocks(d));
    TRY(find_edges(d));
    find_joins(d);
    return OK;
}
