#!/bin/bash
# Prepares a guest, or this machine, for a suite of programs, once, and prints the environment of its scripts, ended by
# zeros. Given: DISKS, FILEDIR. Run by root.
set -e

mkdir -p "$FILEDIR/test_results"
chmod 0777 "$FILEDIR/test_results"
number=0
for disk in $DISKS; do
    number=$((number + 1))
    export "DISK$number=/dev/$disk"
done
unset disk number
export DISKS FILEDIR TMPDIR=$FILEDIR
export HOME=/root SHELL=/bin/bash PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
unset HERE OLDPWD PWD SHLVL _
env -0
