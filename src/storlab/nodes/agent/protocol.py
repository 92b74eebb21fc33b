"""The frames between controller and agent, as pure functions; ``docs/reference/agent-protocol.md`` defines them."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import orjson

from storlab.errors import ProtocolError

VERSION = 1
PREFACE = b"storlab-agent/1\n"
MAX_FRAME = 2 * 1024 * 1024
MAX_NOISE = 64 * 1024  # bytes before the preface: a console's greeting, what a port's last user left
CHUNK = 256 * 1024  # payload of one ``write`` or ``stdin`` frame


@dataclass(frozen=True)
class Frame:
    """One message: a JSON object and bytes that belong to it."""

    header: dict[str, Any]
    payload: bytes = b""


def encode(frame: Frame) -> bytes:
    """The frame's bytes on the stream. Raises ``ProtocolError`` where it would be too long."""
    header = orjson.dumps(frame.header)
    length = 2 + len(header) + len(frame.payload)
    if len(header) > 0xFFFF or length > MAX_FRAME:
        raise ProtocolError(f"a frame of {length} bytes (header {len(header)}) is too long for the agent")
    return struct.pack(">IH", length, len(header)) + header + frame.payload


class Decoder:
    """Turns chunks of a stream into frames, whatever way the stream was cut. First it looks for the preface."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._synchronised = False

    def feed(self, chunk: bytes) -> list[Frame]:
        """All frames that are complete now. Raises ``ProtocolError`` on bytes that are no frame."""
        self._buffer += chunk
        if not self._synchronised and not self._skip_to_preface():
            return []
        frames = []
        while (frame := self._take()) is not None:
            frames.append(frame)
        return frames

    def _skip_to_preface(self) -> bool:
        at = self._buffer.find(PREFACE)
        if at < 0:
            if len(self._buffer) > MAX_NOISE + len(PREFACE):
                raise ProtocolError(f"no agent answered within the first {MAX_NOISE} bytes of the stream")
            return False
        del self._buffer[: at + len(PREFACE)]
        self._synchronised = True
        return True

    def _take(self) -> Frame | None:
        if len(self._buffer) < 6:
            return None
        length, header_length = struct.unpack_from(">IH", self._buffer)
        if not 2 + header_length <= length <= MAX_FRAME:
            raise ProtocolError(f"a frame of impossible length came from the agent ({length}, {header_length})")
        if len(self._buffer) < 4 + length:
            return None
        body = bytes(self._buffer[6 : 4 + length])
        del self._buffer[: 4 + length]
        try:
            header = orjson.loads(body[:header_length])
        except orjson.JSONDecodeError as error:
            raise ProtocolError(f"a frame whose header is no JSON came from the agent: {error}") from None
        if not isinstance(header, dict):
            raise ProtocolError("a frame whose header is no JSON object came from the agent")
        return Frame(header, body[header_length:])
