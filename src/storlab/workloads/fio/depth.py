"""Whether as many operations are in flight as ``iodepth`` says.

Source: fio's HOWTO, "iodepth": none of synchronous engines (``FIO_SYNCIO``) has more than one, nor libaio with buffered
I/O.
"""

from __future__ import annotations

from collections.abc import Iterable

from storlab.text import is_whole
from storlab.workloads.fio.options import Job, plain, text

_SYNCHRONOUS = frozenset({"sync", "psync", "vsync", "pvsync", "pvsync2", "mmap", "splice"})
_DEFAULT = "psync"  # on Linux


def without_effect(jobs: Iterable[Job]) -> str:
    """Why a depth of more than 1 has no effect, without a full stop; empty where each has one."""
    for job in jobs:
        options = {plain(key): text(value) for key, value in job.options.items()}
        depth, engine = options.get("iodepth", "1"), options.get("ioengine", _DEFAULT)
        if not is_whole(depth, 7) or int(depth) < 2:
            continue
        if engine in _SYNCHRONOUS:
            return f"iodepth has no effect: {engine} has one operation in flight"
        if engine == "libaio" and options.get("direct", "0") == "0" and options.get("buffered", "1") != "0":
            return "iodepth has no effect without direct = 1: libaio submits buffered operations one by one, and waits"
    return ""
