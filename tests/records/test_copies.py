"""Copies of files of any size, which survive a power cut."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from storlab.records.files import copy_durably


def refuse(*arguments: Any) -> int:
    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))


@pytest.mark.parametrize("size", [0, 1, 3 * 1024**2 + 5])
@pytest.mark.parametrize("kernel", ["copies", "refuses"])
def test_a_copy_is_whole_whether_the_kernel_makes_it_or_not(
    size: int, kernel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kernel == "refuses":
        monkeypatch.setattr(os, "copy_file_range", refuse)
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(os.urandom(size))
    copy_durably(source, target)
    assert target.read_bytes() == source.read_bytes()


def test_a_file_that_says_it_has_no_length_is_copied_too(tmp_path: Path) -> None:
    copy_durably(Path("/proc/version"), tmp_path / "target")
    assert (tmp_path / "target").read_text() == Path("/proc/version").read_text()


def test_a_full_disk_is_no_reason_to_try_in_another_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "copy_file_range", full)
    (tmp_path / "source").write_bytes(b"x")
    with pytest.raises(OSError, match="No space left"):
        copy_durably(tmp_path / "source", tmp_path / "target")
