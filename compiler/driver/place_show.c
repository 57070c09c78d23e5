// SPDX-License-Identifier: Apache-2.0
// `moec place`: the placements of all layers, what they are worth, and how that is shown.
#include <math.h>
#include <stdio.h>

#include "compiler/driver/place.h"
#include "compiler/driver/plan_args.h"

/* Layers --------------------------------------------------------------------------------------- */

// Experts do not move for less.
#define TOLERANCE 1e-3

// A layer whose experts are as well where they are keeps them.
static void place_layer(const Place *place, PlaceLayer *layer, Arena *arena) {
    int32_t n = layer->experts;
    PlacementJob job = { layer->load, n, place->ranks, n / place->ranks, PLACEMENT_BUDGET, layer->owner, TOLERANCE };
    layer->place = ARENA_ARRAY(arena, int32_t, n);
    layer->rank_now = ARENA_ARRAY(arena, double, place->ranks);
    layer->rank_then = ARENA_ARRAY(arena, double, place->ranks);
    layer->now = placement_busiest(layer->load, layer->owner, n, place->ranks, layer->rank_now);
    placement_find(&job, arena, &layer->placed);
    placement_stay(&layer->placed, layer->owner, arena);
    bool gains = layer->placed.most * (1 + TOLERANCE) < layer->now;
    if (gains) placement_owners(&layer->placed, layer->place);
    else memcpy(layer->place, layer->owner, sizeof *layer->place * (size_t)n);
    layer->then = placement_busiest(layer->load, layer->place, n, place->ranks, layer->rank_then);
    for (int32_t e = 0; e < n; e++) layer->moved += layer->place[e] != layer->owner[e];
    if (!place->slots) return;
    job.slots = place->slots;
    placement_find(&job, arena, &layer->copies);
}

void place_all(Place *place, Arena *arena) {
    for (int32_t i = 0; i < place->n_layers; i++) place_layer(place, &place->layers[i], arena);
}

/* Steps ---------------------------------------------------------------------------------------- */

static const PlaceLayer *layer_of(const Place *place, int32_t layer) {
    for (int32_t i = 0; i < place->n_layers; i++)
        if (place->layers[i].layer == layer) return &place->layers[i];
    return NULL;
}

static double imbalance(const Place *place, const double *loads, int32_t *const *owners, Arena *arena) {
    double *rank_load = ARENA_ARRAY(arena, double, place->ranks), most = 0, mean = 0;
    for (int32_t i = 0; i < place->load.n_layers; i++) {
        const LoadLayer *of = &place->load.layers[i];
        most += placement_busiest(loads + of->at, owners[i], of->experts, place->ranks, rank_load);
        for (int32_t r = 0; r < place->ranks; r++) mean += rank_load[r] / place->ranks;
    }
    return mean > 0 ? most / mean : 1;
}

static int32_t **owners_of(const Place *place, bool then, Arena *arena) {
    int32_t **owners = ARENA_ARRAY(arena, int32_t *, place->load.n_layers + 1);
    for (int32_t i = 0; i < place->load.n_layers; i++) {
        const PlaceLayer *layer = layer_of(place, place->load.layers[i].layer);
        owners[i] = then ? layer->place : layer->owner;
    }
    return owners;
}

double place_imbalance(const Place *place, const double *loads, bool then, Arena *arena) {
    return imbalance(place, loads, owners_of(place, then, arena), arena);
}

double place_judged(const Place *place, int32_t middle, Arena *arena) {
    const Load *load = &place->load;
    int32_t **owners = ARENA_ARRAY(arena, int32_t *, load->n_layers + 1);
    double *sum = ARENA_ARRAY(arena, double, load->width + 1);
    load_sum(load, 0, middle, sum);
    for (int32_t i = 0; i < load->n_layers; i++) {
        const LoadLayer *of = &load->layers[i];
        PlacementJob job = { sum + of->at, of->experts, place->ranks, of->experts / place->ranks, PLACEMENT_BUDGET, NULL, 0 };
        Placement placed;
        placement_find(&job, arena, &placed);
        owners[i] = ARENA_ARRAY(arena, int32_t, of->experts);
        placement_owners(&placed, owners[i]);
    }
    load_sum(load, middle, load->n_steps, sum);
    return imbalance(place, sum, owners, arena);
}

/* Tables --------------------------------------------------------------------------------------- */

static double mean_of(const PlaceLayer *layer) {
    return layer->placed.mean > 0 ? layer->placed.mean : 1;
}

static void print_head(const Place *place, Text *out) {
    const Load *load = &place->load;
    text_printf(out, "load     %s: ", place->loads);
    if (!load->n_steps) text_add(out, "none is recorded, taken as even: no placement is better than another\n");
    else if (load->n_steps == 1 && !load->steps[0]) text_add(out, "of one step\n");
    else
        text_printf(out, "steps %lld to %lld, %d of them\n", (long long)load->steps[0],
                    (long long)load->steps[load->n_steps - 1], load->n_steps);
    for (int32_t i = 0; i < place->n_layers && load->n_steps; i++)
        if (place->layers[i].even)
            text_printf(out, "         of layer %d none is recorded, taken as even\n", place->layers[i].layer);
    text_printf(out, "ranks    %d, each with experts / %d of a layer; now %s\n", place->ranks, place->ranks,
                place->in_order ? "in order" : "as the run has them");
}

static void print_layers(const Place *place, Text *out) {
    double now = 0, then = 0, bound = 0, mean = 0, worst[2] = { 0 };
    int32_t moved = 0;
    text_add(out, "\nrows of the busiest rank over the mean\n  layer  experts      now   placed    bound  moved\n");
    for (int32_t i = 0; i < place->n_layers; i++) {
        const PlaceLayer *layer = &place->layers[i];
        double one = mean_of(layer), least = fmin(layer->placed.bound, layer->then);
        text_printf(out, "  %5d  %7d %8.4f %8.4f %8.4f  %5d%s\n", layer->layer, layer->experts, layer->now / one,
                    layer->then / one, least / one, layer->moved, layer->then <= least * (1 + 1e-9) ? "  none is better" : "");
        worst[0] = fmax(worst[0], layer->now / one), worst[1] = fmax(worst[1], layer->then / one);
        now += layer->now, then += layer->then, bound += least, mean += one;
        moved += layer->moved;
    }
    if (place->n_layers > 1)
        text_printf(out, "  all             %8.4f %8.4f %8.4f  %5d\n", now / mean, then / mean, bound / mean, moved);
    text_printf(out, "  capacity        %8.4f %8.4f  by which a rank has a place for every row\n", worst[0], worst[1]);
}

static void print_steps(const Place *place, Arena *arena, Text *out) {
    const Load *load = &place->load;
    double sum[2] = { 0 }, worst[2] = { 0 };
    if (load->n_steps < 2) return;
    for (int then = 0; then < 2; then++) {
        int32_t **owners = owners_of(place, then, arena);
        for (int32_t s = 0; s < load->n_steps; s++) {
            double x = imbalance(place, load->rows + s * load->width, owners, arena);
            sum[then] += x / load->n_steps;
            worst[then] = fmax(worst[then], x);
        }
    }
    int32_t middle = load->n_steps / 2;
    double *rest = ARENA_ARRAY(arena, double, load->width);
    load_sum(load, middle, load->n_steps, rest);
    text_printf(out, "\nstep by step    %8.4f %8.4f  (the worst step %.4f, %.4f)\n", sum[0], sum[1], worst[0], worst[1]);
    text_printf(out, "later steps     %8.4f %8.4f  placed by steps to %lld, judged by those after\n",
                place_imbalance(place, rest, false, arena), place_judged(place, middle, arena),
                (long long)load->steps[middle - 1]);
}

/* The picture ---------------------------------------------------------------------------------- */

static void add_bar(double x, double most, Text *out) {
    enum { WIDTH = 30 };
    int n = most > 0 ? (int)lround(x / most * WIDTH) : 0;
    for (int i = 0; i < WIDTH; i++) text_add(out, i < n ? "#" : " ");
}

static const PlaceLayer *layer_to_draw(const Place *place) {
    const PlaceLayer *best = &place->layers[0];
    for (int32_t i = 0; i < place->n_layers; i++) {
        const PlaceLayer *layer = &place->layers[i];
        if (layer->layer == place->shown) return layer;
        if ((layer->now - layer->then) / mean_of(layer) > (best->now - best->then) / mean_of(best)) best = layer;
    }
    return best;
}

// Busiest ranks first.
static void print_picture(const Place *place, Arena *arena, Text *out) {
    enum { MOST_DRAWN = 16 };
    const PlaceLayer *layer = layer_to_draw(place);
    double most = fmax(layer->now, layer->then), mean = mean_of(layer);
    bool *drawn = ARENA_ARRAY(arena, bool, place->ranks);
    text_printf(out, "\nlayer %d, rows of a rank over the mean\n   rank  now%36s  placed\n", layer->layer, "");
    for (int32_t i = 0; i < place->ranks && i < MOST_DRAWN; i++) {
        int32_t rank = -1;
        for (int32_t r = 0; r < place->ranks; r++)
            if (!drawn[r] && (rank < 0 || layer->rank_now[r] > layer->rank_now[rank])) rank = r;
        drawn[rank] = true;
        text_printf(out, "  %5d  %7.4f ", rank, layer->rank_now[rank] / mean);
        add_bar(layer->rank_now[rank], most, out);
        text_printf(out, "  %7.4f ", layer->rank_then[rank] / mean);
        add_bar(layer->rank_then[rank], most, out);
        while (out->bytes && out->at[out->bytes - 1] == ' ') out->at[--out->bytes] = 0;
        text_add(out, "\n");
    }
    if (place->ranks > MOST_DRAWN) text_printf(out, "         and %d less busy ones\n", place->ranks - MOST_DRAWN);
}

/* Moving --------------------------------------------------------------------------------------- */

// Weights and AdamW's moments, in fp32.
enum { BYTES_MOVED = 12 };

typedef struct Move { int32_t experts, of; double bytes, most_bytes, row_s, rows; } Move;

static Move sum_moves(const Place *place, Arena *arena) {
    Move move = { 0 };
    double *into = ARENA_ARRAY(arena, double, place->ranks);
    for (int32_t i = 0; i < place->n_layers; i++) {
        const PlaceLayer *layer = &place->layers[i];
        move.of += layer->experts;
        move.experts += layer->moved;
        for (int32_t e = 0; e < layer->experts; e++) {
            if (layer->place[e] == layer->owner[e]) continue;
            into[layer->place[e]] += layer->numbers * BYTES_MOVED / place->edp;
            move.bytes += layer->numbers * BYTES_MOVED;
        }
        if (layer->even) continue;
        double rows = (layer->now - layer->then) / place->load.n_steps / place->edp;
        move.rows += rows;
        // 2 FLOPs a number and row in forward, 4 in backward.
        if (place->flops_per_s > 0) move.row_s += rows * 6 * layer->numbers / place->flops_per_s;
    }
    for (int32_t r = 0; r < place->ranks; r++) move.most_bytes = fmax(move.most_bytes, into[r]);
    return move;
}

static const char *seconds(double s, char out[32]) {
    static const struct { double unit; const char *name; } units[] = { { 1, "s" }, { 1e-3, "ms" }, { 1e-6, "us" } };
    for (int i = 0; i < COUNT_OF(units); i++)
        if (s >= units[i].unit || i == COUNT_OF(units) - 1) {
            snprintf(out, 32, "%.3g %s", s / units[i].unit, units[i].name);
            break;
        }
    return out;
}

// All ranks of ep give and take at once; 0: not known.
static double move_seconds(const Place *place, double most_bytes) {
    if (place->bytes_per_s > 0) return most_bytes / place->bytes_per_s;
    CostGroup group = { place->ranks, 1 };
    return place->cluster ? cost_collective_s(place->cluster, COLLECTIVE_all_to_all, group, most_bytes) : 0;
}

static void print_moves(const Place *place, Arena *arena, Text *out) {
    Move move = sum_moves(place, arena);
    char a[32], b[32];
    text_printf(out, "\nmoving   %d of %d experts", move.experts, move.of);
    if (!place->of_run) text_add(out, "; a file of loads does not say how large they are");
    else if (move.experts)
        text_printf(out, ": %s of weights and moments, %s to one rank at most", bytes_text((int64_t)move.bytes, a),
                    bytes_text((int64_t)move.most_bytes, b));
    text_add(out, "\n");
    if (!place->of_run || !move.experts) return;
    text_printf(out, "         the busiest rank has %.0f rows less in a step", move.rows);
    if (place->flops_per_s > 0)
        text_printf(out, ": %s at %.3g FLOP/s", seconds(move.row_s, a), place->flops_per_s);
    text_add(out, "\n");
    double move_s = move_seconds(place, move.most_bytes);
    if (!(move_s > 0) || !(move.row_s > 0))
        text_printf(out, "         %s tells when that pays\n",
                    place->flops_per_s > 0 ? "--bytes-per-s of the link, or --cluster,"
                                           : "--cluster, or --flops-per-s with --bytes-per-s of the link,");
    else
        text_printf(out, "         moved in %s: pays after %.0f step%s\n", seconds(move_s, a),
                    ceil(move_s / move.row_s), move_s <= move.row_s ? "" : "s");
}

/* Copies --------------------------------------------------------------------------------------- */

static void print_copies(const Place *place, Text *out) {
    if (!place->slots) return;
    text_printf(out, "\nwith %d places on each rank, copies of an expert share its rows\n"
                "  layer   placed   copies    bound  experts with copies\n", place->slots);
    for (int32_t i = 0; i < place->n_layers; i++) {
        const PlaceLayer *layer = &place->layers[i];
        const Placement *copies = &layer->copies;
        double mean = mean_of(layer);
        int listed = 0;
        text_printf(out, "  %5d %8.4f %8.4f %8.4f ", layer->layer, layer->then / mean, copies->most / mean,
                    copies->bound / mean);
        for (int32_t e = 0; e < layer->experts && listed < 8; e++)
            if (copies->copies[e] > 1) text_printf(out, "%s%d x %d", listed++ ? ", " : " ", e, copies->copies[e]);
        text_add(out, listed == 8 ? ", ..\n" : "\n");
    }
    text_add(out, "no plan has copies yet: the layout is without\n");
}

void place_print(const Place *place, Text *out) {
    Arena *arena = arena_create();
    print_head(place, out);
    print_layers(place, out);
    print_steps(place, arena, out);
    print_picture(place, arena, out);
    print_copies(place, out);
    print_moves(place, arena, out);
    arena_destroy(arena);
}
