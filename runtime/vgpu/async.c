// SPDX-License-Identifier: Apache-2.0
// Life of a warp's asynchronous copies (async.h).
#include <stdlib.h>

#include "runtime/vgpu/async.h"

VgCopies *vg_copies(VgWarp *w) {
    if (!w->async) w->async = calloc(1, sizeof(VgCopies));
    return w->async;
}

static bool grow(VgCopies *copies) {
    if (copies->n < copies->made) return true;
    if (copies->made == copies->cap) {
        uint32_t cap = copies->cap ? 2 * copies->cap : 16;
        VgCopy **items = realloc(copies->items, cap * sizeof *items);
        if (!items) return false;
        copies->items = items;
        copies->cap = cap;
    }
    VgCopy *copy = aligned_alloc(64, sizeof *copy);
    if (!copy) return false;
    copies->items[copies->made++] = copy;
    return true;
}

VgCopy *vg_copy_new(VgWarp *w) {
    VgCopies *copies = vg_copies(w);
    if (!copies || !grow(copies)) return NULL;
    if (!copies->open) { // touches of another group are others
        w->mem.flight++;
        w->mem.turn++;
        copies->open = true;
    }
    VgCopy *copy = copies->items[copies->n++];
    copy->flight = w->mem.flight;
    copy->number = copies->issued++;
    return copy;
}

VgFault vg_copies_land(VgWarp *w, VgWarpMem *by, uint32_t n, uint32_t lanes, const int64_t *before,
                       const VgInstr **instr) {
    VgCopies *copies = w->async;
    uint32_t kept = 0, landed = w->mem.flight;
    for (uint32_t k = 0; k < copies->n; k++) {
        VgCopy *copy = copies->items[k];
        uint32_t done = copy->number < n ? lanes & copy->mask : 0;
        for (int l = 0; l < 32 && done && before; l++)
            done &= ~((uint32_t)((int64_t)copy->group[l] >= before[l]) << l);
        if (done) {
            *instr = copy->instr;
            VgFault fault = copy->land->run(by, copy->land, done, copy->address, (char *)copy);
            if (fault != VG_OK) return fault;
            copy->mask &= ~done;
        }
        if (copy->mask & lanes && copy->flight <= landed) landed = copy->flight - 1;
        if (!copy->mask) continue;
        copies->items[k] = copies->items[kept];
        copies->items[kept++] = copy;
    }
    copies->n = kept;
    if (landed > w->mem.landed) w->mem.landed = landed;
    return VG_OK;
}

void vg_copies_reset(VgWarp *w) {
    VgCopies *copies = w->async;
    if (!copies) return;
    copies->n = copies->issued = 0;
    copies->open = false;
    memset(copies->committed, 0, sizeof copies->committed);
}

void vg_copies_destroy(VgWarp *w) {
    VgCopies *copies = w->async;
    if (!copies) return;
    for (uint32_t k = 0; k < copies->made; k++) free(copies->items[k]);
    free(copies->items);
    free(copies);
    w->async = NULL;
}
