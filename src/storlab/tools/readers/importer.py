"""Importers by readers: one for each file beside this, and one of patterns that their user gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, get_args

import polars as pl

from storlab.base.errors import ParseError
from storlab.base.text import grouped, printable
from storlab.base.units import shown
from storlab.measurements import SERIES_COLUMNS, Measurements, metric_frame
from storlab.metrics import Better, MetricSpec, Value
from storlab.tools.importer import Importer, Part
from storlab.tools.passed_on import readings
from storlab.tools.readers.numbers import PICKED, filled, with_words
from storlab.tools.readers.rules import WORD, Reader, built_in, made, reader_of, valid_name
from storlab.tools.readers.runs import Got, Run, runs_of
from storlab.tools.table.columns import UNITS, better_of, counts_per_second


def read_output(reader: Reader, text: bytes, source: str) -> list[Run]:
    """The runs in it, behind whatever was put before its lines: as that has most figures. Raises ``ParseError``."""
    found: list[Run] = []
    refused: ParseError | None = None
    for shown_ in readings(text):
        try:
            runs = runs_of(reader, shown_, source)
        except ParseError as error:
            refused = refused or error
            continue
        if _figures(runs) > _figures(found) or not found:
            found = runs
    if not found and refused is not None:
        raise refused
    return found


def _figures(runs: Sequence[Run]) -> int:
    return sum(len(run.values) - run.guessed for run in runs)


def measured(run: Run, values: Mapping[str, Got]) -> Measurements:
    """``values``: by the names that they are to have."""
    each = [Value(name, got.value, got.rule.base, got.rule.better, got.rule.across) for name, got in values.items()]
    rows = [
        (None, name, t, value, got.rule.base)
        for name, got in values.items()
        for t, value in run.series.get(got.name, ())
    ]
    series = pl.DataFrame(rows, schema=SERIES_COLUMNS, orient="row")
    return Measurements(
        metric_frame(each), series, warnings=run.warnings, facts=dict(run.settings), declared=_declared(run, values)
    )


def _declared(run: Run, values: Mapping[str, Got]) -> tuple[MetricSpec, ...]:
    """Of several rates that have series, the others follow the first."""
    specs = [got.rule.declared_as(name, series=got.name in run.series) for name, got in values.items()]
    first = next((spec.name for spec in specs if spec.series), "")
    return tuple(replace(spec, follows=first) if spec.series and spec.name != first else spec for spec in specs)


def parts_of(reader: Reader, text: bytes, source: str) -> list[Part]:
    return [part for run in read_output(reader, text, source) for part in _parts(reader, run)]


def _parts(reader: Reader, run: Run) -> Iterator[Part]:
    words = {word for level in reader.factors.values() for word in WORD.findall(level)}
    told = grouped((tuple(got.words.get(word, "") for word in sorted(words)), got) for got in run.values)
    for own in told.values():
        known = {word: printable(said) for word, said in own[0].words.items() if said}
        levels = {
            factor: with_words(level, known)
            for factor, level in reader.factors.items()
            if set(WORD.findall(level)) <= known.keys()
        }
        named = {_without(got, words): got for got in own}
        yield Part(measured(run, named), levels, traits=run.settings)


def _without(got: Got, words: set[str]) -> str:
    """A metric's name without what tells trials apart."""
    parts = [part for part in got.rule.name.split(".") if not words & set(WORD.findall(part))]
    return filled(".".join(parts), got.words) or got.name


class ReaderImporter(Importer):
    """Of a tool that a reader of Storlab's own reads. A class for each follows from its name."""

    raw_name: ClassVar[str] = "output.txt"
    unknown: ClassVar[str] = "on which machine it was, what else that did, nor what happened between the runs"

    def read(self, text: bytes, source: str, options: Mapping[str, Any]) -> Sequence[Part]:
        return parts_of(built_in(self.kind), text, source)


def of_reader(name: str) -> Importer:
    importer: Importer = type("ReaderImporter", (ReaderImporter,), {"kind": name, "__doc__": built_in(name).title})()
    return importer


class PatternImporter(Importer):
    """Of text that its user has patterns for, or a reader."""

    kind: ClassVar[str] = "text"
    raw_name: ClassVar[str] = "output.txt"
    unknown: ClassVar[str] = "what measured this, how, and on which machine"

    def read(self, text: bytes, source: str, options: Mapping[str, Any]) -> Sequence[Part]:
        try:
            return parts_of(_reader(options), text, source)
        except ValueError as error:
            raise ParseError(str(error), source) from None


def _reader(options: Mapping[str, Any]) -> Reader:
    written, values = options.get("reader"), options.get("value", ())
    if (written is None) == (not values):
        raise ValueError(
            "write what is to be read: --value METRIC=PATTERN for each number, such as --value 'iops=([0-9.]+) IOPS'; "
            "or --reader FILE"
        )
    if written is not None:
        return reader_of(written, "the reader")
    pick = options.get("pick", "only")
    if pick not in PICKED:
        raise ValueError(f"--pick {shown(pick)}: it is one of {', '.join(PICKED)}")
    return made({"title": "the patterns", "metrics": [_rule(each, pick) for each in values]})


def _rule(written: str, pick: str) -> dict[str, Any]:
    """``METRIC[:UNIT[:BETTER]]=PATTERN``."""
    left, equals, regex = written.partition("=")
    name, _, rest = left.partition(":")
    unit, _, better = rest.partition(":")
    if not equals or not regex:
        raise ValueError(f"--value {shown(written)}: write METRIC=PATTERN, such as 'iops=([0-9.]+) IOPS'")
    valid_name(name)
    unit = unit or ("1/s" if counts_per_second(name) else "1")
    if unit not in UNITS:
        raise ValueError(f"--value {shown(written)}: {shown(unit)} is no unit; there are {', '.join(UNITS)}")
    better = better or better_of(name, UNITS[unit][1])
    if better not in get_args(Better):
        raise ValueError(f"--value {shown(written)}: {shown(better)} is none of higher, lower and neither")
    return {"name": name, "regex": regex, "unit": unit, "better": better, "pick": pick}


def check_samples(reader: Reader, file: str) -> None:
    """Raises ``ValueError`` where a reader reads something else out of its own samples than it says is right."""
    for number, sample in enumerate(reader.samples, start=1):
        try:
            runs = read_output(reader, sample.text.encode(), f"{file}, sample {number}")
        except ParseError as error:
            raise ValueError(str(error)) from None
        found = {got.name: got.value for run in runs for got in run.values}
        for name, right in sample.values.items():
            value = found.get(name)
            if value is None or abs(value - right) > 1e-6 * max(abs(right), abs(value)):
                said = "is not found" if value is None else f"is {value:.10g}"
                raise ValueError(f"{file}, sample {number}: {name} {said}, and should be {right:.10g}")
        for name, said in sample.settings.items():
            if runs[0].settings.get(name) != said:
                raise ValueError(f"{file}, sample {number}: {name} is {shown(runs[0].settings.get(name))}, not {said}")
