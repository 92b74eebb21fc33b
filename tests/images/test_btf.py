"""Which tracepoints a kernel has that is not running, by its own types."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.images.btf import lacks_types, types_of
from storlab.images.image import find_image
from storlab.nodes.needs import Needs, untraceable

BEGIN, END = "btf_trace_contention_begin", "btf_trace_contention_end"


def btf(*names: str) -> bytes:
    """A section of types without any but their names."""
    strings = b"\0" + b"".join(name.encode() + b"\0" for name in names)
    return struct.pack("<HBBIIIII", 0xEB9F, 1, 0, 24, 0, 0, 0, len(strings)) + strings


def kernel(section: bytes | None) -> bytes:
    """A 64-bit ELF file with the names of its sections, and this one."""
    names = b"\0.shstrtab\0.BTF\0"
    body = names + (section or b"")
    rows = [(0, 0, 0, 0), (1, 3, 64, len(names)), (11, 1, 64 + len(names), len(section or b""))]
    table = b"".join(
        struct.pack("<IIQQQQIIQQ", name, kind, 0, 0, offset, length, 0, 0, 1, 0) for name, kind, offset, length in rows
    )
    sections = 2 if section is None else 3
    head = b"\x7fELF\x02\x01\x01" + b"\0" * 9
    head += struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, 0, 0, 64 + len(body), 0, 64, 0, 0, 64, sections, 1)
    return head + body + table[: 64 * sections]


@pytest.mark.parametrize(
    ("image", "release", "said"),
    [
        (kernel(btf("task_struct", BEGIN, END)), "5.4", ""),
        (kernel(btf("task_struct", "x" + BEGIN, END)), "6.1", "its kernel has no tracepoint contention_begin, which"),
        (kernel(btf("task_struct")), "6.1", "has no tracepoint contention_begin and contention_end, which tracing"),
        (kernel(None), "6.12", "was built without BTF (CONFIG_DEBUG_INFO_BTF), which tracing locks takes"),
        (b"HdrS", "5.18.0-4-amd64", "its kernel is Linux 5.18.0-4-amd64, and tracing locks takes 5.19"),
        (b"HdrS", "6.12.41+deb13", ""),
        (kernel(btf(BEGIN))[:-200], "5.18", "its kernel is Linux 5.18, and tracing locks takes 5.19"),
    ],
)
def test_a_kernel_that_is_not_running_says_by_its_types_what_can_be_traced(
    image: bytes, release: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / "kernel").write_bytes(image)
    found = untraceable(tmp_path / "kernel", release, Needs(agent=("locks", "profile")))
    assert len(found) == bool(said) and said in "".join(found)
    assert untraceable(tmp_path / "kernel", release, Needs(agent=("profile",))) == []


@given(st.binary(max_size=300), st.integers(0, 300))
def test_a_damaged_kernel_is_not_known_and_nothing_worse(noise: bytes, at: int) -> None:
    whole = kernel(btf(BEGIN, END))
    for damaged in (noise, b"\x7fELF\x02\x01" + noise, whole[:at] + noise, whole[:at] + noise + whole[at:]):
        assert isinstance(types_of(damaged), bytes | None)


@pytest.mark.needs("guests")
def test_debians_kernel_has_what_locks_takes() -> None:
    assert lacks_types(find_image().kernel, (BEGIN, END, "btf_trace_never")) == ("btf_trace_never",)
