#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The README is true: its specs are written out, its console blocks run in order in a scratch folder, and
# the output shown under a command is what comes out. The `./dev` commands it names exist.
# readme.sh SOURCE BUILD [update]: `update` rewrites the outputs shown.
set -euo pipefail
source=$1 build=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
ln -s "$build" "$scratch/build"
ln -s "$source/models" "$scratch/models"
cp "$source/README.md" "$scratch/README.md"
cd "$scratch"

# Splits the README: specs to files, console blocks to one list "C command" / "O expected line" / "E".
awk '/^```lua file=/ { sub(/.*file=/, ""); file = $0; next }
     /^```console/ { console = 1; next }
     /^```/ { if (console) print "E" > "steps"; file = ""; console = 0; next }
     file { print > file }
     console && /^\$ / { if (open) print "E" > "steps"; print "C " substr($0, 3) > "steps"; open = 1; next }
     console { print "O " $0 > "steps" }' README.md

bad=0 command='' expected=''
run() {
    [[ -n $command ]] || return 0
    local status=0
    timeout 300 bash -c "$command" >out 2>&1 || status=$?
    # A command whose shown output is an error is meant to fail.
    if [[ $expected == *error:* ]]; then
        ((status == 2)) || { echo "expected exit status 2, got $status: $command"; bad=1; }
    elif ((status != 0)); then
        echo "exit status $status: $command"
        cat out
        bad=1
    fi
    if [[ -n $expected && $expected != "$(cat out)" ]]; then
        echo "shown under '$command':"
        diff <(echo "$expected") out || true
        bad=1
    fi
    command='' expected=''
}
while IFS= read -r line; do
    case $line in
    'C '*) run && command=${line:2} ;;
    'O '*) expected+=${expected:+$'\n'}${line:2} ;;
    E) run ;;
    esac
done <steps

for name in build demo test deps; do
    grep -q "^\./dev $name" <("$source/dev" help) || { echo "no ./dev $name"; bad=1; }
done
((bad == 0)) && echo "$(grep -c '^C' steps) commands of README.md run"
exit $bad
