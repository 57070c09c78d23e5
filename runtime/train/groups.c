// SPDX-License-Identifier: Apache-2.0
// Optimizer groups: what the plan's multipliers per parameter come to.
#include <stdio.h>

#include "runtime/train/train.h"

OptimGroup *optim_groups(Arena *arena, const Plan *plan, int *n) {
    OptimGroup *groups = ARENA_ARRAY(arena, OptimGroup, plan->n_params + 1);
    *n = 0;
    for (uint32_t i = 0; i < plan->n_params; i++) {
        const PlanParam *param = &plan->params[i];
        if (param->is_state) continue;
        int at = 0;
        while (at < *n && (groups[at].lr != param->lr || groups[at].decay != param->decay)) at++;
        if (at == *n) groups[(*n)++] = (OptimGroup) { param->lr, param->decay, 0, 0 };
        groups[at].tensors++;
        groups[at].numbers += plan_whole_numbers(param);
    }
    return groups;
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
