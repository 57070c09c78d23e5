// SPDX-License-Identifier: Apache-2.0
// The option table: every way in, every error, and that the record reads back to the same values.
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/train/helpers.h"

static Options *options;
static const char *words[32];
static int n_words;

static int make(void **state) {
    (void)state;
    options = options_create();
    assert_non_null(options);
    return 0;
}

static int drop(void **state) {
    (void)state;
    options_destroy(options);
    return 0;
}

static Status parse(int command, ...) {
    char *argv[32] = { "command" };
    int argc = 1;
    va_list list;
    va_start(list, command);
    while ((argv[argc] = va_arg(list, char *))) argc++;
    va_end(list);
    return options_parse(options, command, argc, argv, words, &n_words);
}
#define PARSE(command, ...) parse(command, __VA_ARGS__, (char *)NULL)

static void rows_are_sound(void **state) {
    (void)state;
    for (int i = 0; i < N_OPTIONS; i++) {
        const OptionInfo *a = &option_info[i];
        assert_true(a->flag[0] == '-' && (a->flag[1] == '-' ? strlen(a->flag) > 3 : strlen(a->flag) == 2));
        assert_true(a->help[0] && a->commands);
        for (int k = 0; k < i; k++) {
            const OptionInfo *b = &option_info[k];
            assert_string_not_equal(a->path, b->path);
            if (a->commands & b->commands & FOR_COMMANDS) assert_string_not_equal(a->flag, b->flag);
        }
        assert_false(options->given[i]);
    }
}

static void flags_and_words(void **state) {
    (void)state;
    EXPECT_OK(PARSE(FOR_TRAIN, "spec.lua", "size=tiny", "--data", "a", "b", "--steps", "12",
                    "--lr=1e-3", "--set", "optim.beta2=0.5", "--schedule", "linear", "--data", "c",
                    "--out", "run", "--", "--x"));
    assert_int_equal(n_words, 3);
    assert_string_equal(words[1], "size=tiny");
    assert_string_equal(words[2], "--x");
    assert_int_equal(options->data.n, 3);
    assert_string_equal(options->data.at[0], "a");
    assert_string_equal(options->data.at[2], "c");
    assert_int_equal(options->steps, 12);
    assert_true(options->lr == 1e-3 && options->beta2 == 0.5);
    assert_int_equal(options->schedule, SCHEDULE_LINEAR);
    assert_true(options->given[OPT_lr] && !options->given[OPT_warmup]);
    EXPECT_OK(PARSE(FOR_TRAIN, "--steps", "1e3", "--data", "d"));
    assert_int_equal(options->steps, 1000);
    assert_int_equal(options->data.n, 1); // a later command line replaces files
}

static void every_wrong_use(void **state) {
    (void)state;
    static const struct { int command; const char *a, *b, *message;
    } cases[] = {
        { FOR_TRAIN, "--stepz", "3",
          "unknown option '--stepz' of 'train'\n  hint: did you mean --steps?" },
        { FOR_TRAIN, "--frobnicate", "3",
          "unknown option '--frobnicate' of 'train'\n  hint: 'moec train --help' lists" },
        { FOR_TRAIN, "-n", "3", "unknown option '-n'" },
        { FOR_RESUME, "--seed", "3", "--seed is fixed for the life of a run" },
        { FOR_TRAIN, "--steps", NULL, "--steps needs a value\n  hint: --steps STEPS" },
        { FOR_TRAIN, "--set", NULL, "--set needs a value\n  hint: --set PATH=VALUE" },
        { FOR_TRAIN, "--data", NULL, "--data needs a value\n  hint: --data FILE..." },
        { FOR_TRAIN, "--data", "", "--data names no file" },
        { FOR_TRAIN, "--steps", "many", "--steps is 'many', expected a whole number of steps" },
        { FOR_TRAIN, "--steps", "", "--steps is '', expected a whole number" },
        { FOR_TRAIN, "--steps", "1.5", "--steps is '1.5', expected a whole number of steps" },
        { FOR_TRAIN, "--steps", "-1", "--steps is -1, expected 0 to 1000000000000 steps" },
        { FOR_TRAIN, "--held-out", "-1", "--held-out is -1, expected at least 0 tokens" },
        { FOR_TRAIN, "--keep", "0", "--keep is 0, expected 1 to 1000000 checkpoints" },
        { FOR_TRAIN, "--min-lr", "1.01", "--min-lr is 1.01, expected 0 to 1" },
        { FOR_TRAIN, "--min-lr", "x", "--min-lr is 'x', expected a number" },
        { FOR_TRAIN, "--steps", "1e-400", "--steps is '1e-400', expected a whole number of steps" },
        { FOR_TRAIN, "--beta1", "1", "--beta1 is 1, expected 0 to 0.999999" },
        { FOR_TRAIN, "--lr", "nan", "--lr is 'nan', expected a number" },
        { FOR_TRAIN, "--lr", "inf", "--lr is 'inf', expected a number" },
        { FOR_TRAIN, "--lr", "0x1p3", "--lr is '0x1p3', expected a number" },
        { FOR_TRAIN, "--lr", "1e999", "--lr is '1e999', expected a number" },
        { FOR_TRAIN, "--schedule", "cosin",
          "--schedule is 'cosin', expected one of cosine|linear|constant|wsd\n  hint: did you "
          "mean 'cosine'?" },
        { FOR_TRAIN, "--schedule", "", "--schedule is '', expected one of cosine|linear|const" },
        { FOR_TRAIN, "--tokens", "uint64",
          "--tokens is 'uint64', expected one of bytes|uint16|uint32\n  hint: did you mean" },
        { FOR_TRAIN, "--eos", "-2", "--eos is -2, expected -1 to 2147483647" },
        { FOR_TRAIN, "--tensorboard=no", NULL, "--tensorboard is 'no', expected on or off" },
        { FOR_RESUME, "--eos", "3", "--eos is fixed for the life of a run" },
        { FOR_TRAIN, "--set", "optim.lr", "--set is given 'optim.lr', expected path=value" },
        { FOR_TRAIN, "--set", "optim.lrr=1",
          "--set: unknown path 'optim.lrr' of 'train'\n  hint: did you mean optim.lr?" },
        { FOR_TRAIN, "--set", "zzz.zzzzzzz=1",
          "--set: unknown path 'zzz.zzzzzzz' of 'train'\n  hint: 'moec train --help'" },
        { FOR_TRAIN, "--set", "optim.lr=-2", "optim.lr is -2, expected 0 to 1000" },
        { FOR_SAMPLE, "--set", "optim.lr=1", "--set: unknown path 'optim.lr' of 'sample'" },
        { FOR_EVAL, "--quiet=maybe", NULL, "--quiet is 'maybe', expected on or off" },
        { FOR_SAMPLE, "--top-p", "0", "--top-p is 0, expected 1e-06 to 1" },
        { FOR_RESUME, "--cluster", "x", "unknown option '--cluster' of 'resume'" },
        { FOR_CHECK, "-o", "x", "unknown option '-o' of 'check'\n  hint: it is one of plan, kernels, " },
        { FOR_PLAN, "--lr", "1", "unknown option '--lr' of 'plan'\n  hint: it is one of train, resume; 'moec plan --help'" },
        { FOR_KERNELS, "--out", "x", "unknown option '--out' of 'kernels'\n  hint: did you mean -o?" },
        { FOR_CHECK, "--verbose", NULL, "unknown option '--verbose' of 'check'\n  hint: did you mean -v?" },
        { FOR_PLAN, "--dump", "f", "unknown option '--dump' of 'plan'\n  hint: did you mean -d?" },
        { FOR_CHECK, "--help=1", NULL, "unknown option '--help' of 'check'\n  hint: did you mean --help?" },
        { FOR_PLAN, "-o", NULL, "-o needs a value\n  hint: -o FILE" },
        { FOR_PLAN, "-o=x", NULL, "unknown option '-o=x' of 'plan'" },
        { FOR_SEARCH, "--clutser", "x", "unknown option '--clutser' of 'search'\n  hint: did you mean --cluster?" },
        { FOR_SEARCH, "--cluster", NULL, "--cluster needs a value\n  hint: --cluster NAME|FILE.lua" },
        { FOR_SIMULATE, "--precision", "mxfp9", "expected one of fp32|bf16|mxfp8\n  hint: did you mean 'mxfp8'?" },
        { FOR_PLAN, "--precision", "mxfp8", "--precision is 'mxfp8', expected one of fp32|bf16" },
        { FOR_PLACE, "--layer", "1.5", "--layer is '1.5', expected a whole number" },
        { FOR_CALIBRATE, "--seconds", "0", "--seconds is 0, expected 0.001 to 3600 seconds" },
        { FOR_REPRODUCE, "--brief=yes", NULL, "--brief is 'yes', expected on or off" },
    };
    for (int i = 0; i < COUNT_OF(cases); i++)
        expect_failure(PARSE(cases[i].command, cases[i].a, cases[i].b), ERR_ARGUMENT,
                       cases[i].message);
}

static void record_reads_back(void **state) {
    (void)state;
    EXPECT_OK(PARSE(FOR_TRAIN, "--lr", "0.1234567890123456789", "--steps", "999999999999", "--data",
                    "x y", "z", "--schedule", "constant", "--tokens", "uint16", "--eps", "1e-30",
                    "--log-interval", "0"));
    json_t *record = options_record(options);
    assert_non_null(record);
    assert_null(json_object_get(record, "run.out"));     // not part of a record
    assert_null(json_object_get(record, "sample.length"));
    char *text = json_dumps(record, 0);
    json_decref(record);
    record = json_loads(text, 0, NULL);
    free(text);
    Options *other = options_create();
    EXPECT_OK(options_read_record(other, record, "record"));
    for (int i = 0; i < N_OPTIONS; i++) {
        Text a = { 0 }, b = { 0 };
        options_print(options, (OptionId)i, &a);
        options_print(other, (OptionId)i, &b);
        assert_string_equal(text_cstr(&a), text_cstr(&b));
        text_finish(&a);
        text_finish(&b);
    }
    assert_true(other->lr == options->lr);
    json_decref(record);
    options_destroy(other);
}

static void wrong_records(void **state) {
    (void)state;
    static const struct { const char *text; Status status; const char *message;
    } cases[] = {
        { "[]", ERR_FORMAT, "r: expected an object" },
        { "{\"optim.speed\": 1}", ERR_VERSION, "r: unknown option 'optim.speed'" },
        { "{\"sample.length\": 1}", ERR_VERSION, "r: unknown option 'sample.length'" },
        { "{\"optim.lr\": -1}", ERR_FORMAT, "r: optim.lr is -1, expected 0 to 1000" },
        { "{\"optim.lr\": [1]}", ERR_FORMAT, "r: optim.lr has a value of a wrong type" },
        { "{\"data.files\": [1]}", ERR_FORMAT,
          "r: data.files holds something that is not a file name" },
    };
    for (int i = 0; i < COUNT_OF(cases); i++) {
        json_t *record = json_loads(cases[i].text, 0, NULL);
        assert_non_null(record);
        expect_failure(options_read_record(options, record, "r"), cases[i].status,
                       cases[i].message);
        json_decref(record);
    }
}

// The text with one space for every run of spaces and line ends; no line is longer than 100 columns.
static char *unwrapped(const char *text) {
    char *out = arena_strdup(options->arena, text);
    size_t n = 0;
    for (const char *line = text; *line; line += strcspn(line, "\n") + 1)
        assert_true(strcspn(line, "\n") <= 100);
    for (const char *c = text; *c; c++) {
        bool space = *c == ' ' || *c == '\n';
        if (!space || (n && out[n - 1] != ' ')) out[n++] = space ? ' ' : *c;
    }
    out[n] = 0;
    return out;
}

// What only a spec decides is not offered where there is none.
static void help_without_a_spec(void **state) {
    (void)state;
    Text with = { 0 }, without = { 0 };
    options_help(FOR_TRAIN | FOR_SPEC, &with);
    options_help(FOR_TRAIN, &without);
    int n = 0;
    for (int i = 0; i < N_OPTIONS; i++) {
        char flag[64];
        snprintf(flag, sizeof flag, "  %s ", option_info[i].flag);
        if (!(option_info[i].commands & FOR_SPEC) || !(option_info[i].commands & FOR_TRAIN)) continue;
        assert_non_null(strstr(text_cstr(&with), flag));
        assert_null(strstr(text_cstr(&without), flag));
        n++;
    }
    assert_true(n > 3);
    assert_non_null(strstr(text_cstr(&without), "\n  --schedule cosine|linear|constant|wsd\n"));
    assert_non_null(strstr(text_cstr(&without), "  --steps STEPS       "));
    text_finish(&with);
    text_finish(&without);
}

static bool has_flag(int command, const char *flag) {
    for (int i = 0; i < N_OPTIONS; i++)
        if ((option_info[i].commands & command) && !strcmp(option_info[i].flag, flag)) return true;
    return false;
}

static void help_and_reference_have_every_row(void **state) {
    (void)state;
    Text reference = { 0 };
    options_reference(&reference);
    for (int command = FOR_TRAIN; command & FOR_COMMANDS; command *= 2) {
        Text help = { 0 };
        options_help(command | FOR_SPEC, &help);
        const char *text = unwrapped(text_cstr(&help));
        for (int i = 0; i < N_OPTIONS; i++) {
            char flag[64], path[64];
            snprintf(flag, sizeof flag, "  %s ", option_info[i].flag);
            snprintf(path, sizeof path, "| `%s` |", option_info[i].path);
            assert_non_null(strstr(reference.at, path));
            if (option_info[i].commands & command)
                assert_non_null(strstr(text, option_info[i].help));
            else if (!has_flag(command, option_info[i].flag))
                assert_null(strstr(help.at, flag));
        }
        text_finish(&help);
    }
    // The page in docs/ is this text. MOEC_UPDATE=1 writes it.
    static const char page[] = MOEC_SOURCE_DIR "/docs/options.md";
    Text whole = { 0 };
    text_printf(&whole,
                "# Options\n\nWritten from the option table, "
                "`runtime/train/options.h`, by `MOEC_UPDATE=1 ./dev test train.options`.\n\n%s",
                reference.at);
    if (getenv("MOEC_UPDATE")) write_file(page, whole.at, whole.bytes);
    size_t n;
    if (strcmp(read_whole(page, &n), whole.at))
        fail_msg("docs/options.md is old: MOEC_UPDATE=1 ./dev test train.options");
    text_finish(&whole);
    text_finish(&reference);
}

static void schedules(void **state) {
    (void)state;
    EXPECT_OK(PARSE(FOR_TRAIN, "--steps", "100", "--lr", "1", "--warmup", "10", "--min-lr", "0.1"));
    assert_true(schedule_lr(options, 0, 0) == 0.1);
    assert_true(schedule_lr(options, 4, 0) < schedule_lr(options, 9, 0));
    double half = schedule_lr(options, 50, 0), end = schedule_lr(options, 100, 0);
    assert_true(half > 0.549 && half < 0.551 && end > 0.0999 && end < 0.1001);
    EXPECT_OK(PARSE(FOR_TRAIN, "--schedule", "linear"));
    assert_true(schedule_lr(options, 50, 0) == 0.55);
    EXPECT_OK(PARSE(FOR_TRAIN, "--seconds", "10")); // whichever is further
    assert_true(schedule_progress(options, 50, 2) == 0.5 &&
                schedule_progress(options, 50, 7.5) == 0.75);
    assert_true(schedule_progress(options, 500, 0) == 1);
    EXPECT_OK(PARSE(FOR_TRAIN, "--schedule", "constant", "--warmup", "0"));
    assert_true(schedule_lr(options, 99, 9) == 1);
    // Warm-up, stable, then linear over the last quarter.
    EXPECT_OK(PARSE(FOR_TRAIN, "--set", "train.seconds=0", "--schedule", "wsd",
                    "--decay-fraction", "0.25", "--warmup", "4", "--min-lr", "0"));
    assert_true(schedule_lr(options, 1, 0) == 0.5 && schedule_lr(options, 3, 0) == 1);
    assert_true(schedule_lr(options, 40, 0) == 1 && schedule_lr(options, 75, 0) == 1);
    assert_true(fabs(schedule_lr(options, 80, 0) - 0.8) < 1e-12);
    assert_true(schedule_lr(options, 100, 0) == 0);
    EXPECT_OK(PARSE(FOR_TRAIN, "--min-lr", "0.5"));
    assert_true(schedule_lr(options, 100, 0) == 0.5);
    EXPECT_OK(PARSE(FOR_TRAIN, "--decay-fraction", "0")); // never falls
    assert_true(schedule_lr(options, 99, 0) == 1 && schedule_lr(options, 100, 0) == 1);
    EXPECT_OK(PARSE(FOR_TRAIN, "--decay-fraction", "1", "--min-lr", "0"));
    assert_true(schedule_lr(options, 25, 0) == 0.75);
    EXPECT_OK(PARSE(FOR_TRAIN, "--schedule", "constant", "--warmup", "0"));
    float scalars[N_SCALARS];
    int32_t bits[2];
    EXPECT_OK(PARSE(FOR_TRAIN, "--beta1", "0.5", "--beta2", "0.75", "--seed", "7"));
    schedule_scalars(options, 1, 0.25, 0, scalars);
    assert_true(scalars[SCALAR_correction1] == 0.75f && scalars[SCALAR_correction2] == 0.4375f);
    assert_true(scalars[SCALAR_inv_step] == 1); // no targets: never a division by zero
    memcpy(&bits[0], &scalars[SCALAR_step], 4);
    memcpy(&bits[1], &scalars[SCALAR_seed], 4);
    assert_true(bits[0] == 1 && bits[1] == 7);
}

static void peeks(void **state) {
    (void)state;
    static const struct { char *words[5]; double value; } cases[] = {
        { { "train" }, 8 },
        { { "train", "--deadline", "20" }, 20 },
        { { "train", "--deadline=20", "x.lua" }, 20 },
        { { "train", "--set", "train.deadline=20" }, 20 },
        { { "train", "--set=train.deadline=20" }, 20 },
        { { "train", "--deadline" }, 8 },
        { { "train", "--deadline", "soon" }, 8 },
        { { "train", "--deadline", "0" }, 8 }, // will be refused
        { { "train", "--deadlines=20", "--set", "train.deadlines=20" }, 8 },
        { { "train", "--", "--deadline", "20" }, 8 },
        { { "train", "--deadline=20", "--deadline=30" }, 30 },
    };
    for (int i = 0; i < COUNT_OF(cases); i++) {
        int n = 0;
        while (n < 5 && cases[i].words[n]) n++;
        assert_true(options_peek(OPT_deadline, n, (char **)cases[i].words) == cases[i].value);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(peeks),
#define TEST(name) cmocka_unit_test_setup_teardown(name, make, drop)
        TEST(rows_are_sound), TEST(flags_and_words), TEST(every_wrong_use), TEST(record_reads_back),
        TEST(wrong_records), TEST(help_and_reference_have_every_row), TEST(help_without_a_spec),
        TEST(schedules),
    };
    return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
