"""The study file's schema: what a user may write, with defaults and descriptions.

``stack``, ``nodes``, ``network``, ``workload``, ``probes`` and ``trial`` may hold ``{factor}`` anywhere, so here they
stay unread; once a cell's levels are put in, ``read_cells`` reads them with the models of layers, workloads and probes.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    Strict,
    WithJsonSchema,
    create_model,
    field_validator,
    model_validator,
)

from storlab.base.limits import DISKS, GROUP_NODES, ROUNDS
from storlab.base.limits import NAME as LONGEST_NAME
from storlab.base.reach import Command, Device, Metric, OwnName, Prose, Tree, WritesFile
from storlab.base.units import Duration, parse_share, shown
from storlab.layers.base import Keep
from storlab.layers.block.device import OF_LAB
from storlab.metrics import WHISKERS
from storlab.model import Model
from storlab.nodes.kind import NodeKind
from storlab.nodes.settings import Settings
from storlab.nodes.shaping.keys import Tcp
from storlab.registry import node_kinds, own_keys
from storlab.study.questions import Claim, Compare, Label, Objective, SomeLevels

HOST = "host"
"""This machine, as a node."""

DEFAULT_PROBES: dict[str, dict[str, Any]] = {"host-load": {}, "stalls": {}, "processes": {}}
NAME = re.compile(rf"[A-Za-z][A-Za-z0-9_.-]{{0,{LONGEST_NAME - 1}}}")
WORD = re.compile(rf"[A-Za-z][A-Za-z0-9_-]{{0,{LONGEST_NAME - 1}}}")


def _checked(value: str, pattern: re.Pattern[str], signs: str) -> str:
    if not pattern.fullmatch(value):
        raise ValueError(
            f"{shown(value)} is not a valid name: at most {LONGEST_NAME} letters, digits, {signs}, a letter first"
        )
    return value


Name = Annotated[OwnName, AfterValidator(lambda value: _checked(value, NAME, "- _ and ."))]
WordName = Annotated[OwnName, AfterValidator(lambda value: _checked(value, WORD, "- and _"))]
"""Names that stand in braces, where a dot would mean a key of the level: ``{mode.direct}``."""

Whole = Annotated[int, Strict()]
"""``true`` and ``"5"`` are no numbers in TOML, so they are a slip here."""

Number = Annotated[float, Strict()]


def _more_than_none(value: float) -> float:
    if value <= 0:
        raise ValueError("a time-out must be longer than 0 s")
    return value


Timeout = Annotated[Duration, AfterValidator(_more_than_none)]


def _as_slice(value: float) -> float:
    if not _SHORTEST_SLICE <= value <= _LONGEST_SLICE:
        raise ValueError(f"a slice lasts from {_SHORTEST_SLICE:g} s to {_LONGEST_SLICE:g} s, such as 0.25 s")
    return value


_SHORTEST_SLICE, _LONGEST_SLICE = 0.05, 60.0
Slice = Annotated[Duration, AfterValidator(_as_slice)]

_PRECISION = r"^\s*(±|\+/-|\+-)?\s*\d+(\.\d+)?\s*%\s*$"
_UNTIL = [
    {"enum": ["decided", "steady", "max"]},
    {"type": "string", "pattern": _PRECISION},
    {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
]
Until = Annotated[float | Literal["decided", "steady", "max"], WithJsonSchema({"anyOf": _UNTIL})]


Plain = OwnName | int | float | bool
Parameter = Plain | list[Plain]


class Repeat(Model):
    """When to stop repeating."""

    until: Until = Field(
        "decided",
        description='"±5%": until the interval of every comparison is that narrow. "decided": until every comparison '
        'has a verdict. Cells rest once no open comparison needs them. "max": always max rounds of every cell. For a '
        "study with sweeps only, the same for every point of its primary metric; decided is then ±10%. "
        '"steady": until the last five rounds of every point of the primary metric are in steady state, as SNIA '
        "defines it: their range is at most 20 % of their mean, their slope at most 10 %. Only rounds in steady state "
        "are reported, and nothing is judged before.",
    )
    min: Whole = Field(5, ge=1, le=ROUNDS, description="Rounds before it may stop.")
    max: Whole = Field(30, ge=1, le=ROUNDS, description="Maximum number of rounds.")
    aim: Literal["large differences", "small differences"] | None = Field(
        None,
        description="What the evidence is tuned to: most of it to the last round, which finds smaller differences, or "
        "half of it, which finds large ones a round sooner. By default small ones, for 30 rounds or more and a margin "
        "of at most 3 %.",
    )

    @field_validator("until", mode="before")
    @classmethod
    def _read_until(cls, value: object) -> object:
        if isinstance(value, str) and value in ("decided", "steady", "max"):
            return value
        try:
            return parse_share(value)
        except ValueError:
            words = 'neither "decided" nor "max" nor a precision such as "±5%" nor "steady"'
            raise ValueError(f"{shown(value)} is {words}") from None

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min = {self.min} is more than max = {self.max}")
        return self


class Extra(Model):
    """A further chain of each node of a group, by name."""

    stack: Tree = Field(None, description="Its layers, the lowest first.")
    count: Whole = Field(1, ge=1, le=DISKS, description="How many each node has of it.")
    source: Name = Field(HOST, alias="from", description="The nodes whose stack it continues; by default this machine.")


class NodeGroup(NodeKind):
    """Machines of one kind. A group of several is named NAME-1, NAME-2, …"""

    count: Whole = Field(1, ge=1, le=GROUP_NODES, description="How many such nodes.")
    stack: Tree = Field(None, description="The stack on these nodes, if not the study's.")
    source: Name = Field(
        HOST, alias="from", description="The nodes whose stack this one continues; by default this machine."
    )
    extra: dict[WordName, Extra] = Field(
        default_factory=dict, description="Further chains of each node: layers and workloads use them by name."
    )
    keep: Keep = Field(
        "trial", description="How long the nodes and their stacks stay set up: a `trial`, a `round`, or the `run`."
    )
    placement: Literal["kind", "auto", "native"] = Field(
        "kind",
        description="`auto`: this machine where it has all that the layers on these nodes need, else nodes of `kind`. "
        "`native`: what a hypervisor would attach is left out, for nodes that are no virtual machines; so it is where "
        "`--set` makes virtual machines something else.",
    )

    settings: Settings = Field(
        {}, description="[Settings of their kernels](#nodesnamesettings), while a trial runs; put back after it."
    )
    tcp: Tcp | None = Field(None, description="TCP's settings on them, while something of a cell is set up there.")

    @field_validator("tcp")
    @classmethod
    def _asks(cls, tcp: Tcp | None) -> Tcp | None:
        return tcp if tcp is not None and tcp.model_fields_set else None

    @model_validator(mode="after")
    def _one_to_place(self) -> Self:
        if self.placement == "auto" and self.count != 1:
            raise ValueError('nodes with placement = "auto" serve others, and one node does that: write count = 1')
        return self

    @model_validator(mode="after")
    def _counted(self) -> Self:
        named = self.number()
        if named is not None:
            if "count" in self.model_fields_set and self.count != named:
                raise ValueError(f"count is {self.count}, and {named} nodes are named: leave count out")
            object.__setattr__(self, "count", named)
        return self

    @property
    def lasts(self) -> Keep:
        """How long a node stays as it is: the kinds that live as long as a session do so for the run, or for a boot."""
        if self.session:
            return "round" if self.boots_anew else "run"
        return self.keep

    @property
    def placed(self) -> bool:
        """Whether these nodes became this machine because it has what they need."""
        return self.placement == "auto" and self.here

    @property
    def sources(self) -> set[str]:
        """The groups that chains of these nodes continue; this machine is called ``host``."""
        return {self.source, *(extra.source for extra in self.extra.values())}

    def spec(self) -> NodeKind:
        """What a node of it is, without what the group adds."""
        return own_keys(self)

    def each(self) -> list[NodeKind]:
        spec = self.spec()
        return [spec.one(number) for number in range(self.count)]


@cache
def group_model(kind: str) -> type[NodeGroup]:
    """The keys of a group of nodes of one kind: those of every group, and the kind's own."""
    cls = node_kinds()[kind]
    make: Any = create_model  # whose types know nothing of keys that are computed
    about = Field(kind, description="What kind of node they are.")
    model: type[NodeGroup] = make(
        f"{cls.__name__}Group", __base__=(NodeGroup, cls), __doc__=cls.__doc__, kind=(Literal[kind], about)
    )
    return model


def default_groups() -> dict[str, NodeGroup]:
    """What a study has that names no nodes: this machine."""
    return {HOST: group_model("local")()}  # type: ignore[call-arg]


class Settle(Model):
    """What is done right before the measured phase."""

    sync: bool = Field(True, description="Write back what is dirty in the page cache, and wait for it.")
    drop_caches: bool = Field(True, description="Drop page cache, dentries, inodes, ARC; needs root, skipped without.")
    wait: Duration = Field(0.0, description="Then wait for this long.")


class TimeoutRule(Model):
    """Another time-out for some cells."""

    where: dict[OwnName, Label] = Field(description='Levels that a cell must have: { fs = "btrfs" }')
    timeout: Timeout = Field(description="Their time-out; if several rules match, the last one applies.")


_Argv = Annotated[tuple[Command, ...], Field(min_length=1)]


class Trial(Model):
    """The phases of a trial: prepare, precondition, settle, warm-up, measure, verify."""

    workloads: tuple[OwnName, ...] | None = Field(None, description="Which workloads run, all at once; by default all.")
    prepare: tuple[_Argv, ...] = Field((), description="Commands before anything else, each a list of words.")
    precondition: dict[OwnName, Tree] | None = Field(None, description="A workload that is run first and not measured.")
    settle: Settle = Field(Settle(), description="What is done right before the measured phase.")
    warm_up: Duration = Field(0.0, description="Beginning of the load that is not measured.")
    slices: Slice | None = Field(
        None,
        description="Let the cells of a round work in turns of this length, paused and resumed, rather than one after "
        "the other: their ratios then have much less noise. By default each trial runs by itself.",
    )
    parallel: bool = Field(
        False,
        description="Let the cells of a round work at the same time, in competition: a different question from how "
        "fast each is, for machines whose noise comes from a neighbour.",
    )
    verify: tuple[_Argv, ...] = Field(
        (),
        description='Commands afterwards; one that fails fails the trial. Or "posix", or { posix = { … } }: '
        "checks what programs can rely on in the loads' directory, and reports it.",
    )
    timeout: Timeout = Field(600.0, description="A trial that takes longer is stopped and recorded as failed.")
    setup_timeout: Timeout = Field(600.0, description="The same for setting up, which comes before the trial's time.")
    timeouts: tuple[TimeoutRule, ...] = Field((), description="Other time-outs for some cells.")

    @model_validator(mode="after")
    def _in_turn_or_at_once(self) -> Self:
        if self.parallel and self.slices is not None:
            raise ValueError("slices are one after the other, parallel is at once: write one of them")
        return self

    @property
    def side_by_side(self) -> bool:
        return self.parallel or self.slices is not None


class PowerCuts(Model):
    """What a power cut would leave of each set-up: a crash check after the rounds, shown beside what they measured."""

    moments: int = Field(30, ge=1, le=10_000, description="Power cuts of each set-up.")
    unit: Literal["512", "4k", "16k"] = Field("512", description="What the disk writes whole or not at all.")
    load: dict[OwnName, Tree] | None = Field(
        None,
        description="A load that commits, which then runs beside the others: { sql-ledger = {} }, or ledger; by "
        "default that of the study.",
    )
    on: OwnName | None = Field(None, description="Where that load runs; by default where the study's first load does.")


class StudyFile(Model):
    """A study: which storage set-ups to compare, under which load, on which machines."""

    schema_version: Literal[1] = Field(1, alias="schema", description="Version of this format.")
    title: Prose = Field(min_length=1, description="What it finds out, in one line.")
    description: Prose = Field("", description="More about it, in a sentence or two.")
    primary: Metric = Field("bandwidth", description="The metric that verdicts are about.")
    confidence: Number = Field(
        0.95,
        ge=0.5,
        le=0.9999,
        description="Confidence, over the whole study, that no level is called better or worse than one from which "
        "it does not differ.",
    )
    scratch: WritesFile = Field("/var/tmp", description="Where Storlab puts files of its own, on each node.")
    disk: Device | None = Field(
        None,
        description="A device, such as /dev/nvme1n1 or /dev/disk/by-id/…, in place of what stacks on this machine "
        "begin with: a file (and its loop device), another device, or a directory with nothing above it. All data on "
        "it will be lost. `@lab`: the same of stacks on hosts of the lab, with the disk that it names for each.",
    )
    wipe: Device | None = Field(None, description="The same device again, to allow that existing data are destroyed.")
    whiskers: Number = Field(
        WHISKERS,
        gt=0,
        le=1000,
        description="Interquartile ranges from the quartiles beyond which a sample within a trial is an outlier.",
    )
    parameters: dict[WordName, Parameter] = Field(
        default_factory=dict,
        description="Values that --set changes: used as {name}, like factors. A list may be the levels of a factor.",
    )
    profiles: dict[WordName, dict[WordName, Parameter]] = Field(
        default_factory=dict, description="Sets of values for parameters, by name; --set profile=NAME chooses one."
    )
    profile: OwnName | None = Field(None, description="The profile whose values the parameters have.")
    factors: dict[WordName, Tree] = Field(
        default_factory=dict,
        description='What varies: { levels = [...] }, { levels = "{parameter}" }, or a table of name = value or stack, '
        "in which levels may say which of the names are run.",
    )
    exclude: tuple[Annotated[dict[OwnName, SomeLevels], Field(min_length=1)], ...] = Field(
        (), description='Combinations that are left out: each { aio = "native", cache = ["writeback", "unsafe"] }.'
    )
    nodes: dict[Name, dict[OwnName, Tree]] = Field(
        default_factory=dict, description="By default this machine, named host."
    )
    network: dict[OwnName, Tree] | None = Field(
        None, description="The network among the nodes, on each node's own card."
    )
    stack: Tree = Field(None, description="Layers in order, lowest first; {factor} is replaced by a level.")
    workload: dict[Name, dict[OwnName, Tree]] = Field(min_length=1, description="The load, by name.")
    probes: dict[OwnName, dict[OwnName, Tree]] = Field(
        default_factory=lambda: dict(DEFAULT_PROBES), description="What is observed, by name of the probe."
    )
    trial: dict[OwnName, Tree] = Field(default_factory=dict, description="The phases of a trial.")
    crash: dict[OwnName, Tree] | None = Field(
        None, description="Whether power cuts are tried after the rounds, and how."
    )
    repeat: Repeat = Field(Repeat(), description="When to stop repeating.")
    compare: tuple[Compare, ...] = Field((Compare(),), description="Which levels to compare; [] compares nothing.")
    claim: tuple[Claim, ...] = Field((), description="Claims made by somebody, each tested by name.")
    slo: tuple[Objective, ...] = Field(
        (), description="What a metric should stay below or above along a sweep: one table, or several ([[slo]])."
    )

    @field_validator("slo", mode="before")
    @classmethod
    def _one_or_several(cls, value: object) -> object:
        return [value] if isinstance(value, dict) else value

    @field_validator("disk", "wipe")
    @classmethod
    def _device(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith("/") and value != OF_LAB:
            raise ValueError(f"{shown(value)} must be the path of a device, such as /dev/disk/by-id/nvme-MODEL_SERIAL")
        return value

    @field_validator("scratch")
    @classmethod
    def _absolute(cls, value: str) -> str:
        if not value.startswith("/") or ".." in value.split("/"):
            raise ValueError(f"{shown(value)} must be an absolute path, such as /var/tmp")
        return value.rstrip("/") or "/"
