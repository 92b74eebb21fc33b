"""What is said of files: modes, owners, times, extended attributes, access control lists."""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Callable

from .outcome import NOT_THERE, Fails, Unsupported, birth_of, calling, contents, create, expect, refused
from .processes import elsewhere

_NOBODY, _OTHER = 65534, 65533
_NS = 1_000_000_000
# linux/posix_acl_xattr.h and posix_acl.h
_ACL_VERSION = 2
_USER_OBJ, _USER, _GROUP_OBJ, _MASK, _REST = 0x01, 0x02, 0x04, 0x10, 0x20
_NO_ID = 0xFFFFFFFF


def modes() -> None:
    """chmod(2), with set-user-ID and sticky bits."""
    create("file")
    os.mkdir("folder")
    for name, mode in (("file", 0o4751), ("file", 0o000), ("file", 0o604), ("folder", 0o1733)):
        with calling(f"chmod {mode:04o}"):
            os.chmod(name, mode)
        found = stat.S_IMODE(os.stat(name).st_mode)
        expect(found == mode, f"chmod {mode:04o} gives {found:04o}")


def owners() -> None:
    """chown(2), which takes root."""
    if os.geteuid() != 0:
        raise Unsupported("only root may look at this")
    create("file")
    with calling("chown"):
        os.chown("file", _NOBODY, _OTHER)
    found = os.stat("file")
    expect((found.st_uid, found.st_gid) == (_NOBODY, _OTHER), f"chown gives {found.st_uid}:{found.st_gid}")


def times() -> None:
    """utimensat(2), to the nanosecond."""
    create("file")
    asked = (1_000_000_000 * _NS + 123_456_789, 1_234_567_890 * _NS + 987_654_321)
    with calling("utimensat", *NOT_THERE):
        os.utime("file", ns=asked)
    found = os.stat("file")
    for name, wanted, has in (("atime", asked[0], found.st_atime_ns), ("mtime", asked[1], found.st_mtime_ns)):
        if has == wanted:
            continue
        unit = next((unit for unit in (100, 1000, 10**6, _NS, 2 * _NS) if has == wanted // unit * unit), 0)
        if unit:
            raise Unsupported(f"{name} is kept in units of {unit} ns")
        raise Fails(f"{name} is {has} ns and was set to {wanted} ns")


def changed_times() -> None:
    """A write sets mtime and ctime, chmod ctime alone."""
    create("file")
    long_ago = 1_000_000_000 * _NS
    os.utime("file", ns=(long_ago, long_ago))
    with open("file", "ab") as file:
        file.write(b"1")
    written = os.stat("file")
    expect(written.st_mtime_ns > long_ago, "a write leaves mtime as it was")
    os.utime("file", ns=(long_ago, long_ago))
    os.chmod("file", 0o600)
    changed = os.stat("file")
    expect(changed.st_mtime_ns == long_ago, "chmod changes mtime")
    expect(changed.st_ctime_ns >= written.st_ctime_ns > long_ago, "chmod leaves ctime as it was")


def birth_time() -> None:
    """statx(2), STATX_BTIME."""
    create("file")
    with calling("statx", errno.ENOSYS):
        first = birth_of("file")
    if first is None:
        raise Unsupported("statx gives no birth time")
    expect(first[0] > 0, "the birth time is 0")
    os.utime("file", ns=(0, 0))
    expect(birth_of("file") == first, "the birth time changes with mtime")


def user_attributes() -> None:
    """user.*: set, get, list, remove. setxattr(2): ENOTSUP, "not supported by the filesystem, or are disabled"."""
    create("file")
    name, value = "user.storlab", b"\x00value\xff" * 40
    with calling("setxattr", *NOT_THERE):
        os.setxattr("file", name, value)
    with calling("getxattr"):
        expect(os.getxattr("file", name) == value, "getxattr gives another value")
    with calling("listxattr"):
        expect(name in os.listxattr("file"), "listxattr does not list it")
    with refused("setxattr(XATTR_CREATE) of one that is there", errno.EEXIST):
        os.setxattr("file", name, b"", os.XATTR_CREATE)
    with calling("removexattr"):
        os.removexattr("file", name)
    with refused("getxattr of a removed one", errno.ENODATA):
        os.getxattr("file", name)


def _acl(user: int, mask: int, owner: int = 7) -> bytes:
    """The owner may all by default, user 65534 what ``user`` has, the group read, others nothing."""
    entries = ((_USER_OBJ, owner, _NO_ID), (_USER, user, _NOBODY), (_GROUP_OBJ, 4, _NO_ID), (_MASK, mask, _NO_ID))
    packed = (struct.pack("<HHI", *entry) for entry in (*entries, (_REST, 0, _NO_ID)))
    return struct.pack("<I", _ACL_VERSION) + b"".join(packed)


def access_list() -> str | None:
    """system.posix_acl_access: kept, seen in the mode, and obeyed."""
    create("file", b"1")
    os.chmod("file", 0o600)
    wanted = _acl(user=6, mask=4)
    with calling("setxattr", *NOT_THERE):
        os.setxattr("file", "system.posix_acl_access", wanted)
    with calling("getxattr"):
        expect(os.getxattr("file", "system.posix_acl_access") == wanted, "another list is read than was set")
    mode = stat.S_IMODE(os.stat("file").st_mode)
    expect(mode == 0o740, f"the mode is {mode:04o} with this list, not 0740")
    if os.geteuid() != 0:
        return "whether it is obeyed, only root may look at"
    with calling("open by the user who may read"):
        elsewhere(_as_user(_NOBODY, lambda: contents("file").decode()))
    with refused("open to write, which the mask forbids", errno.EACCES):
        elsewhere(_as_user(_NOBODY, lambda: os.open("file", os.O_WRONLY)))
    with refused("open by a user who may not", errno.EACCES):
        elsewhere(_as_user(_OTHER, lambda: contents("file").decode()))
    return None


def _as_user(user: int, work: Callable[[], object]) -> Callable[[], object]:
    def become() -> object:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
        return work()

    return become


def default_list() -> None:
    """system.posix_acl_default: what is made in the directory has it."""
    os.mkdir("folder")
    wanted = _acl(user=6, mask=6)
    with calling("setxattr", *NOT_THERE):
        os.setxattr("folder", "system.posix_acl_default", wanted)
    os.close(os.open("folder/file", os.O_CREAT | os.O_WRONLY, 0o660))
    with calling("getxattr of a file made there"):
        found = os.getxattr("folder/file", "system.posix_acl_access")
    # acl(5): owner, mask and others have no more than open(2) asked for, 0660.
    expect(found == _acl(user=6, mask=6, owner=6), "a file that is made there gets another list")
