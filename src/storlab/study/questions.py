"""What a study asks: which levels it compares, and claims that it tests by name; and whether its cells can answer."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, Strict, WithJsonSchema, field_validator, model_validator

from storlab.base.levels import numbers_of
from storlab.base.reach import Choice, Metric, OwnName, Prose
from storlab.base.units import Share, shown
from storlab.model import Model
from storlab.study.factors import label_of
from storlab.study.messages import no_level, unknown
from storlab.study.toml_text import Path

Report = Callable[[Path, str], None]


def _label(value: object) -> object:
    return label_of(value) if isinstance(value, int | float) else value


Label = Annotated[OwnName, BeforeValidator(_label), WithJsonSchema({"type": ["string", "number", "boolean"]})]
"""A level's name; a level that is a number may be written as one."""

Levels = dict[OwnName, Label]
_LEVEL = {"type": ["string", "number", "boolean"]}
SomeLevels = Annotated[
    tuple[Label, ...],
    BeforeValidator(lambda value: value if isinstance(value, list) else [value]),
    WithJsonSchema({"anyOf": [_LEVEL, {"type": "array", "items": _LEVEL}]}),
]
Number = Annotated[float, Strict()]


class Compare(Model):
    """Which levels to compare with each other."""

    factor: OwnName | None = Field(
        None, description="By default the first factor that is no sweep. A sweep has three or more levels, all numbers."
    )
    pairs: Annotated[tuple[tuple[Label, Label], ...], Field(min_length=1)] | None = Field(
        None, description="By default all pairs of its levels."
    )
    at: Levels | None = Field(
        None,
        min_length=1,
        description="Only at these levels of other factors: metrics that are meant of one load, say.",
    )
    within: bool = Field(
        True,
        description="Within each combination of the other factors; by default of those that are no sweeps, over which "
        "it is pooled.",
    )
    pooled: bool = Field(True, description="Over all combinations of the other factors together.")
    metrics: Annotated[tuple[Metric, ...], Field(min_length=1)] | None = Field(
        None, description="By default the primary metric."
    )
    margin: Share | None = Field(
        None,
        description="Differences up to this do not matter: the verdict is `equivalent`. By default 1 % for counts "
        "(bytes, requests, shares of them), 10 % for rates, times and means, 25 % for tails (p99 and beyond, maxima).",
    )
    native: bool = Field(
        False,
        description="Judge only where no guest is emulated; elsewhere show ratios and intervals, and judge nothing: "
        "rates there are the emulator's.",
    )


_EXPECTED = re.compile(r"(more|less) than ([0-9]{1,9}(?:\.[0-9]{1,9})?) ?[x×]", re.ASCII)
_WORDS: dict[str, Literal["more", "less", "equivalent"]] = {
    "more": "more",
    "less": "less",
    "equivalent": "equivalent",
}
_FORMS = "more, less, equivalent, more than 2x, less than 0.5x"
_COMPARES, _MEASURES = ("left", "right", "expect"), ("between", "below", "above")
Amount = Choice | Number
"""A limit: "5ms", "200MiB/s", or a number in the unit of the metric."""


def read_expected(text: str) -> tuple[Literal["more", "less", "equivalent"], float]:
    """What ``left`` ÷ ``right`` is said to be: above or below a limit, or about 1. Raises ``ValueError``."""
    if text in _WORDS:
        return _WORDS[text], 1.0
    found = _EXPECTED.fullmatch(text)
    if found is None:
        raise ValueError(f"{shown(text)} is none of: {_FORMS}")
    limit = float(found[2])
    if found[1] == "more":
        if limit < 1:
            raise ValueError(f'more than {found[2]}x may be less: write 1x or more, or "less than …"')
        return "more", limit
    if not 0 < limit <= 1:
        raise ValueError(f"less than {found[2]}x is not less: write 1x or less, such as 0.5x")
    return "less", limit


class Claim(Model):
    """Something that somebody said, which the report answers: it holds, it does not hold, or it is undecided.

    Of two levels, by ``left``, ``right``, ``expect``; or of a metric's value, by ``below``, ``above``, ``between``.
    """

    name: Prose = Field("", max_length=300, description="The claim in one sentence; by default made of the other keys.")
    source: Prose = Field("", max_length=300, description="Who says so, and where.")
    metric: Metric | None = Field(None, description="By default the primary metric.")
    left: Levels | None = Field(
        None, min_length=1, description='Levels of one side: { transport = "iscsi" }. Factors left out are pooled.'
    )
    right: Levels | None = Field(None, min_length=1, description="Those of the other: the same but for one level.")
    expect: Choice | None = Field(
        None,
        description="How left compares with right: `more`, `less`, `equivalent`, `more than 2x` or `less than 0.5x`.",
    )
    margin: Share | None = Field(
        None, description="For `equivalent`: differences up to this do not matter. By default as in `compare`."
    )
    native: bool = Field(
        False, description="Answer only where no guest is emulated, as `native` of `compare`: for claims about rates."
    )
    at: Levels | None = Field(
        None,
        min_length=1,
        description="Levels of the cells whose value is meant; by default all, each by itself.",
    )
    below: Amount | None = Field(
        None,
        description='Its value is below this: "10ms", "200MiB/s", or a number in the unit of the metric.',
    )
    above: Amount | None = Field(None, description="Its value is above this.")
    between: tuple[Amount, Amount] | None = Field(
        None, description='The value lies in this range: `[1.9, 2.1]`, `["1ms", "5ms"]`; `inf` for no upper end.'
    )

    @field_validator("expect")
    @classmethod
    def _can_be_read(cls, value: str | None) -> str | None:
        if value is not None:
            read_expected(value)
        return value

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        compares, measures = ([getattr(self, key) is not None for key in keys] for keys in (_COMPARES, _MEASURES))
        if not (all(compares) and not any(measures) and self.at is None) and not (
            sum(measures) == 1 and not any(compares)
        ):
            raise ValueError(
                "a claim has either left, right and expect, or one of below, above and between (and at, if it is not "
                "about all cells)"
            )
        low, high = self.range
        if not isinstance(low, str) and not isinstance(high, str) and not low < high:
            raise ValueError(f"between = {shown([low, high])}: its first number must be the smaller one")
        if self.margin is not None and self.expect != "equivalent":
            raise ValueError('margin is for expect = "equivalent"; write "more than 1.1x" for a limit')
        return self

    def title(self, primary: str) -> str:
        """Its name, or what it says of the metric, which is the ``primary`` one unless it names another."""
        if self.name:
            return self.name
        sides = " against ".join(", ".join(f"{name}={level}" for name, level in side.items()) for _, side in self.sides)
        key = next((key for key in _MEASURES if getattr(self, key) is not None), "")
        ends = self.between or (self.below, self.above)
        limit = f"{key} {' and '.join(f'{end}'.removesuffix('.0') for end in ends if end is not None)}"
        return f"{', '.join(filter(None, (self.metric or primary, sides)))} {self.expect or limit}"

    @property
    def range(self) -> tuple[str | float, str | float]:
        """Of a claim about a value: its ends as they are written, infinite if there is none."""
        if self.between is not None:
            return self.between
        return (-math.inf if self.above is None else self.above, math.inf if self.below is None else self.below)

    @property
    def sides(self) -> Iterator[tuple[str, Levels]]:
        for key in ("left", "right", "at"):
            if (levels := getattr(self, key)) is not None:
                yield key, levels


class Objective(Model):
    """What a metric should stay below or above: up to which level of a sweep, or without one, does it in each cell?"""

    metric: Metric = Field(description="Such as `latency.p99`, or `LOAD:latency.p99` of one load.")
    below: Amount | None = Field(None, description='The limit: "5ms", "100M", or a number in the unit of the metric.')
    above: Amount | None = Field(None, description="Instead of `below`: the metric should stay above this.")
    factor: OwnName | None = Field(
        None,
        description="Along which factor; its levels are numbers. By default the first sweep of "
        "a load (iodepth, numjobs, threads, clients, rate, a count of nodes), or else the first. In a study without a "
        "sweep it is asked of each cell, like a claim.",
    )

    @model_validator(mode="after")
    def _one_limit(self) -> Self:
        if (self.below is None) == (self.above is None):
            raise ValueError('write either below = "5ms" or above = 1000')
        limit = self.limit
        if not isinstance(limit, str) and not 0 < limit < math.inf:
            raise ValueError(f"the limit is {limit:g}; it must be above 0")
        return self

    @property
    def limit(self) -> str | float:
        limit = self.above if self.below is None else self.below
        assert limit is not None
        return limit

    @property
    def as_claim(self) -> Claim:
        side = "above" if self.below is None else "below"
        name = f"{self.metric} stays {side} {self.limit}"
        return Claim.model_validate({"name": name, "metric": self.metric, side: self.limit})


def check_objectives(objectives: Sequence[Objective], levels: Mapping[str, Sequence[str]], report: Report) -> None:
    """Report objectives along a factor that is none, or whose levels are no numbers."""
    for index, objective in enumerate(objectives):
        path: Path = ("slo", index)
        if objective.factor is None:
            continue
        if objective.factor not in levels:
            report((*path, "factor"), unknown(f"factor {objective.factor!r}", objective.factor, levels))
        elif numbers_of(levels[objective.factor]) is None:
            report((*path, "factor"), f"the levels of {objective.factor} are not numbers: a limit needs steps to cross")


def check_levels(
    asked: Mapping[str, str | Sequence[str]],
    levels: Mapping[str, Sequence[str]],
    possible: Mapping[str, Sequence[str]],
    path: Path,
    report: Report,
) -> None:
    """Report factors and levels that the study has with no choice of parameters."""
    for factor, several in asked.items():
        if factor not in levels:
            report((*path, factor), unknown(f"factor {factor!r}", factor, levels))
            continue
        for level in [several] if isinstance(several, str) else several:
            if level not in levels[factor] and level not in possible.get(factor, ()):
                report((*path, factor), no_level(factor, level, levels[factor]))


def check_claims(
    claims: Sequence[Claim],
    levels: Mapping[str, Sequence[str]],
    possible: Mapping[str, Sequence[str]],
    report: Report,
) -> None:
    """Report claims that no choice of parameters could answer. ``possible``: levels with other parameters, too."""
    names: set[str] = set()
    for index, claim in enumerate(claims):
        path: Path = ("claim", index)
        if claim.name and claim.name in names:
            report((*path, "name"), "this is claimed already")
        names.add(claim.name)
        for key, side in claim.sides:
            check_levels(side, levels, possible, (*path, key), report)
        left, right = claim.left or {}, claim.right or {}
        differing = [factor for factor in left if left[factor] != right.get(factor)]
        wrong = ""
        if alone := sorted(set(left) ^ set(right)):
            wrong = f"must name the same factors, and one of them lacks {', '.join(alone)}"
        elif left and not differing:
            wrong = "are the same levels"
        elif len(differing) > 1:
            wrong = f"may differ in one factor, not in {' and '.join(differing)}"
        if wrong:
            report((*path, "right"), f"left and right {wrong}")
