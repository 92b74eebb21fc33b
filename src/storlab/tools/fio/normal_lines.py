"""The lines of fio's output for people, as runs and their jobs.

Source: ``stat.c`` of fio 2.0.10 to 3.33. A line that begins as one with figures and isn't whole is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from storlab.base.errors import ParseError
from storlab.base.units import size_text
from storlab.tools.fio.blocks import Latency, Samples, SteadyBlock

_TOLD = re.compile(
    r"(?P<name>.+): \(g=(?P<group>\d{1,9})\): rw=(?P<rw>\w+), bs=(?P<bs>.*?), ioengine=(?P<ioengine>[\w:./-]+), "
    r"iodepth=(?P<iodepth>\d+)"
)
_RANGE = re.compile(r"(\d+(?:\.\d+)?)((?:[KMG]i?)?)B?-(\d+(?:\.\d+)?)((?:[KMG]i?)?)B?")
_LONGEST = 18  # digits of a size; one with more is damaged, and so may the others be
_PREFIXES = "KMG"
_DIRECTIONS = ("read", "write", "trim")


@dataclass(frozen=True)
class Told:
    """What fio says of a job before it starts. ``sizes``: of its blocks, in bytes, by direction where all are alike."""

    name: str
    group: int
    options: dict[str, str]
    sizes: dict[str, int]


def told_of(line: str) -> Told | None:
    """``x: (g=0): rw=read, bs=…``, in the spelling of any fio from 2.0 on; ``None`` where it is another line."""
    match = _TOLD.match(line)
    if match is None:
        return None
    found = list(_RANGE.finditer(match["bs"]))[:3]
    damaged = any(len(each[at]) > _LONGEST for each in found for at in (1, 3))
    ranges = [] if damaged else [_range(each) for each in found]
    sizes = {way: least for way, (least, most) in zip(_DIRECTIONS, ranges, strict=False) if least == most and least}
    options = {name: match[name] for name in ("rw", "ioengine", "iodepth")}
    if ranges:
        spelled = ["-".join(map(size_text, sorted({least, most}))) for least, most in ranges]
        options["bs"] = spelled[0] if len(set(spelled)) == 1 else ",".join(spelled)
    return Told(match["name"], int(match["group"]), options, sizes)


def _range(match: re.Match[str]) -> tuple[int, int]:
    least, most = (round(float(match[at]) * 1024 ** (_PREFIXES.find(match[at + 1][:1] or "-") + 1)) for at in (1, 3))
    return least, most


INSTEAD = "leave only its whole lines, or read its figures as a table of your own (storlab import csv)"
_LONGEST_LINE = 4096  # signs of a line
_NUMBER = r"\s*(\d{1,18}(?:\.\d{1,18})?[kKMGTPE]?i?B?)"
_JOB = re.compile(
    r"(?P<name>.+): \(groupid=(?P<group>\d{1,9}), jobs=(?P<members>\d{1,9})\): err=\s*(?P<error>\d{1,9})"
    r"(?: \(.*\))?: pid=(?P<pid>\d+)"
)
_WAY = re.compile(r"(?P<way>read|write|trim|mixed)\s*: (?=IOPS=|io=)")
_RATE = re.compile(rf"\w+: IOPS={_NUMBER}, BW=\S+ \([^)]*\)\({_NUMBER}/(\d{{1,15}})msec\)(?:;.*)?")
_OLD_RATE = re.compile(rf"\w+\s*: io={_NUMBER}, bw={_NUMBER}/s, iops={_NUMBER}\s*, runt=\s*(\d{{1,15}})msec")
_LATENCY = re.compile(r"(?P<kind>slat|clat|lat|sync) \((?P<unit>\w+)\)\s*: (?=min=)")
_FIGURES = re.compile(
    rf"[^=]*min={_NUMBER}, max={_NUMBER}, avg=\s*(\d{{1,18}}\.\d{{1,18}}), stdev=\s*(?:\d{{1,18}}\.\d{{1,18}}|-?nan)"
)
_PERCENTILES = re.compile(r"(?P<kind>slat|clat|lat|sync) percentiles \((?P<unit>\w+)\)\s*:")
_PERCENTILE = re.compile(r"(\d+(?:\.\d+)?)th=\[\s*(\d{1,18})\]")
_CPU = re.compile(r"cpu\s*: usr=(\d+\.\d+)%, sys=(\d+\.\d+)%")
_ISSUED = re.compile(r"issued\s*(?:rwts?\s*)?: total=(?P<total>\S+?),? short=(?P<short>\S+)")
_ERRORS = re.compile(r"errors\s*: total=(\d{1,18})")
_STEADY = re.compile(
    r"steadystate\s*: attained=(yes|no), .*, (?P<of>bw|iops|lat)(?P<how> slope| mean dev)=(?P<limit>\S+)"
)
_GROUP = re.compile(
    rf"(?P<way>READ|WRITE|TRIM|MIXED): (?:.*, )?io={_NUMBER}.*(?:run=\d+-|maxt=\s*)(?P<longest>\d{{1,15}})msec"
)
_CLOSED = re.compile(r"Run status group \d+ \(all jobs\):")
_VERSION = re.compile(r"fio[- ](\d+\.\S+)")
_STARTING = re.compile(r"Starting \d+ (?:process|thread)")
_UNITS = {"nsec": 1, "usec": 1000, "msec": 1_000_000}
_EXPONENTS = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}


@dataclass
class Figures:
    """Latencies of one kind, ns; ``step``: to what their extremes are exact."""

    unit: int
    least: float
    most: float
    mean: float
    step: float
    percentiles: dict[str, int] = field(default_factory=dict)

    @property
    def latency(self) -> Latency:
        return Latency(round(self.least), round(self.most), self.mean, 0, self.percentiles)


@dataclass
class Way:
    """One direction. Amounts have with them the half of their last digit.

    ``in_thousands``: the bytes where fio 2 wrote KB, if that is 1000 of them, and not 1024 as in ``bytes``.
    """

    line: int
    iops: tuple[float, float]
    bytes: tuple[float, float]
    runtime: int  # ms
    in_thousands: float | None = None
    latencies: dict[str, Figures] = field(default_factory=dict)


@dataclass
class NormalJob:
    """One job, from its line on: what each direction did, and what is of all. CPU in percent."""

    line: int
    name: str
    group: int
    members: int
    error: int
    pid: int
    ways: dict[str, Way] = field(default_factory=dict)
    sync: Figures | None = None
    cpu: tuple[float, float] | None = None
    issued: list[int] | None = None
    short: bool = False
    errors: int | None = None
    steady: SteadyBlock | None = None


@dataclass(frozen=True)
class OfGroup:
    """One direction. ``longest``: ms that the last job took; ``bytes``: with KB as 1024 of them."""

    line: int
    longest: int
    bytes: float


@dataclass
class Run:
    """One run of fio; ``groups``: what all jobs of a group did in a direction, by the group's own lines."""

    told: list[Told] = field(default_factory=list)
    version: str | None = None
    jobs: list[NormalJob] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    groups: dict[tuple[int, str], OfGroup] = field(default_factory=dict)
    closed: bool = False

    @property
    def identity(self) -> tuple[tuple[str, int, int], ...]:
        """By which a later report of the same run is known; nothing without the numbers of its processes."""
        return tuple((job.name, job.group, job.pid) for job in self.jobs) if all(job.pid for job in self.jobs) else ()


def runs_in(text: str, source: str) -> Iterator[Run]:
    """All runs that printed any job. Raises ``ParseError`` with the line."""
    run, group = Run(), 0
    way: Way | None = None
    kind = ""  # of the percentiles whose lines follow
    for number, line in enumerate(map(str.strip, text.split("\n")), start=1):
        if not line or len(line) > _LONGEST_LINE:
            continue
        begins = _JOB.match(line)
        told = told_of(line) if "(g=" in line else None
        if (begins and run.closed) or (run.jobs and (told or _STARTING.match(line) or _VERSION.fullmatch(line))):
            if run.jobs:
                yield run
            run = Run(told=run.told if begins else [], version=run.version if begins else None)
        job = run.jobs[-1] if run.jobs else None
        if told is not None:
            run.told.append(told)
        elif match := _VERSION.fullmatch(line):
            run.version = f"fio-{match[1]}"
        elif begins:
            way, kind = None, ""
            numbers = {name: int(begins[name]) for name in ("group", "members", "error", "pid")}
            run.jobs.append(NormalJob(number, begins["name"], **numbers))  # type: ignore[arg-type]
        elif match := _CLOSED.match(line):
            run.closed, group = True, int(line.split()[3])
        elif (match := _GROUP.match(line)) and run.closed:
            of = OfGroup(number, int(match["longest"]), _amount(match[2], 1024)[0])
            run.groups[group, match["way"].lower()] = of
        elif job is None or run.closed:
            run.messages.append(line)
        elif match := _WAY.match(line):
            kind, way = "", _way(line, source, number)
            job.ways[match["way"]] = way
        elif match := _LATENCY.match(line):
            kind, figures = "", _figures(match["unit"], line, source, number)
            if way is None or match["kind"] in way.latencies or (match["kind"] == "sync" and job.sync):
                raise _stray(source, number)
            if match["kind"] == "sync":
                job.sync = figures
            else:
                way.latencies[match["kind"]] = figures
        elif match := _PERCENTILES.match(line):
            kind, unit = match["kind"], _unit(match["unit"], source, number)
        elif line.startswith("|") and _PERCENTILE.search(line) and not kind:
            raise _stray(source, number)
        elif line.startswith("|") and kind:
            of_kind = job.sync if kind == "sync" else way.latencies.get(kind) if way is not None else None
            found = ((of, int(value) * unit) for of, value in _PERCENTILE.findall(line))
            more = {f"{float(of):f}": ns for of, ns in found if ns}  # 0: below one of its units
            if of_kind is None or more.keys() & of_kind.percentiles.keys():
                raise _stray(source, number)
            of_kind.percentiles |= more
        else:
            kind = ""
            _rest(job, line)
    if run.jobs:
        yield run


def _stray(source: str, number: int) -> ParseError:
    said = "these latencies are of a direction whose line isn't above them"
    return ParseError(f"{said}; {INSTEAD}", source, number)


def _rest(job: NormalJob, line: str) -> None:
    if match := _CPU.match(line):
        job.cpu = float(match[1]), float(match[2])
    elif match := _ISSUED.match(line):
        job.issued = [int(each) for each in re.findall(r"\d{1,18}", match["total"])]
        job.short = any(int(each) for each in re.findall(r"\d{1,18}", match["short"]))
    elif match := _ERRORS.match(line):
        job.errors = int(match[1])
    elif match := _STEADY.match(line):
        criterion = f"{match['of']}{'_slope' if 'slope' in match['how'] else ''}:{match['limit']}"
        job.steady = SteadyBlock(criterion, int(match[1] == "yes"), 0, None, None, Samples())


def _way(line: str, source: str, number: int) -> Way:
    if match := _RATE.fullmatch(line):
        iops, size, runtime = match.groups()
        return Way(number, _amount(iops), _amount(size), int(runtime))
    if match := _OLD_RATE.fullmatch(line):
        size, _, iops, runtime = match.groups()
        return Way(number, _amount(iops), _amount(size, 1024), int(runtime), _amount(size, 1000)[0])
    raise ParseError(f"fio's line of a direction is not whole; {INSTEAD}", source, number)


def _figures(unit: str, line: str, source: str, number: int) -> Figures:
    ns, match = _unit(unit, source, number), _FIGURES.fullmatch(line)
    if match is None:
        raise ParseError(f"fio's line of a latency is not whole; {INSTEAD}", source, number)
    (least, _), (most, half) = (_amount(match[at]) for at in (1, 2))
    return Figures(ns, least * ns, most * ns, float(match[3]) * ns, 2 * half * ns)


def _unit(name: str, source: str, number: int) -> int:
    if name not in _UNITS:
        raise ParseError(
            f"fio gives latencies in nsec, usec or msec, and not in {name[:20]}; {INSTEAD}", source, number
        )
    return _UNITS[name]


def _amount(text: str, thousand: int | None = None) -> tuple[float, float]:
    """A number with a prefix, and the half of its last digit. ``Ki`` is 1024, ``k`` 1000 or what ``thousand`` says."""
    digits = text.rstrip("kKMGTPEiB")
    prefix = text[len(digits) :]
    scale = (thousand or (1024 if "i" in prefix else 1000)) ** _EXPONENTS[prefix.strip("iB")]
    half = 0.0 if prefix == "B" else 0.5 * scale * 10.0 ** -len(digits.partition(".")[2])
    return float(digits) * scale, half
