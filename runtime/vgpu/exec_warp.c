// SPDX-License-Identifier: Apache-2.0
// Instructions that look across the lanes of a warp, and clocks.
//
// Sources may be the destination's slot: values are copied first. A lane that reads one that does
// not take part is a fault.
#include "runtime/vgpu/exec.h"

// Lanes may name different groups in one instruction (tiles of a warp). False: *next is to be
// returned.
static bool meet(const VgInstr *i, VgWarp *w, char *f, uint32_t at, uint32_t *m,
                 const VgInstr **next) {
    const uint32_t *members = (const uint32_t *)(f + at);
    uint32_t all = 0, outside = 0;
    for (uint32_t l = 0; l < 32; l++) {
        if (!(*m >> l & 1)) continue;
        all |= members[l];
        outside |= ~members[l] & 1u << l;
    }
    if (outside) {
        *next = vg_fault(w, i, VG_DIVERGED, outside,
                         "the executing lanes are not in their membermask %08x",
                         members[__builtin_ctz(outside)]);
        return false;
    }
    if (!vg_converge(i, w, *m, all, false, next)) return false;
    *m = VG_MASK(i, w, f);
    return true;
}

// For each group of the executing lanes m: its lanes in `group`.
#define GROUPS(members, m, group) \
    for (uint32_t left_ = (m), group; \
         left_ && (group = (members)[__builtin_ctz(left_)] & (m), true); left_ &= ~group)

/* shfl ----------------------------------------------------------------------------------------- */

// d, a = value, b = lane or distance, c = clamp and segment; ops: membermask, predicate (0: none);
// imm: 0 up, 1 down, 2 bfly, 3 idx, | 4: without .sync.
HANDLER(shuffle) {
    uint32_t m = VG_MASK(i, w, f);
    if (!m) VG_NEXT(i, w, f);
    const uint32_t *members = (const uint32_t *)(f + i->ops[0]);
    const VgInstr *next;
    if (!(i->imm & 4) && !meet(i, w, f, i->ops[0], &m, &next)) return next;
    const uint32_t *b = SLOT(const uint32_t, b), *c = SLOT(const uint32_t, c);
    uint32_t a[32] __attribute__((aligned(64))), *d = SLOT(uint32_t, d), valid = 0, wrong = 0;
    memcpy(a, f + i->a, sizeof a);
    int mode = i->imm & 3;
    for (uint32_t l = 0; l < 32; l++) {
        if (!(m >> l & 1)) continue;
        uint32_t bval = b[l] & 31, cval = c[l] & 31, segment = c[l] >> 8 & 31;
        uint32_t most = (l & segment) | (cval & ~segment), least = l & segment;
        int32_t from = mode == 0 ? (int32_t)(l - bval) : mode == 1 ? (int32_t)(l + bval)
                       : mode == 2 ? (int32_t)(l ^ bval) : (int32_t)(least | (bval & ~segment));
        bool in = mode == 0 ? from >= (int32_t)most : from <= (int32_t)most;
        if (!in) from = (int32_t)l;
        valid |= (uint32_t)in << l;
        if (!((m & members[l]) >> from & 1)) wrong |= 1u << l;
        else d[l] = a[from];
    }
    if (wrong)
        return vg_fault(w, i, VG_DIVERGED, wrong,
                        "shfl reads lanes that do not take part (executing: %08x)", m);
    if (i->ops[1]) put_pred(f, i->ops[1], m, valid);
    VG_NEXT(i, w, f);
}

static Status decode_shfl(VgDecoder *d, const PtxInstr *p) {
    static const char *const modes[] = { "up", "down", "bfly", "idx", NULL };
    bool sync = vg_take(d, "sync");
    int mode = vg_take_one(d, modes);
    if (mode < 0 || !vg_take(d, "b32"))
        return vg_bad(d, "expected .up, .down, .bfly or .idx, and .b32");
    TRY(vg_count(d, sync ? 5 : 4, sync ? 5 : 4));
    uint32_t *ops = ARENA_ARRAY(vg_arena(d), uint32_t, 2), s[3], r;
    const PtxOperand *to = &p->operands[0];
    if (to->kind == PTX_OP_PAIR) {
        TRY(vg_pred_dst(d, &to->items[1], &ops[1]));
        to = &to->items[0];
    }
    for (int k = 0; k < 3; k++) TRY(vg_src(d, &p->operands[1 + k], 32, &s[k]));
    ops[0] = vg_const_bits(d, ~0u, 32);
    if (sync) TRY(vg_src(d, &p->operands[4], 32, &ops[0]));
    TRY(vg_dst(d, to, 32, false, &r));
    VgInstr *i = vg_emit(d, shuffle);
    i->d = r, i->a = s[0], i->b = s[1], i->c = s[2], i->ops = ops, i->imm = mode | (sync ? 0 : 4);
    vg_emit_list(d, ops, 0, 1);
    return OK;
}

/* vote, match, redux, elect, activemask -------------------------------------------------------- */

// d = result, a = predicate, c = membermask; imm: 0 all, 1 any, 2 uni, 3 ballot | 4 negated.
HANDLER(vote) {
    uint32_t m = VG_MASK(i, w, f);
    if (!m) VG_NEXT(i, w, f);
    const uint32_t *members = SLOT(const uint32_t, c);
    const VgInstr *next;
    if (!meet(i, w, f, i->c, &m, &next)) return next;
    uint32_t p = *(uint32_t *)(f + i->a) ^ (i->imm & 4 ? ~0u : 0), *d = (uint32_t *)(f + i->d);
    int kind = i->imm & 3;
    GROUPS(members, m, group) {
        uint32_t yes = p & group;
        bool v = kind == 0 ? yes == group : kind == 1 ? yes != 0 : yes == group || !yes;
        if (kind < 3) put_pred(f, i->d, group, v ? ~0u : 0);
        for (int l = 0; kind == 3 && l < 32; l++) d[l] = group >> l & 1 ? yes : d[l];
    }
    VG_NEXT(i, w, f);
}

static Status decode_vote(VgDecoder *d, const PtxInstr *p) {
    static const char *const modes[] = { "all", "any", "uni", "ballot", NULL };
    bool sync = vg_take(d, "sync"), negate;
    int mode = vg_take_one(d, modes);
    uint32_t r, a, members;
    vg_take_type(d);
    if (mode < 0) return vg_bad(d, "expected .all, .any, .uni or .ballot");
    if (!sync) return vg_bad(d, "vote without .sync was removed in sm_70");
    TRY(vg_count(d, 3, 3));
    TRY(vg_pred(d, &p->operands[1], &a, &negate));
    TRY(vg_src(d, &p->operands[2], 32, &members));
    if (mode == 3) TRY(vg_dst(d, &p->operands[0], 32, false, &r));
    else TRY(vg_pred_dst(d, &p->operands[0], &r));
    VgInstr *i = vg_emit(d, vote);
    i->d = r, i->a = a, i->c = members, i->imm = mode | (negate ? 4 : 0);
    return OK;
}

// d, a = value, c = membermask, b = predicate of .all (0: none); imm: 1 all, | 2 64-bit.
HANDLER(match) {
    uint32_t m = VG_MASK(i, w, f);
    if (!m) VG_NEXT(i, w, f);
    const uint32_t *members = SLOT(const uint32_t, c);
    const VgInstr *next;
    if (!meet(i, w, f, i->c, &m, &next)) return next;
    uint64_t v[32];
    uint32_t *d = SLOT(uint32_t, d), same[32];
    for (int l = 0; l < 32; l++)
        v[l] = i->imm & 2 ? ((const uint64_t *)(f + i->a))[l] : ((const uint32_t *)(f + i->a))[l];
    for (int l = 0; l < 32; l++) {
        same[l] = 0;
        for (int k = 0; k < 32; k++) same[l] |= (uint32_t)(v[k] == v[l]) << k;
        same[l] &= m & members[l];
    }
    GROUPS(members, m, group) {
        uint32_t all = group;
        for (int l = 0; l < 32; l++) all &= group >> l & 1 ? same[l] : ~0u;
        bool equal = all == group;
        for (int l = 0; l < 32; l++)
            if (group >> l & 1) d[l] = i->imm & 1 ? (equal ? group : 0) : same[l];
        if (i->b) put_pred(f, i->b, group, equal ? ~0u : 0);
    }
    VG_NEXT(i, w, f);
}

static Status decode_match(VgDecoder *d, const PtxInstr *p) {
    bool all = vg_take(d, "all"), any = vg_take(d, "any");
    if (!vg_take(d, "sync") || all == any) return vg_bad(d, "expected .any.sync or .all.sync");
    PtxType type = vg_take_type(d);
    if (type != PTX_B32 && type != PTX_B64) return vg_bad(d, "expected .b32 or .b64");
    uint32_t r, a, members, pred = 0;
    TRY(vg_count(d, 3, 3));
    const PtxOperand *to = &p->operands[0];
    if (to->kind == PTX_OP_PAIR) {
        if (any) return vg_bad(d, "match.any has no predicate");
        TRY(vg_pred_dst(d, &to->items[1], &pred));
        to = &to->items[0];
    }
    TRY(vg_src(d, &p->operands[1], ptx_type_bits(type), &a));
    TRY(vg_src(d, &p->operands[2], 32, &members));
    TRY(vg_dst(d, to, 32, false, &r));
    VgInstr *i = vg_emit(d, match);
    i->d = r, i->a = a, i->b = pred, i->c = members,
    i->imm = (all ? 1 : 0) | (type == PTX_B64 ? 2 : 0);
    return OK;
}

enum {
    REDUX_ADD,
    REDUX_MIN_S,
    REDUX_MAX_S,
    REDUX_MIN_U,
    REDUX_MAX_U,
    REDUX_AND,
    REDUX_OR,
    REDUX_XOR,
    REDUX_MIN_F,
    REDUX_MAX_F
};
static uint32_t redux_one(int op, uint32_t x, uint32_t y) {
    switch (op) {
    case REDUX_ADD: return x + y;
    case REDUX_MIN_S: return (int32_t)x < (int32_t)y ? x : y;
    case REDUX_MAX_S: return (int32_t)x > (int32_t)y ? x : y;
    case REDUX_MIN_U: return x < y ? x : y;
    case REDUX_MAX_U: return x > y ? x : y;
    case REDUX_AND: return x & y;
    case REDUX_OR: return x | y;
    default: return x ^ y;
    }
}
// f32 (sm_100a): imm | 16 .abs, | 32 .NaN
static uint32_t redux_float(int op, uint32_t x, uint32_t y, bool nan) {
    float a = as_f32(x), b = as_f32(y);
    if (a != a || b != b) return nan || (a != a && b != b) ? 0x7fffffff : a != a ? y : x;
    if (a == b) return (op == REDUX_MIN_F) == (x >> 31 != 0) ? x : y;
    return (a < b) == (op == REDUX_MIN_F) ? x : y;
}
HANDLER(redux) {
    uint32_t m = VG_MASK(i, w, f);
    if (!m) VG_NEXT(i, w, f);
    const uint32_t *members = SLOT(const uint32_t, c);
    const VgInstr *next;
    if (!meet(i, w, f, i->c, &m, &next)) return next;
    const uint32_t *a = SLOT(const uint32_t, a);
    uint32_t *d = SLOT(uint32_t, d), clear = i->imm & 16 ? 0x7fffffff : ~0u;
    int op = i->imm & 15;
    GROUPS(members, m, group) {
        uint32_t first = (uint32_t)__builtin_ctz(group), r = a[first] & clear;
        for (uint32_t l = first + 1; l < 32; l++) {
            if (!(group >> l & 1)) continue;
            uint32_t v = a[l] & clear;
            r = op >= REDUX_MIN_F ? redux_float(op, r, v, i->imm & 32) : redux_one(op, r, v);
        }
        for (int l = 0; l < 32; l++) d[l] = group >> l & 1 ? r : d[l];
    }
    VG_NEXT(i, w, f);
}

static Status decode_redux(VgDecoder *d, const PtxInstr *p) {
    static const char *const ops[] = { "add", "min", "max", "and", "or", "xor", NULL };
    static const int of_s[] = { REDUX_ADD, REDUX_MIN_S, REDUX_MAX_S, -1, -1, -1 };
    static const int of_u[] = { REDUX_ADD, REDUX_MIN_U, REDUX_MAX_U, -1, -1, -1 };
    static const int of_b[] = { -1, -1, -1, REDUX_AND, REDUX_OR, REDUX_XOR };
    static const int of_f[] = { -1, REDUX_MIN_F, REDUX_MAX_F, -1, -1, -1 };
    if (!vg_take(d, "sync")) return vg_bad(d, "expected .sync");
    int op = vg_take_one(d, ops), flags = 0;
    if (vg_take(d, "abs")) flags |= 16;
    if (vg_take(d, "NaN")) flags |= 32;
    PtxType type = vg_take_type(d);
    if (op < 0) return vg_bad(d, "expected an operation");
    int kind = type == PTX_S32 ? of_s[op] : type == PTX_U32 ? of_u[op] : type == PTX_B32 ? of_b[op]
               : type == PTX_F32 ? of_f[op] : -1;
    if (kind < 0 || (flags && type != PTX_F32)) return vg_bad(d, "no such operation on this type");
    uint32_t r, a, members;
    TRY(vg_count(d, 3, 3));
    TRY(vg_src(d, &p->operands[1], 32, &a));
    TRY(vg_src(d, &p->operands[2], 32, &members));
    TRY(vg_dst(d, &p->operands[0], 32, true, &r));
    VgInstr *i = vg_emit(d, redux);
    i->d = r, i->a = a, i->c = members, i->imm = kind | flags;
    return OK;
}

// elect.sync d|p, membermask: one lane, the same for the same mask. The lowest, or with a seed any.
HANDLER(elect) {
    uint32_t m = VG_MASK(i, w, f);
    if (!m) VG_NEXT(i, w, f);
    const uint32_t *members = SLOT(const uint32_t, c);
    const VgInstr *next;
    if (!meet(i, w, f, i->c, &m, &next)) return next;
    uint64_t seed = w->cta->grid->device->seed;
    uint32_t *d = SLOT(uint32_t, d);
    GROUPS(members, m, group) {
        uint32_t rest = group;
        uint32_t skip = seed ? (uint32_t)(hash_mix(seed, group, 0x656c6563) %
                                          (uint32_t)__builtin_popcount(group))
                             : 0;
        while (skip--) rest &= rest - 1;
        uint32_t leader = (uint32_t)__builtin_ctz(rest);
        for (int l = 0; i->d && l < 32; l++) d[l] = group >> l & 1 ? leader : d[l];
        put_pred(f, i->b, group, 1u << leader);
    }
    VG_NEXT(i, w, f);
}

static Status decode_elect(VgDecoder *d, const PtxInstr *p) {
    uint32_t r = 0, pred, members;
    if (!vg_take(d, "sync")) return vg_bad(d, "expected .sync");
    TRY(vg_count(d, 2, 2));
    if (p->operands[0].kind != PTX_OP_PAIR) return vg_bad(d, "expected d|p");
    TRY(vg_src(d, &p->operands[1], 32, &members));
    TRY(vg_pred_dst(d, &p->operands[0].items[1], &pred));
    if (p->operands[0].items[0].kind != PTX_OP_SINK)
        TRY(vg_dst(d, &p->operands[0].items[0], 32, false, &r));
    VgInstr *i = vg_emit(d, elect);
    i->d = r, i->b = pred, i->c = members;
    return OK;
}

HANDLER(activemask) { MAP(uint32_t, w->mask); }

static Status decode_activemask(VgDecoder *d, const PtxInstr *p) {
    uint32_t r;
    if (!vg_take(d, "b32")) return vg_bad(d, "expected .b32");
    TRY(vg_count(d, 1, 1));
    TRY(vg_dst(d, &p->operands[0], 32, false, &r));
    vg_emit(d, activemask)->d = r;
    return OK;
}

/* time ----------------------------------------------------------------------------------------- */

// nanosleep gives the rest of the quantum up: a warp that sleeps waits for others.
HANDLER(nanosleep) {
    if (VG_MASK(i, w, f)) w->budget = 0;
    VG_NEXT(i, w, f);
}

static Status decode_nanosleep(VgDecoder *d, const PtxInstr *p) {
    uint32_t a;
    if (!vg_take(d, "u32")) return vg_bad(d, "expected .u32");
    TRY(vg_count(d, 1, 1));
    TRY(vg_src(d, &p->operands[0], 32, &a));
    vg_emit(d, nanosleep)->a = a;
    return OK;
}

// Virtual cycles: four per warp instruction the thread's warps have executed, and never standing
// still.
HANDLER(clock32) {
    w->cta->worker->clock += 4;
    uint64_t now = w->cta->worker->clock + 4 * w->warp_instrs;
    MAP(uint32_t, (uint32_t)(now >> i->imm));
}
HANDLER(clock64) {
    w->cta->worker->clock += 4;
    uint64_t now = w->cta->worker->clock + 4 * w->warp_instrs;
    MAP(uint64_t, now);
}

// mov from a clock: a root's row cannot tell, so exec_int.c asks here first.
Status VG_NAME(vg_decode_clock)(VgDecoder *d, const PtxInstr *p, bool *done) {
    static const struct { const char *name; VgHandler run; int bits, shift;
    } clocks[] = {
        { "%clock", clock32, 32, 0 },          { "%clock_hi", clock32, 32, 32 },
        { "%clock64", clock64, 64, 0 },        { "%globaltimer", clock64, 64, 0 },
        { "%globaltimer_lo", clock32, 32, 0 }, { "%globaltimer_hi", clock32, 32, 32 },
    };
    *done = false;
    if (p->n_operands != 2 || p->operands[1].kind != PTX_OP_SPECIAL) return OK;
    for (int k = 0; k < COUNT_OF(clocks); k++) {
        if (strcmp(p->operands[1].name, clocks[k].name)) continue;
        uint32_t r;
        TRY(vg_dst(d, &p->operands[0], clocks[k].bits, false, &r));
        VgInstr *i = vg_emit(d, clocks[k].run);
        i->d = r, i->imm = clocks[k].shift;
        *done = true;
    }
    return OK;
}

const VgRoot VG_NAME(vg_roots_warp)[] = {
    { "shfl", decode_shfl, "shfl{.sync}.{up,down,bfly,idx}.b32" },
    { "vote", decode_vote, "vote.sync.{all,any,uni}.pred, vote.sync.ballot.b32" },
    { "match", decode_match, "match.{any,all}.sync.{b32,b64}" },
    { "redux", decode_redux,
      "redux.sync.{add,min,max}.{u32,s32}, redux.sync.{and,or,xor}.b32, "
      "redux.sync.{min,max}{.abs}{.NaN}.f32" },
    { "elect", decode_elect, "elect.sync" },
    { "activemask", decode_activemask, "activemask.b32" },
    { "nanosleep", decode_nanosleep, "nanosleep.u32" },
    { NULL, NULL, NULL },
};
