"""Names: rename(2), link(2), symlink(2), readdir(3), and which names there can be."""

from __future__ import annotations

import errno
import os
import socket
import stat

from .outcome import (
    NOT_THERE,
    RENAME_EXCHANGE,
    RENAME_NOREPLACE,
    Unsupported,
    calling,
    contents,
    create,
    expect,
    names_in,
    refused,
    rename_with,
)

_LONGEST = 255  # bytes of a name, NAME_MAX


def rename_over_open() -> None:
    """Whoever has the old file open keeps it; the name leads to the new one."""
    create("old", b"old")
    create("new", b"new")
    with open("old", "rb") as file:
        os.rename("new", "old")
        expect(contents("old") == b"new", "the name does not lead to the new file")
        with calling("read of the replaced file"):
            expect(file.read() == b"old", "the file that was open has other contents")
        with calling("fstat of the replaced file"):
            links = os.fstat(file.fileno()).st_nlink
        expect(links == 0, f"fstat of the replaced file gives {links} links, not 0")
    expect(names_in() == {"old"}, "the other name is still there")


def rename_keeps_inode() -> None:
    """A file is the same after it, in another directory, too, and readdir(3) has the number that stat(2) has."""
    create("a")
    os.mkdir("below")
    before = os.stat("a").st_ino
    os.rename("a", "b")
    expect(os.stat("b").st_ino == before, "the file has another inode number after rename")
    os.rename("b", "below/c")
    after = os.stat("below/c").st_ino
    expect(after == before, "the file has another inode number after rename to another directory")
    with os.scandir("below") as entries:
        listed = [entry.inode() for entry in entries]
    expect(listed == [after], "readdir gives another inode number than stat")


def rename_directory() -> None:
    """Over an empty directory; not over one that isn't, nor into itself."""
    for name in ("a", "b", "c"):
        os.mkdir(name)
    create("a/file")
    create("c/file")
    os.rename("a", "b")
    expect(names_in("b") == {"file"}, "what was in the directory is not there after rename")
    with refused("rename over a directory that is not empty", errno.ENOTEMPTY, errno.EEXIST):
        os.rename("c", "b")
    with refused("rename of a directory into itself", errno.EINVAL):
        os.rename("c", "c/e")
    with refused("rmdir of a directory that is not empty", errno.ENOTEMPTY, errno.EEXIST):
        os.rmdir("c")


def rename_noreplace() -> None:
    """renameat2(2): EINVAL, "The filesystem does not support one of the flags in flags"."""
    create("a", b"a")
    create("b", b"b")
    with calling("renameat2", *NOT_THERE, errno.EINVAL):
        rename_with("a", "c", RENAME_NOREPLACE)
    with refused("renameat2 over a file", errno.EEXIST):
        rename_with("c", "b", RENAME_NOREPLACE)
    expect(contents("b") == b"b" and names_in() == {"b", "c"}, "a refused rename changed something")


def rename_exchange() -> None:
    """The same for a directory and a file, which change places at once."""
    create("a", b"a")
    os.mkdir("b")
    with calling("renameat2", *NOT_THERE, errno.EINVAL):
        rename_with("a", "b", RENAME_EXCHANGE)
    expect(os.path.isdir("a") and contents("b") == b"a", "the two have not changed places")


def hard_link() -> None:
    """link(2): EPERM, "The filesystem … does not support the creation of hard links"."""
    create("a", b"1")
    with calling("link", *NOT_THERE, errno.EPERM):
        os.link("a", "b")
    one, other = os.stat("a"), os.stat("b")
    expect(one.st_ino == other.st_ino, "the two names have different inode numbers")
    expect(one.st_nlink == other.st_nlink == 2, f"there are {one.st_nlink} and {other.st_nlink} links, not 2")
    with open("b", "ab") as file:
        file.write(b"2")
    expect(contents("a") == b"12", "what is written by one name is not read by the other")
    os.unlink("a")
    left = os.stat("b").st_nlink
    expect(left == 1, f"there are {left} links after unlink, not 1")


def symbolic_link() -> None:
    """symlink(2): EPERM, "The filesystem … does not support the creation of symbolic links"."""
    create("file", b"here")
    target = "x" * 1000
    with calling("symlink", *NOT_THERE, errno.EPERM):
        os.symlink("file", "link")
    expect(contents("link") == b"here", "it does not lead to the file")
    expect(stat.S_ISLNK(os.lstat("link").st_mode), "lstat does not give a symbolic link")
    for name, where in (("long", target), ("loop", "loop"), ("nowhere", "none")):
        os.symlink(where, name)
    expect(os.readlink("long") == target, "readlink gives another target")
    with refused("open of a link to itself", errno.ELOOP):
        contents("loop")
    with refused("open of a link to nothing", errno.ENOENT):
        contents("nowhere")


def fifo() -> None:
    """mknod(2): EPERM, "the filesystem … does not support the type of node requested"."""
    with calling("mkfifo", *NOT_THERE, errno.EPERM):
        os.mkfifo("fifo")
    with calling("open"):
        reader = os.open("fifo", os.O_RDONLY | os.O_NONBLOCK)
        writer = os.open("fifo", os.O_WRONLY)
    os.write(writer, b"through")
    expect(os.read(reader, 100) == b"through", "what is written into it does not come out")


def unix_socket() -> None:
    """bind(2) makes a node, as mknod(2)."""
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        with calling("bind", *NOT_THERE, errno.EPERM):
            server.bind("socket")
        server.listen(1)
        with calling("connect"):
            client.connect("socket")


def long_names() -> None:
    """Of 255 bytes, and none longer."""
    longest = os.statvfs(".").f_namemax
    if 0 < longest < _LONGEST:
        raise Unsupported(f"names have {longest} bytes at most")
    name = "n" * _LONGEST
    with calling(f"open of a name of {_LONGEST} bytes"):
        create(name)
    expect(names_in() == {name}, "it is listed by another name")
    with refused(f"open of a name of {_LONGEST + 1} bytes", errno.ENAMETOOLONG):
        create(f"{name}n")


def any_bytes_in_names() -> None:
    """open(2): EINVAL for "characters not permitted by the underlying filesystem"; EILSEQ if it wants UTF-8."""
    name = b"\xff\xfe-\x80 \n\\:*?"
    with calling("open", *NOT_THERE, errno.EINVAL, errno.EILSEQ):
        create(name, b"1")
    expect(names_in(b".") == {name}, "it is listed by another name")
    expect(contents(name) == b"1", "it has other contents")


def upper_and_lower_case() -> None:
    """They differ."""
    create("name", b"1")
    with calling('open of "NAME" beside "name"'):
        create("NAME", b"2")
    expect(names_in() == {"name", "NAME"} and contents("name") == b"1", "names that differ in case are one file")


def removing_while_listing() -> None:
    """readdir(3) gives every entry once, though those that it gave are removed meanwhile."""
    made = {f"{number:03}-{'x' * 120}" for number in range(300)}  # several of the kernel's answers
    for name in made:
        create(name)
    seen = list[str]()
    with os.scandir(".") as entries:
        for entry in entries:
            seen.append(entry.name)
            with calling("unlink of a name that readdir gave"):
                os.unlink(entry.name)
    expect(len(seen) == len(set(seen)), "an entry was listed twice")
    expect(set(seen) == made, f"{len(made - set(seen))} of {len(made)} entries were not listed")
    expect(not names_in(), "an entry that was removed is listed")
