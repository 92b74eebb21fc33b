"""fio's averaged logs (``--write_bw_log``, ``--write_iops_log``, ``--write_lat_log``) as series.

A line is ``time ms, value, direction, block size, offset, priority``; the offset only with ``log_offset=1``
(HOWTO, "Log File Formats"). Values: KiB/s, 1/s, ns. The directions: 0 read, 1 write, 2 trim. Times count
from the end of ``ramp_time``. Job N's logs are ``PREFIX_bw.N.log``, N from 1 in fio's order of jobs.

With ``log_avg_msec`` a line stands for an interval, and an interval in which nothing completed has no line:
here it becomes 0. Logs without it, of a line for every operation, are for ``operations``.
"""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from storlab.measurements import SERIES_COLUMNS, empty
from storlab.percentiles import Floats, Ints
from storlab.tools.fio.log_lines import AT_ONCE, DIRECTIONS, Lines, Phases, map_chunks

_PACKING = ("log_compression", "log_store_compressed")
_MAXIMA = ("log_max_value", "log_window_value")  # the latter since fio 3.37
_NONE = np.zeros(0, dtype=np.int64)
_MOST_CELLS = 1 << 40  # more than intervals of 1 ms until LONGEST
_KINDS = {"bw": ("bandwidth", "B/s", 1024.0), "iops": ("iops", "1/s", 1.0), "clat": ("latency", "s", 1e-9)}


def find_logs(folder: Path, prefix: str, kind: str) -> dict[int, Path]:
    """Logs of one kind (``bw``, ``iops``, ``clat``, ``lat``, ``slat``) by the number of their job."""
    found = {}
    for path in folder.glob(f"{glob.escape(prefix)}_{kind}.*.log"):
        number = path.name.removeprefix(f"{prefix}_{kind}.").removesuffix(".log")
        if number.isdecimal() and number.isascii():
            found[int(number)] = path
    return dict(sorted(found.items()))


AVERAGED_WRONG = "with log_compression, fio averages in them the rates of single operations, and not over the interval"
MAXIMA = "with log_max_value, fio writes into them the maximum of each interval, and not its mean"


def averages_are_sound(options: Iterable[Mapping[str, object]]) -> bool:
    """Whether averaged logs of rates are ones: where fio packs logs, it averages the rates of single operations.

    Source: fio, ``iolog.h`` (``per_unit_log``) and ``stat.c``; seen with 3.33.
    """
    return all(str(each.get(name, "0")) == "0" for each in options for name in _PACKING)


def latencies_are_means(options: Iterable[Mapping[str, object]]) -> bool:
    """Whether averaged logs of latencies are ones. Those of rates are, for they have a single sample in an interval."""
    return all(str(each.get(name, "0")) in ("0", "avg") for each in options for name in _MAXIMA)


def latency_log(total: bool) -> str:
    """The kind of the logs whose latencies are those of the report: total ones, or until completion."""
    return "lat" if total else "clat"


def read_series(
    folder: Path,
    prefix: str,
    interval: float,
    jobs: Sequence[str] = (),
    *,
    rates: bool = True,
    means: bool = True,
    total: bool = False,
    phases: Phases = AT_ONCE,
) -> pl.DataFrame:
    """Series (``SERIES_COLUMNS``) from a folder of logs averaged over ``interval`` s (``log_avg_msec``).

    ``d.bandwidth``, ``d.iops`` (0 where nothing completed), ``d.latency`` (mean completion latency or, with
    ``total``, total latency; no row where nothing completed), and ``bandwidth``, ``iops`` over directions; ``t`` is
    the end of the interval. Per job, where ``jobs`` names them (with ``group_reporting`` those are fewer than the
    logs, and the series are only of all), and of all together: sums, and the latency weighted by operations. Series
    run to the last line of any job. Those of ``phases`` that ran one after another do so in ``t``, too; a job, and a
    direction, have rows in their own phases only. Without ``rates``, those of bandwidth and IOPS are left out
    (``averages_are_sound``); without ``means``, those of latency (``latencies_are_means``). Raises ``ParseError`` with
    file and line.
    """
    kinds = {"bw": "bw", "iops": "iops"} if rates else {}
    kinds |= {"clat": latency_log(total)} if means else {}
    logs = {kind: find_logs(folder, prefix, name) for kind, name in kinds.items()}
    read = {
        kind: [
            (number, lines)
            for number, path in logs.get(kind, {}).items()
            for lines in map_chunks(path, lambda each: each)
        ]
        for kind in _KINDS
    }
    numbers = sorted({number for lines in read.values() for number, _ in lines})
    cells = {kind: _cells(read[kind], numbers, kind, interval) for kind in _KINDS}
    cells["clat"] = _spread(cells["clat"], cells["iops"])
    axis = _Axis([phases.of_log(number) for number in numbers], phases.intervals(interval), cells.values())
    cells = {kind: axis.placed(each) for kind, each in cells.items()}
    logged = np.unique(np.concatenate([each.job for each in cells.values()])).tolist()
    names = dict(zip(logged, jobs, strict=True)) if len(jobs) == len(logged) else {}
    rows = [row for kind in ("bw", "iops") for row in _rates(cells[kind], kind, axis, names)]
    rows += _latencies(cells["clat"], cells["iops"], names)
    return series_of(rows, interval)


class _Cells(NamedTuple):
    """Lines on the grid, in this order: ``job`` (from 0), ``direction``, ``cell`` (from 1), ``value`` in base units."""

    job: Ints
    direction: Ints
    cell: Ints
    value: Floats

    def of(self, chosen: npt.NDArray[np.bool_]) -> _Cells:
        return _Cells(self.job[chosen], self.direction[chosen], self.cell[chosen], self.value[chosen])


class _Axis:
    """Phases on one axis of cells, one after another. ``phase_of``: the phase of each job (from 0)."""

    def __init__(self, phase_of: Sequence[int], lengths: Ints, logged: Iterable[_Cells]) -> None:
        self.phase_of = np.array(phase_of, dtype=np.int64)
        self.all = np.arange(lengths.size)
        # fio ends before it writes the line of a last interval: that one is no 0.
        self._last = np.maximum(lengths - 1, 0)
        for each in logged:
            np.maximum.at(self._last, self.phase_of[each.job], each.cell)
        lengths = np.maximum(lengths, self._last)
        self._begin = np.cumsum(lengths) - lengths

    def placed(self, cells: _Cells) -> _Cells:
        return cells._replace(cell=cells.cell + self._begin[self.phase_of[cells.job]])

    def cells(self, phases: Iterable[int]) -> Ints:
        return np.concatenate([_NONE, *(self._begin[each] + np.arange(1, self._last[each] + 1) for each in phases)])


class Row(NamedTuple):
    """One series: its name, and cells (from 1) with their values."""

    job: str | None
    metric: str
    unit: str
    cell: Ints
    value: Floats


def _cells(read: Sequence[tuple[int, Lines]], numbers: Sequence[int], kind: str, interval: float) -> _Cells:
    if not read:
        return _Cells(_NONE, _NONE, _NONE, _NONE.astype(np.float64))
    place = {number: job for job, number in enumerate(numbers)}
    time, value, direction = (
        np.concatenate([getattr(lines, name) for _, lines in read]) for name in ("time", "value", "direction")
    )
    job = np.concatenate([np.full(lines.time.size, place.get(number, 0), dtype=np.int64) for number, lines in read])
    # fio's clock runs a few ms late; a line at 1003 ms is that of the interval to 1000.
    # Latencies are written at the first completion after the interval, however late: round down.
    cell = np.floor(time / (interval * 1000) + (0.1 if kind == "clat" else 0.5)).astype(np.int64).clip(1)
    keys, which = np.unique(_keys(job, direction, cell), return_inverse=True)
    # Two lines in a cell: a late one and the next in time; each stands for about half of it.
    mean = np.bincount(which, value * _KINDS[kind][2]) / np.bincount(which)
    of, cells = np.divmod(keys, _MOST_CELLS)
    return _Cells(of // len(DIRECTIONS), of % len(DIRECTIONS), cells, mean)


def _keys(job: Ints, direction: Ints, cell: Ints) -> Ints:
    return (job * len(DIRECTIONS) + direction) * _MOST_CELLS + cell


def _spread(latency: _Cells, iops: _Cells) -> _Cells:
    """Each interval with completions gets the latency line that covers it: its own, or the next written."""
    if not latency.cell.size or not iops.cell.size:
        return latency
    busy = iops.of(iops.value > 0)
    written, wanted = _keys(*latency[:3]), _keys(*busy[:3])
    following = np.searchsorted(written, wanted)
    found = np.full(wanted.size, -1)
    for at in (following - 1, following):  # the one before, where there is none to come
        inside = (at >= 0) & (at < written.size)
        same = np.zeros_like(inside)
        same[inside] = written[at[inside]] // _MOST_CELLS == wanted[inside] // _MOST_CELLS
        found[same] = at[same]
    kept = found >= 0
    return busy.of(kept)._replace(value=latency.value[found[kept]])


def _rates(cells: _Cells, kind: str, axis: _Axis, names: Mapping[int, str]) -> Iterator[Row]:
    if not cells.cell.size:
        return
    name, unit, _ = _KINDS[kind]
    phases: dict[str | None, Ints] = {named: axis.phase_of[[job]] for job, named in names.items()}
    phases[None] = axis.all
    for job, own in _everyone(cells, names):
        grid = axis.cells(phases[job])
        yield Row(job, name, unit, grid, _sums(own, grid))
        for direction in np.unique(own.direction).tolist():
            chosen = own.of(own.direction == direction)
            grid = axis.cells(np.unique(axis.phase_of[chosen.job]))
            yield Row(job, f"{DIRECTIONS[direction]}.{name}", unit, grid, _sums(chosen, grid))


def _sums(cells: _Cells, grid: Ints) -> Floats:
    return np.bincount(cells.cell, cells.value, int(grid.max(initial=0)) + 1)[grid].astype(np.float64)


def _latencies(cells: _Cells, iops: _Cells, names: Mapping[int, str]) -> Iterator[Row]:
    for job, own in _everyone(cells, names):
        for direction in np.unique(own.direction).tolist():
            chosen = own.of(own.direction == direction)
            weight = _weights(chosen, iops)
            present, which = np.unique(chosen.cell, return_inverse=True)
            mean = np.bincount(which, chosen.value * weight) / np.bincount(which, weight)
            yield Row(job, f"{DIRECTIONS[direction]}.latency", "s", present, mean)


def _weights(cells: _Cells, iops: _Cells) -> Floats:
    """The IOPS of the same cells; 1 where they are unknown."""
    known, wanted = _keys(*iops[:3]), _keys(*cells[:3])
    weight = np.ones(wanted.size)
    if known.size:
        at = np.searchsorted(known, wanted).clip(max=known.size - 1)
        same = known[at] == wanted
        weight[same] = iops.value[at[same]]
    return weight


def _everyone(cells: _Cells, names: Mapping[int, str]) -> Iterator[tuple[str | None, _Cells]]:
    yield None, cells
    for job, name in names.items():
        yield name, cells.of(cells.job == job)


def series_of(rows: Sequence[Row], interval: float) -> pl.DataFrame:
    """``SERIES_COLUMNS``, one after the other, with ``t`` the end of the interval."""
    if not rows:
        return empty(SERIES_COLUMNS)
    of = pl.Series(np.repeat(np.arange(len(rows), dtype=np.uint32), [row.cell.size for row in rows]))
    text = {
        name: pl.Series(name, [getattr(row, name) for row in rows], pl.String)[of] for name in ("job", "metric", "unit")
    }
    t = pl.Series("t", np.concatenate([row.cell for row in rows]) * interval)
    value = pl.Series("value", np.concatenate([row.value for row in rows]))
    return pl.DataFrame([text["job"], text["metric"], t, value, text["unit"]])
