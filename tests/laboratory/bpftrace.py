"""bpftrace beside Storlab, on the same events."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

from laboratory.block import with_tracefs

Maps = dict[str, dict[str, int]]
"""Name of a map → key → count."""


@contextmanager
def bpftraced(program: str, folder: Path) -> Iterator[Maps]:
    """Run it for as long as the context lasts; its maps are there afterwards. It must print ``ready`` first."""
    output, maps = folder / "bpftrace.json", Maps()
    with output.open("wb") as out:
        argv = [*with_tracefs("mounted"), "bpftrace", "-B", "line", "-f", "json", "-e", program]
        environment = {**os.environ, "BPFTRACE_MAP_KEYS_MAX": "65536"}
        process = subprocess.Popen(argv, stdout=out, stderr=subprocess.STDOUT, env=environment)
    try:
        _wait_for(b"ready", output, process)
        yield maps
    finally:
        _end(process)
    for line in output.read_bytes().splitlines():
        document: dict[str, Any] = orjson.loads(line) if line.startswith(b"{") else {"type": "warning"}
        if document["type"] == "map":
            maps.update(document["data"])


def _wait_for(text: bytes, file: Path, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 60
    while text not in file.read_bytes():
        assert process.poll() is None, file.read_text()
        assert time.monotonic() < until, file.read_text()
        time.sleep(0.05)


def _end(process: subprocess.Popen[bytes]) -> None:
    """bpftrace 0.17 misses a SIGINT that comes between two waits; one more while it prints would cut that short."""
    for _ in range(3):
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=20)
            return
    process.kill()
    process.wait()
