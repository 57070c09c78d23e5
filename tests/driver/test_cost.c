// SPDX-License-Identifier: Apache-2.0
// moec calibrate writes a cluster that can be read; moec reproduce prints what it says.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "compiler/spec/spec.h"
#include "tests/driver/small.h"

static int run(char *const *words) {
    char *argv[16] = { MOEC_BINARY_DIR "/moec" };
    int n = 1;
    for (; *words; words++) argv[n++] = *words;
    return command_run(argv);
}
#define RUN(...) run((char *[]){ __VA_ARGS__, NULL })

static void calibrated(void **state) {
    (void)state;
    char *file = path_in(scratch_folder(), "here.lua");
    // What cannot be written is refused before anything is measured.
    static char *const wrong[] = { "/", "/nonexistent/c.lua", "c.txt" };
    for (int i = 0; i < COUNT_OF(wrong); i++) {
        assert_true(RUN("calibrate", "-o", wrong[i]) != 0);
        assert_null(strstr(command_errors(), "products"));
    }
    expect_exit(0, RUN("calibrate", "--seconds", "0.02", "--name", "this \"\u00e9\"", "-o", file));
    Arena *arena = arena_create();
    Text error = { 0 };
    CostCluster c;
    if (!spec_load_cluster(file, arena, &c, &error)) fail_msg("%s", text_cstr(&error));
    assert_string_equal(c.name, "this \"\u00e9\"");
    assert_string_equal(c.device.arch, "cpu");
    assert_int_equal(cost_cluster_devices(&c), 1);
    assert_int_equal(c.device.evidence[0], EVIDENCE_measured);
    assert_true(c.device.bytes_per_s > 1e8 && c.device.matmul[PRECISION_FP32].flop_per_s > 1e8);
    assert_true(c.device.sustained > 0 && c.device.sustained <= 1);
    assert_true(c.device.overlap >= 0 && c.device.overlap <= 1 && c.device.row_flop_per_s > 1e7);
    assert_int_equal(c.device.cached.n, 4);
    for (int i = 0; i < c.device.cached.n; i++) assert_true(c.device.cached.y[i] >= 1);
    for (int p = PRECISION_FP32; p <= PRECISION_BF16; p++)
        assert_true(c.device.matmul[p].wgrad > 0 && c.device.matmul[p].wgrad <= 1);
    CostKernel k = { .class = COST_dense, .precision = PRECISION_FP32, .m = 512, .n = 512, .k = 512, .groups = 1,
                     .flops = 0x1p28, .bytes = 3 * 0x1p20 };
    double s = cost_kernel_s(&c.device, &k);
    assert_true(s >= k.flops / c.device.matmul[PRECISION_FP32].flop_per_s && isfinite(s));
    // Attention is measured by length, and the model says of a length that was measured what was measured.
    for (int back = 0; back < 2; back++) {
        const CostCurve *curve = &c.device.attention[back];
        assert_int_equal(curve->n, 4);
        assert_int_equal(curve->evidence, EVIDENCE_measured);
        k = (CostKernel){ .class = COST_attention, .precision = PRECISION_BF16, .role = back ? COST_DGRAD : COST_FORWARD,
                          .n = curve->x[2], .groups = 1, .k = 2 * 128, .flops = 0x1p40 };
        double wanted = k.flops / (c.device.matmul[PRECISION_BF16].flop_per_s * curve->y[2] * c.device.sustained);
        assert_true(fabs(cost_kernel_s(&c.device, &k) / wanted - 1) < 1e-3);
        k.k = 2 * 64;
        double narrow = (1 + 2 * c.device.attention_narrow) / (1 + c.device.attention_narrow);
        assert_true(fabs(cost_kernel_s(&c.device, &k) / (wanted * narrow) - 1) < 1e-3);
    }
    arena_destroy(arena);
    text_finish(&error);
    // Its own file it writes again; one that somebody has changed, or that is another's, it does not.
    expect_exit(0, RUN("calibrate", "--seconds", "0.001", "-o", file));
    size_t n;
    char *text = read_whole(file, &n);
    text[strcspn(text, "1")] = '2';
    write_file(file, text, n);
    expect_exit(2, RUN("calibrate", "--seconds", "0.001", "-o", file));
    expect_error("is not as moec calibrate writes it\n  hint: another name");
    assert_null(strstr(command_errors(), "products"));
    write_file(file, "return 1\n", 9);
    expect_exit(2, RUN("calibrate", "--seconds", "0.001", "-o", file));
    expect_error("is not as moec calibrate writes it");
    assert_int_equal(RUN("calibrate", "--seconds", "none"), 2);
    expect_error("--seconds is 'none', expected a number of seconds");
    assert_int_equal(RUN("calibrate", "--wrong"), 2);
    expect_error("unknown option '--wrong' of 'calibrate'");
    assert_int_equal(RUN("calibrate", "--device", "toaster"), 2);
    assert_int_equal(RUN("calibrate", "--device", "gpu"), 2);
}

// Interrupted, it prints what it has measured.
static void interrupted(void **state) {
    (void)state;
    const char *folder = scratch_folder();
    char *file = path_in(folder, "stopped.lua"), *said = path_in(folder, "said"), *script = path_in(folder, "stop.sh");
    static const char stop[] = "trap - INT\n\"$1\" calibrate --seconds 0.2 -o \"$2\" >\"$3\" 2>\"$3.err\" &\n"
                               "for i in $(seq 300); do grep -q 'experts, bf16' \"$3.err\" && break; sleep 0.1; done\n"
                               "kill -INT $!; wait $!\n";
    write_file(script, stop, sizeof stop - 1);
    expect_exit(1, command_run((char *[]){ "/bin/bash", "-m", script, MOEC_BINARY_DIR "/moec", file, said, NULL }));
    size_t n;
    const char *out = read_whole(said, &n), *errors = read_whole(path_in(folder, "said.err"), &n);
    assert_false(file_exists(file));
    if (!strstr(out, "not written: ") || !strstr(out, "products   bf16 ") || !strstr(errors, "interrupted: ") ||
        !strstr(errors, "\n  hint: "))
        fail_msg("%s%s", out, errors);
}

// A file that somebody writes while it measures stays, and what was measured is printed.
static void written_meanwhile(void **state) {
    (void)state;
    const char *folder = scratch_folder();
    char *file = path_in(folder, "theirs.lua"), *said = path_in(folder, "measured"), *script = path_in(folder, "write.sh");
    static const char race[] = "\"$1\" calibrate --seconds 0.05 -o \"$2\" >\"$3\" 2>\"$3.err\" &\n"
                               "for i in $(seq 300); do grep -q 'experts, bf16' \"$3.err\" && break; sleep 0.02; done\n"
                               "echo 'return 1' >\"$2\"; wait $!\n";
    write_file(script, race, sizeof race - 1);
    expect_exit(2, command_run((char *[]){ "/bin/bash", script, MOEC_BINARY_DIR "/moec", file, said, NULL }));
    size_t n;
    assert_string_equal(read_whole(file, &n), "return 1\n");
    const char *out = read_whole(said, &n), *errors = read_whole(path_in(folder, "measured.err"), &n);
    if (!strstr(out, "not written: ") || !strstr(out, "  memory  ") || !strstr(errors, "is not as moec calibrate writes it"))
        fail_msg("%s%s", out, errors);
}

// What the model says of OLMo-core 3's published figures without any fit; a change that loses them is seen.
static void reproduced(void **state) {
    (void)state;
    expect_exit(0, RUN("reproduce", "olmo-core-3", "--brief"));
    const char *within = strstr(command_output(), " of 11 within 10 %");
    assert_non_null(within);
    while (within[-1] != ' ') within--;
    if (atoi(within) < 10) fail_msg("%s", command_output());
    assert_int_equal(RUN("reproduce"), 2);
    expect_error("expected olmo-core-3 or published, got nothing\n  hint: moec reproduce published");
    expect_exit(2, RUN("reproduce", "olmo-core-3", "--models", "/dev"));
    assert_null(strstr(command_errors(), "error: moec")); // a message within a message
    expect_exit(2, RUN("reproduce", "published", "--rows", "/nonexistent"));
    expect_error("hint: run it where moec's sources are");
    assert_int_equal(RUN("reproduce", "olmo-core-4"), 2);
    expect_error("got 'olmo-core-4'\n  hint: did you mean 'olmo-core-3'?");
    assert_int_equal(RUN("reproduce", "published", "olmo-core-3"), 2);
    expect_error("unexpected 'olmo-core-3' after published");
}

// A row of the page's table, from one of the command's: rows, median and 90th percentile of errors, pairs in order.
static void add_row(Text *text, const char *title, const char *of_page) {
    const char *at = strstr(command_output(), title);
    int rows = 0;
    float median = 0, most = 0, model = 0, all = 0;
    if (!at || sscanf(at + strlen(title), "%d %f %% %f %% %f %% of %*d %f %%", &rows, &median, &most, &model, &all) != 5)
        fail_msg("no '%s' in\n%s", title, command_output());
    text_printf(text, "| %s | %d | %.1f %% | %.1f %% | %.1f %%, %.1f %% |\n", of_page, rows, (double)median, (double)most,
                (double)model, (double)all);
}

// The page says what the command does. MOEC_UPDATE=1 writes it.
static void page(void **state) {
    (void)state;
    static const struct { const char *title, *row; } views[] = {
        { "nothing fitted, all ", "nothing fitted, all" },
        { "nothing fitted, tested halves ", "nothing fitted, the tested halves" },
        { "nothing fitted, groups of under four ", "nothing fitted, groups of under four" },
        { "scaled, tested halves ", "scaled, the tested halves" },
    };
    static const char path[] = MOEC_SOURCE_DIR "/docs/search.md";
    expect_exit(0, RUN("reproduce", "published"));
    size_t bytes;
    char *text = read_whole(path, &bytes);
    Text written = { 0 };
    int rows = 0;
    for (const char *line = text, *end; *line; line = end) {
        end = line + strcspn(line, "\n") + 1;
        int i = 0;
        while (i < COUNT_OF(views) && !(!strncmp(line, "| ", 2) && !strncmp(line + 2, views[i].row, strlen(views[i].row)) &&
                                        !strncmp(line + 2 + strlen(views[i].row), " |", 2)))
            i++;
        if (i < COUNT_OF(views)) add_row(&written, views[i].title, views[i].row), rows++;
        else text_add_n(&written, line, (size_t)(end - line));
    }
    assert_int_equal(rows, COUNT_OF(views));
    bool same = !strcmp(text_cstr(&written), text);
    if (!same && getenv("MOEC_UPDATE")) write_file(path, text_cstr(&written), written.bytes);
    else if (!same) fail_msg("docs/search.md has other figures: MOEC_UPDATE=1 ./dev test driver.cost");
    text_finish(&written);
}

static const char head[] =
    "stack,gpu,spec,args,gpus,precision,batch,microbatch,sequence,params,pp,slots,stages,ep,routing,transport,recompute,"
    "experts,rows_hidden,params_hidden,reduce,tokens_per_s,tflop_per_s,memory_gib,source,note\n";

static char *table(const char *name, const char *rows) {
    Text text = { 0 };
    text_add(&text, head);
    text_add(&text, rows);
    char *file = path_in(scratch_folder(), name);
    write_file(file, text_cstr(&text), text.bytes);
    text_finish(&text);
    return file;
}

// Nothing is fitted; beside it, of four rows of a stack two are fitted and two tested, and one of another stack has no
// scale. A row's note is printed as the reason.
static void published(void **state) {
    (void)state;
#define ROW(stack, batch, speed)                                                                   \
    stack ",b300,tiny,,4,bf16," batch ",4,256,resident,1,1,,2,random,rows,cheap,fused,0,1,4," speed ",,,here,moon\n"
    char *file = table("four.csv", ROW("a", "64", "1000") ROW("a", "128", "1000") ROW("b", "64", "1000")
                                       ROW("a", "256", "3000") ROW("a", "512", "2000"));
    expect_exit(0, RUN("reproduce", "published", "--rows", file));
    const char *out = command_output();
    static const char *const parts[] = { "4 rows, 2 fitted", "nothing fitted, all                     5 ",
                                         "tested halves           2 ", "of under four    1 ",
                                         "scaled, tested halves                   2 ", "\n         moon\n" };
    for (int i = 0; i < COUNT_OF(parts); i++)
        if (!strstr(out, parts[i])) fail_msg("no '%s' in\n%s", parts[i], out);
    // A library's all-to-all, stages, and experts with biases in kernels apart.
    file = table("more.csv",
                 "a,b300,tiny,,4,bf16,64,4,256,resident,2,1,1:3,2,random,alltoall,none,apart,0,1,2,9,,,x,\n");
    expect_exit(0, RUN("reproduce", "published", "--rows", file));
    file = table("split.csv", "a,b300,tiny,,4,bf16,64,4,256,resident,2,1,1:9,2,random,rows,none,fused,0,1,2,9,,,x,\n");
    assert_int_equal(RUN("reproduce", "published", "--rows", file), 2);
    expect_error("expected 2 stages of 4 layers together, got 2 of 10");
    file = table("bad.csv", "a,b300\n");
    assert_int_equal(RUN("reproduce", "published", "--rows", file), 2);
    expect_error("bad.csv:2: expected 26 columns");
    file = table("odd.csv", "a,b300,tiny,,4,bf16,64,4,256,resident,3,1,,2,random,rows,cheap,fused,0,1,4,1,,,x,\n");
    assert_int_equal(RUN("reproduce", "published", "--rows", file), 2);
    expect_error("odd.csv:2: gpus is '4', expected a multiple of pp\n  hint: pp is 3");
    file = table("machine.csv", "a,c300,tiny,,4,bf16,64,4,256,resident,1,1,,2,random,rows,cheap,fused,0,1,4,1,,,x,\n");
    assert_int_equal(RUN("reproduce", "published", "--rows", file), 2);
    expect_error("machine.csv:2: ");
    expect_error("no machine 'c300x4'");
}

// A cell that is none of its column's is refused with its place: a typing error would be a prediction of something else.
static void wrong_cells(void **state) {
    (void)state;
    static const char right[] = "a,b300,tiny,layers=4,4,bf16,64,4,256,resident,1,1,,2,random,rows,cheap,fused,0,1,4,9,,,x,";
    static const struct { int column; const char *cell, *message; } wrong[] = {
        { 0, "", "stack is '', expected a name" },
        { 3, "layers", "args is 'layers', expected up to 8 of key=value" },
        { 4, "4x", "gpus is '4x', expected a whole number from 1" },
        { 4, "-4", "gpus is '-4'" },
        { 4, "nan", "gpus is 'nan'" },
        { 5, "fp8", "precision is 'fp8', expected bf16|mxfp8" },
        { 6, "1e30", "batch is '1e30', expected a whole number from 1 to 16777216, or nothing" },
        { 6, "63", "63 sequences cannot be laid out so\n  hint: ep divides dp=4, dp x microbatch=4 the sequences" },
        { 7, "", "microbatch is '', expected a whole number" },
        { 8, "1.5", "sequence is '1.5'" },
        { 9, "fdsp", "params is 'fdsp', expected resident|fsdp\n  hint: did you mean 'fsdp'?" },
        { 10, "0", "pp is '0'" },
        { 11, "2", "slots is '2', expected 1\n  hint: pp is 1" },
        { 12, "4*x", "stages is '4*x'" },
        { 13, "3", "cannot be laid out so" },
        { 14, "radnom", "routing is 'radnom', expected random|uniform|learned\n  hint: did you mean 'random'?" },
        { 15, "block", "transport is 'block', expected blocks|alltoall|rows" },
        { 16, "", "recompute is '', expected a name" },
        { 16, "full", "recompute is 'full'" },
        { 17, "fusd", "experts is 'fusd', expected fused|apart" },
        { 18, "5", "rows_hidden is '5', expected a share from 0 to 1" },
        { 19, "nan", "params_hidden is 'nan'" },
        { 20, "3", "reduce is '3', expected 2|4" },
        { 21, "", "expected tokens_per_s or tflop_per_s, found neither" },
        { 21, "inf", "tokens_per_s is 'inf', expected a number above 0, or nothing" },
        { 21, "0", "tokens_per_s is '0'" },
        { 25, "why,because", "expected 26 columns, found 27\n  hint: cells have no commas" },
    };
    for (int i = 0; i < COUNT_OF(wrong); i++) {
        Text row = { 0 };
        int column = 0;
        text_add(&row, "\n"); // an empty line counts
        for (const char *at = right;; at++, column++) {
            size_t n = strcspn(at, ",");
            if (column == wrong[i].column) text_add(&row, wrong[i].cell);
            else text_add_n(&row, at, n);
            at += n;
            if (!*at) break;
            text_add(&row, ",");
        }
        text_add(&row, "\n");
        assert_int_equal(RUN("reproduce", "published", "--rows", table("cells.csv", text_cstr(&row))), 2);
        expect_error("cells.csv:3: ");
        expect_error(wrong[i].message);
        assert_non_null(strstr(command_errors(), "\n  hint: "));
        text_finish(&row);
    }
    // Lines of other systems end in two characters.
    Text text = { 0 };
    text_printf(&text, "%.*s\r\n%s\r\n", (int)strcspn(head, "\n"), head, right);
    char *file = path_in(scratch_folder(), "cr.csv");
    write_file(file, text_cstr(&text), text.bytes);
    expect_exit(0, RUN("reproduce", "published", "--rows", file));
    write_file(file, "stack,gpu\n", 10);
    assert_int_equal(RUN("reproduce", "published", "--rows", file), 2);
    expect_error("cr.csv:1: column 3 is '', expected 'spec'\n  hint: tests/search/published.csv");
    text_finish(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calibrated),
        cmocka_unit_test(interrupted),
        cmocka_unit_test(written_meanwhile),
        cmocka_unit_test(reproduced),
        cmocka_unit_test(page),
        cmocka_unit_test(published),
        cmocka_unit_test(wrong_cells),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
