// SPDX-License-Identifier: Apache-2.0
// Executes a plan on a device: allocates one block per region, compiles the sources, binds
// addresses, walks rows. Nothing is allocated, compiled or looked up during a step.
//
// Every region has an image on the host, which all addresses below point into. On a CPU it is the
// region itself. On a GPU only a run keeps them in step, and only for what the host writes or reads
// in it: the inputs of all its microbatches and the scalars go there before its first kernel, the
// metrics, outputs and scalars come back after its last. All else goes by exec_upload and
// exec_download, which cost nothing on a CPU: code that calls them runs on either.
#ifndef MOEC_EXEC_H
#define MOEC_EXEC_H

#include "runtime/comm/comm.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/timeline.h"

typedef struct Exec Exec;

typedef struct ExecOptions {
    const char *device;          // "cpu", "cuda:1", "vgpu:sm_90a" (device.h); NULL: what the plan is for
    int threads;                 // of the host; 0: all cores
    Comm *comm;                  // this rank's; outlives the Exec. NULL: there is one rank
    Comm *host;                  // where comm is on_device: for what hosts agree on; NULL: nothing
    bool graph;                  // GPU: a program is recorded in its first run, then replayed whole
    bool poison;                 // debug: act starts as NaN before every row "forward"
    bool small_pages;            // 4 KiB pages: exec_touched is exact; slower
    bool count_rows;             // CPU: exec_moved knows what kernels put and get; costs a little
    double link;                 // CPU: bytes per second that this rank gives others at most; 0: no limit
    bool profile;                // time every launch: see exec_profile; no graph then
    // Progress of compilation, may be NULL: `done` of `total` kernels ready, `cached` of them from
    // disk.
    void (*progress)(void *user, int done, int total, int cached);
    void *user;
} ExecOptions;

// Fills the inputs of one microbatch, through exec_input: on a CPU right before the first row of
// the microbatch, on a GPU all before the first row. `microbatch` counts within the step.
typedef Status (*ExecFill)(void *user, Exec *exec, const PlanProgram *program, int microbatch);

// Whether a device (NULL: the plan's) is there and takes plans for `target`, without making an
// Exec. A virtual GPU is not opened.
Status exec_fits(const char *device, const char *target);
const char *exec_usual_device(const char *target);             // of plans for `target`: "cpu", "cuda"
// The target of plans for a device; opens it only where its name does not say: cuda.
Status exec_target(const char *device, Arena *arena, const char **target);
// Runs plan_check first. The plan must outlive the Exec.
Status exec_create(const Plan *plan, const ExecOptions *options, Exec **out);
void exec_destroy(Exec *exec);                                 // NULL is fine
// All rows of a program; has ended when it returns. Metrics start from zero. Without `fill` every
// microbatch has the inputs that exec_input shows.
Status exec_run(Exec *exec, const PlanProgram *program, ExecFill fill, void *user);
// Parameters from their init rule: a pure function of (seed, parameter name, element). Moments
// zero. On the device, and of the weights on the host too.
Status exec_init(Exec *exec, uint64_t seed);
// What is derived from the weights (program "pack"), after they have changed; exec_init does so.
Status exec_pack(Exec *exec);
Status exec_upload(Exec *exec, Region region);                 // all of it, from its image on the host
Status exec_download(Exec *exec, Region region);               // all of it, to its image on the host

void *exec_region(const Exec *exec, Region region);            // on the host
void *exec_buffer(const Exec *exec, const PlanProgram *program, uint32_t buffer);
void *exec_input(const Exec *exec, const PlanProgram *program, InputKind kind, int32_t k); // NULL if unused
float *exec_scalars(const Exec *exec);                         // [N_SCALARS]
float *exec_metric(const Exec *exec, const PlanProgram *program, uint32_t metric, int64_t *n);
int exec_threads(const Exec *exec);
Comm *exec_host(const Exec *exec);                             // its end of ExecOptions.host
// "CPU", "NVIDIA H200"; and how many nodes the program's graph has, 0 before it is recorded.
const char *exec_device(const Exec *exec);
int exec_graph_nodes(const Exec *exec, const PlanProgram *program);
// Seconds each instruction of the program has taken so far, which the caller may set to zero; NULL
// without ExecOptions.profile.
double *exec_profile(const Exec *exec, const PlanProgram *program);
// The next `runs` runs of the program are timed, instruction by instruction. Room for it is made here, and a
// run allocates nothing. On a GPU they go by launches, not as a graph. What was timed before is gone.
Status exec_trace(Exec *exec, const PlanProgram *program, int32_t runs);
const PlanTimeline *exec_timeline(const Exec *exec); // of the runs since; NULL: exec_trace was not called
// Bytes that this rank's instructions have given others so far; with ExecOptions.count_rows also the rows
// that kernels have put to others and got from them.
PlanTraffic exec_moved(const Exec *exec);
// Bytes of each region that memory backs, for the check of predicted peak against use: on a CPU
// pages that were touched (mincore), on a GPU all.
int64_t exec_touched(const Exec *exec, Region region);

#endif
