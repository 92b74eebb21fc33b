"""The options of ``storlab trace``, checked."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from storlab.cli.options import String, Strings
from storlab.cli.trace.options import EVENT_FILES, TraceOptions
from storlab.errors import UserError

FILES = (".json", ".parquet", ".txt", ".csv")
_SHORTEST = 0.001  # s
_LONGEST_REQUEST = 1 << 32  # bytes; the kernel counts them in 32 bits


def trace(
    command: Annotated[
        Strings, Argument(metavar="[-- COMMAND ...]", help="Trace while this runs.", show_default=False)
    ] = None,
    disk: Annotated[Strings, Option("--disk", metavar="DISK", help="Only this disk or partition.")] = None,
    op: Annotated[Strings, Option("--op", metavar="OP", help="Only read, write, flush, discard, …")] = None,
    comm: Annotated[Strings, Option("--comm", metavar="NAME", help="Only of this command.")] = None,
    length: Annotated[Strings, Option("--length", metavar="SIZE", help="Only of this length.")] = None,
    alignment: Annotated[Strings, Option("--alignment", metavar="SIZE", help="Only with this joint alignment.")] = None,
    interval: Annotated[
        String, Option("--interval", metavar="TIME", help="Show the counts so often; live by default 1s.")
    ] = None,
    for_: Annotated[String, Option("--for", metavar="TIME", help="End after this time: 30s.")] = None,
    by_comm: Annotated[bool, Option("--by-comm", help="Count each command apart.")] = False,
    events: Annotated[bool, Option("--events", help="Each request by itself, a row as it is issued.")] = False,
    json: Annotated[bool, Option("--json", help="blkalgn's JSON, keys in bytes, instead of tables.")] = False,
    out: Annotated[
        Path | None, Option("--out", metavar="FILE", help="Write it too: .json, .parquet, .txt or .csv.")
    ] = None,
) -> None:
    """Watch block I/O: lengths, alignment, flags, latencies.

    Counted exactly, in the kernel, by eBPF; needs root. Until Ctrl-C, or while COMMAND runs: then its exit status
    is passed on, and what was seen goes to standard error.
    """
    from storlab.cli.trace.run import kernel_name, run

    if out is not None:
        _check_file(out)
    if events and json and not (out is not None and out.suffix in EVENT_FILES):
        files = " or ".join(EVENT_FILES)
        raise UserError(f"--json shows counts, and --events single requests: with both, these need --out FILE{files}")
    options = TraceOptions(
        disks=tuple(dict.fromkeys(kernel_name(each) for each in disk or [])),
        operations=tuple(dict.fromkeys(each.lower().replace("-", "_") for each in op or [])),
        comms=tuple(dict.fromkeys(comm or [])),
        lengths=tuple(_length(each) for each in length or []),
        alignments=tuple(_alignment(each) for each in alignment or []),
        by_comm=by_comm,
        events=events,
        json=json,
        interval=None if interval is None else _time("--interval", interval),
        period=None if for_ is None else _time("--for", for_),
        out=out,
        command=tuple(command or []),
    )
    raise typer.Exit(run(options))


def _length(text: str) -> int:
    length = _size("--length", text)
    if length >= _LONGEST_REQUEST:
        raise UserError(f"--length {text}: no request is of 4 GiB or more")
    return length


def _alignment(text: str) -> int:
    alignment = _size("--alignment", text)
    if alignment < 512 or alignment.bit_count() != 1 or alignment >= _LONGEST_REQUEST:
        raise UserError(f"--alignment {text}: an alignment is a power of two from 512 on, below 4 GiB")
    return alignment


def _size(option: str, text: str) -> int:
    from storlab.units import parse_size

    try:
        return parse_size(text)
    except ValueError as error:
        raise UserError(f"{option}: {error}") from None


def _time(option: str, text: str) -> float:
    from storlab.units import parse_duration

    try:
        seconds = parse_duration(float(text) if text.replace(".", "", 1).isdecimal() else text)
    except ValueError as error:
        raise UserError(f"{option}: {error}") from None
    if seconds < _SHORTEST:
        raise UserError(f"{option} {text}: must be 1 ms or more")
    return seconds


def _check_file(path: Path) -> None:
    if path.suffix not in FILES:
        raise UserError(f"--out {path}: the ending says what to write, and is one of {', '.join(FILES)}")
    if path.exists() and not path.is_file():
        raise UserError(f"--out {path}: {'is a folder' if path.is_dir() else 'is no regular file'}")
    if not path.absolute().parent.is_dir():
        from storlab.units import shown

        raise UserError(f"--out {path}: the folder {shown(str(path.parent))} does not exist")
    if not os.access(path if path.exists() else path.absolute().parent, os.W_OK):
        raise UserError(f"--out {path}: can't be written there")
