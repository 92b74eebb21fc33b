"""What a guest is told before anything else: the time, and entropy of its own.

A guest that is a copy of a saved one has the clock and the random numbers of that one; and an emulated one has little
entropy, and a clock that counts whole seconds. ``docs/reference/agent-protocol.md`` defines these bytes.
"""

from __future__ import annotations

import os
import struct
import time

MAGIC = b"storlab-renew/1\n"
ENTROPY = 64  # bytes


def preamble() -> bytes:
    """Fresh for each guest; made at the very last moment, since it carries the time."""
    return MAGIC + struct.pack(">Q", time.time_ns()) + os.urandom(ENTROPY)
