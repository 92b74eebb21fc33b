"""Sampling files of ``/proc`` and ``/sys``: the agent reads them, raw contents are kept, parsing comes later.

``samples.jsonl``: a line with the paths, then a line for each sample; ``seen`` is when it came, on the controller's
monotonic clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol, TypeVar

import orjson

from storlab.base.errors import NodeError, ParseError
from storlab.base.reading import lines_of
from storlab.base.waiting import to_its_end
from storlab.nodes.node import Node, Sample
from storlab.nodes.raw_folders import make_raw_folder
from storlab.probes.base import Window

NAME = "samples.jsonl"
_END_TIMEOUT = 5.0  # s


@contextlib.asynccontextmanager
async def sampling(node: Node, paths: Sequence[str], interval: float, raw: Path) -> AsyncIterator[None]:
    """Sample for as long as the context lasts; one sample is taken at its start and one right before its end."""
    first = asyncio.Event()
    with samples_file(raw, paths, interval) as file:
        task = asyncio.create_task(_record(node, paths, interval, file, first))
        try:
            await first.wait()
            yield
        finally:
            await to_its_end(_finish(task, node, paths, file))


@contextlib.contextmanager
def samples_file(raw: Path, paths: Sequence[str], interval: float = 0.0) -> Iterator[BinaryIO]:
    """The file that samples go to, with its first line; ``interval`` 0: they are taken one by one."""
    make_raw_folder(raw)
    with (raw / NAME).open("wb") as file:
        file.write(orjson.dumps({"paths": list(paths), "interval": interval}) + b"\n")
        yield file


async def _record(node: Node, paths: Sequence[str], interval: float, file: BinaryIO, first: asyncio.Event) -> None:
    try:
        async with aclosing(node.sample(paths, interval)) as samples:
            async for sample in samples:
                file.write(_line(sample))
                first.set()
    finally:
        first.set()  # or it failed, which is found out at the end


async def _finish(task: asyncio.Task[None], node: Node, paths: Sequence[str], file: BinaryIO) -> None:
    task.cancel()
    await asyncio.wait([task])
    with contextlib.suppress(asyncio.CancelledError, NodeError):
        task.result()
    with contextlib.suppress(NodeError, TimeoutError):
        async with asyncio.timeout(_END_TIMEOUT):
            await take_sample(node, paths, file)


async def take_sample(node: Node, paths: Sequence[str], file: BinaryIO) -> None:
    async with aclosing(node.sample(paths, 1.0)) as samples:
        async for sample in samples:
            file.write(_line(sample))
            return


def _line(sample: Sample) -> bytes:
    contents = [None if text is None else text.decode(errors="replace") for text in sample.contents]
    fields = {"t": sample.t, "late": sample.late, "seen": time.monotonic(), "contents": contents}
    return orjson.dumps(fields) + b"\n"


@dataclass(frozen=True)
class Snapshot:
    """One sample read back: seconds on the node's monotonic clock, lateness, and the text of each path.

    ``seen``: seconds on the controller's monotonic clock when it came; NaN where that was not kept.
    """

    t: float
    late: float
    texts: dict[str, str]
    seen: float = math.nan


def read_samples(raw: Path) -> list[Snapshot]:
    """All samples in order. A last line cut off by a crash is left out. Raises ``ParseError``."""
    return sorted(each_sample(raw), key=lambda snapshot: snapshot.t)


def each_sample(raw: Path) -> Iterator[Snapshot]:
    """The same one by one, as they were written: where they are too long to be held all at once."""
    path = raw / NAME
    try:
        lines = lines_of(path)
        paths = [str(path) for path in orjson.loads(next(lines, b""))["paths"]]
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise ParseError(f"cannot read it: {error}", str(path), 1) from None
    for number, line in enumerate(_whole(lines, path), start=2):
        try:
            fields = orjson.loads(line)
            texts = {p: text for p, text in zip(paths, fields["contents"], strict=True) if isinstance(text, str)}
            t, late = float(fields["t"]), float(fields["late"])
            if not math.isfinite(t + late):
                raise ValueError("its time is no time")
            snapshot = Snapshot(t, late, texts, float(fields.get("seen", math.nan)))
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
            raise ParseError(f"is no sample: {error}", str(path), number) from None
        yield snapshot


def _whole(lines: Iterator[bytes], path: Path) -> Iterator[bytes]:
    try:
        yield from (line for line in lines if line.endswith(b"\n"))
    except OSError as error:
        raise ParseError(f"cannot read it: {error.strerror}", str(path)) from None


class _Timed(Protocol):
    @property
    def t(self) -> float: ...


T = TypeVar("T", bound=_Timed)


def around(snapshots: Sequence[T], window: Window) -> list[T]:
    """The samples within the window, with the last before and the first after it."""
    inside = [index for index, s in enumerate(snapshots) if window.start <= s.t <= window.end]
    if not inside:
        return [s for s in snapshots if s.t < window.start][-1:] + [s for s in snapshots if s.t > window.end][:1]
    return list(snapshots[max(inside[0] - 1, 0) : inside[-1] + 2])
