// SPDX-License-Identifier: Apache-2.0
// The commands that need no compiler, shared by `moec` and `moec-run`: they print, so they are the
// edge of this room.
#include <ctype.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/train/train.h"

static void on_signal(int signal_number) {
    (void)signal_number;
    train_stop();
}

// The first SIGINT or SIGTERM ends the work in order, a second one at once. A terminal that closes
// may send SIGHUP twice; nohup had it ignored, and it stays so.
static void catch_signals(void) {
    struct sigaction action = { .sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND };
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    struct sigaction hangup;
    if (sigaction(SIGHUP, NULL, &hangup) < 0 || hangup.sa_handler == SIG_IGN) return;
    action.sa_flags = (int)SA_RESTART;
    sigaction(SIGHUP, &action, NULL);
}

// Training goes on when nobody reads what it prints any more.
static void catch_signals_of_training(void) {
    catch_signals();
    signal(SIGPIPE, SIG_IGN);
}

// A run is resumed from any folder, so it remembers where its data are.
static void make_absolute(Arena *arena, OptionFiles *files) {
    const char **at = ARENA_ARRAY(arena, const char *, files->n + 1);
    for (int i = 0; i < files->n; i++) {
        char path[PATH_MAX];
        at[i] = realpath(files->at[i], path) ? arena_strdup(arena, path) : files->at[i];
    }
    files->at = at;
}

Status command_train(const RunSource *source, Options *options) {
    TRY(schedule_check(options));
    catch_signals_of_training();
    TRY(memory_check(source->plan, memory_available()));
    if (!options->given[OPT_device]) // the record says where it ran
        TRY(options_set(options, OPT_device, "--device", exec_usual_device(source->plan->target)));
    TRY(exec_fits(options->device, source->plan->target));
    make_absolute(options->arena, &options->data);
    make_absolute(options->arena, &options->eval_data);
    // What is wrong with the data should show before there is a folder.
    TrainJob job = { .plan = source->plan,
                     .options = options,
                     .run = options->out,
                     .progress = stderr,
                     .results = stdout };
    TRY(train_open_data(options, source->plan, &job.data));
    Status status = run_create(options->out, source, options);
    if (status == OK) return train_run(&job);
    data_close(job.data);
    return status;
}

// Options of the run that argv[..] names, then those of the command line on top.
static Status parse_run(int command, int argc, char **argv, Options *options, const char **run) {
    const char **words = ARENA_ARRAY(options->arena, const char *, argc + 1);
    int n;
    TRY(options_parse(options, command, argc, argv, words, &n));
    if (!n)
        return status_fail(ERR_ARGUMENT,
                           "no RUN given\n  hint: the folder that 'moec train --out' made");
    if (n > 1)
        return status_fail(ERR_ARGUMENT, "one RUN expected, found '%s' and '%s'", words[0],
                           words[1]);
    *run = words[0];
    TRY(run_read_options(*run, options, NULL));
    // Again: the command line wins over the record.
    return options_parse(options, command, argc, argv, words, &n);
}

static Status with_options(Status (*body)(Options *options, const char *run), int command, int argc,
                           char **argv) {
    Options *options = options_create();
    const char *run = NULL;
    Status status = parse_run(command, argc, argv, options, &run);
    if (status == OK) {
        catch_signals();
        status = body(options, run);
    }
    options_destroy(options);
    return status;
}

/* resume --------------------------------------------------------------------------------------- */

static Status resume(Options *options, const char *run) {
    catch_signals_of_training();
    Plan *plan = NULL;
    TRY(run_read_plan(run, 0, &plan));
    TrainJob job = { .plan = plan,
                     .options = options,
                     .run = run,
                     .resume = true,
                     .progress = stderr,
                     .results = stdout };
    Status status = train_run(&job);
    plan_destroy(plan);
    return status;
}

Status command_resume(int argc, char **argv) {
    return with_options(resume, FOR_RESUME, argc, argv);
}

/* eval and sample: a plan with a checkpoint's weights ------------------------------------------ */

typedef struct Session {
    Plan *plan;
    Exec *exec;
    Arena *arena;
    Progress progress;
} Session;

static void session_close(Session *session) {
    exec_destroy(session->exec);
    plan_destroy(session->plan);
    arena_destroy(session->arena);
}

static Status session_open(const Options *options, const char *run, bool for_sample, Session *out) {
    *out = (Session) { .arena = arena_create() };
    progress_start(&out->progress, options->quiet ? NULL : stderr, 10);
    TRY(for_sample ? run_read_sample_plan(run, &out->plan) : run_read_plan(run, 0, &out->plan));
    if (for_sample && !plan_program(out->plan, "prefill"))
        return status_fail(ERR_INPUT,
                           "%s has no plan with a program 'prefill', which sampling runs\n  hint: "
                           "'moec train' writes it to %s/plan-sample.txt; moec-run takes it as "
                           "SAMPLE-PLAN",
                           run, run);
    bool any;
    TRY(checkpoint_any(run, &any));
    if (!any)
        return status_fail(ERR_INPUT,
                           "%s holds no checkpoint\n  hint: 'moec resume %s' trains it", run, run);
    ExecOptions exec = { .device = train_device(options),
                         .threads = (int)options->threads,
                         .graph = options->graph,
                         .progress = progress_compile,
                         .user = &out->progress };
    Status status = exec_create(out->plan, &exec, &out->exec);
    if (train_stopping())
        return status_fail(ERR_INTERRUPTED, "interrupted while the kernels were compiled\n"
                                            "  hint: the same command starts again");
    TRY(status);
    TrainMemory memory = { .weights = exec_region(out->exec, REGION_weights),
                           .master = exec_region(out->exec, REGION_master),
                           .comm = exec_host(out->exec) };
    CheckpointInfo info;
    TRY(checkpoint_load(run, out->arena, out->plan, &memory, &info));
    json_decref(info.manifest);
    TRY(exec_upload(out->exec, REGION_weights));
    TRY(exec_upload(out->exec, REGION_master));
    TRY(exec_pack(out->exec));
    progress_say(&out->progress, "%s, %s", out->plan->model, info.name);
    return OK;
}

static Status eval_with(const Options *options, Session *session) {
    Options only = *options;
    bool other = options->eval_data.n > 0;
    if (other) { // these files whole, and no training data
        only.data = options->eval_data;
        only.eval_data = (OptionFiles) { 0 };
        only.held_out = 0;
    }
    Data *data;
    TRY(train_open_data(&only, session->plan, &data));
    EvalResult result;
    Status status = eval_run(session->exec, session->plan, other ? &data->train : &data->held_out,
                             0, &session->progress, &result);
    if (status == OK) {
        Text text = { 0 };
        if (options->quiet) text_printf(&text, "%.4f", eval_bits(&result));
        else eval_print(&result, options->tokens == TOKENS_BYTES, &text);
        progress_say(&session->progress, "evaluated");
        printf("%s\n", text_cstr(&text));
        text_finish(&text);
    }
    data_close(data);
    return status;
}

static Status eval(Options *options, const char *run) {
    Session session;
    Status status = session_open(options, run, false, &session);
    if (status == OK) status = eval_with(options, &session);
    session_close(&session);
    return status;
}

Status command_eval(int argc, char **argv) {
    return with_options(eval, FOR_EVAL, argc, argv);
}

typedef struct Printer { bool bytes, terminal; } Printer;

static Status print_token(void *user, int32_t token) {
    const Printer *printer = user;
    bool odd = token < 0x20 && token != '\n' && token != '\t';
    int result = !printer->bytes ? printf("%d ", token)
                 : printer->terminal && (odd || token == 0x7f)
                     ? printf("\\x%02x", token) // not the terminal's to obey
                     : putchar(token);
    return result < 0 || fflush(stdout) ? status_fail(ERR_IO, "cannot write to stdout") : OK;
}

static Status sample_with(const Options *options, Session *session) {
    bool bytes = options->tokens == TOKENS_BYTES;
    size_t n = strlen(options->prompt);
    if (n && !bytes)
        return status_fail(ERR_ARGUMENT,
                           "--prompt needs a model of bytes; this run's data are token ids");
    int32_t *prompt = ARENA_ARRAY(session->arena, int32_t, n + 1);
    for (size_t i = 0; i < n; i++) prompt[i] = (unsigned char)options->prompt[i];
    Printer printer = { bytes, isatty(STDOUT_FILENO) };
    SampleOptions sample = { prompt,          (int64_t)n,
                             options->length, options->temperature,
                             options->top_p,  (uint64_t)options->sample_seed,
                             print_token,     &printer };
    fputs(options->prompt, stdout);
    Status status = sample_run(session->exec, session->plan, &sample);
    putchar('\n');
    return status;
}

static Status sample(Options *options, const char *run) {
    Session session;
    Status status = session_open(options, run, true, &session);
    if (status == OK) status = sample_with(options, &session);
    session_close(&session);
    return status;
}

Status command_sample(int argc, char **argv) {
    return with_options(sample, FOR_SAMPLE, argc, argv);
}
