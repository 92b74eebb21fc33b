"""``trial.json``: what became of one trial. Written last and at once, so a trial is whole or does not exist."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from storlab.record import Number, Seconds, read_record, to_json
from storlab.records.files import write_durably, write_whole

NAME = "trial.json"
Status = Literal["done", "failed", "unsupported"]


class NodeRecord(Struct, frozen=True, forbid_unknown_fields=True):
    """One node's part in a trial: its measured phase in seconds on its own monotonic clock, and its disks."""

    start: float
    end: float
    machine: str  # boot id: nodes with the same one are the same machine
    disks: list[str] = []  # the kernel's names, as far as they are known
    clock_error: float = 0.0  # s, of the comparison with the controller's clock
    late: float = 0.0  # s, after the agreed instant


class TrialRecord(Struct, frozen=True, forbid_unknown_fields=True):
    """One row of ``trials.parquet``, with what else is needed to derive the other tables. Times in seconds."""

    trial: Number
    round: Number
    cell: Number
    levels: dict[str, str]
    status: Status
    reason: str | None = None
    detail: str = ""  # output that explains a failure
    started: datetime | None = None
    duration: Seconds | None = None
    measured: Seconds | None = None
    block: Number | None = None  # of the round: cells that share what is kept for it
    start_skew: Seconds | None = None
    phases: dict[str, Seconds] = {}  # seconds spent in each
    nodes: dict[str, NodeRecord] = {}
    facts: dict[str, list[dict[str, Any]]] = {}  # node → layer by layer
    probes: dict[str, list[str]] = {}  # probe → nodes where it watched
    loads: dict[str, list[str]] = {}  # workload → nodes where it ran
    warnings: list[str] = []
    guests: dict[str, dict[str, Any]] = {}  # node → what that virtual machine was


def write_trial(folder: Path, record: TrialRecord, durable: bool = True) -> None:
    """Write ``trial.json`` so that it survives a power cut once this returns, unless it can be made anew."""
    write = write_durably if durable else write_whole
    write(folder / NAME, to_json(record))


def read_trial(folder: Path) -> TrialRecord | None:
    """Read it back; ``None`` where the trial never ended. Raises ``RecordsError`` where it is damaged."""
    try:
        return read_record(folder / NAME, TrialRecord)
    except FileNotFoundError:
        return None
