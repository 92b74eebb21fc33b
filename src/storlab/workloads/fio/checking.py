"""fio's own opinion of options, before anything runs: it parses them, many jobs in one process, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Sequence

from storlab.errors import UserError
from storlab.nodes.node import Node
from storlab.workloads.fio.options import TARGET, Job, section
from storlab.workloads.fio.reach import engines_of, is_built_in

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


async def parse(node: Node, jobs: Jobs) -> None:
    """Let fio parse all options of these jobs, which runs nothing. Raises ``RefusedOptions``."""
    # Each section has all that holds for it: what is global would hold for the jobs of other loads, too.
    await parse_file(node, "\n".join(section(str(number), job.options) for number, job in enumerate(jobs, start=1)))


async def parse_file(node: Node, lines: str) -> None:
    """The same for a job file as it stands."""
    # Any directory that exists will do: fio looks whether it does. Where it has to find out by itself whether the
    # processors' clocks agree, it takes twice the time.
    lines = lines.replace(TARGET, "/").replace("//", "/")
    argv = ["fio", "--parse-only", "--directory=/", "--clocksource=clock_gettime", "-"]
    ended = await node.run(argv, stdin=lines.encode(), check=False)
    said = (ended.stderr + ended.stdout).decode(errors="replace")
    if ended.signal is not None:
        ended.check(node.name)  # nobody's options are at fault
    if not ended.ok or "value out of range" in said:  # which fio tells, and then continues with another value
        raise RefusedOptions(complaint(said) or ended.describe(), bad_option(said))


async def unknown_engines(node: Node, loads: Sequence[Jobs]) -> dict[str, str]:
    """Engines that this fio doesn't have, and what to say of each: it looks for one only when a job starts."""
    named = [engine for engine in engines_of(job for jobs in loads for job in jobs) if is_built_in(engine)]
    if not named:
        return {}
    listing = (await node.run(["fio", "--enghelp"], check=False)).stdout.decode(errors="replace")
    known = [line.strip() for line in listing.splitlines() if line.startswith(("\t", " "))]
    unknown = {}
    for engine in set(named) - set(known) if known else ():
        asked = await node.run(["fio", f"--enghelp={engine}"], check=False)
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
