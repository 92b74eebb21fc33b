"""Samples of CPUs with their stacks: as the agent prints them (``docs/reference/profile-output.md``), as
shares by function and by group of functions, folded as flame graphs are made of them, and as nested boxes.

Groups are shares of all CPU time: in the kernel, in programs, idle. Functions are shares of the time in which CPUs were
busy, as with ``perf report``, whose hardware clock stands still while a CPU is idle.

B. Gregg, "The Flame Graph", ACM Queue 14 (2016). With callers above what they call, boxes are an icicle plot (J. B.
Kruskal, J. M. Landwehr, 1983).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, get_args

import msgspec

from storlab.base.errors import ParseError
from storlab.base.text import one_line
from storlab.metrics import MetricSpec, Value
from storlab.probes.lines import Count, Lines

NAME = "profile.jsonl"
"""The file with what it printed, in a probe's raw folder."""
_STACKS = 1 << 16
"""Stacks that the agent tells apart."""

Number = Annotated[int, msgspec.Meta(ge=0, lt=_STACKS)]
_Few = Annotated[int, msgspec.Meta(ge=0, le=2**40)]
Name = Annotated[str, msgspec.Meta(max_length=512)]  # of functions the agent has 256, of files 255
Group = Literal["kernel", "user", "idle"]
Frame = tuple[Name, Name]
"""A function, and where it is: ``kernel``, ``module:NAME``, or the name of a file."""

UNKNOWN = "[unknown]"
"""A function or a place that is not known."""

_KERNEL = "kernel"
_MARK = "_[k]"
"""What flame graphs colour as functions of the kernel: ``stackcollapse-perf.pl --kernel``."""
LEAST = 0.005
"""The share of busy time from which on, in any trial, a function is looked at."""
FOREMOST = 100
"""Functions of a trial that are looked at, those with the largest shares."""
_MOST = 500
"""Functions of a trial that have metrics. One beyond them has at most a five-hundredth."""

_NOUNS = {"kernel": "of CPU in the kernel", "user": "of CPU in programs", "idle": "of CPU idle"}
GROUPS = {
    group: MetricSpec(f"share.{group}", "1", across="mean", noun=_NOUNS[group], domain="share")
    for group in get_args(Group)
}
SELF = MetricSpec(
    "self.{function}", "1", across="mean", noun="of busy CPU in {function}", domain="share", zero_if_absent=True,
    foremost=FOREMOST, least=LEAST,
)  # fmt: skip
TOTAL = MetricSpec(
    "total.{function}", "1", across="mean", noun="of busy CPU in {function} and what it calls", evidence="none",
    domain="share", zero_if_absent=True, foremost=FOREMOST, least=LEAST,
)  # fmt: skip
SAMPLES = MetricSpec("samples", "1", evidence="none")
METRICS = (*GROUPS.values(), SELF, TOTAL, SAMPLES)

Kind = Literal["command", "kernel", "user", "idle"]

NARROWEST = 0.004
"""The share of CPU below which a box is left out, with all below it: nobody would see it."""
DEEPEST = 40
"""Calls below each other that are shown."""


class Started(msgspec.Struct, frozen=True, tag_field="event", tag="started"):
    """The first line. ``frequency``: samples a second on each CPU, at the ticks of ``clock``."""

    clock: Name
    frequency: Annotated[int, msgspec.Meta(ge=1, le=1000)]
    cpus: Annotated[int, msgspec.Meta(ge=1, le=65536)]
    monotonic_ns: Count
    realtime_ns: Count


class Samples(msgspec.Struct, frozen=True, tag_field="event", tag="samples"):
    """What was seen since the line before: a stack's number, and how often. ``lost``: samples without room."""

    monotonic_ns: Count
    lost: _Few
    counts: tuple[tuple[Number, _Few], ...]


class Stack(msgspec.Struct, frozen=True, tag_field="event", tag="stack"):
    """The stack that has a number; ``frames``: the outermost first."""

    id: Number
    comm: Annotated[str, msgspec.Meta(max_length=64)]
    group: Group
    frames: Annotated[tuple[Frame, ...], msgspec.Meta(max_length=256)]


class End(msgspec.Struct, frozen=True, tag_field="event", tag="end"):
    """The last line. ``nameless``: why functions of the kernel have no names."""

    monotonic_ns: Count
    nameless: Name | None = None


Line = Started | Samples | Stack | End

LINES: Lines[Line] = Lines(Line, Started, "the agent's program")


@dataclass(frozen=True)
class Output:
    """What one program printed."""

    started: Started
    samples: tuple[Samples, ...]
    stacks: Mapping[int, Stack]
    end: End

    @property
    def lost(self) -> int:
        return sum(each.lost for each in self.samples)

    def warnings(self) -> Iterator[str]:
        if self.lost:
            yield f"{self.lost} samples found no room, so shares are of the others"
        if self.end.nameless:
            yield f"functions of the kernel have no names: {self.end.nameless}"


def read_output(path: Path) -> Output:
    """Raises ``ParseError``."""
    return gathered((line for _, line in LINES.read(path)), str(path))


def gathered(lines: Iterable[Line], source: str = "") -> Output:
    """All lines as one. Raises ``ParseError`` where one of them is missing, or does not belong there."""
    every = list(lines)
    started, rest = (every[0], every[1:]) if every else (None, [])
    if not isinstance(started, Started):
        raise ParseError("nothing in it says how CPUs were sampled", source, 1)
    if not rest or not isinstance(end := rest[-1], End):
        raise ParseError("the sampler did not end cleanly: what its stacks are is missing", source)
    samples = tuple(each for each in rest if isinstance(each, Samples))
    stacks = {each.id: each for each in rest if isinstance(each, Stack)}
    if len(samples) + len(stacks) + 1 != len(rest):
        raise ParseError("a line is there twice", source)
    times = [each.monotonic_ns for each in samples]
    if times != sorted(times):
        raise ParseError("time ran backwards", source)
    if unknown := {number for each in samples for number, _ in each.counts} - stacks.keys():
        raise ParseError(f"stack {min(unknown)} was seen and is not described", source)
    return Output(started, samples, stacks, end)


@dataclass(frozen=True)
class Profile:
    """Command, group and frames → how often that was seen."""

    stacks: Mapping[tuple[str, Group, tuple[Frame, ...]], int]

    @property
    def samples(self) -> int:
        return sum(self.stacks.values())

    def groups(self) -> dict[Group, int]:
        found: dict[Group, int] = dict.fromkeys(get_args(Group), 0)
        for (_, group, _), count in self.stacks.items():
            found[group] += count
        return found

    def functions(self) -> tuple[Counter[str], Counter[str]]:
        own, total = Counter[str](), Counter[str]()
        for (_, group, frames), count in self.stacks.items():
            if group != "idle" and frames:
                own[label(frames[-1])] += count
                # A program without frame pointers has places in its stacks that are none.
                for name in {label(frame) for frame in (*frames[-1:], *(f for f in frames if f[1] != UNKNOWN))}:
                    total[name] += count
        return own, total


def profile(output: Output, start: float = 0.0, end: float = float("inf")) -> Profile:
    """What was seen from ``start`` to ``end``, seconds on the monotonic clock, to within the agent's interval."""
    counts = Counter[tuple[str, Group, tuple[Frame, ...]]]()
    before = output.started.monotonic_ns
    for samples in output.samples:
        if samples.monotonic_ns / 1e9 > start and before / 1e9 < end:
            for number, count in samples.counts:
                stack = output.stacks[number]
                counts[stack.comm, stack.group, stack.frames] += count
        before = samples.monotonic_ns
    return Profile(counts)


def label(frame: Frame) -> str:
    """A function as metrics have it: ``vfs_write``, ``zio_execute`` of any module, ``libc.so.6/read`` of a program."""
    name, where = frame
    if where == UNKNOWN:
        return UNKNOWN
    return one_line(f"{where}/{name}" if is_user(frame) else name)


def is_user(frame: Frame) -> bool:
    return frame[1] != _KERNEL and not frame[1].startswith("module:")


def values(found: Profile) -> Iterator[Value]:
    total = found.samples
    if not total:
        return
    groups = found.groups()
    yield SAMPLES.value(total)
    yield from (spec.value(groups[group] / total) for group, spec in GROUPS.items())
    busy = total - groups["idle"]
    for spec, counts in zip((SELF, TOTAL), found.functions(), strict=True):
        for function, count in counts.most_common(_MOST):
            if function != UNKNOWN:
                yield spec.value(count / busy, function=function)


def folded(found: Profile) -> Iterator[str]:
    """A line for each stack: command and functions, outermost first, with semicolons between, and how often."""
    sums = Counter[str]()
    for (comm, group, frames), count in found.stacks.items():
        known = [frame for frame in frames if frame[1] != UNKNOWN]
        words = [_plain(comm), *(f"{_plain(f[0])}{'' if is_user(f) else _MARK}" for f in known)]
        sums[";".join(words if group != "idle" else [words[0], "[idle]"])] += count
    return (f"{line} {count}" for line, count in sorted(sums.items()))


def _plain(name: str) -> str:
    """Programs choose their own names and those of their functions: without what the folded form means something by."""
    return one_line(name).replace(";", ":")


@dataclass(frozen=True)
class Box:
    """One function in one place: from ``left`` to ``right``, shares of CPU; ``depth`` 0 is a command."""

    name: str
    kind: Kind
    depth: int
    left: float
    right: float


@dataclass
class _Node:
    count: int = 0
    below: dict[tuple[str, Kind], _Node] = field(default_factory=dict)


def boxes(profiles: Sequence[Profile]) -> list[Box]:
    root = _Node()
    for found in profiles:
        for (comm, group, frames), count in found.stacks.items():
            root.count += count
            path: list[tuple[str, Kind]] = [(comm, "command")]
            path += [(f[0], "user" if is_user(f) else "kernel") for f in frames if f[1] != UNKNOWN][:DEEPEST]
            node = root
            if group == "idle":
                path = [("idle", "idle")]
            for step in path:
                node = node.below.setdefault(step, _Node())
                node.count += count
    drawn: list[Box] = []
    if root.count:
        _draw(root.below, 0, 0.0, root.count, drawn)
    return drawn


def _draw(below: Mapping[tuple[str, Kind], _Node], depth: int, left: float, whole: int, drawn: list[Box]) -> None:
    for (name, kind), node in sorted(below.items(), key=lambda item: (-item[1].count, item[0])):
        share = node.count / whole
        if share < NARROWEST:
            continue
        drawn.append(Box(name, kind, depth, left, left + share))
        _draw(node.below, depth + 1, left, whole, drawn)
        left += share
