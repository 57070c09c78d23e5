// SPDX-License-Identifier: Apache-2.0
// The option table: parsing, --set, --help, the run record and the reference page all read it.
//
// A row is an option: its kind, the field that holds it, its path (`--set optim.lr=1e-3`, and its
// key in run.json and in checkpoints), its flag, its default in the form a user would write it, its
// bounds, its unit (for a choice: the choices), the commands that take it, and help. Adding an
// option is adding a row.
#ifndef MOEC_OPTIONS_H
#define MOEC_OPTIONS_H

#include <jansson.h>

#include "runtime/base/base.h"

// The commands that take an option, in this order in messages and on the page. RECORD: part of a run's record.
// CHANGE: `resume` may change it; other recorded ones decide the order of data or the meaning of the state, so they
// are fixed. PLANS: what lowers a spec without training it.
#define OPTION_COMMANDS(X)                                                                         \
    X(TRAIN, train) X(RESUME, resume) X(EVAL, eval) X(SAMPLE, sample) X(CHECK, check) X(PLAN, plan) \
    X(KERNELS, kernels) X(SIMULATE, simulate) X(SEARCH, search) X(PLACE, place)                    \
    X(CALIBRATE, calibrate) X(REPRODUCE, reproduce)
enum {
#define X(NAME, name) BIT_OF_##NAME,
    OPTION_COMMANDS(X)
#undef X
    N_OPTION_COMMANDS
};
enum {
#define X(NAME, name) FOR_##NAME = 1 << BIT_OF_##NAME,
    OPTION_COMMANDS(X)
#undef X
    FOR_COMMANDS = (1 << N_OPTION_COMMANDS) - 1,
    FOR_RECORD = 1 << N_OPTION_COMMANDS,
    FOR_SPEC = FOR_RECORD << 1, // only where a spec is lowered: a saved plan has decided it
    FOR_FIXED = FOR_TRAIN | FOR_RECORD, FOR_CHANGE = FOR_TRAIN | FOR_RESUME | FOR_RECORD,
    FOR_PLANS = FOR_PLAN | FOR_KERNELS | FOR_SIMULATE,
};

#define OPTION_MAX_INT 9007199254740992.0 /* 2^53: bounds are doubles */

// X(kind, field, path, flag, default, lowest, highest, unit or choices, commands, help)
#define OPTION_TABLE(X)                                                                            \
    X(FILES, data, "data.files", "--data", "", 0, 0, "files", FOR_FIXED | FOR_EVAL,                \
      "training data; gzip is recognised")                                                         \
    X(CHOICE, tokens, "data.tokens", "--tokens", "bytes", 0, 0, "bytes|uint16|uint32", FOR_FIXED,  \
      "what a file holds: any bytes, or little-endian token ids of 16 or 32 bits, with a NumPy "   \
      "header or without one")                                                                     \
    X(INT, eos, "data.eos", "--eos", "-1", -1, 2147483647, "id", FOR_FIXED,                        \
      "token that ends a document inside a file; -1: none, a file is one document")                \
    X(INT, held_out, "data.held_out", "--held-out", "0", 0, OPTION_MAX_INT, "tokens",              \
      FOR_FIXED | FOR_EVAL, "keep this many tokens at the end of the last file for evaluation")    \
    X(FILES, eval_data, "data.eval", "--eval-data", "", 0, 0, "files", FOR_FIXED | FOR_EVAL,       \
      "evaluate on these files instead of a held-out tail")                                        \
    X(TEXT, out, "run.out", "--out", "", 0, 0, "folder", FOR_TRAIN,                                \
      "the run's folder: checkpoints, metrics, loss.svg, plan.txt, run.json")                      \
    X(INT, steps, "train.steps", "--steps", "0", 0, 1e12, "steps", FOR_CHANGE,                     \
      "optimizer steps to train for; 0: as many as --seconds allows")                              \
    X(REAL, seconds, "train.seconds", "--seconds", "0", 0, 1e9, "seconds", FOR_CHANGE,             \
      "time to train for, evaluation included; the schedule follows it; 0: no limit")              \
    X(INT, batch, "train.batch", "--batch", "0", 0, 1e12, "tokens", FOR_FIXED | FOR_SPEC,          \
      "tokens per step, of all ranks; 0: as few microbatches as the layout needs")                 \
    X(INT, microbatch, "train.microbatch", "--microbatch", "0", 0, 2147483647, "tokens",           \
      FOR_FIXED | FOR_SPEC | FOR_PLANS,                                                                        \
      "tokens that a rank computes at once, unless the layout says; gradients of a step's "        \
      "microbatches add up; 0: about 2048")                                                        \
    X(TEXT, layout, "train.layout", "--layout", "", 0, 0, "fields|FILE.lua", FOR_CHANGE | FOR_SPEC | FOR_PLANS, \
      "how the model lies on ranks: pp=2,dp=8,ep=4, or a file that returns m.layout "              \
      "(docs/layouts.md); none: on one")                                                           \
    X(CHOICE, precision, "train.precision", "--precision", "fp32", 0, 0, "fp32|bf16",              \
      FOR_FIXED | FOR_SPEC | FOR_PLAN | FOR_KERNELS,                                                                        \
      "of products and attention, where the spec says nothing; sums are fp32 in both")             \
    X(CHOICE, recompute, "train.recompute", "--recompute", "cheap", 0, 0, "cheap|none|block",      \
      FOR_FIXED | FOR_SPEC | FOR_PLANS,                                                                        \
      "unless the layout says: what row operations make again in backward is not saved; none: "    \
      "everything is; block: only what enters a layer is")                                         \
    X(CHOICE, routing, "train.routing", "--routing", "learned", 0, 0, "learned|uniform|random",    \
      FOR_FIXED | FOR_SPEC | FOR_PLANS | FOR_SEARCH,                                                                        \
      "experts of a token: the router's choice; or, whatever the router, even loads by position, " \
      "or drawn anew in every step")                                                               \
    X(INT, seed, "train.seed", "--seed", "1", 0, 2147483647, "", FOR_FIXED,                        \
      "of parameters, data order and every random number")                                         \
    X(INT, threads, "train.threads", "--threads", "0", 0, 1024, "threads",                         \
      FOR_CHANGE | FOR_EVAL | FOR_SAMPLE, "threads; 0: every core; results do not depend on it")   \
    X(TEXT, device, "train.device", "--device", "cpu", 0, 0, "cpu|cuda[:N]|vgpu:ARCH",             \
      FOR_CHANGE | FOR_EVAL | FOR_SAMPLE | FOR_PLAN,                                                          \
      "where it runs: this machine's cores, a GPU, or the virtual GPU as one of an architecture "  \
      "(vgpu:sm_80); a plan is for a CPU or for GPUs from an architecture on")                     \
    X(FLAG, graph, "train.graph", "--graph", "on", 0, 0, "", FOR_CHANGE | FOR_EVAL | FOR_SAMPLE,   \
      "on a GPU a step is recorded once and launched as a whole; --graph=off: kernel by kernel")   \
    X(REAL, deadline, "train.deadline", "--deadline", "8", 1, 1e6, "seconds",                      \
      FOR_TRAIN | FOR_RESUME | FOR_EVAL | FOR_SAMPLE,                                              \
      "ranks that mpirun or srun started end when one that others wait for has not moved for so "  \
      "long; all have come by then too, give or take 20 a second")                                 \
    X(INT, eval_interval, "train.eval_interval", "--eval-interval", "0", 0, 1e12, "steps",         \
      FOR_CHANGE, "evaluate every so many steps; 0: at the end only")                              \
    X(INT, eval_limit, "train.eval_limit", "--eval-limit", "65536", 1, 1e15, "tokens",             \
      FOR_CHANGE, "of an evaluation between steps; the one at the end reads everything")           \
    X(INT, save_interval, "train.save_interval", "--save-interval", "500", 0, 1e12, "steps",       \
      FOR_CHANGE, "save every so many steps; 0: at the end only")                                  \
    X(INT, keep, "train.keep", "--keep", "2", 1, 1e6, "checkpoints", FOR_CHANGE,                   \
      "newest checkpoints to keep")                                                                \
    X(INT, keep_every, "train.keep_every", "--keep-every", "0", 0, 1e12, "steps", FOR_CHANGE,      \
      "also save every so many steps, and keep those for good; 0: none")                           \
    X(REAL, log_interval, "train.log_interval", "--log-interval", "10", 0, 1e9, "seconds",         \
      FOR_CHANGE, "between progress lines where stderr is not a terminal; 0: a line per step")     \
    X(REAL, peak, "train.peak", "--peak", "0", 0, 1e12, "GFLOP/s", FOR_CHANGE,                     \
      "peak of the machine, for model FLOPs utilisation in the metrics; 0: unknown")               \
    X(FLAG, tensorboard, "run.tensorboard", "--tensorboard", "on", 0, 0, "", FOR_CHANGE,           \
      "write a TensorBoard event file too; --tensorboard=off: do not")                             \
    X(TEXT, trace, "run.trace", "--trace", "", 0, 0, "file", FOR_TRAIN | FOR_RESUME,               \
      "write what every rank did when in some steps, as JSON that ui.perfetto.dev opens "          \
      "(docs/search.md); on a GPU these steps go by launches, not as a graph")                     \
    X(INT, trace_step, "run.trace_step", "--trace-step", "0", 0, 1e12, "step",                     \
      FOR_TRAIN | FOR_RESUME, "the first of them; 0: the third of this command")                   \
    X(INT, trace_steps, "run.trace_steps", "--trace-steps", "1", 1, 1000, "steps",                 \
      FOR_TRAIN | FOR_RESUME, "how many they are")                                                 \
    X(REAL, lr, "optim.lr", "--lr", "0.004", 0, 1e3, "", FOR_CHANGE, "peak learning rate")         \
    X(INT, warmup, "optim.warmup", "--warmup", "50", 0, 1e12, "steps", FOR_CHANGE,                 \
      "the learning rate grows linearly over the first steps")                                     \
    X(CHOICE, schedule, "optim.schedule", "--schedule", "cosine", 0, 0,                            \
      "cosine|linear|constant|wsd", FOR_CHANGE,                                                    \
      "how the learning rate falls over the run; wsd: stable, then linear over its last part")     \
    X(REAL, decay_fraction, "optim.decay_fraction", "--decay-fraction", "0.1", 0, 1, "fraction",   \
      FOR_CHANGE, "wsd: the part of the run, at its end, over which the learning rate falls")      \
    X(REAL, min_lr, "optim.min_lr", "--min-lr", "0.1", 0, 1, "fraction", FOR_CHANGE,               \
      "where it ends, as a fraction of the peak")                                                  \
    X(REAL, beta1, "optim.beta1", "--beta1", "0.9", 0, 0.999999, "", FOR_CHANGE,                   \
      "AdamW: decay of the first moment")                                                          \
    X(REAL, beta2, "optim.beta2", "--beta2", "0.95", 0, 0.999999, "", FOR_CHANGE,                  \
      "AdamW: decay of the second moment")                                                         \
    X(REAL, eps, "optim.eps", "--eps", "1e-08", 1e-30, 1, "", FOR_CHANGE,                          \
      "AdamW: added to the root of the second moment")                                             \
    X(REAL, decay, "optim.decay", "--weight-decay", "0.1", 0, 1e3, "", FOR_CHANGE,                 \
      "AdamW: weight decay, times the learning rate and each parameter's own multiplier")          \
    X(REAL, clip, "optim.clip", "--clip", "1", 0, 1e30, "", FOR_CHANGE,                            \
      "largest global gradient norm; 0: none")                                                     \
    X(FLAG, quiet, "eval.quiet", "--quiet", "off", 0, 0, "", FOR_EVAL,                             \
      "print the bits per token and nothing else")                                                 \
    X(TEXT, prompt, "sample.prompt", "--prompt", "", 0, 0, "text", FOR_SAMPLE,                     \
      "text to go on from")                                                                        \
    X(INT, length, "sample.length", "--bytes", "400", 1, 1e9, "tokens", FOR_SAMPLE,                \
      "bytes (or token ids) to generate")                                                          \
    X(REAL, temperature, "sample.temperature", "--temperature", "0.8", 0, 100, "", FOR_SAMPLE,     \
      "divides the logits; 0: always the likeliest token")                                         \
    X(REAL, top_p, "sample.top_p", "--top-p", "0.95", 1e-6, 1, "probability", FOR_SAMPLE,          \
      "draw from the likeliest tokens that together have this probability")                        \
    X(INT, sample_seed, "sample.seed", "--seed", "1", 0, 2147483647, "", FOR_SAMPLE,               \
      "of the draws")                                                                              \
    X(FLAG, verbose, "check.verbose", "-v", "off", 0, 0, "", FOR_CHECK,                            \
      "every parameter with its shape and settings")                                               \
    X(TEXT, plan_out, "plan.out", "-o", "", 0, 0, "file", FOR_PLAN,                                \
      "write the plan, for moec-run")                                                              \
    X(TEXT, dump, "plan.dump", "-d", "", 0, 0, "letters", FOR_PLAN | FOR_KERNELS,                  \
      "print the graph after these passes; -d ? lists them")                                       \
    X(TEXT, target, "plan.target", "--target", "", 0, 0, "cpu|cuda:ARCH", FOR_PLAN | FOR_SIMULATE, \
      "what it is made for, by architecture, for example cuda:sm_90a; simulate: as --cluster says") \
    X(INT, microbatches, "plan.microbatches", "--microbatches", "0", 0, 2147483647, "number",      \
      FOR_PLANS, "microbatches of a rank per step; 0: as few as the layout needs")                 \
    X(TEXT, arch, "kernels.arch", "--arch", "", 0, 0, "arch", FOR_KERNELS,                         \
      "sm_80, sm_90a, sm_100a, ...")                                                               \
    X(TEXT, kernels_out, "kernels.out", "-o", "", 0, 0, "folder", FOR_KERNELS,                     \
      "the folder to write")                                                                       \
    X(TEXT, cluster, "cluster.name", "--cluster", "", 0, 0, "NAME|FILE.lua",                       \
      FOR_SIMULATE | FOR_SEARCH | FOR_PLACE,                                                       \
      "the machine: a shipped one, for example b300x64, or a file that returns m.cluster "         \
      "(docs/search.md); simulate: a core for each rank without it")                               \
    X(TEXT, picture, "simulate.trace", "--trace", "", 0, 0, "file", FOR_SIMULATE,                  \
      "what every stage does when, in the form of train's")                                        \
    X(TEXT, svg, "simulate.svg", "--svg", "", 0, 0, "file", FOR_SIMULATE,                          \
      "the same as a picture")                                                                     \
    X(TEXT, times, "simulate.times", "--times", "", 0, 0, "trace", FOR_SIMULATE,                   \
      "a step that was run (train --trace): its times of kernels, and how it compares")            \
    X(REAL, load, "simulate.load", "--load", "0", 0, 1e6, "", FOR_SIMULATE,                        \
      "busiest rank's rows over the mean, from 1; 0: as the routing lets expect")                  \
    X(FLAG, quick, "simulate.quick", "--quick", "off", 0, 0, "", FOR_SIMULATE,                     \
      "without plans, from the kinds of layers a model has: also in --precision mxfp8, which "     \
      "plans have not yet")                                                                        \
    X(CHOICE, costed, "cluster.precision", "--precision", "fp32", 0, 0, "fp32|bf16|mxfp8",         \
      FOR_SIMULATE, "of products and attention")                                                   \
    X(CHOICE, memory_of, "cluster.memory_of", "--memory-of", "moec", 0, 0,                         \
      "moec|olmo-core|megatron|torchtitan", FOR_SIMULATE | FOR_SEARCH,                             \
      "memory also as another stack accounts for its own (docs/search.md)")                        \
    X(INT, gpus, "search.gpus", "--gpus", "0", 0, 1048576, "devices", FOR_SEARCH,                  \
      "of the cluster's devices; 0: all")                                                          \
    X(INT, step_tokens, "search.tokens", "--tokens", "0", 0, OPTION_MAX_INT, "tokens", FOR_SEARCH, \
      "of a step, over all devices; 0: 8 sequences a device")                                      \
    X(INT, top, "search.top", "--top", "5", 1, 64, "layouts", FOR_SEARCH, "how many to list")      \
    X(TEXT, why_not, "search.layout", "--layout", "", 0, 0, "fields|FILE.lua", FOR_SEARCH,         \
      "why not this one")                                                                          \
    X(TEXT, best_out, "search.out", "-o", "", 0, 0, "FILE.lua", FOR_SEARCH,                        \
      "write the best, for --layout of plan and train")                                            \
    X(REAL, memory_gib, "search.memory", "--memory", "0", 0, 1e9, "GiB", FOR_SEARCH,               \
      "of a device; 0: the cluster's")                                                             \
    X(TEXT, capacities, "search.capacity", "--capacity", "", 0, 0, "list", FOR_SEARCH,             \
      "to choose from, for example 1.25,dropless; none: the spec's")                               \
    X(TEXT, rounds, "search.round", "--round", "", 0, 0, "list", FOR_SEARCH,                       \
      "where no row is dropped, to choose from; none: whole,1.25,2")                               \
    X(TEXT, precisions, "search.precision", "--precision", "", 0, 0, "list|any", FOR_SEARCH,       \
      "to choose from, of fp32, bf16 and mxfp8; any: all that the devices have; none: bf16 on "    \
      "GPUs, else fp32")                                                                           \
    X(TEXT, recorded, "search.load", "--load", "", 0, 0, "RUN|FILE", FOR_SEARCH,                   \
      "how many rows experts got, as moec place reads it: their placement is chosen by it, and "   \
      "what that leaves is waited for")                                                            \
    X(FLAG, planned, "search.planned", "--planned", "off", 0, 0, "", FOR_SEARCH,                   \
      "only layouts that moec has plans for today")                                                \
    X(FLAG, brief, "search.brief", "--brief", "off", 0, 0, "", FOR_SEARCH | FOR_REPRODUCE,         \
      "without what takes further searches or plans")                                              \
    X(INT, place_ranks, "place.ranks", "--ranks", "0", 0, 1048576, "ranks", FOR_PLACE,             \
      "that divide the experts of a layer; 0: as the run or --layout has them")                    \
    X(INT, last, "place.last", "--last", "100", 0, 1e12, "steps", FOR_PLACE | FOR_SEARCH,          \
      "whose loads count, the last ones; 0: all")                                                  \
    X(TEXT, rest, "place.layout", "--layout", "", 0, 0, "fields|FILE.lua", FOR_PLACE,              \
      "the rest of the layout; none: the run's")                                                   \
    X(TEXT, placed_out, "place.out", "-o", "", 0, 0, "FILE.lua", FOR_PLACE,                        \
      "write the layout with the placement")                                                       \
    X(INT, place_slots, "place.slots", "--slots", "0", 0, 1048576, "places", FOR_PLACE,            \
      "of each rank: what copies of experts in those to spare would give; 0: none are to spare")   \
    X(REAL, bytes_per_s, "place.bytes_per_s", "--bytes-per-s", "0", 0, 1e18, "bytes/s", FOR_PLACE, \
      "of the link that experts would move over: says when moving pays; 0: --cluster's")           \
    X(REAL, flops_per_s, "place.flops_per_s", "--flops-per-s", "0", 0, 1e21, "FLOP/s", FOR_PLACE,  \
      "of a rank in training; 0: --cluster's, or the run's")                                       \
    X(INT, place_layer, "place.layer", "--layer", "0", 0, 1e6, "layer", FOR_PLACE,                 \
      "to draw; 0: the one that gains most")                                                       \
    X(TEXT, calibrated_out, "calibrate.out", "-o", "cluster.lua", 0, 0, "FILE.lua", FOR_CALIBRATE, \
      "where to write")                                                                            \
    X(TEXT, measured, "calibrate.device", "--device", "cpu", 0, 0, "cpu|cuda[:N]", FOR_CALIBRATE,  \
      "what to measure")                                                                           \
    X(REAL, measure_s, "calibrate.seconds", "--seconds", "5", 1e-3, 3600, "seconds", FOR_CALIBRATE, \
      "of work for each figure")                                                                   \
    X(INT, measure_threads, "calibrate.threads", "--threads", "0", 0, 1024, "threads",             \
      FOR_CALIBRATE, "of a CPU; 0: its cores, divided among ranks")                                \
    X(TEXT, cluster_name, "calibrate.name", "--name", "calibrated", 0, 0, "name", FOR_CALIBRATE,   \
      "of the cluster, in reports")                                                                \
    X(TEXT, rows, "reproduce.rows", "--rows", "tests/search/published.csv", 0, 0, "FILE.csv",      \
      FOR_REPRODUCE, "rows to predict, if published")                                              \
    X(TEXT, models, "reproduce.models", "--models", "models", 0, 0, "folder", FOR_REPRODUCE,       \
      "where the specs are")

typedef struct OptionFiles { const char **at; int n; } OptionFiles;

#define OPTION_C_INT int64_t
#define OPTION_C_REAL double
#define OPTION_C_TEXT const char *
#define OPTION_C_CHOICE int64_t /* index into the choices */
#define OPTION_C_FILES OptionFiles
#define OPTION_C_FLAG bool /* "--flag" alone; as a value, on or off */
typedef enum OptionKind {
    OPTION_INT, OPTION_REAL, OPTION_TEXT, OPTION_CHOICE, OPTION_FILES, OPTION_FLAG
} OptionKind;
typedef enum OptionId {
#define X(kind, field, ...) OPT_##field,
    OPTION_TABLE(X)
#undef X
    N_OPTIONS
} OptionId;

enum { TOKENS_BYTES, TOKENS_UINT16, TOKENS_UINT32 };           // of OPT_tokens; log2 of bytes
enum { CHOICE_FP32, CHOICE_BF16, CHOICE_MXFP8 };               // of OPT_precision; OPT_costed
enum { CHOICE_CHEAP, CHOICE_NONE, CHOICE_BLOCK };              // of OPT_recompute
enum { CHOICE_LEARNED, CHOICE_UNIFORM, CHOICE_RANDOM };        // of OPT_routing
enum { SCHEDULE_COSINE, SCHEDULE_LINEAR, SCHEDULE_CONSTANT, SCHEDULE_WSD }; // of OPT_schedule

typedef struct Options {
    Arena *arena;
    bool given[N_OPTIONS];       // set by the user or a record, as against the default
    bool takes_spec_sets;        // --set of a path in no group of the table is the spec's; else unknown
#define X(kind, field, ...) OPTION_C_##kind field;
    OPTION_TABLE(X)
#undef X
    OptionFiles spec_sets;       // "path=value", in order
} Options;

typedef struct OptionInfo {
    OptionKind kind;
    const char *path, *flag, *initial;
    double lowest, highest;
    const char *unit;            // or the choices, "a|b"
    int commands;
    const char *help;
} OptionInfo;
extern const OptionInfo option_info[N_OPTIONS];

Options *options_create(void); // at their defaults
void options_destroy(Options *options);                        // NULL is fine
// One value in the form a user writes it. `as` is what messages call the option: its flag or path.
Status options_set(Options *options, OptionId id, const char *as, const char *value);
// Parses argv[1 ..]: flags of `command`, `--flag=value`, `--set path=value`; a FILES flag takes
// every word up to the next flag that begins with two dashes. Other words go to `words` in order, which has room for argc.
// Words after "--" are never flags.
Status options_parse(Options *options, int command, int argc, char **argv, const char **words,
                     int *n_words);
// The value of a REAL that the words give by its flag or path, before they can be parsed; its default where they do
// not, or give one that options_parse will refuse.
double options_peek(OptionId id, int argc, char **argv);
// The value as text that options_set reads back to the same bits (files joined by spaces).
void options_print(const Options *options, OptionId id, Text *out);
// A paragraph per option of the command; those of FOR_SPEC only where `command` has that bit too.
void options_help(int command, Text *out);
void options_reference(Text *out);                             // the table as Markdown
json_t *options_record(const Options *options); // {"optim.lr": 0.004, ...}; NULL: out of memory
Status options_read_record(Options *options, const json_t *record, const char *where);

#endif
