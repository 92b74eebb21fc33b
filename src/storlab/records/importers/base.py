"""What an importer must say of itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from storlab.measurements import Measurements


@dataclass(frozen=True)
class Part:
    """What a file holds of one trial.

    ``levels``: of which cell it is, as far as the file itself says. ``round``: where the file numbers its repeats;
    else parts with the same levels are rounds of one cell in their order.
    """

    measured: Measurements
    levels: Mapping[str, str] = field(default_factory=dict)
    round: int | None = None


class Importer(ABC):
    """Reads the files of one tool. ``options`` are what its user said of a file, kept in the run's manifest."""

    kind: ClassVar[str]
    """Its name: in commands, and as the source of what it reads."""
    raw_name: ClassVar[str]
    """Under which name a file is kept among the run's raw records."""
    primary: ClassVar[str]
    """The metric that a report begins with."""
    unknown: ClassVar[str]
    """What these files don't say, and a reader would have to know; part of a sentence."""

    @abstractmethod
    def read(self, text: bytes, source: str, options: Mapping[str, Any]) -> Sequence[Part]:
        """What one file holds, a part for each trial. Raises ``ParseError`` with ``source`` and the line or key."""

    def primary_of(self, parts: Sequence[Part], options: Mapping[str, Any]) -> str:
        """The metric that a report of these files begins with."""
        return self.primary
