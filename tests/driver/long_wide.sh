#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Models whose rows are wider than a block's shared memory: they lower, and their plans pass the check, for every
# architecture we name, on one rank and with experts apart; and what comes out compiles, spills nothing and fits.
set -euo pipefail
source=$1 build=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$source"

lowers() {
    if ! "$build/moec" plan "$@" -o "$work/plan" >"$work/log" 2>&1; then
        printf 'does not lower: %s\n' "$*"
        cat "$work/log"
        exit 1
    fi
}

for arch in sm_{80,89,90a,100a,103a,120a}; do
    lowers models/olmo3moe.lua size=ultra --target "cuda:$arch"
    lowers models/deepseek_v3.lua --target "cuda:$arch" --layout pp=4,dp=8,ep=8
    echo "$arch: plans of olmo3moe ultra and deepseek_v3"
done
lowers models/deepseek_v3.lua --target cuda:sm_100a --precision bf16 --layout dp=64,ep=64,params=fsdp,recompute=block

if ! "$build/moec" kernels models/olmo3moe.lua size=ultra --arch sm_90a -o "$work/kernels" >"$work/log" 2>&1; then
    cat "$work/log"
    if grep -q 'was not found; looked for' "$work/log"; then exit 77; fi
    exit 1
fi
line=$(tail -n 1 "$work/log")
echo "$line"
[[ $line == '0 spill; '*'; parameters lie as launches pass them' ]]
awk 'NF == 8 && $2 ~ /^[0-9]+$/ {
        rows++
        if ($3 * $4 > 65536 || $5 > 227 * 1024) { print "does not fit: " $0; bad = 1 }
    } END { exit bad || !rows }' "$work/kernels/report.txt"
