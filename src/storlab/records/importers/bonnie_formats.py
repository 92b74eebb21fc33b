"""What Bonnie++ leaves: CSV of versions 1.03 to 2.00, and the text table of 1.03.

Source of the fields: bon_csv2txt(1) of Bonnie++ 2.00a, and lines that it wrote. Its own header names 48 of the 50
fields of format 1.98: the number of seeks and of the processes that seek, after the chunk size, are not named there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from storlab.errors import ParseError
from storlab.units import shown

OUTPUT = ("putc", "put_block", "rewrite", "getc", "get_block", "seeks")
CREATE = ("seq_create", "seq_stat", "seq_del", "ran_create", "ran_stat", "ran_del")
TESTS = (*OUTPUT, *CREATE)


def _with_cpu(tests: Iterable[str]) -> Iterator[str]:
    for test in tests:
        yield test
        yield f"{test}_cpu"


_HEAD = ("format_version", "bonnie_version", "name", "concurrency", "seed", "file_size", "io_chunk_size")
_SEEKERS = ("seek_count", "seek_processes")
_FILES = ("num_files", "max_size", "min_size", "num_dirs", "file_chunk_size")
_REST = (*_with_cpu(OUTPUT), *_FILES, *_with_cpu(CREATE), *(f"{test}_latency" for test in TESTS))
_CSV = {
    27: ("name", "file_size", *_with_cpu(OUTPUT), "num_files", *_with_cpu(CREATE)),  # 1.03
    48: (*_HEAD, *_REST),  # 1.96, 1.97
    50: (*_HEAD, *_SEEKERS, *_REST),  # 1.98, which 2.00a writes
}
_VERSION = re.compile(r"[12]\.\d+[a-z]?")
_NUMBER = re.compile(r"\d+(\.\d+)?")
_LATENCY = re.compile(r"(\d+(?:\.\d+)?)(us|ms|s)")
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_ROW = re.compile(r"(?P<name>\S.*?)\s+(?P<size>\d[\w.:/]*)(?P<numbers>(?:\s+(?:\d+(?:\.\d+)?|\++)){12})\s*")
_BEGINS = re.compile(r"\S+\s+\d[\w.:/]*(\s+(\d+(\.\d+)?|\++)){1,11}\s*")


@dataclass
class BonnieRun:
    """One run, on ``line`` of its file. Test → its rate (KiB/s, or 1/s), share of CPU in %, longest time in s.

    ``too_short``: the tests that ended in under 500 ms, of which Bonnie++ gives no figure.
    """

    line: int
    name: str
    facts: dict[str, str] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)
    cpu: dict[str, float] = field(default_factory=dict)
    latencies: dict[str, float] = field(default_factory=dict)
    too_short: list[str] = field(default_factory=list)


def read_bonnie(text: bytes, source: str) -> tuple[list[BonnieRun], list[str]]:
    """All runs of a file, in order, and what was wrong with it. Lines of other programs are skipped.

    Of a file that has both, as Bonnie++ prints it, the CSV counts. Raises ``ParseError``.
    """
    lines = text.decode(errors="replace").splitlines()
    whole = text.endswith((b"\n", b"\r"))
    runs, warnings = _csv_runs(lines, whole, source)
    if not runs:
        found, said = _table_runs(lines)
        runs, warnings = found, [*warnings, *said]
    if runs:
        return runs, warnings
    if any("Name:Size" in line for line in lines):
        raise ParseError("has only the text table of Bonnie++ 1.9 or later: import the line of CSV below it", source)
    raise ParseError("is neither CSV nor a table of Bonnie++", source)


def _csv_runs(lines: Sequence[str], whole: bool, source: str) -> tuple[list[BonnieRun], list[str]]:
    runs, warnings = [], []
    for number, line in enumerate(lines, start=1):
        values = line.strip().split(",")
        names = _CSV.get(len(values))
        versioned = _VERSION.fullmatch(values[0]) is not None and len(values) > 2
        if names is None and versioned:
            if number < len(lines) or whole:
                known = ", ".join(str(count) for count in _CSV)
                raise ParseError(f"has {len(values)} fields; a line of Bonnie++ has {known}", source, number)
            warnings.append(f"line {number} is cut short and left out")
        elif names and (versioned or (len(values) == 27 and _NUMBER.match(values[1]))):
            runs.append(_run(number, dict(zip(names, values, strict=True)), source))
    return runs, warnings


def _run(line: int, fields: dict[str, str], source: str) -> BonnieRun:
    run = BonnieRun(line, fields["name"].strip())
    known = (*_HEAD, *_SEEKERS, *_FILES)
    run.facts = {name: fields[name] for name in known if name != "name" and fields.get(name)}
    for test in TESTS:
        _take(run, test, fields[test], fields[f"{test}_cpu"], source)
        latency = fields.get(f"{test}_latency", "").strip()
        match = _LATENCY.fullmatch(latency)
        if match:
            run.latencies[test] = float(match[1]) * _SECONDS[match[2]]
        elif latency.strip("+"):
            raise ParseError(f"{test}_latency: {shown(latency)} is no time in us, ms or s", source, line)
    return run


def _take(run: BonnieRun, test: str, rate: str, cpu: str, source: str) -> None:
    """One figure. Empty: the test was not run. Pluses: it was too short to tell."""
    rate, cpu = rate.strip(), cpu.strip()
    if rate and not rate.strip("+"):
        run.too_short.append(test)
    elif rate:
        run.rates[test] = _number(rate, test, source, run.line)
    if cpu.strip("+") and test in run.rates:
        run.cpu[test] = _number(cpu, f"{test}_cpu", source, run.line)


def _number(text: str, name: str, source: str, line: int) -> float:
    if not _NUMBER.fullmatch(text) or not math.isfinite(float(text)):
        raise ParseError(f"{name}: {shown(text)} is no number", source, line)
    return float(text)


def _table_runs(lines: Sequence[str]) -> tuple[list[BonnieRun], list[str]]:
    """The table of 1.03: machines in its upper half, and again, in the same order, in its lower half.

    The halves have columns of different widths, and so may cut a machine's name at different places.
    """
    runs: list[BonnieRun] = []
    warnings: list[str] = []
    upper: list[BonnieRun] = []
    half = ""
    lower = 0
    for number, line in enumerate(lines, start=1):
        if "Sequential Output" in line:
            half, upper = "output", []
        elif "Sequential Create" in line:
            half, lower = "create", 0
        elif half and (match := _ROW.fullmatch(line)):
            numbers = match["numbers"].split()
            if half == "output":
                run = BonnieRun(number, match["name"], {"bonnie_version": "1.03", "file_size": match["size"]})
                _take_all(run, OUTPUT, numbers)
                upper.append(run)
                runs.append(run)
            else:
                lower += 1
                warnings += _lower_row(upper, lower, match, number)
        elif half and _BEGINS.fullmatch(line):
            warnings.append(f"line {number} is cut short and left out")
            lower += half == "create"
    return runs, warnings


def _lower_row(upper: Sequence[BonnieRun], at: int, match: re.Match[str], number: int) -> Iterator[str]:
    name = match["name"]
    run = upper[at - 1] if at <= len(upper) else None
    if run is None or not (run.name.startswith(name) or name.startswith(run.name)):
        yield f"line {number} is left out: {shown(name)} isn't the machine in that place of the upper half"
        return
    run.name = max(run.name, name, key=len)
    run.facts["num_files"] = match["size"]
    _take_all(run, CREATE, match["numbers"].split())


def _take_all(run: BonnieRun, tests: Sequence[str], numbers: Sequence[str]) -> None:
    for at, test in enumerate(tests):
        _take(run, test, numbers[2 * at], numbers[2 * at + 1], "")
