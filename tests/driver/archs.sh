#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every kernel of models/tiny.lua, in both precisions, compiles for every architecture we name: nothing spills,
# parameters lie in the code as launches pass them, and a block fits: 64 K registers of a multiprocessor, and the 99
# KiB of shared memory that a block has on the smallest of them.
#   archs.sh SOURCE BUILD [SPEC OPTIONS...]     of another spec, with options of moec kernels
set -euo pipefail
source=$1 build=$2
shift 2
(($#)) || set -- models/tiny.lua
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$source"
for run in {fp32,bf16}:sm_{80,89,90a,100a,103a,120a}; do
    arch=${run#*:}
    if ! "$build/moec" kernels "$@" --precision "${run%:*}" --arch "$arch" -o "$work/$arch-${run%:*}" \
        >"$work/log" 2>&1; then
        cat "$work/log"
        if grep -q 'was not found; looked for' "$work/log"; then exit 77; fi
        exit 1
    fi
    line=$(tail -n 1 "$work/log")
    echo "$1, $run: $line"
    [[ $line == '0 spill; '*'; parameters lie as launches pass them' ]]
    mapfile -t reports < <(find "$work/$arch-${run%:*}" -name report.txt)
    awk -v most_shared=$((99 * 1024)) 'NF == 8 && $2 ~ /^[0-9]+$/ {
            rows++
            if ($3 * $4 > 65536 || $5 > most_shared) { print "does not fit: " $0; bad = 1 }
        } END { exit bad || !rows }' "${reports[@]}"
done
