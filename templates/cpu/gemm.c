// SPDX-License-Identifier: Apache-2.0
// matmul and matmul_t: rows times packed weights, dense or grouped by expert.
//
//   out[r, e, a, j] = sum over terms t, s of in t[r, e, a, s] weight[e, s, j]
//
// matmul has one term and may have several weights over the same rows (siblings, a result each);
// matmul_t has one result and may have several terms, summed one after the other in the same
// accumulators. Weights are panels (kernel.h: pack). A tile is (problem, chunk of rows of one
// expert, range of panels). The contraction is cut into pieces of STEPS, which sums continue
// through, so bits do not depend on any cut. Only rows inside `offsets` are touched.
//
// The left operand is read where it lies if it has the type and the distance of rows that blocks
// want; else a chunk's piece is copied, or a row program (pre) makes it. Results go where they
// belong, or through `sums` if there is a row program to run on them (post) or a sum that is not
// finished and may not be rounded.
//
// Problems: where an operation has both `each` and `mid` axes, rows of one (e, a) lie at one
// distance, rows of one e do not; then every pair is a problem. Else mid's positions are further
// rows, and e the problem.
$functions
static void tile_$entry($parameters int64_t tile) {
    enum { EXPERTS = $experts, MID = $mid, EACH = $each, BOTH = MID > 1 && EACH > 1 };
    enum { CHUNK = $chunk, RANGE = $range, STEPS = $steps, PANELS = $panels };
    enum { TERMS = $terms, SIBLINGS = $siblings, PAIRS = $pairs };
    enum { COPY = $copy, COPY_ROW = $copy_row, KEEP = $keep, FIRST = $first };
    static const int64_t in_size[TERMS] = {$in_sizes}, out_size[SIBLINGS] = {$out_sizes};
    const $x_type *const in[TERMS] = {$in};
    $y_type *const out[SIBLINGS] = {$out};
    const $w_type *const weights[TERMS * SIBLINGS] = {$weights};
    const int32_t *const bounds = $offsets;

    const int64_t span = BOTH ? 1 : MID, all = $rows * span, apart = EACH * (BOTH ? MID : 1);
    const int64_t ranges = up(PANELS, RANGE);
    const int64_t chunks = EXPERTS ? all / CHUNK + EXPERTS : up(all, CHUNK);
    int64_t panel0 = tile % ranges * RANGE, last_panel = min_of(panel0 + RANGE, PANELS);
    int64_t chunk = tile / ranges % chunks, problem = tile / ranges / chunks;
    int64_t begin = chunk * CHUNK, rows = min_of(CHUNK, all - begin), expert = 0;
    if (EXPERTS) {
        int64_t parts, valid;
        for (;; expert++, chunk -= parts) {
            if (expert == EXPERTS) return;
            begin = bounds[expert] * span, valid = bounds[expert + 1] * span - begin;
            parts = up(valid, CHUNK);
            if (chunk < parts) break;
        }
        rows = valid * (chunk + 1) / parts - valid * chunk / parts;
        begin += valid * chunk / parts;
    }
    int64_t matrix = expert * EACH + (BOTH ? problem / MID : problem);

    $storage _Alignas(64) $a_type copy[COPY ? CHUNK * COPY_ROW : 1];
    $storage _Alignas(64) float sums[KEEP ? CHUNK * RANGE * PANEL : 1];
    int started = 0;
    for (int64_t t = 0; t < TERMS; t++) {
        const int64_t size = in_size[t], in_row = apart * size, units = PAIRS ? up(size, 2) : size;
        for (int64_t s = 0; s < size; s += STEPS, started = 1) {
            int64_t steps = min_of(STEPS, size - s);
            int64_t from = begin * in_row + problem * size + s;
            const $a_type *a = COPY ? copy : (const $a_type *)(in[t] + from);
            $make_operand
            // The partner of an odd last number.
            for (int64_t i = 0; COPY && PAIRS && steps % 2 && i < rows; i++)
                copy[i * COPY_ROW + steps] = 0;
            for (int64_t p = panel0; p < last_panel; p++) {
                PanelPlace at = panel_place(out_size, p);
                int64_t wide = out_size[at.part], out_row = apart * wide;
                const $w_type *panel = weights[t + at.part];
                panel += ((matrix * up(wide, PANEL) + at.number) * units * (1 + PAIRS) + s) * PANEL;
                int64_t place = begin * out_row + problem * wide + at.column;
                Block b = {.a = a,
                           .a_row = (COPY ? COPY_ROW : in_row) / (1 + PAIRS),
                           .a_step = 1,
                           .panel = panel,
                           .steps = PAIRS ? up(steps, 2) : steps,
                           .c = KEEP ? (void *)(sums + (p - panel0) * PANEL)
                                     : (void *)(out[at.part] + place),
                           .c_row = KEEP ? RANGE * PANEL : out_row,
                           .columns = KEEP ? PANEL : min_of(PANEL, wide - at.column),
                           .mode = started ? GEMM_CONTINUE : FIRST,
                           .ahead = (const char *)(panel + units * (1 + PAIRS) * PANEL)};
                gemm_$kind(&b, rows);
            }
        }
    }
    $finish
}

void $entry($parameters int64_t tile_begin, int64_t tile_end) {
    for (int64_t tile = tile_begin; tile < tile_end; tile++) tile_$entry($arguments tile);
}
