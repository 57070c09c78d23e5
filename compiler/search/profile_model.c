// SPDX-License-Identifier: Apache-2.0
// A profile's model: which layers are alike (classes), how many parameters parts have, and the model of few layers that
// is probed in its stead.
#include <stdlib.h>

#include "compiler/search/profile_private.h"

/* Classes and parameters ----------------------------------------------------------------------- */

static uint64_t mix_kernel(uint64_t h, const CostKernel *k, const KernelDesc *d) {
    h = hash_mix(h, (uint64_t)d->family << 32 | (uint32_t)k->groups, (uint64_t)k->m);
    h = hash_mix(h, (uint64_t)k->n, (uint64_t)k->k);
    return hash_mix(h, (uint64_t)d->window, (uint64_t)d->heads << 32 | (uint32_t)d->kv_heads);
}

typedef struct Signatures { uint64_t *of, *looks; double *experts; int32_t n; } Signatures;

static void sign(void *user, const ProbeKernel *at) {
    Signatures *s = user;
    CostKernel k;
    cost_of_kernel(at->desc, 1, &k);
    bool product = k.class == COST_dense || k.class == COST_experts || k.class == COST_attention;
    if (at->backward || at->layer < 0 || at->layer >= s->n) return;
    uint64_t h = mix_kernel(0, &k, at->desc), flops = (uint64_t)k.flops, bytes = (uint64_t)k.bytes;
    s->looks[at->layer] += hash_mix(h, flops, bytes); // whatever their order
    if (!product) return;
    s->of[at->layer] += h;
    if (k.class == COST_experts) s->experts[at->layer] = at->desc->experts;
}

static void ignore_buffer(void *user, const ProbeBuffer *buffer) {
    (void)user;
    (void)buffer;
}

static void choose_middles(Profile *p) {
    int32_t *count = ARENA_ARRAY(p->arena, int32_t, p->base.n_classes + 1);
    int32_t *seen = ARENA_ARRAY(p->arena, int32_t, p->base.n_classes + 1);
    for (int32_t i = 0; i < p->base.n_layers; i++) count[p->class_of[i]]++;
    for (int32_t i = 0; i < p->base.n_layers; i++) {
        int32_t class = p->class_of[i];
        if (seen[class]++ == count[class] / 2) p->middle[class] = i;
    }
}

static bool find_classes(Profile *p, bool whole) {
    int32_t n = p->base.n_layers;
    p->looks = ARENA_ARRAY(p->arena, uint64_t, n + 1);
    Signatures s = { ARENA_ARRAY(p->arena, uint64_t, n + 1), p->looks, ARENA_ARRAY(p->arena, double, n + 1), n };
    Layout layout = layout_single();
    LowerOptions options = { .microbatch = 1, .microbatches = 1, .target = p->target, .layout = &layout,
                             .precision = PRECISION_BF16 };
    layout.microbatch = 1;
    layout.capacity = 1; // one rank drops nothing
    LowerProbe probe = { .kernel = sign, .buffer = ignore_buffer, .user = &s };
    if (!lower_probe(p->model, &options, &probe)) return false;
    p->class_of = ARENA_ARRAY(p->arena, int32_t, n + 1);
    p->middle = ARENA_ARRAY(p->arena, int32_t, n + 1);
    p->experts = ARENA_ARRAY(p->arena, double, n + 2);
    for (int32_t i = 0; i < n; i++) {
        int32_t k = 0;
        while (k < i && s.of[k] != s.of[i]) k++;
        p->class_of[i] = k < i ? p->class_of[k] : p->base.n_classes++;
        p->experts[p->class_of[i]] = s.experts[i];
        p->base.experts = fmax(p->base.experts, s.experts[i]);
    }
    choose_middles(p);
    p->whole = whole;
    return true;
}

// Experts beyond the layers (multi-token prediction) are those of the last part.
static void count_parameters(Profile *p) {
    const Model *m = p->model;
    p->parameters = ARENA_ARRAY(p->arena, CostPart, p->base.n_classes + 2);
    for (uint32_t i = 0; i < m->n_params; i++) {
        const Param *param = &m->params[i];
        const char *name = model_name(m, param->addr);
        if (param->is_state || !param->node) continue;
        int32_t layer = !strncmp(name, "layers.", 7)     ? atoi(name + 7) - 1
                        : !strncmp(name, "embedding", 9) ? -1
                                                         : m->n_layers;
        int32_t part = part_of(p, p->middle, layer);
        const Type *t = model_type(m, param->node);
        double n = (double)type_features(t) * (t->row == ROW_E ? model_experts(m, t) : 1);
        *(t->row == ROW_E ? &p->base.expert_numbers : &p->base.dense_numbers) += n;
        if (part < 0) continue;
        CostPart *to = &p->parameters[part];
        if (t->row == ROW_E) p->experts[part] = model_experts(m, t);
        double *largest = t->row == ROW_E ? &to->expert_largest : &to->dense_largest;
        *largest = fmax(*largest, n);
        *(t->row == ROW_E ? (param->is_weight ? &to->expert_matrix : &to->expert_other)
                          : (param->is_weight ? &to->dense_matrix : &to->dense_other)) += n;
    }
}

static void find_turned(Profile *p) {
    const Model *m = p->model;
    p->turned = ARENA_ARRAY(p->arena, Turned, p->base.n_classes + 2);
    for (uint32_t n = 1; n < m->n_nodes; n++) {
        const Node *node = &m->nodes[n];
        const char *name = model_name(m, node->addr);
        if (node->op != OP_ROTATE || node->attr.turn.factor == 1 || strncmp(name, "layers.", 7)) continue;
        int32_t part = part_of(p, p->middle, atoi(name + 7) - 1);
        if (part < 0) continue;
        p->turned[part].numbers += (double)type_features(&node->type);
        p->turned[part].tensors++;
    }
}

static void find_routes(Profile *p) {
    const Model *m = p->model;
    p->base.capacity = INFINITY;
    for (uint32_t n = 1; n < m->n_nodes; n++) {
        if (m->nodes[n].op != OP_ROUTE) continue;
        Type rows = { .row = ROW_R, .route = n };
        p->base.top_k = fmax(p->base.top_k, model_top_k(m, &rows));
        if (m->nodes[n].attr.route.capacity > 0) p->base.capacity = m->nodes[n].attr.route.capacity;
    }
}

/* Fewer layers -------------------------------------------------------------------------------- */

// Whether layers i and j, and those up to `near` layers away, compute the same; the ends of the model count.
static bool alike(const Profile *p, int32_t i, int32_t j, int32_t near) {
    for (int32_t k = -near; k <= near; k++) {
        bool here = i + k >= 0 && i + k < p->base.n_layers, there = j + k >= 0 && j + k < p->base.n_layers;
        if (here != there || (here && p->looks[i + k] != p->looks[j + k])) return false;
    }
    return true;
}

// The model with the first and last layers and, of each class, the first one around which all is as around the middle
// one: layers show in others that are near.
static void choose_few(Profile *p, int32_t near, Few *out) {
    int32_t n = p->base.n_layers, left = 0;
    bool *without = ARENA_ARRAY(p->arena, bool, n + 1);
    *out = (Few){ p->model, ARENA_ARRAY(p->arena, int32_t, p->base.n_classes + 1) };
    for (int32_t i = near + 1; i < n - 1 - near; i++) without[i] = true;
    for (int32_t k = 0; k < p->base.n_classes; k++) {
        int32_t *middle = &out->middle[k];
        while (!alike(p, *middle, p->middle[k], near)) ++*middle;
        for (int32_t i = *middle - near; i <= *middle + near; i++)
            if (i >= 0 && i < n) without[i] = false;
    }
    for (int32_t i = 0; i < n; i++) left += !without[i];
    Model *few = left < n ? model_without_layers(p->model, without) : NULL;
    if (few) out->model = p->made[p->n_made++] = few;
    else memcpy(out->middle, p->middle, sizeof *out->middle * (size_t)p->base.n_classes);
}

// How far away layers may show in one. Gathers begin ahead, as many as come to the bytes of the largest, which may be
// many times a layer's (overlap.c).
enum { NEAR = 3 };

Few *profile_few(Profile *p, const CostChoice *choice) {
    bool ahead = choice->params && !choice->alone;
    Few *few = &p->few[ahead];
    if (few->model) return few;
    double most = 0, least = INFINITY;
    for (int32_t i = 0; i < p->base.n_classes + 2; i++) {
        double n = p->parameters[i].dense_matrix + p->parameters[i].dense_other;
        most = fmax(most, n);
        if (i < p->base.n_classes) least = fmin(least, n);
    }
    int32_t near = ahead ? NEAR + (int32_t)fmin(2 * most / least, p->base.n_layers) : NEAR;
    choose_few(p, p->whole ? p->base.n_layers : near, few);
    return few;
}

/* Making one ----------------------------------------------------------------------------------- */

static CostProfile *create(Model *model, const CostCluster *cluster, bool whole) {
    Arena *arena = arena_create();
    Profile *p = ARENA_NEW(arena, Profile);
    p->arena = arena;
    p->model = model;
    p->cluster = cluster;
    p->target = strcmp(cluster->device.arch, "cpu") ? arena_printf(arena, "cuda:%s", cluster->device.arch) : "cpu";
    p->base = (CostProfile){ .model = model->name, .n_layers = model->n_layers, .sequence = model->sequence,
                             .vocab = model->vocab, .width = model->width, .part = profile_part, .user = p };
    if (!find_classes(p, whole)) {
        arena_destroy(arena);
        return NULL;
    }
    p->base.class_of = p->class_of;
    find_routes(p);
    find_turned(p);
    count_parameters(p);
    Counts counts = model_counts(model);
    p->base.flops_per_token = counts.train_flops_per_token + counts.router_flops_per_token;
    return &p->base;
}

CostProfile *profile_create(Model *model, const CostCluster *cluster) {
    return create(model, cluster, false);
}

CostProfile *profile_create_whole(Model *model, const CostCluster *cluster) {
    return create(model, cluster, true);
}

CostProfile *profile_on(const CostProfile *profile, const CostCluster *cluster) {
    Arena *arena = arena_create();
    Profile *p = ARENA_NEW(arena, Profile);
    *p = *(const Profile *)profile->user;
    p->arena = arena;
    p->cluster = cluster;
    p->base.user = p;
    p->n_made = 0;
    p->memo = NULL;
    p->n_memo = p->cap_memo = 0;
    return &p->base;
}

void profile_destroy(CostProfile *profile) {
    if (!profile) return;
    Profile *p = profile->user;
    while (p->n_made) model_destroy(p->made[--p->n_made]);
    arena_destroy(p->arena);
}
