"""Results of many runs, wherever they lie: runs of Storlab, folders of them, consoles and logs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from storlab.errors import ParseError, RecordsError, UserError
from storlab.limits import RECORD
from storlab.reading import read_file
from storlab.records.manifest import NAME as MANIFEST
from storlab.suites.environment import SuiteEnvironment
from storlab.suites.observed import ObservedRun, Try
from storlab.suites.order import iteration_name, split_iteration
from storlab.suites.records.folder import SUITE, SuiteRecord, SuiteRun, read_suite_run
from storlab.suites.records.logs import read_log
from storlab.suites.texts.zts import test_name

LOGS = (".log", ".txt", ".tap", ".ktap")
"""How consoles are called that are looked for in a folder."""
_UNKNOWN = SuiteEnvironment()


def read_source(path: Path) -> list[ObservedRun]:
    """The run in a folder, all runs and consoles in a folder, or what a console says; oldest first.

    Raises ``UserError`` where there is nothing of that kind.
    """
    if not path.exists():
        raise UserError(f"there is no {path}: name a run of a suite, a folder of runs, or a log")
    if not path.is_dir():
        return read_console(path)
    found = [each for run in runs_in(path) for each in observed(run)]
    if (path / MANIFEST).exists():
        return found
    logs = (each for each in sorted(path.iterdir()) if each.suffix in LOGS and each.is_file())
    found += [run for each in logs for run in read_console(each)]
    if not found:
        raise UserError(f"{path} is no run of a suite, and has none in it, nor a log (*{', *'.join(LOGS)})")
    # Runs by their begin, then consoles, of which it is not known, by name.
    return sorted(found, key=lambda run: (run.started is None, run.started.timestamp() if run.started else 0.0))


def runs_in(path: Path) -> list[SuiteRun]:
    """The run in a folder, or all runs in a folder of runs; by name. Raises ``RecordsError`` where one is damaged."""
    if (path / MANIFEST).exists():
        return [read_suite_run(path)]
    return [read_suite_run(each) for each in sorted(path.iterdir()) if (each / SUITE).is_file()]


def read_sources(paths: Iterable[Path]) -> list[ObservedRun]:
    found: dict[str, ObservedRun] = {}
    for path in paths:
        for run in read_source(path):
            found.setdefault(run.identity, run)
    return list(found.values())


def observed(run: SuiteRun) -> list[ObservedRun]:
    """A run as comparisons see it: each iteration is a run of its own, and so is what guests of another environment
    than the first one's did.
    """
    first = run.asked.environment or _UNKNOWN
    paths = {(split_iteration(group)[0], path): _name(path, run.asked) for group, path in run.asked.keys}
    twice = _repeated(paths.values())
    environments = {first.key: first, **{other.key: other for other in dict(run.others).values()}}
    others = {console: other.key for console, other in run.others}
    asked: dict[int, set[str]] = {}
    for group, path in run.asked.keys:
        base, number = split_iteration(group)
        asked.setdefault(number, set()).add(_unique(paths[base, path], base, twice))
    found: dict[tuple[int, tuple[str, ...]], dict[str, list[Try]]] = {
        (number, first.key): {} for number in asked or [1]
    }
    for attempt in run.attempts:
        if attempt.role == "test":
            base, number = split_iteration(attempt.group)
            name = _unique(_name(attempt.path, run.asked), base, twice)
            own = found.setdefault((number, others.get(attempt.console, first.key)), {})
            own.setdefault(name, []).append(Try(attempt.outcome, attempt.elapsed))
    return [
        ObservedRun(
            name=f"{run.folder}{iteration_name(number)}" + ("" if key == first.key else f" ({environments[key]})"),
            identity=f"{run.identity}{iteration_name(number)}" + ("" if key == first.key else f" {key}"),
            started=run.started,
            environment=environments[key],
            tests={name: tuple(each) for name, each in own.items()},
            asked=_missed(asked.get(number, set()), number, first.key, found) if key == first.key else frozenset(own),
        )
        for (number, key), own in found.items()
    ]


def _missed(
    asked: set[str],
    number: int,
    key: tuple[str, ...],
    found: Mapping[tuple[int, tuple[str, ...]], Mapping[str, object]],
) -> frozenset[str]:
    """What an iteration was to run in this environment: all of it, but for what ran elsewhere alone."""
    elsewhere = {name for (other, where), own in found.items() if other == number and where != key for name in own}
    return frozenset((asked | found[number, key].keys()) - (elsewhere - found[number, key].keys()))


def read_console(path: Path) -> list[ObservedRun]:
    try:
        data = read_file(path, RECORD)
    except OSError as error:
        raise RecordsError(f"cannot read {path}: {error.strerror}") from None
    return console(data, str(path))


def console(data: bytes, name: str) -> list[ObservedRun]:
    try:
        runs = read_log(data, name)
    except ParseError as error:
        raise UserError(str(error)) from None
    found = []
    for number, run in enumerate(runs, 1):
        which = f"{name} ({number} of {len(runs)})" if len(runs) > 1 else name
        found.append(ObservedRun(which, f"console {which}", None, _UNKNOWN, run.tests, run.asked, run.gaps))
    return found


def _name(path: str, asked: SuiteRecord) -> str:
    """What a test is called; one of ``check`` as logs of it do."""
    name = test_name(path, asked.testdir)
    if asked.check is None:
        return name
    return name.removeprefix("tests/") + (f" [{asked.check.section}]" if asked.check.section else "")


def _repeated(names: Iterable[str]) -> set[str]:
    return {name for name, count in Counter(names).items() if count > 1}


def _unique(name: str, group: str, twice: set[str]) -> str:
    """The same script in two groups is two tests."""
    return f"{name} [{group}]" if name in twice else name
