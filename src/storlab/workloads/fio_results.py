"""All that one trial of fio left in its raw folder, as measurements: ``fio.json`` and its logs."""

from __future__ import annotations

from pathlib import Path

from storlab.errors import CommandFailed, ParseError
from storlab.measurements import Measurements
from storlab.workloads.exit_record import read_exit
from storlab.workloads.fio_output import parse_fio

OUTPUT = "fio.json"


def read_results(raw: Path) -> Measurements:
    """Raises ``DiskFull`` or ``CommandFailed`` with fio's own message, ``ParseError`` where it left no results."""
    messages = _bytes(raw / "stderr")
    output = _bytes(raw / OUTPUT)
    record = read_exit(raw)
    if not output:
        said = messages.decode(errors="replace").strip().splitlines()
        raise CommandFailed(
            f"fio ended with status {record.code} and left no results: {said[-1] if said else 'no message'}"
        )
    measured = parse_fio(output, str(raw / OUTPUT), messages)
    if record.code != 0:
        said = messages.decode(errors="replace").strip().splitlines()
        raise CommandFailed(f"fio ended with status {record.code}: {said[-1] if said else 'no message'}")
    return measured


def raise_failure(output: bytes, messages: bytes, source: str) -> None:
    """Raise what fio says of its own failure, if its output says so; return where it does not."""
    try:
        parse_fio(output, source, messages)
    except ParseError:
        return


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
