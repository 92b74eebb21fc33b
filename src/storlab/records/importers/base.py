"""What an importer must say of itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from storlab.measurements import Measurements


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
    def read(self, text: bytes, source: str, options: Mapping[str, Any]) -> Measurements:
        """What one file holds. Raises ``ParseError`` with ``source`` and the line or key."""
