// SPDX-License-Identifier: Apache-2.0
// The training run: open data, compile, start or resume, then step by step until the budget is
// spent.
//
// A step reads `sample` .. `sample + sequences`, sets the step's scalars, runs the program, and
// writes one line of metrics. What is kept between steps is the memory of the plan's weights and
// moments and the TrainState; both are in a checkpoint, so resuming repeats the same bits.
//
// Every rank runs this, with the plan of its stage. TrainStates are equal: all that differs by rank and
// decides something (targets, the clock, signals) they tell each other before each step. Files are
// rank 0's.
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/train/train.h"

enum { SKIPS_BEFORE_FAILURE = 20 };

static volatile sig_atomic_t stop_asked;

void train_stop(void) {
    stop_asked = 1;
}

bool train_stopping(void) {
    return stop_asked != 0;
}

typedef struct Trainer {
    const TrainJob *job;
    const Options *options;
    const Plan *plan;
    const PlanProgram *program;
    Arena *arena;
    Data *data;
    Comm *comm, *own_comm;       // own: made here, of one rank
    Exec *exec;
    Progress progress;
    TrainMemory memory;
    TrainState state;
    int64_t *sequences, n_sequences; // of this rank
    int64_t all_sequences, tokens_per_step; // of all
    int64_t targets;             // of the next step, of all
    int64_t others;              // bytes of this machine's other ranks
    bool stopped;                // some rank was asked to end
    Status trouble;              // of this rank in the last step, if the others do not know of it
    StepTrace trace;
    MetricSet metrics;
    int main_loss;               // of them
    Journal journal;             // rank 0's
    OptimGroup *groups; int n_groups;
    double flops;                // of a token, 0: unknown
    json_t *extra;               // into every manifest
    int lock;
    Held locked;
    int64_t skips;               // in a row
    double loss, grad_norm;      // of the last step
    double step_seconds;         // smoothed
    int64_t saved;               // step of the last checkpoint, -1: none
} Trainer;

/* Starting ------------------------------------------------------------------------------------- */

Status train_open_data(const Options *options, const Plan *plan, Data **out) {
    DataOptions data = {
        .files = options->data.at, .n_files = options->data.n,
        .eval_files = options->eval_data.at, .n_eval_files = options->eval_data.n,
        .item = 1 << options->tokens, .eos = options->eos, .held_out = options->held_out,
        .sequence = plan->sequence, .vocab = plan->vocab,
    };
    return data_open(&data, out);
}

TrainMemory train_memory(const Exec *exec) {
    return (TrainMemory) { exec_region(exec, REGION_weights), exec_region(exec, REGION_moment1),
                           exec_region(exec, REGION_moment2), exec_region(exec, REGION_master),
                           exec_host(exec) };
}

static const Region kept[] = { REGION_weights, REGION_moment1, REGION_moment2, REGION_master };

Status train_download(Exec *exec) {
    for (int i = 0; i < COUNT_OF(kept); i++) TRY(exec_download(exec, kept[i]));
    return OK;
}

Status train_upload(Exec *exec) {
    for (int i = 0; i < COUNT_OF(kept); i++) TRY(exec_upload(exec, kept[i]));
    return exec_pack(exec);
}

const char *train_device(const Options *options) {
    return options->given[OPT_device] ? options->device : NULL;
}

static json_t *data_record(const Data *data) {
    json_t *files = json_array();
    for (int i = 0; files && i < data->n_files; i++) {
        char hex[33];
        hash_hex(data->files[i].hash, hex);
        json_array_append_new(files,
                              json_pack("{s:s, s:I, s:s}", "path", data->files[i].path, "bytes",
                                        (json_int_t)data->files[i].bytes, "hash", hex));
    }
    return files;
}

// The data a run resumes on must be the data it started on: content, not names.
static Status same_data(const Data *data, const json_t *manifest) {
    const json_t *files = json_object_get(json_object_get(manifest, "data"), "files");
    if ((int)json_array_size(files) != data->n_files)
        return status_fail(ERR_INPUT,
                           "the checkpoint was made with %d data files, the run now has %d",
                           (int)json_array_size(files), data->n_files);
    for (int i = 0; i < data->n_files; i++) {
        char hex[33];
        hash_hex(data->files[i].hash, hex);
        const char *hash =
            json_string_value(json_object_get(json_array_get(files, (size_t)i), "hash"));
        if (!hash || strcmp(hash, hex))
            return status_fail(
                ERR_INPUT,
                "the data file %s has changed since the checkpoint was made\n  hint: resume "
                "needs the same bytes; start another run for other data",
                data->files[i].path);
    }
    return OK;
}

static Status restore(Trainer *t) {
    CheckpointInfo info;
    TRY(checkpoint_load(t->job->run, t->arena, t->plan, &t->memory, &info));
    TRY(train_upload(t->exec));
    Status status = same_data(t->data, info.manifest);
    json_decref(info.manifest);
    TRY(status);
    t->state = info.state;
    t->saved = info.state.step;
    if (!hash_equal(info.plan, plan_hash(t->plan)))
        progress_say(&t->progress, "note: %s was written by another plan; bits may differ",
                     info.name);
    progress_say(&t->progress, "resuming %s from %s", t->job->run, info.name);
    return OK;
}

static const char *device_text(const Trainer *t) {
    if (!strcmp(t->plan->target, "cpu"))
        return arena_printf(t->arena, "%d threads", exec_threads(t->exec));
    return exec_device(t->exec);
}

static void unlock(void *user) {
    Trainer *t = user;
    memory_drop(&t->locked);
    if (t->lock >= 0) close(t->lock);
    t->lock = -1;
}

static bool is_first(const Trainer *t) {
    return t->comm->rank == 0;
}

// Bytes that the other ranks of this machine will take.
static Status count_others(Trainer *t) {
    int64_t all = plan_peak(t->plan);
    TRY(comm_sum_here(t->comm, &all));
    t->others = all - plan_peak(t->plan);
    return OK;
}

// What no other rank is needed for.
static Status prepare(Trainer *t) {
    const Options *options = t->options;
    TRY(schedule_check(options));
    t->program = plan_program(t->plan, "step");
    if (!t->program)
        return status_fail(ERR_INPUT, "the plan has no program 'step', which training runs");
    if (options->eval_interval && !plan_program(t->plan, "eval"))
        return status_fail(ERR_INPUT,
                           "the plan has no program 'eval', which --eval-interval needs");
    TRY(memory_check(t->plan, memory_available() - t->others));
    if (is_first(t)) {
        TRY(run_lock(t->job->run, &t->lock));
        memory_hold(&t->locked, unlock, t);
        if (t->job->plans) TRY(run_write_plans(t->job->run, t->job->plans));
        if (t->job->resume) TRY(run_write_options(t->job->run, options)); // some may be new
    }
    progress_start(&t->progress, is_first(t) ? t->job->progress : NULL, options->log_interval);
    return t->data ? OK : train_open_data(options, t->plan, &t->data);
}

// Files of one name may differ where ranks have file systems of their own.
static Status same_files(Trainer *t) {
    for (int i = 0; i < t->data->n_files; i++) {
        const DataFile *file = &t->data->files[i];
        Hash first = file->hash;
        TRY(comm_first(t->comm, &first, sizeof first));
        bool equal = hash_equal(first, file->hash);
        TRY(comm_agree(t->comm, equal ? OK
                                      : status_fail(ERR_INPUT,
                                                    "the data file %s is not what rank 0 has under "
                                                    "this name\n  hint: all ranks need the same "
                                                    "bytes",
                                                    file->path)));
    }
    return OK;
}

static Status compile(Trainer *t) {
    const Options *options = t->options;
    ExecOptions exec = { .device = train_device(options),
                         .threads = (int)options->threads,
                         .comm = t->comm,
                         .graph = options->graph,
                         .progress = progress_compile,
                         .user = &t->progress };
    Status status = exec_create(t->plan, &exec, &t->exec);
    if (status == ERR_RANK) return status;
    int64_t stopping = stop_asked;
    TRY(comm_sum(t->comm, GROUP_world, &stopping, 1));
    if (stopping) // perhaps the compiler got the signal too, and that is why it failed
        status = status_fail(ERR_INTERRUPTED,
                             "interrupted while the kernels were compiled, before a step was done\n"
                             "  hint: 'moec resume %s' goes on",
                             t->job->run);
    return comm_agree(t->comm, status);
}

static Status set_parameters(Trainer *t) {
    t->memory = train_memory(t->exec);
    TRY(exec_init(t->exec, (uint64_t)t->options->seed));
    // A run without a checkpoint was killed before its first: it starts again.
    bool any = false;
    if (t->job->resume) TRY(comm_agree(t->comm, checkpoint_any(t->job->run, &any)));
    TRY(comm_first(t->comm, &any, sizeof any));
    return any ? restore(t) : OK;
}

static Status open_journal(Trainer *t) {
    const Options *options = t->options;
    if (!is_first(t)) return OK;
    TRY(journal_open(t->job->run, t->state.step, options->tensorboard, &t->journal));
    json_t *record = options_record(options), *files = data_record(t->data);
    t->extra = json_pack("{s:o, s:{s:o, s:I}}", "options", record, "data", "files", files,
                         "sequences", (json_int_t)t->data->train.n_sequences);
    return t->extra ? OK : status_fail(ERR_MEMORY, "no memory for the record of the run");
}

static void say_what(Trainer *t) {
    const Options *options = t->options;
    char ranks[32] = "";
    if (t->comm->n_ranks > 1) snprintf(ranks, sizeof ranks, "%d ranks, ", t->comm->n_ranks);
    progress_say(&t->progress,
                 "%s: %lld tokens of data, %lld tokens per step, %s%s, memory %.1f MiB",
                 t->plan->model, (long long)t->data->train.n_targets,
                 (long long)t->tokens_per_step, ranks, device_text(t),
                 (double)plan_peak(t->plan) / 1048576);
    Text text = { 0 };
    optim_groups_print(t->groups, t->n_groups, options->decay, &text);
    progress_say(&t->progress, "%s", text_cstr(&text));
    text_finish(&text);
}

static Status start(Trainer *t) {
    const Options *options = t->options;
    if (!t->job->comm) t->own_comm = comm_self();
    t->comm = t->job->comm ? t->job->comm : t->own_comm;
    TRY(comm_mesh(t->comm, &t->plan->mesh));
    TRY(count_others(t));
    TRY(comm_agree(t->comm, prepare(t)));
    TRY(comm_agree(t->comm, comm_keep(t->comm, t->job->run)));
    TRY(same_files(t));
    TRY(compile(t));
    TRY(comm_agree(t->comm, set_parameters(t)));
    if (options->steps && t->state.step >= options->steps)
        progress_say(&t->progress, "nothing to train: the run has %lld steps, --steps is %lld",
                     (long long)t->state.step, (long long)options->steps);
    t->n_sequences = t->plan->tokens / t->plan->sequence * t->plan->microbatches;
    t->all_sequences = t->n_sequences * comm_members(t->comm, GROUP_dp);
    t->tokens_per_step = t->all_sequences * t->plan->sequence;
    t->sequences = ARENA_ARRAY(t->arena, int64_t, t->n_sequences);
    TRY(optim_groups(t->arena, t->plan, t->comm, &t->groups, &t->n_groups));
    if (options->peak > 0) t->flops = run_flops(t->job->run);
    TRY(comm_agree(t->comm, step_trace_open(options, t->state.step, is_first(t), &t->trace)));
    TRY(metric_set_open(t->exec, t->program, t->arena, &t->metrics));
    t->main_loss = metrics_main_loss(t->metrics.metrics, t->metrics.n);
    TRY(comm_agree(t->comm, open_journal(t)));
    TRY(comm_first(t->comm, &t->journal.eval_step, sizeof t->journal.eval_step));
    say_what(t);
    return OK;
}

static void finish(Trainer *t) {
    journal_close(&t->journal);
    unlock(t);
    json_decref(t->extra);
    exec_destroy(t->exec);
    comm_close(t->own_comm);
    data_close(t->data);
    arena_destroy(t->arena);
}

/* One step ------------------------------------------------------------------------------------- */

static Status write_metrics(Trainer *t, double lr, double seconds) {
    bool skipped = exec_scalars(t->exec)[SCALAR_skipped] != 0;
    double speed = (double)t->tokens_per_step / fmax(seconds, 1e-9) / t->comm->n_ranks;
    json_t *line = json_pack("{s:I, s:I, s:f}", "step", (json_int_t)t->state.step, "tokens",
                             (json_int_t)t->state.tokens, "time", t->state.seconds);
    if (!line) return status_fail(ERR_MEMORY, "no memory for metrics");
    metrics_print(&t->metrics, line);
    json_object_set_new(line, "optim/total grad norm",
                        isfinite(t->grad_norm) ? json_real(t->grad_norm) : json_null());
    optim_groups_record(t->groups, t->n_groups, lr, line);
    json_object_set_new(line, "optim/step skipped", json_integer(skipped));
    json_object_set_new(line, "optim/steps skipped", json_integer(t->state.skipped));
    json_object_set_new(line, "throughput/device/TPS", json_real(speed));
    if (t->flops > 0) // in percent, as OLMo-core has it
        json_object_set_new(line, "throughput/device/MFU",
                            json_real(100 * speed * t->flops / (t->options->peak * 1e9)));
    json_object_set_new(line, "throughput/total tokens", json_integer(t->state.tokens));
    return journal_step(&t->journal, line);
}

// A NaN has no sign to show.
static double shown(double number) {
    return isnan(number) ? (double)NAN : number;
}

static Status watch_skips(Trainer *t) {
    bool skipped = exec_scalars(t->exec)[SCALAR_skipped] != 0;
    t->skips = skipped ? t->skips + 1 : 0;
    if (!skipped) return OK;
    progress_say(&t->progress,
                 "step %lld was skipped: its gradient is not finite (loss %g, gradient norm %g)",
                 (long long)t->state.step, shown(t->loss), shown(t->grad_norm));
    if (t->skips < SKIPS_BEFORE_FAILURE) return OK;
    return comm_agree(
        t->comm,
        status_fail(
            ERR_NUMERIC,
            "%d steps in a row had non-finite gradients, up to step %lld\n  hint: a lower --lr or "
            "a longer --warmup, from a checkpoint before it",
            SKIPS_BEFORE_FAILURE, (long long)t->state.step));
}

static void choose_batch(const Trainer *t, DataBatch *batch) {
    const DataSet *set = &t->data->train;
    *batch = (DataBatch){ .set = set,
                          .sequences = t->sequences,
                          .per_microbatch = t->n_sequences / t->plan->microbatches,
                          .first_index = t->state.sample * set->sequence,
                          .ranks = comm_members(t->comm, GROUP_dp),
                          .rank = comm_member(t->comm, GROUP_dp) };
    for (int64_t i = 0; i < t->n_sequences; i++)
        t->sequences[i] = data_sample(set, (uint64_t)t->options->seed,
                                      t->state.sample + data_batch_number(batch, i));
}

// What a rank tells before a step.
typedef struct Word {
    int64_t targets, stopping, trouble;
    double seconds, step_seconds; // rank 0's clock counts
} Word;

// Whether to go on is decided after this; who has had trouble that others do not know of fails here.
static Status meet(Trainer *t) {
    DataBatch batch;
    choose_batch(t, &batch);
    Word own = { data_batch_targets(&batch, t->n_sequences), stop_asked, t->trouble, t->state.seconds,
                 t->step_seconds };
    Word *all = memory_alloc(sizeof *all * (size_t)t->comm->n_ranks);
    Status status = t->comm->api->gather(t->comm, GROUP_world, &own, all, sizeof own);
    int64_t trouble = 0;
    t->targets = 0;
    for (int i = 0; status == OK && i < t->comm->n_ranks; i++) {
        if (i < batch.ranks) t->targets += all[i].targets; // other stages have the same
        t->stopped = t->stopped || all[i].stopping;
        trouble += all[i].trouble;
    }
    if (status == OK) {
        t->state.seconds = all[0].seconds;
        t->step_seconds = all[0].step_seconds;
    }
    memory_free(all);
    TRY(status);
    return trouble ? comm_agree(t->comm, t->trouble) : OK;
}

static Status one_step(Trainer *t) {
    TRY(step_trace_before(&t->trace, t->exec, t->program, t->comm, t->state.step + 1));
    double began = time_seconds();
    const Options *options = t->options;
    DataBatch batch;
    choose_batch(t, &batch);
    double lr = schedule_lr(options, t->state.step, t->state.seconds);
    float *scalars = exec_scalars(t->exec);
    schedule_scalars(options, t->state.step, lr, t->targets, scalars);
    TRY(exec_run(t->exec, t->program, data_fill, &batch));
    TRY(metric_set_read(&t->metrics));
    t->loss = t->main_loss < 0 ? NAN : (double)t->metrics.parts[t->main_loss].at[0];
    t->grad_norm = scalars[SCALAR_grad_norm];
    double seconds = time_seconds() - began;
    TRY(step_trace_after(&t->trace, t->exec, t->comm, t->state.step + 1));
    t->step_seconds = t->step_seconds > 0 ? 0.9 * t->step_seconds + 0.1 * seconds : seconds;
    t->state.step++;
    t->state.tokens += t->targets;
    t->state.sample += t->all_sequences;
    t->state.seconds += seconds;
    t->state.lr = lr;
    t->state.skipped += scalars[SCALAR_skipped] != 0;
    t->trouble = is_first(t) ? write_metrics(t, lr, seconds) : OK;
    return watch_skips(t);
}

/* Between steps -------------------------------------------------------------------------------- */

static void clock_text(double seconds, char out[32]) {
    long long s = (long long)(seconds + 0.5);
    if (s < 3600) snprintf(out, 32, "%lld:%02lld", s / 60, s % 60);
    else snprintf(out, 32, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
}

static void show_step(Trainer *t, bool last) {
    const Options *o = t->options;
    double left = 1e300;
    if (o->steps) left = (double)max_i64(o->steps - t->state.step, 0) * t->step_seconds;
    if (o->seconds > 0) left = fmin(left, fmax(o->seconds - t->state.seconds, 0));
    char eta[32], of[32] = "";
    clock_text(left, eta);
    if (o->steps) snprintf(of, sizeof of, "/%lld", (long long)o->steps);
    progress_show(&t->progress, last || t->state.step == 1,
                  "step %lld%s  loss %.4f  lr %.2e  grad norm %.3f  %.0f tokens/s  %s left",
                  (long long)t->state.step, of, shown(t->loss), t->state.lr, shown(t->grad_norm),
                  (double)t->tokens_per_step / t->step_seconds, eta);
}

// Whether the folder is there, and what was written about the steps is on disk before the checkpoint
// that goes on from them.
static Status before_save(Trainer *t) {
    Status there = is_first(t) ? run_still_there(t->job->run, t->lock) : OK;
    if (there != OK)
        return status_fail(there, "step %lld is not saved: %s", (long long)t->state.step,
                           status_message());
    if (t->saved == t->state.step) return OK;
    if (is_first(t)) TRY(journal_sync(&t->journal));
    return train_download(t->exec);
}

static Status save(Trainer *t) {
    const Options *o = t->options;
    TRY(comm_agree(t->comm, before_save(t)));
    if (t->saved == t->state.step) return OK;
    TRY(checkpoint_save(t->job->run, t->plan, &t->memory, &t->state, t->extra,
                        (CheckpointKeep){ o->keep, o->keep_every }));
    t->saved = t->state.step;
    if (is_first(t) && journal_picture(&t->journal, t->plan->model) != OK) // no reason to stop
        progress_say(&t->progress, "warning: %s", status_message());
    return OK;
}

static bool due(int64_t interval, int64_t step) {
    return interval && step % interval == 0;
}

static Status record_evaluation(Trainer *t, const EvalResult *result) {
    if (t->journal.eval_step == t->state.step && t->journal.eval_tokens == result->n_targets)
        return OK; // a run that was complete is resumed: it is written
    bool finite = isfinite(result->nats);
    json_t *line = json_pack("{s:I, s:I, s:o, s:o, s:I, s:o}", "step", (json_int_t)t->state.step,
                             "tokens", (json_int_t)t->state.tokens, "eval/CE loss",
                             finite ? json_real(result->nats) : json_null(), "eval/PPL",
                             isfinite(exp(result->nats)) ? json_real(exp(result->nats))
                                                         : json_null(),
                             "eval/tokens", (json_int_t)result->n_targets, "eval/bits per token",
                             finite ? json_real(eval_bits(result)) : json_null());
    return journal_eval(&t->journal, line);
}

static Status evaluate(Trainer *t, int64_t limit, EvalResult *result) {
    TRY(eval_run(t->exec, t->plan, &t->data->held_out, limit, &t->progress, result));
    return comm_agree(t->comm, is_first(t) ? record_evaluation(t, result) : OK);
}

// Between steps, unless this step's was written before an interruption.
static Status evaluate_between(Trainer *t) {
    const Options *o = t->options;
    if (!due(o->eval_interval, t->state.step) || !t->data->held_out.n_sequences ||
        !t->state.step || t->journal.eval_step >= t->state.step)
        return OK;
    double began = time_seconds();
    EvalResult result;
    TRY(evaluate(t, o->eval_limit, &result));
    t->state.seconds += time_seconds() - began;
    progress_say(&t->progress, "step %lld  held-out loss %.4f over %lld tokens",
                 (long long)t->state.step, shown(result.nats), (long long)result.n_targets);
    return OK;
}

// With a time limit the last step is one that still fits.
static bool spent(const Trainer *t) {
    const Options *o = t->options;
    if (o->steps && t->state.step >= o->steps) return true;
    return o->seconds > 0 && t->state.seconds + t->step_seconds > o->seconds;
}

static Status loop(Trainer *t) {
    const Options *o = t->options;
    for (;;) {
        TRY(meet(t));
        if (t->stopped || spent(t)) break;
        int64_t step = t->state.step;
        bool saves = step && (due(o->save_interval, step) || due(o->keep_every, step));
        Status status = evaluate_between(t);
        t->stopped = status == ERR_INTERRUPTED;
        if (t->stopped) break; // the step is done; it is saved below
        TRY(status);
        if (saves) TRY(save(t));
        if (saves || due(o->eval_interval, step)) TRY(meet(t)); // that took a while
        if (t->stopped) break;
        TRY(one_step(t));
        show_step(t, spent(t) || stop_asked);
    }
    TRY(save(t));
    return meet(t);
}

// The last evaluation reads everything held out; its line is the run's result.
static Status conclude(Trainer *t) {
    char skipped[48] = "";
    if (t->state.skipped)
        snprintf(skipped, sizeof skipped, " (%lld skipped)", (long long)t->state.skipped);
    progress_say(&t->progress, "trained %lld steps%s on %lld tokens in %.1f s; saved in %s",
                 (long long)t->state.step, skipped, (long long)t->state.tokens, t->state.seconds,
                 t->job->run);
    if (t->trace.done) progress_say(&t->progress, "traced in %s", t->trace.file);
    else if (t->trace.file[0])
        progress_say(&t->progress, "warning: --trace: the run ended before step %lld",
                     (long long)(t->trace.first + t->trace.n - 1));
    if (!t->data->held_out.n_sequences || !plan_program(t->plan, "eval")) return OK;
    EvalResult result;
    TRY(evaluate(t, 0, &result));
    if (journal_picture(&t->journal, t->plan->model) != OK)
        progress_say(&t->progress, "warning: %s", status_message());
    if (!t->job->results || !is_first(t)) return OK;
    Text text = { 0 };
    eval_print(&result, t->options->tokens == TOKENS_BYTES, &text);
    progress_say(&t->progress, "evaluated");
    fprintf(t->job->results, "%s\n", text_cstr(&text));
    fflush(t->job->results);
    text_finish(&text);
    return OK;
}

Status train_run(const TrainJob *job) {
    Arena *arena = arena_create();
    Trainer t = { .job = job,
                  .options = job->options,
                  .plan = job->plan,
                  .arena = arena,
                  .data = job->data,
                  .lock = -1,
                  .saved = -1 };
    Status status = start(&t);
    if (job->refused) *job->refused = status != OK && t.lock >= 0;
    if (status == OK) status = loop(&t);
    if (status == OK && !t.stopped) status = conclude(&t);
    if (status == OK && t.stopped)
        status = comm_agree(
            t.comm,
            status_fail(ERR_INTERRUPTED,
                        "interrupted after step %lld, which is saved\n  hint: 'moec resume %s' "
                        "goes on",
                        (long long)t.state.step, job->run));
    if (status == ERR_RANK)
        status = status_fail(status,
                             "%s\n  hint: %s/failure.txt says where every rank was; 'moec resume %s' on "
                             "as many ranks goes on from the newest checkpoint",
                             status_message(), job->run, job->run);
    stop_asked = 0; // heard
    if (t.progress.shown) fputc('\n', t.progress.out);
    finish(&t);
    return status;
}
