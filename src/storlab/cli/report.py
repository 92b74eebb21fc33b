"""``storlab report``: what a run says, in any format, derived from its raw records."""

from __future__ import annotations

import sys
from typing import Annotated

from typer import Option

from storlab.cli.algebra import one_thread_for_algebra
from storlab.cli.options import Output, RunPath, format_option
from storlab.cli.output import show, show_rendered, write_output
from storlab.cli.waiting import waiting
from storlab.errors import UserError
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
        from storlab.report.formats.terminal import TerminalReport

        Console().print(TerminalReport(given, full=full))
    else:
        show_rendered(chosen.render(given), chosen.name)
