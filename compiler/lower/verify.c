// SPDX-License-Identifier: Apache-2.0
// What must hold between passes; runs after each of them in builds with assertions.
#include "compiler/lower/pass.h"

static bool verify_fuse(Lower *l) {
    for (uint32_t u = 1; u < l->n_units; u++) {
        const Unit *unit = &l->units[u];
        if (unit->kind == UNIT_NONE) continue;
        if (!unit->kernel && !l->info[unit->node].gathered)
            return lower_fail(l, unit->node, "internal error: a unit without kernel");
        if (!unit->kernel) continue;
        const Kernel *kernel = &l->kernels[unit->kernel - 1];
        const Unit *first = &l->units[kernel->units[0]];
        bool post = kernel_has_post(l, kernel);
        if (unit->segment != first->segment || unit->depth != first->depth ||
            (!post && (unit->row != first->row || unit->route != first->route ||
                       (unit->kind == UNIT_KERNEL) != (first->kind == UNIT_KERNEL))))
            return lower_fail(l, unit->node, "internal error: a kernel of unequal units");
        for (uint32_t i = 0; i < unit->n_reads; i++) {
            uint32_t from = fuse_dependency(l, u, i);
            if (!from) continue;
            const Unit *made = &l->units[from];
            if (made->kind == UNIT_NONE)
                return lower_fail(l, unit->node, "internal error: a read of nothing");
            if (made->segment > unit->segment ||
                (made->segment == unit->segment && made->depth > unit->depth))
                return lower_fail(l, unit->node,
                                  "internal error: a value is read before its segment or depth");
        }
    }
    return true;
}

static bool verify_schedule(Lower *l) {
    for (uint32_t k = 0; k < l->n_kernels; k++) {
        const Kernel *kernel = &l->kernels[k];
        if (l->order[kernel->time] != k)
            return lower_fail(l, kernel->node, "internal error: a kernel runs never or twice");
        for (uint32_t i = 0; i < kernel->n_binds; i++) {
            const Buffer *buffer = &l->buffers[kernel->binds[i].buffer];
            if (!buffer_is_made(buffer) || kernel->binds[i].mode != OPERAND_READ) continue;
            if (!buffer->writer || l->kernels[buffer->writer - 1].time >= kernel->time)
                return lower_fail(l, buffer->node,
                                  "internal error: a value is read before it is made");
        }
        for (uint32_t i = 0; i < kernel->n_after; i++) {
            if (l->kernels[kernel->after[i]].time >= kernel->time)
                return lower_fail(l, kernel->node, "internal error: a kernel runs before one it follows");
        }
    }
    return true;
}

bool lower_verify(Lower *l, char letter) {
    switch (letter) {
    case 'f': return verify_fuse(l);
    case 's': return verify_schedule(l);
    default: return true; // addresses: plan_check
    }
}
