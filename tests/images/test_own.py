"""Somebody's own kernel, modules and root become an image; by its types the kernel says what can be traced."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import re
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.base.errors import MissingImage, UserError
from storlab.images import own
from storlab.images.image import find_image, own_image
from storlab.images.module_tree import is_dropped
from storlab.images.vmlinux import NotAKernel, boots_directly, extract, lacks_types, payload, release, types_of
from storlab.nodes.needs import Needs, untraceable

from .test_parts import ALIAS, BUILTIN, BUILTIN_INFO, DEP

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
    heads = ((name, struct.pack("<III", len(name), 4, kind)) for name, kind in notes)
    table = b"".join(head + name + b"\0" * (-len(name) % 4) + b"desc" for name, head in heads)
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


def test_zstd_is_handed_over_an_elf_kernel_left_as_it_is_and_its_release_read() -> None:
    packed = b"\x28\xb5\x2f\xfd and so on"
    assert (extract(bzimage(packed), {packed: elf()}.__getitem__), extract(elf(), no_zstd)) == (elf(), elf())
    assert release(bzimage(gzip.compress(elf()))) == "6.99.1-test"
    assert (release(elf() + b"Linux version 6.1.0-x (root@b) (gcc) #1"), release(elf())) == ("6.1.0-x", "unknown")


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
        (elf((b"Xen\0", 18)), True), (elf((b"GNU\0", 3), (b"Linux\0", 257), (b"Xen\0", 18)), True),
        (elf((b"Xen\0", 6), (b"GNU\0", 18)), False), (elf(), False), (b"\x7fELF\x01\x01", False), (b"", False),
    ],
)  # fmt: skip
def test_qemu_boots_an_elf_kernel_that_has_the_entry_note_of_pvh(kernel: bytes, direct: bool) -> None:
    assert boots_directly(kernel) is direct


@given(st.binary(max_size=300))
def test_damaged_notes_are_no_fault(tail: bytes) -> None:
    boots_directly(elf((b"GNU\0", 3))[:64] + tail)
    boots_directly(elf((b"GNU\0", 3))[:121] + tail)


MAKING = ("mkfs.erofs", "depmod", "zstd")


@pytest.fixture
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def kernel(tmp_path: Path, _cache: None) -> Path:
    path = tmp_path / "bzImage"
    path.write_bytes(bzimage(gzip.compress(elf((b"Xen\0", 18))), text=b"6.99.1-mine (me@here) #1"))
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root file system with two programs, a link to nowhere, and a file that nobody may execute."""
    folder = tmp_path / "root"
    (folder / "usr/bin").mkdir(parents=True)
    (folder / "usr/lib").mkdir()
    (folder / "usr/lib/ld.so").touch()
    (folder / "bin").symlink_to("usr/bin")
    (folder / "lib").symlink_to("usr/lib")
    for name, mode in (("fio", 0o755), ("mount", 0o4755), ("notes", 0o644)):
        (folder / "usr/bin" / name).touch()
        (folder / "usr/bin" / name).chmod(mode)
    (folder / "usr/bin/sh").symlink_to("/usr/bin/elsewhere")
    return folder


def module_folder(folder: Path) -> Path:
    """As `make modules_install` leaves it; the modules are no ELF files, which depmod passes over."""
    release = folder / "lib/modules/6.99.1-mine"
    for line in DEP.splitlines():
        path = release / line.partition(":")[0].removesuffix(".xz")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(elf())
    (release / "modules.dep").write_text(DEP.replace(".xz", ""))
    (release / "modules.alias").write_text(ALIAS)
    (release / "modules.builtin").write_text(BUILTIN)
    (release / "modules.builtin.modinfo").write_bytes(BUILTIN_INFO)
    return release


@pytest.mark.needs(*MAKING)
def test_a_kernel_without_modules_has_an_empty_order_and_a_changed_root_is_another(kernel: Path, root: Path) -> None:
    image = own_image(kernel, rootfs=root)
    assert image.release == "6.99.1-mine" and re.fullmatch(r"own-6\.99\.1-mine-[0-9a-f]{8}", image.name)
    assert image.kernel.read_bytes().startswith(b"\x7fELF") and b"modules/order" in image.initramfs.read_bytes()
    assert len(image.layers) == 1 and image.programs == {"fio", "mount", "sh"} and "tmpfs" in image.filesystems
    assert (before := own_image(kernel, rootfs=root)) == image
    (root / "usr/bin/notes").chmod(0o755)
    after = own_image(kernel, rootfs=root)
    assert after.layers != before.layers and after.name != before.name and "notes" in after.programs


def listing(image: Path, folder: str) -> str:
    argv = ["dump.erofs", "--ls", f"--path={folder}", str(image)]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


@pytest.mark.needs(*MAKING)
def test_modules_become_a_layer_and_go_to_lib_where_that_is_no_link(kernel: Path, root: Path, tmp_path: Path) -> None:
    image = own_image(kernel, module_folder(tmp_path), root)
    assert image.release == "6.99.1-mine" and {"virtio_blk", "erofs", "virtio_pci"} <= image.modules
    assert len(image.layers) == 2 and b"modules/virtio_blk.ko" in image.initramfs.read_bytes()
    assert "modules.dep.bin" in listing(image.layers[1], "/usr/lib/modules/6.99.1-mine")
    (root / "lib").unlink()
    (root / "lib").mkdir()
    image = own_image(kernel, module_folder(tmp_path), root)
    assert "6.99.1-mine" in listing(image.layers[1], "/lib/modules")


@pytest.mark.needs(*MAKING)
def test_the_tree_that_a_kernel_was_built_in_says_what_is_built_in(root: Path, tmp_path: Path, kernel: Path) -> None:
    boot = tmp_path / "linux/arch/x86/boot"
    boot.mkdir(parents=True)
    shutil.copyfile(kernel, boot / "bzImage")
    (tmp_path / "linux/modules.builtin").write_text(BUILTIN)
    (tmp_path / "linux/modules.builtin.modinfo").write_bytes(BUILTIN_INFO)
    image = own_image(boot / "bzImage", rootfs=root)
    assert "virtio_pci" in image.modules and "virtiofs" in image.filesystems


MAKERS = {
    "erofs": ["mkfs.erofs", "--quiet", "{image}", "{folder}"],
    "ext4": ["mkfs.ext4", "-q", "-d", "{folder}", "{image}", "4M"],
    "squashfs": ["mksquashfs", "{folder}", "{image}", "-quiet", "-no-progress"],
}


@pytest.mark.needs(*MAKING)
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.needs(argv[0])) for kind, argv in MAKERS.items()]
)
@pytest.mark.parametrize("merged", [True, False])
def test_images_of_three_kinds_can_be_a_root(kind: str, merged: bool, kernel: Path, root: Path, tmp_path: Path) -> None:
    if not merged:
        (root / "lib").unlink()
        (root / "lib").mkdir()
        (root / "lib/ld.so").touch()
    path = tmp_path / "root.img"
    argv = [word.format(image=path, folder=root) for word in MAKERS[kind]]
    environment = {**os.environ, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    subprocess.run(argv, check=True, capture_output=True, env=environment)
    assert own.kind_of(path) == kind
    image = own_image(kernel, rootfs=path)
    assert image.layers == (path,) and {"fio", "mount", "sh"} <= image.programs
    assert own.image_has_merged_usr(path, tmp_path / "log") is merged


@pytest.mark.needs(*MAKING)
def test_mistakes_are_named(kernel: Path, root: Path, tmp_path: Path) -> None:
    (tmp_path / "vmlinux").write_bytes(elf())
    other = module_folder(tmp_path).rename(tmp_path / "lib/modules/6.1.0")
    for of, said in {
        (tmp_path / "vmlinuz", None, root): "there is no kernel at",
        (root / "usr/bin/fio", None, root): "is no kernel that a guest can boot: it has no boot header",
        (kernel, tmp_path, root): r"has no modules\.dep.*INSTALL_MOD_PATH",
        (kernel, None, tmp_path / "nothing"): "there is no root file system at",
        (kernel, None, kernel): "holds no file system that a guest can boot from",
        (kernel, other, root): r"is 6\.99\.1-mine, and can't load the modules of 6\.1\.0",
        (tmp_path / "vmlinux", None, root): "without CONFIG_PVH; name its bzImage",
    }.items():
        with pytest.raises(UserError, match=said):
            own_image(*of)
    with pytest.raises(MissingImage):
        own_image(kernel)


def test_hardware_that_no_guest_has_is_dropped_and_qemus_own_is_kept() -> None:
    assert is_dropped("kernel/drivers/gpu/drm/drm.ko") and is_dropped("kernel/drivers/net/ethernet/broadcom/tg3.ko")
    assert not is_dropped("kernel/drivers/net/ethernet/intel/e1000e/e1000e.ko")
    assert not is_dropped("kernel/drivers/block/nbd.ko")


BEGIN, END = "btf_trace_contention_begin", "btf_trace_contention_end"


def btf(*names: str) -> bytes:
    """A section of types without any but their names."""
    strings = b"\0" + b"".join(name.encode() + b"\0" for name in names)
    return struct.pack("<HBBIIIII", 0xEB9F, 1, 0, 24, 0, 0, 0, len(strings)) + strings


def of_types(section: bytes | None) -> bytes:
    """A 64-bit ELF file with the names of its sections, and this one."""
    names = b"\0.shstrtab\0.BTF\0"
    body = names + (section or b"")
    rows = [(0, 0, 0, 0), (1, 3, 64, len(names)), (11, 1, 64 + len(names), len(section or b""))]
    table = b"".join(struct.pack("<IIQQQQIIQQ", name, kind, 0, 0, *where, 0, 0, 1, 0) for name, kind, *where in rows)
    sections = 2 if section is None else 3
    head = b"\x7fELF\x02\x01\x01" + b"\0" * 9
    head += struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, 0, 0, 64 + len(body), 0, 64, 0, 0, 64, sections, 1)
    return head + body + table[: 64 * sections]


@pytest.mark.parametrize(
    ("image", "release", "said"),
    [
        (of_types(btf("task_struct", BEGIN, END)), "5.4", ""),
        (of_types(btf("task_struct", "x" + BEGIN, END)), "6.1", "its kernel has no tracepoint contention_begin, which"),
        (of_types(btf("task_struct")), "6.1", "has no tracepoint contention_begin and contention_end, which tracing"),
        (of_types(None), "6.12", "was built without BTF (CONFIG_DEBUG_INFO_BTF), which tracing locks takes"),
        (b"HdrS", "5.18.0-4-amd64", "its kernel is Linux 5.18.0-4-amd64, and tracing locks takes 5.19"),
        (b"HdrS", "6.12.41+deb13", ""),
        (of_types(btf(BEGIN))[:-200], "5.18", "its kernel is Linux 5.18, and tracing locks takes 5.19"),
    ],
)
def test_a_kernel_says_by_its_types_what_can_be_traced(image: bytes, release: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "kernel").write_bytes(image)
    found = untraceable(tmp_path / "kernel", release, Needs(agent=("locks", "profile")))
    assert len(found) == bool(said) and said in "".join(found)
    assert untraceable(tmp_path / "kernel", release, Needs(agent=("profile",))) == []


@given(st.binary(max_size=300), st.integers(0, 300))
def test_a_damaged_kernel_is_not_known_and_nothing_worse(noise: bytes, at: int) -> None:
    whole = of_types(btf(BEGIN, END))
    for damaged in (noise, b"\x7fELF\x02\x01" + noise, whole[:at] + noise, whole[:at] + noise + whole[at:]):
        assert isinstance(types_of(damaged), bytes | None)


@pytest.mark.needs("guests")
def test_debians_kernel_has_what_locks_takes() -> None:
    assert lacks_types(find_image().kernel, (BEGIN, END, "btf_trace_never")) == ("btf_trace_never",)
