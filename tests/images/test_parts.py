"""Parts of an image: newest packages, modules in order, an initramfs; and a source tree of OpenZFS over a guest."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laboratory.samples import sample
from storlab.base.errors import UserError
from storlab.images import recipe
from storlab.images.cache import Cache
from storlab.images.debian import compare_versions, newest, parse_stanzas, taken_over
from storlab.images.module_tree import (
    BLOCK,
    Modules,
    archive,
    module_name,
    parse_aliases,
    parse_builtin,
    parse_filesystems,
    parse_needs,
    parse_soft,
    read_modules,
)
from storlab.images.zfs_tree import Base, read_tree, tree_parts

SHOWN = sample(__file__, "golden/apt-cache-show.txt")


def test_stanzas_have_their_fields_and_only_what_reaches_a_mirror_is_taken_over_from_the_host() -> None:
    first, second, third, broken = parse_stanzas(SHOWN)
    assert first["Depends"] == "kmod, linux-base (>= 4.3~)"
    assert first["Description"].splitlines()[1] == "The Linux kernel 6.12: and modules"
    assert second["Version"] == "6.12.117-1~deb12u1"
    assert (third["Package"], broken) == ("linux-image-6.12.117+deb12-rt-amd64", {"Package": "broken"})
    dump = sample(__file__, "golden/apt-config-dump.txt")
    kept = taken_over(dump)
    assert "proxy:3128" in kept and "CaInfo" in kept and "Check-Date" in kept
    assert "DEP-11" not in kept and "Languages" not in kept


@pytest.mark.needs("dpkg")
def test_the_newest_kernel_is_a_generic_one_of_the_series_and_not_the_last_by_name() -> None:
    found = newest(parse_stanzas(SHOWN), re.compile(r"linux-image-6\.12\.[\d.]+\+deb12-amd64"))
    assert found is not None and found["Package"] == "linux-image-6.12.117+deb12-amd64"
    assert newest([], recipe.KERNEL) is None
    names = ["linux-image-6.12.90+deb12.1-amd64", "linux-image-6.12.43+deb12-amd64"]
    assert all(recipe.KERNEL.fullmatch(name) for name in names)
    others = ["linux-image-6.12-amd64", "linux-image-6.12.43+deb12-cloud-amd64", "linux-image-6.12.43+deb12-rt-amd64"]
    assert not any(recipe.KERNEL.fullmatch(name) for name in others)


@pytest.mark.needs("dpkg")
def test_versions_are_ordered_as_deb_version_says() -> None:
    for ascending in (
        ("1.0~~", "1.0~", "1.0~rc1", "1.0", "1.0a", "1.0+", "1.1"),
        ("1.9", "1.10", "9", "1:1"),
        ("6.12.57-1~bpo12+1", "6.12.57-1"),
        ("2.3.2-2~bpo12+2", "2.3.2-2"),
    ):
        for older, newer in pairwise(ascending):
            assert compare_versions(older, newer) < 0 < compare_versions(newer, older)


DEP = sample(__file__, "golden/modules.dep")
SOFT = sample(__file__, "golden/modules.softdep")
ALIAS = sample(__file__, "golden/modules.alias")
BUILTIN = "kernel/drivers/virtio/virtio_pci.ko\nkernel/fs/fuse/virtiofs.ko\n\n"
BUILTIN_INFO = b"virtiofs.alias=fs-virtiofs\0virtiofs.author=Stefan\0virtio_pci.alias=pci:v1AF4\0broken\0"


def modules() -> Modules:
    filesystems = parse_filesystems(ALIAS, BUILTIN_INFO)
    return Modules(parse_needs(DEP), parse_builtin(BUILTIN), parse_soft(SOFT), parse_aliases(ALIAS), filesystems)


def test_the_order_has_what_is_needed_first_and_names_are_those_of_lsmod_and_modprobe(tmp_path: Path) -> None:
    assert module_name("kernel/drivers/block/virtio-blk.ko.xz") == "virtio_blk"
    assert {"virtio_pci", "virtiofs", "crc32c_intel", "erofs"} <= modules().names and "crc32c" not in modules().names
    assert modules().filesystems >= {"erofs", "ext3", "ext4", "virtiofs", "tmpfs"}
    assert "pci:v1AF4" not in modules().filesystems and read_modules(tmp_path).names == frozenset()
    names = [module_name(path) for path in modules().load_order(["virtio_pci", "virtio-blk", "erofs", "ext4"])]
    assert names == ["virtio_blk", "crc32c_intel", "crc32c_generic", "libcrc32c", "erofs", "jbd2", "mbcache", "ext4"]
    assert modules().load_order(["virtio_mmio", "virtio_pci"]) == []
    circle = Modules({"a.ko": (), "b.ko": ()}, soft={"a": ("b",), "b": ("a",)})
    assert sorted(circle.load_order(["a"])) == ["a.ko", "b.ko"]


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
def test_each_module_comes_once_and_after_all_it_needs(needs: dict[str, tuple[str, ...]], wanted: list[int]) -> None:
    found = Modules(needs)
    order = found.load_order(f"m{number}" for number in wanted)
    assert len(order) == len(set(order))
    for place, path in enumerate(order):
        assert set(needs[path]) <= set(order[:place])
    asked = [f"k/m{number}.ko" for number in wanted if f"k/m{number}.ko" in needs]
    assert set(order) == found.closure(asked)


NAMES = st.text("abcXYZ._-é", min_size=1, max_size=12).filter(lambda name: name not in (".", ".."))
FILES = st.dictionaries(st.lists(NAMES, min_size=1, max_size=1).map("/".join), st.binary(max_size=700), max_size=6)


def unpacked(data: bytes, folder: Path) -> dict[str, bytes]:
    argv = ["cpio", "--extract", "--make-directories", "--quiet"]
    subprocess.run(argv, input=data, cwd=folder, check=True, capture_output=True)
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.needs("cpio")
@settings(max_examples=25)
@given(FILES)
def test_cpio_unpacks_what_was_packed(files: dict[str, bytes]) -> None:
    in_folder = {f"modules/{name}": data for name, data in files.items()} | {"top": b""}
    with tempfile.TemporaryDirectory() as folder:
        assert unpacked(archive(in_folder), Path(folder)) == in_folder


@pytest.mark.needs("cpio")
def test_folders_and_modes_are_those_of_an_initramfs(tmp_path: Path) -> None:
    data = archive({"bin/tools/init": b"#!", "order": b"a"}, frozenset({"bin/tools/init"}))
    listing = subprocess.run(["cpio", "--list", "--verbose", "--quiet"], input=data, capture_output=True, check=True)
    rows = [line.split() for line in listing.stdout.decode().splitlines()]
    folders = [("drwxr-xr-x", "bin"), ("drwxr-xr-x", "bin/tools")]
    found = [(row[0], row[-1]) for row in rows]
    assert found == [*folders, ("-rwxr-xr-x", "bin/tools/init"), ("-rw-r--r--", "order")]


@given(FILES)
def test_an_archive_is_the_same_whatever_the_order_of_its_files(files: dict[str, bytes]) -> None:
    data = archive(files)
    assert (data, len(data) % BLOCK) == (archive(dict(reversed(list(files.items())))), 0)


GOLDEN = Path(__file__).parent / "golden"
RELEASE = "6.12.117+deb12-amd64"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """One that was configured with the defaults and built, as far as it matters."""
    for line in (GOLDEN / "zfs-tree.txt").read_text().splitlines():
        kind, name, text = line[0], *line[2:].split(":", 1)
        path = tmp_path / "zfs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == ">":
            path.symlink_to(text.strip())
            continue
        path.write_text(text.strip().replace("\\n", "\n").replace("ELF", "\x7fELF"))
        path.chmod(0o755 if kind == "x" else 0o644)
    return tmp_path / "zfs"


def test_what_was_built_lies_where_guests_look_for_it(tree: Path) -> None:
    read = read_tree(tree)
    lines = [f"{target}: {path.relative_to(tree)}\n" for target, path in sorted(read.files.items())]
    assert "".join(lines) == (GOLDEN / "zfs-tree.layer").read_text()
    assert (read.version, sorted(read.modules)) == ("2.3.2-1", ["spl", "zfs"])


@pytest.mark.needs("mkfs.erofs", "fsck.erofs", "depmod", "strip")
def test_it_becomes_two_layers_of_which_only_what_changed_is_packed_again(tree: Path) -> None:
    folder = tree.parent / "base/usr/lib/modules" / RELEASE
    folder.mkdir(parents=True)
    subprocess.run(["mkfs.erofs", "--quiet", tree.parent / "modules.erofs", tree.parent / "base"], check=True)
    for path in {*read_tree(tree).files.values(), *tree.glob("module/*.ko")}:
        if not path.is_symlink() and path.read_bytes().startswith(b"\x7fELF"):
            path.write_bytes(Path("/bin/true").read_bytes() + path.read_bytes())
    cache, base = Cache(tree.parent / "cache"), Base(tree.parent / "modules.erofs", RELEASE)
    modules, rest = tree_parts(cache, read_tree(tree), base)
    subprocess.run(["fsck.erofs", f"--extract={tree.parent}/got", rest.folder / "tree.erofs"], check=True)
    assert (tree.parent / "got/usr/sbin/zfs").read_bytes().startswith(b"\x7fELF") and "zfs" in modules.about.filesystems
    assert (tree.parent / "got/usr/lib/x86_64-linux-gnu/libzfs.so.4").readlink() == Path("libzfs.so.4.2.0")
    (tree / "tests/runfiles/sanity.run").write_text("[DEFAULT]\nquiet = True\n")
    again = tree_parts(cache, read_tree(tree), base)
    assert again[0].name == modules.name and again[1].name != rest.name


@pytest.mark.parametrize(
    ("gone", "says"),
    [
        (["META"], "is no source tree of OpenZFS: it has no META that names zfs"),
        (["scripts/common.sh", "config.status"], "was not configured: run ./autogen.sh && ./configure && make there"),
        (["module/zfs.ko"], "has no module/zfs.ko: run make there; if it was configured with --with-config=user"),
        ([".libs/zpool"], "are not built: run make there, configured without --with-config=kernel"),
        (["scripts/common.sh"], "are not built: run make there"),
        ([], "zfs/arc.c was changed after it was compiled: run make in"),
    ],
)
def test_what_is_no_built_tree_is_refused_with_what_to_do(tree: Path, gone: list[str], says: str) -> None:
    for name in gone:
        (tree / name).unlink()
    if not gone:
        os.utime(tree / "module/zfs/arc.c", (2**32, 2**32))
    with pytest.raises(UserError) as refused:
        read_tree(tree)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("base", "says"),
    [
        (Base(Path("modules.erofs"), "6.17.0"), f"are for Linux {RELEASE}, and guests boot 6.17.0: configure"),
        (Base(Path("modules.erofs"), RELEASE, 33), ".libs/zfs needs glibc 2.34, and guests have 2.33: build the tree"),
    ],
)
def test_a_tree_for_another_kernel_or_c_library_is_refused(tree: Path, base: Base, says: str) -> None:
    with pytest.raises(UserError) as refused:
        tree_parts(Cache(tree.parent / "cache"), read_tree(tree), base)
    assert says in str(refused.value)
