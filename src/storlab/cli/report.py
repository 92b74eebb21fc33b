"""``storlab report``: what a run says, in any format, derived from its raw records."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from typer import Option

from storlab.cli.entry import one_thread_for_algebra
from storlab.cli.options import RunPath, offered
from storlab.cli.output import show
from storlab.errors import UserError

_FORMATS = offered("text", "md", "html", "csv", "json", "adoc", "virtiofs-tests")


def report(
    folder: RunPath,
    format_: Annotated[
        str, Option("--format", "-f", metavar="text|md|html|csv|json|adoc", autocompletion=_FORMATS, help="Format.")
    ] = "text",
    output: Annotated[Path | None, Option("--output", "-o", metavar="FILE", help="Write it to a file.")] = None,
) -> None:
    """Report on a run, new or old, from its records."""
    one_thread_for_algebra()
    from storlab.cli.reporting import report_input, write_html, write_output
    from storlab.records.derive import tables_of
    from storlab.records.run_folder import RunFolder
    from storlab.report import FORMATS, OTHER_NAMES, PUBLISHED, render
    from storlab.run.design import summary_of_run

    formats = [*FORMATS, *PUBLISHED]
    if OTHER_NAMES.get(format_, format_) not in formats:
        raise UserError(f"there is no report format {format_!r}; there are: {', '.join(formats)}")
    run = RunFolder.open(folder)
    manifest = run.manifest
    tables = tables_of(run)
    if not tables.records:
        raise UserError(f"{folder} has no finished trial yet: `storlab resume {folder}` resumes it")
    given = report_input(run, tables, summary_of_run(manifest, tables))
    if output is not None:
        write_output(output, render(given, format_))
        show(str(output))
    elif format_ == "html":
        try:
            page = write_html(run, given)
        except OSError as error:
            why = f"cannot write {folder}: {error.strerror}"
            raise UserError(f"{why}; `--output FILE` writes the page elsewhere, without files of its charts") from None
        show(str(page))
    elif format_ == "text" and sys.stdout.isatty():
        from storlab.cli.console import Console
        from storlab.report.terminal import TerminalReport

        Console().print(TerminalReport(given))
    else:
        sys.stdout.write(render(given, format_))
