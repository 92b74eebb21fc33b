"""One set-up's log, cut at many moments: the controls first, then what is counted."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from random import Random

from storlab.crash.cut import Loss, drawn, durable, in_flight, nothing, survivors
from storlab.crash.replay import copy_image, first_difference, replaying
from storlab.crash.results import Broken, Control, Cut
from storlab.formats.log_writes import WriteLog
from storlab.workloads.witness import Pages

_CONTROLLED = 10  # moments for each control by cuts
_SMALLEST = 512  # bytes: what every disk writes at once

Look = Callable[[Path, int], Awaitable[Broken | None]]
"""What is broken of an image, where so many commits were acknowledged."""


@dataclass
class Cutter:
    """Makes images as they would be after a cut. ``start``: the image of an empty log; ``end``: that of a full one.

    ``begin``: entries before the load, which count as durable: that is long ago on a real machine. ``write_through``:
    the disk has no write cache. Moments must be asked for in their order, for what is durable is replayed once.
    """

    log: WriteLog
    start: Path
    end: Path
    folder: Path
    begin: int
    write_through: bool = False
    _replayed: int = field(default=0, init=False)

    @property
    def _base(self) -> Path:
        return self.folder / "durable.img"

    @property
    def image(self) -> Path:
        """Where an image is made; the next one takes its place."""
        return self.folder / "cut.img"

    def rewind(self) -> None:
        """Begin again with the earliest moment."""
        copy_image(self.start, self._base)
        self._replayed = 0

    def cut(self, moment: int, loss: Loss, random: Random) -> None:
        """Make the image of a cut after so many entries."""
        first = self.durable(moment)
        with replaying(self.log, self._base) as replay:
            replay.write_all(self.log.entries[self._replayed : first])
        self._replayed = first
        copy_image(self._base, self.image)
        with replaying(self.log, self.image) as replay:
            replay.write(survivors(self.log.entries, first, moment, loss, random))

    def durable(self, moment: int) -> int:
        """How many of so many entries no cut can take."""
        return durable(self.log.entries, moment, self.begin, self.write_through)

    def difference(self) -> int | None:
        """Where the whole log on the start image differs from the end image: a byte, or ``None``."""
        copy_image(self.start, self.image)
        with replaying(self.log, self.image) as replay:
            replay.write_all(self.log.entries)
        return first_difference(self.image, self.end)


@dataclass(frozen=True)
class Checker:
    """Cuts a set-up's log and looks. ``seed`` and ``name`` decide all that is random.

    ``commits``: after how many entries which commit was acknowledged, ascending.
    """

    cutter: Cutter
    commits: Sequence[tuple[int, int]]
    look: Look
    seed: int
    name: str
    keep: Callable[[Path], None] = lambda image: None
    """Gets the image of the first cut that broke something, before it is looked at."""

    def acknowledged(self, moment: int) -> int:
        """The last commit that was acknowledged by then; 0: none was."""
        at = bisect_right(self.commits, moment, key=itemgetter(0))
        return self.commits[at - 1][1] if at else 0

    async def whole(self) -> Control:
        """Control: everything replayed equals the end image, to the byte."""
        at = await asyncio.to_thread(self.cutter.difference)
        detail = "" if at is None else f"they differ at byte {at}"
        return Control("all that was logged, replayed, is the image that the guest left", at is None, detail)

    async def ordered(self, unit: int) -> Control:
        """Control: a cut that loses nothing of what was completed recovers."""
        cuts = await self.cuts("ordered", _CONTROLLED // 2, lambda _: nothing(unit))
        return _recovers("cuts that lose nothing that was completed recover", cuts)

    async def of_pages(self, pages: Pages) -> list[Control]:
        """Controls where pages are overwritten: protected ones survive being torn; others just where whole ones go."""
        if pages.protected:
            cuts = await self._torn("protected", _SMALLEST)
            return [_recovers(f"protected pages, torn at {_SMALLEST} bytes, recover", _only_torn(cuts))]
        whole, torn = await self._torn("whole", pages.size), await self._torn("torn", _SMALLEST)
        count = sum(cut.broken is not None for cut in _only_torn(torn))
        return [
            _recovers("unprotected pages recover where only whole ones are lost", _only_torn(whole)),
            Control(f"unprotected pages, torn at {_SMALLEST} bytes, break", count > 0, f"{count} of {len(torn)} cuts"),
        ]

    async def counted(self, moments: int, unit: int) -> list[Cut]:
        """The result: cuts at so many moments, each of which loses at random."""
        return await self.cuts("counted", moments, lambda random: drawn(random, unit), self.keep)

    async def _torn(self, what: str, unit: int) -> list[Cut]:
        return await self.cuts(what, _CONTROLLED, lambda random: Loss(0.2 * random.random(), 1.0, unit))

    async def cuts(
        self, what: str, count: int, loss_of: Callable[[Random], Loss], keep: Callable[[Path], None] = lambda _: None
    ) -> list[Cut]:
        """Cuts at ``count`` moments of the load, drawn by lot, in order; the first broken image goes to ``keep``."""
        log, begin = self.cutter.log, self.cutter.begin
        random = Random(f"{self.seed} {self.name} {what}")
        moments = sorted(random.randint(begin, len(log.entries)) for _ in range(count))
        await asyncio.to_thread(self.cutter.rewind)
        found: list[Cut] = []
        for number, moment in enumerate(moments, start=1):
            own = Random(f"{self.seed} {self.name} {what} {number}")
            state = own.getstate()
            await asyncio.to_thread(self.cutter.cut, moment, loss_of(own), own)
            acknowledged = self.acknowledged(moment)
            broken = await self.look(self.cutter.image, acknowledged)
            if broken is not None and not any(cut.broken for cut in found):
                own.setstate(state)
                await asyncio.to_thread(self._keep_again, moment, loss_of(own), own, keep)
            flying = in_flight(log.entries, self.cutter.durable(moment), moment)
            found.append(Cut(number, moment, flying, acknowledged, broken))
        return found

    def _keep_again(self, moment: int, loss: Loss, random: Random, keep: Callable[[Path], None]) -> None:
        """Looking has changed the image, so it is made again: the same, by the same random numbers."""
        self.cutter.cut(moment, loss, random)
        keep(self.cutter.image)


def _recovers(name: str, cuts: Iterable[Cut]) -> Control:
    first = next((cut for cut in cuts if cut.broken is not None), None)
    if first is None or first.broken is None:
        return Control(name, True)
    # Not a finding, though it may be true: nothing here could tell it from a fault of the check.
    early = "; perhaps it acknowledges before it writes" if first.broken.kind == "lost" else ""
    return Control(name, False, f"after {first.entries} entries: {first.broken.reason}{early}")


def _only_torn(cuts: Sequence[Cut]) -> list[Cut]:
    """What these controls ask is whether pages are torn. That commits are lost is for the result to say."""
    return [cut for cut in cuts if cut.broken is None or cut.broken.kind == "torn"]
