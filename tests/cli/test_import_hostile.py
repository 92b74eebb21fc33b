"""``storlab import`` of what is no file of text, and where its run can't be written: a sentence, and nothing left."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from storlab.records.run_folder import RunFolder
from study.program import call

PROGRAM = Path(sys.executable).with_name("storlab")
TABLE = b"fs,IOPS\nxfs,1000\n"
COLUMNS = ["--value", "IOPS", "--factor-column", "fs"]
KINDS = {"fio": [], "bonnie": [], "sysbench": [], "csv": ["--value", "IOPS"], "blkalgn": []}


def is_refused(arguments: list[str], says: str, folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    ended = call("import", *arguments, "--out", str(folder / "run"))
    assert ended.status == 2, ended.message
    assert says in ended.message
    assert len(ended.message.strip().splitlines()) == 1
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("text", "says"),
    [
        (gzip.compress(TABLE, mtime=0), "is packed by gzip: unpack it first (gunzip)"),
        (TABLE.decode().encode("utf-16"), "is text in UTF-16, not UTF-8"),
        (b"PK\x03\x04" + bytes(99), "is a ZIP archive, or a workbook of Excel"),
        (b"\x7fELF" + bytes(99), "is a program"),
        (b"", "x is empty"),
        (bytes(1 << 16), "x:"),
        (b"a" * (1 << 22), "x:"),
    ],
)
def test_what_is_no_text_is_named_for_what_it_is(kind: str, text: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(text)
    is_refused([kind, str(path), *KINDS[kind]], says, tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_a_pipe_without_a_writer_is_not_waited_for(kind: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x")
    is_refused([kind, str(tmp_path / "x"), *KINDS[kind]], "x: it is a pipe, not a file", tmp_path)
    is_refused([kind, "/dev/zero", *KINDS[kind]], "/dev/zero: it is a device, not a file", tmp_path)


@pytest.mark.parametrize("change", [lambda text: b"\xef\xbb\xbf" + text, lambda text: text.replace(b"\n", b"\r\n")])
def test_what_windows_adds_does_no_harm(change: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(change(TABLE))
    ended = call("import", "csv", str(path), "--value", "IOPS", "--factor-column", "fs", "--out", str(tmp_path / "run"))
    assert ended.status == 0, ended.message


def killed(folder: Path) -> None:
    """An import to ``run`` in this folder, killed when it has written some of it."""
    path = folder / "many.csv"
    path.write_text("fs,IOPS\n" + "".join(f"{number},{number}\n" for number in range(2000)))
    command = [str(PROGRAM), "import", "csv", str(path), *COLUMNS, "--out", str(folder / "run")]
    before = left(folder)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as started:
        deadline = time.monotonic() + 60
        while not _has_begun(folder, before) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert started.poll() is None, "it ended, or did nothing, before it could be killed"
        started.send_signal(signal.SIGKILL)


def _has_begun(folder: Path, before: list[Path]) -> bool:
    return any((each / "trials" / "0010").exists() for each in left(folder) if each not in before)


def left(folder: Path) -> list[Path]:
    return sorted([*folder.glob(".run.*.new"), *folder.glob("run/.run.*.new")])


def test_nothing_is_at_out_where_an_import_was_killed_and_the_next_one_tidies_up(tmp_path: Path) -> None:
    path, run = tmp_path / "t.csv", tmp_path / "run"
    mine = tmp_path / ".run.mine.new"
    mine.mkdir()
    killed(tmp_path)
    (dead,) = (each for each in left(tmp_path) if each != mine)
    assert not run.exists()
    path.write_bytes(TABLE)
    other = call("import", "csv", str(path), *COLUMNS, "--out", str(tmp_path / "other"))
    assert (other.status, dead.exists()) == (0, True)
    with RunFolder(dead).lock():  # as if it were still at work
        assert call("import", "csv", str(path), *COLUMNS, "--out", str(tmp_path / "run")).status == 0
        assert dead.exists()
    assert json.loads((run / "manifest.json").read_text())["imported"]["kind"] == "csv"
    assert call("import", "csv", str(path), *COLUMNS, "--out", str(run)).status == 2
    assert left(tmp_path) == [mine]


def test_of_an_import_into_an_empty_folder_that_was_killed_nothing_is_at_out_either(tmp_path: Path) -> None:
    path, run = tmp_path / "t.csv", tmp_path / "run"
    run.mkdir()
    killed(tmp_path)
    (dead,) = left(tmp_path)
    assert list(run.iterdir()) == [dead]
    path.write_bytes(TABLE)
    with RunFolder(dead).lock():  # as if it were still at work
        assert call("import", "csv", str(path), *COLUMNS, "--out", str(run)).status == 2
    number = run.stat().st_ino
    imported = call("import", "csv", str(path), *COLUMNS, "--out", str(run))
    assert imported.status == 0, imported.message
    assert (left(tmp_path), run.stat().st_ino) == ([], number)
    assert sorted(each.name for each in run.iterdir()) == ["lock", "manifest.json", "tables", "trials"]


def test_clean_removes_what_a_killed_import_left_and_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    killed(tmp_path)
    (dead,) = left(tmp_path)
    path = tmp_path / "t.csv"
    path.write_bytes(TABLE)
    (tmp_path / "empty").mkdir()
    for name in ("empty", "whole"):
        assert call("import", "csv", str(path), *COLUMNS, "--out", str(tmp_path / name)).status == 0
    with RunFolder(dead).lock():
        assert call("clean", "--yes").output == ""
    cleaned = call("clean", "--yes")
    assert (cleaned.status, cleaned.output) == (0, f"{dead}: removed, because the process that worked in it is gone\n")
    assert left(tmp_path) == []
    assert call("clean", "--yes").output == "No run is known that could have left anything.\n"
    for name in ("empty", "whole"):
        assert (tmp_path / name / "manifest.json").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
@pytest.mark.parametrize("name", ["run", "."])
def test_nothing_is_left_on_a_full_disk(name: str, tmp_path: Path) -> None:
    path, small = tmp_path / "t.csv", tmp_path / "small"
    path.write_text("IOPS\n" + "".join(f"{number}\n" for number in range(500)))
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(small)], check=True)
    try:
        ended = call("import", "csv", str(path), "--value", "IOPS", "--out", str(small / name))
        assert ended.status == 2
        assert ": No space left on device; nothing of it is left" in ended.message
        assert not list(small.iterdir())
    finally:
        subprocess.run(["umount", str(small)], check=True)
