"""What ``storlab suite`` was asked for, from its options."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from storlab.base.amounts import plural
from storlab.base.errors import UserError
from storlab.base.reading import read_file
from storlab.base.text import grouped
from storlab.base.units import parse_duration
from storlab.cli.suite.options import Choice, size_of
from storlab.run.permissions import NO_PERMISSIONS, Permissions
from storlab.suites.adapters.command import Command
from storlab.suites.history import Past, past_of
from storlab.suites.model import Outcome, report_name
from storlab.suites.records.folder import SUITE, OwnKernel, SuiteRun, read_suite_run
from storlab.suites.records.sources import runs_in, unnamed_failures, zts_lines
from storlab.suites.run.own_files import folder_of, is_own, kernel_of, own_adapter
from storlab.suites.run.plan import Asked
from storlab.suites.run.wants import refuse_unpermitted, wants_of_run
from storlab.suites.selection import Failures, Selection, order_of, parse_share, split_iteration
from storlab.suites.suite_file import Guests
from storlab.suites.zts_text import ResultLine, read_results

_GOOD = (Outcome.PASS, Outcome.SKIP)
_SUMMARY = "\nResults Summary\n"  # what a console of the suite's runner ends with, but for counts
_MOST_LOG = 256 * 1024**2  # bytes
_LONGEST = 30 * 24 * 3600  # s


@dataclass(frozen=True)
class Earlier:
    """The run whose order is repeated, in a guest like its own: by default none.

    ``order``: tests of one guest by group and path.
    """

    names: tuple[str, ...] = ()
    tests: Path | None = None
    guest: str = ""
    order: tuple[tuple[str, str], ...] = ()
    cpus: int | None = None
    memory: int | None = None  # bytes
    scale: float | None = None
    kernel: OwnKernel | None = None


def asked_for(
    names: Sequence[str],
    choice: Choice,
    *,
    earlier: Earlier = Earlier(),
    failed_of: Path | None = None,
    past: Past | None = None,
    memory: str | None = None,
    cpus: int | None = None,
    kernel: OwnKernel | None = None,
    permissions: Permissions = NO_PERMISSIONS,
) -> Asked:
    """What is to be run; ``past``: by whose times shares are made even. Raises ``UserError``."""
    names = names or earlier.names
    tests = choice.tests or earlier.tests
    if not names:
        raise UserError(
            "nothing to run: name a suite, a runfile or a suite file; `zts-sanity` is the short ZFS Test Suite"
        )
    for name in names:
        if name.endswith(".run") and "/" in name and not Path(name).is_file():
            raise UserError(f"there is no file {name}")
    if tests is not None and not tests.is_dir():
        raise UserError(f"--tests {tests}: it is not a folder")
    adapter = own_adapter(names, tests, permissions=permissions)
    own, boots = Guests(), None
    if isinstance(adapter, Command):
        own, boots = adapter.spec.guests, kernel_of(adapter)
        tests = tests or folder_of(adapter)
    failed = None
    times = {key: each.seconds for key, each in past.items()} if past else None
    if failed_of is not None:
        known = _run_at(failed_of)
        failed = _failures_in_log(failed_of) if known is None else _failures_of(known)
        if known is not None:
            times = times or {key: each.elapsed for key, each in known.results.items()}
        if not failed.scripts:
            found = " that were found" if known is not None and known.asked.absent else ""
            raise UserError(f"--failed-of {failed_of}: all tests{found} passed there")
    patterns = tuple(choice.test or ()), _patterns(choice.exclude or [])
    usual_cpus = own.cpus if earlier.cpus is None else earlier.cpus
    usual_memory = own.memory if earlier.memory is None else earlier.memory
    return Asked(
        tuple(names),
        Selection(*patterns, choice.tags, share=parse_share(choice.shard), failed=failed),
        tests,
        cpus=usual_cpus if cpus is None else cpus,
        memory=usual_memory if memory is None else size_of(memory),
        scale=earlier.scale,
        times=times,
        order=earlier.order,
        kernel=kernel or earlier.kernel or boots,
        permissions=permissions,
    )


def past_in(paths: list[Path] | None) -> Past:
    """What the runs in these folders say of tests. Raises ``UserError`` if one has none."""
    runs: dict[str, SuiteRun] = {}
    for path in paths or ():
        found = runs_in(path) if path.is_dir() else []
        if not found:
            raise UserError(f"--history {path}: it is no run of a suite, and no folder of runs")
        runs.update((run.identity, run) for run in found)
    return past_of(runs.values())


def replay_of(
    written: str,
    permissions: Permissions,
    names: Sequence[str] | None = None,
    tests: Path | None = None,
    kernel: OwnKernel | None = None,
) -> Earlier:
    """``RUN`` or ``RUN:GUEST``; without a guest, that of the first unexpected result. ``names``, ``tests`` and
    ``kernel``: what the command line says in their place.

    Raises ``UserError``, also for what the run's folder names of this machine and may not.
    """
    from storlab.suites.report.view import view_of

    path, _, guest = (written, "", "") if Path(written).is_dir() else written.rpartition(":")
    run = _run_at(Path(path or guest))
    if run is None:
        raise UserError(f"--replay {written}: {path or guest} is no run")
    attempts = [each for each in run.attempts if not path or not guest or each.guest == guest]
    guest, order = order_of(attempts, {row.attempt.key for row in view_of(run).unexpected})
    if not order:
        there = ", ".join(sorted({each.guest for each in run.attempts if each.guest})) or "none"
        raise UserError(f"--replay {written}: no test ran there; guests of that run: {there}")
    asked = run.asked
    named = () if names else tuple(each.name for each in asked.runfiles if each.own) or tuple(asked.name.split(","))
    copied = Path(asked.tests) if asked.tests is not None and tests is None else None
    boots = asked.kernel if kernel is None else None
    own = [name for name in named if is_own(name)]
    refuse_unpermitted(run.folder / SUITE, wants_of_run(own, copied, boots), permissions)
    return Earlier(named, copied, guest, tuple(order), asked.cpus, asked.memory, asked.scale, boots)


def limit_of(text: str) -> float | None:
    """Seconds after which no test is begun; ``None`` if nothing is said of it. Raises ``UserError``."""
    seconds = time_of(text, "--limit") if text else None
    if text and seconds is None:
        raise UserError(f"--limit {text}: write a time up to 30 days, such as 10m")
    return seconds


def time_of(text: str, option: str) -> float | None:
    """Seconds; ``None`` for 0. Raises ``UserError``."""
    try:
        seconds = parse_duration(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= _LONGEST:
        raise UserError(f"{option} {text}: write a time up to 30 days, such as 10m")
    return seconds or None


def _patterns(written: list[str]) -> tuple[str, ...]:
    """Patterns, and those in files: one a line, but for empty lines and comments."""
    found = []
    for each in written:
        if not each.startswith("@"):
            found.append(each)
            continue
        lines = (
            line.partition("#")[0].strip() for line in _bytes_of(Path(each[1:])).decode(errors="replace").splitlines()
        )
        found += [line for line in lines if line]
    return tuple(found)


def _run_at(path: Path) -> SuiteRun | None:
    return read_suite_run(path) if path.is_dir() else None


def _failures_of(run: SuiteRun) -> Failures:
    """What did not pass in some iteration of a run, or not as expected, and what has no result; if a set-up or
    clean-up did not pass, all tests of its group that were asked for.
    """
    from storlab.suites.report.view import view_of

    bad = [row.attempt for row in view_of(run).rows if row.surprising or row.attempt.outcome not in _GOOD]
    # The view has last results. A set-up that passed later, once the run was resumed, does not make up for one that
    # failed, as the tests that were skipped then were not run later.
    bad += [each for each in run.attempts if each.role in ("pre", "post") and each.outcome not in _GOOD]
    asked = [_key_of(*key) for key in run.asked.keys]
    around = {_key_of(each.group, each.path) for each in bad if each.role != "test"}
    whole = {group for group, _ in around}
    scripts = {_key_of(each.group, each.path) for each in bad if each.role == "test"}
    scripts.update(_key_of(*key) for key in run.without_result)
    scripts.update(key for key in asked if key[0] in whole)
    # A failed set-up that ends a run with --until-failure leaves no tests of its group on record: all are meant.
    recorded = {group for group, _ in asked}
    scripts.update(key for key in around if key[0] not in recorded)
    return Failures(frozenset(scripts))


def _key_of(group: str, path: str) -> tuple[str, str]:
    return split_iteration(group)[0], report_name(path)


def _failures_in_log(path: Path) -> Failures:
    """What did not pass according to a console or ``log`` of the suite's runner. Raises ``UserError`` if it has no
    result.
    """
    text = console_of(path)
    named = list(read_results(text.splitlines()))
    if all(_is_frame(each.path) and each.outcome in _GOOD for each in named):
        what = "it names set-ups and clean-ups alone, all of which passed: give the whole console, or `log`"
        raise UserError(
            f"--failed-of {path}: no line of it says what came of a test, as the runner of ZFS's suite does"
            f"{f'; {what}' if named else ''}"
        )
    if unnamed := unnamed_failures(text):
        raise UserError(
            f"--failed-of {path}: its summary counts {plural(unnamed, 'failure')} that no line of it names: give the "
            "whole console, or `log` of its log directory"
        )
    failed: set[tuple[str, str]] = set()
    for part in text.split(_SUMMARY):  # of zfs-tests.sh -R, what follows a summary is a retry
        results = _last_tries(list(read_results(part.splitlines())))
        bad = {_name_of(each) for each in results if each.outcome not in _GOOD}
        passed = {_name_of(each) for each in results if not _is_frame(each.path)} - bad
        failed = (failed - passed) | bad
    return Failures(frozenset(failed), by_identifier=True)


def _last_tries(results: Sequence[ResultLine]) -> list[ResultLine]:
    """Without results that a retry replaces: unlike an iteration, it comes before anything else of the same folder.

    If a folder has one script only, retries look like iterations, and all its results are kept; so are those of set-ups
    and clean-ups, which are not retried.
    """
    folders = grouped(((each.identifier, posixpath.dirname(each.path)), each) for each in results)
    kept = []
    for ran in folders.values():
        single = len({each.path for each in ran}) == 1
        for result, following in zip(ran, [*ran[1:], None], strict=True):
            retried = following is not None and following.path == result.path and not _is_frame(result.path)
            if single or not retried:
                kept.append(result)
    return kept


def _name_of(result: ResultLine) -> tuple[str, str]:
    return result.identifier, report_name(result.path)


def _is_frame(path: str) -> bool:
    return posixpath.basename(path) in ("setup", "cleanup")


def console_of(path: Path) -> str:
    """What the ZFS Test Suite's runner printed, without what something put before its lines. Raises ``UserError``."""
    return "\n".join(zts_lines(_bytes_of(path)))


def _bytes_of(path: Path) -> bytes:
    try:
        return read_file(path, _MOST_LOG)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
