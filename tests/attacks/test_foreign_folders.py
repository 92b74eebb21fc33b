"""Folders that somebody else made first, or may rename: no record of a run is written where they lead."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import stat
import subprocess
from contextlib import nullcontext
from pathlib import Path

import pytest

from attacks.test_journals import craft
from laboratory import Laboratory, ended, wait_until
from laboratory.studies import directory
from storlab.base.errors import RecordsError, StorlabError
from storlab.records.manifest import write_manifest
from storlab.remote.follow import Places, Receiver
from storlab.run.limits import parse_extent
from storlab.run.observer import Observer
from storlab.run.permissions import NO_PERMISSIONS
from storlab.run.recovery.journal import read_pending
from storlab.run.recovery.reclaim import taken
from storlab.run.session import open_session
from storlab.run.trial.commands import make_own

STRANGER = 65534
STUDY = directory('command = { argv = ["true"] }')
SLOW = directory(
    'command = { argv = ["sh", "-c", "until [ -e $0/../go ]; do sleep 0.05; done", "{target}"] }', rounds=2
)


@pytest.fixture
def victim(lab: Laboratory) -> Path:
    """A folder of the user's own, with what the records of trials are called."""
    path = lab.folder / "victim"
    for name in ("0001", "0002", "0003"):
        (path / name).mkdir(parents=True)
        (path / name / "precious").write_text("kept")
    return path


def contents(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize("name", ["trials", "tables", "guests"])
@pytest.mark.parametrize("command", ["resume", "report", "clean"])
def test_a_folder_of_a_run_that_is_a_link_is_refused(lab: Laboratory, victim: Path, name: str, command: str) -> None:
    lab.execute(STUDY)
    before = contents(victim)
    shutil.rmtree(lab.out / name, ignore_errors=True)
    (lab.out / name).symlink_to(victim)
    words = ("--rounds", "2") if command == "resume" else ()
    result = lab.storlab(command, lab.out, *words)
    assert result.status == 2 and f"{lab.out / name} is a symbolic link" in " ".join(result.stderr.split()), str(result)
    assert contents(victim) == before


def test_a_trial_that_is_a_link_is_neither_read_nor_resumed(lab: Laboratory, victim: Path) -> None:
    lab.execute(STUDY)
    shutil.copytree(lab.out / "trials" / "0001", victim / "0001", dirs_exist_ok=True)
    shutil.rmtree(lab.out / "trials" / "0001")
    (lab.out / "trials" / "0001").symlink_to(victim / "0001")
    before = contents(victim)
    for words in (("report", lab.out), ("resume", lab.out, "--rounds", "2")):
        result = lab.storlab(*words)
        assert result.status == 2 and "0001 is a symbolic link" in " ".join(result.stderr.split()), str(result)
    assert contents(victim) == before


@pytest.mark.parametrize("name", ["stdout", "exit.json", "further", ""])
def test_raw_records_that_are_links_are_not_read_into_tables(lab: Laboratory, tmp_path: Path, name: str) -> None:
    """What a metric's pattern picks out of a file of this machine would be in what is shared."""
    metric = 'metrics = [{ name = "figure", regex = "figure=([0-9]+)", unit = "1", better = "higher" }]'
    lab.execute(directory(f'command = {{ argv = ["echo", "figure=1"], {metric} }}'))
    (raw,) = (lab.out / "trials" / "0001").glob("*/load")
    secret = tmp_path / "secret"
    shutil.copytree(raw, secret)
    (secret / "stdout").write_text("figure=4711\n")
    if name:
        (raw / name).unlink(missing_ok=True)
        (raw / name).symlink_to(secret / "stdout" if name == "further" else secret / name)
    else:
        shutil.rmtree(raw)
        raw.symlink_to(secret)
    result = lab.storlab("report", lab.out, "--format", "json")
    assert result.status == 0 and "4711" not in result.stdout, str(result)
    (found,) = (each for each in json.loads(result.stdout)["warnings"] if each.get("trials") == [1])
    assert found["finding"]["type"] == "raw-unreadable" and "is a symbolic link" in found["finding"]["why"]


@pytest.mark.needs("root")
def test_a_folder_that_another_user_made_for_a_run_is_refused(lab: Laboratory) -> None:
    lab.out.mkdir()
    os.chown(lab.out, STRANGER, STRANGER)
    rates = lab.folder / "rates.csv"
    rates.write_text("rate\n1000\n")
    for words in (("run", lab.study(STUDY)), ("import", "csv", rates, "--value", "rate")):
        result = lab.storlab(*words, "--out", lab.out)
        assert result.status == 2 and "belongs to another user" in result.stderr, str(result)
    assert list(lab.out.iterdir()) == []


def test_an_empty_folder_of_ones_own_becomes_private_before_anything_lies_in_it(lab: Laboratory) -> None:
    lab.out.mkdir()
    lab.out.chmod(0o777)
    lab.execute(STUDY)
    assert stat.S_IMODE(lab.out.stat().st_mode) == 0o700


def test_a_link_to_a_folder_is_not_taken_for_it(lab: Laboratory) -> None:
    empty = lab.folder / "empty"
    empty.mkdir(mode=0o755)
    lab.out.symlink_to(empty)
    result = lab.run(STUDY)
    assert result.status == 2 and "is a symbolic link: name the folder that it leads to" in result.stderr, str(result)
    assert stat.S_IMODE(empty.stat().st_mode) == 0o755 and list(empty.iterdir()) == []


def test_where_the_name_of_a_folder_comes_to_lead_elsewhere_nothing_is_written(lab: Laboratory, victim: Path) -> None:
    """Whoever owns the folder around a run's may rename it, and put a link to what looks alike in its place."""
    process = lab.start("run", lab.study(SLOW), "--out", lab.out, "--seed", "1", "--quiet", "--unconfined")
    assert wait_until(lambda: any(lab.scratch.glob("*/trial-*")) or process.poll() is not None, 30)
    decoy = lab.folder / "decoy"
    decoy.mkdir()
    (decoy / "trials").symlink_to(victim)
    before = contents(victim)
    lab.out.rename(lab.folder / "moved")
    lab.out.symlink_to(decoy)
    for folder in lab.scratch.glob("storlab-*"):
        # A folder may be gone by the time that find gets to it: the trial ends as soon as it sees the first of these.
        subprocess.run(["find", folder, "-type", "d", "-exec", "touch", "{}/go", ";"], capture_output=True)
    result = ended(process)
    assert result.status != 0 and "is not the folder of this run any more" in " ".join(result.stderr.split()), result
    assert contents(victim) == before and contents(decoy) == ["trials"]


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_clean_and_resume_believe_is_in_the_folder_that_they_opened(lab: Laboratory) -> None:
    lab.execute(STUDY)
    decoy, moved = lab.folder / "decoy", lab.folder / "moved"
    shutil.copytree(lab.out, decoy)
    (decoy / "manifest.json").write_text("damaged")
    (decoy / "journal.jsonl").write_text("damaged\n")
    before = files(decoy)
    with taken(lab.out, NO_PERMISSIONS) as holding:
        lab.out.rename(moved)
        decoy.rename(lab.out)
        write_manifest(holding.run.path, holding.run.manifest)
        assert read_pending(holding.run.journal) == []
        with pytest.raises(RecordsError, match=f"{moved} is in use"), taken(moved, NO_PERMISSIONS):
            pass
    assert files(lab.out) == before


def test_a_run_whose_name_comes_to_lead_elsewhere_while_it_is_resumed_writes_nothing_there(lab: Laboratory) -> None:
    lab.execute(STUDY)
    (left := lab.scratch / f"storlab-{lab.identity}").mkdir()
    craft(lab, ("scratch.remove", {"path": str(left)}))
    decoy, moved = lab.folder / "decoy", lab.folder / "moved"
    shutil.copytree(lab.out, decoy)
    before = files(decoy)

    class Swapping(Observer):
        def notify(self, message: str) -> None:
            if message.startswith("Cleaned up"):
                lab.out.rename(moved)
                decoy.rename(lab.out)

    with pytest.raises(StorlabError, match=f"{lab.out} is not the folder of this run any more"):
        lab.go_on(Swapping(), parse_extent("2", None))
    assert not left.exists() and files(lab.out) == before


@pytest.mark.parametrize("depth", ["out/trials/0001/x", "out/a/trials/0001/x", "out/x/y"])
@pytest.mark.parametrize("link", ["trials", "a/trials", "x"])
def test_what_another_machine_sends_follows_no_link_of_the_folder_that_it_goes_to(
    tmp_path: Path, depth: str, link: str
) -> None:
    """A run that is resumed over there lies in a folder here, which may be somebody else's work."""
    victim, place = tmp_path / "victim", tmp_path / "run"
    victim.mkdir()
    (place / "a").mkdir(parents=True)
    (place / link).symlink_to(victim)
    crosses = f"out/{link}/" in depth

    async def receive() -> int | None:
        stream = asyncio.StreamReader()
        stream.feed_data(json.dumps({"file": depth, "size": 1}).encode() + b'\nx{"end": 0}\n')
        stream.feed_eof()
        return await Receiver(Places({"out": place}), lambda _: None, lambda: None).receive(stream)

    with pytest.raises(StorlabError, match="a symbolic link is on the way") if crosses else nullcontext():
        asyncio.run(receive())
    assert list(victim.iterdir()) == []


@pytest.mark.parametrize("planted", ["a link to a folder", "a dangling link", "a file"])
def test_what_a_load_leaves_in_a_share_is_not_taken_for_the_folder_of_another_node(
    lab: Laboratory, victim: Path, planted: str
) -> None:
    """A load may write to its target; and the target would be whatever a link there leads to."""
    share = lab.folder / "share"
    share.mkdir()
    if planted == "a file":
        (share / "second").touch()
    else:
        (share / "second").symlink_to(victim if "folder" in planted else lab.folder / "nothing")

    async def place() -> None:
        async with open_session("20260102-030405-abcd") as session:
            await make_own(session.host, f"{share}/first")
            await make_own(session.host, f"{share}/first")
            await make_own(session.host, f"{share}/second")

    with pytest.raises(StorlabError):
        asyncio.run(place())
    assert (share / "first").is_dir() and not (lab.folder / "nothing").exists()
