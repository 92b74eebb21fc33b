"""Runs a suite with the console, the folders and the exit status of the ZFS Test Suite's own programs."""

from __future__ import annotations

import asyncio
import codecs
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

import typer

from storlab.base.text import plain
from storlab.cli.options import new_folder
from storlab.cli.output import show, warn
from storlab.cli.status import LEFT_BEHIND, TEST_WITHOUT_RESULT
from storlab.cli.suite.finish import executed, tell_end, warn_of
from storlab.cli.suite.options import OriginalOptions
from storlab.suites.model import Attempt, Outcome
from storlab.suites.originals import configuration
from storlab.suites.records.folder import SuiteRecord, SuiteRun, read_suite_run
from storlab.suites.run.classic import ClassicFolder
from storlab.suites.run.execution import Ended, Watch
from storlab.suites.run.plan import Asked
from storlab.suites.run.suite_run import run_suite
from storlab.suites.selection import Selection
from storlab.suites.zts_text import ONLY_MAYBES, console_line, failed_maybes, report, report_status, summary

_FAILED, _NOTHING = 1, 2


@dataclass(frozen=True)
class Original:
    """How the console is to be. ``base``: where the output folder is made; ``shown``, ``tags``: for ``verbose``."""

    base: Path
    options: OriginalOptions = field(default_factory=OriginalOptions)
    verbose: bool = False
    cleaned: bool = False
    shown: Mapping[str, str] = field(default_factory=dict)
    tags: Callable[[], str] = lambda: ""


@dataclass(frozen=True)
class Ran:
    """What came of it. ``console``: what was printed."""

    run: SuiteRun
    folder: ClassicFolder
    console: str
    ended: Ended

    @property
    def missing(self) -> bool:
        """Whether something that was asked for has no result, or no test was executed."""
        executed = any(each.role == "test" and each.outcome is not Outcome.SKIP for each in self.run.attempts)
        return bool(self.run.without_result or self.run.asked.absent or not executed)


def run_original(asked: Asked, original: Original, out: Path | None) -> Ran:
    console: list[str] = []
    records = out or new_folder("suite")
    classic = ClassicFolder(original.base, datetime.now())
    begun, runner = False, ""

    def say(text: str) -> None:
        console.append(text)
        show(text.removesuffix("\n"))

    def begins(record: SuiteRecord, done: int) -> None:
        nonlocal begun, runner
        begun, runner = True, record.runner
        classic.begin(record.groups)
        warn_of(record)
        if original.verbose:
            show(_configuration(record, original).removesuffix("\n"))

    def ended(attempt: Attempt) -> None:
        classic.add(attempt, runner, records)
        if attempt.role != "failsafe" and not (original.options.quiet and attempt.outcome is Outcome.PASS):
            say(console_line(attempt, runner))
        if attempt.reason:
            warn(f"  {attempt.reason}")

    watch = Watch(begins, ended, warn, _printer() if original.options.debug else None)
    try:
        came = executed(lambda: asyncio.run(run_suite(asked, records, watch)), records)
    finally:
        if not begun:
            classic.discard()
    classic.flush()
    run = read_suite_run(records)
    if text := summary(run.attempts, run.seconds, str(classic.path)):
        say(text)
    return Ran(run, classic, "".join(console), came)


def _printer() -> Callable[[bytes], None]:
    """Shows what tests print, as text: a terminal would obey a guest's other signs."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def printed(data: bytes) -> None:
        sys.stderr.write(plain(decoder.decode(data)))
        sys.stderr.flush()

    return printed


def _configuration(record: SuiteRecord, original: Original) -> str:
    flags = {"-q": original.options.quiet, "-D": original.options.debug, "-m": False, "-K": original.options.kmsg}
    if original.options.timeout_debug:  # only then: OpenZFS 2.3.2 leaves no blank for an option that it doesn't have
        flags["-O"] = True
    shown = {**original.shown, "TAGS": original.tags()}
    tools = record.variables.get("STF_TOOLS", "")
    command = [
        f"{tools}/bin/test-runner.py",
        *(flag if given else "" for flag, given in flags.items()),
        f'-c "{shown["RUNFILES"]}"',
        f'-T "{shown["TAGS"]}"',
        f'-i "{record.testdir}"',
        f'-I "{shown["ITERATIONS"]}"',
    ]
    removed = ["", "--- Cleanup ---", *(f"Removing {each}" for each in _NONE_LEFT)] if original.cleaned else []
    return "".join(f"{line}\n" for line in removed) + configuration(record.variables, shown, command)


_NONE_LEFT = ("pool(s):     ", "all dm(s):   ", "loopback(s): ", "files(s):    ")


def finish_runner(ran: Ran) -> None:
    """Exit as ``test-runner.py`` does; but never as if all were well if something has no result."""
    counts = {attempt.outcome.classic for attempt in ran.run.attempts}
    status = _FAILED if counts & {Outcome.FAIL, Outcome.KILLED} else 0
    if not ran.run.attempts:
        status = _NOTHING
    _exit(ran, status)


def finish_zfs_tests(asked: Asked, original: Original, ran: Ran, *, rerun: bool, out: Path | None) -> None:
    """Print what ``zts-report.py`` would, write ``results``, and exit as ``zfs-tests.sh`` does.

    With ``rerun``, tests that may fail and did are run once more, if nothing else went wrong; theirs are the results.
    """
    if rerun and (again := failed_maybes(ran.run.attempts, ran.run.expectations)) and not ran.missing:
        keys = frozenset((attempt.group, attempt.path) for attempt in again)
        selected = replace(asked, selection=Selection(keys=keys))
        ran = run_original(selected, original, out.with_name(f"{out.name}-again") if out else None)
    expectations = ran.run.expectations
    shown = [attempt for attempt in ran.run.attempts if attempt.role != "failsafe"]
    text = report(shown, expectations, maybes=not rerun)
    show(text.removesuffix("\n"))
    ran.folder.write_results(ran.console + text)
    status = report_status(shown, expectations, maybes=not rerun)
    if status == ONLY_MAYBES and ran.missing:
        # For callers that accept tests known to fail now and then, but not missing results.
        status = TEST_WITHOUT_RESULT
    _exit(ran, status)


def _exit(ran: Ran, status: int) -> None:
    tell_end(ran.ended, ran.run)
    if ran.ended.left_behind:
        status = LEFT_BEHIND
    elif status == 0 and ran.missing:
        status = TEST_WITHOUT_RESULT
    raise typer.Exit(status)
