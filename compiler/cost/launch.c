// SPDX-License-Identifier: Apache-2.0
// What the launches of a plan cost, from the plan alone: its kernels' shapes, and what their operands are.
#include "compiler/cost/launch.h"

#include <math.h>

#include "compiler/kernel/kernel.h"

// Where a layer's tokens go: what a kernel that routes writes.
typedef struct Route {
    uint32_t offsets, table; // buffers: of experts of this rank (plan.h: row_align), i32 [T, top_k]
    double tokens, top_k, experts;
    double pads;             // between experts' rows: as many may be missing to a multiple as not
    double capacity;         // rows that products over it have room for
} Route;

typedef struct Reading {
    const Plan *plan;
    const PlanProgram *program;
    Arena *arena;
    Route *routes;
    uint32_t n, cap;
} Reading;

static const PlanBuffer *buffer_of(const Reading *r, const PlanInstr *instr, uint32_t k) {
    return &r->program->buffers[r->program->operands[instr->operands + k].buffer];
}

// The buffer bound to a parameter; UINT32_MAX: there is none of that name.
static uint32_t bound_to(const Reading *r, const PlanInstr *instr, const char *name) {
    const PlanKernel *kernel = &r->plan->kernels[instr->kernel];
    for (uint32_t k = 0; k < instr->n_operands && k < kernel->n_args; k++)
        if (!strcmp(kernel->args[k].name, name)) return r->program->operands[instr->operands + k].buffer;
    return UINT32_MAX;
}

static void find_routes(Reading *r) {
    for (uint32_t i = 0; i < r->program->n_instrs; i++) {
        const PlanInstr *instr = &r->program->instrs[i];
        if (instr->op != PLAN_launch || strncmp(r->plan->kernels[instr->kernel].family, "route", 5)) continue;
        uint32_t table = bound_to(r, instr, "row_of_slot"), offsets = bound_to(r, instr, "offsets");
        if (table == UINT32_MAX || offsets == UINT32_MAX) continue;
        const PlanBuffer *of_rows = &r->program->buffers[table], *of_experts = &r->program->buffers[offsets];
        if (of_rows->n_dims != 2 || of_experts->n_dims != 1) continue;
        double experts = (double)(of_experts->dims[0] - 1) / (r->plan->row_align > 1 ? 2 : 1);
        *ARENA_PUSH(r->arena, r->routes, r->n, r->cap) =
            (Route){ offsets, table, (double)of_rows->dims[0], (double)of_rows->dims[1], experts,
                     experts * (r->plan->row_align - 1) / 2, 0 };
    }
}

// That a launch reads the offsets or the table of; NULL: none.
static Route *route_of(const Reading *r, const PlanInstr *instr) {
    for (uint32_t k = 0; k < instr->n_operands; k++) {
        const PlanOperand *operand = &r->program->operands[instr->operands + k];
        for (uint32_t i = 0; i < r->n; i++)
            if (operand->buffer == r->routes[i].offsets || operand->buffer == r->routes[i].table) return &r->routes[i];
    }
    return NULL;
}

// N_FAMILIES: none that is known here.
static Family family_of(const PlanKernel *kernel) {
    int family = 0;
    while (family < N_FAMILIES && strcmp(family_name[family], kernel->family)) family++;
    return (Family)family;
}

static bool is_product(const PlanKernel *kernel) {
    return cost_family_class(family_of(kernel)) == COST_dense;
}

static double rows_of(const PlanKernel *kernel) {
    return (double)(family_of(kernel) == FAMILY_MATMUL_W ? kernel->shape.k : kernel->shape.m);
}

static void find_capacities(const Reading *r) {
    for (uint32_t i = 0; i < r->program->n_instrs; i++) {
        const PlanInstr *instr = &r->program->instrs[i];
        if (instr->op != PLAN_launch || !is_product(&r->plan->kernels[instr->kernel])) continue;
        Route *route = route_of(r, instr);
        if (route && bound_to(r, instr, "offsets") == route->offsets)
            route->capacity = fmax(route->capacity, rows_of(&r->plan->kernels[instr->kernel]));
    }
}

// Does a row program read rows at places that a table says?
static bool reads_table(const Reading *r, const PlanInstr *instr) {
    for (uint32_t k = 0; k < instr->n_operands; k++) {
        const PlanBuffer *b = buffer_of(r, instr, k);
        bool reads = r->program->operands[instr->operands + k].mode == OPERAND_READ;
        if (reads && b->dtype == DTYPE_I32 && b->region == REGION_act && b->bytes / 4 >= r->plan->tokens) return true;
    }
    return false;
}

static CostClass class_of(const Reading *r, const PlanInstr *instr) {
    Family family = family_of(&r->plan->kernels[instr->kernel]);
    CostClass class = cost_family_class(family);
    if (class == COST_dense && bound_to(r, instr, "offsets") != UINT32_MAX) return COST_experts;
    return family == FAMILY_ROW && reads_table(r, instr) ? COST_move : class;
}

// Rows that go to or come from other ranks.
static void of_remote(const Reading *r, const PlanInstr *instr, const Route *route, CostLaunch *out) {
    for (uint32_t k = 0; k < instr->n_operands; k++) {
        const PlanOperand *operand = &r->program->operands[instr->operands + k];
        const PlanBuffer *b = &r->program->buffers[operand->buffer];
        if (!operand_is_remote(operand->mode) || !b->n_dims || !b->dims[0]) continue;
        bool puts = operand->mode == OPERAND_PUT;
        out->kernel.remote = puts ? COST_PUTS : COST_GETS;
        out->kernel.row_bytes += (double)b->bytes / (double)b->dims[0];
        // What the kernel counts of them is the room there is for rows, on this rank.
        out->kernel.bytes = fmax(out->kernel.bytes - (double)b->bytes, 0);
        out->group = operand->group;
        if (!route) continue;
        int32_t members = plan_group_size(r->plan, (PlanGroup)operand->group);
        out->kernel.bytes += route->tokens * route->top_k * (double)b->bytes / (double)b->dims[0];
        out->rows = (CostRows){ route->tokens, route->top_k, route->experts * members, out->kernel.row_bytes, 1,
                                !puts, false };
    }
    if (out->kernel.remote && out->kernel.class == COST_row) out->kernel.class = COST_move;
}

static void of_launch(const Reading *r, const PlanInstr *instr, CostLaunch *out) {
    const PlanKernel *kernel = &r->plan->kernels[instr->kernel];
    const Route *route = route_of(r, instr);
    CostKernel *k = &out->kernel;
    *k = (CostKernel){ .class = (uint8_t)class_of(r, instr),
                       .role = (uint8_t)cost_family_role(family_of(kernel)),
                       .precision = kernel->shape.k && kernel->shape.dtype == DTYPE_BF16 ? PRECISION_BF16
                                                                                         : PRECISION_FP32,
                       .m = (double)kernel->shape.m,
                       .n = (double)kernel->shape.n,
                       .k = (double)kernel->shape.k,
                       .groups = kernel->shape.groups ? kernel->shape.groups : 1,
                       .flops = kernel->flops,
                       .bytes = kernel->bytes };
    of_remote(r, instr, route, out);
    double rows = route ? route->tokens * route->top_k : 0;
    if (rows > 0) out->room = route->capacity / rows;
    if (route) rows += route->pads;
    if (k->class == COST_experts && route) {
        out->tokens = route->tokens, out->top_k = route->top_k, out->experts = route->experts;
        cost_of_rows(k, fmin(rows / rows_of(kernel), 1));
    } else if (route && route->capacity > rows && bound_to(r, instr, "offsets") == UINT32_MAX && family_of(kernel) == FAMILY_ROW) {
        bool over_rows = false; // of experts, not of tokens
        for (uint32_t i = 0; i < instr->n_operands; i++)
            over_rows |= r->program->operands[instr->operands + i].buffer == route->offsets;
        k->bytes *= over_rows ? rows / route->capacity : 1;
        k->flops *= over_rows ? rows / route->capacity : 1;
    }
}

CostLaunch *cost_of_program(const Plan *plan, const PlanProgram *program, Arena *arena) {
    Reading r = { .plan = plan, .program = program, .arena = arena };
    CostLaunch *all = ARENA_ARRAY(arena, CostLaunch, program->n_instrs + 1);
    find_routes(&r);
    find_capacities(&r);
    for (uint32_t i = 0; i < program->n_instrs; i++)
        if (program->instrs[i].op == PLAN_launch) of_launch(&r, &program->instrs[i], &all[i]);
    return all;
}

CostGroup cost_plan_group(const Plan *plan, PlanGroup group) {
    int32_t ep = plan->mesh.size[AXIS_ep], edp = plan->mesh.size[AXIS_edp], members = plan_group_size(plan, group);
    switch (group) {
    case GROUP_pp: return (CostGroup){ members, edp * ep };
    case GROUP_edp: return (CostGroup){ members, ep };
    case GROUP_rail: return (CostGroup){ members, plan_group_size(plan, GROUP_node) };
    default: return (CostGroup){ members, 1 };
    }
}

double cost_crossing_s(const CostCluster *cluster, const Plan *plan, const PlanProgram *program,
                       const PlanInstr *instr) {
    CostGroup group = cost_plan_group(plan, (PlanGroup)instr->group);
    const PlanOperand *first = &program->operands[instr->operands];
    double bytes = instr->n_operands ? (double)program->buffers[first->buffer].bytes : 0;
    switch ((PlanOp)instr->op) {
    case PLAN_barrier: return cost_collective_s(cluster, COLLECTIVE_gather, group, 8.0 * group.members);
    case PLAN_gather: return cost_collective_s(cluster, COLLECTIVE_gather, group, bytes * group.members);
    case PLAN_exchange: return cost_collective_s(cluster, COLLECTIVE_all_to_all, group, bytes);
    case PLAN_blocks: {
        const PlanBuffer *from = &program->buffers[program->operands[instr->operands + 1].buffer];
        double row_bytes = (double)from->bytes / (double)from->dims[0];
        return cost_collective_s(cluster, COLLECTIVE_all_to_all, group, instr->even * group.members * row_bytes);
    }
    case PLAN_send:
    case PLAN_recv: {
        int32_t dp = plan_group_size(plan, GROUP_dp), far = instr->peer - plan->mesh.stage;
        return cost_collective_s(cluster, COLLECTIVE_send, (CostGroup){ 2, dp * (far < 0 ? -far : far) }, bytes);
    }
    default: return 0;
    }
}
