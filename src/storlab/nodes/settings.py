"""Settings of a kernel that decide how fast its storage is, and that outlive who changed them: how they are read, and
put back to what they were.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from msgspec import Meta
from pydantic import AfterValidator, BeforeValidator

from storlab.base.amounts import parse_size
from storlab.base.errors import Unsupported
from storlab.base.reach import Choice, KernelSetting
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

_BYTES = "a size"
_PERCENT, _SWITCH, _ANY = range(101), range(2), range(10**9)
_VM, _CPU, _PAGES = "/proc/sys/vm/", "/sys/devices/system/cpu/", "/sys/kernel/mm/transparent_hugepage/"
_GOVERNORS = ("performance", "powersave", "ondemand", "conservative", "schedutil", "userspace")
SETTABLE: Mapping[str, tuple[str, range | tuple[str, ...] | str]] = {
    **{f"vm.dirty_{name}": (f"{_VM}dirty_{name}", _BYTES) for name in ("bytes", "background_bytes")},
    **{f"vm.dirty_{name}": (f"{_VM}dirty_{name}", _PERCENT) for name in ("ratio", "background_ratio")},
    **{f"vm.dirty_{name}_centisecs": (f"{_VM}dirty_{name}_centisecs", _ANY) for name in ("expire", "writeback")},
    "vm.dirtytime_expire_seconds": (f"{_VM}dirtytime_expire_seconds", _ANY),
    "vm.laptop_mode": (f"{_VM}laptop_mode", _ANY),
    "vm.swappiness": (f"{_VM}swappiness", range(201)),
    "vm.vfs_cache_pressure": (f"{_VM}vfs_cache_pressure", range(1, 1001)),
    "vm.watermark_scale_factor": (f"{_VM}watermark_scale_factor", range(1, 3001)),
    "vm.zone_reclaim_mode": (f"{_VM}zone_reclaim_mode", range(8)),
    "kernel.numa_balancing": ("/proc/sys/kernel/numa_balancing", range(4)),
    "kernel.sched_autogroup_enabled": ("/proc/sys/kernel/sched_autogroup_enabled", _SWITCH),
    "transparent_hugepage.enabled": (f"{_PAGES}enabled", ("always", "madvise", "never")),
    "transparent_hugepage.defrag": (f"{_PAGES}defrag", ("always", "defer", "defer+madvise", "madvise", "never")),
    "cpufreq.boost": (f"{_CPU}cpufreq/boost", _SWITCH),
    "cpufreq.governor": (f"{_CPU}cpufreq/policy*/scaling_governor", _GOVERNORS),
    "cpuidle.deepest": (f"{_CPU}cpu[0-9]*/cpuidle/state[0-9]*/disable", range(10)),
    "intel_pstate.no_turbo": (f"{_CPU}intel_pstate/no_turbo", _SWITCH),
}
"""What a study may set of a node's kernel: name → file or files, and the values that it may have. What can starve a
machine of memory is not here (``min_free_kbytes``, ``nr_hugepages``), nor what guards it.
"""

_EACH_OTHER = ("ratio", "bytes")  # of each, the last that was set counts, and makes the other 0


def _flat(value: object, before: str = "") -> object:
    """``vm.swappiness = 1`` is a table within a table to TOML."""
    if not isinstance(value, Mapping):
        return value
    found: dict[str, Any] = {}
    for name, each in value.items():
        within = _flat(each, f"{before}{name}.")
        found |= within if isinstance(each, Mapping) and isinstance(within, dict) else {f"{before}{name}": each}
    return {name: _value(name, each) for name, each in found.items()} if not before else found


def _value(name: str, value: Any) -> int | str:
    if name not in SETTABLE:
        raise ValueError(f"{name}: a study can't set that. It can set {', '.join(SETTABLE)}")
    allowed = SETTABLE[name][1]
    if allowed == _BYTES:
        return parse_size(value)
    if isinstance(value, bool) or value not in allowed:
        numbers = f"a whole number from {allowed[0]} to {allowed[-1]}"
        raise ValueError(f"{name} = {value}: write {numbers if isinstance(allowed, range) else ', '.join(allowed)}")
    return value  # type: ignore[no-any-return]


def _one_of_each(values: dict[str, int | str]) -> dict[str, int | str]:
    for name in values:
        if name.endswith("ratio") and (other := _partner(name)) in values:
            raise ValueError(f"{name} and {other}: each sets the other to 0, so write one of them")
    return values


def _partner(name: str) -> str:
    """The setting that becomes 0 when this is set; empty if there is none."""
    ratio, bytes_ = _EACH_OTHER
    if not name.startswith("vm.dirty_"):
        return ""
    other = f"{name.removesuffix(ratio)}{bytes_}" if name.endswith(ratio) else f"{name.removesuffix(bytes_)}{ratio}"
    return other if other in SETTABLE and other != name else ""


Settings = Annotated[dict[KernelSetting, int | Choice], AfterValidator(_one_of_each), BeforeValidator(_flat)]


async def files_of(node: Node, settings: Mapping[str, int | str]) -> dict[str, tuple[str, str]]:
    """File → name and text of what is asked of a node. Raises ``Unsupported`` if its kernel lacks one."""
    found: dict[str, tuple[str, str]] = {}
    for name, value in settings.items():
        path = SETTABLE[name][0]
        paths = [path]
        if "*" in path:
            paths = (await node.run(["sh", "-c", f"ls -d {path}"], check=False)).stdout.decode().split()
        for each in paths:
            state = re.search(r"state(\d+)/disable$", each)
            found[each] = (name, str(value if state is None else int(int(state[1]) > int(value))))
        if not paths or await node.texts(paths[0]) == [None]:
            raise Unsupported(f"node {node.name}: settings.{name}: its kernel has no {path}")
    return found


def also_changed(settings: Iterable[str]) -> list[str]:
    """Files of what else changes with these settings."""
    return [SETTABLE[other][0] for name in settings if (other := _partner(name))]


async def set_all(node: Node, files: Mapping[str, tuple[str, str]]) -> None:
    """Set what a study asks, and read it back. Raises ``Unsupported`` if the kernel does not take it."""
    await node.carry_out(*(steps.write(path, f"{text}\n") for path, (_, text) in files.items()), go_on=True)
    now = await read_settings(node, files)
    for path, (name, text) in files.items():
        if now.get(path) != text:
            left = now.get(path, "nothing")
            raise Unsupported(f"node {node.name}: settings.{name}: {path} does not take {text}: it is {left}")


_TRIES = 3  # to write all that differs: some settings change each other
_QUEUE = r"/sys/class/block/[^/]+/(\.\./)?queue/(iosched/)?[a-z_]+"
_CPUS = rf"{_CPU}(cpufreq/policy[0-9]{{1,4}}/scaling_governor|cpu[0-9]{{1,4}}/cpuidle/state[0-9]/disable)"
_Path = Annotated[str, Meta(pattern=rf"^({'|'.join(KERNEL_FILES)}|{_QUEUE}|{_CPUS})$")]
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
