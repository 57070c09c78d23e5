// SPDX-License-Identifier: Apache-2.0
#include "tests/vgpu/trace.h"

#include <stdlib.h>

#include "tests/vgpu/gpu.h"

#if defined(__clang__) && defined(__OPTIMIZE__) // as handlers call each other (code.h)
#define TAIL_CALL __attribute__((musttail))
#else
#define TAIL_CALL
#endif

enum { MOST_ROOTS = 400 };
typedef struct Traced { const VgFunc *func; VgHandler *run; } Traced;

static Traced *traced;
static uint32_t n_traced;
static const char *executed[MOST_ROOTS]; // names of the table's
static int n_executed;

static int add(const char **roots, int n, int most, const char *root) {
    for (int k = 0; k < n; k++)
        if (!strcmp(roots[k], root)) return n;
    assert_true(n < most);
    roots[n] = root;
    return n + 1;
}

int trace_roots(const char **roots, int most) {
    const VgIsa *isa = vg_isa();
    int n = 0;
    for (int k = 0; k < COUNT_OF(isa->forms); k++)
        for (const VgForm *form = isa->forms[k]; form && form->root; form++)
            n = add(roots, n, most, form->root);
    for (int k = 0; k < COUNT_OF(isa->roots); k++)
        for (const VgRoot *root = isa->roots[k]; root && root->root; root++)
            n = add(roots, n, most, root->root);
    return n;
}

// A module's names end with it: the table's are kept.
static void note(const char *root) {
    const char *roots[MOST_ROOTS];
    if (trace_executed(root)) return;
    int n = trace_roots(roots, MOST_ROOTS);
    for (int k = 0; k < n; k++)
        if (!strcmp(roots[k], root)) n_executed = add(executed, n_executed, MOST_ROOTS, roots[k]);
}

// Notes *i, and says how it is executed.
static VgHandler own_handler(const VgInstr *i, const VgWarp *w, const char *f) {
    uint32_t k = 0;
    while (i < traced[k].func->code || i >= traced[k].func->code + traced[k].func->n_code) k++;
    const PtxInstr *from = traced[k].func->source[i - traced[k].func->code];
    if (from && VG_MASK(i, w, f)) note(from->root);
    return traced[k].run[i - traced[k].func->code];
}

static const VgInstr *trace(const VgInstr *i, VgWarp *w, char *f) {
    VgHandler run = own_handler(i, w, f);
    TAIL_CALL return run(i, w, f);
}

void trace_module(VgModule *module) {
    trace_finish();
    n_traced = 0;
    traced = calloc(module->ptx->n_funcs, sizeof *traced);
    assert_non_null(traced);
    for (uint32_t k = 0; k < module->ptx->n_funcs; k++) {
        VgFunc *func = module->funcs[k];
        if (!func) continue;
        Traced *t = &traced[n_traced++];
        *t = (Traced){ func, calloc(func->n_code, sizeof *t->run) };
        assert_non_null(t->run);
        for (uint32_t i = 0; i < func->n_code; i++) {
            t->run[i] = func->code[i].run;
            func->code[i].run = trace;
        }
    }
}

bool trace_executed(const char *root) {
    for (int k = 0; k < n_executed; k++)
        if (!strcmp(executed[k], root)) return true;
    return false;
}

void trace_finish(void) {
    for (uint32_t k = 0; k < n_traced; k++) free(traced[k].run);
    free(traced);
    traced = NULL;
    n_traced = 0;
}
