// SPDX-License-Identifier: Apache-2.0
// Source 0: the memory forms of row programs, and the ids of the k largest.

// n: live lanes. The first n of 16 numbers; the others read as 0.
#if defined __AVX512F__ && defined __AVX512BW__ && defined __AVX512VL__
INLINE uint16_t mask_of(int64_t n) { return n >= LANES ? 0xffff : (uint16_t)((1u << n) - 1); }
INLINE V v_load_n(const float *p, int64_t n) {
    return __builtin_ia32_loadups512_mask(p, (V){ 0 }, mask_of(n));
}
INLINE VI vi_load_n(const int32_t *p, int64_t n) {
    return __builtin_ia32_loaddqusi512_mask(p, (VI){ 0 }, mask_of(n));
}
INLINE V vh_load_n(const bf16 *p, int64_t n) {
    typedef short Numbers __attribute__((vector_size(32)));
    Numbers none = { 0 };
    return v_of_bf16((VB)__builtin_ia32_loaddquhi256_mask((const void *)p, none, mask_of(n)));
}
INLINE void v_store_n(float *p, V v, int64_t n) {
    __builtin_ia32_storeups512_mask(p, v, mask_of(n));
}
INLINE void vi_store_n(int32_t *p, VI v, int64_t n) {
    __builtin_ia32_storedqusi512_mask(p, v, mask_of(n));
}
INLINE void vh_store_n(bf16 *p, V v, int64_t n) {
    typedef short Numbers __attribute__((vector_size(32)));
    __builtin_ia32_storedquhi256_mask((void *)p, (Numbers)vb_of(v), mask_of(n));
}
#else
INLINE V v_load_n(const float *p, int64_t n) { return n >= LANES ? v_load(p) : v_load_part(p, n); }
INLINE VI vi_load_n(const int32_t *p, int64_t n) {
    return n >= LANES ? vi_load(p) : vi_load_part(p, n);
}
INLINE void v_store_n(float *p, V v, int64_t n) {
    if (n >= LANES)
        v_store(p, v);
    else
        v_store_part(p, v, n);
}
INLINE void vi_store_n(int32_t *p, VI v, int64_t n) {
    if (n >= LANES)
        vi_store(p, v);
    else
        vi_store_part(p, v, n);
}
INLINE V vh_load_n(const bf16 *p, int64_t n) {
    return n >= LANES ? v_load_bf16(p) : v_load_bf16_part(p, n);
}
INLINE void vh_store_n(bf16 *p, V v, int64_t n) {
    if (n >= LANES)
        v_store_bf16(p, v);
    else
        v_store_bf16_part(p, v, n);
}
#endif
// vh: bf16 in memory, fp32 in lanes.
INLINE V vh_splat(bf16 x) { return v_of_bits(vi_splat((int32_t)((uint32_t)x << 16))); }
INLINE V vh_load(const bf16 *p) { return v_load_bf16(p); }
INLINE void vh_store(bf16 *p, V v) { v_store_bf16(p, v); }
// Lane i at p[i * step].
#if defined __AVX512F__
INLINE V v_load_by(const float *p, int64_t step, int64_t n) {
    VI at = vi_iota() * (int32_t)step;
    return __builtin_ia32_gathersiv16sf((V){ 0 }, p, at, n >= LANES ? 0xffff : (1 << n) - 1, 4);
}
INLINE VI vi_load_by(const int32_t *p, int64_t step, int64_t n) {
    VI at = vi_iota() * (int32_t)step;
    return __builtin_ia32_gathersiv16si((VI){ 0 }, p, at, n >= LANES ? 0xffff : (1 << n) - 1, 4);
}
#else
INLINE V v_load_by(const float *p, int64_t step, int64_t n) {
    float lane[LANES] = { 0 };
    for (int64_t i = 0; i < n; i++) lane[i] = p[i * step];
    return v_load(lane);
}
INLINE VI vi_load_by(const int32_t *p, int64_t step, int64_t n) {
    int32_t lane[LANES] = { 0 };
    for (int64_t i = 0; i < n; i++) lane[i] = p[i * step];
    return vi_load(lane);
}
#endif
INLINE void v_store_by(float *p, V v, int64_t step, int64_t n) {
    float lane[LANES];
    v_store(lane, v);
    for (int64_t i = 0; i < n; i++) p[i * step] = lane[i];
}
INLINE void vi_store_by(int32_t *p, VI v, int64_t step, int64_t n) {
    int32_t lane[LANES];
    vi_store(lane, v);
    for (int64_t i = 0; i < n; i++) p[i * step] = lane[i];
}
INLINE V vh_load_by(const bf16 *p, int64_t step, int64_t n) {
    bf16 lane[LANES] = { 0 };
    for (int64_t i = 0; i < n; i++) lane[i] = p[i * step];
    return vh_load(lane);
}
INLINE void vh_store_by(bf16 *p, V v, int64_t step, int64_t n) {
    bf16 lane[LANES];
    vh_store(lane, v);
    for (int64_t i = 0; i < n; i++) p[i * step] = lane[i];
}
// Lane i at p[id[i] * step + at[i]]; 0 where `mask` is off, as it is from lane
// n on; nothing is read there.
INLINE V v_pick(const float *p, VI id, int64_t step, VI at, VI mask, int64_t n) {
    float lane[LANES] = { 0 };
    for (int i = 0; i < n; i++) lane[i] = mask[i] ? p[id[i] * step + at[i]] : 0;
    return v_load(lane);
}
INLINE VI vi_pick(const int32_t *p, VI id, int64_t step, VI at, VI mask, int64_t n) {
    int32_t lane[LANES] = { 0 };
    for (int i = 0; i < n; i++) lane[i] = mask[i] ? p[id[i] * step + at[i]] : 0;
    return vi_load(lane);
}
INLINE V vh_pick(const bf16 *p, VI id, int64_t step, VI at, VI mask, int64_t n) {
    bf16 lane[LANES] = { 0 };
    for (int i = 0; i < n; i++) lane[i] = mask[i] ? p[id[i] * step + at[i]] : 0;
    return vh_load(lane);
}

// The same of rows that lie on several ranks, `rows` on each: lane i at row id[i] % rows of the memory at
// tables[id[i] / rows], number first + at[i] of it.
#define PICK_APART(name, vector, number, load)                                                     \
    INLINE vector name(const int64_t *tables, int64_t rows, int64_t first, VI id, int64_t step,    \
                       VI at, VI mask, int64_t n) {                                                \
        number lane[LANES] = { 0 };                                                                \
        for (int i = 0; i < n; i++)                                                                \
            if (mask[i])                                                                           \
                lane[i] = ((const number *)tables[id[i] / rows])[id[i] % rows * step + first +     \
                                                                 at[i]];                           \
        return load(lane);                                                                         \
    }
PICK_APART(v_pick_apart, V, float, v_load)
PICK_APART(vi_pick_apart, VI, int32_t, vi_load)
PICK_APART(vh_pick_apart, V, bf16, vh_load)
// Lane i to number `at` of row id[i], where there is one.
#define PUT_APART(name, vector, number, store)                                                     \
    INLINE void name(const int64_t *tables, int64_t rows, int64_t at, VI id, int64_t step,         \
                     vector v, int64_t n) {                                                        \
        number lane[LANES];                                                                        \
        store(lane, v);                                                                            \
        for (int i = 0; i < n; i++)                                                                \
            if (id[i] >= 0)                                                                        \
                ((number *)tables[id[i] / rows])[id[i] % rows * step + at] = lane[i];              \
    }
PUT_APART(v_put_apart, V, float, v_store)
PUT_APART(vi_put_apart, VI, int32_t, vi_store)
PUT_APART(vh_put_apart, V, bf16, vh_store)

// Marks the maximum of no rows in partial records of row_max. No arithmetic makes this NaN.
#define NO_ROWS (-1)
// Maximum of records: a marked one gives way. NaN loses to a number.
INLINE V v_max_rows(V v, V best) {
    VI none = v_bits(best) == vi_splat(NO_ROWS), no_news = v_bits(v) == vi_splat(NO_ROWS);
    return v_select(no_news, best, v_select(none | (best != best), v, v_max(v, best)));
}
INLINE float v_max_rows_lane(V v) {
    V best = v_splat(v[0]);
    for (int i = 1; i < LANES; i++) best = v_max_rows(v_splat(v[i]), best);
    return best[0];
}

// hash_uniform of runtime/base/hash.c, lane by lane. ORDER MIX
INLINE uint64_t avalanche(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}
INLINE V v_uniform(uint64_t seed, uint64_t stream, VI token, uint64_t per_token, VI element) {
    V y;
    uint64_t start =
        avalanche(avalanche(seed + 0x9e3779b97f4a7c15u) ^ (stream + 0x9e3779b97f4a7c15u));
    for (int i = 0; i < LANES; i++) {
        uint64_t b = (uint32_t)token[i] * per_token + (uint32_t)element[i];
        y[i] = (float)(avalanche(start ^ (b + 0x9e3779b97f4a7c15u)) >> 40) * 0x1p-24f;
    }
    return y;
}

/* The ids of the k largest --------------------------------------------------------------------- */

enum { TAKEN = (int)0x80000000 }; // below every v_key

// The id of the largest lane, ties to the lower id.
INLINE int32_t top_lane_(VI best, VI id) {
#define TOP_(i)                                                                                    \
    {                                                                                              \
        VI b = V_FOLD_(best, i), d = V_FOLD_(id, i), more = (b > best) | ((b == best) & (d < id)); \
        best = vi_select(more, b, best);                                                           \
        id = vi_select(more, d, id);                                                               \
    }
    TOP_(8) TOP_(4) TOP_(2) TOP_(1)
#undef TOP_
    return id[0];
}
// The ids of the k largest of key[0..n), ties to the lower id; uses the keys up. Few of them stay
// in registers.
enum { TOP_VECTORS = 8 };
INLINE void top_row(int32_t *key, const int64_t n, const int64_t k, int32_t *out) {
    const int64_t vectors = (n + LANES - 1) / LANES;
    VI kept[TOP_VECTORS];
    UNROLL
    for (int i = 0; i < TOP_VECTORS; i++) {
        int64_t live = n - i * LANES;
        kept[i] = vi_splat(TAKEN);
        if (live > 0)
            kept[i] = vi_select(vi_below(live), vi_load_n(key + i * LANES, live), vi_splat(TAKEN));
    }
    for (int64_t t = 0; t < k; t++) {
        VI best = kept[0], id = vi_iota();
        UNROLL
        for (int i = 1; i < TOP_VECTORS; i++) {
            if (i >= vectors) continue;
            VI more = kept[i] > best;
            best = vi_select(more, kept[i], best);
            id = vi_select(more, vi_iota() + vi_splat(i * LANES), id);
        }
        for (int64_t j = TOP_VECTORS * LANES; j < n; j += LANES) {
            VI x = vi_load_n(key + j, n - j);
            x = vi_select(vi_below(n - j), x, vi_splat(TAKEN));
            VI more = x > best;
            best = vi_select(more, x, best);
            id = vi_select(more, vi_iota() + vi_splat((int32_t)j), id);
        }
        int32_t at = top_lane_(best, id);
        out[t] = at;
        UNROLL
        for (int i = 0; i < TOP_VECTORS; i++)
            kept[i] = vi_select(vi_iota() == vi_splat(at - i * LANES), vi_splat(TAKEN), kept[i]);
        if (at >= TOP_VECTORS * LANES) key[at] = TAKEN;
    }
}
// The same for 16 rows at once; key [n][16].
INLINE VI top_one_rows(int32_t *key, int64_t n) {
    VI best = vi_splat(TAKEN), id = vi_splat(0);
    for (int64_t j = 0; j < n; j++) {
        VI k = vi_load(key + j * LANES), more = k > best;
        best = vi_select(more, k, best);
        id = vi_select(more, vi_splat((int32_t)j), id);
    }
    for (int64_t j = 0; j < n; j++) {
        VI k = vi_load(key + j * LANES);
        vi_store(key + j * LANES, vi_select(id == vi_splat((int32_t)j), vi_splat(TAKEN), k));
    }
    return id;
}
