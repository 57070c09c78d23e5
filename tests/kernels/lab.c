// SPDX-License-Identifier: Apache-2.0
// See lab.h.
#include "tests/kernels/lab.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

static void check(Status status) {
    if (status != OK) fail_msg("%s", status_message());
}

/* kernels ------------------------------------------------------------------------------------ */

const char *lab_gpu(void) { return getenv("MOEC_TEST_DEVICE"); }

static void open_device(Lab *lab) {
    const char *name = lab_gpu(), *target;
    check(pool_create(0, &lab->pool));
    if (device_target(name, lab->plan->arena, &target) != OK ||
        device_open(name, lab->pool, &lab->device) != OK) {
        print_message("skipped: %s\n", status_message());
        skip();
    }
    lab->plan->target = target;
}

void lab_open(Lab *lab) {
    setenv("MOEC_CACHE_DIR", MOEC_BINARY_DIR "/test-cache", 1);
    *lab = (Lab){.plan = plan_create()};
    if (lab_gpu()) open_device(lab);
    lab->codegen = codegen_create(lab->plan);
    if (!lab->codegen) fail_msg("%s", status_message());
}

uint32_t lab_add(Lab *lab, const KernelDesc *desc) {
    uint32_t kernel = 0;
    check(codegen_kernel(lab->codegen, desc, &kernel));
    return kernel;
}

bool lab_has_bf16(void) {
    return __builtin_cpu_supports("x86-64-v4") && __builtin_cpu_supports("avx512bf16");
}

void lab_compile(Lab *lab) {
    if (lab->device) {
        lab->kernels = ARENA_ARRAY(lab->plan->arena, DeviceKernel, lab->plan->n_kernels);
        check(lab->device->api->load(lab->device, lab->plan, NULL, NULL, NULL, lab->kernels));
        return;
    }
    static const char *const levels[LAB_LEVELS] = {"x86-64-v4-bf16", "x86-64-v4", "x86-64-v3",
                                                   "x86-64-v2"};
    bool here[LAB_LEVELS] = {lab_has_bf16(), __builtin_cpu_supports("x86-64-v4") != 0,
                             __builtin_cpu_supports("x86-64-v3") != 0,
                             __builtin_cpu_supports("x86-64-v2") != 0};
    for (int i = 0; i < LAB_LEVELS; i++) {
        if (!here[i]) {
            print_message("skipped: level %s is not on this machine\n", levels[i]);
            continue;
        }
        setenv("MOEC_ISA", levels[i], 1);
        check(jit_load(lab->plan, NULL, NULL, NULL, &lab->jit[lab->n_levels++]));
    }
    unsetenv("MOEC_ISA");
    assert_true(lab->n_levels > 0);
}

void lab_close(Lab *lab) {
    for (int i = 0; i < lab->n_levels; i++) jit_destroy(lab->jit[i]);
    device_close(lab->device);
    pool_destroy(lab->pool);
    codegen_destroy(lab->codegen);
    plan_destroy(lab->plan);
}

typedef void (*Launch)(void *const *args, int64_t tile_begin, int64_t tile_end);
enum { ORDERS = 4, MAX_BINDINGS = 40 };

static void run_order(Launch launch, void *const *args, int64_t tiles, int order) {
    if (order == 0) launch(args, 0, tiles);
    for (int64_t i = 0; order == 1 && i < tiles; i++) launch(args, tiles - 1 - i, tiles - i);
    if (order == 2) {
        for (int64_t i = 1; i < tiles; i += 2) launch(args, i, i + 1);
        for (int64_t i = 0; i < tiles; i += 2) launch(args, i, i + 1);
    }
    for (int64_t i = 0; order == 3 && i < tiles; i += 3) launch(args, i, min_i64(i + 3, tiles));
}

// What a run reads and writes: bound arrays in the kernel's order, then those that tables of addresses name.
typedef struct Touched {
    int n, n_bound;
    bool is_const[MAX_BINDINGS];
    void *at[MAX_BINDINGS], *before[MAX_BINDINGS], *first[MAX_BINDINGS];
    size_t bytes[MAX_BINDINGS];
    const char *names[MAX_BINDINGS];
    int far[MAX_BINDINGS]; // by bound array: where those of its addresses are, 0: it has none
    int n_far[MAX_BINDINGS];
} Touched;

static void touch(Touched *t, const char *name, void *at, bool is_const) {
    assert_true(t->n < MAX_BINDINGS);
    t->names[t->n] = name;
    t->at[t->n] = at;
    t->is_const[t->n] = is_const;
    t->bytes[t->n] = lab_bytes(at);
    t->before[t->n] = malloc(t->bytes[t->n] + 1);
    t->first[t->n] = malloc(t->bytes[t->n] + 1);
    t->n++;
}

static void touch_all(Touched *t, const PlanKernel *k, const Binding *bindings, int n) {
    const Binding *bound[MAX_BINDINGS];
    *t = (Touched){.n_bound = n};
    assert_int_equal(k->n_args, n);
    for (int i = 0; i < n; i++) {
        bound[i] = NULL;
        for (int j = 0; j < n; j++)
            if (!strcmp(bindings[j].name, k->args[i].name)) bound[i] = &bindings[j];
        if (!bound[i])
            fail_msg("%s has a parameter %s that the test does not know", k->entry, k->args[i].name);
        assert_int_equal(bound[i]->dtype, k->args[i].dtype);
        assert_int_equal(bound[i]->is_const, k->args[i].is_const);
        touch(t, k->args[i].name, bound[i]->at, k->args[i].is_const);
    }
    for (int i = 0; i < n; i++) {
        t->far[i] = bound[i]->n_far ? t->n : 0;
        t->n_far[i] = bound[i]->n_far;
        for (int j = 0; j < bound[i]->n_far; j++) {
            ((int64_t *)bound[i]->at)[j] = (int64_t)(uintptr_t)bound[i]->far[j];
            touch(t, bound[i]->name, bound[i]->far[j], false);
        }
    }
    for (int i = 0; i < t->n; i++) memcpy(t->before[i], t->at[i], t->bytes[i]);
}

// Once, from `before` in the device's memory to `at`.
static void run_device(Lab *lab, uint32_t kernel, const Touched *t) {
    Device *device = lab->device;
    void *at[MAX_BINDINGS];
    for (int i = 0; i < t->n; i++) check(device->api->alloc(device, (int64_t)t->bytes[i], false, "an array", &at[i]));
    for (int i = 0; i < t->n; i++) // a table has the device's addresses
        check(device->api->copy_in(device, at[i], i < t->n_bound && t->far[i] ? (void *)&at[t->far[i]] : t->before[i],
                                   (int64_t)t->bytes[i]));
    if (lab->kernels[kernel].n_tiles)
        check(device->api->launch(device, &lab->kernels[kernel], at, NULL));
    for (int i = 0; i < t->n; i++)
        if (i >= t->n_bound || !t->far[i])
            check(device->api->copy_out(device, t->at[i], at[i], (int64_t)t->bytes[i]));
    check(device->api->synchronize(device));
    for (int i = 0; i < t->n; i++) device->api->release(device, at[i], (int64_t)t->bytes[i]);
}

void lab_run(Lab *lab, uint32_t kernel, const Binding *bindings, int n) {
    const PlanKernel *k = &lab->plan->kernels[kernel];
    Touched t;
    touch_all(&t, k, bindings, n);
    for (int level = 0; level < lab->n_levels; level++) {
        Launch launch = jit_function(lab->jit[level], kernel);
        for (int order = 0; order < ORDERS; order++) {
            for (int i = 0; i < t.n; i++) memcpy(t.at[i], t.before[i], t.bytes[i]);
            run_order(launch, t.at, k->tiles, order);
            for (int i = 0; i < t.n; i++) {
                if (level == 0 && order == 0) memcpy(t.first[i], t.at[i], t.bytes[i]);
                if (memcmp(t.at[i], t.is_const[i] ? t.before[i] : t.first[i], t.bytes[i]))
                    fail_msg("%s: bits of %s differ at level %d, order %d", k->entry, t.names[i], level, order);
            }
        }
    }
    for (int time = 0; lab->device && time < 2; time++) {
        run_device(lab, kernel, &t);
        for (int i = 0; i < t.n; i++) {
            if (time == 0) memcpy(t.first[i], t.at[i], t.bytes[i]);
            if (memcmp(t.at[i], t.is_const[i] ? t.before[i] : t.first[i], t.bytes[i]))
                fail_msg("%s: bits of %s differ in run %d", k->entry, t.names[i], time);
        }
    }
    for (int i = 0; i < t.n; i++) free(t.before[i]), free(t.first[i]);
}

/* arrays ------------------------------------------------------------------------------------- */

enum { PAGE = 4096, CANARY = 64 };
typedef struct Head {
    void *map;
    size_t mapped, bytes;
    uint8_t canary[CANARY];
} Head;

// The head lies right before the array, which may be aligned to 2 bytes only.
static Head head_of(const void *array) {
    Head head;
    memcpy(&head, (const char *)array - sizeof head, sizeof head);
    return head;
}

void *lab_memory(size_t bytes) {
    size_t mapped = (sizeof(Head) + 8 + bytes + PAGE - 1) / PAGE * PAGE + PAGE;
    char *map = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(map != MAP_FAILED);
    assert_int_equal(mprotect(map + mapped - PAGE, PAGE, PROT_NONE), 0);
    char *array = map + mapped - PAGE - bytes;
    Head head = {.map = map, .mapped = mapped, .bytes = bytes};
    memset(head.canary, 0xa5, CANARY);
    memcpy(array - sizeof head, &head, sizeof head);
    return array;
}

void *lab_array(int64_t count) { return lab_memory((size_t)count * 4); }

int64_t lab_count(const void *array) { return (int64_t)head_of(array).bytes / 4; }

size_t lab_bytes(const void *array) { return head_of(array).bytes; }

void lab_free(void *array) {
    Head head = head_of(array);
    for (int i = 0; i < CANARY; i++) assert_int_equal(head.canary[i], 0xa5);
    munmap(head.map, head.mapped);
}

float *lab_random(int64_t count, uint64_t seed) {
    float *x = lab_array(count);
    for (int64_t i = 0; i < count; i++) x[i] = 2.0f * hash_uniform(seed, 1, (uint64_t)i) - 1.0f;
    return x;
}

uint16_t lab_bf16(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    if (x != x) return (uint16_t)(u >> 16 | 0x40);
    if ((u & 0x7f800000) == 0) return (uint16_t)(u >> 31 << 15);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

float lab_wide(uint16_t x) {
    uint32_t u = (uint32_t)x << 16;
    float wide;
    memcpy(&wide, &u, sizeof wide);
    return wide;
}

uint16_t *lab_narrow(const float *x) {
    size_t n = lab_bytes(x) / sizeof *x;
    uint16_t *narrow = lab_memory(n * sizeof *narrow);
    for (size_t i = 0; i < n; i++) narrow[i] = lab_bf16(x[i]);
    return narrow;
}

float *lab_filled(int64_t count, float value) {
    float *x = lab_array(count);
    for (int64_t i = 0; i < count; i++) x[i] = value;
    return x;
}

void lab_equal_bits(const float *a, const float *b, int64_t count) {
    assert_memory_equal(a, b, (size_t)count * sizeof(float));
}

void lab_near(double got, double want, double bound, const char *what, int64_t at) {
    if (fabs(got - want) <= bound) return;
    fail_msg("%s[%lld]: expected %.9g within %.3g, found %.9g", what, (long long)at, want, bound,
             got);
}
