// SPDX-License-Identifier: Apache-2.0
// A template's parameter is what libclang reads. Renaming or retyping one, or taking its const away, makes
// lowering refuse the kernel by name instead of binding a buffer to something else.
#include "tests/lower/helper.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/moec-templates-XXXXXX";

// templates/cpu/sumsq.c with every `from` replaced.
static void change(const char *from, const char *to)
{
    Arena *arena = arena_create();
    char *text;
    size_t n;
    assert_int_equal(file_read(MOEC_SOURCE_DIR "/templates/cpu/sumsq.c", arena, &text, &n), OK);
    Text out = { 0 };
    const char *at = text, *found;
    for (; (found = strstr(at, from)); at = found + strlen(from)) {
        text_add_n(&out, at, (size_t)(found - at));
        text_add(&out, to);
    }
    assert_ptr_not_equal(at, text);
    text_add(&out, at);
    assert_int_equal(file_write_atomic(arena_printf(arena, "%s/cpu/sumsq.c", folder), text_cstr(&out), out.bytes), OK);
    text_finish(&out);
    arena_destroy(arena);
}

static Plan *lower(Model *m)
{
    LowerOptions options = { .microbatch = 1, .microbatches = 1 };
    options.programs[PROGRAM_STEP] = true;
    return lower_model(m, &options);
}

static void refused(const char *from, const char *to, const char *message)
{
    change(from, to);
    Model *m = plain_model();
    assert_null(lower(m));
    if (!strstr(m->diag.message, message)) fail_msg("expected \"%s\" in \"%s\"", message, m->diag.message);
    assert_non_null(strstr(m->diag.message, "sumsq_"));
    model_destroy(m);
}

static void test_parameters(void **state)
{
    (void)state;
    change("float *partials", "float *partials"); // unchanged: accepted
    Model *m = plain_model();
    Plan *plan = lower(m);
    if (!plan) fail_msg("%s", m->diag.message);
    plan_destroy(plan);
    model_destroy(m);
    refused("float *partials,", "float *out,\n#define partials out\n", "a parameter 'out'");
    refused("float *partials,", "int32_t *partials,", "parameter 'partials': expected f32, found i32");
    refused("const float *x,", "float *x,", "parameter 'x': expected const f32, found f32");
    refused("const float *x,", "const double *x,", "templates/cpu/sumsq.c:");
}

static int setup(void **state)
{
    (void)state;
    if (!mkdtemp(folder)) return -1;
    char cpu[80];
    snprintf(cpu, sizeof cpu, "%s/cpu", folder);
    if (mkdir(cpu, 0700)) return -1;
    return !setenv("MOEC_TEMPLATES", folder, 1) &&
                   !setenv("MOEC_CACHE_DIR", MOEC_BINARY_DIR "/test-cache", 1) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    char path[64];
    snprintf(path, sizeof path, "%s/cpu/sumsq.c", folder);
    if (unlink(path)) return -1;
    snprintf(path, sizeof path, "%s/cpu", folder);
    return rmdir(path) || rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test_setup_teardown(test_parameters, setup, teardown) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
