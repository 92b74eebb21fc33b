"""``storlab import`` of odd files, and where no run can be: names, encodings, links, permissions, copies, kills.

What is refused is refused in one sentence, and nothing is left; nor is what a killed import leaves a run. What parsers
make of hostile text is for ``importing/`` and ``attacks/test_parsers.py``.
"""

import gzip
import json
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import polars as pl
import pytest

from laboratory import nothing_known, wait_until
from laboratory.devices import tmpfs
from laboratory.samples import sample
from storlab import open_run
from storlab.records.files import copy_durably
from storlab.records.run_folder import RunFolder
from study.program import PROGRAM, call

TESTS = Path(__file__).parent.parent
GOLDEN = TESTS / "importing" / "golden"
EXAMPLES = TESTS.parent / "examples" / "imports"
OLTP = GOLDEN / "sysbench-oltp.txt"
KINDS: dict[str, tuple[Path, list[str]]] = {
    "fio": (EXAMPLES / "fio.json", []),
    "sysbench": (EXAMPLES / "sysbench-sync.txt", []),
    "bonnie": (EXAMPLES / "bonnie.txt", []),
    "blkalgn": (EXAMPLES / "blkalgn-4k.json", []),
    "csv": (
        EXAMPLES / "table.csv",
        ["--value", "read bw::higher", "--factor-column", "file system", "--round-column", "run"],
    ),
}
TABLE = b"fs,IOPS\nxfs,1000\n"

pytestmark = pytest.mark.usefixtures("here")


def imports(kind: str, path: Path | str, out: str = "run", *more: str) -> str:
    """What was said of a file that could be imported."""
    ran = call("import", kind, str(path), *KINDS[kind][1], *more, "--out", out)
    assert ran.status == 0, ran.message
    return ran.output + ran.message


def refused(*words: str | Path) -> str:
    """The one sentence with which something is refused that leaves nothing behind."""
    before = sorted(Path.cwd().iterdir())
    ran = call("import", *map(str, words))
    assert ran.status == 2, ran.message
    assert sorted(Path.cwd().iterdir()) == before
    (said,) = ran.message.strip().splitlines()
    assert said.startswith("storlab: ")
    return said


@pytest.mark.parametrize(
    ("arguments", "says"), [line.split("\t") for line in sample(__file__, "cases/import-refused.txt").splitlines()]
)
def test_a_mistake_has_status_2_and_leaves_nothing(arguments: str, says: str, tmp_path: Path) -> None:
    for name in ("sysbench-sync.txt", "fio.json", "table.csv"):
        shutil.copy(EXAMPLES / name, name)
    shutil.copy(OLTP, "oltp")
    Path("good.json").write_text('{"disks": {"vda": {"granularity": {"4608": 9}, "alignment": {"4096": 9}}}}')
    Path("bad.json").write_text("{")
    Path("empty.json").write_text("{}")
    Path("rubbish").write_bytes(bytes(range(256)) * 99)
    Path("t.csv").write_text("a,b\n1,2\n3,x\n")
    both = ("sysbench-rate.txt", "pgbench-rate.txt")
    Path("both").write_bytes(b"".join((GOLDEN / name).read_bytes() for name in both))
    Path("prose").write_text("Dear all,\nthe disk is slow.\n")
    Path("nothing").touch()
    Path("x_lat.1.log").write_text("1, 2, 0, 4096, 0, 0\n" * 3)
    Path("folder").mkdir()
    shutil.copy(EXAMPLES / "sysbench-sync.txt", "folder")
    before = sorted(tmp_path.iterdir())
    ran = call("import", *arguments.split(" "))
    assert (ran.status, "Traceback" in ran.message) == (2, False), ran.message
    assert says in ran.message
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("kind", "text", "says"),
    [
        ("fio", gzip.compress(TABLE, mtime=0), "x is packed by gzip: unpack it first (gunzip)"),
        ("csv", TABLE.decode().encode("utf-16"), "x is text in UTF-16, not UTF-8"),
        ("fio", TABLE.decode().encode("utf-16-le"), "not UTF-8: convert it first (iconv -f UTF-16LE"),
        ("bonnie", TABLE.decode().encode("utf-16-be"), "(iconv -f UTF-16BE -t UTF-8)"),
        ("bonnie", b"PK\x03\x04" + bytes(99), "x is a ZIP archive, or a workbook of Excel"),
        ("sysbench", b"\x7fELF" + bytes(99), "x is a program"),
        ("blkalgn", b"", "x is empty"),
        ("csv", bytes(1 << 16), "x:"),
        ("sysbench", b"a" * (1 << 22), "x:"),
        ("fio", b"[" * 200_000, "x"),
        ("blkalgn", b'{"a":' * 100_000, "x"),
        ("fio", b"null", "x"),
        ("csv", b"file system,run,read bw (MiB/s)\nxfs,-1,2\n", "x:2: "),
        ("csv", b"file system,run,read bw (MiB/s)\nxfs,99999999999999999999,2\n", "x:2: "),
        ("csv", b"file system,run,read bw (MiB/s)\nxfs,1,4\0\n", "x:2: "),
        ("csv", b"file system,run,read bw (MiB/s)\n" + b"x" * (1 << 20) + b",1,2\n", "x:2: "),
        ("csv", b'file system,run,read bw (MiB/s)\nxfs,1,"1e999"\n', 'x:2: column "read bw (MiB/s)":'),
        ("csv", b"file system,run,read bw (MiB/s)\nxfs,1," + b"9" * 400 + b"\n", 'x:2: column "read bw (MiB/s)":'),
    ],
    ids=range(18),
)
def test_what_is_no_result_is_named_for_what_it_is(kind: str, text: bytes, says: str) -> None:
    Path("x").write_bytes(text)
    said = refused(kind, "x", *KINDS[kind][1])
    assert says in said and len(said) < 250


@pytest.mark.parametrize("kind", ["fio", "csv"])
def test_what_is_no_file_is_named_for_what_it_is_and_a_pipe_without_a_writer_not_waited_for(kind: str) -> None:
    for name, target in (("loop", "loop"), ("gone", "nowhere")):
        Path(name).symlink_to(target)
    Path("folder").mkdir()
    Path("file").touch()
    os.mkfifo("pipe")
    listening = socket.socket(socket.AF_UNIX)
    listening.bind("socket")
    listening.close()
    for name, says in (
        ("loop", "loop: Too many levels of symbolic links"),
        ("gone", "gone: No such file or directory"),
        ("folder", "folder: there is no file in it"),
        ("file/x", "file/x: Not a directory"),
        ("pipe", "pipe: it is a pipe, not a file"),
        ("socket", "socket: it is a socket, not a file"),
        ("/dev/zero", "/dev/zero: it is a device, not a file"),
        ("x" * 300, ": File name too long"),
        ("/proc/self/mem", "/proc/self/mem: Input/output error"),
    ):
        assert says in refused(kind, name, *KINDS[kind][1])


@pytest.mark.parametrize("kind", KINDS)
def test_what_editors_add_changes_nothing(kind: str) -> None:
    plain, _ = KINDS[kind]
    Path(plain.name).write_bytes(b"\xef\xbb\xbf" + plain.read_bytes().replace(b"\n", b"\r\n"))
    imports(kind, plain.name)
    imports(kind, plain, "other")
    one, other = open_run("run"), open_run("other")
    assert one.metrics.equals(other.metrics)
    facts = [json.loads((run.path / "trials/0001/trial.json").read_text())["facts"] for run in (one, other)]
    assert [{**each["imported"][0], "file": ""} for each in facts] == [{**facts[1]["imported"][0], "file": ""}] * 2


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("csv", "a b\nc.x"), ("bonnie", "[red]x[bold].x"), ("sysbench", "-x"),
        ("fio", os.fsdecode(b"\xff\xfe[red].x")), ("blkalgn", "\x1b[31m\u202e.x"), ("csv", "💾" * 60),
        ("sysbench", "%s{}$HOME.x"),
    ],
    ids=range(7),
)  # fmt: skip
def test_a_file_may_have_any_name_and_its_run_is_read_again(kind: str, name: str, tmp_path: Path) -> None:
    shutil.copy(KINDS[kind][0], name)
    said = imports(kind, tmp_path / name)
    assert "\x1b" not in said
    assert not any("\ud800" <= sign <= "\udfff" for sign in said)
    ran = call("report", "run")
    assert (ran.status, "\x1b" in ran.output) == (0, False), ran.message
    trials = open_run("run").trials
    assert trials.filter(pl.col("status") == "done").height == trials.height > 0
    if kind == "fio":
        files = json.loads(Path("run/manifest.json").read_text())["imported"]["files"]
        assert files[0]["name"].endswith("\\xff\\xfe[red].x")


def test_marks_of_the_terminal_s_language_are_shown_as_they_are() -> None:
    Path("t.csv").write_text("file system,run,read bw (MiB/s)\n[red]x[/red],1,5\n[/],1,6\n")
    imports("csv", "t.csv", "run", "--factor", "who=[bold]me[/bold]")
    text = call("report", "run").output
    assert all(mark in text for mark in ("[red]x[/red]", "[/]", "[bold]me[/bold]"))


def test_an_out_that_can_not_be_a_run_is_refused() -> None:
    Path("file").write_text("mine")
    Path("full").mkdir()
    Path("full/mine").touch()
    Path("gone").symlink_to("no/where")
    for out, says in (
        ("file", "file can't be used for the run: Not a directory"),
        ("file/run", "file/run can't be used for the run: Not a directory"),
        ("full", "full is not empty: name a new folder for this run"),
        ("", ". is not empty: name a new folder for this run"),
        ("/", "/ is not empty: name a new folder for this run"),
        ("/proc/run", "/proc/run can't be used for the run: No such file or directory"),
    ):
        assert says in refused("fio", KINDS["fio"][0], "--out", out)
    assert Path("file").read_text() == "mine"


@pytest.mark.parametrize("kind", ["fio", "pcap"])
def test_a_file_that_is_given_twice_is_no_repeat(kind: str) -> None:
    sample = {"fio": KINDS["fio"][0], "pcap": GOLDEN / "pcap-tcpdump-3.txt"}[kind]
    Path("results").mkdir()
    shutil.copy(sample, "results/a")
    os.link("results/a", "copy")
    for files in (("results/a", "results/a"), ("results/a", "copy")):
        said = refused(kind, *files, *("--label", "a", "--label", "a"))
        assert "are identical: a copy is not a repeat; leave one out" in said
    if kind == "fio":
        assert "results/a and results/a are identical" in refused("fio", "results", "results/a")


def test_of_a_folder_neither_links_nor_runs_of_storlab_are_followed() -> None:
    Path("results/below").mkdir(parents=True)
    shutil.copy(KINDS["fio"][0], "results/below/a.json")
    for name, target in (("below/up", ".."), ("self", "self"), ("gone", "nowhere")):
        Path("results", name).symlink_to(target)
    os.mkfifo("results/pipe")
    for name in ("first", "second"):  # the second time, the first run lies there
        said = imports("fio", "results", f"results/{name}")
        assert "4 trials of 2 cells" in said and "were not read" not in said


@pytest.mark.needs("root")
def test_what_may_not_be_read_is_named() -> None:
    for name in ("a.json", "results/b.json", "results/closed/c.json", "closed/d.json"):
        Path(name).parent.mkdir(exist_ok=True, parents=True)
        shutil.copy(KINDS["fio"][0], name)
    Path("readonly").mkdir(mode=0o500)
    Path("results/b.json").chmod(0)
    as_anybody = ["setpriv", "--inh-caps=-all", "--bounding-set=-dac_override,-dac_read_search", str(PROGRAM)]

    def said(file: str, out: str = "run") -> str:
        argv = [*as_anybody, "import", "fio", file, "--out", out]
        ended = subprocess.run(argv, capture_output=True, text=True, timeout=60)
        assert (ended.returncode, len(ended.stderr.splitlines())) == (2, 1), ended.stderr
        return ended.stderr

    assert "results/b.json: Permission denied" in said("results")
    assert "results/b.json: Permission denied" in said("results/b.json")
    Path("results/b.json").chmod(0o600)
    Path("results/closed").chmod(0)
    assert "results/closed: Permission denied" in said("results")
    Path("closed").chmod(0)
    assert "closed/d.json: Permission denied" in said("closed/d.json")
    assert "readonly/run can't be used for the run: Permission denied" in said("a.json", "readonly/run")


@pytest.mark.needs("fio")
@pytest.mark.parametrize("moment", ["read", "copied"])
def test_a_log_that_goes_away_before_it_is_used_is_named(moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    load = ["fio", "--name=x", "--ioengine=null", "--size=1M", "--rw=write", "--write_lat_log=x"]
    argv = [*load, "--output-format=json", "--output=x.json"]
    subprocess.run(argv, check=True, capture_output=True, timeout=60)
    (logs := Path("logs")).mkdir()
    for file in [*Path().glob("x*")]:
        file.rename(logs / file.name)

    def read(path: Path) -> bool:
        path.unlink()
        return False

    def copied(source: Path, target: Path) -> None:
        source.unlink()
        copy_durably(source, target)

    if moment == "read":
        monkeypatch.setattr("storlab.tools.fio.importer.is_cut", read)
    else:
        monkeypatch.setattr("storlab.records.imported.copy_durably", copied)
    said = refused("fio", "logs/x.json", "--out", "run")
    assert "x_clat.1.log: No such file or directory" in said
    assert ("; nothing was imported" in said) == (moment == "copied")


@pytest.mark.needs("root")
@pytest.mark.parametrize("name", ["run", "."])
def test_nothing_is_left_on_a_full_disk(name: str) -> None:
    Path("t.csv").write_text("IOPS\n" + "".join(f"{number}\n" for number in range(500)))
    with tmpfs(Path("small"), "64k"):
        said = refused("csv", "t.csv", "--value", "IOPS", "--out", f"small/{name}")
        assert ": No space left on device; nothing of it is left" in said
        assert not list(Path("small").iterdir())


COLUMNS = ["--value", "IOPS"]


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
    with RunFolder(dead).lock(dead.name.split(".")[2]):  # as if it were still at work
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
    with RunFolder(dead).lock(dead.name.split(".")[2]):  # as if it were still at work
        assert table_to("run") == 2
    number = run.stat().st_ino
    assert (table_to("run"), left(tmp_path), run.stat().st_ino) == (0, [], number)
    assert sorted(each.name for each in run.iterdir()) == ["lock", "manifest.json", "tables", "trials"]


def test_clean_removes_what_a_killed_import_left_and_no_run(tmp_path: Path) -> None:
    killed(tmp_path)
    (dead,) = left(tmp_path)
    (tmp_path / "empty").mkdir()
    assert [table_to(name) for name in ("empty", "whole")] == [0, 0]
    with RunFolder(dead).lock(dead.name.split(".")[2]):
        assert call("clean", "--yes").output == ""
    cleaned = call("clean", "--yes")
    assert (cleaned.status, cleaned.output) == (0, f"{dead}: removed, because the process that worked in it is gone\n")
    assert left(tmp_path) == []
    assert nothing_known(call("clean", "--yes").output, tmp_path)
    assert all(Path(name, "manifest.json").exists() for name in ("empty", "whole"))
