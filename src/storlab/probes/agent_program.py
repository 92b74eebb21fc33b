"""A program of the agent's that watches for as long as a probe does: started, waited for, stopped, its output kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import orjson

from storlab.errors import CommandFailed, NodeError, TooMuch
from storlab.limits import FILE
from storlab.nodes.node import Exit
from storlab.nodes.process import Process
from storlab.probes.alignment.probe import NOTES
from storlab.probes.base import ProbeContext

_STARTED = 30.0  # s, within which it begins or says why not; an emulated guest takes three
_LAST_WORD = 20.0  # s, for its last line


@asynccontextmanager
async def agent_program(
    context: ProbeContext, probe: str, words: Sequence[str], name: str, last_word: float = _LAST_WORD
) -> AsyncIterator[None]:
    """Run ``storlab-agent WORDS`` on the node; what it prints becomes the file ``name`` in the probe's raw folder.

    ``last_word``: s, within which it ends once it is stopped. Where it can't be run, or prints too much, the reason is
    among the notes there, and the load runs without it. A trial that is cancelled does not wait for what it saw.
    """
    process, why = await _started(context, words)
    _note(context, probe, why)
    if process is None:
        yield
        return
    try:
        yield
    except asyncio.CancelledError:
        await process.end()
        raise
    finally:
        await _keep(process, context, probe, name, last_word)


async def _started(context: ProbeContext, words: Sequence[str]) -> tuple[Process | None, str | None]:
    # The agent's executable by way of its process: in a guest, the file itself is gone.
    argv = [f"/proc/{context.node.pid}/exe", *words]
    try:
        process = await context.node.start(argv, max_output=FILE)
    except CommandFailed as error:
        return None, str(error)
    try:
        async with asyncio.timeout(_STARTED):
            first = await process.first_line()
    except TimeoutError:
        await process.end()
        return None, f"the agent's program had not started within {_STARTED:.0f} s"
    except BaseException:
        await process.end()
        raise
    return (None, _refusal(await process.last_word(0.0))) if first is None else (process, None)


async def _keep(process: Process, context: ProbeContext, probe: str, name: str, last_word: float) -> None:
    try:
        ended = await process.last_word(last_word)
    except TooMuch as error:
        _note(context, probe, str(error))
    except NodeError:
        pass  # whoever needs the node says so
    else:
        (context.raw / name).write_bytes(ended.stdout)


def _note(context: ProbeContext, probe: str, why: str | None) -> None:
    (context.raw / NOTES).write_bytes(orjson.dumps([] if why is None else [f"{probe}: {why}"]))


def _refusal(ended: Exit) -> str:
    lines = [line for line in ended.stderr.decode(errors="replace").splitlines() if line]
    return lines[0].removeprefix("storlab-agent: ") if lines else "the program ended and printed no reason"
