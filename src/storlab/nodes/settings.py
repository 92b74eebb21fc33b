"""Settings of a kernel that decide how fast its storage is, and that outlive who changed them: how they are read, and
put back to what they were.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from msgspec import Meta

from storlab.nodes.agent import steps
from storlab.nodes.node import Node
from storlab.nodes.undo import undo

KERNEL = {
    "/proc/sys/vm/": (  # Documentation/admin-guide/sysctl/vm.rst: what is written back when, and what stays in memory
        "dirty_background_bytes", "dirty_background_ratio", "dirty_bytes", "dirty_ratio", "dirty_expire_centisecs",
        "dirty_writeback_centisecs", "dirtytime_expire_seconds", "laptop_mode", "swappiness", "vfs_cache_pressure",
        "min_free_kbytes", "watermark_scale_factor", "zone_reclaim_mode", "nr_hugepages", "overcommit_memory",
    ),
    "/proc/sys/fs/": ("aio-max-nr",),
    "/proc/sys/kernel/": ("io_uring_disabled", "numa_balancing", "sched_autogroup_enabled"),
    "/sys/kernel/mm/transparent_hugepage/": ("enabled", "defrag"),
    "/sys/devices/system/cpu/": ("cpufreq/boost", "intel_pstate/no_turbo", "cpufreq/policy0/scaling_governor"),
    # What [network] and tcp of a study set is theirs, and not in this list.
    "/proc/sys/net/core/": ("default_qdisc", "rmem_default", "rmem_max", "wmem_default", "wmem_max"),
}  # fmt: skip
"""Folder → files. What a study's commands change of these is reported, and put back."""

KERNEL_FILES = tuple(f"{folder}{name}" for folder, names in KERNEL.items() for name in names)

_TRIES = 3  # to write all that differs: some settings change each other
_QUEUE = r"/sys/class/block/[^/]+/(\.\./)?queue/(iosched/)?[a-z_]+"
_Path = Annotated[str, Meta(pattern=rf"^({'|'.join(KERNEL_FILES)}|{_QUEUE})$")]
_Value = Annotated[str, Meta(max_length=4096)]
_Number = Annotated[str, Meta(pattern=r"^[0-9]{0,20}$")]


async def read_settings(node: Node, paths: Iterable[str]) -> dict[str, str]:
    """What files of settings say, in one request: of alternatives the one in use. What can't be read is left out."""
    files = list(paths)
    said = zip(files, await node.texts(*files), strict=True)
    return {path: in_use(value) for path, value in said if value is not None}


def in_use(value: str) -> str:
    """Of alternatives, that in brackets: ``none`` of ``[none] mq-deadline``; else the value as it is."""
    return next((word.strip("[]") for word in value.split() if word.startswith("[")), " ".join(value.split()))


async def put_back(node: Node, were: Mapping[str, str]) -> dict[str, str]:
    """Write ``were``, file → value, as far as the files say something else; what they say in the end.

    In the order of ``were``, zeros first: a limit in bytes is switched off by setting that in percent, and not by
    writing 0 to it.
    """
    now = await read_settings(node, were)
    for _ in range(_TRIES):
        differs = {path: were[path] for path in now if now[path] != were[path]}
        if not differs:
            break
        ordered = sorted(differs.items(), key=lambda each: each[1] != "0")
        await node.carry_out(*(steps.write(path, f"{value}\n") for path, value in ordered), go_on=True)
        now = await read_settings(node, were)
    return now


def number_of_disk(path: str) -> str:
    """The file with the number of the disk that a setting is of, which is another one once the disk is another."""
    return f"{path.partition('/queue/')[0]}/diskseq"


async def journalled(node: Node, were: Mapping[str, str]) -> dict[str, Any]:
    disks = {path: number_of_disk(path) for path in were if "/queue/" in path}
    numbers = await read_settings(node, dict.fromkeys(disks.values()))
    return {
        "paths": [*were],
        "values": [*were.values()],
        "numbers": [numbers.get(disks[path], "") if path in disks else "" for path in were],
    }


@undo("settings.restore")
async def restore(node: Node, paths: list[_Path], values: list[_Value], numbers: list[_Number]) -> str | None:
    """Put settings back to what they were; those of a disk that is another one by now stay as they are."""
    rows = list(zip(paths, values, numbers, strict=True))
    now = await read_settings(node, {number_of_disk(path) for path, _, number in rows if number})
    were = {path: value for path, value, number in rows if not number or now.get(number_of_disk(path)) == number}
    before = await read_settings(node, were)
    after = await put_back(node, were)
    done = [path for path in before if after.get(path) == were[path] != before[path]]
    return f"put back {', '.join(done)}" if done else None
