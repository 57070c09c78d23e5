# SPDX-License-Identifier: Apache-2.0
# Two "nodes" that share no memory and reach each other over TCP only: network namespaces of this machine,
# with a name and an address each. mpirun runs on the first; what it starts on the second goes through
# nsenter where a cluster has ssh. To be sourced, with `build` set: makes the folder $scratch, and on_nodes.
# Skips the test where namespaces are not permitted.
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

# on_nodes PROGRAM [argument...]: four ranks, two on each node.
on_nodes() {
    local options=(--oversubscribe --bind-to none --mca plm rsh --mca plm_rsh_agent "$scratch/agent"
                   --mca btl self,vader,tcp --mca btl_tcp_if_include 10.77.0.0/24 --mca mpi_yield_when_idle 1
                   --mca oob_tcp_if_include 10.77.0.0/24 --host 10.77.0.1:2,10.77.0.2:2
                   -x MOEC_COMM_LIBRARY -x MOEC_CACHE_DIR -x TEST_DEADLINE -x ASAN_OPTIONS -n 4)
    ((EUID != 0)) || options+=(--allow-run-as-root)
    inside 1 timeout 240 mpirun "${options[@]}" "$@"
}
export MOEC_COMM_LIBRARY=$build/moec-mpi.so MOEC_CACHE_DIR=${MOEC_CACHE_DIR:-$build/test-cache} TEST_DEADLINE=20
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0 # Open MPI leaves memory behind at its end
