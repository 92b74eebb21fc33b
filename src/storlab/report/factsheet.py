"""Facts (nested dicts as tools report them) as lines of name and text, for a definition list."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from storlab.report import format as fmt

_BYTES = frozenset({"memory", "size"})


@dataclass(frozen=True)
class Fact:
    """One fact. ``block``: several lines, to be shown as a tool printed them."""

    name: str
    text: str
    block: bool = False


def facts_of(facts: object) -> list[Fact]:
    """Every leaf of ``facts``, named by its path: ``tools.fio``."""
    return list(_walk("", facts))


def _walk(path: str, value: object) -> Iterator[Fact]:
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield from _walk(f"{path}.{name}" if path else str(name), part)
    else:
        text = _text(path.rsplit(".", 1)[-1], value)
        yield Fact(path, text, "\n" in text.strip())


def _text(name: str, value: object) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float) and name in _BYTES:
        return f"{fmt.quantity(float(value), 'B')} ({value} B)"
    if isinstance(value, list | tuple):
        return ", ".join(_text("", part) for part in value) if value else "none"
    return str(value)
