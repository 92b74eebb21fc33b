"""A trace from its start to what is shown at its end: what all kinds of it have in common."""

from __future__ import annotations

import asyncio
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TextIO, TypeVar

from storlab.base.programs import agent_path
from storlab.cli.output import is_drawable, show_json, warn
from storlab.cli.status import OWN_FAULT
from storlab.cli.trace.child import Interruptible, TraceChild, own_group, signals, tracing

if TYPE_CHECKING:
    from rich.console import Console as RichConsole
    from rich.console import ConsoleOptions, RenderableType
    from rich.live import Live
    from rich.table import Table

L = TypeVar("L")

EVENT_FILES = (".parquet", ".csv")
"""Files that hold single requests if these are wanted."""
_INTERVAL = 1.0  # s
_WIDE = 132  # columns, if there is no terminal


@dataclass(frozen=True)
class Options:
    """What is wanted of a ``program`` of the agent's. ``words``: its options, but for when it reports.

    ``interval`` and ``period`` are in s. ``events``: single requests are wanted, ``out``: a file.
    """

    program: str
    words: tuple[str, ...] = ()
    json: bool = False
    interval: float | None = None
    period: float | None = None
    out: Path | None = None
    command: tuple[str, ...] = ()
    events: bool = False

    @property
    def live(self) -> bool:
        """Whether it is drawn again and again, on a terminal that can do that."""
        return not (self.command or self.json or self.events or self.program == "profile") and is_drawable(sys.stdout)

    def arguments(self) -> list[str]:
        """Of the agent's program. Connections are looked at all the time, all else is counted in the kernel."""
        interval = self.interval or (_INTERVAL if self.live or self.program == "tcp" else None)
        times = {"--interval": interval, "--for": self.period}
        timed = [word for name, time in times.items() if time is not None for word in (name, f"{time:.6f}")]
        return [*self.words, *timed]


class Screen(ABC, Generic[L]):
    """What was seen, and how it is shown: live, at intervals, and at the end.

    What a command prints has standard output to itself, but for JSON: the other is standard error.
    """

    first: ClassVar[type]
    """The tracer's first line, which says that it is attached."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.apart = False
        """Whether it is known what the command itself did."""
        self.failure: OSError | None = None
        """Why nothing more can be shown; ``finish`` raises it, once files are written."""
        self.to: TextIO = sys.stderr if options.command and not options.json else sys.stdout
        self._live: Live | None = None

    @abstractmethod
    def decode(self, chunk: bytes, source: str) -> list[L]:
        """Whole lines of the tracer's. Raises ``ParseError``."""

    @abstractmethod
    def add(self, line: Any) -> bool:
        """Take in a line; returns whether something new can be shown, and more is to come."""

    @abstractmethod
    def doing(self) -> str:
        """``tracing block I/O of all disks``."""

    @abstractmethod
    def parts(self, width: int, height: int, ended: bool) -> Iterator[RenderableType]:
        """All that was seen, for a terminal of so many columns and lines."""

    @abstractmethod
    def document(self) -> str:
        """All that was seen as JSON, in base units."""

    @property
    @abstractmethod
    def complete(self) -> bool:
        """Whether the tracer ended in order, and told all that it had counted."""

    def sound(self) -> bool:
        """Whether the exit status may be that of the command."""
        return self.complete or bool(self.options.command)

    def notes(self) -> Iterable[str]:
        """What of this kernel a reader must know, as sentences."""
        return ()

    def warnings(self) -> Iterable[str]:
        """What is missing in what was seen, as sentences."""
        return ()

    def save(self) -> str | None:
        """Write the file, if there is one; returns what is to be said of it. Raises ``UserError``."""
        return None

    def __enter__(self) -> Self:
        if self.options.live:
            from rich.live import Live

            from storlab.cli.console import Console

            self._live = Live(_View(self, False), console=Console(live=True), auto_refresh=False, transient=True)
            with self.showing():
                self._live.start(refresh=True)
            return self
        for note in self.notes():
            tell(note)
        if not self.options.command:
            tell(f"{self.doing()}; Ctrl-C ends it")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            with self.showing():
                self._live.stop()
            for note in self.notes():
                tell(note)

    def show(self, lines: Sequence[L]) -> None:
        for line in lines:
            if not self.add(line):
                continue
            if self._live is not None:
                with self.showing():
                    self._live.update(_View(self, False), refresh=True)
            elif self.options.interval is not None:
                self.show_all()

    def show_all(self) -> None:
        if self.failure is None:
            with self.showing():
                if self.options.json:
                    show_json(self.document())
                else:
                    self.draw()
                self.to.flush()

    def draw(self) -> None:
        from storlab.cli.console import Console

        Console(self.to, width=None if self.to.isatty() else _WIDE).print(_View(self, True))

    def finish(self) -> None:
        """All that was seen, files, and what is missing in them.

        Files come first: a connection that was lost, or a reader that has gone, leaves nothing to show the rest on.
        """
        try:
            written = self.save()
        finally:
            self.show_all()
            for sentence in self.warnings():
                tell(sentence)
        if written is not None:
            tell(f"written to {self.options.out}{written}")
        if self.failure is not None:
            raise self.failure

    @contextmanager
    def showing(self) -> Iterator[None]:
        """Within, something is shown, or it is remembered why it can't be."""
        try:
            yield
        except OSError as error:
            self.failure = self.failure or error


@dataclass(frozen=True)
class _View:
    screen: Screen[Any]
    ended: bool

    def __rich_console__(self, console: RichConsole, options: ConsoleOptions) -> Iterator[RenderableType]:
        yield from self.screen.parts(options.max_width, console.height, self.ended)


def watch(options: Options, screen_of: Callable[[Options], Screen[Any]]) -> int:
    """Trace until Ctrl-C, for the time that was asked for, or while the command runs; returns the exit status."""
    return asyncio.run(_watch(options, screen_of))


async def _watch(options: Options, screen_of: Callable[[Options], Screen[Any]]) -> int:
    work, command = Interruptible(), options.command
    separable = command and options.program in ("trace", "locks")
    with signals(work.signalled), own_group() if separable else nullcontext() as group:
        words = [*options.arguments(), *(["--cgroup", str(group.identity)] if group else [])]
        argv = [str(agent_path()), options.program, *words]
        async with tracing(argv, lambda chunk, source: screen.decode(chunk, source)) as tracer:
            screen = screen_of(options)  # while the tracer attaches: Polars takes longer to load than that does
            screen.apart = group is not None
            work.tracer = tracer
            screen.add(await tracer.started(screen.first))
            with screen:
                following = asyncio.create_task(_follow(tracer, screen))
                status = await work.command(command, group, aside=options.json) if command else 0
                if command or work.signal is not None:
                    tracer.end()
                await following
            if work.began or not command:
                screen.finish()
    return status or (0 if screen.sound() else OWN_FAULT)


async def _follow(tracer: TraceChild[Any], screen: Screen[Any]) -> None:
    while lines := await tracer.lines():
        screen.show(lines)
        if screen.failure is not None and not screen.options.command:
            tracer.end()  # nobody looks any more


def tell(sentence: str) -> None:
    with suppress(OSError):  # the terminal may be what has gone
        warn(f"storlab: {sentence}")


def rows_for(height: int, others: int, ended: bool) -> int:
    """How many rows of a table are shown beside ``others`` lines."""
    return 40 if ended else min(max(height - others, 3), 40)


def plain_table(words: Sequence[str], numbers: Sequence[str]) -> Table:
    """Columns of words, which may be cut short, then of numbers, which may not."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in words:
        table.add_column(name, no_wrap=True, overflow="ellipsis")
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    return table
