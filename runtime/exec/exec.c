// SPDX-License-Identifier: Apache-2.0
// The executor. At creation every instruction becomes a launch record {kernel, addresses}; a run
// walks rows and records and does nothing else. On a GPU the walk can be recorded once and
// replayed: it holds no decision that a run could make differently.
#include "runtime/device/fence.h"
#include "runtime/exec/private.h"

/* Creation ------------------------------------------------------------------------------------ */

static const char *const region_names[N_REGIONS] = {
#define X(name) "the plan's region " #name,
    PLAN_REGIONS(X)
#undef X
};

static Status map_regions(Exec *exec, bool small_pages) {
    for (int region = 0; region < N_REGIONS; region++) {
        int64_t bytes = exec->plan->region_bytes[region];
        void *at = NULL;
        if (region == REGION_sym) continue;
        if (bytes)
            TRY(exec->api->alloc(exec->device, bytes, small_pages, region_names[region], &at));
        exec->regions[region] = at;
    }
    return OK;
}

static bool has_slots(const PlanProgram *program, const PlanInstr *instr) {
    for (uint32_t k = 0; k < instr->n_operands; k++)
        if (program->buffers[program->operands[instr->operands + k].buffer].n_further) return true;
    return false;
}

// Addresses of an instruction's operands in a slot, of each trip in turn.
static void *const *bind(Exec *exec, uint32_t number, uint32_t i, int32_t slot) {
    const PlanProgram *program = &exec->plan->programs[number];
    const PlanInstr *instr = &program->instrs[i];
    const PlanRepeat *repeat = plan_repeat(program, i);
    uint32_t n = instr->n_operands, trips = repeat ? (uint32_t)repeat->trip : 1;
    void **args = ARENA_ARRAY(exec->arena, void *, (size_t)n * trips + 1);
    for (uint32_t k = 0; k < n * trips; k++) {
        const PlanOperand *operand = &program->operands[instr->operands + k % n];
        const PlanBuffer *b = &program->buffers[operand->buffer];
        bool remote = operand_is_remote(operand->mode);
        int64_t at = plan_offset(b, slot) + operand->offset;
        if (remote) // its table, of this slot
            at = exec->tables[number][instr->operands + k % n] +
                 (b->n_further ? slot * 8 * comm_members(exec->comm, (PlanGroup)operand->group) : 0);
        args[k] = exec->regions[b->region] + at + k / n * operand->step;
    }
    return args;
}

static void expand_program(Exec *exec, uint32_t number) {
    const PlanProgram *program = &exec->plan->programs[number];
    int32_t slots = plan_slots(program);
    Launch *launches = exec->launches[number] = ARENA_ARRAY(exec->arena, Launch, program->n_instrs);
    for (uint32_t i = 0; i < program->n_instrs; i++) {
        const PlanInstr *instr = &program->instrs[i];
        void *const **args = ARENA_ARRAY(exec->arena, void *const *, slots);
        for (int32_t slot = 0; slot < slots; slot++)
            args[slot] = slot && !has_slots(program, instr) ? args[0] : bind(exec, number, i, slot);
        bool launch = instr->op == PLAN_launch;
        launches[i] = (Launch){ launch ? &exec->kernels[instr->kernel] : NULL, args };
    }
}

Status exec_fits(const char *device, const char *target) {
    return device_fits(device ? device : device_of_target(target), target);
}

const char *exec_usual_device(const char *target) {
    return device_of_target(target);
}

Status exec_target(const char *device, Arena *arena, const char **target) {
    return device_target(device, arena, target);
}

// What a run has on its device. The device itself and compiled kernels are held by themselves where
// they are the host's.
static void give_back(void *user) {
    Exec *exec = user;
    for (uint32_t i = 0; exec->graphs && i < exec->plan->n_programs; i++) {
        if (exec->graphs[i]) exec->api->drop(exec->device, exec->graphs[i]);
        exec->graphs[i] = NULL;
    }
    stage_release(exec);
    cross_release(exec);
    window_close(exec);
    for (int region = 0; exec->device && region < N_REGIONS; region++) {
        exec->api->release(exec->device, exec->regions[region], exec->plan->region_bytes[region]);
        exec->regions[region] = NULL;
    }
}

static Status open_device(Exec *exec, const ExecOptions *options) {
    const Plan *plan = exec->plan;
    const char *name = options->device ? options->device : device_of_target(plan->target);
    TRY(plan_check(plan));
    TRY(device_takes(name, plan->target));
    TRY(gpus_connect(exec, name));
    name = gpus_own(exec, name);
    TRY(pool_create(together_threads(exec, options->threads), &exec->pool));
    TRY(device_open(name, exec->pool, &exec->device));
    exec->api = exec->device->api;
    exec->counts_rows &= exec->api->on_host;
    return OK;
}

static Status make_room(Exec *exec, const ExecOptions *options) {
    TRY(cross_create(exec));
    // A recorded step runs without the host, which speaks to other ranks unless the device does.
    // Nor does it know how often what is counted will run.
    bool counted = repeat_create(exec);
    exec->graph = options->graph && !options->profile && exec->api->begin &&
                  (!exec->crosses || exec->comm->api->on_device) && !counted;
    return map_regions(exec, options->small_pages);
}

// Who speaks for the host: the ranks' own transport, unless it is one of devices.
static Status open_comms(Exec *exec, const ExecOptions *options) {
    Comm *given = options->host ? options->host : options->comm;
    if (!given || given->api->on_device) given = exec->own_comm = comm_self();
    exec->host = given;
    exec->comm = options->comm ? options->comm : given;
    if (exec->host != exec->own_comm || !options->comm)
        TRY(comm_mesh(exec->host, &exec->plan->mesh));
    return together_count(exec);
}

static Status enter_stage(Exec *exec) {
    const Plan *plan = exec->plan;
    exec->comm->device = exec->device;
    exec->comm->plan = plan;
    if (exec->comm != exec->host) TRY(comm_mesh(exec->comm, &plan->mesh));
    if (exec->comm->coord[AXIS_pp] == plan->mesh.stage) return OK;
    return status_fail(ERR_INTERNAL, "internal error: a rank of stage %d runs the plan of stage %d",
                       exec->comm->coord[AXIS_pp], plan->mesh.stage);
}

// All ranks come this way. What one of them may not get through ends with an agreement, so that none
// waits for it in what follows.
static Status set_up(Exec *exec, const ExecOptions *options) {
    const Plan *plan = exec->plan;
    Arena *arena = exec->arena;
    TRY(open_comms(exec, options));
    TRY(comm_agree(exec->host, open_device(exec, options)));
    TRY(comm_agree(exec->host, enter_stage(exec)));
    exec->kernels = ARENA_ARRAY(arena, DeviceKernel, plan->n_kernels);
    TRY(comm_agree(exec->host,
                   exec->api->load(exec->device, plan, options->progress, options->user,
                                   together_share(exec), exec->kernels)));
    memory_hold(&exec->held, give_back, exec);
    TRY(comm_agree(exec->host, make_room(exec, options)));
    TRY(window_open(exec));
    TRY(stage_images(exec));
    exec->launches = ARENA_ARRAY(arena, Launch *, plan->n_programs);
    exec->last_rows = ARENA_ARRAY(arena, bool *, plan->n_programs);
    exec->stages = ARENA_ARRAY(arena, Stage, plan->n_programs);
    exec->graphs = ARENA_ARRAY(arena, DeviceGraph *, plan->n_programs);
    if (options->poison) exec->poisons = ARENA_ARRAY(arena, Poison, plan->n_programs);
    exec->graph_nodes = ARENA_ARRAY(arena, int, plan->n_programs);
    if (options->profile) exec->seconds = ARENA_ARRAY(arena, double *, plan->n_programs);
    for (uint32_t i = 0; i < plan->n_programs; i++) {
        expand_program(exec, i);
        exec->last_rows[i] = plan_last_rows(&plan->programs[i], arena);
        if (options->poison) poison_program(exec, i);
        TRY(stage_program(exec, i));
        if (options->profile)
            exec->seconds[i] = ARENA_ARRAY(arena, double, plan->programs[i].n_instrs);
    }
    return OK;
}

Status exec_create(const Plan *plan, const ExecOptions *options, Exec **out) {
    *out = NULL;
    Arena *arena = arena_create();
    Exec *exec = ARENA_NEW(arena, Exec);
    exec->arena = arena;
    exec->plan = plan;
    exec->counts_rows = options->count_rows || options->link > 0;
    if (options->link > 0) exec->link = link_make(options->link, time_seconds());
    exec->poison = options->poison;
    Status status = set_up(exec, options);
    if (status != OK) {
        exec_destroy(exec);
        return status;
    }
    *out = exec;
    return OK;
}

void exec_destroy(Exec *exec) {
    if (!exec) return;
    give_back(exec);
    memory_drop(&exec->held);
    comm_close(exec->gpus);
    device_close(exec->device);
    comm_close(exec->own_comm);
    pool_destroy(exec->pool);
    arena_destroy(exec->arena);
}

/* Running ------------------------------------------------------------------------------------- */

uint32_t exec_number(const Exec *exec, const PlanProgram *program) {
    uint32_t number = 0;
    while (number < exec->plan->n_programs && program != &exec->plan->programs[number]) number++;
    return number;
}

static void fence_regions(const Exec *exec, bool closed) {
    for (int region = 0; FENCED && exec->api->on_host && region < N_REGIONS; region++)
        if (exec->regions[region] && region != REGION_sym) // others are at work in it
            fence(exec->regions[region], exec->plan->region_bytes[region], closed);
}

static void fence_operands(const Exec *exec, const PlanProgram *program, int32_t i,
                           void *const *args, bool closed) {
    const PlanInstr *instr = &program->instrs[i];
    for (uint32_t k = 0; FENCED && exec->api->on_host && k < instr->n_operands; k++) {
        const PlanOperand *operand = &program->operands[instr->operands + k];
        const PlanBuffer *buffer = &program->buffers[operand->buffer];
        int64_t whole = operand->bytes ? operand->bytes : buffer->bytes;
        if (buffer->region == REGION_sym) continue;
        fence(args[k], operand->step ? operand->step : whole, closed);
    }
}

// What goes on beside the rank has its operands, whatever was closed since its start.
static void fence_begun(const Exec *exec, const PlanProgram *program) {
    for (uint32_t i = 0; FENCED && exec->api->on_host && i < exec->n_begun; i++) {
        const Begun *begun = &exec->begun[i];
        const PlanOperand *operands = &program->operands[begun->start->operands];
        fence(begun->from, program->buffers[operands[0].buffer].bytes, false);
        fence(begun->to, program->buffers[operands[1].buffer].bytes, false);
    }
}

static Status run_instr(Exec *exec, uint32_t number, int32_t i, int32_t trip, const PlanRow *row) {
    const Launch *launch = &exec->launches[number][i];
    const PlanProgram *program = &exec->plan->programs[number];
    void *const *args = launch->args[row->slot] + (size_t)trip * program->instrs[i].n_operands;
    together_at(exec, program, i, row);
    fence_operands(exec, program, i, args, false);
    TRY(tape_begin(exec, row, i, trip));
    if (!launch->kernel) TRY(cross_run(exec, number, i, args, row));
    else TRY(exec->api->launch(exec->device, launch->kernel, args,
                               exec->seconds ? &exec->seconds[number][i] : NULL));
    link_moved(exec, number, i, args);
    TRY(tape_end(exec));
    fence_operands(exec, program, i, args, true);
    fence_begun(exec, program);
    return OK;
}

// Waits for what was sent before: by rows of its segment and slot; `all`: by all.
static Status settle(Exec *exec, const PlanRow *row, bool all) {
    if (!exec->n_sends) return OK;
    TRY(tape_begin(exec, row, SPAN_TAKEN, 0));
    TRY(cross_settle(exec, all ? NULL : row));
    return tape_end(exec);
}

Status exec_run_row(Exec *exec, uint32_t number, const PlanRow *row) {
    const PlanProgram *program = &exec->plan->programs[number];
    const PlanSegment *s = &program->segments[row->segment];
    TRY(settle(exec, row, false));
    fence_regions(exec, true);
    fence_begun(exec, program);
    bool last = exec->last_rows[number][row - program->rows];
    for (int32_t i = s->first, end = s->first + s->n; i < end;) {
        if (program->instrs[i].last && !last) {
            i++;
            continue;
        }
        const PlanRepeat *repeat = plan_repeat(program, i);
        int32_t n = repeat ? repeat->n : 1, trips = repeat ? repeat->trip : 1;
        if (repeat && repeat->count) TRY(repeat_trips(exec, number, repeat, row, &trips));
        for (int32_t trip = 0; trip < trips; trip++) {
            for (int32_t k = i; k < i + n; k++) TRY(run_instr(exec, number, k, trip, row));
        }
        i += n;
    }
    fence_regions(exec, false);
    return OK;
}

static Status zero_metrics(Exec *exec, const PlanProgram *program) {
    for (uint32_t i = 0; i < program->n_metrics; i++) {
        const PlanBuffer *b = &program->buffers[program->metrics[i].buffer];
        TRY(exec->api->fill(exec->device, exec->regions[b->region] + b->offset, 0, b->bytes));
    }
    return OK;
}

// What a run does, in order. On a GPU the inputs are in their slots by now.
static Status walk(Exec *exec, uint32_t number, ExecFill fill, void *user) {
    const PlanProgram *program = &exec->plan->programs[number];
    bool on_host = exec->api->on_host;
    if (exec->images[REGION_scalars]) memcpy(&exec->step, exec_scalars(exec) + SCALAR_step, sizeof exec->step);
    TRY(tape_start(exec, number));
    TRY(stage_begin(exec));
    TRY(zero_metrics(exec, program));
    int32_t filled = -1; // microbatch whose inputs are there
    for (uint32_t r = 0; r < program->n_rows; r++) {
        const PlanRow *row = &program->rows[r];
        if (row->microbatch > filled) {
            filled = row->microbatch;
            TRY(tape_begin(exec, row, SPAN_INPUTS, 0));
            if (on_host) exec->slot = row->slot;
            if (on_host && fill) TRY(fill(user, exec, program, filled));
            if (!on_host) TRY(stage_in(exec, number, filled, row->slot));
            TRY(tape_end(exec));
        }
        if (exec->poison) {
            TRY(cross_settle(exec, row)); // what was sent is held until then
            TRY(poison_row(exec, number, r));
        }
        TRY(exec_run_row(exec, number, row));
    }
    if (on_host) exec->slot = 0;
    if (program->n_rows) TRY(settle(exec, &program->rows[program->n_rows - 1], true));
    return stage_out(exec, number);
}

static Status record(Exec *exec, uint32_t number) {
    TRY(exec->api->begin(exec->device));
    Status walked = walk(exec, number, NULL, NULL);
    if (walked != OK) { // its message stays the one that counts
        char message[512];
        strncpy(message, status_message(), sizeof message - 1);
        message[sizeof message - 1] = 0;
        DeviceGraph *unused = NULL;
        if (exec->api->end(exec->device, &unused) == OK) exec->api->drop(exec->device, unused);
        return status_fail(walked, "%s", message);
    }
    TRY(exec->api->end(exec->device, &exec->graphs[number]));
    exec->graph_nodes[number] = exec->api->info(exec->device).graph_nodes;
    return OK;
}

static Status run(Exec *exec, uint32_t number, ExecFill fill, void *user) {
    exec->comm->device = exec->device; // a Comm may serve several
    TRY(stage_fill(exec, number, fill, user));
    if (exec->graph && !tape_wants(exec, number)) {
        if (!exec->graphs[number]) TRY(record(exec, number));
        TRY(exec->api->replay(exec->device, exec->graphs[number]));
    } else {
        TRY(walk(exec, number, fill, user));
    }
    TRY(cross_wait(exec));
    tape_stop(exec);
    return OK;
}

Status exec_run(Exec *exec, const PlanProgram *program, ExecFill fill, void *user) {
    uint32_t number = exec_number(exec, program);
    if (number == exec->plan->n_programs)
        return status_fail(ERR_ARGUMENT, "exec_run: expected a program of the plan, found another");
    Status status = run(exec, number, fill, user);
    if (status != OK) tape_drop(exec);
    return status;
}

Status exec_pack(Exec *exec) {
    for (uint32_t i = 0; i < exec->plan->n_programs; i++) {
        const PlanProgram *program = &exec->plan->programs[i];
        if (strcmp(program->name, "pack")) continue;
        for (uint32_t r = 0; r < program->n_rows; r++)
            TRY(exec_run_row(exec, i, &program->rows[r]));
    }
    return cross_wait(exec);
}

/* Access -------------------------------------------------------------------------------------- */

void *exec_region(const Exec *exec, Region region) {
    return exec->images[region];
}

void *exec_buffer(const Exec *exec, const PlanProgram *program, uint32_t buffer) {
    const PlanBuffer *b = &program->buffers[buffer];
    if (!exec->api->on_host) {
        char *input = stage_input(exec, exec_number(exec, program), b);
        if (input) return input;
    }
    int32_t slot = exec->api->on_host && b->region == REGION_io ? exec->slot : 0;
    return exec->images[b->region] + plan_offset(b, slot);
}

void *exec_input(const Exec *exec, const PlanProgram *program, InputKind kind, int32_t k) {
    for (uint32_t i = 0; i < program->n_inputs; i++) {
        const PlanInput *input = &program->inputs[i];
        if (input->kind == kind && input->k == k) return exec_buffer(exec, program, input->buffer);
    }
    return NULL;
}

float *exec_scalars(const Exec *exec) {
    return (float *)exec->images[REGION_scalars];
}

float *exec_metric(const Exec *exec, const PlanProgram *program, uint32_t metric, int64_t *n) {
    uint32_t buffer = program->metrics[metric].buffer;
    if (n) *n = program->buffers[buffer].bytes / (int64_t)sizeof(float);
    return exec_buffer(exec, program, buffer);
}

double *exec_profile(const Exec *exec, const PlanProgram *program) {
    return exec->seconds ? exec->seconds[program - exec->plan->programs] : NULL;
}

int exec_threads(const Exec *exec) {
    return pool_threads(exec->pool);
}

Comm *exec_host(const Exec *exec) {
    return exec->host;
}

const char *exec_device(const Exec *exec) {
    return exec->api->info(exec->device).name;
}

int exec_graph_nodes(const Exec *exec, const PlanProgram *program) {
    return exec->graph_nodes[program - exec->plan->programs];
}

PlanTraffic exec_moved(const Exec *exec) {
    return exec->moved;
}

int64_t exec_touched(const Exec *exec, Region region) {
    return exec->api->resident(exec->device, exec->regions[region],
                               exec->plan->region_bytes[region]);
}
