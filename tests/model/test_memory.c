// SPDX-License-Identifier: Apache-2.0
// Out of memory: no graph rather than half a graph. Address space is limited for the process, so these
// tests say nothing under a sanitizer, whose shadow does not fit under a limit.
#include "helper.h"

#include <stdio.h>
#include <stdlib.h>
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

static void test_program(void **state) {
    (void)state;
    Model *from = long_chain(200000); // its program wants hundreds of MiB
    if (!limit(16 << 20)) {
        model_destroy(from);
        skip();
    }
    Model *m = model_program(from, PROGRAM_STEP);
    unlimit();
    assert_null(m);
    assert_string_equal(from->diag.message,
                        "out of memory: expected room for the graph of program 'step'");
    m = model_program(from, PROGRAM_EVAL); // the model is as it was
    assert_non_null(m);
    model_destroy(m);
    model_destroy(from);
}

static void test_building(void **state) {
    (void)state;
    Model *m = model_create();
    uint32_t x = TOKENS_OF(m, "x"), y = PARAM(m, "p");
    jmp_buf oom;
    if (setjmp(oom)) { // the caller's: it drops the model
        unlimit();
        model_destroy(m);
        return;
    }
    arena_on_oom(m->arena, &oom);
    if (!limit(16 << 20)) {
        model_destroy(m);
        skip();
    }
    for (int i = 0; i < 10000000; i++) y = model_op2(m, OP_MUL, x, y);
    unlimit();
    fail_msg("ten million nodes fitted into 16 MiB");
}

static void test_create(void **state) {
    (void)state;
    if (!limit(0)) skip();
    // what malloc still holds is used up from large pieces to small ones
    void **held = NULL;
    for (size_t bytes = 1 << 16; bytes >= sizeof(void *); bytes /= 2) {
        for (void **more; (more = malloc(bytes)); held = more) *more = held;
    }
    Model *m = model_create();
    unlimit();
    while (held) {
        void **next = *held;
        free(held);
        held = next;
    }
    assert_null(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_program),
        cmocka_unit_test(test_building),
        cmocka_unit_test(test_create),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
