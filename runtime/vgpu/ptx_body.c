// SPDX-License-Identifier: Apache-2.0
// Bodies of PTX functions: scopes, registers, labels, instructions and their operands.
//
// Registers and variables are declared before use, so they resolve at once; labels and functions
// may come later and are resolved when the body has ended (resolve), in the scope of the
// instruction.
#include <stdlib.h>

#include "runtime/vgpu/ptx_parse.h"

/* scopes -------------------------------------------------------------------------------------- */

static uint64_t name_hash(const char *name) {
    uint64_t h = 14695981039346656037u;
    for (; *name; name++) h = (h ^ (uint8_t)*name) * 1099511628211u;
    return h ^ h >> 29;
}

static PtxName *name_slot(const PtxScope *s, const char *name) {
    if (!s->n_slots) return NULL;
    for (uint64_t h = name_hash(name);; h++) {
        PtxName *slot = &s->slots[h & (s->n_slots - 1)];
        if (!slot->name || !strcmp(slot->name, name)) return slot;
    }
}

PtxName *ptx_declare(PtxParser *p, PtxScope *s, const char *name, bool *again) {
    if (s->n_names * 2 >= s->n_slots) {
        PtxScope bigger = *s;
        bigger.n_slots = s->n_slots ? s->n_slots * 2 : 16;
        bigger.slots = ARENA_ARRAY(p->arena, PtxName, bigger.n_slots);
        for (uint32_t i = 0; i < s->n_slots; i++)
            if (s->slots[i].name) *name_slot(&bigger, s->slots[i].name) = s->slots[i];
        *s = bigger;
    }
    PtxName *slot = name_slot(s, name);
    *again = slot->name != NULL;
    if (!*again) {
        *slot = (PtxName){ name, NULL, -1 };
        s->n_names++;
    }
    return slot;
}

static PtxVar *new_register(PtxParser *p, const char *name, PtxType type) {
    PtxVar *v = ARENA_NEW(p->arena, PtxVar);
    PtxFunc *f = p->func;
    *v = (PtxVar){ .name = name, .space = PTX_REG, .type = type, .vector = 1, .count = 1,
                   .line = p->token.line, .index = f->n_regs, .user = -1 };
    *ARENA_PUSH(p->arena, f->regs, f->n_regs, f->cap_regs) = v;
    return v;
}

// %r12 of `.reg .b32 %r<363>`.
static PtxVar *in_ranges(PtxParser *p, PtxScope *s, const char *name) {
    size_t n = strlen(name), digits = 0;
    while (digits < n && name[n - 1 - digits] >= '0' && name[n - 1 - digits] <= '9') digits++;
    if (!digits || digits > 9) return NULL;
    for (uint32_t i = 0; i < s->n_ranges; i++) { // a prefix may end in digits itself
        PtxRange *r = &s->ranges[i];
        if (r->n_prefix >= n || n - r->n_prefix > digits || memcmp(r->prefix, name, r->n_prefix))
            continue;
        const char *number = name + r->n_prefix;
        if (number[0] == '0' && number[1]) continue;
        uint32_t k = (uint32_t)strtoul(number, NULL, 10);
        if (k >= r->count) continue;
        if (!r->vars[k]) r->vars[k] = new_register(p, arena_strdup(p->arena, name), r->type);
        return r->vars[k];
    }
    return NULL;
}

PtxVar *ptx_lookup(PtxParser *p, const char *name) {
    for (PtxScope *s = p->scope; s; s = s->parent) {
        PtxName *slot = name_slot(s, name);
        if (slot && slot->name && slot->var) return slot->var;
        PtxVar *v = in_ranges(p, s, name);
        if (v) return v;
    }
    return ptx_find_var(p->module, name);
}

static Status add_name(PtxParser *p, PtxVar *v) {
    bool again;
    PtxName *slot = ptx_declare(p, p->scope, v->name, &again);
    if (again) return ptx_bad(p, "'%s' is declared twice in this scope", v->name);
    slot->var = v;
    return OK;
}

/* operands ------------------------------------------------------------------------------------ */

static Status operand(PtxParser *p, PtxOperand *op, int depth);

static Status operand_list(PtxParser *p, PtxOperand *op, const char *end, int depth) {
    uint32_t cap = 0;
    while (!ptx_is(p, end)) {
        PtxOperand item = { 0 };
        TRY(operand(p, &item, depth + 1));
        *ARENA_PUSH(p->arena, op->items, op->n_items, cap) = item;
        if (!ptx_take(p, ",")) break;
    }
    return ptx_need(p, end);
}

// A name: register, special register, `_`, variable, or something resolved later.
static Status operand_name(PtxParser *p, PtxOperand *op) {
    char *name = ptx_text(p);
    op->label = -1;
    op->name = name;
    if (!strcmp(name, "_")) {
        op->kind = PTX_OP_SINK;
        return OK;
    }
    if (!strcmp(name, "WARP_SZ")) {
        op->kind = PTX_OP_IMM;
        op->bits = 32;
        return OK;
    }
    op->var = ptx_lookup(p, name);
    if (op->var && op->var->space == PTX_REG) {
        op->kind = PTX_OP_REG;
        return OK;
    }
    if (!op->var && name[0] == '%') {
        op->kind = PTX_OP_SPECIAL;
        if (p->token.kind == PTX_T_DIRECTIVE && p->token.n == 2) // %tid.x
            op->name = arena_printf(p->arena, "%s%s", name, ptx_text(p));
        return OK;
    }
    op->kind = PTX_OP_SYMBOL;
    return OK;
}

static Status operand_address(PtxParser *p, PtxOperand *op, int depth) {
    uint32_t cap = 0;
    op->kind = PTX_OP_ADDRESS;
    do {
        PtxOperand item = { .label = -1 };
        if (p->token.kind == PTX_T_NAME) {
            TRY(operand_name(p, &item));
            if (ptx_is(p, "+") || ptx_is(p, "-")) {
                ptx_take(p, "+");
                uint64_t offset;
                TRY(ptx_integer(p, &offset));
                if (op->n_items)
                    return ptx_bad(p, "only the first part of an address has an offset");
                op->bits = offset;
            }
        } else {
            TRY(operand(p, &item, depth + 1));
        }
        *ARENA_PUSH(p->arena, op->items, op->n_items, cap) = item;
    } while (ptx_take(p, ","));
    return ptx_need(p, "]");
}

static Status operand_number(PtxParser *p, PtxOperand *op) {
    op->kind = PTX_OP_IMM;
    PtxLexer before = p->lexer;
    PtxToken at = p->token;
    bool minus = ptx_take(p, "-");
    if (p->token.kind == PTX_T_FLOAT) {
        op->is_float = true;
        op->float_bits = p->token.float_bits;
        op->bits = p->token.bits;
        if (minus) op->bits ^= 1ull << (op->float_bits - 1);
        ptx_step(p);
        return OK;
    }
    p->lexer = before;
    p->token = at;
    return ptx_integer(p, &op->bits);
}

static Status operand(PtxParser *p, PtxOperand *op, int depth) {
    op->label = -1;
    if (depth > 8) return ptx_bad(p, "operand nested too deeply");
    if (ptx_take(p, "[")) return operand_address(p, op, depth);
    if (ptx_take(p, "{")) {
        op->kind = PTX_OP_VECTOR;
        return operand_list(p, op, "}", depth);
    }
    PtxLexer before = p->lexer;
    PtxToken at = p->token;
    if (ptx_take(p, "!") || ptx_take(p, "-")) {
        if (p->token.kind == PTX_T_NAME) {
            TRY(operand_name(p, op));
            if (op->kind != PTX_OP_REG) return ptx_bad(p, "expected a register after '%c'", *at.at);
            op->negate = true;
            return OK;
        }
        p->lexer = before;
        p->token = at;
    }
    if (p->token.kind != PTX_T_NAME) return operand_number(p, op);
    TRY(operand_name(p, op));
    if (op->kind == PTX_OP_SYMBOL && (ptx_is(p, "+") || ptx_is(p, "-"))) {
        ptx_take(p, "+");
        return ptx_integer(p, &op->bits);
    }
    if (ptx_take(p, "|")) {
        PtxOperand first = *op;
        *op = (PtxOperand){ .kind = PTX_OP_PAIR, .label = -1, .n_items = 2,
                            .items = ARENA_ARRAY(p->arena, PtxOperand, 2) };
        op->items[0] = first;
        return operand(p, &op->items[1], depth + 1);
    }
    return OK;
}

// `call` alone has parenthesised lists.
static Status call_operand(PtxParser *p, PtxOperand *op) {
    if (!ptx_take(p, "(")) return operand(p, op, 0);
    op->kind = PTX_OP_LIST;
    op->label = -1;
    return operand_list(p, op, ")", 0);
}

static Status instruction(PtxParser *p, PtxVar *guard, bool guard_not) {
    if (p->token.kind != PTX_T_NAME) return ptx_bad(p, "expected an instruction");
    PtxFunc *f = p->func;
    PtxInstr *i = ARENA_PUSH(p->arena, f->instrs, f->n_instrs, f->cap_instrs);
    *ARENA_PUSH(p->arena, p->instr_scope, p->n_instr_scope, p->cap_instr_scope) = p->scope;
    *i = (PtxInstr){ .guard = guard, .guard_not = guard_not, .line = p->token.line, .loc = p->loc };
    i->root = ptx_text(p);
    uint32_t cap = 0;
    while (p->token.kind == PTX_T_DIRECTIVE)
        *ARENA_PUSH(p->arena, i->mods, i->n_mods, cap) = ptx_text(p) + 1;
    bool is_call = !strcmp(i->root, "call");
    cap = 0;
    while (!ptx_is(p, ";")) {
        PtxOperand op = { 0 };
        TRY(is_call ? call_operand(p, &op) : operand(p, &op, 0));
        *ARENA_PUSH(p->arena, i->operands, i->n_operands, cap) = op;
        if (!ptx_take(p, ",")) break;
    }
    return ptx_need(p, ";");
}

/* statements ---------------------------------------------------------------------------------- */

// .reg .type name, name<count>, ...;
static Status registers(PtxParser *p) {
    if (p->token.kind != PTX_T_DIRECTIVE) return ptx_bad(p, "expected a type");
    PtxType type = ptx_type_find(ptx_text(p) + 1);
    if (type == PTX_NONE || ptx_type_bits(type) > 128 || ptx_type_class(type) == 'x')
        return ptx_bad(p, "this is no type of a register");
    do {
        if (p->token.kind != PTX_T_NAME) return ptx_bad(p, "expected a register");
        char *name = ptx_text(p);
        if (ptx_take(p, "<")) {
            uint64_t n;
            TRY(ptx_integer(p, &n));
            if (n > 1u << 20) return ptx_bad(p, "too many registers");
            PtxRange *r =
                ARENA_PUSH(p->arena, p->scope->ranges, p->scope->n_ranges, p->scope->cap_ranges);
            *r = (PtxRange){ name, strlen(name), (uint32_t)n, type,
                             ARENA_ARRAY(p->arena, PtxVar *, n + 1) };
            TRY(ptx_need(p, ">"));
        } else {
            TRY(add_name(p, new_register(p, name, type)));
        }
    } while (ptx_take(p, ","));
    return ptx_need(p, ";");
}

static Status body_variable(PtxParser *p, PtxSpace space) {
    PtxVar *v;
    TRY(ptx_declaration(p, &v));
    v->space = space;
    v->index = p->func->n_vars;
    *ARENA_PUSH(p->arena, p->func->vars, p->func->n_vars, p->func->cap_vars) = v;
    TRY(add_name(p, v));
    return ptx_need(p, ";");
}

// name: .branchtargets A, B; or .calltargets f, g; or .callprototype (ret) _ (params);
static Status table(PtxParser *p, const char *name) {
    PtxFunc *f = p->func;
    PtxTable t = { .name = name };
    if (ptx_take(p, ".callprototype")) {
        t.kind = 'p';
        t.prototype = ARENA_NEW(p->arena, PtxFunc);
        TRY(ptx_function_head(p, t.prototype, true));
    } else {
        t.kind = ptx_is(p, ".branchtargets") ? 'b' : 'c';
        ptx_step(p);
        uint32_t cap = 0;
        do {
            if (p->token.kind != PTX_T_NAME) return ptx_bad(p, "expected a label or function");
            *ARENA_PUSH(p->arena, t.names, t.n, cap) = ptx_text(p);
        } while (ptx_take(p, ","));
        t.labels = ARENA_ARRAY(p->arena, int32_t, t.n);
        for (uint32_t k = 0; k < t.n && t.kind == 'b'; k++) {
            // resolved with the labels of this scope, see ptx_body
            t.labels[k] = -1;
        }
    }
    *ARENA_PUSH(p->arena, f->tables, f->n_tables, f->cap_tables) = t;
    return ptx_need(p, ";");
}

static Status label_or_instruction(PtxParser *p) {
    PtxLexer before = p->lexer;
    PtxToken at = p->token;
    char *name = ptx_text(p);
    if (ptx_take(p, ":")) {
        if (ptx_is(p, ".branchtargets") || ptx_is(p, ".calltargets") || ptx_is(p, ".callprototype"))
            return table(p, name);
        bool again;
        PtxName *slot = ptx_declare(p, p->scope, name, &again);
        if (again) return ptx_bad(p, "label '%s' is defined twice in this scope", name);
        slot->label = (int32_t)p->func->n_instrs;
        return OK;
    }
    p->lexer = before;
    p->token = at;
    return instruction(p, NULL, false);
}

static Status guarded(PtxParser *p) {
    bool guard_not = ptx_take(p, "!");
    if (p->token.kind != PTX_T_NAME) return ptx_bad(p, "expected a predicate");
    char *name = ptx_text(p);
    PtxVar *guard = ptx_lookup(p, name);
    if (!guard || guard->space != PTX_REG || guard->type != PTX_PRED)
        return ptx_bad(p, "'%s' is no predicate", name);
    return instruction(p, guard, guard_not);
}

static Status statement(PtxParser *p) {
    bool known;
    TRY(ptx_directive(p, &known));
    if (known) return OK;
    if (ptx_take(p, ".reg")) return registers(p);
    if (ptx_take(p, ".local")) return body_variable(p, PTX_LOCAL);
    if (ptx_take(p, ".shared")) return body_variable(p, PTX_SHARED);
    if (ptx_take(p, ".param")) return body_variable(p, PTX_PARAM);
    if (ptx_take(p, ".global")) return body_variable(p, PTX_GLOBAL);
    if (ptx_take(p, ".const")) return body_variable(p, PTX_CONST);
    if (ptx_take(p, "@")) return guarded(p);
    if (p->token.kind == PTX_T_NAME) return label_or_instruction(p);
    return ptx_bad(p, "expected a statement");
}

static int32_t find_label(const PtxScope *scope, const char *name) {
    for (const PtxScope *s = scope; s; s = s->parent) {
        PtxName *slot = name_slot(s, name);
        if (slot && slot->name && slot->label >= 0) return slot->label;
    }
    return -1;
}

static void resolve(PtxParser *p, PtxScope *scope, PtxOperand *op) {
    if (op->kind == PTX_OP_SYMBOL && !op->var) op->label = find_label(scope, op->name);
    for (uint32_t k = 0; k < op->n_items; k++) resolve(p, scope, &op->items[k]);
}

// Labels of a table are those of the scope of the instruction that names the table.
static void resolve_table(PtxParser *p, PtxScope *scope, const PtxInstr *i) {
    if (strcmp(i->root, "brx") || !i->n_operands) return;
    const PtxOperand *last = &i->operands[i->n_operands - 1];
    for (uint32_t t = 0; last->name && t < p->func->n_tables; t++) {
        PtxTable *table = &p->func->tables[t];
        if (table->kind != 'b' || strcmp(table->name, last->name)) continue;
        for (uint32_t k = 0; k < table->n; k++)
            table->labels[k] = find_label(scope, table->names[k]);
    }
}

static Status push_scope(PtxParser *p) {
    PtxScope *s = ARENA_NEW(p->arena, PtxScope);
    s->parent = p->scope;
    p->scope = s;
    return OK;
}

static Status declare_parameters(PtxParser *p, PtxVar **list, uint32_t n) {
    for (uint32_t k = 0; k < n; k++) {
        if (list[k]->space == PTX_REG)
            return ptx_bad(p, "parameters in registers are not supported");
        if (strcmp(list[k]->name, "_")) TRY(add_name(p, list[k]));
    }
    return OK;
}

Status ptx_body(PtxParser *p) {
    PtxFunc *f = p->func;
    p->instr_scope = NULL;
    p->n_instr_scope = p->cap_instr_scope = 0;
    TRY(ptx_need(p, "{"));
    p->scope = NULL;
    TRY(push_scope(p));
    TRY(declare_parameters(p, f->params, f->n_params));
    TRY(declare_parameters(p, f->rets, f->n_rets));
    int depth = 1;
    while (depth) {
        if (p->token.kind == PTX_T_END) return ptx_bad(p, "function '%s' has no end", f->name);
        if (ptx_take(p, "{")) {
            if (++depth > 1000) return ptx_bad(p, "scopes nested too deeply");
            TRY(push_scope(p));
        } else if (ptx_take(p, "}")) {
            depth--;
            p->scope = p->scope->parent;
        } else {
            TRY(statement(p));
        }
    }
    for (uint32_t i = 0; i < f->n_instrs; i++) {
        PtxInstr *instr = &f->instrs[i];
        for (uint32_t k = 0; k < instr->n_operands; k++)
            resolve(p, p->instr_scope[i], &instr->operands[k]);
        resolve_table(p, p->instr_scope[i], instr);
    }
    p->scope = NULL;
    return OK;
}
