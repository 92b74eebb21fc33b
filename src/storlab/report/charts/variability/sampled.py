"""The samples of one metric under one load, with what charts of them need to know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from storlab.analysis import variability as within
from storlab.report import format as fmt
from storlab.report.charts.combinations import Combination
from storlab.report.charts.variability.axes import Axes, Clock
from storlab.report.frames import across_of
from storlab.report.input import ReportInput
from storlab.report.primary import compared_factor

_STEPS = 240  # of a course: finer than that is finer than the pixels
_FEWEST = 10  # samples of a level, for a distribution
INSTANTS = 3  # of fewer there is no course


@dataclass(frozen=True)
class Sampled:
    """``samples``: ``level, round, t, value``, in display units; ``findings``: what was found in these trials."""

    combination: Combination
    samples: pl.DataFrame
    findings: pl.DataFrame
    axes: Axes
    clock: Clock

    @cached_property
    def rounds(self) -> list[int]:
        """All of them, in order."""
        return sorted(self.samples["round"].unique().to_list())

    @property
    def alone(self) -> bool:
        """One trial of each level."""
        return len(self.rounds) == 1

    @cached_property
    def many(self) -> pl.DataFrame:
        """Samples of the levels that have enough of them for a distribution."""
        return self.samples.filter(pl.len().over("level") >= _FEWEST)

    @cached_property
    def comparable(self) -> list[str]:
        """These levels."""
        present = set(self.many["level"])
        return [level for level in self.axes.shown if level in present]

    @cached_property
    def densities(self) -> pl.DataFrame:
        """Of these levels, as curves."""
        return within.densities(self.many)

    @cached_property
    def bells(self) -> pl.DataFrame:
        """What normal distributions of the same mean and σ would be."""
        return within.bells(self.many)

    @cached_property
    def course(self) -> pl.DataFrame:
        """``level, t, mean, low, high`` of all levels over time, which is in the clock's unit."""
        step = max(self.clock.duration / _STEPS, within.interval(self.samples))
        found = within.over_time(self.samples, step)
        return (found if self.alone else within.over_rounds(found)).with_columns(pl.col("t") / self.clock.unit)

    @cached_property
    def levels_in_time(self) -> pl.DataFrame:
        """``level, begin, end, mean``: from one change of the level to the next; none for several rounds."""
        rows: list[tuple[str, float, float, float]] = []
        names = {cell: level for level, cell in self.combination.cells.items()}
        hour, unit = self.clock.unit, self.axes.unit.factor
        for each in self.findings.iter_rows(named=True) if self.alone else ():
            changes = each["changes"]
            begins = [0.0, *(change["t"] for change in changes)]
            ends = [*begins[1:], float(each["duration"])]
            means = [changes[0]["before"] if changes else each["mean"], *(change["after"] for change in changes)]
            for begin, end, mean in zip(begins, ends, means, strict=True):
                rows.append((names[each["cell"]], begin / hour, end / hour, mean / unit))
        schema = {"level": pl.String, "begin": pl.Float64, "end": pl.Float64, "mean": pl.Float64}
        return pl.DataFrame(rows, schema=schema, orient="row")


def sampled(
    given: ReportInput, combination: Combination, levels: Sequence[str], across: str | None = None
) -> Sampled | None:
    """The samples of the combination's metric; ``None`` where there are none. ``levels``: all of the report.

    ``across``: how values of nodes combine, where that isn't for the metrics to say.
    """
    source, metric = combination.source, combination.metric
    across = across or across_of(given.metrics, source, metric)
    rows = within.samples(given.series, source, metric, across, combination.cells)
    if rows.is_empty():
        return None
    unit = fmt.scale(float(str(rows["value"].abs().max())), combination.unit)
    present = set(rows["level"])
    cells = list(combination.cells.values())
    return Sampled(
        combination,
        rows.with_columns(pl.col("value") / unit.factor),
        given.findings.filter(pl.col("cell").is_in(cells), source=source, metric=metric),
        Axes(metric, unit, compared_factor(given.summary), levels, [level for level in levels if level in present]),
        Clock(float(str(rows["t"].max())) or 1.0),
    )
