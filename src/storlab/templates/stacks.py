"""The stack and the factor of a study from answers, as values of TOML."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from storlab.templates.answers import Answers

Row = tuple[str, ...]
"""A key, its value, and perhaps a comment."""

_MKFS, _MOUNT = '{ layer = "mkfs", type = "ext4" }', '{ layer = "mount" }'
_VIRTIO = '{ layer = "virtio-blk" }'
_FILE = '{ layer = "file", size = "{disk}", allocate = "preallocated" }'
_HOLDER = ('{ layer = "mkfs", type = "xfs" }', _MOUNT)
"""What makes a directory of a disk, for images or folders."""

_LEVELS: Mapping[str, tuple[str, tuple[Row, ...]]] = {
    "file-systems": (
        "fs",
        tuple((name, f'{{ layer = "mkfs", type = "{name}" }}') for name in ("ext4", "xfs", "btrfs")),
    ),
    "safety": (
        "mode",
        (
            ("buffered", "{ direct = 0, fsync = 0 }", "through the page cache: fast, and lost in a power cut"),
            ("direct", "{ direct = 1, fsync = 0 }", "past the page cache"),
            ("synchronous", "{ direct = 0, fsync = 1 }", "each write is safe before the next"),
        ),
    ),
    "queue-depths": ("iodepth", (("levels", "[1, 2, 4, 8, 16, 32, 64]"),)),
    "block-sizes": ("bs", (("levels", '["4k", "16k", "64k", "256k", "1M"]'),)),
    "databases": (
        "server",
        tuple(
            (name, f'{{ layer = "{name}", data = {{ tables = "{{tables}}", rows = "{{rows}}" }} }}')
            for name in ("mariadb", "postgresql")
        ),
    ),
    "vm-disks": (
        "image",
        (
            ("raw", _FILE, "all blocks reserved"),
            ("sparse", '{ layer = "file", size = "{disk}" }', "blocks are allocated on first write"),
            ("qcow2", '{ layer = "qcow2", size = "{disk}" }'),
        ),
    ),
    "shared-folders": (
        "protocol",
        (("virtiofs", '[{ layer = "virtiofsd" }, { layer = "virtiofs" }]'), ("9p", '[{ layer = "9p" }]')),
    ),
    "network-disks": (
        "transport",
        (
            ("nbd", '[{ layer = "nbd-export" }, { layer = "nbd" }]', "the server's layer, and the client's"),
            ("iscsi", '[{ layer = "iscsi-target" }, { layer = "iscsi" }]'),
            ("nvme", '[{ layer = "nvme-target" }, { layer = "nvme-tcp" }]'),
        ),
    ),
}


@dataclass(frozen=True)
class Place:
    """``stack``: the layers of the node that carries the load. ``server``: those of another one that it continues."""

    stack: tuple[str, ...]
    server: tuple[str, ...] = ()


def factor_of(answers: Answers) -> tuple[str, tuple[Row, ...]] | None:
    """The factor's name and levels; ``None`` where nothing is compared."""
    return _LEVELS.get(answers.compare)


def place_of(answers: Answers) -> Place:
    """Where the load works: the layers, the lowest first."""
    server = ('"{server}"',) if answers.compare == "databases" else ()
    if answers.compare == "vm-disks":
        return Place((*_folder(answers), '"{image}"', _VIRTIO, _MKFS, _MOUNT))
    if answers.compare == "shared-folders":
        return Place((*(_folder(answers) or ('{ layer = "directory" }',)), '"{protocol}"'))
    if answers.compare == "network-disks":
        return Place(('"{transport}"', _MKFS, _MOUNT), server=_disk(answers))
    if answers.compare == "file-systems":
        return Place((*_disk(answers), '"{fs}"', _MOUNT))
    if answers.target == "directory" and not answers.guests:
        return Place((_directory(answers), *server))
    return Place((*_disk(answers), *(() if _is_raw(answers) else (_MKFS, _MOUNT)), *server))


def has_file(answers: Answers) -> bool:
    """Whether a file is the disk, and has the size that was answered."""
    place = place_of(answers)
    return answers.compare == "vm-disks" or _FILE in (*place.stack, *place.server)


def _is_raw(answers: Answers) -> bool:
    """Whether the load works on the disk itself: what a device can do is not what a file system on it can."""
    in_files = answers.load in ("small-files", "log") or answers.compare in ("databases", "safety")
    return answers.target == "device" and not answers.guests and not in_files


def _disk(answers: Answers) -> tuple[str, ...]:
    """Layers that give a disk on the node that carries the load, or serves it."""
    if not answers.guests:
        folder = (_directory(answers),) if answers.target == "directory" else ()
        return (_device(answers),) if answers.target == "device" else (*folder, _FILE, '{ layer = "loop" }')
    if answers.target == "device" and answers.guests == 1:
        return (_device(answers), _VIRTIO)
    return (*_folder(answers), _FILE, _VIRTIO)


def _folder(answers: Answers) -> tuple[str, ...]:
    """Layers that give a directory of this machine; none for the scratch folder, where files lie by default."""
    if answers.target == "device":
        return (_device(answers), *_HOLDER)
    return (_directory(answers),) if answers.target == "directory" else ()


def _directory(answers: Answers) -> str:
    return f'{{ layer = "directory", path = {quoted(answers.path)} }}'


def _device(answers: Answers) -> str:
    wipe = f", wipe = {quoted(answers.wipe)}" if answers.wipe else ""
    return f'{{ layer = "device", path = {quoted(answers.path)}{wipe} }}'


def quoted(path: str) -> str:
    """A TOML string that means this very path in a study, where braces are words to be filled in."""
    return json.dumps(path.replace("{", "{{").replace("}", "}}"), ensure_ascii=False)
