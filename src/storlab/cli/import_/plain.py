"""Plain calls of ``storlab import`` without Typer, which takes longer to load than most files to read.

    storlab import KIND FILE... [--out DIR] [--label NAME]... [--factor NAME=LEVEL]... [--interleaved] [--clients]

Of kinds that ask for nothing else. Whatever is written in another way, rightly or not, is for Typer to read.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from storlab.cli.import_.options import ImportOptions

KINDS = ("bonnie", "elbencho", "fio", "pcap", "pgbench", "sysbench", "vdbench")
"""Those whose commands have these options, and but for `--whiskers` no others."""
_LISTS = ("--label", "--factor")


def plain_options(words: Sequence[str]) -> ImportOptions | None:
    """What was asked for after ``storlab import``; ``None`` where Typer has to say."""
    if not words or words[0] not in KINDS:
        return None
    paths: list[Path] = []
    given: dict[str, list[str]] = {}
    rest = iter(words[1:])
    for word in rest:
        if not word.startswith("-"):
            paths.append(Path(word))
        elif word == "--interleaved" or (word == "--clients" and words[0] == "fio"):
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


def import_plainly(options: ImportOptions) -> None:
    """Run it as ``storlab.cli.main.main`` would."""
    from storlab.cli.import_.files import import_files
    from storlab.cli.output import one_thread_for_algebra
    from storlab.cli.status import explaining

    one_thread_for_algebra()
    explaining(lambda: import_files(options))
