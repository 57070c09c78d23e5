#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Who may include whom: the rooms of README.md ("How it is built"), data flowing one way. An include of a
# room that is not listed after a room's name fails, as does any file of ours included without its path.
set -uo pipefail
cd "${1:-$(dirname "$0")/../..}"

declare -A may=(
    [runtime/base]=""
    [runtime/plan]="runtime/base"
    [runtime/jit]="runtime/base runtime/plan"
    [runtime/device]="runtime/base runtime/plan runtime/jit"
    [runtime/vgpu]="runtime/base"
    [runtime/comm]="runtime/base runtime/plan runtime/device"
    [runtime/nccl]="runtime/base runtime/comm"
    [runtime/exec]="runtime/base runtime/plan runtime/jit runtime/device runtime/comm"
    [runtime/train]="runtime/base runtime/plan runtime/comm runtime/exec"
    [compiler/model]="runtime/base"
    [compiler/spec]="runtime/base compiler/model compiler/layout compiler/cost"
    [compiler/kernel]="runtime/base runtime/plan compiler/model"
    [compiler/codegen]="runtime/base runtime/plan runtime/jit compiler/model compiler/kernel"
    [compiler/cost]="runtime/base runtime/plan compiler/model compiler/kernel compiler/layout"
    [compiler/layout]="runtime/base runtime/plan compiler/model"
    [compiler/lower]="runtime/base runtime/plan compiler/layout compiler/model compiler/kernel"
    [compiler/search]="runtime/base runtime/plan compiler/model compiler/layout compiler/kernel compiler/cost compiler/lower"
    [compiler/driver]="runtime/base runtime/plan runtime/jit runtime/comm runtime/exec runtime/train compiler/model compiler/spec compiler/layout compiler/lower compiler/cost compiler/search runtime/device compiler/kernel"
)

bad=0
for room in "${!may[@]}"; do
    [[ -d $room ]] || { echo "no folder $room"; bad=1; continue; }
    while IFS=: read -r file line text; do
        target=${text#*\"}
        target=${target%%\"*}
        folder=${target%/*}
        [[ " $room ${may[$room]} " == *" $folder "* ]] && continue
        echo "$file:$line: $room may not include $target; it may include: ${may[$room]:-nothing}"
        bad=1
    done < <(grep -nE '^ *# *include *"' "$room"/*.c "$room"/*.h /dev/null)
done
for folder in runtime/* compiler/*; do
    [[ -n ${may[$folder]+x} ]] || { echo "$folder is in no list of tests/rooms/includes.sh"; bad=1; }
done
exit $bad
