#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Ranks on two nodes: everything that ranks do is checked there, and what they say when one on the other node
# comes to grief.
set -euo pipefail
source=$1 build=$2
. "$source/tests/ranks/rank/two_nodes.sh"

ranks() { on_nodes "$build/tests/moec-rank" "$@"; } # WHAT...

ranks all | tee "$scratch/all"
grep -q "7 meshes of 4 ranks, nodes: 2" "$scratch/all"

# Of the report: rank 2 is on the other node.
export TEST_DEADLINE=3
expect() { grep -q "$1" "$2" || { echo "expected: $1"; cat "$2"; exit 1; }; }
for how in kill stop loop; do
    mkdir "$scratch/$how"
    if ranks steps "$scratch/$how" 2 $how >"$scratch/output" 2>&1; then
        echo "rank 2 has come to grief ($how), and all is well"
        exit 1
    fi
    expect "rank 2 (pid [0-9]* on moec-node-2)" "$scratch/$how/failure.txt"
    expect "on moec-node-2, at step 20, instruction 3: k17" "$scratch/$how/ranks.1.board"
    expect "on moec-node-1, at step" "$scratch/$how/ranks.board"
done
