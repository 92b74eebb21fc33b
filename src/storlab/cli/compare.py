"""``storlab compare``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import polars as pl
from rich.console import Console

from storlab.analysis.across_runs import RunsCompared, compare_runs
from storlab.analysis.gate import parse_gate
from storlab.analysis.merged_runs import RunData
from storlab.cli.failure import GATE_HIT
from storlab.cli.output import write_output
from storlab.errors import UserError
from storlab.records.copies import refuse_copies
from storlab.records.derive import derive
from storlab.records.differences import differences
from storlab.records.run_folder import RunFolder
from storlab.records.trial_record import TrialRecord
from storlab.report.across import render_json
from storlab.report.across_markdown import render_markdown
from storlab.report.across_text import TerminalComparison, render_text
from storlab.report.junit import render_junit
from storlab.run.design import design_of_run

FORMATS: dict[str, Callable[[RunsCompared], str]] = {
    "text": render_text,
    "markdown": render_markdown,
    "md": render_markdown,
    "json": render_json,
    "junit": render_junit,
}


def compare(
    folders: Sequence[Path],
    by: str | None,
    metrics: Sequence[str],
    fail_on: Sequence[str],
    format_name: str,
    output: Path | None,
) -> int:
    """Compare the runs and print or write what came out; returns the exit status."""
    if format_name not in FORMATS:
        raise UserError(f"there is no format {format_name!r}; there are: {', '.join(FORMATS)}")
    gates = [parse_gate(text) for text in fail_on]
    if by is None and len(folders) < 2:
        raise UserError("one run can't be compared with itself: name another, or say with --by which of its factors")
    paths = [folder.resolve() for folder in folders]
    if twice := next((folder for at, folder in enumerate(folders) if paths[at] in paths[:at]), None):
        raise UserError(f"{twice} is named twice")
    opened = dict(zip(_names(paths), map(RunFolder.open, folders), strict=True))
    refuse_copies(opened, together=by is not None)
    runs = [_read(name, run) for name, run in opened.items()]
    told = differences({name: run.manifest for name, run in opened.items()})
    found = compare_runs(runs, by=by, metrics=metrics, gates=gates, cautions=told)
    if output is None and format_name == "text" and sys.stdout.isatty():
        Console(highlight=False).print(TerminalComparison(found))
    elif output is None:
        sys.stdout.write(FORMATS[format_name](found))
    else:
        write_output(output, FORMATS[format_name](found))
        print(output)
    if found.failed:
        return GATE_HIT
    if all(c.basis == "none" for c in found.comparisons):
        remedy = _remedy(runs) if by is None else ""
        raise UserError(f"nothing could be compared: {found.comparisons[0].comparison.reason}{remedy}")
    return 0


def _remedy(runs: Sequence[RunData]) -> str:
    """Which factor to compare by, where the runs have different levels of it: files imported one by one, say."""
    for column in runs[0].trials.columns:
        name = column.removeprefix("factor.")
        if name != column and all(column in run.trials.columns for run in runs):
            levels = [set(run.trials[column].to_list()) for run in runs]
            if sum(map(len, levels)) == len(set.union(*levels)):
                return f" With `--by {name}`, its levels are compared instead of the runs."
    return ""


def _names(paths: Sequence[Path]) -> list[str]:
    """What runs are called: the last parts of their paths, as many as it takes to tell them apart."""
    most = max(len(path.parts) for path in paths)
    names = [path.name for path in paths]
    for count in range(1, most):
        names = ["/".join(path.parts[-count:]) for path in paths]
        if len(set(names)) == len(names):
            break
    return names


def _read(name: str, run: RunFolder) -> RunData:
    tables = derive(run)
    if not any(record.status == "done" for record in tables.records):
        raise UserError(f"{run.path} has no trial that is done: there is nothing to compare")
    machines = pl.DataFrame(
        [(record.trial, _machine(record)) for record in tables.records],
        schema={"trial": pl.Int64, "machine": pl.String},
        orient="row",
    )
    trials = tables.frame("trials").join(machines, on="trial", how="left", maintain_order="left")
    return RunData(name, design_of_run(run.manifest, tables), trials, tables.frame("metrics"))


def _machine(record: TrialRecord) -> str:
    """The boots of the machines that took part, as one name."""
    return " ".join(sorted({node.machine for node in record.nodes.values()}))
