"""What a kernel image says of itself in its own types, BTF: which tracepoints and system calls it has.

The kernel is not running, so it can't be asked. Its types are in the section ``.BTF`` of the ELF kernel, which is also
in what a bzImage has packed; format: Documentation/bpf/btf.rst.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from pathlib import Path

from storlab.images.vmlinux import ELF_MAGIC

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
