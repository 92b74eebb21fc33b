"""Kernel images: the ELF kernel inside a bzImage, and what its types say that it has. Under emulation,
a guest saves seconds by not having to unpack it itself.

Sources: Documentation/arch/x86/boot.rst (the header), include/xen/interface/elfnote.h (the note by which QEMU boots an
ELF kernel directly, "PVH").
"""

from __future__ import annotations

import bz2
import lzma
import re
import struct
import zlib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

ELF_MAGIC = b"\x7fELF"
_SETUP_SECTORS, _HEADER_MAGIC, _PROTOCOL, _VERSION, _PAYLOAD = 0x1F1, 0x202, 0x206, 0x20E, 0x248
_PROTOCOL_WITH_PAYLOAD = 0x0208
_PROGRAM_NOTE = 4  # PT_NOTE
_PHYS32_ENTRY = 18  # XEN_ELFNOTE_PHYS32_ENTRY
_MOST = 1 << 30  # bytes of an unpacked kernel that are believed

Unpack = Callable[[bytes], bytes]


class NotAKernel(ValueError):
    """The bytes are no kernel image that can be read; the message says in what."""


_BANNER = re.compile(rb"Linux version (\S{1,64}) ")


def payload(image: bytes) -> bytes:
    """The packed kernel within a bzImage, without the four bytes of its unpacked size that follow it."""
    if len(image) < _PAYLOAD + 8 or image[_HEADER_MAGIC : _HEADER_MAGIC + 4] != b"HdrS":
        raise NotAKernel("it has no boot header of Linux for x86")
    (protocol,) = struct.unpack_from("<H", image, _PROTOCOL)
    if protocol < _PROTOCOL_WITH_PAYLOAD:
        raise NotAKernel(f"its boot protocol {protocol >> 8}.{protocol & 0xFF:02} is older than 2.08 (Linux 2.6.26)")
    sectors = image[_SETUP_SECTORS] or 4  # 0 means 4, says boot.rst
    offset, length = struct.unpack_from("<II", image, _PAYLOAD)
    begin = (sectors + 1) * 512 + offset
    if length <= 4 or begin + length > len(image):
        raise NotAKernel("it ends before the kernel that its header announces")
    return image[begin : begin + length - 4]


def unpack(packed: bytes, unzstd: Unpack) -> bytes:
    """Whatever of gzip, xz, lzma, bzip2 or zstd it is packed with; ``unzstd`` for what Python can't do before 3.14."""
    ways: dict[bytes, Unpack] = {
        b"\x1f\x8b": lambda data: zlib.decompressobj(wbits=31).decompress(data, _MOST),
        b"\xfd7zXZ\0": lambda data: lzma.LZMADecompressor(lzma.FORMAT_XZ).decompress(data, _MOST),
        b"\x5d\0\0": lambda data: lzma.LZMADecompressor(lzma.FORMAT_ALONE).decompress(data, _MOST),
        b"BZh": lambda data: bz2.BZ2Decompressor().decompress(data, _MOST),
        b"\x28\xb5\x2f\xfd": unzstd,
        ELF_MAGIC: bytes,
    }
    for magic, way in ways.items():
        if packed.startswith(magic):
            try:
                return way(packed)
            except (zlib.error, lzma.LZMAError, OSError, EOFError) as error:
                raise NotAKernel(f"cannot unpack the kernel in it: {error}") from error
    raise NotAKernel(f"the kernel in it is packed in an unknown way (it begins with {packed[:6].hex(' ')})")


def extract(image: bytes, unzstd: Unpack) -> bytes:
    """The ELF kernel of a bzImage, or ``image`` itself where it is one already. Raises ``NotAKernel``."""
    if image.startswith(ELF_MAGIC):
        return image
    kernel = unpack(payload(image), unzstd)
    if not kernel.startswith(ELF_MAGIC):
        raise NotAKernel("what is packed in it is no ELF program")
    return kernel


def release(kernel: bytes) -> str:
    """``uname -r`` of a bzImage, by its header, or of an ELF kernel, by its banner; "unknown" where neither says."""
    if not kernel.startswith(ELF_MAGIC) and len(kernel) >= _PAYLOAD:
        (offset,) = struct.unpack_from("<H", kernel, _VERSION)
        words = kernel[offset + 512 : offset + 512 + 128].partition(b"\0")[0].split()
        return words[0].decode("ascii", "replace") if offset and words else "unknown"
    found = _BANNER.search(kernel)
    return found[1].decode("ascii", "replace") if found else "unknown"


def boots_directly(elf: bytes) -> bool:
    """Whether QEMU can start this ELF kernel without a boot loader: it has the note of CONFIG_PVH."""
    try:
        return any(_has_entry_note(elf[begin:end]) for begin, end in _note_segments(elf))
    except struct.error:
        return False


def _note_segments(elf: bytes) -> list[tuple[int, int]]:
    """Offsets of the program's notes: begin and end. Only 64-bit little-endian ELF, as kernels for x86-64 are."""
    if not elf.startswith(ELF_MAGIC + b"\x02\x01"):
        return []
    (table,) = struct.unpack_from("<Q", elf, 32)
    size, count = struct.unpack_from("<HH", elf, 54)
    segments = []
    for index in range(count):
        kind, _, offset, _, _, length = struct.unpack_from("<IIQQQQ", elf, table + index * size)
        if kind == _PROGRAM_NOTE:
            segments.append((offset, offset + length))
    return segments


def _has_entry_note(notes: bytes) -> bool:
    offset = 0
    while offset + 12 <= len(notes):
        name_size, size, kind = struct.unpack_from("<III", notes, offset)
        name = notes[offset + 12 : offset + 12 + name_size]
        if kind == _PHYS32_ENTRY and name == b"Xen\0":
            return True
        offset += 12 + _padded(name_size) + _padded(size)
    return False


def _padded(size: int) -> int:
    return (size + 3) & ~3


# What a kernel image says of itself in its own types, BTF: which tracepoints and system calls it has.
#
# The kernel is not running, so it can't be asked. Its types are in the section ``.BTF`` of the ELF kernel, which is
# also in what a bzImage has packed; format: Documentation/bpf/btf.rst.

_MAGIC = 0xEB9F
_SECTION = b".BTF"


def types_of(elf: bytes) -> bytes | None:
    """The names of all types and functions, NUL before each; empty where the kernel was built without BTF.

    ``None`` where that is not known, as of an image that is no ELF kernel. What is damaged counts as not known.
    """
    if not elf.startswith(ELF_MAGIC + b"\x02\x01"):
        return None
    try:
        section = _section(elf)
        return section and _strings(section)
    except struct.error:
        return None


@lru_cache(maxsize=32)
def lacks_types(kernel: Path, names: tuple[str, ...]) -> tuple[str, ...] | None:
    """Of these names, those that the BTF of a kernel lacks; "BTF" where it has none. ``None``: not known."""
    found = types_of(kernel.read_bytes())
    if not found:
        return None if found is None else ("BTF",)
    return tuple(name for name in names if b"\0" + name.encode() + b"\0" not in found)


def _section(elf: bytes) -> bytes | None:
    """Its contents; empty where there is none, ``None`` where sections have no names: that may have been cut off."""
    (table,) = struct.unpack_from("<Q", elf, 40)
    size, count, names = struct.unpack_from("<HHH", elf, 58)
    if names >= count or not size:
        return None
    headers = [struct.unpack("<IIQQQQ", elf[at : at + 40]) for at in range(table, table + count * size, size)]
    strings = elf[headers[names][4] : headers[names][4] + headers[names][5]]
    for name, _, _, _, offset, length in headers:
        if strings[name : name + len(_SECTION) + 1] == _SECTION + b"\0":
            return elf[offset : offset + length]
    return b""


def _strings(section: bytes) -> bytes | None:
    magic, _, _, header, _, _, offset, length = struct.unpack_from("<HBBIIIII", section)
    if magic != _MAGIC:
        return None
    strings = section[header + offset : header + offset + length]
    return strings if len(strings) == length else None
