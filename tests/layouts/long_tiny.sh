#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# models/tiny.lua in fp32 on 1, 2, 4 and 8 processes, under layouts of every kind and every policy of
# recomputation: the first step's gradients are the single rank's within 1e-5 in their norm, 50 losses within
# 1e-6. Auxiliary losses, clipping and documents of unequal length are on, no row is dropped. A second run of
# each layout has the same bits: the first step's gradients, the losses and norms of gradients of some steps.
# long_tiny.sh SOURCE BUILD
set -euo pipefail
source=$1 build=$2
[[ -x $build/tests/moec-world ]] || exit 77
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export MOEC_CACHE_DIR=${MOEC_CACHE_DIR:-$build/test-cache}
cd "$source"
ranks() { local n=$1; shift; tests/mpirun.sh "$build" "$n" "$@" </dev/null; } # mpirun would take the rows
ranks 1 true >/dev/null || exit 77

# world N LAYOUT OUT [option...]
world() {
    local n=$1 layout=$2 out=$3
    shift 3
    ranks "$n" "$build/tests/moec-world" models/tiny.lua "$layout" sequence=32 --out "$work/$out" "$@"
}

bad=0
# compare N LAYOUT: a row of the table
compare() {
    if ! world "$1" "$2" new --against "$work/one" 2>"$work/log"; then
        cat "$work/log"
        bad=1
        return
    fi
    world "$1" "$2" again --same "$work/new" --steps 5 2>"$work/log" || { cat "$work/log"; bad=1; }
}

printf '%-46s %5s  %9s %9s  %s\n' layout ranks gradients losses "the parameter farthest apart"
world 1 dp=1 one
while read -r n layout; do
    compare "$n" "$layout"
done <<'END'
1 dp=1,recompute=none
1 dp=1,recompute=block
2 dp=2
2 dp=2,ep=2
2 pp=2,dp=1
2 pp=2,dp=1,schedule=interleaved,slots=2
2 pp=2,dp=1,schedule=zb
2 dp=2,params=fsdp
4 dp=4
4 dp=4,ep=4
4 dp=4,ep=4,transport=blocks
4 dp=4,ep=4,transport=blocks,node=2
4 dp=4,ep=2
4 dp=4,ep=2,recompute=none
4 dp=4,ep=2,recompute=block
4 pp=4,dp=1
4 pp=4,dp=1,recompute=none
4 pp=4,dp=1,recompute=block
4 pp=2,dp=2,schedule=interleaved,slots=2
4 pp=2,dp=2,schedule=interleaved,slots=2,recompute=none
4 pp=2,dp=2,schedule=interleaved,slots=2,recompute=block
4 pp=4,dp=1,schedule=zb
4 pp=4,dp=1,schedule=zb,recompute=none
4 pp=4,dp=1,schedule=zb,recompute=block
4 dp=4,params=fsdp
4 dp=4,params=fsdp,recompute=none
4 dp=4,params=fsdp,recompute=block
4 pp=2,dp=2,ep=2
4 pp=2,dp=2,ep=2,recompute=none
4 pp=2,dp=2,ep=2,recompute=block
8 dp=8
8 dp=8,ep=8
8 dp=8,ep=8,transport=blocks,node=2
8 dp=8,ep=4
8 pp=4,dp=2
8 pp=2,dp=4,schedule=interleaved,slots=2
8 pp=4,dp=2,schedule=zb
8 dp=8,params=fsdp
8 dp=8,ep=2,params=fsdp
8 pp=2,dp=4,ep=2
8 pp=4,dp=2,ep=2,schedule=zb,recompute=block
END
exit $bad
