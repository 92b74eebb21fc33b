"""The result of the analysis, as data: what ``summary.json`` holds and every report renders.

All numbers are in base units. ``low`` and ``high`` are the ends of an interval at the stated confidence; they
are null where the data allow none. ``warnings`` are whole sentences, which travel with the number they
qualify.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import msgspec
import orjson

from storlab.analysis.block_io import BlockIO
from storlab.analysis.effects import Effects
from storlab.analysis.latencies import Distribution
from storlab.errors import ParseError

Verdict = Literal["better", "worse", "equivalent", "undecided"]
"""Of level ``a`` against level ``b``. ``better`` respects the metric's direction."""

HOST = "host"
"""The node that is the machine where Storlab runs; it is there in every run."""

CellStatus = Literal["measured", "partly failed", "failed", "unsupported", "not run"]


@dataclass(frozen=True)
class CellState:
    """What became of one cell: one combination of levels."""

    cell: int
    levels: dict[str, str]
    status: CellStatus
    rounds: int  # trials done
    failed: int = 0
    reasons: tuple[str, ...] = ()  # why unsupported or failed, each reason once


@dataclass(frozen=True)
class Estimate:
    """One metric of one cell over its rounds: all jobs together, and all nodes, or the one that ``node`` names."""

    cell: int
    levels: dict[str, str]
    source: str  # workload or probe
    metric: str
    unit: str
    better: str
    rounds: int
    median: float
    mean: float
    sd: float | None  # sample standard deviation (n − 1) over rounds; null for one round
    cv: float | None  # sd ÷ mean
    low: float | None  # interval of the mean
    high: float | None
    confidence: float
    warnings: tuple[str, ...] = ()
    node: str | None = None  # null: all nodes together


@dataclass(frozen=True)
class Comparison:
    """Level ``a`` against level ``b`` of one factor, paired by round."""

    factor: str
    a: str
    b: str
    within: dict[str, str]  # levels of the other factors; empty where pooled
    pooled: bool  # over all combinations of the other factors
    source: str
    metric: str
    unit: str
    better: str
    rounds: int  # pairs
    ratio: float | None  # a ÷ b: exp of the mean log ratio
    low: float | None
    high: float | None
    confidence: float  # of this interval, after correction for the number of comparisons
    margin: float  # equivalent: the whole interval lies within 1/(1+margin) … 1+margin
    verdict: Verdict
    reason: str  # one sentence: why this verdict, or why none
    rounds_to_decide: int | None = None  # how many more are expected to be needed; null: unknown or none
    warnings: tuple[str, ...] = ()
    settled: bool = False  # no more rounds are needed: decided, or there can be no verdict


@dataclass(frozen=True)
class Summary:
    """Everything that a report says about numbers."""

    title: str
    primary: str
    confidence: float  # family-wise, over all comparisons
    rounds_done: int
    stopped: str  # one sentence: why the run ended when it did
    cells: tuple[CellState, ...] = ()
    estimates: tuple[Estimate, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    warnings: tuple[str, ...] = ()
    method: str = ""  # how intervals and verdicts were made, one paragraph for the reader
    facts: dict[str, object] = field(default_factory=dict)  # of JSON's types only
    family: int = 1  # number of comparisons that the intervals are corrected for
    by_node: tuple[Estimate, ...] = ()  # what nodes are seen side by side for; each with its node
    block_io: tuple[BlockIO, ...] = ()  # block requests as the kernel issued them, where they were counted
    effects: tuple[Effects, ...] = ()  # of factors, where two or more vary; only in summaries of runs that ended
    distributions: tuple[Distribution, ...] = ()  # of latencies, over all rounds, nodes and jobs, and of each node


def to_json(summary: Summary) -> bytes:
    """``summary`` as indented UTF-8 JSON, which ``from_json`` reads back exactly.

    Raises ``ValueError`` where a number is NaN or infinite, which JSON can't hold.
    """
    _require_finite(summary.facts, "facts")
    kinds = {"estimates": summary.estimates, "comparisons": summary.comparisons, "by_node": summary.by_node}
    for kind, rows in kinds.items():
        for index, row in enumerate(rows):
            for name, value in vars(row).items():
                if isinstance(value, float) and not math.isfinite(value):
                    raise ValueError(_unfit(f"{kind}[{index}].{name}", value))
    return orjson.dumps(summary, option=orjson.OPT_INDENT_2) + b"\n"


def from_json(text: bytes | str, source: str = "summary.json") -> Summary:
    """What ``to_json`` wrote. Raises ``ParseError`` (naming ``source``) for anything else."""
    try:
        return msgspec.json.decode(text, type=Summary)
    except msgspec.MsgspecError as error:
        raise ParseError(f"not a summary of this version of Storlab: {error}", source) from None


def _require_finite(value: object, where: str) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(_unfit(where, value))
    if isinstance(value, dict):
        for key, inner in value.items():
            _require_finite(inner, f"{where}.{key}")
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            _require_finite(inner, f"{where}[{index}]")


def _unfit(where: str, value: float) -> str:
    return f"{where} is {value}, which JSON can't hold: leave it null"
