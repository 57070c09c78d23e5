// SPDX-License-Identifier: Apache-2.0
// The virtual GPU as a driver sees it: a device, modules of PTX text, kernels, launches that run to
// completion on the device's host threads.
//
// A fault stops the launch; its text is the device's last report (report.h). Nothing here keeps
// state between launches except memory and modules; sticky errors are the driver's business.
#ifndef MOEC_VGPU_CORE_H
#define MOEC_VGPU_CORE_H

#include "runtime/vgpu/report.h"

typedef struct VgDevice VgDevice;
typedef struct VgModule VgModule;
typedef struct VgKernel VgKernel;

// arch: "sm_80", "sm_90a", ...; threads: host threads, 0 = one per processor this process may use.
Status vg_device_create(const char *arch, int threads, VgDevice **device);
void vg_device_destroy(VgDevice *device); // NULL is fine
int vg_device_cc(const VgDevice *device); // 80, 90, 120 ...

// Text need not end with 0. A failure's status_message() is the log: PTX line, source line, reason.
Status vg_module_load(VgDevice *device, const char *ptx, size_t n, VgModule **module);
void vg_module_unload(VgModule *module); // NULL is fine; no launch of it may be running
VgKernel *vg_module_kernel(VgModule *module, const char *name);
int vg_module_kernel_count(const VgModule *module);
VgKernel *vg_module_kernel_at(VgModule *module, int i);
bool vg_module_global(VgModule *module, const char *name, uint64_t *va, size_t *bytes);

typedef struct VgParam { uint32_t offset, bytes, align; } VgParam;
typedef struct VgKernelInfo {
    const char *name;
    uint32_t n_params;
    const VgParam *params;
    uint32_t param_bytes;
    uint32_t static_shared, local_bytes;
    uint32_t max_threads;   // of .maxntid or .reqntid, else 1024
    uint32_t reqntid[3];    // 0 when not given
    uint32_t cluster[3];    // .reqnctapercluster, 0 when not given
    uint32_t min_ctas;      // .minnctapersm, 0 when not given
    int slots;              // 32-bit slots per thread after allocation: an estimate of registers
    int ptx_version;        // of the target, 80 for sm_80
} VgKernelInfo;
const VgKernelInfo *vg_kernel_info(const VgKernel *kernel);

typedef struct VgLaunch {
    VgKernel *kernel;
    uint32_t grid[3], block[3], cluster[3]; // cluster 0 = 1
    uint32_t dynamic_shared;
    const void *params;                     // packed as info->params says
    bool cooperative;                       // all blocks resident at once, else VG_LAUNCH
} VgLaunch;

// What the last launch did, for speed figures and counters.
typedef struct VgRunStats {
    uint64_t warp_instrs, thread_instrs; // executed; lanes that a guard turns off count as executing
    uint64_t blocks;
    uint64_t forgotten;                  // accesses whose history was not kept: races may be unseen
    double seconds;
} VgRunStats;

// Runs to completion. The text of a fault is the last of vg_device_reports.
VgFault vg_run(VgDevice *device, const VgLaunch *launch);
VgReports *vg_device_reports(VgDevice *device);
struct VgMemory *vg_device_memory(VgDevice *device); // memory.h
const VgRunStats *vg_run_stats(const VgDevice *device);
// Blocks that are resident at once on one multiprocessor (0: one block does not fit).
int vg_occupancy(const VgDevice *device, const VgKernel *kernel, uint32_t threads,
                 uint32_t dynamic_shared);
int vg_device_sm_count(const VgDevice *device);
// A multiprocessor of an architecture. Shared memory in KiB: all of it, and what a block may have.
typedef struct VgSm { int cc; uint32_t shared, optin, threads, blocks; } VgSm;
const VgSm *vg_device_sm(const VgDevice *device);

// How warps are scheduled; the defaults are quantum 2000, seed 0 (round robin, no surprises).
void vg_device_schedule(VgDevice *device, uint32_t quantum, uint64_t seed);

#endif
