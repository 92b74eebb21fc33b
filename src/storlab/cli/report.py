"""``storlab report``: what a run says, in any format; ``compare``: runs with each other; ``merge``: several machines'
rounds as one run.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from storlab.base.errors import UserError
from storlab.base.text import grouped
from storlab.cli.options import AllowUndecided, FailOn, Optional, Output, Quiet, RunPath, String, Strings, format_option
from storlab.cli.output import one_thread_for_algebra, show, show_rendered, until_closed, waiting, warn, write_output
from storlab.cli.status import COMPLETE, NOTHING_MEASURED, ROUNDS_MISSING, of_gates
from storlab.report.formats import COMPARISONS, FULL, PRINTED, PUBLISHED, REPORTS, Format, find

if TYPE_CHECKING:
    from storlab.analysis.runs.across_runs import RunsCompared
    from storlab.analysis.runs.merged_runs import RunData
    from storlab.analysis.unequal import Seen
    from storlab.records.run_folder import Host, RunFolder
    from storlab.records.tables import Tables


def compare(
    runs: Annotated[list[Path], Argument(metavar="RUN...", help="Folders of runs; the first is the baseline.")],
    by: Annotated[String, Option("--by", metavar="FACTOR", help="Levels of this factor, rather than runs.")] = None,
    metric: Annotated[Strings, Option("--metric", metavar="NAME", help="Instead of the primary metric.")] = None,
    fail_on: FailOn = None,
    allow_undecided: AllowUndecided = False,
    optional: Optional = None,
    format_: Annotated[str, format_option(COMPARISONS)] = "text",
    output: Output = None,
) -> None:
    """Compare runs with each other, or levels of a factor over runs.

    Trials that were interleaved get verdicts; differences between runs that were not are described.
    """
    one_thread_for_algebra()
    from storlab.analysis.judging import parse_gate
    from storlab.analysis.runs.across_runs import compare_runs
    from storlab.base.amounts import plural
    from storlab.findings import Reported
    from storlab.records.manifest import differences
    from storlab.records.tables import host_names
    from storlab.report.language.phrases import stop
    from storlab.report.language.say import say
    from storlab.run.planning.design import seen_of

    chosen = find(format_, COMPARISONS)
    gates = [parse_gate(text) for text in fail_on or []]
    opened = _opened(runs, by)
    tables = {name: _tables_of(run) for name, run in opened.items()}
    hosts = host_names(host for each in tables.values() for record in each.records for host in record.hosts)
    read = [_data(name, run, tables[name], hosts) for name, run in opened.items()]
    seen = [seen_of(each) for each in tables.values()]
    told = differences({name: run.manifest for name, run in opened.items()})
    told = (*told, *map(Reported, _unequal(dict(zip(opened, seen, strict=True)))))
    found = compare_runs(
        read,
        by=by,
        metrics=metric or [],
        gates=gates,
        cautions=told,
        allow_undecided=allow_undecided,
        optional=_may_be_absent(optional or [], read, by),
    )
    with until_closed():
        _show(found, chosen, output)
    status = of_gates((result for c in found.comparisons for result in c.gates), allow_undecided=allow_undecided)
    asked = [c for c in found.comparisons if not c.comparison.optional]
    lacks = [c.comparison for c in asked if c.basis == "none"]
    if lacks and len(lacks) == len(asked) and status is COMPLETE:
        remedy = _remedy(read) if by is None else ""
        warn(f"storlab: nothing could be compared: {stop(say(lacks[0].reason))}{remedy}")
        status = NOTHING_MEASURED
    elif lacks:
        why = stop(say(lacks[0].reason))
        warn(f"storlab: {len(lacks)} of {plural(len(asked), 'comparison')} could not be made: {why}")
    raise typer.Exit(status)


def _may_be_absent(optional: Sequence[str], runs: Sequence[RunData], by: str | None) -> dict[str, list[str]]:
    """By factor, the levels of ``--optional``. Raises ``UserError`` for what no run has."""
    if not optional:
        return {}
    from storlab.study.overrides import chosen_levels  # which loads what a comparison can do without

    each = dict.fromkeys((name, of) for run in runs for name, levels in run.design.factors.items() for of in levels)
    known = grouped(each)
    if by is None:
        known["run"] = [run.name for run in runs]
    return chosen_levels("--optional", optional, known)


def _opened(folders: Sequence[Path], by: str | None) -> dict[str, RunFolder]:
    """The runs by their names. Raises ``UserError`` where two are one, or one is alone."""
    from storlab.records.imported import refuse_copies
    from storlab.records.run_folder import RunFolder

    if by is None and len(folders) < 2:
        raise UserError("one run cannot be compared with itself: name another, or say with --by which of its factors")
    paths = [folder.resolve() for folder in folders]
    if twice := next((folder for at, folder in enumerate(folders) if paths[at] in paths[:at]), None):
        raise UserError(f"{twice} is named twice")
    opened = dict(zip(_names(paths), map(RunFolder.open, folders), strict=True))
    refuse_copies(opened, together=by is not None)
    return opened


def _show(found: RunsCompared, chosen: Format, output: Path | None) -> None:
    if output is not None:
        write_output(output, chosen.render(found))
        show(str(output))
    elif chosen.name == "text" and sys.stdout.isatty():
        from storlab.cli.console import Console
        from storlab.report.model.across import comparison_document

        Console().show(comparison_document(found))
    else:
        show_rendered(chosen.render(found), chosen.name)


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


def _unequal(seen: Mapping[str, Seen]) -> list[str]:
    """What was set otherwise in one run than in another, and within each."""
    from storlab.analysis.unequal import among_runs
    from storlab.report.model.input import unequal_sentences

    own = (f"{name}: {said}" for name, of in seen.items() for said in unequal_sentences(of.unequal(), ()))
    return [*unequal_sentences(among_runs(seen), ()), *own]


def _tables_of(run: RunFolder) -> Tables:
    from storlab.records.derive import tables_of

    tables = tables_of(run)
    if not any(record.status == "done" for record in tables.records):
        raise UserError(f"{run.path} has no trial that is done: there is nothing to compare")
    return tables


def _data(name: str, run: RunFolder, tables: Tables, hosts: Mapping[Host, str]) -> RunData:
    import polars as pl

    from storlab.analysis.runs.merged_runs import RunData
    from storlab.run.planning.recorded import design_of_run

    boots = ({node.machine for node in record.nodes.values()} for record in tables.records)
    machine = [" ".join(sorted(each)) for each in boots]  # those of the machines that took part, as one name
    named = ["+".join(hosts[host] for host in record.hosts) or None for record in tables.records]
    columns = {"trial": [record.trial for record in tables.records], "machine": machine, "host": named}
    machines = pl.DataFrame(columns, schema={"trial": pl.Int64, "machine": pl.String, "host": pl.String})
    trials = tables.frame("trials").drop("host").join(machines, on="trial", how="left", maintain_order="left")
    return RunData(name, design_of_run(run.manifest, tables), trials, tables.frame("metrics"))


def report(
    folder: RunPath,
    format_: Annotated[str, format_option((*REPORTS, PRINTED), PUBLISHED)] = "text",
    output: Output = None,
    full: Annotated[bool, Option("--full", help="All tables in the terminal; all charts as HTML.")] = False,
) -> None:
    """Report on a run, new or old, from its records."""
    one_thread_for_algebra()
    from storlab.cli.reporting import report_input, write_html
    from storlab.records.derive import tables_of
    from storlab.records.run_folder import RunFolder
    from storlab.run.planning.recorded import summary_of_run

    chosen = find("full text" if full and format_ == "text" else format_, (*REPORTS, PRINTED, *PUBLISHED, FULL))
    run = RunFolder.open(folder)
    manifest = run.manifest
    with waiting(f"reading {folder}"):
        tables = tables_of(run)
        if not tables.records:
            raise UserError(f"{folder} has no finished trial yet: `storlab resume {folder}` resumes it")
        given = report_input(run, tables, summary_of_run(manifest, tables))
    if output is None and chosen is PRINTED:
        output = run.report.with_suffix(".pdf")
    if output is not None:
        write_output(output, chosen.render(given))
        show(str(output))
    elif chosen.name == "html":
        try:
            page = write_html(run, given, full=full)
        except OSError as error:
            why = f"cannot write {folder}: {error.strerror}"
            raise UserError(f"{why}; `--output FILE` writes the page elsewhere, without files of its charts") from None
        show(str(page))
    elif chosen.name in ("text", FULL.name) and sys.stdout.isatty():
        from storlab.cli.console import Console
        from storlab.report.sections import report_document

        Console().show(report_document(given), full=full)
    else:
        show_rendered(chosen.render(given), chosen.name)


def merge(
    runs: Annotated[list[Path], Argument(metavar="RUN...", help="Folders of runs that did some of the rounds.")],
    out: Annotated[Path, Option("--out", metavar="DIR", help="A new folder, or a run of theirs that gets the rest.")],
    quiet: Quiet = False,
) -> None:
    """Merge runs that each did some rounds of one run.

    They come from run --rounds A-B, and must agree in study, seed, Storlab, kernel and CPU model. Merging again changes
    nothing.
    """
    from storlab.analysis.summary import to_json
    from storlab.base.text import ranges
    from storlab.cli.reporting import report_input, show_and_write
    from storlab.records.derive import tables_of
    from storlab.records.files import write_durably
    from storlab.run.merging import merge_runs
    from storlab.run.planning.recorded import summary_of_run

    found = merge_runs(runs, out)
    tables = tables_of(found.run)
    if not tables.records:
        raise UserError(f"no run has a round that is done: there is nothing to merge into {out}")
    summary = summary_of_run(found.run.manifest, tables)
    write_durably(found.run.summary, to_json(summary))
    if not quiet:
        with until_closed():
            show_and_write(found.run, report_input(found.run, tables, summary))
    where = "; ".join(f"{name}: {ranges(numbers)}" for name, numbers in found.hosts.items())
    added = f"added {ranges(found.added)}" if found.added else "nothing was new"
    warn(f"storlab: rounds by machine: {where} ({added})")
    for sentence in found.left_out:
        warn(f"storlab: {sentence}")
    if found.missing:
        again = f"`storlab run --rounds {found.missing[0]}-{found.missing[-1]} --of {out}`"
        warn(f"storlab: missing: rounds {ranges(found.missing)}; {again} does them, or `storlab resume {out}`")
    raise typer.Exit(ROUNDS_MISSING if found.missing else COMPLETE)
