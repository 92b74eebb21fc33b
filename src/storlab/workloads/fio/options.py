"""fio's options as study files hold them, and as its job files do: text, sections, what they come to. See fio(1)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated

from storlab.base import reach
from storlab.base.text import is_whole
from storlab.base.units import parse_duration, parse_size
from storlab.tools.fio.declared import DIRECTIONS, OPERATIONS
from storlab.workloads.base import OptionError, ReadInput, Work

_Text = Annotated[str, reach.options_of("fio")]
Option = bool | int | float | _Text | list[_Text | int | float]
Options = Mapping[str, Option]

TARGET = "{target}"

_FILES = ("filename", "filename_format", "opendir", "directory")
"""Options that name files of the job's own."""
INCLUDE = re.compile(r"\s*include\s+(\S.*?)\s*$")
"""A line of a job file that puts another file in."""
_DEEPEST = 16
WAITS = ("stonewall", "wait_for_previous")
"""Options by which a job waits until those before it have ended."""


@dataclass(frozen=True)
class Job:
    """One job with all the options that hold for it, those of ``[global]`` among them."""

    name: str
    options: Options


Sections = list[tuple[str, dict[str, Option]]]
"""A job file in parts: each section's name and options, in order."""


def jobs_of(sections: Sections) -> list[Job]:
    """What fio would run; ``[global]`` may come several times, and holds for what follows it."""
    shared: dict[str, Option] = {}
    jobs = []
    for name, options in sections:
        if name == "global":
            shared |= options
        else:
            jobs.append(Job(name, {**shared, **options}))
    return jobs


def section(title: str, options: Options) -> str:
    return "".join([f"[{title}]\n", *(f"{key}={text(value)}\n" for key, value in options.items())])


def text(value: Option) -> str:
    """A value as job files write it: true as 1, a list with colons, numbers without exponents."""
    match value:
        case bool():
            return str(int(value))
        case float():
            return f"{value:.12f}".rstrip("0").rstrip(".")
        case list():
            return ":".join(text(item) for item in value)
        case _:
            return str(value)


def plain(key: str) -> str:
    """An option's name, which fio takes with either kind of dash."""
    return key.replace("-", "_")


def below_directory(value: Option) -> Option:
    """fio puts its directory before each file name, even before one that has it already: ``{target}/a`` → ``a``."""
    if isinstance(value, list):
        return [item.removeprefix(f"{TARGET}/") if isinstance(item, str) else item for item in value]
    if not isinstance(value, str):
        return value
    return ":".join(part.removeprefix(f"{TARGET}/") for part in re.split(r"(?<!\\):", value))


def in_job_file(lines: str, change: Callable[[Option], Option]) -> str:
    """A job file with its file names changed, and all else as it stands."""

    def changed(line: re.Match[str]) -> str:
        name, value = line[1], line[2].strip()
        before, _, after = line[2].partition(value) if value else (line[2], "", "")
        return f"{name}{before}{text(change(value))}{after}"

    return re.sub(r"^([^\S\n]*(?:filename|filename_format)[^\S\n]*=)(.*)$", changed, lines, flags=re.MULTILINE)


def read_job_file(name: str, read: ReadInput) -> str:
    """A job file with what it includes put in. Raises ``OptionError`` where a file can't be read."""
    return "\n".join(_included(name, read, ())) + "\n"


def _included(name: str, read: ReadInput, above: tuple[str, ...]) -> Iterator[str]:
    if name in above or len(above) > _DEEPEST:
        raise OptionError(f"the job file {name} includes itself: {' → '.join([*above, name])}", "job_file")
    try:
        lines = read(name).splitlines()
    except ValueError as error:
        raise OptionError(str(error), "job_file") from None
    for line in lines:
        found = INCLUDE.fullmatch(line)
        if found is None:
            yield line
        else:
            yield from _included(str(PurePosixPath(name).parent / found[1]), read, (*above, name))


def sections_of(lines: str) -> Sections:
    sections: Sections = []
    for line in lines.splitlines():
        bare = re.split("[;#]", line)[0].strip()
        if bare.startswith("[") and bare.endswith("]"):
            sections.append((bare[1:-1].strip(), {}))
        elif bare and sections:
            key, separator, value = bare.partition("=")
            sections[-1][1][key.strip()] = value.strip() if separator else True
    return sections


def total_size(jobs: Iterable[Job]) -> int:
    """Bytes of all files that the jobs lay out, as far as they can be known: jobs that name the same file share it."""
    files: dict[str, int] = {}
    for job in jobs:
        size, count = _bytes(job.options, "size") or _of_files(job.options), processes(job.options)
        if "filename" in job.options:
            name = text(job.options["filename"])
            files[name] = max(files.get(name, 0), size)
        else:
            files[f"[{job.name}]"] = size * count
    return sum(files.values())


def names_files(jobs: Iterable[Job]) -> bool:
    values = (text(job.options[key]) for job in jobs for key in _FILES if key in job.options)
    return any(part != TARGET for value in values for part in value.split(":"))


def duration(jobs: Sequence[Job], warm_up: float) -> float | None:
    """Seconds that they run: at once, or one after another where there is a ``stonewall``; ``None`` where unknown."""
    groups: list[list[float]] = [[]]
    for job in jobs:
        waits = any(is_on(job.options.get(name, False)) for name in WAITS)
        if waits and groups[-1]:
            groups.append([])
        seconds = _seconds(job.options)
        if seconds is None:
            return None
        groups[-1].append(seconds + (warm_up if "ramp_time" not in job.options else 0.0))
    return sum(max(group) for group in groups if group)


def work(jobs: Sequence[Job]) -> Work | None:
    """What those do that end after an amount, all together; ``None`` where an amount is unknown."""
    moved, waits = 0, 0
    limits: list[float | None] = []
    for job in (job for job in jobs if _seconds(job.options) is None):
        options = {plain(key): value for key, value in job.options.items()}
        amount = _bytes(options, "io_size") or _bytes(options, "size") or _of_files(options)
        if not amount or any(key in options for key in _REPLAYS):
            return None
        loops = str(options.get("loops", 1))
        amount *= processes(options) * (int(loops) if is_whole(loops, 5) else 1)
        moved += amount
        waits += round(amount / (_bytes(options, "bs") or _bytes(options, "blocksize") or 4096) * _waiting(options))
        limits.append(_time(options["runtime"]) if "runtime" in options else None)
    known = [limit for limit in limits if limit is not None]
    return Work(moved, waits, max(known) if known and len(known) == len(limits) else None)


def _waiting(options: Options) -> float:
    ways = f"{options.get('rw', '')}{options.get('readwrite', '')}"
    every = ("rand" in ways and "write" not in ways) or any(is_on(options.get(k, False)) for k in ("direct", "sync"))
    synced = [text(options[key]) for key in ("fsync", "fdatasync") if key in options]
    return max([float(every), *(1 / int(each) for each in synced if is_whole(each, 9) and int(each))])


def _bytes(options: Options, key: str) -> int:
    try:
        return parse_size(options.get(key, 0))
    except ValueError:
        return 0  # "80%": fio's own way of saying that it depends on the target


def _of_files(options: Options) -> int:
    return _bytes(options, "filesize") * _count(options, "nrfiles")


def files(jobs: Iterable[Job]) -> int:
    return sum(_count(job.options, "nrfiles") * processes(job.options) for job in jobs)


_REPLAYS = ("read_iolog", "profile")
_WAYS = {
    **dict.fromkeys(("read", "randread"), ("read",)),
    **dict.fromkeys(("write", "randwrite"), ("write",)),
    **dict.fromkeys(("trim", "randtrim"), ("trim",)),
    **dict.fromkeys(("rw", "readwrite", "randrw"), ("read", "write")),
    **dict.fromkeys(("trimwrite", "randtrimwrite"), ("trim", "write")),
}
_FURTHER = {"verify": "read", "trim_": "trim", "unified_rw_reporting": "mixed"}
"""How options begin that add a direction → which: what was written is read for ``verify``."""


def directions(jobs: Iterable[Job]) -> frozenset[str]:
    """The directions in which they may do I/O; all of them where options don't tell, as of a replay."""
    found: set[str] = set()
    for job in jobs:
        options = {plain(key): text(value) for key, value in job.options.items()}
        engine = options.get("ioengine", "")
        told = [options[key].partition(":")[0] for key in ("rw", "readwrite") if key in options] or ["read"]
        if not {*told} <= _WAYS.keys() or any(key in options for key in _REPLAYS):
            return frozenset(DIRECTIONS)
        if engine in OPERATIONS:
            found.add(OPERATIONS[engine])
            continue
        if engine.startswith(("file", "dir", "external")) or "/" in engine:  # creations and the like count as reads
            found |= {"read", "write"}
        found |= {way for each in told for way in _WAYS[each]}
        found |= {way for key, way in _FURTHER.items() if any(option.startswith(key) for option in options)}
    return frozenset(found)


def may_have(jobs: Iterable[Job], pattern: str) -> bool:
    names = [plain(key) for job in jobs for key in job.options]
    return any(key in _REPLAYS or re.fullmatch(pattern, key) for key in names)


def ramps(jobs: Iterable[Job], warm_up: float) -> bool:
    return any(_time(job.options.get("ramp_time", warm_up)) != 0 for job in jobs)


def ends_while_ramping(jobs: Iterable[Job], warm_up: float) -> bool:
    """Whether any of them has a ramp longer than its ``runtime``: fio (3.33) then ends with the ramp not over."""
    for job in jobs:
        ramp, limit = _time(job.options.get("ramp_time", warm_up)), _time(job.options.get("runtime", 0))
        if ramp and limit and ramp > limit:
            return True
    return False


def is_on(value: Option) -> bool:
    return value not in (False, 0, "0")


def processes(options: Options) -> int:
    return _count(options, "numjobs", 5)


def _count(options: Options, key: str, digits: int = 9) -> int:
    count = str(options.get(key, 1))
    return int(count) if is_whole(count, digits) else 1


def runtime(options: Options) -> float | None:
    """Seconds that a job with these options measures, where a time ends it; ``None`` where an amount does."""
    if not is_on(options.get("time_based", False)) or "runtime" not in options:
        return None
    return _time(options["runtime"])


def _seconds(options: Options) -> float | None:
    lasts = runtime(options)
    extra = [_time(options.get(key, 0)) or 0.0 for key in ("ramp_time", "startdelay")]
    return None if lasts is None else lasts + sum(extra)


def _time(value: Option) -> float | None:
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return float(value[:9])  # fio's numbers without a unit are seconds
    try:
        return parse_duration(value)
    except ValueError:
        return None


# Sizes and durations as studies write them, in words that mean the same to fio.
#
# fio reads ``1.5s`` as 1 s, ``1h30m`` as nothing, and ``4KiB`` as 4000 bytes (``kb_base`` in fio(1)). What stands in
# a job file of fio's own is fio's, and none of this.

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
        key: _fios_time(value)
        if plain(key) in _TIMES
        else _AMBIGUOUS.sub(_fios_bytes, value)
        if plain(key) in sizes and isinstance(value, str)
        else value
        for key, value in options.items()
    }


def _fios_time(value: Option) -> Option:
    if not isinstance(value, str | float) or (isinstance(value, str) and _TIME_OF_FIO.fullmatch(value)):
        return value
    try:
        microseconds = round(parse_duration(value) * 1e6)
    except ValueError:
        return value
    return f"{microseconds}us" if microseconds % 1000 else f"{microseconds // 1000}ms"


def _fios_bytes(found: re.Match[str]) -> str:
    try:
        return str(parse_size(found[0]))
    except ValueError:
        return found[0]


# Whether as many operations are in flight as ``iodepth`` says.
#
# Source: fio's HOWTO, "iodepth": none of synchronous engines (``FIO_SYNCIO``) has more than one, nor libaio with
# buffered I/O.

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
