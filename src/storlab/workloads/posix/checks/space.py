"""Where the bytes of a file are: holes, space that is set aside, sizes, copies within the file system."""

from __future__ import annotations

import errno
import os

from .calls import FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE, FALLOC_FL_ZERO_RANGE, allocate
from .outcome import NOT_THERE, Unsupported, calling, contents, create, expect, refused

_BLOCK = 64 * 1024
_FAR = 5 * 2**30


def truncated() -> None:
    """What a file is made longer by is zero, even where it was shorter before."""
    create("file", b"x" * 100)
    with calling("truncate"):
        os.truncate("file", 10)
        os.truncate("file", 3 * _BLOCK)
    found = contents("file")
    expect(len(found) == 3 * _BLOCK, f"the file has {len(found)} B, not {3 * _BLOCK}")
    expect(found == b"x" * 10 + bytes(3 * _BLOCK - 10), "what was cut off is there again")


def far_offsets() -> None:
    """Beyond 4 GiB, after a hole. write(2): EFBIG, "exceeds the implementation-defined maximum file size"."""
    with open("file", "x+b", buffering=0) as file:
        try:
            with calling("pwrite at 5 GiB", errno.EFBIG):
                os.pwrite(file.fileno(), b"far", _FAR)
            with calling("pread"):
                expect(os.pread(file.fileno(), 10, _FAR) == b"far", "other contents are read than were written")
                expect(os.pread(file.fileno(), 3, _FAR - 2**32) == bytes(3), "the offset is cut to 32 bits")
            size = os.fstat(file.fileno()).st_size
            expect(size == _FAR + 3, f"the size is {size} B, not {_FAR + 3}")
        finally:
            file.truncate(0)


def data_and_holes() -> str | None:
    """lseek(2): SEEK_DATA never skips data. EINVAL: "whence is not valid"."""
    at = 16 * _BLOCK
    with open("file", "x+b", buffering=0) as file:
        os.pwrite(file.fileno(), b"d" * _BLOCK, at)
        os.ftruncate(file.fileno(), 2 * at)
        with calling("lseek(SEEK_DATA)", *NOT_THERE, errno.EINVAL):
            data = os.lseek(file.fileno(), 0, os.SEEK_DATA)
        with calling("lseek(SEEK_HOLE)", *NOT_THERE, errno.EINVAL):
            hole = os.lseek(file.fileno(), at, os.SEEK_HOLE)
        with refused("lseek(SEEK_DATA) beyond the end", errno.ENXIO):
            os.lseek(file.fileno(), 2 * at, os.SEEK_DATA)
    expect(data <= at, f"SEEK_DATA gives {data}, and data begin at {at}")
    expect(at + _BLOCK <= hole <= 2 * at, f"SEEK_HOLE gives {hole}, and data end at {at + _BLOCK}")
    # "In the simplest implementation, a filesystem can support the operations by …"
    return "holes are reported as data" if (data, hole) == (0, 2 * at) else None


def allocated() -> None:
    """fallocate(2): the file is longer, and zero there."""
    create("file", b"x" * 10)
    with open("file", "r+b", buffering=0) as file, calling("fallocate", *NOT_THERE):
        allocate(file.fileno(), 0, 0, 4 * _BLOCK)
    expect(contents("file") == b"x" * 10 + bytes(4 * _BLOCK - 10), "the file has other contents than before, and zeros")


def _zeroed(mode: int, what: str) -> None:
    create("file", b"x" * (4 * _BLOCK))
    with open("file", "r+b", buffering=0) as file, calling(f"fallocate({what})", *NOT_THERE):
        allocate(file.fileno(), mode, _BLOCK, 2 * _BLOCK)
    expected = b"x" * _BLOCK + bytes(2 * _BLOCK) + b"x" * _BLOCK
    expect(contents("file") == expected, "the file is not zero there, or not as before elsewhere")


def punched() -> None:
    """FALLOC_FL_PUNCH_HOLE: zero there, and as it was elsewhere."""
    _zeroed(FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, "FALLOC_FL_PUNCH_HOLE")


def zeroed() -> None:
    """FALLOC_FL_ZERO_RANGE: the same."""
    _zeroed(FALLOC_FL_ZERO_RANGE, "FALLOC_FL_ZERO_RANGE")


def copied() -> None:
    """copy_file_range(2)."""
    create("from", b"a" * _BLOCK + b"b" * _BLOCK)
    create("to", b"c" * (3 * _BLOCK))
    source, target = os.open("from", os.O_RDONLY), os.open("to", os.O_RDWR)
    with calling("copy_file_range", *NOT_THERE, errno.EXDEV, errno.EINVAL):
        done = os.copy_file_range(source, target, _BLOCK, _BLOCK, _BLOCK)
    if not done:
        raise Unsupported("copy_file_range copies nothing")
    expected = b"c" * _BLOCK + b"b" * done + b"c" * (2 * _BLOCK - done)
    expect(contents("to") == expected, "the copy has other contents")
