// SPDX-License-Identifier: Apache-2.0
// The words of command lines: a spec with its arguments, or one word.
#include "compiler/driver/line.h"

#include "compiler/layout/layout.h"

// ORDER choices: of the table as of the enums they become.
_Static_assert((int)CHOICE_CHEAP == RECOMPUTE_CHEAP && (int)CHOICE_NONE == RECOMPUTE_NONE &&
               (int)CHOICE_BLOCK == RECOMPUTE_BLOCK, "choices of --recompute");
_Static_assert((int)CHOICE_LEARNED == ROUTING_LEARNED && (int)CHOICE_UNIFORM == ROUTING_UNIFORM &&
               (int)CHOICE_RANDOM == ROUTING_RANDOM, "choices of --routing");
_Static_assert(PRECISION_FP32 == 1 + (int)CHOICE_FP32 && PRECISION_BF16 == 1 + (int)CHOICE_BF16 &&
               PRECISION_MXFP8 == 1 + (int)CHOICE_MXFP8, "choices of --precision, after PRECISION_OPEN");

static SpecArg split(Options *options, const char *text) {
    size_t n = strcspn(text, "=");
    return (SpecArg){ arena_strndup(options->arena, text, n), text + n + 1 };
}

// The --set that are not the table's.
static SpecArg *spec_sets(Options *options) {
    const OptionFiles *texts = &options->spec_sets;
    SpecArg *sets = ARENA_ARRAY(options->arena, SpecArg, texts->n + 1);
    for (int i = 0; i < texts->n; i++) sets[i] = split(options, texts->at[i]);
    return sets;
}

Status line_spec(Options *options, int command, int argc, char **argv, const char *example, const char **spec,
                 SpecOptions *out) {
    const char **words = ARENA_ARRAY(options->arena, const char *, argc);
    int n;
    options->takes_spec_sets = true;
    TRY(options_parse(options, command, argc, argv, words, &n));
    if (!n || !words[0][0]) return status_fail(ERR_ARGUMENT, "no SPEC given\n  hint: moec %s", example);
    *spec = words[0];
    SpecArg *args = ARENA_ARRAY(options->arena, SpecArg, n);
    for (int i = 1; i < n; i++) {
        if (!strchr(words[i], '=') || words[i][0] == '=')
            return status_fail(ERR_ARGUMENT,
                               "unexpected '%s': after SPEC come key=value arguments of the spec, then options",
                               words[i]);
        args[i - 1] = split(options, words[i]);
    }
    *out = (SpecOptions){ .args = args, .n_args = n - 1, .routing = line_routing(options), .sets = spec_sets(options),
                          .n_sets = options->spec_sets.n };
    return OK;
}

Status line_word(Options *options, int command, int argc, char **argv, const char **word) {
    const char **words = ARENA_ARRAY(options->arena, const char *, argc);
    int n;
    TRY(options_parse(options, command, argc, argv, words, &n));
    *word = n && words[0][0] ? words[0] : NULL;
    return n < 2 ? OK : status_fail(ERR_ARGUMENT, "unexpected '%s' after %s", words[1], words[0]);
}

Routing line_routing(const Options *options) {
    return (Routing)options->routing;
}

Precision line_precision(const Options *options, OptionId id) {
    int64_t choice = id == OPT_costed ? options->costed : options->precision;
    return options->given[id] ? (Precision)(1 + choice) : PRECISION_OPEN;
}

const CostAccount *line_account(const Options *options) {
    Text name = { 0 };
    options_print(options, OPT_memory_of, &name);
    const CostAccount *account = cost_account(text_cstr(&name));
    text_finish(&name);
    return account;
}

const char *line_text(const char *value) {
    return value[0] ? value : NULL;
}
