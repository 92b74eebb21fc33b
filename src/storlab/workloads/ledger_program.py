"""``python3 program.py write|verify JSON``: commits records, or says what is missing of them. No imports of ours.

A record is its sequence number and bytes that follow from it, so that any other content is recognised. Once a
record is durable by all that the file system promises, its number is printed, a line each.

- ``append``: to one file; fdatasync.
- ``rename``: to a new file, fsync, renamed over one of a few others, fsync of the directory.
- ``overwrite``: in place, one of a few pages, past the page cache; fdatasync. A page that is torn is lost, as that of a
  database. ``doublewrite``: written and synced elsewhere before, so that it can be restored.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import struct
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

Damage = tuple[str, str]
"""``lost`` or ``torn``, and what it is in words."""
HEAD = struct.Struct("<8sQ")
MAGIC = b"storlab1"


def record(sequence: int, slot: int, size: int) -> bytes:
    body = hashlib.shake_128(b"%d %d" % (sequence, slot)).digest(size - HEAD.size)
    return HEAD.pack(MAGIC, sequence) + body


def sequence_of(data: bytes, slot: int, size: int) -> int | None:
    """Which record it is; ``None`` where it is none, or not whole."""
    if len(data) != size:
        return None
    magic, sequence = HEAD.unpack_from(data)
    return sequence if magic == MAGIC and data == record(sequence, slot, size) else None


def slot_of(sequence: int, slots: int) -> int:
    """Where a record goes: somewhere else each time, so that neighbours are not written one after another."""
    return sequence * 7 % slots


class Ledger:
    """Its files lie in ``root``. Sizes in bytes."""

    def __init__(self, root: str, commit: str, size: int, slots: int, doublewrite: bool = False, **_: Any) -> None:
        self.root, self.commit, self.size, self.slots = root, commit, size, slots
        self.doublewrite = doublewrite and commit == "overwrite"

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def begin(self) -> Callable[[int], None]:
        """Lay out what has to be there before the first commit, durably; returns what commits a record."""
        os.makedirs(self.root)
        ready = {"append": self._appending, "rename": self._renaming, "overwrite": self._overwriting}[self.commit]()
        for path in (self.root, os.path.dirname(self.root)):
            _sync(path)
        return ready

    def _appending(self) -> Callable[[int], None]:
        file = os.open(self._path("records"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.fsync(file)

        def commit(sequence: int) -> None:
            _write(file, record(sequence, 0, self.size))
            os.fdatasync(file)

        return commit

    def _renaming(self) -> Callable[[int], None]:
        def commit(sequence: int) -> None:
            slot = slot_of(sequence, self.slots)
            file = os.open(self._path("new"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            try:
                _write(file, record(sequence, slot, self.size))
                os.fsync(file)
            finally:
                os.close(file)
            os.rename(self._path("new"), self._path(f"slot-{slot}"))
            _sync(self.root)

        return commit

    def _overwriting(self) -> Callable[[int], None]:
        flags = os.O_RDWR | os.O_CREAT | os.O_DIRECT
        pages, double = (os.open(self._path(name), flags, 0o600) for name in ("pages", "doublewrite"))
        os.posix_fallocate(pages, 0, self.slots * self.size)  # contiguous, as far as the file system can
        page = mmap.mmap(-1, self.size)  # aligned, as direct I/O demands
        for slot in range(self.slots):
            page[:] = record(0, slot, self.size)
            os.pwrite(pages, page, slot * self.size)
        os.pwrite(double, page, 0)
        os.fsync(pages)
        os.fsync(double)

        def commit(sequence: int) -> None:
            slot = slot_of(sequence, self.slots)
            page[:] = record(sequence, slot, self.size)
            if self.doublewrite:
                os.pwrite(double, page, 0)
                os.fdatasync(double)
            os.pwrite(pages, page, slot * self.size)
            os.fdatasync(pages)

        return commit

    def broken(self, acknowledged: int) -> Damage | None:
        """What is wrong where all records up to number ``acknowledged`` were acknowledged; ``None``: nothing is."""
        if not acknowledged:
            return None
        if not os.path.isdir(self.root):
            return "lost", f"the ledger is gone, and {acknowledged} commits were acknowledged"
        return {"append": self._appended, "rename": self._renamed, "overwrite": self._overwritten}[self.commit](
            acknowledged
        )

    def _appended(self, acknowledged: int) -> Damage | None:
        """What follows the last whole record was never acknowledged, and may be anything."""
        try:
            with open(self._path("records"), "rb") as file:
                for sequence in range(1, acknowledged + 1):
                    data = file.read(self.size)
                    if sequence_of(data, 0, self.size) != sequence:
                        return _missing(sequence, acknowledged, "half of it" if data else "nothing of it")
        except OSError as error:
            return "lost", f"the ledger cannot be read: {error.strerror}"
        return None

    def _renamed(self, acknowledged: int) -> Damage | None:
        """A name leads to a whole record at any time, whether or not that was acknowledged."""
        last = {slot_of(sequence, self.slots): sequence for sequence in range(1, acknowledged + 1)}
        for slot in range(self.slots):
            try:
                with open(self._path(f"slot-{slot}"), "rb") as file:
                    data = file.read(self.size + 1)
            except FileNotFoundError:
                if slot in last:
                    return _missing(last[slot], acknowledged, "no file")
                continue
            except OSError as error:
                return "lost", f"slot-{slot} cannot be read: {error.strerror}"
            found = sequence_of(data, slot, self.size)
            if found is None:
                return "torn", f"slot-{slot} holds half a record: {len(data)} bytes, of which some are not of it"
            if found < last.get(slot, 0):
                return _missing(last[slot], acknowledged, f"an older one, {found}, in its place")
        return None

    def _overwritten(self, acknowledged: int) -> Damage | None:
        last = {slot_of(sequence, self.slots): sequence for sequence in range(1, acknowledged + 1)}
        try:
            with open(self._path("pages"), "rb") as file:
                pages = [file.read(self.size) for _ in range(self.slots)]
            with open(self._path("doublewrite"), "rb") as file:
                double = file.read(self.size)
        except OSError as error:
            return "lost", f"the pages cannot be read: {error.strerror}"
        for slot, page in enumerate(pages):
            found = sequence_of(page, slot, self.size)
            if found is None and self.doublewrite:
                found = sequence_of(double, slot, self.size)
            if found is None:
                return "torn", f"page {slot} is torn: it holds neither its last record nor the one before"
            if found < last.get(slot, 0):
                return _missing(last[slot], acknowledged, f"an older one, {found}, in its place")
        return None


def _missing(sequence: int, acknowledged: int, instead: str) -> Damage:
    return "lost", f"commit {sequence} of {acknowledged} acknowledged ones is lost: there is {instead}"


def _write(file: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]


def _sync(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write(ledger: Ledger, runtime: float) -> None:
    """Commit for so many seconds, print each number, and leave ``commits.json`` with what each took, in seconds."""
    commit = ledger.begin()
    took: list[float] = []
    began = now = time.monotonic()
    while now - began < runtime or not took:
        commit(len(took) + 1)
        done = time.monotonic()
        took.append(done - now)
        os.write(1, b"%d\n" % len(took))
        now = time.monotonic()
    with open("commits.json", "w", encoding="utf-8") as file:
        json.dump({"elapsed": now - began, "latencies": [round(each, 9) for each in took]}, file)


def main(action: str, text: str) -> None:
    """``verify`` prints what is wrong as JSON, or null."""
    asked: Mapping[str, Any] = json.loads(text)
    ledger = Ledger(**asked)
    if action == "write":
        write(ledger, asked["runtime"])
    else:
        print(json.dumps(ledger.broken(asked["acknowledged"])))


if __name__ == "__main__":
    main(*sys.argv[1:])
