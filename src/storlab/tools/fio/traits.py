"""What tells one job of fio's from another: its options, in one spelling, without those that change nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath

from storlab.text import printable
from storlab.tools.fio.blocks import JobBlock
from storlab.tools.fio.document import Document
from storlab.tools.fio.normal.told import told_of
from storlab.units import parse_size, size_text

_ALIASES = {"blocksize": "bs", "readwrite": "rw", "iodepth_batch_submit": "iodepth_batch", "thread_count": "numjobs"}
_DEFAULTS = {"rw": "read", "bs": "4k", "ioengine": "psync", "iodepth": "1", "numjobs": "1", "direct": "0"}
_SIZES = frozenset({"bs", "size", "io_size", "filesize"})
_NO_TRAITS = frozenset(
    {"name", "description", "group_reporting", "new_group", "stonewall", "wait_for_previous", "randseed"}
    | {"bwavgtime", "iopsavgtime", "per_job_logs", "output", "percentile_list", "lat_percentiles", "clat_percentiles"}
)
_LOGS = re.compile(r"write_(bw|iops|lat)_log")
_HISTOGRAM_LOGS = re.compile(r"write_hist_log")
_OF_LOGS = re.compile(r"write_\w+_log|log_\w+")


def options_of(document: Document, job: JobBlock) -> dict[str, str]:
    """All options that hold for a job, the global ones among them, as fio prints them."""
    options = {**(document.root.options or {}), **(job.options or {})}
    return {str(name): str(value) for name, value in options.items()}


def traits_of(jobs: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """What can tell a group of jobs, of these options, from others. Where its jobs differ: ``read + write``."""
    spelled = [_spelled(options) for options in jobs]
    known = _DEFAULTS if any(spelled) else {}  # of a job without any, nobody knows them
    names = dict.fromkeys([*known, *(name for options in spelled for name in options)])
    values = {name: [options.get(name, _DEFAULTS.get(name, "–")) for options in spelled] for name in names}
    return {name: " + ".join(dict.fromkeys(each)) for name, each in values.items()}


def _spelled(options: Mapping[str, str]) -> dict[str, str]:
    spelled = {}
    for name, value in options.items():
        name = _ALIASES.get(name, name)
        if name not in _NO_TRAITS and not _OF_LOGS.fullmatch(name):
            spelled[printable(name)] = _value(name, value, options.get("kb_base", "1024"))
    return spelled


def _value(name: str, value: str, kb_base: str) -> str:
    """In one spelling: 4096 is 4k; an option without a value is on."""
    if name in _SIZES and kb_base == "1024" and "ib" not in value.lower():  # 4kib, to fio, is 4000
        try:
            return size_text(parse_size(value))
        except ValueError:
            pass  # fio has other ways to say it: 80%, 4k,8k
    return printable(value) or "1"


def log_prefixes(options: Mapping[str, str], histograms: bool = False) -> list[str]:
    """How the names of a job's logs begin, or of its histogram logs: as its options say, which may be with a folder, or
    by the job's name.
    """
    logs = _HISTOGRAM_LOGS if histograms else _LOGS
    found = (value or options.get("name", "") for name, value in options.items() if logs.fullmatch(name))
    return list(dict.fromkeys(PurePosixPath(value).name for value in found if PurePosixPath(value).name))


def said_of_jobs(lines: Iterable[str]) -> dict[str, dict[str, str]]:
    """Options by the name of their job, from the lines with which fio begins: ``x: (g=0): rw=read, bs=…``."""
    told = (told_of(line) for line in lines)
    return {each.name: each.options for each in told if each is not None}
