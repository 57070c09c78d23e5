// SPDX-License-Identifier: Apache-2.0
// Command lines. Flags are those of the option table (runtime/train/options.h); here is what the other words
// mean, and what options mean to the compiler.
#ifndef MOEC_DRIVER_LINE_H
#define MOEC_DRIVER_LINE_H

#include "compiler/cost/profile.h"
#include "compiler/model/model.h"
#include "compiler/spec/spec.h"
#include "runtime/train/options.h"

// SPEC [key=value...] and flags of `command`, FOR_..; `example` completes "hint: moec " where there is no SPEC. What
// *spec and *out point at is in argv and options->arena.
Status line_spec(Options *options, int command, int argc, char **argv, const char *example, const char **spec,
                 SpecOptions *out);
// At most one word and flags of `command`; *word: NULL if there is none.
Status line_word(Options *options, int command, int argc, char **argv, const char **word);

Routing line_routing(const Options *options);       // --routing
Precision line_precision(const Options *options, OptionId id); // of a choice; PRECISION_OPEN where it is not given
const CostAccount *line_account(const Options *options); // --memory-of; NULL: moec's own
const char *line_text(const char *value);           // NULL for "", which is a text that is not given

#endif
