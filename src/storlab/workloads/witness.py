"""What a load must say of itself to take part in a crash check: what it was promised, and what is left of that."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal

from storlab.workloads.base import RunContext, Workload


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
