"""Which loads lay out the same files, so that those of one serve another where a stack is kept.

fio lays out what is missing of a file's size, and leaves a file alone that is large enough, whatever is in it
(``setup_files()`` in its filesetup.c). What says how a file is used, and not how large it is, does not matter then.
"""

from __future__ import annotations

from storlab.workloads.fio import options as fio_options
from storlab.workloads.fio.options import Option, Options, Sections

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
    """A job file without what does not matter to the files: equal for loads that lay out the same ones."""
    return "".join(fio_options.section(title, _of_files(options)) for title, options in sections)


def _of_files(options: Options) -> dict[str, Option]:
    return {key: value for key, value in options.items() if not _is_use(fio_options.plain(key), value)}


def _is_use(key: str, value: Option) -> bool:
    match key:
        case "rw" | "readwrite":
            return value in _PATTERNS
        case "ioengine":
            return value in _ENGINES
        case _:
            return key in _USES
