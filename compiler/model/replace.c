// SPDX-License-Identifier: Apache-2.0
// Nodes that take the place of others, in a finished graph.
#include "compiler/model/private.h"

static uint32_t replaced(const uint32_t *with, uint32_t id) { return with[id] ? with[id] : id; }

// What the replacements depend on, themselves included: those keep their operands, or a replacement
// made from what it replaces would read itself.
static uint8_t *cone(const Model *m, const uint32_t *with) {
    uint8_t *inside = ARENA_ARRAY(m->arena, uint8_t, m->n_nodes);
    for (uint32_t id = 1; id < m->n_nodes; id++)
        if (with[id]) inside[with[id]] = 1;
    for (uint32_t id = m->n_nodes; id-- > 1;) {
        const Node *n = &m->nodes[id];
        if (!inside[id]) continue;
        for (int i = 0; i < n->n_args; i++) inside[m->args[n->args + (uint32_t)i]] = 1;
        inside[n->type.route] = 1;
    }
    return inside;
}

bool model_replace(Model *m, const uint32_t *with) {
    for (uint32_t id = 1; id < m->n_nodes; id++) {
        if (!with[id] || type_equal(&m->nodes[id].type, &m->nodes[with[id]].type)) continue;
        char want[128], got[128];
        type_format(m, &m->nodes[id].type, want, sizeof want);
        type_format(m, &m->nodes[with[id]].type, got, sizeof got);
        diag_set(m, "replace: expected a node of type %s, got %s", want, got);
        m->diag.blame[0] = id;
        return false;
    }
    const uint8_t *keeps = cone(m, with);
    for (uint32_t id = 1; id < m->n_nodes; id++) {
        const Node *n = &m->nodes[id];
        for (uint32_t *a = m->args + n->args; !keeps[id] && a < m->args + n->args + n->n_args; a++)
            *a = replaced(with, *a);
    }
    for (uint32_t i = 0; i < m->n_losses; i++)
        m->losses[i].node = replaced(with, m->losses[i].node);
    for (uint32_t i = 0; i < m->n_metrics; i++)
        m->metrics[i].node = replaced(with, m->metrics[i].node);
    for (uint32_t i = 0; i < m->n_updates; i++) {
        m->updates[i].total = replaced(with, m->updates[i].total);
        m->updates[i].next = replaced(with, m->updates[i].next);
    }
    m->logits = replaced(with, m->logits);
    model_sort(m);
    return true;
}
