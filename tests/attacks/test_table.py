"""Attacks by the author of a study that no permission is for: each kind in two forms, by each command that takes one.

What a permission is for is in ``test_wants`` and ``test_suite_wants``, and what a load does once it runs in
``test_loads``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from attacks.test_wants import FOLDER, PLAIN, SERVED, database, finished, guest, refused, study
from laboratory import Laboratory, opened
from study.program import call

ON_FILE = '{ layer = "file", size = "300M" }, { layer = "loop" }, { layer = "mkfs", type = "ext4" }'
POOL = '{ layer = "zpool", size = "64M"'


def mounted(options: str) -> str:
    return study(f'[{ON_FILE}, {{ layer = "mount", options = "{options}" }}]')


def pgbench(script: str) -> str:
    stack = '[{ layer = "directory" }, { layer = "postgresql" }]'
    return study(stack, f'pgbench = {{ script = "{script}" }}')


def over_ssh(more: str) -> str:
    return SERVED.replace('kind = "ssh"', f'kind = "ssh"\n{more}', 1)


ATTACKS = {
    "S14 a script elsewhere": (pgbench("/etc/shadow"), "leads out of that file's folder"),
    "S14 a script above": (pgbench("../secret.sql"), "leads out of that file's folder"),
    "S14 a script behind a link": (pgbench("link.sql"), "a symbolic link is on the way"),
    "S14 a job file elsewhere": (study(FOLDER, 'fio = { job_file = "../secret.sql" }'), "leads out of that file"),
    "S15 a port": (
        study(FOLDER, 'fio = { ioengine = "net", listen = true, port = 18888, rw = "read", size = "1M" }'),
        "measure a network by a stack that crosses it",
    ),
    "S15 a port by another engine": (
        study(FOLDER, 'fio = { ioengine = "netsplice", rw = "read", size = "1M" }'),
        "measure a network by a stack that crosses it",
    ),
    "S15b a command": (
        study(FOLDER, 'fio = { ioengine = "exec", program = "sh", arguments = "-c id" }'),
        "fio would run a command",
    ),
    "S15b a command before": (study(FOLDER, 'fio = { exec_prerun = "id", size = "1M" }'), "fio would run a command"),
    "S16 a server for all": (database(", settings = { skip_networking = false }"), "is Storlab's own"),
    "S16 a server by a prefix": (database(', settings = { loose_bind_address = "0.0.0.0" }'), "not among"),
    "S16 a server without rights": (database(", settings = { skip_grant_tables = true }"), "not among"),
    "S17 an export": (
        study(f'[{POOL} }}, {{ layer = "zfs", properties = {{ sharenfs = "rw,no_root_squash" }} }}]'), "not among",
    ),
    "S17 a mount point in a name": (
        study(f'[{POOL} }}, {{ layer = "zfs", properties = {{ "mountpoint=/etc/cron.d" = "x" }} }}]'), "not among",
    ),
    "S17 a file of a pool": (
        study(f'[{POOL}, properties = {{ "cachefile=/etc/passwd" = "x" }} }}, {{ layer = "zfs" }}]'), "not among",
    ),
    "S19 a shell in mid-line": (pgbench("shell.sql"), "not among pgbench's commands"),
    "S19 a shell for a variable": (pgbench("setshell.sql"), "not among pgbench's commands"),
    "S20 a panic": (mounted("errors=panic"), "it takes"),
    "S20 another folder": (mounted("X-mount.subdir=/"), "not among"),
    "S20 a helper": (mounted("uhelper=udisks2"), "not among"),
    "mkfs a file": (
        study('[{ layer = "file", size = "300M" }, { layer = "loop" }, { layer = "mkfs", type = "xfs", '
              'args = ["-d", "file,name=/etc/x"] }]'),
        "not among mkfs.xfs's options of data",
    ),
    "mkfs a folder": (
        study('[{ layer = "file", size = "300M" }, { layer = "loop" }, { layer = "mkfs", type = "ext4", '
              'args = ["-d", "/root"] }]'),
        "not among mke2fs's options",
    ),
    "QEMU a file of a CPU": (guest('cpu = "max,/etc/shadow"'), "it takes a model and features"),
    "ssh an option": (over_ssh("").replace("nowhere.invalid", "-oProxyCommand=id"), "hosts"),
    "ssh an option after a user": (over_ssh("").replace("nowhere.invalid", "x@-oProxyCommand=id"), "hosts"),
    "ssh a folder above": (over_ssh('scratch = "/var/tmp/../../etc"'), "scratch"),
    "a name that leads away": (
        study(FOLDER).replace("workload.w", 'workload."../w"'), "workload",
    ),
}  # fmt: skip
COMMANDS = {
    "run": ("run",),
    "plan": ("plan",),
    "shell": ("shell",),
    "crash": ("crash",),
    "noise": ("noise",),
    "run elsewhere": ("run", "--on", "nowhere.invalid"),
    "plan elsewhere": ("plan", "--on", "nowhere.invalid"),
    "crash elsewhere": ("crash", "--on", "nowhere.invalid"),
}


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A stranger's folder, beside one with a secret."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    (tmp_path / "secret.sql").write_text("SELECT 1;\n")
    (folder / "link.sql").symlink_to("../secret.sql")
    (folder / "shell.sql").write_text("SELECT 1 \\shell touch /tmp/x\n")
    (folder / "setshell.sql").write_text("\\setshell x id\nSELECT :x;\n")
    return folder


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("attack", ATTACKS)
def test_it_is_refused_with_its_line_by_every_command_and_no_permission_helps(
    attack: str, command: str, theirs: Path
) -> None:
    text, says = ATTACKS[attack]
    (theirs / "study.toml").write_text(text)
    before = sorted(theirs.parent.rglob("*"))
    everything = [f"--allow={word}=/" for word in ("code", "device", "write", "read")]
    ran = call(*COMMANDS[command], str(theirs / "study.toml"), *everything)
    refused(ran, "study.toml: line ", says)
    assert sorted(theirs.parent.rglob("*")) == before


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laboratory]:
    """A run that is over, whose folder somebody changes."""
    with opened(Laboratory(tmp_path_factory.mktemp("kept"))) as lab, pytest.MonkeyPatch.context() as patch:
        patch.setenv("STORLAB_LOCKS", str(lab.folder / "state" / "locks"))
        finished(lab, PLAIN)
        yield lab


@pytest.mark.needs("root")
@pytest.mark.parametrize("attack", [each for each in ATTACKS if not each.startswith(("S14", "S19"))])
def test_the_folder_of_a_run_gets_no_further_with_it(attack: str, kept: Laboratory) -> None:
    manifest = kept.out / "manifest.json"
    was = manifest.read_text()
    try:
        manifest.write_text(json.dumps(json.loads(was) | {"study_text": ATTACKS[attack][0]}))
        before = sorted(kept.folder.rglob("*"))
        for words in (
            ["resume", str(kept.out), "--rounds", "2"],
            ["run", "--of", str(kept.out), "--rounds", "2-2", "--out", str(kept.folder / "part")],
        ):
            refused(call(*words), "line ", ATTACKS[attack][1])
        assert sorted(kept.folder.rglob("*")) == before
    finally:
        manifest.write_text(was)
