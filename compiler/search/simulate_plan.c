// SPDX-License-Identifier: Apache-2.0
// From plans to what is simulated.
#include "compiler/search/simulate_plan.h"

#include <math.h>

/* Seconds -------------------------------------------------------------------------------------- */

// The innermost link that joins all of the group: who shares it waits for each other.
static uint8_t link_of(const CostCluster *cluster, CostGroup group) {
    double joined = 1, span = (double)group.stride * (group.members - 1) + 1;
    int32_t i = 0;
    for (; i < cluster->n_links - 1; i++) {
        joined *= cluster->links[i].size;
        if (joined >= span) break;
    }
    return (uint8_t)i;
}

static PlanWork work_of(const CostKernel *kernel) {
    return kernel->class == COST_dense       ? WORK_dense
           : kernel->class == COST_experts   ? WORK_experts
           : kernel->class == COST_attention ? WORK_attention
                                             : WORK_memory;
}

static SimSeconds of_launch(const CostCluster *cluster, const Plan *plan, const CostLaunch *launch) {
    SimSeconds s = { .here = cost_kernel_s(&cluster->device, &launch->kernel),
                     .work = (uint8_t)work_of(&launch->kernel) };
    if (launch->rows.tokens <= 0) return s;
    CostGroup group = cost_plan_group(plan, (PlanGroup)launch->group);
    s.rows = cost_rows_s(cluster, group, &launch->rows);
    if (launch->kernel.class == COST_move) s.here = cost_remote_s(&cluster->device, &launch->kernel, s.rows);
    s.link = link_of(cluster, group);
    return s;
}

SimSeconds *sim_seconds(const Plan *plan, const PlanProgram *program, const CostCluster *cluster, Arena *arena) {
    SimSeconds *all = ARENA_ARRAY(arena, SimSeconds, program->n_instrs + 1);
    const CostLaunch *launches = cost_of_program(plan, program, arena);
    for (uint32_t i = 0; i < program->n_instrs; i++) {
        const PlanInstr *instr = &program->instrs[i];
        if (instr->op == PLAN_launch) {
            all[i] = of_launch(cluster, plan, &launches[i]);
            continue;
        }
        all[i].here = cost_crossing_s(cluster, plan, program, instr);
        all[i].link = link_of(cluster, cost_plan_group(plan, (PlanGroup)instr->group));
    }
    return all;
}

/* Ops ------------------------------------------------------------------------------------------ */

typedef struct Making {
    const Plan *plan;
    const PlanProgram *program;
    const SimSeconds *seconds;
    const uint8_t *work;
    Arena *arena;
    SimOp *ops;
    uint32_t n, cap;
} Making;

static void add_op(Making *m, SimOp op, int32_t instr, int32_t trip, double seconds) {
    op.instr = instr;
    op.trip = trip;
    op.last = m->program->instrs[instr].last;
    op.ps = sim_ps(fmax(seconds, 0));
    *ARENA_PUSH(m->arena, m->ops, m->n, m->cap) = op;
}

static bool spans_stages(const Plan *plan, const PlanInstr *instr) {
    return plan->mesh.size[AXIS_pp] > 1 && plan_group_holds((PlanGroup)instr->group, GROUP_pp);
}

static void add_launch(Making *m, int32_t i, int32_t trip) {
    const SimSeconds *s = &m->seconds[i];
    uint8_t work = m->work[i] == WORK_rows ? s->work : m->work[i];
    add_op(m, (SimOp){ .what = SIM_COMPUTE, .work = work, .uneven = work == WORK_experts }, i, trip, s->here);
    if (s->rows > s->here)
        add_op(m, (SimOp){ .what = SIM_CROSS, .work = WORK_rows, .link = s->link, .uneven = true }, i, trip,
               s->rows - s->here);
}

// The start of the same operands; ops of an instruction are behind those of its start, or in another segment.
static int32_t start_of(const Making *m, int32_t wait) {
    const PlanInstr *instr = &m->program->instrs[wait];
    const PlanOperand *operands = &m->program->operands[instr->operands];
    for (uint32_t i = m->n; i-- > 0;) {
        const PlanInstr *other = &m->program->instrs[m->ops[i].instr];
        const PlanOperand *its = &m->program->operands[other->operands];
        if (m->ops[i].what == SIM_START && other->op == instr->op && other->group == instr->group &&
            its[0].buffer == operands[0].buffer && its[1].buffer == operands[1].buffer)
            return (int32_t)i;
    }
    return -1;
}

static void add_instr(Making *m, int32_t i, int32_t trip) {
    const PlanInstr *instr = &m->program->instrs[i];
    const SimSeconds *s = &m->seconds[i];
    SimOp op = { .work = m->work[i], .lane = instr->lane, .peer = instr->peer, .link = s->link };
    switch ((PlanOp)instr->op) {
    case PLAN_launch: add_launch(m, i, trip); return;
    case PLAN_send: op.what = SIM_SEND; break;
    case PLAN_recv: op.what = SIM_RECV; break;
    default:
        op.what = spans_stages(m->plan, instr) ? SIM_MEET : SIM_CROSS;
        op.uneven = op.what == SIM_CROSS && instr->op == PLAN_blocks;
        if (instr->half == HALF_start) op.what = SIM_START;
        if (instr->half == HALF_wait) op.what = SIM_WAIT, op.start = start_of(m, i);
    }
    add_op(m, op, i, trip, instr->op == PLAN_recv || instr->half == HALF_wait ? 0 : s->here);
}

static void add_segment(Making *m, const PlanSegment *segment, PlanSegment *out) {
    *out = (PlanSegment){ .name = segment->name, .first = (int32_t)m->n };
    for (int32_t i = segment->first; i < segment->first + segment->n;) {
        const PlanRepeat *repeat = plan_repeat(m->program, i);
        int32_t n = repeat ? repeat->n : 1, trips = plan_trips(m->program, i);
        for (int32_t trip = 0; trip < trips; trip++)
            for (int32_t k = i; k < i + n; k++) add_instr(m, k, trip);
        i += n;
    }
    out->n = (int32_t)m->n - out->first;
}

static SimStage make_stage(const Plan *plan, const PlanProgram *program, const SimSeconds *seconds, Arena *arena) {
    Making m = { .plan = plan, .program = program, .seconds = seconds, .work = plan_work(plan, program, arena),
                 .arena = arena };
    PlanSegment *segments = ARENA_ARRAY(arena, PlanSegment, program->n_segments + 1);
    for (uint32_t s = 0; s < program->n_segments; s++) add_segment(&m, &program->segments[s], &segments[s]);
    return (SimStage){ .ops = m.ops, .n_ops = (int32_t)m.n, .segments = segments, .n_segments = program->n_segments,
                       .rows = program->rows, .n_rows = program->n_rows };
}

Status sim_stages(const Plan *const *plans, int32_t n, const char *name, SimSeconds *const *seconds, Arena *arena,
                  SimStage **out) {
    *out = ARENA_ARRAY(arena, SimStage, n);
    for (int32_t s = 0; s < n; s++) {
        const PlanProgram *program = plan_program(plans[s], name);
        if (!program)
            return status_fail(ERR_INPUT, "the plan of stage %d has no program '%s'\n  hint: 'moec plan' makes one",
                               s, name);
        (*out)[s] = make_stage(plans[s], program, seconds[s], arena);
    }
    return OK;
}
