"""fio's averaged logs (``--write_bw_log``, ``--write_iops_log``, ``--write_lat_log``) as series.

A line is ``time ms, value, direction, block size, offset, priority``; the offset only with ``log_offset=1``
(HOWTO, "Log File Formats"). Values: KiB/s, 1/s, ns. The directions: 0 read, 1 write, 2 trim. Times count
from the end of ``ramp_time``. Job N's logs are ``PREFIX_bw.N.log``, N from 1 in fio's order of jobs.

With ``log_avg_msec`` a line stands for an interval, and an interval in which nothing completed has no line:
here it becomes 0. Logs without it, of a line for every operation, are for ``fio_operations``.
"""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from storlab.measurements import SERIES_COLUMNS, empty
from storlab.workloads import fio_packed_log
from storlab.workloads.fio_log_lines import DIRECTIONS, read_lines

_PACKING = ("log_compression", "log_store_compressed")
_ZERO = pl.Series("cell", [0])
_KINDS = {"bw": ("bandwidth", "B/s", 1024.0), "iops": ("iops", "1/s", 1.0), "clat": ("latency", "s", 1e-9)}


def find_logs(folder: Path, prefix: str, kind: str) -> dict[int, Path]:
    """Logs of one kind (``bw``, ``iops``, ``clat``, ``lat``, ``slat``) by the number of their job.

    Of a log that lies there packed and unpacked, the latter.
    """
    found = {}
    for ending in (f".log{fio_packed_log.ENDING}", ".log"):
        for path in folder.glob(f"{glob.escape(prefix)}_{kind}.*{ending}"):
            number = path.name.removeprefix(f"{prefix}_{kind}.").removesuffix(ending)
            if number.isdecimal() and number.isascii():
                found[int(number)] = path
    return dict(sorted(found.items()))


AVERAGED_WRONG = "with log_compression, fio averages in them the rates of single operations, and not over the interval"


def averages_are_sound(options: Iterable[Mapping[str, object]]) -> bool:
    """Whether averaged logs of rates are ones: where fio packs logs, it averages the rates of single operations.

    Source: fio, ``iolog.h`` (``per_unit_log``) and ``stat.c``; seen with 3.33.
    """
    return all(str(each.get(name, "0")) == "0" for each in options for name in _PACKING)


def read_series(
    folder: Path,
    prefix: str,
    interval: float,
    jobs: Sequence[str] = (),
    duration: float | None = None,
    rates: bool = True,
) -> pl.DataFrame:
    """Series (``SERIES_COLUMNS``) from a folder of logs averaged over ``interval`` s (``log_avg_msec``).

    ``d.bandwidth``, ``d.iops`` (0 where nothing completed), ``d.latency`` (mean completion latency; no row
    where nothing completed), and ``bandwidth``, ``iops`` over directions; ``t`` is the end of the interval.
    Per job, where ``jobs`` names them (``fio_output.job_names``; with ``group_reporting`` those are fewer
    than the logs, and the series are only of all), and of all together: sums, and the latency weighted by
    operations. Series run to the last line of any job, or to ``duration`` s. Without ``rates``, those of
    bandwidth and IOPS are left out (``averages_are_sound``). Raises ``ParseError`` with file and line.
    """
    logs = {kind: find_logs(folder, prefix, kind) if rates or kind == "clat" else {} for kind in _KINDS}
    cells = {kind: _cells(logs[kind], kind, interval) for kind in _KINDS}
    cells["clat"] = _spread(cells["clat"], cells["iops"])
    last: int = pl.concat([frame["cell"] for frame in cells.values()]).append(_ZERO).sort()[-1]
    if duration is not None:
        last = max(last, int(duration / interval + 0.5))
    numbers = sorted({number for frame in cells.values() for number in frame["number"].unique()})
    names = dict(zip(numbers, jobs, strict=True)) if len(jobs) == len(numbers) else {}
    parts = [empty(SERIES_COLUMNS)]
    for kind in ("bw", "iops"):
        parts += _rates(cells[kind], kind, last, interval, names)
    parts += _latencies(cells["clat"], cells["iops"], interval, names)
    return pl.concat(parts)


def _cells(logs: Mapping[int, Path], kind: str, interval: float) -> pl.DataFrame:
    """Lines on the grid: ``number``, ``direction``, ``cell`` (from 1), ``value`` in base units."""
    scale = _KINDS[kind][2]
    milliseconds = interval * 1000
    parts = [
        lines.select(
            pl.lit(number, pl.Int64).alias("number"),
            "direction",
            # fio's clock runs a few ms late; a line at 1003 ms is that of the interval to 1000.
            # Latencies are written at the first completion after the interval, however late: round down.
            (pl.col("time") / milliseconds + (0.1 if kind == "clat" else 0.5))
            .floor()
            .clip(lower_bound=1)
            .cast(pl.Int64)
            .alias("cell"),
            (pl.col("value") * scale).alias("value"),
        )
        for number, path in logs.items()
        for lines in (read_lines(path),)
    ]
    if not parts:
        columns = {"number": pl.Int64, "direction": pl.Int8, "cell": pl.Int64, "value": pl.Float64}
        return pl.DataFrame(schema=columns)
    keys = ["number", "direction", "cell"]
    # Two lines in a cell: a late one and the next in time; each stands for about half of it.
    return pl.concat(parts).group_by(keys).agg(pl.col("value").mean()).sort(keys)


def _spread(latency: pl.DataFrame, iops: pl.DataFrame) -> pl.DataFrame:
    """Each interval with completions gets the latency line that covers it: its own, or the next written."""
    if not latency.height or not iops.height:
        return latency
    keys = ["number", "direction"]
    busy = iops.filter(pl.col("value") > 0).select(*keys, "cell").sort("cell")
    ordered = latency.sort("cell")
    forward, backward = (
        busy.join_asof(ordered, on="cell", by=keys, strategy=strategy, check_sortedness=False)["value"]
        for strategy in ("forward", "backward")
    )
    return busy.with_columns(value=forward.fill_null(backward)).drop_nulls("value")


def _rates(
    cells: pl.DataFrame, kind: str, last: int, interval: float, names: Mapping[int, str]
) -> Iterator[pl.DataFrame]:
    """Series of bandwidth or IOPS, with a 0 for every interval up to ``last`` without a line."""
    if not cells.height:
        return
    name, unit, _ = _KINDS[kind]
    grid = pl.DataFrame({"cell": np.arange(1, last + 1)})
    everyone: list[tuple[str | None, pl.DataFrame]] = [(None, cells)]
    everyone += [(job, cells.filter(pl.col("number") == number)) for number, job in names.items()]
    for job, mine in everyone:
        directions: list[int | None] = [None, *sorted(mine["direction"].unique())]
        for direction in directions:
            chosen = mine if direction is None else mine.filter(pl.col("direction") == direction)
            summed = chosen.group_by("cell").agg(pl.col("value").sum())
            filled = grid.join(summed, on="cell", how="left", maintain_order="left")
            metric = name if direction is None else f"{DIRECTIONS[direction]}.{name}"
            yield _series(filled.with_columns(pl.col("value").fill_null(0.0)), job, metric, unit, interval)


def _latencies(
    cells: pl.DataFrame, iops: pl.DataFrame, interval: float, names: Mapping[int, str]
) -> Iterator[pl.DataFrame]:
    """Series of mean latency; of all jobs weighted by their IOPS (equally without logs of them)."""
    keys = ["number", "direction", "cell"]
    weighted = cells.join(iops.rename({"value": "weight"}), on=keys, how="left").with_columns(
        pl.col("weight").fill_null(1.0)
    )
    mean = (pl.col("value") * pl.col("weight")).sum() / pl.col("weight").sum()
    everyone: list[tuple[str | None, pl.DataFrame]] = [(None, weighted)]
    everyone += [(job, weighted.filter(pl.col("number") == number)) for number, job in names.items()]
    for job, mine in everyone:
        for direction in sorted(mine["direction"].unique()):
            chosen = mine.filter(pl.col("direction") == direction)
            means = chosen.group_by("cell").agg(mean.alias("value")).sort("cell")
            yield _series(means, job, f"{DIRECTIONS[direction]}.latency", "s", interval)


def _series(cells: pl.DataFrame, job: str | None, metric: str, unit: str, interval: float) -> pl.DataFrame:
    return cells.select(
        pl.lit(job, pl.String).alias("job"),
        pl.lit(metric).alias("metric"),
        (pl.col("cell") * interval).alias("t"),
        pl.col("value").cast(pl.Float64),
        pl.lit(unit).alias("unit"),
    )
