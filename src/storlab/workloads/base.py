"""The workload protocol: what a new workload must say of itself, and what it gets to work with."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

import orjson
from msgspec import Meta, Struct

from storlab.base.errors import CommandFailed, ParseError, RecordsError, TimedOut, TrialError
from storlab.base.reading import read_file
from storlab.base.record import Count, Seconds, read_record, to_json
from storlab.base.units import shown
from storlab.layers.base import Layer
from storlab.layers.resources import RESOURCE_WORDS, Dir, Disk, Resource
from storlab.measurements import Measurements
from storlab.metrics import MetricSpec, Value
from storlab.model import Model
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.nodes.process import ExitRecord, telling


@dataclass(frozen=True)
class Served:
    """The directory that a share's is: on the node that serves it, or whose QEMU does."""

    node: Node
    path: str


@dataclass(frozen=True)
class RunContext:
    """Where a workload runs in one trial.

    ``folder`` is on the node, exists, and is the workload's own; all that it holds afterwards is fetched into the
    trial's raw records. It never lies on the storage that is measured.
    """

    node: Node
    target: Resource
    folder: str
    name: str  # of the workload in the study
    warm_up: float  # s, at the start, not to be measured
    seed: int  # the same for the same round in every cell: all cells of a round get the same random offsets
    words: Mapping[str, str] = field(default_factory=dict)  # {target}, {node}, {round}, …
    memory: MutableMapping[str, str] | None = None  # lasts as long as the target; None: it will not be kept
    nodes: tuple[str, ...] = ()  # all that work in the same files, this one among them; none where each has its own
    served: Served | None = None  # where the target is a share and that is known

    @property
    def path(self) -> str:
        assert isinstance(self.target, Dir | Disk)
        return self.target.path

    def fill(self, text: str) -> str:
        """Put this place's words in: ``{target}/a`` → ``/mnt/x/a``; ``{{target}}`` stands for the text itself."""

        def put_in(match: re.Match[str]) -> str:
            if match[2] in RESOURCE_WORDS and match[2] not in self.words:
                has = ", ".join(f"{{{word}}}" for word in RESOURCE_WORDS if word in self.words)
                raise TrialError(f"{shown(text)}: this {self.target.kind} has no {match[0]}, but {has}")
            return match[1] if match[1] is not None else self.words.get(match[2], match[0])

        return _PLACE_WORD.sub(put_in, text)


PLACE_WORDS = (*RESOURCE_WORDS, "node", "round", "trial", "seed")
"""Words in braces that a workload fills in when its trial runs, and that are no factors."""


def words_in(text: str) -> set[str]:
    """Those of them that ``RunContext.fill`` would put in."""
    return {match[2] for match in _PLACE_WORD.finditer(text) if match[2] is not None}


_PLACE_WORD = re.compile(rf"\{{(\{{(?:{'|'.join(PLACE_WORDS)})\}})\}}|\{{({'|'.join(PLACE_WORDS)})\}}")


class OptionError(ValueError):
    """A workload's options can't be; ``path`` leads to the key at fault, below the workload's table."""

    def __init__(self, message: str, *path: str | int) -> None:
        super().__init__(message)
        self.path = path


@dataclass(frozen=True)
class Launch:
    """The command that is started at the agreed instant.

    ``stdout``: a name in the folder, to keep it off the stream.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str | None] = field(default_factory=dict)
    cwd: str | None = None
    stdout: str | None = None


@dataclass(frozen=True)
class Work:
    """How much a load does that no time ends. ``waits``: operations that each wait for storage, as random, direct and
    synchronous ones do; ``longest``: seconds after which it ends in any case, where it says so.
    """

    moved: int  # bytes
    waits: int
    longest: float | None = None


ReadInput = Callable[[str], str]
"""Gives the contents of a file that a study names; raises ``ValueError`` where it can't."""


class Workload(Model):
    """One kind of load. The fields of a subclass are its keys in the study file."""

    kind: ClassVar[str]
    accepts: ClassVar[tuple[type[Resource], ...]] = (Dir, Disk)

    def takes(self) -> tuple[type[Resource], ...]:
        """The kinds of resource that it can run on with these options."""
        return self.accepts

    def check_on(self, layers: Sequence[Layer]) -> str | None:
        """What is wrong with it on this stack, lowest layer first, beyond the type of what that gives."""
        return None

    @abstractmethod
    def declares(self) -> tuple[MetricSpec, ...]:
        """The metrics and histograms that it may yield with these options; ``parse`` yields no others."""

    def needs(self) -> Needs:
        return Needs()

    def programs(self) -> Mapping[str, tuple[str | int, ...]]:
        """Programs that the study names itself, each with the key that does: one that is not there is its mistake."""
        return {}

    def resolve(self, read: ReadInput) -> Self:
        """The same workload with the files that it names read in. Raises ``ValueError``."""
        return self

    def space(self) -> int:
        """Bytes that it is known to write into its target; 0 where unknown."""
        return 0

    def duration(self, warm_up: float) -> float | None:
        """Seconds that it is expected to run, with its warm-up; ``None`` where that depends on the machine."""
        return None

    def work(self) -> Work | None:
        """How much it does, where ``duration`` is unknown; ``None`` where that is unknown, too."""
        return None

    def leaves_out(self, warm_up: float) -> str:
        """What of the study it won't do, in a sentence without a full stop, for the plan; empty where it does all."""
        return ""

    def measures_all(self, warm_up: float) -> bool:
        """Whether all that its command does is measured; not so where it has the warm-up within it."""
        return True

    def commands(self) -> tuple[tuple[str, ...], ...]:
        """Commands that the study words itself, which whoever runs it should read first."""
        return ()

    @classmethod
    async def unchecked(cls, node: Node, workloads: Sequence[Self]) -> Sequence[Self]:
        """Those of them that ``check_node`` must look at: fewer where a tool can be asked about many at once."""
        return workloads

    async def check_node(self, node: Node) -> None:
        """Look, without changing anything, whether the node's tool takes these options. Raises ``UserError``.

        The node's commands are confined, and may write nothing.
        """

    async def prepare(self, place: RunContext) -> None:
        """All that must be done before the measured phase: laying out files, loading a database."""

    def verifies(self) -> tuple[MetricSpec, ...]:
        """What it yields where a study has it look at the directory after the load; none: it can't do that."""
        return ()

    @abstractmethod
    async def launch(self, place: RunContext) -> Launch:
        """Write what the command needs into ``place.folder`` and give the command."""

    async def conclude(self, place: RunContext) -> None:
        """What is left to do once all commands of the trial have ended well, before the folder is fetched."""

    def unsliceable(self, later: str) -> str:
        """Why it can't work in slices, in a sentence without a full stop; empty where it can.

        ``later``: a layer below it that holds back what is written, even synchronously, and writes it later.
        """
        return f"{self.kind} writes no log of single operations, so its slices cannot be separated"

    async def launch_sliced(self, place: RunContext, longest: float) -> Launch:
        """Like ``launch``, of a command that goes on for ``longest`` s unless it is asked to end by SIGINT.

        It works in turns, which ``parse`` then finds in its folder (``Turns``).
        """
        raise TrialError(Workload.unsliceable(self, ""))

    @abstractmethod
    def parse(self, raw: Path) -> Measurements:
        """Read what one trial left in its raw folder: the fetched files, ``stdout``, ``stderr``, ``exit.json``.

        A pure function of these files. Raises ``TrialError`` where the tool reports a failure of its own,
        ``ParseError`` where its output can't be read.
        """


NAME = "exit.json"
ELAPSED = (
    MetricSpec("elapsed", "s", "lower", "max"),
    MetricSpec("cpu.user.time", "s", "lower"),
    MetricSpec("cpu.system.time", "s", "lower"),
    MetricSpec("max_rss", "B", "lower", "max"),
)
"""Metrics of every command, without a rule."""


def elapsed_values(record: ExitRecord) -> tuple[Value, ...]:
    known = (record.elapsed, record.cpu_user, record.cpu_system, record.max_rss)
    return tuple(spec.value(value) for spec, value in zip(ELAPSED, known, strict=True))


def exit_bytes(ended: ExitRecord) -> bytes:
    """The contents of ``exit.json``: the lasting part of an ``Exit``."""
    fields = {name: getattr(ended, name) for name in ExitRecord.__dataclass_fields__}
    return orjson.dumps(fields, option=orjson.OPT_INDENT_2)


def read_exit(raw: Path) -> ExitRecord:
    path = raw / NAME
    try:
        return read_record(path, ExitRecord)
    except OSError as error:
        raise ParseError(f"cannot read it: {error.strerror}", str(path)) from None
    except RecordsError as error:
        raise ParseError(str(error)) from None


def unfinished(who: str, ended: ExitRecord, said: str, message: str = "") -> TimedOut | CommandFailed:
    """Why a load failed: by ``message``, or else the last of what it ``said`` that tells anything."""
    if ended.timed_out:
        return TimedOut(f"{who} was stopped at the time-out", said)
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    how = f"status {ended.code}" if ended.code is not None else f"{ended.signal}"
    return CommandFailed(f"{who} ended with {how}: {message or telling(lines or ['no message'])}", said)


def bytes_of(path: Path) -> bytes:
    """A file's contents; nothing where there is no such file. Raises ``ParseError`` where it can't be read."""
    try:
        return read_file(path)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise ParseError(f"cannot read it: {error.strerror}", str(path)) from None


# What a load that works in slices finds in its folder: ``turns.json``, its turns on its node's monotonic clock.

TURNS_FILE = "turns.json"
Cell = Annotated[int, Meta(ge=0, le=2**31)]


class Turns(Struct, frozen=True, forbid_unknown_fields=True):
    """From when to when it worked, in s; of the first ``warm_up`` turns nothing is measured.

    ``after``: the cell whose turn was right before each of these; 0 before the first of all.
    """

    turns: Annotated[list[tuple[Seconds, Seconds]], Meta(max_length=100_000)]
    warm_up: Count = 0
    after: list[Cell] = []

    def __post_init__(self) -> None:
        edges = [edge for turn in self.turns for edge in turn]
        if edges != sorted(edges):
            raise ValueError("turns: they are not in order")
        if len(self.after) not in (0, len(self.turns)):
            raise ValueError("after: it must have a cell for each turn")

    @property
    def measured(self) -> list[tuple[float, float]]:
        """The turns after the warm-up that took any time."""
        return [(begin, end) for begin, end in self.turns[self.warm_up :] if end > begin]

    @property
    def active(self) -> float:
        return sum(end - begin for begin, end in self.measured)


def write_turns(folder: Path, turns: Turns) -> None:
    (folder / TURNS_FILE).write_bytes(to_json(turns))


def read_turns(raw: Path) -> Turns | None:
    try:
        return read_record(raw / TURNS_FILE, Turns)
    except FileNotFoundError:
        return None
    except RecordsError as error:
        raise ParseError(str(error)) from None


# What a load must say of itself to take part in a crash check: what it was promised, and what is left of that.


@dataclass(frozen=True)
class Damage:
    """What a power cut did, in words. ``lost``: what was acknowledged. ``torn``: something is half there."""

    kind: Literal["lost", "torn"]
    text: str


@dataclass(frozen=True)
class Pages:
    """Of a load that writes pages of ``size`` bytes in place: whether it can restore one that is ``protected``."""

    size: int
    protected: bool


class Witness(Workload):
    """A load that prints, a line each, what was acknowledged to it, and can look for that after a power cut."""

    @abstractmethod
    def acknowledged(self, line: bytes) -> int | None:
        """The number of the commit that this line says was acknowledged, with all before it; ``None`` for another."""

    @abstractmethod
    async def broken(self, place: RunContext, acknowledged: int) -> Damage | None:
        """What of the first ``acknowledged`` commits is missing, or what is half there; ``None``: nothing.

        ``place.target`` is what was recovered: the load's own kind of target, on another node perhaps. Raises
        ``TrialError`` where that can't be told.
        """

    def pages(self) -> Pages | None:
        """What it writes in place, where it does: which cuts must break it, and which must not."""
        return None
