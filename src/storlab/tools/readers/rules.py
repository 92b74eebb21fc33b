"""What a reader's file may hold: signatures, metrics, tables and samples; see ``docs/how-to/any-tool.md``."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal, Self

from pydantic import Field, Strict, ValidationError, field_validator, model_validator

from storlab.base import patterns
from storlab.base.limits import DOTS, NESTING
from storlab.base.patterns import PatternError, json_path
from storlab.base.reach import Choice, Metric, OwnName, Pattern, Prose
from storlab.base.units import shown
from storlab.metrics import Across, Better, MetricSpec, domain_of, rate_quantity
from storlab.model import Model
from storlab.tools.kinds import READERS
from storlab.tools.table.columns import UNITS

WORD = re.compile(r"\{([A-Za-z][\w-]*)\}")
_NAME = re.compile(r"[a-z][a-z0-9._-]*")
_TAIL = re.compile(r".*\.(?:max|p99(?:\.\d+)?)")
_LONGEST = 1 << 18  # characters of a reader
_TRIED = 200  # lines, to find the one at fault
_FOLDED = re.compile(r"\{.*\}")


class Measure(Model):
    """What a number is, wherever it stands."""

    name: Metric = Field(description="Name of the metric, such as `write.bandwidth`.")
    unit: Metric = Field(
        "1",
        min_length=1,
        description="Unit of the number: s, ms, us, ns; B, KiB, MB; these `/s`; 1/s, k/s; %; or 1. It is converted to "
        "s, B, B/s, 1/s or 1.",
    )
    scale: Annotated[float, Strict()] = Field(1.0, description="Factor from the program's number to one in this unit.")
    better: Better = Field("neither", description="Which values are better.")
    across: Across = Field("sum", description="How values of several nodes combine.")
    quantity: Literal["", "bytes read", "bytes written"] = Field(
        "", description="Bytes that the program asked to move, for amplification: bytes at the disk per byte."
    )

    @field_validator("scale")
    @classmethod
    def _finite(cls, scale: float) -> float:
        if not math.isfinite(scale) or scale == 0:
            raise ValueError(f"a scale is a finite number other than 0, not {scale:g}")
        return scale

    @property
    def base(self) -> str:
        return UNITS.get(self.unit, (1.0, self.unit))[1]

    @property
    def factor(self) -> float:
        """From the program's number to one in the base unit."""
        return self.scale * UNITS.get(self.unit, (1.0, self.unit))[0]

    def declared_as(self, name: str, *, series: bool = False) -> MetricSpec:
        """The metric. A rate of which more is better is one that nodes share."""
        quantity = self.quantity or rate_quantity(self.base, self.better)
        return MetricSpec(
            name,
            self.base,
            self.better,
            self.across,
            quantity,
            by_job=False,
            domain=domain_of(self.base),
            series=series and quantity == "throughput",
            tail=_TAIL.fullmatch(name) is not None,
        )


def valid_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{shown(name)} is not a valid name of a metric: small letters, digits, . - and _, as write.latency"
        )
    return name


def _regex(written: str) -> str:
    try:
        patterns.pattern(written)
    except PatternError as error:
        raise ValueError(f"{shown(written)} can't be a regular expression here: {error}") from None
    return written


def _json(written: str) -> str:
    try:
        json_path(written)
    except PatternError as error:
        raise ValueError(f"{shown(written)} can't be a JMESPath here: {error}") from None
    return written


def value_group(written: str) -> int:
    """The group that has the number: ``value``, or the only one without a name; 0 where there is no such one."""
    names = patterns.pattern(written).names
    unnamed = set(range(1, patterns.pattern(written).groups + 1)) - set(names.values())
    return names["value"] if "value" in names else unnamed.pop() if len(unnamed) == 1 else 0


class Rule(Measure):
    """A metric of a reader."""

    name: Metric = Field(
        description="Name of the metric. A word in braces is that group of the pattern, or that column of the row: "
        "`{device}.read.iops`."
    )
    regex: Pattern | None = Field(
        None,
        description="A regular expression of RE2. The group named `value`, or the only one without a name, is the "
        "number; `unit` its unit, if it varies; `per` what it is divided by; `t` the seconds since the start, of the "
        "samples of a series; others are words for `name`.",
    )
    json_path: Pattern | None = Field(None, alias="json", description="JMESPath to the number or numbers.")
    column: OwnName | None = Field(None, description="A column of the table.")
    table: OwnName = Field("", description="Which table, if there are several.")
    weight: OwnName | None = Field(
        None,
        description="Column by which a mean is weighted, such as the operations of a latency; without any, no value.",
    )
    per: Pattern | None = Field(None, description="JMESPath to a number by which this one is divided.")
    nonzero: bool = Field(False, description="Whether 0 means that nothing was measured.")
    across: Across = Field("sum", description="How values of several nodes combine; by default as the unit has it.")
    pick: Literal["only", "first", "last", "sum", "mean", "min", "max", "none"] = Field(
        "only", description="Which of several numbers of one name counts; `none`: they are samples of a series only."
    )

    @model_validator(mode="before")
    @classmethod
    def _across(cls, data: Any) -> Any:
        if not isinstance(data, dict) or "across" in data:
            return data
        name, base = str(data.get("name", "")), UNITS.get(str(data.get("unit", "1")), (1.0, ""))[1]
        across = name.rpartition(".")[2] if name.endswith((".min", ".max")) else "mean" if base in ("s", "1") else "sum"
        return {**data, "across": across}

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if [self.regex, self.json_path, self.column].count(None) != 2:
            raise ValueError(f"metric {self.name}: write one of regex, json and column")
        if not _NAME.fullmatch(WORD.sub("a", self.name)):
            valid_name(self.name)
        if (folded := self.folded) != self.name and not folded.replace("{case}", "").strip("."):
            raise ValueError(f"metric {self.name}: a word in braces needs a word beside it, as in {self.name}.iops")
        if self.regex is not None:
            _regex(self.regex)
            if not value_group(self.regex):
                raise ValueError(f"{shown(self.regex)} needs exactly one group, around the number, or one named value")
        for written in (self.json_path, self.per):
            if written is not None:
                _json(written)
        return self

    @property
    def words(self) -> list[str]:
        return WORD.findall(self.name)

    @property
    def folded(self) -> str:
        """The name of the family that its metrics are of, where the name has words."""
        return _FOLDED.sub("{case}", self.name)


class Table(Model):
    """Lines or objects that are rows, whose columns have names."""

    heading: Pattern | None = Field(None, description="A line with the names of columns; its group has them.")
    row: Pattern | None = Field(None, description="A line of the table; its group has the fields. Others end it.")
    separator: Choice = Field("", max_length=1, description="Between fields; by default any number of blanks.")
    json_path: Pattern | None = Field(None, alias="json", description="In JSON, what a table is made of for each.")
    rows: Pattern = Field("@", description="The row or rows in one of these.")
    time: Pattern | None = Field(
        None, description="When: in text a pattern, whose last match up to the row counts; in JSON a path in each."
    )
    drop_first: Prose = Field("", description="Why the first of several is left out, as a part of a sentence.")

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.heading is None) == (self.json_path is None):
            raise ValueError("a table has either heading or json")
        if (self.heading is None) != (self.row is None):
            raise ValueError("a table with heading needs row, the pattern of its lines")
        for written in (self.heading, self.row, self.time if self.heading is not None else None):
            if written is not None and patterns.pattern(_regex(written)).groups != 1:
                raise ValueError(f"{shown(written)} needs exactly one group")
        for written in () if self.json_path is None else (self.json_path, self.rows, self.time):
            if written is not None:
                _json(written)
        return self


class Sample(Model):
    """Some output of the tool, and what is right."""

    text: Prose = Field(description="The output.")
    values: dict[Metric, float] = Field(description="Metric → its right value, in base units.")
    settings: dict[OwnName, Prose] = Field(default_factory=dict, description="Settings that it says.")


class Reader(Model):
    """How a tool's output is read."""

    title: Prose = Field(description="What it reads, in a few words.")
    format: Literal["text", "json", "xml"] = Field(
        "text", description="Of XML, each element is an object that has a list of each kind of element in it."
    )
    source: OwnName = Field("stdout", alias="from", description="Where a `command` has it: stdout, stderr or a file.")
    signatures: tuple[Pattern, ...] = Field((), description="Patterns of what this tool alone prints.")
    each: Pattern | None = Field(
        None,
        description="Pattern of the line with which a run begins, if there may be several; or JMESPath to them.",
    )
    within: Pattern | None = Field(None, description="Pattern of headings, whose groups are words for what follows.")
    settings: dict[OwnName, Pattern] = Field(
        default_factory=dict,
        description="Setting → pattern or path of its value. Those that differ tell runs apart.",
    )
    factors: dict[OwnName, Prose] = Field(
        default_factory=dict,
        description='Factor → its level, with words in braces: `"record size" = "{reclen}k"`. On import, their part of '
        "a metric's name tells trials apart in its place.",
    )
    tables: dict[OwnName, Table] = Field(default_factory=dict, description="Tables, by a name of your own.")
    metrics: tuple[Rule, ...] = Field(min_length=1, description="What it measures; the first leads a report.")
    samples: tuple[Sample, ...] = Field((), description="What it must read right before it reads anything else.")

    @field_validator("signatures")
    @classmethod
    def _signatures(cls, written: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(_regex, written))

    @model_validator(mode="after")
    def _fits(self) -> Self:
        text = self.format == "text"
        for written in (self.each, *self.settings.values()):
            if written is not None:
                _ = _regex(written) if text else _json(written)
        if self.within is not None:
            _regex(self.within)
        if "/" in self.source or self.source.startswith(".") or not self.source.isprintable():
            raise ValueError(f"from: {shown(self.source)} must be a plain file name, or stdout or stderr")
        for rule in self.metrics:
            if text == (rule.json_path is not None) and rule.column is None:
                raise ValueError(f'metric {rule.name}: format = "{self.format}" has {"regex" if text else "json"}')
            if rule.column is not None and self.table_of(rule) is None:
                raise ValueError(f"metric {rule.name}: table is needed, one of: {', '.join(self.tables) or 'none'}")
            groups = set(patterns.pattern(rule.regex).names) if rule.regex is not None else set[str]()
            groups |= set(patterns.pattern(self.within).names) if self.within is not None else set()
            if rule.column is None and (unknown := sorted(set(rule.words) - groups)):
                raise ValueError(f"metric {rule.name}: {{{unknown[0]}}} is no group of its regex, nor of within")
        named = [rule.name for rule in self.metrics if rule.pick != "none" and rule.column is None]
        if twice := [name for name in named if not WORD.search(name) and named.count(name) > 1 and text]:
            raise ValueError(f"the metric {twice[0]} is listed twice")
        return self

    def table_of(self, rule: Rule) -> Table | None:
        return self.tables.get(rule.table) or (next(iter(self.tables.values())) if len(self.tables) == 1 else None)

    @property
    def declared(self) -> tuple[MetricSpec, ...]:
        """All that it may yield; where a name has words, the family of these."""
        found: dict[str, MetricSpec] = {}
        for rule in self.metrics:
            table = self.table_of(rule) if rule.column is not None else None
            timed = table is not None and table.time is not None
            found.setdefault(rule.folded, rule.declared_as(rule.folded, series=timed or rule.pick == "none"))
        return tuple(found.values())


@cache
def built_in(name: str) -> Reader:
    return Reader.model_validate(tomllib.loads((READERS / f"{name}.toml").read_text()))


def made(tree: Mapping[str, Any], text: str = "", file: str = "") -> Reader:
    """Raises ``ValueError`` with file, line and key, as far as there are any."""
    try:
        return Reader.model_validate(tree)
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        path = tuple(part for part in detail["loc"] if part != "[key]")
        said = str(detail.get("ctx", {}).get("error", "")) or _plainly(detail["type"], detail["msg"])
        where = ".".join(map(str, path)) if text else ""
        said = f"{_line(text, path)}{where}{': ' if where else ''}{said}"
        raise ValueError(f"{file}: {said}" if file else said) from None


def reader_of(text: str, file: str) -> Reader:
    """The reader in a file of a user's. Raises ``ValueError`` with file, line and key."""
    try:
        if len(text) > _LONGEST or any(line.count(".") > DOTS for line in text.split("\n")):
            raise ValueError("it is too long")
        tree = tomllib.loads(text)
        if _depth(tree) > NESTING:
            raise ValueError("it is nested too deeply")
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file}: no reader in TOML: {str(error) or 'it is nested too deeply'}") from None
    return made(tree, text, file)


def _plainly(kind: str, said: str) -> str:
    known = {"extra_forbidden": "this key is unknown", "missing": "this key is missing"}
    return known.get(kind, f"{said[:1].lower()}{said[1:]}")


def _depth(value: object) -> int:
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return 1 + max(map(_depth, inner), default=0)


def _line(text: str, path: tuple[str | int, ...]) -> str:
    """The line up to which a file must be read to have the key, or what it is missing in; nothing in a list on lines
    of its own.
    """
    lines = text.splitlines(keepends=True)
    for depth in range(len(path), 0, -1):
        named = next((str(part) for part in reversed(path[:depth]) if isinstance(part, str)), "")
        for end in [end for end, line in enumerate(lines, start=1) if named in line][:_TRIED]:
            try:
                here: Any = tomllib.loads("".join(lines[:end]))
                for part in path[:depth]:
                    here = here[part]
            except (ValueError, LookupError, TypeError):
                continue
            return f"line {end}: "
    return ""
