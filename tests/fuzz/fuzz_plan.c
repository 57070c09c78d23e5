// SPDX-License-Identifier: Apache-2.0
// libFuzzer target for the plan's parser, printer and checker. Build with -DMOEC_FUZZ=ON (clang), run
//     fuzz_plan -max_len=65536 tests/fuzz/corpus/plan
// Bytes are tried as they are and, so that edits get past the hash, with the end line signed anew. What is
// accepted must print back byte for byte.
#include <stdlib.h>

#include "runtime/plan/plan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_text(const char *text, size_t bytes) {
    Plan *plan;
    if (plan_parse(text, bytes, &plan) != OK) return;
    Text again = { 0 };
    plan_print(plan, &again);
    if (again.bytes != bytes || memcmp(again.at, text, bytes)) abort();
    (void)plan_check(plan);
    text_finish(&again);
    plan_destroy(plan);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *text = (const char *)data;
    try_text(text, size);
    size_t body = size;
    while (body > 0 && !(text[body - 1] == '\n' && size - body >= 4 && !memcmp(text + body, "end ", 4))) body--;
    if (!body) return 0;
    char hex[33];
    hash_hex(hash_bytes(text, body), hex);
    Text copy = { 0 };
    text_add_n(&copy, text, body);
    text_printf(&copy, "end %s\n", hex);
    try_text(copy.at, copy.bytes);
    text_finish(&copy);
    return 0;
}
