"""Probe ``alignment``: how block requests lie in the units of a file system or a device, counted in the kernel.

The agent's tracer (``docs/reference/trace-output.md``) counts every request as it is issued, from before the load
starts until it has ended and, with ``sync``, what it wrote is on the disk. Nothing is sampled, and nothing is cut to
the measured phase: counters on many CPUs can't be read at one instant while requests go on.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from storlab.blockio.text import counted_twice, is_off_boundary, off_boundary, without_requests
from storlab.blockio.trace_output import Output, read_output
from storlab.errors import ParseError, StorlabError
from storlab.measurements import Measurements
from storlab.metrics import MetricSpec
from storlab.nodes.needs import Needs
from storlab.nodes.node import Node
from storlab.probes.agent import AgentProbe
from storlab.probes.alignment.metrics import METRICS, measurements
from storlab.probes.base import ProbeContext, ProbeRecord, read_notes
from storlab.probes.subject import End, Kind, Subject
from storlab.reach import Choice
from storlab.text import is_whole

ALL = "all"
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


class AlignmentProbe(AgentProbe):
    """Counts block requests by operation, flags, length and alignment, with their latencies, by eBPF."""

    kind: ClassVar[str] = "alignment"
    metrics: ClassVar[tuple[MetricSpec, ...]] = METRICS
    in_slices: ClassVar[frozenset[str]] = frozenset(spec.name for spec in METRICS)
    watches: ClassVar[frozenset[Kind]] = frozenset({"disks"})
    output: ClassVar[str] = "trace.jsonl"
    missing: ClassVar[str] = "there was no disk to watch"
    refused: ClassVar[str] = "block I/O was not watched"
    most: ClassVar[int] = 2 * 1024**3  # a line for each request is some 70

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
        found = [self._read(each) for each in records]
        traces = [each for each in found if isinstance(each, tuple)]
        measured = iter(measurements([output for output, _ in traces], [notes for _, notes in traces]))
        return [next(measured) if isinstance(each, tuple) else each for each in found]

    def _read(self, record: ProbeRecord) -> tuple[Output, tuple[str, ...]] | Measurements | ParseError:
        try:
            path, notes = record.raw / self.output, read_notes(record.raw)
            return (read_output(path), notes) if path.exists() else super().parse(record)
        except ParseError as error:
            return error

    def watched(self, subject: Subject) -> tuple[str, ...] | None:
        """Names of the disks to watch; empty: all; ``None``: there is none."""
        if ALL in self.disks:
            return ()
        return self.disks or subject.disks or None

    async def words(self, context: ProbeContext, notes: list[str]) -> Sequence[str] | None:
        disks = self.watched(context.subject)
        if disks is None:
            notes.append("there is no underlying disk whose requests could be watched")
            return None
        notes += await _said_of(context.node, disks) if disks else ()
        options = (("--by-comm", self.by_comm), ("--no-latency", not self.latency), ("--events", self.events))
        words = [word for disk in disks for word in ("--disk", disk)]
        return ["trace", *words, *(option for option, wanted in options if wanted)]

    async def before_the_end(self, context: ProbeContext) -> None:
        if self.sync:
            await context.node.run(["sync"], check=False)


async def _said_of(node: Node, disks: Sequence[str]) -> list[str]:
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
