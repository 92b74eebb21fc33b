"""The packets that the probe ``tcp`` kept, read back from its raw folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import orjson

from storlab.errors import ParseError
from storlab.limits import RECORD
from storlab.reading import read_file

PACKETS, LINES, ABOUT = "packets.pcap", "packets.txt", "packets.json"
"""What tcpdump captured; what it prints of that; and ``t``, when it was started, on the node's monotonic clock, or why
it kept none."""

MOST_TEXT = 16 * 1024**2  # bytes


class Phase(Protocol):
    """The measured phase on one node: seconds on its monotonic clock."""

    @property
    def start(self) -> float: ...
    @property
    def end(self) -> float: ...


def kept_packets(raw: Path, window: Phase) -> list[str]:
    """What tcpdump printed of those of the measured phase, a line a packet. Raises ``ParseError`` with why none."""
    about = _about(raw / ABOUT)
    t = about.get("t")
    if not isinstance(t, float):
        why = about.get("why") or "as far as its card counts, the server sent no data"
        raise ParseError(f"no packets were kept: {why}")
    if not window.start <= t <= window.end:
        raise ParseError("no packets were kept: those captured are not of the measured phase")
    try:
        return read_file(raw / LINES, MOST_TEXT).decode(errors="replace").splitlines()
    except OSError as error:
        raise ParseError(f"cannot read it: {error.strerror}", str(raw / LINES)) from None


def _about(path: Path) -> Mapping[str, object]:
    try:
        found = orjson.loads(read_file(path, RECORD))
    except (OSError, orjson.JSONDecodeError):
        return {}
    return found if isinstance(found, dict) else {}
