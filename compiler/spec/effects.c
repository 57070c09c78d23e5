// SPDX-License-Identifier: Apache-2.0
// Losses, metrics and updates of states: what a program is asked for.
#include <float.h>
#include <math.h>
#include <stdio.h>

#include "compiler/spec/internal.h"

// The address of a new loss or metric. A shared function records once per call, a route by itself:
// those get a number from the second on. Anything else that records one name twice is a mistake.
static uint32_t record_address(Spec *S, const char *what, const char *name, uint32_t node,
                               bool automatic) {
    uint32_t first = scope_address(S, name), addr = first, call = S->scope ? S->scope->shared : 0;
    for (int i = 2; known_at(S, addr)->record; i++) {
        const Known *known = known_at(S, addr);
        if (!automatic && (!call || known->call == call)) {
            const char *made = "";
            if (known->loc.line)
                made = lua_pushfstring(S->L, ", made at %s:%d",
                                       S->m->files[known->loc.file - 1].path, (int)known->loc.line);
            fault_raise(S,
                        &(Fault){ .hint = "give it another name, or put each use into its own "
                                          "m.scope(name, f, ...)" },
                        "%s '%s' exists already%s", what, model_name(S->m, addr), made);
        }
        addr = model_intern(S->m, lua_pushfstring(S->L, "%s.%d", model_name(S->m, first), i));
        lua_pop(S->L, 1);
        sandbox_charge(S, 8);
    }
    *known_at(S, addr) = (Known){
        .param = known_at(S, addr)->param, .record = node, .call = call, .loc = S->m->loc
    };
    return addr;
}

static bool is_weighable(const Type *t) {
    return t->kind == KIND_REAL && !t->rank &&
           (t->row == ROW_NONE || t->row == ROW_T || t->row == ROW_S);
}

static int op_loss(lua_State *L) {
    Spec *S = spec_of(L);
    const char *name = need_name(L, 1, "loss");
    need_tracing(S, "loss");
    uint32_t id = need_tensor(L, 2, "loss", "the value");
    if (!is_weighable(model_type(S->m, id))) {
        fault_raise(S, &(Fault){ .hint = "reduce the feature axes with m.sum or m.mean" },
                    "loss '%s' must be real [T], [S] or a scalar, got %s", name, kind_text(S, id));
    }
    double weight = lua_isnoneornil(L, 3) ? 1 : need_number(L, 3, "loss", "the weight");
    if (fabs(weight) > FLT_MAX)
        fault_simple(S, "loss '%s': the weight must be a finite number, got %s", name,
                     describe(L, 3));
    spec_here(S);
    Loss loss = { .node = id, .weight = weight, .loc = S->m->loc };
    loss.addr = record_address(S, "loss", name, id, false);
    *ARENA_PUSH(S->m->arena, S->m->losses, S->m->n_losses, S->m->cap_losses) = loss;
    return 0;
}

// m.metric(name, x, {sum}): whether the third argument says that values add up over the step.
static bool is_summed(lua_State *L) {
    check_options(L, 3, "metric", "sum");
    if (!lua_istable(L, 3)) return false;
    if (lua_getfield(L, 3, "sum") != LUA_TBOOLEAN && !lua_isnil(L, -1))
        fault_simple(spec_of(L), "metric: sum must be a boolean, got %s", describe(L, -1));
    bool sum = lua_toboolean(L, -1);
    lua_pop(L, 1);
    return sum;
}

static int record_metric(lua_State *L, bool automatic) {
    Spec *S = spec_of(L);
    const char *name = need_name(L, 1, "metric");
    need_tracing(S, "metric");
    uint32_t id = need_tensor(L, 2, "metric", "the value");
    const Type *t = model_type(S->m, id);
    if (!is_weighable(t) && !(t->kind == KIND_REAL && t->row == ROW_NONE && t->rank == 1)) {
        fault_raise(S,
                    &(Fault){ .hint = "reduce the feature axes with m.sum or m.mean, or the tokens "
                                      "with m.mean(x, \"microbatch\")" },
                    "metric '%s' must be real [T], [S], a scalar or a vector, got %s", name,
                    kind_text(S, id));
    }
    bool sum = is_summed(L);
    spec_here(S);
    Metric metric = { .node = id, .loc = S->m->loc, .sum = sum };
    metric.addr = record_address(S, "metric", name, id, automatic);
    *ARENA_PUSH(S->m->arena, S->m->metrics, S->m->n_metrics, S->m->cap_metrics) = metric;
    return 0;
}

static int op_metric(lua_State *L) { return record_metric(L, false); }
static int core_metric(lua_State *L) { return record_metric(L, true); }

// A next state may read the state, the total, parameters and numbers: it is computed once per step,
// when the values of a microbatch are gone.
static bool reads_microbatch(Spec *S, uint32_t next) {
    const Model *m = S->m;
    sandbox_charge(S, next / 16);
    bool *read = lua_newuserdatauv(S->L, next + 1, 0);
    memset(read, 0, next + 1);
    read[next] = true;
    for (uint32_t id = next; id; id--) { // operands come before their users
        const Node *n = model_at(m, id);
        if (!read[id] || n->op == OP_TOTAL || n->op == OP_PARAM || n->op == OP_STATE) continue;
        if (n->type.row != ROW_NONE || op_info[n->op].class == CLASS_PARTIAL || n->op == OP_N_VALID)
            return true;
        for (int i = 0; i < n->n_args; i++) read[model_arg(m, id, i)] = true;
    }
    return false;
}

static int op_update(lua_State *L) {
    Spec *S = spec_of(L);
    need_tracing(S, "update");
    uint32_t state = need_tensor(L, 1, "update", "the state"),
             x = need_tensor(L, 2, "update", "the contribution");
    const Node *n = model_at(S->m, state);
    if (n->op != OP_STATE) {
        fault_raise(S, &(Fault){ .hint = "m.state(name, sizes) makes one" },
                    "update: expected a state, got %s", kind_text(S, state));
    }
    const char *name = lua_pushstring(L, model_name(S->m, n->addr));
    Origin *origin = &S->origins[n->attr.index];
    if (origin->updated)
        fault_simple(S, "update: state '%s' is updated already; a step changes it once", name);
    if (!is_callable(L, 3))
        fault_simple(S, "update: expected a function of (state, total), got %s", describe(L, 3));
    if (model_type(S->m, x)->row != ROW_NONE) {
        fault_raise(
            S,
            &(Fault){
                .hint = "m.histogram(ids, count) and m.sum(x, \"microbatch\") reduce over tokens" },
            "update: the contribution must be reduced over tokens, is %s", type_text(S, x));
    }
    uint8_t part = S->m->part;
    uint32_t total = spec_node(S, OP_TOTAL, NULL, NULL, &x, 1);
    S->m->part = PART_UPDATE;
    lua_pushvalue(L, 3);
    lua_pushvalue(L, 1);
    push_tensor(L, total);
    lua_call(L, 2, 1);
    S->m->part = part;
    uint32_t next = need_tensor(L, lua_gettop(L), "update", "the function's result");
    if (!type_equal(model_type(S->m, next), model_type(S->m, state))) {
        const char *want = type_text(S, state);
        fault_simple(S, "update: state '%s' is %s, the new value %s", name, want,
                     kind_text(S, next));
    }
    if (reads_microbatch(S, next)) {
        fault_raise(S, &(Fault){ .hint = "pass it through the contribution: it becomes the total" },
                    "update: the new value of '%s' reads a value that ends with its microbatch",
                    name);
    }
    origin = &S->origins[model_at(S->m, state)->attr.index];
    origin->updated = true;
    spec_here(S);
    Update update = { .state = state, .total = total, .next = next, .loc = S->m->loc };
    *ARENA_PUSH(S->m->arena, S->m->updates, S->m->n_updates, S->m->cap_updates) = update;
    return 0;
}

void effects_open(Spec *S, int module, int core) {
    lua_State *L = S->L;
    static const luaL_Reg shown[] = {
        { "loss", op_loss }, { "metric", op_metric }, { "update", op_update }, { NULL, NULL }
    };
    lua_pushvalue(L, module);
    luaL_setfuncs(L, shown, 0);
    lua_pop(L, 1);
    lua_pushcfunction(L, core_metric);
    lua_setfield(L, core, "metric");
}
