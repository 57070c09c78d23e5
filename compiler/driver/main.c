// SPDX-License-Identifier: Apache-2.0
// `moec COMMAND ...`: finds the subcommand, answers --help and --version.
#include <errno.h>
#include <signal.h>
#include <stdio.h>

#include "compiler/driver/driver.h"
#include "compiler/layout/layout.h"
#include "runtime/train/checkpoint.h"
#include "runtime/train/options.h"

static const struct {
    const char *name, *arguments, *summary;
    int options; // FOR_
    int (*run)(int argc, char **argv);
} commands[] = {
#define X(name, NAME, arguments, summary) { #name, arguments, summary, FOR_##NAME, cmd_##name },
    DRIVER_COMMANDS(X)
#undef X
};

static void print_usage(FILE *out) {
    fprintf(out, "moec %s: compiles and trains Mixture-of-Experts models\n\n", MOEC_VERSION);
    for (int i = 0; i < COUNT_OF(commands); i++)
        fprintf(out, "  moec %-7s %s\n               %s\n", commands[i].name, commands[i].arguments,
                commands[i].summary);
    fprintf(out, "\n  moec COMMAND --help   options of a command\n  moec --version\n");
}

static int print_help(int command) {
    printf("moec %s %s\n%s\n", commands[command].name, commands[command].arguments,
           commands[command].summary);
    Text text = { 0 };
    int options = commands[command].options;
    options_help(options & (FOR_EVAL | FOR_SAMPLE) ? options : options | FOR_SPEC, &text);
    if (strstr(text_cstr(&text), "--layout")) {
        text_add(&text, "\nfields of a layout, commas between (docs/layouts.md)\n");
        layout_help(&text);
    }
    bool of_run = options & (FOR_RESUME | FOR_EVAL);
    printf("\noptions [%s]\n",
           of_run ? "defaults of a new run; what is not given stays as this run has it" : "defaults");
    driver_print(text_cstr(&text));
    text_finish(&text);
    return 0;
}

static int unknown_command(const char *name) {
    const char *names[COUNT_OF(commands)];
    for (int i = 0; i < COUNT_OF(commands); i++) names[i] = commands[i].name;
    const char *near = text_nearest(name, names, COUNT_OF(commands));
    if (near)
        status_fail(ERR_ARGUMENT, "unknown command '%s'\n  hint: did you mean 'moec %s'?", name,
                    near);
    else status_fail(ERR_ARGUMENT, "unknown command '%s'\n  hint: 'moec --help' lists them", name);
    return driver_fail(ERR_ARGUMENT);
}

static int unexpected_word(const char *after, const char *word) {
    return driver_fail(status_fail(ERR_ARGUMENT, "unexpected '%s' after %s", word, after));
}

static int find_command(const char *name) {
    for (int i = 0; i < COUNT_OF(commands); i++)
        if (!strcmp(commands[i].name, name)) return i;
    return -1;
}

static int run(int argc, char **argv) {
    if (argc < 2) {
        print_usage(stderr);
        return 2;
    }
    bool version = !strcmp(argv[1], "--version"), named = !strcmp(argv[1], "help");
    if (version || named || !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
        if (argc > 2 + named) return unexpected_word(argv[1], argv[2 + named]);
        if (version) {
            printf("moec %s\n", MOEC_VERSION);
            return 0;
        }
        if (argc > 2) {
            int command = find_command(argv[2]);
            return command < 0 ? unknown_command(argv[2]) : print_help(command);
        }
        print_usage(stdout);
        return 0;
    }
    int command = find_command(argv[1]);
    if (command < 0) return unknown_command(argv[1]);
    for (int i = 2; i < argc && strcmp(argv[i], "--"); i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) return print_help(command);
    return commands[command].run(argc - 1, argv + 1);
}

typedef struct Call {
    int argc;
    char **argv;
    int result;
} Call;

static Status run_call(void *user) {
    Call *call = user;
    call->result = run(call->argc, call->argv);
    return OK;
}

int main(int argc, char **argv) {
    Call call = { argc, argv, 0 };
    json_from_memory();
    file_hold_standard();
    signal(SIGXFSZ, SIG_IGN); // a file that may not grow is an error of its write
    int result = memory_guard(run_call, &call) == OK ? call.result : driver_fail(ERR_MEMORY);
    if ((fflush(stdout) == 0 && !ferror(stdout)) || result) return result;
    return driver_fail(status_fail(ERR_IO, "the standard output cannot be written: %s",
                                   strerror(errno)));
}
