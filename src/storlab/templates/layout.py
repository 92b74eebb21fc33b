"""Tables of TOML as people write them: equals signs and comments in columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_AT = 24
"""Column of a comment, where what is before it is not longer."""


def commented(text: str, comment: str = "", at: int = _AT) -> str:
    """``text`` with a comment in its column."""
    return f"{text:<{at}}# {comment}" if comment and len(text) < at else f"{text}  # {comment}" if comment else text


def table(heading: str, comment: str, rows: Iterable[tuple[str, ...]]) -> list[str]:
    """``[heading]`` and its rows, each a key, a value, and perhaps a comment. An empty heading has none."""
    rows = list(rows)
    keys = max((len(row[0]) for row in rows), default=0)
    pairs = [(f"{row[0]:<{keys}} = {row[1]}", row[2] if len(row) > 2 else "") for row in rows]
    longest = max((len(pair) for pair, said in pairs if said and len(pair) < 60), default=0)
    at = max(_AT, longest + 2)
    lines = [commented(pair, said, at) for pair, said in pairs]
    return [commented(f"[{heading}]", comment), *lines] if heading else lines


def stack(layers: Sequence[str]) -> str:
    """The value of ``stack``, on one line where it fits."""
    flat = f"[{', '.join(layers)}]"
    return flat if len(flat) <= 100 else "\n".join(["[", *(f"  {layer}," for layer in layers), "]"])
