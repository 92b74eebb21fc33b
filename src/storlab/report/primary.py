"""What a study asks about: which metrics its ``primary`` names, and which factor's levels stand side by side."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

from storlab.analysis.summary import Summary
from storlab.metrics import named


class Measured(Protocol):
    """Anything about one metric of one source: an estimate or a comparison."""

    @property
    def source(self) -> str: ...
    @property
    def metric(self) -> str: ...


M = TypeVar("M", bound=Measured)


def split(primary: str, items: Iterable[M]) -> tuple[list[M], list[M]]:
    """Those that ``primary`` names, and the others. Where it names none, all are as good as primary."""
    everything = list(items)
    keys = set(named(primary, dict.fromkeys((item.source, item.metric) for item in everything)))
    first = [item for item in everything if (item.source, item.metric) in keys]
    others = [item for item in everything if (item.source, item.metric) not in keys]
    return (first, others) if first else (others, [])


def compared_factor(summary: Summary) -> str:
    """The factor whose levels stand side by side: the first that is compared, else the study's first."""
    for comparison in summary.comparisons:
        return comparison.factor
    return next((name for cell in summary.cells for name in cell.levels), "")
