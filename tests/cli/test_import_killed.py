"""``storlab import`` that is killed: nothing is where its run was to be, and the next one or ``clean`` tidies up."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from laboratory import wait_until
from storlab.records.run_folder import RunFolder
from study.program import PROGRAM, call

COLUMNS = ["--value", "IOPS"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def killed(folder: Path) -> None:
    """An import to ``run`` in this folder, killed when it has written some of it."""
    path = folder / "many.csv"
    path.write_text("fs,IOPS\n" + "".join(f"{number},{number}\n" for number in range(2000)))
    command = [str(PROGRAM), "import", "csv", str(path), *COLUMNS, "--out", str(folder / "run")]
    before = left(folder)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as started:
        wait_until(lambda: any((each / "trials/0010").exists() for each in left(folder) if each not in before))
        assert started.poll() is None, "it ended, or did nothing, before it could be killed"
        started.send_signal(signal.SIGKILL)


def left(folder: Path) -> list[Path]:
    return sorted([*folder.glob(".run.*.new"), *folder.glob("run/.run.*.new")])


def table_to(out: str) -> int:
    Path("t.csv").write_text("fs,IOPS\nxfs,1000\n")
    return call("import", "csv", "t.csv", *COLUMNS, "--out", out).status


def test_nothing_is_at_out_where_an_import_was_killed_and_the_next_one_tidies_up(tmp_path: Path) -> None:
    mine = tmp_path / ".run.mine.new"
    mine.mkdir()
    killed(tmp_path)
    (dead,) = (each for each in left(tmp_path) if each != mine)
    assert not Path("run").exists()
    assert (table_to("other"), dead.exists()) == (0, True)
    with RunFolder(dead).lock():  # as if it were still at work
        assert (table_to("run"), dead.exists()) == (0, True)
    assert json.loads(Path("run/manifest.json").read_text())["imported"]["kind"] == "csv"
    assert table_to("run") == 2
    assert left(tmp_path) == [mine]


def test_of_an_import_into_an_empty_folder_that_was_killed_nothing_is_at_out_either(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    killed(tmp_path)
    (dead,) = left(tmp_path)
    assert list(run.iterdir()) == [dead]
    with RunFolder(dead).lock():  # as if it were still at work
        assert table_to("run") == 2
    number = run.stat().st_ino
    assert (table_to("run"), left(tmp_path), run.stat().st_ino) == (0, [], number)
    assert sorted(each.name for each in run.iterdir()) == ["lock", "manifest.json", "tables", "trials"]


def test_clean_removes_what_a_killed_import_left_and_no_run(tmp_path: Path) -> None:
    killed(tmp_path)
    (dead,) = left(tmp_path)
    (tmp_path / "empty").mkdir()
    assert [table_to(name) for name in ("empty", "whole")] == [0, 0]
    with RunFolder(dead).lock():
        assert call("clean", "--yes").output == ""
    cleaned = call("clean", "--yes")
    assert (cleaned.status, cleaned.output) == (0, f"{dead}: removed, because the process that worked in it is gone\n")
    assert left(tmp_path) == []
    assert call("clean", "--yes").output == "No run is known that could have left anything.\n"
    assert all(Path(name, "manifest.json").exists() for name in ("empty", "whole"))
