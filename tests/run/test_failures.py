"""What fails is recorded with its reason, the rest goes on, and nothing is left."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from laboratory import Laboratory, processes_with, wait_until
from laboratory.block import small_ext4_blocks
from laboratory.devices import sh, tmpfs
from laboratory.samples import sample
from laboratory.studies import LOOPS, ON_LOOP, directory
from storlab.base.errors import StorlabError, UserError
from storlab.findings import Stopped
from storlab.run.limits import Extent
from storlab.run.observer import Observer


def failed(lab: Laboratory) -> str:
    (record,) = lab.records()
    assert (record.status, lab.leftovers()) == ("failed", [])
    return record.reason or ""


def study(stack: str, fio: str, rest: str = "", rounds: int = 1) -> str:
    return sample(__file__, "cases/one-load.toml", stack=stack, rounds=rounds, fio=fio, rest=rest)


@pytest.mark.needs("root")
def test_a_load_that_fails_in_one_cell_is_told_in_its_own_words_and_the_others_go_on(lab: Laboratory) -> None:
    stack = '{ layer = "file", size = "16M" }, { layer = "loop", sector_size = "{sector}" }'
    sectors = '[factors.sector]\nlevels = ["512", "16k"]'
    text = study(stack, 'bs = "4k", direct = 1, size = "64k"', sectors, rounds=2)
    outcome = lab.execute(text)
    assert outcome.ending == "failures"
    found = {(record.levels["sector"], record.status) for record in lab.records()}
    assert found == {("512", "done"), ("16k", "failed")}
    reasons = {record.reason or "" for record in lab.records() if record.status == "failed"}
    assert all("Invalid argument" in reason for reason in reasons), reasons


def test_exit_status_3_says_that_some_trials_failed(lab: Laboratory) -> None:
    lab.run(directory('command = { argv = ["sh", "-c", "echo first; echo broken >&2; exit 7"] }')).with_status(3)
    reason = failed(lab)
    assert "status 7" in reason and "broken" in reason
    assert (lab.out / "trials" / "0001" / "host" / "load" / "stdout").read_text() == "first\n"


def test_a_run_of_which_nothing_succeeds_stops_after_two_rounds_and_a_resume_tries_two_more(lab: Laboratory) -> None:
    may = lab.folder / "may"
    argv = f'["sh", "-c", "test -e {may}"]'
    assert lab.execute(directory(f"command = {{ argv = {argv} }}", rounds=5)).ending == "failures"
    assert [record.status for record in lab.records()] == ["failed"] * 2
    assert lab.run_folder.manifest.stopped == Stopped(2, "hopeless", limit=2)
    assert lab.go_on().ending == "failures"
    assert [record.status for record in lab.records()] == ["failed"] * 4
    may.touch()
    assert lab.go_on().ending == "failures"
    assert [record.status for record in lab.records()] == ["failed"] * 4 + ["done"]


@pytest.mark.parametrize("hang", ["exec sleep 3600", "trap : TERM; while :; do sleep 3600; done"])
def test_a_hung_trial_is_stopped_at_its_time_out_though_it_ignores_term(lab: Laboratory, hang: str) -> None:
    load = f'command = {{ argv = ["sh", "-c", "echo so far; {hang}"] }}'
    lab.execute(directory(load, trial='timeout = "4s"'))
    assert failed(lab) == "the trial was stopped at its time-out of 4 s, in the phase 'measure'"
    assert "so far" in lab.records()[0].detail, "what it printed until then is kept"


def test_a_time_out_may_differ_from_cell_to_cell(lab: Laboratory) -> None:
    times = '[factors.time]\nlevels = ["0.7", "3600"]'
    limits = 'timeout = "60s", timeouts = [{ where = { time = "3600" }, timeout = "0.5s" }]'
    lab.execute(directory('command = { argv = ["sleep", "{time}"] }', trial=limits, rest=times))
    assert {record.levels["time"]: record.status for record in lab.records()} == {"0.7": "done", "3600": "failed"}


def test_a_verify_command_that_fails_fails_the_trial_and_is_named(lab: Laboratory) -> None:
    trial = 'prepare = [["touch", "{target}/a"]], verify = [["test", "-f", "{target}/a"], ["ls", "{target}/b"]]'
    lab.execute(directory('command = { argv = ["true"] }', trial=trial))
    assert failed(lab).startswith("verify: node host: ls ended with status 2: ls: cannot access")


def test_a_load_that_leaves_processes_behind_loses_them(lab: Laboratory) -> None:
    daemon = 'setsid sh -c "while :; do sleep 0.1; done" >/dev/null 2>&1 & sleep 0.1'
    lab.succeed(directory(f"command = {{ argv = ['sh', '-c', '{daemon}'] }}"))


@contextlib.contextmanager
def agent_killed(lab: Laboratory, then: Callable[[], None] = lambda: None) -> Iterator[None]:
    """While the body runs, wait for a load that sleeps, and kill the agent that started it."""

    def act() -> None:
        assert wait_until(lambda: any(words[:2] == ["sleep", "3600"] for words in lab.commands().values()), 240)
        for pid, words in lab.commands().items():
            if any("storlab-agent" in word for word in words):
                with contextlib.suppress(ProcessLookupError):  # what it was just starting is named like it
                    os.kill(pid, signal.SIGKILL)
        then()

    killer = threading.Thread(target=act)
    killer.start()
    yield
    killer.join()


def test_an_agent_that_is_killed_fails_its_trial_and_the_run_goes_on(lab: Laboratory) -> None:
    """Also what escaped the agent's process group is ended before the next trial begins."""
    escape = '(setsid sh -c "while :; do sleep 0.1; done" >/dev/null 2>&1 &) ; exec sleep {time}'
    times = '[factors.time]\nlevels = ["0.1", "3600"]'
    with agent_killed(lab):
        lab.execute(directory(f"command = {{ argv = ['sh', '-c', '{escape}'] }}", rest=times))
    records = {record.levels["time"]: record for record in lab.records()}
    lost = records["3600"]
    assert (records["0.1"].status, lost.status) == ("done", "failed") and lost.lost_after is not None
    assert lost.reason == f"node host: the stream to its agent closed ({lost.lost_after:.1f} s into the load)"
    assert not any(record.warnings for record in records.values())


@pytest.mark.needs("root")
def test_an_agent_that_is_killed_while_something_is_mounted_leaves_nothing_behind(lab: Laboratory) -> None:
    first = lab.folder / "first"
    first.write_text("3600")
    load = f'command = {{ argv = ["sh", "-c", "cd $0; exec sleep $(cat {first} || echo 0.1)", "{{target}}"] }}'
    with agent_killed(lab, then=first.unlink):
        lab.execute(LOOPS.replace(LOOPS[LOOPS.index("fio =") :], load).replace('"bandwidth"', '"elapsed"'))
    statuses = [record.status for record in lab.records()]
    assert (statuses[0], statuses[-1]) == ("failed", "done") and set(statuses) == {"done", "failed"}
    assert not any(record.warnings for record in lab.records())


@pytest.mark.needs("root")
def test_an_agent_that_stands_still_is_given_up(lab: Laboratory) -> None:
    load = 'command = { argv = ["sh", "-c", "kill -STOP $PPID; exec sleep 3600"] }'
    lab.execute(directory(load, trial='timeout = "4s"'))
    assert failed(lab)


@pytest.mark.needs("root")
def test_a_full_file_system_under_test_is_named_as_such_and_a_full_host_beneath_a_sparse_file(lab: Laboratory) -> None:
    loop, ext4 = '{ layer = "file", size = "32M" }, { layer = "loop" }', '{ layer = "mkfs", type = "ext4" }'
    lab.execute(study(f'{loop}, {ext4}, {{ layer = "mount" }}', 'bs = "64k", size = "31M", fallocate = "none"'))
    assert "space" in failed(lab)
    shutil.rmtree(lab.out)
    sparse = '{ layer = "file", size = "64M", overcommit = true }, { layer = "loop", direct_io = false }'
    with tmpfs(lab.scratch, "8M"):
        lab.execute(study(sparse, 'bs = "64k", direct = 1, size = "60M"'))
        assert f"the file system of {lab.scratch}" in failed(lab) and failed(lab).endswith("is full)")


@pytest.mark.needs("root")
def test_a_full_run_folder_stops_the_run_with_a_message_and_resume_goes_on_once_there_is_space(lab: Laboratory) -> None:
    load = 'command = { argv = ["sh", "-c", "head -c 300000 /dev/urandom | base64"] }'
    with tmpfs(lab.folder / "small", "2M") as small:
        out = small / "out"
        result = lab.storlab("run", lab.study(directory(load, rounds=8)), "--out", out, "--seed", "1", "--quiet")
        assert result.status == 1, str(result)
        assert "no space left on the file system of the run's folder" in result.stderr
        assert "`storlab resume`" in result.stderr
        assert not any("storlab-" in path.name for path in lab.scratch.iterdir()), "all the same, all is torn down"
        sh("mount", "-o", "remount,size=32M", str(small))
        result = lab.storlab("resume", out, "--quiet").with_status(0)
        shutil.copytree(out, lab.out)
    assert [record.trial for record in lab.records()] == list(range(1, 9))
    assert {record.status for record in lab.records()} == {"done"}


@pytest.mark.needs("root")
@small_ext4_blocks
def test_what_the_kernel_can_not_mount_is_unsupported_with_the_kernels_reason(lab: Laboratory) -> None:
    big = 'big = { layer = "mkfs", type = "ext4", block_size = "16k" }'
    assert lab.execute(LOOPS.replace('xfs = { layer = "mkfs", type = "xfs" }', big)).ending == "nothing measured"
    records = [record for record in lab.records() if record.levels["fs"] == "big"]
    assert [record.status for record in records] == ["unsupported"], "once, in the first round that came to it"
    assert records[0].reason == "the kernel does not mount it: EXT4-fs: bad block size 16384"


Hide = Callable[[str], None]


@pytest.fixture
def hide(lab: Laboratory, monkeypatch: pytest.MonkeyPatch) -> Hide:
    """What makes a program missing: a folder with links to all others is the PATH."""

    def without(program: str) -> None:
        folder = lab.folder / "bin"
        folder.mkdir()
        for source in reversed([Path(part) for part in os.environ["PATH"].split(":") if Path(part).is_dir()]):
            for path in source.iterdir():
                link = folder / path.name
                if path.name != program:
                    link.unlink(missing_ok=True)
                    link.symlink_to(path)
        monkeypatch.setenv("PATH", str(folder))
        monkeypatch.setattr("storlab.base.programs.ADMINISTRATION", ())

    return without


@pytest.mark.needs("root")
def test_a_program_that_is_missing_makes_its_cells_unsupported_with_the_remedy(lab: Laboratory, hide: Hide) -> None:
    hide("mkfs.xfs")
    outcome = lab.execute(LOOPS)
    assert outcome.ending == "nothing measured"
    reasons = {record.levels["fs"]: record.reason for record in lab.records()}
    assert reasons == {"ext4": None, "xfs": "mkfs.xfs is not installed (apt-get install xfsprogs)"}


@pytest.mark.needs("root")
def test_a_run_is_not_resumed_where_what_it_has_measured_is_not_supported_any_more(
    lab: Laboratory, hide: Hide, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.execute(LOOPS.replace("2, max = 2", "1, max = 1"))
    before = [record.trial for record in lab.records()]
    path = os.environ["PATH"]
    hide("mkfs.xfs")
    with pytest.raises(UserError, match=r"the run has measured what this machine no longer can: mkfs.xfs is not"):
        lab.go_on(extent=Extent(more=1))
    monkeypatch.setenv("PATH", path)
    assert [record.trial for record in lab.records()] == before
    lab.go_on(extent=Extent(more=1))
    assert {record.status for record in lab.records()} == {"done"} and len(lab.records()) == len(before) + 2


@pytest.mark.needs("root")
def test_what_was_mounted_before_and_can_not_be_now_has_failed_and_is_not_unsupported(lab: Laboratory) -> None:
    break_it = "dd if=/dev/zero of=$(df --output=source {target} | tail -n 1) bs=1M count=1 conv=notrunc,fsync"
    kept, mount = ON_LOOP.replace(" }", ', keep = "run" }').rsplit(", {", 1)[0], '{ layer = "mount", options = "ro" }'
    load = f'command = {{ argv = ["sh", "-c", "{break_it}"] }}'
    lab.execute(directory(load, rounds=3, rest="[nodes.host]", stack=f"[{kept}, {mount}]"), unconfined=True)
    assert [record.status for record in lab.records()] == ["done", "failed", "done"], [r.reason for r in lab.records()]
    assert "mount" in (lab.records()[1].reason or "")


def test_a_study_of_which_nothing_can_run_here_is_refused_with_nothing_done(lab: Laboratory, hide: Hide) -> None:
    hide("fio")
    with pytest.raises(UserError, match=r"nothing of this study can run here: fio is not installed \(apt-get"):
        lab.execute(directory('fio = { rw = "read", size = "1M" }'))
    assert not lab.out.exists()


def test_a_run_into_a_folder_with_files_is_refused_and_leaves_them(lab: Laboratory) -> None:
    lab.out.mkdir()
    (lab.out / "mine").write_text("mine")
    with pytest.raises(UserError, match="is not empty"):
        lab.execute(directory('command = { argv = ["true"] }'))
    assert [path.name for path in lab.out.iterdir()] == ["mine"]
    assert processes_with(f"XDG_STATE_HOME={lab.folder / 'state'}") == []


def test_a_load_that_removes_its_own_folder_fails_alone(lab: Laboratory) -> None:
    remove = "rm -rf $(dirname $(dirname $PWD))"
    lab.run(directory(f'command = {{ argv = ["sh", "-c", "{remove}; exec sleep 0.1"] }}', rounds=2), "--unconfined")
    assert [record.status for record in lab.records()] == ["failed", "failed"]


class Removing(Observer):
    """Removes some of the run's folder, and perhaps then all, once its first trial has begun."""

    def __init__(self, lab: Laboratory, what: str) -> None:
        self.lab, self.path = lab, lab.out / what

    def trial_begins(self, planned: object, cell: object, left: object) -> None:
        shutil.rmtree(self.path) if self.path.is_dir() else self.path.unlink()


@pytest.mark.parametrize(
    ("what", "where"),
    [(".", "it was removed"), ("manifest.json", "it was removed"), ("trials", "some of it was removed")],
)
def test_a_folder_that_is_removed_while_the_run_writes_is_not_made_again(
    lab: Laboratory, what: str, where: str
) -> None:
    """`rm -r` takes the manifest before the folder itself; the study and its folder are not at fault."""
    with pytest.raises(StorlabError, match=f"{lab.out} is not .* any more: {where} while the run wrote") as raised:
        lab.execute(directory('command = { argv = ["true"] }', rounds=3), Removing(lab, what))
    assert not isinstance(raised.value, UserError), "whose status is 2"
    assert lab.leftovers() == [] and lab.out.exists() == (what != ".")
    assert not (lab.out / "trials").exists() or what == "manifest.json"
