// SPDX-License-Identifier: Apache-2.0
// Loading specs in tests.
#ifndef MOEC_TESTS_SPEC_HELPER_H
#define MOEC_TESTS_SPEC_HELPER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "compiler/spec/spec.h"

// What a run left behind. `m` is NULL if it failed.
typedef struct Loaded {
    Model *m;
    Text error, log;
} Loaded;

// `text` under the name model.lua. `args`: "key=value key=value", NULL for none.
Loaded load_text(const char *text, const char *args);
Loaded load_file(const char *path, const char *args);
void loaded_finish(Loaded *l);
// Lines that a complete spec needs around one: `local m`, and a model of width 64 with the layers
// `layers`.
Loaded load_layers(const char *before, const char *layers);
// Fails unless the text loads and prints exactly `want`.
void expect_print(const char *text, const char *want);
// Fails unless the text is refused with a message that contains `want`.
void expect_error(const char *text, const char *want);
const Param *param_named(const Model *m, const char *address); // fails if there is none

#endif
