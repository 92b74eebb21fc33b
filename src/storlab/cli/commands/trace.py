"""``storlab trace``: its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def trace(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[-- COMMAND ...]", help="Trace while this runs.", show_default=False)
    ] = None,
    disk: Annotated[
        list[str] | None, typer.Option("--disk", metavar="DISK", help="Only this disk or partition.")
    ] = None,
    op: Annotated[
        list[str] | None, typer.Option("--op", metavar="OP", help="Only read, write, flush, discard, …")
    ] = None,
    comm: Annotated[list[str] | None, typer.Option("--comm", metavar="NAME", help="Only of this command.")] = None,
    length: Annotated[list[str] | None, typer.Option("--length", metavar="SIZE", help="Only of this length.")] = None,
    alignment: Annotated[
        list[str] | None, typer.Option("--alignment", metavar="SIZE", help="Only with this joint alignment.")
    ] = None,
    interval: Annotated[
        str | None, typer.Option("--interval", metavar="TIME", help="Show the counts so often; live by default 1s.")
    ] = None,
    for_: Annotated[str | None, typer.Option("--for", metavar="TIME", help="End after this time: 30s.")] = None,
    by_comm: Annotated[bool, typer.Option("--by-comm", help="Count each command apart.")] = False,
    events: Annotated[bool, typer.Option("--events", help="Each request by itself, a row as it is issued.")] = False,
    json: Annotated[bool, typer.Option("--json", help="blkalgn's JSON, keys in bytes, instead of tables.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write it too: .json, .parquet, .txt or .csv.")
    ] = None,
) -> None:
    """Watch block I/O: lengths, alignment, flags, latencies.

    Counted exactly, in the kernel, by eBPF; needs root. Until Ctrl-C, or while COMMAND runs: then its exit status
    is passed on, and what was seen goes to standard error.
    """
    from storlab.cli.trace import trace as run_trace
    from storlab.cli.trace_options import read_options

    options = read_options(
        disks=disk or [],
        operations=op or [],
        comms=comm or [],
        lengths=length or [],
        alignments=alignment or [],
        interval=interval,
        period=for_,
        out=out,
        by_comm=by_comm,
        events=events,
        json=json,
        command=command or [],
    )
    raise typer.Exit(run_trace(options))
