// SPDX-License-Identifier: Apache-2.0
// Memory instructions: from PTX to the sites of memory.h, and the handlers that call them.
//
// A handler only finds the executing lanes and calls the site's function, which checks and moves
// data.
#include "runtime/vgpu/exec.h"

HANDLER(access) {
    uint32_t m = VG_MASK(i, w, f);
    if (m) {
        const VgSite *site = i->extra;
        VgFault fault = site->run(&w->mem, site, m, i->a ? f + i->a : NULL, f);
        if (__builtin_expect(fault != VG_OK, 0)) return vg_fault_record(w, i, fault);
    }
    VG_NEXT(i, w, f);
}

HANDLER(fence) { // imm = VgSem | VgScope << 8
    if (VG_MASK(i, w, f)) vg_fence(&w->mem, (VgSem)(i->imm & 255), (VgScope)(i->imm >> 8));
    VG_NEXT(i, w, f);
}

HANDLER(nothing) {
    (void)w, (void)f;
    VG_NEXT(i, w, f);
} // hints: prefetch, discard of nothing we keep, applypriority

/* cvta and isspacep ---------------------------------------------------------------------------- */

static const struct { VgSpace space; uint64_t start;
} windows[] = {
    { VG_SHARED, VG_SHARED_WINDOW },
    { VG_LOCAL, VG_LOCAL_WINDOW },
    { VG_CONST, 0 },
    { VG_PARAM, VG_PARAM_WINDOW },
    { VG_GLOBAL, 0 },
};

// imm = VgSpace | 256 when to the space.
static uint64_t window_of(VgSpace space) {
    for (int k = 0; k < COUNT_OF(windows); k++)
        if (windows[k].space == space) return windows[k].start;
    return 0;
}

HANDLER(to_generic) {
    const uint64_t *a = SLOT(const uint64_t, a);
    uint64_t start = (uint64_t)i->imm;
    MAP(uint64_t, a[l] + start);
}

// A null pointer stays what it is: programs convert pointers they never use.
HANDLER(to_space) {
    const uint64_t *a = SLOT(const uint64_t, a);
    uint64_t start = window_of((VgSpace)i->imm), lanes = VG_MASK(i, w, f);
    uint64_t other = 0;
    for (int l = 0; l < 32; l++)
        if (lanes >> l & 1 && a[l])
            other |= vg_space_of(a[l]) != (VgSpace)i->imm && start ? 1u << l : 0;
    if (other) {
        int l = __builtin_ctzll(other);
        return vg_fault(w, i, VG_ILLEGAL_ADDRESS, (uint32_t)other,
                        "cvta.to: 0x%llx is not in the window of this space",
                        (unsigned long long)a[l]);
    }
    MAP(uint64_t, a[l] - (a[l] ? start : 0));
}

// As the manual has it: kernels' parameters lie within the global window; shared memory is the
// block's own unless .shared::cluster asks for that of all its cluster.
static bool in_space(const VgWarp *w, uint64_t a, VgSpace space, bool cluster) {
    VgSpace is = vg_space_of(a);
    if (space == VG_GLOBAL && is == VG_PARAM) return true;
    if (is != space || space != VG_SHARED) return is == space;
    uint64_t rank = (a - VG_SHARED_WINDOW) >> 24;
    return cluster ? rank < w->cta->grid->ctas_per_cluster : rank == w->mem.rank;
}

HANDLER(is_space) { // imm = VgSpace, | 256 for .shared::cluster
    const uint64_t *a = SLOT(const uint64_t, a);
    uint32_t m = VG_MASK(i, w, f), r = 0;
    for (int l = 0; l < 32; l++)
        r |= (uint32_t)in_space(w, a[l], (VgSpace)(i->imm & 255), i->imm & 256) << l;
    put_pred(f, i->d, m, r);
    VG_NEXT(i, w, f);
}

/* decoding ------------------------------------------------------------------------------------- */

typedef struct SpaceName { const char *name; VgSpace space; bool cluster; } SpaceName;
static const SpaceName spaces[] = {
    { "global", VG_GLOBAL, false },      { "shared", VG_SHARED, false },
    { "shared::cta", VG_SHARED, false }, { "shared::cluster", VG_SHARED, true },
    { "local", VG_LOCAL, false },        { "const", VG_CONST, false },
    { "param", VG_PARAM, false },        { "param::entry", VG_PARAM, false },
    { "param::func", VG_PARAM, false },
};

static VgSpace take_space(VgDecoder *d, bool *cluster) {
    for (int k = 0; k < COUNT_OF(spaces); k++)
        if (vg_take(d, spaces[k].name)) {
            *cluster = spaces[k].cluster;
            return spaces[k].space;
        }
    *cluster = false;
    return VG_GENERIC;
}

static VgScope take_scope(VgDecoder *d, VgScope otherwise) {
    static const char *const names[] = { "cta", "cluster", "gpu", "sys", "gl", NULL };
    int k = vg_take_one(d, names);
    return k < 0 ? otherwise : k == 4 ? VG_SCOPE_GPU : (VgScope)k;
}

// Eviction and prefetch hints change nothing here; a cache policy is an operand more.
static bool take_hints(VgDecoder *d) {
    static const char *const hints[] = { "L1::evict_normal",
                                         "L1::evict_unchanged",
                                         "L1::evict_first",
                                         "L1::evict_last",
                                         "L1::no_allocate",
                                         "L2::64B",
                                         "L2::128B",
                                         "L2::256B",
                                         "L2::evict_last",
                                         "L2::evict_normal",
                                         "L2::evict_first",
                                         "ca",
                                         "cg",
                                         "cs",
                                         "cv",
                                         "lu",
                                         "wb",
                                         "wt",
                                         "unified",
                                         NULL };
    while (vg_take_one(d, hints) >= 0) { }
    return vg_take(d, "L2::cache_hint");
}

static uint8_t take_vector(VgDecoder *d) {
    static const char *const names[] = { "v2", "v4", "v8", NULL };
    int k = vg_take_one(d, names);
    return k < 0 ? 1 : (uint8_t)(2 << k);
}

static Status finish_site(VgDecoder *d, VgSite *site, const PtxOperand *address) {
    uint32_t base;
    int bytes;
    TRY(vg_address(d, address, &base, &site->offset, &bytes));
    site->address_bytes = (uint8_t)bytes;
    site->run = vg_access_select(site);
    if (!site->run) return vg_bad(d, "no such form of access");
    VgInstr *i = vg_emit(d, access);
    i->a = base;
    i->extra = site;
    return OK;
}

// Registers of a load or store: item k of { }, each as wide as the widest of them needs.
static Status data_refs(VgDecoder *d, VgSite *site, const PtxOperand *data, PtxType type,
                        bool store) {
    int bits = ptx_type_bits(type), reg = bits < 32 ? 32 : bits;
    const PtxOperand *items = site->vector > 1 ? data->items : data;
    if (site->vector > 1 && (data->kind != PTX_OP_VECTOR || data->n_items != site->vector))
        return vg_bad(d, "expected %u registers in { }", site->vector);
    for (uint32_t k = 0; !store && bits < 64 && k < site->vector;
         k++) // loads extend into wider registers
        if (items[k].kind == PTX_OP_REG && ptx_type_bits(items[k].var->type) == 64) reg = 64;
    site->bytes = (uint8_t)(bits / 8);
    site->reg_bytes = (uint8_t)(reg / 8);
    site->sign = ptx_type_class(type) == 's';
    for (uint32_t k = 0; k < site->vector; k++) {
        if (store) TRY(vg_src(d, &items[k], reg, &site->source[k]));
        else if (items[k].kind == PTX_OP_SINK) site->reg[k] = VG_SINK;
        else TRY(vg_dst(d, &items[k], reg, site->sign, &site->reg[k]));
    }
    return OK;
}

static VgSem take_semantics(VgDecoder *d, bool store) {
    if (vg_take(d, "weak")) return VG_WEAK;
    if (vg_take(d, "volatile")) return VG_VOLATILE;
    if (vg_take(d, "relaxed")) return VG_RELAXED;
    if (!store && vg_take(d, "acquire")) return VG_ACQUIRE;
    if (store && vg_take(d, "release")) return VG_RELEASE;
    if (!store && vg_take(d, "nc")) return VG_NC;
    if (vg_take(d, "mmio")) return VG_VOLATILE;
    return VG_WEAK;
}

// A sign-extended byte in a 16-bit register keeps the slot's upper half zero.
static void trim_16(VgDecoder *d, const VgSite *site, const PtxOperand *data, PtxType type) {
    const PtxOperand *items = site->vector > 1 ? data->items : data;
    if (type != PTX_S8) return;
    for (uint32_t k = 0; k < site->vector; k++)
        if (items[k].kind == PTX_OP_REG && ptx_type_bits(items[k].var->type) == 16) {
            VgInstr *i = vg_emit(d, VG_NAME(vg_low16));
            i->d = i->a = site->reg[k];
        }
}

static Status decode_access(VgDecoder *d, const PtxInstr *p) {
    bool store = *p->root == 's', cluster, done;
    VgSite *site = vg_site(d);
    site->sem = (uint8_t)take_semantics(d, store);
    site->scope = (uint8_t)take_scope(d, VG_SCOPE_SYS);
    site->space = (uint8_t)take_space(d, &cluster);
    site->cluster = cluster;
    bool hint = take_hints(d);
    site->vector = take_vector(d);
    PtxType type = vg_take_type(d);
    int bits = ptx_type_bits(type);
    if (!strcmp(p->root, "ldu")) site->sem = VG_NC;
    if (bits < 8 || bits > 128 || ptx_type_class(type) == 'x')
        return vg_bad(d, "no access of this type");
    TRY(vg_count(d, 2, hint ? 3 : 2));
    if (site->space == VG_PARAM) {
        TRY(vg_decode_param(d, p, type, site->vector, store, &done));
        if (done) return OK;
    }
    const PtxOperand *address = &p->operands[store ? 0 : 1], *data = &p->operands[store ? 1 : 0];
    site->access = store ? VG_WRITE : VG_READ;
    TRY(data_refs(d, site, data, type, store));
    TRY(finish_site(d, site, address));
    uint32_t *refs = store ? site->source : site->reg;
    vg_emit_list(d, refs, store ? 0 : site->vector, store ? site->vector : 0);
    if (!store) trim_16(d, site, data, type);
    return OK;
}

static int atom_type(PtxType type, VgAtomOp op) {
    switch (type) {
    case PTX_B32: case PTX_U32: return VG_ATOM_B32;
    case PTX_S32: return op == VG_ATOM_MIN || op == VG_ATOM_MAX ? VG_ATOM_S32 : VG_ATOM_B32;
    case PTX_B64: case PTX_U64: return VG_ATOM_B64;
    case PTX_S64: return op == VG_ATOM_MIN || op == VG_ATOM_MAX ? VG_ATOM_S64 : VG_ATOM_B64;
    case PTX_F32: return VG_ATOM_F32;
    case PTX_F64: return VG_ATOM_F64;
    case PTX_F16: return VG_ATOM_F16;
    case PTX_BF16: return VG_ATOM_BF16;
    case PTX_F16X2: return VG_ATOM_F16X2;
    case PTX_BF16X2: return VG_ATOM_BF16X2;
    case PTX_B16: return VG_ATOM_B16;
    case PTX_B128: return VG_ATOM_B128;
    default: return -1;
    }
}

static Status decode_atom(VgDecoder *d, const PtxInstr *p) {
    static const char *const sems[] = { "relaxed", "acquire", "release", "acq_rel", NULL };
    static const VgSem sem_values[] = { VG_RELAXED, VG_ACQUIRE, VG_RELEASE, VG_ACQ_REL };
    static const char *const ops[] = { "add",  "min", "max", "and", "or", "xor",
                                       "exch", "cas", "inc", "dec", NULL };
    bool red = *p->root == 'r', cluster;
    VgSite *site = vg_site(d);
    int sem = vg_take_one(d, sems), op = vg_take_one(d, ops);
    if (op < 0) return vg_bad(d, "expected an operation");
    site->sem = (uint8_t)(sem < 0 ? VG_RELAXED : sem_values[sem]);
    site->scope = (uint8_t)take_scope(d, VG_SCOPE_GPU);
    site->space = (uint8_t)take_space(d, &cluster);
    site->cluster = cluster;
    bool hint = take_hints(d);
    vg_take(d, "noftz");
    site->vector = take_vector(d);
    PtxType type = vg_take_type(d);
    site->atom = (uint8_t)(VG_ATOM_ADD + op);
    int kind = atom_type(type, (VgAtomOp)site->atom), bits = ptx_type_bits(type),
        reg = bits < 32 ? 32 : bits;
    if (kind < 0) return vg_bad(d, "no atomic of this type");
    bool cas = site->atom == VG_ATOM_CAS;
    site->type = (uint8_t)kind;
    site->access = VG_ATOMIC;
    site->bytes = (uint8_t)(bits / 8);
    site->reg_bytes = (uint8_t)(reg / 8);
    site->result = !red;
    uint32_t n = (red ? 2 : 3) + (uint32_t)cas, at = red ? 0 : 1;
    TRY(vg_count(d, n, hint ? n + 1 : n));
    if (!red && p->operands[0].kind == PTX_OP_SINK) site->result = false;
    const PtxOperand *value = &p->operands[at + 1 + (uint32_t)cas], *to = &p->operands[0];
    if (site->vector > 1 && (value->kind != PTX_OP_VECTOR || value->n_items != site->vector))
        return vg_bad(d, "expected %u registers in { }", site->vector);
    if (cas) TRY(vg_src(d, &p->operands[at + 1], reg, &site->compare));
    for (uint32_t k = 0; k < site->vector; k++)
        TRY(vg_src(d, site->vector > 1 ? &value->items[k] : value, reg, &site->source[k]));
    for (uint32_t k = 0; k < site->vector && site->result; k++)
        TRY(vg_dst(d, site->vector > 1 ? &to->items[k] : to, reg, false, &site->reg[k]));
    TRY(finish_site(d, site, &p->operands[at]));
    // reg[8], source[8] and compare follow each other in VgSite.
    if (site->result) vg_emit_list(d, site->reg, site->vector, 0);
    vg_emit_reads(d, site->source, cas ? 9 : site->vector);
    return OK;
}
_Static_assert(offsetof(VgSite, compare) == offsetof(VgSite, source) + sizeof ((VgSite *)0)->source,
               "compare is read with the sources");

// Between the generic and the async proxy, and for mbarriers: all accesses are made in one order
// here.
static Status decode_proxy_fence(VgDecoder *d, const PtxInstr *p) {
    static const char *const words[] = {
        "async", "alias", "async::generic", "tensormap::generic", "acquire", "release", "global",
        "shared::cta", "shared::cluster", "cta", "cluster", "gpu", "sys",
        "sync_restrict::shared::cta", "sync_restrict::shared::cluster", NULL };
    while (vg_take_one(d, words) >= 0) { }
    TRY(vg_count(d, 0, 2)); // .tensormap::generic.acquire names a descriptor and its size
    (void)p;
    vg_emit(d, nothing);
    return OK;
}

static Status decode_fence(VgDecoder *d, const PtxInstr *p) {
    static const char *const sems[] = { "sc", "acq_rel", "acquire", "release", NULL };
    static const VgSem values[] = { VG_SC, VG_ACQ_REL, VG_ACQUIRE, VG_RELEASE };
    bool membar = *p->root == 'm';
    if (vg_take(d, "mbarrier_init") || vg_take(d, "proxy")) return decode_proxy_fence(d, p);
    int sem = membar ? 0 : vg_take_one(d, sems);
    VgScope scope = take_scope(d, VG_SCOPE_SYS);
    TRY(vg_count(d, 0, 0));
    if (sem < 0) sem = 1;
    vg_emit(d, fence)->imm = values[sem] | (int64_t)scope << 8;
    return OK;
}

static Status decode_cvta(VgDecoder *d, const PtxInstr *p) {
    bool to = vg_take(d, "to"), cluster;
    VgSpace space = take_space(d, &cluster);
    PtxType type = vg_take_type(d);
    uint32_t a, r;
    if (space == VG_GENERIC || (type != PTX_U64 && type != PTX_U32))
        return vg_bad(d, "expected a space and .u64");
    TRY(vg_count(d, 2, 2));
    TRY(vg_src(d, &p->operands[1], 64, &a));
    TRY(vg_dst(d, &p->operands[0], 64, false, &r));
    VgInstr *i = vg_emit(d, to ? to_space : to_generic);
    i->d = r, i->a = a;
    i->imm = to ? (int64_t)space : (int64_t)window_of(space);
    return OK;
}

static Status decode_isspacep(VgDecoder *d, const PtxInstr *p) {
    bool cluster;
    VgSpace space = take_space(d, &cluster);
    uint32_t to, a;
    if (space == VG_GENERIC) return vg_bad(d, "expected a space");
    TRY(vg_count(d, 2, 2));
    TRY(vg_pred_dst(d, &p->operands[0], &to));
    TRY(vg_src(d, &p->operands[1], 64, &a));
    VgInstr *i = vg_emit(d, is_space);
    i->d = to, i->a = a, i->imm = (int64_t)space | (cluster ? 256 : 0);
    return OK;
}

// Hints about caches.
static Status decode_hint(VgDecoder *d, const PtxInstr *p) {
    static const char *const words[] = { "L1",       "L2",     "L2::evict_last", "L2::evict_normal",
                                         "L2::128B", "global", "local",          "tensormap",
                                         "const",    "param",  "uniform",        NULL };
    bool sized = *p->root == 'a'; // applypriority [a], 128
    while (vg_take_one(d, words) >= 0) { }
    TRY(vg_count(d, sized ? 2 : 1, sized ? 2 : 1));
    if (p->operands[0].kind != PTX_OP_ADDRESS) return vg_bad(d, "expected an address");
    if (sized && (p->operands[1].kind != PTX_OP_IMM || p->operands[1].bits != 128))
        return vg_bad(d, "expected 128, the only size there is");
    vg_emit(d, nothing);
    return OK;
}

// A policy is an operand of hints only: any value does.
static Status decode_createpolicy(VgDecoder *d, const PtxInstr *p) {
    static const char *const words[] = { "fractional",
                                         "range",
                                         "cvt",
                                         "L2",
                                         "global",
                                         "L2::evict_last",
                                         "L2::evict_normal",
                                         "L2::evict_first",
                                         "L2::evict_unchanged",
                                         "b64",
                                         NULL };
    uint32_t to;
    while (vg_take_one(d, words) >= 0) { }
    if (!p->n_operands) return vg_bad(d, "expected a register");
    TRY(vg_dst(d, &p->operands[0], 64, false, &to));
    VgInstr *i = vg_emit(d, VG_NAME(vg_move64));
    i->d = to, i->a = vg_const_bits(d, 0, 64);
    return OK;
}

const VgRoot VG_NAME(vg_roots_mem)[] = {
    { "ld", decode_access,
      "ld{.weak,.volatile,.relaxed,.acquire}{.scope}{.space}{.nc}{.v2,.v4,.v8}.type" },
    { "ldu", decode_access, "ldu{.global}{.v2,.v4}.type" },
    { "st", decode_access,
      "st{.weak,.volatile,.relaxed,.release}{.scope}{.space}{.v2,.v4,.v8}.type" },
    { "atom", decode_atom, "atom{.sem}{.scope}{.space}.op{.noftz}{.v2,.v4,.v8}.type" },
    { "red", decode_atom, "red{.sem}{.scope}{.space}.op{.noftz}{.v2,.v4,.v8}.type" },
    { "membar", decode_fence, "membar.{cta,gl,sys}" },
    { "fence", decode_fence,
      "fence{.sc,.acq_rel,.acquire,.release}.{cta,cluster,gpu,sys}, fence.proxy.{async,alias}, "
      "fence.mbarrier_init" },
    { "cvta", decode_cvta, "cvta{.to}.{global,shared,local,const,param}.u64" },
    { "isspacep", decode_isspacep, "isspacep.{global,shared{::cta,::cluster},local,const,param{::entry}}" },
    { "prefetch", decode_hint, "prefetch{.space}.{L1,L2}" },
    { "prefetchu", decode_hint, "prefetchu.L1" },
    { "applypriority", decode_hint, "applypriority{.global}.L2::evict_normal" },
    { "createpolicy", decode_createpolicy, "createpolicy.{fractional,range,cvt}.L2::...b64" },
    { NULL, NULL, NULL },
};
