// SPDX-License-Identifier: Apache-2.0
// Lanes for row programs: what compiler/codegen/row_emit.c writes in terms of vectors of LANES numbers
// is, on a GPU, a warp. A V is one thread's lane; "p + lane" is implied where the CPU's forms read or
// write a vector at p. Masks are ints, 0 or not.
enum { LANES = 32 };
typedef float V;
typedef int32_t VI;

DEVICE V v_splat(float x) { return x; }
DEVICE VI vi_splat(int32_t x) { return x; }
DEVICE VI vi_iota() { return lane_id(); }
DEVICE VI vi_below(int64_t n) { return lane_id() < n; }
DEVICE VI vi_bool(VI mask) { return mask != 0; }
DEVICE V v_of_int(VI x) { return (float)x; }
DEVICE VI v_bits(V x) { return __float_as_int(x); }
DEVICE V v_of_bits(VI x) { return __int_as_float(x); }
DEVICE int32_t f_bits(float x) { return __float_as_int(x); }
DEVICE V v_select(VI mask, V a, V b) { return mask ? a : b; }
DEVICE VI vi_select(VI mask, VI a, VI b) { return mask ? a : b; }

/* Memory: v floats, vi ints, vh bf16; _n the first n lanes, the others read as 0; _by with a step -- */

DEVICE V v_load(const float *p) { return p[lane_id()]; }
DEVICE VI vi_load(const int32_t *p) { return p[lane_id()]; }
DEVICE V vh_load(const bf16 *p) { return f_of(p[lane_id()]); }
DEVICE V v_load_n(const float *p, int64_t n) { return lane_id() < n ? p[lane_id()] : 0.0f; }
DEVICE VI vi_load_n(const int32_t *p, int64_t n) { return lane_id() < n ? p[lane_id()] : 0; }
DEVICE V vh_load_n(const bf16 *p, int64_t n) { return lane_id() < n ? f_of(p[lane_id()]) : 0.0f; }
DEVICE V v_load_by(const float *p, int64_t step, int64_t n) {
    return lane_id() < n ? p[lane_id() * step] : 0.0f;
}
DEVICE VI vi_load_by(const int32_t *p, int64_t step, int64_t n) {
    return lane_id() < n ? p[lane_id() * step] : 0;
}
DEVICE V vh_load_by(const bf16 *p, int64_t step, int64_t n) {
    return lane_id() < n ? f_of(p[lane_id() * step]) : 0.0f;
}
DEVICE V vh_splat(bf16 x) { return f_of(x); }
DEVICE void v_store(float *p, V x) { p[lane_id()] = x; }
DEVICE void vi_store(int32_t *p, VI x) { p[lane_id()] = x; }
DEVICE void vh_store(bf16 *p, V x) { put(p + lane_id(), x); }
DEVICE void v_store_n(float *p, V x, int64_t n) {
    if (lane_id() < n) p[lane_id()] = x;
}
DEVICE void vi_store_n(int32_t *p, VI x, int64_t n) {
    if (lane_id() < n) p[lane_id()] = x;
}
DEVICE void vh_store_n(bf16 *p, V x, int64_t n) {
    if (lane_id() < n) put(p + lane_id(), x);
}
DEVICE void v_store_by(float *p, V x, int64_t step, int64_t n) {
    if (lane_id() < n) p[lane_id() * step] = x;
}
DEVICE void vi_store_by(int32_t *p, VI x, int64_t step, int64_t n) {
    if (lane_id() < n) p[lane_id() * step] = x;
}
DEVICE void vh_store_by(bf16 *p, V x, int64_t step, int64_t n) {
    if (lane_id() < n) put(p + lane_id() * step, x);
}
// p[id * step + at]; 0 where `mask` is off and from lane n on, and nothing is read there.
DEVICE V v_pick(const float *p, VI id, int64_t step, VI at, VI mask, int64_t n) {
    return mask && lane_id() < n ? p[id * step + at] : 0.0f;
}
DEVICE VI vi_pick(const int32_t *p, VI id, int64_t step, VI at, VI mask, int64_t n) {
    return mask && lane_id() < n ? p[id * step + at] : 0;
}
DEVICE V vh_pick(const bf16 *p, VI id, int64_t step, VI at, VI mask, int64_t n) {
    return mask && lane_id() < n ? f_of(p[id * step + at]) : 0.0f;
}

// The same of rows that lie on several ranks, `rows` on each: row id % rows of the memory at tables[id / rows].
template <typename T>
DEVICE const T *row_apart(const int64_t *tables, int64_t rows, VI id, int64_t step) {
    return (const T *)tables[id / rows] + id % rows * step;
}
DEVICE V v_pick_apart(const int64_t *tables, int64_t rows, int64_t first, VI id, int64_t step, VI at, VI mask,
                      int64_t n) {
    return mask && lane_id() < n ? row_apart<float>(tables, rows, id, step)[first + at] : 0.0f;
}
DEVICE VI vi_pick_apart(const int64_t *tables, int64_t rows, int64_t first, VI id, int64_t step, VI at, VI mask,
                        int64_t n) {
    return mask && lane_id() < n ? row_apart<int32_t>(tables, rows, id, step)[first + at] : 0;
}
DEVICE V vh_pick_apart(const int64_t *tables, int64_t rows, int64_t first, VI id, int64_t step, VI at, VI mask,
                       int64_t n) {
    return mask && lane_id() < n ? f_of(row_apart<bf16>(tables, rows, id, step)[first + at]) : 0.0f;
}
// To number `at` of row id, where there is one.
DEVICE void v_put_apart(const int64_t *tables, int64_t rows, int64_t at, VI id, int64_t step, V x, int64_t n) {
    if (lane_id() < n && id >= 0) ((float *)row_apart<float>(tables, rows, id, step))[at] = x;
}
DEVICE void vi_put_apart(const int64_t *tables, int64_t rows, int64_t at, VI id, int64_t step, VI x, int64_t n) {
    if (lane_id() < n && id >= 0) ((int32_t *)row_apart<int32_t>(tables, rows, id, step))[at] = x;
}
DEVICE void vh_put_apart(const int64_t *tables, int64_t rows, int64_t at, VI id, int64_t step, V x, int64_t n) {
    if (lane_id() < n && id >= 0) put((bf16 *)row_apart<bf16>(tables, rows, id, step) + at, x);
}

/* Functions: as the CPU's (math.h) at NaN, zeros and infinities ---------------------------------- */

DEVICE V v_max(V a, V b) { return a > b ? a : b; } // b where either is NaN
DEVICE V v_min(V a, V b) { return a < b ? a : b; }
DEVICE VI vi_max(VI a, VI b) { return a > b ? a : b; }
DEVICE VI vi_min(VI a, VI b) { return a < b ? a : b; }
DEVICE VI vi_abs(VI a) { return a < 0 ? -a : a; }
DEVICE V v_abs(V x) { return fabsf(x); }
DEVICE V v_sign(V x) { return x != 0.0f && x == x ? copysignf(1.0f, x) : x; }
DEVICE V v_sqrt(V x) { return sqrtf(x); }
DEVICE V v_exp(V x) { return expf(x); }
DEVICE V v_log(V x) { return logf(x); }
DEVICE V v_tanh(V x) { return tanhf(x); }
DEVICE V v_erf(V x) { return erff(x); }
DEVICE V v_pow(V x, V c) { return powf(x, c); }
// From exp(-|x|), which cannot overflow, so that both tails keep their precision.
DEVICE V v_sigmoid(V x) {
    V e = expf(-fabsf(x));
    return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}
DEVICE V v_bf16(V x) { return low_of(bf16_pair(x, 0.0f)); }
// An int that orders as the number: NaN lowest of all with -inf, -0 equal to 0; never the smallest int.
DEVICE VI v_key(V x) {
    VI bits = v_bits(x == x ? x + 0.0f : -INFINITE);
    return bits ^ ((bits >> 31) & 0x7fffffff);
}
// Floor division as Lua's; by zero 0, the rest by zero is the number.
DEVICE VI vi_div(VI a, VI b) {
    int64_t n = a, d = b, q = d ? n / d : 0;
    return (int32_t)(d && n % d && (n < 0) != (d < 0) ? q - 1 : q);
}
DEVICE VI vi_mod(VI a, VI b) {
    int64_t n = a, d = b, r = d ? n % d : n;
    return (int32_t)(d && r && (r < 0) != (d < 0) ? r + d : r);
}
// The angle is reduced in double: exact to 1e-9 for |x| up to 1e6; then a polynomial on a quarter turn.
DEVICE V sin_turned(V x, int turns) {
    double k = rint((double)x * 0.63661977236758134), rest = fma(-k, 1.5707963267948966, (double)x);
    float r = (float)fma(-k, 6.123233995736766e-17, rest), z = r * r;
    int quadrant = (int)k + turns;
    float s = fmaf(fmaf(fmaf(-1.9515295891e-4f, z, 8.3321608736e-3f), z, -1.6666654611e-1f), z * r, r);
    float c = fmaf(fmaf(fmaf(2.443315711809948e-5f, z, -1.388731625493765e-3f), z, 4.166664568298827e-2f),
                   z * z, fmaf(-0.5f, z, 1.0f));
    float y = quadrant & 1 ? c : s;
    return quadrant & 2 ? -y : y;
}
DEVICE V v_sin(V x) { return sin_turned(x, 0); }
DEVICE V v_cos(V x) { return sin_turned(x, 1); }

/* Across lanes: all lanes get the result ---------------------------------------------------------- */

DEVICE float v_sum(V x) { return warp_sum(x); }
DEVICE float v_max_lane(V x) {
    for (int i = 16; i; i >>= 1) x = v_max(x, __shfl_xor_sync(0xffffffffu, x, i));
    return x;
}
DEVICE int32_t vi_sum(VI x) {
    for (int i = 16; i; i >>= 1) x += __shfl_xor_sync(0xffffffffu, x, i);
    return x;
}
DEVICE int32_t vi_max_lane(VI x) {
    for (int i = 16; i; i >>= 1) x = vi_max(x, __shfl_xor_sync(0xffffffffu, x, i));
    return x;
}

// Marks the maximum of no rows in partial records of row_max. No arithmetic makes this NaN.
#define NO_ROWS (-1)
// Maximum of records: a marked one gives way. NaN loses to a number.
DEVICE V v_max_rows(V x, V best) {
    if (v_bits(x) == NO_ROWS) return best;
    return v_bits(best) == NO_ROWS || best != best ? x : v_max(x, best);
}
DEVICE float v_max_rows_lane(V x) {
    float best = __shfl_sync(0xffffffffu, x, 0);
    for (int i = 1; i < LANES; i++) best = v_max_rows(__shfl_sync(0xffffffffu, x, i), best);
    return best;
}

// hash_uniform of runtime/base/hash.c. ORDER MIX
DEVICE uint64_t avalanche(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}
DEVICE V v_uniform(uint64_t seed, uint64_t stream, VI token, uint64_t per_token, VI element) {
    uint64_t start = avalanche(avalanche(seed + 0x9e3779b97f4a7c15u) ^ (stream + 0x9e3779b97f4a7c15u));
    uint64_t b = (uint32_t)token * per_token + (uint32_t)element;
    return (float)(avalanche(start ^ (b + 0x9e3779b97f4a7c15u)) >> 40) * 0x1p-24f;
}

/* Experts of rows, and the ids of the k largest ---------------------------------------------------- */

// The expert that owns the row, by offsets [experts + 1]; some expert does.
DEVICE int32_t expert_of(const int32_t *offsets, int32_t experts, int64_t row) {
    int32_t low = 0, high = experts; // offsets[low] <= row < offsets[high]
    while (low + 1 < high) {
        int32_t middle = (low + high) / 2;
        *(offsets[middle] <= row ? &low : &high) = middle;
    }
    return low;
}

enum { TAKEN = (int)0x80000000 }; // below every v_key

// The ids of the k largest of key[0..n) in shared memory, ties to the lower id; uses the keys up.
DEVICE void top_row(int32_t *key, int64_t n, int64_t k, int32_t *out) {
    for (int64_t t = 0; t < k; t++) {
        __syncwarp();
        int32_t best = TAKEN, id = 0x7fffffff;
        for (int64_t j = lane_id(); j < n; j += LANES) {
            if (id != 0x7fffffff && key[j] <= best) continue;
            best = key[j], id = (int32_t)j;
        }
        for (int i = 16; i; i >>= 1) {
            int32_t b = __shfl_xor_sync(0xffffffffu, best, i), d = __shfl_xor_sync(0xffffffffu, id, i);
            bool more = b > best || (b == best && d < id);
            best = more ? b : best, id = more ? d : id;
        }
        __syncwarp();
        out[t] = id;
        if (id % LANES == lane_id()) key[id] = TAKEN;
    }
    __syncwarp();
}
// The same for a row per lane; key [n][LANES].
DEVICE VI top_one_rows(int32_t *key, int64_t n) {
    int32_t best = TAKEN, id = 0;
    for (int64_t j = 0; j < n; j++) {
        int32_t x = key[j * LANES + lane_id()];
        if (x > best) best = x, id = (int32_t)j;
    }
    key[id * LANES + lane_id()] = TAKEN;
    return id;
}
