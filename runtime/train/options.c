// SPDX-License-Identifier: Apache-2.0
// Values in and out of the option table. Every way in ends in options_set, so that bounds and
// messages are the same for flags, --set and records.
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/train/options.h"

const OptionInfo option_info[N_OPTIONS] = {
#define X(kind, field, path, flag, initial, lowest, highest, unit, commands, help)                 \
    { OPTION_##kind, path, flag, initial, lowest, highest, unit, commands, help },
    OPTION_TABLE(X)
#undef X
};

static void *field_of(const Options *options, OptionId id) {
    static const size_t offsets[N_OPTIONS] = {
#define X(kind, field, ...) offsetof(Options, field),
        OPTION_TABLE(X)
#undef X
    };
    return (char *)(uintptr_t)options + offsets[id];
}

Options *options_create(void) {
    Arena *arena = arena_create();
    Options *options = ARENA_NEW(arena, Options);
    options->arena = arena;
    for (int i = 0; i < N_OPTIONS; i++) {
        if (option_info[i].kind == OPTION_FILES) continue; // starts empty
        Status status =
            options_set(options, (OptionId)i, option_info[i].path, option_info[i].initial);
        if (status != OK) { // a default outside its own bounds
            options_destroy(options);
            return NULL;
        }
        options->given[i] = false;
    }
    return options;
}

void options_destroy(Options *options) {
    if (options) arena_destroy(options->arena);
}

/* One value ----------------------------------------------------------------------------------- */

// What the number counts, after `before`: a plural. "fraction" and "id" are kinds of numbers.
static void add_unit(const OptionInfo *info, const char *before, Text *out) {
    size_t n = strlen(info->unit);
    if (n && info->unit[n - 1] == 's') text_printf(out, "%s%s", before, info->unit);
}

static void add_bound(double bound, Text *out) {
    if (bound == floor(bound)) text_printf(out, "%.0f", bound); // none is beyond 2^53
    else text_add_decimal(out, bound);
}

static Status wrong_bounds(const OptionInfo *info, const char *as, const char *value) {
    Text text = { 0 };
    bool open_above = info->kind == OPTION_INT && info->highest >= OPTION_MAX_INT;
    if (open_above) text_add(&text, "at least ");
    add_bound(info->lowest, &text);
    if (!open_above) {
        text_add(&text, " to ");
        add_bound(info->highest, &text);
    }
    add_unit(info, " ", &text);
    Status status =
        status_fail(ERR_ARGUMENT, "%s is %s, expected %s", as, value, text_cstr(&text));
    text_finish(&text);
    return status;
}

static Status no_number(const OptionInfo *info, const char *as, const char *value) {
    Text text = { 0 };
    text_add(&text, info->kind == OPTION_INT ? "a whole number" : "a number");
    add_unit(info, " of ", &text);
    Status status =
        status_fail(ERR_ARGUMENT, "%s is '%s', expected %s", as, value, text_cstr(&text));
    text_finish(&text);
    return status;
}

static Status set_number(Options *options, OptionId id, const char *as, const char *value) {
    const OptionInfo *info = &option_info[id];
    char *end;
    errno = 0;
    double number = strtod(value, &end);
    bool tiny = errno == ERANGE && fabs(number) < 1; // 0 now, not as it was written
    bool spelled = end != value && !*end && strspn(value, "+-.0123456789eE") == strlen(value);
    bool whole = number == floor(number) && !tiny;
    if (!spelled || !isfinite(number) || (info->kind == OPTION_INT && !whole))
        return no_number(info, as, value);
    if (number < info->lowest || number > info->highest) return wrong_bounds(info, as, value);
    if (info->kind == OPTION_INT) *(int64_t *)field_of(options, id) = (int64_t)number;
    else *(double *)field_of(options, id) = number;
    return OK;
}

static Status set_choice(Options *options, OptionId id, const char *as, const char *value) {
    const char *choices[8];
    int n = 0;
    for (const char *at = option_info[id].unit; at && n < COUNT_OF(choices); n++) {
        const char *bar = strchr(at, '|');
        choices[n] = bar ? arena_strndup(options->arena, at, (size_t)(bar - at)) : at;
        at = bar ? bar + 1 : NULL;
    }
    for (int i = 0; i < n; i++) {
        if (strcmp(choices[i], value)) continue;
        *(int64_t *)field_of(options, id) = i;
        return OK;
    }
    const char *near = text_nearest(value, choices, n);
    return status_fail(ERR_ARGUMENT, "%s is '%s', expected one of %s%s%s%s", as, value,
                       option_info[id].unit, near ? "\n  hint: did you mean '" : "",
                       near ? near : "", near ? "'?" : "");
}

static void add_file(Options *options, OptionFiles *files, const char *value) {
    size_t old = sizeof *files->at * (size_t)files->n;
    files->at = arena_grow(options->arena, files->at, old, old + sizeof *files->at);
    files->at[files->n++] = arena_strdup(options->arena, value);
}

Status options_set(Options *options, OptionId id, const char *as, const char *value) {
    const OptionInfo *info = &option_info[id];
    switch (info->kind) {
    case OPTION_INT:
    case OPTION_REAL: TRY(set_number(options, id, as, value)); break;
    case OPTION_CHOICE: TRY(set_choice(options, id, as, value)); break;
    case OPTION_TEXT:
        *(const char **)field_of(options, id) = arena_strdup(options->arena, value);
        break;
    case OPTION_FLAG:
        if (strcmp(value, "on") && strcmp(value, "off"))
            return status_fail(ERR_ARGUMENT, "%s is '%s', expected on or off", as, value);
        *(bool *)field_of(options, id) = !strcmp(value, "on");
        break;
    case OPTION_FILES: {
        if (!value[0])
            return status_fail(ERR_ARGUMENT, "%s names no file\n  hint: %s FILE...", as, as);
        add_file(options, field_of(options, id), value);
        break;
    }
    }
    options->given[id] = true;
    return OK;
}

void options_print(const Options *options, OptionId id, Text *out) {
    const void *field = field_of(options, id);
    switch (option_info[id].kind) {
    case OPTION_INT: text_printf(out, "%lld", (long long)*(const int64_t *)field); break;
    case OPTION_REAL: text_add_decimal(out, *(const double *)field); break;
    case OPTION_TEXT: text_add(out, *(const char *const *)field); break;
    case OPTION_FLAG: text_add(out, *(const bool *)field ? "on" : "off"); break;
    case OPTION_CHOICE: {
        const char *at = option_info[id].unit;
        for (int64_t i = *(const int64_t *)field; i > 0; i--) at = strchr(at, '|') + 1;
        text_add_n(out, at, strcspn(at, "|"));
        break;
    }
    case OPTION_FILES: {
        const OptionFiles *files = field;
        for (int i = 0; i < files->n; i++) text_printf(out, "%s%s", i ? " " : "", files->at[i]);
        break;
    }
    }
}

/* The command line ----------------------------------------------------------------------------- */

static const char *const command_names[] = {
#define X(NAME, name) #name,
    OPTION_COMMANDS(X)
#undef X
};

static const char *command_name(int command) {
    for (int i = 0; i < COUNT_OF(command_names); i++)
        if (command == 1 << i) return command_names[i];
    return "?";
}

static int find_flag(int command, const char *flag, size_t n) {
    for (int i = 0; i < N_OPTIONS; i++)
        if ((option_info[i].commands & command) && strlen(option_info[i].flag) == n &&
            !strncmp(option_info[i].flag, flag, n))
            return i;
    return -1;
}

// An option by the last part of its path where its flag is a letter: --out is -o.
static const char *flag_of_path(int command, const char *flag) {
    for (int i = 0; i < N_OPTIONS; i++) {
        const char *dot = strrchr(option_info[i].path, '.');
        if ((option_info[i].commands & command) && option_info[i].flag[1] != '-' && !strcmp(dot + 1, flag + 2))
            return option_info[i].flag;
    }
    return NULL;
}

// "train, resume": the commands that have the flag; false: none has.
static bool add_owners(const char *flag, Text *out) {
    int owners = 0, n = 0;
    for (int i = 0; i < N_OPTIONS; i++)
        if (!strcmp(option_info[i].flag, flag)) owners |= option_info[i].commands;
    for (int k = 0; k < N_OPTION_COMMANDS; k++)
        if (owners >> k & 1) text_printf(out, "%s%s", n++ ? ", " : "", command_names[k]);
    return n;
}

static Status unknown_flag(int command, const char *flag) {
    const char *words[N_OPTIONS + 2];
    int n = 0;
    bool letter = flag[1] != '-'; // then only letters are near
    if (!letter) {
        words[n++] = "--set";
        words[n++] = "--help";
    }
    for (int i = 0; i < N_OPTIONS; i++) {
        if ((option_info[i].commands & command) && letter == (option_info[i].flag[1] != '-'))
            words[n++] = option_info[i].flag;
        else if (!strcmp(option_info[i].flag, flag) && command == FOR_RESUME && (option_info[i].commands & FOR_TRAIN))
            return status_fail(ERR_ARGUMENT,
                               "%s is fixed for the life of a run\n  hint: start another run with "
                               "'moec train' to change it",
                               flag);
    }
    const char *near = letter ? NULL : flag_of_path(command, flag);
    Text owners = { 0 };
    Status status = OK;
    if (!near && add_owners(flag, &owners))
        status = status_fail(ERR_ARGUMENT, "unknown option '%s' of '%s'\n  hint: it is one of %s; 'moec %s --help' lists "
                             "those of '%s'", flag, command_name(command), text_cstr(&owners), command_name(command),
                             command_name(command));
    text_finish(&owners);
    if (status != OK) return status;
    if (!near) near = text_nearest(flag, words, n);
    if (near)
        return status_fail(ERR_ARGUMENT, "unknown option '%s' of '%s'\n  hint: did you mean %s?",
                           flag, command_name(command), near);
    return status_fail(ERR_ARGUMENT,
                       "unknown option '%s' of '%s'\n  hint: 'moec %s --help' lists them", flag,
                       command_name(command), command_name(command));
}

// A files option of the command line replaces what was there before, once.
static Status assign(Options *options, OptionId id, const char *as, const char *value, bool *seen) {
    if (option_info[id].kind == OPTION_FILES && !seen[id])
        *(OptionFiles *)field_of(options, id) = (OptionFiles){ 0 };
    seen[id] = true;
    return options_set(options, id, as, value);
}

// Whether the path begins as one of the table does: "optim.".
static bool is_group(const char *path) {
    size_t n = strcspn(path, ".");
    for (int i = 0; i < N_OPTIONS; i++)
        if (!strncmp(option_info[i].path, path, n + 1)) return true;
    return false;
}

// --set path=value
static Status set_path(Options *options, int command, const char *text, bool *seen) {
    const char *equals = strchr(text, '=');
    if (!equals)
        return status_fail(ERR_ARGUMENT, "--set is given '%s', expected path=value\n  hint: for example --set %s", text,
                           options->takes_spec_sets && command != FOR_TRAIN ? "layers.*.ffn.router.balance_loss=0"
                                                                            : "optim.lr=0.001");
    char *path = arena_strndup(options->arena, text, (size_t)(equals - text));
    const char *paths[N_OPTIONS];
    int n = 0;
    for (int i = 0; i < N_OPTIONS; i++) {
        if (!(option_info[i].commands & command)) continue;
        if (!strcmp(option_info[i].path, path))
            return assign(options, (OptionId)i, path, equals + 1, seen);
        paths[n++] = option_info[i].path;
    }
    if (options->takes_spec_sets && strchr(path, '.') && !is_group(path)) {
        add_file(options, &options->spec_sets, text);
        return OK;
    }
    const char *near = text_nearest(path, paths, n);
    if (near)
        return status_fail(ERR_ARGUMENT,
                           "--set: unknown path '%s' of '%s'\n  hint: did you mean %s?", path,
                           command_name(command), near);
    return status_fail(ERR_ARGUMENT,
                       "--set: unknown path '%s' of '%s'\n  hint: 'moec %s --help' lists them",
                       path, command_name(command), command_name(command));
}

// What stands for the value, after a space: choices as they are, else the unit in capitals.
static void add_placeholder(const OptionInfo *info, Text *out) {
    if (info->kind == OPTION_FLAG) return;
    text_add(out, " ");
    if (info->kind == OPTION_FILES) text_add(out, "FILE...");
    else if (!info->unit[0]) text_add(out, "X");
    else if (info->kind == OPTION_CHOICE || strpbrk(info->unit, "/|.")) text_add(out, info->unit);
    else
        for (const char *c = info->unit; *c; c++)
            text_printf(out, "%c", *c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c);
}

static Status needs_value(const OptionInfo *info, const char *flag) {
    Text value = { 0 };
    if (info) add_placeholder(info, &value);
    else text_add(&value, " PATH=VALUE");
    Status status = status_fail(ERR_ARGUMENT, "%s needs a value\n  hint: %s%s", flag, flag,
                                text_cstr(&value));
    text_finish(&value);
    return status;
}

Status options_parse(Options *options, int command, int argc, char **argv, const char **words,
                     int *n_words) {
    bool seen[N_OPTIONS] = { 0 };
    *n_words = 0;
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        if (!strcmp(word, "--")) {
            while (++i < argc) words[(*n_words)++] = argv[i];
            break;
        }
        if (word[0] != '-' || !word[1]) {
            words[(*n_words)++] = word;
            continue;
        }
        size_t n = word[1] == '-' ? strcspn(word, "=") : strlen(word);
        const char *flag = word[n] ? arena_strndup(options->arena, word, n) : word;
        const char *value = word[n] ? word + n + 1 : NULL;
        bool is_set = !strcmp(flag, "--set");
        int id = is_set ? -1 : find_flag(command, flag, n);
        if (!is_set && id < 0) return unknown_flag(command, flag);
        if (!value && !is_set && option_info[id].kind == OPTION_FLAG) value = "on";
        // A value may begin with one dash (a negative number gets its bounds error), not with two.
        if (!value && i + 1 < argc && strncmp(argv[i + 1], "--", 2)) value = argv[++i];
        if (!value) return needs_value(is_set ? NULL : &option_info[id], flag);
        if (is_set) {
            TRY(set_path(options, command, value, seen));
            continue;
        }
        TRY(assign(options, (OptionId)id, flag, value, seen));
        bool many = option_info[id].kind == OPTION_FILES && !word[n];
        while (many && i + 1 < argc && strncmp(argv[i + 1], "--", 2))
            TRY(assign(options, (OptionId)id, flag, argv[++i], seen));
    }
    return OK;
}

double options_peek(OptionId id, int argc, char **argv) {
    const OptionInfo *info = &option_info[id];
    Options *options = options_create();
    for (int i = 1; i < argc && strcmp(argv[i], "--"); i++) {
        bool is_set = !strncmp(argv[i], "--set", 5) && (argv[i][5] == '=' || !argv[i][5]);
        size_t n = strlen(is_set ? "--set" : info->flag);
        if (!is_set && (strncmp(argv[i], info->flag, n) || (argv[i][n] && argv[i][n] != '='))) continue;
        const char *text = argv[i][n] ? argv[i] + n + 1 : i + 1 < argc ? argv[i + 1] : "";
        if (is_set) {
            n = strlen(info->path);
            if (strncmp(text, info->path, n) || text[n] != '=') continue;
            text += n + 1;
        }
        (void)options_set(options, id, info->flag, text);
    }
    double value = *(double *)field_of(options, id);
    options_destroy(options);
    return value;
}

/* Help and reference --------------------------------------------------------------------------- */

static void print_default(const OptionInfo *info, Text *out) {
    if (info->initial[0]) text_printf(out, " [%s]", info->initial);
}

enum { HELP_COLUMN = 39, HELP_WIDTH = 100 };
enum { FOR_BLOCKS = FOR_TRAIN | FOR_CHECK | FOR_PLANS | FOR_SEARCH }; // what reads a spec anew

// The words of `text` from HELP_COLUMN on, in lines that fit. `left` stands before the first, or on
// a line of its own where it is too long.
static void print_paragraph(const char *left, const char *text, Text *out) {
    text_printf(out, "  %-*s", HELP_COLUMN - 2, left);
    int column = strlen(left) + 2 < HELP_COLUMN ? HELP_COLUMN : HELP_WIDTH;
    bool start = column == HELP_COLUMN;
    for (const char *word = text; *word;) {
        int n = (int)strcspn(word, " ");
        if (column + !start + n > HELP_WIDTH) {
            text_printf(out, "\n%*s", HELP_COLUMN, "");
            column = HELP_COLUMN;
            start = true;
        }
        text_printf(out, "%s%.*s", start ? "" : " ", n, word);
        column += n + !start;
        start = false;
        word += n + (word[n] == ' ');
    }
    text_add(out, "\n");
}

void options_help(int command, Text *out) {
    for (int i = 0; i < N_OPTIONS; i++) {
        const OptionInfo *info = &option_info[i];
        if (!(info->commands & command & FOR_COMMANDS)) continue;
        if ((info->commands & FOR_SPEC) && !(command & FOR_SPEC)) continue;
        Text left = { 0 }, right = { 0 };
        text_add(&left, info->flag);
        add_placeholder(info, &left);
        text_add(&right, info->help);
        print_default(info, &right);
        print_paragraph(text_cstr(&left), text_cstr(&right), out);
        text_finish(&left);
        text_finish(&right);
    }
    bool trains = command & (FOR_TRAIN | FOR_RESUME);
    print_paragraph("--set PATH=VALUE",
                    trains ? "an option by its path, for example optim.lr=0.001; docs/options.md has them"
                           : "an option by its path; docs/options.md has them",
                    out);
    if (command & FOR_SPEC && command & FOR_BLOCKS)
        print_paragraph("--set ADDRESS.FIELD=VALUE",
                        "a field of the spec's blocks, for example layers.*.ffn.router.balance_loss=0", out);
}

void options_reference(Text *out) {
    text_add(out, "| option | commands | path | default | bounds | unit | meaning |\n|---|---|---|---|---|---|---|\n");
    for (int i = 0; i < N_OPTIONS; i++) {
        const OptionInfo *info = &option_info[i];
        text_printf(out, "| `%s` | ", info->flag);
        int n = 0;
        for (int k = 0; k < N_OPTION_COMMANDS; k++)
            if (info->commands >> k & 1) text_printf(out, "%s%s", n++ ? ", " : "", command_names[k]);
        text_printf(out, " | `%s` | %s | ", info->path, info->initial);
        if (info->kind == OPTION_INT || info->kind == OPTION_REAL)
            text_printf(out, "%g to %g", info->lowest, info->highest);
        text_add(out, " | ");
        for (const char *c = info->unit; *c; c++)
            text_printf(out, "%s%c", *c == '|' ? "\\" : "", *c);
        text_printf(out, " | %s |\n", info->help);
    }
}

/* The record ----------------------------------------------------------------------------------- */

static json_t *record_value(const Options *options, OptionId id) {
    const void *field = field_of(options, id);
    switch (option_info[id].kind) {
    case OPTION_INT: return json_integer(*(const int64_t *)field);
    case OPTION_REAL: return json_real(*(const double *)field);
    case OPTION_FILES: {
        const OptionFiles *files = field;
        json_t *list = json_array();
        // Paths are bytes; one that is not UTF-8 cannot be a JSON string and is refused by the
        // caller.
        for (int i = 0; list && i < files->n; i++)
            if (json_array_append_new(list, json_string(files->at[i]))) {
                json_decref(list);
                list = NULL;
            }
        return list;
    }
    case OPTION_TEXT:
    case OPTION_FLAG:
    case OPTION_CHOICE: {
        Text text = { 0 };
        options_print(options, id, &text);
        json_t *string = json_string(text_cstr(&text));
        text_finish(&text);
        return string;
    }
    }
    return NULL;
}

json_t *options_record(const Options *options) {
    json_t *record = json_object();
    for (int i = 0; record && i < N_OPTIONS; i++) {
        if (!(option_info[i].commands & FOR_RECORD)) continue;
        if (json_object_set_new(record, option_info[i].path, record_value(options, (OptionId)i))) {
            json_decref(record);
            record = NULL;
        }
    }
    return record;
}

static Status read_value(Options *options, OptionId id, const json_t *value, const char *where) {
    const char *path = option_info[id].path;
    if (option_info[id].kind == OPTION_FILES && json_is_array(value)) {
        OptionFiles *files = field_of(options, id);
        *files = (OptionFiles) { 0 };
        for (size_t i = 0; i < json_array_size(value); i++) {
            const char *name = json_string_value(json_array_get(value, i));
            if (!name)
                return status_fail(ERR_FORMAT, "%s: %s holds something that is not a file name",
                                   where, path);
            TRY(options_set(options, id, path, name));
        }
        return OK;
    }
    char number[64];
    const char *text = json_string_value(value);
    if (json_is_integer(value)) {
        snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value));
        text = number;
    } else if (json_is_real(value)) {
        snprintf(number, sizeof number, "%.17g", json_real_value(value));
        text = number;
    }
    if (!text) return status_fail(ERR_FORMAT, "%s: %s has a value of a wrong type", where, path);
    if (options_set(options, id, path, text) != OK) {
        char *message = arena_strdup(options->arena, status_message());
        return status_fail(ERR_FORMAT, "%s: %s", where, message);
    }
    return OK;
}

Status options_read_record(Options *options, const json_t *record, const char *where) {
    if (!json_is_object(record))
        return status_fail(ERR_FORMAT, "%s: expected an object of options", where);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)record, key, value) {
        int id = 0;
        while (id < N_OPTIONS && strcmp(option_info[id].path, key)) id++;
        if (id == N_OPTIONS || !(option_info[id].commands & FOR_RECORD))
            return status_fail(ERR_VERSION,
                               "%s: unknown option '%s'\n  hint: it was written by another version "
                               "of moec",
                               where, key);
        TRY(read_value(options, (OptionId)id, value, where));
    }
    return OK;
}
