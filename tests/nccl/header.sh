#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The table of NCCL's calls (runtime/comm/nccl_api.h) against NVIDIA's header, and against the library,
# where those are: types of calls, values of constants, layouts; names that the library has.
# header.sh SOURCE BUILD
set -euo pipefail
source=$1
bad=0

compiler=$(command -v clang-19 || command -v gcc-12 || command -v cc)
if echo '#include <nccl_device/impl/core__types.h>' | "$compiler" -E -x c - >/dev/null 2>&1; then
    "$compiler" -std=gnu17 -D_GNU_SOURCE -Werror -fsyntax-only -I"$source" -x c - <<'END' || bad=1
#include <nccl.h>
#include <nccl_device/impl/core__types.h>
typedef ncclResult_t NcclResult;
typedef ncclDataType_t NcclType;
typedef ncclUniqueId NcclId;
typedef ncclTeam_t NcclTeam;
typedef ncclConfig_t NcclConfig;
#define MOEC_NCCL_THEIRS
#include "runtime/comm/nccl_api.h"
#define X(field, symbol, type, parameters) type symbol parameters;
NCCL_TABLE(X) // a call declared again with another type does not compile
NCCL_OPTIONAL(X)
#undef X
#define SAME(ours, theirs) _Static_assert((long long)(ours) == (long long)(theirs), #theirs);
SAME(NCCL_OK, ncclSuccess)
SAME(NCCL_CUDA_ERROR, ncclUnhandledCudaError)
SAME(NCCL_SYSTEM_ERROR, ncclSystemError)
SAME(NCCL_INTERNAL_ERROR, ncclInternalError)
SAME(NCCL_WRONG_ARGUMENT, ncclInvalidArgument)
SAME(NCCL_WRONG_USE, ncclInvalidUsage)
SAME(NCCL_REMOTE_ERROR, ncclRemoteError)
SAME(NCCL_IN_PROGRESS, ncclInProgress)
SAME(NCCL_INT8, ncclInt8)
SAME(NCCL_UINT8, ncclUint8)
SAME(NCCL_UINT32, ncclUint32)
SAME(NCCL_FLOAT32, ncclFloat32)
SAME(NCCL_N_TYPES, ncclNumTypes)
SAME(NCCL_NO_COLOR, NCCL_SPLIT_NOCOLOR)
SAME(NCCL_SYMMETRIC, NCCL_WIN_COLL_SYMMETRIC)
SAME(NCCL_WINDOW_GRAIN, NCCL_WIN_REQUIRED_ALIGNMENT)
SAME(NCCL_UNSET, NCCL_CONFIG_UNDEF_INT)
SAME(sizeof(NcclId), NCCL_UNIQUE_ID_BYTES)
#define AT(ours, a, theirs, b) SAME(offsetof(ours, a), offsetof(theirs, b))
typedef struct ncclWindow_vidmem Window;
AT(NcclWindowHead, flat, Window, lsaFlatBase)
AT(NcclWindowHead, lsa_rank, Window, lsaRank)
AT(NcclWindowHead, world_rank, Window, worldRank)
AT(NcclWindowHead, stride_4g, Window, stride4G)
typedef struct NcclSettings Config;
AT(Config, size, ncclConfig_t, size)
AT(Config, magic, ncclConfig_t, magic)
AT(Config, version, ncclConfig_t, version)
AT(Config, blocking, ncclConfig_t, blocking)
AT(Config, net_name, ncclConfig_t, netName)
AT(Config, split_share, ncclConfig_t, splitShare)
AT(Config, comm_name, ncclConfig_t, commName)
AT(Config, nvlink_centric, ncclConfig_t, nvlinkCentricSched)
#if NCCL_VERSION_CODE == 22809
SAME(sizeof(Config), sizeof(ncclConfig_t))
SAME(NCCL_CONFIG_VERSION, NCCL_VERSION_CODE)
#endif
END
else
    echo "skipped: prototypes against nccl.h, which is not in the compiler's search path"
fi

library=$(ls /usr/local/cuda*/lib*/libnccl.so.2 2>/dev/null | tail -1 || true)
if [[ -n $library ]]; then
    shown=$(nm -D --defined-only "$library" | awk '{ print $3 }')
    for name in $(sed -n '/define NCCL_TABLE/,/define NCCL_OPTIONAL/p' "$source/runtime/comm/nccl_api.h" |
                  grep -oE '\bnccl[A-Z][A-Za-z]+' | sort -u); do
        grep -qx "$name" <<<"$shown" || { echo "$library has no $name"; bad=1; }
    done
else
    echo "skipped: names against libnccl.so.2, which is not in CUDA's folder"
fi
exit $bad
