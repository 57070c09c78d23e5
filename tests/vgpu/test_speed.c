// SPDX-License-Identifier: Apache-2.0
// How fast the interpreter is with all checks on, on one host thread: a tiled fp32 GEMM and a
// softmax, each checked against its reference first. Figures are printed with the mix they are of,
// and no time is asserted.
#include "tests/vgpu/gpu.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

enum { N = 512, ROWS = 512, COLUMNS = 4096, RUNS = 3 };

// C = A B, square of N. A block of 16 x 16 threads makes 64 x 64 of C over tiles of 16 along k; a thread
// makes 4 x 4. A's tile is kept transposed.
static void gemm_text(Text *t) {
    text_printf(t, ".version 8.0\n.target sm_80\n.address_size 64\n"
                ".visible .entry gemm(.param .u64 a, .param .u64 b, .param .u64 c) {\n"
                ".reg .b32 %%t, %%x, %%y, %%i, %%k, %%sa, %%sb, %%wa, %%wb; .reg .pred %%p;"
                " .reg .b64 %%a, %%b, %%c, %%o;\n"
                ".reg .f32 %%f<4>, %%g<4>, %%h<4>, %%s<16>;\n"
                ".shared .align 16 .b8 as[4096]; .shared .align 16 .b8 bs[4096];\n"
                "ld.param.u64 %%a, [a]; ld.param.u64 %%b, [b]; ld.param.u64 %%c, [c];\n"
                "mov.u32 %%t, %%tid.x; and.b32 %%x, %%t, 15; shr.u32 %%y, %%t, 4;\n"
                // A: row t / 4 of the tile, 4 numbers from column t % 4 * 4
                "mov.u32 %%i, %%ctaid.y; shl.b32 %%i, %%i, 6; shr.u32 %%k, %%t, 2;"
                " add.u32 %%i, %%i, %%k; mul.lo.u32 %%i, %%i, %d; and.b32 %%k, %%t, 3;"
                " shl.b32 %%k, %%k, 2; add.u32 %%i, %%i, %%k; mul.wide.u32 %%o, %%i, 4;"
                " add.u64 %%a, %%a, %%o;\n"
                "mov.u32 %%wa, as; shl.b32 %%k, %%k, 8; add.u32 %%wa, %%wa, %%k;"
                " and.b32 %%k, %%t, 252; add.u32 %%wa, %%wa, %%k;\n"
                // B: row t / 16, 4 numbers from column t % 16 * 4
                "mul.lo.u32 %%i, %%y, %d; mov.u32 %%k, %%ctaid.x; shl.b32 %%k, %%k, 6;"
                " add.u32 %%i, %%i, %%k; mad.lo.u32 %%i, %%x, 4, %%i; mul.wide.u32 %%o, %%i, 4;"
                " add.u64 %%b, %%b, %%o; mov.u32 %%wb, bs; mad.lo.u32 %%wb, %%t, 16, %%wb;\n"
                "mov.u32 %%sa, as; mad.lo.u32 %%sa, %%y, 16, %%sa; mov.u32 %%sb, bs;"
                " mad.lo.u32 %%sb, %%x, 16, %%sb;\n", N, N);
    for (int k = 0; k < 16; k++) text_printf(t, "mov.f32 %%s%d, 0f00000000;\n", k);
    text_printf(t, "mov.u32 %%k, 0;\nLOOP:\n"
                "ld.global.v4.f32 {%%h0, %%h1, %%h2, %%h3}, [%%a];\n"
                "ld.global.v4.f32 {%%g0, %%g1, %%g2, %%g3}, [%%b];\n"
                "st.shared.f32 [%%wa], %%h0; st.shared.f32 [%%wa+256], %%h1;"
                " st.shared.f32 [%%wa+512], %%h2; st.shared.f32 [%%wa+768], %%h3;\n"
                "st.shared.v4.f32 [%%wb], {%%g0, %%g1, %%g2, %%g3};\nbar.sync 0;\n");
    for (int k = 0; k < 16; k++) {
        text_printf(t, "ld.shared.v4.f32 {%%f0, %%f1, %%f2, %%f3}, [%%sa+%d];\n"
                    "ld.shared.v4.f32 {%%g0, %%g1, %%g2, %%g3}, [%%sb+%d];\n", 256 * k, 256 * k);
        for (int s = 0; s < 16; s++)
            text_printf(t, "fma.rn.f32 %%s%d, %%f%d, %%g%d, %%s%d;\n", s, s / 4, s % 4, s);
    }
    text_printf(t, "bar.sync 0;\nadd.u64 %%a, %%a, 64; add.u64 %%b, %%b, %d; add.u32 %%k, %%k, 16;\n"
                "setp.lt.u32 %%p, %%k, %d; @%%p bra LOOP;\n"
                "mov.u32 %%i, %%ctaid.y; shl.b32 %%i, %%i, 6; mad.lo.u32 %%i, %%y, 4, %%i;"
                " mul.lo.u32 %%i, %%i, %d; mov.u32 %%k, %%ctaid.x; shl.b32 %%k, %%k, 6;"
                " add.u32 %%i, %%i, %%k; mad.lo.u32 %%i, %%x, 4, %%i; mul.wide.u32 %%o, %%i, 4;"
                " add.u64 %%c, %%c, %%o;\n", 16 * N * 4, N, N);
    for (int r = 0; r < 4; r++)
        text_printf(t, "st.global.v4.f32 [%%c+%d], {%%s%d, %%s%d, %%s%d, %%s%d};\n", r * N * 4,
                    4 * r, 4 * r + 1, 4 * r + 2, 4 * r + 3);
    text_add(t, "ret;\n}\n");
}

// All lanes get the sum or the largest of %v: in the warp, then of the 8 warps through shared memory.
static void reduce_text(Text *t, const char *op, int at) {
    for (int step = 16; step; step /= 2)
        text_printf(t, "shfl.sync.bfly.b32 %%w, %%v, %d, 31, -1; %s %%v, %%v, %%w;\n", step, op);
    text_printf(t, "setp.eq.u32 %%p, %%l, 0; @%%p st.shared.f32 [%%s+%d], %%v; bar.sync 0;\n"
                "ld.shared.f32 %%v, [part+%d];\n", at, at);
    for (int k = 1; k < 8; k++)
        text_printf(t, "ld.shared.f32 %%w, [part+%d]; %s %%v, %%v, %%w;\n", at + 4 * k, op);
}

// A block of 256 threads per row, 16 numbers each.
static void softmax_text(Text *t) {
    text_printf(t, ".version 8.0\n.target sm_80\n.address_size 64\n"
                ".visible .entry softmax(.param .u64 a, .param .u64 b) {\n"
                ".reg .b32 %%t, %%l, %%s, %%i; .reg .b64 %%a, %%b, %%o; .reg .pred %%p;"
                " .reg .f32 %%f<16>, %%v, %%w;\n.shared .align 16 .b8 part[64];\n"
                "ld.param.u64 %%a, [a]; ld.param.u64 %%b, [b]; mov.u32 %%t, %%tid.x;"
                " mov.u32 %%l, %%laneid; shr.u32 %%i, %%t, 5; mov.u32 %%s, part;"
                " mad.lo.u32 %%s, %%i, 4, %%s; mov.u32 %%i, %%ctaid.x; mul.lo.u32 %%i, %%i, %d;"
                " mad.lo.u32 %%i, %%t, 4, %%i; mul.wide.u32 %%o, %%i, 4; add.u64 %%a, %%a, %%o;"
                " add.u64 %%b, %%b, %%o;\n", COLUMNS);
    for (int k = 0; k < 4; k++)
        text_printf(t, "ld.global.v4.f32 {%%f%d, %%f%d, %%f%d, %%f%d}, [%%a+%d];\n", 4 * k, 4 * k + 1,
                    4 * k + 2, 4 * k + 3, 4096 * k);
    text_add(t, "mov.f32 %v, %f0;\n");
    for (int k = 1; k < 16; k++) text_printf(t, "max.f32 %%v, %%v, %%f%d;\n", k);
    reduce_text(t, "max.f32", 0);
    for (int k = 0; k < 16; k++)
        text_printf(t, "sub.f32 %%f%d, %%f%d, %%v; mul.f32 %%f%d, %%f%d, 0f3FB8AA3B;"
                    " ex2.approx.f32 %%f%d, %%f%d;\n", k, k, k, k, k, k);
    text_add(t, "mov.f32 %v, %f0;\n");
    for (int k = 1; k < 16; k++) text_printf(t, "add.f32 %%v, %%v, %%f%d;\n", k);
    reduce_text(t, "add.f32", 32);
    text_add(t, "rcp.approx.f32 %v, %v;\n");
    for (int k = 0; k < 16; k++) text_printf(t, "mul.f32 %%f%d, %%f%d, %%v;\n", k, k);
    for (int k = 0; k < 4; k++)
        text_printf(t, "st.global.v4.f32 [%%b+%d], {%%f%d, %%f%d, %%f%d, %%f%d};\n", 4096 * k, 4 * k,
                    4 * k + 1, 4 * k + 2, 4 * k + 3);
    text_add(t, "ret;\n}\n");
}

// Of this process, which runs one thread: others may use the machine too.
static double cpu_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void run(Gpu *gpu, const char *name, const VgLaunch *launch, const char *mix) {
    double best = 0;
    for (int k = 0; k < RUNS; k++) {
        double start = cpu_seconds();
        if (vg_run(gpu->device, launch)) fail_msg("%s", gpu_report(gpu));
        double speed = (double)vg_run_stats(gpu->device)->thread_instrs /
                       (cpu_seconds() - start) * 1e-9;
        best = speed > best ? speed : best;
    }
    print_message("%s: %.2f G thread-instructions/s (%s)\n", name, best, mix);
}

static void gemm(void **state) {
    (void)state;
    Gpu gpu = gpu_open("sm_80", 1);
    Text text = { 0 };
    float *a = malloc(N * N * 4), *b = malloc(N * N * 4), *c = malloc(N * N * 4);
    for (int i = 0; i < N * N; i++) a[i] = (float)(i * 7 % 17 - 8), b[i] = (float)(i * 5 % 13 - 6);
    uint64_t params[3] = { gpu_put(&gpu, a, N * N * 4), gpu_put(&gpu, b, N * N * 4),
                           gpu_alloc(&gpu, N * N * 4) };
    gemm_text(&text);
    gpu_load(&gpu, text_cstr(&text));
    VgLaunch launch = { .kernel = vg_module_kernel(gpu.module, "gemm"), .params = params,
                        .grid = { N / 64, N / 64, 1 }, .block = { 256, 1, 1 } };
    run(&gpu, "tiled fp32 GEMM", &launch,
        "per 16 fma: 2 ld.shared.v4; per 256 fma: 2 ld.global.v4, 5 st.shared, 2 bar.sync, 5 others");
    gpu_get(&gpu, params[2], c, N * N * 4);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            float sum = 0;
            for (int k = 0; k < N; k++) sum += a[i * N + k] * b[k * N + j];
            if (c[i * N + j] != sum) fail_msg("%d, %d: %g, expected %g", i, j, c[i * N + j], sum);
        }
    free(a), free(b), free(c);
    text_finish(&text);
    gpu_close(&gpu);
}

static void softmax(void **state) {
    (void)state;
    Gpu gpu = gpu_open("sm_80", 1);
    Text text = { 0 };
    size_t bytes = (size_t)ROWS * COLUMNS * 4;
    float *x = malloc(bytes), *y = malloc(bytes);
    for (int i = 0; i < ROWS * COLUMNS; i++) x[i] = (float)((int64_t)i * 7919 % 1009) * 0.01f;
    uint64_t params[2] = { gpu_put(&gpu, x, bytes), gpu_alloc(&gpu, bytes) };
    softmax_text(&text);
    gpu_load(&gpu, text_cstr(&text));
    VgLaunch launch = { .kernel = vg_module_kernel(gpu.module, "softmax"), .params = params,
                        .grid = { ROWS, 1, 1 }, .block = { 256, 1, 1 } };
    run(&gpu, "softmax", &launch,
        "per 16 numbers: 8 global v4, 16 ex2, 103 other floats, 10 shfl, 18 shared, 2 bar.sync, "
        "about 20 others");
    gpu_get(&gpu, params[1], y, bytes);
    for (int r = 0; r < ROWS; r += 37) {
        double sum = 0, most = -1;
        const float *row = x + (size_t)r * COLUMNS;
        for (int i = 0; i < COLUMNS; i++) most = fmax(most, row[i]);
        for (int i = 0; i < COLUMNS; i++) sum += exp(row[i] - most);
        for (int i = 0; i < COLUMNS; i++) {
            double want = exp(row[i] - most) / sum, got = y[(size_t)r * COLUMNS + i];
            if (fabs(got - want) > 2e-6 * want) fail_msg("%d, %d: %g, expected %g", r, i, got, want);
        }
    }
    free(x), free(y);
    text_finish(&text);
    gpu_close(&gpu);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(gemm), cmocka_unit_test(softmax) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
