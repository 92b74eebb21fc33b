"""Files: open(2) and its flags, what stays of one whose name is gone, mmap(2), holes, copies, locks."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import struct
from collections.abc import Callable

from .outcome import (
    FALLOC_FL_KEEP_SIZE,
    FALLOC_FL_PUNCH_HOLE,
    FALLOC_FL_ZERO_RANGE,
    NOT_THERE,
    Fails,
    Unsupported,
    allocate,
    calling,
    contents,
    create,
    expect,
    link_open,
    name_of,
    names_in,
    refused,
)
from .processes import elsewhere, is_done, meanwhile, result, started, together

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
    buffer = mmap.mmap(-1, _BLOCK)  # aligned to a page
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


_PAGE = mmap.PAGESIZE
# mmap(2): ENODEV, "does not support memory mapping". For an aligned offset and a length above 0, EINVAL can only be the
# file system's: Linux has it for those that map files to read alone (generic_file_readonly_mmap).
_NOT_MAPPED = (errno.ENODEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)


def _mapped(flags: int, protection: int) -> mmap.mmap:
    create("file", b"0" * (2 * _PAGE))
    return _map("file", 2 * _PAGE, flags, protection)


def map_shared(name: str, length: int) -> mmap.mmap:
    """A file that is there, to read and write. Raises ``Unsupported`` if it can't be mapped so."""
    return _map(name, length, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)


def _map(name: str, length: int, flags: int, protection: int) -> mmap.mmap:
    with open(name, "r+b") as file:
        try:
            return mmap.mmap(file.fileno(), length, flags, protection)
        except OSError as error:
            kind = Unsupported if error.errno in _NOT_MAPPED else Fails
            raise kind(f"mmap: {name_of(error)}") from None


def _shared() -> mmap.mmap:
    return _mapped(mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)


def _pread(at: int) -> str:
    """As text, for it comes from another process."""
    file = os.open("file", os.O_RDONLY)
    return os.pread(file, 1, at).decode(errors="replace")


def private() -> None:
    """MAP_PRIVATE: to read; what is stored stays with the process."""
    mapped = _mapped(mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
    expect(mapped[_PAGE : _PAGE + 1] == b"0", "the mapping has other contents than the file")
    mapped[:1] = b"1"
    expect(contents("file")[:1] == b"0", "what is stored in a private mapping is in the file")


def shared_writing() -> None:
    """MAP_SHARED to write: what is stored is in the file after msync(2) and munmap(2)."""
    mapped = _shared()
    mapped[_PAGE : _PAGE + 1] = b"1"
    with calling("msync"):
        mapped.flush()
    mapped.close()
    found = contents("file")
    expect(found == b"0" * _PAGE + b"1" + b"0" * (_PAGE - 1), "the file has other contents than were stored")


def stored_then_read() -> None:
    """What is stored in a shared mapping is at once what another process reads."""
    mapped = _shared()
    expect(elsewhere(lambda: _pread(1)) == "0", "read gives other contents than the file had")
    mapped[1:2] = b"1"
    expect(elsewhere(lambda: _pread(1)) == "1", "read in another process does not give what was stored")


def written_then_loaded() -> None:
    """What another process writes is at once in a shared mapping."""
    mapped = _shared()
    expect(mapped[1:2] == b"0", "the mapping has other contents than the file")

    def write() -> None:
        file = os.open("file", os.O_WRONLY)
        os.pwrite(file, b"1", 1)

    elsewhere(write)
    expect(mapped[1:2] == b"1", "the mapping does not have what another process wrote")


_FAR = 5 * 2**30


def truncated() -> None:
    """What a file is made longer by is zero, even if it was shorter before."""
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


_MOMENT = 0.05  # s
_BUSY = (errno.EAGAIN, errno.EACCES)


def record_locks() -> None:
    """F_SETLK: of ranges, gone with their process. EINVAL: "fildes refers to a file that does not support locking"."""
    create("file", b"x" * 100)

    def lock(start: int) -> Callable[[], None]:
        def take() -> None:
            file = os.open("file", os.O_RDWR)
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, start)

        return take

    with calling("fcntl(F_SETLK)", *NOT_THERE, errno.EINVAL), meanwhile(lock(0)):
        with refused("F_SETLK of what another process has locked", *_BUSY):
            elsewhere(lock(5))
        with calling("F_SETLK of another range"):
            elsewhere(lock(10))
    with calling("F_SETLK after the other process has ended"):
        elsewhere(lock(0))


def whole_file_locks() -> None:
    """flock(2): shared ones go together, exclusive ones don't."""
    create("file")

    def lock(how: int) -> Callable[[], None]:
        return lambda: fcntl.flock(os.open("file", os.O_RDWR), how | fcntl.LOCK_NB)

    with calling("flock", *NOT_THERE), meanwhile(lock(fcntl.LOCK_SH)):
        with calling("flock(LOCK_SH) beside another"):
            elsewhere(lock(fcntl.LOCK_SH))
        with refused("flock(LOCK_EX) beside LOCK_SH", *_BUSY):
            elsewhere(lock(fcntl.LOCK_EX))
    with calling("flock after the other process has ended"):
        elsewhere(lock(fcntl.LOCK_EX))


def open_file_locks() -> None:
    """F_OFD_SETLK: of an open file, so they outlast the closing of another. EINVAL: "cmd … not recognized"."""
    create("file", b"x" * 100)
    wanted = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 10, 0)
    one, other = (os.open("file", os.O_RDWR) for _ in range(2))
    with calling("fcntl(F_OFD_SETLK)", *NOT_THERE, errno.EINVAL):
        fcntl.fcntl(one, fcntl.F_OFD_SETLK, wanted)
    os.close(os.open("file", os.O_RDWR))
    with refused("F_OFD_SETLK by another open file", *_BUSY):
        fcntl.fcntl(other, fcntl.F_OFD_SETLK, wanted)
    os.close(one)
    with calling("F_OFD_SETLK after the other was closed"):
        fcntl.fcntl(other, fcntl.F_OFD_SETLK, wanted)


def waiting_for_a_lock() -> None:
    """F_SETLKW waits until the lock is free, and no longer."""
    create("file", b"x")

    def lock() -> None:
        fcntl.lockf(os.open("file", os.O_RDWR), fcntl.LOCK_EX)

    with calling("fcntl(F_SETLKW)", *NOT_THERE, errno.EINVAL), meanwhile(lock):
        child, reader = started(lock)
        expect(not is_done(reader, _MOMENT), "F_SETLKW does not wait for what another process has locked")
    with calling("fcntl(F_SETLKW)"):
        result(child, reader)
