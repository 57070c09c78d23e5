// SPDX-License-Identifier: Apache-2.0
// A program's metrics over all ranks. The ranks of a stage report the same metrics, each of its own
// tokens: they are added up in rank order. Stages report different ones: the set is a stage's after
// those of the stage before.
//
// A record is what a rank reports of a run: the numbers of its metrics, one after another. Records
// are gathered by all ranks, so all have the same set, and decide alike by it.
#include "runtime/train/train.h"

// What a stage reports, in the words that other stages read: "1 0x1p+0 2 layers.3.load\n".
static void describe(const Exec *exec, const PlanProgram *program, Text *out) {
    for (uint32_t i = 0; i < program->n_metrics; i++) {
        const PlanMetric *metric = &program->metrics[i];
        int64_t n;
        exec_metric(exec, program, i, &n);
        text_printf(out, "%lld %d ", (long long)n, metric->sum);
        text_add_double(out, metric->weight);
        text_printf(out, " %s\n", metric->name);
    }
}

// A line of it, which was printed by the same program.
static Status read_line(MetricSet *set, const char *line, size_t bytes, int stage) {
    long long n;
    int sum, at = 0;
    char weight[64];
    char *copy = arena_strndup(set->arena, line, bytes);
    bool good = sscanf(copy, "%lld %d %63s %n", &n, &sum, weight, &at) == 3 && at && n > 0;
    PlanMetric metric = { .name = copy + at, .sum = sum };
    if (!good || !text_parse_double(weight, strlen(weight), &metric.weight))
        return status_fail(ERR_INTERNAL, "internal error: stage %d reports '%s'", stage, copy);
    int64_t first = set->n && set->parts[set->n - 1].stage == stage
                        ? set->parts[set->n - 1].first + set->parts[set->n - 1].n
                        : 0;
    *ARENA_PUSH(set->arena, set->metrics, set->n, set->cap) = metric;
    uint32_t parts = set->n - 1;
    *ARENA_PUSH(set->arena, set->parts, parts, set->cap_parts) =
        (MetricPart){ .stage = stage, .first = first, .n = n };
    set->record = max_i64(set->record, first + n);
    return OK;
}

static Status read_text(MetricSet *set, const char *text, int stage) {
    for (const char *at = text; *at;) {
        size_t n = strcspn(at, "\n");
        TRY(read_line(set, at, n, stage));
        at += n + (at[n] == '\n');
    }
    return OK;
}

Status metric_set_open(const Exec *exec, const PlanProgram *program, Arena *arena, MetricSet *out) {
    *out = (MetricSet){ .exec = exec, .program = program, .comm = exec_host(exec), .arena = arena };
    Text own = { 0 };
    describe(exec, program, &own);
    char **texts = NULL;
    Status status = comm_texts(out->comm, GROUP_pp, text_cstr(&own), arena, &texts);
    text_finish(&own);
    TRY(status);
    for (int stage = 0; stage < comm_members(out->comm, GROUP_pp); stage++)
        TRY(read_text(out, texts[stage], stage));
    out->own = ARENA_ARRAY(arena, float, out->record + 1);
    out->all = ARENA_ARRAY(arena, float, out->record * out->comm->n_ranks + 1);
    for (uint32_t i = 0; i < out->n; i++)
        out->parts[i].at = ARENA_ARRAY(arena, float, out->parts[i].n);
    return OK;
}

// In double: the sum over ranks rounds once.
static void add_up(MetricSet *set, MetricPart *part) {
    int ranks = comm_members(set->comm, GROUP_dp);
    for (int64_t k = 0; k < part->n; k++) {
        double sum = 0;
        for (int rank = 0; rank < ranks; rank++)
            sum += (double)set->all[(part->stage * ranks + rank) * set->record + part->first + k];
        part->at[k] = (float)sum;
    }
}

Status metric_set_read(MetricSet *set) {
    int64_t at = 0, n;
    for (uint32_t i = 0; i < set->program->n_metrics; i++) {
        const float *values = exec_metric(set->exec, set->program, i, &n);
        memcpy(set->own + at, values, sizeof *values * (size_t)n);
        at += n;
    }
    TRY(set->comm->api->gather(set->comm, GROUP_world, set->own, set->all,
                               set->record * (int64_t)sizeof *set->own));
    for (uint32_t i = 0; i < set->n; i++) add_up(set, &set->parts[i]);
    return OK;
}
