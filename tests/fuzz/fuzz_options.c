// SPDX-License-Identifier: Apache-2.0
// libFuzzer target for command lines: the lines of the input are the words after a command, which
// the first byte chooses. What is accepted must print to values that read back to the same; so must
// what --layout takes, and every line as a layout. Build
// with -DMOEC_FUZZ=ON (clang), run
//     fuzz_options -max_len=1024 -dict=tests/fuzz/options.dict tests/fuzz/corpus/options
#include <stdlib.h>

#include "compiler/layout/layout.h"
#include "runtime/train/options.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void print_back(const Options *options) {
    Options *again = options_create();
    for (int i = 0; i < N_OPTIONS; i++) {
        if (option_info[i].kind == OPTION_FILES) continue; // names may hold spaces
        Text text = { 0 }, twice = { 0 };
        options_print(options, (OptionId)i, &text);
        if (options_set(again, (OptionId)i, option_info[i].path, text_cstr(&text)) != OK) abort();
        options_print(again, (OptionId)i, &twice);
        if (strcmp(text_cstr(&text), text_cstr(&twice))) abort();
        text_finish(&text);
        text_finish(&twice);
    }
    options_destroy(again);
}

static void try_layout(const char *text) {
    Arena *arena = arena_create();
    Layout layout = layout_single(), again = layout_single();
    if (layout_parse(text, arena, &layout) == OK) {
        Text once = { 0 }, twice = { 0 };
        layout_print(&layout, &once);
        if (layout_parse(text_cstr(&once), arena, &again) != OK) abort();
        layout_print(&again, &twice);
        if (strcmp(text_cstr(&once), text_cstr(&twice))) abort();
        text_finish(&once);
        text_finish(&twice);
    }
    arena_destroy(arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    enum { WORDS = 64 };
    if (!size) return 0;
    char *text = malloc(size), *argv[WORDS + 1] = { text };
    memcpy(text, data + 1, size - 1);
    text[size - 1] = 0;
    int argc = 1, n;
    for (char *word = text; word && argc < WORDS;) {
        char *end = strchr(word, '\n');
        argv[argc++] = word;
        if (end) *end++ = 0;
        word = end;
    }
    for (int i = 1; i < argc; i++) try_layout(argv[i]);
    const char *words[WORDS];
    Options *options = options_create();
    int command = 1 << data[0] % N_OPTION_COMMANDS;
    if (options_parse(options, command, argc, argv, words, &n) == OK) {
        if (n < 0 || n >= argc) abort();
        print_back(options);
        json_t *record = options_record(options); // NULL: a file name that is not UTF-8
        Options *again = options_create();
        if (record && options_read_record(again, record, "record") != OK) abort();
        options_destroy(again);
        json_decref(record);
    }
    options_destroy(options);
    free(text);
    return 0;
}
