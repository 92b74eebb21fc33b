"""What ends a run other than its study: gates of ``--fail-on`` that are answered, a budget, added rounds, and an
assignment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from storlab.base.errors import UserError
from storlab.base.limits import ROUNDS

if TYPE_CHECKING:
    from storlab.records.manifest import Order, Rest


@dataclass(frozen=True)
class Limits:
    """``gates``: as the user wrote them. ``minutes``: after which no further round begins; ``None``: any number.

    ``until``: the rule by which it stops in the place of the study's, since it was resumed so. ``optional``: by factor,
    levels for which no gate asks where this machine does not support them.
    """

    gates: tuple[str, ...] = ()
    minutes: float | None = None
    until: str | None = None
    optional: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


NO_LIMITS = Limits()


@dataclass(frozen=True)
class Extent:
    """How far a run is resumed: ``rounds`` in all, or so many ``more`` than have begun; neither: as it was planned.

    ``until``: another rule by which it stops, as ``parse_until`` has it. Then rounds are those at most; where none are
    given, as many as it takes, or for "max" as were planned.
    """

    rounds: int | None = None
    more: int | None = None
    until: str | None = None

    def of(self, planned: tuple[int, int], begun: int) -> tuple[int, int]:
        """Rounds at least and at most. Raises ``UserError`` if fewer are asked for than have begun."""
        if self.rounds is not None and self.rounds < begun:
            raise UserError(f"--rounds {self.rounds}: {begun} have begun already; write --rounds +10 for ten more")
        asked = self.rounds if self.more is None else begun + self.more
        if self.until in (None, "max"):
            return planned if asked is None else (asked, asked)
        most = ROUNDS if asked is None else asked
        return min(planned[0], most), most


AS_PLANNED = Extent()


def refuse_other_rule(extent: Extent, now: str | None, resting: Sequence[int]) -> None:
    """Raise ``UserError`` if another rule is asked for than the one by which cells came to rest: they rest for good.

    ``now``: the rule of an earlier ``--until``.
    """
    if resting and extent.until not in (None, now):
        cells = f"cell {resting[0]} rests" if len(resting) == 1 else f"cells {', '.join(map(str, resting))} rest"
        raise UserError(
            f"--until {extent.until}: {cells} because the run's own rule was already met there; resting cells are not "
            "run again. --rounds +10 adds rounds for what is open; for another rule, set it in a copy of the study, in "
            "[repeat]"
        )


def parse_until(text: str) -> str:
    """``decided``, ``max``, or a precision such as ``±5%``, as ``--until`` has it. Raises ``UserError``."""
    if text not in ("decided", "max"):
        precision_of(text)
    return text


def precision_of(until: str) -> float:
    """0.05 of ``±5%``. Raises ``UserError``."""
    from storlab.base.units import parse_share  # which loads pydantic

    try:
        return parse_share(until)
    except ValueError:
        message = f'cannot read --until {until!r}: write "decided", "max", or a precision such as "±5%"'
        raise UserError(message) from None


def parse_extent(text: str | None, until: str | None = None) -> Extent:
    """``40`` or ``+10``, and another rule by which to stop. Raises ``UserError``."""
    until = None if until is None else parse_until(until)
    if text is None:
        return Extent(until=until)
    if re.fullmatch(r"\+?[0-9]{1,5}", text, re.ASCII) is None or not 1 <= int(text) <= ROUNDS:
        raise UserError(f"cannot read --rounds {text!r}: write +10 for ten more rounds, or 40 for forty in all")
    return Extent(more=int(text), until=until) if text.startswith("+") else Extent(rounds=int(text), until=until)


@dataclass(frozen=True)
class Assignment:
    """Rounds ``first`` to ``last``. ``rests``: what does not take part in them; ``order``: as the run draws it."""

    first: int
    last: int
    rests: tuple[Rest, ...] = ()
    order: Order = "together"

    @property
    def planned(self) -> tuple[int, int]:
        """Rounds at least and at most, as of a run that ends with this assignment."""
        return (self.last, self.last)


def parse_rounds(text: str) -> int | Assignment:
    """``12``, or ``5-8`` for an assignment of these. Raises ``UserError``."""
    found = re.fullmatch(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", text, re.ASCII)
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    if not 1 <= first <= last <= ROUNDS:
        raise UserError(
            f"cannot read --rounds {text!r}: write 12 for twelve rounds, or 5-8 for the fifth to the eighth of a run "
            "that several machines do"
        )
    return Assignment(first, last) if found and found[2] else first
