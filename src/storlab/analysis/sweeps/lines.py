"""The lines of a sweep: its steps within each combination of the other factors, and which metrics belong together."""

from __future__ import annotations

from collections.abc import Iterator

from storlab.analysis.design import Design
from storlab.analysis.questions import Catalogue
from storlab.analysis.sweeps.data import Line, Step, Sweep
from storlab.grouping import grouped
from storlab.levels import numbers_of
from storlab.metrics import Declarations


def sweep_of(design: Design, factor: str) -> Sweep | None:
    """``None`` where its levels are no numbers."""
    labels = design.factors[factor]
    known = numbers_of(labels)
    if known is None:
        return None
    number = dict(zip(labels, known.values, strict=True))
    steps = grouped(
        (
            tuple((name, level) for name, level in levels.items() if name != factor),
            Step(levels[factor], number[levels[factor]], cell),
        )
        for cell, levels in design.cells
    )
    lines = (Line(dict(others), tuple(sorted(own, key=lambda step: step.number))) for others, own in steps.items())
    return Sweep(factor, known.unit, tuple(lines))


def load_metrics(catalogue: Catalogue, declared: Declarations) -> Iterator[tuple[str, str, str]]:
    """Source, throughput and mean latency of a load's operations; of all directions together where it has these."""
    names = grouped(key for metrics in catalogue.metrics.values() for key in metrics)
    for source, metrics in names.items():
        specs = {name: declared[source].find(name) for name in dict.fromkeys(metrics)}
        means = {
            _prefix(spec.of): name for name, spec in specs.items() if spec.statistic == "mean" and spec.unit == "s"
        }
        rates: dict[str, str] = {}
        for name, spec in specs.items():
            if spec.quantity == "throughput" and spec.unit == "1/s" and _prefix(name) in means:
                rates.setdefault(_prefix(name), name)
        for prefix in [""] if "" in rates else rates:
            yield source, rates[prefix], means[prefix]


def _prefix(name: str) -> str:
    """``read`` of ``read.iops``."""
    return name.rpartition(".")[0]
