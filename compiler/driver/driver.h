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

#define DRIVER_SET                                                                                 \
    "  --set ADDRESS.FIELD=VALUE            a field of the spec's blocks, for example\n"                \
    "                                       layers.*.ffn.router.balance_loss=0\n"

// X(name, arguments, what it does, its own options: those of the option table are added)
#define DRIVER_COMMANDS(X)                                                                         \
    X(check, "SPEC [key=value...] [-v]",                                                           \
      "shapes, parameters, active parameters, FLOPs per token",                                    \
      "  -v                                   every parameter with its shape and settings\n"       \
      DRIVER_SET)                                                                                  \
    X(plan, "SPEC [key=value...] [-o FILE]",                                                       \
      "lower to a plan: kernels, bytes, addresses, peak",                                          \
      "  -o FILE                              write the plan, for moec-run\n"                       \
      "  -d LETTERS                           print the graph after these passes; -d ? lists them\n" \
      "  --device cpu|cuda[:N]|vgpu:ARCH      that it will run on\n"                               \
      "  --target cpu|cuda:ARCH               the same by architecture, for example cuda:sm_90a\n" \
      "  --microbatch TOKENS                  computed at once [about 2048]\n"                     \
      "  --microbatches N                     of a rank per step [as few as the layout needs]\n"   \
      "  --precision fp32|bf16                of products and attention [fp32]\n"                  \
      "  --layout FIELDS|FILE.lua             how it lies on ranks, for example pp=2,dp=8,ep=4:\n"  \
      "                                       docs/layouts.md [one rank]\n"                        \
      "  --recompute cheap|none|block         what backward makes again is not saved [cheap]\n"    \
      "  --routing learned|uniform|random     experts of a token: the router's choice, or, whatever\n" \
      "                                       the router, even or random loads [learned]\n"        \
      DRIVER_SET)                                                                                  \
    X(kernels, "SPEC [key=value...] --arch ARCH -o DIR",                                           \
      "a plan's kernels for GPUs: sources, code, report, C header; no GPU needed",                 \
      "  --arch ARCH                          sm_80, sm_90a, sm_100a, ...\n"                       \
      "  -o DIR                               the folder to write\n"                               \
      "  --microbatch TOKENS, --microbatches N, --precision, --recompute, --routing: as of plan\n" \
      DRIVER_SET)                                                                                  \
    X(calibrate, "[-o FILE.lua] [--device cpu|cuda]",                                               \
      "measure this machine, and what lies between ranks; a file that --cluster takes",            \
      "  -o FILE.lua                          where to write [cluster.lua]\n"                       \
      "  --device cpu|cuda[:N]                what to measure [cpu]\n"                              \
      "  --seconds S                          of work for each figure [5]\n"                        \
      "  --threads N                          of a CPU [its cores, divided among ranks]\n"          \
      "  --name NAME                          of the cluster, in reports [calibrated]\n")           \
    X(reproduce, "olmo-core-3|published [--brief] [--rows FILE.csv] [--models DIR]",                \
      "published training speeds beside what the cost model predicts",                             \
      "  --brief                              without searches for faster layouts\n"                \
      "  --rows FILE.csv                      rows to predict [tests/search/published.csv]\n"       \
      "  --models DIR                         where the specs are [models]\n")                      \
    X(simulate, "SPEC|PLAN [key=value...] [--layout L] [--cluster C]",                             \
      "what a step would take on a machine: time, where it goes, memory",                          \
      "  --cluster NAME|FILE.lua              the machine, for example b300x64 (dsl/hardware.lua)\n" \
      "                                       [as many cores as the layout has ranks]\n"           \
      "  --trace FILE                         what every stage does when, as of train\n"           \
      "  --svg FILE                           the same as a picture\n"                             \
      "  --times TRACE                        a step that was run (train --trace): its times of\n" \
      "                                       kernels, and how it compares\n"                      \
      "  --load X                             busiest rank's rows over the mean [as the routing\n" \
      "                                       lets expect]\n"                                      \
      "  --quick                              without plans, from the kinds of layers a model has:\n" \
      "                                       also in --precision mxfp8, which plans have not yet\n" \
      "  --target, --microbatch, --microbatches, --precision, --layout, --recompute, --routing:\n" \
      "                                       as of plan; a PLAN has decided them\n"               \
      DRIVER_SET)                                                                                  \
    X(train, "SPEC [key=value...] --data FILE... --out RUN [--steps N] [--seconds S]",             \
      "train a model", DRIVER_SET)                                                                 \
    X(resume, "RUN [--steps N]", "continue a run from its newest checkpoint", "")                  \
    X(eval, "RUN [--eval-data FILE...]", "held-out loss of a run's newest checkpoint", "")         \
    X(search, "SPEC [key=value...] --cluster C [--gpus N] [-o FILE.lua]",                          \
      "the fastest layout that fits, proved, with reasons",                                        \
      "  --cluster NAMExN|FILE.lua            the machine: b300x64, h100x8, ..., or m.cluster { ... }\n"  \
      "  --gpus N                             of its devices [all]\n"                              \
      "  --tokens N                           of a step, over all devices [8 sequences a device]\n" \
      "  --top N                              layouts to list [5]\n"                               \
      "  --layout FIELDS|FILE.lua             why not this one\n"                                  \
      "  -o FILE.lua                          write the best, for --layout of plan and train\n"    \
      "  --memory GIB                         of a device [the cluster's]\n"                       \
      "  --precision fp32|bf16|mxfp8          of products [bf16; fp32 on CPUs]\n"                  \
      "  --routing learned|uniform|random     what loads of experts are expected [learned]\n"      \
      "  --capacity LIST                      to choose from: 1.25,dropless [the spec's]\n"        \
      "  --brief                              without plans, neighbours and other machines\n"      \
      DRIVER_SET)                                                                                  \
    X(place, "RUN|FILE [--ranks N] [-o FILE.lua]",                                                 \
      "experts onto ranks by recorded loads: the busiest rank gets least",                         \
      "  --ranks N                            that divide the experts of a layer [as the run has them]\n" \
      "  --last N                             steps whose loads count, 0: all [100]\n"              \
      "  --layout FIELDS|FILE.lua             the rest of the layout [the run's]\n"                \
      "  -o FILE.lua                          write the layout with the placement\n"               \
      "  --slots N                            places of a rank, copies in those to spare: what it would be\n" \
      "  --cluster NAME|FILE.lua              where it trains (docs/search.md): says when moving pays\n" \
      "  --bytes-per-s X                      of the link that experts would move over\n"          \
      "  --flops-per-s X                      of a rank in training [the cluster's, or the run's]\n"       \
      "  --layer N                            draw this one [that gains most]\n"                   \
      "FILE has loads: CSV with layer,expert,load[,step], or lines as in metrics.jsonl\n")          \
    X(sample, "RUN [--prompt TEXT] [--bytes N]", "generate from a run's newest checkpoint", "")

#define X(name, arguments, summary, options) int cmd_##name(int argc, char **argv);
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
// To stderr, or into a text while one is set: where many ranks say the same, one says it.
void driver_say(const char *text);
void driver_hold(Text *into); // NULL: to stderr again
// The model of a run, from the copy of its spec; NULL: driver_say has said why.
Model *driver_run_model(const char *run);
// A PlanAgain (runtime/train/train.h).
Status driver_plan_again(const Command *command, const char *run, Options *options, bool evaluates,
                         Plan **out);

#endif
