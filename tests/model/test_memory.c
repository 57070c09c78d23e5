// SPDX-License-Identifier: Apache-2.0
// Out of memory leaves the guard, and what was there before it as it was. Address space is limited for the process, so these
// tests say nothing under a sanitizer, whose shadow does not fit under a limit.
#include "helper.h"

#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                         \
    __has_feature(memory_sanitizer)
#define SANITIZED 1
#endif
#endif

#ifndef SANITIZED
static rlim_t bytes_mapped(void) {
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%lu", &pages) != 1) pages = 0;
    if (file) fclose(file);
    return (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
}
#endif

static struct rlimit unlimited;

// Leaves `more` bytes of address space; false where that cannot be had.
static bool limit(rlim_t more) {
#ifdef SANITIZED
    (void)more;
    return false;
#else
    rlim_t now = bytes_mapped();
    getrlimit(RLIMIT_AS, &unlimited);
    struct rlimit tight = { now + more, unlimited.rlim_max };
    return now && !setrlimit(RLIMIT_AS, &tight);
#endif
}

static void unlimit(void) { setrlimit(RLIMIT_AS, &unlimited); }

static Model *long_chain(uint32_t n) {
    Model *m = model_create();
    uint32_t x = TOKENS_OF(m, "x"), y = PARAM(m, "p");
    for (uint32_t i = 0; i < n; i++) y = model_op2(m, OP_MUL, x, y);
    Loss loss = { .node = y, .weight = 1 };
    *ARENA_PUSH(m->arena, m->losses, m->n_losses, m->cap_losses) = loss;
    return m;
}

static Status make_step(void *from) {
    model_destroy(model_program(from, PROGRAM_STEP));
    return OK;
}

static void test_program(void **state) {
    (void)state;
    Model *from = long_chain(200000); // its program wants hundreds of MiB
    if (!limit(16 << 20)) {
        model_destroy(from);
        skip();
    }
    Status status = memory_guard(make_step, from);
    unlimit();
    assert_int_equal(status, ERR_MEMORY);
    Model *m = model_program(from, PROGRAM_EVAL); // the model is as it was
    assert_non_null(m);
    model_destroy(m);
    model_destroy(from);
}

static Status build_much(void *user) {
    Model *m = user;
    uint32_t x = TOKENS_OF(m, "x"), y = PARAM(m, "p");
    for (int i = 0; i < 10000000; i++) y = model_op2(m, OP_MUL, x, y);
    return OK;
}

static void test_building(void **state) {
    (void)state;
    Model *m = model_create();
    if (!limit(16 << 20)) {
        model_destroy(m);
        skip();
    }
    Status status = memory_guard(build_much, m);
    unlimit();
    assert_int_equal(status, ERR_MEMORY); // ten million nodes do not fit into 16 MiB
    model_destroy(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_program),
        cmocka_unit_test(test_building),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
