"""Probe ``server``: what a database counts itself, asked over one connection at even intervals.

Counts are differences over the measured phase: some survive a restart, and come with a data set that is unpacked.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import ClassVar

import polars as pl
from pydantic import Field

from storlab.errors import NodeError, ParseError, TrialError
from storlab.findings.runs import NoCheckpoint
from storlab.layers.database.clients import DATABASE, client
from storlab.layers.resources import Server
from storlab.layers.server.log import ServerLog
from storlab.measurements import SERIES_COLUMNS, Measurements, empty, metric_frame
from storlab.metrics import CHECKPOINT, MetricSpec, Value
from storlab.probes.base import Probe, ProbeContext, ProbeRecord, Seen, Window
from storlab.probes.server.asked import ASKED, END, SERIES, SPECS, Asked
from storlab.probes.server.checkpoints import Look, checkpoint_dips, checkpoints
from storlab.probes.subject import Kind, Service
from storlab.reading import lines_of
from storlab.text import is_whole
from storlab.units import Duration
from storlab.waiting import to_its_end

_PATIENCE = 5.0  # s, for the first answer and for the last
_ASKS = 'statement=$1 every=$2; shift 2; while printf "%s\\n" "$statement"; do sleep "$every"; done | exec "$@"'


class ServerProbe(Probe):
    """Asks databases what they count: bytes of their logs, pages written twice, checkpoints, waits for locks."""

    kind: ClassVar[str] = "server"
    watches: ClassVar[frozenset[Kind]] = frozenset({"server"})
    metrics: ClassVar[tuple[MetricSpec, ...]] = tuple(SPECS.values())

    interval: Duration = Field(1.0, ge=0.1, description="Time between two queries.")

    @asynccontextmanager
    async def watch(self, context: ProbeContext) -> AsyncIterator[None]:
        async with AsyncExitStack() as all_of_them:
            for service in _databases(context.subject.servers):
                await all_of_them.enter_async_context(self._ask(context, service))
            yield

    @asynccontextmanager
    async def _ask(self, context: ProbeContext, service: Service) -> AsyncIterator[None]:
        answers = _Answers(context.raw / _file(service))
        argv = [ASKED[service.dialect].statement, f"{self.interval:g}", *client(_server(service))]
        process = await context.node.start(["sh", "-c", _ASKS, "sh", *argv], on_output=answers.take)
        try:
            await answers.another()
            yield
            await answers.another()
        finally:
            await to_its_end(process.end())
            answers.log.close()

    def parse(self, record: ProbeRecord) -> Measurements:
        values, series, found = list[Value](), list[pl.DataFrame](), list[NoCheckpoint]()
        for service in _databases(record.subject.servers):
            asked, path = ASKED[service.dialect], record.raw / _file(service)
            looks = read_answers(path)
            before, within, after = _around(looks, record.window)
            if before is None or after is None:
                raise ParseError("the database gave no answer both before the load and after it", str(path))
            values += _counted(asked, before, after, str(path))
            values += _largest(asked, within or [after])
            series += [_series(asked, within, record.window)] if within else []
            series.append(marks := _checkpoints([before, *within, after], record.window))
            if marks.is_empty():
                found.append(NoCheckpoint(service.dialect))
        together = pl.concat([empty(SERIES_COLUMNS), *series])
        return Measurements(metric_frame(values), series=together, found=tuple(found))

    def derive(self, seen: Seen) -> Iterator[Value]:
        return checkpoint_dips(seen.loads, seen.nodes)


class _Answers:
    """What the client prints, written down line by line, and when an answer was whole."""

    def __init__(self, path: Path) -> None:
        self.log = ServerLog(path)
        self._whole = asyncio.Event()

    def take(self, payload: bytes, at: float) -> None:
        self.log.take(payload, at)
        if END.encode() in payload:
            self._whole.set()

    async def another(self) -> None:
        self._whole.clear()
        with suppress(NodeError, TimeoutError, TrialError):
            async with asyncio.timeout(_PATIENCE):
                await self._whole.wait()


def read_answers(path: Path) -> list[Look]:
    """All that are whole, in order. Raises ``ParseError``."""
    try:
        return list(_looks(line.decode(errors="replace").rstrip("\n") for line in lines_of(path)))
    except OSError as error:
        raise ParseError(f"cannot read it: {error.strerror}", str(path)) from None


def _looks(lines: Iterator[str]) -> Iterator[Look]:
    numbers: dict[str, int] = {}
    for line in lines:
        time, _, answer = line.partition(" ")
        name, _, number = answer.partition("\t")
        if name == END:
            with suppress(ValueError):
                yield Look(float(time), numbers)
            numbers = {}
        elif is_whole(number):
            numbers[name] = int(number)


def _around(looks: Sequence[Look], window: Window) -> tuple[Look | None, list[Look], Look | None]:
    before = [look for look in looks if look.t <= window.start]
    within = [look for look in looks if window.start < look.t < window.end]
    after = [look for look in looks if look.t >= window.end]
    return (before[-1] if before else None), within, (after[0] if after else None)


def _counted(asked: Asked, before: Look, after: Look, where: str) -> Iterator[Value]:
    for name, metric in asked.counts.items():
        if name in before.numbers and name in after.numbers:
            counted = after.numbers[name] - before.numbers[name]
            if counted < 0:
                raise ParseError(f"{name} ran backwards: the database was started again", where)
            yield SPECS[metric].value(counted)


def _largest(asked: Asked, looks: Sequence[Look]) -> Iterator[Value]:
    for name, metric in asked.states.items():
        found = [look.numbers[name] for look in looks if name in look.numbers]
        if found:
            yield SPECS[f"{metric}.max"].value(max(found))


def _series(asked: Asked, looks: Sequence[Look], window: Window) -> pl.DataFrame:
    rows = [
        (None, metric, look.t - window.start, float(look.numbers[name]), SERIES[metric])
        for name, metric in asked.states.items()
        for look in looks
        if name in look.numbers
    ]
    return pl.DataFrame(rows, schema=SERIES_COLUMNS, orient="row")


def _checkpoints(looks: Sequence[Look], window: Window) -> pl.DataFrame:
    """Those that began within the window: when, and how long each took, at most until the window's end."""
    _, name = CHECKPOINT
    rows = [
        (None, name, each.begin - window.start, min(each.end or window.end, window.end) - each.begin, "s")
        for each in checkpoints(looks)
        if window.start <= each.begin < window.end
    ]
    return pl.DataFrame(rows, schema=SERIES_COLUMNS, orient="row")


def _databases(services: Sequence[Service]) -> list[Service]:
    return [service for service in services if service.here and service.dialect in ASKED]


def _file(service: Service) -> str:
    return f"{service.dialect}.log"


def _server(service: Service) -> Server:
    if service.address.startswith("/"):
        return Server("", service.dialect, socket=service.address, database=DATABASE)
    host, _, port = service.address.rpartition(":")
    return Server("", service.dialect, host, int(port), database=DATABASE)
