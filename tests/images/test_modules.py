"""Modules are loaded after what they need, and none that nobody wanted."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from storlab.images.module_tree import (
    Modules,
    module_name,
    parse_aliases,
    parse_builtin,
    parse_filesystems,
    parse_needs,
    parse_soft,
    read_modules,
)

DEP = """kernel/fs/erofs/erofs.ko: kernel/lib/libcrc32c.ko
kernel/fs/ext4/ext4.ko.xz: kernel/fs/mbcache.ko.xz kernel/fs/jbd2/jbd2.ko.xz
kernel/fs/jbd2/jbd2.ko.xz:
kernel/fs/mbcache.ko.xz:
kernel/lib/libcrc32c.ko:
kernel/crypto/crc32c_generic.ko:
kernel/arch/x86/crypto/crc32c-intel.ko:
kernel/drivers/block/virtio_blk.ko:
"""
SOFT = """# Soft dependencies extracted from modules themselves.
softdep libcrc32c pre: crc32c
softdep ext4 pre: crypto-crc32c post: something
softdep broken
"""
ALIAS = """# Aliases extracted from modules themselves.
alias crc32c crc32c_intel
alias cpu:type:x86,ven*fam*mod*:feature:*0094* crc32c_intel
alias crc32c crc32c_generic
alias crypto-crc32c crc32c_generic
alias fs-erofs erofs
alias fs-ext3 ext4
alias fs-ext4 ext4
"""
BUILTIN = "kernel/drivers/virtio/virtio_pci.ko\nkernel/fs/fuse/virtiofs.ko\n\n"
BUILTIN_INFO = b"virtiofs.alias=fs-virtiofs\0virtiofs.author=Stefan\0virtio_pci.alias=pci:v1AF4\0broken\0"


def modules() -> Modules:
    return Modules(
        parse_needs(DEP),
        parse_builtin(BUILTIN),
        parse_soft(SOFT),
        parse_aliases(ALIAS),
        parse_filesystems(ALIAS, BUILTIN_INFO),
    )


def test_a_module_is_named_as_lsmod_names_it() -> None:
    assert module_name("kernel/drivers/block/virtio-blk.ko.xz") == "virtio_blk"


def test_the_order_has_what_is_needed_first_and_aliases_by_all_their_modules() -> None:
    names = [module_name(path) for path in modules().load_order(["virtio_pci", "virtio-blk", "erofs", "ext4"])]
    assert names == [
        "virtio_blk",
        "crc32c_intel",
        "crc32c_generic",
        "libcrc32c",
        "erofs",
        "jbd2",
        "mbcache",
        "ext4",
    ]


def test_a_module_that_the_kernel_does_not_have_is_left_out() -> None:
    assert modules().load_order(["virtio_mmio", "virtio_pci"]) == []


def test_names_are_those_that_modprobe_finds() -> None:
    assert {"virtio_pci", "virtiofs", "crc32c_intel", "erofs"} <= modules().names
    assert "crc32c" not in modules().names


def test_file_systems_are_those_of_modules_and_those_built_in() -> None:
    assert modules().filesystems >= {"erofs", "ext3", "ext4", "virtiofs", "tmpfs"}
    assert "pci:v1AF4" not in modules().filesystems


def test_modules_that_want_each_other_come_to_an_end() -> None:
    circle = Modules({"a.ko": (), "b.ko": ()}, soft={"a": ("b",), "b": ("a",)})
    assert sorted(circle.load_order(["a"])) == ["a.ko", "b.ko"]


def test_a_folder_without_an_index_has_no_modules(tmp_path: Path) -> None:
    assert read_modules(tmp_path).names == frozenset()


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, tuple[str, ...]]:
    """Modules by number, each with all that it needs, transitively, as depmod writes it: what is needed first, last."""
    size = draw(st.integers(1, 12))
    direct = [draw(st.sets(st.integers(0, number - 1))) if number else set() for number in range(size)]
    needs: list[set[int]] = []
    for own in direct:
        needs.append(own.union(*(needs[number] for number in own)))
    return {f"k/m{i}.ko": tuple(f"k/m{j}.ko" for j in sorted(needs[i], reverse=True)) for i in range(size)}


@given(graphs(), st.lists(st.integers(0, 14), max_size=6))
def test_every_module_comes_once_and_after_all_that_it_needs(
    needs: dict[str, tuple[str, ...]], wanted: list[int]
) -> None:
    found = Modules(needs)
    order = found.load_order(f"m{number}" for number in wanted)
    assert len(order) == len(set(order))
    for place, path in enumerate(order):
        assert set(needs[path]) <= set(order[:place])
    asked = [f"k/m{number}.ko" for number in wanted if f"k/m{number}.ko" in needs]
    assert set(order) == found.closure(asked)


@given(st.text(), st.binary())
def test_any_text_is_read_without_a_fault(text: str, info: bytes) -> None:
    parse_needs(text), parse_builtin(text), parse_soft(text), parse_aliases(text), parse_filesystems(text, info)
