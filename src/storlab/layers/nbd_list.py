"""What ``qemu-nbd --list`` prints of the exports of a server, see qemu-nbd(8)."""

from __future__ import annotations

import re
from typing import Any

_EXPORT = re.compile(r"export: '(.*)'")


def parse_nbd_list(text: str) -> dict[str, dict[str, Any]]:
    """Name → ``size``, ``flags`` (``flush``, ``fua``, ``multi-conn`` …) and block sizes."""
    exports: dict[str, dict[str, Any]] = {}
    mine: dict[str, Any] = {}
    for line in map(str.strip, text.splitlines()):
        name = _EXPORT.fullmatch(line)
        if name is not None:
            mine = exports.setdefault(name[1], {})
            continue
        key, separator, value = (part.strip() for part in line.partition(":"))
        if key == "flags" and "(" in value:
            mine["flags"] = sorted(value.partition("(")[2].rstrip(") ").split())
        elif separator and key in ("size", "min block", "opt block", "max block") and value.isascii():
            mine[key.replace(" ", "_")] = int(value) if value.isdigit() else value
    return exports
