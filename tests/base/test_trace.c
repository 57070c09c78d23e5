// SPDX-License-Identifier: Apache-2.0
// A trace's text, byte for byte.
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "runtime/base/trace.h"

static void test_events(void **state) {
    (void)state;
    setlocale(LC_NUMERIC, "de_DE.UTF-8"); // where it exists: numbers stay as JSON has them
    Text text = { 0 };
    trace_open(&text);
    trace_process(&text, 3, "rank \"3\"\n");
    trace_thread(&text, (TracePlace){ 3, 1 }, "a\\b");
    trace_span(&text, (TracePlace){ 3, 1 }, "x", "dense", 1.5e-6, 2.75e-3, "\"n\":1");
    trace_span(&text, (TracePlace){ 3, 1 }, "y", "dense", -2e-9, -1e-9, NULL);
    trace_counter(&text, 3, "act", 0, "MiB", 0.5);
    trace_arrow(&text, (TracePlace){ 3, 1 }, "3>4", true, 1);
    trace_arrow(&text, (TracePlace){ 4, 1 }, "3>4", false, 2);
    trace_close(&text);
    assert_string_equal(
        text_cstr(&text),
        "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
        "{\"ph\":\"M\",\"pid\":0,\"tid\":0,\"name\":\"trace\",\"args\":{\"by\":\"moec\"}},\n"
        "{\"ph\":\"M\",\"pid\":3,\"tid\":0,\"name\":\"process_name\",\"args\":{\"name\":\"rank \\\"3\\\"\\u000a\"}},\n"
        "{\"ph\":\"M\",\"pid\":3,\"tid\":0,\"name\":\"process_sort_index\",\"args\":{\"sort_index\":3}},\n"
        "{\"ph\":\"M\",\"pid\":3,\"tid\":1,\"name\":\"thread_name\",\"args\":{\"name\":\"a\\\\b\"}},\n"
        "{\"ph\":\"M\",\"pid\":3,\"tid\":1,\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":1}},\n"
        "{\"ph\":\"X\",\"pid\":3,\"tid\":1,\"name\":\"x\",\"cat\":\"dense\",\"ts\":1.500,\"dur\":2748.500,"
        "\"args\":{\"n\":1}},\n"
        "{\"ph\":\"X\",\"pid\":3,\"tid\":1,\"name\":\"y\",\"cat\":\"dense\",\"ts\":-0.002,\"dur\":0.001},\n"
        "{\"ph\":\"C\",\"pid\":3,\"tid\":0,\"name\":\"act\",\"ts\":0.000,\"args\":{\"MiB\":0.5}},\n"
        "{\"ph\":\"s\",\"pid\":3,\"tid\":1,\"name\":\"to\",\"cat\":\"message\",\"id\":\"3>4\",\"ts\":1000000.000},\n"
        "{\"ph\":\"f\",\"pid\":4,\"tid\":1,\"name\":\"to\",\"cat\":\"message\",\"id\":\"3>4\",\"ts\":2000000.000,"
        "\"bp\":\"e\"}]}\n");
    text_finish(&text);
}

// What is printed of neighbours touches: rounding opens no gap and makes none overlap.
static void test_neighbours(void **state) {
    (void)state;
    double at = 0;
    long long end = 0;
    for (int i = 0; i < 1000; i++) {
        Text text = { 0 };
        double next = at + (double)hash_uniform(1, 2, (uint64_t)i) * 1e-5;
        trace_span(&text, (TracePlace){ 0 }, "x", "y", at, next, NULL);
        long long us, ns, dur_us, dur_ns;
        int n = sscanf(strstr(text_cstr(&text), "\"ts\":"), "\"ts\":%lld.%3lld,\"dur\":%lld.%3lld", &us, &ns, &dur_us,
                       &dur_ns);
        assert_int_equal(n, 4);
        assert_int_equal(1000 * us + ns, end);
        end += 1000 * dur_us + dur_ns;
        at = next;
        text_finish(&text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_events), cmocka_unit_test(test_neighbours) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
