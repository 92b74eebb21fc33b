"""What a load may take, ``limits`` of a workload: the kernel's control groups, see cgroups(7) and
Documentation/admin-guide/cgroup-v2.rst. Every run of an agent has a cgroup of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

from pydantic import AfterValidator, Field

from storlab.base.errors import Unsupported
from storlab.base.units import Duration, Size
from storlab.model import Model
from storlab.nodes.agent import steps
from storlab.nodes.needs import Numbers
from storlab.nodes.node import Node
from storlab.nodes.settings import in_use

_PAGE = 4096
_PERIOD = 100_000  # µs, of cpu.max
_UNLIMITED = "max"
_Rate = Annotated[int, Field(ge=1, lt=2**62, strict=True)]
_Bandwidth = Annotated[Size, Field(ge=4096)]


class IoMax(Model):
    """The most that a load may do to its disk in a second, by the kernel's names. What is left out is unlimited."""

    rbps: _Bandwidth | None = Field(None, description="Bytes read.")
    wbps: _Bandwidth | None = Field(None, description="Bytes written.")
    riops: _Rate | None = Field(None, description="Requests to read.")
    wiops: _Rate | None = Field(None, description="Requests to write.")

    def values(self) -> dict[str, str]:
        return {name: _UNLIMITED if value is None else str(value) for name, value in self.model_dump().items()}


def _positive(cpus: float | None) -> float | None:
    if cpus is not None and not 0.01 <= cpus <= 4096:
        raise ValueError(f"cpu_max = {cpus:g} is not a number of CPUs, such as 0.5")
    return cpus


class Limits(Model):
    """What the processes of a load may take, on each of its nodes. What is left out is unlimited."""

    io_max: IoMax | None = Field(None, description='Of each of its disks: `{ wbps = "10M", riops = 100 }`.')
    io_weight: int | None = Field(
        None,
        ge=1,
        le=1000,
        strict=True,
        description="Its share of the disk beside others' (100), if that has the scheduler `bfq`, or iocost.",
    )
    io_latency: Duration | None = Field(None, gt=0, description="The latency that others are throttled to keep.")
    memory_max: Size | None = Field(None, ge=1024**2, description="Memory, page cache included; more is reclaimed.")
    memory_high: Size | None = Field(None, ge=1024**2, description="Memory from which on it is slowed down.")
    cpu_max: Annotated[float | None, AfterValidator(_positive)] = Field(None, description="CPUs' worth of time: 0.5.")
    cpuset: Numbers = Field(None, description='The CPUs that it may run on: "0-1".')

    def _plain(self) -> dict[str, str]:
        """File → text of those that are of no disk."""
        cpu = None if self.cpu_max is None else f"{round(self.cpu_max * _PERIOD)} {_PERIOD}"
        memory = {"memory.max": self.memory_max, "memory.high": self.memory_high}
        pages = {name: None if size is None else size // _PAGE * _PAGE for name, size in memory.items()}
        every = {**pages, "cpu.max": cpu, "cpuset.cpus": self.cpuset}
        return {name: str(value) for name, value in every.items() if value is not None}

    @property
    def of_disks(self) -> bool:
        return any(limit is not None for limit in (self.io_max, self.io_weight, self.io_latency))

    async def files(self, node: Node, disks: Sequence[str]) -> list[tuple[str, str]]:
        """Files of a cgroup, each with what is to be written. ``disks``: their folders in sysfs.

        Raises ``Unsupported`` if a limit would do nothing.
        """
        files = [*self._plain().items()]
        for folder in disks:
            number, scheduler = await node.texts(f"{folder}/dev", f"{folder}/queue/scheduler")
            if self.io_max is not None:
                limits = " ".join(f"{key}={value}" for key, value in self.io_max.values().items())
                files.append(("io.max", f"{number} {limits}"))
            if self.io_latency is not None:
                files.append(("io.latency", f"{number} target={round(self.io_latency * 1e6)}"))
            if self.io_weight is not None:
                weight = await _weight(node, str(number), in_use(scheduler or ""))
                files.append((weight, f"default {self.io_weight}"))
        return files


async def _weight(node: Node, number: str, scheduler: str) -> str:
    """The file that has weights of a disk. Raises ``Unsupported`` if none does anything."""
    if scheduler == "bfq":
        return "io.bfq.weight"
    for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
        (costs,) = await node.texts(f"{root}/io.cost.qos")
        if any(line.startswith(f"{number} ") and "enable=1" in line for line in (costs or "").splitlines()):
            return "io.weight"
    raise Unsupported(
        f"node {node.name}: limits.io_weight would do nothing: the disk's scheduler is {scheduler or 'none'}, and "
        'iocost is off. Give its layer queue = { scheduler = "bfq" }'
    )


async def limit(node: Node, cgroup: str | None, files: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Limit all that runs in a cgroup, and read that back. Raises ``Unsupported`` for what the kernel lacks."""
    if cgroup is None:
        raise Unsupported(f"node {node.name}: limits: its processes have no cgroup (version 2)")
    wanted = " ".join(f"+{name}" for name in _controllers([file for file, _ in files]))
    above = [cgroup.rsplit("/", levels)[0] for levels in range(1, cgroup.count("/"))]
    known = await node.texts(*(f"{folder}/cgroup.controllers" for folder in above))
    parents = [folder for folder, has in zip(above, known, strict=True) if has is not None]
    # Only a guest is ours as a whole: elsewhere, what its owner has not delegated stays as it is.
    mine = parents[::-1] if node.identity.volatile else parents[:1]
    await node.carry_out(*(steps.write(f"{folder}/cgroup.subtree_control", wanted) for folder in mine), go_on=True)
    await node.carry_out(*(steps.write(f"{cgroup}/{file}", f"{text}\n") for file, text in files), go_on=True)
    names = dict.fromkeys(file for file, _ in files)
    found = dict(zip(names, await node.texts(*(f"{cgroup}/{file}" for file in names)), strict=True))
    (offered,) = await node.texts(f"{parents[0]}/cgroup.controllers") if parents else ("",)
    for file, text in files:
        got = found[file]
        if got is None:
            controller = file.partition(".")[0]
            lacks = f"has no {file}" if controller in (offered or "").split() else f"gives its cgroups no {controller}"
            raise Unsupported(f"node {node.name}: limits: its kernel {lacks} (it has {offered or 'no controllers'})")
        if not _took(text, got):
            raise Unsupported(f"node {node.name}: limits: {file} does not take {text}: it is {got or 'empty'}")
    return {file: text or "" for file, text in found.items()}


def _controllers(files: Iterable[str]) -> list[str]:
    """Buffered writes are a load's own only where its memory is counted, too."""
    names = dict.fromkeys(file.partition(".")[0] for file in files)
    return [*names, *(["memory"] if "io" in names and "memory" not in names else [])]


def _took(wanted: str, got: str) -> bool:
    """``io.max`` has a line for each disk, whose first word is its number; CPUs are listed as ranges."""
    if "=" in wanted:
        return any(set(wanted.split()) <= set(line.split()) for line in got.splitlines())
    if wanted == got or wanted.removeprefix("default ") == got:
        return True
    return _listed(wanted) == _listed(got) is not None


def _listed(text: str) -> set[int] | None:
    """``0-1,4`` → 0, 1, 4; ``None`` for what lists no CPUs."""
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if not (first.isdecimal() and (last or first).isdecimal()) or int(last or first) > 2**16:
            return None
        found |= set(range(int(first), int(last or first) + 1))
    return found
