"""What a load tries against the machine that it runs on: its file systems, processes, names, network and kernel."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from laboratory import Laboratory
from laboratory.devices import PLAIN, new_device, sh
from laboratory.samples import sample
from laboratory.studies import ON_LOOP, directory

pytestmark = pytest.mark.needs("root")
ASSAULT = sample(__file__, "cases/assault.py")
LISTED = len(re.findall("^@attempt|: lambda: ", ASSAULT, re.MULTILINE))


@dataclass(frozen=True)
class Outside:
    """What the test made for the load to attack."""

    files: Path
    victim: subprocess.Popen[bytes]
    abstract: str
    port: int
    roots: Path

    def words(self) -> list[str]:
        return [str(self.files), str(self.victim.pid), self.abstract, str(self.port), str(self.roots)]

    def state(self) -> dict[str, object]:
        """What must be afterwards as it was before."""
        pid = self.victim.pid
        lines = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
        return {
            "ended": self.victim.poll(),
            "name": (socket.gethostname(), Path("/proc/sys/kernel/domainname").read_text()),
            "limits": Path(f"/proc/{pid}/limits").read_text(),
            "priority": lines[15:17],
            "cpus": os.sched_getaffinity(pid),
            "swaps": "/swap-of-a-load" in Path("/proc/swaps").read_text(),
            "core": Path("/proc/sys/kernel/core_pattern").read_text(),
            "files": sorted(path.name for path in self.files.iterdir()),
            "etc": Path("/etc/storlab-attack").exists(),
        }


@pytest.fixture
def outside(lab: Laboratory) -> Iterator[Outside]:
    """A file system that is mounted, a process, sockets that listen, and a file: all of them root's."""
    files, public, name = lab.folder / "other", lab.folder / "public", f"storlab-attack-{os.getpid()}"
    files.mkdir()
    public.mkdir()
    with (
        socket.socket(socket.AF_UNIX) as roots,
        new_device(lab.folder / "other.img") as device,
        socket.socket(socket.AF_UNIX) as abstract,
        socket.create_server(("127.0.0.1", 0)) as listening,
        subprocess.Popen(["sleep", "600"], env=PLAIN) as victim,
    ):
        abstract.bind(f"\0{name}")
        abstract.listen()
        roots.bind(str(public / "socket"))
        roots.listen()
        (public / "file").write_text("x")
        (public / "file").chmod(0o600)
        (public / "assault.py").write_text(ASSAULT)
        sh("mkfs.ext4", "-q", device.path)
        sh("mount", device.path, str(files))
        try:
            yield Outside(files, victim, name, listening.getsockname()[1], public)
        finally:
            victim.kill()
            sh("umount", str(files))


def attacked(lab: Laboratory, outside: Outside, phase: str) -> dict[str, str]:
    """What came of each attempt, by a load or by one of the commands around it."""
    program = outside.roots / "assault.py"
    words = json.dumps(["python3", "-I", str(program), *outside.words(), "{target}"])
    load, trial = (words, "") if phase == "load" else ('["true"]', f"{phase} = [{words}]")
    ended = lab.run(directory(f"command = {{ argv = {load} }}", trial=trial, stack=f"[{ON_LOOP}]"))
    assert ended.status == 0, ended
    said = [path.read_text() for path in lab.out.rglob("stdout") if '"mounts"' in path.read_text()]
    assert len(said) == 1, ended
    outcomes: dict[str, str] = json.loads(said[0])
    return outcomes


@pytest.mark.parametrize("phase", ["load", "prepare", "verify"])
def test_nothing_that_a_load_or_command_tries_is_done(phase: str, lab: Laboratory, outside: Outside) -> None:
    before = outside.state()
    outcomes = attacked(lab, outside, phase)
    assert [name for name, outcome in outcomes.items() if outcome == "done"] == []
    assert os.uname().machine != "x86_64" or len(outcomes) == LISTED
    assert outside.state() == before
    (outside.files / "works").write_text("x")
    assert not lab.leftovers()


def test_a_load_ends_with_all_that_it_started(lab: Laboratory) -> None:
    script = "setsid nohup sleep 4321 </dev/null >/dev/null 2>&1 & (sleep 4322 & sleep 4323 &) & sleep 0.2"
    ended = lab.run(directory(f"command = {{ argv = ['sh', '-c', '{script}'] }}"))
    assert ended.status == 0, ended
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert not [line for line in listed.splitlines() if line.startswith("sleep 432")]


def test_a_swap_file_that_an_unconfined_load_leaves_is_reported_and_stays_to_be_removed(lab: Laboratory) -> None:
    script = (
        "dd if=/dev/zero of=$0/swap bs=1M count=2 status=none; chmod 600 $0/swap; mkswap $0/swap; "
        "unshare --mount --propagation private swapon $0/swap"
    )
    study = lab.study(
        directory(
            f"command = {{ argv = ['sh', '-c', '{script}', '{{target}}'] }}",
            stack=f"[{ON_LOOP}]",
            trial='timeout = "1m"',
        )
    )
    ended = lab.storlab("run", study, "--out", lab.out, "--unconfined")
    devices = json.loads(sh("losetup", "--list", "--json") or "{}").get("loopdevices", [])
    held = [each["name"] for each in devices if str(lab.scratch) in each["back-file"]]
    try:
        assert len(held) == 1, ended
        assert f"{held[0]} is still open elsewhere" in ended.stdout + ended.stderr, ended
        assert "swapoff" in ended.stdout + ended.stderr, ended
        assert ended.status != 0, ended
    finally:
        again = lab.folder / "again"
        again.mkdir()
        for device in held:  # the file has no path any more that leads to it
            sh("mount", device, str(again))
            sh("swapoff", str(again / "swap"))
            sh("umount", str(again))
    cleaned = lab.storlab("clean", "--yes")
    assert cleaned.status == 0, cleaned
    assert not lab.leftovers()


def test_a_load_reads_a_file_of_the_users_only_if_that_is_allowed(lab: Laboratory) -> None:
    own = lab.folder / "own.sh"
    own.write_text("echo own words")
    own.chmod(0o600)
    study = lab.study(directory(f"command = {{ argv = ['sh', '{own}'] }}"))
    ended = lab.storlab("run", study, "--out", lab.out)
    assert ended.status == 3 and "--allow read=FILE" in ended.stdout, ended
    ended = lab.storlab("run", study, "--out", lab.folder / "again", "--allow", f"read={own}")
    assert ended.status == 0, ended
    assert next((lab.folder / "again").rglob("stdout")).read_text() == "own words\n"


def test_a_study_in_a_closed_folder_runs_with_the_script_beside_it_as_in_an_open_one(lab: Laboratory) -> None:
    closed = lab.folder / "closed"
    (closed / "scripts").mkdir(parents=True)
    (own := closed / "scripts" / "own.sh").write_text("echo own words")
    closed.chmod(0o700)
    study = lab.study(directory(f"command = {{ argv = ['sh', '{own}'] }}")).rename(closed / "study.toml")
    write = f"--allow=write={lab.scratch}"
    ended = lab.storlab("run", study, "--out", lab.out, write, trusted=False)
    assert ended.status == 0, ended
    assert next(lab.out.rglob("stdout")).read_text() == "own words\n"
    again = lab.storlab("resume", lab.out, "--rounds", "2", write, trusted=False)  # which no longer has its folder
    assert again.status == 2 and f"--allow read={own}" in again.stderr, again
    again = lab.storlab("resume", lab.out, "--rounds", "2", write, f"--allow=read={own}", trusted=False)
    assert again.status == 0 and [record.status for record in lab.records()] == ["done"] * 2, again


def test_no_load_sees_more_beside_its_study_than_in_an_open_folder(lab: Laboratory) -> None:
    closed = lab.folder / "closed"
    (closed / "shut").mkdir(parents=True)
    (lab.folder / "above.sh").write_text("echo above")
    for path, mode in (("secret.sh", 0o600), ("shut/own.sh", 0o644), ("seen.sh", 0o644)):
        (closed / path).write_text("echo own words")
        (closed / path).chmod(mode)
    (closed / "shut").chmod(0o700)
    (closed / "link.sh").symlink_to("seen.sh")
    lab.folder.chmod(0o700)
    closed.chmod(0o700)
    names = ("secret.sh", "shut/own.sh", "link.sh", "shut/../seen.sh", "../above.sh")
    levels = "\n".join(f"{word} = '{closed}/{name}'" for word, name in zip("abcde", names, strict=True))
    text = directory("command = { argv = ['sh', '{script}'] }", rest=f"[factors.script]\n{levels}")
    study = lab.study(text).rename(closed / "study.toml")
    ended = lab.storlab("run", study, "--out", lab.out, f"--allow=write={lab.scratch}", trusted=False)
    assert ended.status == 3 and {record.status for record in lab.records()} == {"failed"}, ended


def test_a_load_sees_a_closed_file_that_the_command_line_gave_it_by_set(lab: Laboratory) -> None:
    closed = lab.folder / "closed"
    closed.mkdir(mode=0o700)
    (mine := closed / "mine.sh").write_text("echo my words")
    mine.chmod(0o600)
    study = lab.study("parameters = { script = '/nowhere' }\n" + directory("command = { argv = ['sh', '{script}'] }"))
    given = ("--set", f"script={mine}", f"--allow=write={lab.scratch}")
    ended = lab.storlab("run", study, "--out", lab.out, *given, trusted=False)
    assert ended.status == 0, ended
    assert next(lab.out.rglob("stdout")).read_text() == "my words\n"
