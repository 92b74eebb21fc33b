"""What a guest's console says of its end."""

from __future__ import annotations

import re
from pathlib import Path

_PANIC = re.compile(r"Kernel panic - not syncing: (?P<reason>.*)")
_TIME = re.compile(r"^\[ *\d+\.\d+\] ")
_INIT = "storlab-init: "
_TAIL = 30  # lines
_MOST = 64 * 1024  # bytes


def console_text(path: Path) -> str:
    """The end of a console, as text."""
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(file.tell() - _MOST, 0))
            return file.read().decode(errors="replace").replace("\r", "")
    except OSError:
        return ""


def panic(text: str) -> str | None:
    """Why the guest's kernel panicked; ``None`` where it did not."""
    found = _PANIC.search(text)
    return found["reason"].strip() if found else None


def last_word(text: str) -> str | None:
    """What the guest's first process said last; ``None`` where it said nothing."""
    said = [line.partition(_INIT)[2].strip() for line in text.splitlines() if _INIT in line]
    return said[-1] if said else None


def tail(text: str) -> str:
    """The last lines, without the kernel's times."""
    lines = [_TIME.sub("", line).rstrip() for line in text.splitlines()]
    return "\n".join([line for line in lines if line][-_TAIL:])
