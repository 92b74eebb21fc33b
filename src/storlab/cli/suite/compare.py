"""``storlab suite compare`` and ``history``: several runs beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from storlab.base.errors import UserError
from storlab.cli.options import Output, offered
from storlab.cli.output import show_rendered, write_output
from storlab.cli.status import COMPLETE, TEST_MISSING, TEST_REGRESSED, Status

if TYPE_CHECKING:
    from storlab.report.document import Document
    from storlab.suites.comparing import Comparison

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
    from storlab.suites.report.documents import changes_data, changes_document

    if len(sides) < 2:
        raise UserError("name at least two runs: a baseline, and what is compared with it")
    read = [Side(str(path), tuple(read_source(path))) for path in sides]
    named = {run.identity for side in read for run in side.runs}
    if len(named) < sum(len(side.runs) for side in read):
        raise UserError("a run is on two sides: a run can't be compared with itself")
    earlier = [run for run in read_sources(history or []) if run.identity not in named]
    wanted = {run.environment.key for run in read[0].runs}
    same = [run for run in earlier if any_environment or run.environment.key in wanted]
    found = compare_runs(read[0], same, read[1:])
    notes = []
    if len(same) < len(earlier):
        notes.append(
            f"{len(earlier) - len(same)} of {len(earlier)} earlier runs are of other environments than {read[0].label} "
            "and do not count: --any-environment lets them."
        )
    _show(changes_document(found, notes), changes_data(found, notes), format_, output)
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
    from storlab.suites.report.documents import history_data, history_document

    known = history_of(read_sources(runs))
    _show(history_document(known, everything), history_data(known), format_, output)


def _status(found: Sequence[Comparison]) -> Status:
    """A test whose result is lost may hide a regression, so it is never taken for a success."""
    from storlab.suites.comparing import Change

    if any(each.of(Change.REGRESSED) for each in found):
        return TEST_REGRESSED
    lost = (each.of(Change.MISSING) or not each.compared or each.gaps for each in found)
    return TEST_MISSING if any(lost) else COMPLETE


def _show(document: Document, data: object, format_: str, output: Path | None) -> None:
    from storlab.suites.report.formats import render_document

    text = render_document(document, data, format_)
    if output is None:
        show_rendered(text, format_)
    else:
        write_output(output, text)
