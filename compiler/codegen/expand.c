// SPDX-License-Identifier: Apache-2.0
// Template expansion: real C files with `$name` holes become kernel sources.
//
// Invariant: every line of the result that comes from the template is numbered as in the template,
// so that messages of libclang and of the compiler name the template's own line. The comment at a
// template's top is left out: it would be repeated in every kernel of the plan.
#include <ctype.h>
#include <stdlib.h>

#include "compiler/codegen/codegen.h"
#include "runtime/base/embed.h"

extern const EmbeddedFile embedded_templates[];

static const char folder[] = "templates/";

static const EmbeddedFile *find_embedded(const char *name) {
    for (const EmbeddedFile *file = embedded_templates; file->name; file++) {
        if (!strncmp(file->name, folder, sizeof folder - 1) &&
            !strcmp(file->name + sizeof folder - 1, name))
            return file;
    }
    return NULL;
}

static const char *override_path(const char *name, Text *path) {
    const char *directory = getenv("MOEC_TEMPLATES");
    if (!directory || !*directory) return NULL;
    text_printf(path, "%s/%s", directory, name);
    return file_exists(text_cstr(path)) ? text_cstr(path) : NULL;
}

Status template_read(const char *name, Arena *arena, const char **text) {
    Text path = {0};
    if (override_path(name, &path)) {
        char *bytes;
        size_t n;
        Status status = file_read(text_cstr(&path), arena, &bytes, &n);
        text_finish(&path);
        TRY(status);
        *text = bytes;
        return OK;
    }
    text_finish(&path);
    const EmbeddedFile *file = find_embedded(name);
    if (!file) return status_fail(ERR_INTERNAL, "no kernel template %s%s", folder, name);
    *text = file->at;
    return OK;
}

static bool in_name(char c) { return isalnum((unsigned char)c) || c == '_'; }

static const char *find_hole(const Hole *holes, int n_holes, const char *name, size_t length) {
    for (int i = 0; i < n_holes; i++) {
        if (strlen(holes[i].name) == length && !memcmp(holes[i].name, name, length))
            return holes[i].text;
    }
    return NULL;
}

static Status unknown_hole(const char *file, int line, const char *name, size_t length,
                           const Hole *holes, int n_holes) {
    char word[64];
    size_t kept = length < sizeof word - 1 ? length : sizeof word - 1;
    memcpy(word, name, kept);
    word[kept] = 0;
    const char *names[64];
    int n = n_holes < COUNT_OF(names) ? n_holes : COUNT_OF(names);
    for (int i = 0; i < n; i++) names[i] = holes[i].name;
    const char *nearest = text_nearest(word, names, n);
    if (nearest)
        return status_fail(ERR_INPUT, "%s%s:%d: nothing fills $%s\n  hint: did you mean $%s?",
                           folder, file, line, word, nearest);
    return status_fail(ERR_INPUT, "%s%s:%d: nothing fills $%s", folder, file, line, word);
}

static Status expand(const char *name, const char *at, const Hole *holes, int n_holes, Text *out) {
    int line = 1;
    for (; !strncmp(at, "//", 2) || *at == '\n'; line++) {
        at += strcspn(at, "\n");
        if (*at) at++;
    }
    text_printf(out, "#line %d \"%s%s\"\n", line, folder, name);
    bool renumber = false; // a filling of several lines is in the current line
    while (*at) {
        size_t plain = strcspn(at, "$\n");
        text_add_n(out, at, plain);
        at += plain;
        if (*at == '\n') {
            text_add(out, "\n");
            at++, line++;
            if (renumber) text_printf(out, "#line %d \"%s%s\"\n", line, folder, name);
            renumber = false;
        } else if (*at == '$') {
            size_t length = 0;
            while (in_name(at[1 + length])) length++;
            const char *filling = find_hole(holes, n_holes, at + 1, length);
            if (!filling) return unknown_hole(name, line, at + 1, length, holes, n_holes);
            text_add(out, filling);
            renumber = renumber || strchr(filling, '\n');
            at += 1 + length;
        }
    }
    return OK;
}

Status template_expand(const char *name, const Hole *holes, int n_holes, Text *out) {
    Arena *scratch = arena_create();
    const char *text;
    Status status;
    TRY_GOTO(template_read(name, scratch, &text), done);
    TRY_GOTO(expand(name, text, holes, n_holes, out), done);
done:
    arena_destroy(scratch);
    return status;
}
