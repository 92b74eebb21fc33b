"""A virtiofsd for machines whose Debian has none that does: the installed one, else one that is unpacked.

Debian 12 has the one in C, in a package of QEMU 7 that a QEMU from its backports replaces; the one in Rust comes with
Debian 13 and wants a newer C library.
"""

from __future__ import annotations

import os
from typing import Literal, get_args

from storlab.images.unpacked import Unpacked

Implementation = Literal["rust", "c"]

IMPLEMENTATIONS: tuple[Implementation, ...] = get_args(Implementation)

INSTALLED: dict[Implementation, tuple[str, ...]] = {
    "rust": ("/usr/libexec/virtiofsd", "/usr/local/libexec/virtiofsd"),
    "c": ("/usr/lib/qemu/virtiofsd",),
}
"""Where packages put it: Debian 13 and Fedora, Debian 12."""

CALLED = "virtiofsd"
_SPACE = 300_000_000  # bytes while it is unpacked; what is kept is a tenth or less
_RECIPE = 1  # raised when what is made here changes

UNPACKED: dict[Implementation, Unpacked] = {
    "rust": Unpacked(
        f"virtiofsd-rust-{_RECIPE}", CALLED, "trixie", "virtiofsd", path="usr/libexec/virtiofsd", space=_SPACE
    ),
    "c": Unpacked(
        f"virtiofsd-c-{_RECIPE}",
        CALLED,
        "bookworm",
        "qemu-system-common",
        path="usr/lib/qemu/virtiofsd",
        space=_SPACE,
    ),
}


def find_virtiofsd(implementation: Implementation) -> tuple[str, ...] | None:
    """The words before its options: of an installed one, else of the unpacked one; ``None`` where there is neither."""
    for path in INSTALLED[implementation]:
        if os.access(path, os.X_OK):
            return (path,)
    return UNPACKED[implementation].words
