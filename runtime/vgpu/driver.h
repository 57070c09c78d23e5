// SPDX-License-Identifier: Apache-2.0
// Inside the driver: what its files share.
//
// One lock guards all of it. A call enters through vgd_enter (lock, current context, sticky error)
// and leaves through vgd_leave. Work is a graph of operations (VgdOp): an operation may start when
// those before it are done; streams, events, the legacy stream's rules and graph launches only
// decide which those are. One thread runs operations of the device, one at a time and without the
// lock; another runs host functions, so that one that blocks does not hold up other streams. What
// changes the device's tables (allocation, modules) waits for the operation that runs: vgd_pause.
//
// Which of several ready operations runs is the driver's choice, and by default an unkind one: the
// one issued last, and as late as possible (see driver_queue.c), so that a missing event shows.
#ifndef MOEC_VGPU_DRIVER_H
#define MOEC_VGPU_DRIVER_H

#include <pthread.h>

#include "runtime/vgpu/core.h"
#include "runtime/vgpu/cuda_api.h"
#include "runtime/vgpu/memory.h"
#include "runtime/vgpu/vgpu.h"

/* Work: what an operation or a graph node does ------------------------------------------------- */

typedef enum VgdWorkKind {
    VGD_MARK, VGD_KERNEL, VGD_COPY, VGD_FILL, VGD_HOST, VGD_FREE
} VgdWorkKind;

typedef struct VgdSide {      // one side of a copy, offsets applied
    bool host;
    uint64_t at;             // device address or host pointer
    size_t pitch, slice;     // bytes from row to row, from slice to slice
} VgdSide;

typedef struct VgdWork {
    VgdWorkKind kind;
    union {
        struct {
            CUfunction function;
            uint64_t id;     // of the function: an address may be another one's by now
            uint32_t n_params, param_bytes;
            uint32_t grid[3], block[3], cluster[3], shared;
            bool cooperative;
            void *params;    // owned, packed
            void **pointers; // owned: one per parameter, into params, for GetParams
        } launch;
        struct {
            VgdSide to, from;
            size_t width, height, depth;
            void *staged;    // owned copy of pageable source bytes, or NULL
        } copy;
        struct {
            uint64_t to;
            size_t pitch, width, height;  // width in elements
            uint32_t value, value_bytes;
        } fill;
        struct { CUhostFn function; CUstreamCallback callback; CUstream stream; void *user; } host;
        uint64_t address;    // VGD_FREE
    };
} VgdWork;

bool vgd_work_copy(VgdWork *to, const VgdWork *from); // false: out of memory
void vgd_work_finish(VgdWork *work);

/* Operations and the threads that run them (driver_queue.c) ------------------------------------ */

typedef struct VgdOp VgdOp;
struct VgdOp {
    uint64_t id;             // order of issue
    int refs, waits;         // holders; operations before it that are not done
    bool done;
    CUcontext context;
    VgdWork work;
    VgdOp **after;            // those that wait for it
    uint32_t n_after, cap_after;
    double finished;         // time_seconds() when it was done
};

bool vgd_queue_start(void);                         // once more does nothing
VgdOp *vgd_op_create(CUcontext context, VgdWork *work); // takes the work over; NULL: no memory
VgdOp *vgd_op_keep(VgdOp *op);
void vgd_op_drop(VgdOp *op);                         // NULL is fine
bool vgd_op_follow(VgdOp *op, VgdOp *before);         // before issue; NULL or done: nothing
void vgd_op_issue(VgdOp *op);                       // the caller keeps its reference
void vgd_wait(VgdOp *op);                            // NULL is fine; releases the lock meanwhile
void vgd_wait_context(CUcontext context);
void vgd_poll(void);                                // someone asked: work may not stay put off
void vgd_pause(void);                               // until no operation of the device runs

/* Objects -------------------------------------------------------------------------------------- */

typedef enum VgdKind {
    VGD_NO_OBJECT, VGD_CONTEXT, VGD_MODULE, VGD_LIBRARY, VGD_FUNCTION, VGD_STREAM, VGD_EVENT,
    VGD_GRAPH, VGD_NODE, VGD_EXEC, VGD_MEMORY, VGD_PINNED
} VgdKind;

struct CUmod_st {
    VgModule *module;
    CUcontext context;
    CUlibrary library;       // NULL: loaded by itself
    CUfunction *functions;
    int n_functions;
};
struct CUlib_st { CUmodule module; };
struct CUfunc_st {           // CUkernel handles are these too
    uint64_t id;
    VgKernel *kernel;
    const VgKernelInfo *info;
    CUmodule module;
    int max_dynamic, carveout, policy;
    bool non_portable;
};

typedef struct VgdNodes { CUgraphNode *at; uint32_t n, cap; } VgdNodes;

typedef struct VgdCapture {
    struct VgdCapture *next;  // of the context
    uint64_t id;
    CUgraph graph;
    CUstream origin;
    CUstreamCaptureMode mode;
    pthread_t thread;
    bool invalid;
} VgdCapture;

struct CUstream_st {
    CUcontext context;
    CUstream next;
    unsigned int flags;
    int priority;
    uint64_t id;
    bool legacy;
    pthread_t thread;        // of a per-thread default stream
    bool per_thread;
    VgdOp *tail;              // the last operation issued
    VgdCapture *capture;
    VgdNodes nodes;           // what the next captured node follows
};
struct CUevent_st {
    CUcontext context;
    unsigned int flags;
    VgdOp *op;                // of the last record, NULL: none
    uint64_t capture;        // id of the capture of the last record, 0: not captured
    VgdNodes nodes;
};

struct CUctx_st {
    CUcontext next;
    uint64_t id;
    bool primary;
    int refs;                // of the primary context
    unsigned int flags;
    CUresult sticky;
    int pending;             // operations not done
    struct CUstream_st legacy_stream;
    CUstream streams;        // created ones and per-thread ones
    VgdCapture *captures;
    size_t limits[8];
};

/* Driver state (driver_state.c) ---------------------------------------------------------------- */

typedef enum VgdOrder { VGD_ORDER_LATE, VGD_ORDER_ISSUE, VGD_ORDER_RANDOM } VgdOrder;

typedef struct VgdDriver {
    pthread_mutex_t lock;
    bool initialised;
    char arch[16];
    int cc;
    VgDevice *device;
    VgMemory *memory;
    VgReports *reports;
    VgdOrder order;
    uint64_t seed, next_id;
    bool quiet;              // findings are kept, not printed
    bool untold;             // faults of kernels neither: the program prints them
    CUcontext contexts, primary;
    unsigned int primary_flags;
} VgdDriver;
extern VgdDriver vgd;
extern _Thread_local bool vgd_in_callback;

// On success the lock is held and *context is the calling thread's.
CUresult vgd_enter(CUcontext *context);
CUresult vgd_enter_device(CUdevice device);   // no context needed
CUresult vgd_leave(CUresult result);
// An error with what was wrong, for vgpuLastMessage().
CUresult vgd_fail(CUresult result, const char *format, ...) PRINTF_LIKE(2, 3);
CUresult vgd_status(CUresult result);         // ... taken from status_message()
// A finding: kept, counted, printed to stderr unless MOEC_VGPU_QUIET is set.
void vgd_report(VgFault fault, const char *text);
uint64_t vgd_next_id(void);

// Live handles, by address. Device memory goes by its address | 1, which no object has.
bool vgd_object_add(const void *object, VgdKind kind, CUcontext owner);
void vgd_object_remove(const void *object);
bool vgd_object_is(const void *object, VgdKind kind);
CUcontext vgd_object_owner(const void *object);
const void *vgd_object_of(CUcontext owner, VgdKind kind); // any one; NULL: none left

/* Contexts, modules, memory -------------------------------------------------------------------- */

CUcontext vgd_context_current(void);
CUresult vgd_stream_find(CUcontext context, CUstream handle, CUstream *stream);
void vgd_stream_free(CUstream stream);
void vgd_event_free(CUevent event);
void vgd_module_free(CUmodule module);
int vgd_device_attribute(CUdevice_attribute which);
CUresult vgd_function(CUfunction handle, CUfunction *function);
CUresult vgd_work_loaded(const VgdWork *work);  // of a kernel: its module has not been unloaded
bool vgd_pinned(const void *at, size_t bytes, void **start, size_t *whole);
void vgd_pinned_free(CUcontext context);
void vgd_guests_free(CUcontext context);

/* Streams (driver_stream.c) -------------------------------------------------------------------- */

// Adds work to a stream, or to the graph it is captured into. Takes the work over, also on failure.
CUresult vgd_submit(CUstream stream, VgdWork *work, VgdOp **op);
// Makes `op` follow what the rules of streams want before an operation in `stream`.
bool vgd_op_in_stream(VgdOp *op, CUstream stream);
void vgd_stream_advance(CUstream stream, VgdOp *op);

/* Capture (driver_capture.c) ------------------------------------------------------------------- */

// Calls that a capture forbids: result, and the capture is invalidated.
CUresult vgd_capture_unsafe(CUcontext context);            // may wait or change things: allocation
CUresult vgd_capture_legacy(CUcontext context);            // use of the legacy stream
CUresult vgd_capture_sync(CUstream stream);                // waiting for or asking about a stream
CUresult vgd_capture_add(CUstream stream, VgdWork *work);   // takes the work over
CUresult vgd_capture_record(CUstream stream, CUevent event, bool external);
CUresult vgd_capture_wait(CUstream stream, CUevent event, bool external);
void vgd_capture_forget(CUstream stream);                  // the stream goes away

/* Graphs (driver_graph.c, driver_exec.c) ------------------------------------------------------- */

struct CUgraphNode_st {
    CUgraph graph;
    CUgraphNodeType type;
    VgdWork work;
    CUgraph child;           // owned
    CUevent event;
    VgdNodes after;           // the nodes it depends on
    CUgraphNode original;    // of a clone
    int index;               // scratch of walks
};
struct CUgraph_st {
    CUcontext context;
    VgdNodes nodes;
    CUgraphNode in;          // of the child node it is the graph of: not the caller's to destroy
    bool capturing;
    CUgraph original;
};

bool vgd_nodes_add(VgdNodes *nodes, CUgraphNode node);
void vgd_nodes_finish(VgdNodes *nodes);
CUgraph vgd_graph_create(CUcontext context);
CUgraph vgd_graph_clone(CUgraph graph);
void vgd_graph_free(CUgraph graph);
// Takes the work over, also on failure (NULL).
CUgraphNode vgd_graph_add(CUgraph graph, CUgraphNodeType type, VgdWork *work,
                          const CUgraphNode *after, size_t n);
void vgd_exec_free(CUgraphExec exec);
VgdWork *vgd_exec_work(CUgraphExec exec, CUgraphNode node); // NULL: not in it

/* Launches and copies -------------------------------------------------------------------------- */

typedef struct VgdLaunchAsked {
    CUfunction function;
    uint32_t grid[3], block[3], shared;
    void **params, **extra;
    const CUlaunchAttribute *attributes;
    uint32_t n_attributes;
    uint32_t cluster[3];
    bool cooperative;
    CUevent events[4];       // recorded once the kernel is done
    int n_events;
} VgdLaunchAsked;
// Checks everything that can be checked before it runs and copies the parameters.
CUresult vgd_launch_prepare(VgdLaunchAsked *asked, VgdWork *work);
CUresult vgd_copy3d_prepare(const CUDA_MEMCPY3D *copy, VgdWork *work);
CUresult vgd_fill_prepare(uint64_t to, size_t pitch, uint32_t value, uint32_t value_bytes,
                          size_t width, size_t height, VgdWork *work);
// Runs on the worker, without the lock.
CUresult vgd_copy_run(const VgdWork *work);
CUresult vgd_fill_run(const VgdWork *work);
CUresult vgd_launch_run(const VgdWork *work);

#endif
