"""pgbench's summaries with their progress, and its logs of transactions or intervals.

A log is a run by itself, with those of the other threads that lie beside it: each thread writes its own, and one alone
has a part of the transactions. Beside a summary, the logs of a run are read with it where they have as many.

What pgbench prints: progress lines while it runs, and a summary at its end.

Source: https://www.postgresql.org/docs/current/pgbench.html, and what pgbench 15 prints. Versions differ in few
words: before 14 ``tps`` stands twice, with and without the time to connect, and no line names the version; before
10 a colon stands in place of ``=``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import polars as pl

from storlab.base.errors import ParseError
from storlab.base.reading import read_file
from storlab.base.text import first, printable
from storlab.measurements import SERIES_COLUMNS, Measurements, empty, metric_frame
from storlab.metrics import Value
from storlab.tools.importer import Part, TextImporter
from storlab.tools.passed_on import read_passed_on
from storlab.tools.pgbench.log import METRICS, Log, is_log, read_log

NUMBER = r"(\d{1,15}(?:\.\d{1,15})?)"
_IS = r"(?: =|:)"
_NUMBERS = {
    name: re.compile(pattern)
    for name, pattern in {
        "transactions": r"number of transactions actually processed: (\d{1,15})(?:/\d+)?",
        "errors": r"number of failed transactions: (\d{1,15}) .*",
        "skipped": r"number of transactions skipped: (\d{1,15}) .*",
        "late": r"number of transactions above the .* latency limit: (\d{1,15})(?:/\d+)? .*",
        "retries": r"total number of retries: (\d{1,15})",
        "latency.mean": rf"latency average{_IS} {NUMBER} ms",
        "latency.stddev": rf"latency stddev{_IS} {NUMBER} ms",
        "lag.mean": rf"rate limit schedule lag: avg {NUMBER} .*",
        "lag.max": rf"rate limit schedule lag: avg \S+ \(max {NUMBER}\) ms",
    }.items()
}
_TPS = re.compile(rf"tps = {NUMBER} \((?P<what>.*)\)")
_WITHOUT = ("without initial connection time", "excluding connections establishing")
_INCLUDING = "including connections establishing"  # printed above the other
_INCLUDED = "its tps without the time to connect are missing: these include it"
_MILLISECONDS = frozenset({"latency.mean", "latency.stddev", "lag.mean", "lag.max"})
_VERSION = re.compile(r"pgbench \((?P<version>[^\s()]{1,40})")
_FACTS = {
    name: re.compile(rf"{words}: (.{{1,200}})")
    for name, words in {
        "transaction type": "transaction type",
        "scaling factor": "scaling factor",
        "query mode": "query mode",
        "clients": "number of clients",
        "threads": "number of threads",
        "tries": "maximum number of tries",
        "duration": "duration",
        "transactions per client": "number of transactions per client",
        "partitioning": "partition method",
        "partitions": "partitions",
    }.items()
} | {"latency limit": re.compile(rf"number of transactions above the ({NUMBER} ms) latency limit: .*")}
_PROGRESS = re.compile(rf"progress: {NUMBER} s, {NUMBER} tps, lat (?:NaN|{NUMBER}) ms(?: stddev (?:NaN|{NUMBER}))?.*")
_SCRIPT = re.compile(r"SQL script (?P<number>\d{1,6}): (?P<name>.*)")
_OF_SCRIPT = {
    "transactions": re.compile(rf" ?- (\d{{1,15}}) transactions \({NUMBER}% of total, tps = (?P<tps>{NUMBER})\)"),
    "latency.mean": re.compile(rf" ?- latency average{_IS} {NUMBER} ms"),
    "latency.stddev": re.compile(rf" ?- latency stddev{_IS} {NUMBER} ms"),
}
_WEIGHT = re.compile(r" ?- weight: (\d{1,9}) .*")
_BEGINS = ("pgbench (", "starting vacuum")
_HEAD = (
    *("transaction type: ", "scaling factor: ", "query mode: ", "number of clients: "),
    "number of transactions actually processed: ",
)
"""With any of these a summary begins of which people left out what is above."""
BEGIN = b"|".join(re.escape(words.encode()) for words in (*_BEGINS, *_HEAD, "progress: ", "SQL script "))
"""What lines begin with that pgbench doesn't indent, of those by which runs are told apart."""
_SCRIPTS = 200
"""Of one run; pgbench itself takes at most 128."""
_LONGEST = 63
_EPOCH = 1e8
"""s: a time of progress beyond is one of day (``--progress-timestamp``)."""


@dataclass
class Summary:
    """One run. ``numbers``: metric → its number in base units. ``progress``: time in s, tps, latency in s or nothing.

    ``scripts``: the same numbers of each script, where pgbench had several. ``line``: that on which it begins.
    """

    line: int
    numbers: dict[str, float] = field(default_factory=dict)
    facts: dict[str, object] = field(default_factory=dict)
    progress: list[tuple[float, float, float | None]] = field(default_factory=list)
    scripts: dict[str, dict[str, float]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    doubled: bool = False  # a script has a figure twice

    @property
    def whole(self) -> bool:
        return {"transactions", "tps"} <= self.numbers.keys()

    def values(self, without: frozenset[str] = frozenset()) -> Iterator[Value]:
        for name, number in self.numbers.items():
            if name not in without:
                yield METRICS[name].value(number)
        for script, numbers in self.scripts.items():
            for name, number in numbers.items():
                yield METRICS[name].value(number, script)

    def intervals(self) -> list[tuple[float, float, float | None]]:
        """Its progress by the time since it began; none where lines have the time of day and there is only one."""
        if not self.progress or self.progress[0][0] < _EPOCH:
            return self.progress
        times = [time for time, *_ in self.progress]
        if len(times) < 2:
            return []
        begun = times[0] - (times[1] - times[0])
        return [(round(time - begun, 3), tps, latency) for time, tps, latency in self.progress]


def read_summaries(text: str, source: str) -> list[Summary]:
    """All runs in a text, in order; the last may lack its end. Raises ``ParseError`` where there is none."""
    runs: list[Summary] = []
    script: dict[str, float] | None = None
    for line, words in enumerate(text.splitlines(), start=1):
        words = words.rstrip()
        if not runs or _is_next(words, runs[-1]):
            if not words.startswith(("progress: ", *_HEAD, *_BEGINS)):
                continue
            runs.append(Summary(line))
            script = None
        if (named := _SCRIPT.fullmatch(words)) is not None and len(runs[-1].scripts) < _SCRIPTS:
            name = printable(f"{named['number']}: {named['name']}")[:_LONGEST]
            script = runs[-1].scripts.setdefault(name, {})
            runs[-1].facts["scripts"] = ", ".join(runs[-1].scripts)
        elif words.lstrip().startswith("- "):
            if script is not None:
                found = _of_script(words)
                runs[-1].doubled |= bool(script.keys() & found.keys())
                script |= found
            if script is not None and (weight := _WEIGHT.fullmatch(words)) is not None:
                runs[-1].facts["weights"] = " : ".join(
                    [*map(str, filter(None, [runs[-1].facts.get("weights")])), weight[1]]
                )
        else:
            _read(words, runs[-1])
    runs = [run for run in runs if run.numbers or run.progress]
    for run in runs:
        _check(run)
    if not any(run.whole or run.progress for run in runs):
        raise ParseError("is no summary of pgbench: it lacks its transactions or its tps", source)
    return runs


def _check(run: Summary) -> None:
    done = run.numbers.get("transactions", 0.0)
    most = done + run.numbers.get("errors", 0.0) + run.numbers.get("skipped", 0.0)
    if run.scripts and not done <= sum(each.get("transactions", 0.0) for each in run.scripts.values()) <= most:
        run.scripts.clear()
        run.warnings.append("its scripts are left out: their transactions don't add up, so lines of some are missing")
    elif run.doubled:
        run.scripts.clear()
        run.warnings.append("its scripts are left out: one has a figure twice, so lines of another are among its own")


def _is_next(words: str, run: Summary) -> bool:
    """Whether a line can't be of ``run`` any more: its end was there, which is its tps, or it begins twice."""
    if words.startswith(_BEGINS):
        return bool(run.numbers or run.progress or (words.startswith(_BEGINS[0]) and "version" in run.facts))
    if words.startswith("transaction type: "):
        return bool(run.facts.keys() - {"version"})
    if (progress := _PROGRESS.fullmatch(words)) is not None:
        return run.whole or bool(run.progress and float(progress[1]) <= run.progress[-1][0])
    said = (name for name, form in (_NUMBERS | _FACTS).items() if form.fullmatch(words))
    return any(run.whole or name in run.numbers or name in run.facts for name in said)


def _read(words: str, run: Summary) -> None:
    for name, pattern in _NUMBERS.items():
        if (found := pattern.fullmatch(words)) is not None:
            run.numbers.setdefault(name, float(found[1]) * (1e-3 if name in _MILLISECONDS else 1))
    for name, pattern in _FACTS.items():
        if (found := pattern.fullmatch(words)) is not None:
            run.facts.setdefault(name, printable(found[1]))
    if (version := _VERSION.match(words)) is not None:
        run.facts.setdefault("version", printable(version["version"]))
    elif (tps := _TPS.fullmatch(words)) is not None:
        run.warnings[:] = [_INCLUDED] if tps["what"] == _INCLUDING else []
        if "tps" not in run.numbers or tps["what"] in _WITHOUT:
            run.numbers["tps"] = float(tps[1])
            run.facts["time to connect"] = "not counted" if tps["what"] in _WITHOUT else "counted"
    elif (progress := _PROGRESS.fullmatch(words)) is not None:
        latency = None if progress[3] is None else float(progress[3]) * 1e-3
        run.progress.append((float(progress[1]), float(progress[2]), latency))


def _of_script(words: str) -> Mapping[str, float]:
    for name, pattern in _OF_SCRIPT.items():
        if (found := pattern.fullmatch(words)) is not None:
            number = float(found[1]) * (1e-3 if name in _MILLISECONDS else 1)
            return {name: number} | ({"tps": float(found["tps"])} if name == "transactions" else {})
    return {}


# A run of pgbench, as measurements: its summary, its progress, and its logs.

FACT = "transactions in the log"
"""The fact of a run of which there is no summary."""

_CUT = "it has no summary at its end: it was cut short, and figures are the means of its progress lines"


def read_pgbench(text: str, logs: Iterable[bytes], source: str) -> Measurements:
    """One run: its summary and, where there are logs, the latency of each transaction and how many ended each second.

    Raises ``ParseError``.
    """
    run = read_summaries(text, source)[-1]
    if not run.whole:
        raise ParseError("is no summary of pgbench: it lacks its transactions or its tps", source)
    return measured(run, read_log(logs))


def measured(run: Summary, log: Log | None = None) -> Measurements:
    warnings = (*run.warnings, *(() if run.whole else (_CUT,)))
    values = run.values() if run.whole else _of_progress(run)
    if log is None:
        return Measurements(
            metric_frame(values), _progress(run), warnings=warnings, facts=dict(run.facts), declared=_DECLARED
        )
    better = frozenset(value.metric for value in log.values)
    return Measurements(
        metric_frame([*(value for value in values if value.job or value.metric not in better), *log.values]),
        log.series,
        log.histogram,
        (*warnings, *log.warnings),
        dict(run.facts),
        declared=_DECLARED,
    )


def measured_by_log(log: Log) -> Measurements:
    """A run of which there are only logs: how many transactions there were in the time from first to last."""
    count = log.sampled or log.count
    values = [METRICS["transactions"].value(count), *log.values]
    if log.seconds > 0:
        values.insert(0, METRICS["tps"].value(count / log.seconds))
    warnings = list(log.warnings)
    series = log.series
    if log.sampled:
        series = empty(SERIES_COLUMNS)
        warnings.append(
            f"its log is a sample, of {log.count} of {count} transactions by their own numbers: latencies are of these"
        )
    facts: dict[str, object] = {FACT: str(log.count)}
    return Measurements(metric_frame(values), series, log.histogram, tuple(warnings), facts, declared=_DECLARED)


_DECLARED = tuple(METRICS.values())


def _of_progress(run: Summary) -> list[Value]:
    intervals = run.intervals() or [(1.0, tps, latency) for _, tps, latency in run.progress]
    lengths = [
        time - before
        for (time, *_), before in zip(intervals, [0.0, *(time for time, *_ in intervals[:-1])], strict=True)
    ]
    done = [tps * length for (_, tps, _), length in zip(intervals, lengths, strict=True)]
    lasted = math.fsum(lengths)
    values = [METRICS["tps"].value(math.fsum(done) / lasted)] if lasted > 0 else []
    latencies = [(latency, count) for (*_, latency), count in zip(intervals, done, strict=True) if latency is not None]
    if total := math.fsum(count for _, count in latencies):
        mean = math.fsum(latency * count for latency, count in latencies) / total
        values.append(METRICS["latency.mean"].value(mean))
    return values


def _progress(run: Summary) -> pl.DataFrame:
    intervals = run.intervals()
    if not intervals:
        return empty(SERIES_COLUMNS)
    rows: list[tuple[None, str, float, float, str]] = [(None, "tps", time, tps, "1/s") for time, tps, _ in intervals]
    rows += [(None, "latency.mean", time, latency, "s") for time, _, latency in intervals if latency is not None]
    return pl.DataFrame(rows, schema=SERIES_COLUMNS, orient="row")


_TRAITS = (
    *("transaction type", "scaling factor", "query mode", "clients", "threads", "tries", "latency limit"),
    *("duration", "transactions per client", "partitioning", "partitions", "scripts", "weights", "time to connect"),
)
_NAME = re.compile(r"(?P<run>.+?\.\d{1,9})(?:\.\d{1,6})?", re.DOTALL)
_USUAL = re.compile(r"pgbench_log\.\d{1,9}(\.\d{1,6})?")


class PgbenchImporter(TextImporter):
    """Several runs alike in one file are rounds."""

    kind: ClassVar[str] = "pgbench"
    raw_name: ClassVar[str] = "pgbench.txt"
    primary: ClassVar[tuple[str, ...]] = ("tps", "latency.mean")
    unknown: ClassVar[str] = "on which machine and storage the server ran, with which settings, nor what ran beside"

    begin: ClassVar[bytes] = BEGIN
    binary: ClassVar[str] = "is no output of pgbench: neither a summary nor a log"

    def read(self, text: bytes, source: str, options: Mapping[str, Any]) -> Sequence[Part]:
        if is_log(text[:4096]):
            return [Part(measured_by_log(_log([text], source)))]
        return super().read(text, source, options)

    def parts(self, text: bytes, source: str) -> Sequence[tuple[int, Part]]:
        return [(run.line, _part(run)) for run in read_summaries(text.decode(errors="replace"), source)]

    def beside(self, name: str, text: bytes, names: Collection[str]) -> Sequence[str]:
        return _logs_beside(name, names, of_log=is_log(text[:4096]))

    def read_beside(self, parts: Sequence[Part], folder: Path, source: str) -> Sequence[Part]:
        if len(parts) != 1:
            return parts
        path, of_log = Path(source), FACT in parts[0].measured.facts
        names = sorted(each.name for each in folder.iterdir() if each.is_file() and each.name != path.name)
        kept = path.name == self.raw_name  # in a run, all that lie beside it are its own
        found = names if kept else _logs_beside(path.name, names, of_log=of_log)
        texts = {name: read_file(folder / name) for name in found}
        logs = [text for text in texts.values() if is_log(text[:4096])]
        others = [name for name, text in texts.items() if not (kept or is_log(text[:4096]))]
        (part,) = parts
        if logs:
            own = read_file(path)
            part = Part(measured_by_log(_log([own, *logs], source))) if of_log else _with_log(part, own, logs, source)
        said = f"beside it, {first(others)} is no log as pgbench writes it, and left out"
        return [part.warned(said)] if others else [part]


def _logs_beside(name: str, names: Collection[str], *, of_log: bool) -> list[str]:
    if of_log:
        own = _NAME.fullmatch(name)
        return [] if own is None else [each for each in names if _run_of(each) == own["run"]]
    logs = [each for each in names if _USUAL.fullmatch(each)]
    return logs if len({_run_of(each) for each in logs}) == 1 else []


def _run_of(name: str) -> str:
    """The name of a log without the number of its thread: ``pgbench_log.71`` of ``pgbench_log.71.1``."""
    match = _NAME.fullmatch(name)
    return "" if match is None else match["run"]


def _log(texts: Sequence[bytes], source: str) -> Log:
    log = read_log(texts)
    if log is None:
        raise ParseError("is a log of pgbench without a transaction that was done", source)
    return log


def _with_log(part: Part, text: bytes, logs: Sequence[bytes], source: str) -> Part:
    (run,) = read_passed_on(text, lambda shown: read_summaries(shown.decode(errors="replace"), source), BEGIN)
    log, done = read_log(logs), run.numbers.get("transactions")
    if log is None or not run.whole:
        return part
    if log.count != done:
        said = (
            f"the logs of pgbench that lie beside it have {log.count} transactions and not its {done:.0f}: they are "
            "left out"
        )
        return part.warned(said)
    return replace(part, found=measured(run, log))


def _part(run: Summary) -> Part:
    traits = {name: str(run.facts[name]) for name in _TRAITS if name in run.facts}
    reason = ""
    if run.numbers.get("transactions") == 0:
        reason = "pgbench did no transaction"
    elif not (run.whole or run.progress):
        reason = f"line {run.line}: its summary lacks the transactions or the tps"
    if reason:
        return Part(Measurements(facts=dict(run.facts)), traits=traits, status="failed", reason=reason)
    return Part(measured(run), traits=traits)
