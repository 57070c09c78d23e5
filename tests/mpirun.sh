#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# mpirun.sh BUILD N PROGRAM [argument...]: N ranks of a program on this machine, however few cores it has.
# The module for MPI is the one of the build folder. Exit status 77: this machine has no mpirun, or the
# build no module.
set -euo pipefail
build=$1 n=$2
shift 2
command -v mpirun >/dev/null && [[ -e $build/moec-mpi.so ]] || { echo "no MPI here: skipped"; exit 77; }
export MOEC_COMM_LIBRARY=$build/moec-mpi.so
# Open MPI leaves memory behind at its end.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
options=(--oversubscribe --bind-to none)
((EUID != 0)) || options+=(--allow-run-as-root)
# Ranks of one machine reach each other without a network; ones that wait let others run.
exec mpirun "${options[@]}" --mca mpi_yield_when_idle 1 --mca btl self,vader -n "$n" "$@"
