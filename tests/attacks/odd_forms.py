"""Sound samples in the forms in which people have them: parts left out, repeated, moved, cut off, quoted, decorated.

What is read of such a file must be right, or refused, or warned of: never another number than the sample itself gives.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attacks.samples import VIRTIOFS, golden, these
from importing.test_virtiofs_tests import terse
from storlab.errors import StorlabError
from storlab.formats.fio.logs import read_series
from storlab.importing.importer import Part
from storlab.importing.registry import importer_of
from storlab.records.suite.sources import read_console
from storlab.suite.zts_text import console_line
from suite.samples import attempt


@dataclass(frozen=True)
class Trial:
    """Every figure of one trial, with what it is of, and what it is warned of."""

    figures: frozenset[object] = frozenset()
    warnings: frozenset[str] = frozenset()


Reader = Callable[[bytes, Path], Sequence[Trial]]
"""The trials of a file in order. The folder is for readers of files."""

ANSI, BOM = b"\x1b[32m", b"\xef\xbb\xbf"


def _each_line(before: bytes, after: bytes = b"") -> Callable[[bytes], bytes]:
    return lambda data: re.sub(rb"(?m)^([^\r\n]*)", lambda line: before + line[1] + after if line[1] else b"", data)


AROUND: dict[str, Callable[[bytes], bytes]] = {
    "indented": _each_line(b"    "),
    "quoted": _each_line(b"> "),
    "quoted twice": _each_line(b"> > "),
    "in a table": _each_line(b"| ", b" |"),
    "stamped": _each_line(b"2026-02-03T10:11:12.1234567Z "),
    "stamped in brackets": _each_line(b"[10:11:12] "),
    "of a service": _each_line(b"Feb 03 10:11:12 host job[77]: "),
    "coloured": _each_line(ANSI, b"\x1b[0m"),
    "with spaces at ends": _each_line(b"", b"  "),
    "CRLF": lambda data: data.replace(b"\n", b"\r\n"),
    "BOM": lambda data: BOM + data,
    "in a fence": lambda data: b"```\n" + data + b"```\n",
    "under a heading": lambda data: b"# Results of 12 runs at 4k\n\n" + data,
    "after a prompt": lambda data: b"root@host:~# ./run 4 8\n" + data + b"root@host:~# \n",
    "blank lines between": lambda data: data.replace(b"\n", b"\n\n"),
}
"""What leaves every word of a file as it is."""


def dropped(data: bytes, choose: random.Random) -> bytes:
    units = units_of(data, choose)
    at = choose.randrange(len(units))
    return b"".join(units[:at] + units[at + choose.choice((1, 1, 1, 2, 5)) :])


def repeated(data: bytes, choose: random.Random) -> bytes:
    units = units_of(data, choose)
    at = choose.randrange(len(units))
    return b"".join(units[:at] + units[at : at + choose.choice((1, 1, 3))] + units[at:])


def reordered(data: bytes, choose: random.Random) -> bytes:
    """Blocks: of a line that stands in another block nothing says so."""
    blocks = _BLOCK.findall(data)
    choose.shuffle(blocks)
    return b"".join(blocks)


def cut_off(data: bytes, choose: random.Random) -> bytes:
    at = choose.randrange(1, len(data))
    return data[:at] if choose.random() < 0.7 else data[data.find(b"\n", at) + 1 :]


def units_of(data: bytes, choose: random.Random) -> list[bytes]:
    return _BLOCK.findall(data) if choose.random() < 0.3 else data.splitlines(keepends=True)


_BLOCK = re.compile(rb"(?s).+?(?:\n{2,}|\Z)")
INSIDE = {each.__name__: each for each in (dropped, repeated, reordered, cut_off)}
"""What leaves out, doubles or moves lines, or whole blocks of them between blank ones."""


@dataclass(frozen=True)
class Read:
    """What came of a file: its trials in order; or ``refused`` in words."""

    trials: Sequence[Trial] = ()
    refused: str = ""

    @property
    def warnings(self) -> Counter[str]:
        return Counter(warning for trial in self.trials for warning in trial.warnings)


def read(reader: Reader, data: bytes, folder: Path) -> Read:
    """As ``storlab import`` would, which takes off a byte order mark."""
    try:
        return Read(reader(data.removeprefix(BOM), folder))
    except StorlabError as error:
        return Read(refused=str(error))


def wrong(found: Read, *sound: Read) -> str:
    """Why this is no reading of samples that were read as ``sound``, several one after the other; empty where it is."""
    if found.refused or found.warnings - sum((each.warnings for each in sound), Counter[str]()):
        return ""
    trials = [trial for each in sound for trial in each.trials]
    if len(sound) > 1 and [trial.figures for trial in found.trials] != [trial.figures for trial in trials]:
        return f"{len(found.trials)} trials of {len(trials)}, or others, or in another order"
    always = frozenset.intersection(*(trial.warnings for trial in trials))
    for number, trial in enumerate(found.trials, start=1):
        more = min((sorted(map(str, trial.figures - other.figures)) for other in trials), key=len)
        if more and trial.warnings <= always:
            return f"trial {number} has {more[:4]}, which the sample has not"
    return ""


def imported(kind: str, options: Mapping[str, Any] | None = None) -> Reader:
    """What an import of one file gives; a failed trial says so, and has no figures."""

    def trial(part: Part) -> Trial:
        rows = part.measured.metrics.select("metric", "job", "value").rows() if part.status == "done" else []
        return Trial(frozenset(rows), frozenset(part.found.warnings))

    return lambda data, _: [trial(part) for part in importer_of(kind).read(data, "x", options or {})]


def logged(data: bytes, folder: Path) -> Sequence[Trial]:
    """A log of fio, as a series."""
    (folder / "x_lat.1.log").write_bytes(data)
    return [Trial(frozenset(read_series(folder, "x", 1.0, ["a"]).rows()))]


def suite_log(data: bytes, folder: Path) -> Sequence[Trial]:
    """The console of a suite: what came of each test."""
    (folder / "x.log").write_bytes(data)
    runs = read_console(folder / "x.log")
    return [
        Trial(
            frozenset((name, each.outcome) for name, tries in run.tests.items() for each in tries),
            frozenset(map(str, run.gaps)),
        )
        for run in runs
    ]


@dataclass(frozen=True)
class Forms:
    """A reader, its samples, and what may happen to parts of them: nothing in a log, whose lines are measurements."""

    read: Reader
    samples: Callable[[], Sequence[bytes]]
    inside: Sequence[str] = (*INSIDE, "appended")


_TERSE = (terse("seqread-psync", (10239, 2560)), terse("randrw", (40320, 10084), (13477, 3369)))
_IOR = {"value": ["bw(MiB/s)", "IOPS"], "factor_column": ["access"], "round_column": "iter"}
FORMS: dict[str, Forms] = {
    "fio": Forms(imported("fio"), golden("formats/fio/golden/*.json")),
    "output of fio for people": Forms(imported("fio"), golden("importing/golden/fio-people-*.txt")),
    "terse lines of fio": Forms(imported("fio"), these(*(f"{line}\n" for line in _TERSE))),
    "logs of fio": Forms(logged, these("1000, 50, 0, 4096, 0\n2000, 60, 0, 4096, 0\n2000, 5, 1, 4096, 0\n"), inside=()),
    "sysbench": Forms(imported("sysbench"), golden("importing/golden/sysbench*")),
    "pgbench": Forms(imported("pgbench"), golden("importing/golden/pgbench-*.txt")),
    "logs of pgbench": Forms(imported("pgbench"), golden("importing/golden/pgbench*.log*"), inside=()),
    "elbencho": Forms(imported("elbencho"), golden("importing/golden/elbencho-[!l]*")),
    "elbencho, live": Forms(imported("elbencho"), golden("importing/golden/elbencho-live.csv"), inside=()),
    "vdbench": Forms(imported("vdbench"), golden("importing/golden/vdbench-*")),
    "bonnie": Forms(imported("bonnie"), golden("importing/golden/bonnie*")),
    "virtiofs-tests": Forms(imported("virtiofs-tests"), these(*VIRTIOFS)),
    "csv": Forms(imported("csv", _IOR), golden("importing/golden/csv-ior.csv")),
    "csv, quoted": Forms(
        imported("csv", {"value": ["IOPS", "lat"], "factor_column": ["set-up"]}),
        golden("importing/golden/csv-quoted.csv"),
    ),
    "console of a suite": Forms(
        suite_log, these("".join(console_line(attempt(each), "t") for each in ("a/b", "a/c"))), inside=tuple(INSIDE)
    ),
    "logs of check": Forms(suite_log, golden("suite/golden/logs/xfstests-*.log"), inside=tuple(INSIDE)),
    "KTAP": Forms(suite_log, golden("suite/golden/*.ktap"), inside=tuple(INSIDE)),
}
