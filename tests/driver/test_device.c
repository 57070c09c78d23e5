// SPDX-License-Identifier: Apache-2.0
// --device from the command line to the record: the small model on the virtual GPU against the CPU,
// and kernels for other people's programs. Parts that need NVRTC or the virtual GPU's library say
// so.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/driver/small.h"

#define DEVICE "vgpu:sm_80"

// What is missing for a GPU's code at all, or for running it.
static bool can(const Small *small, bool run) {
    int result = run ? small_train(small, path_in(small->folder, "probe"), "1",
                                   (char *[]){ "--device", DEVICE, NULL })
                     : COMMAND(small->moec, "kernels", small->spec, "--arch", "sm_80", "-o",
                               path_in(small->folder, "probe"));
    bool missing = result == 2 && strstr(command_errors(), "was not found; looked for");
    if (missing) print_message("skipped: %s", command_errors());
    else expect_exit(0, result);
    return !missing;
}

static double loss_of(const char *run, int step) {
    size_t n;
    const char *line = read_whole(path_in(run, "metrics.jsonl"), &n);
    for (; step > 1; step--) line = strchr(line, '\n') + 1;
    json_t *object = json_loadb(line, strcspn(line, "\n"), 0, NULL);
    double loss = json_real_value(json_object_get(object, "train/CE loss"));
    json_decref(object);
    return loss;
}

static void expect_recorded(const char *run, const char *path, const char *value) {
    json_t *record = json_load_file(path_in(run, "run.json"), 0, NULL);
    const char *found =
        json_string_value(json_object_get(json_object_get(record, "options"), path));
    assert_string_equal(found, value);
    json_decref(record);
}

// The same losses as a CPU's, and the same bits kernel by kernel, as a graph, and after a resume.
static void trains(void **state) {
    (void)state;
    Small small = small_make();
    if (!can(&small, true)) skip();
    char *cpu = path_in(small.folder, "cpu"), *gpu = path_in(small.folder, "gpu"),
         *plain = path_in(small.folder, "plain"), *half = path_in(small.folder, "half");
    expect_exit(0, small_train(&small, cpu, "6", NULL));
    expect_exit(0, small_train(&small, gpu, "6", (char *[]){ "--device", DEVICE, NULL }));
    expect_exit(0, small_train(&small, plain, "6",
                               (char *[]){ "--device", DEVICE, "--graph=off", NULL }));
    // A resume goes on where the schedule of the longer run is.
    expect_exit(0, small_train(&small, half, "3",
                               (char *[]){ "--device", DEVICE, "--schedule", "constant", NULL }));
    expect_exit(0, COMMAND(small.moec, "resume", half, "--steps", "6"));
    char *whole = path_in(small.folder, "whole");
    expect_exit(0, small_train(&small, whole, "6",
                               (char *[]){ "--device", DEVICE, "--schedule", "constant", NULL }));
    for (int step = 1; step <= 6; step++) {
        double a = loss_of(cpu, step), b = loss_of(gpu, step);
        assert_true(a > 0 && fabs(a - b) <= 1e-4 * a);
    }
    assert_true(loss_of(gpu, 6) < loss_of(gpu, 1));
    same_state(gpu, plain, 6);
    same_history(gpu, plain);
    same_state(whole, half, 6);
    expect_recorded(gpu, "train.device", DEVICE);
    expect_recorded(plain, "train.graph", "off");
    expect_recorded(cpu, "train.device", "cpu");

    // Both use the newest checkpoint's weights; the evaluation is the one that training printed.
    size_t n;
    json_t *line =
        json_loads(read_whole(path_in(gpu, "eval.jsonl"), &n), JSON_DISABLE_EOF_CHECK, NULL);
    char bits[32];
    snprintf(bits, sizeof bits, "%.4f\n",
             json_real_value(json_object_get(line, "eval/bits per token")));
    json_decref(line);
    expect_exit(0, COMMAND(small.moec, "eval", gpu, "--quiet"));
    assert_string_equal(command_output(), bits);
    expect_exit(0, COMMAND(small.moec, "sample", gpu, "--bytes", "3", "--prompt", "pack"));
    assert_int_equal(strncmp(command_output(), "pack", 4), 0);
    assert_int_equal(strlen(command_output()), 4 + 3 + 1);
    expect_exit(2, COMMAND(small.moec, "eval", gpu, "--device", "cpu"));
    expect_error("the plan is for cuda:sm_80 and cannot run on a CPU");
    expect_exit(2, COMMAND(small.moec, "resume", cpu, "--steps", "7", "--device", DEVICE));
    expect_error("the plan is for a CPU");
}

static void refusals(void **state) {
    (void)state;
    Small small = small_make();
    char *run = path_in(small.folder, "run");
    expect_exit(2, small_train(&small, run, "1", (char *[]){ "--device", "gpu", NULL }));
    expect_error("expected a device cpu, cuda, cuda:N or vgpu:ARCH, found 'gpu'");
    assert_false(file_exists(run));
    if (access("/dev/nvidiactl", F_OK) != 0) {
        expect_exit(2, small_train(&small, run, "1", (char *[]){ "--device", "cuda", NULL }));
        assert_false(file_exists(run));
    }
    expect_exit(2, COMMAND(small.moec, "kernels", small.spec, "-o", run));
    expect_error("--arch sm_90a");
    expect_exit(2, COMMAND(small.moec, "kernels", small.spec, "--arch", "sm_90a"));
    expect_error("-o FOLDER");
    static char *const wrong[] = { "sm_70", "90", "cuda:sm_90a", "sm_90b", "" };
    for (int i = 0; i < COUNT_OF(wrong); i++) {
        expect_exit(2, COMMAND(small.moec, "kernels", small.spec, "-o", run, "--arch", wrong[i]));
        expect_error("--arch: expected an architecture from sm_80 on");
    }
    expect_exit(2, COMMAND(small.moec, "plan", small.spec, "--target", "sm_90a"));
    expect_error("--target: expected cpu or cuda:ARCH");
    expect_exit(2, COMMAND(small.moec, "plan", small.spec, "--arch", "sm_90a"));
    expect_error("unknown option '--arch'");
}

// Without a device: the target is in the plan, and moec-run's part of the world knows where it
// runs.
static void plans(void **state) {
    (void)state;
    Small small = small_make();
    char *a = path_in(small.folder, "a"), *b = path_in(small.folder, "b");
    expect_exit(0, COMMAND(small.moec, "plan", small.spec, "--target", "cuda:sm_90a", "-o", a));
    assert_non_null(strstr(command_output(), "plan    small on cuda:sm_90a"));
    expect_exit(0, COMMAND(small.moec, "plan", small.spec, "--device", "vgpu:sm_90a", "-o", b));
    size_t n, m;
    char *x = read_whole(a, &n), *y = read_whole(b, &m);
    assert_int_equal(n, m);
    assert_memory_equal(x, y, n);
    expect_exit(0, COMMAND(small.moec, "plan", small.spec, "--device", "cpu"));
    assert_non_null(strstr(command_output(), "plan    small on cpu"));
}

// A program that launches through the header: its own declarations of the driver, no toolkit
// needed.
static const char cuda_h[] =
    "typedef int CUresult; enum { CUDA_SUCCESS = 0 };\n"
    "typedef struct M *CUmodule; typedef struct F *CUfunction; typedef struct S *CUstream;\n"
    "typedef unsigned long long CUdeviceptr;\n"
    "enum { CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8 };\n"
    "CUresult cuModuleGetFunction(CUfunction *, CUmodule, const char *);\n"
    "CUresult cuFuncSetAttribute(CUfunction, int, int);\n"
    "CUresult cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,\n"
    "                        unsigned, CUstream, void **, void **);\n";

static void exports_kernels(void **state) {
    (void)state;
    Small small = small_make();
    if (!can(&small, false)) skip();
    char *out = path_in(small.folder, "kernels"), *plan = path_in(small.folder, "plan");
    expect_exit(0, COMMAND(small.moec, "kernels", small.spec, "--arch", "sm_90a", "-o", out));
    size_t n;
    assert_string_equal(command_output(), read_whole(path_in(out, "report.txt"), &n));
    assert_non_null(strstr(command_output(), "\n0 spill;"));
    expect_exit(0, COMMAND(small.moec, "plan", small.spec, "--target", "cuda:sm_90a", "-o", plan));

    json_t *report = json_load_file(path_in(out, "report.json"), 0, NULL), *kernel;
    assert_string_equal(json_string_value(json_object_get(report, "arch")), "sm_90a");
    const json_t *kernels = json_object_get(report, "kernels");
    assert_true(json_array_size(kernels) > 20);
    const char *header = read_whole(path_in(out, "kernels.h"), &n);
    size_t i;
    json_array_foreach(kernels, i, kernel) {
        const char *entry = json_string_value(json_object_get(kernel, "entry"));
        char name[128], wanted[128];
        assert_in_range(json_integer_value(json_object_get(kernel, "registers")), 8, 255);
        assert_in_range(json_integer_value(json_object_get(kernel, "threads")), 32, 1024);
        const json_t *parameters = json_object_get(kernel, "parameters");
        size_t p;
        json_t *parameter;
        json_array_foreach(parameters, p, parameter) {
            assert_int_equal(json_integer_value(json_object_get(parameter, "offset")), 8 * p);
            assert_int_equal(json_integer_value(json_object_get(parameter, "bytes")), 8);
            assert_true(json_integer_value(json_object_get(parameter, "extent")) >= 4);
        }
        snprintf(name, sizeof name, "%s.ptx", entry);
        snprintf(wanted, sizeof wanted, ".entry %s(", entry);
        assert_non_null(strstr(read_whole(path_in(out, name), &n), wanted));
        snprintf(name, sizeof name, "%s.cubin", entry);
        assert_memory_equal(read_whole(path_in(out, name), &n), "\177ELF", 4);
        snprintf(name, sizeof name, "%s.cu", entry);
        assert_non_null(strstr(read_whole(path_in(out, name), &n), entry));
        snprintf(wanted, sizeof wanted, "CUresult launch_%s(CUfunction function", entry);
        assert_non_null(strstr(header, wanted));
    }
    // Every kernel of the plan, and each once: the plan's text has a line for it.
    size_t in_plan = 0;
    for (const char *at = read_whole(plan, &n); (at = strstr(at, "\nkernel ")); at++) in_plan++;
    assert_int_equal(in_plan, json_array_size(kernels));
    json_decref(report);
    write_file(path_in(out, "cuda.h"), cuda_h, sizeof cuda_h - 1);
    static const char program[] =
        "#include \"kernels.h\"\nint main(void) { return MOEC_N_KERNELS == 0; }\n";
    write_file(path_in(out, "main.c"), program, sizeof program - 1);
    char include[4096];
    snprintf(include, sizeof include, "-I%s", out);
    expect_exit(0,
                COMMAND("/usr/bin/cc", "-std=c11", "-Wall", "-Wextra", "-Werror",
                        "-Wno-unused-function", "-fsyntax-only", include, path_in(out, "main.c")));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refusals),
        cmocka_unit_test(plans),
        cmocka_unit_test(exports_kernels),
        cmocka_unit_test(trains),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
