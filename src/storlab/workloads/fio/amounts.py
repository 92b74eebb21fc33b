"""Sizes and durations as studies write them, in words that mean the same to fio.

fio reads ``1.5s`` as 1 s, ``1h30m`` as nothing, and ``4KiB`` as 4000 bytes (``kb_base`` in fio(1)). What stands in a
job file of fio's own is fio's, and none of this.
"""

from __future__ import annotations

import re

from storlab.units import parse_duration, parse_size
from storlab.workloads.fio.options import Option, Options, plain

_TIMES = {
    "runtime",
    "timeout",
    "ramp_time",
    "startdelay",
    "steadystate_duration",
    "ss_dur",
    "steadystate_ramp_time",
    "ss_ramp",
}
_SIZES = {
    *("bs", "blocksize", "ba", "blockalign", "bsrange", "blocksize_range", "bssplit", "size", "filesize", "io_size"),
    *("io_limit", "offset", "offset_increment", "rate", "rate_min", "zonesize", "zonerange", "zoneskip"),
}
_TIME_OF_FIO = re.compile(r"\d+(us|ms|s|m|h|d)?")
_AMBIGUOUS = re.compile(r"(?<![\w.])\d+(\.\d+\s*[kmgtp]?i?b?|\s*[kmgtp]ib)(?!\w)", re.IGNORECASE)


def in_fios_words(options: Options) -> dict[str, Option]:
    """The same options; what is no size or duration to us is left to fio."""
    sizes = _SIZES if "kb_base" not in options else set()  # whoever sets it has fio's rules in mind
    return {
        key: _time(value) if plain(key) in _TIMES else _sizes(value) if plain(key) in sizes else value
        for key, value in options.items()
    }


def _time(value: Option) -> Option:
    if not isinstance(value, str | float) or (isinstance(value, str) and _TIME_OF_FIO.fullmatch(value)):
        return value
    try:
        microseconds = round(parse_duration(value) * 1e6)
    except ValueError:
        return value
    return f"{microseconds}us" if microseconds % 1000 else f"{microseconds // 1000}ms"


def _sizes(value: Option) -> Option:
    return _AMBIGUOUS.sub(_bytes, value) if isinstance(value, str) else value


def _bytes(found: re.Match[str]) -> str:
    try:
        return str(parse_size(found[0]))
    except ValueError:
        return found[0]
