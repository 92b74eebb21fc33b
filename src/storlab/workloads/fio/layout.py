"""Which files a load expects: which loads share them where a stack is kept, and which ones the agent can lay out.

fio lays out what is missing of a file's size, and leaves a file alone that is large enough, whatever is in it
(``setup_files()`` in its filesetup.c). What says how a file is used, and not how large it is, does not matter then.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from storlab.base.text import is_whole
from storlab.base.units import parse_size
from storlab.workloads.fio import options as fio_options
from storlab.workloads.fio.options import Job, Option, Sections

_PATTERNS = frozenset({"read", "write", "rw", "readwrite", "randread", "randwrite", "randrw"})
_ENGINES = frozenset(
    {"sync", "psync", "vsync", "pvsync", "pvsync2", "libaio", "io_uring", "posixaio", "mmap"}
)  # that do their I/O on files, as others need not
_USES = frozenset({
    "direct", "buffered", "fsync", "fdatasync", "sync", "runtime", "time_based", "ramp_time", "startdelay", "rwmixread",
    "rwmixwrite", "rate", "rate_iops", "rate_min", "rate_process", "thinktime", "group_reporting", "iomem_align",
    "hipri", "iodepth", "iodepth_batch", "iodepth_batch_submit", "iodepth_batch_complete", "iodepth_low",
    "random_generator", "random_distribution", "norandommap", "percentile_list", "log_avg_msec",
})  # fmt: skip


def files_of(sections: Sections) -> str:
    about_files = (
        (title, {key: value for key, value in options.items() if not _is_use(fio_options.plain(key), value)})
        for title, options in sections
    )
    return "".join(fio_options.section(title, options) for title, options in about_files)


def _is_use(key: str, value: Option) -> bool:
    match key:
        case "rw" | "readwrite":
            return value in _PATTERNS
        case "ioengine":
            return value in _ENGINES
        case _:
            return key in _USES


_DECIDES = frozenset({
    "size", "bs", "numjobs", "nrfiles", "filename", "filename_format", "directory", "overwrite", "fallocate",
})  # fmt: skip
"""What the agent's layout honours."""
_GIVEN = frozenset({
    "randseed", "write_bw_log", "write_iops_log", "write_lat_log", "bwavgtime", "iopsavgtime", "lat_percentiles",
    "clat_percentiles", "invalidate",
})  # fmt: skip
"""What Storlab gives every job."""
_LATER = frozenset({"thread", "end_fsync", "loops", "continue_on_error", "description"})
"""What is about the load alone."""
_ALIASES = {"readwrite": "rw", "blocksize": "bs"}
_SIZE = re.compile(r"\d{1,15}[kmgt]?", re.ASCII | re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}", re.ASCII)
_MANY = 64  # files; more are fio's, for a request has room for only so many
_SECTOR = 512  # bytes; blocks that are no multiple of it are fio's


def known_files(jobs: Iterable[Job], directory: str) -> list[dict[str, Any]] | None:
    """The files that fio (3.28 to 3.40) would lay out there for these jobs, as ``storlab-agent layout`` takes them.

    ``None`` unless each option of each job is one of those that are known here, with a value that is: what decides
    about contents (``buffer_pattern``, ``dedupe_percentage``, …), sizes and order is fio's own to carry out.
    """
    found = [_files_of_job(job, directory) for job in jobs]
    files = [file for each in found for file in each or ()]
    return None if None in found or ":" in directory or len(files) > _MANY else files


def _files_of_job(job: Job, directory: str) -> list[dict[str, Any]] | None:
    options: dict[str, str] = {}
    for key, value in job.options.items():
        name = _ALIASES.get(fio_options.plain(key), fio_options.plain(key))
        known = name in _DECIDES or name in _GIVEN or name in _LATER or _is_use(name, value)
        if name in options or not known:
            return None
        options[name] = fio_options.text(value)
    given = {"bs": "4k", "numjobs": "1", "nrfiles": "1", "overwrite": "0", "fallocate": "native", **options}
    if not (
        all(_SIZE.fullmatch(given.get(name, "")) for name in ("size", "bs"))
        and all(is_whole(given[name], 2) for name in ("numjobs", "nrfiles"))
        and given["overwrite"] in ("0", "1")
        and given["fallocate"] in ("native", "none", "0")
        and given.get("directory") == directory
        and not ("filename" in options and "nrfiles" in options)
    ):
        return None
    block, count = parse_size(given["bs"]), int(given["nrfiles"])
    size = parse_size(given["size"]) // max(count, 1)
    names = list(_names(job.name, given, count))
    if not block or block % _SECTOR or size < block or not all(map(_NAME.fullmatch, names)):
        return None
    # As extend_file() in fio's filesetup.c: mmap can't extend files, so it is as if what it writes were there before.
    has_data = given.get("rw", "read") not in ("write", "randwrite") or given["overwrite"] == "1"
    written = block if has_data or given.get("ioengine") == "mmap" else None
    reserve = given["fallocate"] == "native"
    return [{"path": f"{directory}/{name}", "size": size, "block": written, "reserve": reserve} for name in names]


def _names(job: str, options: dict[str, str], count: int) -> Iterator[str]:
    form = options.get("filename") or options.get("filename_format") or "$jobname.$jobnum.$filenum"
    names = (
        form.replace("$jobname", job).replace("$jobnum", str(process)).replace("$filenum", str(number))
        for process in range(int(options["numjobs"]))
        for number in range(count)
    )
    yield from dict.fromkeys(names)
