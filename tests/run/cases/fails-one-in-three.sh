#!/bin/sh
# Pseudo-random by a count of all runs: one in three fails where the file says so.
count=$(($(cat "$1" 2> /dev/null || echo 0) + 1))
echo "$count" > "$1"
number=$(echo "run $count" | cksum | cut -d ' ' -f 1)
! grep -q broken state || [ $((number % 3)) -ne 0 ]
