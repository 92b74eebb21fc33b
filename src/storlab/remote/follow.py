"""Follows a job until it ends, over as many connections as that takes."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from storlab.errors import SshError, StorlabError, UserError
from storlab.remote.host import Host
from storlab.remote.receive import Absent, Receiver, Torn
from storlab.ssh.machine import connected, past_noise
from storlab.waiting import to_its_end

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
        await to_its_end(_end(process))


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


async def _end(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.kill()
    await process.wait()
