#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `moec search`: what it prints is the same each time, what it writes `moec plan` takes with the bytes it said,
# and what is wrong with a command is said.
set -uo pipefail
source=$1 moec=$2/moec
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0
fail() { echo "FAILED: $*"; bad=1; }
expect() { grep -qF -- "$2" "$1" || { fail "no '$2' in"; cat "$1"; }; }

cd "$source" || exit 1
search() { "$moec" search models/tiny.lua --cluster cpux4 --tokens 8192 "$@"; }
search --layout pp=2,dp=2 -o "$work/best.lua" >"$work/a" 2>"$work/error" || fail "search: $(cat "$work/error")"
search --layout pp=2,dp=2 >"$work/b" 2>/dev/null || fail "search again"
cmp -s <(sed 's/; [0-9.]* s$//' "$work/a") <(sed 's/; [0-9.]* s$//' "$work/b") || fail "two searches differ"
for part in "on 4 x CPU core" "certificate" "no layout is faster than" "one step away" "other machines and loads" \
            "why not pp=2,dp=2" "lowered: bytes" "memory of a device of each stage"; do
    expect "$work/a" "$part"
done
"$moec" plan models/tiny.lua --layout "$work/best.lua" --target cpu >"$work/plan" 2>"$work/error" ||
    fail "moec plan does not take the layout: $(cat "$work/error")"

search --memory 0.9 >"$work/c" 2>&1 || fail "search where nothing fits"
expect "$work/c" "no layout fits 0.9 GiB"
expect "$work/c" "the least that must change"

refuse() {
    local text=$1
    shift
    "$moec" search "$@" >"$work/out" 2>"$work/error"
    [[ $? == 2 ]] || fail "exit status of: search $*"
    expect "$work/error" "$text"
}
refuse "no SPEC given" --cluster cpux4
refuse "no --cluster given" models/tiny.lua
refuse "did you mean --cluster" models/tiny.lua --clutser cpux4
refuse "256 tokens are" models/tiny.lua --cluster cpux4 --tokens 100
refuse "the cluster has 4" models/tiny.lua --cluster cpux4 --gpus 8
refuse "expected fp32, bf16 or mxfp8" models/tiny.lua --cluster cpux4 --precision fp64
refuse "is no multiple" models/tiny.lua --cluster cpux64 --tokens 1024
refuse "layout:" models/tiny.lua --cluster cpux4 --brief --layout dp=3
exit $bad
