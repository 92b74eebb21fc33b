"""A command on another machine, from its start to its exit status, or as much of it as is followed here."""

from __future__ import annotations

import asyncio
import codecs
import os
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from storlab.base.errors import StorlabError
from storlab.cli.output import show_bytes, show_part, until_closed, warn
from storlab.cli.progress import drawing
from storlab.cli.remote.travel import RULES, journey
from storlab.cli.run_events import Question, RunEnded, RunEvent
from storlab.cli.status import STILL_RUNNING
from storlab.records.run_folder import RunFolder
from storlab.remote.follow import LinkLost, Places, Receiver, follow
from storlab.remote.host import Here, Host, Origin, Request, write_origin
from storlab.run.beginning import new_run_id
from storlab.run.noise import this_machine
from storlab.run.observer import ending_signals
from storlab.ssh.machine import connected

# What a job says, shown here as if it ran here.

Draw = Callable[[RunEvent], None]


class _Out(msgspec.Struct, frozen=True, tag_field="event", tag="out"):
    """Of its standard output."""

    data: bytes


class _Err(msgspec.Struct, frozen=True, tag_field="event", tag="err"):
    """Of its standard error."""

    data: bytes


class _Ended(msgspec.Struct, frozen=True, tag_field="event", tag="ended"):
    """The job, with an exit status. ``said``: why its command could not be started."""

    status: int
    said: str = ""


_EVENTS = msgspec.json.Decoder(RunEvent | RunEnded | Question | _Out | _Err | _Ended)


class Screen:
    """Takes events, a line of JSON each. While ``draw`` is unset, they wait."""

    def __init__(self, ask: Callable[[str], None]) -> None:
        self._ask = ask
        self._draw: Draw | None = None
        self._waiting: list[RunEvent] = []
        self._err = codecs.getincrementaldecoder("utf-8")("replace")
        self._out = codecs.getincrementaldecoder("utf-8")("replace")
        self._line = ""
        self.ended: RunEnded | None = None

    def draw_with(self, draw: Draw | None) -> None:
        """From now on; what came meanwhile first."""
        self._draw = draw
        if draw is not None:
            waiting, self._waiting = self._waiting, []
            for event in waiting:
                draw(event)

    def take(self, line: bytes) -> None:
        """Show one event. Raises ``StorlabError`` if it is none: it comes from another machine."""
        try:
            event = _EVENTS.decode(line)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise StorlabError(f"what the other machine reported makes no sense: {error}") from None
        match event:
            case _Out():
                self._print(event.data)
            case _Err():
                *lines, self._line = (self._line + self._err.decode(event.data)).split("\n")
                for each in lines:
                    warn(each)
            case Question():
                self._ask(event.text)
            case RunEnded():
                self.ended = event
            case _Ended():
                if event.said:
                    warn(f"storlab: could not be started there: {event.said}")
            case _ if self._draw is None:
                self._waiting.append(event)
            case _:
                self._draw(event)

    def close(self) -> None:
        if self._line:
            warn(self._line)
            self._line = ""

    def _print(self, data: bytes) -> None:
        with until_closed():
            if sys.stdout.isatty():
                show_part(self._out.decode(data))
            else:
                show_bytes(data)


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
        following = asyncio.ensure_future(follow(watched.host, self._receiver, begun, warn, keep=watched.keep))
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


# Sends a command to another machine, and ends as it ends.


def run_elsewhere(name: str, given: list[tuple[Any, Any]], host: str, *, tied: bool) -> int:
    """Run a command there; returns its exit status. Raises ``UserError``."""
    made = journey(name, given, host)
    values = {parameter.name: value for parameter, value in given}
    rule = RULES[name]
    here = Here(this_machine(), tuple(str(place.absolute()) for place in made.results.values()))
    request = Request(
        *(new_run_id(), name, tuple(made.words), tuple(made.results), here),
        environment=_environment(),
        tied=tied or rule.tied,
        work=made.work,
    )

    async def begin(there: Host) -> str:
        started = await there.start(request, made.files)
        if started.busy:
            warn(f"This run is still going on on {host}; it is shown from its beginning.")
        return started.job or started.busy

    has_one = rule.out is not None or (rule.run and not rule.output)  # a report's result is a file
    run = next(iter(made.results)) if made.results and has_one else None
    quiet = bool(values.get("quiet") or values.get("json"))
    watched = Watched(
        host=host,
        command=name,
        results=made.results,
        run=run,
        tied=tied or rule.tied,
        keep=run is not None and rule.measures,
        measures=rule.measures,
        quiet=quiet,
    )
    json, undecided = bool(values.get("json")), bool(values.get("allow_undecided"))
    return ended(watch(watched, begin), watched, json=json, allow_undecided=undecided)


def ended(seen: Seen, watched: Watched, *, json: bool, allow_undecided: bool) -> int:
    """The report on a run is made here, from its records; returns the exit status."""
    if seen.screen.ended is None or seen.status == STILL_RUNNING or watched.run is None:
        return seen.status
    from storlab.cli.reporting import finish
    from storlab.records.derive import tables_of
    from storlab.records.run_folder import RunFolder
    from storlab.run.executor import Outcome
    from storlab.run.planning.recorded import summary_of_run

    run = RunFolder.open(watched.results[watched.run])
    tables = tables_of(run)
    summary = summary_of_run(run.manifest, tables)
    outcome = Outcome(run, seen.screen.ended.ending, summary, tables, seen.screen.ended.left_behind)
    return finish(outcome, json, allow_undecided) or seen.status


def _environment() -> dict[str, str]:
    """Text there is what it would be here: as wide, and in UTF-8."""
    columns = os.environ.get("COLUMNS")
    if sys.stdout.isatty():
        columns = str(shutil.get_terminal_size().columns)
    return {"LC_ALL": "C.UTF-8", **({"COLUMNS": columns} if columns else {})}
