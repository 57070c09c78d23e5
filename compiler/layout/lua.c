// SPDX-License-Identifier: Apache-2.0
// The Lua form of a layout, written: a file that `--layout FILE.lua` takes, and that gives the same
// layout back. What a function says of placement is a table here.
#include "compiler/layout/private.h"

static void add_string(const char *text, Text *out) {
    text_add(out, "\"");
    for (const char *s = text; *s; s++) {
        if (*s == '"' || *s == '\\') text_printf(out, "\\%c", *s);
        else if ((unsigned char)*s < ' ') text_printf(out, "\\%03d", *s);
        else text_printf(out, "%c", *s);
    }
    text_add(out, "\"");
}

// A part of a value in the short form: a number, or a word.
static void add_part(const char *part, size_t n, Text *out) {
    bool number = n && strspn(part, "0123456789.e+-") >= n;
    text_printf(out, number ? "%.*s" : "\"%.*s\"", (int)n, part);
}

static void add_field(const Layout *layout, LayoutField field, Text *out) {
    Text value = { 0 };
    layout_print_value(layout, field, &value);
    const char *text = text_cstr(&value);
    bool list = field == LAYOUT_stages || strchr(text, ':');
    text_printf(out, "  %s = %s", layout_field_name[field], list ? "{ " : "");
    for (const char *at = text; *at;) {
        size_t n = strcspn(at, ":");
        add_part(at, n, out);
        at += n;
        if (*at && *++at) text_add(out, ", ");
    }
    text_add(out, list ? " },\n" : ",\n");
    text_finish(&value);
}

static bool is_axis(LayoutField field) {
    return field == LAYOUT_pp || field == LAYOUT_dp || field == LAYOUT_ep;
}

static void add_mesh(const Layout *layout, Text *out) {
    const char *comma = "";
    text_add(out, "  mesh = { ");
    for (LayoutField field = 0; field < N_LAYOUT_FIELDS; field++) {
        if (!is_axis(field) || layout_leaves_out(layout, field)) continue;
        text_printf(out, "%s\"%s=", comma, layout_field_name[field]);
        layout_print_value(layout, field, out);
        text_add(out, "\"");
        comma = ", ";
    }
    text_add(out, " },\n");
}

static void add_precision(const Layout *layout, Text *out) {
    static const char *const words[] = { [PRECISION_FP32] = "fp32", [PRECISION_BF16] = "bf16",
                                         [PRECISION_MXFP8] = "mxfp8" };
    text_add(out, "  precision = {\n");
    for (int32_t i = 0; i < layout->n_precision; i++) {
        text_add(out, "    { ");
        add_string(layout->precision[i].addresses, out);
        text_printf(out, ", \"%s\" },\n", words[layout->precision[i].precision]);
    }
    text_add(out, "  },\n");
}

// A row of the table per layer that has experts, lines of up to 110 columns.
static void add_table(const Layout *layout, int32_t n_layers, Text *out) {
    text_add(out, "local rank_of = {\n");
    for (int32_t layer = 0; layer < n_layers; layer++) {
        const int32_t *row = layout->placement + (int64_t)layer * layout->experts;
        if (row[0] < 0) continue;
        text_printf(out, "  [%d] = {", layer + 1);
        size_t line = out->bytes;
        for (int32_t e = 0; e < layout->experts && row[e] >= 0; e++) {
            if (out->bytes - line > 100) {
                text_add(out, "\n   ");
                line = out->bytes;
            }
            text_printf(out, " %d,", row[e]);
        }
        text_add(out, " },\n");
    }
    text_add(out, "}\n\n");
}

void layout_print_lua(const Layout *layout, int32_t n_layers, Text *out) {
    text_add(out, "local m = require \"moec\"\n\n");
    if (layout->placement) {
        text_add(out, "-- By layer, from 1: the rank on the ep axis of each expert, from 0.\n");
        add_table(layout, n_layers, out);
    }
    text_add(out, "return m.layout {\n");
    add_mesh(layout, out);
    for (LayoutField field = 0; field < N_LAYOUT_FIELDS; field++)
        if (!is_axis(field) && !layout_leaves_out(layout, field)) add_field(layout, field, out);
    if (layout->placement)
        text_add(out, "  placement = function(layer, expert) return rank_of[layer][expert + 1] end,\n");
    if (layout->n_precision) add_precision(layout, out);
    text_add(out, "}\n");
}
