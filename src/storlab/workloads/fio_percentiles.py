"""Percentiles of the total latency, put where they belong: fio 3.1 to 3.12 print them with the completion latency.

Source: fio's commit e5eb6fbf9161, since which (3.13) they are in ``lat_ns``; and ``fixup_options`` in ``init.c`` of
3.12: percentiles are of the one or of the other. Where there are no bins, only the options tell of which.
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from storlab.workloads.fio_document import DirectionBlock, JobBlock, Root

_OLD = re.compile(r"fio-3\.([1-9]|1[0-2])(?!\d)")


def in_place(block: JobBlock, root: Root) -> JobBlock:
    """A job of ``root`` with its percentiles in ``clat_ns`` or ``lat_ns``, as later versions print them."""
    if not _OLD.match(root.version or "") or not _of_total({**(root.options or {}), **(block.options or {})}):
        return block
    ways = (block.read, block.write, block.trim, block.mixed)
    read, write, trim, mixed = (None if way is None else _moved(way) for way in ways)
    return replace(block, read=read, write=write, trim=trim, mixed=mixed)


def _of_total(options: dict[str, object]) -> bool:
    """Each of the two options is the inverse of the other, where only one is given."""
    if "lat_percentiles" in options:
        return options["lat_percentiles"] != "0"
    return options.get("clat_percentiles") == "0"


def _moved(way: DirectionBlock) -> DirectionBlock:
    completion, total = way.clat_ns, way.lat_ns
    if completion is None or total is None or not completion.percentile:
        return way
    completion, total = replace(completion, percentile={}), replace(total, percentile=completion.percentile)
    return replace(way, clat_ns=completion, lat_ns=total)
