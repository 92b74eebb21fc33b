"""Bonnie++'s results: one trial a line, lines of the same machine as rounds.

Read is CSV of versions 1.03 to 2.00, and text tables, as Bonnie++ prints them or as bon_csv2txt(1) makes
them.

Machines are in the upper half of a table, and again, in the same order, in a lower half; both cut their names, at
different places. From 1.96 on, each row is followed by one of latencies. Columns are ten wide, from the 21st on,
and blank where a test was not run; a longer number moves what is right of it. Two things in them are known to be
wrong: 2.00a prints, as rates of files, how many there were; its bon_csv2txt prints pluses as ``0k``.

Source: bon_csv2txt(1) of 2.00a for the fields of CSV, lines and tables that it wrote, and published ones of older
versions. Its own header names 48 of the 50 fields of format 1.98: the number of seeks and of the processes that
seek, after the chunk size, are not named there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from storlab.base.errors import ParseError
from storlab.base.text import is_whole, printable
from storlab.base.units import shown
from storlab.measurements import Measurements, metric_frame
from storlab.tools.bonnie.run import CREATE, IN_BYTES, OUTPUT, TESTS, BonnieRun, declared
from storlab.tools.importer import Part, TextImporter

_RATE = r"(?:\d+(?:\.\d+)?[kmgt]?|\++)"
_CELL = re.compile(rf"({_RATE})\s+(\d+|\++)")
_PLACED = re.compile(rf"( +{_RATE})( +(?:\d+|\++))")
_RATE_WIDTH, _CPU_WIDTH = 6, 4  # each with the blank before it
_WHOLE = re.compile(rf"(?P<head>.*?)(?P<cells>(?:\s+{_RATE}\s+(?:\d+|\++)){{6}})\s*")
_CUT = re.compile(rf"(?P<head>\S.*?|\s+)\s+\d[\w.:/]*(\s+{_RATE})+\s*")
_HEAD = re.compile(r"(?P<name>.*?)\s*(?P<size>\d[\w.:/]*)")
_LATENCY = re.compile(r"\d+(\.\d+)?(us|ms|s)")
_VERSION = re.compile(r"Version\s+(?P<version>[12]\.\d+[a-z]?)\b")
_OF_FILES = re.compile(r"(?P<num_files>\d+)(:(?P<max_size>\w*))?(:(?P<min_size>\w*))?([/:](?P<num_dirs>\d+))?")
_FIRST, _WIDTH = 20, 10
_OF_OUTPUT, _OF_CREATE = "-Per Chr-", "-Create--"  # in the second line of each half
_LENGTH = _FIRST + 6 * _WIDTH - 1
_LONGEST = 300  # characters of a line with its margin: longer ones are none of a table, and would take long to match
_LATENCY_END = 28
_KIB = {"k": 1.0, "m": 1024.0, "g": 1024.0**2, "t": 1024.0**3}
_FILES = 1024  # of which ``-n`` counts


@dataclass
class _Table:
    """Where in a table we are. ``rows``: the runs of its upper half; ``last``: that of the row above whose latencies
    are to come, and ``has``: which tests are in it.
    """

    half: str = ""
    version: str = ""  # 1.03 or older, where none is named
    margin: str = ""  # before all of its lines, as where it is quoted
    name: str = ""  # from the head of a lower half that has a single row, without a name
    rows: list[BonnieRun] = field(default_factory=list)
    lower: int = 0
    alone: bool = False  # a lower half that names the version, as of runs that have no upper one
    last: BonnieRun | None = None
    has: Sequence[bool] = ()

    @property
    def named(self) -> dict[str, str]:
        return {"bonnie_version": self.version} if self.version else {}


def table_runs(lines: Sequence[str], whole: bool, source: str) -> tuple[list[BonnieRun], list[str]]:
    """All runs in the tables of a file, in order, and what was wrong with them. Other lines are skipped.

    ``whole``: whether the last line has an end. Raises ``ParseError``.
    """
    read = _Reader(source, [], [])
    for number, line in enumerate(lines, start=1):
        if len(line) <= _LONGEST:
            read.line(line, number, ended=whole or number < len(lines))
    return read.runs, read.warnings


def _margin(line: str) -> str:
    return line[: max(line.index("Sequential ") - len("------") - _FIRST, 0)]


def _version(line: str) -> str:
    match = _VERSION.search(line)
    return match["version"] if match else ""


@dataclass(frozen=True)
class _Row:
    name: str
    size: str
    cells: tuple[tuple[str, str] | None, ...]  # rate and CPU of each test, or nothing where it was not run


def _row(line: str) -> _Row | None:
    if whole := _WHOLE.fullmatch(line):
        head = _HEAD.fullmatch(whole["head"].strip())
        found = [(rate, cpu) for rate, cpu in _CELL.findall(whole["cells"])]
        return None if head is None else _Row(head["name"], head["size"], tuple(found))
    head, cells = _HEAD.fullmatch(line[: _FIRST - 1].strip()), _placed(line[_FIRST - 1 :].rstrip())
    return _Row(head["name"], head["size"], tuple(cells)) if head and len(cells) == len(OUTPUT) else None


def _placed(text: str) -> list[tuple[str, str] | None]:
    """The cells of a row, from the blank before the first on; none where some aren't in their places.

    One of a test that was not run is all blank. Numbers are right in their columns; longer ones make a cell wider.
    """
    cells = list[tuple[str, str] | None]()
    while text:
        if text.startswith(" " * _WIDTH):
            cells.append(None)
            text = text[_WIDTH:]
        elif (cell := _PLACED.match(text)) and len(cell[1]) >= _RATE_WIDTH and len(cell[2]) >= _CPU_WIDTH:
            cells.append((cell[1].strip(), cell[2].strip()))
            text = text[cell.end() :]
        else:
            return []
    return cells


def _counts_files(row: _Row) -> bool:
    """Whether all rates are the number of files. A true rate is that once in a thousand."""
    files = re.split("[:/]", row.size)[0]
    rates = {cell[0] for cell in row.cells if cell and not cell[0].startswith("+")}
    return bool(rates) and is_whole(files) and rates == {str(int(files) * _FILES)}


def _plain(test: str, rate: str, cpu: str) -> tuple[str, str]:
    """Both as CSV has them: ``399m`` is 408576."""
    if rate.strip("0") == "k" and not cpu.strip("+"):
        return "+++++", cpu
    if rate[-1] in _KIB and test in IN_BYTES:
        return f"{float(rate[:-1]) * _KIB[rate[-1]]:.10g}", cpu
    return rate, cpu


@dataclass
class _Reader:
    source: str
    runs: list[BonnieRun]
    warnings: list[str]
    table: _Table = field(default_factory=_Table)

    def line(self, line: str, number: int, ended: bool) -> None:
        table = self.table
        if "Sequential Output" in line:
            self.table = _Table("output", _version(line), _margin(line))
        elif "Sequential Create" in line:
            # Without an upper half of its own, this is of a run that had none (-s 0).
            rows = table.rows if table.half == "output" else []
            alone = "Version" in line
            version = _version(line) if alone else table.version
            self.table = _Table("create", version, _margin(line), rows=rows, alone=alone)
        elif table.half:
            self._below(line.removeprefix(table.margin), number, ended)

    def _below(self, line: str, number: int, ended: bool) -> None:
        table = self.table
        cut = not ended and len(line) < _LENGTH
        if (_OF_OUTPUT if table.half == "create" else _OF_CREATE) in line:
            self.warnings.append(f"line {number} is of the other half of a table: what is below it is left out")
            self.table = _Table()
        elif table.half == "create" and _OF_CREATE in line:
            table.name = line.partition(_OF_CREATE)[0].strip()
        elif line.startswith("Latency"):
            self._latencies(line, number)
        elif not cut and (row := _row(line)) is not None:
            table.has = [cell is not None for cell in row.cells]
            self._upper_row(row, number) if table.half == "output" else self._lower_row(row, number)
        elif _CUT.fullmatch(line):
            self.warnings.append(f"line {number} is cut short and left out")
            table.lower += table.half == "create"
            table.last = None

    def _upper_row(self, row: _Row, number: int) -> None:
        names = ("file_size", "io_chunk_size", "seek_count", "seek_processes")  # 64M, 64M:16k, 64M:16k:8192:5
        sizes = {name: value for name, value in zip(names, row.size.split(":"), strict=False) if value}
        run = BonnieRun(self.source, number, row.name, {**self.table.named, **sizes})
        self._take(run, OUTPUT, row)
        self.table.rows.append(run)
        self.runs.append(run)

    def _lower_row(self, row: _Row, number: int) -> None:
        table, name = self.table, row.name or self.table.name
        run = table.rows[table.lower] if table.lower < len(table.rows) else None
        matches = run is not None and (run.name.startswith(name) or name.startswith(run.name))
        if not matches and (not row.name if table.name else table.alone):  # with -s 0, without upper half
            run = BonnieRun(self.source, number, name, dict(table.named))
            self.runs.append(run)
        elif not matches:
            said = f"{shown(name)} isn't the machine in that place of the upper half"
            self.warnings.append(f"line {number} is left out: {said}")
            run = None
        table.lower += 1
        table.last = None
        if run is None:
            return
        run.name = max(run.name, name, key=len)
        if sizes := _OF_FILES.fullmatch(row.size):
            run.facts |= {name: value for name, value in sizes.groupdict().items() if value}
        if _counts_files(row):
            program = f"Bonnie++ {table.version}".rstrip()
            said = f"{program} prints how many there were: the line of CSV has the rates"
            self.warnings.append(f"line {number}: its rates of files are left out, for {said}")
            row = _Row(row.name, row.size, tuple(cell if cell and cell[0][0] == "+" else None for cell in row.cells))
        self._take(run, CREATE, row)

    def _take(self, run: BonnieRun, tests: Iterable[str], row: _Row) -> None:
        for test, cell in zip(tests, row.cells, strict=True):
            if cell is not None:
                run.take(test, *_plain(test, *cell))
        self.table.last = run

    def _latencies(self, line: str, number: int) -> None:
        tests = OUTPUT if self.table.half == "output" else CREATE
        words = line.split()[1:]
        ends = [_LATENCY_END + _WIDTH * at for at in range(len(tests))]
        places = [line[end - _WIDTH : end].strip() for end in ends]
        found = words if len(words) == len(tests) else places
        if [text for text in found if text] != words or not all(map(_LATENCY.fullmatch, words)):
            self.warnings.append(f"line {number} is left out: it isn't a row of latencies as Bonnie++ prints it")
        elif self.table.last is None or list(map(bool, found)) != self.table.has:
            self.warnings.append(f"line {number} is left out: the row of these latencies isn't above it")
        else:
            for test, text in zip(tests, found, strict=True):
                self.table.last.take_latency(test, text)
            self.table.last = None


def _with_cpu(tests: Iterable[str]) -> Iterator[str]:
    for test in tests:
        yield test
        yield f"{test}_cpu"


_HEAD_FIELDS = ("format_version", "bonnie_version", "name", "concurrency", "seed", "file_size", "io_chunk_size")
_SEEKERS = ("seek_count", "seek_processes")
_FILE_FIELDS = ("num_files", "max_size", "min_size", "num_dirs", "file_chunk_size")
_REST = (*_with_cpu(OUTPUT), *_FILE_FIELDS, *_with_cpu(CREATE), *(f"{test}_latency" for test in TESTS))
_OLD = ("name", "file_size", *_with_cpu(OUTPUT), "num_files", *_with_cpu(CREATE))  # 1.03, which names no version
_CSV = {
    "1.96": (*_HEAD_FIELDS, *_REST),
    "1.97": (*_HEAD_FIELDS, *_REST),
    "1.98": (*_HEAD_FIELDS, *_SEEKERS, *_REST),  # 2.00a writes this one
}
_FORMAT = re.compile(r"[12]\.\d+[a-z]?")
_NUMBER = re.compile(r"\d+(\.\d+)?")


def read_bonnie(text: bytes, source: str) -> tuple[list[BonnieRun], list[str]]:
    """All runs of a file, in order, and what was wrong with it. Lines of other programs are skipped.

    Where a table stands above a line of CSV, as Bonnie++ prints them, the CSV counts. Raises ``ParseError``.
    """
    lines = text.decode("utf-8-sig", errors="replace").splitlines()
    whole = text.endswith((b"\n", b"\r"))
    found, warnings = _csv_runs(lines, whole, source)
    tables, said = table_runs(lines, whole, source)
    runs = _without_repeats(tables, found)
    if not runs:
        raise ParseError("is neither CSV nor a table of Bonnie++", source)
    return runs, [*warnings, *(said if len(runs) > len(found) else ())]


def _csv_runs(lines: Sequence[str], whole: bool, source: str) -> tuple[list[BonnieRun], list[str]]:
    runs, warnings = [], []
    for number, line in enumerate(lines, start=1):
        values = line.strip().split(",")
        versioned = _FORMAT.fullmatch(values[0]) is not None and len(values) > 2
        if not versioned and not (len(values) == len(_OLD) and _NUMBER.match(values[1])):
            continue
        try:
            runs.append(_run(number, values, source))
        except ParseError:
            if number < len(lines) or whole:
                raise
            warnings.append(f"line {number} is cut short and left out")
    return runs, warnings


def _run(line: int, values: Sequence[str], source: str) -> BonnieRun:
    names = _CSV.get(values[0], _OLD)
    if _FORMAT.fullmatch(values[0]) and names is _OLD:
        raise ParseError(f"is CSV of Bonnie++'s format {values[0]}; {', '.join(_CSV)} are known", source, line)
    values = _whole(values, names)
    if len(values) != len(names):
        raise ParseError(f"has {len(values)} fields; format {values[0]} has {len(names)}", source, line)
    fields = dict(zip(names, values, strict=True))
    run = BonnieRun(source, line, fields["name"].strip())
    known = (*_HEAD_FIELDS, *_SEEKERS, *_FILE_FIELDS)
    run.facts = {name: fields[name] for name in known if name != "name" and fields.get(name)}
    for test in TESTS:
        run.take(test, fields[test], fields[f"{test}_cpu"])
        run.take_latency(test, fields.get(f"{test}_latency", ""))
    return run


def _whole(values: Sequence[str], names: Sequence[str]) -> Sequence[str]:
    """With the empty field that 1.96 leaves out where there was no file (``-s 0``), so that all before files are."""
    begin, end = (names.index(name) for name in ("file_size", "num_files"))
    if len(values) == len(names) - 1 and names is not _OLD and not any(values[begin : end - 1]):
        return [*values[:begin], "", *values[begin:]]
    return values


def _without_repeats(tables: Sequence[BonnieRun], lines: Sequence[BonnieRun]) -> list[BonnieRun]:
    """All runs in order, without those in tables that lines of CSV below them say again, more exactly."""
    found: list[BonnieRun] = []
    said = list[str]()
    for run in sorted([*tables, *lines], key=lambda run: run.line, reverse=True):
        again = next((name for name in said if name.startswith(run.name)), None)
        if run in lines:
            said.append(run.name)
        elif again is not None:
            said.remove(again)
            continue
        found.append(run)
    return found[::-1]


_TRAITS = (
    *("file_size", "io_chunk_size", "concurrency", "seek_count", "seek_processes", "num_files", "max_size", "min_size"),
    *("num_dirs", "file_chunk_size"),
)
_LONGEST_NAME = 63
_OLD_VERSIONS = "1.0"
_APART = (
    "Bonnie++ {} and 2.00a, which the workload bonnie runs, are not comparable: by characters, the old one writes and "
    "reads through a buffer, and 2.00a makes a system call for each; the old one seeks 8000 times by 3 processes, and "
    "2.00a 8192 times by 5."
)


class BonnieImporter(TextImporter):
    """CSV and text tables of all versions. The machine's name is a factor."""

    kind: ClassVar[str] = "bonnie"
    raw_name: ClassVar[str] = "bonnie.txt"
    primary: ClassVar[tuple[str, ...]] = ("write.block.bandwidth",)
    unknown: ClassVar[str] = "on which storage and file system it ran, nor what else ran meanwhile"

    def parts(self, text: bytes, source: str) -> Sequence[tuple[int, Part]]:
        runs, warnings = read_bonnie(text, source)
        return [(run.line, _part(run, warnings if run is runs[0] else ())) for run in runs]

    def notes(self, parts: Sequence[Part]) -> Sequence[str]:
        """Lines of CSV that name no version are of 1.03."""
        versions = {str(part.measured.facts.get("bonnie_version", "1.03")) for part in parts}
        return [_APART.format(version) for version in sorted(versions) if version.startswith(_OLD_VERSIONS)]


def _part(run: BonnieRun, warnings: Sequence[str]) -> Part:
    name = printable(run.name)[:_LONGEST_NAME] or "–"
    said = list(warnings)
    if untold := run.untold():
        said.append(f"{name}, line {run.line}: {untold}")
    values = list(run.values())
    measured = Measurements(metric_frame(values), warnings=tuple(said), facts=run.told(), declared=declared())
    traits = {fact: printable(run.facts[fact])[:_LONGEST_NAME] for fact in _TRAITS if fact in run.facts}
    return Part(measured, {"machine": name}, traits=traits)
