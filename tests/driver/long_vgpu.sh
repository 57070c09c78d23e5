#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# models/tiny.lua trains 20 steps of 256 tokens on the virtual GPU, of two architectures, launch by launch and as a
# captured graph: losses as the CPU's within 1e-4 in fp32; in bf16, where both round products that
# are summed in different orders, within 1e-2. Graph and launches give the same losses to the digit.
set -euo pipefail
source=$1 build=$2
moec=$build/moec
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$source"
cat README.md docs/*.md dsl/*.lua >"$work/text"

# train NAME PRECISION DEVICE options...: losses to $work/NAME.loss
train() {
    local name=$1 precision=$2 device=$3
    shift 3
    if ! "$moec" train models/tiny.lua --data "$work/text" --held-out 1000 --microbatch 256 --batch 256 --steps 20 \
        --precision "$precision" --device "$device" --out "$work/$name" "$@" >"$work/log" 2>&1; then
        if grep -q 'was not found; looked for' "$work/log"; then
            cat "$work/log"
            exit 77
        fi
        cat "$work/log"
        exit 1
    fi
    sed 's/.*"train\/CE loss":\([^,}]*\).*/\1/' "$work/$name/metrics.jsonl" >"$work/$name.loss"
    [[ $(wc -l <"$work/$name.loss") == 20 ]]
}

# near A B BOUND: relative, step by step
near() {
    paste "$work/$1.loss" "$work/$2.loss" | awk -v bound="$3" -v what="$1 and $2" '
        { d = ($1 - $2) / $1; if (d < 0) d = -d; if (d > worst) worst = d }
        END { printf "%s: largest difference of a loss %.2e, bound %.0e\n", what, worst, bound; exit worst > bound }'
}

for precision in fp32 bf16; do
    bound=1e-4
    [[ $precision == bf16 ]] && bound=1e-2
    train "cpu-$precision" $precision cpu
    train "sm_80-$precision" $precision vgpu:sm_80
    train "sm_80-$precision-launches" $precision vgpu:sm_80 --graph=off
    train "sm_90a-$precision" $precision vgpu:sm_90a
    train "sm_90a-$precision-launches" $precision vgpu:sm_90a --graph=off
    near "cpu-$precision" "sm_80-$precision" $bound
    near "cpu-$precision" "sm_90a-$precision" $bound
    for arch in sm_80 sm_90a; do cmp "$work/$arch-$precision.loss" "$work/$arch-$precision-launches.loss"; done
    awk 'NR == 1 { first = $1 } { last = $1 } END { exit last >= first }' "$work/sm_80-$precision.loss"
done
