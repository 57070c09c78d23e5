// SPDX-License-Identifier: Apache-2.0
// The training run: open data, compile, start or resume, then step by step until the budget is
// spent.
//
// A step reads `sample` .. `sample + sequences`, sets the step's scalars, runs the program, and
// writes one line of metrics. What is kept between steps is the memory of the plan's weights and
// moments and the TrainState; both are in a checkpoint, so resuming repeats the same bits.
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
    Exec *exec;
    Progress progress;
    TrainMemory memory;
    TrainState state;
    int64_t *sequences, n_sequences, tokens_per_step;
    Journal journal;
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
                           exec_region(exec, REGION_moment2) };
}

static const Region kept[] = { REGION_weights, REGION_moment1, REGION_moment2 };

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

static Status start(Trainer *t) {
    const Options *options = t->options;
    TRY(schedule_check(options));
    t->program = plan_program(t->plan, "step");
    if (!t->program)
        return status_fail(ERR_INPUT, "the plan has no program 'step', which training runs");
    if (t->options->eval_interval && !plan_program(t->plan, "eval"))
        return status_fail(ERR_INPUT,
                           "the plan has no program 'eval', which --eval-interval needs");
    TRY(memory_check(t->plan, memory_available()));
    TRY(run_lock(t->job->run, &t->lock));
    memory_hold(&t->locked, unlock, t);
    if (t->job->resume) TRY(run_write_options(t->job->run, options)); // some may be new
    progress_start(&t->progress, t->job->progress, options->log_interval);
    if (!t->data) TRY(train_open_data(options, t->plan, &t->data));
    ExecOptions exec = { .device = train_device(options),
                         .threads = (int)options->threads,
                         .graph = options->graph,
                         .progress = progress_compile,
                         .user = &t->progress };
    Status status = exec_create(t->plan, &exec, &t->exec);
    if (stop_asked) // perhaps the compiler got the signal too, and that is why it failed
        return status_fail(ERR_INTERRUPTED,
                           "interrupted while the kernels were compiled, before a step was done\n"
                           "  hint: 'moec resume %s' goes on",
                           t->job->run);
    TRY(status);
    t->memory = train_memory(t->exec);
    TRY(exec_init(t->exec, (uint64_t)options->seed));
    // A run without a checkpoint was killed before its first: it starts again.
    bool any = false;
    if (t->job->resume) TRY(checkpoint_any(t->job->run, &any));
    if (any) TRY(restore(t));
    if (options->steps && t->state.step >= options->steps)
        progress_say(&t->progress, "nothing to train: the run has %lld steps, --steps is %lld",
                     (long long)t->state.step, (long long)options->steps);
    t->n_sequences = t->plan->tokens / t->plan->sequence * t->plan->microbatches;
    t->tokens_per_step = t->n_sequences * t->plan->sequence;
    t->sequences = ARENA_ARRAY(t->arena, int64_t, t->n_sequences);
    t->groups = optim_groups(t->arena, t->plan, &t->n_groups);
    if (options->peak > 0) t->flops = run_flops(t->job->run);
    TRY(journal_open(t->job->run, t->state.step, options->tensorboard, &t->journal));
    json_t *record = options_record(options), *files = data_record(t->data);
    t->extra = json_pack("{s:o, s:{s:o, s:I}}", "options", record, "data", "files", files,
                         "sequences", (json_int_t)t->data->train.n_sequences);
    if (!t->extra) return status_fail(ERR_MEMORY, "no memory for the record of the run");
    progress_say(&t->progress,
                 "%s: %lld tokens of data, %lld tokens per step, %s, memory %.1f MiB",
                 t->plan->model, (long long)t->data->train.n_targets,
                 (long long)t->tokens_per_step, device_text(t),
                 (double)plan_peak(t->plan) / 1048576);
    Text text = { 0 };
    optim_groups_print(t->groups, t->n_groups, options->decay, &text);
    progress_say(&t->progress, "%s", text_cstr(&text));
    text_finish(&text);
    return OK;
}

static void finish(Trainer *t) {
    journal_close(&t->journal);
    unlock(t);
    json_decref(t->extra);
    exec_destroy(t->exec);
    data_close(t->data);
    arena_destroy(t->arena);
}

/* One step ------------------------------------------------------------------------------------- */

static Status write_metrics(Trainer *t, double lr, double seconds) {
    bool skipped = exec_scalars(t->exec)[SCALAR_skipped] != 0;
    double speed = (double)t->tokens_per_step / fmax(seconds, 1e-9);
    json_t *line = json_pack("{s:I, s:I, s:f}", "step", (json_int_t)t->state.step, "tokens",
                             (json_int_t)t->state.tokens, "time", t->state.seconds);
    if (!line) return status_fail(ERR_MEMORY, "no memory for metrics");
    TRY(metrics_of_program(t->exec, t->program, line));
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
    return status_fail(
        ERR_NUMERIC,
        "%d steps in a row had non-finite gradients, up to step %lld\n  hint: a lower --lr or "
        "a longer --warmup, from a checkpoint before it",
        SKIPS_BEFORE_FAILURE, (long long)t->state.step);
}

static Status one_step(Trainer *t) {
    double began = time_seconds();
    const Options *options = t->options;
    const DataSet *set = &t->data->train;
    for (int64_t i = 0; i < t->n_sequences; i++)
        t->sequences[i] = data_sample(set, (uint64_t)options->seed, t->state.sample + i);
    DataBatch batch = { set, t->sequences, t->n_sequences / t->plan->microbatches,
                        t->state.sample * set->sequence };
    int64_t targets = data_batch_targets(&batch, t->n_sequences);
    double lr = schedule_lr(options, t->state.step, t->state.seconds);
    float *scalars = exec_scalars(t->exec);
    schedule_scalars(options, t->state.step, lr, targets, scalars);
    TRY(exec_run(t->exec, t->program, data_fill, &batch));
    int loss = metrics_main_loss(t->program);
    int64_t n;
    t->loss = loss < 0 ? NAN : exec_metric(t->exec, t->program, (uint32_t)loss, &n)[0];
    t->grad_norm = scalars[SCALAR_grad_norm];
    double seconds = time_seconds() - began;
    t->step_seconds = t->step_seconds > 0 ? 0.9 * t->step_seconds + 0.1 * seconds : seconds;
    t->state.step++;
    t->state.tokens += targets;
    t->state.sample += t->n_sequences;
    t->state.seconds += seconds;
    t->state.lr = lr;
    t->state.skipped += scalars[SCALAR_skipped] != 0;
    TRY(write_metrics(t, lr, seconds));
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

// What was written about the steps is on disk before the checkpoint that goes on from them.
static Status save(Trainer *t) {
    Status there = run_still_there(t->job->run, t->lock);
    if (there != OK)
        return status_fail(there, "step %lld is not saved: %s", (long long)t->state.step,
                           status_message());
    if (t->saved == t->state.step) return OK;
    const Options *o = t->options;
    TRY(journal_sync(&t->journal));
    TRY(train_download(t->exec));
    TRY(checkpoint_save(t->job->run, t->plan, &t->memory, &t->state, t->extra,
                        (CheckpointKeep){ o->keep, o->keep_every }));
    t->saved = t->state.step;
    if (journal_picture(&t->journal, t->plan->model) != OK) // no reason to stop
        progress_say(&t->progress, "warning: %s", status_message());
    return OK;
}

static bool due(int64_t interval, int64_t step) {
    return interval && step % interval == 0;
}

static Status evaluate(Trainer *t, int64_t limit, EvalResult *result) {
    TRY(eval_run(t->exec, t->plan, &t->data->held_out, limit, &t->progress, result));
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
    while (!spent(t) && !stop_asked) {
        Status status = evaluate_between(t);
        if (status == ERR_INTERRUPTED) break; // the step is done; it is saved below
        TRY(status);
        int64_t step = t->state.step;
        if (step && (due(o->save_interval, step) || due(o->keep_every, step))) TRY(save(t));
        if (stop_asked) break;
        TRY(one_step(t));
        show_step(t, spent(t) || stop_asked);
    }
    return save(t);
}

// The last evaluation reads everything held out; its line is the run's result.
static Status conclude(Trainer *t) {
    char skipped[48] = "";
    if (t->state.skipped)
        snprintf(skipped, sizeof skipped, " (%lld skipped)", (long long)t->state.skipped);
    progress_say(&t->progress, "trained %lld steps%s on %lld tokens in %.1f s; saved in %s",
                 (long long)t->state.step, skipped, (long long)t->state.tokens, t->state.seconds,
                 t->job->run);
    if (!t->data->held_out.n_sequences || !plan_program(t->plan, "eval")) return OK;
    EvalResult result;
    TRY(evaluate(t, 0, &result));
    if (journal_picture(&t->journal, t->plan->model) != OK)
        progress_say(&t->progress, "warning: %s", status_message());
    if (!t->job->results) return OK;
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
    if (status == OK) status = loop(&t);
    if (status == OK && !stop_asked) status = conclude(&t);
    if (status == OK && stop_asked)
        status =
            status_fail(ERR_INTERRUPTED,
                        "interrupted after step %lld, which is saved\n  hint: 'moec resume %s' "
                        "goes on",
                        (long long)t.state.step, job->run);
    stop_asked = 0; // heard
    if (t.progress.shown) fputc('\n', t.progress.out);
    finish(&t);
    return status;
}
