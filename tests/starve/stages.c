// SPDX-License-Identifier: Apache-2.0
// What must hold whichever allocation fails, once or from there on: the stage says that memory ran
// out, or has the result it always has; nothing stays open; and a run can be resumed to the same
// bytes.
#include "tests/starve/stages.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "compiler/lower/lower.h"
#include "compiler/spec/spec.h"
#include "tests/driver/small.h"
#include "tests/starve/allocator.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#include <sanitizer/lsan_interface.h>
#define LEAKS() __lsan_do_recoverable_leak_check()
#endif
#endif
#ifndef LEAKS
#define LEAKS() 0
#endif

static int samples_of_a_stage;
static Small small;
static char *steps_2, *steps_4; // runs that nothing disturbed

/* A stage -------------------------------------------------------------------------------------- */

// Status of the stage's work; what it made in `result`. `attempt` numbers the calls.
typedef struct Stage {
    const char *name;
    Status (*work)(struct Stage *stage);
    void (*after)(struct Stage *stage, Status status); // fed again; may be NULL
    Hash result;
    const void *with;
    char *run; // a folder of its own
    bool cold; // an empty kernel cache each time
    int most;  // samples, if less than asked for; 0: no limit
} Stage;

static Status work(void *stage) {
    return ((Stage *)stage)->work(stage);
}

static void fresh_cache(void) {
    char *cache = path_in(small.folder, "cache-0");
    COMMAND("/bin/rm", "-rf", cache);
    setenv("MOEC_CACHE_DIR", cache, 1);
}

// One attempt; returns how many allocations it asked for.
static long attempt(Stage *stage, long failing, bool for_good, Status *status) {
    if (stage->cold) fresh_cache();
    if (stage->run) COMMAND("/bin/rm", "-rf", stage->run);
    if (stage->run && stage->with)
        COMMAND("/bin/cp", "-r", (char *)(uintptr_t)stage->with, stage->run);
    Balance before = allocator_balance();
    allocator_starve(failing, for_good);
    *status = memory_guard(work, stage);
    long n = allocator_feed();
    Balance now = allocator_balance();
    // A thread that has been joined is listed for a moment more.
    for (int wait = 0; wait < 5000 && now.threads > before.threads; wait++) {
        usleep(1000);
        now = allocator_balance();
    }
    if (memcmp(&before, &now, sizeof now))
        print_error("%s, allocation %ld: %+ld mappings, %+ld objects, %+ld files, %+ld threads\n",
                    stage->name, failing, now.mappings - before.mappings,
                    now.objects - before.objects, now.files - before.files,
                    now.threads - before.threads);
    assert_memory_equal(&before, &now, sizeof now);
    return n;
}

static void starve(Stage *stage) {
    Status status;
    attempt(stage, 0, false, &status); // warms what stays: libclang, a table of checksums
    expect_ok(status, stage->name);
    long n = attempt(stage, 0, false, &status);
    expect_ok(status, stage->name);
    Hash result = stage->result;
    int most = samples_of_a_stage;
    if (stage->most && (!most || most > stage->most)) most = stage->most;
    long samples = most && most < n ? most : n;
    int refused = 0, unhurt = 0;
    for (long i = 0; i < samples; i++) {
        long failing = 1 + i * n / samples;
        attempt(stage, failing, i & 1, &status);
        const char *message = status_message();
        bool said = status == ERR_MEMORY || (status != OK && strstr(message, "memory"));
        if (status != OK && !said)
            print_error("%s, allocation %ld: status %d: %s\n", stage->name, failing, status,
                        message);
        assert_true(status == OK || said);
        if (status == OK && !hash_equal(result, stage->result))
            print_error("%s, allocation %ld: another result\n", stage->name, failing);
        assert_true(status != OK || hash_equal(result, stage->result));
        refused += said;
        unhurt += status == OK;
        if (stage->after) stage->after(stage, status);
    }
    assert_int_equal(LEAKS(), 0);
    print_message("%s: %ld of %ld allocations failed in turn; %d times it ended, %d times it "
                  "went on\n",
                  stage->name, samples, n, refused, unhurt);
    assert_true(refused > 0);
}

/* From text to plan ---------------------------------------------------------------------------- */

static void print_hash(Stage *stage, Text *text) {
    stage->result = hash_bytes(text->at, text->bytes);
    text_finish(text);
}

static Model *load(void) {
    Text error = { 0 };
    SpecOptions options = { 0 };
    Model *m = spec_load_text("small.lua", small_spec, strlen(small_spec), &options, &error);
    if (!m) status_fail(ERR_INPUT, "%s", text_cstr(&error));
    text_finish(&error);
    return m;
}

static Status load_work(Stage *stage) {
    Model *m = load();
    if (!m) return ERR_INPUT;
    Text text = { 0 };
    model_print(m, &text, true);
    print_hash(stage, &text);
    model_destroy(m);
    return OK;
}

static void spec(void **state) {
    (void)state;
    starve(&(Stage){ .name = "spec", .work = load_work });
}

// A file of a layout, and the nearest of one that does not fit.
static Status layout_work(Stage *stage) {
    static const char text[] = "local m = require \"moec\"\n"
                               "return m.layout { mesh = { \"pp=4\", \"dp=4\" }, microbatch = 3,\n"
                               "  stages = { 1, 1, 0, 0 },\n"
                               "  precision = { { \"*.attention.w_q\", \"bf16\" } } }\n";
    Model *m = load();
    if (!m) return ERR_INPUT;
    Arena *arena = arena_create();
    Layout layout = layout_single();
    Text error = { 0 };
    Status status = OK;
    if (!spec_load_layout_text("wide.lua", text, strlen(text), m, arena, &layout, &error))
        status = status_fail(ERR_INPUT, "%s", text_cstr(&error));
    text_finish(&error);
    if (status == OK) {
        Text told = { 0 };
        LayoutRun run = { .batch = 96 * m->sequence };
        assert_int_equal(layout_check(&layout, m, &run), ERR_ARGUMENT);
        layout_print(&layout, &told);
        text_add(&told, status_message());
        print_hash(stage, &told);
    }
    arena_destroy(arena);
    model_destroy(m);
    return status;
}

static void layout(void **state) {
    (void)state;
    starve(&(Stage){ .name = "layout", .work = layout_work });
}

// The model is changed by lowering it, and belongs to the guard as all the rest.
static Status lower_work(Stage *stage) {
    Model *m = load();
    if (!m) return ERR_INPUT;
    LowerOptions options = { .microbatch = 4, .microbatches = 2, .precision = PRECISION_BF16 };
    options.programs[PROGRAM_STEP] = options.programs[PROGRAM_EVAL] = true;
    Plan *plan = lower_model(m, &options);
    Status status = plan ? OK : status_fail(ERR_INPUT, "%s", m->diag.message);
    if (plan) {
        Text text = { 0 };
        plan_print(plan, &text);
        print_hash(stage, &text);
    }
    plan_destroy(plan);
    model_destroy(m);
    return status;
}

static void lowering(void **state) {
    (void)state;
    starve(&(Stage){ .name = "lower", .work = lower_work, .most = 3000 });
}

// libclang reads every kernel: seconds a time.
static void lowering_cold(void **state) {
    (void)state;
    const char *warm = getenv("MOEC_CACHE_DIR");
    starve(&(Stage){ .name = "lower, empty cache", .work = lower_work, .cold = true, .most = 4 });
    setenv("MOEC_CACHE_DIR", warm, 1);
}

static Status parse_work(Stage *stage) {
    const Text *from = stage->with;
    Plan *plan;
    TRY(plan_parse(from->at, from->bytes, &plan));
    Text text = { 0 };
    Status status = plan_check(plan);
    plan_print(plan, &text);
    print_hash(stage, &text);
    plan_destroy(plan);
    return status;
}

static void plan_text(void **state) {
    (void)state;
    Text text = { 0 };
    Plan *plan = bigram_plan(16, 3, 2);
    plan_print(plan, &text);
    plan_destroy(plan);
    starve(&(Stage){ .name = "plan text", .work = parse_work, .with = &text });
    text_finish(&text);
}

static Status execute_work(Stage *stage) {
    Plan *plan = bigram_plan(16, 3, 2);
    Exec *exec = NULL;
    Status status = exec_create(plan, &(ExecOptions){ .threads = 3 }, &exec);
    if (status == OK) {
        exec_init(exec, 1);
        stage->result = hash_bytes(exec_region(exec, REGION_weights),
                                   (size_t)plan->region_bytes[REGION_weights]);
    }
    exec_destroy(exec);
    plan_destroy(plan);
    return status;
}

static void executing(void **state) {
    (void)state;
    const char *warm = getenv("MOEC_CACHE_DIR");
    starve(&(Stage){ .name = "execute", .work = execute_work });
    Stage cold = { .name = "execute, empty cache", .work = execute_work, .cold = true, .most = 40 };
    starve(&cold);
    setenv("MOEC_CACHE_DIR", warm, 1);
}

/* Runs ----------------------------------------------------------------------------------------- */

static Plan *small_plan;

static Options *options_of(const char *run, const char *steps) {
    Options *options = options_create();
    const char *const argv[] = { "train", "--data", small.data, "--out", run, "--steps", steps,
                                 "--held-out", "700", "--save-interval", "1", "--keep", "9",
                                 "--warmup", "2", "--threads", "2", "--tensorboard", "yes" };
    const char *words[COUNT_OF(argv)];
    int argc = COUNT_OF(argv), n;
    EXPECT_OK(options_parse(options, FOR_TRAIN, argc, (char **)(uintptr_t)argv, words, &n));
    return options;
}

static Status train(const char *run, const char *steps, bool resume) {
    Options *options = options_of(run, steps);
    RunSource source = { .plan = small_plan };
    Status status = resume ? OK : run_create(run, &source, options);
    TrainJob job = { .plan = small_plan, .options = options, .run = run, .resume = resume };
    if (status == OK) status = train_run(&job);
    options_destroy(options);
    return status;
}

static bool is_run(const char *run) {
    return file_exists(path_in(run, "run.json"));
}

static Status train_work(Stage *stage) {
    return train(stage->run, "2", false);
}

static Status resume_work(Stage *stage) {
    return train(stage->run, "4", true);
}

// Every checkpoint with a name of its own is whole, and going on gives what it always gives.
static void go_on(Stage *stage, const char *reference, const char *steps, bool created) {
    char *path = path_in(stage->run, "checkpoints/step-0");
    size_t bytes = (size_t)small_plan->region_bytes[REGION_weights];
    Arena *arena = arena_create();
    TrainMemory memory = { arena_alloc(arena, bytes), arena_alloc(arena, bytes),
                           arena_alloc(arena, bytes) };
    for (int step = 1; step <= 4; step++) {
        path[strlen(path) - 1] = (char)('0' + step);
        if (!file_exists(path)) {
            assert_true(step > 2 || !created);
            continue;
        }
        CheckpointInfo info;
        EXPECT_OK(checkpoint_read(path, arena, small_plan, &memory, &info));
        json_decref(info.manifest);
    }
    arena_destroy(arena);
    EXPECT_OK(train(stage->run, steps, is_run(stage->run)));
    same_state(reference, stage->run, atoi(steps));
    same_history(reference, stage->run);
}

static void after_train(Stage *stage, Status status) {
    (void)status;
    go_on(stage, steps_2, "2", false);
}

static void after_resume(Stage *stage, Status status) {
    (void)status;
    go_on(stage, steps_4, "4", true);
}

static void training(void **state) {
    (void)state;
    Stage stage = { .name = "train", .work = train_work, .after = after_train,
                    .run = path_in(small.folder, "starved") };
    starve(&stage);
}

static void resuming(void **state) {
    (void)state;
    Stage stage = { .name = "resume", .work = resume_work, .after = after_resume, .with = steps_2,
                    .run = path_in(small.folder, "starved") };
    starve(&stage);
}

static int make(void **state) {
    (void)state;
    json_from_memory();
    setenv("MOEC_LOG", "error", 1);
    small = small_make();
    Model *m = load();
    LowerOptions options = { .microbatch = 4, .microbatches = 2 };
    options.programs[PROGRAM_STEP] = options.programs[PROGRAM_EVAL] = true;
    small_plan = lower_model(m, &options);
    assert_non_null(small_plan);
    model_destroy(m);
    steps_2 = path_in(small.folder, "reference-2");
    steps_4 = path_in(small.folder, "reference-4");
    EXPECT_OK(train(steps_2, "2", false));
    COMMAND("/bin/cp", "-r", steps_2, steps_4);
    EXPECT_OK(train(steps_4, "4", true));
    return 0;
}

static int drop(void **state) {
    (void)state;
    plan_destroy(small_plan);
    return 0;
}

int stages_run(const char *name, int samples) {
    samples_of_a_stage = samples;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spec),
        cmocka_unit_test(layout),
        cmocka_unit_test(lowering),
        cmocka_unit_test(lowering_cold),
        cmocka_unit_test(plan_text),
        cmocka_unit_test(executing),
        cmocka_unit_test(training),
        cmocka_unit_test(resuming),
    };
    return cmocka_run_group_tests_name(name, tests, make, drop);
}
