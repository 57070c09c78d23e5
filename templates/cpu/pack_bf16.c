// SPDX-License-Identifier: Apache-2.0
// pack of weights that are bf16 already: as pack.c in pairs, numbers moved and not rounded.
void $entry(const bf16 *w, bf16 *packed, int64_t tile_begin, int64_t tile_end) {
    enum { K = $k, N = $n, TURNED = $turned };
    enum { STEPS = TURNED ? N : K, COLUMNS = TURNED ? K : N };
    enum { STEP = TURNED ? 1 : N, COLUMN = TURNED ? N : 1 };
    const int64_t panels = up(COLUMNS, PANEL), all = $matrices * panels, numbers = (STEPS + 1) / 2 * 2 * (int64_t)PANEL;
    for (int64_t p = tile_begin * $chunk; p < min_of(tile_end * $chunk, all); p++) {
        int64_t first = p % panels * PANEL, columns = min_of(PANEL, COLUMNS - first);
        const bf16 *from = w + p / panels * K * N + first * COLUMN;
        bf16 *to = packed + p * numbers;
        __builtin_memset(to, 0, sizeof *to * (uint64_t)numbers);
        if (TURNED) {
            for (int64_t j = 0; j < columns; j++)
                for (int64_t s = 0; s < STEPS; s++)
                    to[(s / 2 * PANEL + j) * 2 + s % 2] = from[j * COLUMN + s];
        } else {
            for (int64_t s = 0; s < STEPS; s++)
                for (int64_t j = 0; j < columns; j++)
                    to[(s / 2 * PANEL + j) * 2 + s % 2] = from[s * STEP + j];
        }
    }
}
