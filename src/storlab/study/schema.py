"""The study file's schema: what a user may write, with defaults and descriptions.

``stack``, ``nodes``, ``workload``, ``probes`` and ``trial`` may hold ``{factor}`` anywhere, so here they stay unread;
once a cell's levels are put in, ``read_cells`` reads them with the models of layers, workloads and probes.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from storlab.nodes.vm.hardware import Hardware
from storlab.study.factors import label_of
from storlab.units import Duration, Share, parse_share, shown

DEFAULT_PROBES: dict[str, dict[str, Any]] = {"host-load": {}, "stalls": {}, "guests": {}}
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,62}")
WORD = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")


def _name(value: str) -> str:
    if not NAME.fullmatch(value):
        raise ValueError(f"{shown(value)} is no name: up to 63 letters, digits, - _ and ., beginning with a letter")
    return value


def _word(value: str) -> str:
    if not WORD.fullmatch(value):
        raise ValueError(f"{shown(value)} is no name: up to 63 letters, digits, - and _, beginning with a letter")
    return value


def _label(value: object) -> object:
    return label_of(value) if isinstance(value, int | float) else value


Label = Annotated[str, BeforeValidator(_label), WithJsonSchema({"type": ["string", "number", "boolean"]})]
"""A level's name; a level that is a number may be written as one."""

Name = Annotated[str, AfterValidator(_name)]
WordName = Annotated[str, AfterValidator(_word)]
"""Names that stand in braces, where a dot would mean a key of the level: ``{mode.direct}``."""

Whole = Annotated[int, Strict()]
"""``true`` and ``"5"`` are no numbers in TOML, so they are a slip here."""

Number = Annotated[float, Strict()]


def _more_than_none(value: float) -> float:
    if value <= 0:
        raise ValueError("a time-out must be longer than 0 s")
    return value


Timeout = Annotated[Duration, AfterValidator(_more_than_none)]


class Model(BaseModel):
    """Unknown keys are errors: a misspelt key that is ignored would measure something else than was meant."""

    model_config = ConfigDict(extra="forbid", frozen=True)


_PRECISION = r"^\s*(±|\+/-|\+-)?\s*\d+(\.\d+)?\s*%\s*$"
Until = Annotated[
    float | Literal["decided", "max"],
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": ["decided", "max"]},
                {"type": "string", "pattern": _PRECISION},
                {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
            ]
        }
    ),
]


class Repeat(Model):
    """When to stop repeating."""

    until: Until = Field(
        "decided",
        description='"±5%": until the interval of every comparison is that narrow. "decided": until every comparison '
        'has a verdict. "max": always max rounds.',
    )
    min: Whole = Field(5, ge=1, le=10_000, description="Rounds before it may stop.")
    max: Whole = Field(30, ge=1, le=10_000, description="Rounds at most.")

    @field_validator("until", mode="before")
    @classmethod
    def _read_until(cls, value: object) -> object:
        if isinstance(value, str) and value in ("decided", "max"):
            return value
        try:
            return parse_share(value)
        except ValueError:
            raise ValueError(f'{shown(value)} is none of "decided", "max" or a precision such as "±5%"') from None

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min = {self.min} is more than max = {self.max}")
        return self


class NodeGroup(Hardware):
    """Machines of one kind. A group of several is named NAME-1, NAME-2, …

    What a guest's machine consists of is for `kind = "vm"`, and for `"auto"` where that becomes a guest.
    """

    kind: Literal["local", "vm", "auto"] = Field(
        "local",
        description="`local`: this machine. `vm`: a virtual machine. `auto`: this machine where it has all that the "
        "disks made on it need, else a virtual machine.",
    )
    count: Whole = Field(1, ge=1, le=256, description="How many such nodes.")
    stack: Any = Field(None, description="The stack on these nodes, if not the study's.")
    disk: Any = Field(
        None,
        description="The stack that becomes each virtual machine's disk; `stack` goes on above it, inside. It may end "
        "with how it is attached: virtio-blk (the default), virtio-scsi or nvme.",
    )
    disk_on: Name | None = Field(None, description="The nodes that the disk is made on; by default this machine.")

    @model_validator(mode="after")
    def _no_hardware_here(self) -> Self:
        if self.kind == "local":
            given = [key for key in self.model_fields_set if key in Hardware.model_fields or key.startswith("disk")]
            if given:
                raise ValueError(f'{sorted(given)[0]} is for virtual machines: write kind = "vm", or leave it out')
        if self.kind == "auto" and self.count != 1:
            raise ValueError('nodes of kind "auto" serve others: there is one, so count = 1')
        return self


class Settle(Model):
    """What is done right before the measured phase."""

    sync: bool = Field(True, description="Write back what is dirty in the page cache, and wait for it.")
    drop_caches: bool = Field(True, description="Page cache, dentries and inodes; needs root, left out without.")
    wait: Duration = Field(0.0, description="Then do nothing for so long.")


class TimeoutRule(Model):
    """Another time-out for some cells."""

    where: dict[str, Label] = Field(description='Levels that a cell must have: { fs = "btrfs" }')
    timeout: Timeout = Field(description="Their time-out; of several rules that fit, the last one counts.")


Command = Annotated[tuple[str, ...], Field(min_length=1)]


class Trial(Model):
    """The phases of a trial: prepare, precondition, settle, warm-up, measure, verify."""

    workloads: tuple[str, ...] | None = Field(None, description="Which workloads run, all at once; by default all.")
    prepare: tuple[Command, ...] = Field((), description="Commands before anything else, each a list of words.")
    precondition: dict[str, Any] | None = Field(None, description="A workload that is run first and not measured.")
    settle: Settle = Field(Settle(), description="What is done right before the measured phase.")
    warm_up: Duration = Field(0.0, description="Beginning of the load that is not measured.")
    verify: tuple[Command, ...] = Field((), description="Commands afterwards; one that fails fails the trial.")
    timeout: Timeout = Field(600.0, description="A trial that takes longer is stopped and recorded as failed.")
    timeouts: tuple[TimeoutRule, ...] = Field((), description="Other time-outs for some cells.")
    keep_stacks: bool = Field(
        False, description="Keep stacks up between trials: faster, but each trial finds what the last one left."
    )


class Compare(Model):
    """Which levels to compare with each other."""

    factor: str | None = Field(None, description="By default the first factor.")
    pairs: Annotated[tuple[tuple[Label, Label], ...], Field(min_length=1)] | None = Field(
        None, description="By default all pairs of its levels."
    )
    within: bool = Field(True, description="Within each combination of the other factors.")
    pooled: bool = Field(True, description="Over all combinations of the other factors together.")
    metrics: Annotated[tuple[str, ...], Field(min_length=1)] | None = Field(
        None, description="By default the primary metric."
    )
    margin: Share = Field(0.05, description="Differences up to this do not matter: the verdict is `equivalent`.")


class StudyFile(Model):
    """A study: which storage set-ups to compare, under which load, on which machines."""

    schema_version: Literal[1] = Field(1, alias="schema", description="Version of this format.")
    title: str = Field(min_length=1, description="What it finds out, in one line.")
    description: str = Field("", description="More about it, in a sentence or two.")
    primary: str = Field("bandwidth", description="The metric that verdicts are about.")
    confidence: Number = Field(0.95, ge=0.5, le=0.9999, description="That no verdict of the study is false.")
    scratch: str = Field("/var/tmp", description="Where Storlab puts files of its own, on each node.")
    parameters: dict[WordName, str | int | float | bool] = Field(
        default_factory=dict, description="Values that --set changes: used as {name}, like factors."
    )
    profiles: dict[WordName, dict[WordName, str | int | float | bool]] = Field(
        default_factory=dict, description="Sets of values for parameters, by name; --set profile=NAME chooses one."
    )
    profile: str | None = Field(None, description="The profile whose values the parameters have.")
    factors: dict[WordName, Any] = Field(
        default_factory=dict, description="What varies: { levels = [...] }, or a table of name = value or stack."
    )
    nodes: dict[Name, dict[str, Any]] = Field(default_factory=dict, description="By default this machine, named host.")
    stack: Any = Field(None, description="Layers in order, lowest first; {factor} puts in a level.")
    workload: dict[Name, dict[str, Any]] = Field(min_length=1, description="The load, by name.")
    probes: dict[str, dict[str, Any]] = Field(
        default_factory=lambda: dict(DEFAULT_PROBES), description="What is observed, by name of the probe."
    )
    trial: dict[str, Any] = Field(default_factory=dict, description="The phases of a trial.")
    repeat: Repeat = Field(Repeat(), description="When to stop repeating.")
    compare: tuple[Compare, ...] = Field((Compare(),), description="Which levels to compare; [] compares nothing.")

    @field_validator("scratch")
    @classmethod
    def _absolute(cls, value: str) -> str:
        if not value.startswith("/") or ".." in value.split("/"):
            raise ValueError(f"{shown(value)} must be an absolute path, such as /var/tmp")
        return value.rstrip("/") or "/"
