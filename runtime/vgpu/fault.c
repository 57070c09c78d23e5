// SPDX-License-Identifier: Apache-2.0
// Faults of running warps: who, where, what, as one report; the first of a launch wins.
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#include "runtime/vgpu/schedule.h"

double vg_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

const PtxInstr *vg_source_at(const VgFunc *func, const VgInstr *i) {
    if (i < func->code || i >= func->code + func->n_code) return NULL;
    while (i > func->code && !func->source[i - func->code])
        i--; // made by the decoder: what was before
    return func->source[i - func->code];
}

static const char *line_text(const VgModule *m, uint32_t line, Text *text) {
    const char *at = m->text;
    for (uint32_t k = 1; k < line && at; k++) {
        at = strchr(at, '\n');
        if (at) at++;
    }
    if (!at) return "";
    while (*at == ' ' || *at == '\t') at++;
    const char *end = strchr(at, '\n');
    for (const char *c = at; *c && c != end; c++) text_add_n(text, *c == '\t' ? " " : c, 1);
    return text_cstr(text);
}

void vg_place_of(const VgModule *m, const PtxInstr *p, VgPlace *place) {
    *place = (VgPlace){ 0 };
    if (!p) return;
    place->ptx_line = p->line;
    const PtxLoc *loc = p->loc;
    if (!loc || !loc->line) return;
    place->file = loc->file < m->ptx->n_files ? m->ptx->files[loc->file] : NULL;
    place->line = loc->line;
    for (loc = loc->inlined; loc && place->n_inlined < COUNT_OF(place->inlined);
         loc = loc->inlined) {
        place->inlined[place->n_inlined].file =
            loc->file < m->ptx->n_files ? m->ptx->files[loc->file] : NULL;
        place->inlined[place->n_inlined++].line = loc->line;
    }
}

// A thread's own buffer for the instruction's text: a place lives until the next one.
static _Thread_local char shown[256];

static void show(const VgModule *m, const PtxInstr *p, VgPlace *place) {
    vg_place_of(m, p, place);
    if (!p) return;
    Text text = { 0 };
    snprintf(shown, sizeof shown, "%s", line_text(m, p->line, &text));
    text_finish(&text);
    place->ptx = shown;
}

bool vg_locate_site(const void *module, uint32_t site, VgPlace *place) {
    const VgModule *m = module;
    if (site >= m->n_sites) return false;
    show(m, m->site_source[site], place);
    return true;
}

static void head(const VgWarp *w, uint32_t lanes, Text *text) {
    const VgCta *cta = w->cta;
    const VgGrid *g = cta->grid;
    uint32_t lane = lanes ? (uint32_t)__builtin_ctz(lanes) : 0, thread = w->index * 32 + lane;
    text_printf(text, "  kernel %s, block (%u,%u,%u), warp %u, lane %u, thread (%u,%u,%u)",
                g->kernel->info.name, cta->id[0], cta->id[1], cta->id[2], w->index, lane,
                thread % g->block[0], thread / g->block[0] % g->block[1],
                thread / (g->block[0] * g->block[1]));
    if (lanes & (lanes - 1)) text_printf(text, ", lanes %08x", lanes);
    text_add(text, "\n");
}

static bool first_fault(VgGrid *g, VgFault kind) {
    int none = VG_OK;
    return atomic_compare_exchange_strong(&g->fault, &none, (int)kind);
}

static void compose(VgWarp *w, const VgInstr *i, VgFault kind, uint32_t lanes, const char *what,
                    Text *text) {
    const VgModule *m = w->frame->func->module;
    VgPlace place;
    show(m, vg_source_at(w->frame->func, i), &place);
    text_printf(text, "%s: %s\n", kind ? vg_fault_title(kind) : "warning", what);
    head(w, lanes, text);
    text_add(text, "  ");
    vg_report_place(text, &place);
    text_add(text, "\n");
}

const VgInstr *vg_fault(VgWarp *w, const VgInstr *i, VgFault kind, uint32_t lanes,
                        const char *format, ...) {
    VgGrid *g = w->cta->grid;
    w->state = VG_WAITING;
    w->pc = i;
    if (!first_fault(g, kind)) return NULL;
    Text what = { 0 }, text = { 0 };
    va_list list;
    va_start(list, format);
    text_vprintf(&what, format, list);
    va_end(list);
    compose(w, i, kind, lanes, text_cstr(&what), &text);
    vg_reports_add(g->device->reports, kind, text_cstr(&text));
    text_finish(&what);
    text_finish(&text);
    return NULL;
}

void vg_warn(VgWarp *w, const VgInstr *i, uint32_t lanes, const char *format, ...) {
    Text what = { 0 }, text = { 0 };
    va_list list;
    va_start(list, format);
    text_vprintf(&what, format, list);
    va_end(list);
    compose(w, i, VG_OK, lanes, text_cstr(&what), &text);
    vg_reports_add(w->cta->grid->device->reports, VG_OK, text_cstr(&text));
    text_finish(&what);
    text_finish(&text);
}

const VgInstr *vg_fault_record(VgWarp *w, const VgInstr *i, VgFault fault) {
    VgGrid *g = w->cta->grid;
    w->state = VG_WAITING;
    w->pc = i;
    if (!first_fault(g, fault)) return NULL;
    VgScene scene = { .kernel = g->kernel->info.name, .locate = vg_locate_site,
                      .locate_data = w->frame->func->module };
    for (int k = 0; k < 3; k++) {
        scene.grid[k] = g->grid[k];
        scene.block[k] = g->block[k];
    }
    Text text = { 0 };
    vg_report_text(&text, vg_mem_record(w->cta->worker->memory), &scene);
    vg_reports_add(g->device->reports, fault, text_cstr(&text));
    text_finish(&text);
    return NULL;
}

void vg_fault_grid(VgGrid *g, VgFault kind, const char *what) {
    if (!first_fault(g, kind)) return;
    Text text = { 0 };
    text_printf(&text, "%s: %s\n  kernel %s\n", vg_fault_title(kind), what, g->kernel->info.name);
    vg_reports_add(g->device->reports, kind, text_cstr(&text));
    text_finish(&text);
}
