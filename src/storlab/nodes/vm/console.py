"""What a guest's console says of its end."""

from __future__ import annotations

import re
from pathlib import Path

_PANIC = re.compile(r"Kernel panic - not syncing: (?P<reason>.*)")
_KILLED = re.compile(r"Out of memory: Killed process \d+ \((?P<program>.*?)\) ")
_TIME = re.compile(r"^\[ *\d+\.\d+\] ")
_INIT = "storlab-init: "
_TAIL = 30  # lines
_PANIC_TAIL = 80  # lines; a kernel that panics prints its call trace after the reason
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


def killed_for_memory(text: str) -> str | None:
    """The program that the guest's kernel killed last because memory ran out; ``None`` where that did not happen."""
    found = _KILLED.findall(text)
    return found[-1] if found else None


def last_word(text: str) -> str | None:
    """What the guest's first process said last, but for its good-bye; ``None`` where it said nothing."""
    said = [line.partition(_INIT)[2].strip() for line in text.splitlines() if _INIT in line]
    return said[-1].removesuffix("; powering off") if said else None


def tail(text: str) -> str:
    """The last lines, without the kernel's times; where it panicked, the reason is among them."""
    lines = [line for line in (_TIME.sub("", line).rstrip() for line in text.splitlines()) if line]
    panicked = [number for number, line in enumerate(lines) if _PANIC.match(line)]
    first = max(len(lines) - _TAIL, 0)
    if panicked:
        first = max(min(first, panicked[0]), len(lines) - _PANIC_TAIL, 0)
    return "\n".join(lines[first:])
