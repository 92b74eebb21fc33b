#!/bin/bash
# Overwrites one half of the mirror, and expects a scrub to repair it from the other.
set -e
set -- $DISKS
dd if=/dev/urandom of="/dev/$1"1 bs=1M seek=8 count=32 conv=notrunc status=none oflag=direct
zpool scrub -w tank
zpool status tank
zpool status tank | grep -q "with 0 errors"
! zpool status tank | grep -q "repaired 0B"
