"""``storlab report``."""

from __future__ import annotations

import sys
from pathlib import Path

from storlab.cli.output import write_output
from storlab.cli.reporting import report_input, write_html
from storlab.errors import UserError
from storlab.records.derive import derive
from storlab.records.run_folder import RunFolder
from storlab.report.formats import FORMATS, OTHER_NAMES, PUBLISHED, render
from storlab.run.design import summary_of_run


def report(folder: Path, format_name: str, output: Path | None) -> None:
    """Derive everything anew from the raw records and print or write it."""
    formats = [*FORMATS, *PUBLISHED]
    if OTHER_NAMES.get(format_name, format_name) not in formats:
        raise UserError(f"there is no report format {format_name!r}; there are: {', '.join(formats)}")
    run = RunFolder.open(folder)
    manifest = run.manifest
    tables = derive(run)
    if not tables.records:
        raise UserError(f"{folder} has no finished trial yet: `storlab resume {folder}` goes on with it")
    summary = summary_of_run(manifest, tables)
    given = report_input(run, tables, summary)
    if output is not None:
        write_output(output, render(given, format_name))
        print(output)
    elif format_name == "html":
        try:
            page = write_html(run, given)
        except OSError as error:
            why = f"{folder} can't be written: {error.strerror}"
            raise UserError(f"{why}; `--output FILE` writes the page elsewhere, without files of its charts") from None
        print(page)
    elif format_name == "text" and sys.stdout.isatty():
        from rich.console import Console

        from storlab.report.text import TerminalReport

        Console(highlight=False).print(TerminalReport(given))
    else:
        sys.stdout.write(render(given, format_name))
