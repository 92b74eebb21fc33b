"""Signatures as other software writes them: just enough of each for blkid to know it."""

from __future__ import annotations

import struct
import subprocess
import uuid
import zlib
from collections.abc import Callable
from pathlib import Path


def _ext4(device: str) -> None:
    subprocess.run(["mkfs.ext4", "-q", device], check=True)


def _swap(device: str) -> None:
    subprocess.run(["mkswap", device], check=True, capture_output=True)


def write_dos(device: str) -> None:
    """A partition table with two partitions of 20 MiB, from 1 MiB on."""
    entries = b"".join(
        struct.pack("<B3sB3sII", 0, b"\x00" * 3, 0x83, b"\x00" * 3, start, 40960) for start in (2048, 2048 + 40960)
    )
    _write(device, {440: b"\x01\x02\x03\x04", 446: entries, 510: b"\x55\xaa"})


def _gpt(device: str) -> None:
    """UEFI specification 2.10, 5.3: protective MBR, header, 128 empty entries."""
    last = int(subprocess.run(["blockdev", "--getsz", device], check=True, capture_output=True).stdout) - 1
    entries = bytes(128 * 128)
    fields = (b"EFI PART", 0x10000, 92, 0, 0, 1, last, 34, last - 33, uuid.uuid4().bytes_le, 2, 128, 128)
    header = struct.pack("<8sIIIIQQQQ16sQII", *fields) + struct.pack("<I", zlib.crc32(entries))
    header = header[:16] + struct.pack("<I", zlib.crc32(header)) + header[20:]
    protective = struct.pack("<B3sB3sII", 0, b"\x00\x02\x00", 0xEE, b"\xff" * 3, 1, last)
    _write(device, {446: protective, 510: b"\x55\xaa", 512: header, 1024: entries})


def _lvm(device: str) -> None:
    """The label of a physical volume, see lib/label/label.h of LVM2."""
    body = struct.pack("<I8s32s", 32, b"LVM2 001", b"0123456789abcdef0123456789abcdef") + bytes(512 - 20 - 44)
    label = b"LABELONE" + struct.pack("<QI", 1, _lvm_checksum(body)) + body
    _write(device, {512: label})


def _lvm_checksum(data: bytes) -> int:
    """calc_crc of lib/misc/crc.c: CRC-32 without its last inversion, from a seed of LVM's own."""
    return zlib.crc32(data, 0xF597A6CF ^ 0xFFFFFFFF) ^ 0xFFFFFFFF


def _zfs(device: str) -> None:
    """Uberblocks, of which blkid wants at least four, see libblkid/src/superblocks/zfs.c."""
    uberblock = struct.pack("<QQ", 0x00BAB10C, 5000)
    _write(device, {128 * 1024 + number * 1024: uberblock for number in range(32)})


def _write(device: str, parts: dict[int, bytes]) -> None:
    with Path(device).open("r+b") as file:
        for at, data in parts.items():
            file.seek(at)
            file.write(data)


WRITE: dict[str, Callable[[str], None]] = {
    "ext4": _ext4,
    "swap": _swap,
    "dos": write_dos,
    "gpt": _gpt,
    "LVM2_member": _lvm,
    "zfs_member": _zfs,
}
"""The type that blkid gives it → what writes it onto a device."""
