"""Probe ``server``: what a database counts itself, asked over one connection at even intervals.

Counts are differences over the measured phase: some survive a restart, and come with a data set that is unpacked.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

import numpy as np
import polars as pl
from pydantic import Field

from storlab.base.errors import NodeError, ParseError, TrialError
from storlab.base.reading import lines_of
from storlab.base.text import is_whole
from storlab.base.units import Duration
from storlab.base.waiting import to_its_end
from storlab.findings.runs import NoCheckpoint
from storlab.layers.database.data_set import DATABASE, client
from storlab.layers.resources import Server
from storlab.layers.server.running import ServerLog
from storlab.measurements import SERIES_COLUMNS, Measurements, empty, metric_frame
from storlab.metrics import CHECKPOINT, Domain, MetricSpec, Value, by_name
from storlab.probes.base import Probe, ProbeContext, ProbeRecord, Seen, Window
from storlab.probes.subject import Kind, Service
from storlab.timeseries.drift import Event, dips

# What is asked of each database, and what of it becomes which metric.
#
# See https://mariadb.com/kb/en/innodb-status-variables/, "Server Status Variables" of MySQL's manual, and "The
# Cumulative Statistics System" of PostgreSQL's.

COUNT, BEGAN, NOW, REACHED = "checkpoints", "checkpoint.began", "checkpoint.now", "INNODB_LSN_LAST_CHECKPOINT"
"""Names in answers: how many; in which second since 1970 the last finished one began; ms since then; up to where."""
END = "end"
"""What the last line of an answer says."""

_DIPS: tuple[tuple[str, str, Domain], ...] = (
    ("checkpoint.dip.depth", "1", "share"),
    ("checkpoint.dip.length", "s", ""),
)
SPECS = by_name(
    [
        MetricSpec("log.bytes", "B", "lower", noun="written to the database's log"),
        MetricSpec("log.flushes", "1", "lower", noun="flushes of the database's log", evidence="rare"),
        MetricSpec("log.full_pages", "1", "lower", noun="whole pages in the database's log"),
        MetricSpec("doublewrite.pages", "1", "lower", noun="pages written to the doublewrite buffer"),
        MetricSpec("pages.written", "1", "lower", noun="pages written back"),
        MetricSpec("pages.read", "1", "lower", noun="pages read into the pool"),
        MetricSpec("checkpoints", "1", "lower", noun="checkpoints", evidence="rare"),
        MetricSpec("lock.waits", "1", "lower", noun="waits for locks of rows"),
        MetricSpec("dirty.pages.max", "1", across="max", evidence="none"),
        MetricSpec("checkpoint.age.max", "B", across="max", evidence="none"),
        MetricSpec("purge.lag.max", "1", across="max", evidence="none"),
        *(
            MetricSpec(f"{name}.{which}", unit, "lower", "none", tail=which == "max", evidence="none", domain=domain)
            for name, unit, domain in _DIPS
            for which in ("median", "max")
        ),
    ]
)
SERIES = {"dirty.pages": "1", "checkpoint.age": "B", "purge.lag": "1"}
"""What is a state, and no count: a sample each, of which ``….max`` is the largest."""


@dataclass(frozen=True)
class Asked:
    """``statement`` answers in lines of a name and a number; ``counts`` and ``states``: name → metric."""

    statement: str
    counts: Mapping[str, str]
    states: Mapping[str, str]


_OF_INNODB = {
    "INNODB_OS_LOG_WRITTEN": "log.bytes",
    "INNODB_OS_LOG_FSYNCS": "log.flushes",
    "INNODB_DBLWR_PAGES_WRITTEN": "doublewrite.pages",
    "INNODB_BUFFER_POOL_PAGES_FLUSHED": "pages.written",
    "INNODB_BUFFER_POOL_READS": "pages.read",
    "INNODB_ROW_LOCK_WAITS": "lock.waits",
}
_DIRTY, _AGE, _HISTORY = "INNODB_BUFFER_POOL_PAGES_DIRTY", "INNODB_CHECKPOINT_AGE", "INNODB_HISTORY_LIST_LENGTH"
_STATES = {_DIRTY: "dirty.pages", _AGE: "checkpoint.age", _HISTORY: "purge.lag"}


def _of_mariadb() -> Asked:
    named = _named(*_OF_INNODB, *_STATES, REACHED)
    rows = f"SELECT VARIABLE_NAME, VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS {named}"
    return Asked(f"{rows} UNION ALL SELECT '{END}', 0;", _OF_INNODB, _STATES)


def _of_mysql() -> Asked:
    """Neither the log since the checkpoint nor what is to be purged is a variable there."""
    status = "FROM performance_schema.global_status"
    rows = (
        f"SELECT UPPER(VARIABLE_NAME), VARIABLE_VALUE {status} {_named(*_OF_INNODB, _DIRTY)}",
        f"SELECT '{_AGE}', MAX(VARIABLE_VALUE + 0) - MIN(VARIABLE_VALUE + 0) {status} "
        + _named("INNODB_REDO_LOG_CURRENT_LSN", "INNODB_REDO_LOG_CHECKPOINT_LSN"),
        f"SELECT '{REACHED}', VARIABLE_VALUE {status} {_named('INNODB_REDO_LOG_CHECKPOINT_LSN')}",
        f"SELECT '{_HISTORY}', COUNT FROM information_schema.INNODB_METRICS WHERE NAME = 'trx_rseg_history_len'",
        f"SELECT '{END}', 0",
    )
    return Asked(" UNION ALL ".join(rows) + ";", _OF_INNODB, _STATES)


def _named(*names: str) -> str:
    return f"WHERE VARIABLE_NAME IN ({', '.join(map(repr, names))})"


def _of_postgres() -> Asked:
    sources = {
        "log.bytes": "wal_bytes FROM pg_stat_wal",
        "log.flushes": "wal_sync FROM pg_stat_wal",
        "log.full_pages": "wal_fpi FROM pg_stat_wal",
        "pages.written": "buffers_checkpoint + buffers_clean + buffers_backend FROM pg_stat_bgwriter",
        "pages.read": "blks_read FROM pg_stat_database WHERE datname = current_database()",
        "checkpoints": "checkpoints_timed + checkpoints_req FROM pg_stat_bgwriter",
    }
    times = {
        BEGAN: "extract(epoch FROM checkpoint_time)::bigint FROM pg_control_checkpoint()",
        NOW: "floor(1000 * extract(epoch FROM clock_timestamp()))::bigint",
    }
    rows = [f"SELECT '{name}', {source}" for name, source in {**sources, **times}.items()]
    return Asked(" UNION ALL ".join([*rows, f"SELECT '{END}', 0"]) + ";", {name: name for name in sources}, {})


ASKED: Mapping[str, Asked] = {"mariadb": _of_mariadb(), "mysql": _of_mysql(), "postgresql": _of_postgres()}
"""By dialect."""


# When checkpoints were, by what a database answers: it counts them, or says how far the last one came.
# And how far they slow a load down.
#
# PostgreSQL counts a checkpoint as it begins, but tells of a forced one only at its end; its control file has the
# second at which the last finished one began. InnoDB has no beginning: it writes pages back until its checkpoint can
# move.

_ONE = 2.0  # s: InnoDB moves its checkpoint once a second for as long as it writes pages back


@dataclass(frozen=True)
class Look:
    """One answer: seconds on the node's monotonic clock, and its numbers by name."""

    t: float
    numbers: Mapping[str, int]


@dataclass(frozen=True)
class Checkpoint:
    """Between which times it was, as far as answers show; ``end`` is ``None`` where it did not end."""

    begin: float
    end: float | None


def checkpoints(looks: Sequence[Look]) -> list[Checkpoint]:
    """In their order, of all answers, those before and after the measured phase among them."""
    return list(_moves(looks) if any(REACHED in look.numbers for look in looks) else _counted(looks))


def _counted(looks: Sequence[Look]) -> Iterator[Checkpoint]:
    begun: float | None = None  # one that was counted and has not ended
    for before, after in pairwise(looks):
        counted = after.numbers.get(COUNT, 0) > before.numbers.get(COUNT, 0)
        ended = _differs(before, after, BEGAN)
        if counted and begun is not None:
            yield Checkpoint(begun, before.t)
            begun = None
        if ended:
            since = after.numbers.get(NOW, 0) / 1000 - after.numbers[BEGAN]
            earliest = max(min(before.t, after.t - since), looks[0].t)
            yield Checkpoint(begun if begun is not None else earliest, after.t)
            begun = None
        elif counted:
            begun = before.t
    if begun is not None:
        yield Checkpoint(begun, None)


def _moves(looks: Sequence[Look]) -> Iterator[Checkpoint]:
    """Each time in which it moved again and again is one."""
    begun = moved = 0.0
    running = False
    for before, after in pairwise(looks):
        if running and before.t - moved > _ONE:
            yield Checkpoint(begun, moved)
            running = False
        if _differs(before, after, REACHED):
            begun, running, moved = (begun if running else before.t), True, after.t
    if running:
        yield Checkpoint(begun, moved if looks[-1].t - moved > _ONE else None)


def _differs(before: Look, after: Look, name: str) -> bool:
    return name in before.numbers and name in after.numbers and before.numbers[name] != after.numbers[name]


def checkpoint_dips(loads: Iterable[Measurements], seen: Iterable[Measurements]) -> Iterator[Value]:
    """Median and worst of a trial's checkpoints, held against the series of the load; none if there was no checkpoint.

    Several loads, or several servers, would say nothing of each other: of these there is none either.
    """
    rates = [each.series.filter(pl.col("job").is_null(), metric="tps").sort("t") for each in loads]
    marks = [each.series.filter(metric=CHECKPOINT[1]).sort("t") for each in seen]
    if len(rates) != 1 or len(marks) != 1:
        return
    (rate,), (mark,) = rates, marks
    events = [Event(begin, begin + took) for begin, took in mark.select("t", "value").iter_rows()]
    found = [each for each in dips(rate["t"].to_numpy(), rate["value"].to_numpy(), events) if each is not None]
    for of in ("depth", "length") if found else ():
        for which, fold in (("median", np.median), ("max", np.max)):
            value = float(fold([getattr(each, of) for each in found]))
            yield SPECS[f"checkpoint.dip.{of}.{which}"].value(value)


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
            values += _grown(asked, before, after, str(path))
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


def _grown(asked: Asked, before: Look, after: Look, where: str) -> Iterator[Value]:
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
