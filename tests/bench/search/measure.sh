#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Layouts of a small model on processes of this machine: the order that `moec search` predicts beside what
# training takes. The machine should have nothing else to do. Loads of experts are those of a first run.
#   tests/bench/search/measure.sh BUILD [RANKS...]        2 and 4 if none are given
# COUNT layouts are measured (the first four, then at even distances down the list), and three that are not in it, in
# two passes of STEPS steps each: the better median of all but the first two. SPEC, TOKENS (of a step and rank) and CLUSTER (a
# file of moec calibrate, made if not given) can be set too.
set -euo pipefail
build=$(realpath "$1")
shift
(($#)) || set -- 2 4
cd "$(dirname "$0")/../../.."
count=${COUNT:-10} steps=${STEPS:-8} spec=${SPEC:-models/tiny.lua} tokens=${TOKENS:-2048}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# train RANKS LAYOUT RUN
train() {
    rm -rf "$3"
    tests/mpirun.sh "$build" "$1" "$build/moec" train "$spec" --data README.md docs/language.md docs/layouts.md \
        --out "$3" --layout "$2" --batch $((tokens * $1)) --steps "$steps" --threads 1 --precision fp32 >"$work/log" 2>&1
}

# Seconds of a step: the median of the slowest rank's, from tokens per second of a rank.
measure() {
    local layout=$2
    if [[ $3 == placed ]]; then # as the search has placed them: both by the first run's loads
        "$build/moec" place "$work/first" --layout "$layout" -o "$work/placed.lua" >"$work/log" 2>&1 ||
            { tail -3 "$work/log" >&2; echo nan; return; }
        layout=$work/placed.lua
    fi
    train "$1" "$layout" "$work/run" || { tail -3 "$work/log" >&2; echo nan; return; }
    grep -o '"throughput/device/TPS":[0-9.e+]*' "$work/run/metrics.jsonl" | cut -d: -f2 | tail -n +3 | sort -g |
        awk -v tokens="$tokens" '{ t[NR] = $1 } END { print NR ? tokens / t[int((NR + 1) / 2)] : "nan" }'
}

for ranks in "$@"; do
    cluster=${CLUSTER:-}
    if [[ -z $cluster ]]; then
        cluster=$work/cluster$ranks.lua
        tests/mpirun.sh "$build" "$ranks" "$build/moec" calibrate -o "$cluster" --threads 1 --seconds 2 >"$work/log" 2>&1 ||
            { cat "$work/log"; exit 1; }
    fi
    train "$ranks" "dp=$ranks" "$work/first" || { tail -3 "$work/log"; exit 1; }
    env -u COLUMNS "$build/moec" search "$spec" --cluster "$cluster" --gpus "$ranks" --tokens $((tokens * ranks)) --top 64 --brief \
        --load "$work/first" >"$work/search"
    # number, played seconds, layout, whether experts are placed; recomputes of many kinds have no short form
    awk '/^ +[0-9]+ +[0-9.]+ +[0-9.]+ +[0-9]+ +[+-][0-9.]+% / && !/ of [0-9]/ {
            print $1, $3, $7, /experts placed/ ? "placed" : "in_order" }' "$work/search" >"$work/all"
    n=$(wc -l <"$work/all")
    awk -v n="$n" -v count="$count" 'NR <= 4 || int((NR - 5) * (count - 4) / (n - 4)) > int((NR - 6) * (count - 4) / (n - 4)) ||
        NR == n' "$work/all" >"$work/some"
    # others, which are not among the first: stages, experts on all ranks, blocks computed again
    for layout in "pp=2,dp=$((ranks / 2)),microbatch=4" "dp=$ranks,ep=$ranks,microbatch=8" "dp=$ranks,microbatch=8,recompute=block"; do
        "$build/moec" search "$spec" --cluster "$cluster" --gpus "$ranks" --tokens $((tokens * ranks)) --top 1 --load "$work/first" \
            --layout "$layout" | awk -v l="$layout" '/^ +as it is/ { print 0, $4, l, "in_order" }' >>"$work/some"
    done
    printf '%s on %d processes, %d tokens a step; %d layouts predicted, %d measured\n%4s %12s %12s %8s  %s\n' \
        "$spec" "$ranks" $((tokens * ranks)) "$n" "$(wc -l <"$work/some")" "#" "predicted s" "measured s" "off" layout
    while read -r number predicted layout experts; do
        echo "$number $predicted $layout $experts $(measure "$ranks" "$layout" "$experts" </dev/null)"
    done <"$work/some" >"$work/once"
    : >"$work/measured"
    while read -r number predicted layout experts first; do
        second=$(measure "$ranks" "$layout" "$experts" </dev/null)
        awk -v i="$number" -v p="$predicted" -v l="$layout" -v e="${experts/in_order/}" -v a="$first" -v b="$second" 'BEGIN {
            s = a == "nan" || (b != "nan" && b < a) ? b : a
            printf "%4d %12.4f %12.4f %+7.1f%%  %s %s\n", i, p, s, s == "nan" ? 0 : 100 * (p / s - 1), l, e
        }' | tee -a "$work/measured"
    done <"$work/once"
    awk '$3 != "nan" { p[++n] = $2; s[n] = $3 }
        END {
            best = s[1]
            for (i = 1; i <= n; i++) {
                if (s[i] < best) best = s[i]
                for (k = 1; k < i; k++) {
                    if (s[i] / s[k] < 1.05 && s[k] / s[i] < 1.05) continue
                    pairs++
                    right += (p[i] < p[k]) == (s[i] < s[k])
                }
            }
            printf "the chosen layout is %.1f %% from the best measured; of %d pairs more than 5 %% apart %d are in order\n\n",
                100 * (s[1] / best - 1), pairs, right
        }' "$work/measured"
done
