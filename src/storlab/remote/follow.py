"""Follows a job until it ends, over as many connections as that takes."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec

from storlab.base.errors import SshError, StorlabError, UserError
from storlab.base.limits import RECORD
from storlab.base.reading import made_below
from storlab.base.waiting import reaped, to_its_end
from storlab.records.files import unfinished
from storlab.remote.host import Host
from storlab.ssh.machine import connected, past_noise

# What a job sends while it is followed: files, which take their places here in one step each, and events.
#
# All of it comes from another machine, so names lead nowhere but below the places that this machine chose.

_PIECE = 1 << 20  # B
_MOST = 1 << 40  # B: of one file
_DEEPEST = 16


class _Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One of these."""

    file: str | None = None
    size: int = 0
    time: int = 0
    events: int | None = None
    to: int = 0
    beat: bool = False
    end: int | msgspec.UnsetType | None = msgspec.UNSET
    missing: bool = False
    refused: str | None = None


class Torn(Exception):
    """The stream ended before the job did: the link, or what served it there."""


class Absent(Exception):
    """There is no Storlab there, or not such a job: a sentence, or empty for the former."""


@dataclass
class Places:
    """Where results are put: by their names there, folders or files of this machine."""

    places: Mapping[str, Path]

    def path(self, name: str) -> Path:
        """Where a file of theirs belongs. Raises ``StorlabError`` if that is nowhere."""
        for result, place in self.places.items():
            if name == result:
                return place
            if name.startswith(f"{result}/"):
                parts = name.removeprefix(f"{result}/").split("/")
                if len(parts) <= _DEEPEST and all(
                    part not in ("", ".", "..") and "\0" not in part and len(os.fsencode(part)) <= 200 for part in parts
                ):
                    return place.joinpath(*parts)
        raise StorlabError(f"the other machine sent a file that nobody asked for: {name[:200]!r}")

    @contextmanager
    def folder_of(self, path: Path) -> Iterator[Path]:
        """The folder of a file of theirs, made where it is missing. Raises ``StorlabError`` if it leads elsewhere.

        What is below a place that the user chose may be somebody else's work, such as a run that is resumed there.
        """
        place = next((place for place in self.places.values() if place in path.parents), None)
        if place is None:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            yield path.parent
            return
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        with ExitStack() as held:
            try:
                folder = held.enter_context(made_below(place, path.parent.relative_to(place).parts))
            except OSError as error:
                raise StorlabError(f"cannot write {path}: {error.strerror}") from None
            yield folder

    def have(self) -> dict[str, tuple[int, int]]:
        have = {}
        for result, place in self.places.items():
            found = place.rglob("*") if place.is_dir() else [place]
            for path in found:
                if path.is_file() and not path.is_symlink():
                    seen = path.stat()
                    rest = path.relative_to(place)
                    have[f"{result}/{rest}" if rest.parts else result] = seen.st_size, seen.st_mtime_ns
        return have


class Receiver:
    """Takes the stream of one job. ``offset`` counts events, so that a broken link is no loss."""

    def __init__(self, places: Places, take: Callable[[bytes], None], begins: Callable[[], None]) -> None:
        self._places, self._take, self._begins = places, take, begins
        self.offset = self.heard = 0

    def have(self) -> dict[str, tuple[int, int]]:
        """What need not be sent."""
        return self._places.have()

    async def receive(self, stream: asyncio.StreamReader) -> int | None:
        """Until the job has ended: its status, ``None`` if it was killed there. Raises ``Torn``, ``OSError``."""
        while True:
            header = await self._header(stream)
            self.heard += 1
            if header.missing or header.refused is not None:
                raise Absent(header.refused or "")
            if header.file is not None:
                await self._file(stream, header.file, header)
            elif header.events is not None:
                if not 0 < header.events <= RECORD:
                    raise StorlabError(f"the other machine sent {header.events} bytes of events at once")
                try:
                    data = await stream.readexactly(header.events)
                except asyncio.IncompleteReadError:
                    raise Torn from None
                self.offset = header.to
                for line in data.splitlines():
                    self._take(line)
            elif header.end is not msgspec.UNSET:
                return header.end

    async def _header(self, stream: asyncio.StreamReader) -> _Header:
        try:
            line = await stream.readline()
        except (ValueError, OSError):
            raise Torn from None
        if not line.endswith(b"\n"):
            raise Torn
        try:
            return msgspec.json.decode(line, type=_Header)
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise StorlabError(f"what the other machine sent makes no sense: {error}") from None

    async def _file(self, stream: asyncio.StreamReader, name: str, header: _Header) -> None:
        path = self._places.path(name)
        if not 0 <= header.size <= _MOST:
            raise StorlabError(f"the other machine sent a file of {header.size} bytes")
        self._begins()
        with self._places.folder_of(path) as folder:
            await self._put(stream, folder / path.name, header)

    async def _put(self, stream: asyncio.StreamReader, path: Path, header: _Header) -> None:
        temporary = unfinished(path)
        temporary.unlink(missing_ok=True)
        try:
            with temporary.open("xb") as file:
                await self._copy(stream, file, header.size)
            os.utime(temporary, ns=(header.time, header.time))
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise

    async def _copy(self, stream: asyncio.StreamReader, file: BinaryIO, size: int) -> None:
        while size:
            data = await stream.read(min(size, _PIECE))
            if not data:
                raise Torn
            file.write(data)
            size -= len(data)
            self.heard += 1


_BEAT = 5.0  # s
_SILENCE = 20.0  # s without a word from there: the link is lost, whatever TCP still hopes for
_PATIENCE = 120.0  # s for which a lost link is tried again
_PAUSE = 2.0  # s
_MOST_READ = 1 << 22  # B that are read ahead
_DONE = 5.0  # s


class LinkLost(StorlabError):
    """The link to a machine is lost, and the job goes on there."""


async def follow(
    name: str,
    receiver: Receiver,
    begin: Callable[[Host], Awaitable[str]],
    notify: Callable[[str], None],
    *,
    keep: bool = True,
) -> int | None:
    """The exit status of the job that ``begin`` names, once everything is here; ``None`` if it was killed there.

    Unless ``keep``, nothing is left of the job there. Raises ``UserError``
    if nothing could be begun, ``LinkLost`` if the machine stays out of reach, ``OSError`` if nothing more can be stored
    here.
    """
    job, lost = "", 0.0
    while True:
        heard = receiver.heard
        try:
            async with connected(name) as machine:
                host = Host(name, machine)
                job = job or await begin(host)
                status = await _follow_once(host, job, receiver)
                if not keep:
                    await host.remove(job)
                return status
        except Absent as error:
            raise UserError(f"{name}: {error}") from None
        except (SshError, Torn) as error:
            if not job:
                raise UserError(str(error)) from None
            now = time.monotonic()
            if not lost or receiver.heard != heard:
                lost = now
                notify(f"The link to {name} is lost; trying again for {_PATIENCE:g} s.")
            if now - lost > _PATIENCE:
                said = f": {error}" if str(error) else ""
                raise LinkLost(f"{name} can't be reached any more{said}") from None
            await asyncio.sleep(_PAUSE)


async def _follow_once(host: Host, job: str, receiver: Receiver) -> int | None:
    process = await asyncio.create_subprocess_exec(
        *host.argv("follow", job),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for this process to answer
        limit=_MOST_READ,
    )
    assert process.stdin is not None and process.stdout is not None
    beating: asyncio.Task[None] | None = None
    try:
        words = {"offset": receiver.offset, "have": receiver.have()}
        process.stdin.write(json.dumps(words).encode() + b"\n")
        beating = asyncio.create_task(_beat(process.stdin))
        await past_noise(process.stdout)
        status = await _heard(receiver, process.stdout)
        with suppress(OSError):
            process.stdin.write(b"done\n")
            await process.stdin.drain()
            process.stdin.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _DONE)
        return status
    finally:
        if beating is not None:
            beating.cancel()
        with suppress(ProcessLookupError):
            process.kill()
        await to_its_end(reaped(process))


async def _heard(receiver: Receiver, stream: asyncio.StreamReader) -> int | None:
    """As it says; silence is a lost link."""
    receiving = asyncio.ensure_future(receiver.receive(stream))
    try:
        while not receiving.done():
            before = receiver.heard
            await asyncio.wait({receiving}, timeout=_SILENCE)
            if not receiving.done() and receiver.heard == before:
                raise Torn
        return receiving.result()
    finally:
        receiving.cancel()


async def _beat(stdin: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while True:
            await asyncio.sleep(_BEAT)
            stdin.write(b"beat\n")
            await stdin.drain()
