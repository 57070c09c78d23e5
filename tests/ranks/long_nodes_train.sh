#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Experts across two nodes: a model trains with its rows in blocks over TCP, with the losses of one rank, and
# from a saved plan; ranks give each other the bytes that the plan says; what cannot be is refused, with the next
# step.
set -euo pipefail
source=$1 build=$2
. "$source/tests/ranks/rank/two_nodes.sh"
[[ -x $build/moec && -x $build/moec-layouts ]] || skip "no compiler here"
cd "$source"
moec=$build/moec
fail() { echo "$*"; exit 1; }
losses() { sed -n 's/.*"train\/CE loss":\([^,}]*\).*/\1/p' "$1/metrics.jsonl"; }
# close A B N: the losses of two runs agree to 1e-6, and there are N.
close() {
    paste <(losses "$scratch/$1") <(losses "$scratch/$2") | awk -v a="$1" -v b="$2" -v n="$3" '
        { d = ($1 - $2) / $1; if (d < 0) d = -d; if (d > m) m = d; if (NF != 2 || d > 1e-6) { print a, b, "step", NR, $0; bad = 1 } }
        END { printf "%s and %s: %d losses within %.2g\n", a, b, NR, m; exit bad || NR != n }'
}
# run NAME COMMAND...
run() {
    "${@:2}" >"$scratch/$1.log" 2>&1 || { cat "$scratch/$1.log"; fail "$1"; }
}

spec=(models/tiny.lua layers=2 experts=4)
data=(--data README.md --held-out 2000 --batch 1024 --steps 3)
# The balance loss is of a microbatch: one rank takes those of all in turn.
run one "$moec" train "${spec[@]}" "${data[@]}" --microbatch 256 --out "$scratch/one"
run blocks on_nodes "$moec" train "${spec[@]}" "${data[@]}" --microbatch 256 --out "$scratch/blocks" \
    --layout dp=4,ep=4,transport=blocks,node=2
close one blocks 3
run apart on_nodes "$moec" train "${spec[@]}" "${data[@]}" --microbatch 256 --out "$scratch/apart" \
    --layout dp=4,ep=4,transport=blocks
close one apart 3
grep -q 'node=1, and 2 ranks of ep share memory here: node=2' "$scratch/apart.log"
! grep -q 'share memory here' "$scratch/blocks.log"
run plan "$moec" plan "${spec[@]}" --microbatches 1 --layout dp=4,ep=4,transport=blocks,node=2,microbatch=1 -o "$scratch/saved.plan"
run saved on_nodes "$build/moec-run" "$scratch/saved.plan" --data README.md --held-out 2000 --steps 3 --out "$scratch/saved"
close blocks saved 3

# counted NAME OF: what all ranks gave in a step as NAME, from the plan and counted, and that it is more than OF.
counted() {
    local line
    line=$(cat "$scratch/$1.log")
    [[ $line =~ \ $2_predicted=([0-9.e+]*)\ $2_counted=([0-9.e+]*) ]] || fail "no $2: $line"
    echo "$1: $2 ${BASH_REMATCH[1]} bytes planned, ${BASH_REMATCH[2]} counted"
    [[ ${BASH_REMATCH[1]} == "${BASH_REMATCH[2]}" && ${BASH_REMATCH[1]} != 0 ]] || fail "$1: $2"
}
measure=("$build/moec-layouts" models/tiny.lua dp=4,ep=4,transport=blocks,node=2,microbatch=1)
for top_k in 1 4; do
    run "top$top_k" on_nodes "${measure[@]}" layers=2 experts=4 top_k=$top_k --microbatches 2 --routing uniform \
        --precision fp32
    for what in blocks gather put get; do counted "top$top_k" $what; done
done

# refused NAME PART LAYOUT [OPTION...]
refused() {
    ! on_nodes "$moec" train "${spec[@]}" "${data[@]}" --out "$scratch/no-$1" --layout "$3" "${@:4}" \
        >"$scratch/$1.log" 2>&1 || fail "$1 is not refused"
    [[ $(grep -c -- "$2" "$scratch/$1.log") == 1 ]] || { cat "$scratch/$1.log"; fail "$1: '$2' once"; }
}
refused rows 'hint: a layout with transport=blocks,node=2' dp=4,ep=4,microbatch=1
refused wide 'hint: a layout with transport=blocks,node=2' dp=4,ep=4,transport=blocks,node=4,microbatch=1

# Virtual GPUs, of which two share memory: what crosses goes through their hosts.
spec+=(sequence=32)
data=(--data README.md --held-out 2000 --batch 128 --steps 2)
gpu=(--device vgpu:sm_80 --deadline 120)
export MOEC_VGPU_LIBRARY=$build/libmoec-vgpu.so
run small "$moec" train "${spec[@]}" "${data[@]}" --microbatch 32 --out "$scratch/small"
if on_nodes "$moec" train "${spec[@]}" "${data[@]}" "${gpu[@]}" --microbatch 32 --out "$scratch/gpus" \
    --layout dp=4,ep=4,transport=blocks,node=2 >"$scratch/gpus.log" 2>&1; then
    close small gpus 2
    refused gpu_rows 'hint: a layout with transport=blocks,node=2' dp=4,ep=4,microbatch=1 "${gpu[@]}"
else
    cat "$scratch/gpus.log"
    grep -q 'was not found; looked for' "$scratch/gpus.log" || fail "blocks of virtual GPUs"
fi
