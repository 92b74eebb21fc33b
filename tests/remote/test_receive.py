"""What another machine sends is a stranger's."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from storlab.base.errors import StorlabError, UserError
from storlab.cli.remote.option import choose, places_of
from storlab.cli.remote.session import Screen
from storlab.cli.remote.travel import journey
from storlab.remote.follow import Absent, Places, Receiver, Torn
from storlab.remote.host import Here, Known


def received(sent: bytes, folder: Path) -> tuple[int | None, list[bytes]]:
    """The status and the events of a stream whose results belong in ``folder``."""
    events: list[bytes] = []

    async def receive() -> int | None:
        stream = asyncio.StreamReader()
        stream.feed_data(sent)
        stream.feed_eof()
        return await Receiver(Places({"out": folder}), events.append, lambda: None).receive(stream)

    return asyncio.run(receive()), events


def line(**header: object) -> bytes:
    return json.dumps(header).encode() + b"\n"


def test_files_and_events_come_as_they_are(tmp_path: Path) -> None:
    sent = line(file="out/trials/0001/x", size=3, time=10**18) + b"\x00\n{" + line(beat=True)
    sent += line(events=9, to=9) + b'{"a": 1}\n' + line(file="out", size=0, time=5) + line(end=4)
    (tmp_path / "one").mkdir()
    status, events = received(sent.replace(line(file="out", size=0, time=5), b""), tmp_path / "one")
    assert (status, events) == (4, [b'{"a": 1}'])
    written = tmp_path / "one" / "trials" / "0001" / "x"
    assert written.read_bytes() == b"\x00\n{" and written.stat().st_mtime_ns == 10**18


ODD = ("../x", "out/../x", "/etc/x", "other/x", "out//x", "out/./x", "out/a\0b")


@pytest.mark.parametrize("name", [*ODD, "out/" + "a" * 300, "out/" + "a/" * 20 + "x"])
def test_names_lead_nowhere_else(tmp_path: Path, name: str) -> None:
    with pytest.raises(StorlabError, match="sent a file that nobody asked for"):
        received(line(file=name, size=1, time=0) + b"x", tmp_path / "here")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        (b"", Torn),
        (b"{", Torn),
        (b"[]\n", StorlabError),
        (b"\xff\n", StorlabError),
        (line(strange=1), StorlabError),
        (line(file="out/x", size=-1, time=0), StorlabError),
        (line(file="out/x", size=2**50, time=0), StorlabError),
        (line(file="out/x", size=10, time=0) + b"short", Torn),
        (line(events=2**40, to=1), StorlabError),
        (line(events=5, to=5) + b"ab", Torn),
        (line(missing=True), Absent),
        (line(refused="no"), Absent),
    ],
)
def test_what_is_no_stream_is_refused_and_leaves_no_file(tmp_path: Path, sent: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        received(sent, tmp_path / "here")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(
    "event", [b"{}", b"null", b'{"event": "rm"}', b'{"event": "trial begins"}', b"\xff", b"[" * 5000]
)
def test_events_are_of_the_known_kinds(event: bytes) -> None:
    with pytest.raises(StorlabError, match="what the other machine reported makes no sense"):
        Screen(lambda question: None).take(event)


def test_no_text_from_there_gives_orders_to_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(lambda question: None)
    screen.take(b'{"event": "err", "data": "G1sySmhlbGxvCg=="}')  # ESC [2J hello
    assert capsys.readouterr().err == "\ufffd[2Jhello\n"


def test_the_part_that_runs_there_loads_nothing_but_pythons_own() -> None:
    """So it starts at once, and says what is missing where something is."""
    program = "import sys; import storlab.remote.there.__main__\n"
    program += "print(sorted({m.partition('.')[0] for m in sys.modules} - set(sys.stdlib_module_names) - {'__main__'}))"
    source = Path(__file__).parents[2] / "src"
    argv = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(source)!r})\n{program}"]
    assert subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip() == "['storlab']"


def known(job: str, *, alive: bool = False, fetched: bool = False, name: str = "runs/a", machine: str = "x") -> Known:
    return Known(job, "run", (), (name,), Here(machine, (f"/somewhere/{name}",)), "now", alive, 0, fetched)


def test_attach_finds_what_is_meant(tmp_path: Path) -> None:
    jobs = [known("1", fetched=True), known("2", name="runs/b", fetched=True), known("3", name="runs/b", alive=True)]
    assert choose("lab1", jobs, None).job == "3" and choose("lab1", jobs, Path("runs/a")).job == "1"
    with pytest.raises(UserError, match="lab1: nothing runs there, and all is fetched"):
        choose("lab1", jobs[:2], None)
    with pytest.raises(UserError, match="lab1: no run there belongs to runs/c"):
        choose("lab1", jobs, Path("runs/c"))
    with pytest.raises(UserError, match=r"lab1 has several: runs/a .*; runs/b .*`storlab attach lab1 runs/b`"):
        choose("lab1", [known("1"), *jobs[2:]], None)
    assert places_of(jobs[2], tmp_path / "new") == {"runs/b": tmp_path / "new"}, "another machine had started it"


def test_a_run_that_was_not_run_elsewhere_is_not_resumed_there(tmp_path: Path) -> None:
    class Folder:
        name, param_type_name, opts = "folder", "argument", ["folder"]

    with pytest.raises(UserError, match=r"is not the folder of a run with --on: no .*/on\.json"):
        journey("resume", [(Folder(), tmp_path)], "lab1")
    (tmp_path / "on.json").write_text('{"host": "lab2", "job": "20260101", "name": "runs/a"}')
    with pytest.raises(UserError, match="was run on lab2, so --on lab1 does not know it"):
        journey("resume", [(Folder(), tmp_path)], "lab1")
    made = journey("resume", [(Folder(), tmp_path)], "lab2")
    assert (made.words, made.work) == (["resume", "--", "runs/a"], "20260101")


STUDY = """title = "A test"
stack = [{ layer = "file", size = "64M" }, { layer = "loop" }, { layer = "mkfs", type = "ext4" }, { layer = "mount" }]
primary = "write.iops"
[workload.w.fio]
rw = "randwrite"
size = "4M"
"""
LAB = """[hosts.lab1]
disk = "/dev/nvme1n1"
wipe = "/dev/nvme1n1"
[hosts.lab2]
scratch = "/media/large"
"""


@dataclass
class Written:
    """A parameter of a command, as Click has it."""

    name: str
    param_type_name: str = "option"

    @property
    def opts(self) -> list[str]:
        return [f"--{self.name.rstrip('_')}"]


def given(folder: Path, study: str, sets: list[str]) -> list[tuple[object, object]]:
    (folder / "study.toml").write_text(study)
    (folder / "lab.toml").write_text(LAB)
    words = [(Written("study", "argument"), str(folder / "study.toml")), (Written("set_"), sets)]
    return [*words, (Written("lab"), folder / "lab.toml")]


ON_ITS_DISK = ["--set=disk=/dev/nvme1n1", "--set=wipe=/dev/nvme1n1"]


@pytest.mark.parametrize(
    ("host", "text", "sets", "settings"),
    [
        ("lab1", STUDY, ["disk=@lab"], ON_ITS_DISK),
        ("lab1", f'disk = "@lab"\n{STUDY}', [], ON_ITS_DISK),
        ("lab1", STUDY, [], []),
        ("lab2", STUDY, [], ["--set=scratch=/media/large"]),
        ("lab2", STUDY, ["scratch=/tmp"], []),
        ("lab3", STUDY, [], []),
    ],
)
def test_the_disk_and_the_scratch_folder_of_a_machine_are_those_that_the_lab_names(
    host: str, text: str, sets: list[str], settings: list[str], tmp_path: Path
) -> None:
    words = journey("run", [*given(tmp_path, text, sets), (Written("out"), tmp_path / "out")], host).words
    assert words[-2:] == ["--", "given/study.toml"] and not any("lab.toml" in word for word in words)
    assert words[1:-2] == [*(f"--set={each}" for each in sets), "--out=out", *settings]


def test_a_machine_whose_disk_the_lab_does_not_name_is_refused_before_anything_goes_there(tmp_path: Path) -> None:
    words = given(tmp_path, STUDY, ["disk=@lab"])
    with pytest.raises(UserError, match=r"lab\.toml: the lab names no disk for lab2"):
        journey("run", words, "lab2")
    with pytest.raises(UserError, match="which lab"):
        journey("run", words[:2], "lab1")
