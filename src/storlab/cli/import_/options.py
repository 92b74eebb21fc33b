"""What ``storlab import`` was asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

from storlab.metrics import WHISKERS


@dataclass(frozen=True)
class ImportOptions:
    """What of which kind is to be imported. ``of_kind`` is what only this kind of file has to be read by."""

    kind: str
    paths: Sequence[Path]
    out: Path | None
    labels: Sequence[str] | None
    factors: Sequence[str] | None
    _: KW_ONLY
    interleaved: bool = False
    clients: bool = False
    whiskers: float = WHISKERS
    nodes: Sequence[str] = ()
    of_kind: Mapping[str, object] = field(default_factory=dict)
