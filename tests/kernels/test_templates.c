// SPDX-License-Identifier: Apache-2.0
// Templates, holes, and what libclang reads from them: every way to write a template wrongly is
// refused with the template's own file and line, a changed parameter changes the launch table, and
// a plan that binds the old one does not pass its check. A warm start does not load libclang.
#include "tests/kernels/lab.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char templates[64], cache[64];

static int setup(void **state) {
    (void)state;
    strcpy(templates, "/tmp/moec-templates-XXXXXX");
    strcpy(cache, "/tmp/moec-cache-XXXXXX");
    char cpu[80];
    if (!mkdtemp(templates) || !mkdtemp(cache)) return -1;
    snprintf(cpu, sizeof cpu, "%s/cpu", templates);
    if (mkdir(cpu, 0700)) return -1;
    setenv("MOEC_TEMPLATES", templates, 1);
    setenv("MOEC_CACHE_DIR", cache, 1);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    Text command = {0};
    text_printf(&command, "rm -rf %s %s", templates, cache);
    int status = system(text_cstr(&command));
    text_finish(&command);
    unsetenv("MOEC_TEMPLATES");
    unsetenv("MOEC_CACHE_DIR");
    return status;
}

static void override(const char *name, const char *text) {
    Text path = {0};
    text_printf(&path, "%s/%s", templates, name);
    assert_int_equal(file_write_atomic(text_cstr(&path), text, strlen(text)), OK);
    text_finish(&path);
}

static const KernelDesc clear = {.family = FAMILY_CLEAR, .n = 100};

static Status generate(Plan *plan, const KernelDesc *desc) {
    Codegen *codegen = codegen_create(plan);
    assert_non_null(codegen);
    uint32_t kernel;
    Status status = codegen_kernel(codegen, desc, &kernel);
    codegen_destroy(codegen);
    return status;
}

static void refused(const char *template, Status expected, const char *message) {
    override("cpu/clear.c", template);
    Plan *plan = plan_create();
    assert_int_equal(generate(plan, &clear), expected);
    if (!strstr(status_message(), message))
        fail_msg("expected a message with\n  %s\nfound\n  %s", message, status_message());
    assert_int_equal(plan->n_kernels, 0);
    plan_destroy(plan);
}

static void test_refused(void **state) {
    (void)state;
    refused("// top\nvoid $entry(float *x, int64_t tile_begin, int64_t tile_end) {\n    x[0] = "
            "$chunc;\n}\n",
            ERR_INPUT,
            "templates/cpu/clear.c:3: nothing fills $chunc\n  hint: did you mean $chunk?");
    refused("void $entry(float *x, int64_t tile_begin, int64_t tile_end) {\n    x[0] = y;\n}\n",
            ERR_COMPILE, "templates/cpu/clear.c:2: use of undeclared identifier 'y'");
    refused("// a\n// b\n\nvoid $entry(double *x, int64_t tile_begin, int64_t tile_end) {}\n",
            ERR_INPUT, "templates/cpu/clear.c:4: parameter `x` of clear_");
    refused("void $entry(float x, int64_t tile_begin, int64_t tile_end) {}\n", ERR_INPUT,
            "has type `float`, expected a pointer to (const) float, bf16, int32_t or int64_t");
    refused("void $entry(const int *x, int64_t tile_begin, int64_t tile_end) {}\n", ERR_INPUT,
            "has type `const int *`, expected");
    refused("void $entry(float *x, int64_t tile_begin, int32_t tile_end) {}\n", ERR_INPUT,
            "parameter `tile_end` of clear_");
    refused("void $entry(float *x, int64_t begin, int64_t tile_end) {}\n", ERR_INPUT,
            "parameter `begin` of clear_");
    refused("int $entry(float *x, int64_t tile_begin, int64_t tile_end) { return 0; }\n", ERR_INPUT,
            "returns `int`, expected void");
    refused("void $entry(int64_t tile_begin, int64_t tile_end) {}\n", ERR_INPUT,
            "has 2 parameters");
    refused("void $entry(float *x, int64_t tile_begin, int64_t tile_end);\n", ERR_INPUT,
            "does not define clear_");
    refused("void other_$entry(float *x, int64_t tile_begin, int64_t tile_end) {}\n", ERR_INPUT,
            "does not define");
}

// A filling of several lines does not shift the lines after it.
static void test_lines(void **state) {
    (void)state;
    static const PlanParam params[] = {{.name = "a", .lr = 1},
                                       {.name = "b", .offset = 64, .lr = 1},
                                       {.name = "c", .offset = 128, .lr = 1}};
    KernelDesc desc = {.family = FAMILY_ADAMW, .n = 48, .params = params, .n_params = 3};
    override("cpu/adamw.c",
             "static const struct { int64_t first; float lr, decay; } table_$entry[] = {\n    "
             "$table\n};\n"
             "void $entry(float *x, int64_t tile_begin, int64_t tile_end) {\n    wrong;\n}\n");
    Plan *plan = plan_create();
    assert_int_equal(generate(plan, &desc), ERR_COMPILE);
    assert_non_null(strstr(status_message(), "templates/cpu/adamw.c:5: "));
    plan_destroy(plan);
}

static const PlanArg *arg_named(const Plan *plan, const char *name) {
    for (uint32_t i = 0; i < plan->kernels[0].n_args; i++)
        if (!strcmp(plan->kernels[0].args[i].name, name)) return &plan->kernels[0].args[i];
    return NULL;
}

// What the templates say arrives in the launch table, in order.
static void test_launch_table(void **state) {
    (void)state;
    static const PlanArg expected[] = {{"x", DTYPE_F32, true},
                                       {"w", DTYPE_F32, true},
                                       {"offsets", DTYPE_I32, true},
                                       {"y", DTYPE_F32, false}};
    KernelDesc desc = {
        .family = FAMILY_MATMUL, .rows = 8, .experts = 2, .mid = 1, .each = 1, .k = 4, .n = 4};
    Plan *plan = plan_create();
    assert_int_equal(generate(plan, &desc), OK);
    assert_int_equal(plan->kernels[0].n_args, 4);
    for (int i = 0; i < 4; i++) {
        const PlanArg *arg = &plan->kernels[0].args[i];
        assert_string_equal(arg->name, expected[i].name);
        assert_int_equal(arg->dtype, expected[i].dtype);
        assert_int_equal(arg->is_const, expected[i].is_const);
    }
    plan_destroy(plan);
}

static const char renamed[] =
    "void $entry(float *target, int64_t tile_begin, int64_t tile_end) {}\n";
static const char retyped[] = "void $entry(int32_t *x, int64_t tile_begin, int64_t tile_end) {}\n";
static const char made_const[] =
    "void $entry(const float *x, int64_t tile_begin, int64_t tile_end) {}\n";

// A plan of one launch that clears the buffer x.
static Plan *plan_of_clear(void) {
    Plan *plan = plan_create();
    Arena *a = plan->arena;
    plan->model = "test", plan->target = "cpu";
    plan->tokens = plan->sequence = plan->microbatches = 1;
    assert_int_equal(generate(plan, &clear), OK);
    PlanProgram *p = ARENA_PUSH(a, plan->programs, plan->n_programs, plan->cap_programs);
    p->name = "eval";
    *ARENA_PUSH(a, p->buffers, p->n_buffers, p->cap_buffers) = (PlanBuffer){.name = "x",
                                                                            .dtype = DTYPE_F32,
                                                                            .region = REGION_act,
                                                                            .n_dims = 1,
                                                                            .dims = {100},
                                                                            .bytes = 400};
    *ARENA_PUSH(a, p->segments, p->n_segments, p->cap_segments) = (PlanSegment){"forward", 0, 1};
    *ARENA_PUSH(a, p->instrs, p->n_instrs, p->cap_instrs) = (PlanInstr){0, 0, 1};
    *ARENA_PUSH(a, p->operands, p->n_operands, p->cap_operands) = (PlanOperand){0, OPERAND_WRITE, 0};
    *ARENA_PUSH(a, p->rows, p->n_rows, p->cap_rows) = (PlanRow){0, 0, 0};
    p->act_bytes = plan->region_bytes[REGION_act] = 512;
    p->act_bound = 400;
    plan->region_bytes[REGION_scalars] = N_SCALARS * 4;
    return plan;
}

static void test_plan_check(void **state) {
    (void)state;
    Plan *plan = plan_of_clear();
    if (plan_check(plan) != OK) fail_msg("%s", status_message());
    plan_destroy(plan);

    override("cpu/clear.c", retyped);
    plan = plan_of_clear();
    assert_int_not_equal(plan_check(plan), OK);
    assert_non_null(strstr(status_message(), "expected i32 for parameter \"x\""));
    plan_destroy(plan);

    override("cpu/clear.c", made_const);
    plan = plan_of_clear();
    assert_int_not_equal(plan_check(plan), OK);
    assert_non_null(strstr(status_message(), "const parameter \"x\""));
    plan_destroy(plan);

    // Names are lowering's matter: it binds buffers by them and finds no "x" in this table.
    override("cpu/clear.c", renamed);
    plan = plan_of_clear();
    assert_null(arg_named(plan, "x"));
    assert_non_null(arg_named(plan, "target"));
    plan_destroy(plan);
}

/* warm starts: in processes of their own,
    since a process loads libclang once ------------------------ */

static int in_child(const char *library) {
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        if (library) setenv("MOEC_LIBCLANG", library, 1);
        Plan *plan = plan_create();
        Status status = generate(plan, &clear);
        bool said = status == OK || strstr(status_message(), "MOEC_LIBCLANG");
        _exit(status == OK ? 0 : said ? 1 : 2);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void damage_cache(void) {
    Text command = {0};
    text_printf(
        &command,
        "find %s -type f -exec sh -c 'printf x | dd of=$1 bs=1 seek=20 conv=notrunc' - {} \\; "
        "2>/dev/null",
        cache);
    assert_int_equal(system(text_cstr(&command)), 0);
    text_finish(&command);
}

static void test_warm_start(void **state) {
    (void)state;
    assert_int_equal(in_child("/nowhere/libclang.so"), 1); // cold: needs it, and says what to set
    assert_int_equal(in_child(NULL), 0);
    assert_int_equal(in_child("/nowhere/libclang.so"), 0); // warm: not even loaded
    damage_cache();
    assert_int_equal(in_child("/nowhere/libclang.so"), 1); // a damaged entry is a miss
    assert_int_equal(in_child(NULL), 0);
    assert_int_equal(in_child("/nowhere/libclang.so"), 0);
}

/* kernels of a plan -------------------------------------------------------------------------- */

static void test_equal_kernels(void **state) {
    (void)state;
    Plan *plan = plan_create(), *other = plan_create();
    Codegen *codegen = codegen_create(plan);
    KernelDesc more = clear;
    more.n = 101;
    uint32_t a, b, c;
    assert_int_equal(codegen_kernel(codegen, &clear, &a), OK);
    assert_int_equal(codegen_kernel(codegen, &more, &b), OK);
    assert_int_equal(codegen_kernel(codegen, &clear, &c), OK);
    assert_int_equal(a, c);
    assert_int_not_equal(a, b);
    assert_int_equal(plan->n_kernels, 2);
    assert_int_equal(plan->n_sources, 3);
    codegen_destroy(codegen);
    assert_int_equal(generate(other, &more), OK);
    assert_string_equal(other->kernels[0].entry, plan->kernels[b].entry);
    assert_true(hash_equal(other->sources[1].hash, plan->sources[plan->kernels[b].source].hash));
    plan_destroy(plan);
    plan_destroy(other);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_warm_start),   TEST(test_refused),    TEST(test_lines),
        TEST(test_launch_table), TEST(test_plan_check), TEST(test_equal_kernels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
