"""What servers with InnoDB say of their settings, beside what was asked for."""

from __future__ import annotations

import re

_SIZE = re.compile(r"(\d{1,15})([KMGT]?)", re.I)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_WORDS = {"on": "1", "true": "1", "yes": "1", "off": "0", "false": "0", "no": "0"}
PAGE_SIZES = tuple(2**power * 1024 for power in (2, 3, 4, 5, 6))


def refuse_other_sizes(size: int) -> int:
    """The size of a page, which InnoDB must have. Raises ``ValueError``."""
    if size not in PAGE_SIZES:
        raise ValueError("InnoDB has pages of 4k, 8k, 16k, 32k and 64k")
    return size


def difference(wanted: str, said: str | None) -> str | None:
    """What the server has in place of what was wanted; ``None`` where it is the same, in whatever spelling."""
    if said is None:
        return "no such setting"
    return None if _plain(wanted) == _plain(said) else said


def _plain(value: str) -> str | float:
    word = _WORDS.get(value.lower(), value)
    if (size := _SIZE.fullmatch(word)) is not None:
        return float(int(size[1]) * 1024 ** _POWERS[size[2].lower()])
    try:
        return float(word)
    except ValueError:
        return word.lower()
