"""What every importer is: a reader of one tool's files; what it yields: the trials that they hold, and their design."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, ClassVar, Literal

from msgspec import Meta, Struct

from storlab.base.errors import ParseError, RecordsError
from storlab.base.record import Count, Number
from storlab.base.text import first, grouped, printable
from storlab.metrics import END, PROBE, WHISKERS
from storlab.tools.kinds import KINDS, READER, importers, is_of, is_reader
from storlab.tools.passed_on import read_passed_on

if TYPE_CHECKING:
    from storlab.measurements import Measurements


NODE = "imported"
"""The node of what was imported, but for clients, which are numbered unless their files name them."""
HOST = "host"
"""The machine that nodes ran on."""
HOST_LOAD = f"{PROBE}host-load{END}{HOST}"
"""The source of its load averages."""
NODE_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$"

Order = Literal["times", "given"]
"""How the order in which trials were measured is known: all files name it, or their user gave them in that order."""


class ImportedFile(Struct, frozen=True, forbid_unknown_fields=True):
    """One file: its name as it was given, the levels that its user gave it, and what else was said of it."""

    name: str
    levels: dict[str, str]
    options: dict[str, Any] = {}
    beside: list[str] = []  # names of files of the same folder, kept with it
    node: Annotated[str, Meta(pattern=f"{NODE_NAME}|^$")] = ""  # where it is known


class ImportedTrial(Struct, frozen=True, forbid_unknown_fields=True):
    """Which part of which file a trial is, both from 0, and its place in the run. ``levels`` are all of its cell.

    ``others``: of a trial of several clients, those of the others.
    """

    file: Count
    part: Count
    cell: Number
    round: Number
    levels: dict[str, str]
    turn: Count = 0  # its place in the order of measurement, from 1, where cells took turns
    others: list[tuple[Count, Count]] = []

    @property
    def places(self) -> list[tuple[int, int]]:
        return [(self.file, self.part), *self.others]


class Imported(Struct, frozen=True, forbid_unknown_fields=True):
    """What a run was imported from. Trial n is ``trials[n - 1]``; the trials of a file follow each other.

    ``factors``: their levels in the order in which they are shown. ``turns``: how their order is known, where cells
    took turns, which is the word of who imported them; else empty. ``notes``: sentences on what else set-ups differ
    in, and on what are no repeats. ``whiskers``: from where on samples within a trial are outliers.
    """

    kind: str
    files: tuple[ImportedFile, ...]
    trials: Annotated[tuple[ImportedTrial, ...], Meta(min_length=1)]
    factors: dict[str, tuple[str, ...]]
    primary: str
    turns: Order | Literal[""] = ""
    notes: tuple[str, ...] = ()
    whiskers: Annotated[float, Meta(gt=0, le=1000)] = WHISKERS

    def __post_init__(self) -> None:
        for trial in self.trials:
            if trial.levels.keys() != self.factors.keys():
                raise ValueError("its trials have different factors")
            for file, _ in trial.places:
                if file >= len(self.files):
                    raise ValueError(f"there is no file {file}")
            if len(self.nodes(trial)) < len(trial.places):
                raise ValueError("a trial has two files of one node")

    def nodes(self, trial: ImportedTrial) -> dict[str, tuple[int, int]]:
        """Node → which part of which file is its. Without a name, which machine it was is not known."""
        numbered = (f"client-{number}" for number in range(1, len(trial.places) + 1)) if trial.others else (NODE,)
        return {self.files[place[0]].node or name: place for name, place in zip(numbered, trial.places, strict=True)}

    @property
    def cells(self) -> tuple[tuple[int, dict[str, str]], ...]:
        return tuple(sorted({trial.cell: trial.levels for trial in self.trials}.items(), key=lambda cell: cell[0]))

    @property
    def compared(self) -> str:
        """The factor whose levels are compared where cells took turns: the first one that has several."""
        return next((name for name, levels in self.factors.items() if len(levels) > 1), next(iter(self.factors), ""))

    def order(self, done: Collection[int]) -> tuple[tuple[int, ...], ...]:
        """Of each round the cells in the order in which they were measured, of trials (by number) that are ``done``.

        Empty where they took no turns.
        """
        if not self.turns:
            return ()
        those = (trial for number, trial in enumerate(self.trials, start=1) if number in done)
        rounds = grouped((trial.round, trial.cell) for trial in sorted(those, key=lambda trial: trial.turn))
        return tuple(map(tuple, rounds.values()))


_HEADING = re.compile(rb"\n#{1,6} {1,8}([^\s#][^\n]{0,60})")
_MOST = 1000  # headings of a file
HEADING = "heading"
"""The fact of a part that stands under a heading, where others of its file stand under others."""


@dataclass(frozen=True)
class Deferred:
    """Measurements of which an import needs only ``facts``, ``warnings``, and which ``metrics`` there are.

    Their frames are made when somebody asks for them. An import of which all is deferred leaves the run's tables to
    its first report: to load Polars takes longer, and more memory, than to read a capture.
    """

    make: Callable[[], Measurements]
    metrics: Sequence[str]
    facts: Mapping[str, object]
    warnings: Sequence[str]

    @cached_property
    def measured(self) -> Measurements:
        return self.make()


@dataclass(frozen=True)
class Part:
    """What a file holds of one trial.

    ``levels``: of which cell it is, as far as the file itself says. ``traits``: what else it says that may tell cells
    apart; each that differs within the run becomes a factor. ``round``: where the file numbers its repeats; else parts
    with the same levels are rounds of one cell, in the order of ``started`` where all of them say it (aware), or in
    their order. ``lasted``: from then on, in s. ``status`` and ``reason`` are those of ``TrialRecord``: what a set-up
    can't do is never 0.
    """

    found: Measurements | Deferred
    levels: Mapping[str, str] = field(default_factory=dict)
    round: int | None = None
    traits: Mapping[str, str] = field(default_factory=dict)
    started: datetime | None = None
    lasted: float | None = None
    status: Literal["done", "failed", "unsupported"] = "done"
    reason: str | None = None
    source: str = ""  # of what is not a load's, such as load averages of the host

    @property
    def measured(self) -> Measurements:
        return self.found.measured if isinstance(self.found, Deferred) else self.found

    @property
    def metrics(self) -> Sequence[str]:
        return self.found.metrics if isinstance(self.found, Deferred) else self.found.metrics["metric"].to_list()

    def with_found(self, **changes: Any) -> Part:
        """Itself, with other fields of what was measured."""
        return replace(self, found=replace(self.measured, **changes))

    def warned(self, *warnings: str, first: bool = False) -> Part:
        """Itself, with these warnings after its own, or ``first``."""
        own = self.measured.warnings
        return self.with_found(warnings=(*warnings, *own) if first else (*own, *warnings))


def said_of_files(parts: Iterable[tuple[str, Part]]) -> list[str]:
    """The warnings of parts, each once, after the first few names of the files that it is of."""
    where = grouped((warning, name) for name, part in parts for warning in part.found.warnings)
    return [f"{first(list(dict.fromkeys(names)))}: {warning}" for warning, names in where.items()]


class Importer(ABC):
    """Reads the files of one tool. ``options`` are what its user said of a file, kept in the run's manifest."""

    kind: ClassVar[str]
    """Its name: in commands, and as the source of what it reads."""
    raw_name: ClassVar[str]
    """Under which name a file is kept among the run's raw records."""
    primary: ClassVar[tuple[str, ...]] = ()
    """The metric that a report begins with: the first of these that the files have, or else their first metric."""
    unknown: ClassVar[str]
    """What these files don't say, and a reader would have to know; part of a sentence."""
    repeats: ClassVar[bool] = False
    """Whether files that say the same of themselves are rounds of one cell. Else their names tell them apart."""
    clients: ClassVar[bool] = False
    """Whether files may be those of several clients of one load, each with one of its own."""
    by_node: ClassVar[bool] = False
    """Whether names of files and folders say of which node a file is; those of one test are one trial."""
    streams: ClassVar[bool] = False
    """Whether files may be too long for the memory: ``read_stream`` is called then, and not ``read``."""
    published: ClassVar[Mapping[str, Sequence[str]]] = {}
    """Factor → levels, where a tool publishes its tables in an order that is not that of its files."""

    @abstractmethod
    def read(self, text: bytes, source: str, options: Mapping[str, Any]) -> Sequence[Part]:
        """What one file holds, a part for each trial. Raises ``ParseError`` with ``source`` and the line or key."""

    def read_stream(self, file: BinaryIO, source: str, options: Mapping[str, Any]) -> Sequence[Part]:
        """As ``read``, of a file that is read piece by piece; it can seek. Raises ``ParseError``, ``OSError``."""
        return self.read(file.read(), source, options)

    def knows(self, text: bytes) -> bool:
        """Whether a file of a folder is one of the tool's: of its whole text, or of the first 64 KiB."""
        return is_of(self.kind, text)

    def said_by_name(self, path: Path) -> Mapping[str, str]:
        """Traits of all trials in a file that its name says. Raises ``ParseError`` for a name of another tool's."""
        return {}

    def notes(self, parts: Sequence[Part]) -> Sequence[str]:
        """What whoever compares all these with others must know, in sentences; part of the report's head."""
        return ()

    def beside(self, name: str, text: bytes, names: Collection[str]) -> Sequence[str]:
        """Which of ``names``, files of its folder, belong to the file ``name`` whose contents are ``text``."""
        return ()

    def read_beside(self, parts: Sequence[Part], folder: Path, source: str) -> Sequence[Part]:
        """``parts`` with what the files beside it, in ``folder``, add. Raises ``ParseError`` with file and line."""
        return parts


class TextImporter(Importer):
    """Of a tool that prints text, which others pass on."""

    begin: ClassVar[bytes] = b""
    """A pattern of what lines begin with that the tool doesn't indent, where its reader needs that."""
    binary: ClassVar[str] = ""
    """What a file with zero bytes in it is, for a message; nothing where they may be in it."""

    @abstractmethod
    def parts(self, text: bytes, source: str) -> Sequence[tuple[int, Part]]:
        """All that is in a text as the tool printed it, each with the line on which it begins."""

    def read(self, text: bytes, source: str, options: Mapping[str, Any]) -> Sequence[Part]:
        if self.binary and b"\0" in text:
            raise ParseError(self.binary, source)
        return read_passed_on(text, lambda shown: under_headings(shown, self.parts(shown, source)), self.begin)


def under_headings(text: bytes, parts: Sequence[tuple[int, Part]]) -> list[Part]:
    """Where parts stand under several headings, each with its own as a fact.

    What a heading means nobody knows but its writer, so it tells no cells apart.
    """
    found: list[tuple[int, bytes]] = []
    if len(parts) < 2:
        return [part for _, part in parts]
    line = counted = 0
    for match in islice(_HEADING.finditer(b"\n" + text), _MOST):
        line, counted = line + text.count(b"\n", counted, match.start()), match.start()
        found.append((line + 1, match[1]))
    said = [next((heading for at, heading in reversed(found) if at <= line), b"") for line, _ in parts]
    if len(set(said)) < 2:
        return [part for _, part in parts]
    named = (printable(heading.decode(errors="replace")).strip("# ") for heading in said)
    return [
        part.with_found(facts={**part.measured.facts, HEADING: heading})
        for (_, part), heading in zip(parts, named, strict=True)
    ]


def importer_of(kind: str) -> Importer:
    """The importer of this name. Raises ``RecordsError`` where there is none."""
    if kind in KINDS:
        module, _, name = KINDS[kind].place.partition(":")
        built_in: Importer = getattr(import_module(module), name)()
        return built_in
    if is_reader(kind):
        of_reader: Callable[[str], Importer] = import_module(READER.partition(":")[0]).of_reader
        return of_reader(kind)
    found = importers().get(kind)
    if found is None:
        raise RecordsError(
            f"no importer of {kind} is installed: a newer version of Storlab, or an extension, imported the run"
        )
    importer: Importer = found.load()()
    return importer
