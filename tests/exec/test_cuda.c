// SPDX-License-Identifier: Apache-2.0
// The executor on a GPU, against the CPU: the sample plan with the same arithmetic in CUDA C++, on
// the virtual GPU, or on MOEC_TEST_DEVICE. Needs NVRTC and the virtual GPU's library.
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "runtime/device/device.h"
#include "runtime/exec/exec.h"
#include "tests/exec/cuda.h"
#include "tests/exec/own_cache.h"

static int set_up(void **state) {
    setenv("MOEC_VGPU_LIBRARY", MOEC_BINARY_DIR "/libmoec-vgpu.so", 0);
    return own_cache_make(state);
}

static const char *device(void) {
    const char *asked = getenv("MOEC_TEST_DEVICE");
    return asked && *asked ? asked : "vgpu:sm_80";
}

static Status try_create(const Plan *plan, ExecOptions options, Exec **out) {
    if (!options.threads) options.threads = 2;
    return exec_create(plan, &options, out);
}

static Exec *create(const Plan *plan, ExecOptions options) {
    Exec *exec;
    if (try_create(plan, options, &exec) != OK) fail_msg("%s", status_message());
    return exec;
}

// Whether there is something to run on; says what is missing if not.
static bool have_device(void) {
    if (!has_nvrtc()) return false;
    Plan *plan = sample_plan(8, 1);
    sample_cuda(plan, "cuda:sm_80");
    Exec *exec;
    Status status = try_create(plan, (ExecOptions){ .device = device() }, &exec);
    bool missing = status == ERR_INPUT; // a library or a GPU that is not there
    if (status != OK && !missing) fail_msg("%s", status_message());
    if (missing) print_message("skipped: %s\n", status_message());
    if (status == OK) exec_destroy(exec);
    plan_destroy(plan);
    return !missing;
}

static void must(Status status) {
    if (status != OK) fail_msg("%s", status_message());
}

static int32_t token(int microbatch, int64_t t) {
    return (int32_t)(hash_mix(3, (uint64_t)microbatch, (uint64_t)t) % 7) - 1; // -1 .. 5
}

typedef struct Fills {
    int calls, fail_at, salt;
} Fills;

static Status fill(void *user, Exec *exec, const PlanProgram *program, int microbatch) {
    Fills *fills = user;
    if (fills->calls++ == fills->fail_at) return status_fail(ERR_INPUT, "no more data");
    int32_t *tokens = exec_input(exec, program, INPUT_tokens, 0);
    for (int64_t t = 0; t < program->buffers[0].dims[0]; t++)
        tokens[t] = token(microbatch + fills->salt, t);
    return OK;
}

enum { TOKENS = 200, MICROBATCHES = 3 };

// Some kernels use more of the device than the sample's one thread: all lanes, shared memory, a
// repeat.
static Plan *gpu_plan(void) {
    Plan *plan = sample_plan(TOKENS, MICROBATCHES);
    sample_pack(plan);
    sample_halves(plan);
    sample_cuda(plan, "cuda:sm_80");
    sample_cuda_body(plan, "square",
                     "    for (int64_t i = tile_begin * 64 + threadIdx.x; i < tile_end * 64; "
                     "i += blockDim.x) s[i] = g[i] * g[i];", 64, 0);
    sample_cuda_body(plan, "keep",
                     "    extern __shared__ float kept[];\n    kept[threadIdx.x] = total[threadIdx.x & 3];\n"
                     "    __syncthreads();\n    if (threadIdx.x < 4) state[threadIdx.x] = kept[threadIdx.x + 60];",
                     64, 256);
    return plan;
}

static Plan *cpu_plan(void) {
    Plan *plan = sample_plan(TOKENS, MICROBATCHES);
    sample_pack(plan);
    sample_halves(plan);
    return plan;
}

static void same_region(Exec *a, Exec *b, const Plan *plan, Region region) {
    must(exec_download(a, region));
    must(exec_download(b, region));
    assert_memory_equal(exec_region(a, region), exec_region(b, region),
                        (size_t)plan->region_bytes[region]);
}

// Steps and evaluations on a CPU and on the device: weights, packed weights, states, metrics,
// outputs and scalars are the same bits, kernel by kernel or as a graph, and in any order of
// programs.
static void check_steps(bool graph, bool poison) {
    Plan *plan = gpu_plan(), *reference = cpu_plan();
    Exec *gpu = create(plan, (ExecOptions){ .device = device(), .graph = graph, .poison = poison }),
         *cpu = create(reference, (ExecOptions){ .poison = poison });
    Exec *both[] = { gpu, cpu };
    const Plan *plans[] = { plan, reference };
    for (int e = 0; e < 2; e++) must(exec_init(both[e], 7));
    same_region(gpu, cpu, reference, REGION_weights);
    same_region(gpu, cpu, reference, REGION_packed);
    same_region(gpu, cpu, reference, REGION_moment1);
    for (int round = 0; round < 4; round++) {
        float losses[2][2];
        for (int e = 0; e < 2; e++) {
            const PlanProgram *step = plan_program(plans[e], "step"),
                              *eval = plan_program(plans[e], "eval");
            Fills fills = { .fail_at = -1, .salt = round };
            exec_scalars(both[e])[SCALAR_lr] = 0.01f / (float)(1 + round); // new ones in every step
            must(exec_run(both[e], step, fill, &fills));
            assert_int_equal(fills.calls, MICROBATCHES);
            losses[e][0] = exec_metric(both[e], step, 0, NULL)[0];
            must(exec_run(both[e], eval, fill, &fills));
            losses[e][1] = exec_metric(both[e], eval, 0, NULL)[0];
            assert_true(exec_scalars(both[e])[SCALAR_lr] == 0.01f / (float)(1 + round));
        }
        assert_memory_equal(losses[0], losses[1], sizeof losses[0]);
        assert_true(isfinite(losses[0][0]) && losses[0][0] != losses[0][1]);
        uint32_t y = plan_program(plan, "eval")->outputs[0].buffer;
        assert_memory_equal(exec_buffer(gpu, plan_program(plan, "eval"), y),
                            exec_buffer(cpu, plan_program(reference, "eval"), y), TOKENS * 4);
        same_region(gpu, cpu, reference, REGION_weights);
        same_region(gpu, cpu, reference, REGION_packed);
    }
    const PlanProgram *halves = plan_program(plan, "halves");
    must(exec_run(gpu, halves, NULL, NULL));
    must(exec_run(cpu, plan_program(reference, "halves"), NULL, NULL));
    assert_memory_equal(
        exec_buffer(gpu, halves, halves->outputs[0].buffer),
        exec_buffer(cpu, plan_program(reference, "halves"), halves->outputs[0].buffer), TOKENS * 4);
    int nodes = exec_graph_nodes(gpu, plan_program(plan, "step"));
    // A copy of scalars in and out, of a microbatch's inputs, of loss and y; metrics zeroed;
    // launches. Poison comes before every row.
    int launches = 2 + MICROBATCHES * 5 + 4;
    int wanted = 2 + MICROBATCHES + 2 + 1 + launches + (poison ? 2 + 2 * MICROBATCHES : 0);
    assert_int_equal(nodes, graph ? wanted : 0);
    exec_destroy(gpu);
    exec_destroy(cpu);
    plan_destroy(plan);
    plan_destroy(reference);
}

static void test_launches(void **state) {
    (void)state;
    if (!have_device()) skip();
    check_steps(false, false);
}

static void test_graph(void **state) {
    (void)state;
    if (!have_device()) skip();
    check_steps(true, false);
}

static void test_poison(void **state) {
    (void)state;
    if (!have_device()) skip();
    check_steps(false, true);
    check_steps(true, true);
}

// What the host writes gets there by exec_upload, and only then.
static void test_transfers(void **state) {
    (void)state;
    if (!have_device()) skip();
    Plan *plan = gpu_plan();
    Exec *exec = create(plan, (ExecOptions){ .device = device(), .graph = true });
    must(exec_init(exec, 3));
    float *weights = exec_region(exec, REGION_weights), *packed = exec_region(exec, REGION_packed);
    float first = weights[0];
    weights[0] = 99;
    must(exec_pack(exec));
    must(exec_download(exec, REGION_packed));
    assert_true(packed[0] == first && packed[1] == first);
    must(exec_upload(exec, REGION_weights));
    must(exec_pack(exec));
    must(exec_download(exec, REGION_packed));
    assert_true(packed[0] == 99 && packed[1] == 99);
    weights[0] = 0;
    must(exec_download(exec, REGION_weights));
    assert_true(weights[0] == 99);
    assert_int_equal(exec_touched(exec, REGION_weights), plan->region_bytes[REGION_weights]);
    exec_destroy(exec);
    plan_destroy(plan);
}

// Without a fill every microbatch has the inputs that were written; a fill that fails launches
// nothing.
static void test_inputs(void **state) {
    (void)state;
    if (!have_device()) skip();
    Plan *plan = gpu_plan(), *reference = cpu_plan();
    Exec *gpu = create(plan, (ExecOptions){ .device = device(), .graph = true }),
         *cpu = create(reference, (ExecOptions){ 0 });
    Exec *both[] = { gpu, cpu };
    float losses[2];
    for (int e = 0; e < 2; e++) {
        const PlanProgram *step = plan_program(e ? reference : plan, "step");
        must(exec_init(both[e], 9));
        int32_t *tokens = exec_input(both[e], step, INPUT_tokens, 0);
        assert_null(exec_input(both[e], step, INPUT_labels, 0));
        for (int t = 0; t < TOKENS; t++) tokens[t] = token(5, t);
        exec_scalars(both[e])[SCALAR_lr] = 0.5f;
        must(exec_run(both[e], step, NULL, NULL));
        losses[e] = exec_metric(both[e], step, 0, NULL)[0];
    }
    assert_true(losses[0] == losses[1]);
    same_region(gpu, cpu, reference, REGION_weights);
    Fills fills = { .fail_at = 1 };
    const PlanProgram *step = plan_program(plan, "step");
    assert_int_equal(exec_run(gpu, step, fill, &fills), ERR_INPUT);
    assert_string_equal(status_message(), "no more data");
    same_region(gpu, cpu, reference, REGION_weights); // as they were
    exec_destroy(gpu);
    exec_destroy(cpu);
    plan_destroy(plan);
    plan_destroy(reference);
}

// Times of launches add up to something for each instruction, over more launches than are timed at
// once.
static void test_profile(void **state) {
    (void)state;
    if (!have_device()) skip();
    Plan *plan = sample_plan(64, 60);
    sample_cuda(plan, "cuda:sm_80");
    const PlanProgram *step = plan_program(plan, "step");
    Exec *exec = create(plan, (ExecOptions){ .device = device(), .graph = true, .profile = true });
    must(exec_init(exec, 1));
    double *seconds = exec_profile(exec, step);
    Fills fills = { .fail_at = -1 };
    must(exec_run(exec, step, fill, &fills));
    for (uint32_t i = 0; i < step->n_instrs; i++) assert_true(seconds[i] > 0);
    double once = seconds[step->n_instrs - 1];
    must(exec_run(exec, step, fill, &fills));
    assert_true(seconds[step->n_instrs - 1] > once);
    assert_int_equal(exec_graph_nodes(exec, step), 0);
    exec_destroy(exec);
    plan_destroy(plan);
}

// A run that is timed goes by launches though it would be a graph, and its times are the device's.
static void test_timeline(void **state) {
    (void)state;
    if (!have_device()) skip();
    Plan *plan = gpu_plan();
    const PlanProgram *step = plan_program(plan, "step");
    Exec *exec = create(plan, (ExecOptions){ .device = device(), .graph = true });
    must(exec_init(exec, 1));
    Fills fills = { .fail_at = -1 };
    must(exec_trace(exec, step, 2));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(exec_graph_nodes(exec, step), 0);
        must(exec_run(exec, step, fill, &fills));
    }
    assert_true(exec_graph_nodes(exec, step) > 0);
    const PlanTimeline *timeline = exec_timeline(exec);
    assert_int_equal(timeline->n_runs, 2);
    for (int i = 0; i < 2; i++) {
        const PlanRun *run = &timeline->runs[i];
        double at = run->begin;
        assert_int_equal(run->n, plan_timeline_spans(step) - 1 - 2 * step->n_rows + MICROBATCHES);
        for (int64_t k = run->first; k < run->first + run->n; k++) {
            assert_true(timeline->spans[k].begin == at && timeline->spans[k].end >= at);
            at = timeline->spans[k].end;
        }
        assert_true(at > run->begin && run->end > run->begin);
    }
    exec_destroy(exec);
    plan_destroy(plan);
}

// What is printed to stderr from here on, until it is taken back.
static FILE *caught;
static int stderr_of_test;

static void catch_stderr(void) {
    fflush(stderr);
    caught = tmpfile();
    stderr_of_test = dup(STDERR_FILENO);
    assert_true(caught && stderr_of_test >= 0 && dup2(fileno(caught), STDERR_FILENO) >= 0);
}

static void give_stderr_back(char *text, size_t room) {
    fflush(stderr);
    dup2(stderr_of_test, STDERR_FILENO);
    close(stderr_of_test);
    rewind(caught);
    text[fread(text, 1, room - 1, caught)] = 0;
    fclose(caught);
}

// A kernel that leaves its buffers is the device's failure, with what the virtual GPU has to say: in the
// message, and nowhere else.
static void test_fault(void **state) {
    (void)state;
    if (!have_device()) skip();
    for (int graph = 0; graph < 2; graph++) {
        Plan *plan = gpu_plan();
        sample_cuda_body(plan, "keep", "    state[threadIdx.x] = total[(int64_t)1 << 40];", 32, 0);
        Exec *exec = create(plan, (ExecOptions){ .device = device(), .graph = graph });
        must(exec_init(exec, 1));
        Fills fills = { .fail_at = -1 };
        char printed[512];
        catch_stderr();
        Status status = exec_run(exec, plan_program(plan, "step"), fill, &fills);
        give_stderr_back(printed, sizeof printed);
        assert_int_equal(status, ERR_DEVICE);
        assert_non_null(strstr(status_message(), "ILLEGAL_ADDRESS"));
        assert_string_equal(printed, "");
        if (!strncmp(device(), "vgpu", 4)) assert_non_null(strstr(status_message(), "keep"));
        exec_destroy(exec);
        plan_destroy(plan);
        if (strncmp(device(), "vgpu", 4)) return; // a real context is lost for the process
    }
}

typedef struct Rank {
    Comm *comm;
    char message[256];
    float y[4];
} Rank;

static Status run_stage(Rank *rank) {
    Plan *plan = sample_ranks(2, 1, rank->comm->rank);
    sample_cuda(plan, "cuda:sm_80");
    if (rank->comm->rank == 1)
        sample_cuda_body(plan, "real",
                         "    unsigned long long from, now;\n"
                         "    asm volatile(\"mov.u64 %0, %%globaltimer;\" : \"=l\"(from));\n"
                         "    do asm volatile(\"mov.u64 %0, %%globaltimer;\" : \"=l\"(now));\n"
                         "    while (now - from < 300000000ull);\n"
                         "    for (int i = threadIdx.x; i < 4; i += 32) x[i] = (float)tokens[i];", 32, 0);
    Exec *exec;
    const char *one = strcmp(device(), "cuda") ? device() : "cuda:0"; // for all ranks: there may be no second
    TRY(try_create(plan, (ExecOptions){ .device = one, .threads = 1, .comm = rank->comm }, &exec));
    const PlanProgram *eval = plan_program(plan, "eval");
    Fills fills = { .fail_at = -1 };
    Status status = exec_run(exec, eval, fill, &fills);
    if (status == OK) memcpy(rank->y, exec_buffer(exec, eval, 1), sizeof rank->y);
    exec_destroy(exec);
    plan_destroy(plan);
    return status;
}

static void *stage(void *user) {
    Rank *rank = user;
    if (run_stage(rank) != OK) snprintf(rank->message, sizeof rank->message, "%s", status_message());
    comm_close(rank->comm);
    return NULL;
}

// What a device is given may take longer than a rank may stand still: other ranks learn that it is at work.
static void test_slow(void **state) {
    (void)state;
    if (!have_device()) skip();
    Comm *comms[2];
    Rank ranks[2];
    pthread_t threads[2];
    comm_local(2, 1, comms);
    for (int i = 0; i < 2; i++) {
        ranks[i] = (Rank){ .comm = comms[i] };
        assert_int_equal(pthread_create(&threads[i], NULL, stage, &ranks[i]), 0);
    }
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++) {
        assert_string_equal(ranks[i].message, "");
        for (int k = 0; k < 4; k++) assert_true(ranks[i].y[k] == (float)((2 - i) * token(0, k)));
    }
}

static void expect(Status status, Status wanted, const char *part) {
    assert_int_equal(status, wanted);
    if (!strstr(status_message(), part)) fail_msg("no \"%s\" in: %s", part, status_message());
}

static void test_names(void **state) {
    (void)state;
    Arena *arena = arena_create();
    const char *target;
    must(exec_target("cpu", arena, &target));
    assert_string_equal(target, "cpu");
    must(exec_target("vgpu:sm_90a", arena, &target));
    assert_string_equal(target, "cuda:sm_90a");
    static const char *const wrong[] = { "", "gpu", "cuda:", "cuda:x", "cuda:1x", "cuda1", "cpu:0",
                                         "vgpu", "vgpu:", "vgpu:90", "vgpu:sm_", "vgpu:sm_90b", "CPU",
                                         "vgpu:sm_75" };
    for (int i = 0; i < COUNT_OF(wrong); i++)
        expect(exec_target(wrong[i], arena, &target), ERR_ARGUMENT, "expected a device cpu, cuda");
    arena_destroy(arena);
    assert_string_equal(exec_usual_device("cpu"), "cpu");
    assert_string_equal(exec_usual_device("cuda:sm_90a"), "cuda");
    must(exec_fits(NULL, "cpu"));
    must(exec_fits("vgpu:sm_90a", "cuda:sm_80"));
    expect(exec_fits("cpu", "cuda:sm_80"), ERR_ARGUMENT, "--device vgpu:sm_80 without a GPU");
    expect(exec_fits("vgpu:sm_80", "cpu"), ERR_ARGUMENT, "the plan is for a CPU");
    expect(exec_fits("tpu", "cpu"), ERR_ARGUMENT, "found 'tpu'");
    Exec *exec;
    Plan *plan = sample_plan(8, 1);
    expect(try_create(plan, (ExecOptions){ .device = "vgpu:sm_80" }, &exec), ERR_ARGUMENT,
           "for a CPU");
    assert_null(exec);
    plan_destroy(plan);
    if (!have_device() || strncmp(device(), "vgpu", 4)) return;
    plan = sample_plan(8, 1);
    sample_cuda(plan, "cuda:sm_80");
    expect(try_create(plan, (ExecOptions){ .device = "vgpu:sm_81" }, &exec), ERR_ARGUMENT,
           "unknown architecture 'sm_81'");
    plan_destroy(plan);
}

// More than the GPU has is refused before anything is compiled.
static void test_too_large(void **state) {
    (void)state;
    if (!have_device()) skip();
    Plan *plan = sample_plan(8, 1);
    sample_cuda(plan, "cuda:sm_80");
    plan->region_bytes[REGION_act] += (int64_t)1 << 50;
    Device *gpu;
    DeviceKernel kernels[16];
    assert_in_range(plan->n_kernels, 1, COUNT_OF(kernels));
    must(device_open(device(), NULL, &gpu));
    expect(gpu->api->load(gpu, plan, NULL, NULL, NULL, kernels), ERR_MEMORY,
           "the plan needs 1048576.00 GiB of the GPU's memory");
    device_close(gpu);
    plan_destroy(plan);
}

// Plans for later architectures, and for all that one has, do not run on others.
static void test_architectures(void **state) {
    (void)state;
    if (!have_device() || strncmp(device(), "vgpu", 4)) skip();
    static const struct {
        const char *device, *target;
        bool fits;
    } rows[] = {
        { "vgpu:sm_80", "cuda:sm_80", true },    { "vgpu:sm_90a", "cuda:sm_80", true },
        { "vgpu:sm_90a", "cuda:sm_90a", true },  { "vgpu:sm_80", "cuda:sm_90", false },
        { "vgpu:sm_100a", "cuda:sm_90a", false }, { "vgpu:sm_90a", "cuda:sm_100a", false },
        { "vgpu:sm_90", "cuda:sm_90a", false },   { "vgpu:sm_90", "cuda:sm_90", true },
    };
    for (int i = 0; i < COUNT_OF(rows); i++) {
        Plan *plan = sample_plan(8, 1);
        sample_cuda(plan, rows[i].target);
        Exec *exec;
        Status status = try_create(plan, (ExecOptions){ .device = rows[i].device }, &exec);
        if (rows[i].fits) must(status);
        else expect(status, ERR_ARGUMENT, "lower the spec again with --device vgpu:sm_");
        if (status == OK) {
            must(exec_init(exec, 1));
            assert_non_null(exec_device(exec));
        }
        exec_destroy(exec);
        plan_destroy(plan);
    }
}

// A block of more shared memory than is usual is launched where the GPU has it, and told of where not.
static void test_shared(void **state) {
    (void)state;
    if (!have_device() || strncmp(device(), "vgpu", 4)) skip();
    static const struct {
        const char *device;
        int shared;
        const char *says; // NULL: it runs
    } rows[] = {
        { "vgpu:sm_80", 120 << 10, NULL },
        { "vgpu:sm_90a", 163 << 10, NULL },
        { "vgpu:sm_89", 99 << 10, NULL },
        { "vgpu:sm_89", 120 << 10, "launches 122880 bytes of shared memory a block, moec virtual GPU sm_89, an sm_89, "
                                   "has up to 101376" },
    };
    for (int i = 0; i < COUNT_OF(rows); i++) {
        Plan *plan = sample_plan(8, 1);
        sample_cuda(plan, "cuda:sm_80");
        int last = rows[i].shared / 4 - 1;
        sample_cuda_body(plan, "keep",
                         arena_printf(plan->arena,
                                      "    extern __shared__ float kept[];\n    if (threadIdx.x) return;\n"
                                      "    kept[%d] = total[0];\n    for (int i = 0; i < 4; i++) state[i] = kept[%d];",
                                      last, last),
                         32, rows[i].shared);
        Exec *exec;
        Status status = try_create(plan, (ExecOptions){ .device = rows[i].device }, &exec);
        if (rows[i].says) {
            expect(status, ERR_INPUT, rows[i].says);
        } else {
            must(status);
            must(exec_init(exec, 1));
            Fills fills = { .fail_at = -1 };
            must(exec_run(exec, plan_program(plan, "step"), fill, &fills));
        }
        exec_destroy(exec);
        plan_destroy(plan);
    }
}

// What plans may ask of a block is what the driver of such a GPU says it has.
static void test_rooms(void **state) {
    (void)state;
    static const char library[] = MOEC_BINARY_DIR "/libmoec-vgpu.so";
    static const char *const archs[] = { "sm_80", "sm_86",   "sm_87",   "sm_89",   "sm_90a",
                                         "sm_100a", "sm_103a", "sm_110a", "sm_120a", "sm_121a" };
    if (access(library, F_OK) != 0) skip();
    fflush(NULL);
    pid_t pid = fork();
    if (!pid) {
        void *driver = dlopen(library, RTLD_NOW);
        int (*init)(const char *) = driver ? dlsym(driver, "vgpuInit") : NULL;
        int (*ask)(int *, int, int) = driver ? dlsym(driver, "cuDeviceGetAttribute") : NULL;
        int wrong = !init || !ask;
        for (int i = 0; !wrong && i < COUNT_OF(archs); i++) {
            char name[32];
            PlanTarget target;
            int bytes = 0, optin = 97; // CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
            snprintf(name, sizeof name, "cuda:%s", archs[i]);
            wrong = !plan_target(name, &target) || init(archs[i]) || ask(&bytes, optin, 0) ||
                    bytes != plan_shared_bytes(&target);
            if (wrong) fprintf(stderr, "%s: %d bytes\n", archs[i], bytes);
        }
        _exit(wrong);
    }
    int result;
    assert_int_equal(waitpid(pid, &result, 0), pid);
    assert_int_equal(result, 0);
}

// Each in a process of its own, since libraries are looked for once.
static void expect_missing(const char *name, const char *part) {
    fflush(NULL);
    pid_t pid = fork();
    if (!pid) {
        if (!strcmp(name, "cuda") && dlopen("libcuda.so.1", RTLD_NOW)) _exit(0); // nothing is missing
        setenv("MOEC_VGPU_LIBRARY", "/nowhere/libmoec-vgpu.so", 1);
        Status status = exec_fits(name, "cuda:sm_80");
        Exec *exec;
        Plan *plan = sample_plan(8, 1);
        sample_cuda(plan, "cuda:sm_80");
        if (status == OK) status = try_create(plan, (ExecOptions){ .device = name }, &exec);
        _exit(status == ERR_INPUT && strstr(status_message(), part) ? 0 : 1);
    }
    int result;
    assert_int_equal(waitpid(pid, &result, 0), pid);
    assert_int_equal(result, 0);
}

static void test_missing(void **state) {
    (void)state;
    expect_missing("vgpu:sm_80", "/nowhere/libmoec-vgpu.so");
    expect_missing("cuda", "--device vgpu:sm_80 needs ");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_missing), cmocka_unit_test(test_rooms), // first: before this process looks for them
        cmocka_unit_test(test_names),     cmocka_unit_test(test_launches),
        cmocka_unit_test(test_graph),     cmocka_unit_test(test_poison),
        cmocka_unit_test(test_transfers), cmocka_unit_test(test_inputs),
        cmocka_unit_test(test_timeline),
        cmocka_unit_test(test_profile),   cmocka_unit_test(test_architectures),
        cmocka_unit_test(test_too_large), cmocka_unit_test(test_shared),
        cmocka_unit_test(test_slow),
        cmocka_unit_test(test_fault), // last: a fault ends a real GPU's context
    };
    return cmocka_run_group_tests(tests, set_up, own_cache_remove);
}
