"""The agent as a reader of captures: a program of its own, which may open nothing and take only so much memory."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import UnsupportedOperation
from itertools import chain
from os import SEEK_SET, lseek
from pathlib import Path
from typing import BinaryIO

from storlab.errors import MissingTool, ParseError
from storlab.tools.pcap.agent_output import Document, decode

_PIECE = 1024**2  # bytes that are handed on at a time
_LONGEST = 512 * 1024**2  # bytes of a document: 100,000 connections have 120 MB
_USAGE = 2  # the exit status of an agent that knows no captures


def read_file(agent: Path, file: BinaryIO, source: str) -> Document:
    """A pcap or pcapng. Raises ``ParseError``."""
    try:
        descriptor = file.fileno()
    except UnsupportedOperation:
        return read_pieces(agent, iter(lambda: file.read(_PIECE), b""), source)
    lseek(descriptor, 0, SEEK_SET)
    with _started(agent, descriptor) as process:
        return _document(process, agent, source)


def read_pieces(agent: Path, pieces: Iterator[bytes], source: str) -> Document:
    """The same, of which there is no file. Raises ``ParseError``, and whatever making the pieces raises."""
    first = next(pieces, b"")  # where that fails, no agent is started
    with _started(agent, subprocess.PIPE) as process:
        assert process.stdin is not None
        with suppress(BrokenPipeError), process.stdin as pipe:
            for piece in chain([first], pieces):
                pipe.write(piece)
        return _document(process, agent, source)


@contextmanager
def _started(agent: Path, stdin: int) -> Iterator[subprocess.Popen[bytes]]:
    pipe = subprocess.PIPE
    with subprocess.Popen([agent, "pcap"], stdin=stdin, stdout=pipe, stderr=pipe) as process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise


def _document(process: subprocess.Popen[bytes], agent: Path, source: str) -> Document:
    """It prints only once it has read all, or a sentence, which has room in the pipe."""
    assert process.stdout is not None
    assert process.stderr is not None
    text = process.stdout.read(_LONGEST + 1)
    if len(text) > _LONGEST:
        raise ParseError(f"what the agent says of it has more than {_LONGEST // 1024**2} MiB", source)
    said = process.stderr.read(4096).decode(errors="replace").strip()
    status = process.wait()
    if status == _USAGE:
        raise MissingTool(
            f"{agent} is too old to read captures: unset STORLAB_AGENT where it is set, and install Storlab again; "
            "in a checkout, run `make agent`"
        )
    if status < 0:
        raise ParseError(f"the agent that read it was ended by {signal.Signals(-status).name}: {said}", source)
    if status:
        raise ParseError(said.removeprefix("storlab-agent: "), source)
    return decode(text, source)
