"""Waiting for several things at once, for one that must not be left half done, and for a process that was killed."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """Wait for ``work`` until it has come to rest, even where the caller is cancelled meanwhile.

    The cancellation goes on afterwards. ``asyncio.shield`` alone would let the caller go on while the work still runs.
    """
    task = asyncio.ensure_future(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            cancelled = True
    if not cancelled:
        return task.result()
    if not task.cancelled():
        task.exception()  # marked as seen: the cancellation comes first
    raise asyncio.CancelledError


async def all_of(*work: Coroutine[Any, Any, T]) -> list[T]:
    """The results of all, in order. Where one fails, the others are cancelled and come to rest before it is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in work]
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]


async def cancelled(*tasks: asyncio.Task[Any]) -> None:
    """Cancel them, and wait until they have come to rest, however that is."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def reaped(process: asyncio.subprocess.Process) -> None:
    """Let go of the output of a process that was killed, and wait for its end.

    Until Python 3.12.5, ``Process.wait`` waits for the pipes to be read to their end as well. A child may hold them
    open, and asyncio stops reading what nobody takes: then it waits forever.
    """
    for descriptor in (1, 2):
        if (pipe := process._transport.get_pipe_transport(descriptor)) is not None:  # type: ignore[attr-defined]
            pipe.close()
    await process.wait()
