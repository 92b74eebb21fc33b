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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import polars as pl

from storlab.errors import ParseError, UserError
from storlab.importing.importer import Importer, Part
from storlab.importing.table.mapping import TableMapping, ValueColumn, found_in, mapping_of
from storlab.limits import IMPORTED_ROWS
from storlab.measurements import SERIES_COLUMNS, Measurements, metric_frame
from storlab.metrics import Value, declared_by
from storlab.units import shown

_LONGEST = 63
_DELIMITERS = ",;\t"
_QUOTED = re.compile(r'"[^"]*"')
_COMMA = re.compile(r"[-+]?\d+(\.\d{3})*,\d+|[-+]?\d{1,3}(,\d{3})+(\.\d*)?")
_POINT = re.compile(r"[-+]?\d*\.\d+")
_WITH_POINT = ": write it with a point, and none between thousands; where the comma is a decimal one, say --decimal ,"
_THOUSANDS = ": with --decimal , no point stands in a number, nor between thousands"
_NO_FIGURE = frozenset({"NA", "N/A", "n/a", "NaN", "nan", "null", "None", "-", "–", "—"})
"""What programs write into a field that has no figure, other than nothing."""

Key = tuple[tuple[str, ...], int | None]
"""The levels of a row's cell, and its round where a column says it."""


@dataclass
class _Trial:
    """What is known of one trial so far: metric → its column, line of each number, time and number."""

    values: dict[str, ValueColumn] = field(default_factory=dict)
    rows: dict[str, list[tuple[int, float | None, float]]] = field(default_factory=dict)


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
        if not trials:
            raise ParseError("has no row with a number in it", source)
        parts = list[Part]()
        for (levels, number), trial in trials:
            measured = _measured(trial, [] if parts else table.warnings)
            parts.append(Part(measured, dict(zip(mapping.factors, levels, strict=True)), number))
        return parts


class _Table:
    """One file, read by the mapping. Raises ``ParseError`` with line and column."""

    def __init__(self, text: bytes, source: str, mapping: TableMapping) -> None:
        self.source, self.mapping = source, mapping
        self.warnings: list[str] = []
        self.absent = 0
        try:
            self.text = text.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = text.count(b"\n", 0, error.start) + 1
            said = "is no text in UTF-8: convert it first, such as by iconv -f LATIN1 -t UTF-8"
            raise ParseError(said, source, line) from None
        header = _QUOTED.sub("", self.text.partition("\n")[0])
        likely = _DELIMITERS.replace(mapping.decimal, "")
        self.delimiter = mapping.separator or max(likely, key=header.count)
        self.whole = self.text.endswith(("\n", "\r"))

    def trials(self) -> list[tuple[Key, _Trial]]:
        """All trials in order, with the levels and the round of each. Rows without a number are left out."""
        trials: list[tuple[Key, _Trial]] = []
        places: dict[Key, int] = {}
        for line, row in self._rows():
            if self.mapping.each_row_a_trial:
                places.clear()  # else what the next row lacks would be filled from this one
            key = (tuple(self._level(line, row, name) for name in self.mapping.factors), self._round(line, row))
            for metric, value, number in self._numbers(line, row):
                at = places.get(key)
                if at is None or self._is_next(trials[at][1], metric, key, line):
                    if len(trials) == IMPORTED_ROWS:  # of more, each row is a sample and no trial
                        many = f"would be trial {IMPORTED_ROWS + 1}, for each row is one"
                        raise ParseError(f"{many}: samples of a run need --time-column", self.source, line)
                    places[key] = at = len(trials)
                    trials.append((key, _Trial()))
                trial = trials[at][1]
                trial.values[metric] = value
                trial.rows.setdefault(metric, []).append((line, self._time(line, row), number))
        if self.absent:
            self.warnings.append(f"fields such as NA, which count neither as a number nor as 0: {self.absent}")
        return trials

    def _is_next(self, trial: _Trial, metric: str, key: Key, line: int) -> bool:
        """Whether a number belongs to the next round of its cell, as this trial has one already."""
        if self.mapping.time is not None or metric not in trial.rows:
            return False
        if key[1] is not None:
            earlier = trial.rows[metric][0][0]
            said = f"{shown(metric)} of round {key[1]} comes twice, first in line {earlier}"
            raise ParseError(said, self.source, line)
        return True

    def _rows(self) -> Iterator[tuple[int, dict[str, str]]]:
        reader = csv.reader(io.StringIO(self.text, newline=""), delimiter=self.delimiter, strict=True)
        try:
            names = [name.strip() for name in next(reader, [])]
            self._find(names)
            last = self.text.count("\n") + (not self.whole)
            for row in reader:
                if not row or row == [""]:
                    continue
                if len(row) != len(names):
                    if reader.line_num >= last and not self.whole and len(row) < len(names):
                        self.warnings.append(f"line {reader.line_num} is cut short and left out")
                        return
                    said = f"has {len(row)} fields, and the first line {len(names)}"
                    raise ParseError(said, self.source, reader.line_num)
                yield reader.line_num, dict(zip(names, row, strict=True))
        except csv.Error as error:
            raise ParseError(f"is no CSV: {error}", self.source, reader.line_num) from None

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
        self.mapping = replace(self.mapping, values=values, time=time)
        for name in self.mapping.columns:
            if name not in names:
                there = ", ".join(shown(each) for each in names[:20]) or "nothing"
                raise ParseError(f"has no column {shown(name)}; its first line names {there}", self.source, 1)
            if names.count(name) > 1:
                raise ParseError(f"has two columns {shown(name)}", self.source, 1)

    def _numbers(self, line: int, row: dict[str, str]) -> Iterator[tuple[str, ValueColumn, float]]:
        """Metric, its column and its number in base units: of each that has one."""
        for value in self.mapping.values:
            text = row[value.name].strip()
            self.absent += text in _NO_FIGURE
            if text and text not in _NO_FIGURE:
                metric = self._level(line, row, self.mapping.metric) if self.mapping.metric else value.metric
                yield metric, value, self._number(line, row, value)

    def _number(self, line: int, row: dict[str, str], column: ValueColumn) -> float:
        """In base units."""
        text = row[column.name]
        with_comma = self.mapping.decimal == ","
        try:
            number = float("x" if with_comma and "." in text else text.replace(self.mapping.decimal, "."))
        except ValueError:
            number = math.nan
        if not math.isfinite(number) or "_" in text:
            why = _THOUSANDS if with_comma else _WITH_POINT
            why = why if _COMMA.fullmatch(text.strip()) or (with_comma and _POINT.fullmatch(text.strip())) else ""
            raise ParseError(f"column {shown(column.name)}: {shown(text)} is not a number{why}", self.source, line)
        if not math.isfinite(number * column.factor):
            raise ParseError(f"column {shown(column.name)}: {shown(text)} is too large", self.source, line)
        return number * column.factor

    def _time(self, line: int, row: dict[str, str]) -> float | None:
        time = self.mapping.time
        return None if time is None else self._number(line, row, time)

    def _round(self, line: int, row: dict[str, str]) -> int | None:
        name = self.mapping.round
        if name is None:
            return None
        text = row[name].strip()
        if not (text.isascii() and text.isdigit() and 0 < len(text) < 10 and int(text)):
            said = f"column {shown(name)}: {shown(row[name])} is no round: they count from 1"
            raise ParseError(said, self.source, line)
        return int(text)

    def _level(self, line: int, row: dict[str, str], name: str) -> str:
        text = row[name].strip() or "–"
        if len(text) > _LONGEST or not text.isprintable():
            fault = f"{shown(text)} can't be a level: it has more than {_LONGEST} signs, or some that can't be printed"
            raise ParseError(f"column {shown(name)}: {fault}", self.source, line)
        return text


def _measured(trial: _Trial, warnings: Sequence[str]) -> Measurements:
    values = list(_values(trial))
    rows = ((metric, time, number) for metric, each in trial.rows.items() for _, time, number in each)
    series = [(None, metric, t, number, trial.values[metric].unit) for metric, t, number in rows if t is not None]
    declared = declared_by(values, {metric for _, metric, *_ in series})
    measured = Measurements(metric_frame(values), warnings=tuple(warnings), declared=declared)
    if not series:
        return measured
    frame = pl.DataFrame(series, schema=SERIES_COLUMNS, orient="row")
    return replace(measured, series=frame.sort("metric", "t", maintain_order=True))


def _values(trial: _Trial) -> Iterator[Value]:
    for metric, rows in trial.rows.items():
        mean = math.fsum(number / len(rows) for _, _, number in rows)
        yield Value(metric, mean, trial.values[metric].unit, trial.values[metric].better, "mean")
