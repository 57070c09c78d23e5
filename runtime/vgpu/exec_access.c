// SPDX-License-Identifier: Apache-2.0
// Loads and stores of a warp: addresses of all lanes at once, shadow by lines, then the data.
//
// An access whose lanes all lie in one place (an allocation, or shared memory), aligned and in
// bounds, is done here in vectors; anything else goes lane by lane through vg_resolve, which either
// finds the fault or the places, and comes back per place. So every check exists once.
//   lanes -> offsets in the place -> for each line of 256 bytes touched: a map of granules ->
//   written maps and history words under the map, one step per distinct word -> data.
// Functions are made for the common shapes by constant propagation into one inline body.
#include "runtime/vgpu/exec_access.h"

// What is constant in a specialised function; `fixed` false: taken from the site.
typedef struct Shape {
    uint32_t bytes, vector;
    bool write, fixed;
    VgFlight flight;
    bool rows;
} Shape;

/* Shadow --------------------------------------------------------------------------------------- */

// The word after a step of shared memory, from the memo when it is there.
INLINE bool step_shared(VgWarpMem *w, uint32_t word, uint32_t kind, uint32_t bytes, uint32_t *to) {
    VgMemThread *thread = w->team->thread;
    uint32_t gen = w->team->gen & 0xffff, from = word & 0xffff;
    if (word >> 16 != gen) from = thread->states[from].kept;
    uint64_t key = vg_shared_key(w, from, kind, bytes);
    const VgMemo *memo = &thread->memo[vg_memo_slot(key)];
    if (__builtin_expect(memo->key != key, 0)) return vg_shared_step(w, word, kind, bytes, to);
    *to = gen << 16 | memo->to;
    return true;
}

INLINE bool step_global(VgWarpMem *w, uint32_t word, uint32_t touch, uint32_t *to) {
    VgMemThread *thread = w->team->thread;
    *to = touch;
    if (word == touch || word - thread->launch->first_id >= VG_LAUNCH_IDS) return true;
    uint64_t key = (uint64_t)word << 32 | touch;
    const VgMemo *memo = &thread->global_memo[vg_memo_slot(key)];
    if (__builtin_expect(memo->key != key, 0)) return vg_global_step(w, word, touch, to);
    *to = memo->to;
    return true;
}

// History words of a line under `map`: a step per distinct word. Few granules go one by one, which
// keeps neighbours that are stepped in turn clear of stalls: a wide load right after a narrow
// store. Returns the granule of the line that failed, or -1.
INLINE int step_words(VgWarpMem *w, uint32_t *words, uint64_t map, bool shared, uint32_t kind,
                      uint32_t bytes, uint32_t touch) {
    uint32_t to;
    bool few = __builtin_popcountll(map) <= 2;
    for (uint64_t todo = map; todo;) {
        int first = __builtin_ctzll(todo);
        uint32_t word = words[first];
        if (!(shared ? step_shared(w, word, kind, bytes, &to) : step_global(w, word, touch, &to)))
            return first;
        if (few) {
            if (to != word) words[first] = to;
            todo &= todo - 1;
            continue;
        }
        uint64_t equal = words_equal(words, todo, word);
        if (to != word) words_put(words, equal, to);
        todo &= ~equal;
    }
    return -1;
}

// One step for the granules of `map` in a line, `bytes` of each. Returns the granule (in the place)
// at which it failed, or -1.
INLINE int64_t step_line(VgWarpMem *w, const VgSite *s, const VgPlaceMem *p, uint32_t line,
                         uint64_t map, uint32_t kind, uint32_t bytes, bool write) {
    if (p->written) {
        uint64_t *maps = p->written[line];
        if (write) {
            for (int b = 0; b < 4; b++)
                if (bytes >> b & 1 && (maps[b] & map) != map) // blocks on other threads mark theirs
                    __atomic_fetch_or(&maps[b], map, __ATOMIC_RELAXED);
        } else if (!p->alloc->whole) {
            uint64_t have = UINT64_MAX;
            for (int b = 0; b < 4; b++)
                if (bytes >> b & 1) have &= maps[b];
            if (map & ~have) {
                w->team->thread->record.fault = VG_UNINITIALISED;
                return (int64_t)line * 64 + __builtin_ctzll(map & ~have);
            }
        }
    }
    if (!p->history) return -1;
    uint32_t *words = p->history + (size_t)line * 64, touch = 0;
    if (!p->shared) {
        touch = vg_touch_of(w, s, kind, bytes);
        if (!touch) return -1;
    }
    int bad = step_words(w, words, map, p->shared, kind, bytes, touch);
    if (__builtin_expect(bad >= 0, 0)) return (int64_t)line * 64 + bad;
    if (p->shared) {
        uint16_t *sites = (write ? p->write_site : p->read_site) + (size_t)line * 64;
        sites_put(sites, map, s->id < UINT16_MAX ? (uint16_t)(s->id + 1) : 0);
    }
    return -1;
}

// Granules whose bytes are only partly touched, of accesses narrower than a word. maps[b]: byte b.
static int64_t step_narrow(VgWarpMem *w, const VgSite *s, const VgPlaceMem *p, uint32_t line,
                           const uint64_t maps[4], uint32_t kind, bool write) {
    uint64_t todo = maps[0] | maps[1] | maps[2] | maps[3];
    while (todo) {
        int first = __builtin_ctzll(todo);
        uint32_t bytes = 0;
        uint64_t same = todo;
        for (int b = 0; b < 4; b++) {
            bool has = maps[b] >> first & 1;
            bytes |= (uint32_t)has << b;
            same &= has ? maps[b] : ~maps[b];
        }
        int64_t bad = step_line(w, s, p, line, same, kind, bytes, write);
        if (bad >= 0) return bad;
        todo &= ~same;
    }
    return -1;
}

// All lines of an access. *distinct: bytes touched, less than all when lanes overlap.
INLINE int64_t step_lanes(VgWarpMem *w, const VgSite *s, const VgPlaceMem *p, uint32_t mask,
                          const Lanes *off, uint32_t total, bool in_step, uint32_t kind, bool write,
                          uint32_t *distinct) {
    *distinct = 0;
    if (in_step && total >= 4) { // one run of granules
        uint32_t at = off->at[0] / 4, end = at + 8 * total;
        *distinct = 32 * total;
        while (at < end) {
            uint32_t line = at / 64, in = at % 64, n = end - at < 64 - in ? end - at : 64 - in;
            uint64_t map = (UINT64_MAX >> (64 - n)) << in;
            int64_t bad = step_line(w, s, p, line, map, kind, 15, write);
            if (bad >= 0) return bad;
            at += n;
        }
        return -1;
    }
    for (uint32_t todo = mask; todo;) {
        uint32_t x = off->at[__builtin_ctz(todo)], sel = lanes_in_line(off, x) & todo,
                 line = x / VG_LINE;
        int64_t bad;
        if (total >= 4) {
            uint64_t map = lanes_map(off, sel, total / 4);
            *distinct += 4 * (uint32_t)__builtin_popcountll(map);
            bad = step_line(w, s, p, line, map, kind, 15, write);
        } else {
            uint64_t maps[4] = { 0 };
            for (uint32_t l = sel; l; l &= l - 1) {
                uint32_t at = off->at[__builtin_ctz(l)];
                for (uint32_t b = 0; b < total; b++)
                    maps[(at + b) & 3] |= (uint64_t)1 << (at / 4 % 64);
            }
            for (int b = 0; b < 4; b++) *distinct += (uint32_t)__builtin_popcountll(maps[b]);
            bad = step_narrow(w, s, p, line, maps, kind, write);
        }
        if (bad >= 0) return bad;
        todo &= ~sel;
    }
    return -1;
}

/* Data ----------------------------------------------------------------------------------------- */

static uint64_t extend(uint64_t value, uint32_t bytes, bool sign) {
    return sign && bytes < 8 ? (uint64_t)((int64_t)(value << (64 - 8 * bytes)) >> (64 - 8 * bytes))
                             : value;
}

// One element from memory into lane l of the register at `reg`, and back.
INLINE void element_get(char *reg, uint32_t l, const uint8_t *from, uint32_t bytes,
                        uint32_t reg_bytes, bool sign) {
    uint64_t value[2] = { 0 };
    memcpy(value, from, bytes);
    value[0] = extend(value[0], bytes, sign);
    if (reg_bytes == 4) {
        ((uint32_t *)reg)[l] = (uint32_t)value[0];
    } else {
        ((uint64_t *)reg)[l] = value[0];
        if (reg_bytes == 16) ((uint64_t *)reg)[32 + l] = value[1];
    }
}

INLINE void element_put(uint8_t *to, const char *reg, uint32_t l, uint32_t bytes,
                        uint32_t reg_bytes) {
    uint64_t value[2] = { 0 };
    if (reg_bytes == 4) {
        value[0] = ((const uint32_t *)reg)[l];
    } else {
        value[0] = ((const uint64_t *)reg)[l];
        if (reg_bytes == 16) value[1] = ((const uint64_t *)reg)[32 + l];
    }
    memcpy(to, value, bytes);
}

#ifdef VG_V4
// 16 words out of the 64 at `table`, by index.
INLINE __m512i pick(const uint8_t *table, __m512i index) {
    __m512i low =
        _mm512_permutex2var_epi32(_mm512_loadu_si512(table), index, _mm512_loadu_si512(table + 64));
    __m512i high = _mm512_permutex2var_epi32(_mm512_loadu_si512(table + 128), index,
                                             _mm512_loadu_si512(table + 192));
    return _mm512_mask_mov_epi32(low, _mm512_test_epi32_mask(index, _mm512_set1_epi32(32)), high);
}

INLINE void put16(char *reg, int half, __mmask16 part, __m512i value) {
    char *at = reg + 64 * half;
    if (part != 0xffff) value = _mm512_mask_mov_epi32(_mm512_load_si512(at), part, value);
    _mm512_store_si512(at, value);
}

// 32-bit elements, any pattern: by permuting whole lines while there are few, else by gathers.
INLINE void load_words(const VgSite *s, char *frame, uint32_t mask, const Lanes *off,
                       const uint8_t *host, uint32_t vector) {
    uint32_t todo = mask;
    for (int lines = 0; lines < 4 && todo; lines++) {
        uint32_t x = off->at[__builtin_ctz(todo)] & ~(VG_LINE - 1);
        uint32_t sel = lanes_in_line(off, x) & todo;
        for (int half = 0; half < 2; half++) {
            __mmask16 part = (__mmask16)(sel >> 16 * half);
            if (!part) continue;
            __m512i index = _mm512_srli_epi32(_mm512_load_si512(off->at + 16 * half), 2);
            for (uint32_t e = 0; e < vector; e++) {
                if (s->reg[e] == VG_SINK) continue;
                __m512i at = _mm512_add_epi32(index, _mm512_set1_epi32((int)e));
                put16(frame + s->reg[e], half, part, pick(host + x, at));
            }
        }
        todo &= ~sel;
    }
    for (int half = 0; half < 2 && todo; half++) {
        __mmask16 part = (__mmask16)(todo >> 16 * half);
        if (!part) continue;
        __m512i at = _mm512_load_si512(off->at + 16 * half), zero = _mm512_setzero_si512();
        // Gathers sign-extend their indices: counted from 2 GiB on.
        at = _mm512_xor_si512(at, _mm512_set1_epi32(INT32_MIN));
        for (uint32_t e = 0; e < vector; e++) {
            if (s->reg[e] == VG_SINK) continue;
            const uint8_t *base = host + ((uint64_t)1 << 31) + 4 * e;
            put16(frame + s->reg[e], half, part,
                  _mm512_mask_i32gather_epi32(zero, part, at, base, 1));
        }
    }
}

// All lanes, element after element: words[lane * vector + e].
INLINE void load_run(const VgSite *s, char *frame, const uint8_t *from, uint32_t vector) {
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    for (uint32_t e = 0; e < vector; e++) {
        if (s->reg[e] == VG_SINK) continue;
        for (int half = 0; half < 2; half++) {
            const uint8_t *at = from + (size_t)64 * vector * (size_t)half;
            __m512i index =
                _mm512_add_epi32(_mm512_mullo_epi32(lane, _mm512_set1_epi32((int)vector)),
                                 _mm512_set1_epi32((int)e));
            __m512i value;
            if (vector == 1)
                value = _mm512_loadu_si512(at);
            else if (vector == 2)
                value = _mm512_permutex2var_epi32(_mm512_loadu_si512(at), index,
                                                  _mm512_loadu_si512(at + 64));
            else
                value = pick(at, index);
            _mm512_store_si512(frame + s->reg[e] + 64 * half, value);
        }
    }
}

// Four words per lane, transposed in registers: 16 stores of 16 bytes per half.
INLINE void store_quads(const VgSite *s, const char *frame, uint32_t mask, const Lanes *off,
                        uint8_t *host) {
    for (int group = 0; group < 8; group++) {
        uint32_t part = mask >> 4 * group & 15;
        if (!part) continue;
        __m128 row[4];
        for (int e = 0; e < 4; e++)
            row[e] = _mm_load_ps((const float *)(frame + s->source[e]) + 4 * group);
        _MM_TRANSPOSE4_PS(row[0], row[1], row[2], row[3]);
        for (int l = 0; l < 4; l++)
            if (part >> l & 1) _mm_storeu_ps((float *)(host + off->at[4 * group + l]), row[l]);
    }
}
#endif

INLINE void load_data(const VgSite *s, char *frame, uint32_t mask, const Lanes *off,
                      const VgPlaceMem *p, bool in_step, bool same, uint32_t bytes,
                      uint32_t vector) {
    const uint8_t *host = p->host;
    uint32_t reg_bytes = s->reg_bytes;
    (void)in_step;
    (void)same;
#ifdef VG_V4
    if (bytes == 4 && reg_bytes == 4 && (p->alloc || p->shared)) {
        if (same) {
            const uint8_t *from = host + off->at[__builtin_ctz(mask)];
            for (uint32_t e = 0; e < vector; e++) {
                int word;
                memcpy(&word, from + 4 * e, 4);
                if (s->reg[e] == VG_SINK) continue;
                put16(frame + s->reg[e], 0, (__mmask16)mask, _mm512_set1_epi32(word));
                put16(frame + s->reg[e], 1, (__mmask16)(mask >> 16), _mm512_set1_epi32(word));
            }
        } else if (in_step && vector <= 4) {
            load_run(s, frame, host + off->at[0], vector);
        } else {
            load_words(s, frame, mask, off, host, vector);
        }
        return;
    }
    if (bytes == 8 && reg_bytes == 8 && vector == 1 && in_step && s->reg[0] != VG_SINK) {
        memcpy(frame + s->reg[0], host + off->at[0], 256);
        return;
    }
    if (bytes == 2 && reg_bytes == 4 && vector == 1 && in_step && !s->sign &&
        s->reg[0] != VG_SINK) {
        const uint8_t *from = host + off->at[0];
        for (int half = 0; half < 2; half++)
            _mm512_store_si512(
                frame + s->reg[0] + 64 * half,
                _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(from + 32 * half))));
        return;
    }
#endif
    for (uint32_t e = 0; e < vector; e++) {
        if (s->reg[e] == VG_SINK) continue;
        for (uint32_t m = mask; m; m &= m - 1) {
            uint32_t l = (uint32_t)__builtin_ctz(m);
            element_get(frame + s->reg[e], l, host + off->at[l] + e * bytes, bytes, reg_bytes,
                        s->sign);
        }
    }
}

// Rows of matrices: 16 bytes of lane l are row l % 8 of the register of matrix l / 8.
INLINE void move_rows(const VgSite *s, char *frame, uint32_t mask, const Lanes *off, uint8_t *host,
                      bool write) {
    for (uint32_t m = mask; m; m &= m - 1) {
        uint32_t l = (uint32_t)__builtin_ctz(m);
        char *row = frame + (write ? s->source : s->reg)[l / 8] + l % 8 * 16;
        if (write)
            memcpy(host + off->at[l], row, 16);
        else
            memcpy(row, host + off->at[l], 16);
    }
}

INLINE void store_data(const VgSite *s, const char *frame, uint32_t mask, const Lanes *off,
                       uint8_t *host, bool in_step, uint32_t bytes, uint32_t vector) {
    uint32_t reg_bytes = s->reg_bytes;
    if (vector == 1 && in_step && bytes == reg_bytes && bytes <= 8) {
        memcpy(host + off->at[0], frame + s->source[0], 32 * bytes);
        return;
    }
#ifdef VG_V4
    if (bytes == 4 && vector == 4 && reg_bytes == 4) {
        store_quads(s, frame, mask, off, host);
        return;
    }
    if (bytes == 2 && reg_bytes == 4 && vector == 1 && in_step) {
        for (int half = 0; half < 2; half++)
            _mm256_storeu_si256(
                (__m256i *)(host + off->at[0] + 32 * half),
                _mm512_cvtepi32_epi16(_mm512_load_si512(frame + s->source[0] + 64 * half)));
        return;
    }
#endif
    for (uint32_t m = mask; m; m &= m - 1) {
        uint32_t l = (uint32_t)__builtin_ctz(m);
        for (uint32_t e = 0; e < vector; e++)
            element_put(host + off->at[l] + e * bytes, frame + s->source[e], l, bytes, reg_bytes);
    }
}

// Whether another lane stored something else than `value` as element e of lane l's place. (Places
// are aligned to their size, so they are the same or disjoint.)
static bool lanes_differ(const VgSite *s, const char *frame, uint32_t mask, const Lanes *off,
                         uint32_t l, uint32_t e, const uint8_t *value, uint32_t bytes) {
    for (uint32_t m = mask; m; m &= m - 1) {
        uint32_t other = (uint32_t)__builtin_ctz(m);
        uint8_t its[16];
        if (off->at[other] != off->at[l]) continue;
        element_put(its, frame + s->source[e], other, bytes, s->reg_bytes);
        if (memcmp(value, its, bytes)) return true;
    }
    return false;
}

// Lanes overlapped in a store: the place must hold what every one of them wrote, unless a block on
// another thread has written there since, as strong stores may.
static VgFault check_overlap(VgWarpMem *w, const VgSite *s, const char *frame, uint32_t mask,
                             const Lanes *off, const VgPlaceMem *p, uint32_t bytes,
                             uint32_t vector) {
    if (w->team->thread->launch->memory->options.lanes_may_conflict) return VG_OK;
    for (uint32_t m = mask; m; m &= m - 1) {
        uint32_t l = (uint32_t)__builtin_ctz(m);
        for (uint32_t e = 0; e < vector; e++) {
            uint8_t value[16];
            element_put(value, frame + s->source[e], l, bytes, s->reg_bytes);
            if (!memcmp(value, p->host + off->at[l] + e * bytes, bytes)) continue;
            if (!lanes_differ(s, frame, mask, off, l, e, value, bytes)) continue;
            w->team->thread->record.fault = VG_RACE;
            w->team->thread->record.other = (VgOther){ .known = true,
                                                       .access = VG_WRITE,
                                                       .cta = w->cta,
                                                       .warp = w->index,
                                                       .site = s->id,
                                                       .same_launch = true };
            return vg_mem_fault(w, s, VG_RACE, l, vg_place_address(w, s, p, off->at[l]),
                                "lanes of one store write different values to one place");
        }
    }
    return VG_OK;
}

/* In one place --------------------------------------------------------------------------------- */

INLINE VgFault in_place(VgWarpMem *w, const VgSite *s, uint32_t mask, const Lanes *off,
                        const VgPlaceMem *p, char *frame, Shape c) {
    uint32_t bytes = c.fixed ? c.bytes : s->bytes, vector = c.fixed ? c.vector : s->vector;
    uint32_t total = bytes * vector, first = off->at[__builtin_ctz(mask)], distinct = 32 * total;
    bool in_step = mask == UINT32_MAX && lanes_in_step(off, first, total) == UINT32_MAX;
    bool same = !in_step && (lanes_equal(off, first) & mask) == mask;
    if (p->history || p->written) {
        uint32_t kind = c.fixed ? vg_weak_kind(c.write ? VG_WRITE : VG_READ, c.flight)
                                : vg_site_kind(s, c.write ? VG_WRITE : VG_READ);
        int64_t bad =
            step_lanes(w, s, p, mask, off, total, in_step, kind, c.write, &distinct);
        if (__builtin_expect(bad >= 0, 0))
            return vg_shadow_fault(w, s, p, mask, off->at, (uint64_t)bad);
    }
    if (c.rows) {
        move_rows(s, frame, mask, off, p->host, c.write);
        return VG_OK;
    }
    if (!c.write) {
        load_data(s, frame, mask, off, p, in_step, same, bytes, vector);
        return VG_OK;
    }
    if (c.flight == VG_TAKES_OFF) return VG_OK;
    store_data(s, frame, mask, off, p->host, in_step, bytes, vector);
    if (!in_step && distinct < total * (uint32_t)__builtin_popcount(mask))
        return check_overlap(w, s, frame, mask, off, p, bytes, vector);
    return VG_OK;
}

/* Local memory: words of all lanes side by side ------------------------------------------------ */

static VgFault in_local(VgWarpMem *w, const VgSite *s, uint32_t mask, const uint64_t *offset,
                        char *frame, bool write) {
    bool init = w->team->thread->launch->init;
    for (uint32_t m = mask; m; m &= m - 1) {
        uint32_t l = (uint32_t)__builtin_ctz(m);
        for (uint32_t e = 0; e < s->vector; e++) {
            uint8_t value[16];
            uint64_t at = offset[l] + e * (uint64_t)s->bytes;
            if (write) element_put(value, frame + s->source[e], l, s->bytes, s->reg_bytes);
            for (uint32_t b = 0; b < s->bytes; b++, at++) {
                uint8_t *byte = w->local + at / 4 * 128 + l * 4 + at % 4;
                uint32_t *written = &w->local_init[at / 4][at % 4];
                if (write) {
                    *byte = value[b];
                    *written |= 1u << l;
                } else {
                    value[b] = *byte;
                    if (init && !(*written >> l & 1))
                        return vg_mem_fault(w, s, VG_UNINITIALISED, l, at,
                                            "byte at offset %llu of the thread's local memory",
                                            (unsigned long long)at);
                }
            }
            if (!write && s->reg[e] != VG_SINK)
                element_get(frame + s->reg[e], l, value, s->bytes, s->reg_bytes, s->sign);
        }
    }
    return VG_OK;
}

// One word of all lanes, `stride` words apart in the register.
INLINE void local_word(uint8_t *local, uint32_t mask, uint32_t *reg, int stride, bool write) {
    uint32_t *words = (uint32_t *)local;
    if (write)
        for (int l = 0; l < 32; l++) words[l] = mask >> l & 1 ? reg[l * stride] : words[l];
    else
        for (int l = 0; l < 32; l++) reg[l * stride] = mask >> l & 1 ? words[l] : reg[l * stride];
}

// The usual: all lanes the same offset, elements of one or two words. false: not so, or unwritten.
static bool local_words(VgWarpMem *w, const VgSite *s, uint32_t mask, uint64_t offset, char *frame,
                        bool write) {
    uint32_t n = s->bytes / 4;
    if ((s->bytes != 4 && s->bytes != 8) || s->reg_bytes != s->bytes) return false;
    for (uint32_t k = 0; k < n * s->vector; k++) {
        const uint32_t *written = w->local_init[offset / 4 + k];
        uint32_t all = written[0] & written[1] & written[2] & written[3];
        if (!write && w->team->thread->launch->init && mask & ~all) return false;
    }
    for (uint32_t k = 0; k < n * s->vector; k++) {
        uint32_t at = write ? s->source[k / n] : s->reg[k / n];
        uint8_t *local = w->local + (offset / 4 + k) * 128;
        for (int b = 0; write && b < 4; b++) w->local_init[offset / 4 + k][b] |= mask;
        if (!write && at == VG_SINK) continue;
        uint32_t *reg = (uint32_t *)(frame + at) + k % n;
        if (n == 1)
            local_word(local, mask, reg, 1, write);
        else
            local_word(local, mask, reg, 2, write);
    }
    return true;
}

/* Any place ------------------------------------------------------------------------------------ */

static void addresses_of(uint64_t to[32], const VgSite *s, const void *address) {
    for (int l = 0; l < 32; l++) {
        uint64_t reg = s->address_bytes == 8   ? ((const uint64_t *)address)[l]
                       : s->address_bytes == 4 ? ((const uint32_t *)address)[l]
                                               : 0;
        to[l] = reg + (uint64_t)s->offset;
        if (s->address_bytes == 4) to[l] = (uint32_t)to[l];
    }
}

// A place seen from a line near `offset`, so that 32 bits reach what one instruction usually does.
static void seen_from(VgPlaceMem *p, uint64_t offset) {
    if (p->bytes <= UINT32_MAX) return;
    uint64_t origin =
        offset > (uint64_t)1 << 31 ? (offset - ((uint64_t)1 << 31)) & ~(uint64_t)(VG_LINE - 1) : 0;
    p->host += origin;
    if (p->history) p->history += origin / 4;
    if (p->written) p->written += origin / VG_LINE;
    p->origin = origin;
    p->bytes = p->bytes - origin < UINT32_MAX ? p->bytes - origin : UINT32_MAX;
}

static VgFault anywhere(VgWarpMem *w, const VgSite *s, uint32_t mask, const void *address,
                        char *frame) {
    uint64_t at[32], offset[32];
    VgPlaceMem place[32];
    VgSpace space[32];
    uint32_t total = (uint32_t)s->bytes * s->vector;
    Shape c = { .write = s->access == VG_WRITE, .flight = (VgFlight)s->flight, .rows = s->rows };
    addresses_of(at, s, address);
    for (uint32_t m = mask; m; m &= m - 1) {
        uint32_t l = (uint32_t)__builtin_ctz(m);
        VgFault fault = vg_resolve(w, s, l, at[l], total, &place[l], &offset[l], &space[l]);
        if (fault != VG_OK) return fault;
    }
    for (uint32_t todo = mask; todo;) {
        uint32_t first = (uint32_t)__builtin_ctz(todo), sel = 0;
        Lanes off;
        VgPlaceMem p = place[first];
        seen_from(&p, offset[first]);
        bool same = true;
        for (uint32_t m = todo; m; m &= m - 1) {
            uint32_t l = (uint32_t)__builtin_ctz(m);
            uint64_t from = offset[l] - p.origin;
            if (space[l] != space[first] || place[l].host != place[first].host ||
                from > UINT32_MAX - total)
                continue;
            off.at[l] = (uint32_t)from;
            sel |= 1u << l;
            same &= offset[l] == offset[first];
        }
        VgFault fault = VG_OK;
        if (space[first] != VG_LOCAL)
            fault = in_place(w, s, sel, &off, &p, frame, c);
        else if (!same || !local_words(w, s, sel, offset[first], frame, c.write))
            fault = in_local(w, s, sel, offset, frame, c.write);
        if (fault != VG_OK) return fault;
        todo &= ~sel;
    }
    return VG_OK;
}

// Strong accesses: relaxed, volatile, acquire, release. Messages go out before the value, come in
// after.
static VgFault strong(VgWarpMem *w, const VgSite *s, uint32_t mask, const void *address,
                      char *frame) {
    uint64_t at[32];
    bool races = w->team->thread->launch->races;
    addresses_of(at, s, address);
    for (uint32_t m = mask; races && s->access == VG_WRITE && m; m &= m - 1)
        vg_message_publish(w, s, at[__builtin_ctz(m)]);
    VgFault fault = anywhere(w, s, mask, address, frame);
    for (uint32_t m = mask; fault == VG_OK && races && s->access == VG_READ && m; m &= m - 1)
        vg_message_learn(w, s, at[__builtin_ctz(m)]);
    return fault;
}

// Spilled registers and arrays with known indices: every lane has the same address.
static VgFault local(VgWarpMem *w, const VgSite *s, uint32_t mask, const void *address,
                     char *frame) {
    uint64_t first = (uint64_t)s->offset, differ = 0;
    uint32_t total = (uint32_t)s->bytes * s->vector,
             bytes = w->team->thread->launch->shape.local_bytes;
    if (s->address_bytes == 8) {
        const uint64_t *at = address;
        uint64_t lane = at[__builtin_ctz(mask)];
        for (int l = 0; l < 32; l++) differ |= mask >> l & 1 ? at[l] ^ lane : 0;
        first += lane;
    } else if (s->address_bytes == 4) {
        return anywhere(w, s, mask, address, frame);
    }
    if (differ || first & (total - 1) & 31 || first > bytes || total > bytes - first ||
        !local_words(w, s, mask, first, frame, s->access == VG_WRITE))
        return anywhere(w, s, mask, address, frame);
    return VG_OK;
}

/* Fast ways ------------------------------------------------------------------------------------ */

INLINE VgFault run_shared(VgWarpMem *w, const VgSite *s, uint32_t mask, const void *address,
                          char *frame, Shape c) {
    Lanes off;
    const VgPlaceMem *p = w->own;
    uint32_t total = c.bytes * c.vector, wide = 0;
    uint64_t window = s->space == VG_GENERIC ? VG_SHARED_WINDOW : 0;
    if (s->address_bytes == 4)
        lanes_add(&off, address, (uint32_t)s->offset - w->shared_base);
    else if (s->address_bytes == 8)
        wide = lanes_narrow(&off, address, window + w->shared_base - (uint64_t)s->offset);
    else
        return anywhere(w, s, mask, address, frame);
    if (p->bytes < total ||
        ((wide & mask) | lanes_outside(&off, mask, (uint32_t)p->bytes - total, total - 1)))
        return anywhere(w, s, mask, address, frame);
    return in_place(w, s, mask, &off, p, frame, c);
}

INLINE VgFault run_global(VgWarpMem *w, const VgSite *s, uint32_t mask, const void *address,
                          char *frame, Shape c) {
    VgMemThread *thread = w->team->thread;
    VgLaunchMem *launch = thread->launch;
    uint32_t total = c.bytes * c.vector;
    if (s->address_bytes != 8) return anywhere(w, s, mask, address, frame);
    uint64_t first = ((const uint64_t *)address)[__builtin_ctz(mask)] + (uint64_t)s->offset;
    VgAlloc *alloc = thread->recent[s->id % 16];
    if (!alloc || first - alloc->start >= alloc->bytes || !alloc->live) {
        if (first >> 40 == VG_SHARED_WINDOW >> 40 && s->space == VG_GENERIC)
            return run_shared(w, s, mask, address, frame, c);
        alloc = vg_alloc_at(launch->memory, first);
        if (!alloc || !alloc->live || alloc->bytes < total)
            return anywhere(w, s, mask, address, frame);
        thread->recent[s->id % 16] = alloc;
    }
    VgPlaceMem p = { .host = alloc->host, .bytes = alloc->bytes, .alloc = alloc,
                     .history = launch->races ? alloc->history : NULL,
                     .written = launch->init ? alloc->written : NULL };
    if (c.write && alloc->read_only) return anywhere(w, s, mask, address, frame);
    seen_from(&p, first - alloc->start);
    Lanes off;
    uint32_t wide = lanes_narrow(&off, address, alloc->start + p.origin - (uint64_t)s->offset);
    if ((wide & mask) | lanes_outside(&off, mask, (uint32_t)p.bytes - total, total - 1))
        return anywhere(w, s, mask, address, frame);
    return in_place(w, s, mask, &off, &p, frame, c);
}

/* The functions, by space and shape ------------------------------------------------------------ */

// X(bytes, vector)
#define SHAPES(X) X(1, 1) X(2, 1) X(4, 1) X(8, 1) X(2, 2) X(2, 4) X(4, 2) X(4, 4) X(8, 2) X(4, 8)
#define DEFINE(bytes, vector, space, name, is_write, flight)                                       \
    DEFINE_AS(bytes, vector, space, name, is_write, flight, false)
#define DEFINE_AS(bytes, vector, space, name, is_write, flight, rows)                              \
    static VgFault name##_##space##_##bytes##x##vector(                                            \
        VgWarpMem *w, const VgSite *s, uint32_t mask, const void *address, char *frame) {          \
        Shape shape = { bytes, vector, is_write, true, flight, rows };                             \
        return run_##space(w, s, mask, address, frame, shape);                                     \
    }
#define DEFINE_ALL(bytes, vector)                                                                  \
    DEFINE(bytes, vector, shared, load, false, VG_NO_FLIGHT)                                       \
    DEFINE(bytes, vector, shared, store, true, VG_NO_FLIGHT)                                       \
    DEFINE(bytes, vector, global, load, false, VG_NO_FLIGHT)                                       \
    DEFINE(bytes, vector, global, store, true, VG_NO_FLIGHT)
SHAPES(DEFINE_ALL)
// ldmatrix and stmatrix.
DEFINE_AS(4, 4, shared, load_rows, false, VG_NO_FLIGHT, true)
DEFINE_AS(4, 4, shared, store_rows, true, VG_NO_FLIGHT, true)
// The copies of cp.async.
#define COPIES(X) X(4, 1) X(4, 2) X(4, 4)
#define DEFINE_COPY(bytes, vector)                                                                 \
    DEFINE(bytes, vector, global, source, false, VG_TAKES_OFF)                                     \
    DEFINE(bytes, vector, shared, issue, true, VG_TAKES_OFF)                                       \
    DEFINE(bytes, vector, shared, publish, true, VG_LANDING)
COPIES(DEFINE_COPY)
#define CHOOSE_COPY(n, v)                                                                          \
    if (s->bytes == n && s->vector == v && (write ? shared : s->space == VG_GLOBAL))               \
        return !write ? source_global_##n##x##v                                                    \
               : s->flight == VG_TAKES_OFF ? issue_shared_##n##x##v                                \
                                           : publish_shared_##n##x##v;

VgAccessFn *VG_NAME(vg_access)(const VgSite *s);
VgAccessFn *VG_NAME(vg_access)(const VgSite *s) {
    bool shared = s->space == VG_SHARED, write = s->access == VG_WRITE;
    if (s->sem >= VG_VOLATILE) return strong;
    if (s->space == VG_LOCAL) return local;
    if (s->rows) return !shared ? anywhere : write ? store_rows_shared_4x4 : load_rows_shared_4x4;
    if (s->flight != VG_NO_FLIGHT) {
        COPIES(CHOOSE_COPY)
        return anywhere;
    }
    if (!shared && s->space != VG_GLOBAL && s->space != VG_CONST && s->space != VG_GENERIC)
        return anywhere;
#define CHOOSE(n, v)                                                                               \
    if (s->bytes == n && s->vector == v)                                                           \
        return shared ? (write ? store_shared_##n##x##v : load_shared_##n##x##v)                   \
                      : (write ? store_global_##n##x##v : load_global_##n##x##v);
    SHAPES(CHOOSE)
    return anywhere;
}
