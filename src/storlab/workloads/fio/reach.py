"""What fio's options may reach: the stack under test and the trial's own folder.

Which there are and what each may be is listed in ``allowed/fio.toml``; here is what is special about fio: its job
files, words that it expands, and names of files, which lie in the target. fio also runs confined, whatever is said.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from storlab.base.allowed import allowed
from storlab.base.errors import UserError
from storlab.base.units import shown
from storlab.nodes.node import Node
from storlab.workloads.base import OptionError
from storlab.workloads.fio.options import INCLUDE, TARGET, Job, Options, jobs_of, plain, section, sections_of, text

_OURS = frozenset({"name", "write_bw_log", "write_iops_log", "write_lat_log", "per_job_logs"})
"""Storlab's own where it writes the job file."""
_PATHS = frozenset({"filename", "filename_format", "directory", "opendir", "replay_redirect"})
_FOLDERS = frozenset({"directory", "opendir"})
TRACE = "read_iolog"
"""It names a trace that is only read; where its I/O goes, ``replay_redirect`` must say."""
_NUMBERS = re.compile(r"\$(pagesize|mb_memory|ncpus)([*/+-]\d+)?")
_FORMAT_WORDS = re.compile(r"\$(jobname|jobnum|filenum|clientuid)(?![a-z])")
_PLACE = re.compile(r"\{(?!target\})\w+\}")
"""``{round}``, ``{seed}``: a word that is filled in when the trial runs."""
_NAME = re.compile(r"[A-Za-z][\w-]*", re.ASCII)
_JOB_NAME = re.compile(r"[^\[\]/;#\x00-\x1f]{1,63}")
_LONGEST = 4000
"""Characters of a line: fio (3.33) takes what follows the first 8191 bytes for a line of its own."""
_BUILT_IN = re.compile(r"[\w-]+", re.ASCII)


def check_job_name(name: str) -> None:
    """Raises ``OptionError`` for what fio could not read back from a job file, or would take for a path."""
    if name == "global":
        raise OptionError("global is not a job: write options of all jobs beside jobs", "jobs", name)
    if not _JOB_NAME.fullmatch(name) or name != name.strip() or "$" in name:
        raise OptionError(f"{shown(name)} is not a valid name of a job: leave out / [ ] ; # $", "jobs", name)


def check_options(options: Options, *path: str) -> None:
    """Raises ``OptionError`` for what a job file can't hold, is Storlab's own, or leads away from the stack."""
    for key, value in options.items():
        at = (*path, key)
        if not _NAME.fullmatch(key):
            raise OptionError(f"{shown(key)} is not a valid name of an option", *at)
        if plain(key) in _OURS:
            raise OptionError("this option is Storlab's own: leave it out", *at)
        if len(text(value).encode()) > _LONGEST:
            raise OptionError(f"its value has more than {_LONGEST} bytes", *at)
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, float) and not math.isfinite(item):
                raise OptionError(f"{item} is not a number that fio takes", *at)
            if isinstance(item, str) and not item.isprintable():
                raise OptionError(f"{shown(item)}: an fio value must be on one line", *at)
            if isinstance(item, str) and re.search("[;#]", item):
                raise OptionError(f"{shown(item)}: fio takes what follows a ; or # for a comment", *at)
        _check_reach(key, text(value), at)


def check_job_file(lines: str) -> None:
    """The same for a native job file, where line numbers say what is meant."""
    for number, line in enumerate(lines.splitlines(), start=1):
        try:
            _check_line(line)
        except OptionError as error:
            raise OptionError(f"line {number} of the job file: {error}", "job_file") from None


def _check_line(line: str) -> None:
    if len(line.encode(errors="replace")) > _LONGEST:
        raise OptionError(f"it has more than {_LONGEST} bytes")
    bare = re.split("[;#]", line)[0].strip()
    if bare.startswith("["):
        name = bare.removeprefix("[").removesuffix("]").strip()
        if name != "global":
            check_job_name(name)
        return
    if bare.startswith("include") and INCLUDE.fullmatch(line) is None and not bare.startswith("include="):
        raise OptionError(f"{shown(bare)}: write `include FILE`")
    key, _, value = (part.strip() for part in bare.partition("="))
    if not bare or INCLUDE.fullmatch(line) is not None:
        return
    try:
        _check_reach(key, value, ())
    except OptionError as error:
        raise OptionError(f"{key}: {error}") from None


def _check_reach(key: str, value: str, path: Sequence[str]) -> None:
    name = plain(key)
    _check_words(name, value, path)
    wrong = allowed("fio").problem(name, "0" if _NUMBERS.fullmatch(value) else _PLACE.sub("0", value))
    if wrong is not None:
        raise OptionError(wrong, *path)
    if name in _PATHS:
        check_path(key, value, path)
    if name == TRACE and any(".." in part.split("/") for part in _parts(value)):
        raise OptionError(f"{shown(value)} leads out of the trial's folder: write an absolute path", *path)
    unknown = allowed("fio", "engine").problem(value) if name == "ioengine" and is_built_in(value) else None
    if unknown is not None:
        raise OptionError(unknown, *path)


def _check_words(name: str, value: str, path: Sequence[str]) -> None:
    """fio puts variables of its environment in, and has a shell calculate what holds one of its own words."""
    rest = _FORMAT_WORDS.sub("", value) if name == "filename_format" else value
    if "$" in rest and not _NUMBERS.fullmatch(rest):
        raise OptionError(
            f"{shown(value)}: fio would expand what follows the $: write the value itself, "
            "or a parameter of the study in braces",
            *path,
        )


def check_path(key: str, value: str, path: Sequence[str]) -> None:
    """Storlab touches only what its stack provides: fio may not be sent elsewhere."""
    for part in _parts(value):
        inside = part == TARGET or part.startswith(f"{TARGET}/")
        relative = part.removeprefix(TARGET).lstrip("/") if inside else part
        if ".." in relative.split("/") or (not inside and part.startswith("/")):
            away = f"{shown(value)} leads away from the stack under test"
            remedy = (
                "leave it out, Storlab gives fio its directory"
                if key in _FOLDERS
                else "write a name relative to it, and name devices by a layer in the stack"
            )
            raise OptionError(f"{away}: {remedy}", *path)
        if plain(key) in _FOLDERS and not inside:
            raise OptionError(
                f"{shown(value)} is relative to no known directory: leave it out, Storlab gives fio its directory, "
                f'or write "{TARGET}/…"',
                *path,
            )


def _parts(value: str) -> list[str]:
    """The paths in a value: colons are between them."""
    return [part.strip() for part in re.split(r"(?<!\\):", value)]


def check_replays(jobs: Iterable[Job]) -> None:
    """A trace names the devices that it was taken from, and fio opens them. Raises ``OptionError``."""
    for job in jobs:
        options = {plain(key): value for key, value in job.options.items()}
        redirect = str(options.get("replay_redirect", ""))
        if TRACE in options and redirect != TARGET and not redirect.startswith(f"{TARGET}/"):
            raise OptionError(
                f"the job {job.name} replays a trace, which names files and devices of its own: write "
                f'replay_redirect = "{TARGET}" on a disk, or "{TARGET}/FILE" in a directory'
            )


def engines_of(jobs: Iterable[Job]) -> list[str]:
    return sorted({text(job.options["ioengine"]) for job in jobs if "ioengine" in job.options})


def traces_of(jobs: Iterable[Job]) -> list[str]:
    named = {text(value) for job in jobs for key, value in job.options.items() if plain(key) == TRACE}
    return sorted({part for each in named for part in _parts(each) if part.startswith("/")})


def is_built_in(engine: str) -> bool:
    return _BUILT_IN.fullmatch(engine) is not None


def jobs_in(lines: str) -> list[Job]:
    """The jobs of a native job file, checked. Raises ``OptionError``."""
    jobs = jobs_of(sections_of(lines))
    if not jobs:
        return []
    check_job_file(lines)
    check_replays(jobs)
    return jobs


# fio's own opinion of options, before anything runs: it parses them, many jobs in one process, and nothing else.

Jobs = Sequence[Job]


async def refused(node: Node, loads: Sequence[Jobs]) -> list[int]:
    """Those of the loads, by number, of which fio does not take everything."""
    unknown = (await unknown_engines(node, loads)).keys()
    without = [number for number, jobs in enumerate(loads) if unknown & set(engines_of(jobs))]
    return sorted({*without, *await _refused_options(node, loads)})


async def _refused_options(node: Node, loads: Sequence[Jobs]) -> list[int]:
    """By halves, so that few processes find them."""
    try:
        await parse(node, [job for jobs in loads for job in jobs])
    except RefusedOptions:
        if len(loads) == 1:
            return [0]
        half = len(loads) // 2
        below, above = await _refused_options(node, loads[:half]), await _refused_options(node, loads[half:])
        return [*below, *(half + number for number in above)]
    return []


class RefusedOptions(UserError):
    """fio does not take ``option``, or some option where that is empty."""

    def __init__(self, message: str, option: str = "") -> None:
        super().__init__(message)
        self.option = option


async def parse(node: Node, jobs: Jobs, program: str = "fio") -> None:
    """Let fio parse all options of these jobs, which runs nothing. Raises ``RefusedOptions``."""
    # Each section has all that holds for it: what is global would hold for the jobs of other loads, too.
    await parse_file(
        node, "\n".join(section(str(number), job.options) for number, job in enumerate(jobs, start=1)), program
    )


async def parse_file(node: Node, lines: str, program: str = "fio") -> None:
    # Any directory that exists will do: fio looks whether it does. Where it has to find out by itself whether the
    # processors' clocks agree, it takes twice the time.
    lines = lines.replace(TARGET, "/").replace("//", "/")
    argv = [program, "--parse-only", "--directory=/", "--clocksource=clock_gettime", "-"]
    ended = await node.run(argv, stdin=lines.encode(), check=False)
    said = (ended.stderr + ended.stdout).decode(errors="replace")
    if ended.signal is not None:
        ended.check(node.name)  # nobody's options are at fault
    if not ended.ok or "value out of range" in said:  # which fio tells, and then continues with another value
        raise RefusedOptions(complaint(said) or ended.describe(), bad_option(said))


async def unknown_engines(node: Node, loads: Sequence[Jobs], program: str = "fio") -> dict[str, str]:
    """Engines that this fio doesn't have, and what to say of each: it looks for one only when a job starts."""
    named = [engine for engine in engines_of(job for jobs in loads for job in jobs) if is_built_in(engine)]
    if not named:
        return {}
    listing = (await node.run([program, "--enghelp"], check=False)).stdout.decode(errors="replace")
    known = [line.strip() for line in listing.splitlines() if line.startswith(("\t", " "))]
    unknown = {}
    for engine in set(named) - set(known) if known else ():
        asked = await node.run([program, f"--enghelp={engine}"], check=False)
        if b"not loadable" in asked.stderr + asked.stdout:
            unknown[engine] = f"this fio has no ioengine {engine}; it has {', '.join(known)}"
    return unknown


def bad_option(said: str) -> str:
    """The option that fio says it does not know; empty where it says no such thing."""
    match = re.search(r"^Bad option <(.*?)(=.*)?>$", said, re.MULTILINE)
    return match[1] if match else ""


def complaint(said: str) -> str:
    """What fio says of options that it does not take, in one sentence; empty where it says nothing known."""
    lines: Sequence[str] = [line.strip() for line in said.splitlines() if line.strip()]
    for number, line in enumerate(lines):
        if match := re.fullmatch(r"Bad option <(.*?)(=.*)?>", line):
            hint = next((other for other in lines[number + 1 :] if other.startswith("Did you mean")), "")
            close = re.sub(r"Did you mean (.*)\?", r"; did you mean \1?", hint)
            return f"fio knows no option {match[1]}{close}"
    said_of = [line.removeprefix("fio: ") for line in lines if not line.startswith(("fio: job", "valid values", ":"))]
    return f"fio does not take these options: {'; '.join(said_of[:3])}" if said_of else ""
