// SPDX-License-Identifier: Apache-2.0
// Devices, their host threads, and launches.
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "runtime/vgpu/schedule.h"

// Helper threads sleep between launches; the caller of vg_run is worker 0.
typedef struct VgPool VgPool;
struct VgPool {
    pthread_mutex_t lock, launch_lock;
    pthread_cond_t work, idle;
    pthread_t *threads;
    int n_threads, n_busy;
    uint64_t launch;       // rises when there is work
    VgWorker *workers;     // one per thread, [0] the caller
    int n_workers;         // of this launch, 0 between two: a helper that starts late has none of it
    bool stop;
};

// Of the 1 KiB that is kept per block, cooperative groups use this much: barriers and a slot per
// warp for tiles of more than 32 threads.
enum { RESERVED_SHARED = 288 };

static const VgSm sms[] = {
    { 80, 164, 163, 2048, 32 },  { 86, 100, 99, 1536, 16 },   { 87, 164, 163, 1536, 16 },
    { 89, 100, 99, 1536, 24 },   { 90, 228, 227, 2048, 32 },  { 100, 228, 227, 2048, 32 },
    { 103, 228, 227, 2048, 32 }, { 110, 228, 227, 1536, 24 }, { 120, 100, 99, 1536, 24 },
    { 121, 100, 99, 1536, 24 },
};

static void *helper(void *data) {
    VgPool *pool = ((void **)data)[0];
    int index = (int)(intptr_t)((void **)data)[1];
    free(data);
    uint64_t seen = 0;
    pthread_mutex_lock(&pool->lock);
    while (!pool->stop) {
        if (pool->launch == seen || index >= pool->n_workers) {
            seen = pool->launch;
            pthread_cond_wait(&pool->work, &pool->lock);
            continue;
        }
        seen = pool->launch;
        pthread_mutex_unlock(&pool->lock);
        vg_worker_run(&pool->workers[index]);
        pthread_mutex_lock(&pool->lock);
        if (--pool->n_busy == 0) pthread_cond_signal(&pool->idle);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

static Status pool_create(VgDevice *d) {
    VgPool *pool = calloc(1, sizeof *pool);
    if (!pool) return status_fail(ERR_MEMORY, "no memory for a device");
    d->pool = pool;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_mutex_init(&pool->launch_lock, NULL);
    pthread_cond_init(&pool->work, NULL);
    pthread_cond_init(&pool->idle, NULL);
    pool->threads = calloc((size_t)d->threads, sizeof *pool->threads);
    pool->workers = calloc((size_t)d->threads, sizeof *pool->workers);
    if (!pool->threads || !pool->workers) return status_fail(ERR_MEMORY, "no memory for a device");
    for (int k = 1; k < d->threads; k++) {
        void **data = calloc(2, sizeof *data);
        if (!data) return status_fail(ERR_MEMORY, "no memory for a device");
        data[0] = pool;
        data[1] = (void *)(intptr_t)k;
        if (pthread_create(&pool->threads[k], NULL, helper, data)) {
            free(data);
            return status_fail(ERR_MEMORY, "cannot start host thread %d of the virtual GPU", k);
        }
        pool->n_threads = k;
    }
    return OK;
}

static void pool_destroy(VgPool *pool) {
    if (!pool) return;
    pthread_mutex_lock(&pool->lock);
    pool->stop = true;
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock);
    for (int k = 1; k <= pool->n_threads; k++) pthread_join(pool->threads[k], NULL);
    free(pool->threads);
    free(pool->workers);
    pthread_mutex_destroy(&pool->lock);
    pthread_mutex_destroy(&pool->launch_lock);
    pthread_cond_destroy(&pool->work);
    pthread_cond_destroy(&pool->idle);
    free(pool);
}

/* devices ------------------------------------------------------------------------------------- */

static Status parse_arch(const char *arch, VgDevice *d) {
    static const char *const known[] = { "sm_80",  "sm_86",   "sm_87",  "sm_89",
                                         "sm_90",  "sm_90a",  "sm_100", "sm_100a",
                                         "sm_103", "sm_103a", "sm_110", "sm_110a",
                                         "sm_120", "sm_120a", "sm_121", "sm_121a" };
    for (int k = 0; k < COUNT_OF(known); k++)
        if (!strcmp(arch, known[k])) {
            strcpy(d->arch, arch);
            d->cc = atoi(arch + 3);
            return OK;
        }
    const char *near = text_nearest(arch, known, COUNT_OF(known));
    return status_fail(ERR_ARGUMENT, "unknown architecture '%s' of the virtual GPU\n  hint: %s%s",
                       arch,
                       near ? "did you mean " : "sm_80, sm_89, sm_90a, sm_100a, sm_120a are known",
                       near ? near : "");
}

Status vg_device_create(const char *arch, int threads, VgDevice **device) {
    *device = NULL;
    VgDevice *d = calloc(1, sizeof *d);
    if (!d) return status_fail(ERR_MEMORY, "no memory for a device");
    Status status;
    TRY_GOTO(parse_arch(arch, d), failed);
    if (threads <= 0) {
        cpu_set_t set;
        threads = sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
    }
    d->threads = threads > 256 ? 256 : threads;
    d->sm_count = 4;
    d->quantum = 2000;
    d->stack_limit = 1024;
    if (!(d->reports = vg_reports_create())) {
        status = status_fail(ERR_MEMORY, "no memory for a device");
        goto failed;
    }
    TRY_GOTO(vg_memory_create(NULL, &d->memory), failed);
    TRY_GOTO(pool_create(d), failed);
    *device = d;
    return OK;
failed:
    vg_device_destroy(d);
    return status;
}

void vg_device_destroy(VgDevice *d) {
    if (!d) return;
    pool_destroy(d->pool);
    while (d->modules) vg_module_unload(d->modules);
    if (d->memory) vg_memory_destroy(d->memory);
    if (d->reports) vg_reports_destroy(d->reports);
    free(d);
}

int vg_device_cc(const VgDevice *d) { return d->cc; }
int vg_device_sm_count(const VgDevice *d) { return d->sm_count; }
const VgSm *vg_device_sm(const VgDevice *d) {
    for (int i = 0; i < COUNT_OF(sms); i++)
        if (sms[i].cc == d->cc) return &sms[i];
    return &sms[0];
}
VgReports *vg_device_reports(VgDevice *d) { return d->reports; }
VgMemory *vg_device_memory(VgDevice *d) { return d->memory; }
const VgRunStats *vg_run_stats(const VgDevice *d) { return &d->stats; }
void vg_device_schedule(VgDevice *d, uint32_t quantum, uint64_t seed) {
    d->quantum = quantum ? quantum : 1;
    d->seed = seed;
}

int vg_occupancy(const VgDevice *d, const VgKernel *kernel, uint32_t threads,
                 uint32_t dynamic_shared) {
    const VgSm *sm = vg_device_sm(d);
    uint64_t shared = (uint64_t)kernel->info.static_shared + dynamic_shared;
    if (!threads || threads > kernel->info.max_threads || shared > sm->optin << 10) return 0;
    uint32_t blocks = sm->blocks, warps = (threads + 31) / 32;
    uint32_t by_threads = sm->threads / (warps * 32);
    if (by_threads < blocks) blocks = by_threads;
    // The system takes 1 KiB of each block.
    uint64_t by_shared = ((uint64_t)sm->shared << 10) / (shared + 1024);
    if (by_shared < blocks) blocks = (uint32_t)by_shared;
    return blocks ? (int)blocks : 1;
}

/* launches ------------------------------------------------------------------------------------ */

static Status grid_init(VgDevice *d, const VgLaunch *launch, VgGrid *g) {
    const VgKernel *kernel = launch->kernel;
    const VgKernelInfo *info = &kernel->info;
    *g = (VgGrid){ .device = d, .launch = launch, .kernel = kernel, .func = kernel->func,
                   .params = launch->params, .id = ++d->launches };
    uint64_t n_ctas = 1, threads = 1;
    g->ctas_per_cluster = 1;
    for (int k = 0; k < 3; k++) {
        g->grid[k] = launch->grid[k];
        g->block[k] = launch->block[k];
        g->cluster[k] = launch->cluster[k] ? launch->cluster[k]
                        : info->cluster[k] ? info->cluster[k]
                                           : 1;
        if (!g->grid[k] || !g->block[k])
            return status_fail(ERR_ARGUMENT, "a dimension of the launch is 0");
        if (g->grid[k] % g->cluster[k])
            return status_fail(ERR_ARGUMENT, "grid %u is no multiple of the cluster's %u",
                               g->grid[k], g->cluster[k]);
        if (info->reqntid[k] && g->block[k] != info->reqntid[k])
            return status_fail(ERR_ARGUMENT, "blocks of %u threads, the kernel requires %u",
                               g->block[k], info->reqntid[k]);
        n_ctas *= g->grid[k];
        threads *= g->block[k];
        g->ctas_per_cluster *= g->cluster[k];
    }
    if (threads > info->max_threads)
        return status_fail(ERR_ARGUMENT, "%llu threads in a block, the kernel allows %u",
                           (unsigned long long)threads, info->max_threads);
    g->threads = (uint32_t)threads;
    g->warps_per_cta = (g->threads + 31) / 32;
    g->n_ctas = n_ctas;
    g->n_clusters = n_ctas / g->ctas_per_cluster;
    g->dynamic_at = (uint32_t)round_up(info->static_shared, kernel->dynamic_align);
    g->reserved_at = g->shared_end = g->dynamic_at + launch->dynamic_shared;
    if (kernel->reserved) {
        g->reserved_at = (uint32_t)round_up(g->reserved_at, 128);
        g->shared_end = g->reserved_at + RESERVED_SHARED;
    }
    int per_sm = vg_occupancy(d, kernel, g->threads, launch->dynamic_shared);
    if (!per_sm)
        return status_fail(ERR_ARGUMENT,
                           "a block of %u threads with %u bytes of shared memory does not fit",
                           g->threads, info->static_shared + launch->dynamic_shared);
    uint64_t resident = (uint64_t)per_sm * (uint64_t)d->sm_count;
    if (launch->cooperative && n_ctas > resident)
        return status_fail(ERR_ARGUMENT,
                           "a cooperative launch of %llu blocks, %llu are resident at once",
                           (unsigned long long)n_ctas, (unsigned long long)resident);
    g->resident_limit = resident / g->ctas_per_cluster;
    if (g->resident_limit < 1) g->resident_limit = 1;
    return OK;
}

static Status workers_begin(VgDevice *d, VgGrid *g) {
    VgPool *pool = d->pool;
    int n = g->n_clusters < (uint64_t)d->threads ? (int)g->n_clusters : d->threads;
    for (int k = 0; k < n; k++) {
        pool->workers[k] = (VgWorker){ .grid = g, .index = (uint32_t)k,
                                       .random = hash_mix(d->seed, g->id, (uint64_t)k) };
        g->n_workers = k + 1;
        TRY(vg_mem_thread_begin(g->memory, &pool->workers[k].memory));
    }
    g->workers = pool->workers;
    return OK;
}

static void run_all(VgDevice *d, int n_workers) {
    VgPool *pool = d->pool;
    pthread_mutex_lock(&pool->lock);
    pool->n_workers = n_workers;
    pool->n_busy = n_workers - 1;
    pool->launch++;
    if (pool->n_busy) pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock);
    vg_worker_run(&pool->workers[0]);
    pthread_mutex_lock(&pool->lock);
    while (pool->n_busy) pthread_cond_wait(&pool->idle, &pool->lock);
    pool->n_workers = 0;
    pthread_mutex_unlock(&pool->lock);
}

static void workers_end(VgDevice *d, int n) {
    for (int k = 0; k < n; k++) {
        VgWorker *w = &d->pool->workers[k];
        d->stats.warp_instrs += w->warp_instrs;
        d->stats.thread_instrs += w->thread_instrs;
        VgCluster *lists[2] = { w->resident, w->spare };
        for (int l = 0; l < 2; l++)
            for (VgCluster *c = lists[l], *next; c; c = next) {
                next = c->next;
                vg_cluster_destroy(c);
            }
        if (w->memory) vg_mem_thread_end(w->memory);
    }
}

// Cooperative groups find their grid barrier here: the workspace's size, then the barrier's
// counter.
static Status workspace_begin(VgDevice *d, VgGrid *g) {
    uint32_t words[64] = { sizeof words };
    if (!g->launch->cooperative) return OK;
    TRY(vg_mem_alloc(d->memory, VG_GLOBAL, sizeof words, 16, "cooperative launch", &g->workspace));
    return vg_mem_write(d->memory, g->workspace, words, sizeof words);
}

static VgFault run_grid(VgDevice *d, VgGrid *g) {
    const VgKernelInfo *info = &g->kernel->info;
    VgLaunchShape shape = {
        .n_ctas = (uint32_t)g->n_ctas,
        .cluster_ctas = g->ctas_per_cluster,
        .cta_threads = g->threads,
        .shared_bytes = g->shared_end,
        .reserved_bytes = g->shared_end - g->reserved_at,
        .local_bytes = info->local_bytes,
        .params = g->params,
        .param_bytes = info->param_bytes,
        .shared_base = d->cc >= 90 ? 0x400 : 0,
        .ranked = d->cc >= 90,
    };
    Status status = workspace_begin(d, g);
    if (status == OK) status = vg_launch_begin(d->memory, &shape, &g->memory);
    if (status != OK) {
        vg_fault_grid(g, VG_NO_MEMORY, status_message());
        return VG_NO_MEMORY;
    }
    d->stats = (VgRunStats){ .blocks = g->n_ctas };
    double start = vg_now();
    status = workers_begin(d, g);
    int n = g->n_workers;
    if (status == OK) run_all(d, n);
    else vg_fault_grid(g, VG_NO_MEMORY, status_message());
    workers_end(d, n);
    d->stats.seconds = vg_now() - start;
    d->stats.forgotten = vg_launch_forgotten(g->memory);
    vg_launch_end(g->memory);
    if (g->workspace) (void)vg_mem_free(d->memory, g->workspace);
    return (VgFault)atomic_load(&g->fault);
}

VgFault vg_run(VgDevice *d, const VgLaunch *launch) {
    VgGrid *g = calloc(1, sizeof *g);
    if (!g) return VG_NO_MEMORY;
    pthread_mutex_lock(&d->pool->launch_lock);
    VgFault fault;
    Status status = grid_init(d, launch, g);
    if (status != OK) {
        vg_fault_grid(g, VG_LAUNCH, status_message());
        fault = VG_LAUNCH;
    } else {
        fault = run_grid(d, g);
    }
    pthread_mutex_unlock(&d->pool->launch_lock);
    free(g);
    return fault;
}
