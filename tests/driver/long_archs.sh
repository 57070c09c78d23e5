#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What archs.sh asks of models/tiny.lua, of kernels that it does not have: latent attention, groups of experts, windows,
# sinks, biases; and those of experts on other ranks: counts, places, rounds, pads, rows between nodes.
set -euo pipefail
archs=$(dirname "$0")/archs.sh
rows=capacity=dropless,round=1.25,row_align=32
"$archs" "$@" tests/oracle/specs/deepseek.lua --layout "dp=4,ep=4,transport=blocks,node=2,$rows"
"$archs" "$@" tests/oracle/specs/gpt_oss.lua --layout "dp=7,ep=7,$rows"
"$archs" "$@" models/tiny.lua layers=2 --layout pp=2,dp=2,ep=2,capacity=1.25
