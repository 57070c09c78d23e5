// SPDX-License-Identifier: Apache-2.0
// moec check SPEC [key=value...] [-v]: traces a spec and tells what it is: parameters, active
// parameters, FLOPs per token; with -v every parameter with its shape and settings.
#include <stdio.h>
#include <stdlib.h>

#include "compiler/driver/driver.h"
#include "compiler/spec/spec.h"

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

static int usage(const char *problem, const char *word) {
    return driver_fail(status_fail(ERR_ARGUMENT,
                                   "%s%s\n  hint: moec check SPEC [key=value...] [-v] [--set "
                                   "ADDRESS.FIELD=VALUE]",
                                   problem, word));
}

static bool read_set(char *text, SpecArg *set) {
    char *equals = text ? strchr(text, '=') : NULL;
    if (!equals) return false;
    *equals = 0;
    *set = (SpecArg){ text, equals + 1 };
    return true;
}

int cmd_check(int argc, char **argv) {
    const char *path = NULL;
    bool verbose = false, words = false;
    Arena *arena = arena_create();
    SpecArg *args = ARENA_ARRAY(arena, SpecArg, argc + 1);
    SpecArg *sets = ARENA_ARRAY(arena, SpecArg, argc + 1);
    SpecOptions options = { .args = args, .sets = sets };
    int status = -1;
    for (int i = 1; i < argc && status < 0; i++) {
        char *value = strchr(argv[i], '=');
        if (!words && !strcmp(argv[i], "--")) {
            words = true;
        } else if (!words && !strcmp(argv[i], "-v")) {
            verbose = true;
        } else if (!words && (!strcmp(argv[i], "--set") || !strncmp(argv[i], "--set=", 6))) {
            char *text = argv[i][5] ? argv[i] + 6 : i + 1 < argc ? argv[++i] : NULL;
            if (!read_set(text, &sets[options.n_sets++]))
                status = usage("expected ADDRESS.FIELD=VALUE after --set", "");
        } else if (!words && argv[i][0] == '-') {
            status = usage("unknown option ", argv[i]);
        } else if (path && value) {
            *value = 0;
            args[options.n_args++] = (SpecArg){ argv[i], value + 1 };
        } else if (path) {
            status = usage("expected key=value after the spec, got ", argv[i]);
        } else {
            path = argv[i];
        }
    }
    if (status < 0 && !path) status = usage("no SPEC given", "");
    if (status < 0) {
        Text error = { 0 };
        Model *m = spec_load(path, &options, &error);
        if (m)
            print_model(m, verbose);
        else
            fputs(text_cstr(&error), stderr);
        status = m ? 0 : status_exit(ERR_INPUT);
        model_destroy(m);
        text_finish(&error);
    }
    arena_destroy(arena);
    return status;
}
