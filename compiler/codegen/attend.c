// SPDX-License-Identifier: Apache-2.0
// Attention, forward and backward: how each is cut into tiles, and what fills its template.
#include "compiler/codegen/codegen.h"

enum {
    ENOUGH_UNITS = 16, // tiles per launch, so that a few threads share the work evenly
    FEW_UNITS = 8,     // so few that backward makes its scores twice rather than leave threads idle
    PACK_SHARE = 512,  // scores per key of a forward tile that make packing the key cheap
};

static Status check(const KernelDesc *d) {
    const char *family = family_name[d->family];
    if (d->precision == PRECISION_MXFP8)
        return status_fail(ERR_INPUT, "%s: mxfp8 has no kernel on this target", family);
    if (d->sequence < 1 || d->rows % d->sequence || d->kv_heads < 1 || d->heads % d->kv_heads)
        return status_fail(ERR_INTERNAL,
                           "%s: %lld rows in sequences of %lld, %d heads over %d: expected "
                           "multiples",
                           family, (long long)d->rows, (long long)d->sequence, d->heads,
                           d->kv_heads);
    return OK;
}

// Forward, parts of a unit pack the same keys once each.
static int64_t parts(const KernelDesc *d, int64_t units) {
    if (d->family == FAMILY_ATTEND_GRAD)
        return units < FEW_UNITS ? min_i64(FEW_UNITS, div_up(d->sequence, 128)) : 1;
    int64_t seen = d->window ? min_i64(d->window, d->sequence) : d->sequence;
    int64_t scores = d->heads / d->kv_heads * seen;
    return max_i64(min_i64(div_up(ENOUGH_UNITS, units), scores / PACK_SHARE), 1);
}

Status attend_source(const KernelDesc *d, const char *entry, Arena *scratch, Text *out,
                     int64_t *tiles) {
    TRY(check(d));
    bool grad = d->family == FAMILY_ATTEND_GRAD;
    int64_t units = d->rows / d->sequence * d->kv_heads, n = parts(d, units);
    *tiles = units * n * (grad && n > 1 ? 2 : 1) + (grad && d->sinks ? d->heads : 0);
    Filler f = { .arena = scratch };
    fill_desc(&f, d, entry);
    fill_size(&f, "parts", n);
    fill_size(&f, "pairs", d->precision == PRECISION_BF16);
    fill_type(&f, "x", d->x);
    fill_type(&f, "g", d->g);
    fill_type(&f, "y", d->y);
    TRY(template_expand("cpu/attend.h", f.holes, f.n, out));
    return template_expand(grad ? "cpu/attend_grad.c" : "cpu/attend.c", f.holes, f.n, out);
}
