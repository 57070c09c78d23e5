// SPDX-License-Identifier: Apache-2.0
// Predicted memory against memory used: the plan's peak is the sum of what its regions map, a step touches
// no page beyond it and nearly all of it, a second step maps nothing, and what is resident outside of the
// regions is listed apart.
#include "tests/oracle/machine.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

// A sanitizer keeps freed memory and shadows all of it: what is resident then says nothing of ours.
#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

// Bytes of this process: 0 mapped, 1 resident.
static int64_t process_bytes(int column) {
    long long values[2];
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lld %lld", &values[0], &values[1]), 2);
    fclose(file);
    return values[column] * sysconf(_SC_PAGESIZE);
}

// Bytes mapped readable and writable without a gap from `at` on, up to the end of the mapping it lies in.
static int64_t mapped_from(const void *at) {
    FILE *file = fopen("/proc/self/maps", "r");
    assert_non_null(file);
    char line[512];
    int64_t bytes = 0;
    while (fgets(line, sizeof line, file)) {
        unsigned long long from, to;
        char mode[8];
        if (sscanf(line, "%llx-%llx %7s", &from, &to, mode) != 3) continue;
        if ((uintptr_t)at >= from && (uintptr_t)at < to && mode[0] == 'r' && mode[1] == 'w')
            bytes = (int64_t)(to - (uintptr_t)at);
    }
    fclose(file);
    return bytes;
}

static const char *const region_names[N_REGIONS] = {
#define X(name) #name,
    PLAN_REGIONS(X)
#undef X
};

static void check_memory(const Spec *spec) {
    Model *m = spec_model(spec);
    assert_non_null(m);
    Plan *plan = machine_plan(m, spec->sequences, spec->batches, (How){ 0 });
    const PlanProgram *program = plan_program(plan, "step");
    Step step = step_make(24, m, spec->sequences, spec->batches);
    Interp *values = interp_create(m);
    interp_fill(values, 5, spec->std);
    int64_t page = sysconf(_SC_PAGESIZE);

    Exec *exec = machine_exec(plan, 2, false);
    for (int r = 0; r < N_REGIONS; r++) assert_int_equal(exec_touched(exec, (Region)r), 0); // nothing before use
    int64_t outside = process_bytes(1);
    machine_load(exec, plan, values);
    machine_step(exec, plan, &step);
    int64_t mapped = process_bytes(0), resident = process_bytes(1);
    machine_step(exec, plan, &step);
    assert_int_equal(process_bytes(0), mapped); // nothing is allocated during a step

    int64_t sum = 0, touched = 0;
    printf("%s\n  region      predicted    touched\n", spec_title(spec));
    for (int r = 0; r < N_REGIONS; r++) {
        int64_t bytes = plan->region_bytes[r], used = exec_touched(exec, (Region)r);
        printf("  %-9s %11lld %10lld\n", region_names[r], (long long)bytes, (long long)used);
        sum += bytes, touched += used;
        assert_true(used <= round_up(bytes, page));
        if (bytes) assert_true(mapped_from(exec_region(exec, (Region)r)) >= bytes);
        if (r == REGION_scalars || r == REGION_io || !bytes) continue;
        // Every region but io is read or written over by a step, apart from the pages at its ends.
        if (r != REGION_totals) assert_true(used >= bytes * 9 / 10 - 2 * page);
    }
    printf("  peak      %11lld %10lld   resident outside of the regions %lld\n", (long long)plan_peak(plan),
           (long long)touched, (long long)(resident - touched));
    assert_int_equal(plan_peak(plan), sum);
    assert_true(touched <= plan_peak(plan) + N_REGIONS * page);
    // What became resident since the executor was there is the regions, and up to 1 MiB for each of the two
    // threads: packed operands on its stack (compiler/codegen/contract.c: STACK), code of kernels, heap.
    assert_true(resident - outside <= touched + (2 << 20));

    // The peak of act is reached: some instruction has that many bytes live, and no packing needs less.
    int64_t most = 0;
    for (uint32_t i = 0; i < program->n_instrs; i++) {
        int64_t live = 0;
        for (uint32_t b = 0; b < program->n_buffers; b++) {
            const PlanBuffer *buffer = &program->buffers[b];
            if (buffer->region != REGION_act || buffer->first > (int32_t)i || buffer->last < (int32_t)i) continue;
            live += round_up(buffer->bytes, PLAN_GRAIN);
        }
        most = max_i64(most, live);
    }
    assert_int_equal(program->act_bound, most);
    assert_true(program->act_bytes >= most);
    assert_true(program->act_bytes <= plan->region_bytes[REGION_act]);
    printf("  act is %.3f of its lower bound\n", (double)program->act_bytes / (double)max_i64(1, most));
    assert_true(program->act_bytes <= most + most / 10);

    exec_destroy(exec);
    interp_destroy(values);
    step_free(&step);
    plan_destroy(plan);
    model_destroy(m);
}

static void tiny(void **state) {
    (void)state;
    if (SANITIZED) skip();
    Spec spec = spec_tiny;
    spec.sequence = 64, spec.sequences = 4;
    check_memory(&spec);
}

static void small_specs(void **state) {
    (void)state;
    if (SANITIZED) skip();
    check_memory(&specs[0]);
    check_memory(&specs[3]);
}

int main(void) {
    machine_use_cache();
    const struct CMUnitTest tests[] = { cmocka_unit_test(tiny), cmocka_unit_test(small_specs) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
