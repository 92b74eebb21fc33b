"""Start QEMU with a copy of a saved guest's memory that other programs can map, too; a program of its own.

A daemon that serves a guest by vhost-user writes into the guest's memory, so that can't be a private mapping of the
saved file. The copy is anonymous (memfd_create(2)): it goes with QEMU, whatever ends it. Called as ``python
shared_copy.py MEMORY QEMU …``; in QEMU's arguments the copy is ``COPY_PATH``. No import but the standard library's.
"""

import os
import sys

COPY = 9  # the descriptor
COPY_PATH = f"/proc/self/fd/{COPY}"
_AT_ONCE = 1 << 24  # bytes


def main(saved: str, argv: list[str]) -> None:
    """Copy the file ``saved``, but for its holes, and become ``argv``. Raises ``OSError``."""
    source = os.open(saved, os.O_RDONLY)
    copy = os.memfd_create("storlab-guest")
    size = os.fstat(source).st_size
    os.truncate(copy, size)
    at = 0
    while at < size:
        try:
            at = os.lseek(source, at, os.SEEK_DATA)
        except OSError:  # ENXIO: only a hole is left
            break
        end = os.lseek(source, at, os.SEEK_HOLE)
        os.lseek(copy, at, os.SEEK_SET)
        while at < end:
            at += os.sendfile(copy, source, at, min(end - at, _AT_ONCE))
    os.close(source)
    os.dup2(copy, COPY, inheritable=True)
    os.execvp(argv[0], argv)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
