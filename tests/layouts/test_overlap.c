// SPDX-License-Identifier: Apache-2.0
// What crosses ranks while kernels run: the same bits as when it crosses alone, in no more memory where weights are
// resident; plans whose starts and waits do not fit each other, or what runs between them, are refused by name.
#include "tests/layouts/world.h"

#include <math.h>
#include <stdio.h>

static WorldJob job_of(const char *spec, const char *layout, Arena *arena) {
    WorldJob job = { .spec = spec, .microbatch = 1, .microbatches = 3, .steps = 2, .clip = 0.5, .lr = 3e-3,
                     .decay = 0.1, .bucket = 4 << 10, .poison = true, .eval = true };
    job.layout = layout_single();
    if (layout_parse(layout, arena, &job.layout) != OK) fail_msg("%s", status_message());
    return job;
}

static PlanProgram *step_of(const Plan *plan) {
    return plan_program(plan, "step");
}

static uint32_t count(const Plan *plan, PlanHalf half, bool last) {
    const PlanProgram *step = step_of(plan);
    uint32_t n = 0;
    for (uint32_t i = 0; i < step->n_instrs; i++) n += step->instrs[i].half == half && step->instrs[i].last == last;
    return n;
}

/* Bits ----------------------------------------------------------------------------------------- */

typedef struct Shape {
    const char *spec, *layout;
    bool last;      // something starts in last rows
} Shape;
static const Shape shapes[] = {
    { "moe.lua", "dp=2", true },
    { "moe.lua", "dp=4,ep=2,params=fsdp", false },
    { "moe.lua", "dp=2,pp=2,schedule=zb", true },
};

static void test_bits(void **state) {
    (void)state;
    Arena *arena = arena_create();
    for (int s = 0; s < COUNT_OF(shapes); s++) {
        WorldJob job = job_of(shapes[s].spec, shapes[s].layout, arena), alone = job;
        alone.layout.overlap = OVERLAP_OFF;
        World *a = world_run(&job), *b = world_run(&alone);
        world_equal_bits(a, b);
        assert_true(fabs(a->eval - b->eval) <= 1e-12 * fabs(b->eval)); // ranks add theirs in any order
        bool fsdp = strstr(shapes[s].layout, "fsdp") != NULL;
        for (int i = 0; i < a->n_stages; i++) {
            const Plan *x = a->plans[i], *y = b->plans[i];
            printf("%s %s, stage %d: %u starts, %u of them in last rows; act %lld and %lld bytes\n", shapes[s].spec,
                   shapes[s].layout, i, count(x, HALF_start, true) + count(x, HALF_start, false),
                   count(x, HALF_start, true), (long long)x->region_bytes[REGION_act],
                   (long long)y->region_bytes[REGION_act]);
            assert_true((count(x, HALF_start, true) > 0) == shapes[s].last);
            assert_true(count(x, HALF_start, false) > 0);
            assert_int_equal(count(y, HALF_start, true) + count(y, HALF_start, false), 0);
            // Placement may leave a little more of act between buffers.
            if (!fsdp) assert_true(step_of(x)->act_bound <= step_of(y)->act_bound);
            PlanTraffic given, before;
            plan_traffic(x, step_of(x), &given);
            plan_traffic(y, step_of(y), &before);
            assert_memory_equal(&given, &before, sizeof given);
        }
        for (int r = 0; r < a->n_ranks; r++) {
            PlanTraffic given;
            plan_traffic(a->plans[r / job.layout.dp], step_of(a->plans[r / job.layout.dp]), &given);
            for (int link = 0; link < N_LINKS; link++)
                for (int move = MOVE_gather; move <= MOVE_exchange; move++)
                    assert_true(a->ranks[r].moved.bytes[move][link] == job.steps * given.bytes[move][link]);
        }
        world_free(a);
        world_free(b);
    }
    arena_destroy(arena);
}

// Gathered in bf16 weights give what they give packed from fp32 masters: with one microbatch sharded and resident
// weights have the same bits. They cost half the bytes; what is read in fp32 stays fp32.
static void test_rounded(void **state) {
    (void)state;
    Arena *arena = arena_create();
    WorldJob resident = job_of("moe.lua", "dp=2", arena), sharded = job_of("moe.lua", "dp=2,params=fsdp", arena);
    resident.microbatches = sharded.microbatches = 1;
    resident.clip = sharded.clip = 1e6; // norms are summed in another order
    resident.precision = sharded.precision = PRECISION_BF16;
    World *a = world_run(&sharded), *b = world_run(&resident);
    world_equal_bits(a, b);
    sharded.precision = 0;
    Plan *wide = world_plan(&sharded, 0);
    PlanTraffic narrow_bytes, wide_bytes;
    plan_traffic(a->plans[0], step_of(a->plans[0]), &narrow_bytes);
    plan_traffic(wide, step_of(wide), &wide_bytes);
    printf("gathered in a step: %.0f bytes in bf16, %.0f in fp32\n", narrow_bytes.bytes[MOVE_gather][LINK_stage],
           wide_bytes.bytes[MOVE_gather][LINK_stage]);
    assert_true(narrow_bytes.bytes[MOVE_gather][LINK_stage] < 0.8 * wide_bytes.bytes[MOVE_gather][LINK_stage]);
    for (int r = 0; r < a->n_ranks; r++)
        assert_true(a->ranks[r].moved.bytes[MOVE_gather][LINK_stage] ==
                    sharded.steps * narrow_bytes.bytes[MOVE_gather][LINK_stage]);
    plan_destroy(wide);
    world_free(a), world_free(b);
    arena_destroy(arena);
}

/* Text ----------------------------------------------------------------------------------------- */

static Plan *plan_of(const char *layout) {
    Arena *arena = arena_create();
    WorldJob job = job_of("moe.lua", layout, arena);
    Plan *plan = world_plan(&job, 0);
    arena_destroy(arena);
    return plan;
}

static void test_text(void **state) {
    (void)state;
    static const char *const layouts[] = { "dp=2", "dp=2,params=fsdp" };
    for (int i = 0; i < COUNT_OF(layouts); i++) {
        Plan *plan = plan_of(layouts[i]), *copy;
        Text text = { 0 }, again = { 0 };
        plan_print(plan, &text);
        if (plan_parse(text.at, text.bytes, &copy) != OK) fail_msg("%s", status_message());
        plan_print(copy, &again);
        assert_string_equal(text.at, again.at);
        assert_int_equal(plan_check(copy), OK);
        assert_int_equal(count(copy, HALF_wait, false), count(plan, HALF_wait, false));
        text_finish(&text), text_finish(&again);
        plan_destroy(plan), plan_destroy(copy);
    }
}

/* Edits ---------------------------------------------------------------------------------------- */

static PlanOperand *operand(PlanProgram *program, uint32_t instr, uint32_t k) {
    return &program->operands[program->instrs[instr].operands + k];
}

// The n-th instruction (from 0) that is this half of `op`, in last rows or not.
static uint32_t half_of(const PlanProgram *program, PlanOp op, PlanHalf half, bool last, int n) {
    for (uint32_t i = 0; i < program->n_instrs; i++)
        if (program->instrs[i].op == op && program->instrs[i].half == half && program->instrs[i].last == last && !n--)
            return i;
    fail_msg("no such half");
    return 0;
}

static uint32_t wait_of(PlanProgram *program, uint32_t start) {
    for (uint32_t i = start; i < program->n_instrs; i++)
        if (program->instrs[i].half == HALF_wait && operand(program, i, 1)->buffer == operand(program, start, 1)->buffer)
            return i;
    fail_msg("no wait");
    return 0;
}

// Instruction `from` moves to place `to`; those between move by one.
static void shift(PlanProgram *program, uint32_t from, uint32_t to) {
    PlanInstr moved = program->instrs[from];
    for (; from < to; from++) program->instrs[from] = program->instrs[from + 1];
    for (; from > to; from--) program->instrs[from] = program->instrs[from - 1];
    program->instrs[to] = moved;
}

// Lives become what accesses need, and nothing shares a byte: only the order can be wrong.
static void spread(Plan *plan, PlanProgram *program) {
    int64_t end = 0, *live = arena_alloc(plan->arena, (program->n_instrs + 1) * sizeof *live);
    for (uint32_t b = 0; b < program->n_buffers; b++) {
        PlanBuffer *to = &program->buffers[b];
        if (to->region != REGION_act) continue;
        for (uint32_t i = 0; i < program->n_instrs; i++)
            for (uint32_t k = 0; k < program->instrs[i].n_operands; k++) {
                if (operand(program, i, k)->buffer != b) continue;
                if ((int32_t)i < to->first) to->first = (int32_t)i;
                if ((int32_t)i > to->last) to->last = (int32_t)i;
            }
        to->offset = end;
        end += round_up(to->bytes, PLAN_GRAIN);
        for (int32_t i = to->first; i <= to->last; i++) live[i] += to->bytes;
    }
    program->act_bound = 0;
    for (uint32_t i = 0; i < program->n_instrs; i++) program->act_bound = max_i64(program->act_bound, live[i]);
    program->act_bytes = plan->region_bytes[REGION_act] = end;
}

// The sum of a bucket, which reads what came, comes before the wait.
static void read_before_wait(Plan *plan) {
    PlanProgram *step = step_of(plan);
    uint32_t wait = wait_of(step, half_of(step, PLAN_exchange, HALF_start, true, 0));
    shift(step, wait, wait + 1);
    spread(plan, step);
}
// The bucket that goes is cleared between start and wait.
static void write_what_goes(Plan *plan) {
    PlanProgram *step = step_of(plan);
    uint32_t start = half_of(step, PLAN_exchange, HALF_start, true, 0), sum = wait_of(step, start) + 1;
    step->buffers[operand(step, sum, 1)->buffer].offset = step->buffers[operand(step, start, 0)->buffer].offset;
    uint32_t other = wait_of(step, half_of(step, PLAN_exchange, HALF_start, true, 1)) + 1;
    operand(step, other, 1)->buffer = operand(step, start, 0)->buffer;
    shift(step, other, wait_of(step, start));
    spread(plan, step);
}
// Gradients are added to after their exchange has begun.
static void add_late(Plan *plan) {
    PlanProgram *step = step_of(plan);
    uint32_t start = half_of(step, PLAN_exchange, HALF_start, true, 0), i = start;
    const PlanBuffer *goes = &step->buffers[operand(step, start, 0)->buffer];
    for (bool found = false; !found;) {
        i--;
        for (uint32_t k = 0; k < step->instrs[i].n_operands; k++) {
            const PlanBuffer *to = &step->buffers[operand(step, i, k)->buffer];
            found |= operand(step, i, k)->mode == OPERAND_ADD && to->region == REGION_grads &&
                     to->offset >= goes->offset && to->offset < goes->offset + goes->bytes;
        }
    }
    shift(step, start, i);
    spread(plan, step);
}
static void no_wait(Plan *plan) {
    PlanProgram *step = step_of(plan);
    uint32_t start = half_of(step, PLAN_exchange, HALF_start, true, 0), wait = wait_of(step, start);
    step->instrs[wait].half = HALF_whole;
    operand(step, wait, 1)->mode = OPERAND_WRITE;
}
static void no_start(Plan *plan) {
    PlanProgram *step = step_of(plan);
    uint32_t start = half_of(step, PLAN_exchange, HALF_start, true, 0);
    step->instrs[start].half = HALF_whole;
}
static void wait_of_another(Plan *plan) {
    PlanProgram *step = step_of(plan);
    uint32_t wait = wait_of(step, half_of(step, PLAN_exchange, HALF_start, true, 0));
    step->instrs[wait].group = step->instrs[wait].group == GROUP_dp ? GROUP_edp : GROUP_dp;
}
static void start_in_every_row(Plan *plan) {
    step_of(plan)->instrs[half_of(step_of(plan), PLAN_exchange, HALF_start, true, 0)].last = false;
}
static void start_across_stages(Plan *plan) {
    PlanProgram *step = step_of(plan);
    uint32_t start = half_of(step, PLAN_exchange, HALF_start, true, 0);
    step->instrs[start].group = step->instrs[wait_of(step, start)].group = GROUP_world;
}
static void half_a_barrier(Plan *plan) {
    PlanProgram *step = step_of(plan);
    step->instrs[half_of(step, PLAN_exchange, HALF_start, true, 0)].op = PLAN_barrier;
}
static void kernel_in_last_rows(Plan *plan) {
    PlanProgram *step = step_of(plan);
    uint32_t i = half_of(step, PLAN_exchange, HALF_start, true, 0) - 1;
    while (step->instrs[i].op != PLAN_launch || step->instrs[i].last) i--;
    step->instrs[i].last = true;
}
static void last_after_all(Plan *plan) {
    PlanProgram *step = step_of(plan);
    step->instrs[half_of(step, PLAN_exchange, HALF_wait, false, 0)].last = true;
}
static void wait_before_start(Plan *plan) {
    PlanProgram *step = step_of(plan);
    uint32_t start = half_of(step, PLAN_gather, HALF_start, false, 0), wait = wait_of(step, start);
    shift(step, wait, start);
    spread(plan, step);
}
static void gather_without_wait(Plan *plan) {
    PlanProgram *step = step_of(plan);
    PlanInstr *wait = &step->instrs[wait_of(step, half_of(step, PLAN_gather, HALF_start, false, 0))];
    *wait = (PlanInstr){ .op = PLAN_barrier, .group = GROUP_dp };
}
// What is packed comes before the wait for what it is packed from.
static void pack_before_wait(Plan *plan) {
    PlanProgram *step = step_of(plan);
    uint32_t start = half_of(step, PLAN_gather, HALF_start, false, 0), wait = wait_of(step, start), i = wait;
    for (bool found = false; !found;) {
        i++;
        for (uint32_t k = 0; k < step->instrs[i].n_operands; k++)
            found |= operand(step, i, k)->buffer == operand(step, start, 1)->buffer;
    }
    shift(step, i, wait);
    spread(plan, step);
}

typedef struct Case {
    const char *what, *layout;
    void (*edit)(Plan *plan);
    const char *rule, *message;
} Case;
#define CASE(name, layout, rule, message)                                                          \
    { #name, layout, name, rule, message }
static const Case cases[] = {
    CASE(read_before_wait, "dp=2", "halves", "is touched, which comes into \"bucket.0.parts\""),
    CASE(write_what_goes, "dp=2", "halves", "is written, which sends \"bucket.0.gradient\""),
    CASE(add_late, "dp=2", "halves", "is written, which sends \"bucket.0.gradient\""),
    CASE(no_wait, "dp=2", "halves", "expected the wait of instruction"),
    CASE(no_start, "dp=2", "halves", "expected a start of this exchange into \"bucket.0.parts\" before its wait"),
    CASE(wait_of_another, "dp=2", "halves", "before its wait, found none"),
    CASE(start_in_every_row, "dp=2", "last", "in last rows and after them only, found it in every row"),
    CASE(gather_without_wait, "dp=2,params=fsdp", "halves", "expected the wait of instruction"),
    CASE(start_across_stages, "dp=2", "crossing", "expected a group of ranks of one stage"),
    CASE(half_a_barrier, "dp=2", "references", "expected a start or a wait of a gather or an exchange"),
    CASE(kernel_in_last_rows, "dp=2", "last", "in last rows and after them only"),
    CASE(last_after_all, "dp=2", "last", "expected it in a microbatch of a step"),
    CASE(wait_before_start, "dp=2,params=fsdp", "halves", "before its wait, found none"),
    CASE(pack_before_wait, "dp=2,params=fsdp", "halves", "is touched, which comes into"),
};

static void test_edits(void **state) {
    (void)state;
    int wrong = 0;
    for (int i = 0; i < COUNT_OF(cases); i++) {
        const Case *c = &cases[i];
        Plan *plan = plan_of(c->layout);
        char start[64];
        snprintf(start, sizeof start, "plan check, %s: ", c->rule);
        c->edit(plan);
        Status status = plan_check(plan);
        const char *message = status == OK ? "OK" : status_message();
        bool found = strstr(message, start) && strstr(message, c->message);
        if (!found) print_error("%s: expected \"%s ... %s\", found \"%s\"\n", c->what, start, c->message, message);
        wrong += !found;
        plan_destroy(plan);
    }
    assert_int_equal(wrong, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_text), cmocka_unit_test(test_edits),
                                        cmocka_unit_test(test_bits), cmocka_unit_test(test_rounded) };
    return cmocka_run_group_tests_name("layouts.overlap", tests, world_setup, world_teardown);
}
