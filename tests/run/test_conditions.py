"""One run at a time has a machine, and nothing is measured under a setting that nobody declared."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from laboratory import Laboratory, ended, in_a_loop, kill, wait_for
from laboratory.devices import new_device
from laboratory.samples import sample
from laboratory.studies import directory
from storlab.analysis.summary import CellState
from storlab.analysis.unequal import Place, Seen, among_runs
from storlab.base.errors import SafetyError, StudyError, UserError
from storlab.cli.reporting import report_input
from storlab.nodes.identity import Machine, NodeIdentity
from storlab.records.derive import derive
from storlab.records.manifest import Manifest, write_manifest
from storlab.report.language.say import say
from storlab.report.model.input import unequal_sentences
from storlab.run.machine import machine_for
from storlab.run.recovery import reclaim
from storlab.run.recovery.journal import Journal
from storlab.study.study import load_study

CASES = Path(__file__).parent / "cases"
TUNED = (CASES / "equal-disks.toml").read_text()
PREPARE = "echo {node}; [ {node} = disk-2 ] || echo 8 > /sys/block/$(basename {target})/queue/max_sectors_kb"


@pytest.mark.needs("root")
def test_a_command_that_tunes_one_of_two_equal_disks_is_told_first_and_put_back(lab: Laboratory) -> None:
    outcome = lab.succeed(TUNED.replace("PREPARE", PREPARE), trials=2, unconfined=True)
    for record in lab.records():
        found = {node: layers[1]["max_sectors_kb"] for node, layers in record.facts.items()}
        assert found["disk-1"] == 8 < found["disk-2"], "as the measured phase began"
        (changed,) = record.changed
        assert (changed.node, changed.name, changed.after) == ("disk-1", "max_sectors_kb of loop", "8")
        assert changed.now == changed.before == str(found["disk-2"])
    (one,) = outcome.summary.unequal
    assert (one.among, one.thing, one.setting) == ("nodes", "loop", "max_sectors_kb")
    tables = derive(lab.run_folder)
    assert [warning for warning in tables.warnings() if "2 trials changed max_sectors_kb of loop" in say(warning)]
    (caution,) = [each for each in report_input(lab.run_folder, tables, outcome.summary).cautions if "loop" in each]
    assert "Declared alike, but not set alike: max_sectors_kb of loop is" in caution
    assert (lab.run_folder.trial_folder(1) / "disk-2" / "prepare-1" / "stdout").read_text() == "disk-2\n"


@pytest.mark.needs("root")
def test_a_level_that_tunes_a_disk_of_the_users_reaches_no_other_level(lab: Laboratory) -> None:
    with new_device(lab.folder / "own.img") as disk:
        limit = Path("/sys/block", disk.path.rpartition("/")[2], "queue", "max_sectors_kb")
        limit.write_text("512")
        study = (CASES / "shared-disk.toml").read_text().replace("DEVICE", disk.path)
        outcome = lab.succeed(study, trials=6, unconfined=True)
        found = {(record.levels["tune"], record.facts["host"][0]["max_sectors_kb"]) for record in lab.records()}
        assert found == {("default", 512), ("small", 8)} and limit.read_text() == "512\n"
    assert outcome.summary.unequal == (), "the study says what is different"


SET = """
[nodes.host]
kind = "local"
settings = "{dirty}"
[factors.dirty]
default = {}
small = { vm.dirty_bytes = "512M", vm.laptop_mode = 1 }
"""
DIRTY = ("dirty_bytes", "dirty_ratio", "laptop_mode")


def dirty() -> dict[str, str]:
    return {f"vm.{name}": Path("/proc/sys/vm", name).read_text().strip() for name in DIRTY}


@pytest.fixture(scope="module")
def before() -> dict[str, str]:
    """Shared, so that tests which set them take turns."""
    return dirty()


@pytest.mark.needs("root")
def test_settings_of_a_node_are_put_back_after_each_of_its_trials(lab: Laboratory, before: dict[str, str]) -> None:
    outcome = lab.succeed(directory("command = { argv = ['true'] }", rest=SET), trials=2)
    assert dirty() == before
    small = {"vm.dirty_bytes": str(512 * 1024**2), "vm.dirty_ratio": "0", "vm.laptop_mode": "1"}
    of_host = {str(record.levels["dirty"]): record.settings["host"] for record in lab.records()}
    found = {level: {name: settings[name] for name in before} for level, settings in of_host.items()}
    assert found == {"default": before, "small": small}
    assert [record.changed for record in lab.records()] == [[], []] and outcome.summary.unequal == ()


@pytest.mark.needs("root")
def test_settings_of_a_run_that_is_killed_are_put_back_by_clean(lab: Laboratory, before: dict[str, str]) -> None:
    started = lab.start_run(directory("command = { argv = ['sleep', '100'] }", rest=SET), "--only", "dirty=small")
    wait_for(started, lambda: dirty()["vm.laptop_mode"] == "1" and lab.sleeps())
    kill(started)
    assert dirty() != before and "vm/laptop_mode" in lab.storlab("clean", lab.out, "--yes").stdout
    assert dirty() == before


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ("{ vm.min_free_kbytes = 10 }", "vm.min_free_kbytes: a study can't set that. It can set vm.dirty_bytes,"),
        ("{ vm.dirty_ratio = 101 }", "vm.dirty_ratio = 101: write a whole number from 0 to 100"),
        ("{ vm.swappiness = true }", "vm.swappiness = True: write a whole number from 0 to 200"),
        ('{ transparent_hugepage.enabled = "yes" }', "= yes: write always, madvise, never"),
        ('{ vm.dirty_bytes = "lots" }', '"lots" is not a size'),
        ("{ vm.dirty_bytes = 4096, vm.dirty_ratio = 5 }", "dirty_ratio and vm.dirty_bytes: each sets the other to 0"),
    ],
)
def test_a_setting_that_can_not_be_is_refused_with_what_can(settings: str, reason: str, lab: Laboratory) -> None:
    text = directory("command = { argv = ['true'] }", rest=f"[nodes.host]\nkind = 'local'\nsettings = {settings}")
    with pytest.raises(StudyError, match=re.escape(reason)):
        load_study(lab.study(text))


def test_a_setting_of_this_machine_takes_a_permission(lab: Laboratory) -> None:
    refused = lab.start_run(directory("command = { argv = ['true'] }", rest=SET), trusted=False)
    _, said = refused.communicate()
    assert refused.returncode == 2 and b"--allow kernel=vm.dirty_bytes --allow kernel=vm.laptop_mode" in said


@pytest.mark.needs("root")
def test_what_a_failed_command_printed_is_kept_and_told(lab: Laboratory) -> None:
    lab.execute(TUNED.replace("PREPARE", "echo as far as this; echo but not here >&2; exit 3"))
    (record, *_) = lab.records()
    assert record.status == "failed" and "as far as this\nbut not here" in record.detail
    assert [layer["layer"] for layer in record.facts["disk-1"]] == ["file", "loop"], "though it was never measured"


def seen(*rows: tuple[int, int, str, str]) -> Seen:
    """Cell, trial, node and value of each."""
    found = Seen()
    for cell, trial, node, value in rows:
        found.add("alike", "loop", [("scheduler", value), ("fua", "0")], Place(cell, trial, node))
    return found


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([(1, 1, "a", "bfq"), (1, 1, "b", "none")],
         "Declared alike, but not set alike: scheduler of loop is bfq on a; none on b"),
        ([(1, 1, "a", "bfq"), (1, 2, "a", "none"), (2, 3, "a", "none")],
         "Not set alike in all trials: scheduler of loop is none in trials 2 and 3; bfq in trial 1"),
        ([(1, 1, "a", "bfq"), (2, 2, "a", "none"), (2, 3, "a", "none")],
         "Also differs, though the study does not say so: scheduler of loop is none with bs=8k; bfq with bs=4k"),
        ([(1, 1, "a", "bfq"), (2, 2, "a", "bfq")], ""),
    ],
)  # fmt: skip
def test_what_differs_is_named_where_it_does(rows: list[tuple[int, int, str, str]], said: str) -> None:
    cells = [CellState(number, {"bs": bs}, "measured", 1) for number, bs in ((1, "4k"), (2, "8k"))]
    sentences = unequal_sentences(seen(*rows).unequal(), cells)
    assert [sentence.partition(". ")[0] for sentence in sentences] == ([said] if said else [])


def test_settings_that_explain_are_those_that_all_trials_of_a_cell_had_on_all_nodes() -> None:
    both = [(1, 1, "a", "bfq"), (1, 1, "b", "none"), (1, 2, "a", "none"), (1, 2, "b", "bfq")]
    found = seen(*both, (2, 3, "a", "none"), (2, 4, "a", "bfq"))
    same = found.same(lambda thing, setting: (thing, setting) != ("loop", "fua"))
    assert same == {1: {"scheduler of loop": "bfq, none"}, 2: {}}


@in_a_loop
async def test_two_runs_that_change_settings_wait_for_each_other_and_for_what_a_killed_one_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(reclaim, "LOCK", tmp_path / "run" / "settings")
    said: list[str] = []

    async def hold(run: str, of: str = "free") -> None:
        async with reclaim.alone(run, tmp_path / run, of == "free", said.append):
            said.append(f"{run} begins")
            await asyncio.sleep(0.05)
            said.append(f"{run} ends")

    await asyncio.gather(hold("first"), hold("second"), hold("third", "confined"))
    assert said.index("third begins") < said.index("first ends") < said.index("second begins")
    assert [each for each in said if each.startswith(f"Waiting for the run first in {tmp_path / 'first'}: ")]
    (tmp_path / "second").mkdir()
    manifest = Manifest("20260101-000000-abcd", "A", "0", (), datetime(2026, 1, 1, tzinfo=UTC))
    write_manifest(tmp_path / "second", manifest)
    with Journal(tmp_path / "second" / "journal.jsonl") as journal:
        journal.register(NodeIdentity("host", "local", "", Machine("", "")), "settings.restore", {})
    await hold("second")
    with pytest.raises(SafetyError, match=f"`storlab clean {tmp_path / 'second'}` puts them back"):
        await hold("first")


def test_a_setting_of_one_run_and_not_of_another_is_told_where_they_are_compared() -> None:
    runs = {name: seen((1, 1, "a", value)) for name, value in (("before", "bfq"), ("after", "none"))}
    (sentence,) = unequal_sentences(among_runs(runs), ())
    assert sentence.startswith("Not set alike in all runs: scheduler of loop is bfq in before; none in after.")


SLOW = directory("command = { argv = ['sleep', '1'] }")


def quiet(message: str) -> None:
    raise AssertionError(message)


def test_a_second_run_is_refused_with_who_has_the_machine(lab: Laboratory) -> None:
    first = lab.start_run(SLOW, "--rounds", "3")
    wait_for(first, lambda: lab.sleeps())
    words = ("run", lab.study(SLOW), "--out", lab.folder / "second")
    refused = lab.storlab(*words).with_status(2)
    said = (
        rf"another run is using this machine: {re.escape(str(lab.out))}, of \w+ since 20\d\d-.* \(process {first.pid}"
    )
    assert re.search(rf"{said}\)", refused.stderr), refused
    assert not (lab.folder / "second").exists()
    waited = lab.storlab(*words, "--wait")
    assert waited.status == 0 and "Waiting for another run on this machine" in waited.stderr, waited
    assert ended(first).status == 0


@pytest.fixture
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STORLAB_LOCKS", str(tmp_path))
    return tmp_path


def test_runs_that_share_a_machine_keep_out_those_that_do_not(locks: Path) -> None:
    refused = pytest.raises(UserError, match=r"another run is using this machine: b, of")
    with machine_for("a", quiet, shared=True), machine_for("b", quiet, shared=True), refused, machine_for("c", quiet):
        pass
    with machine_for("c", quiet), pytest.raises(UserError, match=r": c, of"), machine_for("a", quiet, shared=True):
        pass


def test_a_run_that_is_killed_has_given_its_machine_back(locks: Path) -> None:
    program = "import time; from storlab.run.machine import machine_for\n"
    program += "with machine_for('gone', print): print('held', flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        with pytest.raises(UserError, match=rf"gone, of .* \(process {holder.pid}\)"), machine_for("next", quiet):
            pass
        kill(holder, signal.SIGKILL)
    with machine_for("next", quiet):
        pass


@pytest.mark.parametrize("content", [b"", b"\xff\x00", b'{"user": 1}', b"x" * 10_000])
def test_what_stands_in_the_lock_need_not_make_sense(locks: Path, content: bytes) -> None:
    with machine_for("a", quiet):
        (locks / "machine").write_bytes(content)
        with pytest.raises(UserError, match="of one that could not write down what it is"):
            machine_for("b", quiet).__enter__()


def test_a_link_in_place_of_the_lock_is_not_followed(locks: Path) -> None:
    precious = locks / "precious"
    precious.write_text("mine")
    (locks / "machine").symlink_to(precious)
    with pytest.raises(UserError, match="cannot lock this machine by"):
        machine_for("a", quiet).__enter__()
    assert precious.read_text() == "mine"


@pytest.mark.needs("root", "setpriv")
def test_another_user_heeds_the_lock_of_root_and_cannot_hold_it() -> None:
    """With a /run of its own, where it may do that."""
    environment = {name: value for name, value in os.environ.items() if name != "STORLAB_LOCKS"}
    inside = f'mount -t tmpfs -o mode=755 run /run && exec {sys.executable} -c "$1"'
    argv = ["unshare", "--mount", "sh", "-c", inside, "sh", sample(__file__, "cases/lock_of_root.py")]
    said = subprocess.run(argv, env=environment, check=False, stdout=subprocess.PIPE, text=True).stdout
    used = "another run is using this machine: of root"
    assert said == f"flock: Permission denied\nshared: {used}\nalone: {used}\nafter: had it\n"
