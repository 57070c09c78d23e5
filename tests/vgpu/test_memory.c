// SPDX-License-Identifier: Apache-2.0
// Device memory: allocations, copies, and what loads, stores and atomics move, in every pattern of
// addresses, width and mask, against a byte-by-byte model.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/vgpu/rig.h"

static const RigShape plain = { .n_ctas = 1, .threads = 64, .shared = 8192, .local = 64 };

static void allocations(void **state) {
    (void)state;
    VgMemory *m;
    VgMemoryOptions small = { .total_bytes = 1 << 20 };
    assert_int_equal(vg_memory_create(&small, &m), OK);
    uint64_t a, b, big, aligned, start;
    size_t bytes;
    const char *what;
    assert_int_equal(vg_mem_alloc(m, VG_GLOBAL, 1000, 0, "first", &a), OK);
    assert_int_equal(vg_mem_alloc(m, VG_GLOBAL, 7, 0, "second", &b), OK);
    assert_int_equal(a % 512, 0);
    assert_int_not_equal(a % 1024, 0); // no more than promised
    assert_true(b > a + 1000 + 4096);
    assert_int_equal(vg_mem_alloc(m, VG_GLOBAL, 64, 65536, "aligned", &aligned), OK);
    assert_int_equal(aligned % 65536, 0);
    assert_true(vg_mem_find(m, a + 999, &start, &bytes, &what));
    assert_int_equal(start, a);
    assert_int_equal(bytes, 1000);
    assert_string_equal(what, "first");
    assert_false(vg_mem_find(m, a + 1000, &start, &bytes, &what));
    assert_false(vg_mem_find(m, a - 1, &start, &bytes, &what));
    assert_null(vg_mem_host(m, a + 999, 2));
    assert_non_null(vg_mem_host(m, a + 998, 2));
    assert_int_equal(vg_mem_alloc(m, VG_GLOBAL, 1 << 20, 0, "too much", &big), ERR_MEMORY);
    assert_int_equal(vg_mem_alloc(m, VG_GLOBAL, 0, 0, "none", &big), ERR_ARGUMENT);
    assert_int_equal(vg_mem_alloc(m, VG_GLOBAL, 8, 24, "odd", &big), ERR_ARGUMENT);
    uint64_t total, used;
    vg_mem_usage(m, &total, &used);
    assert_int_equal(used, 1000 + 7 + 64);
    assert_int_equal(vg_mem_free(m, a + 4), ERR_ARGUMENT);
    assert_int_equal(vg_mem_free(m, a), OK);
    assert_int_equal(vg_mem_free(m, a), ERR_ARGUMENT);
    assert_non_null(strstr(status_message(), "double free"));
    assert_int_equal(vg_mem_free(m, 0x1234), ERR_ARGUMENT);
    assert_int_equal(vg_mem_free(m, 0), OK);
    vg_mem_usage(m, &total, &used);
    assert_int_equal(used, 7 + 64);
    assert_int_equal(vg_mem_write(m, a, "x", 1), ERR_ARGUMENT);
    assert_non_null(strstr(status_message(), "freed"));
    vg_memory_destroy(m);
    vg_memory_destroy(NULL);
}

// An allocation whose bytes count as written, and a copy into it of bytes that do not.
static void zeros(void **state) {
    (void)state;
    VgMemory *m;
    assert_int_equal(vg_memory_create(NULL, &m), OK);
    uint64_t a, b;
    char back[2000] = { 1 };
    assert_int_equal(vg_mem_alloc(m, VG_GLOBAL, 2000, 0, "a", &a), OK);
    assert_int_equal(vg_mem_alloc(m, VG_GLOBAL, 600, 0, "b", &b), OK);
    assert_int_equal(vg_mem_write(m, a + 10, "x", 1), OK);
    assert_int_equal(vg_mem_zero_rest(m, a + 10), ERR_ARGUMENT);
    assert_int_equal(vg_mem_zero_rest(m, a), OK);
    assert_int_equal(vg_mem_read(m, a, back, 2000, false), OK);
    for (int i = 0; i < 2000; i++) assert_int_equal(back[i], i == 10 ? 'x' : 0);
    assert_int_equal(vg_mem_write(m, b, back, 100), OK);
    assert_int_equal(vg_mem_copy(m, a + 700, b, 101), OK); // the last was never written
    assert_int_equal(vg_mem_read(m, a, back, 800, false), OK);
    assert_int_equal(vg_mem_read(m, a + 800, back, 1, false), ERR_INPUT);
    assert_int_equal(vg_mem_read(m, a + 801, back, 1199, false), OK);
    vg_memory_destroy(m);
}

// Addresses are not used again soon, and are when the window has been walked through.
static void quarantine(void **state) {
    (void)state;
    VgMemory *m;
    assert_int_equal(vg_memory_create(NULL, &m), OK);
    uint64_t kept, first, a = 0;
    assert_int_equal(vg_mem_alloc(m, VG_GLOBAL, 16, 0, "kept", &kept), OK);
    assert_int_equal(vg_mem_alloc(m, VG_GLOBAL, 16, 0, "a", &first), OK);
    assert_int_equal(vg_mem_free(m, first), OK);
    int rounds = 0;
    do {
        assert_int_equal(vg_mem_alloc(m, VG_GLOBAL, (size_t)64 << 21, 0, "a", &a), OK);
        assert_true(a + ((size_t)64 << 21) <= kept || a > kept);
        assert_int_equal(vg_mem_free(m, a), OK);
        rounds++;
    } while (a > first && rounds < 20000);
    assert_true(rounds > 4000); // 1 TiB / 130 MiB
    assert_true(a <= first);
    assert_int_equal(vg_mem_write(m, kept, "0123456789abcdef", 16), OK);
    vg_memory_destroy(m);
}

static void copies(void **state) {
    (void)state;
    VgMemory *m;
    assert_int_equal(vg_memory_create(NULL, &m), OK);
    uint64_t a, b;
    char text[600], back[600];
    for (int i = 0; i < 600; i++) text[i] = (char)(i * 7);
    assert_int_equal(vg_mem_alloc(m, VG_GLOBAL, 600, 0, "a", &a), OK);
    assert_int_equal(vg_mem_alloc(m, VG_GLOBAL, 600, 0, "b", &b), OK);
    assert_int_equal(vg_mem_read(m, a, back, 1, false), ERR_INPUT);
    assert_int_equal(vg_mem_read(m, a, back, 1, true), OK);
    for (size_t from = 250; from < 262; from++) {   // edges of lines
        for (size_t n = 1; n < 270; n += 13) {
            assert_int_equal(vg_mem_free(m, a), OK);
            assert_int_equal(vg_mem_alloc(m, VG_GLOBAL, 600, 0, "a", &a), OK);
            assert_int_equal(vg_mem_write(m, a + from, text, n), OK);
            assert_int_equal(vg_mem_read(m, a + from, back, n, false), OK);
            assert_memory_equal(back, text, n);
            assert_int_equal(vg_mem_read(m, a + from - 1, back, 1, false), ERR_INPUT);
            assert_int_equal(vg_mem_read(m, a + from, back, n + 1, false), ERR_INPUT);
            assert_non_null(strstr(status_message(), "never written"));
        }
    }
    assert_int_equal(vg_mem_write(m, a + 100, text, 500), OK);
    assert_int_equal(vg_mem_copy(m, b, a, 600), OK);      // the first 100 stay unwritten
    assert_int_equal(vg_mem_read(m, b + 100, back, 500, false), OK);
    assert_memory_equal(back, text, 500);
    assert_int_equal(vg_mem_read(m, b + 99, back, 1, false), ERR_INPUT);
    assert_int_equal(vg_mem_write(m, b, text, 600), OK);  // whole
    assert_int_equal(vg_mem_copy(m, b + 3, a + 99, 5), OK);
    assert_int_equal(vg_mem_read(m, b + 3, back, 1, false), ERR_INPUT);
    assert_int_equal(vg_mem_read(m, b + 4, back, 4, false), OK);
    assert_int_equal(vg_mem_copy(m, b, b + 4, 596), OK);  // overlap
    assert_int_equal(vg_mem_fill(m, b, 0xabcd, 2, 300), OK);
    assert_int_equal(vg_mem_read(m, b, back, 600, false), OK);
    for (int i = 0; i < 600; i += 2) assert_int_equal((uint8_t)back[i], 0xcd);
    assert_int_equal(vg_mem_fill(m, b, 1, 4, 151), ERR_ARGUMENT);
    assert_int_equal(vg_mem_read(m, b + 599, back, 2, false), ERR_ARGUMENT);
    vg_memory_destroy(m);
}

/* Loads and stores against a model ------------------------------------------------------------- */

#define SPAN 8192
typedef struct Model { uint8_t bytes[SPAN]; } Model;

// Element e of lane l: offsets[l] + e * bytes, little-endian; sign-extended or not into the
// register.
static void check_load(Rig *rig, const VgSite *s, uint32_t mask, const uint32_t *offsets,
                       const Model *model, const char *before) {
    for (uint32_t e = 0; e < s->vector; e++) {
        for (int l = 0; l < 32; l++) {
            uint64_t want[2] = { 0 }, got[2] = { 0 };
            const char *reg = rig->frame + s->reg[e], *old = before + s->reg[e];
            if (mask >> l & 1) {
                memcpy(want, model->bytes + offsets[l] + e * s->bytes, s->bytes);
                if (s->sign && s->bytes < 8 && want[0] >> (8 * s->bytes - 1) & 1)
                    want[0] |= UINT64_MAX << 8 * s->bytes;
                if (s->reg_bytes == 4) want[0] &= UINT32_MAX;
            } else if (s->reg_bytes == 4) {
                want[0] = ((const uint32_t *)old)[l];
            } else {
                want[0] = ((const uint64_t *)old)[l];
                if (s->reg_bytes == 16) want[1] = ((const uint64_t *)old)[32 + l];
            }
            got[0] = s->reg_bytes == 4 ? ((const uint32_t *)reg)[l] : ((const uint64_t *)reg)[l];
            if (s->reg_bytes == 16) got[1] = ((const uint64_t *)reg)[32 + l];
            assert_int_equal(got[0], want[0]);
            assert_int_equal(got[1], want[1]);
        }
    }
}

static void model_store(Rig *rig, const VgSite *s, uint32_t mask, const uint32_t *offsets,
                        Model *model) {
    for (int l = 0; l < 32; l++) {
        for (uint32_t e = 0; e < s->vector && mask >> l & 1; e++) {
            const char *reg = rig->frame + s->source[e];
            uint64_t value[2] = { 0 };
            if (s->reg_bytes == 4)
                value[0] = ((const uint32_t *)reg)[l];
            else
                value[0] = ((const uint64_t *)reg)[l];
            if (s->reg_bytes == 16) value[1] = ((const uint64_t *)reg)[32 + l];
            memcpy(model->bytes + offsets[l] + e * s->bytes, value, s->bytes);
        }
    }
}

static uint64_t seed = 1;
static uint32_t draw(uint32_t n) {
    seed = hash_mix(seed, 17, 4);
    return (uint32_t)(seed >> 33) % n;
}

// Patterns: consecutive, one address, strided, two groups, a permutation, scattered.
static void draw_offsets(int pattern, uint32_t total, uint32_t limit, uint32_t *offsets) {
    uint32_t slots = limit / total, used[SPAN] = { 0 };
    uint32_t base = draw(slots > 64 ? slots - 64 : 1);
    for (uint32_t l = 0; l < 32; l++) {
        uint32_t at = 0;
        switch (pattern) {
        case 0: at = base + l; break;
        case 1: at = base; break;
        case 2: at = (base + l * 3) % slots; break;
        case 3: at = base + (l & 1) + (l >> 4) * 9; break;
        case 4: at = base + (l ^ 21); break;
        default:
            do at = draw(slots);
            while (used[at]);
            used[at] = 1;
        }
        offsets[l] = at % slots * total;
    }
}

static void moves_in(VgSpace space, bool addresses32, const char *isa) {
    Rig rig;
    static Model model;
    if (isa) setenv("MOEC_VGPU_ISA", isa, 1);
    rig_begin(&rig, &plain);
    uint64_t base = space == VG_GLOBAL ? rig_alloc(&rig, SPAN, "span") : 0;
    uint64_t generic = space == VG_SHARED ? VG_SHARED_WINDOW : base;
    VgSite fill = rig_site(VG_WRITE, space, 1, 1);
    memset(&model, 0, sizeof model);
    for (uint32_t at = 0; at < SPAN; at += 32)
        assert_int_equal(rig_run(&rig, &rig.warp[0][0], &fill, ~0u, base + at, 1), VG_OK);
    static const uint32_t sizes[][2] = { { 1, 1 }, { 2, 1 }, { 4, 1 }, { 8, 1 }, { 16, 1 },
                                         { 1, 2 }, { 1, 4 }, { 2, 2 }, { 2, 4 }, { 4, 2 },
                                         { 4, 4 }, { 8, 2 }, { 4, 8 }, { 8, 4 } };
    for (int round = 0; round < 1500; round++) {
        const uint32_t *size = sizes[round % COUNT_OF(sizes)];
        bool write = draw(2), use_generic = !addresses32 && draw(4) == 0;
        VgSite s = rig_site(write ? VG_WRITE : VG_READ, use_generic ? VG_GENERIC : space, size[0],
                            size[1]);
        uint32_t mask = draw(3) ? ~0u : (uint32_t)hash_mix(seed, 3, 3), offsets[32];
        if (!mask) mask = 1;
        s.sign = draw(2);
        if (draw(4) == 0 && size[0] <= 4) s.reg_bytes = 8;
        if (addresses32) s.address_bytes = 4;
        s.offset = draw(2) ? 64 - (int)draw(128) : 0;
        s.run = vg_access_select(&s);
        draw_offsets((int)draw(6), size[0] * size[1], SPAN, offsets);
        for (int l = 0; l < 32; l++) {
            uint64_t at = (use_generic ? generic : base) + offsets[l] - (uint64_t)s.offset;
            if (addresses32)
                rig_u32(&rig, RIG_ADDRESS)[l] = (uint32_t)at;
            else
                rig_u64(&rig, RIG_ADDRESS)[l] = at;
        }
        for (int e = 0; e < 8; e++)
            for (int l = 0; l < 64; l++)
                rig_u64(&rig, RIG_DATA + e * 1)[l % 32] = hash_mix(seed, (uint64_t)e, (uint64_t)l);
        char before[64 * 256];
        memcpy(before, rig.frame, sizeof before);
        if (write) {
            bool overlap = false;
            for (int l = 0; l < 32; l++)
                for (int k = 0; k < l; k++) overlap |= offsets[k] == offsets[l];
            if (overlap) continue; // a race of lanes, tested elsewhere
            model_store(&rig, &s, mask, offsets, &model);
        }
        VgFault fault = rig_run_at(&rig, &rig.warp[0][0], &s, mask);
        if (fault != VG_OK) print_message("%s", rig_report(&rig));
        assert_int_equal(fault, VG_OK);
        if (!write) check_load(&rig, &s, mask, offsets, &model, before);
    }
    if (space == VG_GLOBAL) {
        static uint8_t back[SPAN];
        assert_int_equal(vg_mem_read(rig.memory, base, back, SPAN, false), OK);
        assert_memory_equal(back, model.bytes, SPAN);
    } else if (space == VG_SHARED) {
        assert_memory_equal(vg_shared_host(rig.team[0], 0), model.bytes, SPAN);
    }
    rig_end(&rig);
    unsetenv("MOEC_VGPU_ISA");
}

static void moves_global(void **state) { (void)state; moves_in(VG_GLOBAL, false, NULL); }
static void moves_shared(void **state) { (void)state; moves_in(VG_SHARED, false, NULL); }
static void moves_shared32(void **state) { (void)state; moves_in(VG_SHARED, true, NULL); }
static void moves_global_v3(void **state) { (void)state; moves_in(VG_GLOBAL, false, "v3"); }
static void moves_shared_v3(void **state) { (void)state; moves_in(VG_SHARED, true, "v3"); }

// Each lane has its own: lane l writes values of its own at one offset and reads them back.
static void moves_local(void **state) {
    (void)state;
    Rig rig;
    rig_begin(&rig, &plain);
    VgSite st = rig_site(VG_WRITE, VG_LOCAL, 4, 4), ld = rig_site(VG_READ, VG_LOCAL, 4, 4);
    VgSite byte = rig_site(VG_READ, VG_GENERIC, 1, 1);
    for (int e = 0; e < 4; e++)
        for (uint32_t l = 0; l < 32; l++) rig_u32(&rig, RIG_DATA + e)[l] = l * 1000 + (uint32_t)e;
    assert_int_equal(rig_run(&rig, &rig.warp[0][1], &st, ~0u, 16, 0), VG_OK);
    memset(rig_u32(&rig, RIG_DATA), 0, 8 * 256);
    assert_int_equal(rig_run(&rig, &rig.warp[0][1], &ld, 0xffff00ff, 16, 0), VG_OK);
    for (int e = 0; e < 4; e++)
        for (uint32_t l = 0; l < 32; l++)
            assert_int_equal(rig_u32(&rig, RIG_DATA + e)[l],
                             l / 8 == 1 ? 0 : l * 1000 + (uint32_t)e);
    for (uint32_t l = 0; l < 32; l++) rig_u64(&rig, RIG_ADDRESS)[l] = VG_LOCAL_WINDOW + 16 + l % 16;
    assert_int_equal(rig_run_at(&rig, &rig.warp[0][1], &byte, ~0u), VG_OK);
    for (uint32_t l = 0; l < 32; l++)
        assert_int_equal(rig_u32(&rig, RIG_DATA)[l], (l * 1000 + l % 16 / 4) >> 8 * (l % 4) & 255);
    VgSite st8 = rig_site(VG_WRITE, VG_LOCAL, 8, 2), ld8 = rig_site(VG_READ, VG_LOCAL, 8, 2);
    for (int e = 0; e < 2; e++)
        for (uint32_t l = 0; l < 32; l++)
            rig_u64(&rig, RIG_DATA + e)[l] = hash_mix(l, (uint64_t)e, 0);
    assert_int_equal(rig_run(&rig, &rig.warp[0][1], &st8, 0x7fffffff, 32, 0), VG_OK);
    memset(rig_u32(&rig, RIG_DATA), 0, 8 * 256);
    assert_int_equal(rig_run(&rig, &rig.warp[0][1], &ld8, 0x3fffffff, 32, 0), VG_OK);
    for (uint32_t l = 0; l < 32; l++)
        for (int e = 0; e < 2; e++)
            assert_int_equal(rig_u64(&rig, RIG_DATA + e)[l],
                             l < 30 ? hash_mix(l, (uint64_t)e, 0) : 0);
    assert_int_equal(rig_run(&rig, &rig.warp[0][1], &byte, 1, VG_LOCAL_WINDOW + 35, 0), VG_OK);
    assert_int_equal(rig_u32(&rig, RIG_DATA)[0], hash_mix(0, 0, 0) >> 24 & 255);
    assert_int_equal(rig_run(&rig, &rig.warp[0][1], &ld8, ~0u, 32, 0), VG_UNINITIALISED);
    assert_int_equal(rig_record(&rig)->lane, 31);
    assert_int_equal(rig_run(&rig, &rig.warp[0][0], &ld, ~0u, 16, 0),
                     VG_UNINITIALISED); // another warp's
    assert_int_equal(rig_run(&rig, &rig.warp[0][1], &ld, ~0u, 64, 0), VG_ILLEGAL_ADDRESS);
    rig_end(&rig);
}

static void params(void **state) {
    (void)state;
    Rig rig;
    uint32_t values[5] = { 1, 2, 3, 4, 0xfffffff5 };
    RigShape shape = plain;
    shape.params = values;
    shape.param_bytes = sizeof values;
    rig_begin(&rig, &shape);
    VgSite ld = rig_site(VG_READ, VG_PARAM, 4, 1), generic = rig_site(VG_READ, VG_GENERIC, 8, 1);
    VgSite st = rig_site(VG_WRITE, VG_GENERIC, 4, 1);
    for (uint32_t l = 0; l < 32; l++) rig_u64(&rig, RIG_ADDRESS)[l] = l % 5 * 4;
    assert_int_equal(rig_run_at(&rig, &rig.warp[0][0], &ld, ~0u), VG_OK);
    for (uint32_t l = 0; l < 32; l++) assert_int_equal(rig_u32(&rig, RIG_DATA)[l], values[l % 5]);
    assert_int_equal(rig_run(&rig, &rig.warp[0][0], &generic, ~0u, VG_PARAM_WINDOW + 8, 0), VG_OK);
    assert_int_equal(rig_u64(&rig, RIG_DATA)[9], 0x400000003);
    assert_int_equal(rig_run(&rig, &rig.warp[0][0], &ld, 1, 20, 0), VG_ILLEGAL_ADDRESS);
    assert_int_equal(rig_run(&rig, &rig.warp[0][0], &st, 1, VG_PARAM_WINDOW, 0), VG_READ_ONLY);
    rig_end(&rig);
}

// Beyond 4 GiB: offsets no longer fit 32 bits; lanes more than that apart go by themselves.
static void large(void **state) {
    (void)state;
    Rig rig;
    rig_begin(&rig, &plain);
    uint64_t a = rig_alloc(&rig, (size_t)9 << 30, "large");
    VgSite st = rig_site(VG_WRITE, VG_GLOBAL, 4, 1), ld = rig_site(VG_READ, VG_GLOBAL, 4, 1);
    static const int64_t steps[] = { 4, 1 << 20, 1 << 28, (int64_t)280 << 20 };
    for (int k = 0; k < COUNT_OF(steps); k++) {
        uint64_t base = a + (k < 2 ? (uint64_t)5 << 30 : 256);
        for (uint32_t l = 0; l < 32; l++) rig_u32(&rig, RIG_DATA)[l] = l * 77 + (uint32_t)k;
        assert_int_equal(rig_run(&rig, &rig.warp[0][0], &st, ~0u, base, steps[k]), VG_OK);
        memset(rig_u32(&rig, RIG_DATA), 0, 128);
        assert_int_equal(rig_run(&rig, &rig.warp[0][0], &ld, ~0u, base, steps[k]), VG_OK);
        for (uint32_t l = 0; l < 32; l++)
            assert_int_equal(rig_u32(&rig, RIG_DATA)[l], l * 77 + (uint32_t)k);
    }
    assert_int_equal(rig_run(&rig, &rig.warp[0][0], &ld, ~0u, a + ((uint64_t)9 << 30) - 64, 4),
                     VG_ILLEGAL_ADDRESS);
    assert_int_equal(rig_record(&rig)->lane, 16);
    rig_end(&rig);
}

/* Atomics -------------------------------------------------------------------------------------- */

typedef struct AtomRow {
    VgAtomOp op;
    VgAtomType type;
    uint32_t bytes;
    uint64_t old, b, compare, want;
} AtomRow;

static void atoms(void **state) {
    (void)state;
    static const AtomRow rows[] = {
        { VG_ATOM_ADD, VG_ATOM_B32, 4, 0xffffffff, 2, 0, 1 },
        { VG_ATOM_ADD, VG_ATOM_B64, 8, UINT64_MAX, 3, 0, 2 },
        { VG_ATOM_MIN, VG_ATOM_B32, 4, 0xffffffff, 2, 0, 2 },
        { VG_ATOM_MIN, VG_ATOM_S32, 4, 0xffffffff, 2, 0, 0xffffffff },
        { VG_ATOM_MAX, VG_ATOM_S32, 4, 0xffffffff, 2, 0, 2 },
        { VG_ATOM_MAX, VG_ATOM_B64, 8, UINT64_MAX, 2, 0, UINT64_MAX },
        { VG_ATOM_MAX, VG_ATOM_S64, 8, UINT64_MAX, 2, 0, 2 },
        { VG_ATOM_MIN, VG_ATOM_S64, 8, UINT64_MAX, 2, 0, UINT64_MAX },
        { VG_ATOM_AND, VG_ATOM_B32, 4, 12, 10, 0, 8 },
        { VG_ATOM_OR, VG_ATOM_B64, 8, 12, 10, 0, 14 },
        { VG_ATOM_XOR, VG_ATOM_B32, 4, 12, 10, 0, 6 },
        { VG_ATOM_EXCH, VG_ATOM_B64, 8, 12, 10, 0, 10 },
        { VG_ATOM_CAS, VG_ATOM_B32, 4, 12, 10, 12, 10 },
        { VG_ATOM_CAS, VG_ATOM_B32, 4, 12, 10, 11, 12 },
        { VG_ATOM_CAS, VG_ATOM_B16, 2, 0xfff0, 0x1234, 0xfff0, 0x1234 },
        { VG_ATOM_INC, VG_ATOM_B32, 4, 6, 7, 0, 7 },
        { VG_ATOM_INC, VG_ATOM_B32, 4, 7, 7, 0, 0 },
        { VG_ATOM_INC, VG_ATOM_B32, 4, 0xffffffff, 0xffffffff, 0, 0 },
        { VG_ATOM_DEC, VG_ATOM_B32, 4, 0, 7, 0, 7 },
        { VG_ATOM_DEC, VG_ATOM_B32, 4, 8, 7, 0, 7 },
        { VG_ATOM_DEC, VG_ATOM_B32, 4, 7, 7, 0, 6 },
        { VG_ATOM_ADD, VG_ATOM_F32, 4, 0x3f800000, 0x40000000, 0, 0x40400000 },
        { VG_ATOM_ADD, VG_ATOM_F32, 4, 0x7f800000, 0xff800000, 0, 0x7fffffff },
        { VG_ATOM_ADD, VG_ATOM_F64, 8, 0x3ff0000000000000, 0x4000000000000000, 0,
          0x4008000000000000 },
        { VG_ATOM_MAX, VG_ATOM_F32, 4, 0x3f800000, 0x7fc00000, 0, 0x3f800000 },
        { VG_ATOM_ADD, VG_ATOM_F16, 2, 0x3c00, 0x4000, 0, 0x4200 },
        { VG_ATOM_ADD, VG_ATOM_F16, 2, 0x7bff, 0x7bff, 0, 0x7c00 }, // 65504 * 2
        { VG_ATOM_ADD, VG_ATOM_F16, 2, 0x0001, 0x0001, 0, 0x0002 }, // subnormals
        { VG_ATOM_ADD, VG_ATOM_F16, 2, 0x3c00, 0x1000, 0, 0x3c00 }, // 1 + 2^-11: to even
        { VG_ATOM_ADD, VG_ATOM_F16, 2, 0x3c01, 0x1000, 0, 0x3c02 },
        { VG_ATOM_ADD, VG_ATOM_F16, 2, 0x3c00, 0xbc00, 0, 0x0000 },
        { VG_ATOM_ADD, VG_ATOM_BF16, 2, 0x3f80, 0x4000, 0, 0x4040 },
        { VG_ATOM_ADD, VG_ATOM_BF16, 2, 0x3f80, 0x3b80, 0, 0x3f80 }, // 1 + 2^-8: to even
        { VG_ATOM_ADD, VG_ATOM_BF16, 2, 0x3f81, 0x3b80, 0, 0x3f82 },
        { VG_ATOM_ADD, VG_ATOM_BF16, 2, 0x0001, 0x8002, 0, 0x8001 },
        { VG_ATOM_ADD, VG_ATOM_F16X2, 4, 0x3c003c00, 0x40003c00, 0, 0x42004000 },
        { VG_ATOM_ADD, VG_ATOM_BF16X2, 4, 0x3f803f80, 0x40003f80, 0, 0x40404000 },
        { VG_ATOM_MIN, VG_ATOM_F16X2, 4, 0x3c007e00, 0x40003c00, 0, 0x3c003c00 },
    };
    Rig rig;
    rig_begin(&rig, &plain);
    uint64_t a = rig_alloc(&rig, 64, "counter");
    for (int space = 0; space < 2; space++) {
        for (int i = 0; i < COUNT_OF(rows); i++) {
            const AtomRow *r = &rows[i];
            VgSpace in = space ? VG_SHARED : VG_GLOBAL;
            uint64_t at = space ? 64 : a;
            VgSite s = rig_atom(in, r->op, r->type, r->bytes),
                   st = rig_site(VG_WRITE, in, r->bytes, 1);
            VgSite ld = rig_site(VG_READ, in, r->bytes, 1);
            for (int l = 0; l < 32; l++) {
                if (r->bytes == 8) {
                    rig_u64(&rig, RIG_DATA)[l] = r->old;
                } else {
                    rig_u32(&rig, RIG_DATA)[l] = (uint32_t)r->old;
                }
            }
            assert_int_equal(rig_run(&rig, &rig.warp[0][0], &st, ~0u, at, 0), VG_OK);
            for (int l = 0; l < 32; l++) {
                if (r->bytes == 8) {
                    rig_u64(&rig, RIG_DATA)[l] = r->b;
                } else {
                    rig_u32(&rig, RIG_DATA)[l] = (uint32_t)r->b;
                    rig_u32(&rig, RIG_COMPARE)[l] = (uint32_t)r->compare;
                }
            }
            assert_int_equal(rig_run(&rig, &rig.warp[0][0], &s, 1u << 5, at, 0), VG_OK);
            uint64_t old =
                r->bytes == 8 ? rig_u64(&rig, RIG_RESULT)[5] : rig_u32(&rig, RIG_RESULT)[5];
            assert_int_equal(old, r->old);
            assert_int_equal(rig_run(&rig, &rig.warp[0][0], &ld, ~0u, at, 0), VG_OK);
            uint64_t got = r->bytes == 8 ? rig_u64(&rig, RIG_DATA)[5] : rig_u32(&rig, RIG_DATA)[5];
            if (got != r->want) print_message("row %d, space %d\n", i, space);
            assert_int_equal(got, r->want);
        }
    }
    rig_end(&rig);
}

// Subnormal sums: flushed in global memory, kept in shared. Lanes add one after the other.
static void atoms_of_lanes(void **state) {
    (void)state;
    Rig rig;
    rig_begin(&rig, &plain);
    uint64_t a = rig_alloc(&rig, 64, "sum");
    uint32_t word = 0x00000001;
    assert_int_equal(vg_mem_write(rig.memory, a, &word, 4), OK);
    VgSite add = rig_atom(VG_GLOBAL, VG_ATOM_ADD, VG_ATOM_F32, 4);
    for (int l = 0; l < 32; l++) rig_u32(&rig, RIG_DATA)[l] = 0x00000001;
    assert_int_equal(rig_run(&rig, &rig.warp[0][0], &add, ~0u, a, 0), VG_OK);
    assert_int_equal(vg_mem_read(rig.memory, a, &word, 4, false), OK);
    assert_int_equal(word, 0);
    VgSite st = rig_site(VG_WRITE, VG_SHARED, 4, 1),
           shared = rig_atom(VG_SHARED, VG_ATOM_ADD, VG_ATOM_F32, 4);
    assert_int_equal(rig_run(&rig, &rig.warp[0][0], &st, 1, 0, 0), VG_OK);
    assert_int_equal(rig_run(&rig, &rig.warp[0][0], &shared, ~0u, 0, 0), VG_OK);
    assert_int_equal(*(uint32_t *)(void *)vg_shared_host(rig.team[0], 0), 33);
    for (uint32_t l = 0; l < 32; l++) assert_int_equal(rig_u32(&rig, RIG_RESULT)[l], 1 + l);
    VgSite wide = rig_atom(VG_GLOBAL, VG_ATOM_ADD, VG_ATOM_F32, 4); // red.v4.f32
    wide.vector = 4;
    wide.result = false;
    float four[4] = { 1, 2, 3, 4 };
    assert_int_equal(vg_mem_write(rig.memory, a, four, 16), OK);
    for (int e = 0; e < 4; e++)
        for (int l = 0; l < 32; l++) rig_u32(&rig, RIG_DATA + e)[l] = 0x3f800000;
    assert_int_equal(rig_run(&rig, &rig.warp[0][0], &wide, 0x11, a, 0), VG_OK);
    assert_int_equal(vg_mem_read(rig.memory, a, four, 16, false), OK);
    for (int e = 0; e < 4; e++) assert_true(four[e] == (float)(e + 3));
    assert_int_equal(rig_run(&rig, &rig.warp[0][0], &wide, 1, a + 8, 0), VG_MISALIGNED);
    VgSite exch = rig_atom(VG_GLOBAL, VG_ATOM_EXCH, VG_ATOM_B128, 16);
    exch.reg_bytes = 16;
    for (int l = 0; l < 64; l++)
        ((uint64_t *)(void *)(rig.frame + RIG_DATA * 256))[l] = (uint64_t)l;
    exch.reg[0] = (RIG_RESULT) * 256;
    assert_int_equal(rig_run(&rig, &rig.warp[0][0], &exch, 2, a, 0), VG_OK);
    uint64_t two[2];
    assert_int_equal(vg_mem_read(rig.memory, a, two, 16, false), OK);
    assert_int_equal(two[0], 1);
    assert_int_equal(two[1], 33);
    assert_memory_equal(&((uint64_t *)(void *)(rig.frame + RIG_RESULT * 256))[1], &four[0], 8);
    rig_end(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allocations),     cmocka_unit_test(quarantine),
        cmocka_unit_test(zeros), cmocka_unit_test(copies),          cmocka_unit_test(moves_global),
        cmocka_unit_test(moves_shared),    cmocka_unit_test(moves_shared32),
        cmocka_unit_test(moves_global_v3), cmocka_unit_test(moves_shared_v3),
        cmocka_unit_test(moves_local),     cmocka_unit_test(params),
        cmocka_unit_test(large),           cmocka_unit_test(atoms),
        cmocka_unit_test(atoms_of_lanes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
