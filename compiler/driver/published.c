// SPDX-License-Identifier: Apache-2.0
// Tables of published speeds: each row predicted with nothing fitted, so that all rows are tests. Beside it,
// what one scale per software stack and device would do: a group of rows of one stack and device that has four
// or more is halved, its first, third, .. are fitted (their geometric mean), the second, fourth, .. tested. No
// row that is tested is in a fit.
#include "compiler/driver/published_rows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "compiler/driver/driver.h"

/* Predicting ----------------------------------------------------------------------------------- */

static double number(const Row *row, Column c) { return row->number[c]; }
static bool is(const Row *row, Column c, const char *word) { return !strcmp(row->cell[c], word); }

static uint8_t habits_of(const Row *row, bool megatron) {
    int habits = COST_WHOLE_HEAD | COST_SHORT_ROUTER;
    if (megatron) habits |= COST_NARROW_WGRAD | COST_WIDE_ROWS | COST_ROPE_APART;
    if (is(row, COLUMN_transport, "alltoall")) habits |= COST_ALL_TO_ALL;
    if (is(row, COLUMN_experts, "apart")) habits |= COST_BIAS_APART;
    return (uint8_t)habits;
}

static const char *layout_of(const Row *row, int pp, int dp, int microbatch, Arena *arena) {
    int slots = (int)number(row, COLUMN_slots);
    const char *more = pp > 1 && slots > 1 ? arena_printf(arena, ",schedule=interleaved,slots=%d", slots) : "";
    if (*row->cell[COLUMN_stages]) more = arena_printf(arena, "%s,stages=%s", more, row->cell[COLUMN_stages]);
    const char *transport = is(row, COLUMN_transport, "alltoall") ? "blocks" : row->cell[COLUMN_transport];
    const char *params = is(row, COLUMN_params, "fsdp") ? "fsdp" : "resident";
    return arena_printf(arena, "pp=%d,dp=%d,ep=%s,microbatch=%d,recompute=%s,params=%s,capacity=1.25,transport=%s%s",
                        pp, dp, row->cell[COLUMN_ep], microbatch, row->cell[COLUMN_recompute], params, transport, more);
}

// Without a pipeline rows of a microbatch cross beside work of the next, so half of the first's and of the last's
// do not.
static double hidden_rows(const Row *row, int pp, int dp, int microbatch) {
    double sequences = number(row, COLUMN_batch);
    double rounds = sequences > 0 ? fmax(sequences / ((double)dp * microbatch), 1) : 16;
    return number(row, COLUMN_rows_hidden) * (pp > 1 ? 1 : 1 - 1 / rounds);
}

static Status predict(Bench *bench, Arena *arena, const Table *t, Row *row) {
    int pp = (int)number(row, COLUMN_pp), microbatch = (int)number(row, COLUMN_microbatch);
    int gpus = (int)number(row, COLUMN_gpus), dp = gpus / pp;
    if (gpus % pp)
        return status_fail(ERR_FORMAT, "%s:%d: gpus is '%d', expected a multiple of pp\n  hint: pp is %d", t->path, row->line,
                           gpus, pp);
    if (pp == 1 && number(row, COLUMN_slots) > 1)
        return status_fail(ERR_FORMAT, "%s:%d: slots is '%s', expected 1\n  hint: pp is 1, so there is nothing to interleave",
                           t->path, row->line, row->cell[COLUMN_slots]);
    bool megatron = !strncmp(row->cell[COLUMN_stack], "megatron", 8);
    CostStack *stack = ARENA_NEW(arena, CostStack);
    *stack = megatron ? published_fused : published_apart;
    stack->exchanged = number(row, COLUMN_reduce);
    BenchRun run = {
        .spec = row->cell[COLUMN_spec], .args = row->cell[COLUMN_args],
        .cluster = arena_printf(arena, "%sx%d", row->cell[COLUMN_gpu], gpus),
        .layout = layout_of(row, pp, dp, microbatch, arena),
        .stack = stack,
        .habits = habits_of(row, megatron),
        .precision = is(row, COLUMN_precision, "mxfp8") ? PRECISION_MXFP8 : PRECISION_BF16,
        .routing = is(row, COLUMN_routing, "uniform")  ? COST_UNIFORM
                   : is(row, COLUMN_routing, "random") ? COST_RANDOM
                                                       : COST_LEARNED,
        .sequences = (int64_t)number(row, COLUMN_batch),
        .sequence = (int32_t)number(row, COLUMN_sequence),
        .rows_hidden = hidden_rows(row, pp, dp, microbatch),
        .params_hidden = number(row, COLUMN_params_hidden),
        .sends_hidden = megatron ? 1 : 0, // interleaved: with work of the other microbatches
    };
    if (bench_predict(bench, &run, &row->result) != OK) return published_refuse(t, row);
    row->raw = row->result.tokens_per_s;
    row->published = *row->cell[COLUMN_tokens_per_s]
                         ? number(row, COLUMN_tokens_per_s)
                         : number(row, COLUMN_tflop_per_s) * 1e12 / row->result.flops_per_token;
    return OK;
}

/* Fitting -------------------------------------------------------------------------------------- */

static bool same_group(const Row *a, const Row *b) {
    return is(a, COLUMN_stack, b->cell[COLUMN_stack]) && is(a, COLUMN_gpu, b->cell[COLUMN_gpu]);
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(double *values, int n, double at) {
    if (!n) return NAN;
    qsort(values, (size_t)n, sizeof *values, ascending);
    double x = at * (n - 1);
    int i = (int)x;
    return i + 1 < n ? values[i] + (x - i) * (values[i + 1] - values[i]) : values[i];
}

static void fit_group(Table *t, uint32_t first) {
    double logs = 0;
    int members = 0, n = 0;
    for (uint32_t i = first; i < t->n; i++) members += same_group(&t->rows[i], &t->rows[first]);
    int number_in_group = 0;
    for (uint32_t i = first; i < t->n; i++) {
        Row *row = &t->rows[i];
        if (!same_group(row, &t->rows[first])) continue;
        row->use = members < 4 ? USE_ALONE : number_in_group++ % 2 ? USE_TEST : USE_FIT;
        if (row->use != USE_FIT) continue;
        logs += log(row->published / row->raw);
        n++;
    }
    double scale = n ? exp(logs / n) : 1;
    for (uint32_t i = first; i < t->n; i++) {
        if (same_group(&t->rows[i], &t->rows[first])) t->rows[i].scaled = t->rows[i].raw * scale;
    }
    if (n)
        printf("  %-22s %-6s %2d rows, %d fitted: %.2f\n", t->rows[first].cell[COLUMN_stack],
               t->rows[first].cell[COLUMN_gpu], members, n, scale);
}

static void fit(Table *t) {
    printf("\nscale of each stack and device, of rows in turn fitted and tested\n");
    for (uint32_t i = 0; i < t->n; i++) {
        bool first = true;
        for (uint32_t k = 0; k < i && first; k++) first = !same_group(&t->rows[i], &t->rows[k]);
        if (first) fit_group(t, i);
    }
}

/* Printing ------------------------------------------------------------------------------------- */

static double error_of(const Row *row) { return fabs(row->raw / row->published - 1); }

static int worst_first(const void *a, const void *b) {
    const Row *x = *(const Row *const *)a, *y = *(const Row *const *)b;
    double ex = error_of(x), ey = error_of(y);
    return ex != ey ? (ex < ey ? 1 : -1) : x->line - y->line;
}

// Rows that agree in all that is predicted from.
static bool agree(const Row *a, const Row *b, bool across_stacks) {
    for (Column c = COLUMN_gpu; c <= COLUMN_ep; c++) {
        if (strcmp(a->cell[c], b->cell[c])) return false;
    }
    return across_stacks || is(a, COLUMN_stack, b->cell[COLUMN_stack]);
}

// What speaks for the error not being the model's: other rows that agree with this one, and are far apart.
static void print_spread(const Table *t, const Row *row) {
    double least = row->published, most = row->published;
    for (uint32_t i = 0; i < t->n; i++) {
        if (!agree(row, &t->rows[i], true)) continue;
        least = fmin(least, t->rows[i].published);
        most = fmax(most, t->rows[i].published);
    }
    if (most > 1.15 * least) printf("; others publish %.0f to %.0f", least, most);
}

// The largest parts of the predicted step.
static void print_parts(const CostStep *s) {
    struct { const char *name; double s; } parts[] = {
        { "dense", s->class_s[COST_dense] },   { "experts", s->class_s[COST_experts] },
        { "attention", s->class_s[COST_attention] }, { "memory-bound", s->class_s[COST_row] + s->class_s[COST_move] },
        { "imbalance", s->imbalance_s },       { "rows", s->rows_s },
        { "parameters", s->params_s },         { "stages", s->send_s },
        { "bubble", s->bubble_s },             { "optimizer", s->optimizer_s },
    };
    for (int k = 0; k < 3; k++) {
        int best = 0;
        for (int i = 1; i < COUNT_OF(parts); i++) {
            if (parts[i].s > parts[best].s) best = i;
        }
        printf("%s%s %.0f %%", k ? ", " : "", parts[best].name, 100 * parts[best].s / s->seconds);
        parts[best].s = -1;
    }
}

static void print_rows(const Table *t, Arena *arena) {
    const Row **rows = ARENA_ARRAY(arena, const Row *, t->n);
    for (uint32_t i = 0; i < t->n; i++) rows[i] = &t->rows[i];
    qsort(rows, t->n, sizeof *rows, worst_first);
    printf("tokens/s of a device, predicted (nothing fitted) and published, worst first; why\n");
    for (uint32_t i = 0; i < t->n; i++) {
        const Row *r = rows[i];
        const char *gpus = arena_printf(arena, "%sx%s", r->cell[COLUMN_gpu], r->cell[COLUMN_gpus]),
                   *spec = arena_printf(arena, "%s %s", r->cell[COLUMN_spec], r->cell[COLUMN_args]);
        printf("%+6.1f %% %7.0f %7.0f  %-21s %-9s %-23s %s\n         pp%s ep%s: ", 100 * (r->raw / r->published - 1),
               r->raw, r->published, r->cell[COLUMN_stack], gpus, spec, r->cell[COLUMN_precision],
               r->cell[COLUMN_pp], r->cell[COLUMN_ep]);
        print_parts(&r->result.step);
        print_spread(t, r);
        printf("\n");
        if (*r->cell[COLUMN_note]) printf("         %s\n", r->cell[COLUMN_note]);
    }
}

// Which rows are counted, and what is predicted of them.
typedef struct View {
    const char *title;
    uint8_t uses; // bits of Use
    bool scaled;
} View;

static double seen(const View *view, const Row *row) { return view->scaled ? row->scaled : row->raw; }
static bool counted(const View *view, const Row *row) { return view->uses >> row->use & 1; }

// Pairs of rows that are more than 5 % apart: is the faster one predicted to be?
static void print_order(const Table *t, const View *view, bool one_model) {
    int pairs = 0, right = 0;
    for (uint32_t i = 0; i < t->n; i++) {
        for (uint32_t k = i + 1; k < t->n; k++) {
            const Row *a = &t->rows[i], *b = &t->rows[k];
            if (!counted(view, a) || !counted(view, b) || (one_model && !is(a, COLUMN_spec, b->cell[COLUMN_spec])))
                continue;
            double apart = a->published / b->published;
            if (apart < 1.05 && apart > 1 / 1.05) continue;
            pairs++;
            right += (seen(view, a) > seen(view, b)) == (a->published > b->published);
        }
    }
    if (pairs) printf("  %5.1f %% of %4d", 100.0 * right / pairs, pairs);
    else printf("  %15s", "-");
}

static void print_view(const Table *t, const View *view, Arena *arena) {
    double *errors = ARENA_ARRAY(arena, double, t->n);
    int n = 0;
    for (uint32_t i = 0; i < t->n; i++) {
        const Row *row = &t->rows[i];
        if (counted(view, row)) errors[n++] = fabs(seen(view, row) / row->published - 1);
    }
    if (!n) return;
    double median = quantile(errors, n, 0.5), p90 = quantile(errors, n, 0.9);
    printf("  %-36s %4d %6.1f %% %6.1f %%", view->title, n, 100 * median, 100 * p90);
    print_order(t, view, true);
    print_order(t, view, false);
    printf("\n");
}

static void print_views(const Table *t, Arena *arena) {
    static const View views[] = {
        { "nothing fitted, all", 1 << USE_FIT | 1 << USE_TEST | 1 << USE_ALONE, false },
        { "nothing fitted, tested halves", 1 << USE_TEST, false },
        { "nothing fitted, groups of under four", 1 << USE_ALONE, false },
        { "scaled, tested halves", 1 << USE_TEST, true },
    };
    printf("\n%-38s %4s %8s %8s  %s\n%-38s %4s %8s %8s  %15s  %15s\n", "errors", "", "", "90th",
           "pairs more than 5 % apart in order", "", "rows", "median", "percent.", "of one model", "of all");
    for (int i = 0; i < COUNT_OF(views); i++) print_view(t, &views[i], arena);
}

static void print_floor(const Table *t, bool across, Arena *arena) {
    double *ratios = ARENA_ARRAY(arena, double, (size_t)t->n * t->n / 2 + 1), most = 1;
    int n = 0;
    for (uint32_t i = 0; i < t->n; i++) {
        for (uint32_t k = i + 1; k < t->n; k++) {
            if (!agree(&t->rows[i], &t->rows[k], across)) continue;
            double ratio = t->rows[i].published / t->rows[k].published;
            ratios[n] = fmax(ratio, 1 / ratio) - 1;
            most = fmax(most, ratios[n++] + 1);
        }
    }
    if (!n) return;
    double median = quantile(ratios, n, 0.5), p90 = quantile(ratios, n, 0.9);
    printf("  %d pairs of rows that agree in every column%s differ\n"
           "    by %.1f %% (median), %.1f %% (90th percentile), at most %.2fx\n", n,
           across ? ", the stack's release apart," : "", 100 * median, 100 * p90, most);
}

int published_print(Bench *bench, const char *path) {
    Arena *arena = arena_create();
    Table table = { 0 };
    Status status = published_read(path, arena, &table);
    for (uint32_t i = 0; status == OK && i < table.n; i++) {
        status = predict(bench, arena, &table, &table.rows[i]);
        if (isatty(2)) fprintf(stderr, "\r%u of %u rows", i + 1, table.n);
    }
    if (isatty(2)) fprintf(stderr, "\r%20s\r", "");
    if (status == OK) {
        print_rows(&table, arena);
        fit(&table);
        print_views(&table, arena);
        printf("\nfloor\n");
        print_floor(&table, false, arena);
        print_floor(&table, true, arena);
    }
    arena_destroy(arena);
    return status == OK ? 0 : driver_fail(status);
}
