#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Two "nodes" that share no memory and reach each other over TCP only: network namespaces of this machine,
# with a name and an address each. mpirun runs on the first; what it starts on the second goes through
# nsenter where a cluster has ssh. Everything that ranks do is checked there, and what they say when one
# on the other node comes to grief.
set -euo pipefail
build=$2
skip() { echo "SKIPPED: $1"; exit 77; }
command -v mpirun >/dev/null && [[ -e $build/moec-mpi.so ]] || skip "no MPI here"
command -v ip >/dev/null || skip "no ip here (iproute2)"

scratch=$(mktemp -d)
pids=()
cleanup() {
    ((${#pids[@]} == 0)) || kill "${pids[@]}" 2>/dev/null || true
    rm -rf "$scratch"
}
trap cleanup EXIT

# A namespace lives as long as its process.
for node in 1 2; do
    unshare --net --uts sh -c "hostname moec-node-$node && exec sleep 300" 2>"$scratch/error" &
    pids+=($!)
done
for node in 1 2; do
    for ((i = 0; ; i++)); do
        name=$(nsenter -t "${pids[node - 1]}" -u hostname 2>/dev/null) || name=
        [[ $name == moec-node-$node ]] && break
        ((i < 50)) || skip "namespaces are not permitted here: $(cat "$scratch/error")"
        sleep 0.1
    done
done
inside() { nsenter -t "${pids[$1 - 1]}" -n -u "${@:2}"; }
ip link add veth1 netns "${pids[0]}" type veth peer name veth2 netns "${pids[1]}" 2>"$scratch/error" ||
    skip "no link between namespaces here: $(cat "$scratch/error")"
for node in 1 2; do
    inside $node ip addr add 10.77.0.$node/24 dev veth$node
    inside $node ip link set veth$node up
    inside $node ip link set lo up
done

cat >"$scratch/agent" <<AGENT
#!/bin/sh
shift # the address
exec nsenter -t ${pids[1]} -n -u sh -c "\$*"
AGENT
chmod +x "$scratch/agent"

# ranks WHAT...: two on each node
ranks() {
    local options=(--oversubscribe --bind-to none --mca plm rsh --mca plm_rsh_agent "$scratch/agent"
                   --mca btl self,vader,tcp --mca btl_tcp_if_include 10.77.0.0/24
                   --mca oob_tcp_if_include 10.77.0.0/24 --host 10.77.0.1:2,10.77.0.2:2
                   -x MOEC_COMM_LIBRARY -x TEST_DEADLINE -x ASAN_OPTIONS -n 4)
    ((EUID != 0)) || options+=(--allow-run-as-root)
    inside 1 timeout 120 mpirun "${options[@]}" "$build/tests/moec-rank" "$@"
}
export MOEC_COMM_LIBRARY=$build/moec-mpi.so TEST_DEADLINE=20
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0 # Open MPI leaves memory behind at its end

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
