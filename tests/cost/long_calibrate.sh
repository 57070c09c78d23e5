#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# long_calibrate.sh SOURCE BUILD: two ranks measure what lies between them, and a search takes the file they write.
set -euo pipefail
source=$1 build=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export MOEC_CACHE_DIR=${MOEC_CACHE_DIR:-$build/test-cache}
"$source/tests/mpirun.sh" "$build" 2 "$build/moec" calibrate --seconds 0.02 -o "$folder/two.lua" >"$folder/out" 2>&1 || {
    status=$?
    cat "$folder/out"
    exit $status
}
for word in 'size = 2' 'gather = {' 'all_to_all = {' 'send = {' 'rows_out' 'evidence = "measured"'; do
    grep -qF "$word" "$folder/two.lua" || { echo "no '$word' in"; cat "$folder/two.lua"; exit 1; }
done
(($(grep -c 'up to' "$folder/out") == 1)) || { echo "not said by one rank alone:"; cat "$folder/out"; exit 1; }
"$build/moec" search "$source/models/tiny.lua" --cluster "$folder/two.lua" >"$folder/found"
grep -q 'tokens/s' "$folder/found" || { cat "$folder/found"; exit 1; }

# What somebody has put there while it measured stays.
"$build/moec" calibrate --seconds 0.1 -o "$folder/mine.lua" >"$folder/out" 2>"$folder/error" &
sleep 0.3
echo "return 1" >"$folder/mine.lua"
status=0
wait $! || status=$?
if ((status != 2)) || [[ $(cat "$folder/mine.lua") != "return 1" ]]; then
    echo "a file written meanwhile, status $status:"
    cat "$folder/error" "$folder/mine.lua"
    exit 1
fi

# More ranks than cores: what one has of them while the others wait.
ranks=$((2 * $(nproc)))
((ranks <= 16)) || exit 0
"$source/tests/mpirun.sh" "$build" "$ranks" "$build/moec" calibrate --threads 1 --seconds 0.1 -o "$folder/crowd.lua" >"$folder/out" 2>&1 || {
    status=$?
    cat "$folder/out"
    exit $status
}
grep -qF 'sharing = known(' "$folder/crowd.lua" || { echo "no sharing in"; cat "$folder/crowd.lua" "$folder/out"; exit 1; }
grep -q 'cores      shared: ' "$folder/out" || { cat "$folder/out"; exit 1; }
"$build/moec" search "$source/models/tiny.lua" --cluster "$folder/crowd.lua" >"$folder/found"
grep -q 'tokens/s' "$folder/found" || { cat "$folder/found"; exit 1; }
