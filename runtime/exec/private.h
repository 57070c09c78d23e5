// SPDX-License-Identifier: Apache-2.0
// Private to runtime/exec.
#ifndef MOEC_EXEC_PRIVATE_H
#define MOEC_EXEC_PRIVATE_H

#include "runtime/comm/comm.h"
#include "runtime/device/device.h"
#include "runtime/exec/exec.h"
#include "runtime/exec/link.h"

typedef struct Launch {
    const DeviceKernel *kernel;
    void *const *const *args; // by slot: of each trip in turn
} Launch;

// Bytes of io that a run copies as one: neighbours, or all but padding apart.
typedef struct Span {
    int64_t at, bytes; // in io
    int64_t slot_at;   // in a slot of the stage; of inputs
    uint32_t buffer;   // of inputs: the first
} Span;

// How a program's inputs and results travel where kernels do not work in the host's memory. Each
// microbatch has a slot of its own, so that a run is written by the host before, not during it, and
// its addresses are the same every time.
typedef struct Stage {
    char *slots;
    int64_t slot_bytes;
    int n_slots;
    Span *in, *out;
    uint32_t n_in, cap_in, n_out, cap_out;
} Stage;

// Bytes of act that hold nothing when a row begins.
typedef struct Gap {
    int64_t at, bytes;
} Gap;
typedef struct Poison {
    Gap *gaps;
    uint32_t n, cap, *first; // first: by row, and the end
} Poison;

// A message under way.
typedef struct Send {
    uint32_t segment;
    int32_t slot;
    void *ticket;
} Send;

// Of a run that is timed.
typedef struct Tape {
    PlanTimeline timeline;
    uint32_t number; // of the program
    bool on;         // a run fills it now
} Tape;

// A gather or an exchange under way: begun by its start, or (ticket NULL) made there, where the transport does not
// work beside the rank.
typedef struct Begun {
    const PlanInstr *start;
    void *from, *to;          // operands
    void *ticket;
    double due;               // when a slower link would have moved its bytes
} Begun;

struct Exec {
    Arena *arena;
    const Plan *plan;
    bool poison, graph;
    int32_t step;             // that the scalars said when the program began: for reports
    Pool *pool;
    Device *device;
    const DeviceApi *api;
    char *regions[N_REGIONS]; // on the device; NULL: the plan has no byte in it
    char *images[N_REGIONS];  // on the host
    DeviceKernel *kernels;    // of the plan
    Launch **launches;        // per program, per instruction
    double **seconds;         // the same; NULL unless profiled
    Stage *stages;            // per program
    int slot;                 // that exec_input shows: on a CPU of the plan, else of the stage
    DeviceGraph **graphs;     // per program, NULL: not recorded
    int *graph_nodes;
    Comm *comm, *own_comm;    // own: made here, of one rank
    Comm *host;               // among hosts; may be comm or own_comm
    Comm *gpus;               // made here where ranks are processes with GPUs; then it is comm
    int64_t n_here;               // ranks of this machine
    JitShare share;
    bool crosses;             // some instruction does
    Send *sends;
    uint32_t n_sends;
    Begun *begun;             // [n_begun], oldest first
    uint32_t n_begun;
    bool **last_rows;         // per program, per row: is it the last one of its segment?
    void *bounce[2];          // out, in; where kernels do not work in the host's memory
    int64_t bounce_bytes;
    PlanTraffic moved;        // so far
    bool counts_rows;
    Link link;                // rate 0: none
    double paid;              // bytes of `moved` that it has been told of
    DeviceHandle *windows;    // of the ranks of dp, and where they lie here; of devices
    void **peers;
    int32_t *counts;          // repeat.c: what it reads
    int64_t **tables;         // per program, per operand: where in sym its table lies; put and get
    Poison *poisons;          // per program; NULL: not asked for
    char *copies;             // where kernels do not work in the host's memory: what is being sent
    int64_t copies_bytes, **copy_at; // copy_at: per program, by instruction: of slot 0
    int64_t *parts;           // bytes of blocks, to and from each member
    Tape *tape;               // NULL: nobody asked
    Held held;                // what lies on the device
};

/* exec.c */
uint32_t exec_number(const Exec *exec, const PlanProgram *program); // n_programs: of another plan
Status exec_run_row(Exec *exec, uint32_t program, const PlanRow *row);

/* together.c: many ranks */
// Ranks of this machine, this one among them. All ranks call it.
Status together_count(Exec *exec);
int together_threads(const Exec *exec, int asked); // asked 0: this rank's part of the cores
// NULL with one rank.
const JitShare *together_share(Exec *exec);
// For the reports of other ranks: what comes next.
void together_at(Exec *exec, const PlanProgram *program, int32_t i, const PlanRow *row);
// Until the device has done what it was given. Other ranks learn meanwhile that this one moves, and this one
// whether they are there.
Status together_wait(Exec *exec);
enum { PATIENCE = 600 /* seconds without an end of what a GPU was given */ };

/* cross.c: what crosses ranks */
Status cross_create(Exec *exec);
void cross_release(Exec *exec);
Status cross_run(Exec *exec, uint32_t number, int32_t instr, void *const *args, const PlanRow *row);
Status cross_settle(Exec *exec, const PlanRow *row); // its sends have been taken; NULL: all
Status cross_wait(Exec *exec); // until the device has done what it was given

/* blocks.c */
Status blocks_create(Exec *exec);
Status blocks_run(Exec *exec, const PlanProgram *program, const PlanInstr *instr, void *const *args);

/* repeat.c: repeats that are counted */
bool repeat_create(Exec *exec); // does some program have one?
// How often this one runs now: what counts is read, from the device if need be.
Status repeat_trips(Exec *exec, uint32_t number, const PlanRepeat *repeat, const PlanRow *row, int32_t *trips);

/* link.c */
// After instruction i has run: counts what it moved, and waits for the link; for what has only begun, its wait does.
void link_moved(Exec *exec, uint32_t number, int32_t i, void *const *args);
void link_wait(double due);   // until that time

/* poison.c */
void poison_program(Exec *exec, uint32_t number);
// What lives across no row is not a number when a row begins.
Status poison_row(Exec *exec, uint32_t number, uint32_t row);

/* tape.c: all but tape_wants does nothing where no run is timed */
bool tape_wants(const Exec *exec, uint32_t number); // the next run of this program
Status tape_start(Exec *exec, uint32_t number);
Status tape_begin(Exec *exec, const PlanRow *row, int32_t instr /* or SPAN_.. */, int32_t trip);
Status tape_end(Exec *exec);
void tape_stop(Exec *exec);
void tape_drop(Exec *exec);

/* gpus.c */
Status gpus_connect(Exec *exec, const char *device);
const char *gpus_own(Exec *exec, const char *device);

/* window.c: region sym */
Status window_open(Exec *exec);
Status window_poison(Exec *exec, uint32_t word);  // all ranks of dp together
void window_close(Exec *exec);

/* stage.c: all of it does nothing on a CPU, but for the images */
Status stage_images(Exec *exec);                  // the host's images of regions that are mapped
Status stage_program(Exec *exec, uint32_t number);
void stage_release(Exec *exec);
Status stage_fill(Exec *exec, uint32_t number, ExecFill fill, void *user); // the slots
Status stage_begin(Exec *exec);                   // scalars go in
Status stage_in(Exec *exec, uint32_t number, int microbatch, int32_t slot);
Status stage_out(Exec *exec, uint32_t number);    // metrics, outputs and scalars come out
// Where the inputs of the slot lie that is shown; NULL if the buffer is no input.
char *stage_input(const Exec *exec, uint32_t number, const PlanBuffer *buffer);

#endif
