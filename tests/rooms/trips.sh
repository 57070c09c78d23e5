#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# includes.sh must trip: on a runtime file that includes the compiler, and on a room nobody listed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp -r "$here/../../runtime" "$here/../../compiler" "$folder"
"$here/includes.sh" "$folder" >/dev/null
echo '#include "compiler/model/model.h"' >>"$folder/runtime/exec/exec.h"
! "$here/includes.sh" "$folder" >"$folder/out"
grep -q 'exec.h:.*runtime/exec may not include compiler/model/model.h' "$folder/out"
cp "$here/../../runtime/exec/exec.h" "$folder/runtime/exec/exec.h"
mkdir "$folder/compiler/unlisted"
! "$here/includes.sh" "$folder" >"$folder/out"
grep -q 'compiler/unlisted is in no list' "$folder/out"
rmdir "$folder/compiler/unlisted"
echo '#include "runtime/plan/plan.h"' >>"$folder/runtime/vgpu/core.h"
! "$here/includes.sh" "$folder" >"$folder/out"
grep -q 'core.h:.*runtime/vgpu may not include runtime/plan/plan.h; it may include: runtime/base' "$folder/out"
cp "$here/../../runtime/vgpu/core.h" "$folder/runtime/vgpu/core.h"
echo '#include "runtime/vgpu/core.h"' >>"$folder/runtime/device/device.h"
! "$here/includes.sh" "$folder" >"$folder/out"
grep -q 'device.h:.*runtime/device may not include runtime/vgpu/core.h' "$folder/out"
