"""Results of many runs: runs of Storlab, folders of them, consoles and logs that other programs wrote.

Consoles are those of the ZFS Test Suite's runner, of ``check`` of xfstests and blktests, and of whatever prints KTAP.
CI and loggers may have put time stamps and colours before their lines. What a text does not say is not made up: what
names only the tests that failed is refused, and what is cut off is noted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from storlab.base.errors import ParseError, RecordsError, UserError
from storlab.base.limits import RECORD
from storlab.base.reading import read_file
from storlab.base.text import grouped
from storlab.records.manifest import NAME as MANIFEST
from storlab.suites.check_text import Block, read_check_log, sections
from storlab.suites.ktap import Result, programs, read_ktap
from storlab.suites.model import Gap, ObservedRun, Outcome, SuiteEnvironment, Try, report_name, test_name
from storlab.suites.records.folder import SUITE, SuiteRecord, SuiteRun, read_suite_run
from storlab.suites.selection import iteration_name, split_iteration
from storlab.suites.zts_text import ResultLine, read_results
from storlab.tools.passed_on import labels_of, peeled

FORMS = (
    "the console or log of the ZFS Test Suite's runner (Test: PATH (run as USER) [MM:SS] [OUTCOME]), the terminal or "
    "check.log of xfstests or blktests, or KTAP with its plan (1..N)"
)
"""What is read, in a sentence."""
_AROUND = ("setup", "cleanup")  # what a console also has lines for
_ZTS = re.compile(
    r"Test(?: \([^)]{0,64}\))?: (?P<path>\S{1,4096}) \(run as \S{1,64}\) *\[\d{1,7}:\d\d\] \[(?P<outcome>[A-Z]+)\]"
)
_SUMMARY = re.compile(r"Results Summary\n(?:(?:PASS|FAIL|SKIP|KILLED|RERAN)[ \t]+\d{1,9}\n)+", re.MULTILINE)
_COUNT = re.compile(r"(?P<outcome>[A-Z]+)[ \t]+(?P<count>\d+)\n")
_FOLDER = re.compile(r"^Log directory:[ \t]+(?P<folder>\S{1,4096})", re.MULTILINE)
_KTAP = re.compile(r"^(?:[ \t#]{0,64}(?:\[[ \d.]{1,32}\] )?)?(?:K?TAP version \d+|1\.\.\d+)", re.MULTILINE)


@dataclass(frozen=True)
class LogRun:
    """One run that a log tells of. ``asked``: tests that it names, whether or not they have a result."""

    tests: Mapping[str, tuple[Try, ...]]
    asked: frozenset[str]
    gaps: tuple[Gap, ...] = ()


def read_log(data: bytes, source: str) -> list[LogRun]:
    """All runs in it, in order. Raises ``ParseError`` if it is of none of ``FORMS``, or does not say enough."""
    last = ""
    for last in _texts(data):
        for read in (_zts, _ktap, _check):
            if runs := read(last, source):
                return runs
    if behind := _behind(last):
        labels = ", ".join(labels_of(data))
        what = f"lines of several programs ({labels}): leave those of one" if labels else "remove what is before `Test`"
        raise ParseError(f"a result stands behind something unknown: {what}", source, behind)
    raise ParseError(f"it has no result of a test in a form that is read: {FORMS}", source)


def unnamed_failures(text: str) -> int:
    """How many failures summaries of the ZFS Test Suite's runner count, and no line names."""
    named = Counter(each.outcome for each in read_results(text.split("\n")))
    counted = sum((_counts(each) for each in dict.fromkeys(_SUMMARY.findall(f"{text}\n"))), Counter[str]())
    failed = counted["FAIL"] + counted["KILLED"]
    # A failsafe script, which follows a test that was killed, is counted and has no line.
    return max(failed - named[Outcome.FAIL] - 2 * named[Outcome.KILLED], 0)


def zts_lines(data: bytes) -> list[str]:
    """The lines of a console or ``log`` of the ZFS Test Suite's runner, without what something put before them."""
    texts = list(_texts(data))
    text = next((each for each in texts if not _behind(each) and any(read_results(each.split("\n")))), texts[0])
    return [line.lstrip() for line in text.split("\n")]


def _texts(data: bytes) -> Iterator[str]:
    for each in peeled(data):
        lines = each.decode(errors="replace").replace("\r\n", "\n").split("\n")
        indent = min((len(line) - len(line.lstrip(" ")) for line in lines if line.strip()), default=0)
        yield "\n".join(line[indent:] for line in lines) if indent else "\n".join(lines)


def _behind(text: str) -> int | None:
    """The first line with a result of the ZFS Test Suite that does not begin it."""
    lines = enumerate(text.split("\n"), 1)
    return next(
        (number for number, line in lines if (found := _ZTS.search(line)) and line[: found.start()].strip()), None
    )


def _zts(text: str, source: str) -> list[LogRun]:
    if _behind(text):
        return []
    lines = [line.lstrip() for line in text.split("\n")]
    results = list(read_results(lines))
    summaries = [_counts(each) for each in dict.fromkeys(_SUMMARY.findall("\n".join([*lines, ""])))]
    if not results and not summaries:
        return []
    named = [found for found in map(_ZTS.match, lines) if found]
    unknown = [found["path"] for found in named if found["outcome"] not in Outcome.__members__]
    _check_counts(Counter(found["outcome"] for found in named), summaries, text, source)
    tests = _by_test(results)
    asked = frozenset(tests).union(map(report_name, unknown))
    if not asked:
        raise ParseError(
            f"of the scripts that it names ({len(results)}), all are set-ups and clean-ups, and none is a test: give "
            "the whole console, or `log` of its log directory",
            source,
        )
    lost = tuple(sorted(asked - tests.keys()))
    return [LogRun(tests, asked, (Gap("no result", len(lost), lost),) if lost else ())]


def _counts(summary: str) -> Counter[str]:
    return Counter({found["outcome"]: int(found["count"]) for found in _COUNT.finditer(summary)})


def _check_counts(named: Counter[str], summaries: Sequence[Counter[str]], text: str, source: str) -> None:
    """Raises ``ParseError`` where summaries count more results than lines name; the runner counts failsafe scripts,
    which follow a test that was killed, and has no line for them.
    """
    counted = sum((each.total() for each in summaries), 0)
    if counted > named.total() + named["KILLED"]:
        folder = _FOLDER.search(text)
        where = f" of {folder['folder']}" if folder else ""
        raise ParseError(
            f"its summary counts {counted} results, and it names {named.total()}, so which tests passed is not in it: "
            f"give the whole console, not a quiet one, or `log`{where}",
            source,
        )


def _by_test(results: Sequence[ResultLine]) -> dict[str, tuple[Try, ...]]:
    named = ((report_name(each.path), Try(each.outcome, float(each.elapsed))) for each in results)
    tries = grouped((name, each) for name, each in named if name.rpartition("/")[2] not in _AROUND)
    return {name: tuple(each) for name, each in tries.items()}


def _ktap(text: str, source: str) -> list[LogRun]:
    if not _KTAP.search(text):
        return []
    lines = text.split("\n")
    runs: list[list[Result]] = [[]]
    for whole in filter(None, map(read_ktap, programs(lines))):
        names = {name for name, _ in _leaves(whole)}
        if any(name in names for each in runs[-1] for name, _ in _leaves(each)):
            runs.append([])  # the same tests again
        runs[-1].append(whole)
    found = [_ktap_run(run) for run in runs]
    if read_ktap(lines[-1:]) is not None:
        found[-1] = replace(found[-1], gaps=(*found[-1].gaps, Gap("no end")))
    return found if any(run.tests for run in found) else []


def _ktap_run(programs: Sequence[Result]) -> LogRun:
    leaves = [leaf for whole in programs for leaf in _leaves(whole)]
    names = _numbered([name for name, _ in leaves])
    tests = {name: (Try(outcome, None),) for name, (_, outcome) in zip(names, leaves, strict=True)}
    missing, strays = sum(each.missing for each in programs), sum(each.strays for each in programs)
    gaps = [Gap("planned", missing)] if missing else []
    gaps += [Gap("stray", strays)] if strays else []
    gaps += [Gap("bailed out")] if any(each.bailed for each in programs) else []
    return LogRun(tests, frozenset(tests), tuple(gaps))


def _leaves(result: Result, path: str = "") -> Iterator[tuple[str, Outcome]]:
    """The innermost results by their dotted names, and a failure that none of its subtests explains."""
    for each in result.subtests:
        name = f"{path}.{each.name}" if path else each.name
        below = list(_leaves(each, name))
        yield from below
        if not below or (each.outcome is Outcome.FAIL and all(outcome is not Outcome.FAIL for _, outcome in below)):
            yield name, each.outcome


def _numbered(names: Sequence[str]) -> list[str]:
    """Names of which none comes twice: two results of one name are two tests."""
    seen: Counter[str] = Counter()
    found = []
    for name in names:
        seen[name] += 1
        found.append(f"{name} ({seen[name]})" if seen[name] > 1 else name)
    return found


def _check(text: str, source: str) -> list[LogRun]:
    runs = [_check_run(blocks) for blocks in sections(read_check_log(text.split("\n"), source))]
    return runs if any(run.tests for run in runs) else []


def _check_run(blocks: Sequence[Block]) -> LogRun:
    tests: dict[str, tuple[Try, ...]] = {}
    asked: set[str] = set()
    for block in blocks:
        results = block.results()
        several = Counter(test for test, _ in results)
        for (test, device), visits in results.items():
            name = f"{test} => {device}" if device and several[test] > 1 else test
            name = f"{name} [{block.section}]" if block.section else name
            asked.add(name)
            tries = tuple(Try(each.outcome, each.elapsed) for each in visits if each.outcome is not None)
            if tries:
                tests[name] = tries
    lost = tuple(sorted(asked - tests.keys()))
    gaps = [Gap("no result", len(lost), lost)] if lost else []
    gaps += [Gap("no section")] if any(each.unnamed for each in blocks) else []
    gaps += [Gap("no summary")] if any(not each.closed and not each.blktests for each in blocks) else []
    return LogRun(tests, frozenset(asked), tuple(gaps))


LOGS = (".log", ".txt", ".tap", ".ktap")
"""How consoles are called that are looked for in a folder."""
_UNKNOWN = SuiteEnvironment()


def read_source(path: Path) -> list[ObservedRun]:
    """The run in a folder, all runs and consoles in a folder, or what a console says; oldest first.

    Raises ``UserError`` if there is nothing of that kind.
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
    """The run in a folder, or all runs in a folder of runs; by name. Raises ``RecordsError`` if one is damaged."""
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
    twice = {name for name, count in Counter(paths.values()).items() if count > 1}
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


def _unique(name: str, group: str, twice: set[str]) -> str:
    """The same script in two groups is two tests."""
    return f"{name} [{group}]" if name in twice else name
