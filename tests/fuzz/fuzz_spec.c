// SPDX-License-Identifier: Apache-2.0
// libFuzzer target for specs: Lua text, traced in the sandbox. What is refused says where and why;
// what is accepted has its shapes counted and, if it is small, its programs derived and verified.
// Build with -DMOEC_FUZZ=ON (clang), run
//     fuzz_spec -max_len=4096 -dict=tests/fuzz/spec.dict models tests/spec/wrong tests/oracle/specs
#include <stdlib.h>

#include "compiler/spec/spec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SMALL = 5000 }; // nodes

static void derive(Model *m) {
    Text text = { 0 };
    model_print(m, &text, true);
    text_finish(&text);
    for (int program = 0; program < N_PROGRAMS && m->n_nodes < SMALL; program++) {
        Model *made = model_program(m, (Program)program);
        if (made ? !model_verify(made) : !m->diag.message[0]) abort();
        model_destroy(made);
    }
}

// A message ends with a line's end, names the file and quotes no control character to a terminal.
static void check_message(const char *message) {
    size_t n = strlen(message);
    if (!n || message[n - 1] != '\n' || !strstr(message, "error: ")) abort();
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)message[i] < ' ' && message[i] != '\n' && message[i] != '\t') abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Text error = { 0 }, log = { 0 };
    SpecOptions options = { .log = &log };
    const char *text = (const char *)data;
    Model *m = spec_load_text("/nowhere/fuzz.lua", text, size, &options, &error);
    if (m) derive(m);
    else check_message(text_cstr(&error));
    model_destroy(m);
    text_finish(&error);
    text_finish(&log);
    return 0;
}
