// SPDX-License-Identifier: Apache-2.0
// Optimizer groups: what the plans' multipliers per parameter come to. Stages tell each other theirs.
#include <stdio.h>
#include <stdlib.h>

#include "runtime/train/train.h"

// A trained parameter.
typedef struct Trained {
    int number; // in the model
    double lr, decay;
    long long numbers;
} Trained;

static void describe(const Plan *plan, Text *out) {
    for (uint32_t i = 0; i < plan->n_params; i++) {
        const PlanParam *param = &plan->params[i];
        if (param->is_state) continue;
        int number = plan->mesh.size[AXIS_pp] > 1 ? param->number : (int)i;
        text_printf(out, "%d %lld ", number, (long long)plan_whole_numbers(param));
        text_add_double(out, param->lr);
        text_add(out, " ");
        text_add_double(out, param->decay);
        text_add(out, "\n");
    }
}

static bool read_line(const char *line, Trained *out) {
    char lr[64], decay[64];
    return sscanf(line, "%d %lld %63s %63s", &out->number, &out->numbers, lr, decay) == 4 &&
           text_parse_double(lr, strlen(lr), &out->lr) &&
           text_parse_double(decay, strlen(decay), &out->decay);
}

static int by_number(const void *left, const void *right) {
    return ((const Trained *)left)->number - ((const Trained *)right)->number;
}

static Status list_trained(Arena *arena, const Plan *plan, Comm *comm, Trained **out, int *n) {
    Text own = { 0 };
    char **texts = NULL;
    int cap = 0;
    describe(plan, &own);
    Status status = comm_texts(comm, GROUP_pp, text_cstr(&own), arena, &texts);
    text_finish(&own);
    TRY(status);
    *n = 0;
    for (int stage = 0; stage < comm_members(comm, GROUP_pp); stage++)
        for (const char *at = texts[stage]; *at; at += strcspn(at, "\n") + 1)
            if (!read_line(at, ARENA_PUSH(arena, *out, *n, cap)))
                return status_fail(ERR_INTERNAL, "internal error: stage %d trains '%.40s'", stage, at);
    if (*n) qsort(*out, (size_t)*n, sizeof **out, by_number);
    return OK;
}

Status optim_groups(Arena *arena, const Plan *plan, Comm *comm, OptimGroup **out, int *n) {
    Trained *trained = NULL;
    int n_trained;
    TRY(list_trained(arena, plan, comm, &trained, &n_trained));
    OptimGroup *groups = *out = ARENA_ARRAY(arena, OptimGroup, n_trained + 1);
    *n = 0;
    for (int i = 0; i < n_trained; i++) {
        const Trained *param = &trained[i];
        if (i && trained[i - 1].number == param->number) continue; // read by two stages
        int at = 0;
        while (at < *n && (groups[at].lr != param->lr || groups[at].decay != param->decay)) at++;
        if (at == *n) groups[(*n)++] = (OptimGroup) { param->lr, param->decay, 0, 0 };
        groups[at].tensors++;
        groups[at].numbers += param->numbers;
    }
    return OK;
}

void optim_groups_print(const OptimGroup *groups, int n, double decay, Text *out) {
    for (int i = 0; i < n; i++) {
        text_printf(out, "%sgroup %d: %lld tensors, %lld numbers, weight decay %g", i ? "\n" : "",
                    i, (long long)groups[i].tensors, (long long)groups[i].numbers,
                    decay * groups[i].decay);
        if (groups[i].lr != 1) text_printf(out, ", learning rate x %g", groups[i].lr);
    }
}

void optim_groups_record(const OptimGroup *groups, int n, double lr, json_t *object) {
    for (int i = 0; i < n; i++) {
        char name[48];
        snprintf(name, sizeof name, "optim/LR (group %d)", i);
        json_object_set_new(object, name, json_real(lr * groups[i].lr));
    }
}
