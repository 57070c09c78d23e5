// SPDX-License-Identifier: Apache-2.0
// Modules: parse, place variables, decode functions, describe kernels.
//
// Order matters: functions get addresses first (initialisers name them), then variables get memory,
// then initialisers are written, then bodies are decoded (they hold addresses as constants).
#include <stdlib.h>

#include "runtime/vgpu/decode.h"

static Status check_target(const VgModule *m) {
    const char *t = m->ptx->target, *have = m->device->arch;
    int cc = 0;
    if (strncmp(t, "sm_", 3) || !(cc = atoi(t + 3)))
        return status_fail(ERR_INPUT, "PTX target '%s' is not of the form sm_NN", t);
    size_t n = strlen(t);
    bool exact = t[n - 1] == 'a', family = t[n - 1] == 'f';
    if (exact && strcmp(t, have))
        return status_fail(ERR_INPUT, "PTX for %s runs only on it, the device is %s\n"
                           "  hint: compile for %s or open the device as %s", t, have, have, t);
    if (family && cc / 10 != m->device->cc / 10)
        return status_fail(ERR_INPUT, "PTX for %s runs only on its family, the device is %s", t,
                           have);
    if (cc > m->device->cc)
        return status_fail(ERR_INPUT,
                           "PTX for %s needs a newer device than %s\n  hint: compile for %s", t,
                           have, have);
    return OK;
}

static Status place_var(VgModule *m, PtxVar *v) {
    if (v->space != PTX_GLOBAL && v->space != PTX_CONST) return OK;
    uint64_t bytes = ptx_var_bytes(v);
    if (!bytes && v->is_extern) return OK;
    uint32_t align = ptx_var_align(v);
    uint64_t va;
    TRY(vg_mem_alloc(m->device->memory, v->space == PTX_CONST ? VG_CONST : VG_GLOBAL,
                     bytes ? bytes : 1, align, v->name, &va));
    v->user = (int64_t)va;
    *ARENA_PUSH(m->arena, m->vas, m->n_vas, m->cap_vas) = va;
    return OK;
}

static Status init_var(VgModule *m, PtxVar *v) {
    if (v->user < 0 || (v->space != PTX_GLOBAL && v->space != PTX_CONST)) return OK;
    uint64_t bytes = 0, at = 0;
    if (!ptx_var_bytes(v)) return OK;
    TRY(vg_mem_zero_rest(m->device->memory, (uint64_t)v->user));
    for (uint32_t k = 0; k < v->n_inits; k++) bytes += v->inits[k].bytes;
    if (!bytes) return OK;
    uint8_t *image = calloc(1, bytes);
    if (!image) return status_fail(ERR_MEMORY, "no memory to initialise '%s'", v->name);
    Status status = OK;
    for (uint32_t k = 0; k < v->n_inits && status == OK; k++) {
        const PtxInit *e = &v->inits[k];
        uint64_t value = e->bits;
        if (e->symbol) {
            PtxVar *other = ptx_find_var(m->ptx, e->symbol);
            PtxFunc *f = other ? NULL : ptx_find_func(m->ptx, e->symbol);
            if (other && other->user >= 0) value += (uint64_t)other->user;
            else if (f && f->user) value += ((VgFunc *)f->user)->va;
            else
                status = status_fail(ERR_INPUT,
                                     "PTX line %u: the initialiser of '%s' names '%s', which "
                                     "has no address",
                                     v->line, v->name, e->symbol);
        }
        value >>= e->mask_shift;
        memcpy(image + at, &value, e->bytes > 8 ? 8 : e->bytes);
        at += e->bytes;
    }
    if (status == OK) status = vg_mem_write(m->device->memory, (uint64_t)v->user, image, bytes);
    free(image);
    return status;
}

static Status make_functions(VgModule *m) {
    m->funcs = ARENA_ARRAY(m->arena, VgFunc *, m->ptx->n_funcs);
    for (uint32_t k = 0; k < m->ptx->n_funcs; k++) {
        PtxFunc *f = m->ptx->funcs[k];
        if (!f->has_body) continue;
        VgFunc *func = ARENA_NEW(m->arena, VgFunc);
        func->ptx = f;
        func->module = m;
        func->va = VG_CODE_WINDOW + 16 * ++m->device->functions;
        f->user = func;
        m->funcs[k] = func;
    }
    return OK;
}

static uint32_t place_shared(uint32_t *at, PtxVar *v) {
    uint32_t align = ptx_var_align(v);
    *at = (uint32_t)round_up(*at, align ? align : 1);
    v->user = *at;
    *at += (uint32_t)ptx_var_bytes(v);
    return align;
}

static bool is_dynamic(const PtxVar *v) { return v->array && !v->count; }

// Module-scope shared variables lie at the start of every kernel's static part, then those of
// bodies (all functions share one numbering: each may be called from each kernel).
static Status place_shared_all(VgModule *m) {
    enum { LARGEST = 1 << 24 };
    uint32_t at = 0;
    for (uint32_t k = 0; k < m->ptx->n_vars; k++) {
        PtxVar *v = m->ptx->vars[k];
        if (v->space != PTX_SHARED || is_dynamic(v)) continue;
        if (ptx_var_bytes(v) > LARGEST || at > LARGEST)
            return status_fail(ERR_INPUT, "PTX line %u: '%s' does not fit shared memory", v->line,
                               v->name);
        place_shared(&at, v);
    }
    for (uint32_t k = 0; k < m->ptx->n_funcs; k++) {
        PtxFunc *f = m->ptx->funcs[k];
        for (uint32_t n = 0; n < f->n_vars && !f->is_entry; n++)
            if (f->vars[n]->space == PTX_SHARED && !is_dynamic(f->vars[n]))
                place_shared(&at, f->vars[n]);
    }
    m->shared_bytes = at;
    return OK;
}

static Status place_body_vars(VgModule *m) {
    for (uint32_t k = 0; k < m->ptx->n_funcs; k++) {
        PtxFunc *f = m->ptx->funcs[k];
        for (uint32_t n = 0; n < f->n_vars; n++) TRY(place_var(m, f->vars[n]));
    }
    return OK;
}

// Stack of calls: bytes of local memory that calls from `f` may need; recursion gets the device's
// limit.
static uint32_t stack_bytes(VgModule *m, const VgFunc *f) {
    uint32_t most = 0;
    for (uint32_t k = 0; k < m->ptx->n_funcs; k++)
        if (m->funcs[k] && !m->ptx->funcs[k]->is_entry) most += m->funcs[k]->local_bytes;
    return f->calls ? most + m->device->stack_limit : 0;
}

static bool uses_reserved(const VgModule *m, const VgFunc *f) {
    bool used = f->reserved;
    for (uint32_t k = 0; f->calls && k < m->ptx->n_funcs; k++)
        used |= m->funcs[k] && !m->ptx->funcs[k]->is_entry && m->funcs[k]->reserved;
    return used;
}

static uint32_t dynamic_align(const VgModule *m, const PtxFunc *f) {
    uint32_t align = 1;
    for (uint32_t k = 0; k < m->ptx->n_vars; k++) {
        const PtxVar *v = m->ptx->vars[k];
        if (v->space == PTX_SHARED && is_dynamic(v) && ptx_var_align(v) > align)
            align = ptx_var_align(v);
    }
    for (uint32_t k = 0; k < f->n_vars; k++) {
        const PtxVar *v = f->vars[k];
        if (v->space == PTX_SHARED && is_dynamic(v) && ptx_var_align(v) > align)
            align = ptx_var_align(v);
    }
    return align;
}

static Status describe(VgModule *m, VgKernel *kernel, VgFunc *func, uint32_t entry_shared) {
    PtxFunc *f = func->ptx;
    VgParam *params = ARENA_ARRAY(m->arena, VgParam, f->n_params);
    uint32_t end = 0;
    for (uint32_t k = 0; k < f->n_params; k++) {
        params[k] = (VgParam){ (uint32_t)f->params[k]->user, (uint32_t)ptx_var_bytes(f->params[k]),
                               ptx_var_align(f->params[k]) };
        end = params[k].offset + params[k].bytes;
    }
    uint64_t limit = 0;
    uint32_t *bound = f->reqntid[0] ? f->reqntid : f->maxntid;
    if (bound[0]) limit = (uint64_t)bound[0] * bound[1] * bound[2];
    kernel->module = m;
    kernel->func = func;
    kernel->dynamic_align = dynamic_align(m, f);
    kernel->reserved = uses_reserved(m, func);
    kernel->info = (VgKernelInfo){
        .name = f->name, .n_params = f->n_params, .params = params, .param_bytes = end,
        .static_shared = entry_shared, .local_bytes = func->local_bytes + stack_bytes(m, func),
        .max_threads = limit && limit < 1024 ? (uint32_t)limit : 1024,
        .reqntid = { f->reqntid[0], f->reqntid[1], f->reqntid[2] },
        .cluster = { f->cluster[0], f->cluster[1], f->cluster[2] },
        .min_ctas = f->min_ctas, .slots = (int)func->slots, .ptx_version = atoi(m->ptx->target + 3),
    };
    return OK;
}

static Status load(VgModule *m, size_t n) {
    TRY(ptx_parse(m->arena, m->text, n, &m->ptx));
    TRY(check_target(m));
    TRY(make_functions(m));
    for (uint32_t k = 0; k < m->ptx->n_vars; k++) TRY(place_var(m, m->ptx->vars[k]));
    TRY(place_body_vars(m));
    TRY(place_shared_all(m));
    for (uint32_t k = 0; k < m->ptx->n_vars; k++) TRY(init_var(m, m->ptx->vars[k]));
    uint32_t *entry_shared = ARENA_ARRAY(m->arena, uint32_t, m->ptx->n_funcs);
    for (uint32_t k = 0; k < m->ptx->n_funcs; k++) {
        PtxFunc *f = m->ptx->funcs[k];
        if (!m->funcs[k]) continue;
        entry_shared[k] = m->shared_bytes;
        for (uint32_t v = 0; v < f->n_vars; v++) {
            TRY(init_var(m, f->vars[v]));
            if (f->is_entry && f->vars[v]->space == PTX_SHARED && !is_dynamic(f->vars[v]))
                place_shared(&entry_shared[k], f->vars[v]);
        }
        TRY(vg_decode_function(m, f));
    }
    m->kernels = ARENA_ARRAY(m->arena, VgKernel, m->ptx->n_funcs);
    for (uint32_t k = 0; k < m->ptx->n_funcs; k++)
        if (m->funcs[k] && m->ptx->funcs[k]->is_entry)
            TRY(describe(m, &m->kernels[m->n_kernels++], m->funcs[k], entry_shared[k]));
    return OK;
}

Status vg_module_load(VgDevice *device, const char *ptx, size_t n, VgModule **module) {
    *module = NULL;
    Arena *arena = arena_create();
    VgModule *m = ARENA_NEW(arena, VgModule);
    m->arena = arena;
    m->device = device;
    m->text = arena_strndup(arena, ptx, n);
    m->next = device->modules;
    device->modules = m;
    Status status = load(m, n);
    if (status != OK) {
        vg_module_unload(m);
        return status_trail(status, __FILE__, __LINE__);
    }
    *module = m;
    return OK;
}

void vg_module_unload(VgModule *m) {
    if (!m) return;
    for (VgModule **p = &m->device->modules; *p; p = &(*p)->next)
        if (*p == m) {
            *p = m->next;
            break;
        }
    for (uint32_t k = 0; k < m->n_vas; k++) (void)vg_mem_free(m->device->memory, m->vas[k]);
    arena_destroy(m->arena);
}

VgKernel *vg_module_kernel(VgModule *m, const char *name) {
    for (int k = 0; k < m->n_kernels; k++)
        if (!strcmp(m->kernels[k].info.name, name)) return &m->kernels[k];
    return NULL;
}

int vg_module_kernel_count(const VgModule *m) { return m->n_kernels; }
VgKernel *vg_module_kernel_at(VgModule *m, int i) { return &m->kernels[i]; }
const VgKernelInfo *vg_kernel_info(const VgKernel *kernel) { return &kernel->info; }

bool vg_module_global(VgModule *m, const char *name, uint64_t *va, size_t *bytes) {
    PtxVar *v = ptx_find_var(m->ptx, name);
    if (!v || v->user < 0 || (v->space != PTX_GLOBAL && v->space != PTX_CONST)) return false;
    *va = (uint64_t)v->user;
    *bytes = ptx_var_bytes(v);
    return true;
}

VgFunc *vg_function_at(VgDevice *device, uint64_t va) {
    for (VgModule *m = device->modules; m; m = m->next)
        for (uint32_t k = 0; k < m->ptx->n_funcs; k++)
            if (m->funcs[k] && m->funcs[k]->va == va) return m->funcs[k];
    return NULL;
}
