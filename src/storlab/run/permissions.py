"""What the user of a run lets a study's own words do, which they may not do by themselves."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Permissions:
    """``unconfined``: loads and commands may touch all that Storlab itself may. ``code``: paths that may be loaded."""

    unconfined: bool = False
    code: tuple[str, ...] = ()


NO_PERMISSIONS = Permissions()
UNCONFINED = "Loads and commands of the study were not confined (--unconfined): they could write anywhere."
