// SPDX-License-Identifier: Apache-2.0
// Spans as they are told, a line per stage for terminals, an SVG.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "compiler/search/picture.h"

/* Spans ---------------------------------------------------------------------------------------- */

SimPicture sim_picture(const SimStage *stages, int32_t n, Arena *arena) {
    return (SimPicture){ .stages = stages, .n = n, .spans = ARENA_ARRAY(arena, SimSpans, n), .arena = arena };
}

static const SimOp *op_of(const SimPicture *p, int32_t stage, const SimSpan *span) {
    return span->op < 0 ? NULL : &p->stages[stage].ops[span->op];
}

void sim_picture_span(void *picture, int32_t stage, int32_t row, int32_t op, int64_t begin_ps, int64_t end_ps) {
    SimPicture *p = picture;
    SimSpans *spans = &p->spans[stage];
    SimSpan span = { row, op, (double)begin_ps * 1e-12, (double)end_ps * 1e-12 };
    SimSpan *last = spans->n ? &spans->at[spans->n - 1] : NULL;
    const SimOp *of = op_of(p, stage, &span), *before = last ? op_of(p, stage, last) : NULL;
    if (of && before && last->row == row && before->instr == of->instr && before->trip == of->trip) {
        last->end_s = span.end_s;
        return;
    }
    *ARENA_PUSH(p->arena, spans->at, spans->n, spans->cap) = span;
}

PlanTimeline sim_picture_timeline(const SimPicture *p, const Sim *sim, int32_t stage, const Plan *plan,
                                  const PlanProgram *program) {
    const SimSpans *from = &p->spans[stage];
    PlanTimeline t = { .plan = plan, .program = program, .transfers = true, .n = from->n, .n_runs = 1 };
    t.spans = ARENA_ARRAY(p->arena, PlanSpan, from->n + 1);
    for (int64_t i = 0; i < from->n; i++) {
        const SimSpan *span = &from->at[i];
        const SimOp *op = op_of(p, stage, span);
        t.spans[i] = (PlanSpan){ .row = span->row, .instr = op ? op->instr : span->op, .trip = op ? op->trip : 0,
                                 .begin = span->begin_s, .end = span->end_s };
    }
    t.runs = ARENA_ARRAY(p->arena, PlanRun, 1);
    t.runs[0] = (PlanRun){ .step = 1, .end = (double)sim->step_ps * 1e-12, .n = t.n };
    return t;
}

/* What a stage is at --------------------------------------------------------------------------- */

typedef enum Doing { FORWARD, BACKWARD, WGRAD, OTHER, CROSSING, N_DOING } Doing;

static Doing doing(const SimStage *stage, const SimOp *op, int32_t row) {
    if (op->what != SIM_COMPUTE) return CROSSING;
    const char *name = stage->segments[stage->rows[row].segment].name;
    if (!strncmp(name, "forward", 7)) return FORWARD;
    if (!strncmp(name, "backward", 8)) return BACKWARD;
    return !strncmp(name, "wgrad", 5) ? WGRAD : OTHER;
}

typedef struct Piece { double begin, end; int32_t microbatch; uint8_t what; } Piece;

// Where stages wait for each other is left blank; a transfer beside the rank is not what it does.
static bool is_beside(const SimOp *op) {
    return op->what == SIM_RECV || op->what == SIM_SEND || op->what == SIM_START || op->what == SIM_MEET;
}

// Neighbours that are alike are one.
static uint32_t pieces_of(const SimPicture *p, int32_t stage, Arena *arena, Piece **out) {
    const SimStage *of = &p->stages[stage];
    uint32_t n = 0, cap = 0;
    *out = NULL;
    for (int64_t i = 0; i < p->spans[stage].n; i++) {
        const SimSpan *span = &p->spans[stage].at[i];
        const SimOp *op = op_of(p, stage, span);
        if (span->end_s <= span->begin_s || !op || is_beside(op)) continue;
        Piece piece = { span->begin_s, span->end_s, of->rows[span->row].microbatch, (uint8_t)doing(of, op, span->row) };
        Piece *last = n ? &(*out)[n - 1] : NULL;
        if (last && last->what == piece.what && last->microbatch == piece.microbatch &&
            piece.begin - last->end <= 1e-12) {
            last->end = fmax(last->end, piece.end);
            continue;
        }
        *ARENA_PUSH(arena, *out, n, cap) = piece;
    }
    return n;
}

/* Terminals ------------------------------------------------------------------------------------ */

static char mark(const Piece *piece) {
    int32_t m = piece->microbatch < 0 ? 0 : piece->microbatch % 10;
    static const char others[N_DOING] = { 0, 0, '+', 'u', '~' };
    if (piece->what == FORWARD) return (char)('0' + m);
    return piece->what == BACKWARD ? (char)('a' + m) : others[piece->what];
}

// What took most of a column, or nothing.
static char column(const Piece *pieces, uint32_t n, uint32_t *from, double begin, double end) {
    double best = 0, used = 0;
    char shown = ' ';
    while (*from < n && pieces[*from].end <= begin) ++*from;
    for (uint32_t i = *from; i < n && pieces[i].begin < end; i++) {
        double here = fmin(pieces[i].end, end) - fmax(pieces[i].begin, begin);
        used += here;
        if (here > best) best = here, shown = mark(&pieces[i]);
    }
    return end - begin - used > best ? ' ' : shown;
}

void sim_picture_print(const SimPicture *p, const Sim *sim, int width, Text *out) {
    double step = (double)sim->step_ps * 1e-12;
    Arena *arena = arena_create();
    for (int32_t s = 0; s < p->n; s++) {
        Piece *pieces;
        uint32_t n = pieces_of(p, s, arena, &pieces), from = 0;
        text_printf(out, "  stage %-3d |", s);
        for (int c = 0; c < width; c++) {
            char shown = column(pieces, n, &from, step * c / width, step * (c + 1) / width);
            text_add_n(out, &shown, 1);
        }
        text_add(out, "|\n");
    }
    text_add(out, "  0-9 forward of a microbatch, a-j backward, + gradients of weights,\n"
                  "  u update, ~ between ranks\n");
    arena_destroy(arena);
}

/* SVG ------------------------------------------------------------------------------------------ */

enum { SVG_WIDTH = 1200, SVG_LEFT = 72, SVG_RIGHT = 1176, SVG_TOP = 56, SVG_LANE = 34, SVG_BAR = 26, SVG_TICKS = 8 };

static const char *const fill_of[N_DOING] = { "#6aa5d9", "#5fb58a", "#e0b252", "#9a86c8", "#d9685f" };
static const char *const said_of[N_DOING] = { "forward", "backward", "gradients of weights", "update, packing",
                                              "between ranks" };

static double x_of(double seconds, double step) {
    return SVG_LEFT + (SVG_RIGHT - SVG_LEFT) * (step > 0 ? seconds / step : 0);
}

static void svg_stage(const SimPicture *p, int32_t s, double step, Arena *arena, Text *out) {
    Piece *pieces;
    uint32_t n = pieces_of(p, s, arena, &pieces);
    int y = SVG_TOP + s * SVG_LANE;
    text_printf(out, "<text x=\"8\" y=\"%d\">stage %d</text>\n<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" "
                     "fill=\"#eeeeee\"/>\n",
                y + 17, s, SVG_LEFT, y, SVG_RIGHT - SVG_LEFT, SVG_BAR);
    for (uint32_t i = 0; i < n; i++) {
        double x = x_of(pieces[i].begin, step), w = x_of(pieces[i].end, step) - x;
        if (w < 0.05) continue; // nobody sees it
        text_printf(out, "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"%s\"/>\n", x, y, w, SVG_BAR,
                    fill_of[pieces[i].what]);
        if (pieces[i].microbatch >= 0 && pieces[i].what <= WGRAD && w >= 16)
            text_printf(out, "<text x=\"%.2f\" y=\"%d\" text-anchor=\"middle\">%d</text>\n", x + w / 2, y + 17,
                        pieces[i].microbatch);
    }
}

static void svg_axis(int y, double step, Text *out) {
    double rough = step / SVG_TICKS, power = pow(10, floor(log10(rough > 0 ? rough : 1))), part = rough / power;
    double tick = power * (part < 1.5 ? 1 : part < 3.5 ? 2 : part < 7.5 ? 5 : 10);
    for (double t = 0; step > 0 && t <= step * (1 + 1e-9); t += tick)
        text_printf(out, "<line x1=\"%.2f\" x2=\"%.2f\" y1=\"%d\" y2=\"%d\" stroke=\"#888888\"/>"
                         "<text x=\"%.2f\" y=\"%d\" text-anchor=\"middle\">%.4g ms</text>\n",
                    x_of(t, step), x_of(t, step), y, y + 5, x_of(t, step), y + 19, t * 1e3);
}

static void svg_legend(int y, Text *out) {
    for (int k = 0; k < N_DOING; k++)
        text_printf(out, "<rect x=\"%d\" y=\"%d\" width=\"12\" height=\"12\" fill=\"%s\"/><text x=\"%d\" y=\"%d\">%s"
                         "</text>\n",
                    SVG_LEFT + k * 180, y, fill_of[k], SVG_LEFT + k * 180 + 18, y + 11, said_of[k]);
}

static void add_markup(Text *out, const char *text) {
    for (; *text; text++) {
        if (*text == '<') text_add(out, "&lt;");
        else if (*text == '&') text_add(out, "&amp;");
        else text_add_n(out, text, 1);
    }
}

void sim_picture_svg(const SimPicture *p, const Sim *sim, const char *title, Text *out) {
    double step = (double)sim->step_ps * 1e-12;
    int bottom = SVG_TOP + p->n * SVG_LANE, height = bottom + 60;
    Arena *arena = arena_create();
    text_printf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" "
                     "font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
                     "<text x=\"%d\" y=\"28\" font-size=\"16\">",
                SVG_WIDTH, height, SVG_LEFT);
    add_markup(out, title);
    text_add(out, "</text>\n");
    for (int32_t s = 0; s < p->n; s++) svg_stage(p, s, step, arena, out);
    svg_axis(bottom, step, out);
    svg_legend(bottom + 32, out);
    text_add(out, "</svg>\n");
    arena_destroy(arena);
}

/* Tables --------------------------------------------------------------------------------------- */

enum { SHOWN_STAGES = 4 };

void sim_waterfall_print(const Sim *sim, Text *out) {
    double step = (double)sim->step_ps * 1e-12;
    int32_t shown = sim->n == 1 ? 0 : sim->n < SHOWN_STAGES ? sim->n : SHOWN_STAGES, stages[SHOWN_STAGES];
    for (int32_t k = 0; k < shown; k++) stages[k] = k < shown / 2 ? k : sim->n - shown + k;
    text_printf(out, "  %-18s %12s %7s", "of the step", "ms", "%");
    for (int32_t s = 0; s < shown; s++)
        text_printf(out, " %*s%d", stages[s] < 10 ? 9 : stages[s] < 100 ? 8 : 7, "stage ", stages[s]);
    text_add(out, "\n");
    for (int kind = 0; kind < N_SIM_KINDS; kind++) {
        double seconds = sim_share_s(sim, kind);
        if (seconds <= 0) continue;
        text_printf(out, "  %-18s %12.3f %7.2f", sim_kind_name(kind), seconds * 1e3, 100 * seconds / step);
        for (int32_t s = 0; s < shown; s++) text_printf(out, " %10.3f", (double)sim->stage_ps[stages[s]][kind] * 1e-9);
        text_add(out, "\n");
    }
}
