"""A source tree of OpenZFS is laid over a guest as it lies when it was built, or refused with what to do."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from storlab.errors import UserError
from storlab.images.cache import Cache
from storlab.images.zfs_tree import Base, read_tree, tree_parts

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
        (
            Base(Path("modules.erofs"), "6.17.0"),
            "are for Linux 6.12.117+deb12-amd64, and guests boot 6.17.0: configure",
        ),
        (Base(Path("modules.erofs"), RELEASE, 33), ".libs/zfs needs glibc 2.34, and guests have 2.33: build the tree"),
    ],
)
def test_a_tree_for_another_kernel_or_c_library_is_refused(tree: Path, base: Base, says: str) -> None:
    with pytest.raises(UserError) as refused:
        tree_parts(Cache(tree.parent / "cache"), read_tree(tree), base)
    assert says in str(refused.value)
