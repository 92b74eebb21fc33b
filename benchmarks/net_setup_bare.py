"""The bare side of net_setup.py: each protocol set up and torn down as one would in a shell.

A server's script says ``up`` once clients may come, and what it leaves in the foreground is ended with it. ``$1`` is
the file or directory that is served, ``$2`` the server's address.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bare:
    """One protocol's scripts."""

    serve: str
    use: str
    leave: str
    withdraw: str = "true"


_CONFIGFS = "mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config; cd /sys/kernel/config\n"
# The same queue as Storlab's disks have, and the same proof that one is alive.
_TUNE = r"""
tune() {
    queue="/sys/class/block/$1/queue"
    echo none > "$queue/scheduler"; echo 64 > "$queue/nr_requests"; echo 1024 > "$queue/max_sectors_kb"
    echo 128 > "$queue/read_ahead_kb"; echo 0 > "$queue/rotational"
    dd if="$2" of=/dev/null bs=4k count=1 iflag=direct status=none
} 2> /dev/null
"""
_IQN, _NQN = "iqn.2026-01.local.bare:disk", "nqn.2026-01.local.bare:disk"
_HOST = "00000000-0000-4000-8000-000000000001"

BARE: dict[str, Bare] = {
    "nbd": Bare(
        r"""
rm -f /tmp/bare.pid
qemu-nbd --pid-file=/tmp/bare.pid --bind="$2" --port=10900 --persistent --export-name=disk --cache=none -f raw "$1" &
until [ -s /tmp/bare.pid ]; do sleep 0.02; done
echo up
wait
""",
        _TUNE
        + r"""
modprobe nbd
nbd-client "$2" 10900 /dev/nbd9 -name disk -timeout 20 > /dev/null 2>&1
tune nbd9 /dev/nbd9
echo up
""",
        "nbd-client -d /dev/nbd9 > /dev/null",
    ),
    "iscsi": Bare(
        rf"""
modprobe -a target_core_mod target_core_file iscsi_target_mod
{_CONFIGFS}
core=target/core/fileio_77/bare group=target/iscsi/{_IQN}/tpgt_1
mkdir -p $core
echo "fd_dev_name=$1,fd_dev_size=$(stat -c %s "$1"),fd_buffered_io=1,fd_async_io=1" > $core/control
echo 1 > $core/enable
mkdir -p $group
cd $group
echo 0 > attrib/authentication; echo 0 > attrib/demo_mode_write_protect
echo 1 > attrib/generate_node_acls; echo 1 > attrib/cache_dynamic_acls
mkdir "np/$2:3290" lun/lun_0
ln -s /sys/kernel/config/$core lun/lun_0/store
echo 1 > enable
echo up
""",
        _TUNE
        + rf"""
modprobe -a iscsi_tcp sd_mod
mkdir -p /run/lock/iscsi /etc/iscsi
echo InitiatorName={_IQN}.client > /etc/iscsi/initiatorname.iscsi
iscsid --foreground --no-pid-file > /dev/null 2>&1 &
node="iscsiadm -m node -T {_IQN} -p $2:3290"
until $node -o new > /dev/null 2>&1; do sleep 0.05; done
$node -o update -n node.session.timeo.replacement_timeout -v 5 -n node.session.queue_depth -v 64
until $node --login > /dev/null 2>&1; do sleep 0.05; done
until disk=$(ls /sys/class/iscsi_session/session*/device/target*/*/block 2> /dev/null); do sleep 0.02; done
tune $disk /dev/$disk
echo up
wait
""",
        f"iscsiadm -m node -T {_IQN} --logout > /dev/null; iscsiadm -m node -T {_IQN} -o delete",
        rf"""
cd /sys/kernel/config/target/iscsi/{_IQN}/tpgt_1
echo 0 > enable; rm lun/lun_0/store; rmdir lun/lun_0 np/*; cd ..; rmdir tpgt_1; rmdir ../{_IQN}
rmdir /sys/kernel/config/target/core/fileio_77/bare /sys/kernel/config/target/core/fileio_77
""",
    ),
    "nvme-tcp": Bare(
        rf"""
modprobe -a nvmet nvmet_tcp
{_CONFIGFS}
cd nvmet
mkdir ports/4490; cd ports/4490
echo tcp > addr_trtype; echo ipv4 > addr_adrfam; echo "$2" > addr_traddr; echo 4490 > addr_trsvcid
cd ../..; mkdir -p subsystems/{_NQN}/namespaces/1; cd subsystems/{_NQN}
echo 1 > attr_allow_any_host; echo "$1" > namespaces/1/device_path; echo 1 > namespaces/1/enable
ln -s /sys/kernel/config/nvmet/subsystems/{_NQN} ../../ports/4490/subsystems/{_NQN}
echo up
""",
        _TUNE
        + rf"""
modprobe nvme_core multipath=N
modprobe nvme_tcp
nvme connect -t tcp -a "$2" -s 4490 -n {_NQN} -i 1 -Q 65 -c 1 -l 10 \
    --hostid {_HOST} --hostnqn nqn.2014-08.org.nvmexpress:uuid:{_HOST} > /dev/null
until disk=$(cd /sys/class/block && ls -d nvme*n1 2> /dev/null); do sleep 0.02; done
tune $disk /dev/$disk
echo up
""",
        f"nvme disconnect -n {_NQN} > /dev/null",
        rf"""
cd /sys/kernel/config/nvmet
rm ports/4490/subsystems/{_NQN}; rmdir ports/4490
echo 0 > subsystems/{_NQN}/namespaces/1/enable; rmdir subsystems/{_NQN}/namespaces/1 subsystems/{_NQN}
""",
    ),
    "aoe": Bare(
        'vblade -b 64 -d -s 77 1 storlab0 "$1" > /dev/null 2>&1 & echo up; wait',
        _TUNE
        + r"""
modprobe aoe
printf storlab0 > /dev/etherd/interfaces
echo 10 > /sys/module/aoe/parameters/aoe_deadsecs
until grep -q ^up '/sys/class/block/etherd!e77.1/state' 2> /dev/null; do
    printf x > /dev/etherd/discover
    sleep 0.05
done
tune 'etherd!e77.1' /dev/etherd/e77.1
echo up
""",
        r"""
while [ -e '/sys/class/block/etherd!e77.1' ]; do printf e77.1 > /dev/etherd/flush; sleep 0.02; done
""",
    ),
    "nfs": Bare(
        r"""
modprobe nfsd
mountpoint -q /proc/fs/nfsd || mount -t nfsd nfsd /proc/fs/nfsd
exportfs -o rw,fsid=0,no_root_squash,insecure,no_subtree_check,sync "*:$1"
rpc.mountd --foreground --no-nfs-version 3 --no-udp > /dev/null 2>&1 &
rpc.nfsd --host "$2" --port 2090 --no-udp --no-nfs-version 3 8
echo Y > /proc/fs/nfsd/v4_end_grace
echo up
wait
""",
        r"""
mkdir -p /mnt/bare
mount -t nfs -o vers=4.2,proto=tcp,port=2090,nosharecache,softerr,timeo=33,retrans=2 "$2:/" /mnt/bare
echo 128 > "/sys/class/bdi/$(mountpoint -d /mnt/bare)/read_ahead_kb"
echo up
""",
        "umount /mnt/bare",
        "rpc.nfsd 0; exportfs -ua",
    ),
}
