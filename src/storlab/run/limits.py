"""What ends a run besides its study: gates of ``--fail-on`` that are answered, a budget, and rounds that are added."""

from __future__ import annotations

import re
from dataclasses import dataclass

from storlab.errors import UserError

MOST_ROUNDS = 10_000
"""Where a budget ends the run, rounds don't."""


@dataclass(frozen=True)
class Limits:
    """``gates``: as the user wrote them. ``minutes``: after which no further round begins; ``None``: any number."""

    gates: tuple[str, ...] = ()
    minutes: float | None = None


NO_LIMITS = Limits()


@dataclass(frozen=True)
class Extent:
    """How far a run is resumed: ``rounds`` in all, or so many ``more`` than have begun; neither: as it was planned."""

    rounds: int | None = None
    more: int | None = None

    def of(self, planned: tuple[int, int], begun: int) -> tuple[int, int]:
        """Rounds at least and at most. Raises ``UserError`` where fewer are asked for than have begun."""
        if self.more is not None:
            return begun + self.more, begun + self.more
        if self.rounds is None:
            return planned
        if self.rounds < begun:
            raise UserError(f"--rounds {self.rounds}: {begun} have begun already; write --rounds +10 for ten more")
        return self.rounds, self.rounds


AS_PLANNED = Extent()


def parse_extent(text: str | None) -> Extent:
    """``40`` or ``+10``. Raises ``UserError``."""
    if text is None:
        return AS_PLANNED
    if re.fullmatch(r"\+?[0-9]{1,5}", text, re.ASCII) is None or not 1 <= int(text) <= MOST_ROUNDS:
        raise UserError(f"--rounds {text!r} can't be read: write +10 for ten more rounds, or 40 for forty in all")
    return Extent(more=int(text)) if text.startswith("+") else Extent(rounds=int(text))
