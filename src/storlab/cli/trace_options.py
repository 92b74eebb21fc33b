"""What ``storlab trace`` was asked for, checked, and the tracer's arguments for it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from storlab.cli.trace_disks import kernel_name
from storlab.errors import UserError
from storlab.units import parse_duration, parse_size, shown

FILES = (".json", ".parquet", ".txt", ".csv")
EVENT_FILES = (".parquet", ".csv")
"""Those of ``FILES`` that hold single requests where these are wanted."""
_SHORTEST = 0.001  # s
_LONGEST_REQUEST = 1 << 32  # bytes; the kernel counts them in 32 bits


@dataclass(frozen=True)
class TraceOptions:
    """Filters of one kind are alternatives; ``interval`` and ``period`` are in s."""

    disks: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()
    comms: tuple[str, ...] = ()
    lengths: tuple[int, ...] = ()
    alignments: tuple[int, ...] = ()
    by_comm: bool = False
    events: bool = False
    json: bool = False
    interval: float | None = None
    period: float | None = None
    out: Path | None = None
    command: tuple[str, ...] = ()

    def arguments(self, interval: float | None) -> list[str]:
        """What the agent's ``trace`` is called with."""
        filters = (
            ("--disk", self.disks),
            ("--op", self.operations),
            ("--comm", self.comms),
            ("--length", self.lengths),
            ("--alignment", self.alignments),
        )
        arguments = [word for name, values in filters for value in values for word in (name, str(value))]
        arguments += ["--by-comm"] if self.by_comm else []
        arguments += ["--events"] if self.events else []
        arguments += ["--interval", f"{interval:.6f}"] if interval is not None else []
        arguments += ["--for", f"{self.period:.6f}"] if self.period is not None else []
        return arguments


def read_options(
    *,
    disks: Sequence[str],
    operations: Sequence[str],
    comms: Sequence[str],
    lengths: Sequence[str],
    alignments: Sequence[str],
    interval: str | None,
    period: str | None,
    out: Path | None,
    by_comm: bool,
    events: bool,
    json: bool,
    command: Sequence[str],
) -> TraceOptions:
    """The options as they were written, understood. Raises ``UserError`` that names the option."""
    if out is not None:
        _check_file(out)
    if events and json and not (out is not None and out.suffix in EVENT_FILES):
        files = " or ".join(EVENT_FILES)
        raise UserError(f"--json shows counts, and --events single requests: with both, these need --out FILE{files}")
    return TraceOptions(
        disks=tuple(dict.fromkeys(kernel_name(disk) for disk in disks)),
        operations=tuple(dict.fromkeys(operation.lower().replace("-", "_") for operation in operations)),
        comms=tuple(dict.fromkeys(comms)),
        lengths=tuple(_length(length) for length in lengths),
        alignments=tuple(_alignment(alignment) for alignment in alignments),
        by_comm=by_comm,
        events=events,
        json=json,
        interval=None if interval is None else _time("--interval", interval),
        period=None if period is None else _time("--for", period),
        out=out,
        command=tuple(command),
    )


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
    try:
        return parse_size(text)
    except ValueError as error:
        raise UserError(f"{option}: {error}") from None


def _time(option: str, text: str) -> float:
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
        raise UserError(f"--out {path}: the folder {shown(str(path.parent))} does not exist")
    if not os.access(path if path.exists() else path.absolute().parent, os.W_OK):
        raise UserError(f"--out {path}: can't be written there")
