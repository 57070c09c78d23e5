#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# archs.sh of the other pairs of precision and architecture.
set -euo pipefail
exec "$(dirname "$0")/archs.sh" "$1" "$2" fp32:sm_{89,90a,100a,103a,120a} bf16:sm_{89,103a,120a}
