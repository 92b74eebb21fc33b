"""What a load that works in slices finds in its folder: ``turns.json``, its turns on its node's monotonic clock."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from storlab.errors import ParseError, RecordsError
from storlab.record import Count, Seconds, read_record, to_json

NAME = "turns.json"
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
    (folder / NAME).write_bytes(to_json(turns))


def read_turns(raw: Path) -> Turns | None:
    try:
        return read_record(raw / NAME, Turns)
    except FileNotFoundError:
        return None
    except RecordsError as error:
        raise ParseError(str(error)) from None
