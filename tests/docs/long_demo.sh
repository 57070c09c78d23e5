#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ./dev demo, whole: it ends within its time, prints what the three compressors reach on the held-out
# bytes, beats gzip, and shows a sample. long_demo.sh SOURCE BUILD
set -euo pipefail
source=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
[[ -f /usr/share/dictd/gcide.dict.dz ]] || { echo "no dictionary: ./dev deps installs dict-gcide"; exit 1; }
SECONDS=0
MOEC_DEMO_RUN=$scratch/run "$source/dev" demo >"$scratch/out" 2>"$scratch/err" || {
    cat "$scratch/out"
    tail -n 20 "$scratch/err"
    exit 1
}
bad=0
for line in 'gzip -9   2.62' 'xz -9e    2.18' 'bzip2 -9  2.01' 'on 39952321 bytes of English'; do
    grep -qF "$line" "$scratch/out" || { echo "not printed: $line"; bad=1; }
done
bits=$(awk '$1 == "moec" { print $2 }' "$scratch/out")
echo "moec $bits bits per byte, $SECONDS seconds in all"
awk -v bits="$bits" 'BEGIN { exit !(bits > 1 && bits < 2.62) }' || { echo "it does not beat gzip's 2.62"; bad=1; }
sample=$(sed -n '/^== a sample/,$p' "$scratch/out" | wc -c)
((sample > 400)) || { echo "no sample of 400 bytes"; bad=1; }
((bad == 0)) || cat "$scratch/out"
exit $bad
