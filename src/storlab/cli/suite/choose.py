"""What ``storlab suite`` was asked for, from its options."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from storlab.errors import RecordsError, UserError
from storlab.reading import read_file
from storlab.records.suite import SuiteRun, read_suite_run
from storlab.records.suite.own_kernel import OwnKernel
from storlab.records.suite.past import Past, past_of
from storlab.records.suite.sources import runs_in
from storlab.run.suite.asked import Asked
from storlab.run.suite.own_files import folder_of, kernel_of, own_adapter
from storlab.suite.adapters.command import Command
from storlab.suite.model import Outcome
from storlab.suite.order import order_of
from storlab.suite.selection import Selection, parse_share
from storlab.suite.suite_file import Guests
from storlab.suite.zts_text import read_results
from storlab.units import Size, parse_duration

_GOOD = (Outcome.PASS, Outcome.SKIP)
_MOST_LOG = 256 * 1024**2  # bytes
_LONGEST = 30 * 24 * 3600  # s


def asked_for(
    names: list[str],
    *,
    tests: Path | None,
    test: list[str] | None,
    exclude: list[str] | None,
    tags: str,
    shard: str,
    failed_of: Path | None = None,
    past: Past | None = None,
    memory: str | int | None = None,
    cpus: int | None = None,
    kernel: OwnKernel | None = None,
) -> Asked:
    """What is to be run; ``past``: by whose times shares are made even. Raises ``UserError``."""
    if not names:
        raise UserError(
            "nothing to run: name a suite, a runfile or a suite file; `zts-sanity` is the short ZFS Test Suite"
        )
    for name in names:
        if name.endswith(".run") and "/" in name and not Path(name).is_file():
            raise UserError(f"there is no file {name}")
    if tests is not None and not tests.is_dir():
        raise UserError(f"--tests {tests}: it is not a folder")
    adapter = own_adapter(names, tests)
    own = adapter.spec.guests if isinstance(adapter, Command) else Guests()
    if tests is None and isinstance(adapter, Command):
        tests = folder_of(adapter)
    wanted = list(test or ())
    keys = None
    times = {key: each.seconds for key, each in past.items()} if past else None
    if failed_of is not None:
        known = _run_at(failed_of)
        if known is None:
            wanted += _failed_in(failed_of)
        else:
            keys = frozenset(key for key, each in known.results.items() if each.outcome not in _GOOD)
            keys |= frozenset(known.without_result)
            times = times or {key: each.elapsed for key, each in known.results.items()}
            if not keys:
                raise UserError(f"--failed-of {failed_of}: all tests passed there")
    selection = Selection(tuple(wanted), _patterns(exclude or []), tags, keys, parse_share(shard))
    return Asked(
        tuple(names),
        selection,
        tests,
        cpus=own.cpus if cpus is None else cpus,
        memory=own.memory if memory is None else size_of(memory) if isinstance(memory, str) else memory,
        times=times,
        kernel=kernel or (kernel_of(adapter) if isinstance(adapter, Command) else None),
    )


def past_in(paths: list[Path] | None) -> Past:
    """What the runs in these folders say of tests. Raises ``UserError`` where one has none."""
    runs: dict[str, SuiteRun] = {}
    for path in paths or ():
        found = runs_in(path) if path.is_dir() else []
        if not found:
            raise UserError(f"--history {path}: it is no run of a suite, and no folder of runs")
        runs.update((run.identity, run) for run in found)
    return past_of(runs.values())


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


def replay_of(written: str) -> Earlier:
    """``RUN`` or ``RUN:GUEST``; without a guest, that of the first unexpected result. Raises ``UserError``."""
    from storlab.report.suite.view import view_of

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
    tests = Path(asked.tests) if asked.tests is not None else None
    names = tuple(runfile.name for runfile in asked.runfiles if runfile.own) or tuple(asked.name.split(","))
    return Earlier(names, tests, guest, tuple(order), asked.cpus, asked.memory, asked.scale, asked.kernel)


def in_order_asked(asked: Asked, earlier: Earlier, *, shuffle: bool, seed: int | None, limit: str) -> Asked:
    """With the order in which tests are to be run, and for how long. Raises ``UserError``."""
    drawn = secrets.randbelow(2**31) if shuffle and seed is None else seed
    if earlier.order:
        if asked.guests > 1 or drawn is not None:
            raise UserError("--replay repeats the order of one guest: leave out --guests, --shuffle and --seed")
        asked = replace(asked, order=earlier.order)
    return replace(asked, seed=drawn, limit=limit_of(limit))


def limit_of(text: str) -> float | None:
    """Seconds after which no test is begun; ``None`` where nothing is said of it. Raises ``UserError``."""
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


def size_of(text: str, option: str = "--memory") -> int:
    """A size in bytes. Raises ``UserError``."""
    try:
        return TypeAdapter[int](Size).validate_python(text)
    except ValidationError:
        raise UserError(f"{option} {text}: write a size, such as 1G") from None


def _patterns(written: list[str]) -> tuple[str, ...]:
    """Patterns, and those in files: one a line, but for empty lines and comments."""
    found = []
    for each in written:
        if not each.startswith("@"):
            found.append(each)
            continue
        lines = (line.partition("#")[0].strip() for line in text_of(Path(each[1:])).splitlines())
        found += [line for line in lines if line]
    return tuple(found)


def _run_at(path: Path) -> SuiteRun | None:
    if not path.is_dir():
        return None
    return read_suite_run(path)


def _failed_in(path: Path) -> list[str]:
    """Paths of the tests that did not pass by a console or ``log`` of the suite's runner, whatever comes with them."""
    results = {result.path: result.outcome for result in read_results(text_of(path).splitlines())}
    if not results:
        raise UserError(f"--failed-of {path}: no line of it says what came of a test")
    failed = [name for name, outcome in results.items() if outcome not in _GOOD and not _is_frame(name)]
    if not failed:
        raise UserError(f"--failed-of {path}: all tests passed there")
    return failed


def _is_frame(path: str) -> bool:
    return path.rpartition("/")[2] in ("setup", "cleanup")


def text_of(path: Path) -> str:
    """A file's text, however it is encoded. Raises ``UserError``."""
    try:
        return read_file(path, _MOST_LOG).decode(errors="replace")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    except RecordsError as error:
        raise UserError(str(error)) from None
