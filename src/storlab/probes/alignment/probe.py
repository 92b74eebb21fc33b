"""Probe ``alignment``: how block requests lie in the units of a file system or a device, counted in the kernel.

The agent's tracer (``docs/reference/trace-output.md``) counts every request as it is issued, from before the load
starts until it has ended and, with ``sync``, what it wrote is on the disk. Nothing is sampled, and nothing is cut to
the measured phase: counters on many CPUs can't be read at one instant while requests go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import orjson
from pydantic import BeforeValidator, Field

from storlab.blockio.text import counted_twice, is_off_boundary, off_boundary, without_requests
from storlab.blockio.trace_output import Output, read_output
from storlab.errors import CommandFailed, NodeError, ParseError, StorlabError
from storlab.limits import RECORD
from storlab.measurements import Measurements
from storlab.metrics import MetricSpec
from storlab.nodes.needs import Needs
from storlab.nodes.node import Exit, Node
from storlab.nodes.process import Process
from storlab.probes.alignment.metrics import METRICS, measurements
from storlab.probes.base import Probe, ProbeContext, ProbeRecord
from storlab.probes.subject import End, Kind, Subject
from storlab.reach import Choice
from storlab.reading import read_file
from storlab.text import is_whole
from storlab.waiting import to_its_end

TRACE = "trace.jsonl"
"""What the tracer printed."""
NOTES = "notes.json"
"""Beside it: sentences on disks that are watched in another way, and why the tracer could not run, if so."""

ALL = "all"
_ATTACHED = 30.0  # s, within which a tracer is attached or says why not; an emulated guest takes a second
_MAX_TRACE = 2 * 1024**3  # bytes; a line for each request is some 70
_LAST_WORD = 20.0  # s, for its last counts
_KINDS = """for disk; do
    folder=/sys/class/block/$disk
    test -e "$folder" || continue
    whole=$folder
    if test -e "$folder/partition"; then
        whole=$(readlink -f "$folder/..")
        echo partition "$disk" "$(cat "$folder/start")"
    fi
    test -e "$whole/mq" || echo bios "$disk" $(ls "$whole/slaves" 2>/dev/null)
done"""
"""A shell script that lists partitions with their first sectors, and disks that take bios with the underlying ones."""


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class AlignmentProbe(Probe):
    """Counts block requests by operation, flags, length and alignment, with their latencies, by eBPF."""

    kind: ClassVar[str] = "alignment"
    metrics: ClassVar[tuple[MetricSpec, ...]] = METRICS
    in_slices: ClassVar[frozenset[str]] = frozenset(spec.name for spec in METRICS)

    watches: ClassVar[frozenset[Kind]] = frozenset({"disks"})

    at: Literal["load", "below", "each"] = Field(
        "load",
        description="At which end of a chain. `load`: the disk under test, on each node where the load runs. `below`: "
        "the disks that those lie on, on the nodes that serve them and below guests. `each`: both.",
    )
    disks: Annotated[tuple[Choice, ...], BeforeValidator(_listed)] = Field(
        (), description='Kernel names of disks or partitions, or "all"; by default those of that end.'
    )
    by_comm: bool = Field(False, description="Count the requests of each command separately.")
    latency: bool = Field(True, description="Measure how long requests take, and how long they wait before.")
    events: bool = Field(False, description="Keep each request as a line of the raw records, too.")
    sync: bool = Field(
        True, description="Keep counting until everything written is on the disk, not only until the load has ended."
    )

    def watches_at(self, end: End, kinds: Collection[Kind]) -> bool:
        return self.at in (end, "each") and (bool(self.disks) or super().watches_at(end, kinds))

    def needs(self) -> Needs:
        return Needs(root="tracing block I/O")

    def parse(self, record: ProbeRecord) -> Measurements:
        (found,) = self.parse_many([record])
        if isinstance(found, StorlabError):
            raise found
        return found

    def parse_many(self, records: Sequence[ProbeRecord]) -> list[Measurements | StorlabError]:
        found = [_read(each.raw) for each in records]
        traces = [each for each in found if isinstance(each, tuple)]
        measured = iter(measurements([output for output, _ in traces], [notes for _, notes in traces]))
        return [next(measured) if isinstance(each, tuple) else each for each in found]

    def watched(self, subject: Subject) -> tuple[str, ...] | None:
        """Names of the disks to watch; empty: all; ``None``: there is none."""
        if ALL in self.disks:
            return ()
        return self.disks or subject.disks or None

    @asynccontextmanager
    async def watch(self, context: ProbeContext) -> AsyncIterator[None]:
        disks = self.watched(context.subject)
        if disks is None:
            _note(context.raw, ["there is no underlying disk whose requests could be watched"])
            yield
            return
        said = await _said_of(context.node, disks)
        _note(context.raw, said)
        process = await self._started(context, disks, said)
        try:
            yield
        finally:
            if process is not None:
                await to_its_end(self._finish(process, context))

    async def _started(self, context: ProbeContext, disks: Sequence[str], said: Sequence[str]) -> Process | None:
        """The tracer, attached; ``None`` where it can't be, with the reason among the notes."""
        try:
            process = await context.node.start(self._argv(context.node, disks), max_output=_MAX_TRACE)
        except CommandFailed as error:
            _note(context.raw, [*said, str(error)])
            return None
        try:
            async with asyncio.timeout(_ATTACHED):
                attached = await process.first_line()
        except TimeoutError:
            await process.end()
            _note(context.raw, [*said, f"the tracer was not attached within {_ATTACHED:.0f} s"])
            return None
        except BaseException:
            await process.end()
            raise
        if attached is not None:
            return process
        ended = await process.last_word(0.0)
        _note(context.raw, [*said, _refusal(ended)])
        return None

    def _argv(self, node: Node, disks: Sequence[str]) -> list[str]:
        # The agent's executable by way of its process: in a guest, the file itself is gone.
        argv = [f"/proc/{node.pid}/exe", "trace"]
        argv += [word for disk in disks for word in ("--disk", disk)]
        options = (("--by-comm", self.by_comm), ("--no-latency", not self.latency), ("--events", self.events))
        return argv + [option for option, wanted in options if wanted]

    async def _finish(self, process: Process, context: ProbeContext) -> None:
        with suppress(NodeError):  # whoever needs the node says so; what it told until then is gone with it
            if self.sync and process.ended is None:
                await context.node.run(["sync"], check=False)
            ended = await process.last_word(_LAST_WORD)
            (context.raw / TRACE).write_bytes(ended.stdout)


async def _said_of(node: Node, disks: Sequence[str]) -> list[str]:
    """A sentence on each that makes no requests of its own, or begins off the boundary of a unit."""
    if not disks:
        return []
    found = await node.run(["sh", "-c", _KINDS, "sh", *disks], check=False)
    said = []
    for line in found.stdout.decode(errors="replace").splitlines():
        match line.split():
            case ["partition", disk, start] if is_whole(start) and is_off_boundary(int(start)):
                said.append(off_boundary(disk, int(start)))
            case ["bios", disk, *underlying]:
                said.append(without_requests(disk, underlying))
                if both := [each for each in underlying if each in disks]:
                    said.append(counted_twice(disk, both))
    return said


def _refusal(ended: Exit) -> str:
    lines = [line for line in ended.stderr.decode(errors="replace").splitlines() if line]
    said = lines[0].removeprefix("storlab-agent: ") if lines else "it said nothing"
    return f"block I/O was not watched: {said}"


def _note(raw: Path, sentences: Sequence[str]) -> None:
    (raw / NOTES).write_bytes(orjson.dumps(list(sentences)))


def _read(raw: Path) -> tuple[Output, tuple[str, ...]] | Measurements | ParseError:
    """What the tracer printed, and the notes beside it; without a trace, all that there is."""
    try:
        notes = read_notes(raw)
        if not (raw / TRACE).exists():
            return Measurements(warnings=notes or ("there was no disk to watch",))
        return read_output(raw / TRACE), notes
    except ParseError as error:
        return error


def read_notes(raw: Path) -> tuple[str, ...]:
    """The sentences of ``NOTES``; none where there is no such file. Raises ``ParseError``."""
    path = raw / NOTES
    try:
        sentences = orjson.loads(read_file(path, RECORD))
    except FileNotFoundError:
        return ()
    except (OSError, orjson.JSONDecodeError) as error:
        raise ParseError(f"cannot read it: {error}", str(path), 1) from None
    if not isinstance(sentences, list) or not all(isinstance(sentence, str) for sentence in sentences):
        raise ParseError("is no list of sentences", str(path), 1)
    return tuple(sentences)
