#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# All of ./dev gpu, where there is no GPU: in a mount namespace whose /dev has an nvidia0, with the virtual GPU's library
# as libcuda.so.1, without Debian's tools and nvidia-smi. It must end well where all is well; and where the driver is
# missing, or older than the compiler, or a kernel computes something else, it must say so and fail.
set -euo pipefail
source=$1 build=$2

# Inside: a /dev of our own. Nothing outside sees it, and it goes with the last process.
if [[ ${3:-} == inside ]]; then
    work=$4
    shift 4
    mkdir "$work/dev"
    mount -t tmpfs tmpfs "$work/dev"
    for node in null zero full random urandom tty; do
        [[ -e /dev/$node ]] || continue
        touch "$work/dev/$node"
        mount --bind "/dev/$node" "$work/dev/$node"
    done
    mkdir -m 1777 "$work/dev/shm"
    ln -s /proc/self/fd "$work/dev/fd"
    touch "$work/dev/nvidia0"
    mount --rbind "$work/dev" /dev
    exec "$@"
fi

if ! unshare -rm true 2>/dev/null; then
    echo "skipped: a namespace for mounts is not permitted here"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The project as it is, but for what the script writes; the programs of PATH, but for those that it may not need.
mkdir "$work/tree" "$work/bin" "$work/driver" "$work/shim" "$work/none"
ln -s "$source"/{dev,models,runtime,compiler} "$work/tree"
ln -s "$build" "$work/tree/build"
IFS=: read -ra folders <<<"$PATH"
for ((i = ${#folders[@]} - 1; i >= 0; i--)); do
    find "${folders[i]}" -maxdepth 1 -mindepth 1 \( -type f -o -type l \) -exec ln -sf -t "$work/bin" {} + 2>/dev/null || true
done
rm -f "$work/bin/"{dpkg-query,apt-get,nvidia-smi}
cp "$build/libmoec-vgpu.so" "$work/driver/libcuda.so.1"

# A driver that is as DRIVER_IS says.
cat >"$work/shim.c" <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
static int is(const char *what) { return getenv("DRIVER_IS") && !strcmp(getenv("DRIVER_IS"), what); }
int cuDriverGetVersion(int *version) { *version = is("old") ? 12040 : 13000; return 0; }
int cuModuleLoadDataEx(void **module, const void *image, unsigned n, int *options, void **values) {
    int (*real)(void **, const void *, unsigned, int *, void **) = dlsym(RTLD_NEXT, "cuModuleLoadDataEx");
    return is("old") ? 222 : real(module, image, n, options, values);
}
int cuDeviceGetCount(int *n) { *n = 2; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = 0; return ordinal < 2 ? 0 : 101; }
// Of a kernel's blocks the last is lost.
int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   void *stream, void **params, void **extra) {
    int (*real)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **) =
        dlsym(RTLD_NEXT, "cuLaunchKernel");
    return real(f, is("wrong") && gx > 1 ? gx - 1 : gx, gy, gz, bx, by, bz, shared, stream, params, extra);
}
C
clang-19 -shared -fPIC -o "$work/shim/libcuda.so.1" "$work/shim.c" -Wl,--no-as-needed "$build/libmoec-vgpu.so" \
    -Wl,-rpath,"$build"

# script FOLDER arguments...: ./dev gpu where libcuda.so.1 is in FOLDER; its output in $work/out, its exit status in $status
script() {
    local folder=$1 begin=$SECONDS
    shift
    status=0
    [[ ! -d $work/dev ]] || rmdir "$work/dev"
    rm -f "$work/tree/gpu-report.txt"
    (cd "$work/tree" && PATH=$work/bin LD_LIBRARY_PATH=$folder TMPDIR=$work unshare -rm "$source/tests/driver/long_gpu_script.sh" \
        "$source" "$build" inside "$work" ./dev gpu "$@") >"$work/out" 2>&1 || status=$?
    printf -- '-- %s: status %d after %d s\n' "${folder##*/}${DRIVER_IS:+, $DRIVER_IS} ${*}" "$status" $((SECONDS - begin))
}

bad=0
expect() { # status, text...
    local wanted=$1 part
    shift
    [[ $status == "$wanted" ]] || { echo "expected status $wanted"; bad=1; }
    for part; do grep -qE -- "$part" "$work/out" || { echo "expected: $part"; bad=1; }; done
    ((bad == 0)) || { cat "$work/out"; exit 1; }
}

export MOEC_GPU_STEPS=2 MOEC_GPU_BATCH=256

script "$work/driver"
cat "$work/out"
expect 0 'nvidia-smi does not say' 'device cuda, plans for cuda:sm_90a' ' 0 failed, ' \
    '^(fp32|bf16), GPU and CPU  *2 steps, losses within ' '^fp32, graph and launches  *2 steps, losses within 0 ' \
    '^bf16, graph and launches  *2 steps, losses within 0 ' '^bf16, GPU and virtual GPU  *2 steps' \
    'tiny on moec virtual GPU sm_90a \(cuda:sm_90a\): step ' '^no cuBLAS beside: ' '^all kernels of a step: ' 'all is well'
diff <(grep -c . "$work/tree/gpu-report.txt") <(sed -n '/nvidia-smi does not say/,$p' "$work/out" | grep -c .) ||
    { echo "expected all of it in gpu-report.txt"; exit 1; }

# What fails stays in the report, what comes after it too.
export MOEC_GPU_STEPS=1 MOEC_GPU_TESTS='kernels\.moves' MOEC_GPU_PRECISIONS=fp32
DRIVER_IS=wrong script "$work/shim" --built cuda:1
expect 1 'device cuda:1' '[1-9][0-9]* failed' 'GPU and CPU .*(WRONG|NOT COMPARED)' 'something FAILED: see above'
grep -q 'something FAILED' "$work/tree/gpu-report.txt" || { echo "expected it in gpu-report.txt"; exit 1; }

DRIVER_IS=old script "$work/shim" --built
expect 1 'hint: NVRTC [0-9.]+ made it, and this driver is of CUDA 12.4: ' 'something FAILED'

script "$work/none" --built
expect 1 'there is a GPU, but it cannot be used:' 'the CUDA driver was not found; looked for libcuda.so.1'
script "$work/driver" --built cuda:3
expect 1 'there is a GPU, but it cannot be used:' 'expected a GPU of number 0 to 0, found cuda:3'

if ! compgen -G '/dev/nvidia[0-9]*' >/dev/null && [[ ! -e /dev/dxg ]]; then
    "$source/dev" gpu >"$work/out" && status=0 || status=$?
    expect 0 'no NVIDIA GPU here: nothing to do'
fi
