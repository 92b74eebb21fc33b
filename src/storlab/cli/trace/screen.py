"""Where ``storlab trace`` shows what it sees: plain text as it comes, or a live view; and what it shows at the end."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

from storlab.blockio.requests import by_disk
from storlab.blockio.text import event_form, tables, totals
from storlab.blockio.trace_output import Counts, Event, Started, lost_sentences
from storlab.cli.output import warn
from storlab.cli.trace.files import EventFile, write_trace
from storlab.cli.trace.latencies import latency_rows, latency_table
from storlab.cli.trace.options import EVENT_FILES, TraceOptions
from storlab.formats.blkalgn.file import blkalgn_json
from storlab.text import plain, spelled

if TYPE_CHECKING:
    from storlab.cli.trace.view import TraceView

_NOTHING = "No request was seen.\n"
_ISSUERS = (
    "Requests of the command and its children",
    "Requests of kernel threads (write-back of the page cache, journals), for the command or for anybody else",
    "Requests of other processes",
)
_NO_GROUP = "there is no cgroup v2 here to separate the command's requests"


class Screen:
    """Plain text. What a command prints has standard output to itself, but for JSON: the other is standard error."""

    def __init__(self, options: TraceOptions, started: Started, *, told_apart: bool = False) -> None:
        self.options, self._started, self._told_apart = options, started, told_apart
        self._counts: Counts | None = None
        self.complete = False
        """Whether the tracer ended in order, and told all that it had counted."""
        out = options.out if options.events and options.out and options.out.suffix in EVENT_FILES else None
        self._kept = EventFile(out) if out is not None else None
        self._rows = options.events and self._kept is None and not options.json
        self._to: TextIO = sys.stderr if options.command and not options.json else sys.stdout
        self._form = event_form(_columns(self._to))
        self.failure: OSError | None = None
        """Why nothing more can be shown; ``finish`` raises it, once files are written."""

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
        if error is not None and self._kept is not None and (left := self._kept.left()):
            _tell(left)

    def begin(self) -> None:
        for note in notes(self._started):
            _tell(note)
        if not self.options.command:
            _tell(f"tracing block I/O of {', '.join(self._started.disks) or 'all disks'}; Ctrl-C ends it")
        if self._rows:
            if self._form.legend is not None:
                _tell(self._form.legend)
            self._print(self._form.heading + "\n")

    def end(self) -> None:
        """Nothing more comes."""

    def show(self, lines: Sequence[object]) -> None:
        events: list[Event] = [line for line in lines if isinstance(line, tuple)]
        if events and self._rows:
            self._print(self._form.rows(events))
        elif events and self._kept is not None and (sentence := self._kept.add(events)):
            _tell(sentence)
        for line in lines:
            if isinstance(line, Counts):
                self._counts, self.complete = line, line.final
                if not line.final:
                    self.tick(line)

    def tick(self, counts: Counts) -> None:
        if not self.options.json:
            elapsed = (counts.monotonic_ns - self._started.monotonic_ns) / 1e9
            self._print(f"{time.strftime('%H:%M:%S')}, {elapsed:.1f} s since the start\n")
        self._print(self._text(counts) + "\n")

    def finish(self) -> None:
        """The tables of all that was seen, files, and what is missing in them.

        Files come first: a connection that was lost, or a reader that has gone, leaves nothing to show the rest on.
        """
        try:
            written = self._save()
        finally:
            self._say()
        if written is not None:
            _tell(f"written to {self.options.out}{written}")
        if self.failure is not None:
            raise self.failure

    def _save(self) -> str | None:
        """Write the file, if there is one; returns what is to be said of it."""
        if self._kept is not None:
            self._kept.finish()
            return f": {self._kept.saved:,} {'event' if self._kept.saved == 1 else 'events'}"
        if self.options.out is None or self._counts is None:
            return None
        write_trace(self.options.out, self._counts.request_frame(), self._further(self._counts))
        return ""

    def _say(self) -> None:
        if self._counts is None:
            _tell("the tracer ended before it reported what it had counted")
            return
        self._print(self._text(self._counts))
        if self.options.command and not self._told_apart:
            _tell(f"these are of all processes: {_NO_GROUP}")
        if not self.complete:
            _tell("the tracer did not end cleanly: what came after its last count is missing")
        for sentence in lost_sentences(self._counts.lost):
            _tell(sentence)
        if self.options.events and not self._counts.lost.events:
            _tell("no event was dropped")

    def _text(self, counts: Counts) -> str:
        requests = counts.request_frame()
        if self.options.json:
            return spelled(blkalgn_json(by_disk(requests), self._further(counts)).decode())
        if self._told_apart and counts.requests:
            return _by_issuer(counts)
        return tables(requests) or _NOTHING

    def _further(self, counts: Counts) -> dict[str, object]:
        """Keys for the JSON, where it is known who issued what."""
        return {"latency": latency_rows(counts.latency_by_issuer())} if self._told_apart else {}

    def _print(self, text: str) -> None:
        if self.failure is None:
            with self._showing():
                self._to.write(text if self.options.json else plain(text))
                self._to.flush()

    @contextmanager
    def _showing(self) -> Iterator[None]:
        """Within, something is shown, or it is remembered why it can't be."""
        try:
            yield
        except OSError as error:
            self.failure = self.failure or error


class LiveScreen(Screen):
    """A view of the terminal that is redrawn at each interval, and gives way to the tables at the end."""

    def begin(self) -> None:
        from rich.live import Live

        from storlab.cli.console import Console

        self._console = Console(live=True)
        self._live = Live(self._drawn(None), console=self._console, auto_refresh=False, transient=True)
        with self._showing():
            self._live.start(refresh=True)

    def end(self) -> None:
        with self._showing():
            self._live.stop()
        for note in notes(self._started):
            _tell(note)

    def tick(self, counts: Counts) -> None:
        with self._showing():
            self._live.update(self._drawn(counts), refresh=True)

    def _drawn(self, counts: Counts | None) -> TraceView:
        from storlab.cli.trace.view import Seen, TraceView

        return TraceView(Seen.of(self._started, counts))


def _by_issuer(counts: Counts) -> str:
    """The command's own first; then those of which nobody knows for whom they are; then the others'."""
    parts = []
    for heading, frame in zip(_ISSUERS, counts.frames_by_issuer(), strict=True):
        if frame.height or heading is _ISSUERS[0]:
            parts.append(f"== {heading}: {totals(frame)}\n{tables(frame)}")
    if table := latency_table(latency_rows(counts.latency_by_issuer())):
        parts.append(f"== Latencies, from issue to completion\n{table}")
    return "\n".join(parts)


def notes(started: Started) -> list[str]:
    """What of this kernel a reader must know."""
    said = []
    if started.hook != "btf":
        said.append(f"traced at the classic tracepoints, which costs more: {started.reason or 'no reason given'}")
    if started.without:
        said.append(f"this kernel does not report {', '.join(started.without)}")
    return said


def _columns(to: TextIO) -> int | None:
    try:
        return os.get_terminal_size(to.fileno()).columns
    except (OSError, ValueError):  # a file, a pipe; a stream that has no number
        return None


def _tell(sentence: str) -> None:
    with suppress(OSError):  # the terminal may be what has gone
        warn(f"storlab: {sentence}")
