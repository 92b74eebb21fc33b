"""Somebody's own kernel, modules and root file system become an image."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from storlab.errors import MissingImage, UserError
from storlab.images import own
from storlab.images.image import own_image
from storlab.images.module_tree import is_dropped

from .test_modules import ALIAS, BUILTIN, BUILTIN_INFO, DEP
from .test_vmlinux import bzimage, elf


def needs(*programs: str) -> pytest.MarkDecorator:
    missing = [program for program in programs if shutil.which(program, path="/usr/sbin:/usr/bin:/sbin:/bin") is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


pytestmark = needs("mkfs.erofs", "depmod", "zstd")


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
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


def test_a_kernel_without_modules_has_an_empty_order(kernel: Path, root: Path) -> None:
    image = own_image(kernel, rootfs=root)
    assert image.release == "6.99.1-mine" and re.fullmatch(r"own-6\.99\.1-mine-[0-9a-f]{8}", image.name)
    assert image.kernel.read_bytes().startswith(b"\x7fELF")
    assert b"modules/order" in image.initramfs.read_bytes()
    assert len(image.layers) == 1
    assert image.programs == {"fio", "mount", "sh"}
    assert "tmpfs" in image.filesystems
    assert own_image(kernel, rootfs=root) == image


def test_a_changed_root_is_another_image(kernel: Path, root: Path) -> None:
    before = own_image(kernel, rootfs=root)
    (root / "usr/bin/notes").chmod(0o755)
    after = own_image(kernel, rootfs=root)
    assert after.layers != before.layers and after.name != before.name
    assert "notes" in after.programs


def listing(image: Path, folder: str) -> str:
    """What a folder in an EROFS image has."""
    argv = ["dump.erofs", "--ls", f"--path={folder}", str(image)]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def test_modules_become_a_layer_and_an_initramfs(kernel: Path, root: Path, tmp_path: Path) -> None:
    image = own_image(kernel, module_folder(tmp_path), root)
    assert image.release == "6.99.1-mine"
    assert {"virtio_blk", "erofs", "virtio_pci"} <= image.modules
    assert len(image.layers) == 2
    assert b"modules/virtio_blk.ko" in image.initramfs.read_bytes()
    listed = subprocess.run(
        ["dump.erofs", "--ls", "--path=/usr/lib/modules/6.99.1-mine", str(image.layers[1])],
        capture_output=True,
        text=True,
    )
    assert "modules.dep.bin" in listed.stdout, listed.stderr


def test_modules_go_to_lib_where_that_is_no_link(kernel: Path, root: Path, tmp_path: Path) -> None:
    (root / "lib").unlink()
    (root / "lib").mkdir()
    image = own_image(kernel, module_folder(tmp_path), root)
    assert "6.99.1-mine" in listing(image.layers[1], "/lib/modules")


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


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=needs(argv[0])) for kind, argv in MAKERS.items()])
@pytest.mark.parametrize("merged", [True, False])
def test_an_image_of_any_of_three_kinds_can_be_a_root(
    kind: str, merged: bool, kernel: Path, root: Path, tmp_path: Path
) -> None:
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
    assert image.layers == (path,)
    assert {"fio", "mount", "sh"} <= image.programs
    assert own.image_has_merged_usr(path, tmp_path / "log") is merged


def test_mistakes_are_named(kernel: Path, root: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no kernel at"):
        own_image(tmp_path / "vmlinuz", rootfs=root)
    with pytest.raises(UserError, match="is no kernel that a guest can boot: it has no boot header"):
        own_image(root / "usr/bin/fio", rootfs=root)
    with pytest.raises(UserError, match=r"has no modules\.dep.*INSTALL_MOD_PATH"):
        own_image(kernel, tmp_path, root)
    with pytest.raises(UserError, match="there is no root file system at"):
        own_image(kernel, rootfs=tmp_path / "nothing")
    with pytest.raises(UserError, match="holds no file system that a guest can boot from"):
        own_image(kernel, rootfs=kernel)
    with pytest.raises(MissingImage):
        own_image(kernel)
    other = module_folder(tmp_path).rename(tmp_path / "lib/modules/6.1.0")
    with pytest.raises(UserError, match=r"is 6\.99\.1-mine, and can't load the modules of 6\.1\.0"):
        own_image(kernel, other, root)


def test_a_vmlinux_that_qemu_cannot_boot_is_refused(root: Path, tmp_path: Path) -> None:
    (tmp_path / "vmlinux").write_bytes(elf())
    with pytest.raises(UserError, match="without CONFIG_PVH; name its bzImage"):
        own_image(tmp_path / "vmlinux", rootfs=root)


def test_hardware_that_no_guest_has_is_dropped_and_qemus_own_is_kept() -> None:
    assert is_dropped("kernel/drivers/gpu/drm/drm.ko")
    assert is_dropped("kernel/drivers/net/ethernet/broadcom/tg3.ko")
    assert not is_dropped("kernel/drivers/net/ethernet/intel/e1000e/e1000e.ko")
    assert not is_dropped("kernel/drivers/block/nbd.ko")
