"""What the command line of ``storlab new`` says, and the answers that it makes without a question."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from storlab.errors import UserError
from storlab.templates.answers import SUBJECTS, TARGETS, Answers, Target

if TYPE_CHECKING:
    from storlab.cli.new.looking import Looker

DIRECTORY = "/var/tmp"
"""What is offered to those who may not make a loop device."""
IN_A_DIRECTORY = ("safety", "queue-depths", "block-sizes", "nothing")
"""What can be compared in a directory as well as on a disk."""
_REQUIRED = ("compare", "on", "load", "until", "guests")


@dataclass(frozen=True)
class Asked:
    """What was given on the command line; ``None``: not given."""

    compare: str | None = None
    on: str | None = None
    size: str | None = None
    wipe: str | None = None
    load: str | None = None
    until: str | None = None
    guests: int | None = None

    @property
    def given(self) -> list[str]:
        """The options that were given."""
        return [f"--{name}" for name, value in vars(self).items() if value is not None]

    def refuse_missing(self) -> None:
        """Raise ``UserError`` where somebody would have to be asked."""
        missing = [f"--{name}" for name in _REQUIRED if getattr(self, name) is None]
        if missing:
            are = "is" if len(missing) == 1 else "are"
            raise UserError(
                f"cannot ask, as this is not a terminal, and {', '.join(missing)} {are} missing: give them (see "
                "`storlab new --help`), add --yes for defaults, or run it in a terminal"
            )


def answers_of(asked: Asked, look: Looker) -> Answers:
    """Those of options and defaults, looked at. Raises ``UserError``."""
    compare = asked.compare or usual_subject()
    target, path = place_of(asked.on or usual_place(compare))
    answers = Answers(
        compare,
        target,
        path,
        wipe=asked.wipe or "",
        size=asked.size or "",
        load=asked.load or "",
        extent=asked.until or "decided",
        guests=asked.guests,
    )
    if reason := look.is_occupied(answers):
        raise UserError(f"{reason} Add --wipe {path} if that is what you want")
    look.check(answers)
    return answers


def usual_subject() -> str:
    """What is compared where nobody says it: file systems, or what those who may not mount one can compare."""
    return next(iter(SUBJECTS)) if os.geteuid() == 0 else IN_A_DIRECTORY[0]


def usual_place(compare: str) -> str:
    """Where nobody says it: a file of Storlab's own; where only root could set that up, a directory, if one will do."""
    return DIRECTORY if os.geteuid() != 0 and compare in IN_A_DIRECTORY else "file"


def place_of(on: str) -> tuple[Target, str]:
    """What ``--on`` says: a word, or the path of a device or directory, whichever it is. Raises ``UserError``."""
    if on == "file":
        return "file", ""
    path = on if on.startswith("/") else str(Path(on).absolute())
    if on in TARGETS:
        raise UserError(f"--on {on}: give its path instead")
    if Path(path).is_block_device() or (not os.path.lexists(path) and path.startswith("/dev/")):
        return "device", path
    if os.path.lexists(path) and not os.path.isdir(path):  # noqa: PTH112 - never raises
        raise UserError(f"--on {on}: it is neither a block device nor a directory")
    return "directory", path
