"""Sizes, durations and shares as people write them, and as study files hold them.

Sizes follow fio: ``k``, ``m``, ``g``, ``t``, ``p`` are powers of 1024, in either case, with or without ``iB`` or
``B`` after them. Durations follow systemd.time(7): ``250ms``, ``60s``, ``5m``, ``1h30m``.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgtp]?)(?:i?b)?\s*", re.IGNORECASE)
_POWER = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(us|µs|ms|s|sec|m|min|h|d)(?=[\s\d]|$)")
_SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_SHARE = re.compile(r"\s*(?:±|\+/-|\+-)?\s*(\d+(?:\.\d+)?)\s*%\s*")


def parse_size(value: object) -> int:
    """``"4k"`` → 4096 bytes; an integer stands for itself. Raises ``ValueError`` that names what would be right."""
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 0:
            raise ValueError(f"{value} is not a size: it is negative")
        return value
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f'{value!r} is not a size: write bytes, or a number with k, M, G or T, such as "4k"')
    size = float(match[1]) * 1024 ** _POWER[match[2].lower()]
    if size != int(size):
        raise ValueError(f"{value!r} is not a whole number of bytes")
    return int(size)


def parse_duration(value: object) -> float:
    """``"1m30s"`` → 90.0 seconds; a number is seconds. Raises ``ValueError`` that names what would be right."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not 0 <= value < float("inf"):
            raise ValueError(f"{value} is not a duration: it must be a finite number of seconds, 0 or more")
        return float(value)
    text = value.strip() if isinstance(value, str) else ""
    parts = list(_DURATION_PART.finditer(text))
    if not parts or _DURATION_PART.sub("", text).strip():
        raise ValueError(f'{value!r} is not a duration: write a number with ms, s, m or h, such as "60s"')
    return sum(float(part[1]) * _SECONDS[part[2]] for part in parts)


def parse_share(value: object) -> float:
    """``"±5%"`` or ``"5%"`` → 0.05. Raises ``ValueError`` that names what would be right."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        share = float(value)
    else:
        match = _SHARE.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            raise ValueError(f'{value!r} is not a share: write a percentage, such as "5%"')
        share = float(match[1]) / 100
    if not 0 < share < 1:
        raise ValueError(f"{value!r} must lie between 0 % and 100 %")
    return share


def size_text(size: int) -> str:
    """4096 → ``"4k"``; a size that is no whole multiple stays in bytes. The inverse of ``parse_size``."""
    for suffix in "TGMk":
        unit = 1024 ** _POWER[suffix.lower()]
        if size and size % unit == 0:
            return f"{size // unit}{suffix}"
    return str(size)


def _schema(pattern: str, number: str, example: str) -> WithJsonSchema:
    text = {"type": "string", "pattern": pattern}
    return WithJsonSchema({"anyOf": [text, {"type": number}], "examples": [example]})


Size = Annotated[
    int, BeforeValidator(parse_size), _schema(r"^\s*\d+(\.\d+)?\s*[kmgtpKMGTP]?(i?[bB])?\s*$", "integer", "4k")
]
Duration = Annotated[
    float,
    BeforeValidator(parse_duration),
    _schema(r"^\s*(\d+(\.\d+)?\s*(us|µs|ms|s|sec|m|min|h|d)\s*)+$", "number", "60s"),
]
Share = Annotated[
    float, BeforeValidator(parse_share), _schema(r"^\s*(±|\+/-|\+-)?\s*\d+(\.\d+)?\s*%\s*$", "number", "5%")
]
