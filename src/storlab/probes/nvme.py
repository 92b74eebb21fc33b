"""Probe ``nvme``: what NVMe disks say of their health: heat, throttling, media errors, before the load and after it.

The SMART / Health Information log (page 02h) and the controller's own description are read with nvme(1) as the bytes
that they are, since what it prints of them differs between versions. Offsets: NVM Express Base Specification 2.0,
figures 207 and 275.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import ClassVar

import orjson

from storlab.base.errors import NodeError, ParseError, TrialError
from storlab.base.limits import RECORD
from storlab.base.reading import read_file
from storlab.measurements import Measurements, metric_frame
from storlab.metrics import MetricSpec
from storlab.nodes.agent import steps
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.nodes.raw_folders import make_raw_folder
from storlab.probes.base import Probe, ProbeContext, ProbeRecord
from storlab.probes.subject import Kind

NAME = "smart.json"

_LOG, _DESCRIPTION = 512, 4096  # bytes
_PATIENCE = 30.0  # s, for one command
_MOST = 64  # disks that one may lie on
_NAMESPACE = re.compile(r"(nvme\d{1,5}n\d{1,5})(?:p\d{1,5})?")
_ABSOLUTE_ZERO = 273  # K: temperatures are in whole kelvins
_MINUTE = 60
_CRITICAL = {
    0: "its spare blocks are below their threshold",
    1: "its temperature is beyond a threshold",
    2: "its reliability is degraded",
    3: "its media are read-only",
    4: "its protection of volatile memory has failed",
    5: "its persistent memory region is read-only or unreliable",
}

# Ratios of degrees Celsius say nothing; what heat does to a disk's speed is in the others.
_TEMPERATURE = MetricSpec("temperature", "°C", across="max", evidence="none", domain="signed")
_EVENTS = MetricSpec("throttle.events", "1", "lower", noun="times a disk began to throttle itself", evidence="rare")
_TIME = MetricSpec("throttle.time", "s", "lower", noun="for which disks throttled themselves", evidence="rare")
_HOT = MetricSpec("hot.time", "s", "lower", evidence="none")
_MEDIA = MetricSpec("media.errors", "1", "lower", noun="media errors of disks", evidence="rare")
_USED = MetricSpec("endurance.used", "1", across="max", evidence="none")


class NvmeProbe(Probe):
    """Reads the health log of the NVMe disks that the storage under test lies on."""

    kind: ClassVar[str] = "nvme"
    watches: ClassVar[frozenset[Kind]] = frozenset({"disks"})
    metrics: ClassVar[tuple[MetricSpec, ...]] = (_TEMPERATURE, _EVENTS, _TIME, _HOT, _MEDIA, _USED)

    def needs(self) -> Needs:
        return Needs(root="reading the health of disks")  # nvme(1) only where there is such a disk

    @asynccontextmanager
    async def watch(self, context: ProbeContext) -> AsyncIterator[None]:
        node = context.node
        disks = await _namespaces(node, context.subject.disks or ())
        found = {disk: {"description": await _bytes(node, "id-ctrl", disk)} for disk in disks}
        for disk in disks:
            found[disk]["before"] = await _log(node, disk)
        try:
            yield
        finally:
            for disk in disks:
                found[disk]["after"] = await _log(node, disk)
            make_raw_folder(context.raw)
            (context.raw / NAME).write_bytes(orjson.dumps(found))

    def parse(self, record: ProbeRecord) -> Measurements:
        health = _read(record)
        if not health:
            return Measurements(warnings=("nvme: the storage lies on no NVMe disk that is known",))
        unread = tuple(
            f"nvme: the health log of {disk} cannot be read: is nvme-cli installed there?"
            for disk, both in health
            if both is None
        )
        both = [(disk, pair) for disk, pair in health if pair is not None]
        if not both:
            return Measurements(warnings=unread)
        specs = (_EVENTS, _TIME, _HOT, _MEDIA)
        sums = [sum(column) for column in zip(*(pair.counted for _, pair in both), strict=True)]
        values = [spec.value(value) for spec, value in zip(specs, sums, strict=True)]
        values.append(_TEMPERATURE.value(max(pair.after.temperature for _, pair in both)))
        values.append(_USED.value(max(pair.after.used for _, pair in both)))
        cautions = (f"nvme: {disk}: {caution}" for disk, pair in both for caution in pair.cautions())
        return Measurements(metrics=metric_frame(values), warnings=(*unread, *cautions))


@dataclass(frozen=True)
class Health:
    """What a health log says. °C, s, counts; ``used`` of the endurance, 1.0 is all that the vendor expects."""

    critical: int
    temperature: float
    used: float
    hot: float
    media_errors: int
    throttled: int
    throttled_time: float


@dataclass(frozen=True)
class Pair:
    """A disk before and after a load; ``threshold``: °C from which on its vendor warns, where it says so."""

    before: Health
    after: Health
    threshold: float | None

    @property
    def counted(self) -> tuple[float, float, float, float]:
        """In between: times it began to throttle itself, s for which it did, s beyond a threshold, media errors."""
        a, b = self.after, self.before
        pairs = (
            (a.throttled, b.throttled),
            (a.throttled_time, b.throttled_time),
            (a.hot, b.hot),
            (a.media_errors, b.media_errors),
        )
        throttled, time, hot, errors = (float(max(after - before, 0)) for after, before in pairs)
        return throttled, time, hot, errors

    def cautions(self) -> Iterator[str]:
        throttled, time, _, errors = self.counted
        if throttled or time:
            yield f"throttled itself during the load ({throttled:.0f} times, {time:.0f} s): its speed was not its own"
        if errors:
            yield f"{errors:.0f} media errors during the load: the disk is failing"
        hottest = max(self.before.temperature, self.after.temperature)
        if self.threshold is not None and hottest >= self.threshold:
            yield f"{hottest:.0f} °C, where its vendor warns from {self.threshold:.0f} °C on"
        yield from (sentence for bit, sentence in _CRITICAL.items() if self.after.critical >> bit & 1 and bit != 1)


def parse_health(log: bytes) -> Health:
    """A health log of 512 bytes; numbers are little-endian. Raises ``ValueError``."""
    if len(log) != _LOG:
        raise ValueError(f"a health log has {_LOG} bytes, not {len(log)}")

    def number(at: int, size: int) -> int:
        return int.from_bytes(log[at : at + size], "little")

    return Health(
        critical=log[0],
        temperature=float(number(1, 2) - _ABSOLUTE_ZERO),
        used=log[5] / 100,
        hot=float(_MINUTE * (number(192, 4) + number(196, 4))),
        media_errors=number(160, 16),
        throttled=number(216, 4) + number(220, 4),
        throttled_time=float(number(224, 4) + number(228, 4)),
    )


def parse_threshold(description: bytes) -> float | None:
    """°C from which on the disk warns of its temperature; ``None`` where it names none."""
    kelvins = int.from_bytes(description[266:268], "little") if len(description) == _DESCRIPTION else 0
    return float(kelvins - _ABSOLUTE_ZERO) if kelvins else None


def _read(record: ProbeRecord) -> list[tuple[str, Pair | None]]:
    path = record.raw / NAME
    try:
        written = orjson.loads(read_file(path, RECORD))
        return [(str(disk), _pair(each)) for disk, each in written.items()]
    except (OSError, ValueError, TypeError, AttributeError, KeyError) as error:
        raise ParseError(f"holds no health of disks: {error}", str(path), 1) from None


def _pair(written: dict[str, str | None]) -> Pair | None:
    before, after, description = (written.get(name) for name in ("before", "after", "description"))
    if before is None or after is None:
        return None
    threshold = parse_threshold(bytes.fromhex(description or ""))
    return Pair(parse_health(bytes.fromhex(before)), parse_health(bytes.fromhex(after)), threshold)


async def _namespaces(node: Node, disks: Sequence[str]) -> list[str]:
    found = list(disks)
    for disk in found:  # which grows meanwhile
        found += [each for each in await _beneath(node, disk) if each not in found and len(found) < _MOST]
    return list(dict.fromkeys(match[1] for disk in found if (match := _NAMESPACE.fullmatch(disk))))


async def _beneath(node: Node, disk: str) -> list[str]:
    folder = f"/sys/class/block/{disk}"
    members, backing = await node.carry_out(
        steps.names(f"{folder}/slaves"), steps.read(f"{folder}/loop/backing_file"), go_on=True
    )
    found = members.entries if members.ok else []
    if backing.ok and backing.text:
        (file,) = await node.carry_out(steps.look(backing.text), go_on=True)
        number = (file.result.device or 0) if file.ok else 0
        (device,) = await node.carry_out(steps.readlink(steps.disk_link(number)), go_on=True)
        found += [device.text.rpartition("/")[2]] if device.ok else []
    return found


async def _log(node: Node, disk: str) -> str | None:
    return await _bytes(node, "get-log", disk, "--log-id=2", f"--log-len={_LOG}")


async def _bytes(node: Node, command: str, disk: str, *options: str) -> str | None:
    """What nvme(1) brings, in hexadecimal; ``None`` where the disk does not answer."""
    try:
        ran = await node.run(
            ["nvme", command, f"/dev/{disk}", *options, "--raw-binary"], check=False, timeout=_PATIENCE
        )
    except (NodeError, TrialError):  # it is not installed, or hangs
        return None
    return ran.stdout.hex() if ran.ok else None
