// SPDX-License-Identifier: Apache-2.0
#include "tests/vgpu/compare.h"

#include <stdlib.h>
#include <string.h>

#include "tests/vgpu/ref.h"

enum { MOST_THREADS = 512 };

typedef struct Case {
    char *ptx;
    int threads;
    uint32_t in[MOST_THREADS * PROGRAM_IN], expected[MOST_THREADS * PROGRAM_OUT];
    uint32_t got[MOST_THREADS * PROGRAM_OUT];
} Case;

static void run_both(Gpu *gpu, Case *c, const char *what) {
    char error[256] = "";
    RefProgram program;
    size_t in_bytes = 4u * PROGRAM_IN * (size_t)c->threads,
    out_bytes = 4u * PROGRAM_OUT * (size_t)c->threads;
    memset(c->expected, 0, out_bytes);
    if (!ref_parse(c->ptx, &program, error)) fail_msg("%s: reference: %s\n%s", what, error, c->ptx);
    bool ok = ref_run(&program, c->threads, c->in, PROGRAM_IN, c->expected, PROGRAM_OUT, error);
    ref_finish(&program);
    if (!ok) fail_msg("%s: reference: %s\n%s", what, error, c->ptx);
    gpu_load(gpu, c->ptx);
    uint64_t in = gpu_put(gpu, c->in, in_bytes), out = gpu_alloc(gpu, out_bytes);
    VgFault fault = gpu_launch(gpu, "k", 1, (uint32_t)c->threads, 2, in, out);
    if (fault) fail_msg("%s: %s\n%s", what, gpu_report(gpu), c->ptx);
    gpu_get(gpu, out, c->got, out_bytes);
    assert_int_equal(vg_mem_free(gpu->memory, in), OK);
    assert_int_equal(vg_mem_free(gpu->memory, out), OK);
}

static bool nan64(const uint32_t *at) {
    uint64_t bits = at[0] | (uint64_t)at[1] << 32;
    return (bits & 0x7fffffffffffffff) > 0x7ff0000000000000;
}

// Words of doubles agree when both are NaNs.
static bool same(const Case *c, int thread, int word, bool is_double) {
    size_t at = (size_t)thread * PROGRAM_OUT + (size_t)word;
    if (c->expected[at] == c->got[at]) return true;
    size_t low = is_double ? at - (size_t)(word % 2) : at;
    return is_double && nan64(&c->expected[low]) && nan64(&c->got[low]);
}

void compare_program(Gpu *gpu, ProgramKind kind, uint64_t seed) {
    Case *c = calloc(1, sizeof *c);
    assert_non_null(c);
    Random random = { seed * 2654435761u + 12345 };
    char what[64];
    snprintf(what, sizeof what, "%s program %llu", kind == PROGRAM_FLOW ? "flow" : "straight",
             (unsigned long long)seed);
    c->threads = 1 + random_below(&random, kind == PROGRAM_FLOW ? 96 : 48);
    for (int i = 0; i < c->threads * PROGRAM_IN; i++)
        c->in[i] = (uint32_t)random_value(&random, 32);
    size_t bytes;
    FILE *to = open_memstream(&c->ptx, &bytes);
    assert_non_null(to);
    if (kind == PROGRAM_FLOW) program_flow(to, seed);
    else program_straight(to, seed, 40);
    fclose(to);
    run_both(gpu, c, what);
    for (int thread = 0; thread < c->threads; thread++) {
        for (int word = 0; word < PROGRAM_OUT; word++) {
            bool is_double = word >= PROGRAM_DOUBLES &&
            word < PROGRAM_DOUBLES + 2 * PROGRAM_N_DOUBLES;
            if (same(c, thread, word, is_double)) continue;
            int at = thread * PROGRAM_OUT + word;
            fail_msg("%s, thread %d of %d, word %d: expected %08x, got %08x\n%s", what, thread,
                     c->threads,
                     word, c->expected[at], c->got[at], c->ptx);
        }
    }
    free(c->ptx);
    free(c);
}

void compare_form(Gpu *gpu, int i) {
    const Form *form = &program_forms[i];
    Case *c = calloc(1, sizeof *c);
    assert_non_null(c);
    Random random = { (uint64_t)i };
    c->threads = MOST_THREADS;
    for (int t = 0; t < c->threads; t++) {
        for (int k = 0; k < 4; k++) {
            char letter = form->operands[k < (int)strlen(form->operands) - 1 ? k + 1 : 0];
            bool wide = strchr("RNg", letter) != NULL, narrow = strchr("hk", letter) != NULL;
            uint64_t value = random_value(&random, wide ? 64 : narrow ? 16 : 32);
            // The same operand twice, often: ties, cancellation.
            if (k == 1 && t % 8 == 0) memcpy(&value, &c->in[t * PROGRAM_IN], 8);
            memcpy(&c->in[t * PROGRAM_IN + 2 * k], &value, 8);
        }
    }
    size_t bytes;
    FILE *to = open_memstream(&c->ptx, &bytes);
    assert_non_null(to);
    program_form(to, i);
    fclose(to);
    run_both(gpu, c, form->op);
    for (int t = 0; t < c->threads; t++) {
        const uint32_t *in = &c->in[t * PROGRAM_IN], *a = &c->expected[t * PROGRAM_OUT],
        *b = &c->got[t * PROGRAM_OUT];
        bool is_double = form->operands[0] == 'g';
        if (same(c, t, 0, is_double) && same(c, t, 1, is_double)) continue;
        print_error("%s of %08x%08x, %08x%08x, %08x%08x, %08x%08x: expected %08x%08x, got"
                    " %08x%08x\n",
                    form->op, in[1], in[0], in[3], in[2], in[5], in[4], in[7], in[6], a[1], a[0],
                    b[1], b[0]);
        free(c->ptx);
        free(c);
        fail();
    }
    free(c->ptx);
    free(c);
}
