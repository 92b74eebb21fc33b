"""Disks beneath the disks of other nodes: counted before the load, drained after it, and counted again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from storlab.nodes.node import Node
from storlab.nodes.waiting import all_of
from storlab.records.backings import counters_path
from storlab.records.derive_trial import BACKING, raw_folder
from storlab.records.trial_record import BackingRecord

# What a pool holds back in memory until its transaction group ends, sync(1) does not always write: ``zpool sync`` does.
_DRAIN = "sync; if test -d /sys/module/zfs && command -v zpool >/dev/null; then zpool sync; fi"


@dataclass(frozen=True)
class Backing:
    """A disk of ``node`` that the disks of the nodes named ``beneath`` lie on. ``disk`` is the kernel's name.

    No node lies on two: on a chain of disks, name the one at the bottom.
    """

    node: Node
    disk: str
    beneath: tuple[str, ...]


class Drain:
    """The backings of one trial, from before the load until all that it wrote is down."""

    def __init__(self, backings: Sequence[Backing], folder: Path) -> None:
        self._backings = backings
        self._folder = folder
        self._drained: asyncio.Task[list[BackingRecord]] | None = None

    async def before(self) -> None:
        """Read all counters: right before the load starts."""
        await all_of(*(self._keep_counters(backing, "before") for backing in self._backings))

    def load_ended(self) -> None:
        """Begin to drain, at once and beside whatever else is to be done now."""
        self._drained = asyncio.create_task(self._drain_all(time.monotonic()))

    async def records(self) -> list[BackingRecord]:
        """One for each backing, once all are drained."""
        assert self._drained is not None, "the load has not ended"
        return await self._drained

    async def close(self) -> None:
        """Leave nothing running."""
        if self._drained is not None and not self._drained.done():
            self._drained.cancel()
            await asyncio.wait([self._drained])

    async def _drain_all(self, ended: float) -> list[BackingRecord]:
        return await all_of(*(self._drain(backing, ended) for backing in self._backings))

    async def _drain(self, backing: Backing, ended: float) -> BackingRecord:
        await backing.node.run(["sh", "-c", _DRAIN], check=False)
        drain = time.monotonic() - ended
        await self._keep_counters(backing, "after")
        return BackingRecord(backing.node.name, backing.disk, list(backing.beneath), drain)

    async def _keep_counters(self, backing: Backing, when: Literal["before", "after"]) -> None:
        raw = raw_folder(self._folder, backing.node.name, BACKING + backing.disk)
        raw.mkdir(parents=True, exist_ok=True)
        try:
            text = await backing.node.read(counters_path(backing.disk))
        except FileNotFoundError:
            text = b""  # the tables will say so
        (raw / f"{when}.stat").write_bytes(text)


@asynccontextmanager
async def drain(backings: Sequence[Backing], folder: Path) -> AsyncIterator[Drain]:
    """The backings of a trial whose raw files go below ``folder``."""
    drain = Drain(backings, folder)
    try:
        yield drain
    finally:
        await drain.close()
