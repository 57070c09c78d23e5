#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A random rank is killed or stopped at a random moment of training, saving, starting or resuming, many times
# over, on changing layouts. The others end; no checkpoint that was complete is lost; the run goes on.
set -euo pipefail
source=$1 build=$2 times=${MOEC_GRIEF_TIMES:-50}
[[ -x $build/moec ]] || exit 77
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export MOEC_CACHE_DIR=$work/cache
cd "$source"
tests/mpirun.sh "$build" 1 true >/dev/null || exit 77
moec=$build/moec run=$work/run

cat >"$work/mini.lua" <<'LUA'
local m = require "moec"
return m.model {
  name = "mini", vocab = 256, width = 32, sequence = 32,
  layers = m.stack(2, m.block {
    attention = { heads = 2, kv_heads = 1, rope = true },
    ffn = m.experts { count = 4, top_k = 2, expert = { hidden = 32 }, router = { balance_loss = 0.01 } },
  }),
}
LUA

RANDOM=${MOEC_GRIEF_SEED:-1}
fail() { echo "$*"; cat "$work/log"; exit 1; }
layouts=(dp=4 dp=2 dp=4,ep=2 dp=2,ep=2 dp=3,params=fsdp pp=2 pp=2,dp=2,ep=2
         dp=4,ep=4,transport=blocks,node=2 dp=2,ep=2,transport=blocks)
ranks_of() {
    local pp=1 dp=1
    [[ $1 =~ pp=([0-9]+) ]] && pp=${BASH_REMATCH[1]}
    [[ $1 =~ dp=([0-9]+) ]] && dp=${BASH_REMATCH[1]}
    echo $((pp * dp))
}
# The layouts that this build can lower and run; their kernels are in the cache from then on.
works=()
for layout in "${layouts[@]}"; do
    n=$(ranks_of "$layout")
    if tests/mpirun.sh "$build" "$n" "$moec" train "$work/mini.lua" --data README.md --batch 384 --steps 2 \
        --out "$work/try-$layout" --layout "$layout" >"$work/log" 2>&1; then works+=("$layout"); fi
done
((${#works[@]})) || fail "no layout works"
echo "layouts: ${works[*]}"

newest() { cat "$run/checkpoints/latest" 2>/dev/null | sed 's/step-//' || true; }
slowest=0 steps=0
for ((i = 0; i < times; i++)); do
    layout=${works[RANDOM % ${#works[@]}]} signal=KILL
    n=$(ranks_of "$layout")
    ((RANDOM % 2)) || signal=STOP
    if [[ -e $run/run.json ]]; then what=(resume "$run")
    else what=(train "$work/mini.lua" --data README.md --batch 384 --out "$run"); fi
    tests/mpirun.sh "$build" "$n" "$moec" "${what[@]}" --layout "$layout" --steps 1000000 --save-interval 1 \
        >"$work/log" 2>&1 &
    launcher=$!
    # Nine in ten moments lie after the start.
    ranks=()
    while ((${#ranks[@]} < n)); do
        kill -0 $launcher 2>/dev/null || fail "$i: ${what[*]} on $layout ended by itself"
        mapfile -t ranks < <(pgrep -P $launcher || true)
        sleep 0.02
    done
    if ((RANDOM % 10)); then
        seen=$(newest)
        for ((k = 0; k < 600; k++)); do
            [[ $(newest) != "$seen" ]] && break
            kill -0 $launcher 2>/dev/null || fail "$i: ${what[*]} on $layout ended by itself"
            sleep 0.05
        done
    fi
    sleep "$((RANDOM % 2)).$((RANDOM % 10))$((RANDOM % 10))"
    victim=${ranks[RANDOM % n]} before=$(newest)
    kill -$signal "$victim" 2>/dev/null || true
    begin=$(date +%s%N)
    for ((k = 0; k < 1200; k++)); do
        kill -0 $launcher 2>/dev/null || break
        sleep 0.05
    done
    ms=$((($(date +%s%N) - begin) / 1000000))
    if kill -0 $launcher 2>/dev/null; then
        kill -KILL "${ranks[@]}" $launcher 2>/dev/null || true
        fail "$i: the others hang after SIG$signal of a rank of $layout"
    fi
    wait $launcher && fail "$i: exit status 0 after SIG$signal"
    for rank in "${ranks[@]}"; do
        kill -0 "$rank" 2>/dev/null || continue
        [[ $rank == "$victim" ]] || sleep 2
        [[ $rank == "$victim" ]] || ! kill -0 "$rank" 2>/dev/null || fail "$i: rank $rank of $layout is still there"
        kill -KILL "$rank" 2>/dev/null || true
    done
    ((ms <= slowest)) || slowest=$ms
    after=$(newest)
    [[ -z $before || $after -ge $before ]] || fail "$i: checkpoint $before became $after"
    if [[ -n $after ]]; then
        "$moec" resume "$run" --layout dp=1 --steps "$after" >"$work/log" 2>&1 || fail "$i: step $after is lost"
        grep -q "resuming $run from step-$after" "$work/log" || fail "$i: not from step $after"
        steps=$after
    fi
done
echo "$times ranks killed or stopped, $steps steps; the others ended within $slowest ms"
