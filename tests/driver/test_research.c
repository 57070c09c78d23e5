// SPDX-License-Identifier: Apache-2.0
// The research model, models/latent_moe.lua at a small size, trains: experts in a latent space, a
// router and an activation of its own, written in the spec alone. (tests/oracle checks its gradients.)
#include <stdio.h>
#include <stdlib.h>

#include "tests/driver/small.h"

// The shipped file with other sizes; nothing else differs.
static const char *const sizes[][2] = {
    { "vocab = 100352, width = 1024, sequence = 8192", "vocab = 256, width = 32, sequence = 32" },
    { "m.stack(16,", "m.stack(4," }, // the fourth has no positions
    { "heads = 16, kv_heads = 4", "heads = 4, kv_heads = 2" },
    { "latent = 512, count = 512, top_k = 16", "latent = 16, count = 12, top_k = 3" },
    { "expert = { hidden = 512", "expert = { hidden = 16" },
};

static char *small_latent_moe(const char *folder) {
    size_t n;
    Text text = { 0 };
    text_add(&text, read_whole(MOEC_SOURCE_DIR "/models/latent_moe.lua", &n));
    for (int i = 0; i < COUNT_OF(sizes); i++) {
        const char *at = strstr(text_cstr(&text), sizes[i][0]);
        if (!at) fail_msg("models/latent_moe.lua has no '%s'", sizes[i][0]);
        Text next = { 0 };
        text_add_n(&next, text.at, (size_t)(at - text.at));
        text_printf(&next, "%s%s", sizes[i][1], at + strlen(sizes[i][0]));
        text_finish(&text);
        text = next;
    }
    char *path = path_in(folder, "latent.lua");
    write_file(path, text.at, text.bytes);
    text_finish(&text);
    return path;
}

static double number(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    if (!json_is_real(value)) fail_msg("no number '%s'", key);
    return json_real_value(value);
}

static void trains(void **state) {
    (void)state;
    Small small = small_make();
    small.spec = small_latent_moe(small.folder);
    char *runs[] = { path_in(small.folder, "one"), path_in(small.folder, "two") };
    char *const threads[][3] = { { "--threads", "1", NULL }, { "--threads", "3", NULL } };
    for (int i = 0; i < 2; i++) expect_exit(0, small_train(&small, runs[i], "60", threads[i]));
    same_state(runs[0], runs[1], 60);
    same_history(runs[0], runs[1]);

    size_t n;
    char *line = read_whole(path_in(runs[0], "metrics.jsonl"), &n);
    double first = 0, last = 0;
    for (int step = 1; step <= 60; step++, line = strchr(line, '\n') + 1) {
        json_t *object = json_loadb(line, strcspn(line, "\n"), 0, NULL);
        assert_non_null(object);
        last = number(object, "train/CE loss");
        if (step == 1) first = last;
        // The spec's own loss: minus the entropy of the mean choice, between -log 12 and 0.
        double spread = number(object, "train/layers.4.ffn.router.spread");
        assert_true(spread > -2.49 && spread < 0);
        assert_non_null(json_object_get(object, "train/block 04/load"));
        json_decref(object);
    }
    print_message("cross-entropy %.3f, after 60 steps %.3f\n", first, last);
    assert_true(first > 5.4 && first < 5.7); // log 256 = 5.55
    assert_true(last < 3.2);                 // letters of one sentence: at most log 27 = 3.30
    expect_exit(0, COMMAND(small.moec, "sample", runs[0], "--bytes", "8"));
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(trains) };
    return cmocka_run_group_tests_name("research", tests, NULL, NULL);
}
