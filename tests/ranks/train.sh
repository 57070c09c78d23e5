#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# moec train, resume and eval on ranks that mpirun starts: the losses of one rank, a run that is resumed on the
# same ranks and on others, one voice for what all ranks say.
set -euo pipefail
source=$1 build=$2
[[ -x $build/moec ]] || exit 77
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export MOEC_CACHE_DIR=$work/cache
cd "$source"

ranks() { local n=$1; shift; tests/mpirun.sh "$build" "$n" "$@"; }
ranks 1 true >/dev/null || exit 77
moec=$build/moec

cat >"$work/mini.lua" <<'LUA'
local m = require "moec"
return m.model {
  name = "mini", vocab = 256, width = 32, sequence = 32,
  layers = m.stack(2, m.block {
    attention = { heads = 2, kv_heads = 1, rope = true },
    ffn = m.experts { count = 4, top_k = 2, expert = { hidden = 32 }, router = { balance_loss = 0.01, balance = "global" } },
  }),
}
LUA
data=(--data README.md --held-out 2000 --batch 512 --save-interval 4)

fail() { echo "$*"; exit 1; }
losses() { sed -n 's/.*"train\/CE loss":\([^,}]*\).*/\1/p' "$1/metrics.jsonl"; }
# close A B: the losses of two runs agree to 1e-6, and there are as many.
close() {
    paste <(losses "$1") <(losses "$2") | awk -v a="$1" -v b="$2" '
        { d = ($1 - $2) / $1; if (d < 0) d = -d; if (NF != 2 || d > 1e-6) { print a, b, "step", NR, $0; bad = 1 } }
        END { exit bad || NR == 0 }'
}
# same A B STEP: equal bytes of every file of state.
same() {
    for file in weights moment1 moment2; do
        cmp "$1/checkpoints/step-$3/$file.safetensors" "$2/checkpoints/step-$3/$file.safetensors"
    done
}
# train N LAYOUT STEPS RUN [options...]
train() {
    local n=$1 layout=$2 steps=$3 run=$4
    shift 4
    ranks "$n" "$moec" train "$work/mini.lua" "${data[@]}" --layout "$layout" --steps "$steps" --out "$work/$run" \
        "$@" >"$work/$run.log" 2>&1 || { cat "$work/$run.log"; fail "train $run"; }
}
resume() {
    local n=$1 run=$2
    shift 2
    ranks "$n" "$moec" resume "$work/$run" "$@" >"$work/$run.log" 2>&1 || { cat "$work/$run.log"; fail "resume $run"; }
}

# One rank with microbatches of all ranks' sequences is what the others are measured by.
"$moec" train "$work/mini.lua" "${data[@]}" --microbatch 256 --steps 8 --out "$work/one" >"$work/one.log" 2>&1 ||
    { cat "$work/one.log"; fail one; }
[[ $(losses "$work/one" | wc -l) == 8 ]]

train 2 dp=2 8 dp2 --microbatch 128
close "$work/one" "$work/dp2"
[[ $(grep -c '^trained 8 steps' "$work/dp2.log") == 1 ]] || fail "one rank speaks"
[[ $(grep -c 'held out:' "$work/dp2.log") == 1 ]]
train 4 dp=4 8 dp4 --microbatch 64
close "$work/one" "$work/dp4"
train 4 dp=4,ep=2 8 ep2 --microbatch 64
close "$work/one" "$work/ep2"
train 4 dp=4,ep=4,transport=blocks,node=2 8 blocks --microbatch 64
close "$work/one" "$work/blocks"
train 2 dp=2,params=fsdp 8 fsdp --microbatch 128
close "$work/one" "$work/fsdp"
train 2 pp=2 8 pp2 --microbatch 256 --deadline 30
close "$work/one" "$work/pp2"
train 4 pp=2,dp=2,ep=2,schedule=zb 8 all --microbatch 128 --trace "$work/trace.json" --trace-step 6 --trace-steps 2
close "$work/one" "$work/all"
# One picture of all ranks; each arrow between stages has both its ends.
for rank in "0: stage 0, edp 0, ep 0" "1: stage 0, edp 0, ep 1" "2: stage 1, edp 0, ep 0" "3: stage 1, edp 0, ep 1"; do
    grep -q "\"process_name\",\"args\":{\"name\":\"rank $rank\"}" "$work/trace.json" || fail "trace: no rank $rank"
done
[[ $(grep -c '"cat":"step"' "$work/trace.json") == 8 && $(grep -c '"name":"step 6"' "$work/trace.json") == 4 ]]
ends() { grep "\"ph\":\"$1\"" "$work/trace.json" | sed 's/.*"id":"\([^"]*\)".*/\1/' | sort; }
[[ $(ends s | wc -l) -ge 16 ]] || fail "trace: expected a message or more each way of 2 microbatches in 2 steps"
cmp <(ends s) <(ends f)
grep -q '"link dp, beside"' "$work/trace.json" || fail "trace: no exchange beside kernels"
cmp <(grep '^group' "$work/one.log") <(grep '^group' "$work/all.log")

# Interrupted and resumed: the same bits.
train 2 dp=2 4 again --microbatch 128
resume 2 again --steps 8
# The schedule follows --steps, so the run that was not interrupted had another learning rate: start alike.
train 2 dp=2 4 straight --microbatch 128
resume 2 straight --steps 8
same "$work/again" "$work/straight" 8
same "$work/again" "$work/straight" 4

# On other ranks, and on one: the state is the layout's no more than the data's order is.
for to in "4 dp=4" "1 dp=1" "2 dp=2" "2 dp=2,ep=2" "4 dp=4,params=fsdp" "2 pp=2" "4 pp=2,dp=2,ep=2"; do
    n=${to% *} layout=${to#* }
    cp -r "$work/again" "$work/$layout"
    rm -rf "$work/$layout/checkpoints/step-8"
    echo step-4 >"$work/$layout/checkpoints/latest"
    resume "$n" "$layout" --layout "$layout" --steps 8
    grep -q 'resuming' "$work/$layout.log"
    close "$work/again" "$work/$layout"
done
same "$work/again" "$work/dp=2" 8

# Evaluated on the ranks that trained, and on one; sampled on one.
bits() { sed -n 's/held out: \([0-9.]*\) bits.*/\1/p' <<<"$1"; }
for run in 2:dp2 4:ep2 2:fsdp 4:all; do
    many=$(ranks "${run%:*}" "$moec" eval "$work/${run#*:}" 2>/dev/null)
    single=$("$moec" eval "$work/${run#*:}" 2>/dev/null)
    [[ -n $(bits "$many") && $(bits "$many") == "$(bits "$single")" ]] || fail "eval: '$many', '$single'"
    "$moec" sample "$work/${run#*:}" --bytes 5 >/dev/null 2>&1
done

# A signal to one rank ends all after their step, which is saved.
tests/mpirun.sh "$build" 2 "$moec" train "$work/mini.lua" "${data[@]}" --layout dp=2 --steps 1000000 \
    --out "$work/long" >"$work/long.log" 2>&1 &
launcher=$!
for ((k = 0; k < 1000; k++)); do
    [[ -s $work/long/metrics.jsonl ]] && break
    sleep 0.1
done
mapfile -t pids < <(pgrep -P $launcher)
kill -INT "${pids[1]}"
! wait $launcher || fail "an interrupted run ends well"
last=$(losses "$work/long" | wc -l)
grep -q "interrupted after step $last, which is saved" "$work/long.log" || { cat "$work/long.log"; fail "interrupted"; }
[[ $(cat "$work/long/checkpoints/latest") == step-$last ]]
[[ -e $work/long/ranks.board && ! -e $work/long/failure.txt ]]

# refused STATUS PART N COMMAND...: fails so, and says it once.
refused() {
    local status=$1 part=$2 n=$3 found=0
    shift 3
    ranks "$n" "$@" >"$work/refused.log" 2>&1 || found=$?
    [[ $found == "$status" ]] || { cat "$work/refused.log"; fail "$*: status $found, expected $status"; }
    [[ $(grep -c -- "$part" "$work/refused.log") == 1 ]] || { cat "$work/refused.log"; fail "'$part' once"; }
}
new=("$moec" train "$work/mini.lua" "${data[@]}" --steps 1 --out "$work/refused")
refused 2 'for example --layout dp=2' 2 "${new[@]}"
refused 2 'started' 2 "${new[@]}" --layout dp=4
refused 2 '--microbatch is 100 tokens' 2 "${new[@]}" --layout dp=2 --microbatch 100
refused 2 'has no file\|cannot open\|cannot read' 2 "${new[@]}" --layout dp=2 --data nowhere
refused 2 'already holds a run' 2 "${new[@]}" --layout dp=2 --out "$work/dp2"
refused 2 "the plan of $work/dp2 is for 2 ranks" 4 "$moec" resume "$work/dp2" --steps 9
refused 2 "sampling runs on one rank" 2 "$moec" sample "$work/dp2"
MOEC_CC=/nowhere refused 1 'found no program' 2 "${new[@]}" --layout dp=2
echo 'return require "moec".model { nmae = 1 }' >"$work/wrong.lua"
refused 2 "no field 'nmae'" 2 "$moec" train "$work/wrong.lua" "${data[@]}" --steps 1 --out "$work/refused" --layout dp=2
[[ ! -e $work/refused ]] || fail "a run that was refused has no folder"
