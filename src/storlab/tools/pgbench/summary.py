"""What pgbench prints: progress lines while it runs, and a summary at its end.

Source: https://www.postgresql.org/docs/current/pgbench.html, and what pgbench 15 prints. Versions differ in few words:
before 14 ``tps`` stands twice, with and without the time to connect, and no line names the version; before 10 a colon
stands in place of ``=``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from storlab.errors import ParseError
from storlab.metrics import Value
from storlab.text import printable
from storlab.tools.pgbench.declared import METRICS

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
        """Whether it has its end."""
        return {"transactions", "tps"} <= self.numbers.keys()

    def values(self, without: frozenset[str] = frozenset()) -> Iterator[Value]:
        """Its metrics, and those of its scripts as jobs."""
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
                runs[-1].facts["weights"] = " : ".join((*_said(runs[-1], "weights"), weight[1]))
        else:
            _read(words, runs[-1])
    runs = [run for run in runs if run.numbers or run.progress]
    for run in runs:
        _check(run)
    if not any(run.whole or run.progress for run in runs):
        raise ParseError("is no summary of pgbench: it lacks its transactions or its tps", source)
    return runs


def _check(run: Summary) -> None:
    """Leave out scripts that are not all there: what is left of one may be the other's."""
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


def _said(run: Summary, fact: str) -> list[str]:
    return [str(run.facts[fact])] if fact in run.facts else []


def _of_script(words: str) -> Mapping[str, float]:
    for name, pattern in _OF_SCRIPT.items():
        if (found := pattern.fullmatch(words)) is not None:
            number = float(found[1]) * (1e-3 if name in _MILLISECONDS else 1)
            return {name: number} | ({"tps": float(found["tps"])} if name == "transactions" else {})
    return {}
