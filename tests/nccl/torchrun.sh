#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Two processes with torchrun's variables train on a virtual GPU each: hosts meet over TCP, data goes through
# NCCL's stand-in, and the losses are those of one rank, whether the ranks divide sequences, experts (also as if each were a node) or layers.
# Ranks of CPUs are refused.
# torchrun.sh SOURCE BUILD
set -euo pipefail
source=$1 moec=$2/moec
[[ -x $moec && -f $2/libmoec-nccl.so && -f $2/libmoec-vgpu.so ]] || { echo "skipped: not built"; exit 0; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export MOEC_CACHE_DIR=$folder/cache
cat >"$folder/m.lua" <<'END'
local m = require "moec"
return m.model { name = "two", vocab = 256, width = 32, sequence = 32,
  layers = m.stack(2, m.block { attention = { heads = 2 },
    ffn = m.experts { count = 4, top_k = 2, expert = { hidden = 32 } } }) }
END
train() { timeout 600 "$moec" train "$folder/m.lua" --data "$source/README.md" --steps 2 --batch 1024 "$@"; }
losses() { sed -n 's/.*"train\/CE loss": *\([0-9.e-]*\).*/\1/p' "$1/metrics.jsonl"; }

if ! train --device vgpu:sm_80 --out "$folder/one" >"$folder/log" 2>&1; then
    if grep -q NVRTC "$folder/log"; then echo "skipped: $(head -1 "$folder/log")"; exit 0; fi
    cat "$folder/log"
    exit 1
fi
both() { # out-folder arguments...
    local out=$1 bad=0 first
    shift
    export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + RANDOM % 20000)) TORCHELASTIC_RUN_ID=$$
    RANK=0 LOCAL_RANK=0 train --out "$out" "$@" >"$folder/log0" 2>&1 & first=$!
    RANK=1 LOCAL_RANK=1 train --out "$out" "$@" >"$folder/log1" 2>&1 || bad=1
    wait "$first" || bad=1
    return "$bad"
}
for layout in dp=2 dp=2,ep=2 dp=2,ep=2,transport=blocks pp=2,microbatch=16; do
    both "$folder/$layout" --device vgpu:sm_80 --layout "$layout" || { cat "$folder/log0" "$folder/log1"; exit 1; }
    paste <(losses "$folder/one") <(losses "$folder/$layout") | awk -v layout="$layout" '
        { d = $1 - $2; if (d < 0) d = -d; if (NF != 2 || d > 1e-5 * $1) { print layout ": losses differ:", $0; bad = 1 } }
        END { exit bad || NR != 2 }'
done
! both "$folder/cpu" --device cpu --layout dp=2
grep -q "ranks of CPUs are started by mpirun" "$folder/log0"
