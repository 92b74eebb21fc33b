"""The journal: a line for each thing that is set up, on disk before it is set up, and one when it is down again.

``journal.jsonl`` is all that teardown needs, whether the run ended normally or the power failed.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Self

import msgspec
import orjson
from msgspec import UNSET, Meta, Struct, UnsetType

from storlab.base.errors import RecordsError
from storlab.base.limits import JOURNAL_LINE
from storlab.base.record import Number
from storlab.nodes.identity import NodeIdentity
from storlab.records.files import sync_folder
from storlab.records.manifest import LOCK, NAME, read_manifest
from storlab.run.recovery.state import forget_note, is_noted, note

if TYPE_CHECKING:
    from storlab.nodes.undo import Entry  # at run time it would bring asyncio to whoever only reads

JOURNAL = "journal.jsonl"


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
        self._announced: set[int] = set()  # by this process
        self._drop_torn_line()
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
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

    @cached_property
    def _run(self) -> str:
        return read_manifest(self._path.parent).run

    def is_announced(self, entry: Pending) -> bool:
        """Whether more than the journal says that the run has announced it: this process did, or there is a note."""
        mine = entry.number in self._announced
        return mine or is_noted(self._run, entry.node, entry.undo, entry.arguments)

    def register(self, node: NodeIdentity, undo: str, arguments: Mapping[str, Any]) -> Pending:
        return self.register_all(node, [(undo, arguments)])[0]

    def register_all(self, node: NodeIdentity, entries: Sequence[Entry]) -> list[Pending]:
        """Announce all that is about to be set up on a node, in this order. On disk, for good, when this returns.

        Raises ``OSError`` if that can't be: then nothing may be set up, and nothing is announced.
        """
        from storlab.run.recovery.undoing import undo_table

        announced = []
        for number, (undo, arguments) in enumerate(entries, start=self._next):
            assert undo in undo_table(), f"no layer and no node kind lists the undo {undo}"
            announced.append(Pending(number, node, undo, dict(arguments), undo_table()[undo].outlives_boot))
            if _is_noted(undo) and not node.volatile:
                note(self._run, node, undo, arguments)
        self._next += len(announced)
        lines = [asdict(entry) for entry in announced]
        # What is set up on a volatile node does not outlive a crash of the machine that has it.
        self._append(*({"registered": line.pop("number"), **line} for line in lines), durable=not node.volatile)
        self._pending |= {entry.number: entry for entry in announced}
        self._announced |= {entry.number for entry in announced}
        return announced

    def undone(self, entry: Pending, did: str | None) -> None:
        """Note that it is down; ``did`` says what was done, ``None`` that nothing stood. Its loss is harmless.

        It is known in memory all the same, by which teardown goes where the journal can't be written to any more.
        """
        self._append({"undone": entry.number, "did": did})
        if _is_noted(entry.undo) and not entry.node.volatile:
            forget_note(self._run, entry.node, entry.undo, entry.arguments)
        self._pending.pop(entry.number, None)

    def failed(self, entry: Pending, reason: str) -> None:
        """Note that it could not be torn down; it stays pending. Losing the line is harmless."""
        self._append({"failed": entry.number, "reason": reason})

    def note(self, event: str, **fields: Any) -> None:
        """Note what happened, for people who read the journal. Losing the line is harmless."""
        self._append({"event": event, **fields})

    def _append(self, *entries: Mapping[str, Any], durable: bool = False) -> None:
        """A line each, all or none of them. Only if they must be ``durable`` does a full disk matter: ``OSError``."""
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        lines = [orjson.dumps({"time": time, **fields}) + b"\n" for fields in entries]
        longest = max(map(len, lines), default=0)
        if longest > JOURNAL_LINE:  # nobody could read the journal any more
            if durable or any("registered" in fields for fields in entries):
                raise RecordsError(f"{self._path}: an entry of {longest} bytes is longer than any may be")
            return
        written = b"".join(lines)
        length = os.fstat(self._descriptor).st_size
        try:
            if os.write(self._descriptor, written) < len(written):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
            if durable:
                os.fdatasync(self._descriptor)
        except OSError:
            with contextlib.suppress(OSError):  # where the whole file system is dead
                os.ftruncate(self._descriptor, length)
            if durable:
                raise

    def _drop_torn_line(self) -> None:
        """A power cut may leave half a line; what it announced had not been set up yet."""
        file = _open(self._path)
        if file is None:
            return
        with file:
            length = os.fstat(file.fileno()).st_size
            begin = max(length - JOURNAL_LINE, 0)
            file.seek(begin)
            end = file.read()
        if end and not end.endswith(b"\n"):
            os.truncate(self._path, begin + end.rfind(b"\n") + 1)


def _is_noted(undo: str) -> bool:
    from storlab.run.recovery.undoing import undo_table

    return undo in undo_table() and undo_table()[undo].noted


def read_pending(path: Path) -> list[Pending]:
    """What a journal says still stands, oldest first. Raises ``RecordsError`` if a line is damaged."""
    return list(_read(path)[0].values())


_Value = Annotated[str, Meta(pattern=r"^[^\x00]*$", max_length=4096)] | int | float | bool | None


class _Line(Struct, frozen=True):
    """What any line may have; those that are for people have more, which nobody reads."""

    registered: Number | UnsetType = UNSET
    undone: Number | UnsetType = UNSET
    node: NodeIdentity | UnsetType = UNSET
    undo: Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9_.-]{0,127}$")] | UnsetType = UNSET
    arguments: dict[Annotated[str, Meta(max_length=64)], _Value | list[_Value]] | UnsetType = UNSET
    outlives_boot: bool | UnsetType = UNSET

    def pending(self) -> Pending | None:
        """What it announces, if it does. Raises ``ValueError`` if something is missing."""
        number, node, undo, arguments, outlives = (
            self.registered, self.node, self.undo, self.arguments, self.outlives_boot,
        )  # fmt: skip
        if number is UNSET:
            return None
        if node is UNSET or undo is UNSET or arguments is UNSET or outlives is UNSET:
            raise ValueError("it lacks node, undo, arguments or outlives_boot")
        return Pending(number, node, undo, arguments, outlives)


_LINE = msgspec.json.Decoder(_Line)


def _open(path: Path) -> BinaryIO | None:
    """A journal for reading; ``None`` if there is none. Raises ``RecordsError`` for what is no regular file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        what = "it is a symbolic link" if error.errno == errno.ELOOP else error.strerror
        raise RecordsError(f"cannot read {path}: {what}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise RecordsError(f"cannot read {path}: it is not a regular file")
    return os.fdopen(descriptor, "rb")


def _read(path: Path) -> tuple[dict[int, Pending], int]:
    """What still stands, by its number, and the last number that was given."""
    pending: dict[int, Pending] = {}
    last = 0
    file = _open(path)
    if file is None:
        return pending, last
    with file:
        for number in itertools.count(1):
            line = file.readline(JOURNAL_LINE)
            if len(line) < JOURNAL_LINE and not line.endswith(b"\n"):
                return pending, last  # what follows the last newline is torn
            try:
                if not line.endswith(b"\n"):
                    raise ValueError(f"it is longer than {JOURNAL_LINE // 1024} KiB")
                read = _LINE.decode(line)
                if read.undone is not UNSET:
                    pending.pop(read.undone, None)
                if (entry := read.pending()) is not None:
                    pending[entry.number] = entry
                    last = max(last, entry.number)
            except (ValueError, RecursionError, msgspec.MsgspecError) as error:
                raise RecordsError(
                    f"{path}:{number} is damaged ({error}): fix or remove that line, "
                    "then `storlab clean` can tear down what the others name"
                ) from None
    raise AssertionError("a file ends")


def refuse_others(folder: Path, *names: str) -> None:
    """Raise ``RecordsError`` if root is asked to follow a journal that others may have written.

    ``names``: the files of it in the folder; by default those of a run.
    """
    if os.geteuid() != 0:
        return
    for path in (folder, *(folder / name for name in names or (NAME, LOCK, JOURNAL))):
        try:
            found = path.lstat() if path != folder else path.stat()  # a folder that is held open is named by a link
        except FileNotFoundError:
            continue
        remedy = "root does not act on it. Run this as the user who owns the run"
        if found.st_uid != 0:
            raise RecordsError(f"{path} belongs to another user (uid {found.st_uid}): {remedy}")
        if found.st_mode & 0o022 and not stat.S_ISLNK(found.st_mode):
            raise RecordsError(f"{path}: others can write to it (mode {found.st_mode & 0o7777:04o}): {remedy}, or, if "
                               "nobody has changed anything in it, `chmod go-w` it")  # fmt: skip
