"""Bytes that the disk under test moved for each byte that the load moved: counts, which noise hardly touches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from storlab.measurements import Measurements, Value

SOURCE = "storage"
"""The ``source`` of these metrics: they belong to no workload and no probe alone."""

_DIRECTIONS = {"write": "disk.target.bytes_written", "read": "disk.target.bytes_read"}


def moved_bytes(loads: Iterable[Measurements], host_load: Measurements) -> Counter[str]:
    """Bytes of one node: of its workloads (``write.bytes``) and at its disk (``disk.target.bytes_written``), and so on.

    Directions in which either is unknown are left out.
    """
    at_disk = _sums([host_load])
    asked = _sums(loads)
    found: Counter[str] = Counter()
    for direction, counter in _DIRECTIONS.items():
        if asked[f"{direction}.bytes"] and counter in at_disk:
            found += Counter({f"{direction}.bytes": int(asked[f"{direction}.bytes"]), counter: int(at_disk[counter])})
    return found


def amplification(moved: Counter[str]) -> list[Value]:
    """``write.amplification`` and ``read.amplification``, of one node or of several together.

    Bytes at the disk ÷ bytes of the workloads. Below 1: the page cache answered, or held back what did not reach the
    disk within the measured phase.
    """
    return [
        Value(f"{direction}.amplification", moved[counter] / moved[f"{direction}.bytes"], "1", "lower", "none")
        for direction, counter in _DIRECTIONS.items()
        if moved[f"{direction}.bytes"]
    ]


def _sums(measured: Iterable[Measurements]) -> Counter[str]:
    total: Counter[str] = Counter()
    for each in measured:
        total.update({name: value for name, value in each.totals().items() if "bytes" in name})
    return total
