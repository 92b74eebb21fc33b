"""Any table with a line of column names: CSV with commas, semicolons or tabs, long or wide.

Numbers are written with a point, or with a comma where their user says so. Rows with the same factors are rounds of one
cell, in their order, unless a column numbers the rounds or says a time: rows of one trial with times are its series,
and the trial's value is their mean.
"""

from __future__ import annotations

import csv
import io
import math
import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from shlex import quote
from typing import Any, ClassVar

import numpy as np
import polars as pl

from storlab.base.errors import ParseError, UserError
from storlab.base.limits import IMPORTED_ROWS
from storlab.base.units import shown
from storlab.measurements import SERIES_COLUMNS, Measurements, metric_frame
from storlab.metrics import Value, declared_by
from storlab.tools.importer import Importer, Part
from storlab.tools.table.columns import (
    UNITS,
    TableMapping,
    ValueColumn,
    delimiter_of,
    figure_of,
    found_in,
    has_no_figure,
    is_setting,
    is_time,
    mapping_of,
    plain,
)

_LONGEST = 63
_SEVERAL = 5  # of many lines, those that are named
_COMMA = re.compile(r"[-+]?\d+(\.\d{3})*,\d+|[-+]?\d{1,3}(,\d{3})+(\.\d*)?")
_POINT = re.compile(r"[-+]?\d*\.\d+")
_WITH_POINT = ": write it with a point, and none between thousands; where the comma is a decimal one, say --decimal ,"
_THOUSANDS = ": with --decimal , no point stands in a number, nor between thousands unless it has a fraction"

Key = tuple[tuple[str, ...], int | None]
"""The levels of a row's cell, and its round where a column says it."""


@dataclass
class _Numbers:
    """The numbers of one metric in a trial, and their times where the table has any. ``line``: that of the first.

    In arrays: a table of samples has millions.
    """

    line: int
    times: array[float] = field(default_factory=lambda: array("d"))
    numbers: array[float] = field(default_factory=lambda: array("d"))


@dataclass
class _Trial:
    """What is known of one trial so far: metric → its column, and its numbers.

    ``empty``: the line of one without any figure.
    """

    empty: int = 0
    values: dict[str, ValueColumn] = field(default_factory=dict)
    rows: dict[str, _Numbers] = field(default_factory=dict)


class TableImporter(Importer):
    """CSV of any kind; the options say what its columns are."""

    kind: ClassVar[str] = "csv"
    raw_name: ClassVar[str] = "table.csv"
    unknown: ClassVar[str] = "what measured this, how, and on which machine"

    def read(self, text: bytes, source: str, options: Mapping[str, Any]) -> Sequence[Part]:
        try:
            mapping = mapping_of(options)
        except UserError as error:
            raise ParseError(str(error), source) from None
        table = _Table(text, source, mapping)
        trials = table.trials()
        if all(trial.empty for _, trial in trials):
            raise ParseError("has no row with a number in it", source)
        from_0 = any(number == 0 for (_, number), _ in trials)
        parts = list[Part]()
        for (levels, number), trial in trials:
            measured = _measured(trial, [] if parts else table.warnings)
            each, count = dict(zip(mapping.factors, levels, strict=True)), None if number is None else number + from_0
            failed = f"line {trial.empty} of the table has no figure" if trial.empty else None
            parts.append(Part(measured, each, count, status="failed" if failed else "done", reason=failed))
        return parts


class _Table:
    """One file, read by the mapping. Raises ``ParseError`` with line and column."""

    def __init__(self, text: bytes, source: str, mapping: TableMapping) -> None:
        self.source, self.mapping = source, mapping
        self.warnings: list[str] = []
        self.absent = 0
        self.text = text
        header = io.BytesIO(text).readline().decode("utf-8-sig", errors="replace")
        self.delimiter = mapping.separator or delimiter_of(header, mapping.decimal)
        self.whole = text.endswith((b"\n", b"\r"))
        self.undeclared: list[tuple[int, str, bool]] = []  # columns: number, name, and whether it is of a setting
        self.alike = 0
        self.firsts: dict[tuple[tuple[str, ...], str], tuple[int, list[str]]] = {}
        self.with_unit: dict[str, tuple[int, str]] = {}

    def trials(self) -> list[tuple[Key, _Trial]]:
        """All trials in order, with the levels and the round of each. One without any figure has failed."""
        trials: list[tuple[Key, _Trial]] = []
        places: dict[Key, int] = {}
        empty: dict[Key, int] = {}
        by_row = self.mapping.each_row_a_trial
        for line, fields, row in self._rows():
            if by_row:
                places.clear()  # else what the next row lacks would be filled from this one
            key = (tuple(self._level(line, row, name) for name in self.mapping.factors), self._round(line, row))
            before = len(trials)
            for metric, value, number in self._numbers(line, row):
                if self.undeclared:
                    self._require_alike(line, fields, key[0], metric if self.mapping.metric else "")
                at = places.get(key)
                if at is None or self._is_next(trials[at][1], metric, key, line):
                    places[key] = at = len(trials)
                    trials.append((key, _Trial()))
                trial = trials[at][1]
                trial.values[metric] = value
                found = trial.rows.setdefault(metric, _Numbers(line))
                found.numbers.append(number)
                if (time := self._time(line, row)) is not None:
                    found.times.append(time)
            if by_row and len(trials) == before:
                trials.append((key, _Trial(line)))
            elif key not in places:
                empty.setdefault(key, line)
            if len(trials) + len(empty) > IMPORTED_ROWS:
                many = f"would be trial {IMPORTED_ROWS + 1}, for each row is one: samples of a run need --time-column"
                raise ParseError(many, self.source, line)
        trials += [(key, _Trial(line)) for key, line in empty.items() if key not in places]
        self._warn([(key[0], trial.empty) for key, trial in trials if trial.empty])
        return trials

    def _warn(self, failed: Sequence[tuple[tuple[str, ...], int]]) -> None:
        if self.absent:
            said = f"fields that are empty, or such as NA, which count neither as a number nor as 0: {self.absent}"
            self.warnings.append(said)
        if failed:
            named = (f"{line} ({', '.join(levels)})" if levels else str(line) for levels, line in failed[:_SEVERAL])
            more = ", …" if len(failed) > _SEVERAL else ""
            self.warnings.append(f"no figure at all, and so a failed trial, in line {', '.join(named)}{more}")

    def _require_alike(self, line: int, fields: list[str], levels: tuple[str, ...], metric: str) -> None:
        earlier, others = self.firsts.setdefault((levels, metric), (line, fields))
        if others is fields or self.alike == line:
            return
        self.alike = 0 if metric else line  # of a wide table, one look at a row is enough
        for at, name, setting in self.undeclared:
            one, other = others[at].strip(), fields[at].strip()
            if one != other and (setting or self._is_word(other) or self._is_word(one)):
                instead = (
                    f"--factor-column {quote(name)} if it tells set-ups apart, --ignore-column {quote(name)} if not"
                )
                said = f"column {shown(name)} has {shown(other)}, but {shown(one)} in line {earlier}"
                raise ParseError(f"{said}, and both rows would be of one cell: {instead}", self.source, line)

    def _is_word(self, field: str) -> bool:
        if plain(field, ".") is not None or has_no_figure(field) or is_time(field):
            return False
        figure = figure_of(field, self.mapping.decimal)
        return figure is None or figure.prefixed or figure.base == "B"

    def _is_next(self, trial: _Trial, metric: str, key: Key, line: int) -> bool:
        if self.mapping.time is not None or metric not in trial.rows:
            return False
        if key[1] is not None:
            earlier = trial.rows[metric].line
            said = f"{shown(metric)} of round {key[1]} comes twice, first in line {earlier}"
            raise ParseError(said, self.source, line)
        return True

    def _rows(self) -> Iterator[tuple[int, list[str], dict[str, str]]]:
        lines = io.TextIOWrapper(io.BytesIO(self.text), encoding="utf-8-sig", newline="")
        reader = csv.reader(lines, delimiter=self.delimiter, strict=True)
        try:
            names = [name.strip() for name in next(reader, [])]
            self._find(names)
            last = self.text.count(b"\n") + (not self.whole)
            for row in reader:
                if not (row and (row[0] or any(map(str.strip, row)))):
                    continue
                if len(row) != len(names):
                    if reader.line_num >= last and not self.whole and len(row) < len(names):
                        self.warnings.append(f"line {reader.line_num} is cut short and left out")
                        return
                    said = f"has {len(row)} fields, and the first line {len(names)}"
                    raise ParseError(said, self.source, reader.line_num)
                if reader.line_num >= last and not self.whole and names[-1] in self.mapping.columns:
                    self.warnings.append(
                        f"line {reader.line_num} ends without a line feed: {shown(row[-1])} may be cut"
                    )
                yield reader.line_num, row, dict(zip(names, row, strict=True))
        except csv.Error as error:
            raise ParseError(f"is no CSV: {error}", self.source, reader.line_num) from None
        except UnicodeDecodeError:
            said = "is no text in UTF-8: convert it first, such as by iconv -f LATIN1 -t UTF-8"
            raise ParseError(said, self.source, self._first_undecodable()) from None

    def _first_undecodable(self) -> int:
        for number, line in enumerate(io.BytesIO(self.text), start=1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return number
        return 1

    def _find(self, names: list[str]) -> None:
        try:
            values = tuple(found_in(value, names) for value in self.mapping.values)
            time = None if self.mapping.time is None else found_in(self.mapping.time, names)
        except UserError as error:
            raise ParseError(str(error), self.source, 1) from None
        metrics = [value.metric for value in values]
        twice = [metric for at, metric in enumerate(metrics) if metric in metrics[:at]]
        if twice:
            raise ParseError(f"two of its columns would be {shown(twice[0])}", self.source, 1)
        if time is not None and time.unit != "s":
            raise ParseError(f"column {shown(time.name)} has no unit of time in its heading", self.source, 1)
        time = time and replace(time, stated=True)  # seconds, where nothing is said
        self.mapping = replace(self.mapping, values=values, time=time)
        for name in self.mapping.columns:
            if name not in names:
                there = ", ".join(shown(each) for each in names[:20]) or "nothing"
                raise ParseError(f"has no column {shown(name)}; its first line names {there}", self.source, 1)
            if names.count(name) > 1 and name not in self.mapping.ignored:
                raise ParseError(f"has two columns {shown(name)}", self.source, 1)
        others = (each for each in enumerate(names) if each[1] not in self.mapping.columns)
        self.undeclared = [(at, name, is_setting(name)) for at, name in others]

    def _numbers(self, line: int, row: dict[str, str]) -> Iterator[tuple[str, ValueColumn, float]]:
        for value in self.mapping.values:
            text = row[value.name]
            bare = plain(text, self.mapping.decimal)
            if bare is None and has_no_figure(text):
                self.absent += 1
                continue
            metric = self._level(line, row, self.mapping.metric) if self.mapping.metric else value.metric
            number, unit = self._number(line, text, bare, value)
            yield metric, value if unit == value.unit else replace(value, unit=unit), number

    def _number(self, line: int, text: str, bare: float | None, column: ValueColumn) -> tuple[float, str]:
        number = math.inf if bare is None else bare * column.factor
        if math.isfinite(number) and (column.stated or not self.with_unit.setdefault(column.name, (line, ""))[1]):
            return number, column.unit
        return self._figure(line, text, column)

    def _figure(self, line: int, text: str, column: ValueColumn) -> tuple[float, str]:
        figure = figure_of(text, self.mapping.decimal)
        fault = f"column {shown(column.name)}: {shown(text)}"
        if figure is None:
            with_comma = self.mapping.decimal == ","
            why = _THOUSANDS if with_comma else _WITH_POINT
            why = why if _COMMA.fullmatch(text.strip()) or (with_comma and _POINT.fullmatch(text.strip())) else ""
            raise ParseError(f"{fault} is not a number{why}", self.source, line)
        if figure.prefixed and (column.unit, column.factor) != ("1/s", 1.0):
            instead = f"if it is a thousand, say so of a rate by --value {quote(f'{column.name}:1/s:{column.better}')}"
            raise ParseError(f"{fault} may be a multiple of 1000 or of 1024: {instead}", self.source, line)
        unit = figure.base or column.unit
        if column.stated and unit != column.unit:
            raise ParseError(f"{fault} has another unit than its column, {column.unit}", self.source, line)
        if not column.stated:
            earlier, base = self.with_unit.setdefault(column.name, (line, figure.base))
            if base != figure.base:
                raise ParseError(f"{fault} has another unit, or none, than line {earlier} has", self.source, line)
        number = figure.number * (UNITS[figure.unit][0] if figure.unit else column.factor)
        if not math.isfinite(number):
            raise ParseError(f"{fault} is too large", self.source, line)
        return number, unit

    def _time(self, line: int, row: dict[str, str]) -> float | None:
        time = self.mapping.time
        if time is None:
            return None
        text = row[time.name]
        return self._number(line, text, plain(text, self.mapping.decimal), time)[0]

    def _round(self, line: int, row: dict[str, str]) -> int | None:
        name = self.mapping.round
        if name is None:
            return None
        text = row[name].strip()
        if not (text.isascii() and text.isdigit() and 0 < len(text) < 10):
            said = f"column {shown(name)}: {shown(row[name])} is no round: they are counted, from 0 or 1"
            raise ParseError(said, self.source, line)
        return int(text)

    def _level(self, line: int, row: dict[str, str], name: str) -> str:
        text = row[name].strip() or "–"
        if len(text) > _LONGEST or not text.isprintable():
            fault = f"{shown(text)} can't be a level: it has more than {_LONGEST} signs, or some that can't be printed"
            raise ParseError(f"column {shown(name)}: {fault}", self.source, line)
        return text


def _measured(trial: _Trial, warnings: Sequence[str]) -> Measurements:
    values = [
        Value(
            metric,
            math.fsum(number / len(found.numbers) for number in found.numbers),
            trial.values[metric].unit,
            trial.values[metric].better,
            "mean",
        )
        for metric, found in trial.rows.items()
    ]
    timed = sorted(metric for metric, found in trial.rows.items() if found.times)
    measured = Measurements(metric_frame(values), warnings=tuple(warnings), declared=declared_by(values, {*timed}))
    if not timed:
        return measured
    return replace(measured, series=pl.concat(_series(metric, trial) for metric in timed))


def _series(metric: str, trial: _Trial) -> pl.DataFrame:
    found, unit = trial.rows[metric], trial.values[metric].unit
    frame = pl.DataFrame({"t": np.frombuffer(found.times), "value": np.frombuffer(found.numbers)})
    job = pl.lit(None, SERIES_COLUMNS["job"])
    frame = frame.sort("t", maintain_order=True)
    return frame.select(job=job, metric=pl.lit(metric), t="t", value="value", unit=pl.lit(unit))
