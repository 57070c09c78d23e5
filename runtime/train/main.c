// SPDX-License-Identifier: Apache-2.0
// `moec-run`: runs saved plans without the compiler. `moec`'s code, from the plan on.
#include <errno.h>
#include <signal.h>
#include <stdio.h>

#include "runtime/train/train.h"

static const struct {
    const char *name;
    Status (*run)(int argc, char **argv);
    int options;
    const char *help;
} commands[] = {
    { "resume", command_resume, FOR_RESUME,
      "moec-run resume RUN: continue a run from its newest checkpoint" },
    { "eval", command_eval, FOR_EVAL, "moec-run eval RUN: held-out loss of its newest checkpoint" },
    { "sample", command_sample, FOR_SAMPLE,
      "moec-run sample RUN: generate from its newest checkpoint" },
};

static void print_help(const char *usage, int options) {
    Text text = { 0 };
    text_printf(&text, "%s\n\n", usage);
    options_help(options, &text);
    fputs(text_cstr(&text), stdout);
    text_finish(&text);
}

static void print_usage(void) {
    print_help("moec-run PLAN [SAMPLE-PLAN] --data FILE... --out RUN [--steps N] [--seconds S]: "
               "train a saved plan\n"
               "moec-run resume RUN · moec-run eval RUN · moec-run sample RUN: each has its "
               "--help",
               FOR_TRAIN);
}

static Status train_plans(const char *const *words, int n, Options *options) {
    if (n < 1 || n > 2)
        return status_fail(ERR_ARGUMENT, "expected PLAN [SAMPLE-PLAN], found %d words", n);
    for (int i = 0; i < N_OPTIONS; i++)
        if ((option_info[i].commands & FOR_SPEC) && options->given[i])
            return status_fail(ERR_ARGUMENT,
                               "%s is decided by the plan\n  hint: 'moec plan --help' has what a "
                               "plan is made with",
                               option_info[i].flag);
    if (!options->out[0])
        return status_fail(ERR_ARGUMENT, "no place for the run\n  hint: --out FOLDER");
    Plan *plans[2] = { 0 };
    Status status = OK;
    for (int i = 0; i < n && status == OK; i++) status = plan_read(words[i], 0, &plans[i]);
    RunSource source = { .plan = plans[0], .sample_plan = plans[1] };
    if (status == OK) status = command_train(&source, options);
    plan_destroy(plans[0]);
    plan_destroy(plans[1]);
    return status;
}

static Status train(int argc, char **argv) {
    Options *options = options_create();
    const char **words = ARENA_ARRAY(options->arena, const char *, argc);
    int n;
    Status status = options_parse(options, FOR_TRAIN, argc, argv, words, &n);
    if (status == OK) status = train_plans(words, n, options);
    options_destroy(options);
    return status;
}

static Status run(int argc, char **argv) {
    for (int i = 0; i < COUNT_OF(commands); i++)
        if (!strcmp(argv[1], commands[i].name)) return commands[i].run(argc - 1, argv + 1);
    return train(argc, argv);
}

typedef struct Call {
    int argc;
    char **argv;
} Call;

static Status run_call(void *call) {
    return run(((Call *)call)->argc, ((Call *)call)->argv);
}

static int run_command(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "--version")) {
        printf("moec-run %s\n", MOEC_VERSION);
        return 0;
    }
    for (int i = 1; i < argc && strcmp(argv[i], "--"); i++) {
        if (strcmp(argv[i], "--help") && strcmp(argv[i], "-h")) continue;
        for (int k = 0; k < COUNT_OF(commands); k++)
            if (!strcmp(argv[1], commands[k].name)) {
                print_help(commands[k].help, commands[k].options);
                return 0;
            }
        print_usage();
        return 0;
    }
    if (argc < 2) {
        print_usage();
        return 2;
    }
    Call call = { argc, argv };
    Status status = memory_guard(run_call, &call);
    if (status != OK) {
        fprintf(stderr, "moec-run: error: %s\n", status_message());
        log_debug("%s", status_trail_text());
    }
    return status_exit(status);
}

int main(int argc, char **argv) {
    json_from_memory();
    file_hold_standard();
    signal(SIGXFSZ, SIG_IGN); // a file that may not grow is an error of its write
    int result = run_command(argc, argv);
    if ((fflush(stdout) == 0 && !ferror(stdout)) || result) return result;
    fprintf(stderr, "moec-run: error: the standard output cannot be written: %s\n",
            strerror(errno));
    return 1;
}
