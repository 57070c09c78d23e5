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
unset COLUMNS
search() { "$moec" search models/tiny.lua --cluster cpux4 --tokens 8192 "$@"; }
search --layout pp=2,dp=2 -o "$work/best.lua" >"$work/a" 2>"$work/error" || fail "search: $(cat "$work/error")"
search --layout pp=2,dp=2 >"$work/b" 2>/dev/null || fail "search again"
told() { sed 's/; found in [0-9.]* s$//; /^written /,$d; /^next: /d' "$1"; }
cmp -s <(told "$work/a") <(told "$work/b") || fail "two searches differ"
for part in "on 4 x CPU core" "certificate" "no layout is faster than" "one step away" "other machines and loads" \
            "why not pp=2,dp=2" "lowered: bytes" "memory of a device of each stage"; do
    expect "$work/a" "$part"
done
"$moec" plan models/tiny.lua --layout "$work/best.lua" --target cpu >"$work/plan" 2>"$work/error" ||
    fail "moec plan does not take the layout: $(cat "$work/error")"

# What comes next is said whole: these commands take the file, and have the step that was searched.
search experts=32 --set 'layers.*.ffn.router.balance_loss=0' --brief -o "$work/next.lua" >"$work/c" 2>&1 || fail "search of 32 experts"
expect "$work/c" "mpirun -n 4 moec train models/tiny.lua experts=32"
expect "$work/c" " --batch 8192 --data FILE --out RUN"
sed -nE 's|^  moec (simulate .*)|"$moec" \1 \|\| exit|p; s|^  moec (plan .*)|"$moec" \1 >"$work/plan"|p' "$work/c" >"$work/next.sh"
[[ $(wc -l <"$work/next.sh") == 2 ]] || fail "two commands: $(cat "$work/c")"
moec=$moec work=$work bash "$work/next.sh" >"$work/d" 2>&1 || fail "a command that is next: $(cat "$work/next.sh" "$work/d")"
expect "$work/d" " 8192 tokens, "
expect "$work/best.lua" "-- moec search, for --precision fp32 and steps of 8192 tokens: --microbatches "
expect "$work/b" "next: -o FILE.lua writes the first"

search --brief --memory-of megatron >"$work/c" 2>&1 || fail "search with another stack's memory"
expect "$work/c" "memory as megatron accounts for it"
! grep -q "accounts for it" "$work/a" || fail "another stack's memory, unasked"

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
refuse "did you mean 'fp32'?" models/tiny.lua --cluster cpux4 --precision fp64
refuse "expected a list of fp32|bf16|mxfp8, or any" models/tiny.lua --cluster cpux4 --precision ,
refuse "'any' stands alone" models/tiny.lua --cluster cpux4 --precision any,bf16
refuse "no SPEC given" "" --cluster cpux4
refuse "moec: error: --round has 'none', expected a number above 0, up to 1048576, or whole" models/tiny.lua --cluster cpux4 --round 1.25,none
refuse "cannot open" models/tiny.lua --cluster cpux4 --load "$work/nothing.csv"
refuse "no plan is in mxfp8" models/tiny.lua --cluster b300x4 --precision mxfp8 --planned
refuse "is no multiple" models/tiny.lua --cluster cpux64 --tokens 1024
refuse "layout:" models/tiny.lua --cluster cpux4 --brief --layout dp=3
[[ ! -s $work/out ]] || fail "a layout that cannot be is refused after the search only"
refuse "and the search is for 4 devices" models/tiny.lua --cluster cpux4 --layout dp=16
! grep -q mpirun "$work/error" || fail "mpirun, where nothing is started"
refuse "has no products in it" models/tiny.lua --cluster cpux4 --precision mxfp8
refuse "expected 1 to 1048576 devices" models/tiny.lua --cluster cpux0
refuse "expected 1 to 1048576 devices" models/tiny.lua --cluster cpux99999999999999999999
refuse "up to 1048576, or dropless" models/tiny.lua --cluster cpux4 --capacity 1.25,1e30
refuse "a name that ends in .lua" models/tiny.lua --cluster cpux4 -o "$work/best"
cp models/tiny.lua "$work/spec.lua"
refuse "would overwrite" "$work/spec.lua" --cluster cpux4 -o "$work/../${work##*/}/spec.lua"
cmp -s models/tiny.lua "$work/spec.lua" || fail "a spec is gone"
refuse "would overwrite" models/tiny.lua --cluster cpux4 --layout "$work/best.lua" -o "$work/best.lua"

refuse "--cluster h100 has as many as --gpus says" models/tiny.lua --cluster h100x2 --gpus 4
search --cluster h100x1 --tokens 256 --brief >"$work/c" 2>&1 || fail "search of one sequence"
expect "$work/c" "a step is 1 sequence of 256 tokens"
ln -s "$work/led.lua" "$work/link.lua"
search --brief -o "$work/link.lua" >"$work/c" 2>&1 && [[ -L $work/link.lua && -s $work/led.lua ]] ||
    fail "-o through a link to what is not there: $(cat "$work/c")"
# Room of a round that is never full makes no other layout.
search --cluster h100x4 --brief --top 64 >"$work/c" 2>&1 || fail "search of rounds that cost nothing"
[[ -z $(grep -E '^ +[0-9]+ +[0-9.]+ ' "$work/c" | awk '{ $1 = $5 = ""; sub(/,round=[0-9.]+/, ""); print }' | sort | uniq -d) ]] ||
    fail "the same layout twice: $(cat "$work/c")"

# Nothing is too little to say what would fit; seconds are shown with digits that count.
search --memory 1e-9 >"$work/c" 2>&1 || fail "search where nothing fits at all"
expect "$work/c" " GiB a device, "
search --cluster h100x4 --brief >"$work/c" 2>&1 || fail "search on GPUs"
expect "$work/c" "formula ms"

# Memory binds where more of it makes the best faster, as the table above says.
for memory in 1.1 1.2 1.25 1.3 8; do
    search --memory "$memory" --top 1 >"$work/c" 2>&1 || fail "search of $memory GiB: $(cat "$work/c")"
    change=$(sed -nE 's/^ +[0-9.]+ GiB more a device +([-+][0-9.]+) %.*/\1/p' "$work/c")
    case $change in
    -*) expect "$work/c" "more make the best ${change#-} % faster" ;;
    +0.0) expect "$work/c" "memory does not bind" ;;
    *) fail "with more memory the best changes by '$change' %: $(cat "$work/c")" ;;
    esac
done

# The first fits by its plan too: what that takes more than predicted is left free.
left=0
for memory in $(seq 1.080 0.004 1.148); do
    search --memory "$memory" --top 1 >"$work/c" 2>&1 || fail "search of $memory GiB: $(cat "$work/c")"
    ! grep -q 'DOES NOT FIT' "$work/c" || fail "the first of $memory GiB has no room for its plan: $(cat "$work/c")"
    if grep -q "searched with .* of $memory GiB" "$work/c"; then left=1; fi
done
((left)) || fail "plans never take more than predicted: other memories would show it"

# What no layout may be, no search finds: one rank drops nothing, and every expert has a row.
search --brief --capacity 0.5 -o "$work/half.lua" >"$work/c" 2>&1 || fail "search of what drops half"
! grep 'capacity=0.5' "$work/c" | grep -qvE ',ep=[24],' || fail "one rank drops rows: $(cat "$work/c")"
"$moec" plan models/tiny.lua --layout "$work/half.lua" --target cpu >"$work/plan" 2>"$work/error" ||
    fail "moec plan does not take the layout: $(cat "$work/error")"
search --brief --capacity 0.5,1.25 --layout dp=4,capacity=1.25 >"$work/c" 2>&1 || fail "search of two capacities"
! grep -q impossible "$work/c" || fail "one rank, which has room: $(cat "$work/c")"
search --brief --layout dp=4,ep=4,transport=blocks,node=2 >"$work/c" 2>&1 || fail "search with blocks"
expect "$work/c" "ep=4 lies within a node of"
refuse "no layout of 4 ranks is possible" models/tiny.lua --cluster cpux4 --capacity 1e-9

# Lines fit a terminal; into a file each is one.
COLUMNS=100 search --capacity 1.25,dropless --layout dp=4,ep=4,capacity=dropless,round=1.25 --memory-of olmo-core >"$work/c" 2>&1 ||
    fail "search for a terminal"
[[ $(wc -L <"$work/c") -le 100 ]] || fail "lines of more than 100 columns: $(cat "$work/c")"
COLUMNS=60 search --brief >"$work/c" 2>&1 || fail "search for a narrow terminal"
[[ $(wc -L <"$work/c") -le 60 ]] || fail "lines of more than 60 columns: $(cat "$work/c")"
cmp -s <(tr -d ' \n' <"$work/c" | sed 's/foundin.*sspeed//') <(search --brief 2>/dev/null | tr -d ' \n' | sed 's/foundin.*sspeed//') ||
    fail "other words for a narrow terminal"

# What is chosen among: precisions, each row with its own; rounds; experts by recorded loads, into the file.
search --cluster b300x4 --precision bf16,mxfp8 >"$work/c" 2>&1 || fail "search of two precisions"
expect "$work/c" "bf16 or mxfp8"
expect "$work/c" "mxfp8*: costs are known"
grep -qE '^ +[0-9].*  bf16 (pp|dp)=' "$work/c" || fail "rows without their precision: $(cat "$work/c")"
search --cluster b300x4 --precision any --planned --brief >"$work/c" 2>&1 || fail "search of what has plans"
! grep -q mxfp8 "$work/c" || fail "mxfp8, which has no plans: $(cat "$work/c")"
search experts=32 --layout dp=4,ep=4,capacity=dropless,round=2 --capacity dropless --round whole,2 >"$work/c" 2>&1 ||
    fail "search of rounds"
expect "$work/c" "round=2"
! grep -q impossible "$work/c" || fail "a round that is searched: $(cat "$work/c")"
{
    echo layer,expert,load
    for layer in 2 3 4; do
        for expert in 0 1 2 3 4 5 6 7; do echo "$layer,$expert,$((expert < 2 ? 900 : 100))"; done
    done
} >"$work/loads.csv"
search --load "$work/loads.csv" -o "$work/placed.lua" >"$work/c" 2>&1 || fail "search by loads: $(cat "$work/c")"
expect "$work/c" "busiest rank over the mean: in order"
if grep -q "has them placed" "$work/c"; then
    expect "$work/placed.lua" "placement = function"
else
    fail "loads that are uneven leave experts in order: $(cat "$work/c")"
fi
"$moec" plan models/tiny.lua --layout "$work/placed.lua" --target cpu >"$work/plan" 2>"$work/error" ||
    fail "moec plan does not take the layout: $(cat "$work/error")"
sed 's/top_k = top_k, expert/top_k = top_k, capacity = 0.5, expert/' models/tiny.lua >"$work/drops.lua"
"$moec" search "$work/drops.lua" --cluster cpux4 --tokens 8192 --brief >"$work/c" 2>&1 || fail "a spec that drops half: $(cat "$work/c")"
! grep -E '^ +[0-9]+ .*GiB' "$work/c" | grep -qvE 'ep=[24]' || fail "one rank drops rows: $(cat "$work/c")"

# Interrupted before there is anything to show it says what it was at.
"$moec" search models/deepseek_v3.lua --cluster b300x16384 >"$work/c" 2>"$work/error" &
sleep 0.2
kill -INT $!
wait $!
[[ $? == 130 ]] || fail "exit status of an interrupted search"
expect "$work/error" "interrupted while it was"

# While layouts are decided it has something to show, and then all is well; when that is, no test can say.
"$moec" search models/deepseek_v3.lua --cluster b300x16384 --brief >"$work/c" 2>"$work/error" &
sleep 1
kill -INT $! 2>/dev/null
wait $!
status=$?
if grep -q "interrupted after" "$work/c" || grep -q "found in" "$work/c"; then
    [[ $status == 0 ]] || fail "exit status $status of a search that shows the best so far"
else
    [[ $status == 130 ]] || fail "exit status $status of an interrupted search with nothing to show: $(cat "$work/error")"
fi

# What was found is printed and written even if the reasons are not waited for.
"$moec" search models/tiny.lua --cluster cpux4 --tokens 8192 --brief -o "$work/soon.lua" 2>/dev/null | head -n 1 >"$work/d"
grep -q "on 4 x CPU core" "$work/d" && cmp -s "$work/soon.lua" "$work/best.lua" || fail "output to head"
exit $bad
