"""sysbench's text: OLTP, fileio, and tests that count events, with their intervals as series."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from storlab.measurements import Measurements
from storlab.text import printable
from storlab.tools.importer import Importer, Part
from storlab.tools.passed_on import read_passed_on, under_headings
from storlab.tools.sysbench.metrics import measured
from storlab.tools.sysbench.places import BEGIN
from storlab.tools.sysbench.text import SysbenchRun, read_sysbench

_TRAITS = (
    *("test", "threads", "rate", "mode", "files", "total size", "block size", "open flags", "read/write ratio"),
    *("fsync", "fsync at the end", "I/O mode", "primes up to", "memory operation", "memory block"),
    *("OLTP mode", "distribution", "transactions", "tables", "requests"),
)
"""The facts that tell runs in one file apart: all but those that change nothing measured."""


class SysbenchImporter(Importer):
    """Text of sysbench 0.4 to 1.1, of any report interval. Several runs alike in one file are rounds."""

    kind: ClassVar[str] = "sysbench"
    raw_name: ClassVar[str] = "sysbench.txt"
    primary: ClassVar[tuple[str, ...]] = ("tps", "bandwidth", "eps")
    unknown: ClassVar[str] = (
        "on which machine and storage it ran, with which settings of the database, nor what ran beside"
    )

    def read(self, text: bytes, source: str, options: Mapping[str, Any]) -> Sequence[Part]:
        return read_passed_on(text, lambda shown: _parts(shown, source), BEGIN)


def _parts(text: bytes, source: str) -> Sequence[Part]:
    return under_headings(text, [(run.line, _part(run)) for run in read_sysbench(text, source)])


def _part(run: SysbenchRun) -> Part:
    """A trial. One that counted no event failed: sysbench prints zeros of it."""
    if not run.measured or run.closed.get("events") == 0:
        nothing = "sysbench counted no event" if run.measured else f"line {run.line}: it ended before it measured"
        reason = "; ".join(run.warnings) or nothing
        return Part(Measurements(facts=run.facts), traits=_traits(run), status="failed", reason=reason)
    return Part(measured(run), traits=_traits(run))


def _traits(run: SysbenchRun) -> dict[str, str]:
    """What it was told; and which kinds of queries it made, as sysbench doesn't name its script."""
    traits = {name: printable(str(run.facts[name])) for name in _TRAITS if name in run.facts}
    kinds = [kind for kind in ("read", "write", "other") if run.test == "oltp" and _made(run, kind)]
    return {**traits, **({"queries": " + ".join(kinds)} if kinds else {})}


def _made(run: SysbenchRun, kind: str) -> bool:
    counted = run.closed.get(f"queries.{kind}")
    if counted is None and kind in run.intervals.columns:
        return bool((run.intervals[kind] > 0).any())
    return bool(counted)
