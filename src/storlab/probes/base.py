"""The probe protocol: what a new probe must say of itself, and what it gets to work with."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from storlab.errors import StorlabError
from storlab.measurements import Measurements
from storlab.metrics import MetricSpec
from storlab.model import Model
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.probes.subject import End, Kind, Subject


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
    """Whether it needs to know what the loads' own processes did: ``storlab.probes.counters.output``."""

    def watches_at(self, end: End, kinds: Collection[Kind]) -> bool:
        """Whether it watches on a node at this end that has these, unless its options say otherwise."""
        return not self.watches.isdisjoint(kinds)

    def needs(self) -> Needs:
        """What the node must have."""
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
