"""What every finding is."""

from __future__ import annotations

import re

from msgspec import Struct


def _kebab(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower()


class Finding(Struct, frozen=True, tag=_kebab):
    """Something found of a run's numbers, or a warning about them."""


class Reported(Finding, frozen=True):
    """What a program, a study or an error says in its own words."""

    text: str
