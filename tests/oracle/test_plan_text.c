// SPDX-License-Identifier: Apache-2.0
// Real plans through their text: a run from the re-read plan gives the same bits, printing is the inverse
// of parsing, and no edit passes unseen: it is refused or it changes the plan's hash. What the checker
// accepts after an edit is judged again by a naive checker of this file, over all pairs.
#include "tests/oracle/machine.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

/* Printing and parsing ------------------------------------------------------------------------------------ */

static Plan *parsed(const Text *text) {
    Plan *plan = NULL;
    if (plan_parse(text->at, text->bytes, &plan) != OK) fail_msg("%s", status_message());
    return plan;
}

static Plan *plan_of(const Spec *spec, bool no_fusion, Model **m) {
    *m = spec_model(spec);
    assert_non_null(*m);
    return machine_plan(*m, spec->sequences, spec->batches, (How){ .no_fusion = no_fusion });
}

static void printing_inverts_parsing(void **state) {
    (void)state;
    for (int i = 0; i < n_specs; i++) {
        Model *m;
        Plan *plan = plan_of(&specs[i], specs[i].alone, &m);
        Text first = { 0 }, second = { 0 };
        plan_print(plan, &first);
        Plan *again = parsed(&first);
        plan_print(again, &second);
        assert_int_equal(first.bytes, second.bytes);
        assert_memory_equal(first.at, second.at, first.bytes);
        assert_true(hash_equal(plan_hash(plan), plan_hash(again)));
        if (plan_check(again) != OK) fail_msg("%s", status_message());
        text_finish(&first), text_finish(&second);
        plan_destroy(again), plan_destroy(plan);
        model_destroy(m);
    }
}

static Hash bits_of(const Plan *plan, const Interp *values, const Step *step) {
    Exec *exec = machine_exec(plan, 2, true);
    machine_load(exec, plan, values);
    machine_step(exec, plan, step);
    Hash bits = machine_results(exec, plan);
    exec_destroy(exec);
    return bits;
}

static void same_bits_from_the_text(void **state) {
    (void)state;
    for (int i = 0; i < n_specs; i += 2) {
        Model *m;
        Plan *plan = plan_of(&specs[i], specs[i].alone, &m);
        Step step = step_make(24, m, specs[i].sequences, specs[i].batches);
        Interp *values = interp_create(m);
        interp_fill(values, 5, specs[i].std);
        Text text = { 0 };
        plan_print(plan, &text);
        Plan *again = parsed(&text);
        memset(text.at, 'x', text.bytes); // the text is not kept
        Hash bits = bits_of(plan, values, &step);
        plan_destroy(plan);
        assert_true(hash_equal(bits, bits_of(again, values, &step)));
        interp_fill(values, 6, specs[i].std); // the comparison can fail
        assert_false(hash_equal(bits, bits_of(again, values, &step)));
        text_finish(&text);
        plan_destroy(again);
        interp_destroy(values);
        step_free(&step);
        model_destroy(m);
    }
}

/* A naive checker ------------------------------------------------------------------------------------------- */

static bool overlap(int64_t a, int64_t a_end, int64_t b, int64_t b_end) {
    return a < b_end && b < a_end;
}

static bool live_together(const PlanBuffer *a, const PlanBuffer *b) {
    return overlap(a->first, (int64_t)a->last + 1, b->first, (int64_t)b->last + 1);
}

static bool share_bytes(const PlanBuffer *a, const PlanBuffer *b) {
    return a->region == b->region && overlap(a->offset, a->offset + a->bytes, b->offset, b->offset + b->bytes);
}

// Buffers of act, pairwise; every operand inside its buffer's life; every buffer inside its region and
// large enough for its elements. NULL or what is wrong.
static const char *wrong_with(const Plan *plan) {
    for (uint32_t p = 0; p < plan->n_programs; p++) {
        const PlanProgram *program = &plan->programs[p];
        for (uint32_t i = 0; i < program->n_buffers; i++) {
            const PlanBuffer *a = &program->buffers[i];
            int64_t bytes = dtype_bytes(a->dtype);
            for (int d = 0; d < a->n_dims; d++) bytes *= a->dims[d];
            if (a->bytes < bytes) return "a buffer is smaller than its elements";
            if (a->offset < 0 || a->offset + a->bytes > plan->region_bytes[a->region])
                return "a buffer leaves its region";
            for (uint32_t j = 0; j < i && a->region == REGION_act; j++) {
                const PlanBuffer *b = &program->buffers[j];
                if (share_bytes(a, b) && live_together(a, b)) return "two live buffers share bytes";
            }
        }
        for (uint32_t i = 0; i < program->n_instrs; i++) {
            for (uint32_t k = 0; k < program->instrs[i].n_operands; k++) {
                const PlanOperand *o = &program->operands[program->instrs[i].operands + k];
                const PlanBuffer *b = &program->buffers[o->buffer];
                if (b->region == REGION_act && ((int32_t)i < b->first || (int32_t)i > b->last))
                    return "used outside of its life";
            }
        }
    }
    return NULL;
}

/* Edits of the structure --------------------------------------------------------------------------------------- */

static uint64_t random_state;

static uint32_t below(uint32_t n) {
    random_state = hash_mix(99, random_state, 1);
    return (uint32_t)((random_state >> 20) % n);
}

static int64_t other_number(int64_t old) {
    static const int64_t steps[] = { 1, -1, 2, -2, 7, 64, -64, 256, -256, 512, 1024, 4096, 1 << 20, INT32_MAX };
    return old + steps[below(COUNT_OF(steps))];
}

typedef struct Edit {
    Plan *plan;
    PlanProgram *program;
} Edit;

static PlanBuffer *any_buffer(Edit *e) {
    return &e->program->buffers[below(e->program->n_buffers)];
}
static PlanBuffer *act_buffer(Edit *e) {
    PlanBuffer *b = any_buffer(e);
    while (b->region != REGION_act) b = any_buffer(e);
    return b;
}
static PlanOperand *any_operand(Edit *e) {
    return &e->program->operands[below(e->program->n_operands)];
}
static PlanKernel *any_kernel(Edit *e) {
    return &e->plan->kernels[below(e->plan->n_kernels)];
}

static void edit_offset(Edit *e) {
    PlanBuffer *b = any_buffer(e);
    b->offset = other_number(b->offset);
}
static void edit_offset_by_grain(Edit *e) {
    PlanBuffer *b = act_buffer(e);
    int64_t slots = max_i64(1, (e->plan->region_bytes[REGION_act] - b->bytes) / PLAN_GRAIN), old = b->offset;
    while (b->offset == old) b->offset = PLAN_GRAIN * (int64_t)below((uint32_t)slots + 2);
}
// Onto the bytes of a buffer that lives at the same time: always wrong.
static void edit_overlap(Edit *e) {
    for (;;) {
        PlanBuffer *a = act_buffer(e), *b = act_buffer(e);
        if (a == b || !live_together(a, b) || b->bytes < 1) continue;
        a->offset = b->offset + (int64_t)below((uint32_t)div_up(b->bytes, PLAN_GRAIN)) * PLAN_GRAIN;
        return;
    }
}
static void edit_bytes(Edit *e) {
    PlanBuffer *b = any_buffer(e);
    b->bytes = other_number(b->bytes);
}
static void edit_dims(Edit *e) {
    PlanBuffer *b = any_buffer(e);
    while (!b->n_dims) b = any_buffer(e);
    int64_t *dim = &b->dims[below(b->n_dims)];
    *dim = other_number(*dim);
}
static void edit_first(Edit *e) {
    PlanBuffer *b = any_buffer(e);
    b->first = (int32_t)other_number(b->first);
}
static void edit_last(Edit *e) {
    PlanBuffer *b = any_buffer(e);
    b->last = (int32_t)other_number(b->last);
}
// A life that misses its last use: always wrong.
static void edit_shorter(Edit *e) {
    for (;;) {
        PlanBuffer *b = act_buffer(e);
        int32_t last = -1;
        for (uint32_t i = 0; i < e->program->n_instrs; i++) {
            const PlanInstr *instr = &e->program->instrs[i];
            for (uint32_t k = 0; k < instr->n_operands; k++) {
                if (&e->program->buffers[e->program->operands[instr->operands + k].buffer] == b) last = (int32_t)i;
            }
        }
        if (last <= b->first) continue;
        b->last = b->first + (int32_t)below((uint32_t)(last - b->first));
        return;
    }
}
static void edit_region(Edit *e) {
    PlanBuffer *b = any_buffer(e);
    b->region = (uint8_t)((b->region + 1 + below(N_REGIONS - 1)) % N_REGIONS);
}
static void edit_dtype(Edit *e) {
    PlanBuffer *b = any_buffer(e);
    b->dtype = (uint8_t)((b->dtype + 1 + below(N_DTYPES - 1)) % N_DTYPES);
}
static void edit_operand(Edit *e) {
    PlanOperand *o = any_operand(e);
    uint32_t old = o->buffer;
    while (o->buffer == old) o->buffer = below(e->program->n_buffers);
}
static void edit_mode(Edit *e) {
    PlanOperand *o = any_operand(e);
    o->mode = (uint8_t)((o->mode + 1 + below(3)) % 4);
}
static void edit_instr_kernel(Edit *e) {
    PlanInstr *instr = &e->program->instrs[below(e->program->n_instrs)];
    uint32_t old = instr->kernel;
    while (instr->kernel == old) instr->kernel = below(e->plan->n_kernels);
}
static void edit_instr_operands(Edit *e) {
    PlanInstr *instr = &e->program->instrs[below(e->program->n_instrs)];
    if (below(2))
        instr->n_operands = (uint32_t)max_i64(0, (int64_t)instr->n_operands + (below(2) ? 1 : -1));
    else
        instr->operands += below(2) ? 1u : (uint32_t)-1;
}
static void edit_swap_instrs(Edit *e) {
    for (;;) {
        uint32_t i = below(e->program->n_instrs - 1);
        PlanInstr *a = &e->program->instrs[i], *b = a + 1, keep = *a;
        if (a->kernel == b->kernel) continue;
        *a = *b, *b = keep;
        return;
    }
}
static PlanArg *any_arg(Edit *e) {
    PlanKernel *k = any_kernel(e);
    while (!k->n_args) k = any_kernel(e);
    return &k->args[below(k->n_args)];
}
static void edit_arg_const(Edit *e) {
    PlanArg *a = any_arg(e);
    a->is_const = !a->is_const;
}
static void edit_arg_dtype(Edit *e) {
    PlanArg *a = any_arg(e);
    a->dtype = (uint8_t)((a->dtype + 1 + below(N_DTYPES - 1)) % N_DTYPES);
}
static void edit_arg_name(Edit *e) {
    any_arg(e)->name = "renamed";
}
static void edit_tiles(Edit *e) {
    PlanKernel *k = any_kernel(e);
    k->tiles = other_number(k->tiles);
}
static void edit_source_of_kernel(Edit *e) {
    PlanKernel *k = any_kernel(e);
    k->source = (k->source + 1 + below(e->plan->n_sources)) % (e->plan->n_sources + 1);
}
static void edit_param_offset(Edit *e) {
    PlanParam *p = &e->plan->params[below(e->plan->n_params)];
    p->offset = other_number(p->offset);
}
static void edit_param_dims(Edit *e) {
    PlanParam *p = &e->plan->params[below(e->plan->n_params)];
    int d = (int)below(max_i64(1, p->n_dims));
    p->dims[d] = other_number(p->dims[d]);
}
static void edit_region_bytes(Edit *e) {
    int64_t *n = &e->plan->region_bytes[below(N_REGIONS)];
    *n = other_number(*n);
}
static void edit_row(Edit *e) {
    PlanRow *row = &e->program->rows[below(e->program->n_rows)];
    if (below(2))
        row->microbatch += below(2) ? 1 : -1;
    else
        row->segment = (row->segment + 1 + below(e->program->n_segments)) % (e->program->n_segments + 1);
}
static void edit_segment(Edit *e) {
    PlanSegment *s = &e->program->segments[below(e->program->n_segments)];
    if (below(2))
        s->n += below(2) ? 1 : -1;
    else
        s->first += below(2) ? 1 : -1;
}
static void edit_input(Edit *e) {
    PlanInput *input = &e->program->inputs[below(e->program->n_inputs)];
    switch (below(3)) {
    case 0: input->k += below(2) ? 1 : -1; return;
    case 1: input->kind = (uint8_t)((input->kind + 1 + below(N_INPUTS - 1)) % N_INPUTS); return;
    default: input->buffer = (input->buffer + 1 + below(e->program->n_buffers - 1)) % e->program->n_buffers;
    }
}
static void edit_metric(Edit *e) {
    PlanMetric *metric = &e->program->metrics[below(e->program->n_metrics)];
    if (below(2))
        metric->weight += 0.5;
    else
        metric->buffer = (metric->buffer + 1 + below(e->program->n_buffers - 1)) % e->program->n_buffers;
}
static void edit_head(Edit *e) {
    switch (below(4)) {
    case 0: e->plan->tokens = other_number(e->plan->tokens); return;
    case 1: e->plan->microbatches = (int32_t)other_number(e->plan->microbatches); return;
    case 2: e->plan->n_trained = other_number(e->plan->n_trained); return;
    default: e->plan->vocab = other_number(e->plan->vocab);
    }
}

static const struct EditClass {
    const char *name;
    void (*edit)(Edit *);
    bool always_wrong;
} edits[] = {
    { "offset", edit_offset, false },
    { "offset by grain", edit_offset_by_grain, false },
    { "onto a live buffer", edit_overlap, true },
    { "bytes", edit_bytes, false },
    { "dims", edit_dims, false },
    { "first", edit_first, false },
    { "last", edit_last, false },
    { "life misses a use", edit_shorter, true },
    { "region", edit_region, false },
    { "buffer dtype", edit_dtype, true },
    { "operand's buffer", edit_operand, false },
    { "operand's mode", edit_mode, false },
    { "instruction's kernel", edit_instr_kernel, false },
    { "instruction's operands", edit_instr_operands, true },
    { "order of instructions", edit_swap_instrs, false },
    { "argument's const", edit_arg_const, false },
    { "argument's dtype", edit_arg_dtype, true },
    { "argument's name", edit_arg_name, false },
    { "tiles", edit_tiles, false },
    { "source", edit_source_of_kernel, false },
    { "parameter's offset", edit_param_offset, false },
    { "parameter's dims", edit_param_dims, false },
    { "region's bytes", edit_region_bytes, false },
    { "row", edit_row, false },
    { "segment", edit_segment, true },
    { "input", edit_input, false },
    { "metric", edit_metric, false },
    { "head", edit_head, false },
};

static void edits_of(const Spec *spec, int rounds) {
    Model *m;
    Plan *plan = plan_of(spec, false, &m);
    Text text = { 0 };
    plan_print(plan, &text);
    Hash hash = plan_hash(plan);
    assert_null(wrong_with(plan));
    printf("%s: %-24s refused  changed\n", spec_title(spec), "edits");
    int total = 0, unseen = 0, harmful = 0;
    for (int c = 0; c < COUNT_OF(edits); c++) {
        int refused = 0, changed = 0;
        for (int round = 0; round < rounds; round++, total++) {
            Plan *victim = parsed(&text);
            random_state = (uint64_t)c * 100000 + (uint64_t)round;
            Edit edit = { victim, plan_program(victim, "step") };
            edits[c].edit(&edit);
            if (plan_check(victim) != OK) {
                refused++;
                assert_true(status_message()[0]);
            } else if (!hash_equal(hash, plan_hash(victim))) {
                changed++;
                const char *wrong = wrong_with(victim);
                if (wrong || edits[c].always_wrong) {
                    harmful++;
                    fprintf(stderr, "%s, round %d: accepted, but %s\n", edits[c].name, round,
                            wrong ? wrong : "never right");
                }
            } else {
                unseen++;
                fprintf(stderr, "%s, round %d: neither refused nor a change of the hash\n", edits[c].name, round);
            }
            plan_destroy(victim);
        }
        printf("  %-30s %6d %8d\n", edits[c].name, refused, changed);
    }
    printf("  %d edits\n", total);
    assert_int_equal(unseen, 0);
    assert_int_equal(harmful, 0);
    text_finish(&text);
    plan_destroy(plan);
    model_destroy(m);
}

static void edited_plans_are_refused_or_change_their_hash(void **state) {
    (void)state;
    edits_of(&specs[0], 60);
    edits_of(&specs[3], 60);
}

/* Edits of the text --------------------------------------------------------------------------------------------- */

// Where the sources are: raw bytes, whose hash the parser verifies.
static bool in_location(const Text *text, size_t at) {
    size_t line = at;
    while (line > 0 && text->at[line - 1] != '\n') line--;
    const char *mark = memmem(text->at + line, at - line, " @ ", 3);
    return mark != NULL && !strncmp(text->at + line, "buffer ", 7);
}

// Any byte, with and without a corrected last line.
static void edited_text_is_refused_or_changes_the_hash(void **state) {
    (void)state;
    Model *m;
    Plan *plan = plan_of(&specs[0], false, &m);
    Text text = { 0 };
    plan_print(plan, &text);
    Hash hash = plan_hash(plan);
    size_t end = text.bytes - 1;
    while (text.at[end - 1] != '\n') end--; // of the line "end HASH"
    assert_memory_equal(text.at + end, "end ", 4);
    int refused = 0, unchecked = 0, changed = 0, locations = 0;
    random_state = 5;
    for (int round = 0; round < 3000; round++) {
        size_t at = below((uint32_t)end);
        char old = text.at[at], new = round % 3 ? (char)('0' + below(10)) : (char)below(256);
        if (new == old) continue;
        text.at[at] = new;
        Plan *victim = NULL;
        assert_int_not_equal(plan_parse(text.at, text.bytes, &victim), OK); // the last line is wrong
        char hex[33];
        hash_hex(hash_bytes(text.at, end), hex);
        char kept[33];
        memcpy(kept, text.at + end + 4, 32);
        memcpy(text.at + end + 4, hex, 32);
        if (plan_parse(text.at, text.bytes, &victim) != OK) {
            refused++;
        } else {
            bool same = hash_equal(hash, plan_hash(victim));
            if (plan_check(victim) != OK)
                unchecked++;
            else if (!same)
                changed++;
            else if (in_location(&text, at))
                locations++;
            else
                fail_msg("byte %zu, '%c' to '%c': accepted with the same hash", at, old, new);
            plan_destroy(victim);
        }
        memcpy(text.at + end + 4, kept, 32);
        text.at[at] = old;
    }
    printf("3000 bytes: %d refused by the parser, %d by the checker, %d changed the hash, %d lie in locations\n",
           refused, unchecked, changed, locations);
    assert_true(refused > 0 && unchecked + changed > 0);
    text_finish(&text);
    plan_destroy(plan);
    model_destroy(m);
}

int main(void) {
    machine_use_cache();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(printing_inverts_parsing),
        cmocka_unit_test(same_bits_from_the_text),
        cmocka_unit_test(edited_plans_are_refused_or_change_their_hash),
        cmocka_unit_test(edited_text_is_refused_or_changes_the_hash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
