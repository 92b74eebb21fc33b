"""``Check``: one thing that a machine can do or can't."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warn", "missing"]


@dataclass(frozen=True)
class Check:
    """``says`` is what was found, or the reason why it is missing; ``remedy`` the command that would mend it."""

    name: str
    group: str
    status: Status
    says: str
    remedy: str = ""


def ok(name: str, group: str, says: str) -> Check:
    """It works, as far as that can be seen."""
    return Check(name, group, "ok", says)


def warn(name: str, group: str, says: str, remedy: str = "") -> Check:
    """It works in part, or disturbs measurements, or can't be judged from here."""
    return Check(name, group, "warn", says, remedy)


def missing(name: str, group: str, says: str, remedy: str = "") -> Check:
    """It is not there; what needs it is unsupported on this machine."""
    return Check(name, group, "missing", says, remedy)
