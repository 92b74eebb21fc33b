"""Results of other tools, as importers read them."""

from pathlib import Path

from storlab.measurements import Measurements
from storlab.tools.importer import Part, importer_of
from study.program import Ran, call

GOLDEN = Path(__file__).parent / "golden"


def read(kind: str, text: str | bytes) -> list[Part]:
    """The trials in a file that is called ``x``."""
    return list(importer_of(kind).read(text.encode() if isinstance(text, str) else text, "x", {}))


def read_one(kind: str, text: str | bytes) -> Measurements:
    """What its only trial measured."""
    (part,) = read(kind, text)
    return part.measured


def series(measured: Measurements, metric: str) -> list[tuple[float, float]]:
    return measured.series.filter(metric=metric).select("t", "value").rows()


def taken(kind: str, *words: str | Path, out: str | Path = "run") -> Ran:
    """What `storlab import` says that makes a run of these."""
    imported = call("import", kind, *map(str, words), "--out", str(out))
    assert imported.status == 0, imported.message
    return imported
