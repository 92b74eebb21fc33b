"""Somebody's own root file system, looked into without mounting it: which programs it has, and where its modules go.

EROFS, ext2/3/4 and squashfs images by the tools that make them; a folder as it stands.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from storlab.errors import ImageError, MissingTool, UserError
from storlab.images import commands

Kind = Literal["erofs", "ext4", "squashfs"]
PATH_FOLDERS = ("usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin", "sbin", "bin")

# Offset and bytes of magic numbers: include/uapi/linux/magic.h and the file systems' headers.
_MAGIC: dict[Kind, tuple[int, bytes]] = {
    "erofs": (1024, b"\xe2\xe1\xf5\xe0"),
    "ext4": (1024 + 56, b"\x53\xef"),
    "squashfs": (0, b"hsqs"),
}
_TOOLS: dict[Kind, tuple[str, str]] = {
    "erofs": ("dump.erofs", "erofs-utils"),
    "ext4": ("debugfs", "e2fsprogs"),
    "squashfs": ("unsquashfs", "squashfs-tools"),
}


def kind_of(image: Path) -> Kind:
    """Which file system an image holds. Raises ``UserError`` where it is none that guests can have as their root."""
    with image.open("rb") as file:
        head = file.read(2048)
    for kind, (offset, magic) in _MAGIC.items():
        if head[offset : offset + len(magic)] == magic:
            return kind
    raise UserError(f"{image} holds no file system that a guest can boot from; there are: {', '.join(_MAGIC)}")


def programs_in_folder(root: Path) -> frozenset[str]:
    """Names of files on its PATH that somebody may execute. A link counts, wherever it leads."""
    found: set[str] = set()
    for name in PATH_FOLDERS:
        try:
            entries = list(os.scandir(_inside(root, name)))
        except OSError:
            continue
        found |= {entry.name for entry in entries if entry.is_symlink() or _is_executable(entry)}
    return frozenset(found)


def has_merged_usr(root: Path) -> bool:
    """Whether its /lib is a link to /usr/lib, as it is in most distributions by now."""
    return (root / "lib").is_symlink()


def programs_in_image(image: Path, log: Path) -> frozenset[str]:
    """As ``programs_in_folder``, but for what is executable: an image's tools tell names only."""
    list_folder, parse = _LISTERS[_readable(image)]
    found: set[str] = set()
    for name in PATH_FOLDERS:
        found |= set(parse(_ask(list_folder(image, name), log), name))
    return frozenset(found - {".", ".."})


def image_has_merged_usr(image: Path, log: Path) -> bool:
    """As ``has_merged_usr``."""
    list_folder, parse = _LISTERS[_readable(image)]
    # A link has no entries of its own; /lib as a folder has at least the loader.
    return not parse(_ask(list_folder(image, "lib"), log), "lib")


def _readable(image: Path) -> Kind:
    kind = kind_of(image)
    program, package = _TOOLS[kind]
    if commands.find(program) is None:
        raise MissingTool(f"{image} can't be looked into without {program}; apt-get install {package}")
    return kind


def _ask(argv: list[str], log: Path) -> str:
    """Its output; nothing where it has no such folder, which each of these programs says in its own way."""
    try:
        return commands.run(argv, log).decode(errors="replace")
    except ImageError:
        return ""


def parse_dump_erofs(text: str, folder: str) -> list[str]:
    """``dump.erofs --ls``: ``NID TYPE FILENAME`` below a heading; types 1 and 7 are files and links (dirent.h)."""
    return re.findall(r"^\s*\d+\s+[17]\s+(\S.*)$", text, re.MULTILINE)


def parse_debugfs(text: str, folder: str) -> list[str]:
    """``debugfs -R 'ls -p …'``: ``/inode/mode/uid/gid/name/size/``."""
    rows = (line.split("/") for line in text.splitlines() if line.startswith("/"))
    return [row[5] for row in rows if len(row) >= 7 and row[2].startswith(("10", "12"))]


def parse_unsquashfs(text: str, folder: str) -> list[str]:
    """``unsquashfs -l``: one path a line, the folder that was asked for and those above it among them."""
    begin = f"squashfs-root/{folder}/"
    names = [line.removeprefix(begin) for line in text.splitlines() if line.startswith(begin)]
    return [name for name in names if "/" not in name]


_LISTERS: dict[Kind, tuple[Callable[[Path, str], list[str]], Callable[[str, str], list[str]]]] = {
    "erofs": (lambda image, name: ["dump.erofs", "--ls", f"--path=/{name}", str(image)], parse_dump_erofs),
    "ext4": (lambda image, name: ["debugfs", "-R", f"ls -p /{name}", str(image)], parse_debugfs),
    "squashfs": (lambda image, name: ["unsquashfs", "-l", "-max-depth", "4", str(image), name], parse_unsquashfs),
}


def _inside(root: Path, name: str) -> Path:
    """A folder below ``root``, with the links that lead to it understood as they are in the guest."""
    for depth in range(1, len(Path(name).parts) + 1):
        part = root.joinpath(*Path(name).parts[:depth])
        if part.is_symlink():
            target = part.readlink()
            base = root / target.relative_to("/") if target.is_absolute() else part.parent / target
            return base.joinpath(*Path(name).parts[depth:])
    return root / name


def _is_executable(entry: os.DirEntry[str]) -> bool:
    return entry.is_file(follow_symlinks=False) and bool(entry.stat(follow_symlinks=False).st_mode & 0o111)
