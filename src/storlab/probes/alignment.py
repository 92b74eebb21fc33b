"""Probe ``alignment``: how block requests lie in the units of a file system or a device, counted in the kernel.

The agent's tracer (``docs/reference/trace-output.md``) counts every request as it is issued, from before the load
starts until it has ended and, with ``sync``, what it wrote is on the disk. Nothing is sampled, and nothing is cut to
the measured phase: counters on many CPUs can't be read at one instant while requests go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import orjson
from pydantic import BeforeValidator, Field

from storlab.blockio.disks import counted_twice, is_off_boundary, off_boundary, without_requests
from storlab.blockio.trace_output import Output, read_output
from storlab.errors import CommandFailed, NodeError, ParseError, StorlabError
from storlab.measurements import Measurements
from storlab.nodes.needs import Needs
from storlab.nodes.node import Exit, Node
from storlab.nodes.process import Process
from storlab.nodes.waiting import to_its_end
from storlab.probes.alignment_metrics import measurements
from storlab.probes.base import Left, Post, Probe, Where, Window

TRACE = "trace.jsonl"
"""What the tracer printed."""
NOTES = "notes.json"
"""Beside it: sentences on disks that are watched in another way, and why the tracer could not run, if so."""

ALL = "all"
_ATTACHED = 30.0  # s, within which a tracer is attached or says why not; an emulated guest takes a second
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
"""A shell script that tells of partitions and their first sectors, and of disks that take bios with those beneath."""


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class AlignmentProbe(Probe):
    """Counts block requests by operation, flags, length and alignment, with their latencies, by eBPF."""

    kind: ClassVar[str] = "alignment"

    on: Literal["nodes", "host"] = Field(
        "nodes",
        description="`nodes`: each node's own disk, in guests too. `host`: on this machine, the disks beneath guests.",
    )
    disks: Annotated[tuple[str, ...], BeforeValidator(_listed)] = Field(
        (), description='Kernel names of disks or partitions, or "all"; by default the disk under test.'
    )
    by_comm: bool = Field(False, description="Count the requests of each command apart.")
    latency: bool = Field(True, description="Measure how long requests take, and how long they wait before.")
    events: bool = Field(False, description="Keep each request as a line of the raw records, too.")
    sync: bool = Field(
        True, description="Count on until all that was written is on the disk, and not only until the load has ended."
    )

    def place(self) -> Where:
        return self.on

    def needs(self) -> Needs:
        return Needs(root="tracing block I/O")

    def watch(self, post: Post) -> AbstractAsyncContextManager[None]:
        return self._watching(post)

    def parse(self, raw: Path, window: Window, disk: str | None) -> Measurements:
        (found,) = self.parse_many([Left(raw, window, disk)])
        if isinstance(found, StorlabError):
            raise found
        return found

    def parse_many(self, left: Sequence[Left]) -> list[Measurements | StorlabError]:
        found = [_read(each.raw) for each in left]
        traces = [each for each in found if isinstance(each, tuple)]
        measured = iter(measurements([output for output, _ in traces], [notes for _, notes in traces]))
        return [next(measured) if isinstance(each, tuple) else each for each in found]

    def watched(self, post: Post) -> tuple[str, ...] | None:
        """Names of the disks to watch; empty: all; ``None``: there is none."""
        if ALL in self.disks:
            return ()
        if self.disks:
            return self.disks
        own = (post.disk,) if post.disk is not None else ()
        if self.on == "host":
            return tuple(dict.fromkeys((*post.beneath, *own)))  # where neither is known: all
        return own or None

    @asynccontextmanager
    async def _watching(self, post: Post) -> AsyncIterator[None]:
        disks = self.watched(post)
        if disks is None:
            _note(post.raw, ["there is no disk beneath whose requests could be watched"])
            yield
            return
        said = await _said_of(post.node, disks)
        _note(post.raw, said)
        process = await self._started(post, disks, said)
        try:
            yield
        finally:
            if process is not None:
                await to_its_end(self._finish(process, post))

    async def _started(self, post: Post, disks: Sequence[str], said: Sequence[str]) -> Process | None:
        """The tracer, attached; ``None`` where it can't be, with the reason among the notes."""
        try:
            process = await post.node.start(self._argv(post.node, disks))
        except CommandFailed as error:
            _note(post.raw, [*said, str(error)])
            return None
        try:
            async with asyncio.timeout(_ATTACHED):
                attached = await process.first_line()
        except TimeoutError:
            await process.end()
            _note(post.raw, [*said, f"the tracer was not attached within {_ATTACHED:.0f} s"])
            return None
        except BaseException:
            await process.end()
            raise
        if attached is not None:
            return process
        ended = await process.wait()
        _note(post.raw, [*said, _refusal(ended)])
        return None

    def _argv(self, node: Node, disks: Sequence[str]) -> list[str]:
        # The agent's executable by way of its process: in a guest, the file itself is gone.
        argv = [f"/proc/{node.pid}/exe", "trace"]
        argv += [word for disk in disks for word in ("--disk", disk)]
        options = (("--by-comm", self.by_comm), ("--no-latency", not self.latency), ("--events", self.events))
        return argv + [option for option, wanted in options if wanted]

    async def _finish(self, process: Process, post: Post) -> None:
        with suppress(NodeError):  # whoever needs the node says so; what it told until then is gone with it
            if self.sync and process.ended is None:
                await post.node.run(["sync"], check=False)
            if process.ended is None:
                await process.stop(grace=_LAST_WORD)
            ended = await process.wait()
            (post.raw / TRACE).write_bytes(ended.stdout)


async def _said_of(node: Node, disks: Sequence[str]) -> list[str]:
    """A sentence on each that makes no requests of its own, or begins off the boundary of a unit."""
    if not disks:
        return []
    found = await node.run(["sh", "-c", _KINDS, "sh", *disks], check=False)
    said = []
    for line in found.stdout.decode(errors="replace").splitlines():
        match line.split():
            case ["partition", disk, start] if start.isdecimal() and is_off_boundary(int(start)):
                said.append(off_boundary(disk, int(start)))
            case ["bios", disk, *beneath]:
                said.append(without_requests(disk, beneath))
                if both := [each for each in beneath if each in disks]:
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
        sentences = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        return ()
    except (OSError, orjson.JSONDecodeError) as error:
        raise ParseError(f"can't be read: {error}", str(path), 1) from None
    if not isinstance(sentences, list) or not all(isinstance(sentence, str) for sentence in sentences):
        raise ParseError("is no list of sentences", str(path), 1)
    return tuple(sentences)
