// SPDX-License-Identifier: Apache-2.0
// The executor. At creation every instruction becomes a launch record {function, addresses, tiles};
// a run walks rows and records and does nothing else. Regions are anonymous pages of 4 KiB that the
// system zeroes at first touch, so exec_touched counts exactly the pages a run used.
#include "runtime/exec/exec.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/device/pool.h"
#include "runtime/exec/fence.h"
#include "runtime/jit/jit.h"

typedef struct Launch {
    PoolTile function;
    void *const *args; // of each trip in turn
    int64_t tiles;
    uint32_t n_args;
} Launch;

// Pages of a region.
typedef struct Pages {
    void *at;
    size_t bytes;
    Held held;
} Pages;

struct Exec {
    Arena *arena;
    const Plan *plan;
    bool poison;
    Pool *pool;
    Jit *jit;
    char *regions[N_REGIONS]; // NULL: the plan has no byte in it
    Pages pages[N_REGIONS];
    Launch **launches;        // per program, per instruction
    double **seconds;         // the same; NULL unless profiled
};

enum { INIT_TILE = 1 << 16 }; // numbers of a parameter per tile

/* Creation ------------------------------------------------------------------------------------ */

static void unmap(void *user) {
    Pages *pages = user;
    memory_drop(&pages->held);
    if (!pages->at) return;
    fence(pages->at, (int64_t)pages->bytes, false);
    munmap(pages->at, pages->bytes);
}

static Status map_region(Exec *exec, int region, bool small_pages) {
    int64_t bytes = exec->plan->region_bytes[region];
    if (!bytes) return OK;
    int64_t whole = bytes + 2 * FENCE_MARGIN;
    char *at = mmap(NULL, (size_t)whole, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) {
        return status_fail(ERR_MEMORY,
                           "cannot map %lld bytes for the plan's region %d: %s\n"
                           "  hint: use a smaller microbatch or model",
                           (long long)bytes, region, strerror(errno));
    }
    exec->regions[region] = at + FENCE_MARGIN;
    exec->pages[region].at = at;
    exec->pages[region].bytes = (size_t)whole;
    fence(at, whole, true);
    fence(at + FENCE_MARGIN, bytes, false);
    memory_hold(&exec->pages[region].held, unmap, &exec->pages[region]);
    // Both are wishes. Huge pages save table walks; small ones count exactly what is touched.
    madvise(at, (size_t)whole, small_pages ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
    return OK;
}

static void expand_program(Exec *exec, uint32_t number) {
    const Plan *plan = exec->plan;
    const PlanProgram *program = &plan->programs[number];
    Launch *launches = exec->launches[number] = ARENA_ARRAY(exec->arena, Launch, program->n_instrs);
    for (uint32_t i = 0; i < program->n_instrs; i++) {
        const PlanInstr *instr = &program->instrs[i];
        const PlanRepeat *repeat = plan_repeat(program, i);
        uint32_t n = instr->n_operands, trips = repeat ? (uint32_t)repeat->trip : 1;
        void **args = ARENA_ARRAY(exec->arena, void *, (size_t)n * trips + 1);
        for (uint32_t k = 0; k < n * trips; k++) {
            const PlanOperand *operand = &program->operands[instr->operands + k % n];
            args[k] = (char *)exec_buffer(exec, program, operand->buffer) + k / n * operand->step;
        }
        launches[i] = (Launch){ jit_function(exec->jit, instr->kernel), args,
                                plan->kernels[instr->kernel].tiles, n };
    }
}

static Status set_up(Exec *exec, const ExecOptions *options) {
    const Plan *plan = exec->plan;
    TRY(plan_check(plan));
    TRY(jit_load(plan, options->progress, options->user, &exec->jit));
    TRY(pool_create(options->threads, &exec->pool));
    for (int region = 0; region < N_REGIONS; region++) 
        TRY(map_region(exec, region, options->small_pages));
    exec->launches = ARENA_ARRAY(exec->arena, Launch *, plan->n_programs);
    for (uint32_t i = 0; i < plan->n_programs; i++) expand_program(exec, i);
    if (!options->profile) return OK;
    exec->seconds = ARENA_ARRAY(exec->arena, double *, plan->n_programs);
    for (uint32_t i = 0; i < plan->n_programs; i++)
        exec->seconds[i] = ARENA_ARRAY(exec->arena, double, plan->programs[i].n_instrs);
    return OK;
}

Status exec_create(const Plan *plan, const ExecOptions *options, Exec **out) {
    *out = NULL;
    Arena *arena = arena_create();
    Exec *exec = ARENA_NEW(arena, Exec);
    exec->arena = arena;
    exec->plan = plan;
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
    for (int region = 0; region < N_REGIONS; region++) unmap(&exec->pages[region]);
    pool_destroy(exec->pool);
    jit_destroy(exec->jit);
    arena_destroy(exec->arena);
}

/* Running ------------------------------------------------------------------------------------- */

static void fence_regions(const Exec *exec, bool closed) {
    for (int region = 0; FENCED && region < N_REGIONS; region++)
        if (exec->regions[region])
            fence(exec->regions[region], exec->plan->region_bytes[region], closed);
}

static void fence_operands(const PlanProgram *program, int32_t i, void *const *args, bool closed) {
    const PlanInstr *instr = &program->instrs[i];
    for (uint32_t k = 0; FENCED && k < instr->n_operands; k++) {
        const PlanOperand *operand = &program->operands[instr->operands + k];
        int64_t whole = program->buffers[operand->buffer].bytes;
        fence(args[k], operand->step ? operand->step : whole, closed);
    }
}

static void run_instr(Exec *exec, uint32_t number, int32_t i, int32_t trip) {
    const Launch *launch = &exec->launches[number][i];
    const PlanProgram *program = &exec->plan->programs[number];
    void *const *args = launch->args + (size_t)trip * launch->n_args;
    double *seconds = exec->seconds ? &exec->seconds[number][i] : NULL;
    double start = seconds ? time_seconds() : 0;
    fence_operands(program, i, args, false);
    pool_run(exec->pool, launch->function, args, launch->tiles);
    fence_operands(program, i, args, true);
    if (seconds) *seconds += time_seconds() - start;
}

static void run_segment(Exec *exec, uint32_t number, uint32_t segment) {
    const PlanProgram *program = &exec->plan->programs[number];
    const PlanSegment *s = &program->segments[segment];
    fence_regions(exec, true);
    for (int32_t i = s->first, end = s->first + s->n; i < end;) {
        const PlanRepeat *repeat = plan_repeat(program, i);
        int32_t n = repeat ? repeat->n : 1;
        for (int32_t trip = 0; trip < (repeat ? repeat->trip : 1); trip++) {
            for (int32_t k = i; k < i + n; k++) run_instr(exec, number, k, trip);
        }
        i += n;
    }
    fence_regions(exec, false);
}

// A NaN as a float, far out of any range as an index.
static void poison_act(Exec *exec) {
    const uint32_t bits = 0x7fc00000;
    uint32_t *at = (uint32_t *)exec->regions[REGION_act];
    int64_t n = exec->plan->region_bytes[REGION_act] / 4;
    for (int64_t i = 0; i < n; i++) at[i] = bits;
}

static void zero_metrics(Exec *exec, const PlanProgram *program) {
    for (uint32_t i = 0; i < program->n_metrics; i++) {
        uint32_t buffer = program->metrics[i].buffer;
        memset(exec_buffer(exec, program, buffer), 0, (size_t)program->buffers[buffer].bytes);
    }
}

Status exec_run(Exec *exec, const PlanProgram *program, ExecFill fill, void *user) {
    uint32_t number = 0;
    while (number < exec->plan->n_programs && program != &exec->plan->programs[number]) number++;
    if (number == exec->plan->n_programs) {
        return status_fail(ERR_ARGUMENT, "exec_run: expected a program of the plan, found another");
    }
    zero_metrics(exec, program);
    int32_t filled = -1; // microbatch whose inputs are there
    for (uint32_t r = 0; r < program->n_rows; r++) {
        const PlanRow *row = &program->rows[r];
        const PlanSegment *segment = &program->segments[row->segment];
        if (row->microbatch > filled) {
            filled = row->microbatch;
            if (fill) TRY(fill(user, exec, program, filled));
        }
        if (exec->poison && !strcmp(segment->name, "forward")) poison_act(exec);
        run_segment(exec, number, row->segment);
    }
    return OK;
}

void exec_pack(Exec *exec) {
    for (uint32_t i = 0; i < exec->plan->n_programs; i++) {
        const PlanProgram *program = &exec->plan->programs[i];
        if (strcmp(program->name, "pack")) continue;
        for (uint32_t r = 0; r < program->n_rows; r++)
            run_segment(exec, i, program->rows[r].segment);
    }
}

/* Initial values ------------------------------------------------------------------------------ */

typedef struct InitJob {
    const PlanParam *param;
    float *at;
    int64_t n;
    uint64_t seed, name;
} InitJob;

static void init_tiles(void *const *args, int64_t tile_begin, int64_t tile_end) {
    const InitJob *job = args[0];
    int64_t end = min_i64(tile_end * INIT_TILE, job->n);
    for (int64_t i = tile_begin * INIT_TILE; i < end; i++) {
        switch ((PlanInit)job->param->init) {
        case PLAN_INIT_NORMAL:
            job->at[i] = (float)(job->param->std * hash_normal(job->seed, job->name, (uint64_t)i));
            break;
        case PLAN_INIT_ZEROS: job->at[i] = 0; break;
        case PLAN_INIT_ONES: job->at[i] = 1; break;
        }
    }
}

void exec_init(Exec *exec, uint64_t seed) {
    const Plan *plan = exec->plan;
    for (uint32_t i = 0; i < plan->n_params; i++) {
        const PlanParam *param = &plan->params[i];
        InitJob job = {
            .param = param,
            .at = (float *)(exec->regions[REGION_weights] + param->offset),
            .n = 1,
            .seed = seed,
            .name = hash_bytes(param->name, strlen(param->name)).low,
        };
        for (int d = 0; d < param->n_dims; d++) job.n *= param->dims[d];
        void *const args[] = { &job };
        pool_run(exec->pool, init_tiles, args, div_up(job.n, INIT_TILE));
    }
    static const Region moments[] = { REGION_moment1, REGION_moment2 };
    for (int i = 0; i < COUNT_OF(moments); i++) {
        char *at = exec->regions[moments[i]];
        if (at) memset(at, 0, (size_t)plan->region_bytes[moments[i]]);
    }
    exec_pack(exec);
}

/* Access -------------------------------------------------------------------------------------- */

void *exec_region(const Exec *exec, Region region) {
    return exec->regions[region];
}

void *exec_buffer(const Exec *exec, const PlanProgram *program, uint32_t buffer) {
    const PlanBuffer *b = &program->buffers[buffer];
    return exec->regions[b->region] + b->offset;
}

void *exec_input(const Exec *exec, const PlanProgram *program, InputKind kind, int32_t k) {
    for (uint32_t i = 0; i < program->n_inputs; i++) {
        const PlanInput *input = &program->inputs[i];
        if (input->kind == kind && input->k == k) return exec_buffer(exec, program, input->buffer);
    }
    return NULL;
}

float *exec_scalars(const Exec *exec) {
    return (float *)exec->regions[REGION_scalars];
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

int64_t exec_touched(const Exec *exec, Region region) {
    enum { CHUNK = 4096 };
    unsigned char resident[CHUNK];
    int64_t page = sysconf(_SC_PAGESIZE), pages = div_up(exec->plan->region_bytes[region], page),
            touched = 0;
    for (int64_t at = 0; exec->regions[region] && at < pages; at += CHUNK) {
        int64_t n = min_i64(CHUNK, pages - at);
        if (mincore(exec->regions[region] + at * page, (size_t)(n * page), resident) != 0) break;
        for (int64_t i = 0; i < n; i++) touched += resident[i] & 1;
    }
    return touched * page;
}
