"""Bytes that disks moved for each byte that loads moved: counts, which noise hardly touches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Set

from storlab.measurements import Measurements
from storlab.metrics import STORAGE, TARGET, MetricSpec, Quantity, Value, specs_of

SOURCE = STORAGE
"""The ``source`` of these metrics: they belong to no workload and no probe alone."""

_WAYS: dict[Quantity, str] = {"bytes written": "write", "bytes read": "read"}
_AT_DISK, _BACKING, _GUEST_DISK = "amplification", "amplification.backing", "amplification.guest-disk"
_MOVED = {"write": "bytes written to the disk", "read": "bytes read from the disk"}
METRICS = {
    (way, what): MetricSpec(
        f"{way}.{what}", "1", "lower", "none", per=per, noun=f"{_MOVED[way]} for each byte of the load"
    )
    for what in (_AT_DISK, _BACKING, _GUEST_DISK)
    for per, way in _WAYS.items()
}


def declares(asked: Set[Quantity], *, at_disk: bool, underlying: bool) -> tuple[MetricSpec, ...]:
    """What there may be where this is asked for: ``at_disk``, where that is watched; ``underlying``, at other nodes."""
    known = {_AT_DISK: at_disk, _BACKING: underlying, _GUEST_DISK: underlying}
    return tuple(s for (_, what), s in METRICS.items() if known[what] and (what == _GUEST_DISK or s.per in asked))


Moved = Counter[tuple[str, str]]
"""Way and whose: what was ``asked`` for, and what was moved at the ``disk``."""


def bytes_of(measured: Measurements, subject: str = "") -> Counter[str]:
    """Bytes of all jobs together, ``write``, ``read`` and of no known way; of a probe, those of a ``subject``."""
    specs, found = specs_of(measured.declared), Counter[str]()
    for name, value in measured.totals().items():
        spec = specs.find(name)
        if spec.quantity in ("bytes", *_WAYS) and spec.subject == subject:
            found[_WAYS.get(spec.quantity, "")] += int(value)
    return found


def moved_bytes(loads: Iterable[Measurements], host_load: Measurements) -> Moved:
    """Bytes that workloads asked for, and those at the disks under them.

    Directions in which either is unknown are left out; both, where one of several workloads does not say.
    """
    at_disk, asked = bytes_of(host_load, TARGET), asked_bytes(loads) or Counter[str]()
    known = [way for way in _WAYS.values() if asked[way] and way in at_disk]
    return Moved({(way, whose): of[way] for whose, of in (("asked", asked), ("disk", at_disk)) for way in known})


def amplification(moved: Moved) -> list[Value]:
    """``write.amplification`` and ``read.amplification``, of one node or of several together.

    Bytes at the disk ÷ bytes of the workloads. Below 1: the page cache answered, or held back what did not reach the
    disk within the measured phase.
    """
    return [
        METRICS[way, _AT_DISK].value(moved[way, "disk"] / moved[way, "asked"])
        for way in _WAYS.values()
        if moved[way, "asked"]
    ]


def asked_bytes(loads: Iterable[Measurements]) -> Counter[str] | None:
    """Bytes that workloads moved, ``write`` and ``read``; ``None`` where one of them does not say."""
    each = [bytes_of(load) for load in loads]
    return sum(each, Counter[str]()) if all(each) else None


def disk_bytes(host_load: Measurements) -> Counter[str] | None:
    """Bytes moved at a machine's disks under test; ``None`` where ``host-load`` has not seen them."""
    found = bytes_of(host_load, TARGET)
    return found if len(found) == len(_WAYS) else None


def backing_amplification(
    backing: Counter[str], asked: Counter[str] | None, at_guests: Counter[str] | None
) -> list[Value]:
    """Bytes written to, and read from, disks below those of other nodes, for each byte above.

    ``backing`` are those that the probe ``backing`` counted; ``asked`` and ``at_guests`` are of all the nodes above. A
    ratio to what is unknown or 0 is left out.
    """
    return [
        METRICS[way, what].value(backing[way] / above[way])
        for way in _WAYS.values()
        for what, above in ((_BACKING, asked), (_GUEST_DISK, at_guests))
        if above is not None and above[way]
    ]
