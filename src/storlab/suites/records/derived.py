"""What is made of runs' records: the runs of shares as one run, and a table of what came of each script."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

import polars as pl
from msgspec.structs import replace as with_fields

from storlab.base.errors import UserError
from storlab.base.text import grouped
from storlab.records.files import write_whole
from storlab.suites.model import Attempt, SuiteEnvironment, test_name
from storlab.suites.records.folder import SuiteRun, read_suite_run

_ALIKE = ("name", "runner", "testdir", "adapter")


def merged_suite_runs(folders: Sequence[Path]) -> SuiteRun:
    """The run in a folder; of several, all that they ran. Raises ``UserError`` if they are no parts of one suite,
    ``RecordsError`` if one is no run of a suite.
    """
    runs = [read_suite_run(folder) for folder in folders]
    first, *others = runs
    if not others:
        return first
    ran: dict[tuple[str, str], Path] = {}
    for run in runs:
        for field in _ALIKE:
            if (mine := getattr(run.asked, field)) != (its := getattr(first.asked, field)):
                raise UserError(
                    f"{run.folder} is no part of the same suite: its {field} is {mine}, that of {first.folder} {its}"
                )
        for key in run.asked.keys:
            if (other := ran.setdefault(key, run.folder)) != run.folder:
                raise UserError(
                    f"{test_name(key[1], run.asked.testdir)} is in {other} and in {run.folder}, so they are no parts "
                    "of one run: `storlab suite compare` compares runs, `storlab suite history` counts over them"
                )
    lacking = grouped(each for run in runs for each in run.asked.lacking.items())
    asked = with_fields(
        first.asked,
        groups=tuple(group for run in runs for group in run.asked.groups),
        absent=tuple(dict.fromkeys(each for run in runs for each in run.asked.absent)),
        notes=tuple(dict.fromkeys(each for run in runs for each in run.asked.notes)),
        lacking={program: [*chain(*tests)] for program, tests in lacking.items()},
        guests=max(run.asked.guests for run in runs),
        share=(1, 1),
    )
    finished = [run.finished for run in runs if run.finished is not None]
    attempts = [
        with_fields(each, folder=str(run.folder.absolute() / each.folder)) if each.folder else each
        for run in runs
        for each in run.attempts
    ]
    return SuiteRun(
        first.folder,
        asked,
        tuple(sorted(attempts, key=lambda each: each.started)),
        min(run.started for run in runs),
        max(finished) if len(finished) == len(runs) else None,
        " ".join(filter(None, [_missing([run.asked.share for run in runs]), *(run.stopped for run in runs)])),
        " + ".join(run.identity for run in runs),
        tuple(_others(runs)),
        sum(run.seconds for run in runs),
    )


def _missing(shares: Sequence[tuple[int, int]]) -> str:
    """Which shares there is no run of, in a sentence; empty if all are there."""
    divisions = {number for _, number in shares}
    if len(divisions) > 1:
        numbers = ", ".join(map(str, sorted(divisions)))
        return f"The runs are shares of {numbers} parts, so some tests may be in none of them."
    number = divisions.pop()
    left = sorted(set(range(1, number + 1)) - {share for share, _ in shares})
    return f"No run has {', '.join(f'--shard {share}/{number}' for share in left)}." if left else ""


def _others(runs: Sequence[SuiteRun]) -> Iterator[tuple[str, SuiteEnvironment]]:
    """Guests that are not what the first run's first guest was, whichever run they are of."""
    known = runs[0].asked.environment
    for run in runs:
        yield from run.others
        if (own := run.asked.environment) is not None and known is not None and own.key != known.key:
            yield f"{run.folder.name}-all guests of {run.folder.name}", own


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
    columns["test"] = [test_name(each.path, run.asked.testdir) for each in run.attempts]
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
