// SPDX-License-Identifier: Apache-2.0
// GPUs through the CUDA driver, real ones and the virtual one: one context, one stream, in whose
// order everything happens. Parameters of a kernel are pointers only, so the array of addresses
// that exec holds is the parameter buffer (checked against the compiled kernel when it is loaded)
// and a launch copies nothing. A real GPU gets machine code, the virtual one PTX, also where its
// library stands in for the driver's (--device cuda with libmoec-vgpu.so as libcuda.so.1): machine code
// is made then too, so that all but its execution is as on a real GPU.
#include "runtime/device/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/device/driver.h"
#include "runtime/jit/jit.h"

enum { TIMED = 256 /* launches between two waits */, LOG_BYTES = 8192, USUAL_SHARED = 48 << 10 };

typedef struct Timed {
    CUevent from, to;
    double *seconds;
} Timed;

typedef struct Stamp {
    CUevent event;
    double *at;
} Stamp;

typedef struct Cuda {
    Device base;
    const Driver *driver;
    bool is_virtual; // asked for by the name of an architecture
    bool takes_ptx;  // the library is the virtual GPU's
    CUdevice id;
    bool retained;
    CUcontext context;
    CUstream stream;
    char name[128], target[32];
    int64_t memory;
    int units, sm;    // sm: 90 of sm_90
    int block_shared; // bytes of shared memory that a block may have
    int graph_nodes;
    int n_reports; // of the virtual GPU, known so far
    CUmodule *modules; // per source of the plan, NULL: none
    uint32_t n_modules;
    Timed *timed; // TIMED of them, made by the first timed launch
    int n_timed;
    Stamp *stamps; // [0] is the zero of the others: `zero` on the host's clock
    int64_t n_stamps, cap_stamps;
    double zero;
    DeviceLane *lanes;
    DeviceMark *marks;
} Cuda;

struct DeviceLane {
    DeviceLane *next;
    CUstream stream;
};

struct DeviceMark {
    DeviceMark *next;
    CUevent event;
};

struct DeviceGraph {
    CUgraphExec exec;
};

// Calls a function of the driver; fails with `what` if it does.
#define DRIVE(cuda, what, call)                                                                    \
    do {                                                                                           \
        CUresult result_ = (cuda)->driver->call;                                                   \
        if (result_ != 0) return driver_fail_with((cuda)->driver, result_, (what));                \
    } while (0)

static CUdeviceptr at_device(const void *at) {
    return (CUdeviceptr)(uintptr_t)at;
}

// A context is current per thread, and a process may hold several devices.
static Status enter(const Cuda *cuda) {
    DRIVE(cuda, "cannot use the GPU", context_set(cuda->context));
    return OK;
}

/* Memory -------------------------------------------------------------------------------------- */

static Status out_of_memory(const Cuda *cuda, int64_t bytes, const char *what) {
    size_t unused = 0, total = 0;
    if (cuda->driver->mem_info(&unused, &total) != 0) unused = 0;
    return status_fail(ERR_MEMORY,
                       "%s needs %.2f GiB of the GPU's memory, and %.2f GiB are left on %s\n"
                       "  hint: use a smaller microbatch or model",
                       what, (double)bytes / 0x1p30, (double)unused / 0x1p30, cuda->name);
}

static Status cuda_alloc(Device *device, int64_t bytes, bool small_pages, const char *what,
                         void **out) {
    (void)small_pages; // a GPU backs all of an allocation
    Cuda *cuda = (Cuda *)device;
    CUdeviceptr at = 0;
    TRY(enter(cuda));
    CUresult result = cuda->driver->mem_alloc(&at, (size_t)bytes);
    if (result == CU_OUT_OF_MEMORY) return out_of_memory(cuda, bytes, what);
    if (result != 0) return driver_fail_with(cuda->driver, result, "cannot allocate on the GPU");
    *out = (void *)(uintptr_t)at;
    return OK;
}

static void cuda_release(Device *device, void *at, int64_t bytes) {
    (void)bytes;
    Cuda *cuda = (Cuda *)device;
    if (at && enter(cuda) == OK) cuda->driver->mem_free(at_device(at));
}

static Status cuda_alloc_host(Device *device, int64_t bytes, const char *what, void **out) {
    Cuda *cuda = (Cuda *)device;
    TRY(enter(cuda));
    DRIVE(cuda, what, host_alloc(out, (size_t)bytes, 0));
    memset(*out, 0, (size_t)bytes);
    return OK;
}

static void cuda_release_host(Device *device, void *at, int64_t bytes) {
    (void)bytes;
    Cuda *cuda = (Cuda *)device;
    if (at && enter(cuda) == OK) cuda->driver->host_free(at);
}

// In a handle: who made it, where the memory lies there, and what the driver needs to find it.
typedef struct Shared {
    int32_t process;
    uint64_t at;
    CUipcMemHandle driver;
} Shared;
_Static_assert(sizeof(Shared) <= sizeof(DeviceHandle), "a handle holds it");

static Status cuda_share(Device *device, const void *at, DeviceHandle *out) {
    Cuda *cuda = (Cuda *)device;
    Shared shared = { .process = getpid(), .at = at_device(at) };
    TRY(enter(cuda));
    if (!cuda->driver->ipc_get || !cuda->driver->ipc_open || !cuda->driver->ipc_close)
        return status_fail(ERR_DEVICE, "this driver has no memory that processes share");
    DRIVE(cuda, "cannot share the GPU's memory with other ranks", ipc_get(&shared.driver, shared.at));
    memcpy(out, &shared, sizeof shared);
    return OK;
}

static Status cuda_reach(Device *device, const DeviceHandle *handle, void **out) {
    Cuda *cuda = (Cuda *)device;
    Shared shared;
    memcpy(&shared, handle, sizeof shared);
    CUdeviceptr at = shared.at;
    TRY(enter(cuda));
    if (shared.process != getpid())
        DRIVE(cuda, "cannot reach another rank's memory", ipc_open(&at, shared.driver, CU_IPC_PEERS));
    *out = (void *)(uintptr_t)at;
    return OK;
}

static void cuda_leave(Device *device, const DeviceHandle *handle, void *at) {
    Cuda *cuda = (Cuda *)device;
    Shared shared;
    memcpy(&shared, handle, sizeof shared);
    if (at && shared.process != getpid() && enter(cuda) == OK) cuda->driver->ipc_close(at_device(at));
}

static int64_t cuda_resident(const Device *device, const void *at, int64_t bytes) {
    (void)device;
    return at ? bytes : 0;
}

static Status cuda_copy_in(Device *device, void *to, const void *from, int64_t bytes) {
    Cuda *cuda = (Cuda *)device;
    TRY(enter(cuda));
    DRIVE(cuda, "cannot copy to the GPU",
          copy_in(at_device(to), from, (size_t)bytes, cuda->stream));
    return OK;
}

static Status cuda_copy_out(Device *device, void *to, const void *from, int64_t bytes) {
    Cuda *cuda = (Cuda *)device;
    TRY(enter(cuda));
    DRIVE(cuda, "cannot copy from the GPU",
          copy_out(to, at_device(from), (size_t)bytes, cuda->stream));
    return OK;
}

static Status cuda_fill(Device *device, void *at, uint32_t word, int64_t bytes) {
    Cuda *cuda = (Cuda *)device;
    TRY(enter(cuda));
    DRIVE(cuda, "cannot fill the GPU's memory",
          fill(at_device(at), word, (size_t)bytes / 4, cuda->stream));
    return OK;
}

/* Kernels ------------------------------------------------------------------------------------- */

// The architecture to compile for: this GPU's, or the plan's own if it asks for all of one.
static Status choose_arch(const Cuda *cuda, const Plan *plan, char arch[16]) {
    PlanTarget target;
    if (!plan_target(plan->target, &target)) return status_fail(ERR_INTERNAL, "%s", plan->target);
    bool fits = target.letter == 'a'   ? target.sm == cuda->sm
                : target.letter == 'f' ? target.sm / 10 == cuda->sm / 10 && target.sm <= cuda->sm
                                       : target.sm <= cuda->sm;
    // A virtual GPU is an sm_90 or an sm_90a, a real one both.
    if (cuda->is_virtual && target.letter == 'a') fits = !strcmp(plan->target, cuda->target);
    if (!fits)
        return status_fail(ERR_ARGUMENT,
                           "the plan is for %s, this is %s, an %s\n"
                           "  hint: lower the spec again with --device %s%s",
                           plan->target, cuda->name, cuda->target + strlen("cuda:"),
                           cuda->is_virtual ? "vgpu:" : "cuda",
                           cuda->is_virtual ? cuda->target + strlen("cuda:") : "");
    if (target.letter) snprintf(arch, 16, "sm_%d%c", target.sm, target.letter);
    else snprintf(arch, 16, "sm_%d", cuda->sm);
    return OK;
}

// Machine code of a newer toolkit than the driver knows. Versions are 1000 major + 10 minor.
static Status too_new(const Cuda *cuda, CUresult result, Status status) {
    int version = 0, major = 0, minor = 0;
    bool of_image = result == CU_INVALID_IMAGE || result == CU_NO_BINARY || result == CU_INVALID_PTX ||
                    result == CU_PTX_TOO_NEW;
    char message[LOG_BYTES + 512];
    snprintf(message, sizeof message, "%s", status_message());
    if (!of_image || cuda->driver->version(&version) != 0 || jit_cuda_compiler(&major, &minor) != OK ||
        1000 * major + 10 * minor <= version)
        return status_fail(status, "%s", message);
    return status_fail(status,
                       "%s\n"
                       "  hint: NVRTC %d.%d made it, and this driver is of CUDA %d.%d: take a newer driver, or set "
                       "MOEC_NVRTC to the path of the libnvrtc.so of a toolkit that is not newer",
                       message, major, minor, version / 1000, version % 1000 / 10);
}

static Status load_module(Cuda *cuda, const JitImage *image, const char *name, CUmodule *out) {
    char log[LOG_BYTES] = "", what[LOG_BYTES + 256];
    bool say = !cuda->takes_ptx; // whose message has the log's text
    int options[] = { CU_JIT_ERROR_LOG, CU_JIT_ERROR_LOG_BYTES };
    void *values[] = { log, (void *)(uintptr_t)sizeof log };
    CUresult result = cuda->driver->module_load(out, cuda->takes_ptx ? image->ptx : image->cubin,
                                                COUNT_OF(options), options, values);
    if (result == 0) return OK;
    snprintf(what, sizeof what, "%s does not load kernel \"%.64s\"%s%s", cuda->name, name,
             say && log[0] ? ":\n" : "", say ? log : "");
    return too_new(cuda, result, driver_fail_with(cuda->driver, result, what));
}

// The layout as the driver has it, where the driver tells.
static Status check_params(const Cuda *cuda, const PlanKernel *kernel, CUfunction function) {
    if (!cuda->driver->function_param) return OK;
    CubinKernel found = { 0 };
    size_t offset, bytes;
    while (found.n_params < CUBIN_MOST_PARAMS &&
           cuda->driver->function_param(function, found.n_params, &offset, &bytes) == 0) {
        found.params[found.n_params].offset = (uint32_t)offset;
        found.params[found.n_params++].bytes = (uint32_t)bytes;
    }
    return cubin_check(kernel, &found);
}

static Status ready_kernel(Cuda *cuda, const PlanKernel *kernel, DeviceKernel *out) {
    CUfunction function;
    int most_threads = 0, fixed_shared = 0;
    DRIVE(cuda, kernel->entry,
          module_function(&function, cuda->modules[kernel->source], kernel->entry));
    TRY(check_params(cuda, kernel, function));
    DRIVE(cuda, kernel->entry, function_get(&most_threads, CU_FUNC_MAX_THREADS, function));
    DRIVE(cuda, kernel->entry, function_get(&fixed_shared, CU_FUNC_STATIC_SHARED, function));
    if (kernel->threads > most_threads)
        return status_fail(ERR_COMPILE,
                           "kernel \"%s\": the plan launches %d threads a block, the compiled kernel "
                           "takes up to %d",
                           kernel->entry, kernel->threads, most_threads);
    if (kernel->shared + fixed_shared > cuda->block_shared)
        return status_fail(ERR_INPUT,
                           "kernel \"%s\": the plan launches %d bytes of shared memory a block, %s, an %s, "
                           "has up to %d\n"
                           "  hint: lower the spec again for it, with --device",
                           kernel->entry, kernel->shared + fixed_shared, cuda->name,
                           cuda->target + strlen("cuda:"), cuda->block_shared);
    if (kernel->shared + fixed_shared > USUAL_SHARED)
        DRIVE(cuda, kernel->entry,
              function_set(function, CU_FUNC_MAX_DYNAMIC_SHARED, kernel->shared));
    *out = (DeviceKernel){ .function = function, .entry = kernel->entry,
                           .n_tiles = kernel->tiles, .threads = kernel->threads,
                           .shared = kernel->shared, .n_args = kernel->n_args };
    return OK;
}

static Status load_all(Cuda *cuda, const Plan *plan, DeviceProgress progress, void *user,
                       const JitShare *share, Arena *scratch, DeviceKernel *kernels) {
    char arch[16];
    JitImage *images;
    Status chosen = choose_arch(cuda, plan, arch);
    if (chosen == OK && plan_peak(plan) > cuda->memory) // known before kernels are compiled, which takes long
        chosen = out_of_memory(cuda, plan_peak(plan), "the plan");
    if (share) chosen = share->agree(share->user, chosen);
    TRY(chosen);
    int code = (cuda->takes_ptx ? JIT_PTX : 0) | (cuda->is_virtual ? 0 : JIT_CUBIN);
    TRY(jit_cuda(plan, arch, code, progress, user, share, scratch, &images));
    TRY(enter(cuda));
    cuda->modules = calloc(plan->n_sources, sizeof(CUmodule));
    if (!cuda->modules) return status_fail(ERR_MEMORY, "no memory for kernels");
    cuda->n_modules = plan->n_sources;
    for (uint32_t i = 0; i < plan->n_kernels; i++) {
        const PlanKernel *kernel = &plan->kernels[i];
        CUmodule *module = &cuda->modules[kernel->source];
        if (!*module) TRY(load_module(cuda, &images[kernel->source], kernel->entry, module));
        TRY(ready_kernel(cuda, kernel, &kernels[i]));
    }
    return OK;
}

static Status cuda_load(Device *device, const Plan *plan, DeviceProgress progress, void *user,
                        const JitShare *share, DeviceKernel *kernels) {
    Arena *scratch = arena_create();
    if (!scratch) return status_fail(ERR_MEMORY, "no memory for kernels");
    Status status = load_all((Cuda *)device, plan, progress, user, share, scratch, kernels);
    arena_destroy(scratch);
    return status;
}

/* Order --------------------------------------------------------------------------------------- */

// What the virtual GPU finds without stopping (bytes read that nobody wrote) is a failure all the
// same.
static Status check_reports(Cuda *cuda) {
    int n = cuda->driver->vgpu_reports ? cuda->driver->vgpu_reports() : 0;
    if (n <= cuda->n_reports) return OK;
    int more = n - cuda->n_reports;
    cuda->n_reports = n;
    return status_fail(ERR_DEVICE, "%s: %d finding%s, the last:\n%s", cuda->name, more,
                       more > 1 ? "s" : "", cuda->driver->vgpu_report());
}

// Waits, and books the times of what has ended.
static Status cuda_synchronize(Device *device) {
    Cuda *cuda = (Cuda *)device;
    int n = cuda->n_timed;
    int64_t n_stamps = cuda->n_stamps;
    cuda->n_timed = 0;
    cuda->n_stamps = 0;
    TRY(enter(cuda));
    DRIVE(cuda, "the GPU stopped", stream_synchronize(cuda->stream));
    for (int i = 0; i < n; i++) {
        float ms = 0;
        DRIVE(cuda, "cannot time a launch",
              event_elapsed(&ms, cuda->timed[i].from, cuda->timed[i].to));
        *cuda->timed[i].seconds += 1e-3 * (double)ms;
    }
    for (int64_t i = 1; i < n_stamps; i++) {
        float ms = 0;
        DRIVE(cuda, "cannot take a time",
              event_elapsed(&ms, cuda->stamps[0].event, cuda->stamps[i].event));
        *cuda->stamps[i].at = cuda->zero + 1e-3 * (double)ms;
    }
    return check_reports(cuda);
}

static Status make_timed(Cuda *cuda) {
    cuda->timed = calloc(TIMED, sizeof *cuda->timed);
    if (!cuda->timed) return status_fail(ERR_MEMORY, "no memory to time launches");
    for (int i = 0; i < TIMED; i++) {
        DRIVE(cuda, "cannot time launches", event_create(&cuda->timed[i].from, 0));
        DRIVE(cuda, "cannot time launches", event_create(&cuda->timed[i].to, 0));
    }
    return OK;
}

static Status launch(Cuda *cuda, const DeviceKernel *kernel, void *const *args) {
    size_t bytes = kernel->n_args * sizeof *args;
    void *extra[] = { CU_LAUNCH_PARAMS, (void *)(uintptr_t)args, CU_LAUNCH_PARAM_BYTES, &bytes,
                      CU_LAUNCH_END };
    CUresult result = cuda->driver->launch(
        kernel->function, (unsigned)kernel->n_tiles, 1, 1, (unsigned)kernel->threads, 1, 1,
        (unsigned)kernel->shared, cuda->stream, NULL, extra);
    return result == 0 ? OK : driver_fail_with(cuda->driver, result, kernel->entry);
}

static Status cuda_launch(Device *device, const DeviceKernel *kernel, void *const *args,
                          double *seconds) {
    Cuda *cuda = (Cuda *)device;
    if (!kernel->n_tiles) return OK; // no driver takes an empty grid
    if (!seconds) return launch(cuda, kernel, args);
    if (!cuda->timed) TRY(make_timed(cuda));
    if (cuda->n_timed == TIMED) TRY(cuda_synchronize(device));
    Timed *timed = &cuda->timed[cuda->n_timed];
    DRIVE(cuda, kernel->entry, event_record(timed->from, cuda->stream));
    TRY(launch(cuda, kernel, args));
    DRIVE(cuda, kernel->entry, event_record(timed->to, cuda->stream));
    timed->seconds = seconds;
    cuda->n_timed++;
    return OK;
}

static Status cuda_stamps(Device *device, int64_t n) {
    Cuda *cuda = (Cuda *)device;
    if (n < cuda->cap_stamps) return OK; // one is the zero
    Stamp *stamps = realloc(cuda->stamps, sizeof *stamps * (size_t)(n + 1));
    if (!stamps) return status_fail(ERR_MEMORY, "no memory for times");
    cuda->stamps = stamps;
    TRY(enter(cuda));
    for (; cuda->cap_stamps <= n; cuda->cap_stamps++)
        DRIVE(cuda, "cannot take times", event_create(&stamps[cuda->cap_stamps].event, 0));
    return OK;
}

// The first after a wait finds the device idle: its event is where both clocks meet.
static Status set_zero(Cuda *cuda) {
    TRY(cuda_synchronize(&cuda->base));
    TRY(cuda_stamps(&cuda->base, 1));
    DRIVE(cuda, "cannot take a time", event_record(cuda->stamps[0].event, cuda->stream));
    DRIVE(cuda, "the GPU stopped", stream_synchronize(cuda->stream));
    cuda->zero = time_seconds();
    cuda->n_stamps = 1;
    return OK;
}

static Status cuda_stamp(Device *device, double *at) {
    Cuda *cuda = (Cuda *)device;
    TRY(enter(cuda));
    if (!cuda->n_stamps) TRY(set_zero(cuda));
    if (cuda->n_stamps == cuda->cap_stamps) TRY(cuda_stamps(device, 2 * cuda->n_stamps));
    Stamp *stamp = &cuda->stamps[cuda->n_stamps++];
    stamp->at = at;
    DRIVE(cuda, "cannot take a time", event_record(stamp->event, cuda->stream));
    return OK;
}

static Status cuda_begin(Device *device) {
    Cuda *cuda = (Cuda *)device;
    TRY(enter(cuda));
    DRIVE(cuda, "cannot record a graph", capture_begin(cuda->stream, CU_CAPTURE_THREAD_LOCAL));
    return OK;
}

static Status instantiate(Cuda *cuda, CUgraph graph, DeviceGraph **out) {
    size_t n = 0;
    CUgraphExec exec;
    DRIVE(cuda, "cannot count the nodes of a graph", graph_nodes(graph, NULL, &n));
    DRIVE(cuda, "cannot make a graph", graph_instantiate(&exec, graph, 0));
    cuda->graph_nodes = (int)n;
    *out = malloc(sizeof **out);
    if (*out) {
        (*out)->exec = exec;
        return OK;
    }
    cuda->driver->graph_exec_destroy(exec);
    return status_fail(ERR_MEMORY, "no memory for a graph");
}

static Status cuda_end(Device *device, DeviceGraph **out) {
    Cuda *cuda = (Cuda *)device;
    CUgraph graph = NULL;
    *out = NULL;
    DRIVE(cuda, "cannot record a graph", capture_end(cuda->stream, &graph));
    Status status = instantiate(cuda, graph, out);
    cuda->driver->graph_destroy(graph);
    return status;
}

static Status cuda_replay(Device *device, DeviceGraph *graph) {
    Cuda *cuda = (Cuda *)device;
    TRY(enter(cuda));
    DRIVE(cuda, "cannot launch a graph", graph_launch(graph->exec, cuda->stream));
    return OK;
}

static void cuda_drop(Device *device, DeviceGraph *graph) {
    Cuda *cuda = (Cuda *)device;
    if (graph && enter(cuda) == OK) cuda->driver->graph_exec_destroy(graph->exec);
    free(graph);
}

/* Lanes --------------------------------------------------------------------------------------- */

static CUstream stream_of(const Cuda *cuda, const DeviceLane *lane) {
    return lane ? lane->stream : cuda->stream;
}

static Status cuda_stream(Device *device, const DeviceLane *lane, void **out) {
    const Cuda *cuda = (Cuda *)device;
    *out = stream_of(cuda, lane);
    return enter(cuda);
}

static Status cuda_lane(Device *device, DeviceLane **out) {
    Cuda *cuda = (Cuda *)device;
    DeviceLane *lane = calloc(1, sizeof *lane);
    if (!lane) return status_fail(ERR_MEMORY, "no memory for a stream");
    lane->next = cuda->lanes;
    *out = cuda->lanes = lane;
    TRY(enter(cuda));
    DRIVE(cuda, "cannot make a stream", stream_create(&lane->stream, CU_STREAM_NON_BLOCKING));
    return OK;
}

static Status cuda_mark(Device *device, const DeviceLane *lane, DeviceMark **mark) {
    Cuda *cuda = (Cuda *)device;
    TRY(enter(cuda));
    if (!*mark) {
        DeviceMark *made = calloc(1, sizeof *made);
        if (!made) return status_fail(ERR_MEMORY, "no memory for an event");
        made->next = cuda->marks;
        cuda->marks = made;
        DRIVE(cuda, "cannot make an event", event_create(&made->event, CU_EVENT_NO_TIMING));
        *mark = made;
    }
    DRIVE(cuda, "cannot record an event", event_record((*mark)->event, stream_of(cuda, lane)));
    return OK;
}

static Status cuda_after(Device *device, const DeviceLane *lane, const DeviceMark *mark) {
    const Cuda *cuda = (Cuda *)device;
    TRY(enter(cuda));
    DRIVE(cuda, "cannot wait for an event", stream_wait(stream_of(cuda, lane), mark->event, 0));
    return OK;
}

static Status cuda_idle(Device *device, bool *idle) {
    const Cuda *cuda = (Cuda *)device;
    TRY(enter(cuda));
    CUresult result = cuda->driver->stream_query(cuda->stream);
    *idle = result == 0;
    if (result == 0 || result == CU_NOT_READY) return OK;
    return driver_fail_with(cuda->driver, result, "the GPU stopped");
}

static void free_lanes(Cuda *cuda) {
    for (DeviceLane *lane = cuda->lanes, *next; lane; lane = next) {
        next = lane->next;
        if (lane->stream) cuda->driver->stream_destroy(lane->stream);
        free(lane);
    }
    for (DeviceMark *mark = cuda->marks, *next; mark; mark = next) {
        next = mark->next;
        if (mark->event) cuda->driver->event_destroy(mark->event);
        free(mark);
    }
}

/* Opening ------------------------------------------------------------------------------------- */

static DeviceInfo cuda_info(const Device *device) {
    const Cuda *cuda = (const Cuda *)device;
    return (DeviceInfo){ cuda->name, cuda->target, cuda->memory, cuda->units, cuda->graph_nodes };
}

static void cuda_close(Device *device) {
    Cuda *cuda = (Cuda *)device;
    if (cuda->context && enter(cuda) == OK) {
        const Driver *d = cuda->driver;
        if (cuda->stream) d->stream_synchronize(cuda->stream);
        for (int i = 0; cuda->timed && i < TIMED; i++) {
            if (cuda->timed[i].from) d->event_destroy(cuda->timed[i].from);
            if (cuda->timed[i].to) d->event_destroy(cuda->timed[i].to);
        }
        for (int64_t i = 0; i < cuda->cap_stamps; i++) d->event_destroy(cuda->stamps[i].event);
        for (uint32_t i = 0; i < cuda->n_modules; i++)
            if (cuda->modules[i]) d->module_unload(cuda->modules[i]);
        free_lanes(cuda);
        if (cuda->stream) d->stream_destroy(cuda->stream);
    }
    if (cuda->retained) cuda->driver->context_release(cuda->id);
    free(cuda->timed);
    free(cuda->stamps);
    free(cuda->modules);
    free(cuda);
}

static Status no_device(int ordinal, int n) {
    if (!n)
        return status_fail(ERR_INPUT, "the CUDA driver finds no GPU here\n"
                           "  hint: --device vgpu:sm_80 needs none; nvidia-smi shows what is there");
    return status_fail(ERR_INPUT, "expected a GPU of number 0 to %d, found cuda:%d", n - 1,
                       ordinal);
}

static Status ask_properties(Cuda *cuda) {
    int major, minor;
    size_t memory;
    DRIVE(cuda, "cannot ask the GPU", device_name(cuda->name, sizeof cuda->name, cuda->id));
    DRIVE(cuda, "cannot ask the GPU", device_memory(&memory, cuda->id));
    DRIVE(cuda, "cannot ask the GPU",
          device_attribute(&cuda->units, CU_ATTR_MULTIPROCESSORS, cuda->id));
    DRIVE(cuda, "cannot ask the GPU",
          device_attribute(&cuda->block_shared, CU_ATTR_BLOCK_SHARED, cuda->id));
    DRIVE(cuda, "cannot ask the GPU", device_attribute(&major, CU_ATTR_CC_MAJOR, cuda->id));
    DRIVE(cuda, "cannot ask the GPU", device_attribute(&minor, CU_ATTR_CC_MINOR, cuda->id));
    cuda->memory = (int64_t)memory;
    cuda->sm = 10 * major + minor;
    // From Hopper on, what an architecture has of its own goes by the letter.
    snprintf(cuda->target, sizeof cuda->target, "cuda:sm_%d%s", cuda->sm, major >= 9 ? "a" : "");
    if (cuda->sm >= PLAN_OLDEST_SM) return OK;
    return status_fail(ERR_INPUT, "%s is an sm_%d; kernels need an sm_80 or newer", cuda->name,
                       cuda->sm);
}

static Status open_device(Cuda *cuda, const char *arch, int ordinal) {
    int n = 0;
    TRY(driver_open(arch != NULL, &cuda->driver));
    cuda->takes_ptx = cuda->driver->vgpu_init != NULL;
    if (arch) {
        if (!cuda->driver->vgpu_init)
            return status_fail(ERR_VERSION,
                               "the library for --device vgpu is not the virtual GPU's\n"
                               "  hint: MOEC_VGPU_LIBRARY names libmoec-vgpu.so");
        CUresult taken = cuda->driver->vgpu_init(arch);
        if (taken == CU_NO_DEVICE)
            return status_fail(ERR_ARGUMENT, "%s", cuda->driver->vgpu_message());
        if (taken != 0) return driver_fail_with(cuda->driver, taken, "no virtual GPU");
    }
    CUresult result = cuda->driver->init(0);
    if (result == 0) result = cuda->driver->device_count(&n);
    if (result != 0 && result != CU_NO_DEVICE)
        return driver_fail_with(cuda->driver, result, "the CUDA driver does not start");
    if (cuda->driver->vgpu_reports) cuda->n_reports = cuda->driver->vgpu_reports();
    if (ordinal >= n) return no_device(ordinal, n);
    DRIVE(cuda, "cannot open the GPU", device_get(&cuda->id, ordinal));
    TRY(ask_properties(cuda));
    if (arch) snprintf(cuda->target, sizeof cuda->target, "cuda:%s", arch);
    DRIVE(cuda, "cannot open the GPU", context_retain(&cuda->context, cuda->id));
    cuda->retained = true;
    TRY(enter(cuda));
    DRIVE(cuda, "cannot make a stream", stream_create(&cuda->stream, CU_STREAM_NON_BLOCKING));
    return OK;
}

static const DeviceApi api = {
    .kind = "cuda",
    .close = cuda_close,
    .info = cuda_info,
    .alloc = cuda_alloc,
    .release = cuda_release,
    .alloc_host = cuda_alloc_host,
    .release_host = cuda_release_host,
    .share = cuda_share,
    .reach = cuda_reach,
    .leave = cuda_leave,
    .resident = cuda_resident,
    .copy_in = cuda_copy_in,
    .copy_out = cuda_copy_out,
    .fill = cuda_fill,
    .load = cuda_load,
    .launch = cuda_launch,
    .stamp = cuda_stamp,
    .stamps = cuda_stamps,
    .begin = cuda_begin,
    .end = cuda_end,
    .replay = cuda_replay,
    .drop = cuda_drop,
    .synchronize = cuda_synchronize,
    .stream = cuda_stream,
    .lane = cuda_lane,
    .mark = cuda_mark,
    .after = cuda_after,
    .idle = cuda_idle,
};

Status cuda_open(const char *arch, int ordinal, Pool *pool, Device **out) {
    *out = NULL;
    Cuda *cuda = calloc(1, sizeof *cuda);
    if (!cuda) return status_fail(ERR_MEMORY, "no memory for a device");
    cuda->base = (Device){ &api, pool };
    cuda->is_virtual = arch != NULL;
    Status status = open_device(cuda, arch, ordinal);
    if (status == OK) *out = &cuda->base;
    else cuda_close(&cuda->base);
    return status;
}
