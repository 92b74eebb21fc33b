"""What metrics are: declared once, by the workload, probe or importer that yields them.

Whatever must know more of a metric than its numbers asks the declaration: how nodes combine, what a percentile is of,
whose series says how much it varies. Nothing is told by the look of a name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import chain
from typing import TYPE_CHECKING, ClassVar, Literal

from storlab.base.errors import RecordsError

if TYPE_CHECKING:
    from pydantic import TypeAdapter

Better = Literal["higher", "lower", "neither"]
"""``neither``: a fact or a count without a preferred direction; it can be compared, but never wins."""

Across = Literal["sum", "max", "min", "mean", "merge", "none"]
"""How a metric combines over jobs and nodes. ``merge``: computed again from merged histograms. ``none``: never."""

PROBE = "probe:"
"""How the ``source`` of a probe's numbers begins, so that it can't be taken for a workload."""

TARGET = "target"
"""The subject of families by disk that stands for the disks under test: which loop device one got differs from trial to
trial.
"""

STORAGE, BACKING = "storage", "backing"
"""Sources of what follows from a probe's numbers and a load's, and of what reached the disks under other nodes."""

END = "@"
"""In a ``source``, before the node group that it was watched on, where that is not the load's own end of the chain."""

Key = tuple[str, str]
"""Source and metric."""

CHECKPOINT: Key = (f"{PROBE}server", "checkpoint")
"""The series of a database's checkpoints: when each began, and how many seconds it took."""

Quantity = Literal[
    "", "throughput", "operations", "bytes", "bytes read", "bytes written",
    "latency", "request length", "request length alignment", "request alignment", "request offset",
    "acknowledged", "gap",
]  # fmt: skip
"""What is counted, where somebody asks for it. Nodes and jobs share a ``throughput``; loads ask for ``bytes``.

Those from the second line on are of histograms: of times in s, of sizes of block requests in bytes; of ACKs, how many
bytes each acknowledges, and the time between them in s.
"""
Evidence = Literal["", "waited", "busy", "shared", "rare", "none"]
"""How a probe's metric becomes evidence of why levels differ; by default as ``across`` has it: a sum for each operation
of the load, anything else as it is. ``waited``: a sum, of times for which operations stood still. ``busy``: how many
CPUs were at work, of which CPU time follows. ``shared``: a sum, to which all that the machine does adds. ``rare``: a
sum of which a few may decide, beside many of something else. ``none``: not at all, as it says what others say or what
was before the trial.
"""
Domain = Literal["", "share", "signed"]
"""What values are possible: by default none below 0, as of counts, times, rates and ratios; of a ``share`` none above 1
either. ``signed``: any, as of what nobody has defined.
"""
HISTOGRAMS = (
    "latency", "request length", "request length alignment", "request alignment", "request offset",
    "acknowledged", "gap",
)  # fmt: skip


WHISKERS = 1.5
"""Interquartile ranges from the quartiles, beyond which a sample is an outlier (J. W. Tukey, *Exploratory Data
Analysis*, 1977), where a study names no others.
"""

PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9, 99.99)
"""The percentiles that become metrics, named ``p50`` to ``p99.99``."""

COUNT_MARGIN, RATE_MARGIN, TAIL_MARGIN = 0.01, 0.10, 0.25
"""Counts hardly vary, and rates of storage seldom decide anything by less than a tenth; tails are far noisier."""
_TAIL = 99.0
_NEVER_NEGATIVE = frozenset(("1", "B/s", "1/s", "B", "s", "B²/s²", "1/s²"))


def percentile_name(percentile: float) -> str:
    """``p50``, ``p99.9``; ``p99.99999`` and not ``p100``."""
    return f"p{percentile:.12g}"


def without_end(source: str) -> str:
    """``probe:stalls`` of ``probe:stalls@store``."""
    return source.partition(END)[0]


def is_underneath(source: str) -> bool:
    """Whether its numbers are of what happened below the load, and not the load's own."""
    return source.startswith(PROBE) or without_end(source) in (STORAGE, BACKING)


@dataclass(frozen=True)
class Value:
    """One measured number. ``job`` is null for all jobs of the workload together."""

    metric: str
    value: float
    unit: str
    better: Better = "neither"
    across: Across = "sum"
    job: str | None = None


@dataclass(frozen=True)
class MetricSpec:
    """One metric; or a family, whose name has a word in braces for what its members are of: ``disk.{disk}.writes``."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    name: str
    unit: str
    better: Better = "neither"
    across: Across = "sum"
    quantity: Quantity = ""
    of: str = ""  # what it is a ``statistic`` of: ``write.latency`` of ``write.latency.p99``, ``iops`` of ``iops.cv``
    statistic: str = ""  # "mean", "min", "max", "percentile"; "cv", "fairness" …
    percentile: float | None = None  # 99.9
    weight: str = ""  # of a mean: the metric by which means of nodes are weighted
    total: str = ""  # of a throughput in one direction: that of all directions
    by_job: bool = True  # of a throughput: whether each job, where there are some, has its own
    series: bool = False  # of a throughput: whether there are samples, which say how much it varies
    follows: str = ""  # of such: another that it rises and falls with, so that findings in both would be the same
    per: Quantity = ""  # what it is divided by
    granule: int = 0  # the unit of block I/O that it asks about, in bytes
    subject: str = ""  # of a member of a family: what stands in the place of the word
    family: str = ""  # of such: the word
    tail: bool = False  # the worst of many, as every maximum and every percentile from p99 on is anyhow
    whiskers: float = 0.0  # of outliers: how many interquartile ranges from the quartiles they begin
    noun: str = ""  # what a sentence counts: "flushes"; with "of …", of what it is a share, or a part
    evidence: Evidence = ""
    domain: Domain = ""
    zero_if_absent: bool = False  # of a family: in a trial that lacks a member, that member is 0
    foremost: int = 0  # of such: members are looked at that are among so many of the largest of any trial
    least: float = 0.0  # of such: and have at least this much there

    def __hash__(self) -> int:  # that of all fields takes longer than what is looked up by it
        return hash(self.name)

    @property
    def margin(self) -> float:
        """The difference that does not matter where a study names none, by what kind of number this is.

        A tail; a count (bytes, requests, shares of them, bytes for each byte); or a rate, a time or a mean.
        """
        if self.tail or self.statistic == "max" or (self.percentile or 0) >= _TAIL:
            return TAIL_MARGIN
        counted = self.unit in ("1", "B") and not self.of and self.across in ("sum", "merge", "none")
        return COUNT_MARGIN if counted else RATE_MARGIN

    @property
    def counts(self) -> bool:
        """Whether it counts what may not happen at all, as outliers: then 0 is a result like any other."""
        return self.whiskers > 0

    @property
    def limits(self) -> tuple[float, float]:
        """The least and the greatest value that is possible."""
        if self.domain == "signed" or self.unit not in _NEVER_NEGATIVE:
            return (-math.inf, math.inf)
        return (0.0, 1.0 if self.domain == "share" else math.inf)

    @property
    def word(self) -> str:
        """Of a family: the word in its name; empty for a single metric."""
        match = _FAMILY.fullmatch(self.name)
        return "" if match is None else match[1]

    def value(self, value: float, job: str | None = None, **word: str) -> Value:
        """A number of it; ``word``: what a family's member is of."""
        return Value(self.name.format(**word) if word else self.name, value, self.unit, self.better, self.across, job)

    def member(self, name: str) -> MetricSpec | None:
        """The member of this family that has the name, if there is one."""
        match = _pattern(self.name).fullmatch(name)
        if match is None:
            return None
        ((word, subject),) = match.groupdict().items()
        percentile = float(subject) if word == "percentile" else self.percentile
        filled = {key: getattr(self, key).format(**{word: subject}) for key in ("of", "weight", "noun")}
        return replace(self, name=name, subject=subject, family=word, percentile=percentile, **filled)

    def named(self, name: str) -> bool:
        """Whether ``name`` stands for it, or for a member: the whole name, or what follows a dot in it.

        A family's word alone is no name: any misspelt one would be a member's.
        """
        parts = self.name.split(".")
        ends = [".".join(parts[at:]) for at in range(len(parts))]
        return any(_pattern(end).fullmatch(name) for end in ends if end == self.name or end != f"{{{self.word}}}")


_FAMILY = re.compile(r"[^{}]*\{([a-z]+)\}[^{}]*")


@cache
def _pattern(name: str) -> re.Pattern[str]:
    words = re.split(r"\{(\w+)\}", name)
    kinds = {"percentile": r"\d+(?:\.\d+)?", "group": r"[^.]+", "caller": r"[^.]+\..+"}
    return re.compile(
        "".join(f"(?P<{w}>{kinds.get(w, '.+')})" if at % 2 else re.escape(w) for at, w in enumerate(words))
    )


@cache
def latencies(of: str, count: str, percentiles: tuple[float, ...] = PERCENTILES) -> tuple[MetricSpec, ...]:
    """The histogram of how long operations took, of which ``count`` says how many there were, and what it has."""
    return (
        MetricSpec(of, "s", "lower", "merge", "latency"),
        MetricSpec(f"{of}.mean", "s", "lower", "merge", of=of, statistic="mean", weight=count),
        MetricSpec(f"{of}.min", "s", "lower", "min", of=of, statistic="min"),
        MetricSpec(f"{of}.max", "s", "lower", "max", of=of, statistic="max"),
        *percentiles_of(of, percentiles),
    )


def percentiles_of(of: str, percentiles: Iterable[float]) -> tuple[MetricSpec, ...]:
    """Percentiles of a histogram of times."""
    return tuple(
        MetricSpec(f"{of}.{percentile_name(p)}", "s", "lower", "merge", of=of, statistic="percentile", percentile=p)
        for p in percentiles
    )


def rate_quantity(unit: str, better: Better) -> Quantity:
    """What a metric counts of which only unit and direction are known, as somebody wrote them."""
    return "throughput" if unit in ("1/s", "B/s") and better == "higher" else ""


def domain_of(unit: str) -> Domain:
    """Of what somebody else measured: a number without a unit may be anything, and be below 0."""
    return "signed" if unit == "1" else ""


def _undefined(v: Value) -> MetricSpec:
    return MetricSpec(v.metric, v.unit, v.better, v.across, rate_quantity(v.unit, v.better), domain=domain_of(v.unit))


def declared_by(values: Iterable[Value], sampled: Collection[str] = ()) -> tuple[MetricSpec, ...]:
    """What these are, of which only that is known. Those ``sampled`` have series; of several rates the first leads."""
    specs = [_undefined(v) for v in values]
    series = [spec.name for spec in specs if spec.quantity and spec.name in sampled]
    follows = {name: "" if name == series[0] else series[0] for name in series}
    return tuple(replace(s, series=True, follows=follows[s.name]) if s.name in follows else s for s in specs)


class Specs:
    """All that one source declares; of several declarations of one name, the first."""

    def __init__(self, declared: Iterable[MetricSpec] = ()) -> None:
        self._all: dict[str, MetricSpec] = {}
        for spec in declared:
            self._all.setdefault(spec.name, spec)
        self._families = [spec for spec in self._all.values() if spec.word]
        self._found = dict(self._all)
        self._statistics = {(s.of, s.statistic, s.percentile): s.name for s in self._all.values() if s.of}

    def __iter__(self) -> Iterator[MetricSpec]:
        return iter(self._all.values())

    def find(self, name: str) -> MetricSpec:
        """The declaration of the metric or histogram of this name; where there is none, one that says nothing."""
        if name not in self._found:
            members = (member for family in self._families if (member := family.member(name)) is not None)
            self._found[name] = next(members, MetricSpec(name, ""))
        return self._found[name]

    def numbers(self) -> Iterator[MetricSpec]:
        """The metrics of trials, without the histograms."""
        return (spec for spec in self if spec.quantity not in HISTOGRAMS)

    def throughputs(self) -> list[str]:
        """The names of what nodes and jobs share."""
        return [spec.name for spec in self if spec.quantity == "throughput"]

    def statistic(self, of: str, statistic: str, percentile: float | None = None) -> str:
        """The name of what is declared as this statistic of ``of``; empty where nothing is."""
        name = self._statistics.get((of, statistic, percentile)) or self._statistics.get((of, statistic, None), "")
        return name.format(percentile=f"{percentile:g}") if percentile is not None else name


@lru_cache(1024)
def specs_of(declared: tuple[MetricSpec, ...]) -> Specs:
    """The same, once for all trials that have the same declarations."""
    return Specs(declared)


def _together(declared: Sequence[tuple[MetricSpec, ...]]) -> Specs:
    return specs_of(declared[0]) if len(declared) == 1 else Specs(chain.from_iterable(declared))


class Declarations(dict[str, Specs]):
    """The declarations of a run, by source."""

    @classmethod
    def union(cls, parts: Iterable[tuple[str, tuple[MetricSpec, ...]]]) -> Declarations:
        """All of them. Many trials have one and the same, which is looked at once."""
        found: dict[str, dict[int, tuple[MetricSpec, ...]]] = {}
        for source, specs in parts:
            found.setdefault(source, {})[id(specs)] = specs
        return cls({source: _together(list(each.values())) for source, each in found.items()})

    def __missing__(self, source: str) -> Specs:
        return _NOTHING

    def to_json(self) -> bytes:
        """For ``from_json``; without what is as by default."""
        found = {source: tuple(specs) for source, specs in self.items()}
        return _adapter().dump_json(found, exclude_defaults=True, indent=1)

    @classmethod
    def from_json(cls, text: bytes, source: str) -> Declarations:
        """What ``to_json`` wrote. Raises ``RecordsError``, with ``source``, for anything else."""
        try:
            return cls({name: Specs(specs) for name, specs in _adapter().validate_json(text).items()})
        except ValueError as error:
            raise RecordsError(f"cannot read {source}: {str(error).splitlines()[0]}") from None


@cache
def _adapter() -> TypeAdapter[dict[str, tuple[MetricSpec, ...]]]:
    from pydantic import TypeAdapter

    return TypeAdapter(dict[str, tuple[MetricSpec, ...]])


_NOTHING = Specs()


def named(wanted: str, keys: Iterable[Key]) -> list[Key]:
    """The metrics that a study means by ``wanted``: those of this name, else those whose name ends in it.

    ``bandwidth`` means ``bandwidth`` where a source has it, else ``read.bandwidth`` and ``write.bandwidth``;
    ``load:bandwidth`` those of the source ``load``. Without a source it means a probe's only where no workload has one;
    without an end, those of another end than the load's only where that has none.
    """
    source, _, name = wanted.rpartition(":")
    every = [key for key in keys if source in ("", key[0], without_end(key[0]))]
    exact = [key for key in every if key[1] == name]
    having, ending = {key[0] for key in exact}, f".{name}"
    found = exact + [key for key in every if key[1].endswith(ending) and key[0] not in having]
    if not source:
        found = [key for key in found if not key[0].startswith(PROBE)] or found
    return found if END in source else [key for key in found if END not in key[0]] or found


def by_name(specs: Iterable[MetricSpec]) -> Mapping[str, MetricSpec]:
    """Name → declaration, for who yields them."""
    return {spec.name: spec for spec in specs}
