// SPDX-License-Identifier: Apache-2.0
// Which rows a block of a contraction works on, and copies of them into shared memory.
//
// Left operands are [rows, EACH, MID, columns]: for one of EACH, a row of the problem is a pair of row
// and MID, and problem row r lies (r / MID * EACH * MID + r % MID) rows into the array.

typedef struct Problem {
    int64_t first, rows; // problem rows of this problem: first in the array's rows, and how many
    int64_t at;          // of these, the block's first
    int expert;
} Problem;

// The row tile `tile` of BM problem rows, of a grouped contraction over all experts in turn. False when
// there are not so many tiles. Every lane of a warp calls it; an expert without rows has no tile.
template <int EXPERTS, int MID, int BM>
DEVICE bool find_tile(const int32_t *offsets, int64_t tile, Problem *p) {
    for (int base = 0; base < EXPERTS; base += WARP) {
        int expert = base + lane_id();
        int64_t rows = expert < EXPERTS ? (int64_t)(offsets[expert + 1] - offsets[expert]) * MID : 0;
        int tiles = (int)up(rows, BM), before = tiles;
        for (int i = 1; i < WARP; i *= 2) {
            int other = __shfl_up_sync(0xffffffffu, before, i);
            if (lane_id() >= i) before += other;
        }
        unsigned has = __ballot_sync(0xffffffffu, tile < before);
        if (has) {
            int lane = __ffs((int)has) - 1;
            p->expert = base + lane;
            p->at = (tile - __shfl_sync(0xffffffffu, before - tiles, lane)) * BM;
            p->first = offsets[p->expert];
            p->rows = (int64_t)(offsets[p->expert + 1] - offsets[p->expert]) * MID;
            return true;
        }
        tile -= __shfl_sync(0xffffffffu, before, WARP - 1);
    }
    return false;
}

// Where problem row r of one of EACH begins, in rows of the array.
template <int EACH, int MID> DEVICE int64_t row_place(const Problem &p, int each, int64_t r) {
    return ((p.first + r / MID) * EACH + each) * MID + r % MID;
}

// Numbers from memory to 16 aligned bytes of shared memory, eight bf16 or four floats; `n` of them exist,
// the rest become zero. ALIGNED: they start at a multiple of 16 bytes.
template <bool ALIGNED> DEVICE void load_piece(bf16 *to, const bf16 *from, int n) {
    if (ALIGNED) {
        copy_async(to, from, 2 * n);
        return;
    }
    uint32_t words[4];
    for (int i = 0; i < 4; i++) {
        uint32_t low = 2 * i < n ? from[2 * i].bits : 0, high = 2 * i + 1 < n ? from[2 * i + 1].bits : 0;
        words[i] = low | high << 16;
    }
    *(uint4 *)to = make_uint4(words[0], words[1], words[2], words[3]);
}
template <bool ALIGNED> DEVICE void load_piece(bf16 *to, const float *from, int n) {
    float x[8];
    if (ALIGNED && n == 8) {
        float4 a = ((const float4 *)from)[0], b = ((const float4 *)from)[1];
        x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w;
        x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
    } else {
        for (int i = 0; i < 8; i++) x[i] = i < n ? from[i] : 0.0f;
    }
    *(uint4 *)to = make_uint4(bf16_pair(x[0], x[1]), bf16_pair(x[2], x[3]), bf16_pair(x[4], x[5]),
                              bf16_pair(x[6], x[7]));
}

template <bool ALIGNED> DEVICE void load_piece(float *to, const float *from, int n) {
    if (ALIGNED) {
        copy_async(to, from, 4 * n);
        return;
    }
    for (int i = 0; i < 4; i++) to[i] = i < n ? from[i] : 0.0f;
}
template <bool ALIGNED> DEVICE void load_piece(float *to, const bf16 *from, int n) {
    for (int i = 0; i < 4; i++) to[i] = i < n ? f_of(from[i]) : 0.0f;
}

// How many of the `size` numbers from column `at` exist.
DEVICE int part_of(int64_t at, int64_t columns, int size) {
    return (int)max_of(0, min_of(size, columns - at));
}

// ROWS problem rows from `at`, of each the WIDE columns from `column` of COLUMNS, to shared rows of PITCH
// numbers; what does not exist becomes zero.
template <int ROWS, int WIDE, int PITCH, int COLUMNS, int EACH, int MID, int THREADS, typename To, typename From>
DEVICE void load_tile(To *to, const From *from, const Problem &p, int each, int64_t at, int64_t column) {
    enum { PIECE = 16 / sizeof(To), PIECES = WIDE / PIECE };
    for (int c = threadIdx.x; c < ROWS * PIECES; c += THREADS) {
        int row = c / PIECES, inner = c % PIECES * PIECE;
        bool is = at + row < p.rows;
        int64_t place = row_place<EACH, MID>(p, each, is ? at + row : 0);
        int n = is ? part_of(column + inner, COLUMNS, PIECE) : 0;
        load_piece<COLUMNS % PIECE == 0>(to + row * PITCH + inner, from + place * COLUMNS + (n ? column + inner : 0), n);
    }
}
