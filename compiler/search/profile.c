// SPDX-License-Identifier: Apache-2.0
// A profile from probes of lowering. A probe lists the kernels and buffers of a step of one sequence on one
// rank; every quantity of it is a sum of what stays, what grows with tokens and what grows with rows of
// experts, so other microbatches, ep and capacities need no other probe. Layers whose products are equal are
// one class, and the middle one of a class stands for it: the first and last of a model join with what
// surrounds them.
#include "compiler/search/profile_private.h"

/* Seconds -------------------------------------------------------------------------------------- */

// Rows with pads between experts' (docs/layouts.md, "Rows at multiples"): room for the most there can be; of those that
// come an expert's last one is as likely anywhere.
static void add_pads(const Probe *probe, const CostChoice *c, Scale *s) {
    double align = c->row_align;
    if (!(align > 1)) return;
    double room = s->room * probe->rows, rows = s->rows * probe->rows, even = s->even * probe->rows;
    s->room = floor((room + fmin(room, s->groups) * (align - 1)) / align) * align / probe->rows;
    s->pads = 1 + fmin(rows, s->groups) * (align - 1) / 2 / rows;
    s->rows *= s->pads;
    s->even = (even + fmin(even, s->groups) * (align - 1) / 2) / probe->rows;
}

static Scale scale_of(const Profile *p, const Probe *probe, int32_t part, const CostChoice *c) {
    double tokens = (double)c->microbatch * p->base.sequence, chosen = tokens * p->base.top_k;
    Scale s = { .tokens = c->microbatch, .n_tokens = tokens, .room = c->microbatch, .rows = c->microbatch,
                .even = c->microbatch, .load = 1, .pads = 1, .first = 1 };
    double experts = p->experts[part];
    s.groups = experts / c->ep;
    if (!experts || !probe->rows) return s;
    if (c->ep == 1) {
        add_pads(probe, c, &s);
        return s;
    }
    double capacity = c->capacity > 0 ? c->capacity : p->base.capacity;
    bool dropless = !isfinite(capacity), rounds = dropless && c->round > 0 && isfinite(c->round);
    double room = ceil(fmin(rounds ? c->round : capacity, c->ep) * chosen);
    s.load = cost_imbalance(c->routing, tokens * c->ep, p->base.top_k, experts, c->ep);
    if (c->imbalance > 0 && c->routing != COST_UNIFORM) { // and what a microbatch's tokens happen to choose
        double chance = cost_imbalance(COST_RANDOM, tokens * c->ep, p->base.top_k, experts, c->ep);
        s.load = fmin(1 + hypot(c->imbalance - 1, chance - 1), c->ep);
    }
    if (!dropless) s.load = fmin(s.load, room / chosen); // else further rounds take the rest
    s.room = room / probe->rows;
    s.even = (dropless ? chosen : fmin(chosen, room)) / probe->rows;
    s.rows = s.even * s.load;
    if (rounds && s.load > c->round) {
        s.further = ceil(s.load / c->round) - 1;
        s.first = c->round / s.load;
        s.each = (1 - s.first) / s.further;
    }
    add_pads(probe, c, &s);
    return s;
}

static bool is_eighth(const CostChoice *c, const CostKernel *k, bool head) {
    if (c->precision != PRECISION_MXFP8 || head || k->precision != PRECISION_BF16) return false;
    if (k->class == COST_experts) return k->role != COST_WGRAD || c->habits & COST_NARROW_WGRAD;
    return k->class == COST_dense;
}

static CostKernel scaled(const PartKernel *from, const Scale *s, double rows, double probe_groups, bool whole) {
    CostKernel k = from->kernel;
    bool product = k.class == COST_dense || k.class == COST_experts;
    double groups = (k.class == COST_experts || from->rows == ROW_E) && probe_groups > 0 ? s->groups / probe_groups : 1;
    double grow = from->rows == ROW_R ? rows : from->rows == ROW_E ? groups : from->rows == ROW_NONE ? 1 : s->tokens;
    if (from->trips > 1) grow = whole ? from->trips * s->tokens : 1; // else more pieces, not larger ones
    if (product) {
        if (k.role == COST_WGRAD) k.k *= grow;
        else k.m *= grow;
        k.groups *= groups;
    } else {
        k.m *= grow;
    }
    k.flops *= grow;
    k.bytes = from->weights * groups + fmax(k.bytes - from->weights, 0) * grow;
    return k;
}

// Of one row as it crosses ranks. Rows that go by themselves are quantised before and dequantised after; in blocks
// only those that go to experts in forward are.
static double row_bytes(const CostChoice *c, CostPass pass, const CostKernel *k) {
    bool there = k->remote == COST_PUTS && (pass == PASS_forward || pass == PASS_again);
    bool eighth = c->precision == PRECISION_MXFP8 && !(c->habits & COST_WIDE_ROWS) &&
                  (c->transport != TRANSPORT_BLOCKS || there);
    return k->row_bytes * (eighth ? (1 + 1.0 / 32) / 2 : 1);
}

static double rows_seconds(const Profile *p, const CostChoice *c, const Scale *s, int32_t part, CostPass pass,
                           const CostKernel *k, double share) {
    CostRows rows = { .tokens = s->n_tokens * share, .top_k = p->base.top_k, .experts = p->experts[part],
                      .row_bytes = row_bytes(c, pass, k), .load = s->load, .combine = k->remote == COST_GETS,
                      .blocks = c->transport == TRANSPORT_BLOCKS, .whole = c->whole_blocks,
                      .part_tokens = s->n_tokens };
    CostGroup group = { c->ep, 1 };
    if (rows.blocks && c->habits & COST_ALL_TO_ALL)
        return cost_collective_s(p->cluster, COLLECTIVE_all_to_all, group,
                                 rows.tokens * rows.top_k * rows.row_bytes * rows.load);
    return cost_rows_s(p->cluster, group, &rows);
}

// Blocks come in order of ranks and experts want rows by expert, so either end copies rows in memory: what has come
// to a rank is read once and written for each of its experts, and the other way round. By an all-to-all of copies it
// is two permutations of all of them; in mxfp8, whose blocks are of 32 rows, all are copied once more, so that each
// expert's begin at a multiple (Megatron Core's TEGroupedMLP, Fp8Padding; blocks come so).
static double spread_s(const Profile *p, const CostChoice *c, const Scale *s, int32_t part, CostPass pass,
                       const CostKernel *k, double share) {
    if (c->transport != TRANSPORT_BLOCKS || c->ep <= 1) return 0;
    const CostDevice *d = &p->cluster->device;
    double top_k = p->base.top_k, bytes = row_bytes(c, pass, k) * s->n_tokens * share * s->load;
    bool copies = c->habits & COST_ALL_TO_ALL, pads = copies && c->precision == PRECISION_MXFP8;
    double moved = copies ? (1 + top_k) + 2 * top_k : cost_reached(p->experts[part], top_k, c->ep) + top_k;
    double padded = pads ? 2 * top_k * bytes / (d->bytes_per_s * d->stream) + d->launch_s : 0;
    return bytes * moved / (d->bytes_per_s * d->move) + (copies ? 2 : 1) * d->launch_s + padded;
}

// Operands of an expert's wgrad have come in eight bits, or are left so by forward, and are widened for it.
static double widen_s(const Profile *p, const CostChoice *c, const CostKernel *k) {
    bool narrow = c->precision != PRECISION_MXFP8 || c->habits & COST_NARROW_WGRAD;
    if (narrow || k->class != COST_experts || k->role != COST_WGRAD) return 0;
    const CostDevice *d = &p->cluster->device;
    return 3 * (k->m + k->n) * k->k / (d->bytes_per_s * d->stream) + 2 * d->launch_s;
}

static uint8_t precision_of(const CostChoice *c, const CostKernel *k, bool head) {
    if (is_eighth(c, k, head)) return PRECISION_MXFP8;
    bool router = k->class == COST_dense && k->precision == PRECISION_FP32 && c->precision != PRECISION_FP32;
    return router && c->habits & COST_SHORT_ROUTER ? PRECISION_BF16 : k->precision;
}

static double kernel_s(const Profile *p, const CostChoice *c, const Scale *s, const PartKernel *from,
                       double probe_groups, double rows, uint8_t precision) {
    CostKernel k = scaled(from, s, rows, probe_groups, c->habits & COST_WHOLE_HEAD);
    k.precision = precision;
    return cost_kernel_s(&p->cluster->device, &k) + widen_s(p, c, &k);
}

// What further rounds take of a kernel on rows of experts, or of one that moves them: less of it each, as often as there
// are rounds; of forward in backward once more.
static double add_further(const Profile *p, const CostChoice *c, const Scale *s, int32_t part, double probe_groups,
                          const PartKernel *from, uint8_t precision, CostPart *out) {
    double seconds = 0;
    if (from->rows == ROW_R) seconds = s->further * kernel_s(p, c, s, from, probe_groups, s->rows * s->each, precision);
    if (from->pass == PASS_forward) out->s[PASS_again][from->kernel.class] += seconds;
    if (!from->kernel.remote) return seconds;
    double moved = s->further * rows_seconds(p, c, s, part, (CostPass)from->pass, &from->kernel, s->each);
    double spread = s->further * spread_s(p, c, s, part, (CostPass)from->pass, &from->kernel, s->each);
    out->rows_s[from->pass] += moved;
    out->s[from->pass][COST_move] += spread;
    if (from->pass == PASS_forward) {
        out->rows_s[PASS_again] += moved;
        out->s[PASS_again][COST_move] += spread;
    }
    return seconds;
}

// What Megatron Core's TEGroupedMLP does between and behind its products, beside what a fused kernel would. The first
// product's result is clamped, gate and value by themselves, and put together again. Results of the second have
// weight x bias added, by expert, and are put together; in fp32, then rounded, where weights come so with their rows.
static void add_apart(const Profile *p, const CostChoice *c, int32_t part, double rows, CostPart *out) {
    const CostDevice *d = &p->cluster->device;
    bool wide = c->transport == TRANSPORT_BLOCKS && !(c->habits & COST_ALL_TO_ALL);
    double width = p->base.width, rate = d->bytes_per_s * d->stream;
    double inner = fmax(p->parameters[part].expert_other / p->experts[part] - width, 0); // biases of gate and value
    double forward = inner * (4 + 4) + width * (wide ? 4 + 10 + 8 + 6 : 2 + 6 + 4);
    double back = inner * (4 + 6) + width * (wide ? 6 + 6 + 4 + 12 + 12 : 6 + 6);
    out->s[PASS_forward][COST_row] += rows * forward / rate + 6 * d->launch_s;
    if (c->recompute != RECOMPUTE_NONE) out->s[PASS_again][COST_row] += rows * inner * (4 + 4) / rate + 3 * d->launch_s;
    out->s[PASS_dgrad][COST_row] += rows * back / rate + 7 * d->launch_s;
}

// What Megatron Core's _apply_rotary_pos_emb_bshd does beside what one kernel would, which reads and writes 2 bytes a
// number. Forward: times cosines 4, half negated 2, halves joined 4, times sines 4, added 6, joined with nothing 4. Back:
// times cosines 4, times sines 4, half negated 2, halves joined 4, added 6; zeros for what was nothing 2, added 6.
static void add_turned(const Profile *p, const CostChoice *c, const Scale *s, int32_t part, CostPart *out) {
    const CostDevice *d = &p->cluster->device;
    double numbers = s->n_tokens * p->turned[part].numbers, rate = d->bytes_per_s * d->stream;
    double launches = p->turned[part].tensors * d->launch_s;
    double forward = numbers * (24 - 4) / rate + 5 * launches, back = numbers * (28 - 4) / rate + 6 * launches;
    out->s[PASS_forward][COST_row] += forward;
    if (c->recompute == RECOMPUTE_BLOCK) out->s[PASS_again][COST_row] += forward;
    out->s[PASS_dgrad][COST_row] += back;
}

static void add_kernel(const Profile *p, const CostChoice *c, const Scale *s, int32_t part, double probe_groups,
                       const PartKernel *from, CostPart *out) {
    bool whole = c->habits & COST_WHOLE_HEAD, head = part == cost_part_after(&p->base) || part == cost_part_before(&p->base);
    CostKernel k = scaled(from, s, s->rows, probe_groups, whole);
    double trips = from->trips > 1 && !whole ? from->trips * s->tokens : 1;
    k.precision = precision_of(c, &k, head);
    double seconds = trips * kernel_s(p, c, s, from, probe_groups, s->rows * s->first, k.precision);
    if (s->further > 0 && (from->rows == ROW_R || k.remote))
        seconds += add_further(p, c, s, part, probe_groups, from, k.precision, out);
    if (from->packs) {
        out->packs_s += seconds;
        return;
    }
    if (k.remote) {
        double rows_s = rows_seconds(p, c, s, part, (CostPass)from->pass, &k, s->first);
        out->rows_s[from->pass] += rows_s;
        if (c->transport != TRANSPORT_BLOCKS) seconds = cost_remote_s(&p->cluster->device, &k, rows_s);
        else seconds += spread_s(p, c, s, part, (CostPass)from->pass, &k, s->first);
    }
    out->s[from->pass][k.class] += seconds;
    if (from->rows == ROW_R && s->rows > s->even)
        out->imbalance_s[from->pass] += seconds - trips * kernel_s(p, c, s, from, probe_groups, s->even, k.precision);
    bool counted = k.class == COST_attention || ((k.class == COST_dense || k.class == COST_experts) &&
                                                 k.role == COST_FORWARD);
    if (from->pass == PASS_forward && counted) out->flops += 3 * trips * k.flops / (from->rows == ROW_R ? s->load * s->pads : 1);
}

// What no layout may leave out (compiler/layout/check.c): one rank drops nothing, others leave every expert a row.
static bool has_room(const Profile *p, int32_t part, const CostChoice *c) {
    double experts = p->experts[part], capacity = c->capacity > 0 ? c->capacity : p->base.capacity;
    if (!experts || !isfinite(capacity)) return true;
    if (c->ep == 1) return capacity >= 1;
    double rows = ceil(fmin(capacity, c->ep) * (double)c->microbatch * p->base.sequence * p->base.top_k);
    return rows >= floor(experts / c->ep);
}

/* A choice ------------------------------------------------------------------------------------- */

static bool compute(Profile *p, int32_t part, const CostChoice *c, CostPart *out) {
    *out = (CostPart){ 0 };
    double experts = p->experts[part];
    if (c->microbatch < 1 || c->ep < 1 || (experts && fmod(experts, c->ep) != 0) || (!p->base.experts && c->ep > 1))
        return false;
    if (c->precision == PRECISION_MXFP8 && p->cluster->device.matmul[PRECISION_MXFP8].flop_per_s <= 0) return false;
    if (!has_room(p, part, c)) return false;
    const Probe *probe = profile_probe(p, c);
    if (!probe->made) return false;
    const ProbePart *from = &probe->parts[part];
    Scale s = scale_of(p, probe, part, c);
    // A part may hold memory for a neighbour's experts, so the model's count.
    double probe_groups = c->ep > 1 ? experts / profile_ranks(p) : experts;
    s.experts = c->ep > 1 ? (double)profile_ranks(p) / c->ep : 1;
    for (uint32_t i = 0; i < from->n_kernels; i++)
        add_kernel(p, c, &s, part, probe_groups, &from->kernels[i], out);
    if (c->habits & COST_BIAS_APART && experts && p->parameters[part].expert_other > 0)
        add_apart(p, c, part, s.rows * probe->rows, out);
    if (c->habits & COST_ROPE_APART) add_turned(p, c, &s, part, out);
    profile_memory(p, from, part, c, &s, out);
    const CostPart *n = &p->parameters[part];
    out->dense_matrix = n->dense_matrix, out->dense_other = n->dense_other;
    out->expert_matrix = n->expert_matrix / c->ep, out->expert_other = n->expert_other / c->ep;
    out->dense_largest = n->dense_largest, out->expert_largest = n->expert_largest / c->ep;
    return true;
}

/* What has been asked -------------------------------------------------------------------------- */

static uint64_t memo_slot(const Profile *p, int32_t part, const CostChoice *c) {
    uint64_t bits[3];
    memcpy(bits, (double[]){ c->capacity, c->round, c->imbalance }, sizeof bits);
    uint64_t rooms = hash_mix(bits[0], bits[1], bits[2]);
    uint64_t small = (uint64_t)c->precision << 40 | (uint64_t)c->habits << 32 | (uint64_t)c->recompute << 24 |
                     (uint64_t)c->alone << 21 | (uint64_t)c->whole_blocks << 20 | (uint64_t)c->transport << 16 |
                     (uint64_t)c->params << 12 | (uint64_t)c->expert_params << 8 | c->routing;
    return hash_mix((uint64_t)part << 32 ^ small ^ (uint64_t)c->row_align << 48, (uint64_t)c->microbatch << 32 | (uint32_t)c->ep, rooms) &
           (p->cap_memo - 1);
}

static bool same_choice(const CostChoice *a, const CostChoice *b) {
    return a->microbatch == b->microbatch && a->ep == b->ep && a->precision == b->precision &&
           a->recompute == b->recompute && a->transport == b->transport && a->whole_blocks == b->whole_blocks &&
           a->params == b->params && a->expert_params == b->expert_params && a->routing == b->routing &&
           a->habits == b->habits && a->alone == b->alone && a->capacity == b->capacity &&
           a->round == b->round && a->imbalance == b->imbalance && a->row_align == b->row_align;
}

static Memo *memo_at(Profile *p, int32_t part, const CostChoice *c) {
    uint64_t at = memo_slot(p, part, c);
    while (p->memo[at].part && !(p->memo[at].part == part + 1 && same_choice(&p->memo[at].choice, c)))
        at = (at + 1) & (p->cap_memo - 1);
    return &p->memo[at];
}

static void memo_grow(Profile *p) {
    Memo *old = p->memo;
    uint32_t n = p->cap_memo;
    p->cap_memo = n ? n * 2 : 256;
    p->memo = ARENA_ARRAY(p->arena, Memo, p->cap_memo);
    for (uint32_t i = 0; i < n; i++) {
        if (old[i].part) *memo_at(p, old[i].part - 1, &old[i].choice) = old[i];
    }
}

bool profile_part(const CostProfile *base, int32_t part, const CostChoice *choice, CostPart *out) {
    Profile *p = base->user;
    if (2 * p->n_memo >= p->cap_memo) memo_grow(p);
    Memo *memo = memo_at(p, part, choice);
    if (!memo->part) {
        p->n_memo++;
        memo->part = part + 1;
        memo->choice = *choice;
        memo->possible = compute(p, part, choice, &memo->value);
    }
    *out = memo->value;
    return memo->possible;
}
