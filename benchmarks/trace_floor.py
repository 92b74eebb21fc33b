"""The least that a program on a hook of requests costs: it does nothing, or reads the clock; by bare bpf(2)."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Iterator
from contextlib import contextmanager

_BPF_SYSCALL = {"x86_64": 321, "aarch64": 280}
_PROG_LOAD, _RAW_TRACEPOINT_OPEN = 5, 17
_RAW_TRACEPOINT = 17
READ_CLOCK = struct.pack("=BBhi", 0x85, 0, 0, 5)
"""An instruction: a call of ``bpf_ktime_get_ns``."""
_RETURN_0 = struct.pack("=BBhi", 0xB7, 0, 0, 0) + struct.pack("=BBhi", 0x95, 0, 0, 0)


@contextmanager
def attached(tracepoint: bytes = b"block_rq_issue", does: bytes = b"") -> Iterator[int]:
    """The program's descriptor, while it is attached; ``does`` are instructions before its end."""
    instructions = does + _RETURN_0
    code, licence, name = (ctypes.create_string_buffer(text) for text in (instructions, b"GPL", tracepoint))
    count = len(instructions) // 8
    load = struct.pack("=IIQQ", _RAW_TRACEPOINT, count, ctypes.addressof(code), ctypes.addressof(licence))
    program = _bpf(_PROG_LOAD, load)
    try:
        link = _bpf(_RAW_TRACEPOINT_OPEN, struct.pack("=QII", ctypes.addressof(name), program, 0))
        try:
            yield program
        finally:
            os.close(link)
    finally:
        os.close(program)


def _bpf(command: int, attributes: bytes) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(attributes, 128)
    result = int(libc.syscall(_BPF_SYSCALL[platform.machine()], ctypes.c_int(command), buffer, ctypes.c_uint(128)))
    if result < 0:
        raise OSError(ctypes.get_errno(), f"bpf: {os.strerror(ctypes.get_errno())}")
    return result
