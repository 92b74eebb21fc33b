"""Layer ``dm``: targets of the kernel's device mapper (Documentation/admin-guide/device-mapper of Linux).

A fault that begins while loads run is a second table in place of one that passes everything on: what the kernel has
already begun ends by the first one, and nothing above is frozen or written back for it (``--nolockfs``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from storlab.base.errors import TrialError
from storlab.base.reach import OwnName
from storlab.base.text import is_whole, number_or_text
from storlab.base.units import Duration, Size, power_of_two, size_text
from storlab.layers.base import Layer, LayerContext
from storlab.layers.block import mapper
from storlab.layers.block.identity import refuse_another
from storlab.layers.block.queue import queue_facts
from storlab.layers.resources import Disk
from storlab.model import Model
from storlab.nodes.needs import Needs

_LONGEST = 60.0  # s
_MILLISECOND = 1e-3
_CHUNK = 65536
_MODULES = {"delay": ("dm_delay",), "flakey": ("dm_flakey",), "log-writes": ("dm_log_writes",)}
_FAULTS = ("delay", "flakey", "error")
_OF = {  # target by key: with any other, it says nothing
    "reads": ("delay",), "writes": ("delay",), "flushes": ("delay",), "up": ("flakey",), "down": ("flakey",),
    "fault": ("flakey",), "bad": ("error",), "log": ("log-writes",), "chunk": ("striped",),
    "disks": ("linear", "striped"), "start": ("linear",), "length": ("linear",),
    "after": _FAULTS, "lasts": _FAULTS,
}  # fmt: skip
_CHANGE = """printf '%s\\n' "$2" | dmsetup load "$1" && exec dmsetup resume --nolockfs "$1" """


class Range(Model):
    """Part of a disk."""

    start: Annotated[Size, Field(multiple_of=512)] = Field(description="Where it begins, in whole sectors of 512.")
    length: Annotated[Size, Field(multiple_of=512, gt=0)] = Field(description="Its length, in whole sectors of 512.")


class DmLayer(Layer[Disk | None, Disk]):
    """A target of device mapper: disks joined or striped; a disk that is slow or fails, from any moment on; a log."""

    layer: Literal["dm"] = "dm"
    target: Literal["linear", "striped", "delay", "flakey", "error", "log-writes"] = Field(
        description="`linear`: part of a disk, or several joined. `striped`: several in turn. `delay`: requests wait. "
        "`flakey`: it fails now and then. `error`: sectors that can't be read or written. `log-writes`: what is "
        "written is logged on another disk."
    )
    disks: tuple[OwnName, ...] = Field((), description="linear, striped: further chains whose disks it joins.")
    chunk: Annotated[Size, power_of_two("chunk", 4096, 64 * 1024**2)] | None = Field(
        None, description="striped: what lies on one disk before the next; by default 64k."
    )
    start: Annotated[Size, Field(multiple_of=512)] | None = Field(None, description="linear: where its part begins.")
    length: Annotated[Size, Field(multiple_of=512, gt=0)] | None = Field(
        None, description="linear: the length of its part; by default all that follows."
    )
    reads: Duration = Field(0.0, ge=0, le=_LONGEST, description="delay: how long reads wait, in whole milliseconds.")
    writes: Duration = Field(0.0, ge=0, le=_LONGEST, description="delay: how long writes and discards wait.")
    flushes: Duration = Field(0.0, ge=0, le=_LONGEST, description="delay: how long flushes wait.")
    up: Duration | None = Field(None, ge=0, le=86400, description="flakey: how long it works, in whole seconds.")
    down: Duration | None = Field(None, ge=1, le=86400, description="flakey: how long it then fails.")
    fault: Literal["errors", "error_reads", "error_writes", "drop_writes"] = Field(
        "errors", description="flakey: what fails; `drop_writes` are lost and reported as written."
    )
    bad: tuple[Range, ...] = Field(
        (), max_length=1000, description="error: its bad parts, each with `start` and `length`; by default all of it."
    )
    log: OwnName | None = Field(None, description="log-writes: the further chain whose disk has the log.")
    after: Duration | None = Field(
        None,
        gt=0,
        description="The fault begins so long after the loads were started, with their warm-up and what a tool takes "
        "to begin; by default it is there from the start.",
    )
    lasts: Duration | None = Field(None, gt=0, description="The fault ends after so long; by default it stays.")

    further: ClassVar = (Disk,)
    overwrites: ClassVar = True
    compared: ClassVar = ("targets.*", "reads", "writes", "flushes", "up", "down", "fault", "stripes", "chunk")
    undoes: ClassVar = (mapper.remove,)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        for key in sorted(self.model_fields_set & _OF.keys()):
            if self.target not in _OF[key]:
                raise ValueError(f"{key} is for target {' or '.join(_OF[key])}, not for {self.target}")
        needed = {"striped": ("disks",), "flakey": ("up", "down"), "log-writes": ("log",)}.get(self.target, ())
        if missing := [key for key in needed if getattr(self, key) in (None, ())]:
            raise ValueError(f"target {self.target} needs {' and '.join(missing)}")
        if self.disks and (self.start is not None or self.length is not None):
            raise ValueError("start and length are of the underlying disk, not of several: leave them out")
        if self.target == "delay" and not {"reads", "writes", "flushes"} & self.model_fields_set:
            raise ValueError("target delay needs reads, writes or flushes: how long they wait")
        for keys, unit, name in ((("reads", "writes", "flushes"), _MILLISECOND, "ms"), (("up", "down"), 1.0, "s")):
            for key in keys:
                count = (getattr(self, key) or 0.0) / unit
                if abs(count - round(count)) > 1e-6:
                    raise ValueError(f"{key}: the kernel counts in whole {name}, so it can't be {count:g} {name}")
        if self.lasts is not None and self.after is None:
            raise ValueError("lasts goes with after: when the fault begins")
        ends = 0
        for each in sorted(self.bad, key=lambda part: part.start):
            if each.start < ends:
                raise ValueError(f"bad: {size_text(each.start)} is in two of its ranges")
            ends = each.start + each.length
        return self

    def label(self) -> str:
        kinds = {"reads": self.reads, "writes": self.writes, "flushes": self.flushes}
        times = (f"{kind} {value / _MILLISECOND:g}ms" for kind, value in kinds.items() if value)
        fault = "" if self.fault == "errors" else self.fault
        when = "" if self.after is None else f"after {self.after:g}s"
        return " ".join(filter(None, ("dm", self.target, *times, fault, when)))

    def needs(self) -> Needs:
        return mapper.needs(*_MODULES.get(self.target, ("dm_mod",)))

    def chains(self) -> tuple[str, ...]:
        return self.disks if self.log is None else (self.log,)

    def check_further(self, count: int) -> str | None:
        if self.log is not None:
            return None if count == 1 else f"logs on one disk, and its chain has {count}"
        return f"joins at least 2 disks, and its chains have {count}" if self.disks and count < 2 else None

    def check_above(self, below: Layer | None) -> str | None:
        if below is None:
            return None if self.disks else "it takes an underlying disk, or disks: put one of them"
        if self.disks:
            return f"disks name what it joins, so it must be the lowest of its stack, but there is layer {below.layer}"
        return None

    async def set_up(self, below: Disk | None, context: LayerContext) -> Disk:
        node = context.node
        further = [each for name in self.chains() for each in context.others[name] if isinstance(each, Disk)]
        disks = further if below is None else [below]
        if self.log is not None:
            await refuse_another(node, further[0].path, further[0].device)
        table = _passing(below) if below is not None and self.after is not None else self._table(disks, further)
        name = await mapper.create(context, mapper.name_of(context), table, *_MODULES.get(self.target, ()))
        return Disk(node.name, f"/dev/{name}", await mapper.size_of(node, name), all(disk.ours for disk in disks))

    def _table(self, disks: Sequence[Disk], further: Sequence[Disk]) -> str:
        first, sectors = disks[0], _sectors(disks[0].size)
        match self.target:
            case "linear" if len(disks) == 1:
                start = _sectors(self.start or 0)
                length = _sectors(self.length or 0) or sectors - start
                if start + length > sectors or length <= 0:
                    raise TrialError(f"dm linear: {first.path} has only {size_text(first.size)}: make its part smaller")
                return f"0 {length} linear {first.path} {start}"
            case "linear":
                starts = [sum(_sectors(each.size) for each in disks[:at]) for at in range(len(disks))]
                rows = zip(starts, disks, strict=True)
                return "\n".join(f"{at} {_sectors(each.size)} linear {each.path} 0" for at, each in rows)
            case "striped":
                chunk = _sectors(self.chunk or _CHUNK)
                each = min(_sectors(disk.size) for disk in disks) // chunk * chunk
                members = " ".join(f"{disk.path} 0" for disk in disks)
                return f"0 {each * len(disks)} striped {len(disks)} {chunk} {members}"
            case "delay":
                waits = (round(wait / _MILLISECOND) for wait in (self.reads, self.writes, self.flushes))
                return f"0 {sectors} delay {' '.join(f'{first.path} 0 {wait}' for wait in waits)}"
            case "flakey":
                fault = "" if self.fault == "errors" else f" 1 {self.fault}"
                return f"0 {sectors} flakey {first.path} 0 {round(self.up or 0)} {round(self.down or 0)}{fault}"
            case "log-writes":
                return f"0 {sectors} log-writes {first.path} {further[0].path}"
            case "error":
                return "\n".join(self._bad(first, sectors))

    def _bad(self, disk: Disk, sectors: int) -> Iterator[str]:
        if not self.bad:
            yield f"0 {sectors} error"
            return
        at = 0
        for each in sorted(self.bad, key=lambda part: part.start):
            start, length = _sectors(each.start), _sectors(each.length)
            if start + length > sectors:
                has = f"{disk.path} has only {size_text(disk.size)}"
                raise TrialError(f"dm error: {has}, and its bad sectors end at {size_text(each.start + each.length)}")
            if start > at:
                yield f"{at} {start - at} linear {disk.path} {at}"
            yield f"{start} {length} error"
            at = start + length
        if at < sectors:
            yield f"{at} {sectors - at} linear {disk.path} {at}"

    def moments(self) -> tuple[float, ...]:
        if self.after is None:
            return ()
        return (self.after,) if self.lasts is None else (self.after, self.after + self.lasts)

    async def midway(self, below: Disk | None, context: LayerContext) -> Sequence[Sequence[str]]:
        assert below is not None, "only what stands on one disk has such moments"
        name, healthy = mapper.name_of(context), _passing(below)
        tables = (healthy, self._table([below], ()), healthy)
        first, *rest = ([*mapper.WITHOUT_UDEV, "sh", "-c", _CHANGE, "change", name, table] for table in tables)
        if parse_table(await context.node.output("dmsetup", "table", name))["targets"].keys() != {"linear"}:
            await context.node.run(first)
        return rest[: len(self.moments())]

    async def facts(self, resource: Disk, context: LayerContext) -> dict[str, Any]:
        table = await context.node.output("dmsetup", "table", mapper.name_of(context))
        return {**parse_table(table), **await queue_facts(context.node, resource)}


def _sectors(size: int) -> int:
    return size // mapper.SECTOR


def _passing(disk: Disk) -> str:
    return f"0 {_sectors(disk.size)} linear {disk.path} 0"


_FLAKEY = re.compile(r"\S+ \d+ (\d+) (\d+) \d+ ?([a-z_ ]*)")


def parse_table(text: str) -> dict[str, Any]:
    """``dmsetup table``: a line a part of the disk, ``0 2048 delay 254:0 0 10 254:0 0 20 254:0 0 20``.

    ``targets``: bytes by target. Of ``delay``: how long reads, writes and flushes wait.
    """
    targets: dict[str, int] = {}
    facts: dict[str, Any] = {"targets": targets}
    for line in text.splitlines():
        words = line.split()
        if len(words) < 3 or not is_whole(words[1]):
            continue
        target, rest = words[2], words[3:]
        targets[target] = targets.get(target, 0) + int(words[1]) * mapper.SECTOR
        if target == "delay":
            kinds = zip(("reads", "writes", "flushes"), rest[2::3], strict=False)
            facts |= {kind: f"{milliseconds} ms" for kind, milliseconds in kinds}
        elif target == "striped" and len(rest) > 1 and is_whole(rest[1]):
            facts |= {"stripes": number_or_text(rest[0]), "chunk": int(rest[1]) * mapper.SECTOR}
        elif target == "flakey" and (found := _FLAKEY.fullmatch(" ".join(rest))):
            facts |= {"up": f"{found[1]} s", "down": f"{found[2]} s", "fault": found[3]}
    return facts
