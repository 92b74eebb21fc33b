"""How a run of a suite is watched, what is shown of it in the end, and with which status it exits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from storlab.cli.output import show, show_json, warn
from storlab.cli.status import (
    COMPLETE,
    INTERRUPTED,
    LEFT_BEHIND,
    NOTHING_EXECUTED,
    TEST_UNEXPECTED,
    TEST_WITHOUT_RESULT,
    Status,
)

if TYPE_CHECKING:
    from storlab.suites.model import Attempt
    from storlab.suites.records.folder import SuiteRecord, SuiteRun
    from storlab.suites.run.execution import Ended, Watch


def finish(folder: Path, execute: Callable[[Watch], Ended], *, quiet: bool, json: bool) -> None:
    from storlab.records.files import write_whole
    from storlab.suites.records.folder import read_suite_run
    from storlab.suites.report.formats import render

    ended = executed(lambda: execute(_watch(quiet or json)), folder)
    known = read_suite_run(folder)
    page = folder / "report.html"
    write_whole(page, render(known, "html").encode())
    keep_table(known)
    if json:
        show_json(render(known, "json").removesuffix("\n"))
    else:
        show(render(known, "text", brief=True).removesuffix("\n"))
        show(f"\nRun:    {folder}\nReport: {page}")
    tell_end(ended, known)
    raise typer.Exit(LEFT_BEHIND if ended.left_behind else status_of(known))


def executed(execute: Callable[[], Ended], folder: Path) -> Ended:
    """How it ended. Raises ``Exit`` if nothing was run."""
    import asyncio
    import contextlib

    ended = None
    with contextlib.suppress(asyncio.CancelledError):
        ended = execute()
    if ended is None or (ended.interrupted and not (folder / "suite.json").exists()):
        warn("storlab: interrupted before any test was run; nothing is left of it")
        raise typer.Exit(INTERRUPTED)
    return ended


def tell_end(ended: Ended, known: SuiteRun) -> None:
    """Say what did not end well. Raises ``Exit`` for a run that was interrupted."""
    for reason in ended.given_up:
        warn(f"storlab: {reason}")
    for reason in ended.left_behind:
        warn(f"storlab: could not be torn down: {reason}; `storlab clean {known.folder}` tries again")
    if ended.interrupted:
        here = known.asked.here
        resume = f"storlab suite resume {known.folder}{'' if here is None else f' --here {here.machine}'}"
        warn(f"storlab: interrupted; `{resume}` runs the rest")
        raise typer.Exit(INTERRUPTED)


def keep_table(known: SuiteRun) -> None:
    """Write ``tests.parquet`` beside the records, where the folder may be written to."""
    import contextlib

    from storlab.suites.records.derived import write_tests

    with contextlib.suppress(OSError):
        write_tests(known)


def status_of(known: SuiteRun) -> Status:
    """4 if a test that was asked for has no result, else 125 if no test was executed and nothing failed, else 3
    if a result was not expected, else 0.
    """
    from storlab.suites.model import Outcome
    from storlab.suites.report.view import view_of

    seen = view_of(known)
    if known.without_result or seen.absent:
        return TEST_WITHOUT_RESULT
    failed = any(row.attempt.outcome is not Outcome.SKIP for row in seen.unexpected)
    if not (seen.executed or failed):
        return NOTHING_EXECUTED
    return TEST_UNEXPECTED if seen.unexpected else COMPLETE


def _watch(silent: bool) -> Watch:
    from storlab.suites.run.execution import Watch
    from storlab.suites.zts_text import console_line

    runner, quiet = "", False

    def begins(record: SuiteRecord, done: int) -> None:
        nonlocal runner, quiet
        runner, quiet = record.runner, record.quiet
        warn_of(record)
        if done:
            warn(f"{done} of {len(record.keys)} tests have a result already.")

    def ended(attempt: Attempt) -> None:
        hidden = silent or attempt.role == "failsafe" or (quiet and attempt.outcome == "PASS")
        if not hidden:
            show(console_line(attempt, runner).removesuffix("\n"))
        if attempt.reason and not silent:
            warn(f"  {attempt.reason}")

    return Watch(begins, ended, warn)


def warn_of(record: SuiteRecord) -> None:
    """Say what of a suite is not run, or not as written."""
    from storlab.suites.records.folder import who_lacks

    for absent in record.absent:
        warn(f"Warning: {absent}")
    for note in record.notes:
        warn(f"Note: {note}")
    for program, tests in record.lacking.items():
        warn(f"Warning: {who_lacks(record.here)} lacks {program}, which {len(tests)} tests seem to call")
