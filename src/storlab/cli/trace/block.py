"""``storlab trace`` of block I/O: tables as text, blkalgn's JSON, single requests, and what is said of disks."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self, TextIO

import polars as pl

from storlab.base.text import plain, printable
from storlab.blockio.requests import by_disk
from storlab.blockio.text import event_form, of_partition, tables, totals, without_requests
from storlab.blockio.trace_output import ByIssuer, Counts, Event, Line, Started, decode_lines, lost_sentences
from storlab.cli.trace.files import EventFile, write_trace
from storlab.cli.trace.screen import EVENT_FILES, Options, Screen, tell
from storlab.percentiles import percentiles
from storlab.report.language.format import quantity
from storlab.tools.blkalgn import blkalgn_json

if TYPE_CHECKING:
    from rich.console import RenderableType

_ISSUERS = (
    "Requests of the command and its children",
    "Requests of kernel threads (write-back of the page cache, journals), for the command or for anybody else",
    "Requests of other processes",
)
"""The command's own first; then those of which nobody knows for whom they are; then the others'."""
_NO_GROUP = "there is no cgroup v2 here to separate the command's requests"


class Requests(Screen[Line]):
    """Requests: counted, or each by itself."""

    first: ClassVar = Started

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._started: Started | None = None
        self._counts: Counts | None = None
        out = options.out if options.events and options.out and options.out.suffix in EVENT_FILES else None
        self._kept = EventFile(out) if out is not None else None
        self._rows = options.events and self._kept is None and not options.json
        self._form = event_form(_columns(self.to))

    def decode(self, chunk: bytes, source: str) -> list[Line]:
        return decode_lines(chunk, source)

    @property
    def complete(self) -> bool:
        return self._counts is not None and self._counts.final

    def doing(self) -> str:
        disks = self._started.disks if self._started is not None else ()
        return f"tracing block I/O of {', '.join(disks) or 'all disks'}"

    def notes(self) -> Iterable[str]:
        started = self._started
        if started is not None and started.hook != "btf":
            yield f"traced at the classic tracepoints, which costs more: {started.reason or 'no reason given'}"
        if started is not None and started.without:
            yield f"this kernel does not report {', '.join(started.without)}"

    def __enter__(self) -> Self:
        super().__enter__()
        if self._rows:
            if self._form.legend is not None:
                tell(self._form.legend)
            self._print(f"{self._form.heading}\n")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        if error is not None and self._kept is not None and (left := self._kept.left()):
            tell(left)

    def show(self, lines: Sequence[Line]) -> None:
        events: list[Event] = [line for line in lines if isinstance(line, tuple)]
        if events and self._rows:
            self._print(self._form.rows(events))
        elif events and self._kept is not None and (sentence := self._kept.add(events)):
            tell(sentence)
        super().show(lines)

    def add(self, line: Any) -> bool:
        if isinstance(line, Started):
            self._started = line
        elif isinstance(line, Counts):
            self._counts = line
            return not line.final
        return False

    def save(self) -> str | None:
        if self._kept is not None:
            self._kept.finish()
            return f": {self._kept.saved:,} {'event' if self._kept.saved == 1 else 'events'}"
        if self.options.out is None or self._counts is None:
            return None
        write_trace(self.options.out, self._counts.request_frame(), self._further(self._counts))
        return ""

    def show_all(self) -> None:
        if self._counts is not None:
            super().show_all()

    def draw(self) -> None:
        counts, started = self._counts, self._started
        assert counts is not None and started is not None
        text = by_issuer(counts) if self.apart and counts.requests else tables(counts.request_frame())
        text = text or "No request was seen.\n"
        if not self.complete and self.options.interval is not None:
            elapsed = (counts.monotonic_ns - started.monotonic_ns) / 1e9
            text = f"{time.strftime('%H:%M:%S')}, {elapsed:.1f} s since the start\n{text}\n"
        self.to.write(plain(text))

    def document(self) -> str:
        assert self._counts is not None
        return blkalgn_json(by_disk(self._counts.request_frame()), self._further(self._counts)).decode().rstrip("\n")

    def _further(self, counts: Counts) -> dict[str, object]:
        """Keys for the JSON, if it is known who issued what."""
        return {"latency": latency_rows(counts.latency_by_issuer())} if self.apart else {}

    def warnings(self) -> Iterable[str]:
        if self._counts is None:
            yield "the tracer ended before it reported what it had counted"
            return
        if self.options.command and not self.apart:
            yield f"these are of all processes: {_NO_GROUP}"
        if not self.complete:
            yield "the tracer did not end cleanly: what came after its last count is missing"
        yield from lost_sentences(self._counts.lost)
        if self.options.events and not self._counts.lost.events:
            yield "no event was dropped"

    def parts(self, width: int, height: int, ended: bool) -> Iterator[RenderableType]:
        from storlab.cli.trace.view import Seen, requests_view

        assert self._started is not None
        return requests_view(Seen.of(self._started, self._counts), width, height)

    def _print(self, text: str) -> None:
        if self.failure is None:
            with self.showing():
                self.to.write(plain(text))
                self.to.flush()


def by_issuer(counts: Counts) -> str:
    parts = []
    for heading, frame in zip(_ISSUERS, counts.frames_by_issuer(), strict=True):
        if frame.height or heading is _ISSUERS[0]:
            parts.append(f"== {heading}: {totals(frame)}\n{tables(frame)}")
    if table := latency_table(latency_rows(counts.latency_by_issuer())):
        parts.append(f"== Latencies, from issue to completion\n{table}")
    return "\n".join(parts)


_WHO = {"command": "the command", "kernel": "kernel threads", "others": "other processes"}
"""As JSON and as the table have it, in the order of ``ByIssuer``."""
_MEDIAN, _P99 = 50.0, 99.0


@dataclass(frozen=True)
class Latency:
    """From issue to completion, in s, of one issuer's operations on a disk; ``max``: the end of the worst bin."""

    issuer: str
    disk: str
    operation: str
    count: int
    median: float
    p99: float
    max: float


def latency_rows(latencies: ByIssuer) -> list[Latency]:
    """In the order of issuers; of each, disks by name and the most frequent operation first."""
    rows = []
    for issuer, latency in zip(_WHO, latencies, strict=True):
        service = latency.filter(pl.col("what") == "service", pl.col("count") > 0)
        own = []
        for (disk, operation), bins in service.group_by("disk", "operation"):
            count, longest = bins.select(pl.col("count").sum(), pl.col("upper").max()).row(0)
            if count > 0:  # else a sum beyond 2^63: of no machine
                found = percentiles(bins, (_MEDIAN, _P99))
                own.append(Latency(issuer, str(disk), str(operation), count, found[_MEDIAN], found[_P99], longest))
        rows += sorted(own, key=lambda row: (row.disk, -row.count, row.operation))
    return rows


def latency_table(rows: Sequence[Latency]) -> str:
    """Within 80 columns if disks have ordinary names; empty if nothing was measured."""
    if not rows:
        return ""
    lines: list[tuple[str, ...]] = [("ISSUER", "DISK", "OPS", "I/Os", "MEDIAN", "P99", "MAX")]
    for row in rows:
        times = (quantity(seconds, "s") for seconds in (row.median, row.p99, row.max))
        lines.append((_WHO[row.issuer], printable(row.disk), printable(row.operation), f"{row.count}", *times))
    wide = max(len(line[1]) for line in lines)
    form = f"{{:<15}} {{:<{wide}}} {{:<12}}" + " {:>9}" * 4
    return "".join(f"{form.format(*cells)}\n" for cells in lines)


def _columns(to: TextIO) -> int | None:
    try:
        return os.get_terminal_size(to.fileno()).columns
    except (OSError, ValueError):  # a file, a pipe; a stream that has no number
        return None


def notes_on(disks: Sequence[str], sys: Path = Path("/sys/class/block")) -> Iterator[str]:
    """Sentences on partitions, and on disks that make no requests of their own.

    A disk that does not exist is left to the tracer to name.
    """
    for disk in disks:
        folder = sys / disk
        if disk in ("", ".", "..") or "/" in disk or not folder.exists():
            continue
        whole = folder.resolve()
        if (folder / "partition").exists():
            whole = whole.parent
            yield of_partition(disk, whole.name, int((folder / "start").read_text()))
        if not (whole / "mq").exists():
            slaves = whole / "slaves"
            yield without_requests(disk, sorted(path.name for path in slaves.iterdir()) if slaves.is_dir() else ())


def kernel_name(disk: str) -> str:
    """A disk as ``/sys/class/block`` has it, if it was named by a path: ``/dev/disk/by-id/…``, ``/dev/mapper/…``.

    What is no block device is left to the tracer to refuse.
    """
    if disk.startswith("/"):
        with suppress(OSError, ValueError):
            status = Path(disk).stat()
            if stat.S_ISBLK(status.st_mode):
                number = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
                return Path(f"/sys/dev/block/{number}").resolve(strict=True).name
    return disk.removeprefix("/dev/")
