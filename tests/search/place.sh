#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# moec place: what it prints and writes, what it refuses; and a run on two ranks goes on with its experts on
# other ranks to the very bits that it has where they were.
set -euo pipefail
source=$1 build=$2
[[ -x $build/moec ]] || exit 77
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export MOEC_CACHE_DIR=$build/test-cache
cd "$source"
moec=$build/moec

fail() { echo "$*"; exit 1; }
# has FILE TEXT...: every text is a line of the file, blanks aside.
has() {
    local file=$1 text
    shift
    for text in "$@"; do
        tr -s ' ' <"$file" | grep -qF -- "$text" || { cat "$file"; fail "expected: $text"; }
    done
}
# refused TEXT ARGUMENT...
refused() {
    local text=$1
    shift
    if "$moec" place "$@" >"$work/out" 2>"$work/err"; then fail "taken: place $*"; fi
    grep -qF -- "$text" "$work/err" || { cat "$work/err"; fail "expected: $text"; }
}

cat >"$work/mini.lua" <<'LUA'
local m = require "moec"
return m.model {
  name = "mini", vocab = 256, width = 32, sequence = 32,
  layers = m.stack(3, function(i)
    return m.block {
      attention = { heads = 2, kv_heads = 1, rope = true },
      ffn = i == 2 and { hidden = 32 } or m.experts { count = 8, top_k = 2, expert = { hidden = 32 } },
    }
  end),
}
LUA

# Loads of a file: two layers, one of which is as well as it can be.
{
    echo layer,expert,load
    for e in 0 1 2 3 4 5 6 7; do echo "1,$e,$((e < 2 ? 40 : 10))"; echo "3,$e,7"; done
} >"$work/loads.csv"
"$moec" place "$work/loads.csv" --ranks 4 --slots 3 -o "$work/placed.lua" >"$work/out"
has "$work/out" "ranks 4, each with experts / 4 of a layer; now in order" \
    " 1 8 2.2857 1.4286 1.4286 2 none is better" " 3 8 1.0000 1.0000 1.0000 0 none is better" \
    " all 1.9184 1.3061 1.3061 2" " 0 2.2857 ############################## 1.4286 ###################" \
    "copies of an expert share its rows" "no plan has copies yet" "moving 2 of 16 experts; a file of loads does not say" \
    "next: moec plan SPEC --layout $work/placed.lua"
has "$work/placed.lua" '[3] = { 0, 0, 1, 1, 2, 2, 3, 3, },' 'mesh = { "dp=4", "ep=4" },'
"$moec" plan "$work/mini.lua" --layout "$work/placed.lua" --microbatch 32 -o "$work/placed.plan" >/dev/null
grep -q 'layers.3.ffn.experts' "$work/placed.plan"
# Written again by what was written: the rest of the layout stays.
"$moec" place "$work/loads.csv" --layout pp=3,dp=8,ep=2,params=fsdp,schedule=zb -o "$work/again.lua" >/dev/null
has "$work/again.lua" 'mesh = { "pp=3", "dp=8", "ep=2" },' 'params = "fsdp",' 'schedule = "zb",'
"$moec" plan "$work/mini.lua" --layout "$work/again.lua" --microbatch 32 >/dev/null

refused "no RUN or file of loads given" --ranks 2
refused "has all experts on one rank" "$work/loads.csv"
refused "3 ranks do not divide the 8 experts of layer 1
  hint: --ranks 2" "$work/loads.csv" --ranks 3
refused "16 ranks do not divide the 8 experts of layer 1
  hint: --ranks 8" "$work/loads.csv" --ranks 16
refused "--slots 1: layer 1 has 8 experts, expected 4 to 8 places on each of 2 ranks" "$work/loads.csv" --ranks 2 --slots 1
refused "--ranks 4 and --layout with ep=2" "$work/loads.csv" --ranks 4 --layout dp=2,ep=2
refused "a file of Lua is read for a model" "$work/loads.csv" --layout "$work/placed.lua"
refused "--layer 2: that layer has no experts" "$work/loads.csv" --ranks 2 --layer 2
refused "unknown option '--rank' of 'place'
  hint: did you mean --ranks" "$work/loads.csv" --rank 2
refused "--cluster b300x2: 4 ranks on 2 devices" "$work/loads.csv" --ranks 4 --cluster b300x2
refused "--cluster b301x2 cannot be read" "$work/loads.csv" --ranks 4 --cluster b301x2
refused "--bytes-per-s is -1, expected 0 to" "$work/loads.csv" --bytes-per-s -1
refused "a name that ends in .lua" "$work/loads.csv" --ranks 4 -o "$work/placed"
cp "$work/loads.csv" "$work/loads.lua"
refused "would overwrite" "$work/loads.csv" --ranks 2 --layout "$work/placed.lua" -o "$work/placed.lua"
refused "would overwrite" "$work/loads.lua" --ranks 4 -o "$work/./loads.lua"
refused "unexpected 'more' after" "$work/loads.csv" more
refused "is not the folder of a run" "$work"
echo layer,expert >"$work/wrong.csv"
refused "wrong.csv:1: no column 'load'" "$work/wrong.csv" --ranks 2
: >"$work/empty.csv"
refused "has no loads" "$work/empty.csv" --ranks 2

# A run.
ranks() { tests/mpirun.sh "$build" "$@"; }
ranks 1 true >/dev/null || exit 77
ranks 2 "$moec" train "$work/mini.lua" --data README.md --held-out 2000 --batch 256 --microbatch 128 --save-interval 3 \
    --clip 1e9 --layout dp=2,ep=2 --steps 3 --out "$work/stay" >"$work/log" 2>&1 || { cat "$work/log"; fail train; }
cp -r "$work/stay" "$work/move"
"$moec" place "$work/move" --bytes-per-s 1e9 -o "$work/moved.lua" >"$work/out"
has "$work/out" "next: mpirun -n 2 moec resume $work/move --layout $work/moved.lua --steps N"
has "$work/out" "now as the run has them" "steps 1 to 3, 3 of them" "step by step" "later steps" " of weights and moments, " ": pays after "
"$moec" place "$work/move" --cluster cpux2 >"$work/cluster"
has "$work/cluster" " FLOP/s" ": pays after "
grep -q '^moving   0 of' "$work/out" && fail "nothing to move"
layout=()
for run in stay move; do
    [[ $run == stay ]] || layout=(--layout "$work/moved.lua")
    ranks 2 "$moec" resume "$work/$run" "${layout[@]}" --steps 6 >"$work/log" 2>&1 || { cat "$work/log"; fail "$run"; }
done
for file in weights moment1 moment2; do
    cmp "$work/stay/checkpoints/step-6/$file.safetensors" "$work/move/checkpoints/step-6/$file.safetensors"
done
! cmp -s "$work/stay/plan.txt" "$work/move/plan.txt" || fail "the same plan"
# The run is where it was moved to, and so is what is asked of it next.
"$moec" place "$work/move" --last 0 >"$work/out"
has "$work/out" "steps 1 to 6, 6 of them"
# Experts of another model's loads.
sed 's/^3,7,7$//' "$work/loads.csv" >"$work/fewer.csv"
cp "$work/stay/metrics.jsonl" "$work/metrics"
sed 's/"train\/block 03\/load":\[[0-9]*,/"train\/block 03\/load":[/' "$work/metrics" >"$work/stay/metrics.jsonl"
refused "has loads of 7 experts of layer 3, and $work/stay has 8 there" "$work/stay"
# None recorded: even loads, and experts stay.
: >"$work/stay/metrics.jsonl"
"$moec" place "$work/stay" -o "$work/even.lua" >"$work/out"
has "$work/out" "none is recorded, taken as even" " all 1.0000 1.0000 1.0000 0" "moving 0 of 16 experts"
has "$work/even.lua" '[1] = { 0, 0, 0, 0, 1, 1, 1, 1, },'
