"""Whether fio did what it was asked: all bytes of jobs that end after an amount, the whole time of the others.

fio ends with status 0 where it did less, as on a device that was full at once (``fill_device``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from storlab.workloads.fio.options import Job, plain, runtime, work

_EARLIER = {"number_ios", "fill_device", "fill_fs", "exitall", "exit_what", "latency_target", "steadystate", "ss"}
"""Options by which a job ends before it has done all."""
_LESS_BYTES = {"filesize", "offset", "offset_increment", "zonemode", "zonesize", *_EARLIER}
_LESS_TIME = {"io_size", "io_limit", "timeout", *_EARLIER}
_COUNTS = ("file", "dir", "external")
"""How engines begin that may do operations without bytes."""
_MIB = 2**20
_ENOUGH = 0.9
"""Share of what was asked: a size that is no multiple of the block is not reached, and times are whole ms."""


def fell_short(ran: Sequence[Job], totals: Mapping[str, float], ramped: bool) -> str:
    """What is missing, in a clause; "" where it did all, or its options don't tell what that is.

    ``totals``: metric → value of all jobs together; ``ramped``: whether a beginning isn't in them.
    """
    did = totals.get("bytes", 0.0)
    counts_only = any(str(job.options.get("ioengine", "")).startswith(_COUNTS) for job in ran)
    if not did and not (counts_only and totals.get("ios")):
        return "fio did no I/O"
    options = {plain(key) for job in ran for key in job.options}
    wanted = work(ran) if not ramped and not options & _LESS_BYTES else None
    if wanted is not None and wanted.longest is None and did < _ENOUGH * wanted.moved:
        return f"fio did {did / _MIB:.4g} MiB of the {wanted.moved / _MIB:.4g} MiB that it was asked for"
    longest = max((seconds for job in ran if (seconds := runtime(job.options)) is not None), default=0.0)
    lasted = totals.get("runtime", longest)
    if lasted < _ENOUGH * longest and not options & _LESS_TIME:
        return f"fio ran for {lasted:g} s of the {longest:g} s that it was asked for"
    return ""


_COARSE = 0.1  # s
TOO_SHORT = "fio's jobs ran for less than 100 ms, which it counts in whole ms: rates may be wrong by 1 % and more"


def is_too_short(totals: Mapping[str, float]) -> bool:
    """Whether fio's own clock is too coarse for what it did."""
    return 0 < totals.get("runtime", _COARSE) < _COARSE
