"""What requests of FUSE and of 9P ask for: include/uapi/linux/fuse.h and include/net/9p/9p.h in Linux."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from storlab.probes.subject import RequestProtocol

OTHER = "other"
ROOM = 256
"""Entries of a histogram: the kernel allocates them one by one, at each write to the trigger."""


@dataclass(frozen=True, eq=False)
class Counting:
    """How a kernel counts requests. ``request``: their tracepoint, ``operation`` its field that says which they are.

    ``mount``: its field with the number of the mount's device, where it has one; else all mounts are counted together.
    ``reply``: the tracepoint of replies, where it has their ``length``, as requests do then.
    """

    request: str
    operation: str
    kinds: Mapping[int, str]
    mount: str = ""
    reply: str = ""
    length: str = ""

    def triggers(self) -> dict[str, str]:
        """Tracepoint → what makes it count."""
        keys = ",".join(filter(None, [self.mount, self.operation]))
        sums = f":vals={self.length}" if self.length else ""
        found = {self.request: f"hist:keys={keys}{sums}:size={ROOM}"}
        return {**found, self.reply: f"hist:keys={self.mount}{sums}:size={ROOM}"} if self.reply else found


def _by_number(kinds: Mapping[str, tuple[int, ...]]) -> dict[int, str]:
    return {number: kind for kind, numbers in kinds.items() for number in numbers}


# A close is FLUSH and RELEASE in FUSE, and in 9P the end (CLUNK) of what WALK and LOPEN began.
COUNTING: Mapping[RequestProtocol, Counting] = {
    "fuse": Counting(
        "fuse/fuse_request_send", "opcode",
        _by_number({
            "read": (15,), "write": (16,), "lookup": (1,), "getattr": (3, 52), "open": (14, 18, 25, 27, 29, 35, 51),
            "xattr": (21, 22, 23, 24), "readdir": (28, 44), "sync": (20, 30, 50),
        }),
        mount="connection", reply="fuse/fuse_request_end", length="len",
    ),
    "9p": Counting(
        "9p/9p_client_req", "type",
        _by_number({
            "read": (116,), "write": (118,), "lookup": (110,), "getattr": (24, 124), "open": (12, 14, 112, 114, 120),
            "xattr": (30, 32), "readdir": (40,), "sync": (50,),
        }),
    ),
}  # fmt: skip
