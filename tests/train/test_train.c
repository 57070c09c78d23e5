// SPDX-License-Identifier: Apache-2.0
// The training loop over a plan written by hand: it learns, and its bits depend on nothing but
// plan, options and data.
#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/train/helpers.h"

enum { SEQUENCE = 16, SEQUENCES = 3, TEXT_BYTES = 5000 };
static Plan *plan;
static char *text_path;

static int make(void **state) {
    (void)state;
    const char *folder = scratch_folder();
    setenv("MOEC_CACHE_DIR", path_in(folder, "cache"), 1);
    setenv("MOEC_LOG", "error", 1);
    plan = bigram_plan(SEQUENCE, SEQUENCES, 2);
    EXPECT_OK(plan_check(plan));
    static char text[TEXT_BYTES];
    for (int i = 0; i < TEXT_BYTES; i++) text[i] = "the quick brown fox. "[(i + (i / 50)) % 21];
    text_path = path_in(folder, "text");
    write_file(text_path, text, sizeof text);
    return 0;
}

static int drop(void **state) {
    (void)state;
    plan_destroy(plan);
    return 0;
}

// Options of a run over the text, then the words of `more`, ended by NULL.
static Options *options_of(const char *run, const char *const *more) {
    Options *options = options_create();
    char *argv[40] = {
        "train",    "--data", text_path,   "--held-out", "1000", "--out", (char *)(uintptr_t)run,
        "--warmup", "2",      "--threads", "1",          "--lr", "0.05"
    };
    int argc = 13, n;
    for (; more && *more; more++) argv[argc++] = (char *)(uintptr_t)*more;
    const char *words[40];
    EXPECT_OK(options_parse(options, FOR_TRAIN, argc, argv, words, &n));
    assert_int_equal(n, 0);
    return options;
}
#define MORE(...) (const char *const[]) { __VA_ARGS__, NULL }

static Status train_with(const char *run, const Plan *of, const char *const *more, bool resume,
                         FILE *progress) {
    Options *options = options_of(run, more);
    RunSource source = { .plan = of };
    Status status = resume ? OK : run_create(run, &source, options);
    TrainJob job = {
        .plan = of, .options = options, .run = run, .resume = resume, .progress = progress
    };
    if (status == OK) status = train_run(&job);
    options_destroy(options);
    return status;
}

static char *fresh(void) {
    return path_in(scratch_folder(), "run");
}

// Every state file of two runs' checkpoints is equal, byte for byte.
static void same_checkpoints(const char *a, const char *b, int step) {
    const char *const names[] = { "weights", "moment1", "moment2" };
    for (int i = 0; i < 3; i++) {
        char name[96];
        snprintf(name, sizeof name, "checkpoints/step-%d/%s.safetensors", step, names[i]);
        size_t n, m;
        char *x = read_whole(path_in(a, name), &n), *y = read_whole(path_in(b, name), &m);
        assert_int_equal(n, m);
        assert_memory_equal(x, y, n);
    }
}

// Every target of the step is some expert's: token & 3 stands for the expert.
static void check_load(const json_t *object) {
    static int64_t before;
    int64_t tokens = json_integer_value(json_object_get(object, "tokens")), step = 1;
    step = json_integer_value(json_object_get(object, "step"));
    if (step == 1) before = 0;
    const json_t *load = json_object_get(object, "train/block 01/load");
    assert_int_equal(json_array_size(load), 4);
    double sum = 0, most = 0;
    for (size_t i = 0; i < 4; i++) {
        double one = json_number_value(json_array_get(load, i));
        sum += one;
        most = fmax(most, one);
    }
    assert_true(fabs(sum - (double)(tokens - before)) < 1e-3);
    double uneven = json_number_value(json_object_get(object, "train/block 01/load imbalance"));
    assert_true(fabs(uneven - 4 * most / sum) < 1e-6 && uneven >= 1);
    assert_true(json_number_value(json_object_get(object, "train/load imbalance")) == uneven);
    assert_true(json_number_value(json_object_get(object, "train/block 01/dropped")) == 0);
    before = tokens;
}

// The losses of metrics.jsonl, whose steps must be 1, 2, ...
static int losses_of(const char *run, double *losses, int cap) {
    size_t n;
    char *text = read_whole(path_in(run, "metrics.jsonl"), &n);
    int steps = 0;
    for (char *line = text; *line; steps++) {
        char *end = strchr(line, '\n');
        assert_non_null(end);
        json_t *object = json_loadb(line, (size_t)(end - line), JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(object);
        assert_int_equal(json_integer_value(json_object_get(object, "step")), steps + 1);
        assert_true(steps < cap);
        losses[steps] = json_real_value(json_object_get(object, "train/CE loss"));
        static const char *const fields[] = { "tokens", "time", "train/PPL", "train/total loss",
                                              "optim/total grad norm", "optim/LR (group 0)",
                                              "optim/step skipped", "optim/steps skipped",
                                              "throughput/device/TPS", "throughput/total tokens" };
        for (int i = 0; i < COUNT_OF(fields); i++)
            assert_non_null(json_object_get(object, fields[i]));
        check_load(object);
        json_decref(object);
        line = end + 1;
    }
    return steps;
}

static void learns(void **state) {
    (void)state;
    char *run = fresh();
    EXPECT_OK(train_with(run, plan,
                         MORE("--steps", "60", "--eval-interval", "20", "--save-interval", "25"),
                         false, NULL));
    double losses[64];
    assert_int_equal(losses_of(run, losses, 64), 60);
    assert_true(fabs(losses[0] - log(256)) < 0.05);             // knows nothing
    assert_true(losses[59] < 0.5 * losses[0]);
    size_t n;
    char *evals = read_whole(path_in(run, "eval.jsonl"), &n);
    assert_non_null(strstr(evals, "{\"step\":20,"));
    assert_non_null(strstr(evals, "\"eval/tokens\":1000,"));    // the last: every held-out byte
    assert_false(file_exists(path_in(run, "checkpoints/step-25/manifest.json"))); // two are kept
    assert_true(file_exists(path_in(run, "checkpoints/step-50/manifest.json")));
    assert_true(file_exists(path_in(run, "checkpoints/step-60/manifest.json")));
    assert_string_equal(read_whole(path_in(run, "checkpoints/latest"), &n), "step-60\n");
}

static void threads_and_repeats_give_the_same_bits(void **state) {
    (void)state;
    char *runs[4];
    const char *const threads[] = { "1", "1", "2", "3" };
    for (int i = 0; i < 4; i++) {
        runs[i] = fresh();
        EXPECT_OK(
            train_with(runs[i], plan, MORE("--steps", "8", "--threads", threads[i]), false, NULL));
        if (i) same_checkpoints(runs[0], runs[i], 8);
    }
    char *other = fresh(); // and the comparison can tell runs apart
    EXPECT_OK(train_with(other, plan, MORE("--steps", "8", "--seed", "2"), false, NULL));
    size_t n;
    char *a = read_whole(path_in(runs[0], "checkpoints/step-8/weights.safetensors"), &n);
    char *b = read_whole(path_in(other, "checkpoints/step-8/weights.safetensors"), &n);
    assert_memory_not_equal(a, b, n);
}

static void resume_gives_the_same_bits(void **state) {
    (void)state;
    char *whole = fresh(), *parts = fresh();
    EXPECT_OK(train_with(whole, plan, MORE("--steps", "6"), false, NULL));
    EXPECT_OK(train_with(parts, plan, MORE("--steps", "6", "--save-interval", "3"), false, NULL));
    // Back to step 3: the later checkpoint goes, as if the run had been killed after it wrote
    // metrics.
    const char *latest = path_in(parts, "checkpoints/latest");
    write_file(latest, "step-3\n", 7);
    EXPECT_OK(train_with(parts, plan, MORE("--steps", "6"), true, NULL));
    same_checkpoints(whole, parts, 6);
    double a[9], b[9];
    assert_int_equal(losses_of(whole, a, 8), 6);
    assert_int_equal(losses_of(parts, b, 8), 6); // lines past step 3 were cut, then written again
    for (int i = 0; i < 6; i++) assert_true(a[i] == b[i]);
    EXPECT_OK(train_with(parts, plan, MORE("--steps", "9"), true, NULL)); // and further
    assert_int_equal(losses_of(parts, b, 9), 9);
}

static void plan_from_its_text_gives_the_same_bits(void **state) {
    (void)state;
    char *first = fresh(), *second = fresh();
    EXPECT_OK(train_with(first, plan, MORE("--steps", "4"), false, NULL));
    Plan *read;
    EXPECT_OK(run_read_plan(first, NULL, &read));
    EXPECT_OK(train_with(second, read, MORE("--steps", "4"), false, NULL));
    same_checkpoints(first, second, 4);
    plan_destroy(read);
}

static void resume_before_the_first_checkpoint(void **state) {
    (void)state;
    char *run = fresh(), *other = fresh();
    Options *options = options_of(run, MORE("--steps", "4"));
    EXPECT_OK(run_create(run, &(RunSource) { .plan = plan }, options));
    options_destroy(options);
    EXPECT_OK(train_with(run, plan, MORE("--steps", "4"), true, NULL));
    EXPECT_OK(train_with(other, plan, MORE("--steps", "4"), false, NULL));
    same_checkpoints(run, other, 4);
}

static void resume_refuses_other_data(void **state) {
    (void)state;
    char *run = fresh();
    EXPECT_OK(train_with(run, plan, MORE("--steps", "2"), false, NULL));
    size_t n;
    char *text = read_whole(text_path, &n);
    text[100] ^= 1;
    write_file(text_path, text, n);
    expect_failure(train_with(run, plan, MORE("--steps", "4"), true, NULL), ERR_INPUT,
                   "has changed since the checkpoint");
    text[100] ^= 1;
    write_file(text_path, text, n);
    EXPECT_OK(train_with(run, plan, MORE("--steps", "4"), true, NULL));
}

static void state_counts_steps(void **state) {
    (void)state;
    char *run = fresh();
    EXPECT_OK(train_with(run, plan, MORE("--steps", "3"), false, NULL));
    Arena *arena = arena_create();
    TensorFile file;
    EXPECT_OK(tensors_open(path_in(run, "checkpoints/step-3/weights.safetensors"), arena, &file));
    const Tensor *seen = tensors_find(&file, "seen");
    assert_non_null(seen);
    for (int i = 0; i < 5; i++) assert_true(seen->at[i] == 3.0f * (float)(i + 1));
    assert_non_null(tensors_find(&file, "experts.w.expert.1"));
    assert_null(tensors_find(&file, "experts.w"));
    tensors_close(&file);
    EXPECT_OK(tensors_open(path_in(run, "checkpoints/step-3/moment2.safetensors"), arena, &file));
    assert_null(tensors_find(&file, "seen"));                   // a state has no moments
    assert_non_null(tensors_find(&file, "table"));
    tensors_close(&file);
    arena_destroy(arena);
}

static void divergence_is_reported(void **state) {
    (void)state;
    char *run = fresh();
    expect_failure(
        train_with(run, plan,
                   MORE("--steps", "90", "--lr", "1000", "--weight-decay", "1000", "--warmup", "0"),
                   false, NULL),
        ERR_NUMERIC, "20 steps in a row had non-finite gradients");
    size_t n;
    char *text = read_whole(path_in(run, "metrics.jsonl"), &n);
    assert_non_null(strstr(text, "\"optim/step skipped\":1"));
    assert_non_null(strstr(text, "\"optim/total grad norm\":null"));
}

// The object of a line of a run's file, from 1; the caller's to json_decref.
static json_t *line_of(const char *run, const char *name, int number) {
    size_t n;
    const char *line = read_whole(path_in(run, name), &n);
    for (int i = 1; i < number; i++) line = strchr(line, '\n') + 1;
    json_t *object = json_loadb(line, strcspn(line, "\n"), 0, NULL);
    assert_non_null(object);
    return object;
}

// A byte 255 makes the gradient infinite: the step that reads it changes nothing and is counted.
static void a_step_that_is_not_finite_is_skipped(void **state) {
    (void)state;
    char *trap = path_in(scratch_folder(), "trap");
    static char text[2000];
    for (int i = 0; i < 2000; i++) text[i] = (char)('a' + i % 7);
    text[500] = (char)255;
    write_file(trap, text, sizeof text);
    char *plain = text_path;
    text_path = trap;
    char *run = fresh(), *path = path_in(scratch_folder(), "said");
    FILE *said = fopen(path, "w");
    // An epoch is 63 sequences, 6 of them a step: 21 steps are two epochs.
    EXPECT_OK(train_with(run, plan,
                         MORE("--steps", "21", "--save-interval", "1", "--keep", "100"), false,
                         said));
    fclose(said);
    int skipped = 0;
    for (int step = 1; step <= 21; step++) {
        json_t *line = line_of(run, "metrics.jsonl", step);
        int now = (int)json_integer_value(json_object_get(line, "optim/step skipped"));
        skipped += now;
        assert_int_equal(json_integer_value(json_object_get(line, "optim/steps skipped")), skipped);
        assert_int_equal(json_is_null(json_object_get(line, "optim/total grad norm")), now);
        json_decref(line);
        if (!now || step == 1) continue;
        char folder[2][64];
        for (int i = 0; i < 2; i++)
            snprintf(folder[i], sizeof folder[i], "checkpoints/step-%d", step - 1 + i);
        Arena *arena = arena_create();
        TensorFile file[2];
        for (int i = 0; i < 2; i++)
            EXPECT_OK(tensors_open(path_in(path_in(run, folder[i]), "weights.safetensors"), arena,
                                   &file[i]));
        const Tensor *before = tensors_find(&file[0], "table"),
                     *after = tensors_find(&file[1], "table");
        assert_memory_equal(before->at, after->at, before->bytes);
        for (int i = 0; i < 2; i++) tensors_close(&file[i]);
        arena_destroy(arena);
    }
    assert_int_equal(skipped, 2); // once an epoch
    size_t n;
    const char *words = read_whole(path, &n);
    assert_non_null(strstr(words, " was skipped: its gradient is not finite (loss "));
    assert_non_null(strstr(words, "trained 21 steps (2 skipped) on "));
    json_t *last = line_of(run, "metrics.jsonl", 21);
    assert_true(json_number_value(json_object_get(last, "train/CE loss")) < 5); // and it learns
    json_decref(last);
    // The count is part of the state.
    EXPECT_OK(train_with(run, plan, MORE("--steps", "42"), true, NULL));
    text_path = plain;
    last = line_of(run, "metrics.jsonl", 42);
    assert_int_equal(json_integer_value(json_object_get(last, "optim/steps skipped")), 4);
    json_decref(last);
}

static void groups(void **state) {
    (void)state;
    Plan *grouped = bigram_plan(4, 1, 1);
    grouped->params[1].decay = 0;
    grouped->params[1].lr = 0.5;
    Arena *arena = arena_create();
    int n;
    Comm *comm = comm_self();
    OptimGroup *found = NULL;
    EXPECT_OK(optim_groups(arena, grouped, comm, &found, &n));
    assert_int_equal(n, 2); // the state is in none
    assert_int_equal(found[0].tensors, 1);
    assert_int_equal(found[0].numbers, 65536);
    assert_int_equal(found[1].numbers, 24);
    Text text = { 0 };
    optim_groups_print(found, n, 0.1, &text);
    assert_string_equal(
        text.at, "group 0: 1 tensors, 65536 numbers, weight decay 0.1\n"
                 "group 1: 1 tensors, 24 numbers, weight decay 0, learning rate x 0.5");
    text_finish(&text);
    json_t *line = json_object();
    optim_groups_record(found, n, 0.25, line);
    assert_true(json_number_value(json_object_get(line, "optim/LR (group 0)")) == 0.25);
    assert_true(json_number_value(json_object_get(line, "optim/LR (group 1)")) == 0.125);
    json_decref(line);
    grouped->params[1].decay = grouped->params[1].lr = 1;
    EXPECT_OK(optim_groups(arena, grouped, comm, &found, &n));
    comm_close(comm);
    assert_int_equal(n, 1);
    arena_destroy(arena);
    plan_destroy(grouped);
}

// Names and sums of losses: metrics of the step program under other names and weights.
static void names_of_metrics(void **state) {
    (void)state;
    Plan *named = bigram_plan(4, 1, 1);
    Exec *exec;
    EXPECT_OK(exec_create(named, &(ExecOptions) { .threads = 1 }, &exec));
    PlanProgram *program = plan_program(named, "step");
    static const struct { const char *name; double weight; int of; // 0: scalar, 1: loads, 2: a sum
    } metrics[] = {
        { "layers.2.ffn.router.balance", 0.01, 0 }, { "layers.3.ffn.router.balance", 0.02, 0 },
        { "layers.3.ffn.router.z", 0.001, 0 },      { "z", 0.1, 0 },
        { "ce", 1, 0 },                             { "layers.3.extra.spread", 0.5, 0 },
        { "layers.2.ffn.load", 0, 1 },              { "layers.2.ffn.dropped", 0, 2 },
        { "layers.2.more.load", 0, 1 },             { "head.load", 0, 1 },
        { "layers.3.ffn.entropy", 0, 0 },           { "layers.3.ffn.tally", 0, 2 },
    };
    PlanMetric old[] = { program->metrics[0], program->metrics[1] }, list[COUNT_OF(metrics)];
    for (int i = 0; i < COUNT_OF(metrics); i++)
        list[i] = (PlanMetric) { metrics[i].name, metrics[i].weight, old[metrics[i].of & 1].buffer,
                                 .sum = metrics[i].of > 0 };
    program->metrics = list;
    program->n_metrics = COUNT_OF(metrics);
    int64_t n;
    exec_metric(exec, program, 4, &n)[0] = 2;
    const float loads[] = { 1, 2, 3, 2 };
    memcpy(exec_metric(exec, program, 6, &n), loads, sizeof loads);
    Arena *arena = arena_create();
    MetricSet set;
    EXPECT_OK(metric_set_open(exec, program, arena, &set));
    EXPECT_OK(metric_set_read(&set));
    json_t *line = json_object();
    metrics_print(&set, line);
    static const struct { const char *name; double value; } expected[] = {
        { "train/CE loss", 2 },
        { "train/PPL", 7.38905609893065 },
        { "train/Z loss", 0.2 },
        { "train/Z loss unscaled", 2 },
        { "train/load balancing loss", 0.06 },
        { "train/load balancing loss unscaled", 4 },
        { "train/block 02/load balancing loss", 0.02 },
        { "train/block 03/load balancing loss", 0.04 },
        { "train/router Z loss", 0.002 },
        { "train/block 03/router Z loss", 0.002 },
        { "train/layers.3.extra.spread", 2 },
        { "train/layers.3.ffn.entropy", 2 },
        { "train/block 02/load imbalance", 1.5 },
        { "train/layers.2.more.load/load imbalance", 1.5 }, // the second of the layer
        { "train/head.load/load imbalance", 1.5 },
        { "train/load imbalance", 1.5 },
        { "train/block 02/dropped", 2 }, // of ten choices
        { "train/block 02/token drop rate", 0.2 },
        { "train/layers.3.ffn.tally", 2 },
        { "train/total loss", 0.02 + 0.04 + 0.002 + 0.2 + 2 + 1 },
    };
    for (int i = 0; i < COUNT_OF(expected); i++) {
        const json_t *value = json_object_get(line, expected[i].name);
        if (!json_is_number(value)) print_error("no number %s\n", expected[i].name);
        assert_true(fabs(json_number_value(value) - expected[i].value) < 1e-9);
    }
    static const char *const lists[] = { "train/block 02/load", "train/layers.2.more.load",
                                         "train/head.load" };
    for (int i = 0; i < 3; i++)
        assert_true(json_number_value(json_array_get(json_object_get(line, lists[i]), 2)) == 3);
    json_decref(line);
    // A loss that is not finite makes a sum that is none.
    exec_metric(exec, program, 4, &n)[0] = NAN;
    EXPECT_OK(metric_set_read(&set));
    line = json_object();
    metrics_print(&set, line);
    assert_true(json_is_null(json_object_get(line, "train/block 02/dropped")));
    assert_true(json_is_null(json_object_get(line, "train/load balancing loss")));
    assert_true(json_is_null(json_object_get(line, "train/PPL")));
    json_decref(line);
    arena_destroy(arena);
    exec_destroy(exec);
    plan_destroy(named);
}

static void some_checkpoints_stay(void **state) {
    (void)state;
    char *run = fresh();
    EXPECT_OK(train_with(run, plan, MORE("--steps", "20", "--save-interval", "3", "--keep", "1",
                                         "--keep-every", "8"),
                         false, NULL));
    for (int step = 1; step <= 20; step++) {
        char name[64];
        snprintf(name, sizeof name, "checkpoints/step-%d/manifest.json", step);
        assert_int_equal(file_exists(path_in(run, name)), step == 8 || step == 16 || step == 20);
    }
}

// An evaluation that a kill came before is made up for; one that was written is not repeated.
static void evaluations_are_neither_lost_nor_repeated(void **state) {
    (void)state;
    char *run = fresh();
    const char *const more[] = { "--steps", "8", "--eval-interval", "3", "--save-interval", "3",
                                 "--schedule", "constant", NULL };
    EXPECT_OK(train_with(run, plan, more, false, NULL));
    size_t n, m;
    char *path = path_in(run, "eval.jsonl"), *whole = read_whole(path, &n);
    write_file(path_in(run, "checkpoints/latest"), "step-6\n", 7);
    write_file(path, whole, (size_t)(strchr(whole, '\n') + 1 - whole)); // step 3 is left
    EXPECT_OK(train_with(run, plan, more, true, NULL));
    char *again = read_whole(path, &m);
    assert_int_equal(n, m);
    assert_memory_equal(whole, again, n);
    EXPECT_OK(train_with(run, plan, more, true, NULL)); // complete: nothing to write
    again = read_whole(path, &m);
    assert_int_equal(n, m);
    for (int i = 1; i <= 3; i++) {
        json_t *line = line_of(run, "eval.jsonl", i);
        assert_int_equal(json_integer_value(json_object_get(line, "step")), i == 3 ? 8 : 3 * i);
        double loss = json_number_value(json_object_get(line, "eval/CE loss"));
        assert_true(fabs(json_number_value(json_object_get(line, "eval/PPL")) / exp(loss) - 1) <
                    1e-6);
        json_decref(line);
    }
    assert_non_null(strstr(read_whole(path_in(run, "loss.svg"), &n), "held out"));
}

static void budgets(void **state) {
    (void)state;
    char *run = fresh();
    expect_failure(train_with(run, plan, NULL, false, NULL), ERR_ARGUMENT,
                   "no end to the run\n  hint: give --steps N or");
    run = fresh();
    EXPECT_OK(train_with(run, plan, MORE("--seconds", "0.2"), false, NULL));
    double losses[20000];
    assert_true(losses_of(run, losses, 20000) >= 1); // how many is the clock's business
    expect_failure(train_with(run, plan, MORE("--steps", "3"), false, NULL), ERR_ARGUMENT,
                   "already holds a run\n  hint: 'moec");
}

static void lock_is_exclusive(void **state) {
    (void)state;
    char *run = fresh();
    EXPECT_OK(train_with(run, plan, MORE("--steps", "2"), false, NULL));
    int lock;
    // What a killed writer left goes with the next lock.
    char *left[] = { path_in(run, "loss.svg.12.AbCdEf"), path_in(run, "run.json.12.AbCdEf"),
                     path_in(run, "checkpoints/latest.12.AbCdEf") };
    for (int i = 0; i < 3; i++) write_file(left[i], "x", 1);
    EXPECT_OK(run_lock(run, &lock));
    for (int i = 0; i < 3; i++) assert_false(file_exists(left[i]));
    assert_true(file_exists(path_in(run, "run.json")));
    assert_true(file_exists(path_in(run, "checkpoints/latest")));
    expect_failure(train_with(run, plan, MORE("--steps", "4"), true, NULL), ERR_ARGUMENT,
                   "another process is training in");
    close(lock);
    EXPECT_OK(train_with(run, plan, MORE("--steps", "4"), true, NULL));
}

/* Interruption: a thread waits for the first line of metrics, then raises the signal ----------- */

static void on_signal(int number) {
    (void)number;
    train_stop();
}

static void *interrupt(void *path) {
    for (int i = 0; i < 120000; i++) {
        struct stat info;
        if (stat(path, &info) == 0 && info.st_size > 0) break;
        usleep(1000);
    }
    kill(getpid(), SIGTERM);
    return NULL;
}

static void signal_finishes_the_step_and_saves(void **state) {
    (void)state;
    char *run = fresh(), *whole = fresh();
    signal(SIGTERM, on_signal);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, interrupt, path_in(run, "metrics.jsonl")), 0);
    expect_failure(
        train_with(run, plan, MORE("--steps", "100000", "--schedule", "constant"), false, NULL),
        ERR_INTERRUPTED, "which is saved\n  hint: 'moec resume");
    pthread_join(thread, NULL);
    signal(SIGTERM, SIG_DFL);
    double losses[20000];
    int steps = losses_of(run, losses, 20000);
    assert_true(steps >= 1);
    assert_true(file_exists(path_in(run, "checkpoints/latest")));
    // What was saved is the step that the metrics end with, and going on gives the uninterrupted
    // bits.
    char more[32];
    snprintf(more, sizeof more, "%d", steps + 2);
    EXPECT_OK(train_with(run, plan, MORE("--steps", more, "--schedule", "constant"), true, NULL));
    EXPECT_OK(
        train_with(whole, plan, MORE("--steps", more, "--schedule", "constant"), false, NULL));
    same_checkpoints(run, whole, steps + 2);
}

static void memory_must_suffice(void **state) {
    (void)state;
    int64_t peak = plan_peak(plan), here = memory_available();
    assert_true(here > 1 << 20 && here < (int64_t)1 << 60);
    EXPECT_OK(memory_check(plan, peak));
    expect_failure(memory_check(plan, peak - 1), ERR_MEMORY, "a smaller --microbatch");
    int64_t was = plan->region_bytes[REGION_act];
    plan->region_bytes[REGION_act] = here * 4;
    expect_failure(train_with(fresh(), plan, MORE("--steps", "1"), false, NULL), ERR_MEMORY,
                   "training needs ");
    plan->region_bytes[REGION_act] = was;
}

static void limits_of_control_groups(void **state) {
    (void)state;
    const char *root = scratch_folder();
    char *groups = path_in(root, "cgroup"), *own = path_in(root, "a/b/memory.max");
    assert_true(memory_group_limit(groups, root) == INT64_MAX); // no such file
    EXPECT_OK(file_make_dirs(path_in(root, "a/b")));
    write_file(groups, "1:memory:/x\n0::/a/b\n", 20);
    assert_true(memory_group_limit(groups, root) == INT64_MAX);
    write_file(own, "max\n", 4);
    write_file(path_in(root, "a/memory.max"), "5000\n", 5);
    assert_int_equal(memory_group_limit(groups, root), 5000);   // of the group above
    write_file(own, "4000\n", 5);
    assert_int_equal(memory_group_limit(groups, root), 4000);
    write_file(groups, "0::/\n", 5);
    assert_true(memory_group_limit(groups, root) == INT64_MAX);
    write_file(path_in(root, "memory.max"), "3000\n", 5);
    assert_int_equal(memory_group_limit(groups, root), 3000);
}

static void progress_has_plain_lines(void **state) {
    (void)state;
    char *run = fresh(), *path = path_in(scratch_folder(), "progress");
    FILE *out = fopen(path, "w");
    EXPECT_OK(train_with(run, plan, MORE("--steps", "3", "--log-interval", "0"), false, out));
    fclose(out);
    size_t n;
    char *text = read_whole(path, &n);
    assert_non_null(strstr(text, "step 1/3  loss "));
    assert_non_null(strstr(text, "step 3/3  loss "));
    assert_non_null(strstr(text, "trained 3 steps on "));
    assert_null(strchr(text, '\r'));
    assert_null(strchr(text, '\033'));
}

static void progress_is_live_on_a_terminal(void **state) {
    (void)state;
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0 || grantpt(master) || unlockpt(master)) skip();
    FILE *terminal = fopen(ptsname(master), "r+");
    assert_non_null(terminal);
    setenv("TERM", "xterm", 1);
    Progress progress;
    progress_start(&progress, terminal, 1e9);
    assert_true(progress.live);
    progress_show(&progress, true, "one %d", 1);
    progress_show(&progress, false, "too soon");
    progress_say(&progress, "stays");
    static const char expected[] = "\r\033[Kone 1\r\nstays\r\n";
    char seen[256] = { 0 };
    for (size_t n = 0; n < sizeof expected - 1;) {
        ssize_t got = read(master, seen + n, sizeof seen - 1 - n);
        assert_true(got > 0);
        n += (size_t)got;
    }
    assert_string_equal(seen, expected);
    setenv("TERM", "dumb", 1);
    progress_start(&progress, terminal, 1);
    assert_false(progress.live);
    fclose(terminal);
    close(master);
}

/* Evaluation and sampling ---------------------------------------------------------------------- */

static void evaluation_is_exact(void **state) {
    (void)state;
    Options *options = options_of("unused", NULL);
    Data *data;
    EXPECT_OK(train_open_data(options, plan, &data));
    Exec *exec;
    EXPECT_OK(exec_create(plan, &(ExecOptions) { .threads = 1 }, &exec));
    exec_init(exec, 5);
    const float *table = exec_region(exec, REGION_weights);
    size_t n;
    const unsigned char *text = (unsigned char *)read_whole(text_path, &n);
    double nats = 0;
    for (size_t i = n - 1000; i < n; i++) { // plainly
        const float *row = table + text[i - 1] * 256;
        double sum = 0;
        for (int k = 0; k < 256; k++) sum += exp(row[k]);
        nats += log(sum) - row[text[i]];
    }
    EvalResult result;
    EXPECT_OK(eval_run(exec, plan, &data->held_out, 0, NULL, &result));
    assert_int_equal(result.n_targets, 1000);
    assert_true(fabs(result.nats - nats / 1000) < 1e-6);
    EXPECT_OK(eval_run(exec, plan, &data->held_out, 100, NULL, &result));
    assert_true(result.n_targets >= 100 && result.n_targets <= 112);
    Text line = { 0 };
    eval_print(&(EvalResult) { log(2) * 2, 7 }, true, &line);
    assert_string_equal(
        line.at, "held out: 2.0000 bits per byte over 7 bytes (loss 1.3863, perplexity 4.000)");
    text_finish(&line);
    exec_destroy(exec);
    data_close(data);
    options_destroy(options);
}

typedef struct Gathered { char text[128]; int n; } Gathered;

static Status gather(void *user, int32_t token) {
    Gathered *g = user;
    g->text[g->n++] = (char)token;
    return OK;
}

static void sampling(void **state) {
    (void)state;
    Exec *exec;
    EXPECT_OK(exec_create(plan, &(ExecOptions) { .threads = 2 }, &exec));
    exec_init(exec, 1);
    float *table = exec_region(exec, REGION_weights);
    memset(table, 0, 256 * 256 * sizeof *table);
    for (int i = 0; i < 256; i++)
        table[i * 256 + (i == 'z' ? 'a' : i + 1) % 256] = 50; // a follows z, else the next
    Gathered greedy = { 0 }, drawn = { 0 }, again = { 0 };
    const int32_t prompt[] = { 'q', 'x' };
    SampleOptions options = { prompt, 2, 40, 0, 1, 1, gather, &greedy };
    EXPECT_OK(sample_run(exec, plan, &options));                // longer than the window of 16
    assert_memory_equal(greedy.text, "yzabcdefghijklmnopqrstuvwxyzabcdefghijkl", 40);
    memset(table, 0, 256 * 256 * sizeof *table);
    options.temperature = 1;
    options.user = &drawn;
    EXPECT_OK(sample_run(exec, plan, &options));
    options.user = &again;
    EXPECT_OK(sample_run(exec, plan, &options));
    assert_memory_equal(drawn.text, again.text, 40);            // a function of the seed
    options.seed = 2;
    again.n = 0;
    EXPECT_OK(sample_run(exec, plan, &options));
    assert_memory_not_equal(drawn.text, again.text, 40);
    again.n = 0;
    table['x' * 256 + 7] = NAN;
    expect_failure(sample_run(exec, plan, &options), ERR_NUMERIC, "the logits are not finite");
    exec_destroy(exec);
}

static void drawing(void **state) {
    (void)state;
    const float logits[] = { 0, 2, 1, 2 };
    int32_t work[4];
    assert_int_equal(sample_draw(logits, 4, 0, 1, 0.9, work), 1);         // ties to the lower id
    assert_int_equal(sample_draw(logits, 4, 1, 1e-6, 0.999, work), 1); // top_p keeps at least one
    assert_int_equal(sample_draw(logits, 4, 1, 0.7, 0.999, work), 3);     // two of them
    assert_int_equal(sample_draw(logits, 4, 1, 1, 0, work), 1);
    assert_int_equal(sample_draw(logits, 4, 1, 1, 0.9999, work), 0);
    int counts[4] = { 0 };
    for (int i = 0; i < 1000; i++) counts[sample_draw(logits, 4, 1, 1, i / 1000.0, work)]++;
    double e = exp(1), total = 1 + e + 2 * e * e;
    assert_true(fabs(counts[0] - 1000 / total) < 2 && fabs(counts[2] - 1000 * e / total) < 2);
    assert_true(fabs(counts[1] - 1000 * e * e / total) < 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(learns),
        cmocka_unit_test(threads_and_repeats_give_the_same_bits),
        cmocka_unit_test(resume_gives_the_same_bits),
        cmocka_unit_test(plan_from_its_text_gives_the_same_bits),
        cmocka_unit_test(resume_before_the_first_checkpoint),
        cmocka_unit_test(resume_refuses_other_data),
        cmocka_unit_test(state_counts_steps),
        cmocka_unit_test(divergence_is_reported),
        cmocka_unit_test(a_step_that_is_not_finite_is_skipped),
        cmocka_unit_test(groups),
        cmocka_unit_test(names_of_metrics),
        cmocka_unit_test(some_checkpoints_stay),
        cmocka_unit_test(evaluations_are_neither_lost_nor_repeated),
        cmocka_unit_test(budgets),
        cmocka_unit_test(lock_is_exclusive),
        cmocka_unit_test(signal_finishes_the_step_and_saves),
        cmocka_unit_test(memory_must_suffice),
        cmocka_unit_test(limits_of_control_groups),
        cmocka_unit_test(progress_has_plain_lines),
        cmocka_unit_test(progress_is_live_on_a_terminal),
        cmocka_unit_test(evaluation_is_exact),
        cmocka_unit_test(sampling),
        cmocka_unit_test(drawing),
    };
    return cmocka_run_group_tests_name("train", tests, make, drop);
}
