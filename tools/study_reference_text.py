"""What ``docs/reference/study.md`` says beyond the schema, from ``docs/reference/study.template``: its frame, and
examples, each of which loads.

A line ``%% NAME`` begins a part of the template, which ends before the next one. ``before HEADING`` stands below a
heading, ``after KEY`` below the table of its keys, and ``example KEY`` below that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

TEMPLATE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "study.template"
_PART = re.compile(r"^%% (.+)\n", re.MULTILINE)


def parts(text: str) -> dict[str, str]:
    """Name → text, as it stands."""
    _, *found = _PART.split(text)
    return dict(zip(found[::2], found[1::2], strict=True))


def _named(every: Mapping[str, str], kind: str) -> dict[str, str]:
    return {name.removeprefix(f"{kind} "): text for name, text in every.items() if name.startswith(f"{kind} ")}


_ALL = parts(TEMPLATE.read_text("utf-8"))
START, END = _ALL["start"], _ALL["end"]
BEFORE_EACH, AFTER_EACH, EXAMPLES = (_named(_ALL, kind) for kind in ("before", "after", "example"))
