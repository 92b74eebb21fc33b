"""Two network namespaces with a cable between them, what goes over it, and TCP segments in captures."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from storlab.base.programs import agent_path
from storlab.probes.tcp.output import Output, read_output

SERVER, CLIENT = "192.168.77.1", "192.168.77.2"
PORT = 10809
_OFFLOADS = ("tso", "gso", "gro")


def _path() -> str:
    return f"{os.environ['PATH']}:/usr/sbin:/sbin"


@dataclass(frozen=True)
class Segment:
    """A TCP segment as it was captured: ``t`` in s since 1970, ``length`` of its data in bytes."""

    t: float
    source_port: int
    destination_port: int
    sequence: int
    acknowledged: int
    flags: int
    length: int

    @property
    def is_bare(self) -> bool:
        """Neither data, nor the beginning of a connection, nor its end."""
        return not self.length and not self.flags & 0x07  # FIN, SYN, RST


def segments(capture: bytes) -> Iterator[Segment]:
    """Of a file of tcpdump's, from cards of Ethernet: IPv4 without fragments."""
    magic, link = struct.unpack_from("<I16xI", capture)
    assert (magic, link) == (0xA1B2C3D4, 1)
    at = 24
    while at + 16 <= len(capture):
        seconds, micros, kept, _ = struct.unpack_from("<4I", capture, at)
        frame, at = capture[at + 16 : at + 16 + kept], at + 16 + kept
        if frame[12:14] != b"\x08\x00" or frame[23] != socket.IPPROTO_TCP:
            continue
        (total,) = struct.unpack_from(">H", frame, 16)
        begin = 14 + (frame[14] & 15) * 4
        source, destination, sequence, acknowledged, offset, flags = struct.unpack_from(">HHIIBB", frame, begin)
        length = total - (begin - 14) - (offset >> 4) * 4
        yield Segment(seconds + micros / 1e6, source, destination, sequence, acknowledged, flags, length)


@dataclass(frozen=True)
class Wire:
    """The names of both namespaces; the card in each is ``wire``."""

    server: str
    client: str

    def command(self, at: str, *argv: str) -> list[str]:
        return ["ip", "netns", "exec", getattr(self, at), *argv]

    def python(self, at: str, code: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a program; what it prints can be read."""
        argv = self.command(at, sys.executable, "-c", code, *arguments)
        return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def offload(self, on: bool) -> None:
        words = [word for name in _OFFLOADS for word in (name, "on" if on else "off")]
        for at in ("server", "client"):
            subprocess.run(self.command(at, "ethtool", "-K", "wire", *words), check=True, env=_environment())

    @contextmanager
    def captured(self, at: str, path: Path) -> Iterator[None]:
        """Within, all segments to and from ``PORT`` go to a file; it ends when all have come."""
        argv = ["tcpdump", "--immediate-mode", "-i", "wire", "-s", "96", "-B", "65536", "-U", "-w", str(path)]
        argv += ["tcp", "port", str(PORT)]
        with subprocess.Popen(self.command(at, *argv), stderr=subprocess.PIPE, env=_environment()) as capture:
            assert capture.stderr is not None
            while b"listening on" not in (line := capture.stderr.readline()):
                assert line, "tcpdump ended"
            try:
                yield
                size = -1
                while size != path.stat().st_size:
                    size = path.stat().st_size
                    time.sleep(0.2)
            finally:
                capture.send_signal(signal.SIGINT)
                said = capture.stderr.read().decode()
        assert "0 packets dropped by kernel" in said, said


def _environment() -> dict[str, str]:
    return {**os.environ, "PATH": _path()}


@contextmanager
def wire() -> Iterator[Wire]:
    names = [f"storlab-test-{os.getpid()}-{end}" for end in ("server", "client")]
    made: list[str] = []
    try:
        for name in names:
            subprocess.run(["ip", "netns", "add", name], check=True)
            made.append(name)
        cable = ["ip", "link", "add", "wire", "netns", names[0], "type", "veth", "peer", "name", "wire"]
        subprocess.run([*cable, "netns", names[1]], check=True)
        for name, address in zip(names, (SERVER, CLIENT), strict=True):
            inside = ["ip", "-n", name]
            subprocess.run([*inside, "address", "add", f"{address}/24", "dev", "wire"], check=True)
            for card in ("lo", "wire"):
                subprocess.run([*inside, "link", "set", card, "up"], check=True)
        yield Wire(*names)
    finally:
        for name in made:
            subprocess.run(["ip", "netns", "delete", name], check=True)


class Watcher:
    """The agent's program in a namespace."""

    def __init__(self, of: Wire, at: str, *options: str, endpoint: str = f"{SERVER}:{PORT}") -> None:
        argv = of.command(at, str(agent_path()), "tcp", "--endpoint", endpoint, *options)
        self._process = subprocess.Popen(argv, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self._lines = [self._process.stdout.readline(), self._process.stdout.readline()]  # it has begun to count

    def end(self) -> Output:
        self._process.send_signal(signal.SIGTERM)
        rest, _ = self._process.communicate(timeout=10)
        assert self._process.returncode == 0
        return read_output([*self._lines, *rest.splitlines(keepends=True)])
