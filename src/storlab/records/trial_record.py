"""``trial.json``: what became of one trial. Written last and at once, so a trial is whole or does not exist."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import orjson

from storlab.errors import RecordsError
from storlab.records.files import write_durably, write_whole

NAME = "trial.json"
Status = Literal["done", "failed", "unsupported"]


@dataclass(frozen=True)
class NodeRecord:
    """One node's part in a trial: its measured phase in seconds on its own monotonic clock, and its disk."""

    start: float
    end: float
    machine: str  # boot id: nodes with the same one are the same machine
    disk: str | None = None
    clock_error: float = 0.0  # s, of the comparison with the controller's clock
    late: float = 0.0  # s, after the agreed instant


@dataclass(frozen=True)
class BackingRecord:
    """A disk that the disks of other nodes lie on, and how it was left."""

    node: str  # that has the disk
    disk: str  # the kernel's name
    beneath: list[str]  # the nodes whose disks lie on it
    drain: float  # s, from the end of the load until all that was held back had been written


@dataclass(frozen=True)
class TrialRecord:
    """One row of ``trials.parquet``, with what else is needed to derive the other tables. Times in seconds."""

    trial: int
    round: int
    cell: int
    levels: dict[str, str]
    status: Status
    reason: str | None = None
    detail: str = ""  # output that explains a failure
    started: str | None = None  # ISO 8601, UTC
    duration: float | None = None
    measured: float | None = None
    start_skew: float | None = None
    phases: dict[str, float] = field(default_factory=dict)  # seconds spent in each
    nodes: dict[str, NodeRecord] = field(default_factory=dict)
    facts: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # node → layer by layer
    probes: dict[str, list[str]] = field(default_factory=dict)  # probe → nodes where it watched
    loads: dict[str, list[str]] = field(default_factory=dict)  # workload → nodes where it ran
    warnings: list[str] = field(default_factory=list)
    backings: list[BackingRecord] = field(default_factory=list)
    guests: dict[str, dict[str, Any]] = field(default_factory=dict)  # node → what that virtual machine was

    @property
    def started_at(self) -> datetime | None:
        """``started`` as a point in time."""
        return None if self.started is None else datetime.fromisoformat(self.started)


def write_trial(folder: Path, record: TrialRecord, durable: bool = True) -> None:
    """Write ``trial.json`` so that it survives a power cut once this returns, unless it can be made anew."""
    write = write_durably if durable else write_whole
    write(folder / NAME, orjson.dumps(record, option=orjson.OPT_INDENT_2))


def read_trial(folder: Path) -> TrialRecord | None:
    """Read it back; ``None`` where the trial never ended. Raises ``RecordsError`` where it is damaged."""
    path = folder / NAME
    try:
        fields = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RecordsError(f"{path} can't be read: {error.strerror}") from None
    except orjson.JSONDecodeError as error:
        raise RecordsError(f"{path} can't be read: {error}") from None
    try:
        fields["nodes"] = {name: NodeRecord(**node) for name, node in fields["nodes"].items()}
        fields["backings"] = [BackingRecord(**backing) for backing in fields.get("backings", [])]
        return TrialRecord(**fields)
    except (TypeError, KeyError, AttributeError) as error:
        raise RecordsError(f"{path} is not a trial's record: {error}") from None
