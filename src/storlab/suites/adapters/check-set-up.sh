#!/bin/bash
# Prepares a guest for a checkout with a program `check`, once, and prints the environment of its tests, ended by zeros.
# Given: DISKS, FILEDIR, CHECKOUT, FSTYP. Run by root.
set -e

read -r -a disks <<< "$DISKS"
export TEST_DEV=/dev/${disks[0]} SCRATCH_DEV=/dev/${disks[1]} TEST_DIR=/mnt/test SCRATCH_MNT=/mnt/scratch FSTYP
mkdir -p "$TEST_DIR" "$SCRATCH_MNT" "$FILEDIR/test_results"
modprobe -q "$FSTYP" || :
# Where there is systemd, it mounts this one; null_blk is configured by it.
modprobe -q configfs || :
mountpoint -q /sys/kernel/config || mount -t configfs configfs /sys/kernel/config 2> /dev/null || :
wipefs --quiet --all "$TEST_DEV"
"mkfs.$FSTYP" "$TEST_DEV" > /dev/null 2>&1
# blktests reads its devices from a file; one that the user wrote is left as it is.
[ -e "$CHECKOUT/config" ] || printf 'TEST_DEVS=(/dev/%s)\n' "${disks[2]}" > "$CHECKOUT/config"
for user in fsgqa fsgqa2 123456-fsgqa; do
    id "$user" > /dev/null 2>&1 || useradd --create-home "$user" 2> /dev/null || :
done
export DISKS FILEDIR TMPDIR=$FILEDIR RECREATE_TEST_DEV=false
export HOME=/root SHELL=/bin/bash USER=root LOGNAME=root
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
unset disks user CHECKOUT OLDPWD PWD SHLVL _
env -0
