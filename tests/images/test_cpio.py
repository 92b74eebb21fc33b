"""The initramfs is what cpio, and so the kernel, can read."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storlab.images.cpio import BLOCK, archive

needs_cpio = pytest.mark.skipif(shutil.which("cpio") is None, reason="cpio is not installed")
NAMES = st.text("abcXYZ._-é", min_size=1, max_size=12).filter(lambda name: name not in (".", ".."))
FILES = st.dictionaries(st.lists(NAMES, min_size=1, max_size=1).map("/".join), st.binary(max_size=700), max_size=6)


def unpacked(data: bytes, folder: Path) -> dict[str, bytes]:
    subprocess.run(
        ["cpio", "--extract", "--make-directories", "--quiet"], input=data, cwd=folder, check=True, capture_output=True
    )
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@needs_cpio
@settings(max_examples=25, deadline=None)
@given(FILES)
def test_cpio_unpacks_what_was_packed(files: dict[str, bytes]) -> None:
    in_folder = {f"modules/{name}": data for name, data in files.items()} | {"top": b""}
    with tempfile.TemporaryDirectory() as folder:
        assert unpacked(archive(in_folder), Path(folder)) == in_folder


@needs_cpio
def test_folders_and_modes_are_those_of_an_initramfs(tmp_path: Path) -> None:
    data = archive({"bin/tools/init": b"#!", "order": b"a"}, frozenset({"bin/tools/init"}))
    listing = subprocess.run(["cpio", "--list", "--verbose", "--quiet"], input=data, capture_output=True, check=True)
    rows = [line.split() for line in listing.stdout.decode().splitlines()]
    assert [(row[0], row[-1]) for row in rows] == [
        ("drwxr-xr-x", "bin"),
        ("drwxr-xr-x", "bin/tools"),
        ("-rwxr-xr-x", "bin/tools/init"),
        ("-rw-r--r--", "order"),
    ]


@given(FILES)
def test_an_archive_is_the_same_whatever_the_order_of_its_files(files: dict[str, bytes]) -> None:
    data = archive(files)
    assert data == archive(dict(reversed(list(files.items()))))
    assert len(data) % BLOCK == 0
