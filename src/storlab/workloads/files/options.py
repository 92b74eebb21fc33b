"""What the workload ``files`` is asked for: sizes, directories, and how both are told to the agent."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from storlab.base.units import Size, parse_size
from storlab.metrics import MetricSpec, by_name, latencies
from storlab.model import Model
from storlab.workloads.base import ELAPSED, OptionError

# Metrics of the workload ``files``, declared: of each phase, and of the calls that creating a file is made of.

PHASES = ("create", "read", "stat", "delete")
CALLS = ("open", "write", "sync", "close", "sync-directory")
"""Of ``create``; all else that a phase does is done once for each file, and goes by the phase's name."""
_CALLED = {"sync": {"data", "file", "directory"}, "sync-directory": {"directory"}}

DURABLE = MetricSpec("durable.rate", "1/s", "higher")


@cache
def of_phase(phase: str) -> tuple[MetricSpec, ...]:
    """What a phase has; the syncfs after it among that, where there is one."""
    moved = {
        "create": (
            MetricSpec("write.bytes", "B", quantity="bytes written"),
            MetricSpec("write.bandwidth", "B/s", "higher", quantity="throughput", by_job=False),
        ),
        "read": (
            MetricSpec("read.bytes", "B", quantity="bytes read"),
            MetricSpec("read.bandwidth", "B/s", "higher", quantity="throughput", by_job=False),
        ),
    }
    return (
        MetricSpec(f"{phase}.files", "1", quantity="operations"),
        MetricSpec(f"{phase}.time", "s", "lower", "max"),
        MetricSpec(f"{phase}.rate", "1/s", "higher", quantity="throughput", series=True),
        *moved.get(phase, ()),
        *latencies(f"{phase}.latency", f"{phase}.files"),
    )


@cache
def of_call(call: str) -> tuple[MetricSpec, ...]:
    return (MetricSpec(f"{call}.ios", "1"), *latencies(f"{call}.latency", f"{call}.ios"))


def syncfs(phase: str) -> MetricSpec:
    return MetricSpec(f"{phase}.syncfs.time", "s", "lower", "max")


@cache
def declared(
    phases: tuple[str, ...] = PHASES, fsync: str = "directory", *, end_sync: bool = True
) -> tuple[MetricSpec, ...]:
    """All that there is with these phases, of which mkdir goes before create and rmdir comes after delete."""
    with_directories = {"create": ("mkdir", "create"), "delete": ("delete", "rmdir")}
    made = "create" in phases
    return (
        *(spec for phase in phases for each in with_directories.get(phase, (phase,)) for spec in of_phase(each)),
        *(spec for call in CALLS if made and _CALLED.get(call, {fsync}) & {fsync} for spec in of_call(call)),
        *(syncfs(phase) for phase in ("create", "delete") if end_sync and phase in phases),
        *((DURABLE,) if end_sync and made else ()),
        *ELAPSED,
    )


METRICS = by_name(declared())


MOST_DIRECTORIES = 1_000_000
"""In all trees together."""

_DEPTH = 32


class Choice(Model):
    """One of several sizes."""

    size: Size = Field(description="Bytes of a file.")
    weight: float = Field(gt=0, le=1e9, allow_inf_nan=False, description="How often, relative to the others.")


class FileSizes(Model):
    """Sizes of files: all the same, or of a distribution."""

    exactly: Size | None = Field(None, description="All are of this size; the same as the size alone.")
    min: Size | None = Field(None, description="The smallest. With max alone: each size as often as any other.")
    max: Size | None = Field(None, description="The largest.")
    median: Size | None = Field(None, description="Lognormal: half of the files are smaller. Takes sigma, min and max.")
    sigma: float | None = Field(
        None, ge=0, le=10, allow_inf_nan=False, description="Lognormal: standard deviation of the natural logarithm."
    )
    choices: tuple[Choice, ...] = Field((), description="Some sizes with weights; the same as this list alone.")

    @model_validator(mode="after")
    def _is_one_distribution(self) -> Self:
        lognormal = self.median is not None or self.sigma is not None
        given = (("exactly", self.exactly is not None), ("median and sigma", lognormal), ("choices", self.choices))
        kinds = [name for name, is_given in given if is_given]
        bounds = self.min is not None or self.max is not None
        if len(kinds) > 1 or (bounds and kinds in (["exactly"], ["choices"])):
            raise OptionError(f"these keys exclude each other: {' and '.join([*kinds, *['min and max'] * bounds])}")
        if not kinds and not (self.min is not None and self.max is not None):
            raise OptionError('write a size such as "4k", or { min, max }, { median, sigma }, or a list of choices')
        if (self.median is None) != (self.sigma is None):
            raise OptionError("a lognormal distribution takes both median and sigma")
        low, high = self.min or 0, self.max
        if high is not None and low > high:
            raise OptionError("min is above max", "min")
        if self.median is not None and not (low <= self.median <= (self.median if high is None else high)):
            raise OptionError("the median lies between min and max", "median")
        return self

    @property
    def largest(self) -> int:
        if self.median is not None:
            # Nine deviations: 1 of 10^19 files would be larger.
            return self.max if self.max is not None else round(self.median * math.exp(9 * (self.sigma or 0.0)))
        return max([self.exactly or 0, self.max or 0, *(choice.size for choice in self.choices)])

    def mean(self) -> float:
        if self.median is not None:
            return _mean_of_lognormal(self.median, self.sigma or 0.0, self.min or 0, self.largest)
        if self.choices:
            total = math.fsum(choice.weight for choice in self.choices)
            return math.fsum(choice.size * choice.weight for choice in self.choices) / total
        return float(self.exactly) if self.exactly is not None else ((self.min or 0) + (self.max or 0)) / 2

    def spec(self) -> dict[str, Any]:
        if self.median is not None:
            bounds = {"min": self.min or 0, "max": self.largest}
            return {"kind": "lognormal", "median": self.median, "sigma": self.sigma, **bounds}
        if self.choices:
            return {"kind": "weighted", "choices": [(choice.size, choice.weight) for choice in self.choices]}
        if self.exactly is not None:
            return {"kind": "fixed", "bytes": self.exactly}
        return {"kind": "uniform", "min": self.min, "max": self.max}


def _mean_of_lognormal(median: int, sigma: float, low: int, high: int) -> float:
    """Of a lognormal distribution whose values below ``low`` and above ``high`` become these.

    In between it is exp(μ + σ²/2) · (Φ(h - σ) - Φ(l - σ)), with h and l the bounds in deviations from μ; see
    N. Johnson, S. Kotz, N. Balakrishnan, "Continuous univariate distributions", volume 1, 1994, chapter 14.
    """
    if not median or not sigma:
        return float(median)
    above = math.log(high / median) / sigma
    below = math.log(low / median) / sigma if low else -math.inf
    between = median * math.exp(sigma**2 / 2) * (_phi(above - sigma) - _phi(below - sigma))
    return low * _phi(below) + between + high * _phi(-above)


def _phi(deviations: float) -> float:
    """The share of a normal distribution below so many deviations."""
    return math.erfc(-deviations / math.sqrt(2)) / 2


def _as_table(value: object) -> object:
    if isinstance(value, Mapping | FileSizes):
        return value
    if isinstance(value, list | tuple):
        return {"choices": value}
    return {"exactly": parse_size(value)}


def _table(required: Sequence[str] = (), **properties: object) -> dict[str, object]:
    need = {"required": list(required)} if required else {}
    return {"type": "object", "properties": properties, "additionalProperties": False, **need}


_SIZE: dict[str, object] = {"type": ["string", "integer"]}
_NUMBER = {"type": ["number", "string"]}
_CHOICES: dict[str, object] = {"type": "array", "items": _table(("size", "weight"), size=_SIZE, weight=_NUMBER)}
_SIZES = _table(exactly=_SIZE, min=_SIZE, max=_SIZE, median=_SIZE, sigma=_NUMBER, choices=_CHOICES)
Sizes = Annotated[
    FileSizes, BeforeValidator(_as_table), WithJsonSchema({"anyOf": [_SIZE, _CHOICES, _SIZES], "examples": ["4k"]})
]
"""In a study: ``"4k"``, ``{ min = …, max = … }``, ``{ median = …, sigma = … }``, or a list of sizes with weights."""


class Directories(Model):
    """Where the files lie: in a tree of directories, in those that have none below them."""

    depth: int = Field(1, ge=0, le=_DEPTH, description="Levels; 0: all files of a tree lie in one directory.")
    fan_out: int = Field(100, ge=1, le=MOST_DIRECTORIES, description="Directories in each directory.")
    shared: bool = Field(False, description="One tree for all workers, rather than one for each.")
    spread: Literal["sequential", "round-robin"] = Field(
        "sequential", description="The next file lies in the same directory until that has its share, or in the next."
    )

    def count(self, workers: int) -> int:
        in_one = sum(int(self.fan_out**level) for level in range(int(self.shared), self.depth + 1))
        return in_one * (1 if self.shared else workers)


Fsync = Annotated[
    Literal["none", "data", "file", "directory"],
    BeforeValidator(lambda value: {False: "none", True: "file"}[value] if isinstance(value, bool) else value),
    WithJsonSchema({"enum": [False, True, "none", "data", "file", "directory"]}),
]
"""What is made durable file by file; ``false`` and ``true`` stand for ``none`` and ``file``."""


def check_directories(directories: Directories, workers: int) -> None:
    if directories.count(workers) > MOST_DIRECTORIES:
        raise OptionError(
            f"depth {directories.depth}, fan_out {directories.fan_out} and {workers} workers make more than "
            f"{MOST_DIRECTORIES} directories",
            "directories",
        )
