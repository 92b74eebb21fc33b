"""What a parser gives, for real files and for damaged ones."""

from __future__ import annotations

import random
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, get_args

import orjson
import polars as pl

from storlab.base.errors import ParseError, StorlabError
from storlab.measurements import Measurements
from storlab.metrics import HISTOGRAMS, Across, Better, MetricSpec, Specs
from storlab.probes.base import Probe, ProbeRecord
from storlab.tools.importer import Importer, Part

T = TypeVar("T")
Faults = Iterator[str]
"""What is wrong, each as the end of a sentence that begins with the name of the class."""

UNITS = ("s", "B", "1", "1/s", "B/s", "°C")
"""Base units. What is stored in others can be neither compared nor printed."""
SOURCE = "conformance.file"

_SEED, _DAMAGED = 20260102, 40  # ways for each file
_METRIC = re.compile(r"[^\s:@]+")
_NAMES = ("metrics", "series", "histograms", "requests", "checks")
_TABLES = {name: dict(getattr(Measurements(), name).schema) for name in _NAMES}


def of_declarations(declared: Sequence[MetricSpec]) -> Faults:
    """Metrics have names, base units, and what they refer to."""
    specs = Specs(declared)
    names = [spec.name for spec in declared]
    for spec in declared:
        if names.count(spec.name) > 1:
            yield f"declares {spec.name} twice"
        if not _METRIC.fullmatch(spec.name):
            yield f"declares {spec.name!r}: a metric has neither blanks nor : nor @ in its name"
        if spec.unit not in UNITS:
            yield f"declares {spec.name} in {spec.unit}: base units are {', '.join(UNITS)}"
        for other in filter(None, (spec.statistic and spec.of, spec.weight, spec.total, spec.follows)):
            if not specs.find(other).unit and not spec.word:
                yield f"declares {spec.name} by {other}, which it does not declare"


def _measured(measured: Measurements, declared: Sequence[MetricSpec] | None) -> Faults:
    for name, columns in _TABLES.items():
        if dict(getattr(measured, name).schema) != columns:
            yield f"gives {name} with other columns than {', '.join(columns)}"
            return
    metrics, specs = measured.metrics, None if declared is None else Specs(declared)
    if metrics.select(pl.struct("job", "metric").is_duplicated().any()).item():
        yield "gives a metric twice"
    for job, metric, value, unit, better, across in metrics.iter_rows():
        where = metric if job is None else f"{metric} of job {job}"
        if value is None or not abs(value) < float("inf"):
            yield f"gives {where} as {value}: what was not measured is left out"
        if unit not in UNITS or better not in get_args(Better) or across not in get_args(Across):
            yield f"gives {where} in {unit}, {better}, {across}"
        spec = specs and specs.find(metric)
        if spec and not spec.unit:
            yield f"gives {metric}, which it does not declare"
        elif spec and ((unit, better) != (spec.unit, spec.better) or across not in (spec.across, "none")):
            yield f"gives {metric} with another unit, direction or way to combine than it declares"
    for metric in measured.histograms["metric"].unique() if specs else ():
        if specs and specs.find(metric).quantity not in HISTOGRAMS:
            yield f"gives a histogram {metric}, which it does not declare as one"
    bins = measured.histograms
    if not (bins["lower"] < bins["upper"]).all() or not (bins["count"] > 0).all():
        yield "gives a histogram with bins of no width, or of no count"
    if not set(measured.series["unit"]) <= set(UNITS):
        yield "gives series in other than base units"
    if not all(said.strip() and "\n" not in said for said in measured.warnings):
        yield "gives a warning that is empty, or has several lines"
    orjson.dumps(measured.facts)


def _same(one: Measurements, other: Measurements) -> bool:
    tables = all(getattr(one, name).equals(getattr(other, name)) for name in _TABLES)
    return tables and (one.warnings, one.found, one.facts) == (other.warnings, other.found, other.facts)


def of_record(probe: Probe, record: ProbeRecord) -> Faults:
    def parse(raw: Path) -> Measurements:
        return probe.parse(ProbeRecord(raw, record.window, record.subject))

    return of_folder(record.raw, parse, probe.declares(), (StorlabError,))


def of_folder(
    folder: Path,
    parse: Callable[[Path], Measurements],
    declared: Sequence[MetricSpec],
    refusals: tuple[type[Exception], ...],
) -> Faults:
    """``parse`` of a raw folder as it is, without each of its files, and with each of them damaged."""
    before = {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
    measured, judge = parse(folder), partial(_measured, declared=declared)
    yield from judge(measured)
    if measured.metrics.is_empty() and measured.series.is_empty() and measured.histograms.is_empty():
        yield f"parses nothing out of {folder}"
    if not _same(measured, parse(folder)):
        yield "parses something else each time"
    if {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()} != before:
        yield "changes the raw files as it parses them"
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(shutil.copytree(folder, Path(temporary) / "raw"))
        for path, text in before.items():
            mine = copy / path.relative_to(folder)
            mine.unlink()
            yield from _refused(lambda: parse(copy), judge, refusals, f"without {mine.name}")
            for way, damaged in enumerate(_damage(text)):
                mine.write_bytes(damaged)
                of = f"{mine.name}, damaged in way {way}"
                yield from _refused(lambda: parse(copy), judge, refusals, of)
            mine.write_bytes(text)


def _refused(
    read: Callable[[], T], judge: Callable[[T], Faults], refusals: tuple[type[Exception], ...], of: str
) -> Faults:
    """What is damaged is read as it should be, or refused as it should be."""
    try:
        yield from judge(read())
    except refusals as error:
        if refusals == (ParseError,) and isinstance(error, ParseError) and error.source != SOURCE:
            yield f"raises a ParseError that does not name the file: {error}"
    except Exception as error:
        names = " or ".join(refusal.__name__ for refusal in refusals)
        call = "read()" if refusals == (ParseError,) else "parse()"
        yield f"{call} raises {type(error).__name__} ({of}): {error}; it may raise {names}"


def of_file(importer: Importer, text: bytes, options: Mapping[str, Any]) -> Faults:
    """``read`` of a file as it is, and damaged."""
    parts = importer.read(text, SOURCE, options)
    yield from _parts(parts)
    if type(importer).knows is not Importer.knows and not importer.knows(text[: 1 << 16]):
        yield "knows() does not know a file that read() reads"
    again = importer.read(text, SOURCE, options)
    if len(parts) != len(again) or not all(_same(a.measured, b.measured) for a, b in zip(parts, again, strict=True)):
        yield "reads something else each time"
    for way, damaged in enumerate(_damage(text)):
        read = partial(importer.read, damaged, SOURCE, options)
        yield from _refused(read, _parts, (ParseError,), f"damaged in way {way}")


def _parts(parts: Sequence[Part]) -> Faults:
    if not parts:
        yield "reads no trial, and does not raise ParseError"
    for part in parts:
        yield from _measured(part.measured, part.measured.declared or None)
        if part.status == "done" and all(getattr(part.measured, name).is_empty() for name in _TABLES):
            yield "gives a trial that is done and measured nothing"
        if part.status != "done" and (not part.reason or part.measured.metrics.height):
            yield f"gives a trial that is {part.status} without a reason, or with metrics"
        if part.levels.keys() != parts[0].levels.keys():
            yield "gives trials with different factors"
        if part.started is not None and part.started.tzinfo is None:
            yield "gives a time without its zone"
        for name, value in {**part.levels, **part.traits}.items():
            if not value or not value.isprintable():
                yield f"gives {name} as {value!r}: a level is a word that can be printed"


def _damage(text: bytes) -> Iterator[bytes]:
    """The file cut short, with pieces missing, twice or overwritten; and no file of that kind at all."""
    choice = random.Random(_SEED)
    yield from (b"", b"\0" * 64, b"\xff\xfe{[", choice.randbytes(512))
    for way in range(_DAMAGED):
        start = choice.randrange(len(text) + 1)
        end = min(start + choice.randrange(1, 64), len(text))
        middle = (b"", text[start:end] * 2, choice.randbytes(end - start), b"-1", b"1e999", b"\n")[way % 6]
        yield text[:start] if way % 7 == 0 else text[:start] + middle + text[end:]
