"""The frames between controller and agent, as pure functions; ``docs/reference/agent-protocol.md`` defines them."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
import orjson
from msgspec import Meta, Struct

from storlab.base.errors import ProtocolError

VERSION = 1
PREFACE = b"storlab-agent/1\n"
MAX_FRAME = 2 * 1024 * 1024
MAX_NOISE = 64 * 1024  # bytes before the preface: a console's greeting, what a port's last user left
CHUNK = 256 * 1024  # payload of one ``write`` or ``stdin`` frame


@dataclass(frozen=True)
class Frame:
    """One message: a JSON object and bytes that belong to it."""

    header: dict[str, Any]
    payload: bytes = b""


def encode(frame: Frame) -> bytes:
    """The frame's bytes on the stream. Raises ``ProtocolError`` where it would be too long."""
    header = orjson.dumps(frame.header)
    length = 2 + len(header) + len(frame.payload)
    if len(header) > 0xFFFF or length > MAX_FRAME:
        raise ProtocolError(f"a frame of {length} bytes (header {len(header)}) is too long for the agent")
    return struct.pack(">IH", length, len(header)) + header + frame.payload


class Decoder:
    """Turns chunks of a stream into frames, whatever way the stream was cut. First it looks for the preface."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._synchronised = False

    def feed(self, chunk: bytes) -> list[Frame]:
        """All frames that are complete now. Raises ``ProtocolError`` on bytes that are no frame."""
        self._buffer += chunk
        if not self._synchronised and not self._skip_to_preface():
            return []
        frames = []
        while (frame := self._take()) is not None:
            frames.append(frame)
        return frames

    def _skip_to_preface(self) -> bool:
        at = self._buffer.find(PREFACE)
        if at < 0:
            if len(self._buffer) > MAX_NOISE + len(PREFACE):
                raise ProtocolError(f"no agent answered within the first {MAX_NOISE} bytes of the stream")
            return False
        del self._buffer[: at + len(PREFACE)]
        self._synchronised = True
        return True

    def _take(self) -> Frame | None:
        if len(self._buffer) < 6:
            return None
        length, header_length = struct.unpack_from(">IH", self._buffer)
        if not 2 + header_length <= length <= MAX_FRAME:
            raise ProtocolError(f"a frame of impossible length came from the agent ({length}, {header_length})")
        if len(self._buffer) < 4 + length:
            return None
        body = bytes(self._buffer[6 : 4 + length])
        del self._buffer[: 4 + length]
        try:
            header = orjson.loads(body[:header_length])
        except orjson.JSONDecodeError as error:
            raise ProtocolError(f"a frame whose header is no JSON came from the agent: {error}") from None
        if not isinstance(header, dict):
            raise ProtocolError("a frame whose header is no JSON object came from the agent")
        return Frame(header, body[header_length:])


# What an agent may answer, as types: ``docs/reference/agent-protocol.md`` is the contract.
#
# A guest that is not trusted is the agent, so nothing of a frame is used before it was read by these. Numbers are
# bounded so that times and sums of them stay within 64 bits.

MAX_ID = 2**53
MAX_TURNS = 1_000
MAX_STEPS = 256
_YEARS = 2**60  # ns: 36 years, of a clock that counts from a machine's boot

_Count = Annotated[int, Meta(ge=0, le=2**53)]
_Nanoseconds = Annotated[int, Meta(ge=0, le=_YEARS)]
_Realtime = Annotated[int, Meta(ge=0, le=2**62)]
_Pid = Annotated[int, Meta(ge=1, le=2**31 - 1)]
_Text = str  # as long as a header at most, which is 64 KiB
_Kind = Literal["file", "directory", "link", "block", "character", "pipe", "socket"]
_Signal = Annotated[str, Meta(pattern=r"^[A-Z0-9+-]{1,16}$")]


class Event(Struct, tag_field="event"):
    """One of the events below; keys that are not theirs are left out."""


class Hello(Event, tag="hello"):
    """The agent, unasked at first, and then in answer to our own."""

    protocol: _Count
    version: _Text
    pid: _Pid
    boot_id: _Text
    hostname: _Text
    lease_ns: Annotated[int, Meta(ge=1, le=_YEARS)] | None = None


class Refused(Event, tag="refused"):
    """It speaks another version of the protocol."""

    message: _Text


class Clock(Event, tag="clock"):
    """Its machine's clocks."""

    monotonic_ns: _Nanoseconds
    realtime_ns: _Realtime


class Kernel(Struct, frozen=True, forbid_unknown_fields=True):
    """As uname(2) says."""

    release: _Text
    version: _Text
    machine: _Text


class Cpus(Struct, frozen=True, forbid_unknown_fields=True):
    """The processors."""

    online: _Count
    model: _Text | None


class Memory(Struct, frozen=True, forbid_unknown_fields=True):
    """In bytes."""

    total_bytes: _Count
    available_bytes: _Count


class Clocks(Struct, frozen=True, forbid_unknown_fields=True):
    """What keeps the time."""

    source: _Text | None
    resolution_ns: _Nanoseconds


class Tool(Struct, frozen=True, forbid_unknown_fields=True):
    """A program that the machine has."""

    path: _Text
    version: _Text | None


class Facts(Event, tag="facts"):
    """What its machine is."""

    kernel: Kernel
    os: _Text | None
    hostname: _Text
    cpus: Cpus
    memory: Memory
    modules: list[_Text]
    filesystems: list[_Text]
    clocks: Clocks
    cgroup: _Text
    uid: _Count
    virtualization: _Text | None
    tools: dict[_Text, Tool | None]


class Started(Event, tag="started"):
    """A command exists."""

    pid: _Pid
    cgroup: _Text | None
    confined: bool | None = None


class Stdout(Event, tag="stdout"):
    """A command printed the payload."""

    monotonic_ns: _Nanoseconds


class Stderr(Event, tag="stderr"):
    """The same on its standard error."""

    monotonic_ns: _Nanoseconds


CounterName = Literal[
    "task_clock", "page_faults", "context_switches", "migrations", "cycles", "instructions", "llc_misses"
]


class Counted(Struct, frozen=True):
    """What the processes of a command did, by counter, ``task_clock`` in ns; and why the rest was not counted."""

    counts: dict[CounterName, Annotated[int, Meta(ge=0, le=2**63 - 1)]]
    without: dict[CounterName, Annotated[str, Meta(max_length=1024)]]


class Exited(Event, tag="exit"):
    """How a command ended."""

    code: Annotated[int, Meta(ge=0, le=255)] | None
    signal: _Signal | None
    timed_out: bool
    stopped_by: _Signal | None
    late_ns: _Nanoseconds | None
    start_ns: _Nanoseconds | None
    elapsed_ns: _Nanoseconds
    user_ns: _Nanoseconds
    system_ns: _Nanoseconds
    max_rss_bytes: _Count
    survivors: _Count
    dropped: _Count
    counted: Counted | None = None


class Data(Event, tag="data"):
    """The payload is the next piece of a file."""


class Sampled(Event, tag="sample"):
    """The payload is the contents of several files, one after the other; size -1: one could not be read."""

    monotonic_ns: _Nanoseconds
    realtime_ns: _Realtime
    late_ns: _Nanoseconds
    sizes: list[Annotated[int, Meta(ge=-1, le=MAX_FRAME)]]


class Turns(Event, tag="turns"):
    """From when to when a command worked, turn by turn; it is held now."""

    turns: Annotated[list[tuple[_Nanoseconds, _Nanoseconds]], Meta(max_length=MAX_TURNS)]


class StepResult(Struct, frozen=True):
    """What came of one step; what doesn't belong to its kind is left out."""

    size: _Count | None = None
    kind: _Kind | None = None
    allocated: _Count | None = None
    mode: Annotated[int, Meta(ge=0, le=0o7777)] | None = None
    owner: Annotated[int, Meta(ge=0, le=2**32 - 1)] | None = None
    device: _Count | None = None
    found: bool | None = None
    code: Annotated[int, Meta(ge=0, le=255)] | None = None
    signal: _Signal | None = None
    errors: _Count | None = None
    message: _Text | None = None
    errno: _Text | None = None


class Steps(Event, tag="steps"):
    """What came of several steps; the payload is what they brought, one after the other."""

    results: Annotated[list[StepResult], Meta(max_length=MAX_STEPS)]


class Done(Event, tag="done"):
    """A request is carried out."""


class Failed(Event, tag="error"):
    """A request could not be carried out."""

    message: _Text
    errno: _Text | None = None


_All = (
    Hello
    | Refused
    | Clock
    | Facts
    | Started
    | Stdout
    | Stderr
    | Exited
    | Data
    | Sampled
    | Turns
    | Steps
    | Done
    | Failed
)

FINAL = (Hello, Refused, Clock, Facts, Exited, Turns, Steps, Done, Failed)

_ANSWERS: dict[str, tuple[type[Event], ...]] = {
    "hello": (Hello, Refused),
    "clock": (Clock,),
    "facts": (Facts,),
    "run": (Started, Stdout, Stderr, Exited),
    "read": (Data, Done),
    "sample": (Sampled, Done),
    "turns": (Turns,),
    "steps": (Steps,),
}
_WITH_PAYLOAD = (Stdout, Stderr, Data, Sampled, Steps)
_NOTHING_WITHOUT = (Stdout, Stderr, Data)
"""Empty, they would cost whoever sends them next to nothing, and whoever keeps them much."""


@dataclass(frozen=True)
class Answer:
    """An event, whose request it answers, and the bytes that belong to it."""

    id: int
    event: Event
    payload: bytes = b""


class _Id(Struct):
    id: Annotated[int, Meta(ge=0, le=MAX_ID)]


def answer_of(frame: Frame) -> Answer:
    """The frame, understood. Raises ``ProtocolError`` where no agent sends such a one."""
    try:
        identity = msgspec.convert(frame.header, _Id).id
        event: Event = msgspec.convert(frame.header, _All)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ProtocolError(f"its agent sent what the protocol does not know: {error}") from None
    if frame.payload and not isinstance(event, _WITH_PAYLOAD):
        raise ProtocolError(f"its agent sent {len(frame.payload)} bytes with an event that has none")
    if not frame.payload and isinstance(event, _NOTHING_WITHOUT):
        raise ProtocolError(f"its agent sent {type(event).__name__.lower()!r} without a byte")
    return Answer(identity, event, frame.payload)


def check_answers(op: str, event: Event) -> None:
    """Raises ``ProtocolError`` where an agent does not answer such a request by such an event."""
    if not isinstance(event, (*_ANSWERS.get(op, (Done,)), Failed)):
        raise ProtocolError(f"its agent answered the request {op!r} by {type(event).__name__.lower()!r}")
