#!/bin/bash
# A mirror of the first two of the guest's spare disks.
set -e
set -- $DISKS
zpool create -f tank mirror "$1" "$2"
dd if=/dev/urandom of=/tank/data bs=1M count=8 status=none
zpool sync tank
