// SPDX-License-Identifier: Apache-2.0
// The executor on a plan made by hand, against the same arithmetic in C.
#include <malloc.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "runtime/exec/exec.h"
#include "tests/exec/own_cache.h"
#include "tests/plan/sample.h"

static int32_t token(int microbatch, int64_t t) {
    return (int32_t)(hash_mix(3, (uint64_t)microbatch, (uint64_t)t) % 7) - 1; // -1 .. 5
}

typedef struct Fills {
    int calls, order[16], fail_at;
} Fills;

static Status fill(void *user, Exec *exec, const PlanProgram *program, int microbatch) {
    Fills *fills = user;
    if (fills) {
        if (fills->calls < COUNT_OF(fills->order)) fills->order[fills->calls] = microbatch;
        if (fills->calls++ == fills->fail_at) return status_fail(ERR_INPUT, "no more data");
    }
    int32_t *tokens = exec_input(exec, program, INPUT_tokens, 0);
    for (int64_t t = 0; t < program->buffers[0].dims[0]; t++) tokens[t] = token(microbatch, t);
    return OK;
}

static Exec *create(const Plan *plan, int threads, bool poison) {
    Exec *exec;
    ExecOptions options = { .threads = threads, .poison = poison, .small_pages = true };
    if (exec_create(plan, &options, &exec) != OK) fail_msg("%s", status_message());
    return exec;
}

// The sample's step in plain C: updates weights (as in the region), returns the loss.
static float reference_step(const Plan *plan, float *weights, float lr, float *counts) {
    int64_t tokens = plan->tokens, bias = plan->params[1].offset / 4;
    float *grads = calloc((size_t)plan->n_trained, sizeof *grads), loss = 0;
    memset(counts, 0, SAMPLE_COUNTS * sizeof *counts);
    for (int m = 0; m < plan->microbatches; m++) {
        float sum = 0;
        for (int64_t t = 0; t < tokens; t++) {
            float x = (float)max_i64(token(m, t), 0);
            float y = weights[t] * x + weights[bias + t % SAMPLE_BIAS];
            sum += 0.5f * y * y;
            grads[t] += y * x;
            grads[bias + t % SAMPLE_BIAS] += y;
            counts[token(m, t) & 3] += 1;
        }
        loss += sum;
    }
    for (int64_t i = 0; i < plan->n_trained; i++) {
        weights[i] -= lr * grads[i] / (1 + grads[i] * grads[i]);
    }
    free(grads);
    return loss;
}

static void test_step(void **state) {
    (void)state;
    Plan *plan = sample_plan(200, 3);
    Exec *exec = create(plan, 2, true);
    const PlanProgram *step = plan_program(plan, "step");
    exec_init(exec, 1);
    exec_scalars(exec)[SCALAR_lr] = 0.01f;
    float *weights = exec_region(exec, REGION_weights), counts[SAMPLE_COUNTS];
    float *own = malloc((size_t)plan->n_trained * 4);
    memcpy(own, weights, (size_t)plan->n_trained * 4);
    for (int i = 0; i < 3; i++) {
        Fills fills = { .fail_at = -1 };
        assert_int_equal(exec_run(exec, step, fill, &fills), OK);
        assert_int_equal(fills.calls, 3);
        for (int m = 0; m < 3; m++) assert_int_equal(fills.order[m], m);
        float loss = reference_step(plan, own, 0.01f, counts);
        int64_t n;
        assert_true(exec_metric(exec, step, 0, &n)[0] == loss); // from zero at every run
        assert_int_equal(n, 1);
        assert_memory_equal(weights, own, (size_t)plan->n_trained * 4);
        assert_memory_equal((char *)weights + plan->params[2].offset, counts, sizeof counts);
    }
    free(own);
    exec_destroy(exec);
    plan_destroy(plan);
}

// Each instruction that has run has taken time; the sums start where the caller says.
static void test_profile(void **state) {
    (void)state;
    Plan *plan = sample_plan(200, 3);
    const PlanProgram *step = plan_program(plan, "step");
    Exec *exec = create(plan, 2, false);
    assert_null(exec_profile(exec, step));
    exec_destroy(exec);
    ExecOptions options = { .threads = 2, .profile = true };
    assert_int_equal(exec_create(plan, &options, &exec), OK);
    exec_init(exec, 1);
    double *seconds = exec_profile(exec, step);
    for (uint32_t i = 0; i < step->n_instrs; i++) assert_true(seconds[i] == 0);
    seconds[0] = 1000;
    assert_int_equal(exec_run(exec, step, fill, NULL), OK);
    for (uint32_t i = 0; i < step->n_instrs; i++) assert_true(seconds[i] > (i ? 0 : 1000));
    exec_destroy(exec);
    plan_destroy(plan);
}

// A run that is timed has every instruction of every row once, trips in turn, in an order of time; runs that
// nobody asked for leave no trace.
static void check_span(const PlanTimeline *timeline, int64_t *k, double *at, int row, int instr, int trip) {
    const PlanSpan *span = &timeline->spans[(*k)++];
    assert_int_equal(span->row, row);
    assert_int_equal(span->instr, instr);
    assert_int_equal(span->trip, trip);
    assert_true(span->begin >= *at && span->end >= span->begin);
    *at = span->end;
}

static void check_timeline(const PlanTimeline *timeline, const PlanProgram *program, int runs) {
    assert_int_equal(timeline->n_runs, runs);
    int64_t k = 0;
    double at = 0;
    for (int run = 0; run < runs; run++) {
        assert_int_equal(timeline->runs[run].first, k);
        assert_true(timeline->runs[run].begin >= at);
        at = timeline->runs[run].begin;
        int filled = -1;
        for (int r = 0; r < (int)program->n_rows; r++) {
            const PlanSegment *segment = &program->segments[program->rows[r].segment];
            if (program->rows[r].microbatch > filled) check_span(timeline, &k, &at, r, SPAN_INPUTS, 0);
            filled = (int)max_i64(filled, program->rows[r].microbatch);
            for (int i = segment->first; i < segment->first + segment->n;) {
                const PlanRepeat *repeat = plan_repeat(program, i);
                int n = repeat ? repeat->n : 1;
                for (int trip = 0; trip < (repeat ? repeat->trip : 1); trip++)
                    for (int j = i; j < i + n; j++) check_span(timeline, &k, &at, r, j, trip);
                i += n;
            }
        }
        assert_int_equal(timeline->runs[run].n, k - timeline->runs[run].first);
        assert_true(timeline->runs[run].end >= at);
        at = timeline->runs[run].end;
    }
    assert_int_equal(timeline->n, k);
}

static void test_timeline(void **state) {
    (void)state;
    for (int repeats = 0; repeats < 2; repeats++) {
        Plan *plan = sample_plan(400, 3);
        if (repeats) sample_halves(plan);
        const PlanProgram *program = plan_program(plan, repeats ? "halves" : "step");
        Exec *exec = create(plan, 2, false);
        exec_init(exec, 1);
        assert_null(exec_timeline(exec));
        assert_int_equal(exec_run(exec, program, repeats ? NULL : fill, NULL), OK);
        assert_int_equal(exec_trace(exec, program, 2), OK);
        Fills failing = { .fail_at = repeats ? -1 : 1 }; // a run that fails is as if it had not been
        if (!repeats) assert_int_equal(exec_run(exec, program, fill, &failing), ERR_INPUT);
        for (int i = 0; i < 4; i++) assert_int_equal(exec_run(exec, program, repeats ? NULL : fill, NULL), OK);
        check_timeline(exec_timeline(exec), program, 2);
        assert_int_equal(exec_trace(exec, program, 1), OK);
        check_timeline(exec_timeline(exec), program, 0);
        assert_int_equal(exec_trace(exec, program, 0), ERR_ARGUMENT);
        exec_destroy(exec);
        plan_destroy(plan);
    }
}

static void check_twice(const Exec *exec, int64_t tokens) {
    const float *weights = exec_region(exec, REGION_weights),
                *packed = exec_region(exec, REGION_packed);
    for (int64_t i = 0; i < 2 * tokens; i++) assert_true(packed[i] == weights[i / 2]);
}

// Trips of a repeat run one after the other, each on its piece.
static void test_repeat(void **state) {
    (void)state;
    Plan *plan = sample_plan(400, 1);
    sample_halves(plan);
    Exec *exec = create(plan, 2, true);
    exec_init(exec, 5);
    const PlanProgram *halves = plan_program(plan, "halves");
    assert_int_equal(exec_run(exec, halves, NULL, NULL), OK);
    const float *weights = exec_region(exec, REGION_weights),
                *y = exec_buffer(exec, halves, halves->outputs[0].buffer);
    for (int i = 0; i < 400; i++) assert_true(y[i] == 2 * weights[i] + 1);
    exec_destroy(exec);
    plan_destroy(plan);
}

// Copies of weights follow them: after the initial values, after the host has written, after a step.
static void test_packed(void **state) {
    (void)state;
    Plan *plan = sample_plan(40, 2);
    sample_pack(plan);
    Exec *exec = create(plan, 2, true);
    float *weights = exec_region(exec, REGION_weights);
    exec_init(exec, 5);
    check_twice(exec, 40);
    for (int i = 0; i < 40; i++) weights[i] = (float)i;
    exec_pack(exec);
    check_twice(exec, 40);
    exec_scalars(exec)[SCALAR_lr] = 0.125f;
    assert_int_equal(exec_run(exec, plan_program(plan, "step"), fill, NULL), OK);
    assert_true(weights[7] != 7);
    check_twice(exec, 40);
    exec_destroy(exec);
    plan_destroy(plan);
}

// Steps and evaluations of a plan read from its text, with any number of threads: the same bits.
static Hash run_bits(Plan *plan, int threads) {
    Exec *exec = create(plan, threads, false);
    assert_int_equal(exec_threads(exec), threads);
    exec_init(exec, 42);
    exec_scalars(exec)[SCALAR_lr] = 0.125f;
    for (int i = 0; i < 5; i++) {
        assert_int_equal(exec_run(exec, plan_program(plan, "step"), fill, NULL), OK);
        assert_int_equal(exec_run(exec, plan_program(plan, "eval"), fill, NULL), OK);
    }
    Hash weights =
        hash_bytes(exec_region(exec, REGION_weights), (size_t)plan->region_bytes[REGION_weights]);
    float loss = *exec_metric(exec, plan_program(plan, "eval"), 0, NULL);
    assert_true(isfinite(loss) && loss > 0);
    weights.low ^= hash_bytes(&loss, sizeof loss).low;
    exec_destroy(exec);
    return weights;
}

static void test_same_bits(void **state) {
    (void)state;
    Plan *plan = sample_plan(300, 2), *again;
    Text text = { 0 };
    plan_print(plan, &text);
    assert_int_equal(plan_parse(text.at, text.bytes, &again), OK);
    text_finish(&text);
    Hash one = run_bits(plan, 1);
    assert_true(hash_equal(one, run_bits(plan, 2)));
    assert_true(hash_equal(one, run_bits(plan, 3)));
    assert_true(hash_equal(one, run_bits(again, 2)));
    plan_destroy(again);
    plan_destroy(plan);
}

static void test_initial_values(void **state) {
    (void)state;
    Plan *plan = sample_plan(100000, 1);
    Exec *exec = create(plan, 2, false), *other = create(plan, 1, false);
    const float *weights = exec_region(exec, REGION_weights);
    float *moment = exec_region(exec, REGION_moment1);
    moment[5] = 3;
    exec_init(exec, 7);
    exec_init(other, 7);
    assert_memory_equal(weights, exec_region(other, REGION_weights),
                        (size_t)plan->region_bytes[REGION_weights]);
    assert_true(moment[5] == 0);
    const float *bias = weights + plan->params[1].offset / 4,
                *counts = weights + plan->params[2].offset / 4;
    for (int i = 0; i < SAMPLE_BIAS; i++) assert_true(bias[i] == 0);
    for (int i = 0; i < SAMPLE_COUNTS; i++) assert_true(counts[i] == 1);

    double sum = 0, squares = 0;
    for (int i = 0; i < 100000; i++) {
        sum += weights[i];
        squares += (double)weights[i] * weights[i];
    }
    double mean = sum / 100000, deviation = sqrt(squares / 100000 - mean * mean);
    assert_true(fabs(mean) < 0.01 && fabs(deviation - 0.5) < 0.01);
    uint64_t name = hash_bytes("layers.0.scale", strlen("layers.0.scale")).low;
    for (uint64_t i = 0; i < 100000; i += 9999) {
        assert_true(weights[i] == (float)(0.5 * hash_normal(7, name, i)));
    }
    exec_init(other, 8);
    assert_memory_not_equal(weights, exec_region(other, REGION_weights), 400);
    exec_destroy(other);
    exec_destroy(exec);

    // The name counts, not the place.
    Plan *moved = sample_plan(100004, 1);
    exec = create(plan, 1, false);
    other = create(moved, 1, false);
    exec_init(exec, 7);
    exec_init(other, 7);
    assert_memory_equal(exec_region(exec, REGION_weights), exec_region(other, REGION_weights),
                        400000);
    exec_destroy(other);
    exec_destroy(exec);
    plan_destroy(moved);
    plan_destroy(plan);
}

static void test_poison(void **state) {
    (void)state;
    Plan *plan = sample_plan(8, 2);
    // Without the kernel that writes dy, what it held is read: the checker would refuse the plan,
    // so the kernel is kept and does not write.
    PlanSource *source = &plan->sources[plan->kernels[3].source];
    const char *write = "dy[t] = y[t];", *at = strstr(source->text, write);
    assert_non_null(at);
    char *text = arena_strdup(plan->arena, source->text);
    memset(text + (at - source->text), ' ', strlen(write));
    source->text = text;
    source->hash = hash_bytes(text, (size_t)source->bytes);
    for (int poison = 0; poison < 2; poison++) {
        Exec *exec = create(plan, 1, poison);
        assert_int_equal(exec_run(exec, plan_program(plan, "step"), fill, NULL), OK);
        const float *grads = exec_region(exec, REGION_grads);
        assert_int_equal(isnan(grads[0]) != 0, poison);
        assert_int_equal(isnan(grads[64]) != 0, poison);
        exec_destroy(exec);
    }
    plan_destroy(plan);
}

static void test_access(void **state) {
    (void)state;
    Plan *plan = sample_plan(8, 1);
    Exec *exec = create(plan, 1, false);
    PlanProgram *step = plan_program(plan, "step");
    char *io = exec_region(exec, REGION_io);
    assert_ptr_equal(exec_input(exec, step, INPUT_tokens, 0), io);
    assert_null(exec_input(exec, step, INPUT_tokens, 1));
    assert_null(exec_input(exec, step, INPUT_labels, 0));
    assert_ptr_equal(exec_buffer(exec, step, 2), io + step->buffers[2].offset);
    assert_ptr_equal(exec_metric(exec, step, 0, NULL), io + step->buffers[1].offset);
    assert_ptr_equal(exec_scalars(exec), exec_region(exec, REGION_scalars));
    assert_int_equal((uintptr_t)exec_region(exec, REGION_act) % 4096, 0);
    assert_int_equal(exec_run(exec, NULL, fill, NULL), ERR_ARGUMENT);
    PlanProgram other = *step;
    assert_int_equal(exec_run(exec, &other, fill, NULL), ERR_ARGUMENT);

    Fills fills = { .fail_at = 0 };
    assert_int_equal(exec_run(exec, step, fill, &fills),
                     ERR_INPUT); // the caller's failure comes through
    assert_string_equal(status_message(), "no more data");
    exec_destroy(exec);
    exec_destroy(NULL);
    plan_destroy(plan);
}

static void test_refused_plan(void **state) {
    (void)state;
    Plan *plan = sample_plan(8, 1);
    plan->programs[0].buffers[12].last = 7; // dy reaches into the life of squares
    Exec *exec = (Exec *)1;
    ExecOptions options = { 0 };
    assert_int_equal(exec_create(plan, &options, &exec), ERR_FORMAT);
    assert_null(exec);
    assert_non_null(strstr(status_message(), "plan check, clash"));
    plan_destroy(plan);
    plan = sample_plan(8, 1);
    options.threads = -3;
    assert_int_equal(exec_create(plan, &options, &exec), ERR_ARGUMENT);
    plan_destroy(plan);
}

// Pages of act that a run touches are those of the plan's peak, and none before it runs.
static void test_touched(void **state) {
    (void)state;
    Plan *plan = sample_plan(40000, 1);
    Exec *exec = create(plan, 2, false);
    assert_int_equal(exec_touched(exec, REGION_act), 0);
    assert_int_equal(exec_touched(exec, REGION_grads), 0);
    assert_int_equal(exec_run(exec, plan_program(plan, "eval"), fill, NULL), OK);
    int64_t page = sysconf(_SC_PAGESIZE), dy = round_up(40000 * 4, page);
    assert_int_equal(exec_touched(exec, REGION_act), dy); // squares belong to step
    assert_int_equal(exec_touched(exec, REGION_grads), 0);
    assert_int_equal(exec_run(exec, plan_program(plan, "step"), fill, NULL), OK);
    assert_int_equal(exec_touched(exec, REGION_act),
                     round_up(plan->region_bytes[REGION_act], page));
    assert_int_equal(exec_touched(exec, REGION_grads),
                     round_up(plan->region_bytes[REGION_grads], page));
    exec_destroy(exec);
    plan_destroy(plan);
}

// A run takes no memory from the heap. The allocators of sanitizers count nothing: skipped there.
static void test_no_allocation(void **state) {
    (void)state;
    struct mallinfo2 before = mallinfo2();
    void *volatile probe = malloc(100000);
    bool counts = mallinfo2().uordblks > before.uordblks;
    free(probe);
    if (!counts) skip();
    Plan *plan = sample_plan(64, 2);
    Exec *exec = create(plan, 1, true);
    const PlanProgram *step = plan_program(plan, "step");
    assert_int_equal(exec_trace(exec, step, 3), OK); // some of them are timed
    before = mallinfo2();
    for (int i = 0; i < 10; i++) assert_int_equal(exec_run(exec, step, fill, NULL), OK);
    struct mallinfo2 after = mallinfo2();
    assert_int_equal(after.uordblks, before.uordblks);
    assert_int_equal(after.arena, before.arena);
    assert_int_equal(after.hblkhd, before.hblkhd);
    exec_destroy(exec);
    plan_destroy(plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_step),           cmocka_unit_test(test_packed),
        cmocka_unit_test(test_repeat),
        cmocka_unit_test(test_profile),        cmocka_unit_test(test_timeline),
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_initial_values), cmocka_unit_test(test_poison),
        cmocka_unit_test(test_access),         cmocka_unit_test(test_refused_plan),
        cmocka_unit_test(test_touched),        cmocka_unit_test(test_no_allocation),
    };
    return cmocka_run_group_tests(tests, own_cache_make, own_cache_remove);
}
