"""``tests.parquet``: what came of each script of a run, a row each, for data frames. It is derived from the records."""

from __future__ import annotations

import io
from collections.abc import Iterable

import polars as pl

from storlab.records.files import write_whole
from storlab.suites.model import Attempt
from storlab.suites.records.folder import SuiteRun
from storlab.suites.texts.zts import test_name

TABLE = "tests.parquet"
COLUMNS: dict[str, pl.DataType | type[pl.DataType]] = {
    "suite": pl.String,
    "group": pl.String,
    "test": pl.String,
    "role": pl.String,
    "number": pl.Int64,
    "outcome": pl.String,
    "started": pl.Datetime("us", "UTC"),
    "elapsed": pl.Float64,
    "cpu": pl.Float64,
    "limit": pl.Float64,
    "code": pl.Int64,
    "signal": pl.String,
    "user": pl.String,
    "guest": pl.String,
    "reason": pl.String,
    "dropped": pl.Int64,
    "leaks": pl.List(pl.String),
    "path": pl.String,
    "folder": pl.String,
}
_OWN = ("suite", "test")


def tests_frame(run: SuiteRun) -> pl.DataFrame:
    columns: dict[str, list[object]] = {
        name: [_value(each, name) for each in run.attempts] for name in COLUMNS if name not in _OWN
    }
    columns["suite"] = [run.asked.name] * len(run.attempts)
    columns["test"] = list(_names((each.path for each in run.attempts), run.asked.testdir))
    return pl.DataFrame({name: columns[name] for name in COLUMNS}, schema=COLUMNS)


def write_tests(run: SuiteRun) -> None:
    written = io.BytesIO()
    tests_frame(run).write_parquet(written)
    write_whole(run.folder / TABLE, written.getvalue())


def _value(attempt: Attempt, name: str) -> object:
    value = getattr(attempt, name)
    if name == "leaks":
        return [f"{leak.by}: {leak.kind} {leak.what}" for leak in attempt.leaks]
    return str(value) if name == "outcome" else value


def _names(paths: Iterable[str], testdir: str) -> Iterable[str]:
    return (test_name(path, testdir) for path in paths)
