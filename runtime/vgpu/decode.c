// SPDX-License-Identifier: Apache-2.0
// From syntax to instructions: operands, constants, conversions, one function at a time.
//
// Each PTX instruction is looked up by its root; its row's function consumes modifiers and emits.
// The decoder adds what the frame's invariants need: temporaries for registers of another width, a
// fall-through at the end of a block, guards. Then blocks (decode_cfg.c) and slots
// (decode_slots.c).
#include <stdlib.h>

#include "runtime/vgpu/decode.h"

Arena *vg_arena(VgDecoder *d) { return d->arena; }
int vg_cc(const VgDecoder *d) { return d->module->device->cc; }
const VgIsa *vg_decoder_isa(const VgDecoder *d) { return d->isa; }

/* messages ------------------------------------------------------------------------------------ */

static void instr_text(const PtxInstr *p, Text *text) {
    text_add(text, p->root);
    for (uint32_t k = 0; k < p->n_mods; k++) text_printf(text, ".%s", p->mods[k]);
}

Status vg_bad(VgDecoder *d, const char *format, ...) {
    Text what = { 0 }, where = { 0 }, name = { 0 };
    va_list list;
    va_start(list, format);
    text_vprintf(&what, format, list);
    va_end(list);
    ptx_loc_text(d->module->ptx, d->p->loc, &where);
    instr_text(d->p, &name);
    Status status =
        status_fail(ERR_INPUT, "PTX line %u%s%s, %s: %s", d->p->line, where.bytes ? ", " : "",
                    text_cstr(&where), text_cstr(&name), text_cstr(&what));
    text_finish(&what);
    text_finish(&where);
    text_finish(&name);
    return status;
}

Status vg_count(VgDecoder *d, uint32_t least, uint32_t most) {
    if (d->p->n_operands >= least && d->p->n_operands <= most) return OK;
    return vg_bad(d, "expected %u%s operands, found %u", least, least == most ? "" : " or more",
                  d->p->n_operands);
}

/* modifiers ----------------------------------------------------------------------------------- */

static bool free_mod(const VgDecoder *d, uint32_t k) { return !(d->taken >> k & 1); }

bool vg_has(const VgDecoder *d, const char *mod) {
    for (uint32_t k = 0; k < d->p->n_mods; k++)
        if (free_mod(d, k) && !strcmp(d->p->mods[k], mod)) return true;
    return false;
}

bool vg_take(VgDecoder *d, const char *mod) {
    for (uint32_t k = 0; k < d->p->n_mods; k++) {
        if (!free_mod(d, k) || strcmp(d->p->mods[k], mod)) continue;
        d->taken |= 1ull << k;
        return true;
    }
    return false;
}

int vg_take_one(VgDecoder *d, const char *const *mods) {
    for (uint32_t k = 0; k < d->p->n_mods; k++)
        for (int m = 0; free_mod(d, k) && mods[m]; m++)
            if (!strcmp(d->p->mods[k], mods[m])) {
                d->taken |= 1ull << k;
                return m;
            }
    return -1;
}

PtxType vg_take_type(VgDecoder *d) {
    for (uint32_t k = 0; k < d->p->n_mods; k++) {
        PtxType type = free_mod(d, k) ? ptx_type_find(d->p->mods[k]) : PTX_NONE;
        if (type == PTX_NONE) continue;
        d->taken |= 1ull << k;
        return type;
    }
    return PTX_NONE;
}

/* values and constants ------------------------------------------------------------------------ */

uint32_t vg_temp(VgDecoder *d, int bits) {
    VgValue *v = ARENA_PUSH(d->scratch, d->values, d->n_values, d->cap_values);
    v->bits = (uint32_t)(bits < 32 ? 32 : bits);
    return REF_VALUE | (d->n_values - 1);
}

uint32_t vg_temp_pred(VgDecoder *d) { return 4 * d->n_preds++; }

static uint32_t add_const(VgDecoder *d, VgConst c) {
    for (uint32_t k = 0; k < d->n_consts; k++) {
        const VgConst *o = &d->consts[k];
        if (o->kind == c.kind && o->bytes == c.bytes && o->value == c.value && o->sign == c.sign)
            return REF_CONST | k;
    }
    *ARENA_PUSH(d->scratch, d->consts, d->n_consts, d->cap_consts) = c;
    return REF_CONST | (d->n_consts - 1);
}

uint32_t vg_const_bits(VgDecoder *d, uint64_t value, int bits) {
    if (bits < 32) value &= (1ull << bits) - 1;
    if (bits == 32) value = (uint32_t)value;
    return add_const(d, (VgConst){ VG_CONST_BITS, 0, bits > 32 ? 8 : 4, false, value });
}

uint32_t vg_const_param(VgDecoder *d, uint32_t at, uint32_t bytes, bool sign, int bits) {
    return add_const(
        d, (VgConst){ VG_CONST_PARAM, 0, bits > 32 ? 8 : 4, sign, at | (uint64_t)bytes << 32 });
}

bool vg_is_const(const VgDecoder *d, uint32_t ref, uint64_t *value) {
    if ((ref & REF_KIND) != REF_CONST) return false;
    const VgConst *c = &d->consts[ref & ~REF_KIND];
    *value = c->value;
    return c->kind == VG_CONST_BITS;
}

static uint32_t register_ref(VgDecoder *d, PtxVar *v) {
    if (v->user >= 0) return (uint32_t)v->user;
    uint32_t ref;
    if (v->type == PTX_PRED) {
        ref = vg_temp_pred(d);
    } else {
        ref = vg_temp(d, ptx_type_bits(v->type));
        d->values[ref & ~REF_KIND].name = v->name;
    }
    v->user = ref;
    return ref;
}

// The address of a variable or function as a constant.
static Status symbol_const(VgDecoder *d, const PtxOperand *op, VgConst *c) {
    *c = (VgConst){ VG_CONST_BITS, 0, 8, false, op->bits };
    const PtxVar *v = op->var;
    if (!v) {
        PtxFunc *f = ptx_find_func(d->module->ptx, op->name);
        if (!f) return vg_bad(d, "'%s' is not declared", op->name);
        VgFunc *func = f->user;
        if (!func) return vg_bad(d, "'%s' is declared but has no body", op->name);
        c->value += func->va;
        return OK;
    }
    switch (v->space) {
    case PTX_SHARED:
        c->kind = v->count || !v->array ? VG_CONST_SHARED : VG_CONST_DYNAMIC;
        if (c->kind == VG_CONST_SHARED) c->value += (uint64_t)v->user;
        return OK;
    case PTX_LOCAL:
        c->kind = VG_CONST_LOCAL;
        c->value += (uint64_t)v->user;
        return OK;
    case PTX_PARAM:
        if (!d->ptx->is_entry)
            return vg_bad(d, "the address of parameter '%s' of a function", v->name);
        c->value += (uint64_t)v->user;
        return OK;
    default:
        if (v->user < 0) return vg_bad(d, "'%s' is external and was not defined", v->name);
        c->value += (uint64_t)v->user;
        return OK;
    }
}

static const char *const special_names[] = {
#define X(name, spelling) [name] = spelling,
    VG_SPECIAL_TABLE(X)
#undef X
};

static Status special_const(VgDecoder *d, const PtxOperand *op, int bits, uint32_t *at) {
    for (int s = 0; s < COUNT_OF(special_names); s++) {
        if (strcmp(special_names[s], op->name)) continue;
        if (s >= VG_RESERVED_BEGIN && s <= VG_RESERVED_1) d->func->reserved = true;
        *at = add_const(d, (VgConst){ VG_CONST_SPECIAL, 0, bits > 32 ? 8 : 4, false, (uint64_t)s });
        return OK;
    }
    const char *near = text_nearest(op->name, special_names, COUNT_OF(special_names));
    return vg_bad(d, "unknown register '%s'%s%s%s", op->name,
                  near ? "\n  hint: did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static uint64_t float_literal(const PtxOperand *op, int bits) {
    if (op->float_bits == bits || !op->is_float) return op->bits;
    if (op->float_bits == 64) {
        double v;
        memcpy(&v, &op->bits, 8);
        float f = (float)v;
        uint32_t u;
        memcpy(&u, &f, 4);
        return u;
    }
    uint32_t u = (uint32_t)op->bits;
    float f;
    memcpy(&f, &u, 4);
    double v = f;
    uint64_t out;
    memcpy(&out, &v, 8);
    return out;
}

Status vg_src_float(VgDecoder *d, const PtxOperand *op, int bits, uint32_t *at) {
    if (op->kind == PTX_OP_IMM && !op->is_float && op->bits && bits != 16)
        return vg_bad(d, "an integer where a float is expected");
    return vg_src(d, op, bits, at);
}

Status vg_src(VgDecoder *d, const PtxOperand *op, int bits, uint32_t *at) {
    switch (op->kind) {
    case PTX_OP_IMM:
        *at = vg_const_bits(d, op->is_float ? float_literal(op, bits) : op->bits, bits);
        return OK;
    case PTX_OP_SPECIAL:
        return special_const(d, op, bits, at);
    case PTX_OP_SYMBOL: {
        VgConst c;
        TRY(symbol_const(d, op, &c));
        c.bytes = bits > 32 ? 8 : 4;
        *at = add_const(d, c);
        return OK;
    }
    case PTX_OP_REG: {
        if (op->var->type == PTX_PRED) return vg_bad(d, "'%s' is a predicate", op->name);
        if (op->negate) return vg_bad(d, "a register cannot be negated in place");
        uint32_t ref = register_ref(d, op->var);
        int have = (int)d->values[ref & ~REF_KIND].bits, want = bits < 32 ? 32 : bits;
        *at = ref;
        if (have == want) return OK;
        if (have == 128 || want == 128)
            return vg_bad(d, "'%s' has %d bits, not %d", op->name, have, bits);
        *at = vg_temp(d, want);
        VgInstr *i = vg_emit(d, have > want ? d->isa->narrow : d->isa->widen);
        i->d = *at;
        i->a = ref;
        return OK;
    }
    default:
        return vg_bad(d, "expected a register or an immediate");
    }
}

Status vg_dst(VgDecoder *d, const PtxOperand *op, int bits, bool sign, uint32_t *at) {
    if (op->kind == PTX_OP_SINK) {
        *at = vg_temp(d, bits);
        return OK;
    }
    if (op->kind != PTX_OP_REG || op->negate) return vg_bad(d, "expected a register to write");
    if (op->var->type == PTX_PRED) return vg_bad(d, "'%s' is a predicate", op->name);
    uint32_t ref = register_ref(d, op->var);
    int have = (int)d->values[ref & ~REF_KIND].bits, want = bits < 32 ? 32 : bits;
    *at = ref;
    if (have == want) return OK;
    if (have == 128 || want == 128)
        return vg_bad(d, "'%s' has %d bits, not %d", op->name, have, bits);
    if (d->n_after == COUNT_OF(d->after))
        return vg_bad(d, "too many conversions of one instruction");
    *at = vg_temp(d, want);
    VgHandler run = have < want ? d->isa->narrow : sign ? d->isa->widen_signed : d->isa->widen;
    d->after[d->n_after++] = (VgAfter){ run, ref, *at };
    return OK;
}

Status vg_pred(VgDecoder *d, const PtxOperand *op, uint32_t *at, bool *negate) {
    *negate = op->negate;
    if (op->kind == PTX_OP_IMM) { // true or false as an integer
        *at = 0;
        *negate = (op->bits != 0) == op->negate;
        return OK;
    }
    if (op->kind != PTX_OP_REG || op->var->type != PTX_PRED)
        return vg_bad(d, "expected a predicate");
    *at = register_ref(d, op->var);
    return OK;
}

Status vg_pred_dst(VgDecoder *d, const PtxOperand *op, uint32_t *at) {
    if (op->kind == PTX_OP_SINK) {
        *at = vg_temp_pred(d);
        return OK;
    }
    bool negate;
    if (op->kind != PTX_OP_REG) return vg_bad(d, "expected a predicate to write");
    TRY(vg_pred(d, op, at, &negate));
    return negate ? vg_bad(d, "a predicate that is written cannot be negated") : OK;
}

Status vg_address(VgDecoder *d, const PtxOperand *op, uint32_t *base, int64_t *offset, int *bytes) {
    if (op->kind != PTX_OP_ADDRESS || op->n_items < 1) return vg_bad(d, "expected an address");
    const PtxOperand *first = &op->items[0];
    *offset = (int64_t)op->bits;
    *base = 0;
    *bytes = 0;
    if (first->kind == PTX_OP_IMM) {
        *offset += (int64_t)first->bits;
        return OK;
    }
    if (first->kind == PTX_OP_SYMBOL) {
        VgConst c;
        TRY(symbol_const(d, first, &c));
        c.value += op->bits;
        *offset = (int64_t)c.value;
        if (c.kind == VG_CONST_BITS) return OK;
        *offset = 0;
        *base = add_const(d, c);
        *bytes = 8;
        return OK;
    }
    if (first->kind != PTX_OP_REG || first->var->type == PTX_PRED)
        return vg_bad(d, "expected a register or symbol as address");
    *bytes = ptx_type_bits(first->var->type) > 32 ? 8 : 4;
    return vg_src(d, first, *bytes * 8, base);
}

/* emitting ------------------------------------------------------------------------------------ */

VgInstr *vg_emit(VgDecoder *d, VgHandler run) {
    VgEmit *e = ARENA_PUSH(d->scratch, d->emits, d->n_emits, d->cap_emits);
    e->from = d->p;
    e->i.run = run;
    if (d->p && d->p->guard) {
        e->i.guard = register_ref(d, d->p->guard);
        e->i.flip = d->p->guard_not ? ~0u : 0;
    }
    return &e->i;
}

void vg_emit_terminator(VgDecoder *d, int32_t label, const PtxTable *table, bool falls) {
    VgEmit *e = &d->emits[d->n_emits - 1];
    e->terminator = true;
    e->label = label;
    e->table = table;
    e->falls = falls || e->i.guard;
}

void vg_emit_list(VgDecoder *d, uint32_t *refs, uint32_t n_dst, uint32_t n_src) {
    d->emits[d->n_emits - 1].list = (VgRefList){ refs, n_dst, n_src };
}

void vg_emit_reads(VgDecoder *d, uint32_t *refs, uint32_t n) {
    d->emits[d->n_emits - 1].reads = (VgRefList){ refs, 0, n };
}

VgSite *vg_site(VgDecoder *d) {
    VgModule *m = d->module;
    VgSite *site = ARENA_NEW(d->arena, VgSite);
    site->id = m->n_sites;
    *ARENA_PUSH(d->arena, m->sites, m->n_sites, m->cap_sites) = site;
    uint32_t n = site->id;
    *ARENA_PUSH(d->arena, m->site_source, n, m->cap_site_source) = d->p;
    return site;
}

static const VgRoot *find_root(const VgDecoder *d, const char *root) {
    for (int k = 0; k < COUNT_OF(d->isa->roots); k++)
        for (const VgRoot *r = d->isa->roots[k]; r && r->root; r++)
            if (!strcmp(r->root, root)) return r;
    return NULL;
}

static bool mods_match(const PtxInstr *p, const char *mods) {
    uint64_t used = 0;
    uint32_t n = 0;
    for (const char *at = mods; *at; n++) {
        size_t len = strcspn(at, ".");
        uint32_t k = 0;
        while (k < p->n_mods &&
               (used >> k & 1 || strlen(p->mods[k]) != len || memcmp(p->mods[k], at, len)))
            k++;
        if (k == p->n_mods) return false;
        used |= 1ull << k;
        at += len + (at[len] == '.');
    }
    return n == p->n_mods;
}

static uint32_t form_operands(const VgForm *form) {
    uint32_t n = 1;
    while (n < 4 && form->bits[n]) n++;
    return n;
}

// By modifiers; of several (min of two and of three) the one with as many operands.
static const VgForm *find_form(const VgDecoder *d, const PtxInstr *p) {
    const VgForm *found = NULL;
    for (int k = 0; k < COUNT_OF(d->isa->forms); k++)
        for (const VgForm *form = d->isa->forms[k]; form && form->root; form++) {
            if (strcmp(form->root, p->root) || !mods_match(p, form->mods)) continue;
            if (form_operands(form) == p->n_operands) return form;
            found = form;
        }
    return found;
}

static Status decode_form(VgDecoder *d, const PtxInstr *p, const VgForm *form) {
    uint32_t refs[4] = { 0 }, n = form_operands(form);
    TRY(vg_count(d, n, n));
    for (uint32_t k = 1; k < n; k++)
        TRY(form->is_float ? vg_src_float(d, &p->operands[k], form->bits[k], &refs[k])
                           : vg_src(d, &p->operands[k], form->bits[k], &refs[k]));
    TRY(vg_dst(d, &p->operands[0], form->bits[0], false, &refs[0]));
    VgInstr *i = vg_emit(d, form->run);
    i->d = refs[0], i->a = refs[1], i->b = refs[2], i->c = refs[3];
    i->imm = form->imm;
    return OK;
}

static bool root_known(const VgDecoder *d, const char *name) {
    for (int k = 0; k < COUNT_OF(d->isa->forms); k++)
        for (const VgForm *form = d->isa->forms[k]; form && form->root; form++)
            if (!strcmp(form->root, name)) return true;
    return false;
}

// An instruction may have a hundred forms: the nearest one, or the first few.
static Status unknown_form(VgDecoder *d) {
    enum { MOST = 400, SHOWN = 8 };
    const char *known[MOST];
    int n = 0;
    Text name = { 0 }, list = { 0 };
    for (int k = 0; k < COUNT_OF(d->isa->forms); k++)
        for (const VgForm *form = d->isa->forms[k]; form && form->root; form++)
            if (!strcmp(form->root, d->p->root) && n < MOST)
                known[n++] = arena_printf(d->scratch, "%s.%s", form->root, form->mods);
    instr_text(d->p, &name);
    const char *near = text_nearest(text_cstr(&name), known, n);
    for (int k = 0; k < n && k < SHOWN; k++)
        text_printf(&list, "%s%s", k ? ", " : "", known[k]);
    Status status = vg_bad(d, "unknown form of this instruction\n  hint: %s %s%s",
                           near ? "the nearest known one is" : "known forms are",
                           near ? near : text_cstr(&list), near || n <= SHOWN ? "" : ", ...");
    text_finish(&name);
    text_finish(&list);
    return status;
}

static Status unknown_root(VgDecoder *d) {
    const char *names[400];
    int n = 0;
    for (int k = 0; k < COUNT_OF(d->isa->forms); k++)
        for (const VgForm *form = d->isa->forms[k]; form && form->root; form++)
            if (n < COUNT_OF(names) && (!n || strcmp(names[n - 1], form->root)))
                names[n++] = form->root;
    for (int k = 0; k < COUNT_OF(d->isa->roots); k++)
        for (const VgRoot *r = d->isa->roots[k]; r && r->root && n < COUNT_OF(names); r++)
            names[n++] = r->root;
    const char *near = text_nearest(d->p->root, names, n);
    return vg_bad(d, "unknown instruction%s%s", near ? "\n  hint: the nearest known one is " : "",
                  near ? near : "");
}

static Status decode_one(VgDecoder *d, const PtxInstr *p) {
    d->p = p;
    d->taken = 0;
    d->n_after = 0;
    if (p->n_mods > 64) return vg_bad(d, "too many modifiers");
    const VgForm *form = find_form(d, p);
    const VgRoot *root = form ? NULL : find_root(d, p->root);
    if (form) {
        TRY(decode_form(d, p, form));
    } else if (root) {
        TRY(root->decode(d, p));
        for (uint32_t k = 0; k < p->n_mods; k++)
            if (free_mod(d, k))
                return vg_bad(d, "unknown modifier .%s\n  hint: known forms are %s", p->mods[k],
                              root->forms);
    } else {
        return root_known(d, p->root) ? unknown_form(d) : unknown_root(d);
    }
    for (uint32_t k = 0; k < d->n_after; k++) {
        VgInstr *i = vg_emit(d, d->after[k].run);
        i->d = d->after[k].to;
        i->a = d->after[k].from;
    }
    return OK;
}

/* functions ----------------------------------------------------------------------------------- */

static void mark_leaders(VgDecoder *d) {
    PtxFunc *f = d->ptx;
    d->leader = ARENA_ARRAY(d->scratch, bool, f->n_instrs + 1);
    d->leader[0] = true;
    for (uint32_t k = 0; k < f->n_instrs; k++)
        for (uint32_t o = 0; o < f->instrs[k].n_operands; o++)
            if (f->instrs[k].operands[o].label >= 0)
                d->leader[f->instrs[k].operands[o].label] = true;
    for (uint32_t t = 0; t < f->n_tables; t++)
        for (uint32_t k = 0; k < f->tables[t].n && f->tables[t].kind == 'b'; k++)
            if (f->tables[t].labels[k] >= 0) d->leader[f->tables[t].labels[k]] = true;
}

static uint32_t place(uint32_t *at, const PtxVar *v) {
    uint32_t align = ptx_var_align(v), offset = (uint32_t)round_up(*at, align ? align : 1);
    *at = offset + (uint32_t)ptx_var_bytes(v);
    return offset;
}

// Offsets are 32 bits, and none of these spaces is large.
static Status check_sizes(const PtxFunc *f) {
    enum { LARGEST = 1 << 24 };
    PtxVar **lists[] = { f->params, f->rets, f->vars };
    uint32_t n[] = { f->n_params, f->n_rets, f->n_vars };
    uint64_t sum = 0;
    for (int l = 0; l < COUNT_OF(lists); l++)
        for (uint32_t k = 0; k < n[l]; k++) {
            const PtxVar *v = lists[l][k];
            if (v->space == PTX_GLOBAL || v->space == PTX_CONST) continue;
            sum += ptx_var_bytes(v) + ptx_var_align(v);
            if (sum > LARGEST)
                return status_fail(ERR_INPUT, "PTX line %u: with '%s' the variables of '%s' are too"
                                   " large", v->line, v->name, f->name);
        }
    return OK;
}

// Local and parameter variables of the body get their offsets. (Shared ones: module.c, as their
// size is part of the kernel.)
static Status lay_out(VgDecoder *d) {
    PtxFunc *f = d->ptx;
    uint32_t local = 0, args = 0;
    TRY(check_sizes(f));
    for (uint32_t k = 0; k < f->n_vars; k++) {
        PtxVar *v = f->vars[k];
        if (v->space == PTX_LOCAL) v->user = place(&local, v);
    }
    d->func->local_bytes = (uint32_t)round_up(local, 16);
    if (f->is_entry) { // of the launch's parameter block
        for (uint32_t k = 0; k < f->n_params; k++) f->params[k]->user = place(&args, f->params[k]);
        args = 0;
    } else {           // arguments first, then results, then the parameters of calls made here
        for (uint32_t k = 0; k < f->n_params; k++) {
            args = (uint32_t)round_up(args, 4);
            f->params[k]->user = place(&args, f->params[k]);
        }
        for (uint32_t k = 0; k < f->n_rets; k++) {
            args = (uint32_t)round_up(args, 4);
            f->rets[k]->user = place(&args, f->rets[k]);
        }
    }
    for (uint32_t k = 0; k < f->n_vars; k++) {
        PtxVar *v = f->vars[k];
        if (v->space != PTX_PARAM) continue;
        args = (uint32_t)round_up(args, 4);
        v->user = place(&args, v);
    }
    d->area_bytes = (uint32_t)round_up(args, 4);
    return OK;
}

static Status decode_body(VgDecoder *d) {
    PtxFunc *f = d->ptx;
    mark_leaders(d);
    TRY(lay_out(d));
    for (uint32_t k = 0; k < f->n_regs; k++) f->regs[k]->user = -1;
    d->at_label = ARENA_ARRAY(d->scratch, uint32_t, f->n_instrs + 1);
    d->n_preds = 2; // all ones, and the carry of add.cc
    for (uint32_t k = 0; k < f->n_instrs; k++) {
        if (d->leader[k] && d->n_emits && !d->emits[d->n_emits - 1].terminator) {
            d->p = NULL;
            vg_emit(d, vg_fall);
            vg_emit_terminator(d, -1, NULL, true);
        }
        d->at_label[k] = d->n_emits;
        TRY(decode_one(d, &f->instrs[k]));
    }
    // Running off the end is a return.
    d->p = NULL;
    bool open = d->n_emits && !d->emits[d->n_emits - 1].terminator;
    if (open && d->leader[f->n_instrs]) {
        vg_emit(d, vg_fall);
        vg_emit_terminator(d, -1, NULL, true);
    }
    d->at_label[f->n_instrs] = d->n_emits;
    if (open || !d->n_emits || d->leader[f->n_instrs] || d->emits[d->n_emits - 1].falls) {
        vg_emit(d, vg_ret);
        vg_emit_terminator(d, -1, NULL, false);
    }
    return OK;
}

Status vg_decode_function(VgModule *module, PtxFunc *ptx) {
    Arena *scratch = arena_create();
    if (!scratch) return status_fail(ERR_MEMORY, "no memory to decode '%s'", ptx->name);
    VgDecoder d = { .module = module, .isa = vg_isa(), .arena = module->arena, .scratch = scratch,
                    .ptx = ptx, .func = ptx->user };
    Status status;
    TRY_GOTO(decode_body(&d), out);
    TRY_GOTO(vg_decode_blocks(&d), out);
    TRY_GOTO(vg_decode_slots(&d), out);
out:
    arena_destroy(scratch);
    return status;
}
