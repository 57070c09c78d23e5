// SPDX-License-Identifier: Apache-2.0
// loss.svg: training loss (each point, and smoothed) and held-out loss over steps.
//
// The scale of losses leaves out the worst fiftieth of the points, so that a spike or the first
// steps do not flatten the rest; what lies beyond is drawn at the edge.
#include <math.h>
#include <stdlib.h>

#include "runtime/train/journal.h"

/* Curves --------------------------------------------------------------------------------------- */

static void merge_neighbours(Curve *curve) {
    for (int i = 0; i < CURVE_POINTS / 2; i++) {
        const CurvePoint *a = &curve->at[2 * i], *b = a + 1;
        curve->at[i] = (CurvePoint){ a->step + b->step, a->value + b->value, a->n + b->n };
    }
    curve->n = CURVE_POINTS / 2;
    curve->stride *= 2;
}

void curve_add(Curve *curve, int64_t step, double value) {
    if (!isfinite(value)) return;
    if (!curve->stride) curve->stride = 1;
    bool full = !curve->n || curve->at[curve->n - 1].n == curve->stride;
    if (full && curve->n == CURVE_POINTS) merge_neighbours(curve); // an even number: all stay full
    if (full) curve->at[curve->n++] = (CurvePoint) { 0 };
    CurvePoint *last = &curve->at[curve->n - 1];
    last->step += (double)step;
    last->value += value;
    last->n++;
}

static double step_at(const Curve *curve, int i) {
    return curve->at[i].step / (double)curve->at[i].n;
}

static double value_at(const Curve *curve, int i) {
    return curve->at[i].value / (double)curve->at[i].n;
}

/* Scales --------------------------------------------------------------------------------------- */

enum { WIDTH = 860, HEIGHT = 480, LEFT = 72, RIGHT = 836, TOP = 48, BOTTOM = 424, TICKS = 6 };

typedef struct Scale { double low, high, tick; int from, to; } Scale; // to pixels

// 1, 2 or 5 times a power of ten, so that about TICKS of them fit.
static double nice_tick(double span) {
    double rough = span / TICKS, power = pow(10, floor(log10(rough))), part = rough / power;
    return power * (part < 1.5 ? 1 : part < 3.5 ? 2 : part < 7.5 ? 5 : 10);
}

static Scale scale_of(double low, double high, int from, int to) {
    if (!(high - low > 1e-9 * (1 + fabs(low)))) high = low + 1e-3 * (1 + fabs(low));
    Scale scale = { .tick = nice_tick(high - low), .from = from, .to = to };
    scale.low = floor(low / scale.tick) * scale.tick;
    scale.high = ceil(high / scale.tick) * scale.tick;
    return scale;
}

static double place(const Scale *scale, double value) {
    double part = (value - scale->low) / (scale->high - scale->low);
    return scale->from + (scale->to - scale->from) * fmin(1, fmax(0, part));
}

static int rising(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static Scale loss_scale(const Curve *train, const Curve *held_out) {
    double values[2 * CURVE_POINTS];
    int n = 0;
    for (int i = 0; i < train->n; i++) values[n++] = value_at(train, i);
    for (int i = 0; i < held_out->n; i++) values[n++] = value_at(held_out, i);
    if (!n) return scale_of(0, 1, BOTTOM, TOP);
    qsort(values, (size_t)n, sizeof *values, rising);
    return scale_of(values[0], values[n - 1 - n / 50], BOTTOM, TOP);
}

static Scale step_scale(const Curve *train, const Curve *held_out) {
    double last = 1;
    if (train->n) last = fmax(last, step_at(train, train->n - 1));
    if (held_out->n) last = fmax(last, step_at(held_out, held_out->n - 1));
    return scale_of(0, last, LEFT, RIGHT);
}

/* Drawing -------------------------------------------------------------------------------------- */

static const char train_color[] = "#3b6fb6", held_out_color[] = "#d1632a";

static void add_escaped(Text *out, const char *text) {
    for (const char *c = text; *c; c++) {
        if (*c == '&') text_add(out, "&amp;");
        else if (*c == '<') text_add(out, "&lt;");
        else if ((unsigned char)*c >= ' ') text_add_n(out, c, 1);
    }
}

// Thousands and millions in short.
static void add_number(Text *out, double value) {
    double size = fabs(value);
    if (size >= 1e6) text_printf(out, "%.6gM", value / 1e6);
    else if (size >= 1e4) text_printf(out, "%.6gk", value / 1e3);
    else text_printf(out, "%.6g", size < 1e-12 ? 0 : value);
}

static void add_axes(Text *out, const Scale *x, const Scale *y) {
    text_add(out, "<g stroke=\"#e3e3e3\">\n");
    int n_x = (int)((x->high - x->low) / x->tick + 0.5);
    int n_y = (int)((y->high - y->low) / y->tick + 0.5);
    for (int i = 0; i <= n_y; i++) {
        double at = place(y, y->low + i * y->tick);
        text_printf(out, "<path d=\"M%d %.1fH%d\"/>\n", LEFT, at, RIGHT);
    }
    text_printf(out, "</g>\n<path d=\"M%d %dV%dH%d\" stroke=\"#555\" fill=\"none\"/>\n", LEFT, TOP,
                BOTTOM, RIGHT);
    text_add(out, "<g text-anchor=\"middle\">\n");
    for (int i = 0; i <= n_x; i++) {
        double value = x->low + i * x->tick, at = place(x, value);
        text_printf(out, "<path d=\"M%.1f %dv5\" stroke=\"#555\"/><text x=\"%.1f\" y=\"%d\">", at,
                    BOTTOM, at, BOTTOM + 20);
        add_number(out, value);
        text_add(out, "</text>\n");
    }
    text_printf(out, "<text x=\"%d\" y=\"%d\">step</text>\n</g>\n<g text-anchor=\"end\">\n",
                (LEFT + RIGHT) / 2, BOTTOM + 42);
    for (int i = 0; i <= n_y; i++) {
        double value = y->low + i * y->tick;
        text_printf(out, "<text x=\"%d\" y=\"%.1f\">", LEFT - 8, place(y, value) + 4);
        add_number(out, value);
        text_add(out, "</text>\n");
    }
    text_printf(out,
                "</g>\n<text transform=\"translate(20 %d) rotate(-90)\" text-anchor=\"middle\">"
                "loss, nats per token</text>\n",
                (TOP + BOTTOM) / 2);
}

// The points of a curve as a path; smooth: a mean that forgets over a fiftieth of the curve.
static void add_curve(Text *out, const Curve *curve, const Scale *x, const Scale *y, bool smooth,
                      const char *style) {
    if (!curve->n) return;
    double keep = smooth ? 1 - 1 / fmax(1, curve->n / 50.0) : 0, sum = 0, weight = 0;
    text_add(out, "<path d=\"");
    for (int i = 0; i < curve->n; i++) {
        sum = keep * sum + (1 - keep) * value_at(curve, i);
        weight = keep * weight + (1 - keep);
        text_printf(out, "%c%.1f %.1f", i ? 'L' : 'M', place(x, step_at(curve, i)),
                    place(y, sum / weight));
    }
    text_printf(out, "\" fill=\"none\" stroke-linejoin=\"round\" %s/>\n", style);
}

static void add_dots(Text *out, const Curve *curve, const Scale *x, const Scale *y) {
    if (curve->n > 64) return;
    text_printf(out, "<g fill=\"%s\">\n", held_out_color);
    for (int i = 0; i < curve->n; i++)
        text_printf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\"/>\n", place(x, step_at(curve, i)),
                    place(y, value_at(curve, i)));
    text_add(out, "</g>\n");
}

// A coloured line, what it is, and its last value.
static void add_legend(Text *out, int at, const char *color, const char *name, const Curve *curve) {
    if (!curve->n) return;
    text_printf(out,
                "<path d=\"M%d 28h22\" stroke=\"%s\" stroke-width=\"3\"/>"
                "<text x=\"%d\" y=\"32\">%s %.4g</text>\n",
                at, color, at + 28, name, value_at(curve, curve->n - 1));
}

void picture_print(const char *title, const Curve *train, const Curve *held_out, Text *out) {
    Scale x = step_scale(train, held_out), y = loss_scale(train, held_out);
    char style[96];
    text_printf(out,
                "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
                "font-family=\"sans-serif\" font-size=\"13\" fill=\"#333\">\n<title>",
                WIDTH, HEIGHT);
    add_escaped(out, title);
    text_printf(out,
                "</title>\n<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n"
                "<text x=\"%d\" y=\"32\" font-size=\"16\" font-weight=\"bold\">",
                WIDTH, HEIGHT, LEFT);
    add_escaped(out, title);
    text_add(out, "</text>\n");
    add_legend(out, 490, train_color, "training", train);
    add_legend(out, 670, held_out_color, "held out", held_out);
    add_axes(out, &x, &y);
    snprintf(style, sizeof style, "stroke=\"%s\" stroke-opacity=\"0.3\"", train_color);
    add_curve(out, train, &x, &y, false, style);
    snprintf(style, sizeof style, "stroke=\"%s\" stroke-width=\"2\"", train_color);
    add_curve(out, train, &x, &y, true, style);
    snprintf(style, sizeof style, "stroke=\"%s\" stroke-width=\"2\"", held_out_color);
    add_curve(out, held_out, &x, &y, false, style);
    add_dots(out, held_out, &x, &y);
    text_add(out, "</svg>\n");
}
