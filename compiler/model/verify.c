// SPDX-License-Identifier: Apache-2.0
// Invariants of a graph, and the two operations that restore order: sorting and renumbering.
#include "compiler/model/private.h"

#include <stdio.h>

/* Verifier ------------------------------------------------------------------------------------- */

static bool broken(Model *m, uint32_t id, const char *format, ...) PRINTF_LIKE(3, 4);

static bool broken(Model *m, uint32_t id, const char *format, ...) {
    char text[400];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    bool node = id && id < m->n_nodes;
    const char *name = node && m->nodes[id].op < N_OPS ? op_info[m->nodes[id].op].name : "?";
    if (node)
        diag_set(m, "graph: node %%%u (%s): %s", id, name, text);
    else
        diag_set(m, "graph: %s", text);
    m->diag.blame[0] = node ? id : 0;
    if (node) m->diag.loc = m->nodes[id].loc;
    return false;
}

static bool verify_operands(Model *m, uint32_t id) {
    const Node *n = &m->nodes[id];
    if (n->op == OP_NONE || n->op >= N_OPS)
        return broken(m, id, "expected an operation, got number %u", n->op);
    const OpInfo *info = &op_info[n->op];
    if (n->n_args < info->lo || n->n_args > info->hi) {
        return broken(m, id, "expected %d to %d operands, got %d", info->lo, info->hi, n->n_args);
    }
    if ((uint64_t)n->args + n->n_args > m->n_args)
        return broken(m, id, "operands lie outside the table");
    for (int i = 0; i < n->n_args; i++) {
        uint32_t a = m->args[n->args + (uint32_t)i];
        if (!a || a >= id)
            return broken(m, id, "expected operand %d to precede it, got %%%u", i + 1, a);
    }
    return true;
}

static bool verify_type(Model *m, uint32_t id) {
    const Node *n = &m->nodes[id];
    bool routed = n->type.row == ROW_R || n->type.row == ROW_E;
    if (n->type.unused || n->type.rank > MAX_RANK) return broken(m, id, "the type is malformed");
    if (routed &&
        (!n->type.route || n->type.route >= id || m->nodes[n->type.route].op != OP_ROUTE)) {
        return broken(m, id, "expected rows of a route that precedes, got route %%%u",
                      n->type.route);
    }
    if (!routed && n->type.route)
        return broken(m, id, "expected no route, got %%%u", n->type.route);
    Draft draft = { .op = n->op, .attr = n->attr, .n_args = n->n_args };
    if (n->n_args) memcpy(draft.args, m->args + n->args, sizeof *draft.args * n->n_args);
    Type stored = n->type;
    if (!model_shape(m, &draft, &stored)) {
        char why[300];
        snprintf(why, sizeof why, "%.*s", (int)sizeof why - 1, m->diag.message);
        return broken(m, id, "the operands do not fit: %s", why);
    }
    if (type_equal(&draft.type, &stored)) return true;
    char want[128], got[128];
    type_format(m, &draft.type, want, sizeof want);
    type_format(m, &stored, got, sizeof got);
    return broken(m, id, "expected type %s %s, got %s %s", kind_name[draft.type.kind], want,
                  stored.kind <= KIND_EFFECT ? kind_name[stored.kind] : "?", got);
}

static bool verify_names(Model *m, uint32_t id) {
    const Node *n = &m->nodes[id];
    if (n->addr >= m->n_names)
        return broken(m, id, "expected an interned address, got %u", n->addr);
    if (n->loc.file > m->n_files)
        return broken(m, id, "expected a known file, got %u", n->loc.file);
    if (n->op != OP_PARAM && n->op != OP_STATE) return true;
    if (n->attr.index >= m->n_params || m->params[n->attr.index].node != id) {
        return broken(m, id, "expected its row in the table of parameters, got index %u",
                      n->attr.index);
    }
    if (m->params[n->attr.index].is_state != (n->op == OP_STATE))
        return broken(m, id, "its row is of the other kind");
    return true;
}

// In a program, parts run one after the other: a value may be read in its own part or a later
// one.
static bool verify_part(Model *m, uint32_t id) {
    const Node *n = &m->nodes[id];
    if (n->part > PART_UPDATE) return broken(m, id, "expected a part, got %u", n->part);
    for (int i = 0; i < n->n_args; i++) {
        const Node *a = &m->nodes[m->args[n->args + (uint32_t)i]];
        if (a->part > n->part && !op_is_free(a->op)) {
            return broken(m, id, "operand %d is computed in a later part", i + 1);
        }
    }
    return true;
}

static bool verify_params(Model *m) {
    uint8_t *seen = ARENA_ARRAY(m->arena, uint8_t, m->n_names);
    for (uint32_t i = 0; i < m->n_params; i++) {
        const Param *p = &m->params[i];
        if (p->addr >= m->n_names)
            return broken(m, p->node, "expected an interned address, got %u", p->addr);
        if (seen[p->addr]++)
            return broken(m, p->node, "the address '%s' is used twice", model_name(m, p->addr));
        if (p->node >= m->n_nodes)
            return broken(m, 0, "parameter '%s' has no node", model_name(m, p->addr));
        if (p->node && m->nodes[p->node].op != (p->is_state ? OP_STATE : OP_PARAM)) {
            return broken(m, p->node, "expected the node of '%s'", model_name(m, p->addr));
        }
    }
    return true;
}

static bool verify_effects(Model *m) {
    uint8_t *listed = ARENA_ARRAY(m->arena, uint8_t, m->n_nodes);
    uint8_t *accumulated = ARENA_ARRAY(m->arena, uint8_t, m->n_params + 1);
    for (uint32_t i = 0; i < m->n_effects; i++) {
        uint32_t id = m->effects[i];
        if (!id || id >= m->n_nodes || op_info[m->nodes[id].op].class != CLASS_EFFECT) {
            return broken(m, id, "expected an effect at place %u of the list", i);
        }
        if (listed[id]++) return broken(m, id, "the effect is listed twice");
        const Node *n = &m->nodes[id];
        if (n->op == OP_RECORD) {
            if (n->attr.index >= m->n_records)
                return broken(m, id, "expected one of %u records, got %u", m->n_records,
                              n->attr.index);
            int64_t numbers = type_features(&m->nodes[model_arg(m, id, 0)].type);
            if (numbers != m->records[n->attr.index].n) {
                return broken(m, id, "expected %d numbers, got %lld", m->records[n->attr.index].n,
                              (long long)numbers);
            }
        }
        if (n->op == OP_ACCUMULATE && n->part != PART_UPDATE &&
            accumulated[m->nodes[model_arg(m, id, 0)].attr.index]++) {
            return broken(m, id, "a second gradient for one parameter");
        }
    }
    for (uint32_t id = 1; id < m->n_nodes; id++) {
        if (op_info[m->nodes[id].op].class == CLASS_EFFECT && !listed[id])
            return broken(m, id, "the effect is not listed");
    }
    return true;
}

bool model_verify(Model *m) {
    for (uint32_t id = 1; id < m->n_nodes; id++) {
        if (!verify_operands(m, id) || !verify_type(m, id) || !verify_names(m, id)) return false;
        if (m->n_effects && !verify_part(m, id)) return false;
    }
    return verify_params(m) && verify_effects(m);
}

/* Order ---------------------------------------------------------------------------------------- */

typedef struct Visit {
    uint32_t id;
    int next;
} Visit;

// What must stand before a node: its operands, and the route its rows belong to.
static uint32_t dependency(const Model *m, uint32_t id, int i) {
    const Node *n = &m->nodes[id];
    if (i < n->n_args) return m->args[n->args + (uint32_t)i];
    return i == n->n_args ? n->type.route : 0;
}

// Depth first, without recursion: graphs are as deep as models have operations.
static uint32_t visit(const Model *m, uint32_t root, uint8_t *seen, Visit *stack, uint32_t *order,
                      uint32_t n) {
    uint32_t depth = 0;
    if (seen[root]) return n;
    seen[root] = 1;
    stack[depth++] = (Visit){ root, 0 };
    while (depth) {
        Visit *top = &stack[depth - 1];
        if (top->next > m->nodes[top->id].n_args) {
            order[++n] = top->id;
            depth--;
            continue;
        }
        uint32_t before = dependency(m, top->id, top->next++);
        if (!before || seen[before]) continue;
        seen[before] = 1;
        stack[depth++] = (Visit){ before, 0 };
    }
    return n;
}

void model_sort(Model *m) {
    uint8_t *seen = ARENA_ARRAY(m->arena, uint8_t, m->n_nodes);
    Visit *stack = ARENA_ARRAY(m->arena, Visit, m->n_nodes);
    uint32_t *order = ARENA_ARRAY(m->arena, uint32_t, m->n_nodes);
    uint32_t n = 0;
    for (uint32_t id = 1; id < m->n_nodes; id++) n = visit(m, id, seen, stack, order, n);
    model_renumber(m, order, n);
}

static void renumber_tables(Model *m, const uint32_t *map) {
    for (uint32_t i = 0; i < m->n_params; i++) m->params[i].node = map[m->params[i].node];
    for (uint32_t i = 0; i < m->n_losses; i++) m->losses[i].node = map[m->losses[i].node];
    for (uint32_t i = 0; i < m->n_metrics; i++) m->metrics[i].node = map[m->metrics[i].node];
    for (uint32_t i = 0; i < m->n_updates; i++) {
        Update *u = &m->updates[i];
        u->state = map[u->state];
        u->total = map[u->total];
        u->next = map[u->next];
    }
    for (uint32_t i = 0; i < m->n_effects; i++) m->effects[i] = map[m->effects[i]];
    m->logits = map[m->logits];
}

void model_renumber(Model *m, const uint32_t *order, uint32_t n) {
    uint32_t *map = ARENA_ARRAY(m->arena, uint32_t, m->n_nodes);
    for (uint32_t i = 1; i <= n; i++) map[order[i]] = i;
    Node *nodes = ARENA_ARRAY(m->arena, Node, n + 1);
    uint32_t *args = ARENA_ARRAY(m->arena, uint32_t, m->n_args + 1), n_args = 0;
    for (uint32_t i = 1; i <= n; i++) {
        Node *node = &nodes[i];
        *node = m->nodes[order[i]];
        for (int a = 0; a < node->n_args; a++)
            args[n_args + (uint32_t)a] = map[m->args[node->args + (uint32_t)a]];
        node->args = n_args;
        n_args += node->n_args;
        node->type.route = map[node->type.route];
        node->of = map[node->of];
    }
    m->nodes = nodes;
    m->n_nodes = m->cap_nodes = n + 1;
    m->args = args;
    m->cap_args = m->n_args + 1;
    m->n_args = n_args;
    renumber_tables(m, map);
    model_cons_rebuild(m);
}
