// SPDX-License-Identifier: Apache-2.0
// Attention, backward, in fp32: as attend_grad_mma.cu, with ROWS = 32 rows that stay and 32 columns at a
// time. Eight threads share a row; of a row's results a thread owns every eighth number.
enum { ROWS_$entry = 32, QK_PITCH_$entry = QK_$entry + 1, V_PITCH_$entry = VALUE_$entry + 1 };
typedef struct Memory_$entry {
    float row_qk[ROWS_$entry * QK_PITCH_$entry], row_v[ROWS_$entry * V_PITCH_$entry];
    float column_qk[ROWS_$entry * QK_PITCH_$entry], column_v[ROWS_$entry * V_PITCH_$entry];
    float p[ROWS_$entry][33], ds[ROWS_$entry][33];
    int sees[ROWS_$entry][2];      // of the queries
    float numbers[ROWS_$entry][2]; // lse, delta
} Memory_$entry;

// p and ds of the block's rows from `row0` and the columns from `column0`.
template <bool OF_KEYS> DEVICE void weigh_$entry(Memory_$entry *m, int row0, int column0) {
    enum { QK = QK_$entry, V = VALUE_$entry };
    const int row = threadIdx.x / 8, part = threadIdx.x % 8;
    float s[4] = {0.0f, 0.0f, 0.0f, 0.0f}, dp[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int d = 0; d < QK; d++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            s[i] = fmaf(m->row_qk[row * (QK + 1) + d], m->column_qk[(part + 8 * i) * (QK + 1) + d], s[i]);
    for (int d = 0; d < V; d++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            dp[i] = fmaf(m->row_v[row * (V + 1) + d], m->column_v[(part + 8 * i) * (V + 1) + d], dp[i]);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int column = part + 8 * i, query = OF_KEYS ? column : row, key = OF_KEYS ? row0 + row : column0 + column;
        bool seen = key >= m->sees[query][0] && key < m->sees[query][1];
        float p = seen ? exp2f(fmaf(s[i], $scale * LOG2_E, -m->numbers[query][0])) : 0.0f;
        m->p[row][column] = p;
        m->ds[row][column] = seen ? p * (dp[i] - m->numbers[query][1]) : 0.0f;
    }
    __syncwarp(); // a row's threads are of one warp
}

template <int WIDTH> DEVICE void add_product_$entry(float *out, const float *weights, const float *columns) {
    const int part = threadIdx.x % 8;
    for (int c = 0; c < ROWS_$entry; c++)
#pragma unroll 8
        for (int j = 0; j < (WIDTH + 7) / 8; j++)
            if (part + 8 * j < WIDTH) out[j] = fmaf(weights[c], columns[c * (WIDTH + 1) + part + 8 * j], out[j]);
}

template <int WIDTH> DEVICE void put_row_$entry($y_type *to, int64_t stride, const float *out, float factor, int at) {
    const int row = at + (int)threadIdx.x / 8, part = threadIdx.x % 8;
#pragma unroll 8
    for (int j = 0; j < (WIDTH + 7) / 8; j++)
        if (row < SEQUENCE_$entry && part + 8 * j < WIDTH) put(to + row * stride + part + 8 * j, out[j] * factor);
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
    enum { S = SEQUENCE_$entry, QK = QK_$entry, V = VALUE_$entry, ROWS = ROWS_$entry };
    enum { BLOCKS = (S + ROWS - 1) / ROWS, OF_KEYS = $rows / S * KEYS_$entry * BLOCKS, OF_QUERIES = $rows / S * HEADS_$entry * BLOCKS };
    const int64_t q_row = HEADS_$entry * QK, k_row = KEYS_$entry * QK, v_row = KEYS_$entry * V, g_row = HEADS_$entry * V;
    extern __shared__ __align__(16) unsigned char memory[];
    Memory_$entry *m = (Memory_$entry *)memory;
    int block = blockIdx.x, first, end, unused, row = threadIdx.x / 8;
    if (block < OF_KEYS) {
        int k0 = block % BLOCKS * ROWS, key_head = block / BLOCKS % KEYS_$entry;
        int64_t t0 = (int64_t)(block / BLOCKS / KEYS_$entry) * S;
        float to_k[(QK + 7) / 8], to_v[(V + 7) / 8];
        for (int j = 0; j < (QK + 7) / 8; j++) to_k[j] = 0.0f;
        for (int j = 0; j < (V + 7) / 8; j++) to_v[j] = 0.0f;
        take_rows<ROWS, QK, QK + 1, $threads>(m->row_qk, k + t0 * k_row + key_head * QK, k_row, k0, S);
        take_rows<ROWS, V, V + 1, $threads>(m->row_v, v + t0 * v_row + key_head * V, v_row, k0, S);
        seen_by_$entry(segments + t0, k0, k0 + ROWS, &first, &end);
        for (int head = key_head * GROUP_$entry; head < (key_head + 1) * GROUP_$entry; head++)
            for (int q0 = first / ROWS * ROWS; q0 < end; q0 += ROWS) {
                __syncthreads(); // all have read the queries before
                take_rows<ROWS, QK, QK + 1, $threads>(m->column_qk, q + t0 * q_row + head * QK, q_row, q0, S);
                take_rows<ROWS, V, V + 1, $threads>(m->column_v, g + t0 * g_row + head * V, g_row, q0, S);
                take_queries_$entry<ROWS, $threads>(m->sees, m->numbers, segments + t0, lse, g, y, t0, head, q0);
                __syncthreads();
                weigh_$entry<true>(m, k0, q0);
                add_product_$entry<V>(to_v, m->p[row], m->column_v);
                add_product_$entry<QK>(to_k, m->ds[row], m->column_qk);
            }
        put_row_$entry<QK>(dk + t0 * k_row + key_head * QK, k_row, to_k, $scale, k0);
        put_row_$entry<V>(dv + t0 * v_row + key_head * V, v_row, to_v, 1.0f, k0);
        return;
    }
    block -= OF_KEYS;
    if (block < OF_QUERIES) {
        int q0 = block % BLOCKS * ROWS, head = block / BLOCKS % HEADS_$entry, key_head = head / GROUP_$entry;
        int64_t t0 = (int64_t)(block / BLOCKS / HEADS_$entry) * S;
        float to_q[(QK + 7) / 8];
        for (int j = 0; j < (QK + 7) / 8; j++) to_q[j] = 0.0f;
        take_rows<ROWS, QK, QK + 1, $threads>(m->row_qk, q + t0 * q_row + head * QK, q_row, q0, S);
        take_rows<ROWS, V, V + 1, $threads>(m->row_v, g + t0 * g_row + head * V, g_row, q0, S);
        take_queries_$entry<ROWS, $threads>(m->sees, m->numbers, segments + t0, lse, g, y, t0, head, q0);
        see_$entry(segments + t0, q0, &first, &unused);
        see_$entry(segments + t0, q0 + ROWS < S ? q0 + ROWS - 1 : S - 1, &unused, &end);
        for (int k0 = first / ROWS * ROWS; k0 < end; k0 += ROWS) {
            __syncthreads(); // all have read the keys before
            take_rows<ROWS, QK, QK + 1, $threads>(m->column_qk, k + t0 * k_row + key_head * QK, k_row, k0, S);
            take_rows<ROWS, V, V + 1, $threads>(m->column_v, v + t0 * v_row + key_head * V, v_row, k0, S);
            __syncthreads();
            weigh_$entry<false>(m, q0, k0);
            add_product_$entry<QK>(to_q, m->ds[row], m->column_qk);
        }
        put_row_$entry<QK>(dq + t0 * q_row + head * QK, q_row, to_q, $scale, q0);
        return;
    }
#if $sinks
    sink_$entry(sinks, y, lse, g, dsinks, block - OF_QUERIES, (double *)memory);
#endif
}
