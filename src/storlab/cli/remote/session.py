"""A command on another machine, from its start to its exit status, or as much of it as is followed here."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from storlab.cli.output import warn
from storlab.cli.progress import drawing
from storlab.cli.remote.screen import Screen
from storlab.cli.status import STILL_RUNNING
from storlab.errors import StorlabError
from storlab.records.run_folder import RunFolder
from storlab.remote.follow import LinkLost, follow
from storlab.remote.host import Host
from storlab.remote.origin import Origin, write_origin
from storlab.remote.receive import Places, Receiver
from storlab.run.observer import ending_signals
from storlab.ssh.machine import connected

_ANSWERS = {"s": "stop", "stop": "stop", "l": "leave", "leave": "leave"}


@dataclass(frozen=True, kw_only=True)
class Watched:
    """What is followed. ``results``: what its results become here, by their names there. ``run``: which of them is a
    run's folder. ``tied``: the job ends with the connection. ``keep``: it stays there once it has ended. ``measures``:
    it may take long, so that its user is asked whether to leave it.
    """

    host: str
    command: str
    results: dict[str, Path]
    run: str | None
    tied: bool
    keep: bool
    measures: bool
    quiet: bool


@dataclass(frozen=True)
class Seen:
    """How it ended. ``status``: its exit status; ``screen``: with what it reported last."""

    status: int
    screen: Screen


def watch(watched: Watched, begin: Callable[[Host], Awaitable[str]]) -> Seen:
    """Follow the job that ``begin`` starts or finds. Raises ``UserError`` if there is none, else as ``follow``."""
    return asyncio.run(_Session(watched).watch(begin))


class _Session:
    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._job = ""
        self._tasks: set[asyncio.Task[None]] = set()
        self._screen = Screen(self._ask)
        self._came = asyncio.Event()
        self._signal = signal.SIGINT
        self._stopped = False
        self._holds = False
        places = Places(watched.results)
        self._receiver = Receiver(places, self._screen.take, self._begins)
        self._held = ExitStack()

    async def watch(self, begin: Callable[[Host], Awaitable[str]]) -> Seen:
        async def begun(host: Host) -> str:
            self._job = await begin(host)
            return self._job

        loop = asyncio.get_running_loop()
        handled = ending_signals()
        for number in handled:
            loop.add_signal_handler(number, self._interrupt, number)
        watched = self._watched
        following = asyncio.ensure_future(follow(watched.host, self._receiver, begun, self._notify, keep=watched.keep))
        try:
            while not following.done():
                with self._shown():
                    came = asyncio.ensure_future(self._came.wait())
                    await asyncio.wait({following, came}, return_when=asyncio.FIRST_COMPLETED)
                    came.cancel()
                if self._came.is_set() and not following.done() and await self._is_left():
                    return Seen(STILL_RUNNING, self._screen)
            return self._ended(await following)
        except LinkLost as error:
            warn(f"storlab: {error}. {self._left()}")
            return Seen(STILL_RUNNING, self._screen)
        except OSError as error:
            if not self._job:
                raise
            what = f"cannot store {error.filename or 'what it sends'}: {error.strerror}"
            raise StorlabError(f"{what}. {self._left()}") from None
        finally:
            for number in handled:
                loop.remove_signal_handler(number)
            following.cancel()
            with suppress(BaseException):
                await following
            self._held.close()

    def _ended(self, status: int | None) -> Seen:
        self._screen.close()
        if status is None:
            what = self._watched.results.get(self._watched.run or "")
            then = f": `storlab resume {what} --on {self._watched.host}` resumes it" if what is not None else ""
            raise StorlabError(f"the command was killed on {self._watched.host}{then}")
        return Seen(status, self._screen)

    @contextmanager
    def _shown(self) -> Iterator[None]:
        doing = "stopping on" if self._stopped else "waiting for"
        with drawing(self._watched.quiet, f"{doing} {self._watched.host}") as draw:
            self._screen.draw_with(draw)
            try:
                yield
            finally:
                self._screen.draw_with(None)

    def _notify(self, message: str) -> None:
        warn(message)

    def _begins(self) -> None:
        """Before the first file is stored: a run's folder is made, locked, and says where it came from."""
        if self._watched.run is not None and not self._holds:
            path = self._watched.results[self._watched.run]
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._held.enter_context(RunFolder(path).lock())  # two that fetch into it would be in each other's way
            self._holds = True
            write_origin(path, Origin(self._watched.host, self._job, self._watched.run))

    def _interrupt(self, number: signal.Signals) -> None:
        self._signal = number
        self._came.set()

    async def _is_left(self) -> bool:
        """After a signal: whether the job is left alone. Otherwise it was asked to stop, and is followed to its end."""
        self._came.clear()
        watched = self._watched
        if not self._job:
            raise StorlabError("interrupted before anything was started")
        if self._stopped and watched.measures:
            warn(f"storlab: it is still being stopped. {self._left()}")
            return True
        asked = self._signal == signal.SIGINT and sys.stdin.isatty() and sys.stderr.isatty()
        if watched.measures and not watched.tied and not (asked and await self._choose() == "stop"):
            warn(f"storlab: {self._left()}")
            return True
        self._stopped = True
        async with connected(watched.host) as machine:
            await Host(watched.host, machine).send_signal(self._job, "INT")
        return False

    def _left(self) -> str:
        host = self._watched.host
        return f"It continues on {host}: `storlab attach {host}` shows it and fetches its records"

    async def _choose(self) -> str:
        """Once: what is no answer leaves it."""
        sys.stderr.write(f"Stop it on {self._watched.host}, or leave it? [stop/leave] ")
        sys.stderr.flush()
        answered = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(sys.stdin.fileno(), answered.set)
        waiting = {asyncio.ensure_future(answered.wait()), asyncio.ensure_future(self._came.wait())}
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            loop.remove_reader(sys.stdin.fileno())
            for each in waiting:
                each.cancel()
        if self._came.is_set():
            self._came.clear()
            sys.stderr.write("\n")
            return "leave"
        line = os.read(sys.stdin.fileno(), 100).decode(errors="replace")
        return _ANSWERS.get(line.strip().lower(), "leave")

    def _ask(self, text: str) -> None:
        task = asyncio.get_running_loop().create_task(self._answer(text))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, text: str) -> None:
        from storlab.cli.output import confirmed

        agreed = confirmed(text)
        async with connected(self._watched.host) as machine:
            word = "nobody" if agreed is None else "yes" if agreed else "no"
            await Host(self._watched.host, machine).answer(self._job, word)
