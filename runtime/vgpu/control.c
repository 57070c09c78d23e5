// SPDX-License-Identifier: Apache-2.0
// Branches, calls, returns and exits.
//
// Terminators count their block and look whether the place they go to is where the split's lanes
// meet. A call gives its callee a frame of its own; arguments and results are copied between the
// parameter areas of the two frames (32 lanes interleaved by 4 bytes).
#include "runtime/vgpu/control.h"
#include "runtime/vgpu/decode.h"

static inline const VgInstr *go(const VgInstr *to, VgWarp *w) {
    if (to == w->meet) {
        to = vg_arrive(w);
        if (!to) return NULL;
    }
    if (w->budget <= 0) {
        w->pc = to;
        return NULL;
    }
    return to;
}
#define GO(to, w, f)                                                                               \
    do {                                                                                           \
        if ((to) == (w)->meet || (w)->budget <= 0) return go((to), (w));                           \
        VG_GOTO((to), (w), (f));                                                                   \
    } while (0)

const VgInstr *vg_fall(const VgInstr *i, VgWarp *w, char *f) {
    const VgBlock *b = i->extra;
    (void)f;
    VG_LEAVE_BLOCK(b, w);
    GO(b->next, w, f);
}

static const VgInstr *jump(const VgInstr *i, VgWarp *w, char *f) {
    const VgBlock *b = i->extra;
    (void)f;
    VG_LEAVE_BLOCK(b, w);
    GO(b->target, w, f);
}

static const VgInstr *branch(const VgInstr *i, VgWarp *w, char *f) {
    const VgBlock *b = i->extra;
    VG_LEAVE_BLOCK(b, w);
    uint32_t taken = VG_MASK(i, w, f);
    if (taken == w->mask) GO(b->target, w, f);
    if (!taken) GO(b->next, w, f);
    return go(vg_diverge(w, b, i, taken), w);
}

static const VgInstr *branch_uniform(const VgInstr *i, VgWarp *w, char *f) {
    const VgBlock *b = i->extra;
    uint32_t taken = VG_MASK(i, w, f);
    if (taken && taken != w->mask)
        return vg_fault(w, i, VG_DIVERGED, taken, "bra.uni: lanes %08x of %08x take it", taken,
                        w->mask);
    VG_LEAVE_BLOCK(b, w);
    GO(taken ? b->target : b->next, w, f);
}

// brx.idx: lanes by target, the largest index first on the list of splits.
static const VgInstr *branch_indexed(const VgInstr *i, VgWarp *w, char *f) {
    const VgBlock *b = i->extra;
    const uint32_t *index = (const uint32_t *)(f + i->a);
    VG_LEAVE_BLOCK(b, w);
    uint32_t lanes = VG_MASK(i, w, f), rest = w->mask & ~lanes, all = w->mask;
    for (uint32_t l = 0; l < 32; l++)
        if (lanes >> l & 1 && index[l] >= b->n_targets)
            return vg_fault(w, i, VG_ILLEGAL_INSTRUCTION, 1u << l,
                            "brx.idx: index %u of %u targets", index[l], b->n_targets);
    uint32_t first = lanes ? (uint32_t)__builtin_ctz(lanes) : 0, same = 0;
    for (uint32_t l = 0; l < 32 && lanes; l++)
        if (lanes >> l & 1 && b->targets[index[l]] == b->targets[index[first]]) same |= 1u << l;
    if (lanes && same == all) return go(b->targets[index[first]], w);
    if (!lanes) return go(b->next, w);
    // One side after the other, as two-way branches to the same join.
    VgBlock side = *b;
    side.target = b->targets[index[first]];
    lanes &= ~same;
    if (!lanes) return go(vg_diverge(w, &side, i, same), w);
    side.next = i; // the others come back here
    (void)rest;
    const VgInstr *to = vg_diverge(w, &side, i, same);
    return to;
}

/* parameters ---------------------------------------------------------------------------------- */

// Byte `at` of lane l lies at (at / 4) * 128 + l * 4 + at % 4.
static inline uint8_t *area_byte(char *area, uint32_t at, uint32_t l) {
    return (uint8_t *)area + (at / 4) * 128 + l * 4 + (at & 3);
}

static void area_copy(char *to, uint32_t to_at, const char *from, uint32_t from_at, uint32_t bytes,
                  uint32_t lanes) {
    for (uint32_t k = 0; k < bytes; k++)
        for (uint32_t l = 0; l < 32; l++)
            if (lanes >> l & 1)
                *area_byte(to, to_at + k, l) = *area_byte((char *)(uintptr_t)from, from_at + k, l);
}

// i->imm = byte offset, low 8 bits of b = element bytes; the register slot holds 4- or 8-byte
// lanes.
static const VgInstr *param_load(const VgInstr *i, VgWarp *w, char *f) {
    uint32_t m = VG_MASK(i, w, f), bytes = i->ops[1], wide = i->ops[2];
    uint32_t at = (uint32_t)i->imm;
    char *area = f + w->frame->func->area_at;
    for (uint32_t l = 0; l < 32; l++) {
        if (!(m >> l & 1)) continue;
        uint64_t v = 0;
        for (uint32_t k = 0; k < bytes; k++) v |= (uint64_t)*area_byte(area, at + k, l) << 8 * k;
        if (i->ops[0]) v = (uint64_t)((int64_t)(v << (64 - 8 * bytes)) >> (64 - 8 * bytes));
        if (wide) ((uint64_t *)(f + i->d))[l] = v;
        else ((uint32_t *)(f + i->d))[l] = (uint32_t)v;
    }
    return i + 1;
}

static const VgInstr *param_store(const VgInstr *i, VgWarp *w, char *f) {
    uint32_t m = VG_MASK(i, w, f), bytes = i->ops[1], wide = i->ops[2];
    uint32_t at = (uint32_t)i->imm;
    char *area = f + w->frame->func->area_at;
    for (uint32_t l = 0; l < 32; l++) {
        if (!(m >> l & 1)) continue;
        uint64_t v = wide ? ((const uint64_t *)(f + i->a))[l] : ((const uint32_t *)(f + i->a))[l];
        for (uint32_t k = 0; k < bytes; k++) *area_byte(area, at + k, l) = (uint8_t)(v >> 8 * k);
    }
    return i + 1;
}

static const uint32_t *param_info(VgDecoder *d, uint32_t sign, uint32_t bytes, uint32_t wide) {
    uint32_t *info = ARENA_ARRAY(vg_arena(d), uint32_t, 3);
    info[0] = sign;
    info[1] = bytes;
    info[2] = wide;
    return info;
}

// ld.param and st.param of a function's or a call's parameter at a constant place; kernels' own
// parameters are constants. False in *done: a general access to the parameter space.
Status vg_decode_param(VgDecoder *d, const PtxInstr *p, PtxType type, uint32_t vector, bool store,
                       bool *done) {
    const PtxOperand *address = &p->operands[store ? 0 : 1], *data = &p->operands[store ? 1 : 0];
    *done = false;
    if (address->kind != PTX_OP_ADDRESS || address->items[0].kind != PTX_OP_SYMBOL) return OK;
    PtxVar *v = address->items[0].var;
    if (!v || v->space != PTX_PARAM)
        return vg_bad(d, "'%s' is no parameter", address->items[0].name);
    bool kernel = false;
    for (uint32_t k = 0; d->ptx->is_entry && k < d->ptx->n_params; k++)
        kernel |= d->ptx->params[k] == v;
    uint32_t bytes = (uint32_t)ptx_type_bits(type) / 8;
    uint64_t offset = address->bits;
    if (kernel && store) return vg_bad(d, "a kernel's parameters cannot be written");
    if (offset > ptx_var_bytes(v) || ptx_var_bytes(v) - offset < (uint64_t)bytes * vector)
        return vg_bad(d, "the access ends beyond parameter '%s' of %llu bytes", v->name,
                      (unsigned long long)ptx_var_bytes(v));
    if (kernel && (vector > 1 || bytes > 8)) return OK;
    *done = true;
    bool sign = ptx_type_class(type) == 's';
    if (vector > 1 && (data->kind != PTX_OP_VECTOR || data->n_items != vector))
        return vg_bad(d, "expected %u registers in { }", vector);
    for (uint32_t k = 0; k < vector; k++) {
        const PtxOperand *item = vector > 1 ? &data->items[k] : data;
        int reg = item->kind == PTX_OP_REG ? ptx_type_bits(item->var->type) : (int)bytes * 8;
        if (reg < (int)bytes * 8) reg = (int)bytes * 8;
        uint32_t at = (uint32_t)((uint64_t)v->user + offset + k * bytes), ref;
        if (store) {
            TRY(vg_src(d, item, (int)bytes * 8, &ref));
            VgInstr *i = vg_emit(d, param_store);
            i->a = ref;
            i->imm = at;
            i->ops = param_info(d, 0, bytes, bytes > 4);
        } else if (kernel) {
            TRY(vg_dst(d, item, reg, sign, &ref));
            uint32_t from = vg_const_param(d, at, bytes, sign, reg);
            VgInstr *i = vg_emit(d, reg > 32 ? d->isa->move64 : d->isa->move32);
            i->d = ref;
            i->a = from;
        } else {
            TRY(vg_dst(d, item, reg, sign, &ref));
            VgInstr *i = vg_emit(d, param_load);
            i->d = ref;
            i->imm = at;
            i->ops = param_info(d, sign, bytes, reg > 32);
        }
    }
    return OK;
}

/* calls --------------------------------------------------------------------------------------- */

static const VgInstr *enter(VgWarp *w, const VgInstr *i, const VgFunc *callee, uint32_t lanes,
                            uint32_t pending) {
    const VgCall *call = i->extra;
    if (w->depth >= 4096)
        return vg_fault(w, i, VG_ILLEGAL_ADDRESS, lanes, "calls nested too deeply (%u)", w->depth);
    uint32_t local = w->frame->local_base + w->frame->func->local_bytes;
    if (callee->local_bytes + local > w->cta->grid->kernel->info.local_bytes)
        return vg_fault(w, i, VG_ILLEGAL_ADDRESS, lanes,
                        "stack overflow: '%s' needs %u bytes beyond %u of %u", callee->ptx->name,
                        callee->local_bytes, local, w->cta->grid->kernel->info.local_bytes);
    VgFrame *frame = vg_frame_new(w, callee, local);
    for (uint32_t k = 0; k < call->n_args; k++)
        area_copy(frame->at + callee->area_at, call->args[k].to,
                  w->frame->at + w->frame->func->area_at, call->args[k].from, call->args[k].bytes,
                  lanes);
    VgJoin *j = vg_join_new(w, i + 1, pending);
    j->call = true;
    j->site = call;
    j->callee = frame;
    j->arrived = pending & ~lanes;
    w->mask = lanes;
    w->frame = frame;
    vg_set_join(w, j);
    return callee->code;
}

static const VgInstr *call_direct(const VgInstr *i, VgWarp *w, char *f) {
    const VgCall *call = i->extra;
    uint32_t lanes = VG_MASK(i, w, f);
    if (!lanes) return i + 1;
    return enter(w, i, call->callee, lanes, w->mask);
}

// Whether the arguments and results of an indirect call lie where the function has them.
static bool fits(const VgCall *call, const VgFunc *callee) {
    const PtxFunc *f = callee->ptx;
    if (f->is_entry || f->n_params != call->n_args || f->n_rets != call->n_rets) return false;
    bool same = true;
    for (uint32_t k = 0; k < f->n_params; k++)
        same = same && (uint64_t)f->params[k]->user == call->args[k].to &&
               ptx_var_bytes(f->params[k]) == call->args[k].bytes;
    for (uint32_t k = 0; k < f->n_rets; k++)
        same = same && (uint64_t)f->rets[k]->user == call->rets[k].from &&
               ptx_var_bytes(f->rets[k]) == call->rets[k].bytes;
    return same;
}

// Lanes by function; each group is a split with a call of its own, and they meet after it.
static const VgInstr *call_indirect(const VgInstr *i, VgWarp *w, char *f) {
    const VgCall *call = i->extra;
    const uint64_t *va = (const uint64_t *)(f + i->a);
    uint32_t lanes = VG_MASK(i, w, f);
    if (!lanes) return i + 1;
    uint32_t all = w->mask, left = lanes, l = (uint32_t)__builtin_ctz(lanes), same = 0;
    for (uint32_t k = l; k < 32; k++)
        if (left >> k & 1 && va[k] == va[l]) same |= 1u << k;
    VgFunc *callee = vg_function_at(w->cta->grid->device, va[l]);
    if (!callee)
        return vg_fault(w, i, VG_ILLEGAL_ADDRESS, same, "call of 0x%llx, which is no function",
                        (unsigned long long)va[l]);
    if (!fits(call, callee))
        return vg_fault(w, i, VG_ILLEGAL_INSTRUCTION, same,
                        "call of '%s', which is %s", callee->ptx->name,
                        callee->ptx->is_entry ? "a kernel" : "a function of other parameters");
    if (same == lanes) return enter(w, i, callee, lanes, all);
    // The first group calls; the others come back to this instruction. All meet after it.
    VgBlock parts = { .join = i + 1, .target = i, .next = i };
    if (lanes != all) { // lanes that do not call wait there already
        VgJoin *j = vg_join_new(w, i + 1, all);
        j->arrived = all & ~lanes;
        w->mask = lanes;
        vg_set_join(w, j);
    }
    vg_diverge(w, &parts, i, lanes & ~same);
    return enter(w, i, callee, same, same);
}

const VgInstr *vg_ret(const VgInstr *i, VgWarp *w, char *f) {
    const VgBlock *b = i->extra;
    VG_LEAVE_BLOCK(b, w);
    uint32_t lanes = VG_MASK(i, w, f);
    if (!lanes) return go(b->next, w);
    VgJoin *call = w->join;
    while (call && !call->call) call = call->parent;
    if (!call) return vg_lanes_exit(w, b->next, lanes);
    if (lanes != w->mask) { // the rest goes on after it
        VgBlock parts = { .target = i, .next = b->next };
        vg_diverge(w, &parts, i, lanes);
        vg_split_save(w, b->next);
        for (uint32_t k = 0; k < w->n_splits; k++)
            if (w->splits[k].pc == i && w->splits[k].mask == lanes) vg_split_resume(w, k);
    }
    vg_join_leave(w, lanes, w->join, call);
    const VgCall *site = call->site;
    const VgFunc *callee = w->frame->func;
    for (uint32_t k = 0; k < site->n_rets; k++)
        area_copy(call->frame->at + call->frame->func->area_at, site->rets[k].to,
                  w->frame->at + callee->area_at, site->rets[k].from, site->rets[k].bytes, lanes);
    vg_set_join(w, call);
    const VgInstr *to = vg_arrive(w);
    return to ? go(to, w) : NULL;
}

static const VgInstr *exit_lanes(const VgInstr *i, VgWarp *w, char *f) {
    const VgBlock *b = i->extra;
    VG_LEAVE_BLOCK(b, w);
    uint32_t lanes = VG_MASK(i, w, f);
    const VgInstr *to = lanes ? vg_lanes_exit(w, b->next, lanes) : b->next;
    return to ? go(to, w) : NULL;
}

static const VgInstr *trap(const VgInstr *i, VgWarp *w, char *f) {
    uint32_t lanes = VG_MASK(i, w, f);
    if (!lanes) return i + 1;
    return vg_fault(w, i, VG_TRAP, lanes, "%s", i->imm ? "breakpoint reached" : "trap reached");
}

/* decoding ------------------------------------------------------------------------------------ */

static Status decode_bra(VgDecoder *d, const PtxInstr *p) {
    bool uniform = vg_take(d, "uni");
    TRY(vg_count(d, 1, 1));
    if (p->operands[0].label < 0)
        return vg_bad(d, "no label '%s' here", p->operands[0].name ? p->operands[0].name : "?");
    vg_emit(d, !p->guard ? jump : uniform ? branch_uniform : branch);
    vg_emit_terminator(d, p->operands[0].label, NULL, false);
    return OK;
}

static Status decode_brx(VgDecoder *d, const PtxInstr *p) {
    vg_take(d, "uni");
    if (!vg_take(d, "idx")) return vg_bad(d, "expected brx.idx");
    TRY(vg_count(d, 2, 2));
    const PtxTable *table = NULL;
    for (uint32_t t = 0; t < d->ptx->n_tables && p->operands[1].name; t++)
        if (d->ptx->tables[t].kind == 'b' && !strcmp(d->ptx->tables[t].name, p->operands[1].name))
            table = &d->ptx->tables[t];
    if (!table) return vg_bad(d, "no .branchtargets of this name");
    for (uint32_t k = 0; k < table->n; k++)
        if (table->labels[k] < 0) return vg_bad(d, "no label '%s' here", table->names[k]);
    uint32_t index;
    TRY(vg_src(d, &p->operands[0], 32, &index));
    vg_emit(d, branch_indexed)->a = index;
    vg_emit_terminator(d, -1, table, false);
    return OK;
}

static Status call_list(VgDecoder *d, const PtxOperand *op, VgCall *call, bool is_ret,
                        PtxVar **callee, uint32_t n_callee) {
    uint32_t n = op ? op->n_items : 0, at = 0;
    if (n != n_callee)
        return vg_bad(d, "%u %s given, the function has %u", n, is_ret ? "results" : "arguments",
                      n_callee);
    void *list = arena_alloc(d->arena, sizeof *call->args * (n + 1));
    if (is_ret) call->rets = list, call->n_rets = n;
    else call->args = list, call->n_args = n;
    for (uint32_t k = 0; k < n; k++) {
        const PtxVar *v = op->items[k].var;
        if (!v || v->space != PTX_PARAM) return vg_bad(d, "expected a .param variable");
        uint32_t bytes = (uint32_t)ptx_var_bytes(v);
        if (bytes != ptx_var_bytes(callee[k]))
            return vg_bad(d, "'%s' has %u bytes, the function's has %llu", v->name, bytes,
                          (unsigned long long)ptx_var_bytes(callee[k]));
        (void)at;
        if (is_ret) {
            call->rets[k].from = 0;
            call->rets[k].to = (uint32_t)v->user;
            call->rets[k].bytes = bytes;
        } else {
            call->args[k].from = (uint32_t)v->user;
            call->args[k].bytes = bytes;
        }
    }
    return OK;
}

// Places of arguments and results in the callee's area: as decode.c lays it out, params then rets.
static void callee_places(VgCall *call, PtxFunc *f) {
    uint32_t at = 0;
    for (uint32_t k = 0; k < f->n_params + f->n_rets; k++) {
        bool is_ret = k >= f->n_params;
        const PtxVar *v = is_ret ? f->rets[k - f->n_params] : f->params[k];
        uint32_t align = ptx_var_align(v);
        at = (uint32_t)round_up(round_up(at, 4), align ? align : 1);
        if (is_ret) call->rets[k - f->n_params].from = at;
        else call->args[k].to = at;
        at += (uint32_t)ptx_var_bytes(v);
    }
}

static PtxFunc *prototype_of(VgDecoder *d, const char *name) {
    for (uint32_t t = 0; name && t < d->ptx->n_tables; t++) {
        const PtxTable *table = &d->ptx->tables[t];
        if (strcmp(table->name, name)) continue;
        if (table->kind == 'p') return table->prototype;
        if (table->kind == 'c' && table->n) return ptx_find_func(d->module->ptx, table->names[0]);
    }
    return NULL;
}

static Status decode_call(VgDecoder *d, const PtxInstr *p) {
    vg_take(d, "uni"); // a statement about warps, of use to a compiler only
    TRY(vg_count(d, 1, 4));
    uint32_t k = 0;
    const PtxOperand *rets = NULL, *args = NULL;
    if (p->operands[0].kind == PTX_OP_LIST) rets = &p->operands[k++];
    if (k >= p->n_operands) return vg_bad(d, "expected a function");
    const PtxOperand *target = &p->operands[k++];
    if (k < p->n_operands && p->operands[k].kind == PTX_OP_LIST) args = &p->operands[k++];
    const PtxOperand *prototype = k < p->n_operands ? &p->operands[k++] : NULL;
    VgCall *call = ARENA_NEW(d->arena, VgCall);
    d->func->calls = true;
    PtxFunc *f = target->kind == PTX_OP_SYMBOL
                     ? ptx_find_func(d->module->ptx, target->name)
                     : prototype_of(d, prototype ? prototype->name : NULL);
    if (!f) return vg_bad(d, "no function or prototype '%s'", target->name ? target->name : "?");
    if (f->is_entry) return vg_bad(d, "'%s' is a kernel, and kernels are not called", f->name);
    TRY(call_list(d, rets, call, true, f->rets, f->n_rets));
    TRY(call_list(d, args, call, false, f->params, f->n_params));
    callee_places(call, f);
    if (target->kind == PTX_OP_SYMBOL) {
        call->callee = f->user;
        VgHandler builtin = f->has_body ? NULL : vg_builtin(f->name);
        if (!call->callee && !builtin) return vg_bad(d, "function '%s' has no body", f->name);
        vg_emit(d, builtin ? builtin : call_direct)->extra = call;
        return OK;
    }
    uint32_t address;
    TRY(vg_src(d, target, 64, &address));
    VgInstr *i = vg_emit(d, call_indirect);
    i->a = address;
    i->extra = call;
    return OK;
}

static Status decode_ret(VgDecoder *d, const PtxInstr *p) {
    (void)p;
    vg_take(d, "uni");
    TRY(vg_count(d, 0, 0));
    vg_emit(d, d->ptx->is_entry ? exit_lanes : vg_ret);
    vg_emit_terminator(d, -1, NULL, false);
    return OK;
}

static Status decode_exit(VgDecoder *d, const PtxInstr *p) {
    (void)p;
    TRY(vg_count(d, 0, 0));
    vg_emit(d, exit_lanes);
    vg_emit_terminator(d, -1, NULL, false);
    return OK;
}

static Status decode_trap(VgDecoder *d, const PtxInstr *p) {
    TRY(vg_count(d, 0, 0));
    vg_emit(d, trap)->imm = !strcmp(p->root, "brkpt");
    return OK;
}

const VgRoot vg_roots_control[] = {
    { "bra", decode_bra, "bra{.uni} label" },
    { "brx", decode_brx, "brx.idx{.uni} index, table" },
    { "call", decode_call, "call{.uni} (ret), function, (args){, prototype}" },
    { "ret", decode_ret, "ret{.uni}" },
    { "exit", decode_exit, "exit" },
    { "trap", decode_trap, "trap" },
    { "brkpt", decode_trap, "brkpt" },
    { "bar", vg_decode_bar, "bar{.cta}.sync/.arrive/.red, bar.warp.sync" },
    { "barrier", vg_decode_bar, "barrier{.cta}.sync/.arrive/.red{.aligned}" },
    { NULL, NULL, NULL },
};
