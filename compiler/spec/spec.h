// SPDX-License-Identifier: Apache-2.0
// Hosts Lua: runs a spec in a sandbox and traces it into a Model.
#ifndef MOEC_SPEC_H
#define MOEC_SPEC_H

#include "compiler/cost/cost.h"
#include "compiler/layout/layout.h"
#include "compiler/model/model.h"

typedef struct SpecArg { const char *key, *value; } SpecArg;  // key=value from the command line

// What the ids that reach a route become, whatever the router: the run's choice, not the spec's.
typedef enum Routing { ROUTING_LEARNED, ROUTING_UNIFORM, ROUTING_RANDOM } Routing;

typedef struct SpecOptions {
    const SpecArg *args; int n_args;
    Routing routing;             // 0: the spec's
    const SpecArg *sets; int n_sets;   // "layers.*.ffn.router.balance_loss": fields of blocks
    Text *log;                   // print() of the spec goes here; NULL: stderr
} SpecOptions;

// Traces the file into a Model (caller destroys). On failure NULL and *error holds the whole diagnostic
// text (dsl.md section 8), one or several lines, ending in a newline.
Model *spec_load(const char *path, const SpecOptions *options, Text *error);
// The same from memory; `path` is the name in messages and the base of m.include.
Model *spec_load_text(const char *path, const char *text, size_t bytes, const SpecOptions *options, Text *error);

// Runs a file that returns an m.layout, in the same sandbox, for a model that spec_load made: its
// `placement` is asked for every layer and expert of the model, and its rules of precision become the
// model's. Fields that it leaves out keep what *layout says; arrays live in `arena`. False: as above, and the
// model may have some of the rules.
bool spec_load_layout(const char *path, Model *model, Arena *arena, Layout *layout, Text *error);
bool spec_load_layout_text(const char *path, const char *text, size_t bytes, Model *model, Arena *arena,
                           Layout *layout, Text *error);

// A cluster: a file (a name that ends in .lua) that returns m.cluster { ... }, in the same sandbox, or the name
// of a shipped one with a count, "b300x64" (dsl/hardware.lua). Texts live in `arena`. False: as above.
bool spec_load_cluster(const char *name, Arena *arena, CostCluster *out, Text *error);
bool spec_load_cluster_text(const char *path, const char *text, size_t bytes, Arena *arena, CostCluster *out,
                            Text *error);

#endif
