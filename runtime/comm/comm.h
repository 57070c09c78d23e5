// SPDX-License-Identifier: Apache-2.0
// What ranks say to each other: one struct of functions per transport.
//
//   self    one rank: every group has one member
//   local   ranks that are threads of one process (local.c): for tests
//   nccl    GPUs, each a rank (nccl.c): NVIDIA's library, or what stands in for it on virtual GPUs
//   tcp     the hosts of GPUs whose ranks torchrun has started (star.c)
//   mpi     ranks that are processes, started by a launcher of MPI (process.c; mpi/ is a module of its
//           own, opened when a launcher is recognised)
//
// A Comm is one rank's end. It is opened before any plan is known, then given the mesh, which makes
// its groups. Calls of a group are made by all members in the same order; each (but send) ends when
// this rank may use the result and reuse what it gave. Addresses are of memory that the transport can
// read: the host's, or (on_device) that of a device, in whose order of work the calls then take place:
// they only begin, "ends" means for what the device is given afterwards, and `settle` is how the host
// waits. Such calls can be recorded in a graph. Libraries move bytes; nothing is added up here.
//
// Bytes of a call that has only begun move on a thread beside the rank's own (mpi), on a stream beside the
// device's own (nccl), or when the rank comes to wait for them (local).
//
// A window is memory that other ranks of the stage read and write directly, by address, while
// kernels run. Who may touch what when is the plan's concern; a barrier or a gather of a group
// orders what its members did before against what they do after.
//
// A rank that waits for another longer than the transport's deadline, or whose partner is gone,
// gets ERR_RANK with a message that names it and where it was. The transport is of no use then.
#ifndef MOEC_COMM_H
#define MOEC_COMM_H

#include "runtime/plan/plan.h"

typedef struct Comm Comm;
struct Device;

typedef struct CommApi {
    const char *name;
    bool on_device, processes; // processes: each rank is one, and may have a GPU of its own
    void (*close)(Comm *comm);
    // Groups of comm->mesh, which is set, as is comm->device. Every rank calls it, for each device.
    Status (*mesh)(Comm *comm);
    Status (*barrier)(Comm *comm, PlanGroup group);
    // to [members][bytes]: what each member gave.
    Status (*gather)(Comm *comm, PlanGroup group, const void *from, void *to, int64_t bytes);
    // from, to [members][bytes]: part i goes to member i.
    Status (*exchange)(Comm *comm, PlanGroup group, const void *from, void *to, int64_t bytes);
    // A gather or an exchange that only begins: nobody is waited for, `from` stays as it is and `to` is left alone
    // until `ended` with its ticket returns. Ranks of a group begin such calls in one order and end them in
    // that order; whole calls may come between. NULL: the transport has it not.
    Status (*begin)(Comm *comm, PlanGroup group, PlanOp op, const void *from, void *to, int64_t bytes,
                    void **ticket);
    Status (*ended)(Comm *comm, void *ticket);
    // Parts of any size. from: the parts for members 0, 1, ... one after another, out[i] bytes each; to:
    // theirs, in[i] bytes each. Both sides know: in[i] is what member i has as out for this rank.
    // NULL: the transport has it not.
    Status (*blocks)(Comm *comm, PlanGroup group, const void *from, const int64_t *out, void *to,
                     const int64_t *in);
    // The node that a rank of the world is on, by its lowest rank. NULL: there is one.
    int (*node)(const Comm *comm, int rank);
    // `rank` of the world. On each lane (PlanLane) the k-th recv from a rank takes its k-th send to here;
    // bytes are equal. Lanes do not wait for each other.
    // A send only begins: `from` stays as it is until `sent` with its ticket returns. Tickets are
    // waited for in any order, each once.
    Status (*send)(Comm *comm, int rank, PlanLane lane, const void *from, int64_t bytes,
                   void **ticket);
    Status (*sent)(Comm *comm, void *ticket);
    Status (*recv)(Comm *comm, int rank, PlanLane lane, void *to, int64_t bytes);
    // Zeroed memory, the same size on all ranks of group dp, which all call it. peers [dp members]:
    // where each member's window lies in this process; NULL where loads do not reach. The call is NULL
    // where ranks share words only.
    Status (*window)(Comm *comm, int64_t bytes, void **own, void **peers);
    // All ranks of dp call it, each when it touches none of the windows any more.
    void (*release)(Comm *comm, void *own, int64_t bytes);
    // Where this rank is, for the report about it if it stops there; where NULL: still there, and moving.
    // NULL: nobody wants to know.
    void (*at)(Comm *comm, const char *where);
    // on_device: waits until the device has done what it was given, as long as the other ranks are
    // there. NULL: what was called has ended.
    Status (*settle)(Comm *comm);
    // ERR_RANK if another rank is known to have failed: for who waits for something else. NULL: nobody
    // knows.
    Status (*check)(Comm *comm);
    // The run's folder, from now on: FOLDER/ranks.board says where each rank is (a line per rank, as
    // text) and outlives them; FOLDER/failure.txt has the report if a rank fails, an older one goes.
    // Every rank calls it. NULL: nothing to keep.
    Status (*keep)(Comm *comm, const char *folder);
    // This rank ends with an error: what the others hear. It closes afterwards. NULL: nobody to tell.
    void (*fail)(Comm *comm, const char *why);
} CommApi;

struct Comm {
    const CommApi *api;
    int rank, n_ranks;      // of the world
    PlanMesh mesh;
    int coord[N_AXES];
    // Of transports on_device, which learn here whose memory and order of work it is, and (in comm_mesh;
    // NULL: none) which messages the rank's plan has.
    struct Device *device;
    const Plan *plan;
};

typedef struct CommOptions {
    double deadline; // seconds; 0: 8
    int node_ranks;  // > 0: that many ranks count as a node, for tests of what crosses nodes
} CommOptions;

// This process as a rank of what started it, recognised from the environment: mpirun of Open MPI or
// MPICH, Slurm, torchrun (whose hosts share words only: star.h); without any, or of one rank, comm_self.
Status comm_open(const CommOptions *options, Comm **out);
int comm_announced(void); // how many ranks that will be
// What api->at, check, keep, fail do where a transport has them; comm may be NULL.
void comm_at(Comm *comm, const char *where);
Status comm_check(void *comm);
Status comm_keep(Comm *comm, const char *folder);
void comm_fail(Comm *comm, const char *why);
// One rank. Never fails; closed like any other.
Comm *comm_self(void);
void comm_close(Comm *comm); // NULL is fine
// n ranks of this process, to be used by a thread each. `deadline` in seconds.
void comm_local(int n, double deadline, Comm **out);
// As if on nodes of `node_ranks` each (0: one node): windows of other nodes are not seen.
void comm_local_nodes(int n, int node_ranks, double deadline, Comm **out);
// A rank of NCCL's, which gets its communicators in comm_mesh. Its host's transport, which has its mesh and
// stays the caller's, brings the first words (rank 0's bytes become all ranks': comm_first) and knows who
// is gone (comm_check) and who is on which node. Without one (NULL), share and watch (NULL: nobody) do.
// deadline: seconds for everybody to come, and without an end of what the device was given.
typedef struct CommNccl {
    int rank, n_ranks;
    bool is_virtual;        // GPUs are virtual ones, and another library stands in
    double deadline;
    Comm *host;
    Status (*share)(void *user, void *bytes, int64_t n);
    Status (*watch)(void *user);
    void *user;
} CommNccl;
Status comm_nccl(const CommNccl *options, Comm **out);

// The rank's place in the mesh; ERR_ARGUMENT if the mesh has another number of ranks.
Status comm_mesh(Comm *comm, const PlanMesh *mesh);
// Of groups: how many members, which of them this rank is, and member i's number in the world.
int comm_members(const Comm *comm, PlanGroup group);
int comm_member(const Comm *comm, PlanGroup group);
int comm_world_rank(const Comm *comm, PlanGroup group, int member);
// How many nodes the group is on, and which of them a member is on.
int comm_nodes(const Comm *comm, PlanGroup group);
int comm_node(const Comm *comm, PlanGroup group, int member);
// The rank with this rank's coordinates on another stage.
int comm_on_stage(const Comm *comm, int stage);

/* agree.c: all ranks of the world (comm_sum, comm_texts: of the group) call these, in the same order */

// How it went here: OK if it went well on all. Else all have the status and the message of the first
// rank that failed, named unless all failed alike. ERR_RANK comes back as it is: there is nobody to
// ask any more.
Status comm_agree(Comm *comm, Status status);
bool comm_agreed(void);           // whether the last failure is one that all know of
// Whether this rank is to print the last failure, whose status this is: what all know is told once. comm
// NULL: one rank.
bool comm_tells(const Comm *comm, Status status);
Status comm_first(Comm *comm, void *value, int64_t bytes);     // rank 0's, on all
Status comm_sum(Comm *comm, PlanGroup group, int64_t *values, int n); // in place
Status comm_sum_here(Comm *comm, int64_t *value);               // the same over the ranks of this machine
uint64_t comm_machine(void); // equal for processes of one machine
// Texts of the group's members, in the arena.
Status comm_texts(Comm *comm, PlanGroup group, const char *own, Arena *arena, char ***texts);

#endif
