"""The study file's schema: what a user may write, with defaults and descriptions.

``stack``, ``workload``, ``probes`` and ``trial`` may hold ``{factor}`` anywhere, so here they stay unread; once a
cell's levels are put in, ``cells`` reads them with the models of layers, workloads and probes.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from storlab.units import Duration, Share, parse_share

DEFAULT_PROBES: dict[str, dict[str, Any]] = {"host-load": {}, "stalls": {}}
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,62}")


def _name(value: str) -> str:
    if not NAME.fullmatch(value):
        raise ValueError(f"{value!r} is no name: letters, digits, '-', '_' and '.', beginning with a letter")
    return value


Name = Annotated[str, AfterValidator(_name)]


class Model(BaseModel):
    """Unknown keys are errors: a misspelt key that is ignored would measure something else than was meant."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class Repeat(Model):
    """When to stop repeating."""

    until: float | Literal["decided", "max"] = Field(
        "decided",
        description='"±5%": until the interval of every comparison is that narrow. "decided": until every comparison '
        'has a verdict. "max": always max rounds.',
    )
    min: int = Field(5, ge=1, le=10_000, description="Rounds before it may stop.")
    max: int = Field(30, ge=1, le=10_000, description="Rounds at most.")

    @field_validator("until", mode="before")
    @classmethod
    def _read_until(cls, value: object) -> object:
        if value in ("decided", "max"):
            return value
        try:
            return parse_share(value)
        except ValueError:
            raise ValueError(f'{value!r} is none of "decided", "max" or a precision such as "±5%"') from None

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min = {self.min} is more than max = {self.max}")
        return self


class NodeGroup(Model):
    """Machines of one kind. A group of several is named NAME-1, NAME-2, …"""

    kind: str = Field("local", description="`local`: this machine.")
    count: int = Field(1, ge=1, le=256)
    stack: Any = Field(None, description="The stack on these nodes, if not the study's.")


class Settle(Model):
    """What is done right before the measured phase."""

    sync: bool = True
    drop_caches: bool = Field(True, description="Page cache, dentries and inodes; needs root, left out without.")
    wait: Duration = 0.0


class TimeoutRule(Model):
    """Another time-out for some cells."""

    where: dict[str, str] = Field(description='Levels that a cell must have: { fs = "btrfs" }')
    timeout: Duration


class Trial(Model):
    """The phases of a trial: prepare, precondition, settle, warm-up, measure, verify."""

    workloads: tuple[str, ...] | None = Field(None, description="Which workloads run, all at once; by default all.")
    prepare: tuple[tuple[str, ...], ...] = Field((), description="Commands before anything else, each a list of words.")
    precondition: dict[str, Any] | None = Field(None, description="A workload that is run first and not measured.")
    settle: Settle = Settle()
    warm_up: Duration = Field(0.0, description="Beginning of the load that is not measured.")
    verify: tuple[tuple[str, ...], ...] = Field((), description="Commands afterwards; one that fails fails the trial.")
    timeout: Duration = Field(600.0, description="A trial that takes longer is stopped and recorded as failed.")
    timeouts: tuple[TimeoutRule, ...] = ()
    keep_stacks: bool = Field(
        False, description="Keep stacks up between trials: faster, but each trial finds what the last one left."
    )


class Compare(Model):
    """Which levels to compare with each other."""

    factor: str | None = Field(None, description="By default the first factor.")
    pairs: tuple[tuple[str, str], ...] | None = Field(None, description="By default all pairs of its levels.")
    within: bool = Field(True, description="Within each combination of the other factors.")
    pooled: bool = Field(True, description="Over all combinations of the other factors together.")
    metrics: tuple[str, ...] | None = Field(None, description="By default the primary metric.")
    margin: Share = Field(0.05, description="Differences up to this do not matter: the verdict is `equivalent`.")


class StudyFile(Model):
    """A study: which storage set-ups to compare, under which load, on which machines."""

    schema_version: Literal[1] = Field(1, alias="schema", description="Version of this format.")
    title: str = Field(min_length=1)
    description: str = ""
    primary: str = Field("bandwidth", description="The metric that verdicts are about.")
    confidence: float = Field(0.95, ge=0.5, le=0.9999, description="That no verdict of the study is false.")
    scratch: str = Field("/var/tmp", description="Where Storlab puts files of its own, on each node.")
    parameters: dict[Name, str | int | float | bool] = Field(
        default_factory=dict, description="Values that --set changes: used as {name}, like factors."
    )
    factors: dict[Name, Any] = Field(
        default_factory=dict, description="What varies: { levels = [...] }, or a table of name = value or stack."
    )
    nodes: dict[Name, NodeGroup] = Field(default_factory=dict, description="By default this machine, named host.")
    stack: Any = Field(None, description="Layers in order, lowest first; {factor} puts in a level.")
    workload: dict[Name, dict[str, Any]] = Field(min_length=1, description="The load, by name.")
    probes: dict[str, dict[str, Any]] = Field(
        default_factory=lambda: dict(DEFAULT_PROBES), description="What is observed, by name of the probe."
    )
    trial: dict[str, Any] = Field(default_factory=dict, description="The phases of a trial.")
    repeat: Repeat = Repeat()
    compare: tuple[Compare, ...] = (Compare(),)

    @field_validator("scratch")
    @classmethod
    def _absolute(cls, value: str) -> str:
        if not value.startswith("/") or ".." in value.split("/"):
            raise ValueError(f"{value!r} must be an absolute path")
        return value.rstrip("/") or "/"

    @field_validator("nodes")
    @classmethod
    def _host_is_this_machine(cls, nodes: dict[str, NodeGroup]) -> dict[str, NodeGroup]:
        host = nodes.get("host")
        if host is not None and (host.kind != "local" or host.count != 1):
            raise ValueError("the name host means this machine, once: call this group something else")
        return nodes
