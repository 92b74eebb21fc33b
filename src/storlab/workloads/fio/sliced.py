"""fio in slices: which loads can be cut into them, the options that this takes, and what they measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from storlab.base.errors import CommandFailed
from storlab.workloads.base import Turns
from storlab.workloads.fio.options import Job, Option, Sections, directions, plain, text

if TYPE_CHECKING:
    import polars as pl

    from storlab.measurements import Measurements
    from storlab.metrics import Value
    from storlab.tools.fio.metrics import Job as MeasuredJob
    from storlab.tools.fio.operations import Cut

LOGS = "operations"
_MONOTONIC = 1  # CLOCK_MONOTONIC, see clock_gettime(2)
_AMOUNTS = frozenset({"io_size", "io_limit", "number_ios", "loops", "fill_device", "fill_fs"})
_PACED = ("rate", "thinktime", "latency_target", "startdelay", "flow", "replay_")
_PHASES = ("stonewall", "wait_for", "exitall", "steadystate", "ss", "ramp_time", "verify", "do_verify", "read_iolog")
_SAFE = ("fsync", "fdatasync", "sync", "sync_file_range")
_STOPPED = ("terminating on signal 2", "select() call in helper thread failed: Interrupted system call")
_LOST = 0.01  # as a share of a log's operations: more than this, and the log is not what was measured


def unsliceable(jobs: Sequence[Job], later: str) -> str:
    """Why these jobs can't work in slices, without a full stop; empty where they can."""
    for job in jobs:
        options = {plain(key): text(value) for key, value in job.options.items()}
        if not _on(options, "time_based") or "runtime" not in options:
            return "it ends after an amount of work: give it runtime and time_based"
        for key in options:
            if key in _AMOUNTS:
                return f"{key} makes it end after an amount of work"
            if key.startswith(_PACED):
                return f"{key} paces it by the clock, which goes on while it is held"
            if any(key == phase or key.startswith(f"{phase}_") for phase in _PHASES):
                return f"{key} gives it phases of its own"
        if "write" in directions([job]) and later:
            return f"{later} writes some of it seconds later, in the turns of others"
        if "write" in directions([job]) and not _on(options, "direct") and not any(_on(options, key) for key in _SAFE):
            return "what it writes into the page cache is written back in the turns of others: direct = 1, or fsync"
    return ""


def _on(options: Mapping[str, str], key: str) -> bool:
    return options.get(key, "0") not in ("0", "none", "")


def sliced(sections: Sections, longest: float) -> Sections:
    forced: dict[str, Option] = {
        "runtime": f"{round(longest)}s",
        "time_based": 1,
        "write_lat_log": LOGS,
        "log_avg_msec": 0,
        "log_alternate_epoch": 1,
        "log_alternate_epoch_clock_id": _MONOTONIC,
    }
    jobs = [(name, {**options, **forced}) for name, options in sections if name != "global"]
    averaged = ("write_bw_log", "write_iops_log", "bwavgtime", "iopsavgtime")
    rest = [
        (name, {key: value for key, value in options.items() if plain(key) not in averaged})
        for name, options in sections
        if name == "global"
    ]
    return [*rest, *jobs]


def measured(whole: Measurements, names: Sequence[str], raw: Path, turns: Turns) -> Measurements:
    """What it did in its turns. ``whole``: what fio itself reports, of which the amounts are kept, warm-up and all.

    Raises ``CommandFailed`` where it did nothing in them, ``ParseError`` where its logs can't be read.
    """
    import polars as pl

    from storlab.measurements import metric_frame
    from storlab.tools.fio import operations
    from storlab.tools.fio.logs import find_logs
    from storlab.tools.fio.metrics import frames

    logs = find_logs(raw, LOGS, "lat") or find_logs(raw, LOGS, "clat")  # the latter alone with disable_lat
    if not turns.measured or not logs:
        raise CommandFailed("fio did not work in slices: it has no turns, or left no log of its operations")
    cuts = {number: operations.cut(path, turns.measured) for number, path in logs.items()}
    own = list(names) if len(names) == len(cuts) else [f"{number}" for number in cuts]
    jobs = [_job(name, cut, turns.active) for name, cut in zip(own, cuts.values(), strict=True)]
    if not any(job.directions for job in jobs):
        raise CommandFailed("fio completed no operation in its slices: are they long enough?")
    metrics, histograms = (frame[:, 1:] for frame in frames([jobs]))
    if own != list(names):  # fio reports its jobs in groups
        metrics, histograms = (frame.filter(pl.col("job").is_null()) for frame in (metrics, histograms))
    amounts = pl.col("metric").str.contains(r"^(\w+\.)?(bytes|ios)$") | (pl.col("metric") == "errors")
    kept = whole.metrics.filter(amounts & ~pl.col("metric").str.starts_with("sync."))
    told = metric_frame(_told(turns, list(cuts.values())))
    news = [message for message in whole.warnings if not any(said in message for said in _STOPPED)]
    return replace(
        whole,
        metrics=pl.concat([metrics.filter(~amounts), kept, told]),
        series=_series(turns, list(cuts.values())),
        histograms=histograms,
        warnings=(*news, *_warnings(whole, list(cuts.values()))),
    )


def _job(name: str, cut: Cut, active: float) -> MeasuredJob:
    from storlab.tools.fio.blocks import NO_LATENCY
    from storlab.tools.fio.log_lines import DIRECTIONS
    from storlab.tools.fio.metrics import Direction
    from storlab.tools.fio.metrics import Job as Measured

    ways = {
        way: Direction(int(cut.bytes[:, at].sum()), int(cut.ios[:, at].sum()), active, cut.latency(at), False)
        for at, way in enumerate(DIRECTIONS)
        if cut.ios[:, at].any()
    }
    return Measured(name, 0, ways, NO_LATENCY, 0.0, 0.0, 0.0, 0, 0)


def _told(turns: Turns, cuts: Sequence[Cut]) -> Iterator[Value]:
    from storlab.tools.fio.declared import METRICS

    yield METRICS["slices"].value(len(turns.measured))
    yield METRICS["slices.active"].value(turns.active)
    yield METRICS["slices.left_out"].value(sum(cut.straddling for cut in cuts))


def _warnings(whole: Measurements, cuts: Sequence[Cut]) -> Iterator[str]:
    lines, outside = sum(cut.lines for cut in cuts), sum(cut.outside for cut in cuts)
    reported = whole.totals().get("ios", 0.0)
    if abs(lines - reported) > _LOST * max(lines, reported):
        yield f"its log has {lines} operations, fio itself reports {reported:.0f}: rates in slices may be off"
    if outside > _LOST * lines:
        yield f"{outside} of {lines} operations were completed while it was held: what was measured may not be its own"


def _series(turns: Turns, cuts: Sequence[Cut]) -> pl.DataFrame:
    import polars as pl

    from storlab.measurements import SERIES_COLUMNS
    from storlab.tools.fio.log_lines import DIRECTIONS

    rows = []
    first = turns.measured[0][0]
    ios, sizes = (sum(getattr(cut, name) for cut in cuts) for name in ("ios", "bytes"))
    used = [(number, way) for number, way in enumerate(DIRECTIONS) if ios[:, number].any()]
    for name, unit, amounts in (("iops", "1/s", ios), ("bandwidth", "B/s", sizes)):
        for at, (begin, end) in enumerate(turns.measured):
            of = [(f"{way}.{name}", amounts[at, number]) for number, way in used]
            of.append((name, amounts[at].sum()))
            rows += [(None, metric, end - first, float(amount) / (end - begin), unit) for metric, amount in of]
    return pl.DataFrame(rows, schema=SERIES_COLUMNS, orient="row").sort("metric", "t")
