// SPDX-License-Identifier: Apache-2.0
#include "tests/spec/helper.h"

#include <stdlib.h>

// Splits "key=value ..." in place.
static int read_args(char *text, SpecArg *args, int most) {
    int n = 0;
    for (char *save, *word = strtok_r(text, " ", &save); word && n < most;
         word = strtok_r(NULL, " ", &save)) {
        char *value = strchr(word, '=');
        assert_non_null(value);
        *value = 0;
        args[n++] = (SpecArg){ word, value + 1 };
    }
    return n;
}

static Loaded load(const char *path, const char *text, const char *args) {
    Loaded l = { 0 };
    SpecArg list[8];
    char *copy = strdup(args ? args : "");
    SpecOptions options = { .args = list,
                            .n_args = read_args(copy, list, COUNT_OF(list)),
                            .log = &l.log };
    l.m = text ? spec_load_text(path, text, strlen(text), &options, &l.error)
               : spec_load(path, &options, &l.error);
    free(copy);
    if (l.m)
        assert_int_equal(l.error.bytes, 0);
    else
        assert_true(l.error.bytes > 0);
    return l;
}

Loaded load_text(const char *text, const char *args) { return load("model.lua", text, args); }

Loaded load_file(const char *path, const char *args) { return load(path, NULL, args); }

void loaded_finish(Loaded *l) {
    model_destroy(l->m);
    text_finish(&l->error);
    text_finish(&l->log);
}

Loaded load_layers(const char *before, const char *layers) {
    Text text = { 0 };
    text_printf(&text, "local m = require 'moec'\n%s\n", before);
    text_printf(
        &text,
        "return m.model { name = 'a', vocab = 32, width = 64, sequence = 16, layers = { %s } }\n",
        layers);
    Loaded l = load_text(text_cstr(&text), NULL);
    text_finish(&text);
    if (!l.m) fail_msg("%s", text_cstr(&l.error));
    return l;
}

void expect_print(const char *text, const char *want) {
    Text whole = { 0 };
    text_printf(&whole, "local m = require 'moec'\n%s\n", text);
    text_add(&whole,
             "return m.model { name = 'a', vocab = 32, width = 64, sequence = 16, layers = {} }\n");
    Loaded l = load_text(text_cstr(&whole), NULL);
    text_finish(&whole);
    if (!l.m) fail_msg("%s\n%s", text, text_cstr(&l.error));
    assert_string_equal(text_cstr(&l.log), want);
    loaded_finish(&l);
}

void expect_error(const char *text, const char *want) {
    Loaded l = load_text(text, NULL);
    if (l.m) fail_msg("expected '%s', but this loads:\n%s", want, text);
    if (!strstr(text_cstr(&l.error), want))
        fail_msg("%s\nexpected '%s', got:\n%s", text, want, text_cstr(&l.error));
    loaded_finish(&l);
}

const Param *param_named(const Model *m, const char *address) {
    for (uint32_t i = 0; i < m->n_params; i++) {
        if (!strcmp(model_name(m, m->params[i].addr), address)) return &m->params[i];
    }
    fail_msg("no parameter %s", address);
    return NULL;
}
