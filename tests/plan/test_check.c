// SPDX-License-Identifier: Apache-2.0
// Each rule of the checker has edits of a good plan that trip it, and nothing else.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "tests/plan/sample.h"

typedef struct Case {
    const char *what;
    void (*edit)(Plan *plan);
    const char *rule, *message;  // both stand in the refusal
} Case;

static PlanBuffer *buffer(PlanProgram *program, const char *name) {
    for (uint32_t i = 0; i < program->n_buffers; i++) {
        if (!strcmp(program->buffers[i].name, name)) return &program->buffers[i];
    }
    fail_msg("no buffer %s", name);
    return NULL;
}

#define STEP(plan) (&(plan)->programs[0])
#define EVAL(plan) (&(plan)->programs[1])
#define EDIT(name, ...) static void name(Plan *plan) { __VA_ARGS__; }

EDIT(no_model, plan->model = "")
EDIT(no_target, plan->target = NULL)
EDIT(wrong_target, plan->target = "cuda:sm_9")
EDIT(threads_on_cpu, plan->kernels[0].threads = 64)
EDIT(no_threads, plan->target = "cuda:sm_80")
static void to_gpu(Plan *plan) {
    plan->target = "cuda:sm_90a";
    for (uint32_t i = 0; i < plan->n_kernels; i++) plan->kernels[i].threads = 32;
}
EDIT(half_warp, to_gpu(plan); plan->kernels[1].threads = 48)
EDIT(much_shared, to_gpu(plan); plan->kernels[0].shared = (227 << 10) + 1)
EDIT(much_shared_80, to_gpu(plan); plan->target = "cuda:sm_80"; plan->kernels[0].shared = (163 << 10) + 1)
EDIT(much_shared_120, to_gpu(plan); plan->target = "cuda:sm_120a"; plan->kernels[0].shared = 120 << 10)
EDIT(many_blocks, to_gpu(plan); plan->kernels[0].tiles = 1LL << 31)
EDIT(half_sequence, plan->sequence = 3)
EDIT(no_tokens, plan->tokens = 0)
EDIT(no_microbatches, plan->microbatches = 0)
EDIT(negative_vocab, plan->vocab = -1)
EDIT(negative_trained, plan->n_trained = -1)
EDIT(huge_trained, plan->n_trained = INT64_MAX)

EDIT(same_params, plan->params[1].name = plan->params[0].name)
EDIT(nameless_param, plan->params[1].name = "")
EDIT(same_programs, EVAL(plan)->name = "step")
EDIT(nameless_program, EVAL(plan)->name = NULL)
EDIT(same_kernels, plan->kernels[1].entry = "clear_1")
EDIT(nameless_family, plan->kernels[1].family = "")
EDIT(same_args, plan->kernels[2].args[1].name = "scale")
EDIT(same_buffers, STEP(plan)->buffers[1].name = "tokens")
EDIT(nameless_buffer, STEP(plan)->buffers[1].name = NULL)
EDIT(same_segments, STEP(plan)->segments[1].name = "clear")
EDIT(nameless_metric, STEP(plan)->metrics[0].name = "")
EDIT(nameless_output, STEP(plan)->outputs[0].name = NULL)

EDIT(far_kernel, STEP(plan)->instrs[2].kernel = plan->n_kernels)
EDIT(far_operands, STEP(plan)->instrs[2].operands = UINT32_MAX)
EDIT(far_buffer, STEP(plan)->operands[2].buffer = STEP(plan)->n_buffers)
EDIT(far_mode, STEP(plan)->operands[2].mode = 9)
EDIT(far_dtype, STEP(plan)->buffers[0].dtype = N_DTYPES)
EDIT(far_region, STEP(plan)->buffers[0].region = N_REGIONS)
EDIT(many_dims, STEP(plan)->buffers[0].n_dims = PLAN_MAX_DIMS + 1)
EDIT(segment_gap, STEP(plan)->segments[1].first = 3)
EDIT(segment_long, STEP(plan)->segments[3].n = 9)
EDIT(segment_short, STEP(plan)->segments[3].n = 2)
EDIT(far_input, STEP(plan)->inputs[0].buffer = 99)
EDIT(far_kind, STEP(plan)->inputs[0].kind = N_INPUTS)

EDIT(other_text, plan->sources[2].text = "int x;"; plan->sources[2].bytes = 6)
EDIT(other_bytes, plan->sources[2].bytes -= 1)
EDIT(negative_bytes, plan->sources[2].bytes = -1)
EDIT(no_text, plan->sources[2].text = NULL)

EDIT(dotted_entry, plan->kernels[0].entry = "clear.1")
EDIT(digit_entry, plan->kernels[0].entry = "1clear")
EDIT(no_entry, plan->kernels[0].entry = NULL)
EDIT(injected_entry, plan->kernels[0].entry = "x(){}\nint y")
EDIT(bad_arg, plan->kernels[0].args[0].name = "x y")
EDIT(bad_arg_dtype, plan->kernels[0].args[0].dtype = N_DTYPES)
EDIT(prelude_kernel, plan->kernels[0].source = 0)
EDIT(far_source, plan->kernels[0].source = plan->n_sources)
EDIT(negative_tiles, plan->kernels[0].tiles = -1)
EDIT(nan_flops, plan->kernels[0].flops = NAN)
EDIT(negative_cost, plan->kernels[0].bytes = -1)

EDIT(param_no_elements, plan->params[0].dims[0] = 0)
EDIT(param_overflow, plan->params[0].n_dims =
     2; plan->params[0].dims[0] = plan->params[0].dims[1] = INT64_MAX / 2)
EDIT(param_many_dims, plan->params[0].n_dims = PLAN_MAX_DIMS + 1)
EDIT(param_init, plan->params[0].init = PLAN_INIT_ONES + 1)
EDIT(param_nan, plan->params[0].std = NAN)
EDIT(param_infinite, plan->params[0].lr = INFINITY)
EDIT(param_unaligned, plan->params[1].offset += 4)
EDIT(param_negative, plan->params[1].offset = -PLAN_GRAIN)
EDIT(param_outside, plan->params[1].offset = PLAN_GRAIN * 2)
EDIT(param_overlap, plan->params[1].offset = 0)
EDIT(param_is_late, plan->params[2].is_state = false)
EDIT(state_is_early, plan->params[2].offset = PLAN_GRAIN)
EDIT(expert_of_nothing, plan->params[2].n_dims = 0; plan->params[2].per_expert = true)

EDIT(buffer_size, buffer(STEP(plan), "dy")->bytes += 4)
EDIT(buffer_dims, buffer(STEP(plan), "dy")->dims[0] = 3)
EDIT(buffer_dtype_size, buffer(STEP(plan), "dy")->dtype = DTYPE_I64)
EDIT(buffer_zero, buffer(STEP(plan), "dy")->dims[0] = 0; buffer(STEP(plan), "dy")->bytes = 0)
EDIT(buffer_unaligned, buffer(STEP(plan), "dy")->offset = 64)
EDIT(buffer_negative, buffer(STEP(plan), "dy")->offset = -PLAN_GRAIN)
EDIT(buffer_outside, buffer(STEP(plan), "y")->offset += PLAN_GRAIN)
EDIT(buffer_far, buffer(STEP(plan), "y")->offset = INT64_MAX - PLAN_GRAIN + 1)

EDIT(region_negative, plan->region_bytes[REGION_act] = -1)
EDIT(region_large, plan->region_bytes[REGION_totals] += 8192)
EDIT(region_moments, plan->region_bytes[REGION_moment1] = 4)
EDIT(region_weights, plan->region_bytes[REGION_weights] += 4096)

EDIT(operand_missing, STEP(plan)->instrs[2].n_operands = 3)
EDIT(operand_dtype, plan->kernels[2].args[2].dtype = DTYPE_F32)
EDIT(operand_const_written, STEP(plan)->operands[2].mode = OPERAND_WRITE)
EDIT(operand_mutable_read, STEP(plan)->operands[0].mode = OPERAND_READ)
EDIT(operand_twice, STEP(plan)->operands[2].buffer = 2) // y as scale of the kernel that writes y

EDIT(row_twice, STEP(plan)->rows[3].microbatch = 0)
EDIT(row_missing, STEP(plan)->n_rows--)
EDIT(row_segment, STEP(plan)->rows[1].segment = 99)
EDIT(row_swapped, STEP(plan)->rows[1].segment = 2; STEP(plan)->rows[2].segment = 1)
EDIT(row_slot, STEP(plan)->rows[1].slot = 1)
EDIT(row_below, STEP(plan)->rows[0].microbatch = -2)
EDIT(row_none, STEP(plan)->n_rows = 0)
EDIT(row_hole, STEP(plan)->rows[2].microbatch = -1)
EDIT(row_gap, STEP(plan)->rows[3].microbatch = STEP(plan)->rows[4].microbatch = 2)
EDIT(row_huge, STEP(plan)->rows[4].microbatch = INT32_MAX)
EDIT(row_first_microbatch_only, STEP(plan)->rows[3] = STEP(plan)->rows[5]; STEP(plan)->n_rows = 4)
EDIT(step_names, STEP(plan)->segments[1].name = "forwards")
EDIT(eval_rows_differ, EVAL(plan)->rows[0].microbatch = 1)

EDIT(life_backwards, buffer(STEP(plan), "dy")->first = 6; buffer(STEP(plan), "dy")->last = 3)
EDIT(life_late, buffer(STEP(plan), "squares")->last = 10)
EDIT(life_early, buffer(STEP(plan), "dy")->first = -1)
EDIT(life_short, buffer(STEP(plan), "dy")->last = 5)
EDIT(life_starts_late, buffer(STEP(plan), "dy")->first = 4)
EDIT(life_of_io, buffer(STEP(plan), "y")->last = 4)
EDIT(life_of_weights, buffer(STEP(plan), "scale")->first = 2)

EDIT(clash_of_lives, buffer(STEP(plan), "dy")->last = 7)
EDIT(clash_inside, buffer(STEP(plan), "squares")->first = 6)
EDIT(act_too_small, STEP(plan)->act_bytes--)
EDIT(act_too_large, STEP(plan)->act_bytes += PLAN_GRAIN)
EDIT(bound_too_small, STEP(plan)->act_bound--)
EDIT(bound_too_large, STEP(plan)->act_bound += PLAN_GRAIN)

EDIT(input_short, buffer(STEP(plan), "tokens")->dims[0] =
     4; buffer(STEP(plan), "tokens")->bytes = 16)
EDIT(input_kind, STEP(plan)->inputs[0].kind = INPUT_n_valid)
EDIT(input_sequences, STEP(plan)->inputs[0].kind = INPUT_n_valid_sequence)
EDIT(metric_in_act, STEP(plan)->metrics[0].buffer =
     (uint32_t)(buffer(STEP(plan), "dy") - STEP(plan)->buffers))
EDIT(metric_is_input, STEP(plan)->metrics[0].buffer = 0)
EDIT(metric_nan, STEP(plan)->metrics[0].weight = NAN)
EDIT(metric_weighed_sum, STEP(plan)->metrics[0].sum = true)
EDIT(io_unused, STEP(plan)->n_outputs = 0)
EDIT(io_overlap, buffer(STEP(plan), "y")->offset = 0)

static void move_squares(Plan *plan, int first) {
    buffer(STEP(plan), "squares")->offset = 4 * PLAN_GRAIN;
    buffer(STEP(plan), "squares")->first = first;
    sample_finish(plan);
}
EDIT(read_before_write, STEP(plan)->operands[6].buffer = 13; move_squares(plan, 3))
EDIT(read_in_other_rows, STEP(plan)->operands[16].buffer = 12; buffer(STEP(plan), "dy")->last = 7;
     move_squares(plan, 7))
EDIT(metric_not_written, STEP(plan)->operands[7].buffer = 11)
EDIT(metric_overwritten, STEP(plan)->operands[7].mode = OPERAND_WRITE)
EDIT(gradient_overwritten, STEP(plan)->operands[11].mode = OPERAND_WRITE)
EDIT(gradient_in_eval, buffer(EVAL(plan), "dy")->region =
     REGION_grads; buffer(EVAL(plan), "dy")->first = 0;
     EVAL(plan)->act_bytes = EVAL(plan)->act_bound = 0)
EDIT(weights_in_forward, buffer(STEP(plan), "dy")->region =
     REGION_weights; buffer(STEP(plan), "dy")->first = 0;
     buffer(STEP(plan), "dy")->last = 9; STEP(plan)->act_bound = STEP(plan)->act_bytes)
EDIT(input_written, PlanOperand *o =
     STEP(plan)->operands; plan->kernels[1].args[0].dtype = DTYPE_I32;
     o[1].buffer = 0)
EDIT(output_not_written, STEP(plan)->operands[5].buffer = 12; buffer(STEP(plan), "dy")->first = 2)

EDIT(gradient_missing, STEP(plan)->operands[15].buffer = 7) // bias_w adds to scale's gradient
EDIT(gradient_not_cleared, STEP(plan)->buffers[5].dims[0] = 64; STEP(plan)->buffers[5].bytes = 256)
EDIT(update_missing, STEP(plan)->buffers[6].dims[0] = 64; STEP(plan)->buffers[6].bytes = 256)
EDIT(update_twice, STEP(plan)->buffers[10].offset = 0)

static const Case cases[] = {
#define CASE(edit, rule, message) {#edit, edit, rule, message}
    CASE(no_model, "head", "name of the model"),
    CASE(no_target, "head", "expected a target cpu or cuda:sm_N, found \"\""),
    CASE(wrong_target, "head", "found \"cuda:sm_9\""),
    CASE(threads_on_cpu, "kernels", "no threads and no shared memory on a CPU, found 64 and 0"),
    CASE(no_threads, "kernels", "32 to 1024 threads in steps of 32, found 0"),
    CASE(half_warp, "kernels", "32 to 1024 threads in steps of 32, found 48"),
    CASE(much_shared, "kernels", "up to 232448 bytes of shared memory, found 232449"),
    CASE(much_shared_80, "kernels", "up to 166912 bytes of shared memory, found 166913"),
    CASE(much_shared_120, "kernels", "up to 101376 bytes of shared memory, found 122880"),
    CASE(many_blocks, "kernels", "up to 2147483647 blocks, found 2147483648"),
    CASE(half_sequence, "head", "found 8 tokens in sequences of 3"),
    CASE(no_tokens, "head", "found 0 tokens"),
    CASE(no_microbatches, "head", "at least 1 microbatch, found 0"),
    CASE(negative_vocab, "head", "found -1"),
    CASE(negative_trained, "head", "found -1"),
    CASE(huge_trained, "head", "trained weights"),
    CASE(same_params, "names", "\"layers.0.scale\" twice"),
    CASE(nameless_param, "names", "parameter 1"),
    CASE(same_programs, "names", "\"step\" twice"),
    CASE(nameless_program, "names", "program 1"),
    CASE(same_kernels, "names", "\"clear_1\" twice"),
    CASE(nameless_family, "names", "kernel \"clear_2\": expected a family"),
    CASE(same_args, "names",
         "kernel \"affine\": expected parameters of different names, found \"scale\" twice"),
    CASE(same_buffers, "names", "buffer \"tokens\": expected a new name"),
    CASE(nameless_buffer, "names", "buffer 1"),
    CASE(same_segments, "names", "segment 1: expected a new name, found \"clear\""),
    CASE(nameless_metric, "names", "metric 0"),
    CASE(nameless_output, "names", "output 0"),
    CASE(far_kernel, "references", "instruction 2: expected a kernel below 10, found 10"),
    CASE(far_operands, "references", "instruction 2: expected operands below"),
    CASE(far_buffer, "references", "operand 2: expected a buffer below 14"),
    CASE(far_mode, "references", "operand 2"),
    CASE(far_dtype, "references", "buffer \"tokens\": expected a type below 4"),
    CASE(far_region, "references", "a region below"),
    CASE(many_dims, "references", "at most 8 dimensions, found 1, 7, 9"),
    CASE(segment_gap, "references", "segment \"forward\": expected instructions from 2"),
    CASE(segment_long, "references", "segment \"update\""),
    CASE(segment_short, "references", "expected segments that cover 10 instructions, found 9"),
    CASE(far_input, "references", "expected a buffer below 14 for tokens, found 99"),
    CASE(far_kind, "references", "input 0: expected a kind below 7, found 7"),
    CASE(other_text, "sources", "source 2: expected the hash of its text"),
    CASE(other_bytes, "sources", "source 2: expected"),
    CASE(negative_bytes, "sources", "source 2: expected -1 bytes"),
    CASE(no_text, "sources", "found 0"),
    CASE(dotted_entry, "kernels", "kernel 0: expected a C identifier as entry, found \"clear.1\""),
    CASE(digit_entry, "kernels", "found \"1clear\""),
    CASE(no_entry, "kernels", "kernel 0"),
    CASE(injected_entry, "kernels", "kernel 0"),
    CASE(bad_arg, "kernels", "parameter 0: expected a C identifier, found \"x y\""),
    CASE(bad_arg_dtype, "kernels", "parameter \"x\": expected a type below 4"),
    CASE(prelude_kernel, "kernels", "expected a source from 1"),
    CASE(far_source, "kernels", "below 11, found 11"),
    CASE(negative_tiles, "kernels", "expected 0 or more tiles, found -1"),
    CASE(nan_flops, "kernels", "finite counts"),
    CASE(negative_cost, "kernels", "found 1.5 and -1"),
    CASE(param_no_elements, "params", "dimensions of 1 or more"),
    CASE(param_overflow, "params", "dimensions of 1 or more that fit"),
    CASE(param_many_dims, "params", "expected 0 to 8 dimensions, found 9"),
    CASE(param_init, "params", "expected an init below 3, found 3"),
    CASE(param_nan, "params", "finite std"),
    CASE(param_infinite, "params", "finite std"),
    CASE(param_unaligned, "params",
         "parameter \"layers.0.bias\": expected an offset in steps of 256, found 260"),
    CASE(param_negative, "params", "found -256"),
    CASE(param_outside, "params",
         "expected to lie in bytes 0..768 of weights, found 280 bytes at 512"),
    CASE(param_overlap, "params", "expected to begin at or after the end of"),
    CASE(param_is_late, "params", "parameter \"layers.0.counts\": expected to lie in bytes 0..768"),
    CASE(state_is_early, "params", "state \"layers.0.counts\": expected to lie in bytes 768.."),
    CASE(expert_of_nothing, "params", "expected 1 to 8 dimensions, found 0"),
    CASE(buffer_size, "sizes",
         "buffer \"dy\": expected 32 bytes (dimensions times type), found 36"),
    CASE(buffer_dims, "sizes", "expected 12 bytes"),
    CASE(buffer_dtype_size, "sizes", "expected 64 bytes"),
    CASE(buffer_zero, "sizes", "buffer \"dy\""),
    CASE(buffer_unaligned, "sizes", "steps of 256, found 64"),
    CASE(buffer_negative, "sizes", "found -256"),
    CASE(buffer_outside, "sizes",
         "buffer \"y\": expected to end inside the 544 bytes of io, found 32 bytes at 768"),
    CASE(buffer_far, "sizes", "expected to end inside"),
    CASE(region_negative, "regions", "region act: expected a size in bytes, found -1"),
    CASE(region_large, "regions", "region totals: expected 16 bytes, at most 4096, found 8208"),
    CASE(region_moments, "regions", "region moment1: expected 768 bytes"),
    CASE(region_weights, "regions", "region weights: expected 784 bytes, at most 4096, found 4880"),
    CASE(operand_missing, "launch",
         "instruction 2: expected 4 operands for kernel \"affine\", found 3"),
    CASE(operand_dtype, "launch",
         "expected f32 for parameter \"tokens\" of kernel \"affine\", found i32"),
    CASE(operand_const_written, "launch", "expected mode < for the const parameter \"scale\""),
    CASE(operand_mutable_read, "launch",
         "instruction 0, buffer \"all_grads\": expected mode > or += or ="),
    CASE(operand_twice, "alias",
         "instruction 2: expected a written buffer once, found \"y\" twice"),
    CASE(row_twice, "rows", "row 3: expected segment 1 (\"forward\") of microbatch 1"),
    CASE(row_missing, "rows", "expected rows for each of 4 segments"),
    CASE(row_segment, "rows",
         "row 1: expected segment 1 (\"forward\") of microbatch 0 in slot 0, found segment 99"),
    CASE(row_swapped, "rows", "found segment 2 of microbatch 0"),
    CASE(row_slot, "rows", "in slot 1"),
    CASE(row_below, "rows", "found segment 0 of microbatch -2"),
    CASE(row_none, "rows", "found 0 before, 0 within, 0 after"),
    CASE(row_hole, "rows", "row 2: expected segment 2"),
    CASE(row_gap, "rows",
         "expected rows for each of 4 segments, once or in each of 3 microbatches"),
    CASE(row_huge, "rows", "2147483648 microbatches"),
    CASE(row_first_microbatch_only, "rows",
         "forward and backward of 2 microbatches, update, found 4 rows of 1"),
    CASE(step_names, "rows", "segment 1: expected \"forward\", found \"forwards\""),
    CASE(eval_rows_differ, "rows", "program \"eval\""),
    CASE(life_backwards, "lives", "buffer \"dy\": expected a life within 0..9, found 6..3"),
    CASE(life_late, "lives", "found 7..10"),
    CASE(life_early, "lives", "found -1..6"),
    CASE(life_short, "lives", "instruction 6: expected buffer \"dy\" only in its life 3..5"),
    CASE(life_starts_late, "lives", "instruction 3: expected buffer \"dy\""),
    CASE(life_of_io, "lives", "buffer \"y\": expected to live 0..9 in io, found 0..4"),
    CASE(life_of_weights, "lives", "buffer \"scale\""),
    CASE(clash_of_lives, "clash",
         "found \"dy\" (bytes 0..32, life 3..7) and \"squares\" (bytes 0..768, life 7..8)"),
    CASE(clash_inside, "clash", "life 6..8"),
    CASE(act_too_small, "clash",
         "expected act of 768 bytes (end of the highest buffer), found 767"),
    CASE(act_too_large, "clash", "found 1024"),
    CASE(bound_too_small, "clash",
         "expected a lower bound of act of 768 bytes, or 768 in whole grains, found 767"),
    CASE(bound_too_large, "clash", "found 1024"),
    CASE(input_short, "interface",
         "buffer \"tokens\": expected 8 numbers of i32 for input tokens, found 4 of i32"),
    CASE(input_kind, "interface", "expected 1 numbers of f32 for input n_valid, found 8 of i32"),
    CASE(input_sequences, "interface", "expected 2 numbers of f32 for input n_valid_sequence"),
    CASE(metric_in_act, "interface",
         "buffer \"dy\": expected one of its own in io for a metric, found act"),
    CASE(metric_is_input, "interface",
         "buffer \"tokens\": expected one of its own in io for a metric"),
    CASE(metric_nan, "interface", "metric \"loss\""),
    CASE(metric_weighed_sum, "interface", "expected f32 and a weight, 0 of a sum, found f32 and 1"),
    CASE(io_unused, "interface", "buffer \"y\": expected an input, metric or output"),
    CASE(io_overlap, "interface", "expected to begin after"),
    CASE(read_before_write, "order",
         "instruction 3, buffer \"squares\": expected a write earlier in the same "
         "microbatch, found none"),
    CASE(read_in_other_rows, "order",
         "instruction 7, buffer \"dy\": expected a write earlier in the same "
         "microbatch, found one in other rows"),
    CASE(metric_not_written, "order", "buffer \"loss\": expected a write to a metric, found none"),
    CASE(metric_overwritten, "order", "buffer \"loss\": expected += into a metric"),
    CASE(gradient_overwritten, "order",
         "buffer \"g_scale\": expected += where several microbatches add up"),
    CASE(gradient_in_eval, "order", "writes to grads and totals only in a step"),
    CASE(weights_in_forward, "order", "writes to weights and moments only in a step's update"),
    CASE(input_written, "order", "buffer \"tokens\": expected inputs to be only read"),
    CASE(output_not_written, "order", "buffer \"y\": expected a write before an output is read"),
    CASE(gradient_missing, "gradients",
         "parameter \"layers.0.bias\": expected its gradient, 280 bytes at 256"),
    CASE(gradient_not_cleared, "gradients",
         "buffer \"g_bias\": expected \"clear\" to write all of it"),
    CASE(update_missing, "gradients",
         "parameter \"layers.0.bias\": expected an update of 280 bytes of weights at 256"),
    CASE(update_twice, "gradients", "expected each byte of weights updated once"),
};

static void test_good(void **state) {
    (void)state;
    for (int tokens = 4; tokens <= 100; tokens += 24) {
        for (int microbatches = 1; microbatches <= 3; microbatches++) {
            Plan *plan = sample_plan(tokens, microbatches);
            if (plan_check(plan) != OK) fail_msg("%s", status_message());
            plan_destroy(plan);
        }
    }
    Plan *plan = sample_plan(8, 1);
    plan->programs[0].operands[11].mode = OPERAND_WRITE; // one microbatch need not add
    plan->programs[0].act_bound = 768;
    plan->region_bytes[REGION_weights] = 4096;           // up to the end of a page
    assert_int_equal(plan_check(plan), OK);
    plan_destroy(plan);
}

static void test_bad(void **state) {
    (void)state;
    int wrong = 0;
    for (int i = 0; i < COUNT_OF(cases); i++) {
        const Case *c = &cases[i];
        Plan *plan = sample_plan(8, 2);
        c->edit(plan);
        Status status = plan_check(plan);
        char rule[64];
        snprintf(rule, sizeof rule, "plan check, %s: ", c->rule);
        if (status == OK) {
            print_error("%s: accepted\n", c->what);
            wrong++;
        } else if (status != ERR_FORMAT || !strstr(status_message(), rule) ||
                   !strstr(status_message(), c->message)) {
            print_error("%s: expected \"%s ... %s\", found \"%s\"\n", c->what, rule, c->message,
                        status_message());
            wrong++;
        }
        plan_destroy(plan);
    }
    assert_int_equal(wrong, 0);
}

// Buffers of equal lives side by side, and of different lives one over another: the sweep accepts
// exactly the layouts that a comparison of all pairs accepts.
static void test_sweep(void **state) {
    (void)state;
    enum { N = 12, TIMES = 9 };
    int accepted = 0, refused = 0;
    for (uint64_t round = 0; round < 3000; round++) {
        Plan *plan = plan_create();
        plan->model = "x";
        plan->tokens = plan->sequence = plan->microbatches = 1;
        sample_source(plan, "");
        sample_kernel(plan, "nothing", "", "", 1);
        PlanProgram *program = sample_program(plan, "any");
        sample_segment(program, "all");
        int n = 2 + (int)(hash_mix(1, round, 0) % (N - 1));
        bool clash = false;
        for (int i = 0; i < n; i++) {
            uint64_t r = hash_mix(2, round, (uint64_t)i);
            int first = (int)(r % TIMES);
            int last = first + (int)((r >> 8) % (uint64_t)(TIMES - first));
            char name[8];
            snprintf(name, sizeof name, "b%d", i);
            sample_buffer(program, name, DTYPE_F32, REGION_act,
                          (int64_t)(r >> 16 & 15) * PLAN_GRAIN, 1 + (int64_t)((r >> 24) % 128), first,
                          last);
            for (int j = 0; j < i; j++) {
                const PlanBuffer *a = &program->buffers[i], *b = &program->buffers[j];
                clash |= a->first <= b->last && b->first <= a->last &&
                         a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
            }
        }
        for (int t = 0; t < TIMES; t++) sample_instr(plan, program, "nothing", "");
        sample_row(program, 0, 0);
        sample_finish(plan);
        Status status = plan_check(plan);
        if (clash != (status != OK)) {
            fail_msg("round %d: %s", (int)round, status == OK ? "accepted" : status_message());
        }
        if (clash && !strstr(status_message(), "plan check, clash: ")) {
            fail_msg("%s", status_message());
        }
        accepted += !clash;
        refused += clash;
        plan_destroy(plan);
    }
    assert_true(accepted > 100 && refused > 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_bad),
        cmocka_unit_test(test_sweep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
