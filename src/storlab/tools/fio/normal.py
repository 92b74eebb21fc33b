"""fio's output for people (``--output-format=normal``), as blogs and forums have it, in the form of its JSON.

Source: ``stat.c`` of fio 2.0.10 to 3.33, ``init.c`` for the line with which each job begins. What is printed there
is rounded, so figures come from what is exact: operations from ``issued``, time from ``msec``, bytes from
operations where all have one size. The rest has the precision in which it is printed, which the document's note
says. Latencies have a unit in each line; up to 2.16, ``KB`` is 1024 bytes or 1000 (``kb_base``), which is settled
by the sizes of blocks or, where these don't tell, refused.

What fio prints of a job is held against itself, for people cut and edit such text: each direction that issued
operations has its line, rates are operations over time, and the longest time is that of the group's line.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from storlab.base.errors import ParseError
from storlab.tools.fio.blocks import NO_LATENCY, DirectionBlock, JobBlock, Root, SyncBlock, untold
from storlab.tools.fio.document import Document
from storlab.tools.fio.normal_lines import INSTEAD, Figures, NormalJob, Run, Told, Way, runs_in

_ALL_CLIENTS = "All clients"
_WAYS = ("read", "write", "trim", "mixed")
_TELLING = 0.005  # of 1000 bytes, a KB makes 0.024, an MB more


def read_normal(text: bytes, source: str) -> list[Document]:
    """A document for each run, in order, with the lines before it.

    Raises ``ParseError`` with the line where a job is not whole, contradicts itself, or has units that are not sure.
    """
    runs = list(runs_in(text.decode(errors="replace"), source))
    last: dict[tuple[tuple[str, int, int], ...], int] = {}
    for at, run in enumerate(runs):
        last[run.identity or (("", at, 0),)] = at  # --status-interval: the counts of each are in the next one
    kept = sorted(last.values())
    return [_document(runs[at], source, after=at - before - 1) for before, at in zip([-1, *kept], kept, strict=False)]


@dataclass
class _Rounding:
    """To what figures of a run are exact: rates as shares, latencies in ns."""

    rates: float = 0.0
    mean: float = 0.0
    others: float = 0.0

    @property
    def note(self) -> str:
        rates = f"rates to {self.rates:.2%}" if self.rates else "rates exactly"
        latencies = f"mean latencies to {_time(self.mean)}, their extremes and percentiles to {_time(self.others)}"
        return f"fio's output for people is rounded: it gives {rates}" + (f", {latencies}" if self.mean else "")


def _time(ns: float) -> str:
    scale, unit = next(((scale, unit) for scale, unit in ((1e6, "ms"), (1e3, "µs")) if ns >= scale), (1, "ns"))
    return f"{ns / scale:g} {unit}"


def _document(run: Run, source: str, after: int) -> Document:
    rounding = _Rounding()
    jobs = [job for job in run.jobs if job.name != _ALL_CLIENTS]
    blocks = [_block(job, run, rounding, source) for job in jobs]
    _refuse_missing(run, jobs, source)
    notes = [rounding.note]
    ways = [(name, way) for job in jobs for name, way in job.ways.items()]
    if any(way.latencies for _, way in ways):
        lack = "has no line of latencies, which others have: those of all together are without it"
        notes += [f"line {way.line}: {name} {lack}" for name, way in ways if not way.latencies and way.iops[0]]
    for name, way in ways:
        for kind, has in (("clat", "total ones"), ("lat", "those of completion")):
            if way.latencies and kind not in way.latencies:
                said = f"{name} has no line {kind} (disable_{kind}, or it is missing): it has {has}"
                notes.append(f"line {way.line}: {said}")
    syncs = [job for job in jobs if job.issued and any(job.issued[3:]) and job.sync is None]
    notes += [f"line {job.line}: job {job.name} has no line of the latencies of its fsyncs" for job in syncs]
    if not {(job.group, name) for job in jobs for name in job.ways} <= run.groups.keys():
        notes.append("its end (Run status group) is not whole: it was cut off, or is of a run that went on")
    if after:
        notes.append(f"reports of runs that went on (--status-interval) are left out: {after}")
    return Document(Root(run.version, jobs=blocks), tuple(run.messages), line=run.jobs[0].line, notes=tuple(notes))


def _refuse_missing(run: Run, jobs: Iterable[NormalJob], source: str) -> None:
    for (group, name), of in run.groups.items():
        ways = [job.ways[name] for job in jobs if job.group == group and name in job.ways]
        if name == "mixed":
            continue
        if max((way.runtime for way in ways), default=-1) != of.longest:
            said = f"the longest {name} of group {group} took {of.longest} ms, and no job of it has that"
            raise ParseError(f"{said}: jobs are missing; {INSTEAD}", source, of.line)
        if not _are_about(sum(way.bytes[0] for way in ways), of.bytes):
            said = f"what group {group} did in {name} is not the sum of its jobs: some are missing, or there twice"
            raise ParseError(f"{said}; {INSTEAD}", source, of.line)


def _block(job: NormalJob, run: Run, rounding: _Rounding, source: str) -> JobBlock:
    told = [each for each in run.told if each.group == job.group and (job.members > 1 or each.name == job.name)]
    if job.issued is None and job.cpu is None and not job.error and not any(of == job.group for of, _ in run.groups):
        raise ParseError(f"job {job.name} ends before its line of cpu: it was cut off; {INSTEAD}", source, job.line)
    done = _done(job, source)
    if missing := sorted(done.keys() - job.ways.keys()):
        raise ParseError(f"job {job.name} issued {missing[0]}s, and has no line of them; {INSTEAD}", source, job.line)
    if not (job.ways or job.error):
        raise ParseError(f"job {job.name} has no line of what it did; {INSTEAD}", source, job.line)
    ways = {}
    for name, way in job.ways.items():
        sizes = {each.sizes.get(name if name != "mixed" else "read", 0) for each in told}
        size = sizes.pop() if len(sizes) == 1 and not job.short else 0
        ways[name] = _direction(way, done.get(name), size, rounding, f"job {job.name}: {name}", source)
    if job.sync is not None:
        _note(job.sync, rounding)
    alone = (
        sum(each.group == job.group for each in run.jobs) == 1
    )  # else the processes' own times count, which are not printed
    user, system = job.cpu or (None, None)
    return JobBlock(
        job.name,
        job.group,
        job.error,
        user,
        system,
        max((way.runtime for way in job.ways.values()), default=0) if alone and job.cpu else 0,
        job.errors,
        sync=None if job.sync is None else SyncBlock(job.sync.latency, *(job.issued or ())[3:4]),
        steadystate=job.steady,
        options=_options(job, run, told),
        read=ways.get("read"),
        write=ways.get("write"),
        trim=ways.get("trim"),
        mixed=ways.get("mixed"),
    )


def _done(job: NormalJob, source: str) -> dict[str, int]:
    if job.issued is None:
        return {}
    if len(job.issued) < 3:
        raise ParseError(f"job {job.name} has no whole line of what it issued; {INSTEAD}", source, job.line)
    if set(job.ways) == {"mixed"}:
        return {"mixed": sum(job.issued[:3])}
    return {name: count for name, count in zip(_WAYS, job.issued[:3], strict=False) if count}


def _direction(way: Way, done: int | None, size: int, rounding: _Rounding, where: str, source: str) -> DirectionBlock:
    seconds = way.runtime / 1000
    iops, half = way.iops
    if done is not None and seconds and abs(done / seconds - iops) > 2 * half + 1:
        said = f"{where}: {done} operations in {way.runtime} ms are not the IOPS that are printed"
        raise ParseError(f"{said}; {INSTEAD}", source, way.line)
    if done is None:
        rounding.rates = max(rounding.rates, half / iops if iops else 0.0)
        done = round(iops * seconds)
    total, last = way.bytes
    if size and any(_are_alike(size * done, each) for each in (total, way.in_thousands)):
        total = size * done
    elif way.in_thousands is not None and not (
        # as many bytes as operations have, if blocks have the power of 2 that is next to their mean
        total and done and _are_alike(float(done * 2 ** round(math.log2(total / done))), total)
    ):
        said = f"{where}: its lines don't say whether KB is 1024 bytes or 1000 (kb_base)"
        raise ParseError(f"{said}; {INSTEAD}", source, way.line)
    else:
        rounding.rates = max(rounding.rates, last / total if total else 0.0)
    for figures in way.latencies.values():
        _note(figures, rounding)
    slat, clat, lat = (each.latency if (each := way.latencies.get(kind)) else None for kind in ("slat", "clat", "lat"))
    return DirectionBlock(round(total), done, way.runtime, slat, clat or NO_LATENCY, lat)


def _are_alike(one: float, other: float | None) -> bool:
    return other is not None and other > 0 and abs(one / other - 1) < _TELLING


def _are_about(one: float, other: float) -> bool:
    return abs(one - other) <= 0.02 * max(one, other) + 2048


def _note(figures: Figures, rounding: _Rounding) -> None:
    rounding.mean = max(rounding.mean, figures.unit / 200)
    rounding.others = max(rounding.others, figures.step, figures.unit)


def _options(job: NormalJob, run: Run, told: Iterable[Told]) -> dict[str, Any]:
    alike = sum(each.name == job.name and each.group == job.group for each in run.jobs)
    options = {**untold(job.name), "numjobs": str(max(job.members, alike))}
    said = next((each.options for each in told if each.name == job.name), None)
    if said is not None:
        options |= said
        del options["job"]
    return options
