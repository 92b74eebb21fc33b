"""Workload ``sysbench``: its tests of databases, or a Lua file of one's own. See https://github.com/akopytov/sysbench.

The warm-up is a run of its own before the measured one: sysbench's ``--warmup-time`` was reported to count into the
sums (akopytov/sysbench#167), and with ``--rate`` leaves a backlog (#408).
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

import polars as pl
from pydantic import Field, StringConstraints, model_validator

from storlab.base.allowed import allowed
from storlab.base.errors import CommandFailed, ParseError, TimedOut, TrialError
from storlab.base.reach import Script, options_of
from storlab.base.units import Share
from storlab.findings.runs import BegunAgain
from storlab.layers.database.base import DatabaseLayer, as_written
from storlab.layers.database.data_set import DIALECTS, sysbench_options
from storlab.measurements import Measurements, metric_frame
from storlab.metrics import PERCENTILES, MetricSpec, by_name, percentile_name
from storlab.nodes.needs import Needs
from storlab.nodes.process import ExitRecord, telling
from storlab.percentiles import percentiles
from storlab.tools.sysbench.importer import IGNORED, LIVE, measured
from storlab.tools.sysbench.text import read_sysbench
from storlab.workloads.base import ELAPSED, Launch, OptionError, RunContext, bytes_of, elapsed_values, read_exit
from storlab.workloads.database import DatabaseWorkload

_FATAL = re.compile(rb"^FATAL: (.+)$", re.M)
_SPECS = by_name(LIVE)


def read_results(raw: Path, max_ignored: float) -> Measurements:
    """``max_ignored``: errors that it ignored, for each transaction.

    Raises ``TimedOut``, ``CommandFailed`` with its own message, ``TrialError`` for too many errors, ``ParseError``.
    """
    ended, text = read_exit(raw), bytes_of(raw / "stdout")
    if not ended.ok:
        raise _failure(ended, text, bytes_of(raw / "stderr"))
    source = str(raw / "stdout")
    runs = read_sysbench(text, source)
    if len(runs) != 1:
        raise ParseError(f"holds {len(runs)} results of sysbench, and not one", source)
    (run,) = runs
    events = run.closed.get("events", 0)
    if not events:
        raise TrialError("sysbench finished no transaction", text.decode(errors="replace"))
    errors = run.closed.get("errors", 0)
    ignored = f"sysbench restarted {errors:.0f} of {events:.0f} transactions after a deadlock or a conflict"
    if errors > max_ignored * events:
        raise TrialError(f"{ignored}: more than max_ignored_errors = {max_ignored:.1%} allows")
    found = measured(run)
    exact = percentiles(run.histogram) if run.histogram.height else {}
    own = [_SPECS[f"latency.{percentile_name(p)}"].value(exact[p]) for p in PERCENTILES if p in exact]
    renamed = found.metrics.with_columns(pl.col("metric").replace("errors", IGNORED.name))
    kept = renamed.filter(pl.col("metric").is_in(list(_SPECS)) & ~pl.col("metric").str.starts_with("latency.p"))
    series = found.series.filter(~pl.col("metric").str.starts_with("latency."))
    return replace(
        found,
        metrics=pl.concat([kept, metric_frame([*own, *elapsed_values(ended)])]),
        series=series,
        declared=(),
        found=(BegunAgain(((round(errors), round(events)),)),) if errors else (),
    )


def _failure(ended: ExitRecord, text: bytes, stderr: bytes) -> TrialError:
    said = (stderr or text).decode(errors="replace")
    if ended.timed_out:
        return TimedOut("sysbench was stopped at the time-out", said)
    fatal = [line.decode(errors="replace") for line in (*_FATAL.findall(text), *_FATAL.findall(stderr))]
    message = fatal[0] if fatal else telling(said.splitlines() or ["no message"])
    return CommandFailed(f"{ended.describe()}: {message}", said)


Test = Literal[
    "oltp_read_write", "oltp_read_only", "oltp_write_only", "oltp_point_select", "oltp_insert", "oltp_delete",
    "oltp_update_index", "oltp_update_non_index", "select_random_points", "select_random_ranges",
]  # fmt: skip
OptionName = Annotated[str, options_of("sysbench"), StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,63}$")]
OptionValue = Annotated[str, options_of("sysbench"), StringConstraints(pattern=r"^[A-Za-z0-9_.,:+-]{1,200}$")]
# Deadlocks, and rows changed since a snapshot: what a client has to try again. By itself, sysbench ignores locks that
# were waited for in vain, too. Of PostgreSQL it ignores the like, and rows that another has inserted meanwhile.
_IGNORED = "--mysql-ignore-errors=1213,1020"


class SysbenchWorkload(DatabaseWorkload):
    """Runs sysbench's transactions on a database."""

    kind: ClassVar[str] = "sysbench"
    dialects: ClassVar[tuple[str, ...]] = DIALECTS

    test: Test = Field("oltp_read_write", description="One of sysbench's own tests.")
    script: Script | None = Field(
        None,
        pattern=r"^/[^\x00]+\.lua$",
        max_length=4095,
        description="Instead of test: a Lua file on the node.",
    )
    tables: int | None = Field(
        None, ge=1, le=10_000, description="Number of its tables; by default all of the data set."
    )
    rows: int | None = Field(None, ge=1, le=10**9, description="Rows of each table; by default those of the data set.")
    distribution: Literal["special", "uniform", "gaussian", "pareto", "zipfian"] = Field(
        "special", description="Which rows it picks. `special`: most of the time the same few."
    )
    max_ignored_errors: Share = Field(
        0.01,
        ge=0,
        le=1,
        description="Share of transactions restarted after a deadlock or a conflict, which sysbench ignores: "
        "above this, a trial fails. Any other error fails it anyway.",
    )
    options: dict[OptionName, OptionValue | int | bool] = Field(
        default_factory=dict,
        description="More [options of the test](options.md), without the dashes: `point-selects`, `skip-trx`.",
    )

    @model_validator(mode="after")
    def _can_be_done(self) -> Self:
        for name, value in self.options.items():
            if (wrong := allowed("sysbench").problem(name.replace("-", "_"), value)) is not None:
                raise OptionError(wrong, "options", name)
        if self.runtime != int(self.runtime):
            raise OptionError("sysbench counts whole seconds", "runtime")
        return self

    def declares(self) -> tuple[MetricSpec, ...]:
        return (*LIVE, *ELAPSED)

    def needs(self) -> Needs:
        return Needs(programs=("sysbench",), paths=(self.script,) if self.script else ())

    def lacks_data(self, database: DatabaseLayer) -> str | None:
        data = database.data
        if data is None and self.script is None and None in (self.tables, self.rows):
            return f"the tables are missing: write data = {{ tables = 4, rows = 50000 }} in layer {database.layer}"
        if data is None or self.script is not None:
            return None
        if data.tables is None:
            return f"these are tables of pgbench: write data = {{ tables = 4, rows = 50000 }} in layer {database.layer}"
        for name, has in (("tables", data.tables), ("rows", data.rows)):
            wanted = getattr(self, name)
            if wanted is not None and wanted > (has or 0):
                return f"{name} = {wanted} is more than the data set has: {has}"
        return None

    async def prepare(self, place: RunContext) -> None:
        if "tables" in self.server(place).data:
            return
        await place.node.run([*self._arguments(place), "cleanup"], check=False)  # of an earlier trial
        await place.node.run([*self._arguments(place), "prepare"])

    async def launch(self, place: RunContext) -> Launch:
        if place.warm_up:  # here, and not before caches are dropped
            await place.node.run([*self._arguments(place), f"--time={max(1, round(place.warm_up))}", "run"])
        await self.settle(place)
        measured = [f"--time={round(self.runtime)}", "--report-interval=1", "--histogram=on", "--percentile=95"]
        return Launch((*self._arguments(place), *measured, "run"), env={"LC_ALL": "C"}, cwd=place.folder)

    def _arguments(self, place: RunContext) -> list[str]:
        server = self.server(place)
        tables = self.tables or server.data.get("tables")
        rows = self.rows or server.data.get("rows")
        own = {"tables": tables, "table-size": rows, "rand-type": self.distribution, "rand-seed": place.seed % 2**31}
        given = {**{name: value for name, value in own.items() if value is not None}, **self.options}
        spelled = [f"--{name.replace('_', '-')}={as_written(value)}" for name, value in given.items()]
        limits = [f"--threads={self.threads}", "--events=0", *([f"--rate={self.rate:g}"] if self.rate else [])]
        ignored = [_IGNORED] if server.dialect in ("mariadb", "mysql") else []
        return ["sysbench", self.script or self.test, *sysbench_options(server), *ignored, *limits, *spelled]

    def parse(self, raw: Path) -> Measurements:
        return self.refuse_less(read_results(raw, self.max_ignored_errors), "time", "threads")
