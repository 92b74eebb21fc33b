"""What ``storlab import`` was asked for, and plain calls of it, read without Typer.

    storlab import KIND FILE... [--out DIR] [--label NAME]... [--factor NAME=LEVEL]... [--interleaved] [--clients]

Typer takes longer to load than most files to read. Whatever is written in another way, rightly or not, it has to say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

from storlab.metrics import WHISKERS
from storlab.tools.kinds import KINDS

PLAIN = tuple(kind for kind, of in KINDS.items() if not of.options and "nodes" not in of.also)
_LISTS = ("--label", "--factor")


@dataclass(frozen=True)
class ImportOptions:
    """What of which kind is to be imported. ``of_kind`` is what only this kind of file has to be read by."""

    kind: str
    paths: Sequence[Path]
    out: Path | None
    labels: Sequence[str] | None
    factors: Sequence[str] | None
    _: KW_ONLY
    interleaved: bool = False
    clients: bool = False
    whiskers: float = WHISKERS
    nodes: Sequence[str] = ()
    of_kind: Mapping[str, object] = field(default_factory=dict)


def plain_options(words: Sequence[str]) -> ImportOptions | None:
    if not words or words[0] not in PLAIN:
        return None
    paths: list[Path] = []
    given: dict[str, list[str]] = {}
    rest = iter(words[1:])
    for word in rest:
        if not word.startswith("-"):
            paths.append(Path(word))
        elif word == "--interleaved" or (word == "--clients" and "clients" in KINDS[words[0]].also):
            given.setdefault(word, [])
        elif word in (*_LISTS, "--out") and not (value := next(rest, "-")).startswith("-"):
            given.setdefault(word, []).append(value)
        else:
            return None
    if not paths or "" in words or len(given.get("--out", ())) > 1:
        return None
    out = Path(given["--out"][0]) if "--out" in given else None
    labels, factors = (given.get(name) for name in _LISTS)
    interleaved, clients = (flag in given for flag in ("--interleaved", "--clients"))
    return ImportOptions(words[0], paths, out, labels, factors, interleaved=interleaved, clients=clients)
