#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# models/tiny.lua on two virtual GPUs that divide layers, or experts, also as if each were a node: through the hosts, through NCCL's stand-in
# under mpirun, and through it with torchrun's variables. The losses are those of one virtual GPU and of a CPU.
# long_tiny.sh SOURCE BUILD
set -euo pipefail
source=$1 build=$2
moec=$build/moec
[[ -x $moec && -f $build/libmoec-nccl.so && -f $build/libmoec-vgpu.so ]] || exit 77
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export MOEC_CACHE_DIR=${MOEC_CACHE_DIR:-$build/test-cache}
cd "$source"
tests/mpirun.sh "$build" 1 true >/dev/null || exit 77
# A rank of an emulated GPU is slow: what its own library finds to be wrong ends it, not the clock.
words=(train models/tiny.lua sequence=64 --data README.md --batch 256 --microbatch 128 --steps 3 --deadline 120)

losses() { sed -n 's/.*"train\/CE loss":\([^,}]*\).*/\1/p' "$work/$1/metrics.jsonl"; }
# near NAME: losses as the CPU's within 1e-4, as one virtual GPU's within 1e-5
near() {
    paste <(losses cpu) <(losses one) <(losses "$1") | awk -v name="$1" '
        function apart(a, b) { d = (a - b) / a; return d < 0 ? -d : d }
        { c = apart($1, $3); v = apart($2, $3); if (c > cpu) cpu = c; if (v > one) one = v; if (NF != 3) bad = 1 }
        END { printf "%-18s from a CPU %.1e, from one virtual GPU %.1e\n", name, cpu, one
              exit bad || NR != 3 || cpu > 1e-4 || one > 1e-5 }'
}
# run NAME COMMAND...: its output is shown if it fails
run() {
    local name=$1
    shift
    "$@" --out "$work/$name" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
}
torchrun() {
    local bad=0 first
    export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + RANDOM % 20000)) TORCHELASTIC_RUN_ID=$$
    RANK=0 LOCAL_RANK=0 "$moec" "$@" & first=$!
    RANK=1 LOCAL_RANK=1 "$moec" "$@" || bad=1
    wait "$first" || bad=1
    unset WORLD_SIZE MASTER_ADDR MASTER_PORT TORCHELASTIC_RUN_ID
    return "$bad"
}

run cpu "$moec" "${words[@]}"
if ! "$moec" "${words[@]}" --device vgpu:sm_80 --out "$work/one" >"$work/log" 2>&1; then
    cat "$work/log"
    grep -q 'was not found; looked for' "$work/log" && exit 77
    exit 1
fi
words+=(--device vgpu:sm_80)
for kind in pp ep blocks; do
    layout=pp=2,dp=1,microbatch=2
    [[ $kind == pp ]] || layout=dp=2,ep=2,microbatch=2
    [[ $kind == blocks ]] && layout+=,transport=blocks
    run "$kind" tests/mpirun.sh "$build" 2 "$moec" "${words[@]}" --layout "$layout"
    near "$kind"
    MOEC_NCCL_LIBRARY=$build/libmoec-nccl.so run "$kind-nccl" tests/mpirun.sh "$build" 2 "$moec" "${words[@]}" \
        --layout "$layout"
    near "$kind-nccl"
    run "$kind-torchrun" torchrun "${words[@]}" --layout "$layout"
    near "$kind-torchrun"
done
