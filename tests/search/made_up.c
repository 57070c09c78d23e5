// SPDX-License-Identifier: Apache-2.0
#include "tests/search/made_up.h"

#include <math.h>

static double draw(const MadeUp *m, uint64_t what, double low, double high) {
    return low + (high - low) * (double)hash_uniform(m->seed, what, 0);
}

static int32_t pick(const MadeUp *m, uint64_t what, int32_t n) {
    return (int32_t)(hash_mix(m->seed, what, 1) % (uint64_t)n);
}

static double bandwidth(const MadeUp *m, int64_t ranks) {
    return ranks <= m->node ? m->fast : m->slow;
}

// Time of compute and talk together.
static double together(const MadeUp *m, const SearchChoice *c, double compute, double talk) {
    return c->overlap ? compute * 1.05 + fmax(talk * (1 - m->hidden), talk - compute) : compute + talk;
}

static bool made_up_part(const void *user, const SearchChoice *c, int32_t part, SearchLayer *out) {
    const MadeUp *m = user;
    const MadeUpClass *k = &m->classes[part];
    bool layer = part < m->profile.n_classes;
    int64_t edp = c->dp / c->ep;
    double b = c->microbatch, speed = c->precision == 3 ? 0.6 : 1;
    double uneven = 1 + 0.05 * log2(c->ep) * (c->placement ? 0.5 : 1);
    double rows = k->expert_s > 0 ? b * k->row_bytes * (c->ep - 1) / c->ep / bandwidth(m, c->ep) : 0;
    if (c->transport) rows = rows * 0.7 + 2e-5;
    double gather = 0, step = 0, dense_all = k->dense_n, expert_all = k->expert_n / c->ep;
    if (c->params == PARAMS_FSDP) gather += 3 * 4 * dense_all / bandwidth(m, c->dp);
    else if (c->dp > 1) step += 8 * dense_all / bandwidth(m, c->dp);
    if (c->expert_params == PARAMS_FSDP) gather += 3 * 4 * expert_all / bandwidth(m, c->dp);
    else if (edp > 1) step += 8 * expert_all / bandwidth(m, c->dp);
    // Small microbatches are slow.
    bool rounds = c->ep > 1 && !isfinite(c->capacity ? c->capacity : m->profile.capacity);
    if (rounds && c->round < c->ep) uneven *= 1 + 0.1 / c->round; // what does not fit is computed again
    double forward = (b + 0.3) * (k->dense_s + k->expert_s * uneven) * speed;
    *out = (SearchLayer){ .forward_s = forward, .wgrad_s = forward };
    double whole = together(m, c, 3 * forward, 4 * rows + gather);
    out->seconds[RECOMPUTE_NONE] = whole;
    out->seconds[RECOMPUTE_CHEAP] = layer ? whole + forward * k->cheap_s : INFINITY;
    out->seconds[RECOMPUTE_BLOCK] = layer ? whole + together(m, c, forward, 2 * rows) : INFINITY;
    if (!layer) out->seconds[0] = whole;
    double room = c->capacity ? c->capacity : m->profile.capacity;
    if (!isfinite(room)) room = c->round;
    double saved = b * k->saved_bytes * (k->expert_s > 0 ? 0.5 + 0.5 * fmin(room, c->ep) : 1);
    out->saved_bytes[RECOMPUTE_NONE] = saved;
    out->saved_bytes[RECOMPUTE_CHEAP] = saved * (1 - k->cheap_saves);
    out->saved_bytes[RECOMPUTE_BLOCK] = saved * (1 - k->block_saves);
    if (!layer) out->saved_bytes[0] = saved * 0.1;
    out->transient_bytes[RECOMPUTE_NONE] = 0.3 * saved;
    out->transient_bytes[RECOMPUTE_CHEAP] = 0.35 * saved;
    out->transient_bytes[RECOMPUTE_BLOCK] = 1.1 * saved;
    if (!layer) out->transient_bytes[0] = 0.8 * saved;
    for (int r = 0; r < SEARCH_RECOMPUTES; r++) {
        out->wait_bytes[r] = saved * k->waits * (r == RECOMPUTE_NONE ? 0.8 : 1);
        out->both_bytes[r] = 0.6 * fmin(out->wait_bytes[r], out->saved_bytes[r]);
        out->late_bytes[r] = 0.8 * out->transient_bytes[r];
    }
    // Gathered weights, and with overlap those that come next.
    double gathered = (c->params == PARAMS_FSDP ? 4 * dense_all : 0) + (c->expert_params == PARAMS_FSDP ? 4 * expert_all : 0);
    for (int r = 0; r < SEARCH_RECOMPUTES; r++) {
        out->transient_bytes[r] += gathered * (c->overlap ? 2 : 1);
        out->late_bytes[r] += gathered;
    }
    double dense = c->params == PARAMS_FSDP ? 16.0 / c->dp : 8 + 12.0 / c->dp;
    double expert = c->expert_params == PARAMS_FSDP ? 16.0 / (double)edp : 8 + 12.0 / (double)edp;
    if (edp > 1 && c->expert_params != PARAMS_FSDP) out->update_bytes = k->ends * expert_all;
    out->state_bytes = dense * dense_all + expert * expert_all;
    out->step_s = step + (dense_all / c->dp + expert_all / (double)edp) * 28 / (20 * m->fast);
    return true;
}

static bool made_up_rest(const void *user, const SearchChoice *c, SearchRest *out) {
    const MadeUp *m = user;
    double bytes = c->microbatch * m->classes[0].row_bytes;
    *out = (SearchRest){ .boundary_bytes = bytes, .fixed_bytes = 1e9 };
    if (c->pp == 1) return true;
    out->send_s = 1e-5 + bytes / bandwidth(m, (int64_t)c->dp * 2);
    out->sent_s = c->overlap ? 1e-5 : 2 * out->send_s;
    return true;
}

static void made_up_class(MadeUp *m, int32_t i, bool experts) {
    MadeUpClass *k = &m->classes[i];
    uint64_t at = 100 + 20 * (uint64_t)i;
    k->dense_s = draw(m, at, 1e-3, 4e-3);
    k->expert_s = experts ? draw(m, at + 1, 1e-3, 6e-3) : 0;
    k->dense_n = draw(m, at + 2, 2e7, 3e8);
    k->expert_n = experts ? draw(m, at + 3, 3e8, 8e9) : 0;
    k->saved_bytes = draw(m, at + 4, 2e8, 4e9);
    k->row_bytes = draw(m, at + 5, 3e7, 3e8);
    k->cheap_s = draw(m, at + 6, 0.02, 0.3);
    k->cheap_saves = draw(m, at + 7, 0.1, 0.5);
    k->block_saves = draw(m, at + 8, 0.7, 0.97);
    k->ends = pick(m, at + 10, 3) ? 0 : draw(m, at + 11, 1, 4);
    k->waits = draw(m, at + 9, 0.3, 1.5);
}

static void made_up_start(MadeUp *m, uint64_t seed, int32_t layers) {
    *m = (MadeUp){ .seed = seed };
    m->node = pick(m, 1, 2) ? 8 : 4;
    m->fast = draw(m, 2, 1e11, 9e11);
    m->slow = m->fast / draw(m, 3, 2, 20);
    m->hidden = draw(m, 4, 0.3, 1);
    static const double sharing[] = { 0, 1, 1, 1.3, 2 };
    m->profile = (SearchProfile){ .n_layers = layers, .class_of = m->class_of, .experts = m->experts,
                                  .sharing = sharing[pick(m, 6, COUNT_OF(sharing))], .part = made_up_part, .rest = made_up_rest, .user = m };
}

static void made_up_rest_classes(MadeUp *m, int32_t classes) {
    m->profile.n_classes = classes;
    for (int32_t i = 0; i < 2; i++) {
        MadeUpClass *k = &m->classes[classes + i];
        made_up_class(m, classes + i, false);
        k->dense_s *= i ? draw(m, 5, 0.1, 1.5) : 0.02;
        k->saved_bytes *= i ? 1 : 0.1;
    }
}

void made_up_small(MadeUp *m, uint64_t seed) {
    static const int32_t ranks[] = { 2, 4, 6, 8, 12, 16, 24, 32, 48, 64 };
    MadeUp probe = { .seed = seed };
    made_up_start(m, seed, 3 + pick(&probe, 6, 4));
    int32_t classes = 1 + pick(m, 7, MADE_UP_CLASSES), dense = pick(m, 8, 3);
    for (int32_t i = 0; i < m->profile.n_layers; i++)
        m->class_of[i] = (uint8_t)(classes == 1 ? 0 : i < dense ? 0 : 1 + i % (classes - 1));
    for (int32_t i = 0; i < classes; i++) made_up_class(m, i, classes == 1 || i > 0);
    made_up_rest_classes(m, classes);
    m->experts[0] = 8 << pick(m, 9, 4);
    m->profile.n_experts = 1;
    SearchSpace *s = &m->space;
    s->ranks = ranks[pick(m, 10, COUNT_OF(ranks))];
    s->sequences = s->ranks * (1 + pick(m, 11, 4)) * (1 + pick(m, 12, 4));
    s->memory_bytes = (int64_t)draw(m, 13, 8e9, 1.2e11);
    s->most_microbatch = 2 << pick(m, 14, 2);
    s->schedules = (uint8_t)(1 + pick(m, 15, 7));
    s->schedules |= 1 << SCHEDULE_1F1B;
    s->params = (uint8_t)(1 + pick(m, 16, 3));
    s->expert_params = (uint8_t)(1 + pick(m, 17, 3));
    s->transports = (uint8_t)(1 + pick(m, 18, 2));
    s->overlaps = (uint8_t)(1 + pick(m, 19, 3));
    s->recomputes = (uint8_t)(pick(m, 20, 3) ? 7 : 1 + pick(m, 20, 7));
    s->placements = 1 + !pick(m, 21, 4);
    s->precisions[0] = 2;
    s->n_precisions = 1;
    if (!pick(m, 22, 6)) s->precisions[s->n_precisions++] = 3;
    s->capacities[0] = 0;
    s->n_capacities = 1;
    if (!pick(m, 23, 6)) s->capacities[s->n_capacities++] = 2;
    if (!pick(m, 24, 6)) s->capacities[s->n_capacities++] = INFINITY;
    m->profile.capacity = pick(m, 25, 2) ? INFINITY : 1.25;
    static const double rounds[] = { INFINITY, 1.25, 4, 2 };
    s->n_rounds = pick(m, 26, 3) ? 1 : 1 + pick(m, 27, 4);
    for (int32_t i = 0, first = pick(m, 28, 4); i < s->n_rounds; i++) s->rounds[i] = rounds[(first + i) % 4];
}

void made_up_large(MadeUp *m, uint64_t seed, int32_t layers, int32_t dense, int32_t experts, int64_t ranks,
                   int64_t sequences) {
    made_up_start(m, seed, layers);
    for (int32_t i = 0; i < layers; i++) m->class_of[i] = i >= dense;
    for (int32_t i = 0; i < 2; i++) made_up_class(m, i, i > 0);
    made_up_rest_classes(m, 2);
    m->experts[0] = experts;
    m->profile.n_experts = 1;
    m->space = (SearchSpace){ .ranks = ranks, .sequences = sequences, .memory_bytes = 180000000000,
                              .precisions = { 2 }, .n_precisions = 1 };
}
