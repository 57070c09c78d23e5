// SPDX-License-Identifier: Apache-2.0
// What a plan runs on: one struct of function pointers per kind of device, a list of them in
// device.c.
//
//   --device      kind   target of its plans        where kernels read and write
//   cpu           cpu    cpu                        the host's memory: a region is its own mirror
//   cuda[:N]      cuda   cuda:sm_90a, as the GPU is memory of GPU N (from 0), through libcuda.so.1
//   vgpu:ARCH     cuda   cuda:ARCH                  the same, libmoec-vgpu.so: needs no GPU
//
// Work of a device is in one order: a copy, a fill and a launch begin when what was asked before
// them has ended. On the CPU each has ended when it returns; on a GPU they are queued, errors may
// come with any later call, and `synchronize` waits for all. Between `begin` and `end` they are not
// done but recorded, to be done by every `replay`, in the same order, with the same addresses.
// Nothing is allocated by a launch, a copy, a fill or a replay (but by the first launch that is
// timed).
#ifndef MOEC_DEVICE_H
#define MOEC_DEVICE_H

#include "runtime/device/pool.h"
#include "runtime/jit/jit.h"
#include "runtime/plan/plan.h"

typedef struct Device Device;
// Says where an allocation lies, to ranks that are other processes or threads of this one.
typedef struct DeviceHandle { char bytes[128]; } DeviceHandle;
typedef struct DeviceGraph DeviceGraph; // a recorded sequence
// For libraries that work on a device and wait there for other ranks: orders of work beside the
// device's own, and moments in them. Both are the device's and go with it.
typedef struct DeviceLane DeviceLane;
typedef struct DeviceMark DeviceMark;

// A kernel of a plan, ready to be launched.
typedef struct DeviceKernel {
    union {
        PoolTile tiles; // cpu: ENTRY_launch
        void *function; // cuda: CUfunction
    };
    const char *entry; // of the plan
    int64_t n_tiles;
    int32_t threads, shared; // of a block; cuda
    uint32_t n_args;
} DeviceKernel;

typedef struct DeviceInfo {
    const char *name;   // "NVIDIA H200"
    const char *target; // of plans made for it: "cuda:sm_90a"
    int64_t memory;     // bytes
    int units;          // threads of a CPU, multiprocessors of a GPU
    int graph_nodes;    // of the last graph, 0: none
} DeviceInfo;

typedef void (*DeviceProgress)(void *user, int done, int total, int cached);

typedef struct DeviceApi {
    const char *kind;
    bool on_host; // kernels work in the host's memory: there is nothing to copy
    void (*close)(Device *device);
    DeviceInfo (*info)(const Device *device);
    // Contents: zero on the CPU, undefined on a GPU. `what` names it in messages.
    Status (*alloc)(Device *device, int64_t bytes, bool small_pages, const char *what, void **out);
    void (*release)(Device *device, void *at, int64_t bytes);
    // Host memory from and to which copies run without the host waiting; zero.
    Status (*alloc_host)(Device *device, int64_t bytes, const char *what, void **out);
    void (*release_host)(Device *device, void *at, int64_t bytes);
    // Memory of other ranks' devices, on one machine: what `share` makes on one `reach` turns into an
    // address on another, until `leave`. NULL where kernels work in the host's memory.
    Status (*share)(Device *device, const void *at, DeviceHandle *out);
    Status (*reach)(Device *device, const DeviceHandle *handle, void **out);
    void (*leave)(Device *device, const DeviceHandle *handle, void *at);
    // Bytes that memory backs by now.
    int64_t (*resident)(const Device *device, const void *at, int64_t bytes);
    // Copies of memory that alloc_host did not give may wait for the device, and cannot be
    // recorded.
    Status (*copy_in)(Device *device, void *to, const void *from, int64_t bytes);
    Status (*copy_out)(Device *device, void *to, const void *from, int64_t bytes);
    Status (*fill)(Device *device, void *at, uint32_t word, int64_t bytes); // both multiples of 4
    // Compiles and loads every kernel of a plan; kernels[plan->n_kernels]. share: with other ranks
    // (jit.h); NULL: alone.
    Status (*load)(Device *device, const Plan *plan, DeviceProgress progress, void *user,
                   const JitShare *share, DeviceKernel *kernels);
    // args: addresses, in the order of the entry's parameters. seconds (may be NULL) grows by what
    // the launch took, at the latest in `synchronize`; NULL while recording.
    Status (*launch)(Device *device, const DeviceKernel *kernel, void *const *args,
                     double *seconds);
    // *at becomes the time (time_seconds) when all that the device was given by now has ended, at the
    // latest in `synchronize`. Not while recording. stamps: room for so many between two waits, so
    // that a stamp makes nothing.
    Status (*stamp)(Device *device, double *at);
    Status (*stamps)(Device *device, int64_t n);
    // NULL, like the next three: launches cost too little to record.
    Status (*begin)(Device *device);
    Status (*end)(Device *device, DeviceGraph **out);
    Status (*replay)(Device *device, DeviceGraph *graph);
    void (*drop)(Device *device, DeviceGraph *graph); // NULL is fine
    Status (*synchronize)(Device *device);
    // NULL, like the next four: no other library works here. The driver's handle of a lane (NULL:
    // the device's own order), for calls of this thread.
    Status (*stream)(Device *device, const DeviceLane *lane, void **out);
    Status (*lane)(Device *device, DeviceLane **out);
    // All that the lane was given by now; *mark is made if it is NULL, else used again.
    Status (*mark)(Device *device, const DeviceLane *lane, DeviceMark **mark);
    // What the lane is given from now on begins when what was marked has ended.
    Status (*after)(Device *device, const DeviceLane *lane, const DeviceMark *mark);
    // Whether all that the device was given, its own order, has ended. Does not wait.
    Status (*idle)(Device *device, bool *idle);
} DeviceApi;

struct Device {
    const DeviceApi *api;
    Pool *pool; // borrowed: the host's threads
};

/* device.c */
// The target of plans for a device. Opens it only where the name does not say: cuda.
Status device_target(const char *name, Arena *arena, const char **target);
// Whether a device takes plans for a target by its name, and whether it is there (a virtual GPU is
// not opened for this).
Status device_takes(const char *name, const char *target);
Status device_fits(const char *name, const char *target);
// The device a plan is for when nobody says: "cpu", or "cuda".
const char *device_of_target(const char *target);
Status device_open(const char *name, Pool *pool, Device **out);
void device_close(Device *device); // NULL is fine

/* cpu.c, cuda.c: opened through device_open */
Status cpu_open(Pool *pool, Device **out);
// `arch`: of the virtual GPU, NULL: a real one, number `ordinal`.
Status cuda_open(const char *arch, int ordinal, Pool *pool, Device **out);

#endif
