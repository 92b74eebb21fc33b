"""Files that are open: open(2) with its flags, and what stays of a file whose name is gone."""

from __future__ import annotations

import errno
import os
from mmap import mmap

from .calls import link_open
from .outcome import NOT_THERE, calling, contents, create, expect, names_in, refused
from .processes import together

_RECORDS, _LENGTH = 100, 64
_NAMES = 40
_BLOCK = 64 * 1024  # as large as blocks and sectors get


def unlinked_status() -> None:
    """fstat(2) of a file that is open and has no name any more."""
    create("file", b"123")
    with open("file", "rb") as file:
        os.unlink("file")
        with calling("fstat"):
            status = os.fstat(file.fileno())
    expect((status.st_nlink, status.st_size) == (0, 3), f"fstat gives {status.st_nlink} links, {status.st_size} B")


def unlinked_contents() -> None:
    """It can be read, written, made shorter and changed in mode."""
    create("file", b"123")
    with open("file", "r+b", buffering=0) as file:
        os.unlink("file")
        with calling("read"):
            expect(file.read() == b"123", "it has other contents")
        with calling("write"):
            file.write(b"456")
        with calling("ftruncate"):
            file.truncate(5)
        with calling("fchmod"):
            os.fchmod(file.fileno(), 0o600)
        with calling("read"):
            expect(os.pread(file.fileno(), 10, 0) == b"12345", "it has other contents than were written")


def unnamed() -> None:
    """O_TMPFILE. open(2): EOPNOTSUPP; "ENOENT, EISDIR … this kernel version does not provide the O_TMPFILE"."""
    with calling("open", *NOT_THERE, errno.EISDIR, errno.ENOENT, errno.EINVAL):
        file = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o600)
    os.write(file, b"1")
    expect(os.fstat(file).st_nlink == 0 and not names_in(), "a file without a name has one")
    with calling("linkat"):
        link_open(file, "name")
    expect(contents("name") == b"1" and os.fstat(file).st_nlink == 1, "the file that got a name is another")


def appending() -> None:
    """Two processes with O_APPEND never write over each other."""
    create("file")

    def append(letter: bytes) -> None:
        file = os.open("file", os.O_WRONLY | os.O_APPEND)
        for _ in range(_RECORDS):
            os.write(file, letter * _LENGTH)
        os.close(file)

    together(lambda: append(b"a"), lambda: append(b"b"))
    found = contents("file")
    records = [found[at : at + _LENGTH] for at in range(0, len(found), _LENGTH)]
    lost = 2 * _RECORDS - len(records)
    expect(lost <= 0, f"{lost} of {2 * _RECORDS} records were written over")
    expect(all(records.count(each * _LENGTH) == _RECORDS for each in (b"a", b"b")), "records are mixed with others")


def exclusive() -> None:
    """Of two processes that create one name with O_EXCL, one does."""

    def race() -> int:
        made = 0
        for number in range(_NAMES):
            try:
                os.close(os.open(f"file{number}", os.O_WRONLY | os.O_CREAT | os.O_EXCL))
                made += 1
            except FileExistsError:
                pass
        return made

    made = sum(together(race, race))
    expect(made == _NAMES, f"{made} of {_NAMES} names were created")
    with refused("open of a file that is there", errno.EEXIST):
        os.close(os.open("file0", os.O_WRONLY | os.O_CREAT | os.O_EXCL))


def direct() -> None:
    """O_DIRECT. open(2): "EINVAL … O_DIRECT … and the filesystem does not support it"."""
    with calling("open", *NOT_THERE, errno.EINVAL):
        file = os.open("file", os.O_RDWR | os.O_CREAT | os.O_DIRECT)
    buffer = mmap(-1, _BLOCK)  # aligned to a page
    buffer.write(b"d" * _BLOCK)
    with calling(f"write of {_BLOCK} B"):
        expect(os.pwritev(file, [buffer], 0) == _BLOCK, "not all was written")
    expect(contents("file") == b"d" * _BLOCK, "what was written is not what is read without O_DIRECT")
    with open("file", "r+b", buffering=0) as other:
        other.write(b"o" * _BLOCK)
    with calling(f"read of {_BLOCK} B"):
        os.preadv(file, [buffer], 0)
    expect(buffer[:] == b"o" * _BLOCK, "what was written without O_DIRECT is not what is read with it")


def synced() -> None:
    """fsync(2) and fdatasync(2) of a file return."""
    with open("file", "xb", buffering=0) as file:
        for call in (os.fsync, os.fdatasync):
            file.write(b"1")
            with calling(call.__name__, *NOT_THERE, errno.EINVAL):
                call(file.fileno())
    expect(contents("file") == b"11", "the file has other contents")


def synced_directory() -> None:
    """fsync(2) of a directory, as it takes for a new name to last. EINVAL: "does not support synchronization"."""
    create("file")
    folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    with calling("fsync", *NOT_THERE, errno.EINVAL):
        os.fsync(folder)
    os.close(folder)
