// SPDX-License-Identifier: Apache-2.0
// Functions that CUDA programs call without defining them: __assertfail and vprintf.
//
// Their arguments are in the caller's parameter area (control.c); pointers are generic addresses.
// Text is read through the checks of memory.h, a byte at a time.
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
    vg_fault(w, i, VG_ASSERT, lanes, "%s:%llu: %s", text_cstr(&file), (unsigned long long)line,
             text_cstr(&what));
    text_finish(&what);
    text_finish(&file);
    return NULL;
}

/* vprintf -------------------------------------------------------------------------------------- */

// Bytes of the thread's argument block, which compilers put into local memory.
static uint64_t read_value(const VgWarp *w, uint64_t at, uint32_t bytes, uint32_t lane) {
    uint64_t v = 0;
    bool local = vg_space_of(at) == VG_LOCAL;
    uint64_t limit = w->cta->grid->kernel->info.local_bytes;
    for (uint32_t n = 0; n < bytes; n++) {
        uint64_t x = at + n - (local ? VG_LOCAL_WINDOW : 0);
        const uint8_t *byte = NULL;
        if (!local) byte = vg_mem_host(w->cta->grid->device->memory, x, 1);
        else if (x < limit) byte = w->mem.local + x / 4 * 128 + lane * 4 + (x & 3);
        if (byte) v |= (uint64_t)*byte << 8 * n;
    }
    return v;
}

// One conversion, `spec` from % to its letter; arguments are aligned to their size.
static uint64_t format_one(const VgWarp *w, const char *spec, uint64_t at, uint32_t lane,
                           Text *out) {
    char kind = spec[strlen(spec) - 1];
    bool is_float = strchr("aAeEfFgG", kind), wide = strchr("sp", kind) || is_float ||
                                                     strchr(spec, 'l') || strchr(spec, 'j') ||
                                                     strchr(spec, 'z') || strchr(spec, 't');
    uint32_t bytes = wide ? 8 : 4;
    at = (uint64_t)round_up((int64_t)at, bytes);
    uint64_t v = read_value(w, at, bytes, lane);
    char plain[32];
    size_t n = strcspn(spec, "hljzt" "diouxXcspaAeEfFgG"); // flags, width, precision
    if (n > 20) n = 20;
    memcpy(plain, spec, n);
    snprintf(plain + n, sizeof plain - n, "%s%c", is_float || strchr("csp", kind) ? "" : "ll",
             kind);
    Text string = { 0 };
    double d;
    memcpy(&d, &v, 8);
    if (kind == 's') {
        read_string(w, v, &string);
        text_printf(out, plain, text_cstr(&string));
    } else if (kind == 'p') {
        text_printf(out, "0x%llx", (unsigned long long)v);
    } else if (kind == 'c') {
        text_printf(out, plain, (int)v);
    } else if (is_float) {
        text_printf(out, plain, d);
    } else {
        if (!wide && strchr("di", kind)) v = (uint64_t)(int64_t)(int32_t)v;
        text_printf(out, plain, (long long)v);
    }
    text_finish(&string);
    return at + bytes;
}

static void format_all(const VgWarp *w, const char *format, uint64_t at, uint32_t lane, Text *out) {
    while (*format) {
        size_t n = strcspn(format, "%");
        text_add_n(out, format, n);
        format += n;
        if (!*format) return;
        n = 1 + strspn(format + 1, "-+ #0123456789.hljzt");
        char kind = format[n], spec[40];
        if (kind && strchr("diouxXcspaAeEfFgG", kind) && n + 1 < sizeof spec) {
            memcpy(spec, format, n + 1);
            spec[n + 1] = 0;
            at = format_one(w, spec, at, lane, out);
        } else {
            text_add_n(out, kind == '%' ? "%" : format, kind == '%' ? 1 : n + (kind != 0));
        }
        format += n + (kind != 0);
    }
}

// Lanes in order, each call's text in one piece, to standard output as the program asked.
static const VgInstr *print(const VgInstr *i, VgWarp *w, char *f) {
    const VgCall *call = i->extra;
    uint32_t lanes = VG_MASK(i, w, f);
    Text out = { 0 };
    for (uint32_t l = 0; l < 32; l++) {
        if (!(lanes >> l & 1) || call->n_args < 2) continue;
        Text format = { 0 };
        read_string(w, argument(w, call, 0, l), &format);
        format_all(w, text_cstr(&format), argument(w, call, 1, l), l, &out);
        text_finish(&format);
        if (call->n_rets)
            *(uint32_t *)(f + w->frame->func->area_at + call->rets[0].to / 4 * 128 + l * 4) = 1;
    }
    fwrite(text_cstr(&out), 1, out.bytes, stdout);
    text_finish(&out);
    return i + 1;
}

VgHandler vg_builtin(const char *name) {
    if (!strcmp(name, "__assertfail")) return assert_fail;
    return !strcmp(name, "vprintf") ? print : NULL;
}
