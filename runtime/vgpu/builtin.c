// SPDX-License-Identifier: Apache-2.0
// Functions that CUDA programs call without defining them: __assertfail and vprintf.
//
// Their arguments are in the caller's parameter area (control.c); pointers are generic addresses. Text
// is read through the checks of memory.h, a byte at a time.
#include <stdio.h>

#include "runtime/vgpu/control.h"

static uint64_t argument(const VgWarp *w, const VgCall *call, uint32_t k, uint32_t lane) {
    const char *area = w->frame->at + w->frame->func->area_at;
    uint64_t v = 0;
    for (uint32_t n = 0; n < call->args[k].bytes && n < 8; n++) {
        uint32_t at = call->args[k].from + n;
        v |= (uint64_t)(uint8_t)area[(at / 4) * 128 + lane * 4 + (at & 3)] << 8 * n;
    }
    return v;
}

// A string in global or constant memory; what is not readable ends it.
static void read_string(const VgWarp *w, uint64_t at, Text *text) {
    for (int k = 0; at && k < 4096; k++) {
        const char *c = vg_mem_host(w->cta->grid->device->memory, at + (uint64_t)k, 1);
        if (!c || !*c) return;
        text_add_n(text, c, 1);
    }
}

static const VgInstr *assert_fail(const VgInstr *i, VgWarp *w, char *f) {
    const VgCall *call = i->extra;
    uint32_t lanes = VG_MASK(i, w, f), lane = lanes ? (uint32_t)__builtin_ctz(lanes) : 0;
    if (!lanes) return i + 1;
    Text what = { 0 }, file = { 0 };
    uint64_t line = 0;
    if (call->n_args >= 3) {
        read_string(w, argument(w, call, 0, lane), &what);
        read_string(w, argument(w, call, 1, lane), &file);
        line = argument(w, call, 2, lane);
    }
    vg_fault(w, i, VG_ASSERT, lanes, "%s:%llu: %s", text_cstr(&file), (unsigned long long)line, text_cstr(&what));
    text_finish(&what);
    text_finish(&file);
    return NULL;
}

VgHandler vg_builtin(const char *name) {
    return !strcmp(name, "__assertfail") ? assert_fail : NULL;
}
