"""Workload ``pgbench``: PostgreSQL's own benchmark. See https://www.postgresql.org/docs/15/pgbench.html."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Literal, Self

import polars as pl
from pydantic import Field, PrivateAttr, model_validator

from storlab.base.allowed import allowed
from storlab.base.errors import CommandFailed, ParseError, TimedOut
from storlab.base.reach import Beside
from storlab.layers.database.base import DatabaseLayer
from storlab.layers.database.data_set import libpq_options
from storlab.measurements import Measurements, metric_frame
from storlab.metrics import MetricSpec
from storlab.nodes.needs import Needs
from storlab.nodes.process import telling
from storlab.tools.pgbench.log import METRICS
from storlab.workloads.base import (
    ELAPSED,
    Launch,
    OptionError,
    ReadInput,
    RunContext,
    bytes_of,
    elapsed_values,
    read_exit,
)
from storlab.workloads.database import DatabaseWorkload

_SAID = re.compile(r"^pgbench: (?:error: )?(.*)$", re.M)


def read_results(raw: Path, log: str) -> Measurements:
    """``log``: what names of its logs begin with. Raises ``TimedOut``, ``CommandFailed``, ``ParseError``."""
    from storlab.tools.pgbench.importer import read_pgbench  # not needed to load a study

    ended, said = read_exit(raw), bytes_of(raw / "stderr").decode(errors="replace")
    if ended.timed_out:
        raise TimedOut("pgbench was stopped at the time-out", said)
    if not ended.ok:
        lines = _SAID.findall(said) or [telling(said.splitlines() or ["no message"])]
        raise CommandFailed(f"{ended.describe()}: {lines[-1]}", said)
    logs = sorted(raw.glob(f"{log}.*"))
    if not logs:
        raise ParseError("pgbench wrote no log of its transactions", str(raw))
    text = bytes_of(raw / "stdout").decode(errors="replace")
    found = read_pgbench(text, map(bytes_of, logs), str(raw / "stdout"))
    return replace(found, metrics=pl.concat([found.metrics, metric_frame(elapsed_values(ended))]))


SCRIPT, LOG = "script.sql", "transactions"
_COMMAND = re.compile(r"\\(?:\s|\\\r?\n)*+([^\s\\]*)")  # anywhere in a line, and in any case, as pgbench takes it


class PgbenchWorkload(DatabaseWorkload):
    """Runs pgbench's transactions, its own or those of a script, and keeps how long each took."""

    kind: ClassVar[str] = "pgbench"
    dialects: ClassVar[tuple[str, ...]] = ("postgresql",)

    test: Literal["tpcb-like", "simple-update", "select-only"] = Field(
        "tpcb-like", description="One of its own; they need data = { scale = … }."
    )
    script: Beside | None = Field(
        None, max_length=65536, description="Instead of test: a file of SQL and pgbench's commands, beside the study."
    )
    workers: int = Field(1, ge=1, le=1000, description="Threads of pgbench itself, which share the clients.")
    prepared: bool = Field(False, description="Prepared statements, in place of parsing each again.")
    _text: str | None = PrivateAttr(None)

    @model_validator(mode="after")
    def _can_be_done(self) -> Self:
        if self.runtime != int(self.runtime):
            raise OptionError("pgbench counts whole seconds", "runtime")
        if self.workers > self.threads:
            raise OptionError(f"{self.workers} workers for {self.threads} clients (threads): take fewer", "workers")
        return self

    def resolve(self, read: ReadInput) -> Self:
        if self.script is None:
            return self
        text = read(self.script)
        for command in _COMMAND.finditer(text):
            if (wrong := allowed("pgbench").problem(command[1])) is not None:
                line = text.count("\n", 0, command.start(1)) + 1
                raise OptionError(f"line {line} of {self.script}: {wrong}", "script")
        resolved = self.model_copy()
        resolved._text = text
        return resolved

    def declares(self) -> tuple[MetricSpec, ...]:
        return (*METRICS.values(), *ELAPSED)

    def needs(self) -> Needs:
        return Needs(programs=("pgbench", "psql"))

    def lacks_data(self, database: DatabaseLayer) -> str | None:
        if self.script is not None or (database.data is not None and database.data.scale is not None):
            return None
        return f"the tables of pgbench are missing: write data = {{ scale = 10 }} in layer {database.layer}"

    async def prepare(self, place: RunContext) -> None:
        if self._text is not None:
            await place.node.write(f"{place.folder}/{SCRIPT}", self._text.encode())

    async def launch(self, place: RunContext) -> Launch:
        if place.warm_up:
            limit = f"--time={max(1, round(place.warm_up))}"
            await place.node.run([*self._arguments(place), limit, self._database(place)])
        await self.settle(place)
        log = ["--log", f"--log-prefix={place.folder}/{LOG}"]
        argv = (*self._arguments(place), f"--time={round(self.runtime)}", *log, self._database(place))
        return Launch(argv, env={"LC_ALL": "C"}, cwd=place.folder)

    def _database(self, place: RunContext) -> str:
        return self.server(place).database

    def _arguments(self, place: RunContext) -> list[str]:
        what = f"--file={place.folder}/{SCRIPT}" if self._text is not None else f"--builtin={self.test}"
        numbers = [f"--client={self.threads}", f"--jobs={self.workers}", f"--random-seed={place.seed % 2**31}"]
        rate = [f"--rate={self.rate:g}"] if self.rate else []
        how = ["--no-vacuum", f"--protocol={'prepared' if self.prepared else 'simple'}"]
        return ["pgbench", *libpq_options(self.server(place)), what, *numbers, *rate, *how]

    def parse(self, raw: Path) -> Measurements:
        return self.refuse_less(read_results(raw, LOG), "elapsed", "clients")
