"""A run for Python: its tables as frames, and charts of it as Altair objects, to look at, change and save."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from storlab.analysis.data import Sweep
from storlab.analysis.design import Design
from storlab.analysis.summary import Summary, from_json
from storlab.analysis.sweeps import sweep_of
from storlab.base.errors import UserError
from storlab.base.reading import read_file
from storlab.records.run_folder import RunFolder

if TYPE_CHECKING:
    from storlab.report.charts.sweep_panels import Group
    from storlab.report.charts.theme import Chart


class Run(RunFolder):
    """A run's folder whose tables are frames (``.metrics``, …) and whose ``.plot`` draws them."""

    @cached_property
    def plot(self) -> Plots:
        return Plots(self)


@dataclass(frozen=True)
class Plots:
    """Charts of one run. All take ``where``: levels of other factors, ``{"fs": "xfs"}``, and ``source``: the load.

    Each raises ``UserError`` where the run has nothing of the kind, and says what it has.
    """

    run: Run

    @cached_property
    def _summary(self) -> Summary:
        path = self.run.summary
        try:
            return from_json(read_file(path), str(path))
        except FileNotFoundError:
            raise UserError(
                f"{path} is not there: `storlab report {self.run.path}` shows what there is so far"
            ) from None

    def curve(self, metric: str, factor: str = "", *, where: dict[str, str] | None = None, source: str = "") -> Chart:
        """``metric`` over ``factor`` with intervals, a line for each level of one other. By default the first sweep."""
        from storlab.report.charts.curves import curve_chart
        from storlab.report.charts.sweep_panels import curve

        sweep = self._sweep(factor)
        group, key = self._group(sweep, where or {}), self._key(metric, source)
        points, unit = curve(self._summary, group, *key)
        return _finished(curve_chart(points, sweep.factor, group.by, key[1], unit))

    def heat_map(
        self, metric: str, across: str, down: str, *, where: dict[str, str] | None = None, source: str = ""
    ) -> Chart:
        """``metric`` by two factors."""
        from storlab.report.charts.curves import heat_map_chart
        from storlab.report.charts.sweep_panels import levels_of

        key, chosen = self._key(metric, source), where or {}
        columns, lines = (levels_of(self._sweep(factor)) for factor in (across, down))
        found = [
            e for e in self._summary.estimates if (e.source, e.metric) == key and chosen.items() <= e.levels.items()
        ]
        rows = [(e.levels[across], e.levels[down], e.mean) for e in found]
        if not rows:
            raise UserError(f"no cell has these levels: {chosen}")
        if len({row[:2] for row in rows}) < len(rows):
            raise UserError("other factors vary, too: choose one level of each by where={…}")
        squares = pl.DataFrame(rows, schema=["across", "down", "mean"], orient="row")
        return _finished(heat_map_chart(squares, (across, columns), (down, lines), key[1], found[0].unit))

    def hockey_stick(
        self,
        latency: str = "latency.mean",
        throughput: str = "iops",
        *,
        where: dict[str, str] | None = None,
        source: str = "",
    ) -> Chart:
        """Latency against throughput along the first sweep, with the knee of each line marked."""
        from storlab.report.charts.curves import hockey_stick_chart
        from storlab.report.charts.sweep_panels import curve, knees_of, marks_of

        group, keys = self._group(self._sweep(""), where or {}), ["line", "label"]
        load, _ = self._key(throughput, source)
        rates, times = (curve(self._summary, group, *self._key(each, load))[0] for each in (throughput, latency))
        points = rates.select(*keys, rate="mean").join(times.select(*keys, time="mean"), on=keys, maintain_order="left")
        marked = marks_of(knees_of(self._summary, group, load, throughput, latency), group)
        return _finished(hockey_stick_chart(points, marked, (throughput, latency, group.by)))

    def percentiles(self, latency: str = "latency", *, where: dict[str, str] | None = None, source: str = "") -> Chart:
        """How slow the slowest tenth, hundredth, thousandth … of all operations are; a line a cell."""
        from storlab.report.charts.whole_trials import latency_chart

        curves, names = self._curves(latency, where or {}, source)
        return _finished(latency_chart(curves, "cell", names))

    def cdf(self, latency: str = "latency", *, where: dict[str, str] | None = None, source: str = "") -> Chart:
        """The share of operations that took no longer than so long; a line a cell."""
        from storlab.report.charts.curves import cdf_chart

        curves, names = self._curves(latency, where or {}, source)
        return _finished(cdf_chart(curves, latency, names))

    def histogram(self, latency: str = "latency", *, where: dict[str, str] | None = None, source: str = "") -> Chart:
        """The share of operations in each bin of latency; a line a cell."""
        from storlab.report.charts.whole_trials import histogram_chart, shares_of_bins

        rows, source, cells = self._distributions(latency, where or {}, source)
        return _finished(histogram_chart(shares_of_bins(rows, cells, source, latency), latency, list(cells)))

    def _curves(self, latency: str, where: dict[str, str], source: str) -> tuple[pl.DataFrame, list[str]]:
        from storlab.report.charts.whole_trials import percentile_curve

        rows, source, cells = self._distributions(latency, where, source)
        curves = {name: percentile_curve(rows, cell, source, latency) for name, cell in cells.items()}
        return pl.concat(curve.with_columns(level=pl.lit(name)) for name, curve in curves.items()), list(cells)

    def _distributions(
        self, latency: str, where: dict[str, str], source: str
    ) -> tuple[pl.DataFrame, str, dict[str, int]]:
        """Histograms, the load that has them, and the cells that do, by what tells these apart."""
        from storlab.report.charts.theme import MOST_LINES
        from storlab.report.language.words import levels

        rows = self.run.histograms.filter(pl.col("metric") == latency)
        source = source or (rows["source"][0] if rows.height else "")
        chosen = [cell for cell in self._summary.cells if where.items() <= cell.levels.items()]
        names = [name for name in chosen[0].levels if len({cell.levels[name] for cell in chosen}) > 1] if chosen else []
        having = set(rows.filter(source=source)["cell"])
        cells = {
            levels({name: cell.levels[name] for name in names}) or "all": cell.cell
            for cell in chosen
            if cell.cell in having
        }
        if not cells:
            raise UserError(f"this run has no histogram of {latency!r} there")
        if len(cells) > MOST_LINES:
            raise UserError(f"{len(cells)} cells are more than {MOST_LINES} lines: choose levels by where={{…}}")
        return rows, source, cells

    def _sweep(self, factor: str) -> Sweep:
        cells = [(cell.cell, cell.levels) for cell in self._summary.cells]
        names = list(dict.fromkeys(name for _, levels in cells for name in levels))
        factors = {name: tuple(dict.fromkeys(levels[name] for _, levels in cells)) for name in names}
        wanted = factor or next((sweep.factor for sweep in self._summary.sweeps), "")
        design = Design("", "", factors, tuple(cells))
        found = sweep_of(design, wanted) if wanted in factors else None
        if found is None:
            called = f"{wanted!r} " if wanted else ""
            raise UserError(f"no factor {called}whose levels are numbers; there are: {', '.join(names) or 'none'}")
        return found

    def _group(self, sweep: Sweep, where: dict[str, str]) -> Group:
        from storlab.report.charts.sweep_panels import groups

        lines = tuple(line for line in sweep.lines if where.items() <= line.levels.items())
        found = list(groups(Sweep(sweep.factor, sweep.unit, lines))) if lines else []
        if len(found) != 1:
            why = "no cell has these levels" if not found else "more factors vary than one chart shows"
            raise UserError(f"{why}: choose levels by where={{…}}")
        return found[0]

    def _key(self, metric: str, source: str) -> tuple[str, str]:
        known = dict.fromkeys((e.source, e.metric) for e in self._summary.estimates)
        found = [key for key in known if key[1] == metric and source in ("", key[0])]
        if not found:
            raise UserError(f"this run has no metric {metric!r}{f' of {source!r}' if source else ''}")
        return found[0]


def _finished(chart: Chart) -> Chart:
    """With this project's look, as wide as a notebook's cell has room for."""
    from storlab.report.charts.theme import CONFIG

    look = {name: part for name, part in CONFIG.items() if part is not None}
    drawn: Chart = chart.properties(width=440).configure(**look)
    return drawn
