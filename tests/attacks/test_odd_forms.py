"""Sound samples in the forms in which people have them: parts left out, repeated, moved, cut off, quoted, decorated.

What is read of such a file must be right, or refused, or warned of: never another number than the sample itself gives.
"""

from __future__ import annotations

import random
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given

from attacks.samples import VIRTIOFS, golden, these
from attacks.test_parsers import ANY_SEED, FUZZ, ONCE
from importing.test_fio_forms import OF_PEOPLE, for_people
from importing.test_virtiofs_tests import terse
from storlab.base.errors import StorlabError
from storlab.suites.records.sources import read_console
from storlab.suites.zts_text import console_line
from storlab.tools.fio.logs import read_series
from storlab.tools.importer import Part, importer_of
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
    """Blocks between blank lines."""
    blocks = _BLOCK.findall(data)
    choose.shuffle(blocks)
    return b"".join(blocks)


def cut_off(data: bytes, choose: random.Random) -> bytes:
    at = choose.randrange(1, len(data))
    return data[:at] if choose.random() < 0.7 else data[data.find(b"\n", at) + 1 :]


def moved(data: bytes, choose: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    line = lines.pop(choose.randrange(len(lines)))
    at = choose.randrange(len(lines) + 1)
    return b"".join([*lines[:at], line, *lines[at:]])


def units_of(data: bytes, choose: random.Random) -> list[bytes]:
    return _BLOCK.findall(data) if choose.random() < 0.3 else data.splitlines(keepends=True)


_BLOCK = re.compile(rb"(?s).+?(?:\n{2,}|\Z)")
_USUAL = ("dropped", "repeated", "reordered", "moved", "cut_off")
INSIDE = {each.__name__: each for each in (dropped, repeated, reordered, cut_off, moved)}
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
    """What an import of one file gives."""
    return lambda data, _: [_trial(part) for part in importer_of(kind).read(data, "x", options or {})]


def _trial(part: Part) -> Trial:
    """A failed one says so, and has no figures."""
    rows = part.measured.metrics.select("metric", "job", "value").rows() if part.status == "done" else []
    return Trial(frozenset(rows), frozenset(part.found.warnings))


def thread(number: int) -> bytes:
    """The log of one of a run's threads, each with two clients."""
    choose, lines = random.Random(number), []
    for client in (2 * number, 2 * number + 1):
        us = count = 0
        while us < 200_000:
            time, count = choose.randrange(500, 1500), count + 1
            us += time
            lines.append((us, f"{client} {count} {time} 0 1795498205 {us}\n"))
    return "".join(line for _, line in sorted(lines)).encode()


def of_thread(data: bytes, folder: Path) -> Sequence[Trial]:
    """The log of a run's second thread, beside that of its first."""
    one, other = (folder / name for name in ("pgbench_log.71", "pgbench_log.71.1"))
    one.write_bytes(thread(0))
    other.write_bytes(data)
    importer = importer_of("pgbench")
    return [_trial(part) for part in importer.read_beside(importer.read(one.read_bytes(), "x", {}), folder, str(one))]


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
    """A reader, its samples, and what may happen to parts of them: nothing in a log, whose lines are measurements.

    ``whole``: whether an odd form of a sample is a whole file, too, though of less: nothing in it says that more was.
    """

    read: Reader
    samples: Callable[[], Sequence[bytes]]
    inside: Sequence[str] = (*_USUAL, "appended")
    whole: Callable[[bytes, bytes], bool] = lambda odd, sample: False


def _ends_earlier(odd: bytes, sample: bytes) -> bool:
    """It ends with a line before: what had been printed when its program, or the copy of its output, was stopped."""
    return sample.startswith(odd) and odd.endswith(b"\n")


def _has_fewer_transactions(odd: bytes, sample: bytes) -> bool:
    """Of each client the first, as in a run that ended earlier; of one of two threads, a moment earlier."""
    lines, every = ([each.split(b" ")[:2] for each in data.splitlines()] for data in (odd, sample))
    last = {client: number for client, number in every if [client, number] in lines}
    kept = [each for each in every if each[0] in last and int(each[1]) <= int(last[each[0]])]
    return odd.endswith(b"\n") and lines == kept and len(lines) > len(every) - (9 if sample == thread(1) else 99)


def _is_a_piece(odd: bytes, sample: bytes) -> bool:
    """Its lines follow each other, as those of a shorter run would; of two nothing says how long an interval is."""
    return odd.endswith(b"\n") and (odd.count(b"\n") < 3 or b"\n" + odd in b"\n" + sample)


def _ends_with_a_report(odd: bytes, sample: bytes) -> bool:
    """Of a run with --status-interval, of which each report is as the last one, and ends with its groups."""
    *_, last = odd.split(b"(groupid=")
    return sample.startswith(odd) and b"(groupid=" in sample[len(odd) :] and b"msec\n" in last


def _has_other_plans(odd: bytes, sample: bytes) -> bool:
    """Without its plan nothing says how many results there are, nor that they are those of a subtest; one that is there
    with its results once more is of a program that was run twice. Of results in their order nothing says that one came
    after its subtests, and not before those of the next.
    """

    def at_each_depth(data: bytes) -> list[bytes]:
        return sorted(data.splitlines(), key=lambda line: len(line) - len(line.lstrip(b" #")))

    moved = odd != sample and at_each_depth(odd) == at_each_depth(sample)
    return moved or len(_PLAN.findall(odd)) != len(_PLAN.findall(sample))


def _says_less_of_tests(odd: bytes, sample: bytes) -> bool:
    """No line names one any more; or of a ``check.log``, which has lists alone, that of what was not run is missing.

    Or one stands in another section, where it reads as a test that ran again.
    """
    lost = odd.count(b"Not run:") < sample.count(b"Not run:") and b"[not run]" not in sample
    strays = not _tests_of_sections(odd) <= _tests_of_sections(sample)
    return lost or strays or (b"SECTION" in sample and b"SECTION" not in odd)


def _tests_of_sections(log: bytes) -> set[tuple[bytes, bytes]]:
    """Each line of a test with the section that it stands in."""
    section, found = b"", set()
    for line in log.splitlines():
        if line.startswith(b"SECTION"):
            section = line
        elif _TEST.match(line):
            found.add((section, line))
    return found


def _has_latencies_of_another_phase(odd: bytes, sample: bytes) -> bool:
    """A phase may have such a line or not, so one that was moved is its own."""
    return not _latencies_of_phases(odd) <= _latencies_of_phases(sample)


def _latencies_of_phases(output: bytes) -> set[tuple[int, bytes]]:
    phases = re.split(rb"(?m)^---$", output)
    return {(number, line) for number, phase in enumerate(phases) for line in phase.splitlines() if b"latency" in line}


_TEST = re.compile(rb"\w+/\d{3}\s+\S")


_PLAN = re.compile(rb"(?m)^.*1\.\.\d+$")


_TERSE = (terse("seqread-psync", (10239, 2560)), terse("randrw", (40320, 10084), (13477, 3369)))
_OF_LOGS = ("dropped", "repeated", "cut_off")
_IOR = {"value": ["bw(MiB/s)", "IOPS"], "factor_column": ["access"], "round_column": "iter"}
FORMS: dict[str, Forms] = {
    "fio": Forms(imported("fio"), golden("formats/fio/golden/*.json")),
    "output of fio for people": Forms(
        imported("fio"),
        lambda: [for_people(name).encode() for name in OF_PEOPLE if "range" not in name],
        whole=_ends_with_a_report,
    ),
    "fio, for people and as JSON": Forms(imported("fio"), lambda: [OF_PEOPLE["randrw"], OF_PEOPLE["fsync"]]),
    "terse lines of fio": Forms(imported("fio"), these(*(f"{line}\n" for line in _TERSE))),
    "terse lines of --status-interval": Forms(
        imported("fio"), golden("importing/fio/status-interval*.txt"), whole=_ends_earlier
    ),
    "logs of fio": Forms(logged, these("1000, 50, 0, 4096, 0\n2000, 60, 0, 4096, 0\n2000, 5, 1, 4096, 0\n"), inside=()),
    "sysbench": Forms(imported("sysbench"), golden("importing/golden/sysbench*")),
    "pgbench": Forms(imported("pgbench"), golden("importing/golden/pgbench-*.txt")),
    "logs of pgbench": Forms(
        imported("pgbench"), golden("importing/golden/pgbench_log*"), inside=_OF_LOGS, whole=_has_fewer_transactions
    ),
    "logs of intervals of pgbench": Forms(
        imported("pgbench"), golden("importing/golden/pgbench-[!s]*.log"), inside=_OF_LOGS, whole=_is_a_piece
    ),
    "logs of two threads of pgbench": Forms(
        of_thread, lambda: [thread(1)], inside=_OF_LOGS, whole=_has_fewer_transactions
    ),
    "elbencho": Forms(
        imported("elbencho"), golden("importing/golden/elbencho-[!l]*"), whole=_has_latencies_of_another_phase
    ),
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
        suite_log, these("".join(console_line(attempt(each), "t") for each in ("a/b", "a/c"))), inside=_USUAL
    ),
    "logs of check": Forms(
        suite_log, golden("suite/golden/logs/xfstests-*.log"), inside=_USUAL, whole=_says_less_of_tests
    ),
    "KTAP": Forms(suite_log, golden("suite/golden/*.ktap"), inside=_USUAL, whole=_has_other_plans),
}


EACH = 200 if FUZZ else 8  # forms of one seed


@cache
def sound(name: str) -> Sequence[tuple[bytes, Read]]:
    forms = FORMS[name]
    with tempfile.TemporaryDirectory() as folder:
        return [(sample, read(forms.read, sample, Path(folder))) for sample in forms.samples()]


@pytest.mark.parametrize("form", AROUND)
@pytest.mark.parametrize("name", FORMS)
def test_what_stands_around_or_before_lines_makes_no_other_figures(name: str, form: str, tmp_path: Path) -> None:
    for sample, expected in sound(name):
        assert not expected.refused
        found = read(FORMS[name].read, AROUND[form](sample), tmp_path)
        assert not wrong(found, expected)
        assert found.refused or found.warnings != expected.warnings or len(found.trials) == len(expected.trials)


@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", [name for name, forms in FORMS.items() if forms.inside])
@ONCE
@given(seed=ANY_SEED)
@example(seed=bytes.fromhex("09bc6da07d525744"))  # percentiles of fio's, moved into another job
def test_what_is_left_out_doubled_moved_or_appended_makes_no_other_figures(
    name: str, seed: bytes, tmp_path: Path
) -> None:
    choose, samples = random.Random(seed), sound(name)
    for number in range(EACH):
        form = choose.choice(FORMS[name].inside)
        (sample, expected), (more, also) = choose.choice(samples), choose.choice(samples)
        odd = sample + more if form == "appended" else INSIDE[form](sample, choose)
        if FORMS[name].whole(odd, sample):
            continue
        found = wrong(read(FORMS[name].read, odd, tmp_path), expected, *([also] if form == "appended" else []))
        if found:
            (tmp_path / "odd").write_bytes(odd)
        assert not found, f"seed {seed.hex()}, number {number}, {form}: {tmp_path / 'odd'}"
