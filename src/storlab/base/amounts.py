"""Sizes, durations and shares as people write them; ``units`` has the keys of study files that hold them.

Sizes follow fio: ``k``, ``m``, ``g``, ``t``, ``p`` are powers of 1024, in either case, with or without ``iB`` or
``B`` after them. Durations follow systemd.time(7): ``250ms``, ``60s``, ``5m``, ``1h30m``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from fractions import Fraction

from storlab.base.text import printable

MAX_SIZE = 2**63 - 1
"""Bytes: the largest offset that Linux knows."""

MAX_DURATION = 366 * 86400.0
"""Seconds: nothing here takes longer than a year, and an absurd number is a slip of the pen."""

_NARROWEST = 3  # characters: what lies deeper in a value is not shown
_LONGEST = 64  # characters; of more, matching would take time that grows with their square
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgtp]?)(?:i?b)?\s*", re.IGNORECASE)
_POWER = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(us|µs|ms|s|sec|m|min|h|d)(?=[\s\d]|$)")
_SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_SHARE = re.compile(r"\s*(?:±|\+/-|\+-)?\s*(\d+(?:\.\d+)?)\s*%\s*")


def parse_size(value: object) -> int:
    """``"4k"`` → 4096 bytes; an integer stands for itself. Raises ``ValueError`` that names what would be right."""
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 0:
            raise ValueError(f"{shown(value)} is not a size: it is negative")
        size = Fraction(value)
    else:
        match = _SIZE.fullmatch(value) if isinstance(value, str) and value.isascii() and len(value) < _LONGEST else None
        if match is None:
            raise ValueError(f'{shown(value)} is not a size: write bytes, or a number with k, M, G or T, such as "4k"')
        size = Fraction(match[1]) * 1024 ** _POWER[match[2].lower()]  # exact: a float is not, above 8 PiB
    if size.denominator != 1:
        raise ValueError(f"{shown(value)} is not a whole number of bytes")
    if size > MAX_SIZE:
        raise ValueError(f"{shown(value)} is not a size: Linux knows none above 8 EiB")
    return int(size)


def parse_duration(value: object) -> float:
    """``"1m30s"`` → 90.0 seconds; a number is seconds. Raises ``ValueError`` that names what would be right."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not value >= 0:
            raise ValueError(f"{shown(value)} is not a duration: it must be 0 or more seconds")
        seconds: float = value
    else:
        known = isinstance(value, str) and len(value) < _LONGEST and value.replace("µ", "").isascii()
        text = value.strip() if isinstance(value, str) and known else ""
        parts = list(_DURATION_PART.finditer(text))
        if not parts or _DURATION_PART.sub("", text).strip():
            raise ValueError(f'{shown(value)} is not a duration: write a number with ms, s, m or h, such as "60s"')
        seconds = sum(float(part[1]) * _SECONDS[part[2]] for part in parts)
    if seconds > MAX_DURATION:
        raise ValueError(f"{shown(value)} is not a duration: it is longer than a year")
    return float(seconds)


def parse_share(value: object) -> float:
    """``"±5%"`` or ``"5%"`` → 0.05. Raises ``ValueError`` that names what would be right."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        share = value if abs(value) < 1 else 1.0  # an integer may be too large for a float
    else:
        known = isinstance(value, str) and len(value) < _LONGEST and value.replace("±", "").isascii()
        match = _SHARE.fullmatch(value) if isinstance(value, str) and known else None
        if match is None:
            raise ValueError(f'{shown(value)} is not a share: write a percentage, such as "5%"')
        share = float(match[1]) / 100
    if not 0 < share < 1:
        raise ValueError(f'{shown(value)} must lie between 0 % and 100 %, such as "5%"')
    return share


def shown(value: object, width: int = 60) -> str:
    """A value in a message, as its user wrote it rather than as Python would: quoted text, true, 2024-01-31."""
    match value:
        case bool():
            text = str(value).lower()
        case str():
            text = '"' + value.replace("\n", "\\n").replace("\t", "\\t") + '"'
            text = printable(text)
        case list() | tuple() | dict() if width < _NARROWEST:
            text = "…"
        case list() | tuple():
            text = f"[{', '.join(shown(item, width - 1) for item in value[:width])}]"
        case dict():
            pairs = (f"{key} = {shown(item, width - 1)}" for key, item in list(value.items())[:width])
            text = f"{{ {', '.join(pairs)} }}" if value else "{}"
        case None:
            text = "nothing"
        case _:
            text = str(value) if not isinstance(value, int) or abs(value) < 10**30 else "this number"
    return text if len(text) <= width else f"{text[: width - 2]} …"


def size_text(size: int) -> str:
    """4096 → ``"4k"``; a size that is no whole multiple stays in bytes. The inverse of ``parse_size``."""
    for suffix in "TGMk":
        unit = 1024 ** _POWER[suffix.lower()]
        if size and size % unit == 0:
            return f"{size // unit}{suffix}"
    return str(size)


def plural(count: int, noun: str) -> str:
    """``1 round``, ``2 rounds``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def percent(share: float) -> str:
    """``5 %``, ``99.5 %``, ``99.983 %``: two digits of what is missing to 100 %, or of the share itself."""
    small = 100 * min(share, 1 - share) if 0 < share < 1 else 1.0
    decimals = max(0, 1 - math.floor(math.log10(small)))
    return f"{round(share * 100, decimals):.12g} %"


def numbered(noun: str, numbers: Sequence[int], most: int = 8) -> str:
    """``round 3``, ``rounds 1, 2 and 7``; a long list ends in how many more there are."""
    head = [str(number) for number in numbers[:most]]
    noun = noun if len(numbers) == 1 else f"{noun}s"
    if len(numbers) > most:
        return f"{noun} {', '.join(head)} and {len(numbers) - most} more"
    return f"{noun} {' and '.join(filter(None, [', '.join(head[:-1]), head[-1]]))}"
