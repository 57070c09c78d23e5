// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>

#include "compiler/layout/layout.h"

// Layer, from 0, of an address "layers.3.ffn"; -1 outside of the layers.
static int32_t layer_of(const Model *m, uint32_t addr) {
    const char *name = model_name(m, addr);
    int32_t layer = strncmp(name, "layers.", 7) ? 0 : atoi(name + 7);
    return layer >= 1 && layer <= m->n_layers ? layer - 1 : -1;
}

void layout_experts(const Model *m, int32_t *experts) {
    memset(experts, 0, sizeof *experts * (size_t)m->n_layers);
    for (uint32_t i = 1; i < m->n_nodes; i++) {
        const Node *n = &m->nodes[i];
        int32_t layer = n->op == OP_ROUTE ? layer_of(m, n->addr) : -1;
        if (layer >= 0 && n->attr.route.experts > experts[layer])
            experts[layer] = n->attr.route.experts;
    }
}
