"""What ``zfs``, ``zpool`` and ZFS's kernel module say of themselves, see zfsprops(7), zpoolprops(7) and zfs(4)."""

from __future__ import annotations

import re
from typing import Any

_VDEV = re.compile(r"\t( *)(\S.*?)(?:\s{1,}(ONLINE|DEGRADED|FAULTED|OFFLINE|UNAVAIL|REMOVED|AVAIL|INUSE)\b.*)?")

_DIGITS = 18  # more than 63 bits have: identities, which are no numbers to anybody


def parse_properties(text: str) -> dict[str, Any]:
    """``get -Hp -o property,value,source all``: property → value; numbers as integers, "-" (it has none) left out."""
    return {name: _number(value) for name, value, _ in _rows(text) if value != "-"}


def parse_changed(text: str) -> list[str]:
    """Of the same output: what was set here, rather than being the default or inherited. Features always are."""
    return sorted(name for name, _, source in _rows(text) if source == "local" and not name.startswith("feature@"))


def _rows(text: str) -> list[tuple[str, str, str]]:
    rows = []
    for line in text.split("\n"):
        fields = line.split("\t")
        if len(fields) == 3 and fields[0]:
            rows.append((fields[0], fields[1], fields[2]))
    return rows


def parse_parameters(listing: str) -> dict[str, Any]:
    """Lines ``/sys/module/zfs/parameters/NAME:VALUE``."""
    found: dict[str, Any] = {}
    for line in listing.splitlines():
        path, separator, value = line.partition(":")
        if separator and "/parameters/" in path:
            found[path.rpartition("/")[2]] = _number(value)
    return found


def parse_version(text: str) -> dict[str, str]:
    """``zfs version``: ``zfs-2.3.2-2`` of the programs and ``zfs-kmod-2.3.2-2`` of the module."""
    found = {}
    for word in text.split():
        if word.startswith("zfs-kmod-"):
            found["module"] = word.removeprefix("zfs-kmod-")
        elif word.startswith("zfs-"):
            found["programs"] = word.removeprefix("zfs-")
    return found


def parse_layout(status: str) -> dict[str, Any]:
    """``zpool status -P POOL``: its vdevs; those that hold others are mappings, the rest have a state."""
    lines = status.partition("config:")[2].partition("errors:")[0].split("\n")
    matches = [match for line in lines if (match := _VDEV.fullmatch(line)) and match[2].split()[0] != "NAME"]
    layout: dict[str, Any] = {}
    above = [(-1, layout), (0, layout)]  # indentation, what lies below; the first line is the pool itself
    for match, following in zip(matches[1:], [*matches[2:], None], strict=False):
        indentation = len(match[1])
        while len(above) > 1 and above[-1][0] >= indentation:
            above.pop()
        if following is not None and len(following[1]) > indentation:
            inner: dict[str, Any] = {}
            above[-1][1][match[2]] = inner
            above.append((indentation, inner))
        else:
            above[-1][1][match[2]] = match[3] or ""
    return layout


def _number(text: str) -> int | str:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS else text
