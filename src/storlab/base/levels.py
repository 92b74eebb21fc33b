"""Levels that are numbers: 1, 8, 32; 4k, 64k, 1M; 0ms, 1ms. A factor with three or more of them is a sweep.

What such a factor asks is the course of a metric over it, a curve, and not which of its levels is the best: ten queue
depths are forty-five pairs, and nobody waits for the evidence that all of these need together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from storlab.base.amounts import parse_duration, parse_share, parse_size, shown

LEAST = 3
"""Two numbers are one pair, which is a question; from three on they are a course."""

_PLAIN = re.compile(r"\d{1,18}(?:\.\d{1,9})?")
_SIZED = re.compile(r"[0-9.]{1,20}[kmgtp](?:i?b)?", re.IGNORECASE)


@dataclass(frozen=True)
class Numbers:
    """``values`` in base units, in the order of the levels. ``unit``: "B", "s", or nothing for plain numbers."""

    unit: Literal["", "B", "s"]
    values: tuple[float, ...]


def numbers_of(labels: Iterable[str]) -> Numbers | None:
    """The numbers that ``labels`` are: all plain, all sizes, or all durations; ``None`` where they are not.

    ``1m`` among sizes is a mebibyte, and among durations a minute; by itself it is a size, as for fio.
    """
    texts = list(labels)
    if not texts:
        return None
    if all(map(_PLAIN.fullmatch, texts)):
        return Numbers("", tuple(map(float, texts)))
    if all(_PLAIN.fullmatch(text) or _SIZED.fullmatch(text) for text in texts):
        sizes = _read(texts, parse_size)
        return None if sizes is None else Numbers("B", sizes)
    durations = None if any(text != "0" and _PLAIN.fullmatch(text) for text in texts) else _read(texts, parse_duration)
    return None if durations is None else Numbers("s", durations)


def is_sweep(labels: Iterable[str]) -> bool:
    """Whether they are three or more different numbers."""
    found = numbers_of(labels)
    return found is not None and len(set(found.values)) >= LEAST


_OF_LOAD = re.compile(
    r"(io)?_?depth|q(ueue_?)?d(epth)?|(num_?)?jobs|threads|clients|workers|processes|streams|connections|count|nodes"
    r"|(fio_?)?rate(_iops)?|load|concurrency|users",
    re.IGNORECASE,
)


def names_load(name: str) -> bool:
    """Whether a factor or key of this name says how much is asked of storage at once, and not what is asked."""
    return _OF_LOAD.fullmatch(name.replace("-", "_")) is not None


def _read(texts: Iterable[str], parse: Callable[[object], float]) -> tuple[float, ...] | None:
    try:
        return tuple(float(0 if text == "0" else parse(text)) for text in texts)
    except ValueError:
        return None


def amount_in(value: str | float, unit: str) -> float:
    """A limit for a metric of ``unit``: ``"5ms"`` of one in s, ``"100MiB/s"`` or ``"100M"`` of one in B/s, ``"5%"``
    of a share, a number of any.

    Raises ``ValueError`` for what is no such amount.
    """
    if not isinstance(value, str):
        return float(value)
    if unit == "s":
        return parse_duration(value)
    plain = value.removesuffix("/s").rstrip() if unit.endswith("/s") else value
    if unit in ("B", "B/s"):
        return float(parse_size(plain))
    if unit == "1" and value.endswith("%"):
        return parse_share(value)
    if _PLAIN.fullmatch(plain):
        return float(plain)
    raise ValueError(f"{shown(value)} is not a number, and the metric is in {unit if unit != '1' else 'plain numbers'}")
