// SPDX-License-Identifier: Apache-2.0
// Recorded loads: both forms give the same, and what is wrong is refused with its line.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "compiler/search/load.h"

static Arena *arena;

static int set_up(void **state) {
    (void)state;
    arena = arena_create();
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    arena_destroy(arena);
    return 0;
}

static Load accept_last(const char *text, int64_t last) {
    Load load;
    if (load_parse("f", text, strlen(text), last, arena, &load) != OK) fail_msg("%s\n%s", text, status_message());
    return load;
}

static Load accept(const char *text) {
    return accept_last(text, 0);
}

static void refuse(const char *text, const char *want) {
    Load load;
    if (load_parse("f", text, strlen(text), 0, arena, &load) == OK) fail_msg("expected '%s', taken:\n%s", want, text);
    if (strncmp(status_message(), want, strlen(want))) fail_msg("expected: %s\ngot: %s", want, status_message());
}

static void expect(const Load *load, int n_steps, int n_layers, const double *rows) {
    assert_int_equal(load->n_steps, n_steps);
    assert_int_equal(load->n_layers, n_layers);
    for (int64_t i = 0; i < n_steps * load->width; i++) assert_true(load->rows[i] == rows[i]);
}

static void both_forms(void **state) {
    (void)state;
    static const double rows[] = { 5, 0, 2.5, 1, 1, 3, 4, 2, 2, 2 };
    Load json = accept(
        "{\"step\":7,\"train/CE loss\":2.5,\"train/block 10/load\":[2.5,1,1],\"train/block 02/load\":[5,0],"
        "\"throughput/device/TPS\":100.0}\n"
        "\n"
        "{\"step\":8,\"train/load imbalance\":1.5}\n"
        "{\"step\":9,\"train/block 02/load\":[3,4],\"train/block 02/load imbalance\":1.1,"
        "\"train/block 10/load\":[2,2,2],\"throughput/device/TPS\":300.0}\n"
        "{\"step\":10,\"train/bl");
    Load csv = accept("\xef\xbb\xbf step , expert,load,note,layer\r\n"
                      "9,0,3,x,2\r\n9,1,4,,2\r\n9,2,2,,10\r\n9,0,2,,10\r\n9,1,2,,10\r\n"
                      "7,0,5,,2\r\n7,1,0,,2\r\n\r\n7,0,2.5,,10\r\n7,1,1e0,,10\r\n7,2,1,,10");
    const Load *both[] = { &json, &csv };
    for (int i = 0; i < 2; i++) {
        expect(both[i], 2, 2, rows);
        assert_int_equal(both[i]->steps[0], 7);
        assert_int_equal(both[i]->steps[1], 9);
        assert_int_equal(both[i]->layers[0].layer, 2);
        assert_int_equal(both[i]->layers[1].layer, 10);
        assert_int_equal(both[i]->layers[1].at, 2);
    }
    assert_true(json.tokens_per_s == 200 && csv.tokens_per_s == 0);
    double sum[5];
    load_sum(&json, 0, 2, sum);
    assert_true(sum[0] == 8 && sum[1] == 4 && sum[4] == 3);
}

static void last_steps(void **state) {
    (void)state;
    static const double rows[] = { 3, 4, 5, 6 };
    const char *json = "{\"train/block 1/load\":[1,2]}\nnonsense\n{\"train/block 1/load\":[3,4]}\n"
                       "{\"train/block 1/load\":[5,6]}\n";
    Load load = accept_last(json, 2); // lines before are not looked at
    expect(&load, 2, 1, rows);
    load = accept_last("layer,expert,load,step\n1,0,1,4\n1,1,2,4\n1,0,3,5\n1,1,4,5\n1,1,6,6\n1,0,5,6\n", 2);
    expect(&load, 2, 1, rows);
    load = accept_last("layer,expert,load\n1,0,3\n1,1,4\n", 100);
    expect(&load, 1, 1, rows);
    // Their lines are counted all the same.
    Load none;
    const char *wrong = "{\"train/block 1/load\":[1,2]}\n{\"train/block 1/load\":[3,4]}\n{\"train/block 1/load\":[5]}\n";
    assert_int_equal(load_parse("f", wrong, strlen(wrong), 2, arena, &none), ERR_INPUT);
    assert_string_equal(status_message(), "f:3: layer 1 has 1 experts, and 2 before");
}

// A layer with two routes: what its experts get of both.
static void two_routes(void **state) {
    (void)state;
    static const double rows[] = { 11, 22, 13, 24 };
    Load load = accept("{\"train/block 03/load\":[1,2],\"train/layers.3.ffn.b.load\":[10,20],\"train/mtp.1.ffn.load\":[7]}\n"
                       "{\"train/layers.3.ffn.b.load\":[10,20],\"train/block 03/load\":[3,4]}\n");
    expect(&load, 2, 1, rows);
    refuse("{\"train/block 03/load\":[1,2],\"train/layers.3.ffn.b.load\":[10]}",
           "f:1: layer 3 has 1 experts, and 2 before");
}

static void nothing(void **state) {
    (void)state;
    static const char *const texts[] = { "", "{\"step\":1}\n", "layer,expert,load\n", "{\"step\":1,\"train/block 0/load\":[1]}\n" };
    for (int i = 0; i < COUNT_OF(texts); i++) {
        Load load = accept(texts[i]);
        assert_int_equal(load.n_steps, 0);
        assert_int_equal(load.n_layers, 0);
    }
}

static void refusals(void **state) {
    (void)state;
    refuse("{\"step\":1}\n{]\n{}\n", "f:2: expected an object of JSON: ");
    refuse("{\"step\":1}\n[1]\n", "f:2: expected an object of JSON");
    refuse("{\"train/block 1/load\":[1,NaN]}\n", "f:1: expected an object of JSON: ");
    refuse("{\"train/block 1/load\":[1,null]}", "f:1: the load of expert 1 of layer 1 must be a number from 0 to 1e+12, got "
                                                "null, which stands for what is not finite");
    refuse("{\"train/block 1/load\":[1,-2]}", "f:1: the load of expert 1 of layer 1 must be a number from 0 to 1e+12, got -2");
    refuse("{\"train/block 1/load\":[1e13]}", "f:1: the load of expert 0 of layer 1 must be");
    refuse("{\"train/block 1/load\":[\"1\"]}", "f:1: the load of expert 0 of layer 1 must be a number from 0 to 1e+12, got no number");
    refuse("{\"train/block 1/load\":[]}", "f:1: \"train/block 1/load\" must be a list of 1 to 65536 loads");
    refuse("{\"train/block 1/load\":3}", "f:1: \"train/block 1/load\" must be a list of 1 to 65536 loads");
    refuse("{\"step\":1.5,\"train/block 1/load\":[3]}", "f:1: \"step\" must be a whole number from 0 on");
    refuse("{\"step\":3,\"train/block 1/load\":[3]}\n{\"step\":3,\"train/block 1/load\":[3]}", "f:2: step 3 after step 3");
    refuse("{\"train/block 1/load\":[3]}\n{\"train/block 2/load\":[3]}", "f:2: a load of layer 2, which step 0 does not have");
    refuse("{\"train/block 1/load\":[3],\"train/block 2/load\":[3]}\n{\"train/block 2/load\":[3]}",
           "f:2: no load of layer 1, which step 0 has");
    refuse("layer,expert\n1,0\n", "f:1: no column 'load', the header is 'layer,expert'\n  hint: layer,expert,load");
    refuse("step 5\n", "f:1: no column 'layer'");
    refuse("layer,expert,load,layer\n", "f:1: two columns 'layer'");
    refuse("layer,expert,load\n1,0\n", "f:2: 2 of the 3 columns");
    refuse("layer,expert,load\n1,0,nan\n", "f:2: the load must be a number from 0 to 1e+12, got 'nan'");
    refuse("layer,expert,load\n1,0,inf\n", "f:2: the load must be");
    refuse("layer,expert,load\n1,0,0x10\n", "f:2: the load must be");
    refuse("layer,expert,load\n1,0,\n", "f:2: the load must be a number from 0 to 1e+12, got ''");
    refuse("layer,expert,load\n1,0,-1\n", "f:2: the load must be a number from 0 to 1e+12, got '-1'");
    refuse("layer,expert,load\n0,0,1\n", "f:2: the layer must be a whole number from 1 to 65536, got '0'");
    refuse("layer,expert,load\n1,0.5,1\n", "f:2: the expert must be a whole number from 0 to 65535, got '0.5'");
    refuse("layer,expert,load\n1,0,1\n1,2,1\n", "f:3: layer 1 has an expert 2 and no expert 1");
    refuse("layer,expert,load\n1,1,1\n", "f:2: layer 1 has an expert 1 and no expert 0");
    refuse("layer,expert,load\n1,0,1\n1,1,1\n1,0,1\n", "f:4: expert 0 of layer 1 again");
    refuse("layer,expert,load,step\n1,0,1,1\n1,0,1,2\n1,1,1,2\n", "f:3: layer 1 has 2 experts, and 1 before");
    refuse("layer,expert,load,step\n1,0,1,1\n2,0,1,1\n1,0,1,2\n", "f:4: step 2 has loads of 1 layers, and step 1 of 2");
    refuse("layer,expert,load,step\n1,0,1,1\n1,0,1,2\n2,0,1,2\n", "f:4: a load of layer 2, which step 1 does not have");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_forms), cmocka_unit_test(last_steps), cmocka_unit_test(two_routes),
        cmocka_unit_test(nothing),    cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests_name("search.load", tests, set_up, tear_down);
}
