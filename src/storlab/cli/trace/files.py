"""``storlab trace --out``: what was seen, in a file whose ending says how; single requests by way of parts of it."""

from __future__ import annotations

import io
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from operator import itemgetter
from pathlib import Path

import polars as pl

from storlab.base.errors import UserError
from storlab.blockio.requests import by_disk
from storlab.blockio.text import tables
from storlab.blockio.trace_output import Event, event_frame
from storlab.cli.output import write_output
from storlab.records.files import unfinished, write_whole
from storlab.tools.blkalgn import blkalgn_json

_PART = 1 << 15
"""Events in memory at most, some 15 MB, and in each part."""
_LATE = 1 << 10
"""So many more are held back for the next part: events of several CPUs come only nearly in order of time."""

_TIME = itemgetter(7)


def write_trace(path: Path, requests: pl.DataFrame, further: Mapping[str, object] | None = None) -> None:
    """Write counts in one step: ``.json`` is blkalgn's dialect with keys in bytes, ``.txt`` the tables.

    ``further``: keys for the JSON. Raises ``UserError``.
    """
    match path.suffix:
        case ".json":
            data = blkalgn_json(by_disk(requests), further)
        case ".txt":
            data = tables(requests).encode()
        case ".csv":
            data = requests.write_csv().encode()
        case _:
            data = _parquet(requests)
    write_output(path, data, "--out ")


class EventFile:
    """Takes events in and makes ``path`` of them: ``.parquet`` or ``.csv``, in order of time.

    They are in parts on the disk meanwhile, so that memory does not grow as a trace does.
    Parts are Parquet, in a folder beside ``path``, and become one file in ``finish``. Where that can't be, they stay:
    what was seen until then is not lost, nor is it when this process is killed.
    """

    def __init__(self, path: Path, part: int = _PART) -> None:
        self._path, self._part = path.resolve(), part  # where a link leads, so that it stays one
        self._held: list[Event] = []
        self._folder: Path | None = None
        self._parts: list[Path] = []
        self._failure = ""
        self.saved = 0

    def add(self, events: Sequence[Event]) -> str | None:
        """Take them in. Returns a sentence where no more can be saved, once."""
        if self._failure:
            return None
        self._held += events
        if len(self._held) >= self._part + _LATE:
            self._held.sort(key=_TIME)
            now, self._held = self._held[:-_LATE], self._held[-_LATE:]
            self._save(now)
        return f"events from here on are not kept: {self._failure}" if self._failure else None

    def finish(self) -> None:
        """Write the file, in one step. Raises ``UserError``, which says where the events are, if it can't be."""
        if not self._failure:
            try:
                self._write()
            except (OSError, pl.exceptions.PolarsError) as error:
                self._failure = _why(error)
        if self._folder is not None and not (self._failure and self._parts):
            shutil.rmtree(self._folder, ignore_errors=True)
        if self._failure:
            raise UserError(f"cannot write --out {self._path}: {self._failure}; {self.left() or 'no event is kept'}")

    def left(self) -> str | None:
        return f"the first {self.saved:,} events are in {self._folder}/*.parquet" if self._parts else None

    def _save(self, events: Sequence[Event]) -> None:
        try:
            if self._folder is None:
                parent = self._path.absolute().parent
                self._folder = Path(tempfile.mkdtemp(prefix=f"{self._path.name}.", suffix=".parts", dir=parent))
            part = self._folder / f"{len(self._parts):06}.parquet"
            write_whole(part, _parquet(event_frame(events)))
        except OSError as error:
            self._failure, self._held = _why(error), []
        else:
            self._parts.append(part)
            self.saved += len(events)

    def _write(self) -> None:
        if not self._parts:
            last = event_frame(self._held)
            write_whole(self._path, _parquet(last) if self._path.suffix == ".parquet" else last.write_csv().encode())
            self.saved = last.height
            return
        self._held.sort(key=_TIME)
        self._save(self._held)
        if not self._failure:
            self._join()

    def _join(self) -> None:
        parts, temporary = pl.scan_parquet(self._parts), unfinished(self._path)
        try:
            if self._path.suffix == ".parquet":
                parts.sink_parquet(temporary, row_group_size=_PART, maintain_order=True)
            else:
                parts.sink_csv(temporary, maintain_order=True)
            temporary.replace(self._path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def _parquet(frame: pl.DataFrame) -> bytes:
    # Polars, writing to a full disk itself, does not say so in a way that can be told apart.
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    return buffer.getvalue()


def _why(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error).partition("\n")[0]
    return text.rpartition("error: ")[2].partition(" (os error")[0]  # of what Polars says, the kernel's words
