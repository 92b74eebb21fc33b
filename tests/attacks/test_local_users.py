"""Another user of this machine, who may read records and make files wherever everybody may: here uid 65534."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from laboratory import Laboratory, wait_until
from laboratory.guests import BEGUN, guests, once_begun
from laboratory.samples import sample
from laboratory.studies import directory
from storlab.layers.block.use import _HOLD
from storlab.nodes.accounts import private_name

STRANGER = 65534
LOAD = 'argv = ["sh", "-c", "echo text > $0/file; test -e $0/../stop || exec sleep 3600", "{target}"]'
STUDY = directory(f"command = {{ {LOAD} }}", rounds=2)
ATTACK = sample(__file__, "cases/local-user.sh")


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Iterator[Laboratory]:
    """Storlab in an empty folder that everybody may read, with a scratch folder that everybody may write to."""
    folder = Path(tempfile.mkdtemp(prefix="attack-", dir="/var/tmp"))
    folder.chmod(0o755)
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    try:
        with contextlib.closing(Laboratory(folder)) as made:
            made.scratch.chmod(0o1777)
            yield made
    finally:
        shutil.rmtree(folder)


def stranger(*argv: str | Path) -> str:
    """What a command of another user prints."""
    words = ["setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups", *map(str, argv)]
    return subprocess.run(words, check=False, stdout=subprocess.PIPE, text=True, timeout=30).stdout


def attack(shared: Path, victim: Path, name: str) -> list[str]:
    """Try to take over all that is in a shared folder, and to be the first to make ``name``; what succeeded."""
    return stranger("sh", "-c", ATTACK, "sh", shared, victim, name).splitlines()


@pytest.fixture
def victim(lab: Laboratory) -> Path:
    """A folder of root's that nobody else may read."""
    path = lab.folder / "victim"
    path.mkdir(mode=0o700)
    (path / "precious").write_text("kept")
    return path


def test_no_name_of_a_shared_folder_comes_twice_or_could_be_foreseen() -> None:
    names = {private_name("20260102-030405-abcd") for _ in range(1000)}
    assert len(names) == 1000
    assert all(len(name.removeprefix("storlab-20260102-030405-abcd-")) == 22 for name in names)


@pytest.mark.needs("root")
def test_whoever_makes_the_folder_of_a_stopped_run_first_gets_nothing_from_its_resume(
    lab: Laboratory, victim: Path
) -> None:
    process = lab.start_run(STUDY)
    assert wait_until(lambda: any(lab.scratch.glob("storlab-*/*/.storlab-*/file")) or any(lab.scratch.glob("*/*/file")))
    process.kill()
    process.wait()
    assert lab.storlab("clean", "--yes").status == 0
    assert not list(lab.scratch.glob("storlab-*"))

    named = {f"storlab-{lab.identity}"}
    named |= {Path(entry["arguments"]["path"]).name for entry in lab.journal() if "path" in entry.get("arguments", {})}
    for name in named:
        attack(lab.scratch, victim, name)
    links = [path for path in lab.scratch.iterdir() if path.is_symlink()]
    assert links

    process = lab.start("resume", lab.out, "--quiet")
    assert wait_until(lambda: len([path for path in lab.scratch.iterdir() if not path.is_symlink()]) > 0)
    for path in lab.scratch.iterdir():
        if not path.is_symlink():
            found = path.stat()
            assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (os.geteuid(), 0o700)
    process.terminate()
    process.communicate()
    assert sorted(path.name for path in victim.iterdir()) == ["precious"]
    for link in links:
        link.unlink(missing_ok=True)


@pytest.mark.needs("root")
def test_another_user_can_neither_enter_nor_replace_the_folders_of_a_run(lab: Laboratory, victim: Path) -> None:
    process = lab.start_run(STUDY.replace('"directory"', f'"directory", path = "{lab.scratch}"'))
    assert wait_until(lambda: any(lab.scratch.glob(".storlab-*/file")) and any(lab.scratch.glob("storlab-*")))
    before = {path.name for path in lab.scratch.iterdir()}
    assert attack(lab.scratch, victim, "unrelated") == []
    assert {path.name for path in lab.scratch.iterdir()} == {*before, "unrelated"}
    (lab.scratch / "unrelated").unlink()
    process.terminate()
    process.communicate()
    assert sorted(path.name for path in victim.iterdir()) == ["precious"]


@pytest.mark.needs("root")
@pytest.mark.parametrize("key", ["scratch", "directory"])
def test_a_folder_in_which_anybody_may_replace_files_is_refused_with_the_remedy(lab: Laboratory, key: str) -> None:
    shared = lab.folder / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    study = STUDY
    if key == "directory":
        study = study.replace('layer = "directory"', f'layer = "directory", path = "{shared}"')
    else:
        lab.scratch.chmod(0o777)
        shared = lab.scratch
    for words in (("plan", lab.study(study)), ("run", lab.study(study), "--out", lab.out)):
        ended = lab.storlab(*words)
        assert ended.status == 2 and f"run `chmod +t {shared}`" in " ".join(ended.stderr.split()), ended
        assert "Traceback" not in ended.stderr


@pytest.mark.needs("root")
@pytest.mark.parametrize("ended", [False, True], ids=["during a run", "after it"])
def test_another_user_can_neither_hold_nor_see_the_claim_on_a_device(ended: bool) -> None:
    """Opening a file for reading is enough to lock it; the runs of this machine then found the device in use."""
    device = f"7:{os.getpid()}"  # of which other workers have no claim
    with subprocess.Popen(
        ["sh", "-c", _HOLD, "hold", device, device, "20260102-030405-abcd"], stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        if ended:
            holder.kill()
            holder.wait()
        for words in (["flock", "--shared", "--nonblock"], ["flock", "--exclusive", "--nonblock"]):
            assert stranger(*words, f"/run/storlab/claims/{device}", "echo", "locked") == ""
        assert stranger("ls", "/run/storlab/claims") == ""
        holder.kill()
    Path(f"/run/storlab/claims/{device}").unlink()


@pytest.mark.needs("guests")
def test_whoever_makes_the_folder_of_a_runs_sockets_first_owns_none_of_them(lab: Laboratory, victim: Path) -> None:
    found = list[tuple[int, int]]()

    def look() -> None:
        for path in Path("/tmp").glob(f"storlab-{lab.identity}*"):
            found.append((path.stat().st_uid, stat.S_IMODE(path.stat().st_mode)))
            assert stranger("ls", path) == ""
            assert all(len(str(each)) < 108 for each in path.iterdir())

    load = f'echo "{BEGUN}" > /dev/console; sleep 3'
    with once_begun(lab, ("vm",), look):
        lab.execute(guests(load, count="1"))
    assert [mode for _, mode in found] == [0o700]
    assert [record.status for record in lab.records()] == ["done"]
    assert lab.leftovers() == []
