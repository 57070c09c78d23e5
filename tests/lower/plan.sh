#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `moec plan`: the summary, the plan's text, dumps of passes, and wrong command lines.
set -uo pipefail
source_dir=$1 moec=$2/moec
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export MOEC_CACHE_DIR="${MOEC_CACHE_DIR:-$2/test-cache}"
cd "$source_dir"
bad=0

expect() { # text, file
    grep -qF -- "$1" "$2" || { echo "expected in $(basename "$2"): $1"; sed 's/^/    /' "$2" | head -20; bad=1; }
}

refused() { # message, arguments...
    local message=$1
    shift
    "$moec" plan "$@" >"$scratch/out" 2>"$scratch/err"
    [[ $? == 2 ]] || { echo "moec plan $*: expected exit status 2"; bad=1; }
    expect "$message" "$scratch/err"
    [[ ! -s $scratch/out ]] || { echo "moec plan $*: printed although refused"; bad=1; }
}

"$moec" plan models/tiny.lua --microbatch 512 --microbatches 4 -o "$scratch/tiny.plan" >"$scratch/tiny.txt" ||
    { echo "moec plan models/tiny.lua failed"; bad=1; }
expect "plan    tiny on cpu, 512 tokens in sequences of 256, 4 microbatches a step" "$scratch/tiny.txt"
expect "program step:" "$scratch/tiny.txt"
expect "program eval:" "$scratch/tiny.txt"
expect "attend_grad" "$scratch/tiny.txt"
expect "models/tiny.lua:" "$scratch/tiny.txt"
expect "model tiny target cpu tokens 512 sequence 256 vocab 256 microbatches 4" "$scratch/tiny.plan"

# Further rounds in every one of many layers, on whose order none of the others' rounds has a say.
"$moec" plan models/qwen3_235b_a22b.lua --layout dp=4,ep=4,capacity=dropless,round=1.25 >"$scratch/rounds.txt" 2>&1 ||
    { echo "rounds in many layers failed"; head -3 "$scratch/rounds.txt"; bad=1; }

# The peak in the summary is the sum of the regions in the plan.
peak=$(awk '$1 == "peak" { print $2 }' "$scratch/tiny.plan")
sum=$(awk '$1 == "region" { sum += $3 } END { print sum }' "$scratch/tiny.plan")
[[ $peak == "$sum" ]] || { echo "peak $peak, regions sum to $sum"; bad=1; }

"$moec" plan models/tiny.lua layers=1 -d fs >"$scratch/dump.txt" || bad=1
expect "-- step after fuse" "$scratch/dump.txt"
expect "-- eval after schedule" "$scratch/dump.txt"
expect "update adamw" "$scratch/dump.txt"

refused "no SPEC given"
refused "unknown option '--microbatchs'" models/tiny.lua --microbatchs 4
refused "did you mean --microbatch" models/tiny.lua --microbatchs 4
refused "-o needs a value" models/tiny.lua -o
refused "--microbatches is -1, expected 0 to" models/tiny.lua --microbatches -1
refused "--microbatch is 100 tokens, expected a multiple of the sequence of 256" models/tiny.lua --microbatch 100
refused "moec: error: no pass 'x' to dump" models/tiny.lua -d fx
refused "hint: p precision, l loss, o rounds, r recompute, f fuse, d describe, c chunk, s schedule, a place" models/tiny.lua -d '?'
refused "unexpected 'layers'" models/tiny.lua layers
refused "models/none.lua" models/none.lua
refused "no SPEC given" ""
"$moec" plan models/tiny.lua -o "$scratch/none/tiny.plan" >"$scratch/out" 2>"$scratch/err"
[[ $? == 1 && ! -s $scratch/out ]] || { echo "a plan that cannot be written is refused too late"; bad=1; }
expect "cannot write" "$scratch/err"

# What is read is not written over.
cp models/tiny.lua "$scratch/spec.lua"
refused "would overwrite" "$scratch/spec.lua" -o "$scratch/./spec.lua"
cmp -s models/tiny.lua "$scratch/spec.lua" || { echo "a spec is gone"; bad=1; }
echo 'return require "moec".layout { mesh = { "dp=2" } }' >"$scratch/layout.lua"
cp "$scratch/layout.lua" "$scratch/before.lua"
refused "would overwrite" models/tiny.lua --layout "$scratch/layout.lua" -o "$scratch/layout.lua"
cmp -s "$scratch/before.lua" "$scratch/layout.lua" || { echo "a layout is gone"; bad=1; }
exit $bad
