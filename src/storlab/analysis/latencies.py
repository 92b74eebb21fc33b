"""Latencies of all operations of a cell, as data (``distributions`` computes them)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Percentile:
    """Of all operations. The true one is at least ``low`` and at most ``high``; ``value`` lies in their middle.

    ``high`` is null where nothing is known but that it is at least ``low``, which is the value then.
    """

    percentile: float  # 99.9
    value: float
    low: float
    high: float | None
    beyond: int  # operations of a higher rank

    @property
    def error(self) -> float | None:
        """How far the true percentile is from ``value`` at most, as a share of it; ``None`` where nothing bounds it."""
        if self.high is None:
            return None
        off = max(self.value - self.low, self.high - self.value)
        return off / self.value if self.value else 0.0


@dataclass(frozen=True)
class Distribution:
    """How long the operations of one kind took: of all nodes of a cell, or the one that ``node`` names."""

    cell: int
    levels: dict[str, str]
    source: str
    metric: str  # "write.latency"
    unit: str
    node: str | None  # null: all nodes together
    rounds: int
    operations: int
    percentiles: tuple[Percentile, ...]
