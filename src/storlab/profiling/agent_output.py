"""What ``storlab-agent profile`` prints: JSON lines, as ``docs/reference/profile-output.md`` describes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from storlab.errors import ParseError
from storlab.reading import lines_of

NAME = "profile.jsonl"
"""The file with what it printed, in a probe's raw folder."""
MOST = 1 << 16
"""Stacks that the agent tells apart."""

Wide = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
Number = Annotated[int, msgspec.Meta(ge=0, lt=MOST)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**40)]
Name = Annotated[str, msgspec.Meta(max_length=512)]  # of functions the agent has 256, of files 255
Group = Literal["kernel", "user", "idle"]
Frame = tuple[Name, Name]
"""A function, and where it is: ``kernel``, ``module:NAME``, or the name of a file."""

UNKNOWN = "[unknown]"
"""A function or a place that is not known."""


class Started(msgspec.Struct, frozen=True, tag_field="event", tag="started"):
    """The first line. ``frequency``: samples a second on each CPU, at the ticks of ``clock``."""

    clock: Name
    frequency: Annotated[int, msgspec.Meta(ge=1, le=1000)]
    cpus: Annotated[int, msgspec.Meta(ge=1, le=65536)]
    monotonic_ns: Wide
    realtime_ns: Wide


class Samples(msgspec.Struct, frozen=True, tag_field="event", tag="samples"):
    """What was seen since the line before: a stack's number, and how often. ``lost``: samples without room."""

    monotonic_ns: Wide
    lost: Count
    counts: tuple[tuple[Number, Count], ...]


class Stack(msgspec.Struct, frozen=True, tag_field="event", tag="stack"):
    """The stack that has a number; ``frames``: the outermost first."""

    id: Number
    comm: Annotated[str, msgspec.Meta(max_length=64)]
    group: Group
    frames: Annotated[tuple[Frame, ...], msgspec.Meta(max_length=256)]


class End(msgspec.Struct, frozen=True, tag_field="event", tag="end"):
    """The last line. ``nameless``: why functions of the kernel have no names."""

    monotonic_ns: Wide
    nameless: Name | None = None


Line = Started | Samples | Stack | End

_DECODER: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)


@dataclass(frozen=True)
class Output:
    """What one program printed."""

    started: Started
    samples: tuple[Samples, ...]
    stacks: Mapping[int, Stack]
    end: End

    @property
    def lost(self) -> int:
        """Samples that are missing."""
        return sum(each.lost for each in self.samples)

    def warnings(self) -> Iterator[str]:
        """What a reader must know, in sentences."""
        if self.lost:
            yield f"{self.lost} samples found no room, so shares are of the others"
        if self.end.nameless:
            yield f"functions of the kernel have no names: {self.end.nameless}"


def decode_lines(chunk: bytes, source: str = "") -> list[Line]:
    """Whole lines. Raises ``ParseError``, which does not know the line."""
    try:
        return _DECODER.decode_lines(chunk)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ParseError(f"has a line that is none of the agent's: {error}", source) from None


def read_output(path: Path) -> Output:
    """Read a file of such lines. Raises ``ParseError``."""
    try:
        return gathered(_decoded(lines_of(path), str(path)), str(path))
    except OSError as error:
        raise ParseError(f"cannot read it: {error.strerror}", str(path)) from None


def _decoded(lines: Iterable[bytes], source: str) -> Iterator[Line]:
    for number, line in enumerate(lines, start=1):
        try:
            yield _DECODER.decode(line)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise ParseError(f"is no line of the agent's: {error}", source, number) from None


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
    _check(samples, stacks, source)
    return Output(started, samples, stacks, end)


def _check(samples: Sequence[Samples], stacks: Mapping[int, Stack], source: str) -> None:
    times = [each.monotonic_ns for each in samples]
    if times != sorted(times):
        raise ParseError("time ran backwards", source)
    if unknown := {number for each in samples for number, _ in each.counts} - stacks.keys():
        raise ParseError(f"stack {min(unknown)} was seen and is not described", source)
