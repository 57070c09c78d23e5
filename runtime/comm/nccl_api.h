// SPDX-License-Identifier: Apache-2.0
// The calls of NCCL that moec makes, resolved at run time from libnccl.so.2, or from the project's
// stand-in (runtime/nccl), which exports the same names. Own declarations after NCCL's manual (2.28); no header of
// NVIDIA's. tests/nccl compares them with nccl.h where that is.
#ifndef MOEC_NCCL_API_H
#define MOEC_NCCL_API_H

#include "runtime/base/base.h"

typedef struct ncclComm *NcclComm;
typedef struct ncclWindow_vidmem *NcclWindow; // lies in the GPU's memory
typedef struct CUstream_st *NcclStream;       // cudaStream_t
#ifndef MOEC_NCCL_THEIRS                      // a test has the table in NVIDIA's own types
typedef int NcclResult, NcclType;
typedef struct NcclId { char bytes[128]; } NcclId;
typedef struct NcclTeam { int n_ranks, rank, stride; } NcclTeam;
typedef struct NcclSettings NcclConfig;
#endif

enum {
    NCCL_OK = 0,                // ncclResult_t
    NCCL_CUDA_ERROR = 1,
    NCCL_SYSTEM_ERROR = 2,
    NCCL_INTERNAL_ERROR = 3,
    NCCL_WRONG_ARGUMENT = 4,
    NCCL_WRONG_USE = 5,
    NCCL_REMOTE_ERROR = 6,
    NCCL_IN_PROGRESS = 7,
    NCCL_INT8 = 0,              // ncclDataType_t
    NCCL_UINT8 = 1,
    NCCL_UINT32 = 3,
    NCCL_FLOAT32 = 7,
    NCCL_N_TYPES = 12,
    NCCL_NO_COLOR = -1,
    NCCL_SYMMETRIC = 1,         // of a window
    NCCL_WINDOW_GRAIN = 4096,
    NCCL_CONFIG_VERSION = 22809, // whose struct NcclSettings is
    NCCL_HOST_POINTERS = 22902, // from here on ncclGetPeerDevicePointer
    NCCL_FIRST_WINDOWS = 22800, // from here on windows that kernels may reach into
};

// Fields left alone hold NCCL_UNSET (pointers NULL).
#define NCCL_UNSET INT32_MIN
#define NCCL_CONFIG_MAGIC 0xcafebeefu
struct NcclSettings {
    size_t size;
    unsigned magic, version;
    int blocking, cluster_size, min_ctas, max_ctas;
    const char *net_name;
    int split_share, traffic_class;
    const char *comm_name;
    int collnet, cta_policy, shrink_share, nvls_ctas, channels_per_peer, nvlink_centric;
};

// The beginning of what an NcclWindow points to, as NCCL 2.28 has it.
typedef struct NcclWindowHead {
    void *host;
    char *flat;                 // where rank 0 of the load-store team has its part
    int lsa_rank, world_rank;
    uint32_t stride_4g;         // from one rank's part to the next one's, in 4 GiB
} NcclWindowHead;

// X(field, symbol, type, parameters)
#define NCCL_TABLE(X)                                                                              \
    X(version, ncclGetVersion, NcclResult, (int *version))                                         \
    X(error_text, ncclGetErrorString, const char *, (NcclResult result))                           \
    X(last_error, ncclGetLastError, const char *, (NcclComm comm))                                 \
    X(unique_id, ncclGetUniqueId, NcclResult, (NcclId * id))                                       \
    X(init, ncclCommInitRankConfig, NcclResult,                                                    \
      (NcclComm * comm, int n_ranks, NcclId id, int rank, NcclConfig *config))                     \
    X(split, ncclCommSplit, NcclResult,                                                            \
      (NcclComm comm, int color, int key, NcclComm *out, NcclConfig *config))                      \
    X(finalize, ncclCommFinalize, NcclResult, (NcclComm comm))                                     \
    X(destroy, ncclCommDestroy, NcclResult, (NcclComm comm))                                       \
    X(abort, ncclCommAbort, NcclResult, (NcclComm comm))                                           \
    X(async_error, ncclCommGetAsyncError, NcclResult, (NcclComm comm, NcclResult *error))          \
    X(gather, ncclAllGather, NcclResult,                                                           \
      (const void *from, void *to, size_t n, NcclType type, NcclComm comm, NcclStream stream))     \
    X(send, ncclSend, NcclResult,                                                                  \
      (const void *from, size_t n, NcclType type, int peer, NcclComm comm, NcclStream stream))     \
    X(recv, ncclRecv, NcclResult,                                                                  \
      (void *to, size_t n, NcclType type, int peer, NcclComm comm, NcclStream stream))             \
    X(group_start, ncclGroupStart, NcclResult, (void))                                             \
    X(group_end, ncclGroupEnd, NcclResult, (void))                                                 \
    X(mem_alloc, ncclMemAlloc, NcclResult, (void **at, size_t bytes))                              \
    X(mem_free, ncclMemFree, NcclResult, (void *at))

// Used where present: windows came with 2.27, their peers' addresses for the host with 2.29; before,
// the team of ranks that reach each other tells which addresses there are.
#define NCCL_OPTIONAL(X)                                                                           \
    X(window_register, ncclCommWindowRegister, NcclResult,                                         \
      (NcclComm comm, void *at, size_t bytes, NcclWindow *window, int flags))                      \
    X(window_deregister, ncclCommWindowDeregister, NcclResult, (NcclComm comm, NcclWindow window)) \
    X(peer_pointer, ncclGetPeerDevicePointer, NcclResult,                                          \
      (NcclWindow window, size_t offset, int peer, void **out))                                    \
    X(team_lsa, ncclTeamLsa, NcclTeam, (NcclComm comm))

typedef struct Nccl {
#define X(field, symbol, type, parameters) type(*field) parameters;
    NCCL_TABLE(X)
    NCCL_OPTIONAL(X)
#undef X
} Nccl;

/* nccl_library.c */
// Opened once per process and kind: NVIDIA's for GPUs, the stand-in for virtual ones. Fails with what is
// missing and where it was looked for.
Status nccl_open(bool virtual, const Nccl **out);

#endif
