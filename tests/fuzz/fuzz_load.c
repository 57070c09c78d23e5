// SPDX-License-Identifier: Apache-2.0
// libFuzzer target for files of loads, lines of JSON and CSV: what is taken has whole steps, ascending, of
// numbers from 0 on, and its experts can be placed. The first byte says how many steps at the end count.
// Build with -DMOEC_FUZZ=ON (clang), run
//     fuzz_load -max_len=2048 -dict=tests/fuzz/load.dict tests/fuzz/corpus/load
#include <math.h>
#include <stdlib.h>

#include "compiler/search/load.h"
#include "compiler/search/placement.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_steps(const Load *load, int64_t last) {
    int64_t width = 0;
    if (last && load->n_steps > last) abort();
    for (int32_t i = 0; i < load->n_layers; i++) {
        const LoadLayer *layer = &load->layers[i];
        if (layer->layer < 1 || layer->experts < 1 || layer->at != width) abort();
        if (i && layer->layer <= layer[-1].layer) abort();
        width += layer->experts;
    }
    if (width != load->width) abort();
    for (int32_t s = 1; s < load->n_steps; s++)
        if (load->steps[s] <= load->steps[s - 1]) abort();
    for (int64_t i = 0; i < load->n_steps * width; i++)
        if (!(load->rows[i] >= 0 && load->rows[i] < 1e15)) abort();
}

static void place(const Load *load, Arena *arena) {
    double *sum = ARENA_ARRAY(arena, double, load->width + 1);
    load_sum(load, 0, load->n_steps, sum);
    for (int32_t i = 0; i < load->n_layers; i++) {
        const LoadLayer *layer = &load->layers[i];
        for (int32_t ranks = 1; ranks <= layer->experts && ranks <= 4; ranks++) {
            Placement placement;
            PlacementJob job = { sum + layer->at, layer->experts, ranks, layer->experts / ranks, 1000, NULL, 0 };
            if (layer->experts % ranks) continue;
            placement_find(&job, arena, &placement);
            if (!(placement.bound <= placement.most) || !isfinite(placement.most)) abort();
            if (placement.most < placement.mean * (1 - 1e-9)) abort();
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!size) return 0;
    Arena *arena = arena_create();
    char *text = ARENA_ARRAY(arena, char, size);
    Load load;
    memcpy(text, data + 1, size - 1);
    if (load_parse("input", text, size - 1, data[0] % 8, arena, &load) == OK) {
        check_steps(&load, data[0] % 8);
        place(&load, arena);
    }
    arena_destroy(arena);
    return 0;
}
