// SPDX-License-Identifier: Apache-2.0
// From CUDA C++ to code: what NVRTC makes of the sample plan, what the cubin reader finds in it,
// what the cache keeps, what is said when it fails. Needs the toolkit, but no GPU.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "runtime/jit/jit.h"
#include "tests/exec/cuda.h"
#include "tests/exec/own_cache.h"

typedef struct Compiled {
    Plan *plan;
    Arena *arena;
    JitImage *images;
    int calls, total, cached;
} Compiled;

static void progress(void *user, int done, int total, int cached) {
    Compiled *c = user;
    assert_true(done <= total);
    c->calls++;
    c->total = total;
    c->cached = cached;
}

static Status compile(Plan *plan, const char *arch, int code, Compiled *out) {
    *out = (Compiled){ .plan = plan, .arena = arena_create() };
    return jit_cuda(plan, arch, code, progress, out, NULL, out->arena, &out->images);
}

static void must(Status status) {
    if (status != OK) fail_msg("%s", status_message());
}

static const JitImage *image_of(const Compiled *c, const char *entry, const PlanKernel **kernel) {
    for (uint32_t i = 0; i < c->plan->n_kernels; i++) {
        *kernel = &c->plan->kernels[i];
        if (!strcmp((*kernel)->entry, entry)) return &c->images[(*kernel)->source];
    }
    fail_msg("no kernel %s", entry);
    return NULL;
}

static Plan *plan_for_gpu(void) {
    Plan *plan = sample_plan(200, 1);
    sample_cuda(plan, "cuda:sm_80");
    sample_cuda_body(plan, "keep",
                     "    __shared__ float fixed[40];\n    extern __shared__ float free_size[];\n"
                     "    fixed[threadIdx.x] = total[threadIdx.x & 3];\n"
                     "    free_size[threadIdx.x] = 1;\n    __syncthreads();\n"
                     "    if (threadIdx.x < 4)\n"
                     "        state[threadIdx.x] = fixed[threadIdx.x ^ 3] + free_size[31 - threadIdx.x];",
                     32, 128);
    return plan;
}

// Every architecture we name: the layout that the assembler laid out is that of the launch table.
static void test_cubins(void **state) {
    (void)state;
    if (!has_nvrtc()) skip();
    static const char *const archs[] = {
        "sm_80", "sm_89", "sm_90a", "sm_100a", "sm_103a", "sm_120a"
    };
    for (int a = 0; a < COUNT_OF(archs); a++) {
        Compiled c;
        const PlanKernel *kernel;
        must(compile(plan_for_gpu(), archs[a], JIT_PTX | JIT_CUBIN, &c));
        assert_int_equal(c.total, c.plan->n_kernels);
        assert_int_equal(c.cached, 0);
        assert_int_equal(c.calls, 1 + (int)c.plan->n_kernels);
        for (uint32_t i = 0; i < c.plan->n_kernels; i++) {
            const JitImage *image = image_of(&c, c.plan->kernels[i].entry, &kernel);
            CubinKernel found;
            assert_non_null(strstr(image->ptx, kernel->entry));
            assert_int_equal(strlen(image->ptx), image->n_ptx);
            must(cubin_read(image->cubin, image->n_cubin, kernel->entry, &found));
            must(cubin_check(kernel, &found));
            assert_int_equal(found.param_bytes, 8 * kernel->n_args);
            assert_in_range(found.registers, 4, 128);
            cubin_read_log(image->log, kernel->entry, &found);
            assert_int_equal(found.spill_stores + found.spill_loads + found.frame, 0);
            assert_int_equal(found.shared, strcmp(kernel->entry, "keep") ? 0 : 160);
        }
        arena_destroy(c.arena);
        plan_destroy(c.plan);
    }
}

// Registers run out, and an array is indexed by what is not known: both are seen.
static void test_spills(void **state) {
    (void)state;
    if (!has_nvrtc()) skip();
    Plan *plan = plan_for_gpu();
    Text body = { 0 };
    text_add(&body, "    float x[120];\n    for (int i = 0; i < 120; i++) x[i] = total[i];\n"
                    "    for (int k = 0; k < 4; k++)\n"
                    "        for (int i = 0; i < 120; i++) x[(i * 7) % 120] += x[i] * x[k];\n"
                    "    float sum = 0;\n    for (int i = 0; i < 120; i++) sum = sum * 3 + x[i];\n"
                    "    state[threadIdx.x] = sum + x[(int)total[5] & 63];\n");
    sample_cuda_body(plan, "keep", body.at, 32, 0);
    text_finish(&body);
    Compiled c;
    const PlanKernel *kernel;
    CubinKernel found;
    must(compile(plan, "sm_90a", JIT_CUBIN, &c));
    const JitImage *image = image_of(&c, "keep", &kernel);
    assert_null(image->ptx);
    must(cubin_read(image->cubin, image->n_cubin, "keep", &found));
    assert_in_range(found.frame, 480, 2048); // x lies in local memory
    arena_destroy(c.arena);
    plan_destroy(plan);
    static const char log[] = "ptxas info    : 0 bytes gmem\n"
        "ptxas info    : Function properties for keep_2\n    8 bytes stack frame, 9 bytes spill stores, "
        "1 bytes spill loads\n"
        "ptxas info    : Function properties for keep\n    8 bytes stack frame, 16 bytes spill stores, "
        "24 bytes spill loads\n";
    cubin_read_log(log, "keep", &found);
    assert_int_equal(found.spill_stores, 16);
    assert_int_equal(found.spill_loads, 24);
}

// All of an image comes back from the cache; another architecture or kind of code is another entry.
static void test_cache(void **state) {
    (void)state;
    if (!has_nvrtc()) skip();
    Compiled first, second, other;
    const PlanKernel *kernel;
    must(compile(plan_for_gpu(), "sm_86", JIT_PTX | JIT_CUBIN, &first));
    assert_int_equal(first.cached, 0);
    must(compile(first.plan, "sm_86", JIT_PTX | JIT_CUBIN, &second));
    assert_int_equal(second.cached, first.plan->n_kernels);
    for (uint32_t i = 0; i < first.plan->n_kernels; i++) {
        const JitImage *a = image_of(&first, first.plan->kernels[i].entry, &kernel),
                       *b = image_of(&second, first.plan->kernels[i].entry, &kernel);
        assert_true(!a->cached && b->cached);
        assert_string_equal(a->ptx, b->ptx);
        assert_string_equal(a->log, b->log);
        assert_int_equal(a->n_cubin, b->n_cubin);
        assert_memory_equal(a->cubin, b->cubin, a->n_cubin);
        assert_true(a->ms == b->ms && a->ms > 0);
    }
    must(compile(first.plan, "sm_86", JIT_PTX, &other));
    assert_int_equal(other.cached, 0);
    image_of(&other, "keep", &kernel);
    assert_non_null(strstr(other.images[kernel->source].ptx, ".target sm_86"));
    arena_destroy(other.arena);
    must(compile(first.plan, "sm_87", JIT_PTX, &other));
    assert_int_equal(other.cached, 0);
    arena_destroy(other.arena);
    sample_cuda_body(first.plan, "keep", "    state[threadIdx.x & 3] = total[0];", 32, 0);
    must(compile(first.plan, "sm_86", JIT_PTX, &other));
    assert_int_equal(other.cached, first.plan->n_kernels - 1); // all but the one that changed
    arena_destroy(other.arena);
    arena_destroy(second.arena);
    arena_destroy(first.arena);
    plan_destroy(first.plan);
}

static void expect(Status status, Status wanted, const char *part) {
    assert_int_equal(status, wanted);
    if (!strstr(status_message(), part)) fail_msg("no \"%s\" in: %s", part, status_message());
}

// The message names the line of the template; other kernels of the plan do not hide it.
static void test_refusal(void **state) {
    (void)state;
    if (!has_nvrtc()) skip();
    Compiled c;
    Plan *plan = plan_for_gpu();
    sample_cuda_body(plan, "count", "#line 41 \"templates/cuda/count.cu\"\n    float good = 0;\n"
                                    "    int bad = no_such_name;", 32, 0);
    Status status = compile(plan, "sm_80", JIT_PTX, &c);
    expect(status, ERR_COMPILE, "templates/cuda/count.cu(42): error: identifier \"no_such_name\"");
    expect(status, ERR_COMPILE, "refused count.cu with --gpu-architecture=compute_80");
    arena_destroy(c.arena);
    plan_destroy(plan);

    plan = plan_for_gpu();
    status = compile(plan, "sm_4711", JIT_PTX, &c);
    expect(status, ERR_COMPILE, "does not take --gpu-architecture=compute_4711");
    arena_destroy(c.arena);
    plan_destroy(plan);
}

static void expect_params(const char *parameters, const char *part) {
    Compiled c;
    Plan *plan = plan_for_gpu();
    PlanKernel *kernel = NULL;
    for (uint32_t i = 0; i < plan->n_kernels; i++)
        if (!strcmp(plan->kernels[i].entry, "keep")) kernel = &plan->kernels[i];
    PlanSource *source = &plan->sources[kernel->source];
    source->text =
        arena_printf(plan->arena, "extern \"C\" __global__ void keep(%s) {}\n", parameters);
    source->bytes = (int64_t)strlen(source->text);
    source->hash = hash_bytes(source->text, (size_t)source->bytes);
    expect(compile(plan, "sm_80", JIT_CUBIN, &c), ERR_COMPILE, part);
    arena_destroy(c.arena);
    plan_destroy(plan);
}

// A kernel whose parameters are not what launches pass does not get as far as a launch.
static void test_layout(void **state) {
    (void)state;
    if (!has_nvrtc()) skip();
    expect_params("const float *total", "expected 2 parameters as in the launch table, found 1");
    expect_params("const float *total, float *state, float *more", "found 3");
    expect_params("int total, float *state",
                  "expected parameter 0, total, to be a pointer at byte 0, found 4 bytes at 0");
    expect_params("const float *total, int state", "expected parameter 1, state");
}

// No prefix of a cubin, and no byte changed in its tables, makes the reader leave the file.
static void test_hostile_cubins(void **state) {
    (void)state;
    if (!has_nvrtc()) skip();
    Compiled c;
    const PlanKernel *kernel;
    CubinKernel found, whole;
    must(compile(plan_for_gpu(), "sm_80", JIT_CUBIN, &c));
    const JitImage *image = image_of(&c, "keep", &kernel);
    must(cubin_read(image->cubin, image->n_cubin, "keep", &whole));
    expect(cubin_read(image->cubin, image->n_cubin, "kee", &found), ERR_COMPILE, "found none");
    int refused = 0;
    for (size_t n = 0; n < image->n_cubin; n += n < 256 ? 1 : 37) {
        char *part = malloc(n + 1); // its end is the sanitizer's to watch
        memcpy(part, image->cubin, n);
        refused += cubin_read(part, n, "keep", &found) != OK;
        free(part);
    }
    assert_true(refused > 0);
    char *copy = malloc(image->n_cubin);
    for (size_t i = 0; i < image->n_cubin; i++) {
        memcpy(copy, image->cubin, image->n_cubin);
        copy[i] = (char)~copy[i];
        if (cubin_read(copy, image->n_cubin, "keep", &found) == OK)
            assert_true(found.n_params <= CUBIN_MOST_PARAMS);
    }
    free(copy);
    arena_destroy(c.arena);
    plan_destroy(c.plan);
}

// In a process of its own, since the library is looked for once.
static void test_missing(void **state) {
    (void)state;
    fflush(NULL);
    pid_t pid = fork();
    if (!pid) {
        int major, minor;
        setenv("MOEC_NVRTC", "/nowhere/libnvrtc.so", 1);
        Status status = jit_cuda_compiler(&major, &minor),
               again = jit_cuda_compiler(&major, &minor);
        const char *text = status_message();
        bool good = status == ERR_INPUT && again == ERR_INPUT &&
                    strstr(text, "looked for /nowhere/libnvrtc.so") && strstr(text, "MOEC_NVRTC");
        _exit(good ? 0 : 1);
    }
    int result;
    assert_int_equal(waitpid(pid, &result, 0), pid);
    assert_int_equal(result, 0);
}

static int compile_alone(void) {
    Compiled c;
    Status status = compile(plan_for_gpu(), "sm_87", JIT_PTX | JIT_CUBIN, &c); // which no other test has cached
    if (status != OK) fprintf(stderr, "%s\n", status_message());
    plan_destroy(c.plan);
    arena_destroy(c.arena);
    return status == OK ? 0 : 1;
}

// Where a driver is found NVRTC may not call it: workers are forked, perhaps from a process with a GPU open. The
// one that stands here lacks what NVRTC would ask for, of which it would die.
static void test_driver(void **state) {
    (void)state;
    static const char driver[] = MOEC_BINARY_DIR "/libmoec-vgpu.so";
    if (!has_nvrtc() || access(driver, F_OK) != 0) skip();
    char folder[] = "/tmp/moec-driver-XXXXXX", link[64];
    assert_non_null(mkdtemp(folder));
    snprintf(link, sizeof link, "%s/libcuda.so.1", folder);
    assert_int_equal(symlink(driver, link), 0);
    fflush(NULL);
    pid_t pid = fork();
    if (!pid) {
        setenv("LD_LIBRARY_PATH", folder, 1);
        execl("/proc/self/exe", "test_exec_nvrtc", "compile", NULL);
        _exit(127);
    }
    int result;
    assert_int_equal(waitpid(pid, &result, 0), pid);
    unlink(link);
    rmdir(folder);
    assert_int_equal(result, 0);
}

int main(int argc, char **argv) {
    (void)argv;
    if (argc > 1) return compile_alone();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_missing), // first: before this process looks for it
        cmocka_unit_test(test_driver),
        cmocka_unit_test(test_cubins),  cmocka_unit_test(test_spills),
        cmocka_unit_test(test_cache),   cmocka_unit_test(test_refusal),
        cmocka_unit_test(test_layout),  cmocka_unit_test(test_hostile_cubins),
    };
    return cmocka_run_group_tests(tests, own_cache_make, own_cache_remove);
}
