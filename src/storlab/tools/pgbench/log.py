"""pgbench's logs: a line for each transaction, or for each interval (``--aggregate-interval``).

    client_id transaction_no time script_no time_epoch time_us [schedule_lag] [retries]
    interval_start num_transactions sum_latency sum_latency_2 min_latency max_latency
        [sum_lag sum_lag_2 min_lag max_lag [skipped [retried retries serialization_failures deadlock_failures …]]]

Since version 15, an interval has all of them, and its transactions don't count those that were skipped.

Source: https://www.postgresql.org/docs/current/pgbench.html#PGBENCH-PER-TRANSACTION-LOGGING. Times are in µs, starts
in s since 1970. Each thread has a log of its own; all of a run's are read together.
"""

from __future__ import annotations

import io
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, zip_longest
from typing import NamedTuple

import polars as pl

from storlab.measurements import HISTOGRAM_COLUMNS, SERIES_COLUMNS, empty
from storlab.metrics import PERCENTILES, MetricSpec, Value, by_name, latencies, percentile_name
from storlab.percentiles import percentiles

METRICS = by_name(
    [
        MetricSpec("tps", "1/s", "higher", quantity="throughput", series=True),
        MetricSpec("transactions", "1", quantity="operations"),
        MetricSpec("errors", "1", "lower"),
        *latencies("latency", "transactions"),
        MetricSpec("latency.stddev", "s", "lower", "mean", of="latency", statistic="stddev"),
        MetricSpec("lag.mean", "s", "lower", "mean"),
        MetricSpec("lag.max", "s", "lower", "max"),
        MetricSpec("skipped", "1", "lower"),
        MetricSpec("late", "1", "lower"),
        MetricSpec("retries", "1", "lower"),
    ]
)
"""``lag``: by how much transactions began later than ``rate`` asks for. ``skipped``: those that would have begun so
late that they could not end within the latency limit; ``late``: those that ended beyond it.
"""


TRANSACTION = re.compile(
    rb"^\d{1,9} \d{1,18} (?:\d{1,15}|failed|skipped|serialization|deadlock) "
    rb"\d{1,9} \d{9,12} \d{1,6}(?: \d{1,15}){0,2}\r?$",
    re.M,
)
INTERVAL = re.compile(rb"^\d{9,12}(?: \d{1,18})(?: \d{1,24}){4}(?:(?: \d{1,24}){4,5}|(?: \d{1,24}){9,10})?\r?$", re.M)

_COLUMNS = dict.fromkeys(("client", "number", "time", "script", "epoch", "us"), pl.Int64)
_WITH_SKIPPED = 10  # numbers after the start of an interval
_PATIENCE = 20  # times that a client is idle between transactions, by which it may end earlier than others
_PIECE = 1 << 24  # B
_ROWS = 1 << 18
_DIGITS = 3  # of a latency in the histogram
_LONGEST = 10_000_000  # s, four months: what a damaged log says beyond that would be a sample each second all the same


@dataclass(frozen=True)
class Log:
    """What logs say of a run. ``seconds``: from when the first transaction began until the last ended.

    ``sampled``: how many transactions there were of which ``count`` are in the log, where it is a sample.
    """

    count: int
    seconds: float
    values: Sequence[Value]
    series: pl.DataFrame
    histogram: pl.DataFrame
    warnings: tuple[str, ...]
    sampled: int = 0


def is_log(head: bytes) -> bool:
    line = head.partition(b"\n")[0]
    return TRANSACTION.match(line) is not None or INTERVAL.match(line) is not None


def read_log(logs: Iterable[bytes]) -> Log | None:
    cut = [_without_cut(text) for text in logs]
    texts, said = [text for text, _ in cut if text.strip()], [each for _, more in cut for each in more]
    if texts and INTERVAL.match(texts[0].partition(b"\n")[0]) is not None:
        of_intervals = _of_intervals(texts)
        return of_intervals and replace(of_intervals, warnings=(*said, *of_intervals.warnings))
    log, damaged = _transactions(texts)
    if log.is_empty():
        return None
    histogram = _histogram(log)
    warnings = said
    if damaged:
        warnings.append(f"{damaged} lines of its log are no transactions that were done; the others count")
    clients = _clients(log)
    warnings += _said_of_clients(clients, other=bool(damaged))
    begin = int((log["end"] - log["time"]).to_numpy().min())
    return Log(
        log.height,
        (int(log["end"].to_numpy().max()) - begin) * 1e-6,
        _latencies(log, histogram),
        _series(log, begin),
        histogram,
        tuple(warnings),
        _sampled(clients, log.height, damaged),
    )


def _without_cut(text: bytes) -> tuple[bytes, list[str]]:
    """Without a last line that has no end, whose last number may be cut short."""
    whole = text[: text.rfind(b"\n") + 1]
    return whole, ([] if len(whole) == len(text) else ["the last line of its log has no end, and is left out"])


class _Client(NamedTuple):
    """The transactions of one: how many; their numbers; from when to when, and how long they took, µs."""

    client: int
    done: int
    first: int
    last: int
    summed: int
    begin: int
    end: int
    busy: int
    longest: int

    @property
    def idle(self) -> float:
        """From one to the next, µs: where it connects again or has a rate, or of a sample."""
        return max(self.end - self.begin - self.busy, 0) / self.done

    @property
    def repeats(self) -> bool:
        numbers = self.last - self.first + 1
        return self.done > numbers or (self.done == numbers and 2 * self.summed != numbers * (self.first + self.last))


def _clients(log: pl.DataFrame) -> list[_Client]:
    number, time, end = (pl.col(name) for name in ("number", "time", "end"))
    of_numbers = (number.min(), number.max().alias("last"), number.sum().alias("summed"))
    of_times = ((end - time).min().alias("begin"), end.max(), time.sum(), time.max().alias("longest"))
    return [_Client(*row) for row in log.group_by("client").agg(pl.len(), *of_numbers, *of_times).rows()]


def _said_of_clients(clients: Sequence[_Client], *, other: bool) -> Iterator[str]:
    """Clients number their transactions, as pgbench does them, and work until all end. ``other``: some failed."""
    if any(each.repeats for each in clients):
        yield "transactions of its log have the same number: lines are repeated, or of several runs"
    highest = max(each.client for each in clients)
    if (missing := highest + 1 - len(clients)) > 0:
        yield f"{missing} of {highest + 1} clients have no transaction in its log: that of a thread may be missing"
    ended, longest = max(each.end for each in clients), max(each.longest for each in clients)
    early = [each for each in clients if ended - each.end > longest + _PATIENCE * each.idle]
    if early and not other and len({each.last for each in clients}) > 1:  # with -t, all do as many
        yield f"{len(early)} of {len(clients)} clients end before the others in its log: that of a thread was cut off"


def _sampled(clients: Sequence[_Client], count: int, damaged: int) -> int:
    """Those that are not in the log are known by their numbers to have been."""
    numbered = sum(each.last for each in clients)
    return numbered if count + damaged < numbered else 0


def _transactions(logs: Sequence[bytes]) -> tuple[pl.DataFrame, int]:
    """All that were done, with their ``time`` and ``end`` in µs; and how many lines are none."""
    usable = (
        (pl.col("time") >= 0)
        & (pl.col("epoch") >= 0)
        & pl.col("us").is_between(0, 999_999)
        & (pl.col("epoch") < 2**40)
        & (pl.col("time") < 2**50)
        & pl.col("number").is_between(0, 2**40)
        & pl.col("client").is_between(0, 2**31)
    )
    end, lines, found = pl.col("epoch") * 1_000_000 + pl.col("us"), 0, []
    for piece in (piece for text in logs for piece in _pieces(text)):
        rows = _read(piece)
        found.append(rows.filter(usable.fill_null(value=False)).select("client", "number", "time", end=end))
        lines += rows.height
    none = pl.DataFrame(schema=dict.fromkeys(("client", "number", "time", "end"), pl.Int64))
    whole = pl.concat(found or [none])
    return whole, lines - whole.height


def _pieces(text: bytes) -> Iterator[bytes]:
    """Whole lines, a few megabytes at a time: a frame of all columns of a long log is several times as long."""
    begin = 0
    while begin < len(text):
        end = text.find(b"\n", begin + _PIECE) + 1 or len(text)
        yield text[begin:end]
        begin = end


def _read(text: bytes) -> pl.DataFrame:
    first = b" ".join(b"0" for _ in _COLUMNS) + b"\n"  # which says how many columns there are
    return pl.read_csv(
        io.BytesIO(first + text),
        has_header=False,
        separator=" ",
        quote_char=None,
        schema=_COLUMNS,
        ignore_errors=True,
        truncate_ragged_lines=True,
        encoding="utf8-lossy",
    ).slice(1)


def _histogram(log: pl.DataFrame) -> pl.DataFrame:
    """``HISTOGRAM_COLUMNS``: bins as wide as the last of three digits, at least 1 µs."""
    time = pl.col("time")
    width = (10.0 ** (time.clip(1).cast(pl.Float64).log10() + 1e-9).floor().sub(_DIGITS - 1)).clip(1).cast(pl.Int64)
    bins = _counted(log, low=time // width * width, width=width).sort("low", "width")
    lower, upper = (pl.col("low") * 1e-6, (pl.col("low") + pl.col("width")) * 1e-6)
    job, metric = pl.lit(None, pl.String), pl.lit("latency")
    count = pl.col("len").cast(HISTOGRAM_COLUMNS["count"])
    return bins.select(job=job, metric=metric, lower=lower, upper=upper, count=count)


def _counted(log: pl.DataFrame, **keys: pl.Expr) -> pl.DataFrame:
    """``keys`` and ``len``, how many rows have them: a slice at a time, as keys of all are as large as the log."""
    named = [key.alias(name) for name, key in keys.items()]
    parts = [each.group_by(named).len() for each in log.iter_slices(_ROWS)]
    return pl.concat(parts).group_by(*keys).agg(pl.col("len").sum())


def _latencies(log: pl.DataFrame, histogram: pl.DataFrame) -> list[Value]:
    time = log["time"] * 1e-6
    exact = percentiles(histogram)
    return [
        METRICS["latency.mean"].value(float(time.sum()) / log.height),
        METRICS["latency.min"].value(float(log["time"].to_numpy().min()) * 1e-6),
        METRICS["latency.max"].value(float(log["time"].to_numpy().max()) * 1e-6),
        *(METRICS[f"latency.{percentile_name(p)}"].value(exact[p]) for p in PERCENTILES),
    ]


def _series(log: pl.DataFrame, begin: int) -> pl.DataFrame:
    """Transactions that ended in each whole second since the first began; the last second is rarely whole."""
    ended = _counted(log, second=(pl.col("end") - begin) // 1_000_000)
    last = int(ended["second"].to_numpy().max())
    if last > _LONGEST:
        return empty(SERIES_COLUMNS)
    every = pl.DataFrame({"second": range(last)}, schema={"second": pl.Int64})
    rows = every.join(ended, on="second", how="left").with_columns(pl.col("len").fill_null(0))
    return rows.select(
        job=pl.lit(None, pl.String),
        metric=pl.lit("tps"),
        t=(pl.col("second") + 1).cast(pl.Float64),
        value=pl.col("len").cast(pl.Float64),
        unit=pl.lit("1/s"),
    )


def _of_intervals(logs: Sequence[bytes]) -> Log | None:
    """Of aggregates: counts, sums, extremes; and the rate of each interval but the first and last, which began or
    ended within.
    """
    rows: dict[int, _Interval] = {}
    steps: Counter[int] = Counter()
    damaged = 0
    for text in logs:
        before = 0
        for line in text.splitlines():
            if INTERVAL.fullmatch(line.strip()) is None:
                damaged += bool(line.strip())
                continue
            start, *numbers = map(int, line.split())
            if len(numbers) == _WITH_SKIPPED:  # before version 15 these count as transactions
                numbers[0] -= numbers[-1]
            if numbers[0] < 0:
                damaged += 1
                continue
            rows.setdefault(start, _Interval()).add(numbers)
            steps[start - before] += before > 0
            before = start
    done = sum(row.count for row in rows.values())
    if not done:
        return None
    starts = sorted(rows)
    interval = min((later - earlier for earlier, later in pairwise(starts)), default=0)
    length = starts[-1] - starts[0] + interval
    warnings = [f"{damaged} lines of its log are no intervals; the others count"] if damaged else []
    if any(row.repeats for row in rows.values()):
        warnings.append("intervals of its log are there twice, and count twice")
    if lost := sum(many for step, many in steps.items() if step > interval):
        warnings.append(f"in {lost} places of its log intervals are missing")
    values = _totals(list(rows.values()), done)
    return Log(
        done,
        float(length) if len(starts) > 2 else 0.0,
        [METRICS[name].value(value) for name, value in values.items() if value < 1e12],
        _rates({start: row.count for start, row in rows.items()}, starts, interval),
        empty(HISTOGRAM_COLUMNS),
        tuple(warnings),
    )


@dataclass
class _Interval:
    """The sum of what all threads say of one interval. Of none without a transaction there are extremes: it says 0."""

    count: int = 0
    sums: list[int] = field(default_factory=lambda: [0] * 4)  # of latencies and lags, and their squares
    least: float = math.inf
    most: int = 0
    latest: int = 0
    others: list[int] = field(default_factory=list)  # skipped, retried, retries, and failures of all kinds
    before: Sequence[int] = ()
    repeats: bool = False

    def add(self, numbers: Sequence[int]) -> None:
        count, total, squares, least, most, *rest = numbers
        self.repeats |= count > 0 and numbers == self.before  # no two threads did the same
        self.before = numbers
        lags, others = [*rest[:4], 0, 0, 0, 0][:4], rest[4:]
        self.count += count
        self.sums = [sum(pair) for pair in zip(self.sums, (total, squares, *lags[:2]), strict=True)]
        self.others = [sum(pair) for pair in zip_longest(self.others, others, fillvalue=0)]
        self.latest = max(self.latest, lags[3])
        if count:
            self.least, self.most = min(self.least, least), max(self.most, most)


def _totals(rows: Sequence[_Interval], done: int) -> dict[str, float]:
    total, squares, lag, _ = (sum(each) for each in zip(*(row.sums for row in rows), strict=True))
    skipped, _, retries, *failed = [
        *(sum(each) for each in zip_longest(*(row.others for row in rows), fillvalue=0)),
        *[0] * 3,
    ]
    all_of_them = any(len(row.others) > 1 for row in rows)
    mean = total / done
    found = {
        "latency.mean": mean * 1e-6,
        "latency.stddev": math.sqrt(max(squares / done - mean**2, 0.0)) * 1e-6,
        "latency.min": min(row.least for row in rows) * 1e-6,
        "latency.max": max(row.most for row in rows) * 1e-6,
    }
    if all_of_them:
        found |= {"errors": sum(failed), "retries": retries}
    if lag:
        found |= {"lag.mean": lag / done * 1e-6, "lag.max": max(row.latest for row in rows) * 1e-6}
    return found | ({"skipped": skipped} if skipped or any(len(row.others) == 1 for row in rows) else {})


def _rates(counts: dict[int, int], starts: Sequence[int], interval: int) -> pl.DataFrame:
    if len(starts) < 3 or (starts[-1] - starts[0]) / interval > _LONGEST:
        return empty(SERIES_COLUMNS)
    whole = range(starts[0] + interval, starts[-1], interval)
    rows = [(None, "tps", float(at - starts[0] + interval), counts.get(at, 0) / interval, "1/s") for at in whole]
    return pl.DataFrame(rows, schema=SERIES_COLUMNS, orient="row")
