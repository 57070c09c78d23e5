// SPDX-License-Identifier: Apache-2.0
// The short form of a layout. Parser, printer and help walk one table (LAYOUT_FIELDS); the Lua form
// hands its fields to layout_set as text, so that bounds and messages are the same in both.
//
// Invariant: print(parse(x)) parses to the same layout and prints the same text.
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "compiler/layout/private.h"

typedef enum FieldKind {
    FIELD_SIZE, FIELD_POWER, FIELD_CHOICE, FIELD_COUNTS, FIELD_POLICY, FIELD_ROOM
} FieldKind;

static const struct {
    FieldKind kind;
    size_t offset; // of the member
    int64_t most;
    const char *choices, *help;
} fields[N_LAYOUT_FIELDS] = {
#define X(name, kind, member, most, choices, help)                                                 \
    { FIELD_##kind, offsetof(Layout, member), most, choices, help },
    LAYOUT_FIELDS(X)
#undef X
};
const char *const layout_field_name[N_LAYOUT_FIELDS] = {
#define X(name, ...) #name,
    LAYOUT_FIELDS(X)
#undef X
};

static void *member(const Layout *layout, LayoutField field) {
    return (char *)(uintptr_t)layout + fields[field].offset;
}

/* Words ---------------------------------------------------------------------------------------- */

enum { MOST_CHOICES = 4, LONGEST_WORD = 32 };

// Cuts "a|b|c" into words that live in `at`.
static int split_choices(const char *choices, char at[MOST_CHOICES][LONGEST_WORD],
                         const char *words[MOST_CHOICES]) {
    int n = 0;
    while (*choices && n < MOST_CHOICES) {
        size_t bytes = strcspn(choices, "|");
        memcpy(at[n], choices, bytes);
        at[n][bytes] = 0;
        words[n] = at[n];
        n++;
        choices += bytes + (choices[bytes] == '|');
    }
    return n;
}

static Status wrong_value(LayoutField field, const char *value, const char *expected) {
    return status_fail(ERR_ARGUMENT, "layout: %s is '%s', expected %s",
                       layout_field_name[field], value, expected);
}

static Status read_choice(LayoutField field, const char *word, uint8_t *out) {
    char at[MOST_CHOICES][LONGEST_WORD];
    const char *words[MOST_CHOICES];
    int n = split_choices(fields[field].choices, at, words);
    for (int i = 0; i < n; i++) {
        if (strcmp(words[i], word)) continue;
        *out = (uint8_t)i;
        return OK;
    }
    const char *near = text_nearest(word, words, n);
    return status_fail(ERR_ARGUMENT, "layout: %s is '%s', expected one of %s%s%s%s",
                       layout_field_name[field], word, fields[field].choices,
                       near ? "\n  hint: did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static const char *choice_word(LayoutField field, uint8_t choice, char out[LONGEST_WORD]) {
    char at[MOST_CHOICES][LONGEST_WORD];
    const char *words[MOST_CHOICES];
    split_choices(fields[field].choices, at, words);
    return strcpy(out, words[choice]);
}

static Status read_whole(LayoutField field, const char *text, int64_t least, int32_t *out) {
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    bool spelled = *text && !*end && strspn(text, "0123456789") == strlen(text) && !errno;
    if (spelled && value >= least && value <= fields[field].most) {
        *out = (int32_t)value;
        return OK;
    }
    return status_fail(ERR_ARGUMENT, "layout: %s is '%s', expected a whole number from %lld to %lld",
                       layout_field_name[field], text, (long long)least,
                       (long long)fields[field].most);
}

static Status read_power(LayoutField field, const char *text, int32_t *out) {
    int32_t value;
    char expected[48];
    snprintf(expected, sizeof expected, "a power of two from 1 to %lld", (long long)fields[field].most);
    if (read_whole(field, text, 1, &value) != OK || (value & (value - 1))) return wrong_value(field, text, expected);
    *out = value;
    return OK;
}

/* Values --------------------------------------------------------------------------------------- */

enum { LONGEST_LIST = 1 << 16, SHORTEST_RUN = 3 /* that is printed as one */ };

typedef struct List { char **words; uint32_t n, cap; } List;

// "4:4:4:3" or, the same, "4*3:3".
static Status split_list(Arena *arena, LayoutField field, const char *value, List *out) {
    for (bool more = true; more;) {
        size_t bytes = strcspn(value, ":");
        char *word = arena_strndup(arena, value, bytes), *star = strchr(word, '*'), *end = NULL;
        long long times = star ? strtoll(star + 1, &end, 10) : 1;
        if (star && (end == star + 1 || *end || star[1] < '1' || star[1] > '9'))
            return wrong_value(field, word, "how many alike as a whole number behind '*', as in 4*3");
        if (times > LONGEST_LIST - (long long)out->n) return wrong_value(field, word, "fewer than 65537 entries in all");
        if (star) *star = 0;
        for (long long i = 0; i < times; i++) *ARENA_PUSH(arena, out->words, out->n, out->cap) = word;
        more = value[bytes] == ':';
        value += bytes + more;
    }
    return OK;
}

static Status set_counts(Layout *layout, Arena *arena, LayoutField field, const char *value) {
    List list = { 0 };
    TRY(split_list(arena, field, value, &list));
    if (list.n > LAYOUT_MOST_STAGES * LAYOUT_MOST_STAGES)
        return wrong_value(field, "a longer list", "one number per stage");
    int32_t *counts = ARENA_ARRAY(arena, int32_t, list.n);
    for (uint32_t i = 0; i < list.n; i++) TRY(read_whole(field, list.words[i], 0, &counts[i]));
    layout->stages = counts;
    layout->n_stages = (int32_t)list.n;
    return OK;
}

static Status set_policy(Layout *layout, Arena *arena, LayoutField field, const char *value) {
    layout->layer_recompute = NULL;
    layout->n_layer_recompute = 0;
    if (!strpbrk(value, ":*")) return read_choice(field, value, &layout->recompute);
    List list = { 0 };
    TRY(split_list(arena, field, value, &list));
    uint8_t *each = ARENA_ARRAY(arena, uint8_t, list.n);
    for (uint32_t i = 0; i < list.n; i++) TRY(read_choice(field, list.words[i], &each[i]));
    layout->layer_recompute = each;
    layout->n_layer_recompute = (int32_t)list.n;
    return OK;
}

// A number above 0, or the field's word for infinity.
static Status set_room(Layout *layout, LayoutField field, const char *value) {
    double *to = member(layout, field);
    char expected[64], *end;
    if (!strcmp(value, fields[field].choices)) {
        *to = INFINITY;
        return OK;
    }
    double number = strtod(value, &end);
    bool spelled = end != value && !*end && strspn(value, "+-.0123456789eE") == strlen(value);
    snprintf(expected, sizeof expected, "a number above 0, up to %lld, or %s", (long long)fields[field].most,
             fields[field].choices);
    if (!spelled || !(number > 0) || number > (double)fields[field].most)
        return wrong_value(field, value, expected);
    *to = number;
    return OK;
}

Status layout_set(Layout *layout, Arena *arena, LayoutField field, const char *value) {
    switch (fields[field].kind) {
    case FIELD_SIZE: return read_whole(field, value, 1, member(layout, field));
    case FIELD_POWER: return read_power(field, value, member(layout, field));
    case FIELD_CHOICE: return read_choice(field, value, member(layout, field));
    case FIELD_COUNTS: return set_counts(layout, arena, field, value);
    case FIELD_POLICY: return set_policy(layout, arena, field, value);
    case FIELD_ROOM: return set_room(layout, field, value);
    }
    return OK;
}

void layout_settle(Layout *layout, uint32_t given) {
    bool dense = given & 1u << LAYOUT_params, experts = given & 1u << LAYOUT_expert_params;
    if (dense && !experts) layout->expert_params = layout->params;
}

/* Parsing -------------------------------------------------------------------------------------- */

static Status unknown_field(const char *name) {
    const char *near = text_nearest(name, layout_field_name, N_LAYOUT_FIELDS);
    Text hint = { 0 };
    if (near) text_printf(&hint, "did you mean '%s'? ", near);
    text_add(&hint, "fields: ");
    for (int i = 0; i < N_LAYOUT_FIELDS; i++)
        text_printf(&hint, "%s%s", i ? ", " : "", layout_field_name[i]);
    Status status = status_fail(ERR_ARGUMENT, "layout: a layout has no field '%s'\n  hint: %s", name,
                                text_cstr(&hint));
    text_finish(&hint);
    return status;
}

// One "name=value", blanks around either left out.
static Status parse_one(Layout *layout, Arena *arena, char *word, uint32_t *given) {
    static const char blanks[] = " \t";
    word += strspn(word, blanks);
    char *value = strchr(word, '=');
    if (!value)
        return status_fail(ERR_ARGUMENT,
                           "layout: expected name=value, got '%s'\n"
                           "  hint: for example pp=2,dp=4,ep=4; a file of Lua ends in .lua",
                           word);
    *value++ = 0;
    value += strspn(value, blanks);
    char *texts[] = { word, value };
    for (int i = 0; i < 2; i++) {
        size_t n = strlen(texts[i]);
        while (n && strchr(blanks, texts[i][n - 1])) texts[i][--n] = 0;
    }
    for (LayoutField field = 0; field < N_LAYOUT_FIELDS; field++) {
        if (strcmp(layout_field_name[field], word)) continue;
        if (*given & 1u << field)
            return status_fail(ERR_ARGUMENT, "layout: %s is given twice", word);
        *given |= 1u << field;
        return layout_set(layout, arena, field, value);
    }
    return unknown_field(word);
}

Status layout_parse(const char *text, Arena *arena, Layout *layout) {
    uint32_t given = 0;
    for (const char *at = text;; at++) {
        size_t n = strcspn(at, ",");
        TRY(parse_one(layout, arena, arena_strndup(arena, at, n), &given));
        at += n;
        if (!*at) break;
    }
    layout_settle(layout, given);
    return OK;
}

/* Printing ------------------------------------------------------------------------------------- */

bool layout_leaves_out(const Layout *layout, LayoutField field) {
    Layout single = layout_single();
    switch (fields[field].kind) {
    case FIELD_SIZE:
    case FIELD_POWER:
        return field != LAYOUT_dp &&
               *(int32_t *)member(layout, field) == *(int32_t *)member(&single, field);
    case FIELD_CHOICE: {
        uint8_t usual = field == LAYOUT_expert_params ? layout->params
                                                      : *(uint8_t *)member(&single, field);
        return *(uint8_t *)member(layout, field) == usual;
    }
    case FIELD_COUNTS: return !layout->stages;
    case FIELD_POLICY: return !layout->layer_recompute && layout->recompute == single.recompute;
    case FIELD_ROOM: return *(double *)member(layout, field) == *(double *)member(&single, field);
    }
    return true;
}

// Entry i of a list as a word.
static const char *list_word(const Layout *layout, LayoutField field, int32_t i, char out[LONGEST_WORD]) {
    if (fields[field].kind == FIELD_POLICY) return choice_word(field, layout->layer_recompute[i], out);
    snprintf(out, LONGEST_WORD, "%d", layout->stages[i]);
    return out;
}

static void print_list(const Layout *layout, LayoutField field, int32_t n, Text *out) {
    char word[LONGEST_WORD], next[LONGEST_WORD];
    for (int32_t i = 0, run; i < n; i += run) {
        list_word(layout, field, i, word);
        for (run = 1; i + run < n && !strcmp(list_word(layout, field, i + run, next), word);) run++;
        if (run < SHORTEST_RUN) run = 1;
        text_printf(out, "%s%s", i ? ":" : "", word);
        if (run > 1) text_printf(out, "*%d", run);
    }
}

void layout_print_value(const Layout *layout, LayoutField field, Text *out) {
    char word[LONGEST_WORD];
    switch (fields[field].kind) {
    case FIELD_SIZE:
    case FIELD_POWER: text_printf(out, "%d", *(int32_t *)member(layout, field)); break;
    case FIELD_CHOICE:
        text_add(out, choice_word(field, *(uint8_t *)member(layout, field), word));
        break;
    case FIELD_COUNTS: print_list(layout, field, layout_stages(layout), out); break;
    case FIELD_POLICY:
        if (!layout->layer_recompute) text_add(out, choice_word(field, layout->recompute, word));
        else print_list(layout, field, layout->n_layer_recompute, out);
        break;
    case FIELD_ROOM:
        if (isinf(*(double *)member(layout, field))) text_add(out, fields[field].choices);
        else text_add_decimal(out, *(double *)member(layout, field));
        break;
    }
}

void layout_print(const Layout *layout, Text *out) {
    bool first = true;
    for (LayoutField field = 0; field < N_LAYOUT_FIELDS; field++) {
        if (layout_leaves_out(layout, field)) continue;
        text_printf(out, "%s%s=", first ? "" : ",", layout_field_name[field]);
        layout_print_value(layout, field, out);
        first = false;
    }
}

/* Help ----------------------------------------------------------------------------------------- */

static void value_form(LayoutField field, Text *out) {
    switch (fields[field].kind) {
    case FIELD_SIZE:
    case FIELD_POWER: text_add(out, "N"); break;
    case FIELD_CHOICE: text_add(out, fields[field].choices); break;
    case FIELD_COUNTS: text_add(out, "N:N:..."); break;
    case FIELD_POLICY: text_printf(out, "%s", fields[field].choices); break;
    case FIELD_ROOM: text_printf(out, "X|%s", fields[field].choices); break;
    }
}

void layout_help(Text *out) {
    for (LayoutField field = 0; field < N_LAYOUT_FIELDS; field++) {
        Text form = { 0 };
        text_printf(&form, "%s=", layout_field_name[field]);
        value_form(field, &form);
        text_printf(out, "  %-34s %s\n", text_cstr(&form), fields[field].help);
        text_finish(&form);
    }
}

void layout_reference(Text *out) {
    for (LayoutField field = 0; field < N_LAYOUT_FIELDS; field++) {
        Text form = { 0 };
        value_form(field, &form);
        text_printf(out, "| `%s` | ", layout_field_name[field]);
        for (const char *s = text_cstr(&form); *s; s++)
            text_printf(out, *s == '|' ? " or " : "%c", *s);
        text_printf(out, " | %s |\n", fields[field].help);
        text_finish(&form);
    }
}
