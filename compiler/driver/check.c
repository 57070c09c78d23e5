// SPDX-License-Identifier: Apache-2.0
// `moec check SPEC [key=value...] [-v]`: traces a spec and tells what it is: parameters, active
// parameters, FLOPs per token; with -v every parameter with its shape and settings.
#include <stdio.h>
#include <stdlib.h>

#include "compiler/driver/driver.h"
#include "compiler/driver/line.h"

static void print_parameter(const Model *m, const Param *p) {
    static const char *const init[] = { "normal", "zeros", "ones" };
    static const char *const precision[] = { "", "fp32", "bf16", "mxfp8" };
    Text shape = { 0 };
    const Type *t = model_type(m, p->node);
    type_print(m, t, &shape);
    int64_t n = type_features(t) * (t->row == ROW_E ? model_experts(m, t) : 1);
    printf("%-48s %-24s %14lld  %s", model_name(m, p->addr), text_cstr(&shape), (long long)n,
           p->is_state ? "state" : init[p->init]);
    if (!p->is_state && p->init == INIT_NORMAL) printf(" %g", p->std);
    if (!p->is_state) printf("  decay %g  lr %g", p->decay, p->lr);
    if (p->precision) printf("  %s", precision[p->precision]);
    printf("\n");
    text_finish(&shape);
}

// A quantity with four digits after the point in the unit that fits: "6.9192 B", "1.0306 M", "870".
static const char *amount(double n, char out[32]) {
    static const struct { double unit; const char *name; } units[] = { { 1e9, " B" }, { 1e6, " M" } };
    for (int i = 0; i < COUNT_OF(units); i++) {
        if (n < units[i].unit) continue;
        snprintf(out, 32, "%.4f%s", n / units[i].unit, units[i].name);
        return out;
    }
    snprintf(out, 32, "%.0f", n);
    return out;
}

static const char *flops(double n, char out[32]) {
    bool big = n >= 1e9 || n == 0;
    snprintf(out, 32, "%.*f %s", big ? 2 : 3, n / (big ? 1e9 : 1e6), big ? "GFLOP" : "MFLOP");
    return out;
}

static void print_model(const Model *m, bool verbose) {
    for (uint32_t i = 0; verbose && i < m->n_params; i++) print_parameter(m, &m->params[i]);
    Counts c = model_counts(m);
    printf("%s: %d layers, width %d, vocabulary %d, sequence %d\n", m->name, m->n_layers, m->width,
           m->vocab, m->sequence);
    char a[32], b[32];
    printf("  parameters   %s total", amount((double)c.total, a));
    if (c.mtp) printf(" + %s for multi-token prediction", amount((double)c.mtp, a));
    printf(", %s active (%s without the input table)\n", amount((double)c.active, a),
           amount((double)c.active_without_table, b));
    printf("  tensors      %d, %lld numbers of state\n", c.tensors, (long long)c.state);
    printf("  graph        %u nodes, %u loss%s, %u metrics, %u updates\n", m->n_nodes - 1,
           m->n_losses, m->n_losses == 1 ? "" : "es", m->n_metrics, m->n_updates);
    printf("  training     %s per token", flops(c.train_flops_per_token, a));
    if (c.router_flops_per_token > 0)
        printf(", %s more in fp32 (routers)", flops(c.router_flops_per_token, b));
    printf("\n");
}

static int check(const char *path, const SpecOptions *options, bool verbose) {
    Text error = { 0 };
    Model *m = spec_load(path, options, &error);
    if (m) print_model(m, verbose);
    else fputs(text_cstr(&error), stderr);
    model_destroy(m);
    text_finish(&error);
    return m ? 0 : status_exit(ERR_INPUT);
}

int cmd_check(int argc, char **argv) {
    Options *options = options_create();
    const char *path;
    SpecOptions spec;
    Status status = line_spec(options, FOR_CHECK, argc, argv, "check models/tiny.lua", &path, &spec);
    int result = status == OK ? check(path, &spec, options->verbose) : driver_fail(status);
    options_destroy(options);
    return result;
}
