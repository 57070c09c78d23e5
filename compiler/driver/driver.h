// SPDX-License-Identifier: Apache-2.0
// The `moec` command: one file per subcommand, one table of them (DRIVER_COMMANDS), one option
// table (runtime/train/options.h).
//
// A subcommand gets its own name as argv[0] and what followed it as argv[1 .. argc - 1]; it prints
// what was asked for to stdout and everything else to stderr, and returns the exit status: 0
// everything asked for was done, 2 the command or its input is wrong, 1 it failed while running.
// `--help` never reaches it.
#ifndef MOEC_DRIVER_H
#define MOEC_DRIVER_H

#include "compiler/model/model.h"
#include "runtime/base/base.h"
#include "runtime/train/train.h"

// X(name, NAME of its FOR_ in the option table, arguments, what it does)
#define DRIVER_COMMANDS(X)                                                                         \
    X(check, CHECK, "SPEC [key=value...] [-v]",                                                    \
      "shapes, parameters, active parameters, FLOPs per token")                                    \
    X(plan, PLAN, "SPEC [key=value...] [-o FILE]",                                                 \
      "lower to a plan: kernels, bytes, addresses, peak")                                          \
    X(kernels, KERNELS, "SPEC [key=value...] --arch ARCH -o DIR",                                  \
      "a plan's kernels for GPUs: sources, code, report, C header; no GPU needed")                 \
    X(calibrate, CALIBRATE, "[-o FILE.lua] [--device cpu|cuda]",                                   \
      "measure this machine, and what lies between ranks; a file that --cluster takes")            \
    X(reproduce, REPRODUCE, "olmo-core-3|published [--brief] [--rows FILE.csv] [--models DIR]",    \
      "published training speeds beside what the cost model predicts")                             \
    X(simulate, SIMULATE, "SPEC|PLAN [key=value...] [--layout L] [--cluster C]",                   \
      "what a step would take on a machine: time, where it goes, memory; a PLAN has decided how")  \
    X(train, TRAIN, "SPEC [key=value...] --data FILE... --out RUN [--steps N] [--seconds S]",      \
      "train a model")                                                                             \
    X(resume, RESUME, "RUN [--steps N]", "continue a run from its newest checkpoint")              \
    X(eval, EVAL, "RUN [--eval-data FILE...]", "held-out loss of a run's newest checkpoint")       \
    X(search, SEARCH, "SPEC [key=value...] --cluster C [--gpus N] [-o FILE.lua]",                  \
      "the fastest layout that fits, proved, with reasons")                                        \
    X(place, PLACE, "RUN|LOADS [--ranks N] [-o FILE.lua]",                                         \
      "experts onto ranks by recorded loads (of a CSV: layer,expert,load[,step]): the busiest gets least") \
    X(sample, SAMPLE, "RUN [--prompt TEXT] [--bytes N]", "generate from a run's newest checkpoint")

#define X(name, NAME, arguments, summary) int cmd_##name(int argc, char **argv);
DRIVER_COMMANDS(X)
#undef X

// Prints why the model was refused, with its place in the spec where it has one; returns the exit
// status.
int driver_refuse(const Model *model);
// Prints "moec: error: " and this thread's last failure to stderr; returns its exit status.
int driver_fail(Status status);
// What a loader has said in `text` (and is emptied), as a failure: without "moec: error: ", which driver_fail prints.
Status driver_quote(const char *before, Text *text);
// --FLAG writes what is read again by an option that knows files of Lua by their name; devices may be named, too.
Status driver_lua_name(const char *flag, const char *path);
// Whether a file of that name could be written, asked before what takes long: no folder, in one that lets us.
Status driver_writable(const char *path);
// --FLAG would write over `read`, a file that the command reads or writes besides; either may be NULL.
Status driver_apart(const char *flag, const char *path, const char *read);
// To stdout, in lines that fit the terminal; elsewhere as it is.
void driver_print(const char *text);
// To stderr, or into a text while one is set: where many ranks say the same, one says it.
void driver_say(const char *text);
void driver_hold(Text *into); // NULL: to stderr again
// The model of a run, from the copy of its spec; NULL: driver_say has said why.
Model *driver_run_model(const char *run);
// A PlanAgain (runtime/train/train.h).
Status driver_plan_again(const Command *command, const char *run, Options *options, bool evaluates,
                         Plan **out);

#endif
