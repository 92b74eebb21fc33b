"""``storlab suite compare`` and ``history``: several runs beside each other; and what ``list`` shows of a suite."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from typer import Argument, Option

from storlab.cli.options import Output, offered
from storlab.cli.output import show_rendered, write_output
from storlab.cli.status import COMPLETE, TEST_MISSING, TEST_REGRESSED, Status
from storlab.errors import UserError
from storlab.report.language.format import duration, plural
from storlab.suites.history import Past, PastTest
from storlab.suites.model import Expectation, Expectations, Group, Suite, report_name, test_name
from storlab.suites.places.guest import OWN_TESTS

if TYPE_CHECKING:
    from storlab.suites.comparing import Comparison
    from storlab.suites.model import ObservedRun
    from storlab.suites.report.pages import Page


FORMATS = ("text", "md", "html", "json")
Format = Annotated[
    str, Option("--format", "-f", metavar="|".join(FORMATS), autocompletion=offered(*FORMATS), help="Format.")
]
_SOURCES = "Runs, folders of runs, or logs: of the ZFS Test Suite's runner, xfstests, blktests, or in KTAP"
Sides = Annotated[list[Path], Argument(metavar="A B...", help=f"{_SOURCES}; A is what was before.")]
Runs = Annotated[list[Path], Argument(metavar="RUN|FOLDER|LOG...", help=f"{_SOURCES}.")]


def compare(
    sides: Sides,
    history: Annotated[
        list[Path] | None,
        Option("--history", metavar="RUN|FOLDER", help="Earlier runs, which say how flaky tests were before."),
    ] = None,
    any_environment: Annotated[
        bool, Option("--any-environment", help="Let earlier runs count whatever they ran on.")
    ] = False,
    format_: Format = "text",
    output: Output = None,
) -> None:
    """Say which tests regressed, were fixed, are flaky or undecided, and how likely that is chance.

    Exit status: 3 a test regressed, else 4 a result is missing (a test has none any more, a log is cut off, no test has
    one on both sides), else 0.
    """
    from storlab.suites.comparing import Side, compare_runs
    from storlab.suites.records.sources import read_source, read_sources
    from storlab.suites.report.pages import changes_page

    if len(sides) < 2:
        raise UserError("name at least two runs: a baseline, and what is compared with it")
    read = [Side(str(path), tuple(read_source(path))) for path in sides]
    named = {run.identity for side in read for run in side.runs}
    if len(named) < sum(len(side.runs) for side in read):
        raise UserError("a run is on two sides: a run can't be compared with itself")
    earlier = [run for run in read_sources(history or []) if run.identity not in named]
    same, others = _alike(earlier, read[0].runs, any_environment)
    found = compare_runs(read[0], same, read[1:])
    notes = []
    if others:
        notes.append(
            f"{others} of {len(earlier)} earlier runs are of other environments than {read[0].label} and do not count: "
            "--any-environment lets them."
        )
    _show(changes_page(found, notes), format_, output)
    raise typer.Exit(_status(found))


def history(
    runs: Runs,
    everything: Annotated[bool, Option("--all", help="Tests that always passed, too.")] = False,
    format_: Format = "text",
    output: Output = None,
) -> None:
    """Show how often tests pass on each environment, flaky ones first."""
    from storlab.suites.history import history_of
    from storlab.suites.records.sources import read_sources
    from storlab.suites.report.pages import history_page

    page = history_page(history_of(read_sources(runs)), everything or format_ == "json")
    _show(page, format_, output)


def _status(found: Sequence[Comparison]) -> Status:
    """A test whose result is lost may hide a regression, so it is never taken for a success."""
    from storlab.suites.comparing import Change

    if any(each.of(Change.REGRESSED) for each in found):
        return TEST_REGRESSED
    lost = (each.of(Change.MISSING) or not each.compared or each.gaps for each in found)
    return TEST_MISSING if any(lost) else COMPLETE


def _alike(
    earlier: list[ObservedRun], before: tuple[ObservedRun, ...], any_environment: bool
) -> tuple[list[ObservedRun], int]:
    wanted = {run.environment.key for run in before}
    same = [run for run in earlier if any_environment or run.environment.key in wanted]
    return same, len(earlier) - len(same)


def _show(page: Page, format_: str, output: Path | None) -> None:
    from storlab.suites.report.pages import render_page

    text = render_page(page, format_)
    if output is None:
        show_rendered(text, format_)
    else:
        write_output(output, text)


def listed(suite: Suite, expectations: Expectations, lacking: Mapping[str, list[str]], past: Past) -> Iterator[str]:
    lacks = _by_test(lacking)
    for group in suite.groups:
        limit = f"{duration(group.timeout)} each" if group.timeout is not None else "no time-out"
        around = [name for name, script in (("pre", group.pre), ("post", group.post)) if script is not None]
        about = [limit, *([" and ".join(around)] if around else []), *([", ".join(group.tags)] if group.tags else [])]
        yield f"{group.name}  ({'; '.join(about)})"
        for test in group.tests:
            name = report_name(test.path)
            notes = [f"as {test.user}"] if test.user not in ("", "root") else []
            notes += [f"{kind} {each.outcome}: {each.reason}" for kind, each in _expected(name, expectations)]
            notes += [f"lacks {', '.join(lacks[test.path])}"] if test.path in lacks else []
            notes += [_before(past[group.name, test.path])] if (group.name, test.path) in past else []
            shown = test_name(test.path, OWN_TESTS)
            yield f"  {shown}  ({'; '.join(notes)})" if notes else f"  {shown}"
    for absent in suite.absent:
        yield f"{absent}"
    yield f"{plural(suite.size, 'test')} in {plural(len(suite.groups), 'group')}"


def _before(past: PastTest) -> str:
    rate = f"passed {past.passed} of {past.decided}"
    return f"{rate}, {duration(past.seconds)}, last {past.last_outcome} on {past.last:%Y-%m-%d %H:%M} UTC"


def _expected(name: str, expectations: Expectations) -> Iterator[tuple[str, Expectation]]:
    if name in expectations.known:
        yield "known:", expectations.known[name]
    if name in expectations.maybe:
        yield "maybe:", expectations.maybe[name]


def _by_test(lacking: Mapping[str, list[str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for program, tests in lacking.items():
        for test in tests:
            found.setdefault(test, []).append(program)
    return found


def listed_json(suite: Suite, expectations: Expectations, lacking: Mapping[str, list[str]], past: Past) -> str:
    document = {
        "suite": suite.name,
        "groups": [_group(group, expectations, _by_test(lacking), past) for group in suite.groups],
        "absent": [str(each) for each in suite.absent],
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


def _group(group: Group, expectations: Expectations, lacks: Mapping[str, list[str]], past: Past) -> dict[str, object]:
    tests = [
        {
            "test": test.path,
            "user": test.user,
            "known": expectations.known.get(report_name(test.path)),
            "maybe": expectations.maybe.get(report_name(test.path)),
            "lacks": lacks.get(test.path, []),
            "before": past.get((group.name, test.path)),
        }
        for test in group.tests
    ]
    return {"group": group.name, "tags": group.tags, "timeout": group.timeout, "tests": tests}
