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

// Training goes on when nobody reads what it prints any more. Launchers pass SIGUSR1 on to ranks, and
// leave them the time to save.
static void catch_signals_of_training(void) {
    catch_signals();
    struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
    sigemptyset(&action.sa_mask);
    sigaction(SIGUSR1, &action, NULL);
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

/* Ranks ---------------------------------------------------------------------------------------- */

// All ranks fail alike where they agreed; what befell one alone the others hear through `comm_fail`.
static int end(const Command *command, const char *program, Status status) {
    if (status == OK) return 0;
    if (comm_tells(command->comm, status)) {
        bool printed = command->bare && command->comm->n_ranks == 1;
        if (printed) return status_exit(status);
        if (command->bare) fprintf(stderr, "%s%s", log_prefix(), status_message());
        else fprintf(stderr, "%s%s: error: %s\n", log_prefix(), program, status_message());
        log_debug("%s", status_trail_text());
    }
    if (status != ERR_RANK && !comm_agreed()) comm_fail(command->comm, status_message());
    return status_exit(status);
}

int command_on_ranks(const char *program, Status (*body)(Command *command, int argc, char **argv),
                PlanAgain plan_again, int argc, char **argv) {
    Command command = { .plan_again = plan_again };
    // The others are parsed when ranks can agree on what is wrong with them.
    double deadline = options_peek(OPT_deadline, argc, argv);
    Guard *guard = guard_start(program, deadline);
    Status status = comm_open(&(CommOptions){ .deadline = deadline }, &command.comm);
    if (status != OK) {
        guard_stop(guard);
        return end(&command, program, status);
    }
    guard_open(guard, command.comm);
    log_rank(command.comm->rank);
    PlanMesh flat = { .size = { [AXIS_pp] = 1, [AXIS_edp] = command.comm->n_ranks, [AXIS_ep] = 1 } };
    status = comm_mesh(command.comm, &flat); // before any plan is known
    if (status == OK) status = body(&command, argc, argv);
    int result = end(&command, program, status);
    guard_close(guard, result);
    comm_close(command.comm);
    guard_stop(guard);
    return result;
}

/* train ---------------------------------------------------------------------------------------- */

static Status before_train(const RunSource *source, Options *options, Data **data) {
    TRY(schedule_check(options));
    TRY(memory_check(source->plan, memory_available()));
    if (!options->given[OPT_device]) // the record says where it ran
        TRY(options_set(options, OPT_device, "--device", exec_usual_device(source->plan->target)));
    TRY(exec_fits(options->device, source->plan->target));
    make_absolute(options->arena, &options->data);
    make_absolute(options->arena, &options->eval_data);
    // What is wrong with the data should show before there is a folder.
    return train_open_data(options, source->plan, data);
}

static Status make_run(Comm *comm, RunSource *source, const Options *options) {
    if (plan_ranks(source->plan) > 1) TRY(run_plans(comm, source->plan, options->arena, &source->plans));
    return comm_agree(comm, comm->rank ? OK : run_create(options->out, source, options));
}

// A run that is refused before its first step (its device is not there, a kernel does not compile) leaves
// nothing. What was interrupted can be resumed, and where ranks are gone the folder has the report.
static bool leaves_nothing(const Comm *comm, Status status, bool refused) {
    if (!refused || status == ERR_RANK || status == ERR_INTERRUPTED) return false;
    return comm->n_ranks == 1 || comm_agreed();
}

Status command_train(const Command *command, RunSource *source, Options *options) {
    bool refused = false;
    Comm *comm = command->comm;
    catch_signals_of_training();
    TRY(comm_agree(comm, comm_mesh(comm, &source->plan->mesh)));
    TrainJob job = { .plan = source->plan,
                     .options = options,
                     .run = options->out,
                     .comm = comm,
                     .progress = stderr,
                     .results = stdout,
                     .refused = &refused };
    Status status = comm_agree(comm, before_train(source, options, &job.data));
    RunBefore before = run_before(options->out);
    if (status == OK) status = make_run(comm, source, options);
    if (status != OK) {
        data_close(job.data);
        return status;
    }
    status = train_run(&job);
    if (leaves_nothing(comm, status, refused)) run_forget(options->out, source, &before);
    return status;
}

/* A run that is there -------------------------------------------------------------------------- */

typedef struct Call {
    Command *command;
    Options *options;
    const char *run;
    bool layout; // one was given to this command
} Call;

// Options of the run that argv[..] names, then those of the command line on top.
static Status parse_run(int command, int argc, char **argv, Call *call) {
    Options *options = call->options;
    const char **words = ARENA_ARRAY(options->arena, const char *, argc + 1);
    int n;
    TRY(options_parse(options, command, argc, argv, words, &n));
    if (!n)
        return status_fail(ERR_ARGUMENT,
                           "no RUN given\n  hint: the folder that 'moec train --out' made");
    if (n > 1)
        return status_fail(ERR_ARGUMENT, "one RUN expected, found '%s' and '%s'", words[0],
                           words[1]);
    call->run = words[0];
    call->layout = options->given[OPT_layout];
    TRY(run_read_options(call->run, options, NULL));
    // Again: the command line wins over the record.
    return options_parse(options, command, argc, argv, words, &n);
}

static Status with_options(Status (*body)(const Call *call), Command *command, int option_command,
                           int argc, char **argv) {
    Call call = { .command = command, .options = options_create() };
    Status status = comm_agree(command->comm, parse_run(option_command, argc, argv, &call));
    if (status == OK) {
        catch_signals();
        status = body(&call);
    }
    options_destroy(call.options);
    return status;
}

static Status other_ranks(const Call *call, const Plan *plan, const char *what) {
    int32_t has = plan_ranks(plan), found = call->command->comm->n_ranks;
    return status_fail(ERR_ARGUMENT,
                       "the plan of %s is for %d rank%s, %d %s started\n  hint: mpirun -n %d moec %s %s"
                       "%s%s",
                       call->run, has, has == 1 ? "" : "s", found, found == 1 ? "was" : "were", has, what,
                       call->run, call->command->plan_again ? ", or --layout for " : "",
                       !call->command->plan_again ? ""
                       : found == 1               ? "one rank: --layout dp=1"
                                                  : "as many as were started");
}

/* resume --------------------------------------------------------------------------------------- */

static Status plan_of_resume(const Call *call, Plan **out) {
    PlanAgain again = call->command->plan_again;
    if (call->layout && again) return again(call->command, call->run, call->options, false, out);
    TRY(run_read_plan(call->run, call->command->comm, out));
    if (call->layout)
        return status_fail(ERR_ARGUMENT, "--layout needs the compiler\n  hint: 'moec resume %s' has it",
                           call->run);
    return plan_ranks(*out) == call->command->comm->n_ranks ? OK : other_ranks(call, *out, "resume");
}

static Status resume_with(const Call *call, const Plan *plan) {
    Comm *comm = call->command->comm;
    TrainJob job = { .plan = plan,
                     .options = call->options,
                     .run = call->run,
                     .resume = true,
                     .comm = comm,
                     .progress = stderr,
                     .results = stdout };
    TRY(comm_agree(comm, comm_mesh(comm, &plan->mesh)));
    if (call->layout) TRY(run_plans(comm, plan, call->options->arena, &job.plans));
    return train_run(&job);
}

static Status resume(const Call *call) {
    catch_signals_of_training();
    Plan *plan = NULL;
    Status status = comm_agree(call->command->comm, plan_of_resume(call, &plan));
    if (status == OK) status = resume_with(call, plan);
    plan_destroy(plan);
    return status;
}

Status command_resume(Command *command, int argc, char **argv) {
    return with_options(resume, command, FOR_RESUME, argc, argv);
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

static Status plan_of_sample(const Call *call, Plan **out) {
    if (call->command->comm->n_ranks > 1)
        return status_fail(ERR_ARGUMENT, "sampling runs on one rank, %d were started\n"
                           "  hint: moec sample %s, without a launcher",
                           call->command->comm->n_ranks, call->run);
    TRY(run_read_sample_plan(call->run, out));
    if (plan_program(*out, "prefill")) return OK;
    return status_fail(ERR_INPUT,
                       "%s has no plan with a program 'prefill', which sampling runs\n  hint: "
                       "'moec train' writes it to %s/plan-sample.txt; moec-run takes it as "
                       "SAMPLE-PLAN",
                       call->run, call->run);
}

// On one rank the weights of any layout can be evaluated.
static Status plan_of_eval(const Call *call, Plan **out) {
    PlanAgain again = call->command->plan_again;
    int n = call->command->comm->n_ranks;
    TRY(run_read_plan(call->run, call->command->comm, out));
    if (plan_ranks(*out) == n) return OK;
    if (n > 1 || !again) return other_ranks(call, *out, "eval");
    plan_destroy(*out);
    *out = NULL;
    return again(call->command, call->run, call->options, true, out);
}

static Status load_weights(const Call *call, Session *session) {
    TrainMemory memory = { .weights = exec_region(session->exec, REGION_weights),
                           .master = exec_region(session->exec, REGION_master),
                           .comm = call->command->comm };
    CheckpointInfo info;
    TRY(checkpoint_load(call->run, session->arena, session->plan, &memory, &info));
    json_decref(info.manifest);
    TRY(exec_upload(session->exec, REGION_weights));
    TRY(exec_upload(session->exec, REGION_master));
    TRY(exec_pack(session->exec));
    progress_say(&session->progress, "%s, %s", session->plan->model, info.name);
    return OK;
}

static Status session_open(const Call *call, bool for_sample, Session *out) {
    const Options *options = call->options;
    Comm *comm = call->command->comm;
    *out = (Session) { .arena = arena_create() };
    progress_start(&out->progress, options->quiet || comm->rank ? NULL : stderr, 10);
    TRY(comm_agree(comm, for_sample ? plan_of_sample(call, &out->plan) : plan_of_eval(call, &out->plan)));
    TRY(comm_agree(comm, comm_mesh(comm, &out->plan->mesh)));
    bool any = false;
    TRY(comm_agree(comm, checkpoint_any(call->run, &any)));
    TRY(comm_first(comm, &any, sizeof any));
    if (!any)
        return comm_agree(comm, status_fail(ERR_INPUT,
                                            "%s holds no checkpoint\n  hint: 'moec resume %s' trains it",
                                            call->run, call->run));
    ExecOptions exec = { .device = train_device(options),
                         .threads = (int)options->threads,
                         .comm = comm,
                         .graph = options->graph,
                         .progress = progress_compile,
                         .user = &out->progress };
    Status status = exec_create(out->plan, &exec, &out->exec);
    if (status == ERR_RANK) return status;
    int64_t stopping = train_stopping();
    TRY(comm_sum(comm, GROUP_world, &stopping, 1));
    if (stopping)
        status = status_fail(ERR_INTERRUPTED, "interrupted while the kernels were compiled\n"
                                              "  hint: the same command starts again");
    TRY(comm_agree(comm, status));
    return load_weights(call, out);
}

static Status eval_with(const Call *call, Session *session) {
    const Options *options = call->options;
    Comm *comm = call->command->comm;
    Options only = *options;
    bool other = options->eval_data.n > 0;
    if (other) { // these files whole, and no training data
        only.data = options->eval_data;
        only.eval_data = (OptionFiles) { 0 };
        only.held_out = 0;
    }
    Data *data = NULL;
    Status opened = comm_agree(comm, train_open_data(&only, session->plan, &data));
    if (opened != OK) data_close(data);
    TRY(opened);
    EvalResult result;
    Status status = eval_run(session->exec, session->plan, other ? &data->train : &data->held_out,
                             0, &session->progress, &result);
    if (status == OK && comm->rank == 0) {
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

static Status eval(const Call *call) {
    Session session;
    Status status = session_open(call, false, &session);
    if (status == OK) status = eval_with(call, &session);
    session_close(&session);
    return status;
}

Status command_eval(Command *command, int argc, char **argv) {
    return with_options(eval, command, FOR_EVAL, argc, argv);
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

static Status sample(const Call *call) {
    Session session;
    Status status = session_open(call, true, &session);
    if (status == OK) status = sample_with(call->options, &session);
    session_close(&session);
    return status;
}

Status command_sample(Command *command, int argc, char **argv) {
    return with_options(sample, command, FOR_SAMPLE, argc, argv);
}
