"""Block requests of each set-up, as data: how long and how aligned they are, and what goes below a unit.

Every share is of one operation's requests (or bytes) in a cell: all nodes and disks of a trial added up first, then
divided, then averaged over the rounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Why = Literal["shorter", "uneven", "across"]
"""Why a request is no whole number of units: shorter than one; of an uneven length; or off the boundary."""


@dataclass(frozen=True)
class Share:
    """A part of a whole (0 to 1), or a ratio: its mean over the rounds, the least and the most of any round."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class SizeShare:
    """Requests of one size: those of at least ``size`` bytes and less than twice as much."""

    size: int  # B, a power of two
    requests: Share
    bytes: Share | None = None  # null: unknown


@dataclass(frozen=True)
class UnitShare:
    """How requests lie in units of ``unit`` bytes. Null is unknown."""

    unit: int
    requests: Share | None  # share of requests whose length and offset are multiples of the unit
    bytes: Share | None  # the same, share of bytes
    offsets: Share | None  # share of requests whose offset alone is a multiple
    shorter: Share | None  # share of requests that are shorter than a unit
    amplification: Share | None  # bytes of all units touched, for each byte sent; nothing merged


@dataclass(frozen=True)
class BelowUnit:
    """Requests of one kind that are no whole number of units."""

    flags: str | None  # as in the table of requests; null: all further kinds together
    comm: str | None  # the command; null where commands were not told apart
    why: Why | None  # null: several
    count: float  # requests, mean over the rounds
    requests: Share  # of all requests of the operation
    bytes: Share
    lengths: tuple[tuple[int, float], ...]  # the most frequent, with their share of this kind


@dataclass(frozen=True)
class BlockIO:
    """One operation's block requests in one cell."""

    cell: int
    levels: dict[str, str]
    operation: str  # "write"; "all": not told apart
    unit: int  # B: that of ``below``
    rounds: int
    requests: float  # mean over the rounds
    bytes: float | None
    lengths: tuple[SizeShare, ...]
    alignments: tuple[SizeShare, ...]  # of length and offset together
    offsets: tuple[SizeShare, ...]  # of the offset alone
    units: tuple[UnitShare, ...]
    below: tuple[BelowUnit, ...] | None  # null: what they are is unknown
    warnings: tuple[str, ...] = ()
