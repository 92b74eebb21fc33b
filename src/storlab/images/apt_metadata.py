"""What apt prints about packages, read. Formats: deb-control(5), deb-version(7)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cmp_to_key
from itertools import zip_longest

Stanza = Mapping[str, str]


def parse_stanzas(text: str) -> list[Stanza]:
    """Paragraphs of ``Field: value`` lines; a line that begins with a blank goes on with the field before."""
    stanzas: list[Stanza] = []
    for paragraph in re.split(r"\n(?:[ \t]*\n)+", text):
        fields: dict[str, str] = {}
        field = ""
        for line in paragraph.split("\n"):
            if line[:1] in (" ", "\t") and field:
                fields[field] += "\n" + line.strip()
            elif ":" in line:
                field, _, value = line.partition(":")
                field = field.strip()
                fields[field] = value.strip()
        if fields:
            stanzas.append(fields)
    return stanzas


def compare_versions(one: str, other: str) -> int:
    """Negative where ``one`` is older, positive where it is newer, 0 where they are equal, as dpkg orders them."""
    epoch, upstream, revision = _split(one)
    other_epoch, other_upstream, other_revision = _split(other)
    return (
        (epoch > other_epoch) - (epoch < other_epoch)
        or _compare(upstream, other_upstream)
        or _compare(revision, other_revision)
    )


def newest(stanzas: Iterable[Stanza], names: re.Pattern[str]) -> Stanza | None:
    """The package with the highest version among those whose whole name matches."""
    found = [stanza for stanza in stanzas if names.fullmatch(stanza.get("Package", "")) and "Version" in stanza]
    return max(found, key=lambda stanza: _version_key(stanza["Version"]), default=None)


def _split(version: str) -> tuple[int, str, str]:
    epoch, colon, rest = version.partition(":")
    if not colon:
        epoch, rest = "0", version
    upstream, dash, revision = rest.rpartition("-")
    return (int(epoch) if epoch.isdigit() else 0, upstream, revision) if dash else (int(epoch), rest, "")


def _compare(one: str, other: str) -> int:
    """Text and numbers by turns, beginning with text; ``~`` sorts before the end, letters before other signs."""
    pieces = zip_longest(re.findall(r"(\D*)(\d*)", one), re.findall(r"(\D*)(\d*)", other), fillvalue=("", ""))
    for (text, number), (other_text, other_number) in pieces:
        for sign, other_sign in zip_longest(text, other_text, fillvalue=""):
            if _weight(sign) != _weight(other_sign):
                return _weight(sign) - _weight(other_sign)
        if int(number or 0) != int(other_number or 0):
            return int(number or 0) - int(other_number or 0)
    return 0


def _weight(sign: str) -> int:
    if sign == "":
        return 0
    if sign == "~":
        return -1
    return ord(sign) if sign.isalpha() else ord(sign) + 256


_version_key = cmp_to_key(compare_versions)
