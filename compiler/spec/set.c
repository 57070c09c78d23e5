// SPDX-License-Identifier: Apache-2.0
// --set GLOB.FIELD=VALUE: fields of blocks that the run chooses. A block called in a scope whose
// address the glob matches is called with that field replaced, checked as the spec's own value would
// be. A setting that reaches no field is an error, told when the trace is complete. The model's own
// fields are out of reach: they are arguments of the spec.
#include <stdio.h>

#include "compiler/spec/internal.h"

// Beside options->sets[i].
struct SetUse {
    const char *glob, *field; // glob NULL: the path has no field
    bool matched, used;
};

static struct SetUse *uses(Spec *S) {
    if (S->set_uses) return S->set_uses;
    S->set_uses = ARENA_ARRAY(S->arena, struct SetUse, S->options->n_sets);
    for (int i = 0; i < S->options->n_sets; i++) {
        const char *path = S->options->sets[i].key, *dot = strrchr(path, '.');
        if (!dot || dot == path || !dot[1]) continue;
        S->set_uses[i].glob = arena_strndup(S->arena, path, (size_t)(dot - path));
        S->set_uses[i].field = dot + 1;
    }
    return S->set_uses;
}

enum { MOST_CALLED = 4096 }; // bounds the work of a message; a spec calls as many as it likes

// Who was called where, for the messages.
static void note_call(Spec *S, uint32_t addr, const Define *define) {
    if (S->n_called < MOST_CALLED)
        *ARENA_PUSH(S->arena, S->called, S->n_called, S->cap_called) = (Called){ addr, define };
}

void set_apply(Spec *S, int block) {
    if (!S->options || !S->options->n_sets || !S->scope || !S->scope->addr) return;
    const char *addr = model_name(S->m, S->scope->addr);
    sandbox_charge(S, 8);
    note_call(S, S->scope->addr, is_block(S->L, block)->define);
    for (int i = 0; i < S->options->n_sets; i++) {
        struct SetUse *use = &uses(S)[i];
        int64_t steps = 1;
        bool matches = use->glob && glob_matches(use->glob, addr, &steps);
        sandbox_charge(S, steps);
        if (!matches) continue;
        use->matched = true;
        use->used |= block_set(S, block, use->field, S->options->sets[i].value);
    }
}

/* What was not reached ------------------------------------------------------------------------- */

static void add_word(const char ***words, int *n, const char *word) {
    for (int i = 0; i < *n; i++)
        if (!strcmp((*words)[i], word)) return;
    (*words)[(*n)++] = word;
}

// "layers.3.ffn" as "layers.*.ffn", as one would write it for every layer.
static const char *with_stars(Spec *S, const char *addr) {
    char *out = ARENA_ARRAY(S->arena, char, strlen(addr) + 2), *to = out;
    for (const char *at = addr; *at;) {
        size_t n = strcspn(at, "."), digits = strspn(at, "0123456789");
        if (n && digits == n) {
            *to++ = '*';
        } else {
            memcpy(to, at, n);
            to += n;
        }
        at += n;
        if (*at) *to++ = *at++;
    }
    *to = 0;
    return out;
}

static void no_block(Spec *S, const struct SetUse *use, Text *message, Text *hint) {
    const char **words = ARENA_ARRAY(S->arena, const char *, S->n_called + 1);
    int n = 0;
    bool stars = strchr(use->glob, '*') != NULL;
    for (uint32_t i = 0; i < S->n_called; i++) {
        const char *addr = model_name(S->m, S->called[i].addr);
        add_word(&words, &n, stars ? with_stars(S, addr) : addr);
    }
    text_printf(message, "--set: no block is called at '%s'", use->glob);
    const char *near = spec_nearest(use->glob, words, n);
    if (near)
        text_printf(hint, "did you mean '%s.%s'?", near, use->field);
    else
        text_add(hint, "addresses are those of 'moec check -v', without the parameter's name");
}

static void no_field(Spec *S, const struct SetUse *use, Text *message, Text *hint) {
    int n = 0, all = 0;
    for (uint32_t i = 0; i < S->n_called; i++) all += S->called[i].define->n_rows;
    const char **words = ARENA_ARRAY(S->arena, const char *, all + 1);
    const Define *only = NULL;
    bool several = false;
    for (uint32_t i = 0; i < S->n_called; i++) {
        const Define *d = S->called[i].define;
        int64_t steps = 0;
        if (!glob_matches(use->glob, model_name(S->m, S->called[i].addr), &steps)) continue;
        several |= only && only != d;
        only = d;
        for (int k = 0; k < d->n_rows; k++) add_word(&words, &n, d->rows[k].name);
    }
    text_printf(message, "--set: %s at '%s' has no field '%s'",
                several || !only ? "a block" : only->name, use->glob, use->field);
    const char *near = spec_nearest(use->field, words, n);
    if (near) text_printf(hint, "did you mean '%s'?%s", near, several ? "" : " ");
    if (several) return; // of which block the list would be nobody could tell
    text_add(hint, n ? "fields: " : "it takes none");
    for (int i = 0; i < n; i++) text_printf(hint, "%s%s", i ? ", " : "", words[i]);
}

bool set_unused(Spec *S, const char *path, Text *error) {
    for (int i = 0; S->options && i < S->options->n_sets; i++) {
        const struct SetUse *use = &uses(S)[i];
        if (use->used) continue;
        Text message = { 0 }, hint = { 0 };
        if (!use->glob) {
            text_printf(&message, "--set: expected an address and a field, got '%s'",
                        S->options->sets[i].key);
            text_add(&hint, "for example layers.*.ffn.router.balance_loss=0");
        } else if (use->matched) {
            no_field(S, use, &message, &hint);
        } else {
            no_block(S, use, &message, &hint);
        }
        fault_command(S, path, error, text_cstr(&message), text_cstr(&hint));
        text_finish(&message);
        text_finish(&hint);
        return true;
    }
    return false;
}
