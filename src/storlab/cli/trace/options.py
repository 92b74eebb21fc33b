"""What ``storlab trace`` was asked for, and as the tracer's arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

EVENT_FILES = (".parquet", ".csv")
"""Files that hold single requests where these are wanted."""


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
        filters: tuple[tuple[str, Sequence[object]], ...] = (
            *(("--disk", self.disks), ("--op", self.operations), ("--comm", self.comms)),
            *(("--length", self.lengths), ("--alignment", self.alignments)),
        )
        arguments = [word for name, values in filters for value in values for word in (name, str(value))]
        arguments += ["--by-comm"] if self.by_comm else []
        arguments += ["--events"] if self.events else []
        arguments += ["--interval", f"{interval:.6f}"] if interval is not None else []
        arguments += ["--for", f"{self.period:.6f}"] if self.period is not None else []
        return arguments
