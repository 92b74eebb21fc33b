"""``storlab merge``: runs that each did some rounds of one run, as that run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from storlab.cli.options import Quiet
from storlab.cli.output import until_closed, warn
from storlab.cli.status import COMPLETE, ROUNDS_MISSING
from storlab.errors import UserError


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
    from storlab.cli.reporting import report_input, show_and_write
    from storlab.grouping import ranges
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
