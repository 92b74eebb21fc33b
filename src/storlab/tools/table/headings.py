"""What the columns of a table probably are, by the words of their headings: nobody else says it of a stranger's table.

Nothing that is read depends on it but what is suggested, and what is asked about before rows become one cell.
"""

from __future__ import annotations

import re
from itertools import pairwise

from storlab.metrics import Better
from storlab.tools.table.mapping import UNITS, unit_of

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-zµμß-ÿ]+|\d+")
_PER_SECOND = re.compile(r"\w+/s(ec)?\b")


def _words_in(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ROUNDS = _words_in(
    "run runs round rounds rep reps repeat repetition iteration iter loop trial pass "
    "lauf durchlauf runde wiederholung durchgang"
)
_NUMBERED = frozenset(("no", "nr", "num", "number", "id", "index", "nummer"))
_LOWER = _words_in(
    "lat latency latencies clat slat time elapsed duration seconds sec secs usec msec nsec us µs ms ns s wait await "
    "delay stall stalls jitter percentile stddev stdev std error errors err fail failed failures retries "
    "latenz zeit dauer fehler"
)
_HIGHER = _words_in("iops ops tps qps bw bandwidth throughput rate speed durchsatz bandbreite mbs mbps")
_MEASURED = _LOWER | _HIGHER | frozenset(("mean", "avg", "average", "min", "max", "median", "per", "p", "th", "cpu"))
_SETTINGS = _words_in(
    "numjobs jobs job iodepth depth qd queue queues threads thread clients client procs processes workers nodes direct "
    "buffered sync fsync bs blocksize block blk xfer transfer size filesize filesizes record recordsize recsize reclen "
    "stripe chunk sector cluster runtime ramp scale port cores cpus vcpus disks drives rwmixread rwmix mix "
    "compression level tasks concurrency connections streams replicas"
)


def _words(heading: str) -> list[str]:
    """Those of its name, without a unit: ``latMsAvg`` has lat, ms and avg, ``p99lat`` p, 99 and lat."""
    return [word.lower() for word in _WORD.findall(_PER_SECOND.sub("rate", unit_of(heading)[0]))]


def is_round(heading: str) -> bool:
    """Whether it names the number of a repeat."""
    words = _words(heading)
    rest = [word for word in words if word not in _NUMBERED]
    return len(rest) == 1 and rest[0] in _ROUNDS


def is_setting(heading: str) -> bool:
    """Whether it names what was set before a trial, and not what came of it: ``iodepth``, ``block (KiB)``."""
    words = _words(heading)
    together = "".join(words)
    measured = _MEASURED.intersection(words) or UNITS.get(unit_of(heading)[1] or "", (0, ""))[1] in ("1/s", "B/s")
    return not measured and (together in _SETTINGS or bool(_SETTINGS.intersection(words)))


def better_of(heading: str, base: str = "") -> Better:
    """Which direction is probably better: of times, percentiles and errors less, of rates more. ``base``: its unit."""
    words = _words(heading)
    percentile = any(word == "p" and after.isdigit() for word, after in pairwise(words))
    base = base or UNITS.get(unit_of(heading)[1] or "", (0, ""))[1]
    if percentile or base == "s" or _LOWER.intersection(words):
        return "lower"
    return "higher" if base in ("1/s", "B/s") or _HIGHER.intersection(words) else "neither"


def counts_per_second(heading: str) -> bool:
    """Whether it names a rate and no unit, whether known or not: ``IOPS``, ``tps``, but not ``IOPS (thousands)``."""
    return not heading.endswith((")", "]")) and bool({"iops", "ops", "tps", "qps"}.intersection(_words(heading)))
