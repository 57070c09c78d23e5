// SPDX-License-Identifier: Apache-2.0
#include "tests/layouts/world.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/jit/jit.h"

enum { DEADLINE = 120 /* seconds */, SEED = 11 };

// Kernels are compiled once for all tests of this build.
int world_setup(void **state) {
    (void)state;
    return setenv("MOEC_CACHE_DIR", MOEC_BINARY_DIR "/test-cache", 0);
}

int world_teardown(void **state) {
    (void)state;
    return 0;
}

void world_needs_gpus(void) {
    static const char library[] = MOEC_BINARY_DIR "/libmoec-vgpu.so";
    int major, minor;
    setenv("MOEC_VGPU_LIBRARY", library, 0);
    if (access(getenv("MOEC_VGPU_LIBRARY"), R_OK) == 0 && jit_cuda_compiler(&major, &minor) == OK) return;
    print_message("skipped: %s and NVRTC are needed\n", library);
    skip();
}

/* Data ----------------------------------------------------------------------------------------- */

// Sequence `number` of the run: documents of 1 to 9 tokens, each a walk; a share of its labels, another in
// every sequence, is masked.
typedef struct Sequence {
    int64_t number;
    int32_t n, vocab;
    bool whole; // one document
} Sequence;

static uint64_t draw(const Sequence *s, int what, int64_t t) {
    return hash_mix((uint64_t)what, (uint64_t)s->number, (uint64_t)t);
}

static bool starts(const Sequence *s, int32_t t) {
    return t == 0 || (!s->whole && draw(s, 1, t) % 5 == 0);
}

static int32_t token_at(const Sequence *s, int32_t t) {
    if (t < 0 || t >= s->n) return -1;
    return (int32_t)((draw(s, 2, t / 3) + (uint64_t)t) % (uint64_t)s->vocab);
}

// The token k ahead in t's document, -1 past its end. What follows the sequence is another document.
static int32_t ahead(const Sequence *s, int32_t t, int32_t k) {
    for (int32_t i = t + 1; i <= t + k; i++)
        if (i >= s->n || starts(s, i)) return -1;
    return token_at(s, t + k);
}

static int32_t label(const Sequence *s, int32_t t, int32_t k) {
    bool masked = draw(s, 3, t) % 8 < (uint64_t)(s->number % 7);
    return masked ? -1 : ahead(s, t, k);
}

static int64_t count_valid(const Sequence *s) {
    int64_t n = 0;
    for (int32_t t = 0; t < s->n; t++) n += label(s, t, 1) >= 0;
    return n;
}

/* One rank ------------------------------------------------------------------------------------- */

typedef struct Rank {
    const WorldJob *job;
    const Layout *layout;
    const Plan *plan;
    Comm *comm;
    World *world;
    pthread_mutex_t *lock;       // of the world
    pthread_t thread;
    int step;
    double *losses, *served, *dropped; // [steps], this rank's
    char message[512];           // of a failure
} Rank;

// Its microbatches take turns with those of the other ranks of the stage.
static int64_t first_sequence(const Rank *r, int microbatch) {
    const WorldJob *job = r->job;
    int64_t dp = r->layout->dp, member = comm_member(r->comm, GROUP_dp);
    return ((int64_t)r->step * job->microbatches * dp + microbatch * dp + member) * job->microbatch;
}

static void fill_one(const Rank *r, const PlanInput *input, const Sequence *s, int i, int32_t segment, void *at) {
    int32_t *ids = (int32_t *)at + (int64_t)i * s->n, start = 0;
    for (int32_t t = 0; t < s->n; t++) {
        if (t && starts(s, t)) segment++, start = t;
        switch ((InputKind)input->kind) {
        case INPUT_tokens: ids[t] = input->k ? ahead(s, t, input->k) : token_at(s, t); break;
        case INPUT_labels: ids[t] = label(s, t, input->k); break;
        case INPUT_positions: ids[t] = t - start; break;
        case INPUT_segments: ids[t] = segment; break;
        case INPUT_index: ids[t] = (int32_t)(s->number * s->n + t); break;
        case INPUT_n_valid_sequence: ((float *)at)[i] = (float)count_valid(s); return;
        case INPUT_n_valid: ((float *)at)[0] = (i ? ((float *)at)[0] : 0) + (float)count_valid(s); return;
        case N_INPUTS: return;
        }
    }
    (void)r;
}

static int32_t count_documents(const Sequence *s) {
    int32_t n = 0;
    for (int32_t t = 0; t < s->n; t++) n += starts(s, t);
    return n;
}

static Status fill(void *user, Exec *exec, const PlanProgram *program, int microbatch) {
    const Rank *r = user;
    int64_t first = first_sequence(r, microbatch);
    for (uint32_t k = 0; k < program->n_inputs; k++) {
        const PlanInput *input = &program->inputs[k];
        void *at = exec_input(exec, program, (InputKind)input->kind, input->k);
        int32_t segment = 0;
        for (int i = 0; i < r->job->microbatch; i++) {
            Sequence s = { first + i, (int32_t)r->plan->sequence, (int32_t)r->plan->vocab, r->job->whole };
            fill_one(r, input, &s, i, segment, at);
            segment += count_documents(&s);
        }
    }
    return OK;
}

static double valid_of_step(const Rank *r) {
    int64_t n = (int64_t)r->layout->dp * r->job->microbatches * r->job->microbatch, valid = 0;
    for (int64_t i = 0; i < n; i++) {
        Sequence s = { r->step * n + i, (int32_t)r->plan->sequence, (int32_t)r->plan->vocab, r->job->whole };
        valid += count_valid(&s);
    }
    return (double)max_i64(valid, 1);
}

static void set_scalars(const Rank *r, float *scalars) {
    const WorldJob *job = r->job;
    bool last = r->comm->rank == r->comm->n_ranks - 1;
    scalars[SCALAR_lr] = (float)job->lr;
    scalars[SCALAR_decay] = (float)job->decay;
    scalars[SCALAR_beta1] = 0.9f;
    scalars[SCALAR_beta2] = 0.95f;
    scalars[SCALAR_eps] = 1e-8f;
    scalars[SCALAR_correction1] = (float)(1 - pow(0.9, r->step + 1));
    scalars[SCALAR_correction2] = (float)(1 - pow(0.95, r->step + 1));
    scalars[SCALAR_clip] = (float)job->clip;
    scalars[SCALAR_inv_step] = (float)(last && job->spoil == r->step + 1 ? INFINITY : 1 / valid_of_step(r));
    int32_t step = r->step, seed = SEED;
    memcpy(&scalars[SCALAR_step], &step, sizeof step);
    memcpy(&scalars[SCALAR_seed], &seed, sizeof seed);
}

/* Results -------------------------------------------------------------------------------------- */

static WorldParam *find_param(World *world, const PlanParam *param) {
    WorldParam *found = world_param(world, param->name);
    if (found && found->is_state && !param->is_state) { // a copy of it was seen first
        found->is_state = false;
        found->gradient = ARENA_ARRAY(world->arena, float, found->n);
    }
    if (found) return found;
    found = ARENA_PUSH(world->arena, world->params, world->n_params, world->cap_params);
    int64_t n = plan_whole_numbers(param);
    *found = (WorldParam){ .name = arena_strdup(world->arena, param->name),
                           .is_state = param->is_state,
                           .n = n,
                           .weights = ARENA_ARRAY(world->arena, float, n),
                           .seen = ARENA_ARRAY(world->arena, uint8_t, n) };
    if (!param->is_state) found->gradient = ARENA_ARRAY(world->arena, float, n);
    return found;
}

// This rank's part of every parameter, from where masters or summed gradients lie.
static void take_params(const Rank *r, Exec *exec, bool gradients) {
    const Plan *plan = r->plan;
    static const Region from_device[] = { REGION_grads, REGION_weights, REGION_master };
    for (int i = gradients ? 0 : 1; i < (gradients ? 1 : 3); i++) exec_download(exec, from_device[i]);
    pthread_mutex_lock(r->lock);
    for (uint32_t i = 0; i < plan->n_params; i++) {
        const PlanParam *param = &plan->params[i];
        WorldParam *to = find_param(r->world, param);
        const PlanBucket *bucket = plan_bucket(plan, param);
        PlanPart part = plan_part(plan, param, bucket ? comm_member(r->comm, (PlanGroup)bucket->group) : 0);
        if (!part.n || (gradients && param->is_state)) continue;
        Region region = gradients ? REGION_grads : bucket ? REGION_master : REGION_weights;
        const char *from = (const char *)exec_region(exec, region) + part.at;
        for (int64_t k = 0; k < part.n; k++) {
            int64_t number = plan_whole_number(param, comm_member(r->comm, GROUP_ep), part.first + k);
            (gradients ? to->gradient : to->weights)[number] = ((const float *)from)[k];
            if (!gradients) to->seen[number]++;
        }
    }
    pthread_mutex_unlock(r->lock);
}

static WorldMetric *find_metric(World *world, const PlanMetric *metric, int64_t n) {
    for (uint32_t i = 0; i < world->n_metrics; i++)
        if (!strcmp(world->metrics[i].name, metric->name)) return &world->metrics[i];
    WorldMetric *made = ARENA_PUSH(world->arena, world->metrics, world->n_metrics, world->cap_metrics);
    *made = (WorldMetric){ arena_strdup(world->arena, metric->name), n, ARENA_ARRAY(world->arena, double, n) };
    return made;
}

// Added up over ranks: the reports of each are its share.
static void take_metrics(const Rank *r, Exec *exec, const PlanProgram *step) {
    pthread_mutex_lock(r->lock);
    for (uint32_t i = 0; i < step->n_metrics; i++) {
        int64_t n;
        const float *values = exec_metric(exec, step, i, &n);
        WorldMetric *to = find_metric(r->world, &step->metrics[i], n);
        for (int64_t k = 0; k < n; k++) to->values[k] += values[k];
    }
    pthread_mutex_unlock(r->lock);
}

static double losses_of(Exec *exec, const PlanProgram *step) {
    double sum = 0;
    for (uint32_t i = 0; i < step->n_metrics; i++)
        if (step->metrics[i].weight != 0) sum += step->metrics[i].weight * exec_metric(exec, step, i, NULL)[0];
    return sum;
}

// What the routes record: the sum of the metrics of that name.
static double sum_metrics(Exec *exec, const PlanProgram *step, const char *name) {
    double sum = 0;
    for (uint32_t i = 0; i < step->n_metrics; i++) {
        const char *last = strrchr(step->metrics[i].name, '.');
        int64_t n;
        const float *values = exec_metric(exec, step, i, &n);
        for (int64_t k = 0; last && !strcmp(last + 1, name) && k < n; k++) sum += values[k];
    }
    return sum;
}

static Status run_eval(const Rank *r, Exec *exec) {
    const PlanProgram *eval = plan_program(r->plan, "eval");
    TRY(exec_run(exec, eval, fill, (void *)r));
    pthread_mutex_lock(r->lock);
    r->world->eval += losses_of(exec, eval);
    pthread_mutex_unlock(r->lock);
    return OK;
}

static Status run_steps(Rank *r, Exec *exec) {
    const PlanProgram *step = plan_program(r->plan, "step");
    TRY(exec_init(exec, SEED));
    PlanTraffic before = exec_moved(exec);
    for (r->step = 0; r->step < r->job->steps; r->step++) {
        set_scalars(r, exec_scalars(exec));
        TRY(exec_run(exec, step, fill, r));
        r->losses[r->step] = losses_of(exec, step);
        r->served[r->step] = sum_metrics(exec, step, "load");
        r->dropped[r->step] = sum_metrics(exec, step, "dropped");
        if (r->comm->rank == 0) r->world->norms[r->step] = exec_scalars(exec)[SCALAR_grad_norm];
        if (r->step == 0) take_params(r, exec, true);
    }
    take_params(r, exec, false);
    take_metrics(r, exec, step);
    WorldRank *to = &r->world->ranks[r->comm->rank];
    to->skipped = exec_scalars(exec)[SCALAR_skipped];
    to->grad_norm = exec_scalars(exec)[SCALAR_grad_norm];
    to->moved = exec_moved(exec);
    if (r->job->eval) TRY(run_eval(r, exec));
    for (int i = 0; i < N_MOVES * N_LINKS; i++) (&to->moved.bytes[0][0])[i] -= (&before.bytes[0][0])[i];
    for (int region = 0; region < N_REGIONS; region++)
        if (r->plan->region_bytes[region]) to->touched[region] = exec_touched(exec, (Region)region);
    return OK;
}

static void run_rank(Rank *r) {
    Exec *exec = NULL;
    ExecOptions options = { .threads = 1, .comm = r->comm, .poison = r->job->poison, .small_pages = true, .device = r->job->device,
                            .count_rows = r->job->count_rows };
    Status status = exec_create(r->plan, &options, &exec);
    if (status == OK) status = run_steps(r, exec);
    if (status != OK) snprintf(r->message, sizeof r->message, "rank %d: %s", r->comm->rank, status_message());
    exec_destroy(exec);
}

static void *run_thread(void *user) {
    Rank *r = user;
    run_rank(r);
    comm_close(r->comm);
    return NULL;
}

/* The world ------------------------------------------------------------------------------------ */

static Model *load_model(const WorldJob *job) {
    char path[512];
    Text error = { 0 };
    SpecOptions options = { .args = job->args, .n_args = job->n_args, .routing = job->routing };
    bool of_models = strchr(job->spec, '/') != NULL;
    snprintf(path, sizeof path, "%s/%s%s", MOEC_SOURCE_DIR, of_models ? "" : "tests/layouts/specs/", job->spec);
    Model *model = spec_load(path, &options, &error);
    if (!model) fail_msg("%s", text_cstr(&error));
    text_finish(&error);
    return model;
}

static Plan *make_plan(const WorldJob *job, const Layout *layout, int stage) {
    LowerOptions options = { .microbatch = job->microbatch,
                             .microbatches = job->microbatches,
                             .programs = { [PROGRAM_STEP] = true, [PROGRAM_EVAL] = job->eval },
                             .precision = job->precision,
                             .bucket = job->bucket,
                             .whole_blocks = job->whole_blocks,
                             .piece = job->piece,
                             .layout = layout,
                             .stage = stage };
    Arena *arena = arena_create();
    if (job->device && exec_target(job->device, arena, &options.target) != OK) fail_msg("%s", status_message());
    Model *model = load_model(job);
    Plan *plan = lower_model(model, &options);
    if (!plan) fail_msg("%s: %s", job->spec, model->diag.message);
    model_destroy(model);
    arena_destroy(arena);
    return plan;
}

Plan *world_plan(const WorldJob *job, int stage) {
    Layout layout = job->layout.pp ? job->layout : layout_single();
    return make_plan(job, &layout, stage);
}

static Rank make_rank(World *world, const WorldJob *job, const Layout *layout, Comm *comm, pthread_mutex_t *lock) {
    return (Rank){ .job = job,
                   .layout = layout,
                   .plan = world->plans[comm->rank / layout->dp],
                   .comm = comm,
                   .world = world,
                   .lock = lock,
                   .losses = ARENA_ARRAY(world->arena, double, job->steps),
                   .served = ARENA_ARRAY(world->arena, double, job->steps),
                   .dropped = ARENA_ARRAY(world->arena, double, job->steps) };
}

static void run_ranks(World *world, const WorldJob *job, const Layout *layout) {
    Comm **comms = ARENA_ARRAY(world->arena, Comm *, world->n_ranks);
    Rank *ranks = ARENA_ARRAY(world->arena, Rank, world->n_ranks);
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    comm_local_nodes(world->n_ranks, job->node_ranks, DEADLINE, comms);
    for (int i = 0; i < world->n_ranks; i++) {
        ranks[i] = make_rank(world, job, layout, comms[i], &lock);
        assert_int_equal(pthread_create(&ranks[i].thread, NULL, run_thread, &ranks[i]), 0);
    }
    for (int i = 0; i < world->n_ranks; i++) pthread_join(ranks[i].thread, NULL);
    for (int i = 0; i < world->n_ranks; i++) {
        if (ranks[i].message[0]) fail_msg("%s", ranks[i].message);
        for (int s = 0; s < job->steps; s++) {
            world->losses[s] += ranks[i].losses[s];
            world->served[s] += ranks[i].served[s];
            world->dropped[s] += ranks[i].dropped[s];
        }
    }
}

/* Ranks that are processes: each gathers what the others have ---------------------------------- */

// [ranks][bytes]; the caller frees it.
static void *gathered(Comm *comm, const void *own, int64_t bytes) {
    void *all = memory_alloc((size_t)(comm->n_ranks * bytes));
    if (comm->api->gather(comm, GROUP_world, own, all, bytes) != OK) fail_msg("%s", status_message());
    return all;
}

static void sum_steps(const Rank *r, const double *own, double *sums) {
    int steps = r->job->steps;
    double *all = gathered(r->comm, own, steps * (int64_t)sizeof *own);
    for (int i = 0; i < r->comm->n_ranks; i++)
        for (int s = 0; s < steps; s++) sums[s] += all[i * steps + s];
    memory_free(all);
}

static void join_numbers(Comm *comm, const uint8_t *seen, int64_t n, float *numbers) {
    float *all = gathered(comm, numbers, n * (int64_t)sizeof *numbers);
    for (int i = 0; i < comm->n_ranks; i++)
        for (int64_t k = 0; k < n; k++)
            if (seen[i * n + k]) numbers[k] = all[i * n + k];
    memory_free(all);
}

static void join_param(Comm *comm, WorldParam *param) {
    uint8_t *seen = gathered(comm, param->seen, param->n);
    if (param->gradient) join_numbers(comm, seen, param->n, param->gradient);
    join_numbers(comm, seen, param->n, param->weights);
    memset(param->seen, 0, (size_t)param->n);
    for (int i = 0; i < comm->n_ranks; i++)
        for (int64_t k = 0; k < param->n; k++) param->seen[k] += seen[i * param->n + k];
    memory_free(seen);
}

static void run_process(World *world, const WorldJob *job, const Layout *layout) {
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    for (int stage = 0; stage < world->n_stages; stage++) // all ranks know all, in one order
        for (uint32_t i = 0; i < world->plans[stage]->n_params; i++)
            find_param(world, &world->plans[stage]->params[i]);
    Rank rank = make_rank(world, job, layout, job->comm, &lock);
    run_rank(&rank);
    if (rank.message[0]) {
        comm_fail(job->comm, rank.message);
        fail_msg("%s", rank.message);
    }
    sum_steps(&rank, rank.losses, world->losses);
    sum_steps(&rank, rank.served, world->served);
    sum_steps(&rank, rank.dropped, world->dropped);
    for (uint32_t i = 0; i < world->n_params; i++) join_param(job->comm, &world->params[i]);
}

World *world_run(const WorldJob *job) {
    Layout layout = job->layout.pp ? job->layout : layout_single();
    Arena *arena = arena_create();
    World *world = ARENA_NEW(arena, World);
    world->arena = arena;
    world->n_stages = layout.pp;
    world->n_ranks = layout_ranks(&layout);
    world->steps = job->steps;
    world->plans = ARENA_ARRAY(arena, Plan *, world->n_stages);
    world->ranks = ARENA_ARRAY(arena, WorldRank, world->n_ranks);
    world->losses = ARENA_ARRAY(arena, double, job->steps);
    world->norms = ARENA_ARRAY(arena, double, job->steps);
    world->served = ARENA_ARRAY(arena, double, job->steps);
    world->dropped = ARENA_ARRAY(arena, double, job->steps);
    for (int stage = 0; stage < world->n_stages; stage++) world->plans[stage] = make_plan(job, &layout, stage);
    if (plan_check_stages((const Plan *const *)world->plans, world->n_stages) != OK) fail_msg("%s", status_message());
    if (job->comm) run_process(world, job, &layout);
    else run_ranks(world, job, &layout);
    return world;
}

void world_free(World *world) {
    if (!world) return;
    for (int i = 0; i < world->n_stages; i++) plan_destroy(world->plans[i]);
    arena_destroy(world->arena);
}

WorldParam *world_param(const World *world, const char *name) {
    for (uint32_t i = 0; i < world->n_params; i++)
        if (!strcmp(world->params[i].name, name)) return &world->params[i];
    return NULL;
}

/* Comparisons ---------------------------------------------------------------------------------- */

static double difference(const float *a, const float *b, int64_t n) {
    double apart = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        apart += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        size += (double)b[i] * b[i];
    }
    return apart == 0 ? 0 : sqrt(apart / size); // NaN stays one
}

static double largest(const World *a, const World *b, bool gradients, const char **where) {
    double worst = 0;
    assert_int_equal(a->n_params, b->n_params);
    for (uint32_t i = 0; i < b->n_params; i++) {
        const WorldParam *y = &b->params[i], *x = world_param(a, y->name);
        if (!x) fail_msg("no parameter %s", y->name);
        assert_int_equal(x->n, y->n);
        if (gradients && y->is_state) continue;
        double error = gradients ? difference(x->gradient, y->gradient, y->n)
                                 : difference(x->weights, y->weights, y->n);
        if (error <= worst) continue;
        worst = error;
        *where = y->name;
        if (isnan(error)) break;
    }
    return worst;
}

double world_gradient_error(const World *a, const World *b, const char **where) {
    return largest(a, b, true, where);
}

double world_weight_error(const World *a, const World *b, const char **where) {
    return largest(a, b, false, where);
}

double world_metric_error(const World *a, const World *b, const char **where) {
    double worst = 0;
    assert_int_equal(a->n_metrics, b->n_metrics);
    for (uint32_t i = 0; i < b->n_metrics; i++) {
        const WorldMetric *y = &b->metrics[i], *x = a->metrics;
        while (x < a->metrics + a->n_metrics && strcmp(x->name, y->name)) x++;
        if (x == a->metrics + a->n_metrics) fail_msg("no metric %s", y->name);
        double apart = 0, size = 0;
        for (int64_t k = 0; k < y->n; k++) {
            apart = fmax(apart, fabs(x->values[k] - y->values[k]));
            size = fmax(size, fabs(y->values[k]));
        }
        if (apart <= worst * size) continue;
        worst = apart / size;
        *where = y->name;
    }
    return worst;
}

double world_loss_error(const World *a, const World *b) {
    double worst = 0;
    assert_int_equal(a->steps, b->steps);
    for (int i = 0; i < a->steps; i++) {
        double apart = fabs(a->losses[i] - b->losses[i]), error = apart == 0 ? 0 : apart / fabs(b->losses[i]);
        if (!(error <= worst)) worst = error;
    }
    return worst;
}

void world_equal_bits(const World *a, const World *b) {
    assert_int_equal(a->n_params, b->n_params);
    assert_memory_equal(a->losses, b->losses, sizeof *a->losses * (size_t)a->steps);
    for (uint32_t i = 0; i < a->n_params; i++) {
        const WorldParam *x = &a->params[i], *y = world_param(b, x->name);
        assert_non_null(y);
        assert_memory_equal(x->weights, y->weights, (size_t)x->n * sizeof *x->weights);
        if (x->gradient) assert_memory_equal(x->gradient, y->gradient, (size_t)x->n * sizeof *x->gradient);
    }
}

/* Files ---------------------------------------------------------------------------------------- */

typedef struct FileHead { int32_t steps; uint32_t n_params; } FileHead;
typedef struct FileParam { int64_t n; char name[128]; bool is_state; } FileParam;

static void put(FILE *file, const void *from, size_t bytes) {
    if (bytes && fwrite(from, bytes, 1, file) != 1) fail_msg("cannot write");
}

static void get(FILE *file, void *to, size_t bytes) {
    if (bytes && fread(to, bytes, 1, file) != 1) fail_msg("cannot read");
}

void world_save(const World *world, const char *path) {
    FILE *file = fopen(path, "wb");
    if (!file) fail_msg("cannot write %s", path);
    size_t steps = (size_t)world->steps * sizeof(double);
    put(file, &(FileHead){ world->steps, world->n_params }, sizeof(FileHead));
    put(file, world->losses, steps);
    put(file, world->norms, steps);
    for (uint32_t i = 0; i < world->n_params; i++) {
        const WorldParam *param = &world->params[i];
        FileParam head = { .n = param->n, .is_state = param->is_state };
        snprintf(head.name, sizeof head.name, "%s", param->name);
        put(file, &head, sizeof head);
        if (param->gradient) put(file, param->gradient, (size_t)param->n * sizeof *param->gradient);
    }
    if (fclose(file) != 0) fail_msg("cannot write %s", path);
}

World *world_read(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) fail_msg("cannot read %s", path);
    Arena *arena = arena_create();
    World *world = ARENA_NEW(arena, World);
    FileHead head;
    get(file, &head, sizeof head);
    world->arena = arena;
    world->steps = head.steps;
    world->losses = ARENA_ARRAY(arena, double, head.steps);
    world->norms = ARENA_ARRAY(arena, double, head.steps);
    get(file, world->losses, (size_t)head.steps * sizeof(double));
    get(file, world->norms, (size_t)head.steps * sizeof(double));
    for (uint32_t i = 0; i < head.n_params; i++) {
        FileParam of;
        get(file, &of, sizeof of);
        WorldParam *param = ARENA_PUSH(arena, world->params, world->n_params, world->cap_params);
        *param = (WorldParam){ .name = arena_strdup(arena, of.name), .is_state = of.is_state, .n = of.n };
        if (of.is_state) continue;
        param->gradient = ARENA_ARRAY(arena, float, of.n);
        get(file, param->gradient, (size_t)of.n * sizeof *param->gradient);
    }
    fclose(file);
    return world;
}

/* Jobs ------------------------------------------------------------------------------------------ */

WorldJob world_experts(const WorldExperts *of) {
    static int32_t owners[8 * 8]; // of every layer
    WorldJob job = { .spec = of->spec ? of->spec : "experts.lua", .microbatch = of->microbatch, .microbatches = 2,
                     .clip = 0.5, .lr = 3e-3, .decay = 0.1, .poison = true, .layout = layout_single() };
    const char *const set[][2] = { { "mode", of->mode }, { "count", of->count }, { "top_k", of->top_k },
                                   { "sequence", of->sequence }, { "bias", of->bias } };
    for (int i = 0; i < COUNT_OF(set) && !of->spec; i++)
        if (set[i][1]) job.args[job.n_args++] = (SpecArg){ set[i][0], set[i][1] };
    job.precision = of->bf16 ? PRECISION_BF16 : PRECISION_OPEN;
    if (of->bf16) job.args[job.n_args++] = (SpecArg){ "width", "70" }; // rows that lie in bf16
    job.layout.dp = of->dp;
    job.layout.ep = of->ep;
    job.layout.recompute = of->recompute;
    if (of->pp) {
        bool chunks = of->schedule == SCHEDULE_INTERLEAVED;
        job.args[job.n_args++] = (SpecArg){ "layers", chunks ? "4" : "2" };
        job.layout.pp = of->pp;
        job.layout.schedule = of->schedule;
        job.layout.chunks = chunks ? 2 : 1;
        job.microbatches = chunks ? 4 : 3;
    }
    if (!of->turned) return job;
    int32_t experts = atoi(of->count);
    for (int32_t i = 0; i < COUNT_OF(owners); i++) owners[i] = (i * 3 + i / experts + 1) % of->ep;
    job.layout.placement = owners;
    job.layout.experts = experts;
    return job;
}
