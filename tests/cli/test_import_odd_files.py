"""``storlab import`` of files that are odd in every way: names, encodings, links, permissions, copies, numbers."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from storlab import open_run
from storlab.records.files import copy_durably
from study.program import call

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "imports"
PROGRAM = Path(sys.executable).with_name("storlab")
COLUMNS = ["--value", "read bw::higher", "--factor-column", "file system", "--round-column", "run"]
KINDS: dict[str, tuple[Path, list[str]]] = {
    "fio": (EXAMPLES / "fio.json", []),
    "sysbench": (EXAMPLES / "sysbench-sync.txt", []),
    "bonnie": (EXAMPLES / "bonnie.txt", []),
    "blkalgn": (EXAMPLES / "blkalgn-4k.json", []),
    "csv": (EXAMPLES / "table.csv", COLUMNS),
}
FOLDERS = ("fio", "virtiofs-tests")
Change = Callable[[bytes], bytes]


def imports(kind: str, path: Path | str, out: Path, *more: str) -> str:
    """What was said of a file that could be imported, and its run reported."""
    ran = call("import", kind, str(path), *KINDS[kind][1], *more, "--out", str(out))
    assert ran.status == 0, ran.message
    report = call("report", str(out))
    assert report.status == 0, report.message
    return ran.output + ran.message


def refused(kind: str, *words: str | Path) -> str:
    """The one sentence with which something is refused."""
    ran = call("import", kind, *map(str, words), *KINDS[kind][1])
    assert ran.status == 2, ran.message
    (said,) = ran.message.strip().splitlines()
    assert said.startswith("storlab: ")
    return said


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "change",
    [lambda text: b"\xef\xbb\xbf" + text, lambda text: text.replace(b"\n", b"\r\n")],
    ids=["a byte order mark", "ends of lines of Windows"],
)
def test_what_editors_add_changes_nothing(kind: str, change: Change, tmp_path: Path) -> None:
    plain, _ = KINDS[kind]
    path = tmp_path / plain.name
    path.write_bytes(change(plain.read_bytes()))
    imports(kind, path, tmp_path / "run")
    imports(kind, plain, tmp_path / "other")
    one, other = open_run(tmp_path / "run"), open_run(tmp_path / "other")
    assert one.metrics.equals(other.metrics)
    layers = [json.loads((run.path / "trials/0001/trial.json").read_text())["facts"] for run in (one, other)]
    assert [{**each["imported"][0], "file": ""} for each in layers] == [{**layers[1]["imported"][0], "file": ""}] * 2


NAMES = [
    "a b\nc.x",
    "[red]x[bold].x",
    "-x",
    os.fsdecode(b"\xff\xfe.x"),
    "\x1b[31m\u202e.x",
    "💾" * 60,
    "%s{}$HOME.x",
]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_may_have_any_name(kind: str, name: str, tmp_path: Path) -> None:
    shutil.copy(KINDS[kind][0], tmp_path / name)
    said = imports(kind, tmp_path / name, tmp_path / "run")
    assert "\x1b" not in said
    assert not any("\ud800" <= sign <= "\udfff" for sign in said)


def test_marks_of_the_terminal_s_language_are_shown_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("file system,run,read bw (MiB/s)\n[red]x[/red],1,5\n[/],1,6\n")
    imports("csv", path, tmp_path / "run", "--factor", "who=[bold]me[/bold]")
    text = call("report", str(tmp_path / "run")).output
    assert "[red]x[/red]" in text
    assert "[/]" in text
    assert "[bold]me[/bold]" in text


@pytest.mark.parametrize("kind", KINDS)
def test_utf_16_is_known_though_it_does_not_say_so(kind: str, tmp_path: Path) -> None:
    text = KINDS[kind][0].read_text()
    for encoding, name in (("utf-16-le", "UTF-16LE"), ("utf-16-be", "UTF-16BE")):
        (tmp_path / "x").write_bytes(text.encode(encoding))
        assert f"x is text in UTF-16, not UTF-8: convert it first (iconv -f {name} -t UTF-8)" in refused(kind, "x")


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_file_is_named_for_what_it_is(kind: str, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "gone").symlink_to("nowhere")
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    listening = socket.socket(socket.AF_UNIX)
    listening.bind("socket")
    listening.close()
    folder = "folder: there is no file in it" if kind in FOLDERS else "folder: Is a directory"
    for name, says in (
        ("loop", "loop: Too many levels of symbolic links"),
        ("gone", "gone: No such file or directory"),
        ("folder", folder),
        ("file/x", "file/x: Not a directory"),
        ("socket", "socket: it is a socket, not a file"),
        ("x" * 300, ": File name too long"),
        ("/proc/self/mem", "/proc/self/mem: Input/output error"),
    ):
        assert says in refused(kind, name)


@pytest.mark.parametrize("kind", KINDS)
def test_an_out_that_can_not_be_a_run_is_refused(kind: str, tmp_path: Path) -> None:
    path = KINDS[kind][0]
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    (tmp_path / "gone").symlink_to("no/where")
    for out, says in (
        ("file", "file can't be used for the run: Not a directory"),
        ("file/run", "file/run can't be used for the run: Not a directory"),
        ("full", "full is not empty: name a new folder for this run"),
        ("", ". is not empty: name a new folder for this run"),
        ("/", "/ is not empty: name a new folder for this run"),
        ("/proc/run", "/proc/run can't be used for the run: No such file or directory"),
    ):
        assert says in refused(kind, path, "--out", out)
    assert (tmp_path / "file").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "full", "gone"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_is_given_twice_is_no_repeat(kind: str, tmp_path: Path) -> None:
    path = KINDS[kind][0]
    copy = tmp_path / "copy"
    os.link(shutil.copy(path, tmp_path / "first"), copy)
    alike = ["--label", "a", "--label", "a"]
    for files in (("first", "first"), ("first", "copy")):
        assert "are identical: a copy is not a repeat; leave one out" in refused(kind, *files, *alike)
    assert not (tmp_path / "runs").exists()


def test_a_folder_and_a_file_in_it_are_no_repeats_either(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    shutil.copy(KINDS["fio"][0], tmp_path / "results" / "a.json")
    said = refused("fio", "results", "results/a.json")
    assert "results/a.json and results/a.json are identical" in said


def test_of_a_folder_neither_links_nor_runs_of_storlab_are_followed(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    (folder / "below").mkdir(parents=True)
    shutil.copy(KINDS["fio"][0], folder / "below" / "a.json")
    (folder / "below" / "up").symlink_to("..")
    (folder / "self").symlink_to("self")
    (folder / "gone").symlink_to("nowhere")
    os.mkfifo(folder / "pipe")
    for name in ("first", "second"):  # the second time, the first run lies there
        said = imports("fio", folder, folder / name)
        assert "4 trials of 2 cells" in said
        assert "were not read" not in said


@pytest.mark.skipif(os.geteuid() != 0, reason="takes from root what lets it read everything")
def test_what_may_not_be_read_is_named(tmp_path: Path) -> None:
    for name in ("a.json", "results/b.json", "results/closed/c.json", "closed/d.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        shutil.copy(KINDS["fio"][0], tmp_path / name)
    (tmp_path / "results" / "b.json").chmod(0)
    as_anybody = ["setpriv", "--inh-caps=-all", "--bounding-set=-dac_override,-dac_read_search", str(PROGRAM)]

    def said(*words: str) -> str:
        argv = [*as_anybody, "import", "fio", *words, "--out", "run"]
        ended = subprocess.run(argv, capture_output=True, text=True, timeout=60)
        assert (ended.returncode, len(ended.stderr.splitlines())) == (2, 1), ended.stderr
        return ended.stderr

    assert "results/b.json: Permission denied" in said("results")
    assert "results/b.json: Permission denied" in said("results/b.json")
    (tmp_path / "results" / "b.json").chmod(0o600)
    (tmp_path / "results" / "closed").chmod(0)
    assert "results/closed: Permission denied" in said("results")
    tmp_path.joinpath("closed").chmod(0)
    assert "closed/d.json: Permission denied" in said("closed/d.json")
    assert "closed: Permission denied" in said("closed")
    (tmp_path / "readonly").mkdir(mode=0o500)
    argv = [*as_anybody, "import", "fio", "a.json", "--out", "readonly/run"]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, "readonly/run can't be used for the run: Permission denied" in ended.stderr) == (2, True)


@pytest.fixture
def with_log(tmp_path: Path) -> Path:
    load = ["fio", "--name=x", "--ioengine=null", "--size=1M", "--rw=write", "--write_lat_log=x"]
    argv = [*load, "--output-format=json", "--output=x.json"]
    subprocess.run(argv, cwd=tmp_path, check=True, capture_output=True, timeout=60)
    return tmp_path / "x_clat.1.log"


def test_a_log_that_goes_away_before_it_is_read_is_named(with_log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(path: Path) -> bool:
        path.unlink()
        return False

    monkeypatch.setattr("storlab.importing.fio.beside.is_cut", gone)
    assert "x_clat.1.log: No such file or directory" in refused("fio", "x.json", "--out", "run")
    assert not Path("run").exists()


def test_a_log_that_goes_away_before_it_is_copied_is_named(with_log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(source: Path, target: Path) -> None:
        source.unlink()
        copy_durably(source, target)

    monkeypatch.setattr("storlab.records.imported.copy_durably", gone)
    said = refused("fio", "x.json", "--out", "run")
    assert "x_clat.1.log: No such file or directory; nothing was imported" in said
    assert sorted(path.name for path in with_log.parent.iterdir() if "run" in path.name) == []


NUMBERS = ["1e999", "-1e999", "inf", "9" * 400, "0x10", "1_000", "9 00", "1,5", "five"]


@pytest.mark.parametrize("number", NUMBERS)
def test_what_is_no_number_is_refused_with_line_and_column(number: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f'file system,run,read bw (MiB/s)\nxfs,1,"{number}"\n')
    said = refused("csv", "t.csv")
    assert 't.csv:2: column "read bw (MiB/s)":' in said
    assert len(said) < 250


@pytest.mark.parametrize("number", ["1e999", "nan", "-5", "9" * 400, "null", "true", "18446744073709551616"])
def test_fio_s_numbers_are_read_or_refused_by_line(number: str, tmp_path: Path) -> None:
    text = KINDS["fio"][0].read_text()
    at = text.index('"io_bytes" : ') + len('"io_bytes" : ')
    end = text.index(",", at)
    (tmp_path / "x.json").write_text(text[:at] + number + text[end:])
    ran = call("import", "fio", "x.json", "--out", "run")
    assert ran.status in (0, 2)
    assert "fault" not in ran.message
    if ran.status == 0:
        assert "is left out" in ran.message
        values = open_run(tmp_path / "run").metrics["value"]
        assert values.is_finite().all()
        assert values.min() >= 0  # type: ignore[operator]
    else:
        assert "x.json" in ran.message


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("file system,run,read bw (MiB/s)\n", "t.csv: has no row with a number in it"),
        ("file system,run,read bw (MiB/s)", "t.csv: has no row with a number in it"),
        ("file system,run,read bw (MiB/s)\nxfs,1\n", "t.csv:2: "),
        ("file system,run,read bw (MiB/s)\nxfs,1,2,3\n", "t.csv:2: "),
        ("file system,run,read bw (MiB/s)\nxfs,0,2\n", "t.csv:2: "),
        ("file system,run,read bw (MiB/s)\nxfs,99999999999999999999,2\n", "t.csv:2: "),
        ("file system,run,read bw (MiB/s)\nxfs,1,4\x00\n", "t.csv:2: "),
        ("file system,run,read bw (MiB/s)\n" + "x" * (1 << 20) + ",1,2\n", "t.csv:2: "),
        ("\n" * 99, "t.csv:1: "),
    ],
)
def test_a_table_that_is_none_is_refused_by_its_line(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(text)
    assert says in refused("csv", "t.csv")


@pytest.mark.parametrize("kind", ["fio", "blkalgn"])
@pytest.mark.parametrize(
    "text",
    ["[" * 200_000, '{"fio version":"fio-3.33","jobs":' + "[" * 200_000, '{"a":' * 100_000, "[1]", "3", "null", '""'],
    ids=range(7),
)
def test_json_that_is_deep_or_bare_is_refused(kind: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(text)
    assert "x.json" in refused(kind, "x.json")


def test_a_run_whose_files_have_any_names_is_read_again(tmp_path: Path) -> None:
    name = os.fsdecode(b"\xff[red].json")
    shutil.copy(KINDS["fio"][0], tmp_path / name)
    imports("fio", tmp_path / name, tmp_path / "run")
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["imported"]["files"][0]["name"].endswith("\\xff[red].json")
    assert open_run(tmp_path / "run").trials.filter(pl.col("status") == "done").height == 4
