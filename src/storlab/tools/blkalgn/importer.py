"""blkalgn's JSON: histograms of lengths and alignments, and the shares that follow from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import polars as pl

from storlab.blockio.requests import FLOOR, UNITS, DiskHistograms
from storlab.measurements import HISTOGRAM_COLUMNS, Measurements, metric_frame
from storlab.metrics import MetricSpec, Value
from storlab.tools.blkalgn.file import DIALECTS, BlkalgnFile, read_blkalgn
from storlab.tools.importer import Importer, Part
from storlab.units import size_text

OPERATION = "all"
"""Of which operations the requests were, the files don't say."""

_REQUESTS, _BYTES = MetricSpec(f"{OPERATION}.requests", "1"), MetricSpec(f"{OPERATION}.bytes", "B")
_SIZE = MetricSpec(f"{OPERATION}.size", "B", across="mean")
_BELOW = {unit: MetricSpec(f"{OPERATION}.below.{size_text(unit)}", "1", "lower", granule=unit) for unit in UNITS}
_ALIGNED = {
    unit: MetricSpec(f"{OPERATION}.aligned.{size_text(unit)}", "1", "higher", "mean", granule=unit, domain="share")
    for unit in UNITS
}
_LENGTHS = MetricSpec(f"{OPERATION}.granularity", "B", quantity="request length", subject=OPERATION)
_ALIGNMENTS = MetricSpec(f"{OPERATION}.alignment", "B", quantity="request alignment", subject=OPERATION)
METRICS = (_REQUESTS, _BYTES, _SIZE, *_BELOW.values(), *_ALIGNED.values(), _LENGTHS, _ALIGNMENTS)


class BlkalgnImporter(Importer):
    """All four dialects; ``dialect`` among the options says which it is where the file doesn't show."""

    kind: ClassVar[str] = "blkalgn"
    raw_name: ClassVar[str] = "blkalgn.json"
    primary: ClassVar[tuple[str, ...]] = (f"{OPERATION}.aligned.16k",)
    unknown: ClassVar[str] = "which operations were counted, of which load, for how long and on which machine"

    def read(self, text: bytes, source: str, options: Mapping[str, Any]) -> Sequence[Part]:
        file = read_blkalgn(text, source, options.get("dialect"))
        parts: dict[str | None, DiskHistograms] = {None: _together(file.disks)}
        parts |= {disk: each for disk, each in file.disks.items() if len(file.disks) > 1}
        measured = Measurements(
            declared=METRICS,
            metrics=metric_frame(value for job, each in parts.items() for value in _values(job, each)),
            histograms=pl.concat([_bins(job, each) for job, each in parts.items()]),
            warnings=file.warnings,
            facts={"dialect": f"{file.dialect}, {DIALECTS[file.dialect]}", "disks": list(file.disks), **_several(file)},
        )
        return [Part(measured)]


def _several(file: BlkalgnFile) -> dict[str, str]:
    last = f"the last of {file.documents}, each of which counts all since the start"
    return {"document": last} if file.documents > 1 else {}


def _together(disks: Mapping[str, DiskHistograms]) -> DiskHistograms:
    lengths: Counter[int] = Counter()
    alignments: Counter[int] = Counter()
    for disk in disks.values():
        lengths.update(disk.granularity)
        alignments.update(disk.alignment)
    without, exact = sum(disk.without_data for disk in disks.values()), all(disk.exact for disk in disks.values())
    return DiskHistograms(dict(sorted(lengths.items())), dict(sorted(alignments.items())), without, exact)


def _values(job: str | None, counted: DiskHistograms) -> Iterator[Value]:
    yield _REQUESTS.value(counted.total, job)
    if counted.exact and counted.total:
        size = sum(length * count for length, count in counted.granularity.items())
        yield _BYTES.value(size, job)
        yield _SIZE.value(size / counted.total, job)
    aligned = sum(counted.alignment.values())
    for unit in UNITS:
        below = sum(count for length, count in counted.granularity.items() if length < unit)
        yield _BELOW[unit].value(below, job)
        if aligned:
            share = sum(count for alignment, count in counted.alignment.items() if alignment >= unit) / aligned
            yield _ALIGNED[unit].value(share, job)


def _bins(job: str | None, counted: DiskHistograms) -> pl.DataFrame:
    """A length that is known to a power of two fills a bin up to the next; one that is exact, a sector."""
    rows: list[tuple[str | None, str, float, float, int]] = []
    for length, count in counted.granularity.items():
        upper = length + FLOOR if counted.exact else 2 * length
        rows.append((job, _LENGTHS.name, float(length), float(upper), count))
    for alignment, count in counted.alignment.items():
        rows.append((job, _ALIGNMENTS.name, float(alignment), float(2 * alignment), count))
    return pl.DataFrame(rows, schema=HISTOGRAM_COLUMNS, orient="row")
