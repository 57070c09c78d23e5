// SPDX-License-Identifier: Apache-2.0
// Figures, not a test: the cost model against tables of measured latencies. moec-tables FOLDER reads gemm.tsv,
// grouped_gemm.tsv, collectives.tsv and deepep.tsv (thinned from those published with NVIDIA's AIConfigurator) and
// prints the error |log(predicted / measured)| by device and class: median and 90th percentile. Measured one by
// one, so without what load that lasts takes.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "compiler/cost/cost.h"
#include "compiler/spec/spec.h"

enum { MOST_CELLS = 16 };

typedef struct Errors {
    const char *device, *class;
    double *at;
    uint32_t n, cap;
} Errors;

typedef struct Tables {
    Arena *arena;
    Errors *errors;
    uint32_t n, cap;
    struct { const char *name; CostCluster cluster; } machines[64];
    int n_machines;
} Tables;

static const CostCluster *machine(Tables *t, const char *name) {
    for (int i = 0; i < t->n_machines; i++) {
        if (!strcmp(t->machines[i].name, name)) return &t->machines[i].cluster;
    }
    Text error = { 0 };
    if (t->n_machines == 64 || !spec_load_cluster(name, t->arena, &t->machines[t->n_machines].cluster, &error)) {
        fputs(text_cstr(&error), stderr);
        exit(1);
    }
    CostCluster *cluster = &t->machines[t->n_machines].cluster;
    cluster->device.sustained = 1;
    t->machines[t->n_machines++].name = arena_strdup(t->arena, name);
    return cluster;
}

static void add_error(Tables *t, const char *device, const char *class, double predicted, double measured) {
    Errors *e = NULL;
    for (uint32_t i = 0; i < t->n && !e; i++) {
        if (!strcmp(t->errors[i].device, device) && !strcmp(t->errors[i].class, class)) e = &t->errors[i];
    }
    if (!e) {
        e = ARENA_PUSH(t->arena, t->errors, t->n, t->cap);
        e->device = arena_strdup(t->arena, device);
        e->class = arena_strdup(t->arena, class);
    }
    *ARENA_PUSH(t->arena, e->at, e->n, e->cap) = fabs(log(predicted / measured));
}

// "b300_sxm" and "rtx_pro_6000" as they are called here.
static const char *device_of(Tables *t, const char *cell) {
    if (!strncmp(cell, "rtx_pro_6000", 12)) return "rtxpro6000";
    return arena_strndup(t->arena, cell, strcspn(cell, "_"));
}

static uint8_t precision_of(const char *device, const char *dtype) {
    if (!strcmp(dtype, "bfloat16")) return PRECISION_BF16;
    bool pro = !strcmp(device, "rtxpro6000");
    if (!strcmp(dtype, pro ? "fp8" : "fp8_block") && (strchr("bg", *device) || pro)) return PRECISION_MXFP8;
    return PRECISION_OPEN;
}

static CostKernel product(uint8_t precision, double groups, double m, double n, double k) {
    return (CostKernel){ .class = groups > 1 ? COST_experts : COST_dense, .precision = precision, .m = m, .n = n,
                         .k = k, .groups = groups, .flops = 2 * m * n * k,
                         .bytes = 2 * (m * k + groups * k * n + m * n) };
}

static void of_gemm(Tables *t, char **cell) {
    const char *device = device_of(t, cell[0]);
    uint8_t precision = precision_of(device, cell[1]);
    if (!precision) return;
    double m = atof(cell[2]), n = atof(cell[3]), k = atof(cell[4]), flop = 2 * m * n * k;
    CostKernel kernel = product(precision, 1, m, n, k);
    double s = cost_kernel_s(&machine(t, device)->device, &kernel);
    const char *size = flop > 1e11 ? "above 100 GFLOP" : flop > 1e10 ? "10 to 100 GFLOP" : "below 10 GFLOP";
    add_error(t, device, arena_printf(t->arena, "product %s, %s", precision == PRECISION_BF16 ? "bf16" : "fp8 in blocks",
                                      size), s, atof(cell[5]) * 1e-3);
}

// A whole layer: rows spread, two products, rows summed.
static void of_experts(Tables *t, char **cell) {
    const char *device = device_of(t, cell[0]);
    uint8_t precision = precision_of(device, cell[1]);
    double hidden = atof(cell[2]), ffn = atof(cell[3]), top_k = atof(cell[4]), experts = atof(cell[5]);
    double ep = atof(cell[7]), tokens = atof(cell[9]), rows = tokens * top_k / ep, groups = experts / ep;
    if (!precision || groups < 2 || rows < groups) return;
    const CostDevice *d = &machine(t, device)->device;
    CostKernel in = product(precision, groups, rows, 2 * ffn, hidden), out = product(precision, groups, rows, hidden, ffn);
    CostKernel move = { .class = COST_move, .bytes = 2 * 2 * rows * hidden };
    double s = cost_kernel_s(d, &in) + cost_kernel_s(d, &out) + 2 * cost_kernel_s(d, &move);
    add_error(t, device, arena_printf(t->arena, "experts' layer %s, %s rows each", precision == PRECISION_BF16 ? "bf16"
                                      : "fp8 in blocks", rows / groups >= 256 ? "256 or more" : "fewer than 256"),
              s, atof(cell[10]) * 1e-3);
}

static void of_collectives(Tables *t, char **cell) {
    static const char *const ops[] = { "all_gather", "reduce_scatter", "alltoall" };
    const char *device = device_of(t, cell[0]);
    int ranks = atoi(cell[2]);
    double bytes = atof(cell[3]);
    for (int i = 0; i < COUNT_OF(ops); i++) {
        if (strcmp(ops[i], cell[1]) || bytes < 65536) continue;
        const CostCluster *c = machine(t, arena_printf(t->arena, "%sx%d", device, ranks));
        double s = cost_collective_s(c, (CostCollective)i, (CostGroup){ ranks, 1 }, bytes);
        add_error(t, device, arena_printf(t->arena, "%s, 64 KiB on", ops[i]), s, atof(cell[4]) * 1e-6);
    }
}

// With as many multiprocessors as were tried; a dispatch in fp8, its combine in bf16.
static void of_deepep(Tables *t, char **cell) {
    if (strcmp(cell[6], "24") && strcmp(cell[6], "20")) return;
    const char *device = device_of(t, cell[0]);
    int nodes = atoi(cell[1]), ranks = nodes > 1 ? nodes * 8 : *device == 'g' ? 4 : 8;
    double hidden = atof(cell[2]), tokens = atof(cell[3]);
    if (tokens < 512) return;
    const CostCluster *c = machine(t, arena_printf(t->arena, "%sx%d", device, ranks));
    CostRows rows = { .tokens = tokens, .top_k = atof(cell[4]), .experts = atof(cell[5]), .row_bytes = hidden * 33 / 32,
                      .load = 1, .blocks = true };
    const char *where = nodes > 1 ? "between nodes" : "in a node";
    add_error(t, device, arena_printf(t->arena, "dispatch %s", where), cost_rows_s(c, (CostGroup){ ranks, 1 }, &rows),
              atof(cell[7]) * 1e-6);
    rows.combine = true;
    rows.row_bytes = 2 * hidden;
    add_error(t, device, arena_printf(t->arena, "combine %s", where), cost_rows_s(c, (CostGroup){ ranks, 1 }, &rows),
              atof(cell[9]) * 1e-6);
}

static void read_table(Tables *t, const char *folder, const char *name, int cells,
                       void (*row)(Tables *t, char **cell)) {
    char *text;
    size_t bytes;
    if (file_read(arena_printf(t->arena, "%s/%s", folder, name), t->arena, &text, &bytes) != OK) {
        fprintf(stderr, "moec-tables: %s\n", status_message());
        exit(1);
    }
    int line = 0;
    for (char *save, *at = strtok_r(text, "\n", &save); at; at = strtok_r(NULL, "\n", &save)) {
        char *cell[MOST_CELLS];
        int n = 0;
        for (char *inner, *word = strtok_r(at, "\t", &inner); word && n < MOST_CELLS;
             word = strtok_r(NULL, "\t", &inner))
            cell[n++] = word;
        if (line++ && n >= cells) row(t, cell);
    }
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int by_class(const void *a, const void *b) {
    const Errors *x = a, *y = b;
    int order = strcmp(x->class, y->class);
    return order ? order : strcmp(x->device, y->device);
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: moec-tables FOLDER\n");
        return 2;
    }
    Tables t = { .arena = arena_create() };
    read_table(&t, argv[1], "gemm.tsv", 6, of_gemm);
    read_table(&t, argv[1], "grouped_gemm.tsv", 11, of_experts);
    read_table(&t, argv[1], "collectives.tsv", 5, of_collectives);
    read_table(&t, argv[1], "deepep.tsv", 10, of_deepep);
    qsort(t.errors, t.n, sizeof *t.errors, by_class);
    for (uint32_t i = 0; i < t.n; i++) {
        Errors *e = &t.errors[i];
        qsort(e->at, e->n, sizeof *e->at, ascending);
        if (!i || strcmp(t.errors[i - 1].class, e->class)) printf("%s\n", e->class);
        printf("  %-12s %4u rows: median %5.1f %%, 90th percentile %5.1f %%\n", e->device, e->n,
               100 * (exp(e->at[e->n / 2]) - 1), 100 * (exp(e->at[(uint32_t)(0.9 * e->n)]) - 1));
    }
    arena_destroy(t.arena);
    return 0;
}
