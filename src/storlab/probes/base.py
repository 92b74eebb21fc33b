"""The probe protocol: what a new probe must say of itself, and what it gets to work with."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from storlab.errors import StorlabError
from storlab.measurements import Measurements
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node

Where = Literal["machines", "nodes", "host"]
"""``machines``: once on each machine, the host among them. ``nodes``: on each node, with its own storage.
``host``: only on this machine."""


@dataclass(frozen=True)
class Post:
    """Where a probe watches in one trial. ``raw`` is a folder of the run's records, the probe's own.

    ``disk`` is the kernel's name of the disk beneath what is measured; ``None`` where there is none.
    ``beneath`` are disks of this node that the disks of other nodes lie on.
    ``processes`` are the guests whose QEMU runs on this machine, each with the process's id.
    """

    node: Node
    raw: Path
    disk: str | None
    beneath: tuple[str, ...] = ()
    processes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Window:
    """The measured phase on one node: seconds on its monotonic clock."""

    start: float
    end: float


class Left(NamedTuple):
    """What a probe left of one trial: its folder, the measured phase, and the disk under test, if there is one."""

    raw: Path
    window: Window
    disk: str | None


class Probe(BaseModel):
    """One kind of observation. The fields of a subclass are its keys in the study file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: ClassVar[str]
    where: ClassVar[Where] = "nodes"

    def place(self) -> Where:
        """Where this one watches: ``where``, unless its options say otherwise."""
        return self.where

    def needs(self) -> Needs:
        """What the node must have."""
        return Needs()

    @abstractmethod
    def watch(self, post: Post) -> AbstractAsyncContextManager[None]:
        """Observe for as long as the context lasts, and write what is seen into ``post.raw``."""

    @abstractmethod
    def parse(self, raw: Path, window: Window, disk: str | None) -> Measurements:
        """What was seen within the window; a pure function of the raw files. Raises ``ParseError``."""

    def parse_many(self, left: Sequence[Left]) -> list[Measurements | StorlabError]:
        """What ``parse`` gives of each, or the error that it raises. A probe may read many trials at once faster."""
        return [self._parsed(each) for each in left]

    def _parsed(self, left: Left) -> Measurements | StorlabError:
        try:
            return self.parse(*left)
        except StorlabError as error:
            return error
