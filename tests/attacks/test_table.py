"""Attacks by the author of a study that no permission is for: each kind in two forms, by each command that takes one.

Of a run's folder, ``clean`` takes the journal and no study: there an attack is what the journal says was set up.

What a permission is for is in ``test_wants`` and ``test_suite_wants``, and what a load does once it runs in
``test_loads``.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from attacks.test_journals import craft
from attacks.test_undos import foreign
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
    "S17 a mount point": (
        study(f'[{POOL}, dataset = {{ mountpoint = "/etc/cron.d" }} }}, {{ layer = "zfs" }}]'),
        "it is mounted in the run's own folder",
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
        patch.setenv("XDG_STATE_HOME", str(lab.folder / "state"))
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


SETUPS: Mapping[str, tuple[str, ...]] = {
    "S14": ("file.remove", "directory.remove", "scratch.remove", "sockets.remove", "loop.detach"),
    "S15": ("network.restore-card", "network.remove", "uplink.remove", "iscsi-target.remove", "nvme-target.remove"),
    "S15b": ("processes.end", "server.stop", "watch.end"),
    "S16": ("server.stop", "tcp.restore", "settings.restore"),
    "S17": ("zfs.destroy", "zpool.destroy", "zpool.forget", "zpool.node", "zfs.parameter", "nfsd.limit", "nfsd.stop"),
    "S19": ("server.stop", "processes.end"),
    "S20": ("mount.unmount", "share.unmount"),
    "mkfs": ("loop.detach", "file.remove", "nbd.disconnect", "mapper.remove"),
    "QEMU": ("pci.give-back", "boot.back", "suite.leftovers"),
}
"""What a journal may say was set up for an attack, each of somebody else's."""
NODES = {
    "ssh an option": {"name": "far", "kind": "ssh", "address": "-oProxyCommand=touch${IFS}PROOF"},
    "ssh an option after a user": {"name": "far", "kind": "ssh", "address": "x@-oProxyCommand=touch${IFS}PROOF"},
    "ssh a folder above": {"name": "far", "kind": "ssh", "address": "nowhere.invalid ../../bin/sh"},
    "a name that leads away": {"name": "../w"},
}
"""Where it may say so."""


@pytest.mark.needs("root")
@pytest.mark.parametrize("attack", ATTACKS)
def test_clean_does_nothing_of_it_whatever_the_manifest_allows_and_the_journal_names(
    attack: str, kept: Laboratory, tmp_path: Path
) -> None:
    victim, proof = tmp_path / "victim", tmp_path / "proof"
    (victim / "data").mkdir(parents=True)
    (victim / "disk.img").write_text("mine")
    manifest, journal = kept.out / "manifest.json", kept.out / "journal.jsonl"
    was = manifest.read_text(), journal.read_text()
    names = SETUPS.get(attack.split()[0], ("scratch.remove",))
    on = {key: text.replace("PROOF", str(proof)) for key, text in NODES.get(attack, {}).items()}
    allowed = [f"host={on['address'].partition(' ')[0]}"] if "address" in on else ["host=nowhere.invalid"]
    claims = {"study_text": ATTACKS[attack][0], "unconfined": True, "allowed": allowed}
    try:
        manifest.write_text(json.dumps(json.loads(was[0]) | claims))
        set_up = json.loads(
            json.dumps({each: foreign(each, kept.identity) for each in names}).replace("/srv/other", str(victim))
        )
        craft(kept, *set_up.items(), **on)
        before = sorted(kept.folder.rglob("*"))
        ran = call("clean", str(kept.out))
        if attack in NODES:
            refused(ran, "is damaged" if "address" not in on else f"--allow {shlex.quote(allowed[0])}")
            ran = call("clean", str(kept.out), f"--allow={allowed[0]}")
            assert ran.status in (1, 2) and "Traceback" not in ran.message, ran
        else:
            assert (ran.status, ran.output.count("left alone")) == (1, len(names)), ran
        assert sorted(kept.folder.rglob("*")) == before
        assert (victim / "disk.img").read_text() == "mine" and (victim / "data").is_dir() and not proof.exists()
    finally:
        manifest.write_text(was[0])
        journal.write_text(was[1])


SUITES = {
    "S14 a folder elsewhere": ('[groups.g]\nfolder = "/etc"\ntests = ["t"]', "leads out of the suite's folder"),
    "S14 a folder above": ('[groups."../secret"]\ntests = ["t"]', "leads out of the suite's folder"),
    "S14 a test elsewhere": ('[groups.g]\ntests = ["/etc/shadow"]', "leads out of the group's folder"),
    "S14 a test above": ('[groups.g]\ntests = ["a/../../t"]', "leads out of the group's folder"),
    "a name that leads away": ('[groups.g]\ntests = [{ name = "../t", run = "true" }]', "leads out of the group's"),
    "QEMU an argument": ('[guests]\nqemu_args = ["-snapshot"]\n[groups.g]\ntests = ["t"]', "guests.qemu_args"),
}


@pytest.mark.parametrize("command", ["run", "list"])
@pytest.mark.parametrize("elsewhere", [False, True], ids=["here", "elsewhere"])
@pytest.mark.parametrize("attack", SUITES)
def test_a_suite_gets_no_further_with_it(attack: str, elsewhere: bool, command: str, theirs: Path) -> None:
    text, says = SUITES[attack]
    (theirs / "suite.toml").write_text(f'folder = "."\n{text}\n')
    on = ["--on", "nowhere.invalid"] * elsewhere
    refused(call("suite", command, *on, str(theirs / "suite.toml")), "suite.toml: line ", says)
