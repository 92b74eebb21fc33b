"""The journal: a line for each thing that is set up, on disk before it is set up, and one when it is down again.

``journal.jsonl`` is all that teardown needs, whether the run ended normally or the power failed.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson

from storlab.errors import RecordsError
from storlab.nodes.identity import Machine, NodeIdentity
from storlab.records.files import sync_folder


@dataclass(frozen=True)
class Pending:
    """Something that was set up, or was about to be, and is not known to be down."""

    number: int
    node: NodeIdentity
    undo: str
    arguments: Mapping[str, Any]
    outlives_boot: bool = False


class Journal:
    """Appends to a run's journal; owned by the one process that holds the run's lock."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pending, last = _read(path)
        self._next = last + 1
        self._drop_torn_line()
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        sync_folder(path.parent)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)

    @property
    def pending(self) -> list[Pending]:
        """What still stands, newest first."""
        return sorted(self._pending.values(), key=lambda entry: -entry.number)

    def register(self, node: NodeIdentity, undo: str, arguments: Mapping[str, Any]) -> Pending:
        """Announce something that is about to be set up. On disk, for good, when this returns."""
        from storlab.run.undoing import undo_table  # all layers and node kinds, which who only reads can do without

        assert undo in undo_table(), f"no layer and no node kind lists the undo {undo}"
        entry = Pending(self._next, node, undo, dict(arguments), undo_table()[undo].outlives_boot)
        self._next += 1
        fields = {key: value for key, value in asdict(entry).items() if key != "number"}
        # What is set up on a volatile node does not outlive a crash of the machine that has it.
        self._append({"registered": entry.number, **fields}, durable=not node.volatile)
        self._pending[entry.number] = entry
        return entry

    def undone(self, entry: Pending, did: str | None) -> None:
        """Note that it is down; ``did`` says what was done, ``None`` that nothing stood. Its loss is harmless."""
        self._append({"undone": entry.number, "did": did})
        self._pending.pop(entry.number, None)

    def failed(self, entry: Pending, reason: str) -> None:
        """Note that it could not be torn down; it stays pending. Losing the line is harmless."""
        self._append({"failed": entry.number, "reason": reason})

    def note(self, event: str, **fields: Any) -> None:
        """Note what happened, for people who read the journal. Losing the line is harmless."""
        self._append({"event": event, **fields})

    def _append(self, fields: Mapping[str, Any], durable: bool = False) -> None:
        """One line, whole or not at all. Only where it must be ``durable`` does a full disk matter: ``OSError``."""
        line = orjson.dumps({"time": datetime.now(UTC).isoformat(timespec="milliseconds"), **fields}) + b"\n"
        length = os.fstat(self._descriptor).st_size
        try:
            if os.write(self._descriptor, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
            if durable:
                os.fdatasync(self._descriptor)
        except OSError:
            os.ftruncate(self._descriptor, length)
            if durable:
                raise

    def _drop_torn_line(self) -> None:
        """A power cut may leave half a line; what it announced had not been set up yet."""
        if not self._path.exists():
            return
        data = self._path.read_bytes()
        if data and not data.endswith(b"\n"):
            with self._path.open("r+b") as file:
                file.truncate(data.rfind(b"\n") + 1)


def read_pending(path: Path) -> list[Pending]:
    """What a journal says still stands, oldest first. Raises ``RecordsError`` where a line is damaged."""
    return list(_read(path)[0].values())


def _pending(fields: Mapping[str, Any]) -> Pending:
    """Raises ``ValueError``, ``KeyError`` or ``TypeError`` where something is missing."""
    node = dict(fields["node"])
    identity = NodeIdentity(**{**node, "machine": Machine(**node["machine"])})
    arguments, outlives = dict(fields["arguments"]), bool(fields["outlives_boot"])
    return Pending(int(fields["registered"]), identity, str(fields["undo"]), arguments, outlives)


def _read(path: Path) -> tuple[dict[int, Pending], int]:
    """What still stands, by its number, and the last number that was given."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return {}, 0
    pending: dict[int, Pending] = {}
    last = 0
    for number, line in enumerate(data.split(b"\n")[:-1], start=1):  # what follows the last newline is torn
        try:
            fields = orjson.loads(line)
            if not isinstance(fields, dict):
                raise ValueError("no object")
            pending.pop(int(fields.get("undone", 0)), None)
            if "registered" in fields:
                entry = _pending(fields)
                pending[entry.number] = entry
                last = max(last, entry.number)
        except (ValueError, KeyError, TypeError) as error:
            raise RecordsError(
                f"{path}:{number} is damaged ({error}): fix or remove that line, "
                "then `storlab clean` can tear down what the others name"
            ) from None
    return pending, last
