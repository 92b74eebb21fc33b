"""What charts of a report show."""

from __future__ import annotations

from typing import Literal

Kind = Literal["rounds", "paired", "series", "latency", "block", "effects", "course", "variability", "sweep", "profile"]
