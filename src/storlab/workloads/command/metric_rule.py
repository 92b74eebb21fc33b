"""Where in a program's output a metric stands: a regular expression or a JMESPath, and what is made of it."""

from __future__ import annotations

import math
import re
from typing import Annotated, Literal, Self

import jmespath
import orjson
from jmespath.exceptions import JMESPathError
from pydantic import BaseModel, ConfigDict, Field, Strict, field_validator, model_validator

from storlab.errors import ParseError
from storlab.measurements import Across, Better
from storlab.metrics import MetricSpec, rate_quantity
from storlab.units import shown
from storlab.workloads.base import OptionError

_NAME = re.compile(r"[a-z][a-z0-9._-]*")
_ENDLESS = re.compile(r"\((?:\?:)?(?:\\.|\[[^\]]*\]|[^\\()\[\]|])[+*]\)[+*]")
"""``(a+)+``: takes time exponential in the length of what almost matches."""


class MetricRule(BaseModel):
    """Where in the program's output a number stands, and what it is."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(description="Name of the metric, such as `write.bandwidth`.")
    regex: str | None = Field(
        None, description="The first group is the number; several matches are combined by `pick`."
    )
    json_path: str | None = Field(None, alias="json", description="JMESPath into a JSON document.")
    unit: str = Field("1", min_length=1, description="Base unit after scaling: B/s, 1/s, s, B, or 1.")
    scale: Annotated[float, Strict()] = Field(1.0, description="Factor from the program's unit to the base unit.")
    better: Better = Field("neither", description="Which values are better.")
    across: Across = Field("sum", description="How values of several nodes combine.")
    quantity: Literal["", "bytes read", "bytes written"] = Field(
        "", description="Bytes that the program asked to be moved, for amplification: the bytes at the disk for each."
    )
    pick: Literal["only", "first", "last", "sum", "mean", "min", "max"] = Field(
        "only", description="Which of several matches counts; `only`: exactly one must match."
    )
    source: str = Field("stdout", alias="from", description="stdout, stderr, or a file that it left in its folder.")

    @field_validator("name")
    @classmethod
    def _plain_name(cls, name: str) -> str:
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"{shown(name)} is not a valid name of a metric: small letters, digits, . - and _, as write.latency"
            )
        return name

    @field_validator("scale")
    @classmethod
    def _finite(cls, scale: float) -> float:
        if not math.isfinite(scale) or scale == 0:
            raise ValueError(f"a scale is a finite number other than 0, not {scale:g}")
        return scale

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.regex is None) == (self.json_path is None):
            raise ValueError(f"metric {self.name}: write either regex or json, one of them")
        if self.regex is not None:
            _check_regex(self.regex)
        if self.json_path is not None:
            try:
                jmespath.compile(self.json_path)
            except JMESPathError as error:
                reason = str(error).splitlines()[0].removesuffix(", for expression:")
                raise OptionError(f"{shown(self.json_path)} is no JMESPath: {reason}", "json") from None
        if not self.source or "/" in self.source or self.source.startswith(".") or not self.source.isprintable():
            raise OptionError(f"{shown(self.source)} must be a plain file name, or stdout or stderr", "from")
        return self

    @property
    def declared(self) -> MetricSpec:
        """The metric. A rate of which more is better is one that nodes share."""
        quantity = self.quantity or rate_quantity(self.unit, self.better)
        return MetricSpec(self.name, self.unit, self.better, self.across, quantity, by_job=False)

    def read(self, text: str, source: str) -> float:
        """The number, in base units. Raises ``ParseError`` where it is not there."""
        numbers = self._by_regex(text, source) if self.regex is not None else self._by_json(text, source)
        if not numbers:
            raise ParseError(f"metric {self.name}: {shown(self.regex or self.json_path)} matches nothing", source)
        if self.pick == "only" and len(numbers) > 1:
            raise ParseError(
                f'metric {self.name}: {len(numbers)} matches; say which by pick = "last" or another', source
            )
        number = _picked(self.pick, numbers) * self.scale
        if not math.isfinite(number):
            raise ParseError(f"metric {self.name}: {number} is no finite number", source)
        return number

    def _by_regex(self, text: str, source: str) -> list[float]:
        assert self.regex is not None
        found = []
        for match in re.finditer(self.regex, text, re.MULTILINE):
            try:
                found.append(float((match[1] or "").replace(",", "")))
            except ValueError:
                raise ParseError(f"metric {self.name}: the match {shown(match[1])} is not a number", source) from None
        return found

    def _by_json(self, text: str, source: str) -> list[float]:
        try:
            assert self.json_path is not None
            found = jmespath.search(self.json_path, orjson.loads(text))
        except (orjson.JSONDecodeError, JMESPathError) as error:
            raise ParseError(f"metric {self.name}: {str(error).splitlines()[0]}", source) from None
        values = found if isinstance(found, list) else [] if found is None else [found]
        if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
            where = shown(self.json_path)
            raise ParseError(f"metric {self.name}: {where} gives {shown(found)}, which is not a number", source)
        return [float(value) for value in values]


def _check_regex(regex: str) -> None:
    try:
        groups = re.compile(regex, re.MULTILINE).groups
    except (re.error, RecursionError, OverflowError) as error:
        raise OptionError(f"{shown(regex)} is no regular expression: {error}", "regex") from None
    if groups != 1:
        raise OptionError(f"{shown(regex)} needs exactly one group, around the number; (?:…) is none", "regex")
    if slow := _ENDLESS.search(regex):
        raise OptionError(f"{shown(slow[0])} repeats a repetition, which can take for ever: leave out one", "regex")


def _picked(pick: str, numbers: list[float]) -> float:
    match pick:
        case "last":
            return numbers[-1]
        case "sum":
            return sum(numbers)
        case "mean":
            return sum(numbers) / len(numbers)
        case "min":
            return min(numbers)
        case "max":
            return max(numbers)
        case _:
            return numbers[0]
