"""Where ``report`` and ``compare`` write to, and folders that are no runs: one sentence, and nothing half written."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

import pytest

from laboratory import needs_root
from study.program import call


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """``old`` and ``new``, each imported from a file of its own, in the folder in which commands run."""
    monkeypatch.chdir(tmp_path)
    for name, rate in (("old", 1000), ("new", 1100)):
        Path(f"{name}.csv").write_text(f"rate\n{rate}\n")
        assert call("import", "csv", f"{name}.csv", "--value", "rate", "--label", name, "--out", name).status == 0
    return tmp_path


COMMANDS = [("report", "old", "--format", "md", "-o"), ("compare", "old", "new", "--by", "file", "-o")]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("nowhere/x", "storlab: cannot write nowhere/x: No such file or directory"),
        ("new", "storlab: cannot write new: Is a directory"),
        ("old.csv/x", "storlab: cannot write old.csv/x: Not a directory"),
        ("/proc/x", "storlab: cannot write /proc/x: "),
    ],
)
def test_where_nothing_can_be_written_is_the_users_mistake(
    runs: Path, command: tuple[str, ...], place: str, says: str
) -> None:
    before = sorted(runs.rglob("*"))
    ran = call(*command, place)
    assert (ran.status, ran.output) == (2, "")
    assert ran.message.startswith(says)
    assert ran.message.count("\n") == 1
    assert sorted(runs.rglob("*")) == before


@pytest.mark.parametrize("command", COMMANDS)
@needs_root
def test_a_full_disk_leaves_the_old_report_and_no_half_of_a_new_one(runs: Path, command: tuple[str, ...]) -> None:
    disk = runs / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k", "none", disk], check=True)
    try:
        (disk / "report").write_text("the old one")
        (disk / "rest").write_bytes(b"x" * 4096)
        ran = call(*command, str(disk / "report"))
        assert ran.status == 2
        assert ran.message == f"storlab: cannot write {disk}/report: No space left on device\n"
        assert (disk / "report").read_text() == "the old one"
        assert sorted(path.name for path in disk.iterdir()) == ["report", "rest"]
    finally:
        subprocess.run(["umount", disk], check=True)


@needs_root
def test_a_run_on_a_full_disk_keeps_its_old_page_and_the_new_one_may_go_elsewhere(runs: Path) -> None:
    disk = runs / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", disk], check=True)
    try:
        subprocess.run(["cp", "-r", "old", disk / "run"], check=True)
        (disk / "run" / "report.html").write_text("the old page")
        fill(disk / "rest")
        ran = call("report", "disk/run", "--format", "html")
        assert ran.status == 2
        assert ran.message.startswith("storlab: cannot write disk/run: No space left on device; `--output FILE`")
        assert (disk / "run" / "report.html").read_text() == "the old page"
        assert not (disk / "run" / "charts").exists()
        assert call("report", "disk/run", "--format", "html", "--output", "page.html").status == 0
        assert "</html>" in Path("page.html").read_text()
    finally:
        subprocess.run(["umount", disk], check=True)


def fill(file: Path) -> None:
    """Take all the space that there is."""
    with contextlib.suppress(OSError), file.open("wb", buffering=0) as out:
        while True:
            out.write(b"x" * 4096)


def test_a_link_stays_a_link_and_a_device_a_device(runs: Path) -> None:
    (runs / "link").symlink_to("real")
    assert call("report", "old", "-o", "link").status == 0
    assert (runs / "link").is_symlink()
    assert "Imported" in (runs / "real").read_text()
    assert call("report", "old", "-o", "/dev/null").status == 0
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize("words", [("report", "old.csv"), ("compare", "old", "old.csv"), ("resume", "old.csv")])
def test_a_file_in_the_place_of_a_run_is_called_one(runs: Path, words: tuple[str, ...]) -> None:
    ran = call(*words)
    assert (ran.status, ran.message) == (2, "storlab: old.csv is a file, not the folder of a run\n")
