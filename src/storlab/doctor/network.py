"""Networks: namespaces, delay and loss, network file systems."""

from __future__ import annotations

from storlab.doctor.check import Check, missing, ok
from storlab.doctor.kernel import feature
from storlab.doctor.machine import Machine

GROUP = "Networks"


def checks(machine: Machine) -> list[Check]:
    """All of them."""
    return [
        namespaces(machine),
        feature(machine, GROUP, "netem (delay, loss)", "sch_netem", "CONFIG_NET_SCH_NETEM"),
        feature(machine, GROUP, "NFS client", "nfs", "CONFIG_NFS_FS"),
        feature(machine, GROUP, "NFS server", "nfsd", "CONFIG_NFSD"),
        feature(machine, GROUP, "9p", "9p", "CONFIG_9P_FS"),
        feature(machine, GROUP, "NVMe over TCP", "nvme_tcp", "CONFIG_NVME_TCP"),
        feature(machine, GROUP, "AoE", "aoe", "CONFIG_ATA_OVER_ETH"),
    ]


def namespaces(machine: Machine) -> Check:
    """A network namespace, by starting one program in one of its own; it goes with that program."""
    name = "network namespaces"
    if machine.which("ip") is None:
        return missing(name, GROUP, "ip is not installed", "apt-get install iproute2")
    if not machine.is_root:
        return missing(name, GROUP, "only root may make one", "run it as root, or with sudo")
    ended = machine.run(["unshare", "--net", "true"])
    if ended.status != 0:
        return missing(name, GROUP, ended.first_line, "give this container CAP_SYS_ADMIN")
    return ok(name, GROUP, "one was made, and is gone again")
