"""What something needs of the machine that it runs on, whether a machine has it, and which Debian package would."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

from storlab.base.reach import Choice
from storlab.images.vmlinux import lacks_types
from storlab.nodes.node import Node


@dataclass(frozen=True)
class Program:
    """``package`` is Debian's name; ``version`` the arguments that make it print its version."""

    package: str
    version: tuple[str, ...] = ("--version",)


_BY_PACKAGE = {
    "btrfs-progs": ("btrfs", "mkfs.btrfs"),
    "coreutils": ("cp", "dd", "sync", "truncate"),
    "e2fsprogs": ("dumpe2fs", "mkfs.ext4"),
    "ethtool": ("ethtool",),
    "fio": ("fio",),
    "iproute2": ("ip", "ss", "tc"),
    "kmod": ("modprobe",),
    "mariadb-client-core": ("mariadb",),
    "mariadb-server-core": ("mariadb-install-db", "mariadbd"),
    "mount": ("losetup", "mount", "umount"),
    "numactl": ("numactl",),
    "nbd-client": ("nbd-client",),
    "nbd-server": ("nbd-server",),
    "nbdkit": ("nbdkit",),
    "nftables": ("nft",),
    "postgresql": ("pgbench", "postgres"),
    "postgresql-client": ("psql",),
    "sysbench": ("sysbench",),
    "open-iscsi": ("iscsiadm", "iscsid"),
    "qemu-system-x86": ("qemu-system-x86_64",),
    "qemu-utils": ("qemu-img", "qemu-nbd"),
    "util-linux": ("blkdiscard", "blkid", "blockdev", "fallocate", "nsenter", "wipefs"),
    "xfsprogs": ("mkfs.xfs", "xfs_info"),
    "zfsutils-linux": ("zfs", "zpool"),
}
_BY_V = {"dumpe2fs", "ip", "mkfs.ext4", "mkfs.xfs", "ss", "tc", "xfs_info"}  # what prints its version at -V
PROGRAMS = {
    name: Program(package, ("-V",) if name in _BY_V else ("--version",))
    for package, names in _BY_PACKAGE.items()
    for name in names
}

_UNASKED = {  # where a layer needs them, but whose versions are nobody's question
    "bcache-tools": ("bcache-super-show", "make-bcache"),
    "cifs-utils": ("mount.cifs",),
    "coreutils": ("ln", "split"),
    "cryptsetup-bin": ("cryptsetup", "veritysetup"),
    "dmsetup": ("dmsetup",),
    "lvm2": ("lvm",),
    "mdadm": ("mdadm",),
    "mount": ("swapoff", "swapon"),
    "iproute2": ("ss",),
    "iputils-ping": ("ping",),
    "ksmbd-tools": ("ksmbd.adduser", "ksmbd.mountd"),
    "nfs-common": ("mount.nfs",),
    "nfs-kernel-server": ("rpc.mountd", "rpc.nfsd"),
    "openssh-client": ("ssh", "ssh-keygen"),
    "openssh-server": ("sshd",),
    "rpcbind": ("rpcbind",),
    "sshfs": ("sshfs",),
    "util-linux": ("flock", "mkswap", "setpriv", "unshare"),
}
_UNASKED_PROGRAMS = {name: Program(package) for package, names in _UNASKED.items() for name in names}

_OUTSIDE_OF_PATH = dict.fromkeys(("pg_amcheck", "postgres"), "/usr/lib/postgresql/*/bin")
"""Where Debian keeps programs of which several versions can be there: shell patterns of ours, no words of a study's."""
_FIND = 'ls -d $1/"$2" 2> /dev/null | sort --version-sort | tail -n 1 | grep .'

_SMALLEST_QUEUES = {"netem": ("delay", "1ms"), "tbf": ("rate", "1mbit", "burst", "32k", "limit", "64k")}


def version_commands(names: Iterable[str]) -> dict[str, list[str]]:
    """Name → the argv that prints its version, in the form that ``Node.facts`` takes.

    One word for programs that aren't known here: these may be a study's own, and are looked for and not run.
    """
    return {name: [name, *(PROGRAMS[name].version if name in PROGRAMS else ())] for name in sorted(set(names))}


UNPACKED_MYSQL = "MySQL"
"""What it is called where it is missing: ``mysqld`` is also a name of MariaDB's."""

_REMEDIES = {
    UNPACKED_MYSQL: "storlab image mysql",
    "virtiofsd": "storlab image virtiofsd",
    "virtiofsd of QEMU 7": "storlab image virtiofsd --implementation c",
}


def remedy(name: str) -> str:
    if name in _REMEDIES:
        return _REMEDIES[name]
    known = PROGRAMS | _UNASKED_PROGRAMS
    return f"apt-get install {known.get(name, Program(name)).package}"


_TRIED = 60.0  # s, for one of the agent's programs to try whether it works; an emulated guest takes three
_SINCE = {"locks": (5, 19)}
"""Linux from which on one of the agent's programs can work."""
_TRACEPOINTS = {"locks": ("contention_begin", "contention_end")}
"""What it attaches to, by the types of the kernel."""


@dataclass(frozen=True)
class Needs:
    """``programs`` by name, kernel ``filesystems`` by name, kernel ``modules``, and whether root is needed.

    ``queues``: how packets are queued, by the kinds that tc(8) knows. ``properties`` of QEMU's devices that its guests
    need, as ``driver.property``. ``agent``: programs of the agent's, with options, whose ``--check`` must succeed.
    """

    programs: tuple[str, ...] = ()
    filesystems: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()  # device nodes and sysfs files that must exist
    queues: tuple[str, ...] = ()
    properties: tuple[str, ...] = ()
    agent: tuple[str, ...] = ()
    root: str = ""  # what root is needed for; empty: not needed

    def __or__(self, other: Needs) -> Needs:
        names = (each.name for each in fields(self) if each.name != "root")
        joined = {name: tuple(dict.fromkeys(getattr(self, name) + getattr(other, name))) for name in names}
        return replace(self, **joined, root=self.root or other.root)


def together(needs: Iterable[Needs]) -> Needs:
    return reduce(or_, needs, Needs())


@dataclass(frozen=True)
class Lack:
    """One thing that a machine lacks, and the command or step that would fix it."""

    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.what} ({self.remedy})" if self.remedy else self.what


async def lacks(node: Node, needs: Needs) -> list[Lack]:
    facts = await node.facts({name: [name] for name in needs.programs})
    found: list[Lack] = []
    if needs.root and facts["uid"] != 0:
        found.append(Lack(f"no root privileges, needed for {needs.root}", "run it as root, or with sudo"))
    for program in needs.programs:
        if facts["tools"].get(program) is None and await program_path(node, program) is None:
            found.append(Lack(f"{program} is not installed", remedy(program)))
    for filesystem in needs.filesystems:
        if filesystem not in facts["filesystems"] and not await _loadable(node, filesystem):
            found.append(Lack(f"this kernel ({facts['kernel']['release']}) has no {filesystem}", "another kernel"))
    for module in needs.modules:
        if module not in facts["modules"] and not await _has_module(node, module):
            found.append(Lack(f"this kernel ({facts['kernel']['release']}) has no module {module}", "another kernel"))
    for path in needs.paths:
        if not (await node.run(["test", "-e", path], check=False)).ok:
            found.append(Lack(f"{path} does not exist", ""))
    for queue in needs.queues if facts["uid"] == 0 else ():
        # Built in or not: tried in a network namespace that ends with the command.
        trial = ["tc", "qdisc", "add", "dev", "lo", "root", queue, *_SMALLEST_QUEUES[queue]]
        if not (await node.run(["unshare", "--net", "--", *trial], check=False)).ok:
            found.append(Lack(f"this kernel ({facts['kernel']['release']}) has no {queue}", "use virtual machines"))
    for program in needs.agent if facts["uid"] == 0 else ():
        argv = [f"/proc/{node.pid}/exe", *program.split(), "--check"]
        tried = await node.run(argv, check=False, timeout=_TRIED)
        if not tried.ok:
            lines = tried.stderr.decode(errors="replace").splitlines() or [f"the agent's {program} doesn't work"]
            found.append(Lack(lines[0].removeprefix("storlab-agent: "), ""))
    return found


def untraceable(kernel: Path, release: str, needs: Needs) -> list[str]:
    """What the agent's programs lack in a kernel that is not running and can't be asked.

    ``kernel``: an image, whose types say what it has; where they can't be read, as in a bzImage, its release does.
    """
    found = []
    numbers = tuple(int(number) for number in re.findall(r"\d{1,6}", release)[:2])
    for program in needs.agent:
        tracepoints = _TRACEPOINTS.get(program, ())
        since, absent = _SINCE.get(program, ()), None
        if tracepoints:
            absent = lacks_types(kernel, tuple(f"btf_trace_{name}" for name in tracepoints))
        if absent == ("BTF",):
            found.append(f"its kernel was built without BTF (CONFIG_DEBUG_INFO_BTF), which tracing {program} takes")
        elif absent:
            names = " and ".join(name.removeprefix("btf_trace_") for name in absent)
            found.append(
                f"its kernel has no tracepoint {names}, which tracing {program} takes; Linux "
                f"{'.'.join(map(str, since))} and later have it"
            )
        elif absent is None and numbers < since:
            found.append(f"its kernel is Linux {release}, and tracing {program} takes {'.'.join(map(str, since))}")
    return found


async def program_path(node: Node, program: str) -> str | None:
    """Where a program is that Debian keeps outside of PATH; of several versions, the newest."""
    pattern = _OUTSIDE_OF_PATH.get(program)
    if pattern is None:
        return None
    found = await node.run(["sh", "-c", _FIND, "sh", pattern, program], check=False)
    return found.stdout.decode(errors="replace").strip() if found.ok else None


_SIGNS = {"zram": "/sys/class/zram-control"}
"""Of a driver that shows no parameters, so that sysfs has no module of it where it is built in."""


async def _has_module(node: Node, module: str) -> bool:
    """Built in, as its parameters say where modprobe(8) knows of no modules at all, or to be loaded."""
    sign = _SIGNS.get(module, f"/sys/module/{module.replace('-', '_')}")
    built_in = await node.run(["test", "-e", sign], check=False)
    return built_in.ok or await _loadable(node, module)


async def _loadable(node: Node, module: str) -> bool:
    facts = await node.facts({"modprobe": ["modprobe"]})
    if facts["tools"].get("modprobe") is None:
        return False
    return (await node.run(["modprobe", "--dry-run", "--quiet", module], check=False)).ok


# Binding a program to CPUs and NUMA nodes of its machine, by numactl(8).

_LIST = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")
_ALL = "all"  # numactl's own word; nothing need be bound then, nor numactl be there


def _checked(value: object) -> object:
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if text in (None, _ALL):
        return None
    if not isinstance(text, str) or not _LIST.fullmatch(text):
        raise ValueError(f'{value!r} is no list of CPUs or nodes: write "0-1", "0,2" or "all"')
    return text


Numbers = Annotated[Choice | None, BeforeValidator(_checked), WithJsonSchema({"type": ["string", "integer"]})]
"""``"0-1,4"``, as numactl takes it, or ``"all"``, which is ``None``; a single number may be written as one."""


def numactl(pin: str | None, numa: str | None) -> list[str]:
    """The words before a command that bind it: to the CPUs ``pin``, to CPUs and memory of the NUMA nodes ``numa``."""
    words = [] if numa is None else [f"--cpunodebind={numa}", f"--membind={numa}"]
    words += [] if pin is None else [f"--physcpubind={pin}"]
    return ["numactl", *words, "--"] if words else []


def numactl_programs(pin: str | None, numa: str | None) -> tuple[str, ...]:
    return ("numactl",) if numactl(pin, numa) else ()
