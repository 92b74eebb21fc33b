"""A kernel is got out of its bzImage, or the reason is named why not."""

from __future__ import annotations

import bz2
import gzip
import lzma
import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.images.vmlinux import NotAKernel, boots_directly, extract, payload, release

SECTORS = 3


def bzimage(packed: bytes, *, protocol: int = 0x020F, text: bytes = b"6.99.1-test (me@here) #1 SMP") -> bytes:
    """A boot sector and ``SECTORS`` of set-up, then the payload, as Documentation/arch/x86/boot.rst has it."""
    head = bytearray((SECTORS + 1) * 512)
    head[0x1F1] = SECTORS
    head[0x202:0x206] = b"HdrS"
    struct.pack_into("<H", head, 0x206, protocol)
    struct.pack_into("<H", head, 0x20E, 0x300 - 512 + 512)
    head[0x500 : 0x500 + len(text) + 1] = text + b"\0"
    loader = b"\x90" * 64
    struct.pack_into("<II", head, 0x248, len(loader), len(packed) + 4)
    return bytes(head) + loader + packed + b"size" + b"rest of the image"


def elf(*notes: tuple[bytes, int]) -> bytes:
    """A 64-bit ELF file with one program header of notes."""
    table = b"".join(
        struct.pack("<III", len(name), 4, kind) + name + b"\0" * (-len(name) % 4) + b"desc" for name, kind in notes
    )
    head = b"\x7fELF\x02\x01\x01" + b"\0" * 9
    head += struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, 0, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    return head + struct.pack("<IIQQQQQQ", 4, 0, 120, 0, 0, len(table), len(table), 4) + table


def no_zstd(data: bytes) -> bytes:
    raise AssertionError("nothing here is packed with zstd")


@pytest.mark.parametrize(
    "pack",
    [gzip.compress, lzma.compress, lambda data: lzma.compress(data, lzma.FORMAT_ALONE), bz2.compress, bytes],
    ids=["gzip", "xz", "lzma", "bzip2", "not packed"],
)
def test_a_kernel_comes_out_of_its_bzimage_as_it_went_in(pack: Callable[[bytes], bytes]) -> None:
    kernel = elf((b"Xen\0", 18)) + bytes(range(256)) * 50
    assert extract(bzimage(pack(kernel)), no_zstd) == kernel


def test_zstd_is_handed_over() -> None:
    packed = b"\x28\xb5\x2f\xfd and so on"
    assert extract(bzimage(packed), {packed: elf()}.__getitem__) == elf()


def test_an_elf_kernel_is_left_as_it_is() -> None:
    assert extract(elf(), no_zstd) == elf()


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        (b"", "no boot header"),
        (b"MZ" * 600, "no boot header"),
        (bzimage(gzip.compress(elf(), mtime=0), protocol=0x0203), "older than 2.08"),
        (bzimage(gzip.compress(elf(), mtime=0))[:2100], "it ends before the kernel"),
        (bzimage(b"LZ4?" * 20), "unknown way (it begins with 4c 5a 34 3f"),
        (bzimage(gzip.compress(b"no program", mtime=0)), "no ELF program"),
        (bzimage(b"\x1f\x8b" + b"\xff" * 50), "cannot unpack"),
    ],
)
def test_what_is_no_kernel_is_refused_with_the_reason(image: bytes, reason: str) -> None:
    with pytest.raises(NotAKernel) as caught:
        extract(image, no_zstd)
    assert reason in str(caught.value)


@given(st.binary(max_size=3000), st.integers(0, 2047), st.binary(min_size=1, max_size=16))
def test_a_damaged_image_is_refused_and_nothing_worse(noise: bytes, at: int, written: bytes) -> None:
    whole = bytearray(bzimage(gzip.compress(elf((b"Xen\0", 18)))))
    whole[at : at + len(written)] = written
    for image in (noise, bytes(whole)):
        try:
            payload(image)
            extract(image, lambda data: data)
        except NotAKernel:
            pass
        release(image)


@pytest.mark.parametrize(
    ("kernel", "direct"),
    [
        (elf((b"Xen\0", 18)), True),
        (elf((b"GNU\0", 3), (b"Linux\0", 257), (b"Xen\0", 18)), True),
        (elf((b"Xen\0", 6), (b"GNU\0", 18)), False),
        (elf(), False),
        (b"\x7fELF\x01\x01", False),
        (b"", False),
    ],
)
def test_qemu_boots_an_elf_kernel_that_has_the_entry_note_of_pvh(kernel: bytes, direct: bool) -> None:
    assert boots_directly(kernel) is direct


@given(st.binary(max_size=300))
def test_damaged_notes_are_no_fault(tail: bytes) -> None:
    boots_directly(elf((b"GNU\0", 3))[:64] + tail)
    boots_directly(elf((b"GNU\0", 3))[:121] + tail)


def test_the_release_is_read_from_the_header_or_the_banner() -> None:
    assert release(bzimage(gzip.compress(elf()))) == "6.99.1-test"
    assert release(elf() + b"Linux version 6.1.0-x (root@b) (gcc) #1") == "6.1.0-x"
    assert release(elf()) == "unknown"
