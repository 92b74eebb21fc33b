"""One set-up's log, cut at many moments: the controls first, then what is counted."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import fcntl
import os
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from operator import eq, itemgetter
from pathlib import Path
from random import Random

from storlab.base.errors import ParseError
from storlab.base.reading import data_in
from storlab.crash.cut import Loss, Piece, drawn, durable, in_flight, nothing, survivors
from storlab.crash.results import Broken, Control, Cut
from storlab.tools.log_writes import Entry, Flag, WriteLog
from storlab.workloads.base import Pages

# Writing what was logged onto the image of a disk. Data never pass through memory as a whole.
#
# All of it blocks; callers with other work to do use a thread.

_CHUNK = 1024 * 1024
_FICLONE = 0x40049409  # ioctl_ficlone(2)
_KEEP_SIZE, _PUNCH_HOLE = 1, 2  # fallocate(2)
_NOT_HERE = {errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL, errno.EXDEV, errno.ENOSYS}


@dataclass(frozen=True)
class Replay:
    """A log and an image, both open."""

    log: WriteLog
    source: int
    image: int
    size: int

    def write(self, pieces: Iterable[Piece]) -> None:
        """Put these onto the image, in order. Raises ``ParseError`` for what lies beyond its end, ``OSError``."""
        for piece in pieces:
            if piece.offset + piece.length > self.size:
                raise ParseError(
                    f"a write at byte {piece.offset} lies beyond the end of the disk ({self.size} bytes)",
                    str(self.log.path),
                )
            if piece.entry.flags & Flag.DISCARD:
                punch(self.image, piece.offset, piece.length)
            else:
                at = piece.entry.data + piece.offset - piece.entry.offset
                copy_range(self.source, at, self.image, piece.offset, piece.length)

    def write_all(self, entries: Iterable[Entry]) -> None:
        self.write(Piece(entry, entry.offset, entry.length) for entry in entries if entry.length)


@contextmanager
def replaying(log: WriteLog, image: Path) -> Iterator[Replay]:
    with ExitStack() as stack:
        source = os.open(log.path, os.O_RDONLY | os.O_CLOEXEC)
        stack.callback(os.close, source)
        target = os.open(image, os.O_RDWR | os.O_CLOEXEC)
        stack.callback(os.close, target)
        yield Replay(log, source, target, os.fstat(target).st_size)


def copy_range(source: int, at: int, target: int, to: int, length: int) -> None:
    """Copy bytes between two files, in the kernel where it can. Raises ``OSError``."""
    while length:
        try:
            done = os.copy_file_range(source, target, length, at, to)
        except OSError as error:
            if error.errno not in _NOT_HERE:
                raise
            done = os.pwrite(target, os.pread(source, min(length, _CHUNK), at), to)
        if not done:
            raise OSError(errno.EIO, "the file is shorter than it was")
        at, to, length = at + done, to + done, length - done


def punch(descriptor: int, offset: int, length: int) -> None:
    """Discard: what is there reads as zeros afterwards. Raises ``OSError``."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    if libc.fallocate(descriptor, _KEEP_SIZE | _PUNCH_HOLE, offset, length) == 0:
        return
    if ctypes.get_errno() not in _NOT_HERE:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    while length:
        done = os.pwrite(descriptor, bytes(min(length, _CHUNK)), offset)
        offset, length = offset + done, length - done


def copy_image(source: Path, target: Path) -> None:
    """A new file with the same contents: a clone where it can be, else without what is a hole. Raises ``OSError``."""
    with ExitStack() as stack:
        old = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
        stack.callback(os.close, old)
        new = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        stack.callback(os.close, new)
        try:
            fcntl.ioctl(new, _FICLONE, old)
        except OSError as error:
            if error.errno not in _NOT_HERE:
                raise
            os.ftruncate(new, os.fstat(old).st_size)
            for begin, end in data_in(old):
                copy_range(old, begin, new, begin, end - begin)


def first_difference(one: Path, other: Path) -> int | None:
    """The first byte in which two files differ; ``None`` where they are equal. Raises ``OSError``."""
    with one.open("rb") as left, other.open("rb") as right:
        if os.fstat(left.fileno()).st_size != os.fstat(right.fileno()).st_size:
            return min(os.fstat(left.fileno()).st_size, os.fstat(right.fileno()).st_size)
        at = 0
        while True:
            mine, theirs = left.read(_CHUNK), right.read(_CHUNK)
            if mine != theirs:
                return at + next(number for number, same in enumerate(map(eq, mine, theirs)) if not same)
            if not mine:
                return None
            at += len(mine)


_CONTROLLED = 10  # moments for each control by cuts
_TORN = 40  # for that which must break once: most of what is in flight is a log's, and no page
_SMALLEST = 512  # bytes: what every disk writes at once
HINT = "; perhaps it acknowledges before it writes"

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
        return self.folder / "cut.img"

    def rewind(self) -> None:
        copy_image(self.start, self._base)
        self._replayed = 0

    def cut(self, moment: int, loss: Loss, random: Random) -> None:
        first = self.durable(moment)
        with replaying(self.log, self._base) as replay:
            replay.write_all(self.log.entries[self._replayed : first])
        self._replayed = first
        copy_image(self._base, self.image)
        with replaying(self.log, self.image) as replay:
            replay.write(survivors(self.log.entries, first, moment, loss, random))

    def durable(self, moment: int) -> int:
        return durable(self.log.entries, moment, self.begin, self.write_through)

    def at_risk(self) -> list[int]:
        """The moments of the load, as numbers of entries, at which a cut could lose anything."""
        if self.write_through:
            return []
        found, flying = [], False
        for number, entry in enumerate(self.log.entries[self.begin :], start=self.begin + 1):
            if entry.flags & Flag.FLUSH:
                flying = False
            flying = flying or bool(entry.length and not entry.flags & Flag.FUA)
            if flying:
                found.append(number)
        return found

    def difference(self) -> str:
        """Where the whole log on the start image differs from the end image, as a clause; empty if nowhere."""
        copy_image(self.start, self.image)
        with replaying(self.log, self.image) as replay:
            replay.write_all(self.log.entries)
        at = first_difference(self.image, self.end)
        return "" if at is None else f"they differ at byte {at}, {self._last_written(at)}"

    def _last_written(self, at: int) -> str:
        """By which entry of the log a byte was last written, as a clause."""
        for number in range(len(self.log.entries), 0, -1):
            entry = self.log.entries[number - 1]
            if entry.offset <= at < entry.offset + entry.length:
                if entry.flags & Flag.DISCARD:
                    return f"which entry {number} of the log discarded"
                return f"which entry {number} of the log wrote; perhaps a program changed its buffer meanwhile"
        return "which nothing in the log wrote"


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
    keep: Callable[[Path], None] | None = None
    """Gets the image of the first cut that broke something, before it is looked at."""

    def acknowledged(self, moment: int) -> int:
        at = bisect_right(self.commits, moment, key=itemgetter(0))
        return self.commits[at - 1][1] if at else 0

    async def whole(self) -> Control:
        """Control: everything replayed equals the end image, to the byte."""
        detail = await asyncio.to_thread(self.cutter.difference)
        return Control("all that was logged, replayed, is the image that the guest left", not detail, detail)

    async def ordered(self, unit: int) -> Control:
        """Control: a cut that loses nothing of what was completed recovers."""
        cuts = await self.cuts("ordered", _CONTROLLED // 2, lambda _: nothing(unit))
        return _recovers("cuts that lose nothing that was completed recover", cuts)

    async def of_pages(self, pages: Pages) -> list[Control]:
        """Controls where pages are overwritten: protected ones survive being torn; others just where whole ones go."""
        if pages.protected:
            cuts = await self._torn("protected", _SMALLEST)
            return [_recovers(f"protected pages, torn at {_SMALLEST} bytes, recover", _only_torn(cuts))]
        whole, torn = await self._torn("whole", pages.size), await self._torn("torn", _SMALLEST, _TORN)
        broken = any(map(_tore, torn))
        detail = f"at cut {len(torn)}" if broken else f"{len(torn)} cuts, and none did"
        return [
            _recovers("unprotected pages recover where only whole ones are lost", _only_torn(whole)),
            Control(f"unprotected pages, torn at {_SMALLEST} bytes, break", broken, detail),
        ]

    async def counted(self, moments: int, unit: int) -> list[Cut]:
        """The result: cuts at so many moments, each of which loses at random."""
        return await self.cuts("counted", moments, lambda random: drawn(random, unit), keep=self.keep)

    async def _torn(self, what: str, unit: int, most: int = 0) -> list[Cut]:
        """Cuts that tear what was in flight, where anything was; of ``most``, if given, until one tears a page."""

        def loss(random: Random) -> Loss:
            return Loss(0.2 * random.random(), 1.0, unit)

        return await self.cuts(what, most or _CONTROLLED, loss, at_risk=True, until_torn=most > 0)

    async def cuts(
        self,
        what: str,
        count: int,
        loss_of: Callable[[Random], Loss],
        *,
        at_risk: bool = False,
        until_torn: bool = False,
        keep: Callable[[Path], None] | None = None,
    ) -> list[Cut]:
        """Cuts in order, at moments that ``what`` and the seed decide, each with a loss of its own.

        ``at_risk``: only where something is in flight. ``until_torn``: none after the first that tears something.
        ``keep`` gets the image of the first that broke something, as it was before it was looked at.
        """
        cutter, name = self.cutter, f"{self.seed} {self.name} {what}"
        entries, random = cutter.log.entries, Random(name)
        moments = cutter.at_risk() if at_risk else range(cutter.begin, len(entries) + 1)
        await asyncio.to_thread(cutter.rewind)
        found: list[Cut] = []
        for number, moment in enumerate(
            sorted(random.choice(moments) for _ in range(count if moments else 0)), start=1
        ):
            own = Random(f"{name} {number}")
            state = own.getstate()
            await asyncio.to_thread(cutter.cut, moment, loss_of(own), own)
            acknowledged = self.acknowledged(moment)
            broken = await self.look(cutter.image, acknowledged)
            flying = in_flight(entries, cutter.durable(moment), moment)
            found.append(Cut(number, moment, flying, acknowledged, broken))
            if broken is not None and keep is not None:
                own.setstate(state)  # looking has changed the image: it is made again, by the same random numbers
                await asyncio.to_thread(cutter.cut, moment, loss_of(own), own)
                await asyncio.to_thread(keep, cutter.image)
                keep = None
            if until_torn and _tore(found[-1]):
                break
        return found


def _recovers(name: str, cuts: Iterable[Cut]) -> Control:
    first = next((cut for cut in cuts if cut.broken is not None), None)
    if first is None or first.broken is None:
        return Control(name, True)
    # Not a finding, though it may be true: nothing here could tell it from a fault of the check.
    hint = HINT if first.broken.kind == "lost" else ""
    return Control(name, False, f"after {first.entries} entries: {first.broken.reason}{hint}")


def _tore(cut: Cut) -> bool:
    return cut.broken is not None and cut.broken.kind == "torn"


def _only_torn(cuts: Sequence[Cut]) -> list[Cut]:
    """What these controls ask is whether pages are torn. That commits are lost is for the result to say."""
    return [cut for cut in cuts if cut.broken is None or _tore(cut)]
