"""What Bonnie++ leaves: CSV of versions 1.03 to 2.00, and text tables.

Source of the fields: bon_csv2txt(1) of Bonnie++ 2.00a, and lines that it wrote. Its own header names 48 of the 50
fields of format 1.98: the number of seeks and of the processes that seek, after the chunk size, are not named there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from storlab.errors import ParseError
from storlab.formats.bonnie.run import CREATE, OUTPUT, TESTS, BonnieRun, Draft
from storlab.formats.bonnie.table import table_runs


def _with_cpu(tests: Iterable[str]) -> Iterator[str]:
    for test in tests:
        yield test
        yield f"{test}_cpu"


_HEAD = ("format_version", "bonnie_version", "name", "concurrency", "seed", "file_size", "io_chunk_size")
_SEEKERS = ("seek_count", "seek_processes")
_FILES = ("num_files", "max_size", "min_size", "num_dirs", "file_chunk_size")
_REST = (*_with_cpu(OUTPUT), *_FILES, *_with_cpu(CREATE), *(f"{test}_latency" for test in TESTS))
_OLD = ("name", "file_size", *_with_cpu(OUTPUT), "num_files", *_with_cpu(CREATE))  # 1.03, which names no version
_CSV = {
    "1.96": (*_HEAD, *_REST),
    "1.97": (*_HEAD, *_REST),
    "1.98": (*_HEAD, *_SEEKERS, *_REST),  # 2.00a writes this one
}
_VERSION = re.compile(r"[12]\.\d+[a-z]?")
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
        versioned = _VERSION.fullmatch(values[0]) is not None and len(values) > 2
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
    if _VERSION.fullmatch(values[0]) and names is _OLD:
        raise ParseError(f"is CSV of Bonnie++'s format {values[0]}; {', '.join(_CSV)} are known", source, line)
    if len(values) != len(names):
        raise ParseError(f"has {len(values)} fields; format {values[0]} has {len(names)}", source, line)
    fields = dict(zip(names, values, strict=True))
    run = Draft(source, line, fields["name"].strip())
    known = (*_HEAD, *_SEEKERS, *_FILES)
    run.facts = {name: fields[name] for name in known if name != "name" and fields.get(name)}
    for test in TESTS:
        run.take(test, fields[test], fields[f"{test}_cpu"])
        run.take_latency(test, fields.get(f"{test}_latency", ""))
    return run.run()


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
