// SPDX-License-Identifier: Apache-2.0
// Debugging: whatever of act holds nothing when a row begins is not a number then, so that a kernel
// which reads what nobody wrote, or what lived there before, shows.
#include <stdlib.h>

#include "runtime/exec/private.h"

enum { NOT_A_NUMBER = 0x7fc00000 }; // as an index far out of any range

static int by_place(const void *left, const void *right) {
    const Gap *a = left, *b = right;
    return a->at != b->at ? (a->at > b->at ? 1 : -1) : (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

// Devices fill whole words, at multiples of their size.
static void add_gap(Exec *exec, Poison *poison, int64_t from, int64_t to) {
    from = div_up(from, 4) * 4;
    to = to / 4 * 4;
    if (to > from) *ARENA_PUSH(exec->arena, poison->gaps, poison->n, poison->cap) = (Gap){ from, to - from };
}

void poison_program(Exec *exec, uint32_t number) {
    const PlanProgram *program = &exec->plan->programs[number];
    Poison *poison = &exec->poisons[number];
    int64_t end = exec->plan->region_bytes[REGION_act];
    Arena *scratch = arena_create();
    PlanLives lives;
    plan_lives(program, REGION_act, scratch, &lives);
    Gap *held = ARENA_ARRAY(scratch, Gap, lives.n + 1);
    poison->first = ARENA_ARRAY(exec->arena, uint32_t, program->n_rows + 1);
    for (uint32_t r = 0; r < program->n_rows; r++) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < lives.n; i++) {
            const PlanLife *life = &lives.items[i];
            const PlanBuffer *buffer = &program->buffers[life->buffer];
            if (life->first < lives.row[r] && life->last >= lives.row[r])
                held[n++] = (Gap){ plan_offset(buffer, life->slot), buffer->bytes };
        }
        if (n) qsort(held, n, sizeof *held, by_place);
        int64_t at = 0;
        poison->first[r] = poison->n;
        for (uint32_t i = 0; i < n; i++) {
            add_gap(exec, poison, at, held[i].at);
            at = max_i64(at, held[i].at + held[i].bytes);
        }
        add_gap(exec, poison, at, end);
    }
    poison->first[program->n_rows] = poison->n;
    arena_destroy(scratch);
}

Status poison_row(Exec *exec, uint32_t number, uint32_t row) {
    const PlanProgram *program = &exec->plan->programs[number];
    const Poison *poison = &exec->poisons[number];
    const PlanRow *at = &program->rows[row];
    // The window is all ranks' at once: where nothing in it lives, before a microbatch alone in flight.
    if (plan_slots(program) == 1 && !strcmp(program->segments[at->segment].name, "forward"))
        TRY(window_poison(exec, NOT_A_NUMBER));
    for (uint32_t i = poison->first[row]; i < poison->first[row + 1]; i++)
        TRY(exec->api->fill(exec->device, exec->regions[REGION_act] + poison->gaps[i].at, NOT_A_NUMBER,
                            poison->gaps[i].bytes));
    return OK;
}
