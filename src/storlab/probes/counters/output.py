"""What ``storlab-agent counters`` prints, and what a run's own counters say: ``docs/reference/counters-output.md``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from storlab.errors import ParseError
from storlab.limits import RECORD
from storlab.nodes.agent.events import Counted, CounterName
from storlab.nodes.raw_folders import make_raw_folder
from storlab.reading import lines_of, read_file

LOADS = "loads.json"
"""In the probe's raw folder: what the loads of its machine did, one entry for each."""

_Wide = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
_Reason = Annotated[str, msgspec.Meta(max_length=1024)]


class Started(msgspec.Struct, frozen=True, tag_field="event", tag="started"):
    """The first line. ``without``: what can't be counted, and why."""

    cpus: Annotated[int, msgspec.Meta(ge=1, le=65536)]
    without: dict[CounterName, _Reason]
    monotonic_ns: _Wide
    realtime_ns: _Wide


class Sample(msgspec.Struct, frozen=True, tag_field="event", tag="sample"):
    """All counts since the program began, of all CPUs; ``busy_ns``: CPU time since the machine did."""

    final: bool
    monotonic_ns: _Wide
    busy_ns: _Wide | None
    counts: dict[CounterName, _Wide]

    @property
    def t(self) -> float:
        """Seconds on the node's monotonic clock."""
        return self.monotonic_ns / 1e9


@dataclass(frozen=True)
class Output:
    """What one program printed, in its order."""

    started: Started
    samples: tuple[Sample, ...]


_LINE: msgspec.json.Decoder[Started | Sample] = msgspec.json.Decoder(Started | Sample)
_LOADS: msgspec.json.Decoder[list[Counted]] = msgspec.json.Decoder(list[Counted])


def read_output(path: Path) -> Output:
    """Read a file of such lines; a last one that was cut off is left out. Raises ``ParseError``."""
    try:
        return decode_output(lines_of(path), str(path))
    except OSError as error:
        raise ParseError(f"cannot read it: {error.strerror}", str(path)) from None


def decode_output(lines: Iterable[bytes], source: str = "") -> Output:
    """The same of lines with their ends. Raises ``ParseError``."""
    started: Started | None = None
    samples: list[Sample] = []
    for number, line in enumerate(lines, start=1):
        if not line.endswith(b"\n"):
            break
        try:
            found = _LINE.decode(line)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise ParseError(f"is no line of the agent's: {error}", source, number) from None
        if isinstance(found, Started) != (started is None):
            raise ParseError("the line that says what is counted is not the first, or not the only one", source, number)
        if isinstance(found, Started):
            started = found
        elif samples and _backwards(samples[-1], found):
            raise ParseError("time or a count ran backwards", source, number)
        else:
            samples.append(found)
    if started is None:
        raise ParseError("nothing in it says what is counted", source, 1)
    return Output(started, tuple(samples))


def _backwards(before: Sample, after: Sample) -> bool:
    pairs = [(count, after.counts.get(name, -1)) for name, count in before.counts.items()]
    return after.monotonic_ns < before.monotonic_ns or any(new < old for old, new in pairs)


def write_loads(raw: Path, counted: Sequence[Counted]) -> None:
    """Keep what the loads of a machine did."""
    make_raw_folder(raw)
    (raw / LOADS).write_bytes(msgspec.json.encode(counted))


def read_loads(raw: Path) -> list[Counted]:
    """Read it back; nothing where there were none. Raises ``ParseError``."""
    path = raw / LOADS
    try:
        return _LOADS.decode(read_file(path, RECORD))
    except FileNotFoundError:
        return []
    except (OSError, msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ParseError(f"cannot read it: {error}", str(path), 1) from None
