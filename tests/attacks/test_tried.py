"""What was tried on Storlab and held, as far as no other file here tries it: odd surroundings, leavings and records."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
from pathlib import Path

import pytest

from attacks.odd_files import bounded
from attacks.test_run_folders import answered
from attacks.test_wants import COMMAND, FOLDER, PLAIN, finished, study
from laboratory import Laboratory
from laboratory.studies import directory
from storlab.base.limits import FILES
from study.program import PROGRAM, call
from study.test_malformed import FILES as NO_STUDIES

REPORT, RUN = "$S report out", "$S run study.toml --set scratch=$PWD/scratch --out again --quiet"
MOUNTED = (
    "mkdir -p small; unshare --mount sh -c 'mount -t tmpfs -o {options} none small; "
    "$S run {study}.toml --set scratch=$PWD/scratch --out small/again --quiet'"
)
SURROUNDINGS: dict[str, tuple[str, set[int]]] = {
    "one column": (f"COLUMNS=1 {REPORT}", {0}),
    "columns below nothing": (f"COLUMNS=-5 {REPORT}", {0}),
    "columns of no number": (f"COLUMNS=abc {REPORT}", {0}),
    "a thousand million columns": (f"COLUMNS=1000000000 {REPORT}", {0}),
    "a folder that is gone": (f"mkdir gone; O=$PWD/out; cd gone; rmdir ../gone; {REPORT.replace('out', '$O')}", {0}),
    "no standard input": (f"{REPORT} <&-", {0}),
    "no standard error": (f"{REPORT} 2>&-", {0}),
    "no stream at all": (f"{REPORT} <&- >&- 2>&-", {1}),
    "little memory": (f"ulimit -v 300000; {REPORT}", {0, 1, 2}),
    "a study's name that is an order": ("$S plan $(printf 'x\\033[2J.toml')", {2}),
    "no home": (f"unset HOME XDG_STATE_HOME; {RUN}", {0}),
    "a home that is a file": (f"unset XDG_STATE_HOME; HOME=$PWD/study.toml {RUN}", {0}),
    "a home that nobody can write to": (f"unset XDG_STATE_HOME; HOME=/proc/self {RUN}", {0}),
    "a home from here": (f"unset XDG_STATE_HOME; HOME=home {RUN}", {0}),
    "no folder for temporary files": (f"TMPDIR=/nowhere {RUN}", {0}),
    "files for nobody else": (f"umask 077; {RUN}", {0}),
    "files for nobody": (f"umask 777; {RUN}", {0, 1, 2, 3}),
    "few descriptors": (f"ulimit -n 16; {RUN}", {0, 1, 2, 3}),
    "short files": (f"ulimit -f 1; {RUN}", {1, 2, 3}),
    "a file system to read": (MOUNTED.format(options="ro", study="study"), {2}),
    "a small file system": (MOUNTED.format(options="size=2m", study="large"), {1, 3}),
}


@pytest.fixture(scope="module")
def surroundings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a study and a run of it."""
    lab = Laboratory(tmp_path_factory.mktemp("surroundings"))
    finished(lab, PLAIN)
    (lab.folder / "study.toml").write_text(study(FOLDER, COMMAND))
    (lab.folder / "large.toml").write_text(study(FOLDER, COMMAND.replace('"true"', '"head", "-c50M", "/dev/zero"')))
    return lab.folder


@pytest.mark.needs("root")
@pytest.mark.parametrize("what", SURROUNDINGS)
def test_odd_surroundings_lead_to_a_result_or_a_reason_and_leave_nothing(what: str, surroundings: Path) -> None:
    script, statuses = SURROUNDINGS[what]
    own = {"S": str(PROGRAM), "XDG_STATE_HOME": f"{surroundings}/state", "STORLAB_LOCKS": f"{surroundings}/locks"}
    argv = ["sh", "-c", f"rm -rf again; {script}"]
    ran = subprocess.run(argv, cwd=surroundings, env=os.environ | own, capture_output=True, text=True, timeout=600)
    assert ran.returncode in statuses, ran
    said = ran.stdout + ran.stderr
    assert "Traceback" not in said and "internal error" not in said and "\x1b" not in said, ran
    assert ran.returncode == 0 or said or "2>&-" in script, ran
    assert list((surroundings / "scratch").iterdir()) == []


LEAVINGS = {
    "what is no file": ("ln -s /etc/passwd link; mkfifo pipe; mkdir -p a/b; ln -s / a/root; : > plain", "done"),
    "an odd name": ("touch -- 'new\nline' ' ' '-rf' '*' \"$(printf 'x\\033[2J')\"", "done"),
    "a file that is longer than any": ("truncate -s 1T sparse", "done"),
    "too many files": (f"i=0; while [ $i -le {FILES} ]; do : > $i; i=$((i+1)); done", "failed"),
}


@pytest.mark.parametrize("what", LEAVINGS)
def test_of_what_a_load_leaves_only_files_are_kept_as_many_and_as_long_as_may_be(what: str, lab: Laboratory) -> None:
    script, status = LEAVINGS[what]
    (lab.folder / "leave.sh").write_text(script)
    ended = lab.run(directory(f"command = {{ argv = ['sh', '{lab.folder}/leave.sh'] }}"))
    (record,) = lab.records()
    assert record.status == status and "Traceback" not in ended.stderr and "\x1b[2J" not in ended.stdout, ended
    assert status == "done" or f"more than the {FILES} files" in (record.reason or ""), record
    raw = lab.out / "trials" / "0001" / "host" / "load"
    assert [path for path in raw.rglob("*") if path.is_symlink() or not (path.is_file() or path.is_dir())] == []
    assert sum(path.stat().st_blocks * 512 for path in raw.rglob("*")) < 64 * 1024**2
    if what == "what is no file":
        assert {path.name for path in raw.iterdir()} & {"link", "pipe", "plain", "root"} == {"plain"}
    assert lab.leftovers() == []


def test_a_level_that_is_a_path_is_no_more_than_a_label(lab: Laboratory) -> None:
    level = "../../../etc/only-a-label"  # a name that no other test gives a file
    ended = lab.run(directory("command = { argv = ['true', '{at}'] }", rest=f"[factors.at]\nlevels = ['{level}', 'y']"))
    assert ended.status == 0 and {record.levels["at"] for record in lab.records()} == {level, "y"}, ended
    assert level in call("report", str(lab.out)).output
    assert [path for path in lab.folder.parent.rglob("*") if path.name == "only-a-label"] == []


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finished(Laboratory(tmp_path_factory.mktemp("kept")), PLAIN)


@pytest.mark.parametrize("what", [name for name, (data, _) in NO_STUDIES.items() if data.isascii()])
@pytest.mark.parametrize("command", ["report", "resume"])
def test_what_can_be_no_study_is_none_in_a_runs_manifest_either(what: str, command: str, kept: Path) -> None:
    was = kept.read_text()
    try:
        kept.write_text(json.dumps(json.loads(was) | {"study_text": NO_STUDIES[what][0].decode()}))
        with bounded():
            assert answered(call(command, str(kept.parent))).status == 2
    finally:
        kept.write_text(was)


@pytest.mark.parametrize("tool", ["csv", "fio", "sysbench", "bonnie", "blkalgn", "pcap", "virtiofs-tests"])
def test_a_file_to_import_that_is_too_long_or_would_be_unpacked_is_refused(
    tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bomb").write_bytes(gzip.compress(bytes(64 * 1024**2)))
    with Path("long").open("wb") as file:
        file.truncate(300 * 1024**2)
    for name in ("bomb", "long"):
        with bounded(memory=1 << 30):
            ran = answered(call("import", tool, name, "--out", "run"))
        assert ran.status == 2 and name in ran.message and not Path("run").exists(), ran


def test_what_a_load_prints_without_end_is_stopped_at_a_bound(lab: Laboratory) -> None:
    ended = lab.run(directory("command = { argv = ['yes'] }"))
    (record,) = lab.records()
    assert record.status == "failed" and "256M" in (record.reason or ""), record
    assert ended.status == 3 and len(ended.stdout) < 20_000 and lab.leftovers() == [], ended
