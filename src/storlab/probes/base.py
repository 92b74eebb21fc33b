"""The probe protocol: what a new probe must say of itself, and what it gets to work with."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import orjson

from storlab.base.errors import ParseError, StorlabError
from storlab.base.limits import RECORD
from storlab.base.reading import read_file
from storlab.measurements import Measurements
from storlab.metrics import MetricSpec, Value, specs_of
from storlab.model import Model
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.probes.subject import End, Kind, Subject

NOTES = "notes.json"
"""In a probe's raw folder: sentences on what it could not watch, and why."""


@dataclass(frozen=True)
class ProbeContext:
    """Where a probe watches in one trial, and what. ``raw`` is a folder of the run's records, the probe's own."""

    node: Node
    raw: Path
    subject: Subject


@dataclass(frozen=True)
class Window:
    """The measured phase on one node: seconds on its monotonic clock."""

    start: float
    end: float


@dataclass(frozen=True)
class ProbeRecord:
    """What a probe left of one trial: its folder, the measured phase, and what it watched."""

    raw: Path
    window: Window
    subject: Subject


@dataclass(frozen=True)
class Seen:
    """What a probe saw in one trial at one ``source``: on all nodes where the load ran, or on all of a group below.

    ``others``: what it saw at all other sources. ``operations``: those of all ``loads`` together; ``None`` if one does
    not count them, or counts other ones than the probe has seen, such as without a warm-up.
    """

    nodes: Sequence[Measurements]
    others: Sequence[Measurements]
    at_load: bool
    loads: Sequence[Measurements]
    operations: float | None


class Probe(Model):
    """One kind of observation. The fields of a subclass are its keys in the study file."""

    kind: ClassVar[str]
    watches: ClassVar[frozenset[Kind]]
    """It watches on each node that has one of these, at each end; with ``machine``, once on each machine."""

    metrics: ClassVar[tuple[MetricSpec, ...]]
    """The metrics and histograms that ``parse`` may yield; no others."""

    in_slices: ClassVar[frozenset[str]] = frozenset()
    """Names of metrics, or of families, that are right though the load works in turn with others: counts of what is
    its own. Where there is none, it does not watch such loads."""

    begins_last: ClassVar[bool] = False
    """Whether it begins when all others have begun, right before the loads: what it counts would have what these do
    until then."""

    counts_loads: ClassVar[bool] = False
    """Whether it needs to know what the loads' own processes did: ``storlab.probes.counters``."""

    def watches_at(self, end: End, kinds: Collection[Kind]) -> bool:
        return not self.watches.isdisjoint(kinds)

    def needs(self) -> Needs:
        return Needs()

    def declares(self) -> tuple[MetricSpec, ...]:
        """Those of ``metrics`` that it may yield with these options."""
        return self.metrics

    @abstractmethod
    def watch(self, context: ProbeContext) -> AbstractAsyncContextManager[None]:
        """Observe for as long as the context lasts, and write what is seen into ``context.raw``."""

    @abstractmethod
    def parse(self, record: ProbeRecord) -> Measurements:
        """What was seen within the window; a pure function of the raw files. Raises ``ParseError``."""

    def parse_many(self, records: Sequence[ProbeRecord]) -> list[Measurements | StorlabError]:
        """What ``parse`` gives of each, or the error that it raises. A probe may read many trials at once faster."""
        return [self._parsed(each) for each in records]

    def _parsed(self, record: ProbeRecord) -> Measurements | StorlabError:
        try:
            return self.parse(record)
        except StorlabError as error:
            return error

    def derive(self, seen: Seen) -> Iterable[Value]:
        """Metrics of all nodes together that follow from what it saw on several, or from that and the loads."""
        return ()


def operations(loads: Sequence[Measurements]) -> float | None:
    """Of all loads in all directions; ``None`` if one does not count them, or has none."""
    done = [_operations(each) for each in loads]
    return sum(done) if done and all(done) else None


def _operations(load: Measurements) -> float:
    specs, totals = specs_of(load.declared), load.totals()
    found = {name: value for name, value in totals.items() if specs.find(name).quantity == "operations"}
    # If their total is there, too, that alone counts.
    return sum(value for name, value in found.items() if "." not in name or name.rpartition(".")[2] not in found)


def sums(nodes: Iterable[Measurements]) -> dict[str, float]:
    found: dict[str, float] = {}
    for each in nodes:
        for name, value in each.totals().items():
            found[name] = found.get(name, 0.0) + value
    return found


def write_notes(raw: Path, sentences: Sequence[str]) -> None:
    (raw / NOTES).write_bytes(orjson.dumps(list(sentences)))


def read_notes(raw: Path) -> tuple[str, ...]:
    """The sentences of ``NOTES``, if there are any. Raises ``ParseError``."""
    path = raw / NOTES
    try:
        sentences = orjson.loads(read_file(path, RECORD))
    except FileNotFoundError:
        return ()
    except (OSError, orjson.JSONDecodeError) as error:
        raise ParseError(f"cannot read it: {error}", str(path), 1) from None
    if not isinstance(sentences, list) or not all(isinstance(sentence, str) for sentence in sentences):
        raise ParseError("is no list of sentences", str(path), 1)
    return tuple(sentences)
