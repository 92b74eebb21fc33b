"""blkalgn's JSON, written: dialect 3, the keys in bytes."""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from storlab.blockio.histograms import DiskHistograms


def blkalgn_json(disks: Mapping[str, DiskHistograms]) -> bytes:
    """``{"disks": {"vda": {"granularity": {"4096": 27}, "alignment": {"4096": 27}}}}``, as scripts read it.

    Requests without data are in neither, so nothing that is no write counts as one of 512 bytes' alignment.
    """
    document = {
        "disks": {
            disk: {"granularity": _keyed(each.granularity), "alignment": _keyed(each.alignment)}
            for disk, each in disks.items()
        }
    }
    return orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n"


def _keyed(counts: Mapping[int, int]) -> dict[str, int]:
    return {str(value): counts[value] for value in sorted(counts)}
