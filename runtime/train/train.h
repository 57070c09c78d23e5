// SPDX-License-Identifier: Apache-2.0
// Training, evaluating and sampling from a plan, and the folder of a run.
//
//   RUN/plan.txt          the plan that trains              RUN/checkpoints/   see checkpoint.h
//   RUN/plan-sample.txt   a plan of one sequence, if any    RUN/lock           held while training
//   RUN/run.json          model, origin, options            RUN/metrics.jsonl, eval.jsonl,
//   RUN/spec/             the spec as it was, if any            loss.svg, events.out.*: journal.h
//
// A run is a function of its plan, options and data: the same steps give the same bits whatever the
// threads, and whether it was interrupted and resumed or not. (A run limited by --seconds is not:
// its schedule follows the clock. The learning rates it used are in metrics.jsonl.)
#ifndef MOEC_TRAIN_H
#define MOEC_TRAIN_H

#include <stdio.h>

#include "runtime/exec/exec.h"
#include "runtime/train/checkpoint.h"
#include "runtime/train/data.h"
#include "runtime/train/options.h"
#include "runtime/train/journal.h"

/* run.c: the folder ---------------------------------------------------------------------------- */

typedef struct RunFile { const char *name, *text; size_t bytes; } RunFile; // "spec/tiny.lua"

// What a new run is made of. `origin` (borrowed, may be NULL): spec path, arguments, for run.json.
typedef struct RunSource {
    const Plan *plan, *sample_plan;                            // this rank's; sample_plan may be NULL
    const char *plans;           // text of the plans of all stages; NULL: plan's
    const RunFile *files; int n_files;
    const json_t *origin;
} RunSource;

// Refuses a folder that already holds a run; leaves nothing behind when it fails.
Status run_create(const char *run, const RunSource *source, const Options *options);
// What was there before run_create, and taking back what it has made, and what was added since: of a folder
// that was there, a run's files; else all of it, and the folders made for it.
typedef struct RunBefore {
    size_t there;                // bytes of the path that were there
    bool whole;
} RunBefore;
RunBefore run_before(const char *run);
void run_forget(const char *run, const RunSource *source, const RunBefore *before);
// Reads run.json's options over the defaults; *record (may be NULL) is the caller's to json_decref.
Status run_read_options(const char *run, Options *options, json_t **record);
Status run_write_options(const char *run, const Options *options); // after a resume changed them
// The text of all stages' plans; all ranks call it. And what becomes of it.
Status run_plans(Comm *comm, const Plan *plan, Arena *arena, const char **out);
Status run_write_plans(const char *run, const char *text);
Status run_read_plan(const char *run, const Comm *comm, Plan **out); // of this rank's stage; comm NULL: the first
Status plan_read_rank(const char *path, const Comm *comm, Plan **out); // the same of any file
Status run_read_sample_plan(const char *run, Plan **out);      // one stage; without one, plan.txt's
double run_flops(const char *run); // of the model's contractions, to train on a token; 0: unknown
Status plan_read(const char *path, int32_t stage, Plan **out); // of a file of all stages: plan.h
// Held until the descriptor is closed; a run that another process trains is refused. Removes the
// temporary files of a killed one.
Status run_lock(const char *run, int *fd);
// Fails where `run` no longer names the folder that the lock is in.
Status run_still_there(const char *run, int lock);

/* memory.c ------------------------------------------------------------------------------------- */

int64_t memory_available(void); // bytes, of the machine or by the limit of its control groups
// The lowest of version 2 for the group that `groups`, a /proc/PID/cgroup, names below `root`, and
// for the groups above it; INT64_MAX: none.
int64_t memory_group_limit(const char *groups, const char *root);
// ERR_MEMORY if the plan needs more of the host's memory: one for a CPU. Devices tell of their own.
Status memory_check(const Plan *plan, int64_t available);

/* schedule.c ----------------------------------------------------------------------------------- */

Status schedule_check(const Options *options);                 // the run has an end
double schedule_progress(const Options *options, int64_t step, double seconds);  // 0 .. 1
// Warm-up times decay: lr * min(1, (step + 1) / warmup) * fall(progress).
double schedule_lr(const Options *options, int64_t step, double seconds);
// Writes the scalars of step `step` (from 0) that the host owns.
void schedule_scalars(const Options *options, int64_t step, double lr, int64_t targets,
                      float *scalars);

/* collect.c: a program's metrics over all ranks ------------------------------------------------ */

typedef struct MetricPart {
    int stage;
    int64_t first, n;            // numbers of a rank's record
    float *at;                   // [n], of the last run
} MetricPart;

typedef struct MetricSet {
    const Exec *exec; const PlanProgram *program;
    Comm *comm;
    Arena *arena;
    PlanMetric *metrics; uint32_t n, cap; // of all stages: name, weight, sum
    MetricPart *parts; uint32_t cap_parts; // of each
    int64_t record;              // numbers
    float *own, *all;            // [record], [ranks][record]
} MetricSet;

// All ranks call these: once, and after every run of the program.
Status metric_set_open(const Exec *exec, const PlanProgram *program, Arena *arena, MetricSet *out);
Status metric_set_read(MetricSet *set);

/* metrics.c: the lines of metrics.jsonl; the file is journal.h's ------------------------------- */

// By their names in metrics.jsonl (docs/run.md).
void metrics_print(const MetricSet *set, json_t *object);
int metrics_main_loss(const PlanMetric *metrics, uint32_t n); // index of the loss to show, -1: none

/* trace.c: steps as a picture ------------------------------------------------------------------ */

typedef struct StepTrace {
    const char *file;            // "": none is asked for, and nothing below does anything
    int64_t first, n;            // steps, from 1
    double origin;               // of the picture, by this rank's clock
    bool done;
} StepTrace;

// Of a session that goes on after `done` steps. `writes`: this rank will; it tries now.
Status step_trace_open(const Options *options, int64_t done, bool writes, StepTrace *out);
// All ranks call these, around each step, with its number.
Status step_trace_before(StepTrace *trace, Exec *exec, const PlanProgram *program, Comm *comm, int64_t step);
Status step_trace_after(StepTrace *trace, const Exec *exec, Comm *comm, int64_t step);

/* groups.c ------------------------------------------------------------------------------------- */

// Parameters that share a multiplier of the learning rate and one of the decay. In the order of
// their first parameters, so group 0 is the embedding's as a rule.
typedef struct OptimGroup { double lr, decay; int64_t tensors, numbers; } OptimGroup;
Status optim_groups(Arena *arena, const Plan *plan, Comm *comm, OptimGroup **out, int *n); // on all ranks
void optim_groups_print(const OptimGroup *groups, int n, double decay, Text *out);
void optim_groups_record(const OptimGroup *groups, int n, double lr, json_t *object);

/* progress.c ----------------------------------------------------------------------------------- */

// One live line where `out` is a terminal, else a plain line every `interval` s. NULL: silent.
typedef struct Progress {
    FILE *out;
    bool live, shown;
    double interval, last;
} Progress;

void progress_start(Progress *progress, FILE *out, double interval);
void progress_show(Progress *progress, bool force, const char *format, ...) PRINTF_LIKE(3, 4);
// A line that stays. The live line, if one is shown, ends first.
void progress_say(Progress *progress, const char *format, ...) PRINTF_LIKE(2, 3);
void progress_compile(void *progress, int done, int total, int cached); // an ExecOptions.progress

/* train.c -------------------------------------------------------------------------------------- */

typedef struct TrainJob {
    const Plan *plan;
    const Options *options;
    const char *run;             // made by run_create
    bool resume;
    Comm *comm;                  // this rank's; NULL: there is one
    const char *plans;           // resume: what the run's plans are from now on; NULL: as they were
    Data *data;                  // already open, taken over; NULL: opened
    FILE *progress, *results;    // either may be NULL
    bool *refused;               // set when it holds the run's lock and ends before a step can begin; may be NULL
} TrainJob;

// ERR_INTERRUPTED after train_stop: the state is saved first. ERR_NUMERIC when steps keep failing.
Status train_run(const TrainJob *job);
void train_stop(void);           // asks the run to end after its step; safe in a signal handler
bool train_stopping(void);
Status train_open_data(const Options *options, const Plan *plan, Data **out);
TrainMemory train_memory(const Exec *exec);
// To and from the device: what a checkpoint holds, and what follows from it.
Status train_download(Exec *exec);
Status train_upload(Exec *exec);
// The device of a run: NULL where nobody said, and the plan's holds.
const char *train_device(const Options *options);

/* eval.c --------------------------------------------------------------------------------------- */

typedef struct EvalResult { double nats; int64_t n_targets; } EvalResult; // nats: mean per target
// The program "eval" over a set, or over evenly spaced sequences of about `limit` tokens (0: all).
Status eval_run(Exec *exec, const Plan *plan, const DataSet *set, int64_t limit, Progress *progress,
                EvalResult *out);
double eval_bits(const EvalResult *result);                    // per target
// "held out: 2.0141 bits per byte ..."
void eval_print(const EvalResult *result, bool bytes, Text *out);

/* sample.c ------------------------------------------------------------------------------------- */

typedef struct SampleOptions {
    const int32_t *prompt; int64_t n_prompt;
    int64_t length;
    double temperature, top_p;   // temperature 0: the likeliest
    uint64_t seed;
    Status (*emit)(void *user, int32_t token); // the prompt is not emitted
    void *user;
} SampleOptions;

// Generates with the program "prefill", recomputing the window of the last tokens for each new one.
Status sample_run(Exec *exec, const Plan *plan, const SampleOptions *options);
// Draws from logits [n]: a pure function of its arguments. `work` has room for n.
int32_t sample_draw(const float *logits, int32_t n, double temperature, double top_p,
                    double uniform, int32_t *work);

/* guard.c: ends a process whose launcher's library waits for ranks that do not come ------------ */

typedef struct Guard Guard;
// Before comm_open; deadline as there. NULL: one rank; fine below.
Guard *guard_start(const char *program, double deadline);
void guard_open(Guard *guard, Comm *comm);                     // all have come
void guard_close(Guard *guard, int exit_status);               // before comm_close
void guard_stop(Guard *guard);

/* commands.c: what both `moec` and `moec-run` offer -------------------------------------------- */

// A command on every rank that a launcher started; one, without.
typedef struct Command Command;
// Makes a run's plan for this rank again, from the spec in its folder: for training, as the options say
// (--layout may be new), or for evaluating on one rank.
typedef Status (*PlanAgain)(const Command *command, const char *run, Options *options, bool evaluates,
                            Plan **out);
struct Command {
    Comm *comm;
    PlanAgain plan_again;        // NULL: there is no compiler here
    bool bare;                   // the failure's message is all there is to print; of one rank: printed
};

// Runs `body` with this process's end of the ranks, prints what went wrong as PROGRAM's, once; returns the
// exit status.
int command_on_ranks(const char *program, Status (*body)(Command *command, int argc, char **argv),
                PlanAgain plan_again, int argc, char **argv);
// `options` are parsed and complete; makes the run and trains.
Status command_train(const Command *command, RunSource *source, Options *options);
Status command_resume(Command *command, int argc, char **argv);
Status command_eval(Command *command, int argc, char **argv);
Status command_sample(Command *command, int argc, char **argv);

#endif
