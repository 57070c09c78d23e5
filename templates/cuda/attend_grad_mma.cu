// SPDX-License-Identifier: Apache-2.0
// Attention, backward, in bf16. Both kinds of blocks do the same work with roles exchanged: ROWS = 64
// rows stay (keys with values, or queries with gradients), COLUMNS = 32 of the others come at a time.
// A warp has 16 rows; scores and dp of the columns are its accumulators and turn, as p and ds, into the
// left operands of the products that sum over columns.
enum {
    ROWS_$entry = 64, COLUMNS_$entry = 32,
    QKP_$entry = (QK_$entry + 15) / 16 * 16, VP_$entry = (VALUE_$entry + 15) / 16 * 16,
    QK_PITCH_$entry = QKP_$entry + 8, V_PITCH_$entry = VP_$entry + 8,
};
typedef struct Memory_$entry {
    bf16 row_qk[ROWS_$entry * QK_PITCH_$entry], row_v[ROWS_$entry * V_PITCH_$entry];
    bf16 column_qk[COLUMNS_$entry * QK_PITCH_$entry], column_v[COLUMNS_$entry * V_PITCH_$entry];
    int sees[ROWS_$entry][2];      // of the queries
    float numbers[ROWS_$entry][2]; // lse, delta
} Memory_$entry;

// [16 rows of the warp] x [COLUMNS] += rows' columns over DEPTH.
template <int DEPTH, int PITCH> DEVICE void scores_$entry(float s[4][4], const bf16 *rows, const bf16 *columns) {
    const int lane = lane_id();
#pragma unroll
    for (int j = 0; j < 4; j++)
        for (int i = 0; i < 4; i++) s[j][i] = 0.0f;
#pragma unroll 4
    for (int d = 0; d < DEPTH; d += 16) {
        uint32_t a[4], b[4];
        load_matrices(a, rows + (warp_id() * 16 + (lane & 15)) * PITCH + d + (lane >> 4) * 8);
#pragma unroll
        for (int j = 0; j < 4; j += 2) {
            load_matrices(b, columns + (j * 8 + (lane & 7) + (lane >> 4) * 8) * PITCH + d + (lane >> 3 & 1) * 8);
            mma_bf16(s[j], a, b);
            mma_bf16(s[j + 1], a, b + 2);
        }
    }
}

// out [16 rows, WIDTH] += s [16 rows, COLUMNS] x columns [COLUMNS, WIDTH].
template <int WIDTH, int PITCH> DEVICE void add_product_$entry(float (*out)[4], const float s[4][4], const bf16 *columns) {
    const int lane = lane_id();
#pragma unroll
    for (int step = 0; step < 2; step++) {
        uint32_t a[4] = {bf16_pair(s[2 * step][0], s[2 * step][1]), bf16_pair(s[2 * step][2], s[2 * step][3]),
                         bf16_pair(s[2 * step + 1][0], s[2 * step + 1][1]),
                         bf16_pair(s[2 * step + 1][2], s[2 * step + 1][3])};
#pragma unroll
        for (int j = 0; j < WIDTH / 8; j += 2) {
            uint32_t b[4];
            load_matrices_turned(b, columns + (step * 16 + (lane & 15)) * PITCH + j * 8 + (lane >> 4) * 8);
            mma_bf16(out[j], a, b);
            mma_bf16(out[j + 1], a, b + 2);
        }
    }
}

template <int WIDTH, int PADDED> DEVICE void put_rows_$entry($y_type *to, int64_t stride, const float (*out)[4], float factor, int at) {
    const int group = lane_id() / 4, quad = lane_id() % 4;
#pragma unroll
    for (int j = 0; j < PADDED / 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int row = at + warp_id() * 16 + group + i / 2 * 8, d = j * 8 + quad * 2 + i % 2;
            if (row < SEQUENCE_$entry && d < WIDTH) put(to + row * stride + d, out[j][i] * factor);
        }
}

// Scores and dp of the warp's rows from `row0` and the columns from `column0` to p and ds.
template <bool OF_KEYS> DEVICE void weigh_$entry(float s[4][4], float dp[4][4], const Memory_$entry *m, int row0, int column0) {
    const int group = lane_id() / 4, quad = lane_id() % 4;
#pragma unroll
    for (int j = 0; j < 4; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int row = warp_id() * 16 + group + i / 2 * 8, column = j * 8 + quad * 2 + i % 2;
            int query = OF_KEYS ? column : row, key = OF_KEYS ? row0 + row : column0 + column;
            bool seen = key >= m->sees[query][0] && key < m->sees[query][1];
            float p = seen ? exp2f(fmaf(s[j][i], $scale * LOG2_E, -m->numbers[query][0])) : 0.0f;
            s[j][i] = p;
            dp[j][i] = seen ? p * (dp[j][i] - m->numbers[query][1]) : 0.0f;
        }
}

KERNEL($threads) $entry(const $x_type *q, const $x_type *k, const $x_type *v, const int32_t *segments,
                        const $x_type *y, const float *lse, const $g_type *g,
#if $sinks
                        const float *sinks,
#endif
                        $y_type *dq, $y_type *dk, $y_type *dv
#if $sinks
                        , float *dsinks
#endif
) {
    enum { S = SEQUENCE_$entry, QK = QK_$entry, V = VALUE_$entry, ROWS = ROWS_$entry, COLUMNS = COLUMNS_$entry };
    enum { BLOCKS = (S + ROWS - 1) / ROWS, OF_KEYS = $rows / S * KEYS_$entry * BLOCKS, OF_QUERIES = $rows / S * HEADS_$entry * BLOCKS };
    enum { QKP = QKP_$entry, VP = VP_$entry, QK_PITCH = QK_PITCH_$entry, V_PITCH = V_PITCH_$entry };
    const int64_t q_row = HEADS_$entry * QK, k_row = KEYS_$entry * QK, v_row = KEYS_$entry * V, g_row = HEADS_$entry * V;
    extern __shared__ __align__(16) unsigned char memory[];
    Memory_$entry *m = (Memory_$entry *)memory;
    int block = blockIdx.x, first, end, unused;
    float s[4][4], dp[4][4];
    if (block < OF_KEYS) {
        int k0 = block % BLOCKS * ROWS, key_head = block / BLOCKS % KEYS_$entry;
        int64_t t0 = (int64_t)(block / BLOCKS / KEYS_$entry) * S;
        float to_k[QKP / 8][4], to_v[VP / 8][4];
        for (int j = 0; j < QKP / 8 * 4; j++) to_k[j / 4][j % 4] = 0.0f;
        for (int j = 0; j < VP / 8 * 4; j++) to_v[j / 4][j % 4] = 0.0f;
        take_rows<ROWS, QK, QKP, QK_PITCH, $threads>(m->row_qk, k + t0 * k_row + key_head * QK, k_row, k0, S);
        take_rows<ROWS, V, VP, V_PITCH, $threads>(m->row_v, v + t0 * v_row + key_head * V, v_row, k0, S);
        seen_by_$entry(segments + t0, k0, k0 + ROWS, &first, &end);
        for (int head = key_head * GROUP_$entry; head < (key_head + 1) * GROUP_$entry; head++)
            for (int q0 = first / COLUMNS * COLUMNS; q0 < end; q0 += COLUMNS) {
                __syncthreads(); // all have read the queries before
                take_rows<COLUMNS, QK, QKP, QK_PITCH, $threads>(m->column_qk, q + t0 * q_row + head * QK, q_row, q0, S);
                take_rows<COLUMNS, V, VP, V_PITCH, $threads>(m->column_v, g + t0 * g_row + head * V, g_row, q0, S);
                take_queries_$entry<COLUMNS, $threads>(m->sees, m->numbers, segments + t0, lse, g, y, t0, head, q0);
                copy_commit();
                copy_wait<0>();
                __syncthreads();
                scores_$entry<QKP, QK_PITCH>(s, m->row_qk, m->column_qk);
                scores_$entry<VP, V_PITCH>(dp, m->row_v, m->column_v);
                weigh_$entry<true>(s, dp, m, k0, q0);
                add_product_$entry<VP, V_PITCH>(to_v, s, m->column_v);
                add_product_$entry<QKP, QK_PITCH>(to_k, dp, m->column_qk);
            }
        copy_commit();
        copy_wait<0>(); // of keys that no query sees
        put_rows_$entry<QK, QKP>(dk + t0 * k_row + key_head * QK, k_row, to_k, $scale, k0);
        put_rows_$entry<V, VP>(dv + t0 * v_row + key_head * V, v_row, to_v, 1.0f, k0);
        return;
    }
    block -= OF_KEYS;
    if (block < OF_QUERIES) {
        int q0 = block % BLOCKS * ROWS, head = block / BLOCKS % HEADS_$entry, key_head = head / GROUP_$entry;
        int64_t t0 = (int64_t)(block / BLOCKS / HEADS_$entry) * S;
        float to_q[QKP / 8][4];
        for (int j = 0; j < QKP / 8 * 4; j++) to_q[j / 4][j % 4] = 0.0f;
        take_rows<ROWS, QK, QKP, QK_PITCH, $threads>(m->row_qk, q + t0 * q_row + head * QK, q_row, q0, S);
        take_rows<ROWS, V, VP, V_PITCH, $threads>(m->row_v, g + t0 * g_row + head * V, g_row, q0, S);
        take_queries_$entry<ROWS, $threads>(m->sees, m->numbers, segments + t0, lse, g, y, t0, head, q0);
        see_$entry(segments + t0, q0, &first, &unused);
        see_$entry(segments + t0, q0 + ROWS < S ? q0 + ROWS - 1 : S - 1, &unused, &end);
        for (int k0 = first / COLUMNS * COLUMNS; k0 < end; k0 += COLUMNS) {
            __syncthreads(); // all have read the keys before
            take_rows<COLUMNS, QK, QKP, QK_PITCH, $threads>(m->column_qk, k + t0 * k_row + key_head * QK, k_row, k0, S);
            take_rows<COLUMNS, V, VP, V_PITCH, $threads>(m->column_v, v + t0 * v_row + key_head * V, v_row, k0, S);
            copy_commit();
            copy_wait<0>();
            __syncthreads();
            scores_$entry<QKP, QK_PITCH>(s, m->row_qk, m->column_qk);
            scores_$entry<VP, V_PITCH>(dp, m->row_v, m->column_v);
            weigh_$entry<false>(s, dp, m, q0, k0);
            add_product_$entry<QKP, QK_PITCH>(to_q, dp, m->column_qk);
        }
        copy_commit();
        copy_wait<0>();
        put_rows_$entry<QK, QKP>(dq + t0 * q_row + head * QK, q_row, to_q, $scale, q0);
        return;
    }
#if $sinks
    sink_$entry(sinks, y, lse, g, dsinks, block - OF_QUERIES, (double *)memory);
#endif
}
