"""The program ``storlab``, started without loading it each time: a process that has loaded all of it forks another.

Loading takes more than a second of CPU, and tests start hundreds of controllers. What is started here is a process like
any other: with a number, environment, session and streams of its own, to be killed at any moment. Only what the kernel
keeps of its start (``/proc/PID/cmdline`` and ``environ``) is that of the process that forked it. That the program
starts by itself is for those tests that start it so, such as ``cli/test_start.py`` and ``scripts/test_installed.py``.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import select
import selectors
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any

TEST = "STORLAB_TEST"
"""The variable that names the test for which a process runs, where coverage is measured."""
_WHILE_LOADING = ("PYTHON", "LANG", "LC_", "OPENBLAS", "POLARS", "TZ")
"""Variables that matter while a program is loaded begin so."""
_ENCODING = "PYTHONIOENCODING"  # of the streams, which are opened in the new process
_LATER = ("storlab.workloads.posix.checks", "storlab.workloads.ledger_program")
"""Programs of nodes, which the controller never loads."""
_LONGEST = 1 << 20  # bytes of a request


class Forked(subprocess.Popen[bytes]):
    """``storlab`` with these arguments, in a session of its own. ``streams`` as ``subprocess.Popen`` has them."""

    def __init__(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        folder: Path | None = None,
        **streams: int | IO[Any] | None,
    ):
        self.args = ["storlab", *arguments]
        self.returncode: int | None = None
        self._output: dict[str, bytes] = {}
        with contextlib.ExitStack() as theirs:
            ends = [self._open(theirs, name, number, streams.get(name)) for number, name in enumerate(_STREAMS)]
            request = {"arguments": self.args, "folder": str(folder or Path.cwd()), "environment": {**environment}}
            self.pid: int = _loaded().ask(request, ends)["pid"]

    def _open(self, theirs: contextlib.ExitStack, name: str, number: int, asked: int | IO[Any] | None) -> int:
        """Set one of our ends of its streams; the file descriptor of the other end."""
        setattr(self, name, None)
        if asked == subprocess.PIPE:
            read, write = os.pipe()
            end = read if name == "stdin" else write
            setattr(self, name, os.fdopen(write, "wb") if name == "stdin" else os.fdopen(read, "rb"))
        elif asked == subprocess.DEVNULL:
            end = os.open(os.devnull, os.O_RDWR)
        elif asked is None:
            return number
        else:
            return asked if isinstance(asked, int) else asked.fileno()
        theirs.callback(os.close, end)
        return end

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = _loaded().ask({"ended": self.pid})["status"]
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if (status := self.poll()) is not None:
            return status
        descriptor = os.pidfd_open(self.pid)
        try:
            ended, _, _ = select.select([descriptor], [], [], timeout)
        finally:
            os.close(descriptor)
        if not ended:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        status = self.poll()
        assert status is not None
        return status

    def communicate(self, input: bytes | None = None, timeout: float | None = None) -> tuple[Any, Any]:  # noqa: A002
        """All that it says until it ends. Raises ``TimeoutExpired``; nothing is lost of what it has said by then."""
        deadline = None if timeout is None else time.monotonic() + timeout
        if self.stdin is not None and not self.stdin.closed:
            self.stdin.write(input or b"")
            self.stdin.close()
        with selectors.DefaultSelector() as selector:
            for name in ("stdout", "stderr"):
                if (stream := getattr(self, name)) is not None and not stream.closed:
                    selector.register(stream, selectors.EVENT_READ, name)
            while selector.get_map():
                for key, _ in selector.select(self._left(deadline)):
                    part = os.read(key.fd, 1 << 16)
                    self._output[key.data] = self._output.get(key.data, b"") + part
                    if not part:
                        selector.unregister(key.fileobj)
                        key.fileobj.close()  # type: ignore[union-attr]
        self.wait(self._left(deadline))
        return self._said("stdout"), self._said("stderr")

    def _said(self, name: str) -> bytes | None:
        return None if getattr(self, name) is None else self._output.get(name, b"")

    def _left(self, deadline: float | None) -> float | None:
        if deadline is None:
            return None
        if (left := deadline - time.monotonic()) <= 0:
            raise subprocess.TimeoutExpired(self.args, 0.0)
        return left

    def __del__(self) -> None:
        """Nothing: who started it ends it."""


_STREAMS = ("stdin", "stdout", "stderr")


def can_fork(environment: Mapping[str, str]) -> bool:
    """Whether a process with this environment would load the same as one with that of this process."""
    ours, theirs = (
        {name: value for name, value in each.items() if name.startswith(_WHILE_LOADING) and name != _ENCODING}
        for each in (os.environ, environment)
    )
    return ours == theirs and hasattr(os, "pidfd_open")


def forked_cpu_seconds() -> float:
    """What those that were started here and have ended took of the processor, with all that they waited for."""
    return float(_loaded().ask({"cpu": True})["seconds"]) if _loaded.cache_info().currsize else 0.0


def count_lines_for(test: str) -> None:
    """The lines that run from now on, here and in processes to come, are this test's, where coverage is measured."""
    if (coverage := sys.modules.get("coverage")) and (running := coverage.Coverage.current()):
        os.environ[TEST] = test
        running.switch_context(test)


class _Loaded:
    """The process that forks, which ends with this one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # Of no test's own laboratory, in which it would be something that was left.
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", TEST))}
        argv = [sys.executable, __file__, str(theirs.fileno())]
        options: dict[str, Any] = {"env": environment, "cwd": "/", "start_new_session": True}
        with theirs:
            self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], **options)
        atexit.register(self._end)

    def _end(self) -> None:
        self._ours.close()
        self._process.wait()

    def ask(self, request: Mapping[str, Any], descriptors: Sequence[int] = ()) -> dict[str, Any]:
        """Send a request; the answer."""
        with self._lock:
            socket.send_fds(self._ours, [json.dumps(request).encode()], descriptors)
            answer: dict[str, Any] = json.loads(self._ours.recv(_LONGEST))
        return answer


@cache
def _loaded() -> _Loaded:
    return _Loaded()


def _load() -> None:
    """All that any command loads. What is not installed is missed by the command that needs it."""
    package = importlib.import_module("storlab")
    for module in pkgutil.walk_packages(package.__path__, "storlab."):
        if not module.name.startswith(_LATER) and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    importlib.import_module("altair")
    _build_command_once()
    importlib.import_module("drawing").draw_elsewhere()
    gc.collect()
    gc.freeze()  # no collection of a child's copies pages of memory only to look at what it was born with


def _build_command_once() -> None:
    """Typer builds all of it for each call, in a tenth of a second; a shell that asks how a word goes on changes it."""
    main, app = importlib.import_module("typer.main"), importlib.import_module("storlab.cli.main").app
    build = main.get_command
    built = build(app)

    def get_command(asked: Any) -> Any:
        return built if asked is app and "_STORLAB_COMPLETE" not in os.environ else build(asked)

    vars(main)["get_command"] = get_command


def _serve(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Answer until the tests are over. Returns in each process that was forked, with what it is to be."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(connection, _LONGEST, 3)
        if not message:
            os._exit(0)
        request = json.loads(message)
        answer: dict[str, Any]
        if (pid := request.get("ended")) is not None:
            ended, status = os.waitpid(pid, os.WNOHANG)
            answer = {"status": os.waitstatus_to_exitcode(status) if ended else None}
        elif "cpu" in request:
            spent = os.times()
            answer = {"seconds": spent.children_user + spent.children_system}
        elif (pid := os.fork()) == 0:
            connection.close()
            return request, descriptors
        else:
            answer = {"pid": pid}
        for descriptor in descriptors:
            os.close(descriptor)
        connection.send(json.dumps(answer).encode())


def _become(request: Mapping[str, Any], descriptors: Sequence[int]) -> None:
    """A process that was started with this."""
    os.setsid()
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    for name, number, mode in zip(_STREAMS, range(3), "rww", strict=True):
        errors = "backslashreplace" if name == "stderr" else None
        encoding = request["environment"].get(_ENCODING)
        setattr(sys, name, os.fdopen(number, mode, encoding=encoding, closefd=False, errors=errors))
        setattr(sys, f"__{name}__", getattr(sys, name))
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    count_lines_for(os.environ.get(TEST, ""))
    sys.argv = request["arguments"]


if __name__ == "__main__":
    _load()
    _become(*_serve(socket.socket(fileno=int(sys.argv[1]))))
    from storlab.cli.entry import main

    main()
