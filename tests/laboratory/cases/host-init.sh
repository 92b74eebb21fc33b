#!/bin/sh
# What process 1 of a host does: its name, its folder, its address; the network is there once it reads a line.
set -eu
hostname "$1"
mount -t tmpfs run /run; mkdir /run/sshd /run/lab; mount --bind "$2" /run/lab
# What others have mounted here is theirs: a copy would keep their devices in use. Where they remove the folder meanwhile,
# the kernel has unmounted it here, too, and umount says that there is nothing.
awk '$5 ~ "^/(root|tmp|var/tmp)/" { print $5 }' /proc/self/mountinfo | tac | xargs -r -n 1 umount -l || :
mount --bind /run/lab/root /root; mount --bind /run/lab/var/tmp /var/tmp
mount --bind /run/lab/boot /proc/sys/kernel/random/boot_id
mount --bind /run/lab/osrelease /proc/sys/kernel/osrelease
mount --bind /run/lab/machine-id /etc/machine-id; mount --bind /run/lab/passwd /etc/passwd
mount --bind /run/lab/tmp /tmp
cd /; echo ready
read -r _ # until the network is there
ip link set lo up; ip link set eth0 up; ip address add "$3" dev eth0
/usr/sbin/sshd -D -e -f /run/lab/sshd_config 2>>/run/lab/log &
while :; do wait; sleep 1; done
