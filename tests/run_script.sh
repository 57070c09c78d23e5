#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run_script.sh NAME SCRIPT: runs a test written as a script and reports it as the cmocka programs do.
# Exit 77 of the script means skipped.
name=$1
shift
echo "[ RUN      ] $name"
"$@"
status=$?
case $status in
0) echo "[       OK ] $name" ;;
77) echo "[  SKIPPED ] $name" && exit 0 ;;
*) echo "[  FAILED  ] $name" && exit 1 ;;
esac
