"""``storlab report``: what a run says, in any format; ``storlab merge``: several machines' rounds as one run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from storlab.base.errors import UserError
from storlab.cli.options import Output, Quiet, RunPath, format_option
from storlab.cli.output import one_thread_for_algebra, show, show_rendered, until_closed, waiting, warn, write_output
from storlab.cli.status import COMPLETE, ROUNDS_MISSING
from storlab.report.formats import FULL, PRINTED, PUBLISHED, REPORTS, find


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
