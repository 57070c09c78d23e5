#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# libmoec-vgpu.so shows the driver's names and nothing else, needs nothing of NVIDIA's, and, where the
# toolkit is, its calls have the types that NVIDIA's header declares.
# exports.sh SOURCE BUILD
set -euo pipefail
source=$1 library=$2/libmoec-vgpu.so
[[ -f $library ]] || { echo "no $library: build the target moec-vgpu"; exit 1; }
bad=0

shown=$(nm -D --defined-only "$library" | awk '{ print $3 }')
others=$(grep -vE '^(cu[A-Z]|vgpu[A-Z])' <<<"$shown" || true)
[[ -z $others ]] || { echo "exported beside the driver's names: $others"; bad=1; }
for name in $(grep -oE 'X\(cu[A-Za-z0-9_]+' "$source/runtime/vgpu/cuda_calls.h" | cut -c3-) vgpuInit vgpuLastReport; do
    grep -qx "$name" <<<"$shown" || { echo "not exported: $name"; bad=1; }
done
for file in "$library" "$2"/{moec,moec-run,moec-mpi.so,libmoec-nccl.so}; do
    [[ -f $file ]] || continue
    if ldd "$file" | grep -iE 'cuda|nvidia|nvrtc|libnccl'; then echo "$file needs a library of NVIDIA's"; bad=1; fi
done

compiler=$(command -v clang-19 || command -v gcc-12 || command -v cc)
if ! echo '#include <cuda.h>' | "$compiler" -E -x c - >/dev/null 2>&1; then
    echo "skipped: prototypes against cuda.h, which is not in the compiler's search path"
    exit $bad
fi
for file in "$source"/runtime/vgpu/driver_*.c; do
    "$compiler" -std=gnu17 -D_GNU_SOURCE -DMOEC_VGPU_NVIDIA_HEADER -Werror -fsyntax-only -I"$source" "$file" || bad=1
done
exit $bad
