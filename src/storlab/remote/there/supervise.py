"""Runs a job's command, detached from whoever started it, and writes down all that it says.

What it prints and reports becomes one file of lines, in the order in which it came, which may be read while it grows.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from storlab.remote.there.job import Job, lock_at_once

_PIECE = 1 << 16  # B
_RESERVE = 1 << 18  # B: on a full disk, how it ended can still be written down
_LOOK = 1.0  # s
_LEASE = 15.0  # s that a tied job goes on without anybody who follows it
_ENTRY = "from storlab.cli.entry import main; main()"


def detach(job: Job, lock: int) -> None:
    """Start the command in a session of its own, and return; ``lock`` keeps the job alive.

    It outlives the connection, as what setsid(1) starts does. A service of the user's systemd would not: that ends with
    the user's last session unless somebody has allowed it to linger.
    """
    with contextlib.suppress(FileNotFoundError):
        job.path("status").unlink()
    if os.fork():
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    status = 1
    try:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        _leave_streams()
        status = _supervise(job, lock)
    finally:
        os._exit(status)


def _leave_streams() -> None:
    """The connection ends once nobody has its streams open."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nowhere, number)
    os.close(nowhere)


def _supervise(job: Job, lock: int) -> int:
    asked = job.asked()
    record = _Record(job)
    events, reported = os.pipe()
    os.set_inheritable(reported, True)
    os.mkfifo(job.path("answers"), 0o600)
    answers = os.open(job.path("answers"), os.O_RDWR | os.O_CLOEXEC)  # so that it is never at its end
    environment = {**os.environ, **asked.get("environment", {}), "STORLAB_EVENTS": str(reported)}
    try:
        child = subprocess.Popen(
            [sys.executable, "-I", "-c", _ENTRY, *asked["words"]],
            cwd=job.work,
            env=environment,
            stdin=answers,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(reported, lock),
            start_new_session=True,
        )
    except OSError as error:
        record.write({"event": "ended", "status": 1, "said": str(error)})
        return 1
    os.close(reported)
    _write_whole(job.path("pid"), str(child.pid))
    assert child.stdout is not None and child.stderr is not None
    streams = {child.stdout.fileno(): "out", child.stderr.fileno(): "err", events: "events"}
    _listen(job, record, child, streams, tied=bool(asked.get("tied")))
    status = child.wait()
    status = 128 - status if status < 0 else status
    record.write({"event": "ended", "status": status})
    _write_whole(job.path("status"), str(status), record)
    return 0


def _listen(job: Job, record: _Record, child: subprocess.Popen[bytes], streams: dict[int, str], *, tied: bool) -> None:
    waiting = selectors.DefaultSelector()
    for descriptor in streams:
        waiting.register(descriptor, selectors.EVENT_READ)
    tie = _Tie(job, child) if tied else None
    rest = b""
    while waiting.get_map():
        for key, _ in waiting.select(_LOOK):
            data = os.read(key.fd, _PIECE)
            if not data:
                waiting.unregister(key.fd)
            elif streams[key.fd] == "events":
                whole, newline, rest = (rest + data).rpartition(b"\n")
                record.append(whole + newline)
            else:
                record.write({"event": streams[key.fd], "data": base64.b64encode(data).decode()})
        if child.poll() is not None:  # what it left running may keep a stream open
            for descriptor in [key.fd for key in waiting.get_map().values() if not _readable(key.fd)]:
                waiting.unregister(descriptor)
        if tie is not None:
            tie.look()


def _readable(descriptor: int) -> bool:
    with selectors.DefaultSelector() as now:
        now.register(descriptor, selectors.EVENT_READ)
        return bool(now.select(0))


class _Tie:
    """Ends the command once nobody has followed the job for a while."""

    def __init__(self, job: Job, child: subprocess.Popen[bytes]) -> None:
        self._child = child
        self._file = os.open(job.path("tie"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._followed = time.monotonic()
        self._signals = [signal.SIGTERM]

    def look(self) -> None:
        if not lock_at_once(self._file, fcntl.LOCK_EX):
            self._followed = time.monotonic()
            return
        fcntl.flock(self._file, fcntl.LOCK_UN)
        if time.monotonic() - self._followed > _LEASE and self._signals:
            self._child.send_signal(self._signals.pop())


class _Record:
    """The file of events. On a full disk the command goes on; what it reports meanwhile is lost."""

    def __init__(self, job: Job) -> None:
        self._file = os.open(job.events, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._reserve = job.path("reserve")
        with contextlib.suppress(OSError):
            self._reserve.write_bytes(bytes(_RESERVE))

    def write(self, event: dict[str, Any]) -> None:
        if event["event"] == "ended":
            self.free()
        self.append(json.dumps(event).encode() + b"\n")

    def append(self, lines: bytes) -> None:
        at = os.fstat(self._file).st_size
        left = memoryview(lines)
        try:
            while left:
                left = left[os.write(self._file, left) :]
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, at)  # no half line

    def free(self) -> None:
        with contextlib.suppress(OSError):
            self._reserve.unlink()


def _write_whole(path: Path, text: str, record: _Record | None = None) -> None:
    if record is not None:
        record.free()
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(text)
    temporary.replace(path)
