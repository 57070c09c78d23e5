// SPDX-License-Identifier: Apache-2.0
// `moec-run`: runs saved plans without the compiler. `moec`'s code, from the plan on.
#include <errno.h>
#include <signal.h>
#include <stdio.h>

#include "runtime/train/train.h"

static const struct {
    const char *name;
    Status (*run)(Command *command, int argc, char **argv);
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

static Status check_words(int n, const Options *options) {
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
    return OK;
}

static Status train_plans(const Command *command, const char *const *words, int n, Options *options) {
    Plan *plans[2] = { 0 };
    Status status = plan_read_rank(words[0], command->comm, &plans[0]);
    if (status == OK && n > 1) status = plan_read(words[1], 0, &plans[1]);
    RunSource source = { .plan = plans[0], .sample_plan = plans[1] };
    status = comm_agree(command->comm, status);
    if (status == OK) status = command_train(command, &source, options);
    plan_destroy(plans[0]);
    plan_destroy(plans[1]);
    return status;
}

static Status train(Command *command, int argc, char **argv) {
    Options *options = options_create();
    const char **words = ARENA_ARRAY(options->arena, const char *, argc);
    int n;
    Status status = options_parse(options, FOR_TRAIN, argc, argv, words, &n);
    if (status == OK) status = check_words(n, options);
    status = comm_agree(command->comm, status);
    if (status == OK) status = train_plans(command, words, n, options);
    options_destroy(options);
    return status;
}

static int run(int argc, char **argv) {
    for (int i = 0; i < COUNT_OF(commands); i++)
        if (!strcmp(argv[1], commands[i].name))
            return command_on_ranks("moec-run", commands[i].run, NULL, argc - 1, argv + 1);
    return command_on_ranks("moec-run", train, NULL, argc, argv);
}

typedef struct Call {
    int argc, result;
    char **argv;
} Call;

static Status run_call(void *user) {
    Call *call = user;
    call->result = run(call->argc, call->argv);
    return OK;
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
    Call call = { argc, 0, argv };
    Status status = memory_guard(run_call, &call);
    if (status == OK) return call.result;
    fprintf(stderr, "%smoec-run: error: %s\n", log_prefix(), status_message());
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
