// SPDX-License-Identifier: Apache-2.0
// metrics.jsonl across kills and resumes, and the record of a run.
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "tests/train/helpers.h"

static void cut_where_the_run_goes_on(void **state) {
    (void)state;
    const char *path = path_in(scratch_folder(), "metrics.jsonl");
    static const struct { const char *before; int64_t step; const char *after;
    } cases[] = {
        { "", 0, "" },
        { "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n", 3,
          "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n" },
        { "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n", 2, "{\"step\":1}\n{\"step\":2}\n" },
        { "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n", 0, "" },
        { "{\"step\":1}\n{\"step\":2}", 9, "{\"step\":1}\n" }, // torn
        { "{\"step\":1}\n{\"st", 9, "{\"step\":1}\n" },
        { "{\"step\":1}\nnonsense\n{\"step\":2}\n", 9, "{\"step\":1}\n" },
        { "{\"step\":1}\n{\"step\":\"2\"}\n", 9, "{\"step\":1}\n" },
        { "{\"step\":1}\n\n{\"step\":2}\n", 9, "{\"step\":1}\n" },
        { "{\"step\":20}\n{\"step\":40}\n", 39, "{\"step\":20}\n" }, // evaluations are sparse
    };
    for (int i = 0; i < COUNT_OF(cases); i++) {
        write_file(path, cases[i].before, strlen(cases[i].before));
        FILE *file;
        EXPECT_OK(metrics_open(path, cases[i].step, NULL, NULL, &file));
        json_t *line = json_pack("{s:i, s:f}", "step", 99, "x", 0.5);
        EXPECT_OK(metrics_write(file, path, line));
        json_decref(line);
        fclose(file);
        size_t n;
        char *text = read_whole(path, &n);
        size_t kept = strlen(cases[i].after);
        assert_memory_equal(text, cases[i].after, kept);
        assert_string_equal(text + kept, "{\"step\":99,\"x\":0.5}\n");
    }
    remove(path);
    FILE *file;
    EXPECT_OK(metrics_open(path, 5, NULL, NULL, &file));
    fclose(file);
    expect_failure(metrics_open(path_in(path, "x"), 0, NULL, NULL, &file), ERR_IO, "cannot open");
}

static void full_disk_is_an_error(void **state) {
    (void)state;
    FILE *file = fopen("/dev/full", "a");
    if (!file) skip();
    json_t *line = json_pack("{s:i}", "step", 1);
    expect_failure(metrics_write(file, "m", line), ERR_IO,
                   "cannot write m: No space left on device\n  hint: free some space");
    json_decref(line);
    fclose(file);
}

static void run_record(void **state) {
    (void)state;
    const char *run = path_in(scratch_folder(), "deep/er/run");
    Plan *plan = bigram_plan(4, 1, 1);
    Options *options = options_create(), *read = options_create();
    EXPECT_OK(options_set(options, OPT_steps, "--steps", "5"));
    EXPECT_OK(options_set(options, OPT_data, "--data", "a file"));
    const RunFile spec = { "spec/sub/m.lua", "return 1\n", 9 };
    json_t *origin = json_pack("{s:s}", "spec", "m.lua");
    EXPECT_OK(run_create(run, &(RunSource) { .plan = plan, .sample_plan = plan, .files = &spec, .n_files = 1, .origin = origin }, options));
    json_decref(origin);
    size_t n;
    assert_string_equal(read_whole(path_in(run, "spec/sub/m.lua"), &n), "return 1\n");
    json_t *record;
    EXPECT_OK(run_read_options(run, read, &record));
    assert_int_equal(read->steps, 5);
    assert_string_equal(read->data.at[0], "a file");
    assert_string_equal(read->out, run);
    assert_string_equal(json_string_value(json_object_get(record, "model")), "bigram");
    json_decref(record);
    Plan *again;
    EXPECT_OK(run_read_sample_plan(run, &again));
    assert_true(hash_equal(plan_hash(plan), plan_hash(again)));
    plan_destroy(again);
    EXPECT_OK(options_set(read, OPT_steps, "--steps", "7")); // as resume does
    EXPECT_OK(run_write_options(run, read));
    EXPECT_OK(run_read_options(run, options, NULL));
    assert_int_equal(options->steps, 7);
    // Damage shows, wherever it is.
    const char *path = path_in(run, "run.json");
    char *bytes = read_whole(path, &n);
    json_t *original = json_loadb(bytes, n, 0, NULL);
    int same = 0;
    for (size_t at = 0; at < n; at++) {
        bytes[at] ^= 4;
        write_file(path, bytes, n);
        if (run_read_options(run, read, &record) == OK) { // another spelling of the same number
            assert_true(json_equal(json_object_get(record, "options"),
                                   json_object_get(original, "options")));
            json_decref(record);
            same++;
        }
        bytes[at] ^= 4;
    }
    assert_true(same < 20);
    json_decref(original);
    write_file(path, bytes, n);
    EXPECT_OK(run_read_options(run, read, NULL));
    write_file(path_in(run, "plan.txt"), "plan 9\n", 7);
    assert_int_not_equal(run_read_plan(run, NULL, &again), OK);
    assert_non_null(strstr(status_message(), "plan.txt: "));
    expect_failure(run_read_options(scratch_folder(), read, NULL), ERR_INPUT,
                   "is not the folder of a run: it has no run.json");
    plan_destroy(plan);
    options_destroy(options);
    options_destroy(read);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cut_where_the_run_goes_on),
        cmocka_unit_test(full_disk_is_an_error),
        cmocka_unit_test(run_record),
    };
    return cmocka_run_group_tests_name("metrics", tests, NULL, NULL);
}
