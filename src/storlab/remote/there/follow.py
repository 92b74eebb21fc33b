"""Sends a job's events and the files that it leaves, as they come, to whoever follows it.

The stream is lines of JSON. ``{"file": NAME, "size": N, "time": T}`` is followed by the N bytes of a file, which the
job's command has finished; ``{"events": N, "to": OFFSET}`` by N bytes of the events, whole lines, as the file has them
before OFFSET. Files go before the event that says that they are there. ``{"beat": true}`` says that the job goes on,
``{"end": STATUS}`` that it has ended and everything was sent. Whoever follows sends a line every few seconds, and
``done`` once all is stored; if nothing comes, nobody is there any more.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from storlab.remote.there.job import Job

_LOOK = 0.2  # s
_BEAT = 5.0  # s
_LEASE = 30.0  # s
_PIECE = 1 << 20  # B
_AGAIN = 10.0  # s between looks at the files of a job that has no trials
_NOT_SENT = {"tables", "charts", "report.html", "lock"}
"""Of a run's folder: what is derived from the rest, by whoever looks at it; and what belongs to this machine."""


def follow(job: Job, words: dict[str, Any], output: BinaryIO) -> int:
    """``words``: ``offset`` in the events, and ``have``: size and time of each file that need not be sent."""
    os.nice(10)  # what is measured here comes first
    tie = os.open(job.path("tie"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(tie, fcntl.LOCK_SH)
    sender = _Sender(job, int(words.get("offset", 0)), dict(words.get("have", {})), output)
    heard = beat = looked = time.monotonic()
    while True:
        alive = job.alive  # looked at first: what was written before the end is then sent below
        sender.send_events()
        now = time.monotonic()
        if not alive:
            break
        if not sender.has_trials and now - looked > _AGAIN:
            sender.send_all()
            looked = time.monotonic()
        if now - beat > _BEAT:
            beat = now
            sender.line({"beat": True})
        if select.select([0], [], [], _LOOK)[0]:
            if not os.read(0, _PIECE):
                return 0  # nobody is there any more
            heard = now
        elif now - heard > _LEASE:
            return 0
    sender.send_all()
    sender.line({"end": job.status})
    if b"done" in _last_words():
        job.path("fetched").touch()
    return 0


def _last_words() -> bytes:
    said, until = b"", time.monotonic() + _LEASE
    while b"done" not in said and time.monotonic() < until:
        if select.select([0], [], [], _LOOK)[0]:
            data = os.read(0, _PIECE)
            if not data:
                break
            said += data
    return said


class _Sender:
    def __init__(self, job: Job, offset: int, have: dict[str, Any], output: BinaryIO) -> None:
        self._job, self._offset, self._output = job, offset, output
        self._have = {name: tuple(value) for name, value in have.items()}
        asked = job.asked()
        self._work = job.work
        self._results = [str(each) for each in asked.get("results", ())]
        self.has_trials = asked.get("command") in ("run", "resume")

    def line(self, header: dict[str, Any]) -> None:
        self._output.write(json.dumps(header).encode() + b"\n")
        self._output.flush()

    def send_events(self) -> None:
        """All that are whole, each piece after the files that it speaks of."""
        try:
            with self._job.events.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return
        data = data[: data.rfind(b"\n") + 1]
        if not data:
            return
        if self.has_trials:
            self._send_told_of(data)
        self._offset += len(data)
        self.line({"events": len(data), "to": self._offset})
        self._output.write(data)
        self._output.flush()

    def _send_told_of(self, data: bytes) -> None:
        run = self._results[0]
        for line in data.splitlines():
            event = json.loads(line)
            if event.get("event") == "trial ends":
                self._send_below(f"{run}/trials/{int(event['trial']):04d}")
            elif event.get("event") in ("round ends", "run begins"):
                self._send_below(run, deep=False)

    def send_all(self) -> None:
        for name in self._results:
            self._send_below(name)

    def _send_below(self, name: str, *, deep: bool = True) -> None:
        for each in _files(self._work / name, name, deep=deep):
            self._send(each)

    def _send(self, name: str) -> None:
        try:
            descriptor = os.open(self._work / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return  # gone meanwhile
        with os.fdopen(descriptor, "rb") as file:
            seen = os.fstat(descriptor)
            known = (seen.st_size, seen.st_mtime_ns)
            if not stat.S_ISREG(seen.st_mode) or self._have.get(name) == known:
                return
            self.line({"file": name, "size": seen.st_size, "time": seen.st_mtime_ns})
            left = seen.st_size
            while left:
                data = file.read(min(left, _PIECE)) or bytes(min(left, _PIECE))  # it was cut short: it is sent again
                self._output.write(data)
                left -= len(data)
            self._output.flush()
            self._have[name] = known


def _files(path: Path, name: str, *, deep: bool) -> Iterator[str]:
    """Names below ``path``, or itself. The record of a trial, which says that it is whole, is its last."""
    if path.is_file() and not path.is_symlink():
        yield name
        return
    try:
        entries = sorted(os.scandir(path), key=lambda entry: (entry.name == "trial.json", entry.name))
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        if entry.name in _NOT_SENT or entry.name.startswith("."):
            continue
        if entry.is_dir(follow_symlinks=False):
            if deep:
                yield from _files(path / entry.name, f"{name}/{entry.name}", deep=True)
        elif entry.is_file(follow_symlinks=False):
            yield f"{name}/{entry.name}"


def main_follow(name: str) -> int:
    words = json.loads(_first_line())
    return follow(Job(name), words, sys.stdout.buffer)


def _first_line() -> bytes:
    """Byte by byte: what follows is for select(2)."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            break
        line += byte
    return line
