"""What a study wants beyond its own scratch is refused unless the command line allows it, whatever else says so."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from laboratory import Ended, Laboratory
from laboratory.samples import sample
from storlab.run.permissions import Permissions
from storlab.study.study import named_studies
from study.program import Ran, call

root = pytest.mark.needs("root")

TITLE = 'schema = 1\ntitle = "A stranger\'s"\n'
TAIL = sample(__file__, "cases/wants-tail.toml")
COMMAND = 'command = { argv = ["true"] }'


def study(stack: str, load: str = COMMAND, head: str = "", nodes: str = "") -> str:
    return f"{TITLE}{head}\nstack = {stack}\nprobes = {{}}\n{nodes}{TAIL.replace('LOAD', load)}"


def beside(layer: str) -> str:
    """A further chain of this machine, which no load uses."""
    return study(FOLDER, nodes=f'nodes.host.extra.x = {{ stack = [{{ layer = "directory" }}, {layer}] }}\n')


def guest(keys: str) -> str:
    return study(FOLDER, nodes=f'nodes.vm = {{ kind = "vm", {keys} }}\n')


def database(key: str, load: str = "sysbench = { runtime = 1, threads = 1 }") -> str:
    data = "data = { tables = 1, rows = 10 }"
    return study(f'[{{ layer = "directory" }}, {{ layer = "mariadb", {data}{key} }}]', load)


SERVED = f"""{TITLE}probes = {{}}
[nodes.server]
kind = "ssh"
hosts = ["nowhere.invalid"]
interface = "eth0"
address = "192.0.2.7"
tcp = {{ sack = false }}
stack = [{{ layer = "file", size = "1M" }}, {{ layer = "nbd-export" }}]
[nodes.client]
kind = "ssh"
hosts = ["elsewhere.invalid"]
from = "server"
stack = [{{ layer = "nbd" }}]
{TAIL.replace("LOAD", COMMAND)}"""
FOLDER = '[{ layer = "directory" }]'
WANTS = {
    "a daemon of its own": (beside('{ layer = "virtiofsd", path = "/srv/fake" }'), "x.stack[1].path", "code=/srv/fake"),
    "a server's programs": (database(', bindir = "/srv/bin"'), "stack[1].bindir", "code=/srv/bin"),
    "an emulator": (guest('qemu = "/srv/qemu"'), "nodes.vm.qemu", "code=/srv/qemu"),
    "an engine": (study(FOLDER, 'fio = { ioengine = "external:/srv/e.so" }'), "w.fio.ioengine", "code=/srv/e.so"),
    "an engine of one job": (
        study(FOLDER, 'fio = { jobs = { a = { ioengine = "external:/srv/e.so" } } }'), "fio.jobs", "code=/srv/e.so",
    ),
    "a script": (
        database("", 'sysbench = { runtime = 1, threads = 1, script = "/srv/x.lua" }'), "script", "code=/srv/x.lua",
    ),
    "arguments of an emulator": (
        guest('qemu_args = ["-serial", "file:/srv/x"]'), "nodes.vm.qemu_args", "code=-serial file:/srv/x",
    ),
    "a program with a load's capabilities": (
        study(FOLDER, 'posix = { pjdfstest = { path = "/srv/evil" } }'), "posix.pjdfstest.path", "code=/srv/evil",
    ),
    "a program for a guest": (
        study(
            FOLDER,
            'on = "vm"\nposix = { pjdfstest = { path = "/srv/evil" } }',
            nodes='nodes.vm = { kind = "vm", stack = [{ layer = "directory" }] }\n',
        ),
        *("posix.pjdfstest.path", "read=/srv/evil"),
    ),
    "a trace": (
        study(FOLDER, 'fio = { read_iolog = "t:/srv/trace", replay_redirect = "{target}/x", size = "1M" }'),
        *("w.fio.read_iolog", "read=/srv/trace"),
    ),
    "a trace of one job": (
        study(FOLDER, 'fio = { jobs = { a = { read_iolog = "/srv/t", replay_redirect = "{target}/x" } } }'),
        *("fio.jobs", "read=/srv/t"),
    ),
    "a root for guests": (guest('kernel = "/srv/k", rootfs = "/"'), "nodes.vm.rootfs", "read=/"),
    "a kernel for guests": (guest('kernel = "/srv/k"'), "nodes.vm.kernel", "read=/srv/k"),
    "a file of this machine": (
        study('[{ layer = "file", copy = "/etc/shadow" }, { layer = "loop" }]'), *("copy", "read=/etc/shadow"),
    ),
    "an image": (
        study('[{ layer = "image-copy", base = { file = "/etc/shadow" } }, { layer = "loop" }]'),
        *("base.file", "read=/etc/shadow"),
    ),
    "a folder": (study('[{ layer = "directory", path = "/srv" }]'), "stack[0].path", "write=/srv"),
    "another scratch": (study(FOLDER, head='scratch = "/srv"'), "scratch", "write=/srv"),
    "a device": (study('[{ layer = "device", path = "/dev/none" }]'), "stack[0].path", "device=/dev/none"),
    "a disk": (study('[{ layer = "file", size = "1M" }]', head='disk = "/dev/none"'), "disk", "device=/dev/none"),
    "a controller": (beside('{ layer = "pci", address = "0000:00:1f.7" }').replace('{ layer = "directory" }, {', "{"),
        "address", "device=0000:00:1f.7"),
    "an address": (study(FOLDER, nodes='nodes.host.address = "192.0.2.7"\n'), "nodes.host.address", "listen=192.0.2.7"),
    "an interface": (
        study(FOLDER, nodes='nodes.host = { interface = "eth0", address = "192.0.2.7" }\n'), "interface", "kernel=eth0",
    ),
    "a machine": (SERVED, "nodes.server.hosts[0]", "host=nowhere.invalid"),
    "a machine that serves another": (SERVED, "nodes.client.hosts[0]", "host=elsewhere.invalid"),
    "a setting of TCP": (SERVED, "tcp.sack", "kernel=tcp_sack"),
    "a setting of ZFS": (
        study('[{ layer = "zpool", size = "64M", module = { zfs_arc_max = 1 } }, { layer = "zfs" }]'),
        *("module.zfs_arc_max", "kernel=zfs_arc_max"),
    ),
    "a level of a factor": (
        study('[{ layer = "directory", path = "{at}" }]', head='primary = "elapsed"\nfactors.at = ["/srv", "/srv/b"]'),
        *("stack[0].path", "--allow write=/srv/b"),
    ),
}  # fmt: skip


@pytest.fixture
def stranger(lab: Laboratory) -> Iterator[Path]:
    """A study in a folder of somebody else's."""
    (lab.folder / "theirs").mkdir()
    yield lab.folder / "theirs" / "study.toml"


def refused(ran: Ran | Ended, *words: str) -> None:
    output, message = (ran.stdout, ran.stderr) if isinstance(ran, Ended) else (ran.output, ran.message)
    assert (ran.status, output) == (2, ""), ran
    assert "Traceback" not in message and "internal error" not in message, message
    assert [word for word in words if word not in message] == [], message


@pytest.mark.parametrize("what", WANTS)
def test_it_is_refused_with_its_key_and_line_and_the_option_that_allows_it(
    what: str, lab: Laboratory, stranger: Path
) -> None:
    text, key, permission = WANTS[what]
    stranger.write_text(text)
    refused(call("plan", str(stranger)), key, "line ", permission, "--allow ")
    listed = call("plan", str(stranger), "--wants")
    assert listed.status == 0 and permission.partition("=")[2] in listed.output, listed
    rows = json.loads(call("plan", str(stranger), "--wants", "--json").output)
    options = [f"--allow={each['word']}={each['value']}" for each in rows]
    assert permission.removeprefix("--allow ") in " ".join(options)
    allowed = call("plan", str(stranger), *options)
    assert "--allow" not in allowed.message, allowed


@pytest.mark.parametrize("words", ["run", "plan", "shell", "crash", "noise"], ids=str)
@pytest.mark.parametrize("key", ["daemon", "scratch"])
def test_no_command_that_takes_a_study_runs_or_writes_what_nobody_allowed(
    words: str, key: str, lab: Laboratory, stranger: Path
) -> None:
    proof, fake = lab.folder / "proof", stranger.parent / "fake"
    fake.write_text(f"#!/bin/sh\ntouch {proof}\n")
    fake.chmod(0o755)
    text = beside(f'{{ layer = "virtiofsd", path = "{fake}" }}')
    stranger.write_text(text if key == "daemon" else study(FOLDER, head=f'scratch = "{lab.folder}"'))
    before = sorted(lab.folder.rglob("*"))
    permission = f"code={fake}" if key == "daemon" else f"write={lab.folder}"
    out = ["--out", str(lab.out)] * (words in ("run", "crash"))
    refused(lab.storlab(words, stranger, *out, trusted=False), f"--allow {permission}")
    assert not proof.exists() and not lab.out.exists()
    after = [path for path in sorted(lab.folder.rglob("*")) if lab.folder / "state" not in (path, *path.parents)]
    assert after == before


def test_what_the_command_line_sets_itself_is_allowed_and_what_a_file_sets_beside_it_is_not(
    lab: Laboratory, stranger: Path
) -> None:
    (lab.folder / "mine").mkdir()
    (lab.folder / "other").mkdir()
    both = '[{ layer = "directory", path = "{at}" }]'
    stranger.write_text(study(both, nodes=f'parameters = {{ at = "{lab.folder}/other" }}\n'))
    refused(lab.storlab("plan", stranger, trusted=False), f"--allow write={lab.folder}/other")
    assert lab.storlab("plan", stranger, "--set", f"at={lab.folder}/mine", trusted=False).status == 0
    more = lab.storlab(
        "plan", stranger, "--set", f"at={lab.folder}/mine", "--set", "scratch=/srv/../srv", trusted=False
    )
    assert more.status == 2, more


def test_a_word_or_a_value_that_is_another_allows_nothing(lab: Laboratory, stranger: Path) -> None:
    stranger.write_text(WANTS["a folder"][0])
    for option in ("read=/srv", "write=/", "write=/srv/b", "write=srv", "write=/sr*", "code=/srv", "device=/srv"):
        refused(call("plan", str(stranger), "--allow", option), "--allow write=/srv")
    for option in ("anything", "write", "write=", "everything=/srv", "=/srv"):
        refused(call("plan", str(stranger), "--allow", option), "write WORD=VALUE")


@pytest.mark.parametrize("spelled", ["/srv/", "//srv", "/var/../srv", ".", "../srv/."])
def test_the_same_path_written_otherwise_is_the_same(
    spelled: str, stranger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger.write_text(WANTS["a folder"][0])
    monkeypatch.chdir("/srv")
    assert "--allow" not in call("plan", str(stranger), "--allow", f"write={spelled}").message


def test_a_load_sees_a_file_that_is_allowed_however_its_path_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "script").touch()
    monkeypatch.chdir(tmp_path)
    for spelled in ("script", "./script", str(tmp_path / "script")):
        permissions = Permissions(allowed=frozenset({f"read={spelled}", "code=-device x", "write=script"}))
        assert permissions.shown() == (str(tmp_path / "script"),)


def test_the_options_are_printed_as_a_shell_takes_them(lab: Laboratory, stranger: Path) -> None:
    stranger.write_text(study('[{ layer = "directory", path = "/srv/a b; touch x" }]'))
    ended = lab.storlab("plan", stranger, trusted=False)
    refused(ended, "--allow 'write=/srv/a b; touch x'")
    words = shlex.split(ended.stderr[ended.stderr.index("--allow '") :])
    assert "--allow" not in lab.storlab("plan", stranger, *words[:2], trusted=False).stderr


def test_a_file_that_comes_with_the_study_may_be_read_and_a_link_out_of_its_folder_may_not(
    stranger: Path,
) -> None:
    (stranger.parent / "bzImage").write_bytes(b"")
    (stranger.parent / "link").symlink_to("/etc/shadow")
    stranger.write_text(guest('kernel = "bzImage"'))
    refused(call("plan", str(stranger)), f"{stranger.parent}/bzImage is no kernel")
    stranger.write_text(guest('kernel = "link"'))
    refused(call("plan", str(stranger)), "nodes.vm.kernel", "--allow read=/etc/shadow")
    stranger.write_text(guest('kernel = "../k"'))
    refused(call("plan", str(stranger)), f"--allow read={stranger.parent.parent}/k")


@pytest.mark.parametrize("kernel", ["around", "around/k", "k/" * 3000, "k" * 300, "/proc/self/fd/99", "~"])
def test_a_path_that_leads_nowhere_is_refused_in_words(kernel: str, stranger: Path) -> None:
    (stranger.parent / "around").symlink_to("around")
    stranger.write_text(guest(f'kernel = "{kernel}"'))
    for words in (("plan",), ("plan", "--wants"), ("run", "--on", "nowhere.invalid")):
        ran = call(*words, str(stranger), "--allow=read=/srv")
        assert "Traceback" not in ran.message and "internal error" not in ran.message, ran.message
        assert ran.status == (0 if "--wants" in words else 2), ran


def test_a_machine_of_the_users_own_lab_needs_no_permission_and_one_beside_it_does(stranger: Path) -> None:
    mine = stranger.with_name("lab.toml")
    mine.write_text('[hosts.first]\nssh = "me@first.invalid"\n[hosts.second]\n')
    stranger.write_text(SERVED.replace('["nowhere.invalid"]', '"@first"').replace('["elsewhere.invalid"]', '"@second"'))
    listed = json.loads(call("plan", str(stranger), "--wants", "--json", "--lab", str(mine)).output)
    others = [f"--allow={each['word']}={each['value']}" for each in listed if each["word"] != "host"]
    assert "--allow" not in call("plan", str(stranger), "--lab", str(mine), *others).message
    stranger.write_text(stranger.read_text().replace('"@second"', '["@second", "third.invalid"]'))
    refused(call("plan", str(stranger), "--lab", str(mine), *others), "--allow host=third.invalid")


def test_what_is_in_a_guest_is_the_guests_own(lab: Laboratory, stranger: Path) -> None:
    stranger.write_text(study('[{ layer = "directory", path = "/srv" }]', nodes='nodes.vm = { kind = "vm" }\n'))
    listed = lab.storlab("plan", stranger, "--wants", trusted=False)
    assert (listed.status, "nothing beyond its own scratch" in listed.stdout) == (0, True), listed


@pytest.mark.parametrize("path", ["/proc/kmsg", "/proc/version", "/sys/kernel/notes", "/dev/null", "LINK"])
def test_a_file_that_is_made_when_it_is_read_is_not_copied_though_it_is_allowed(path: str, stranger: Path) -> None:
    link = stranger.parent / "link"
    link.symlink_to("/proc/version")
    path = path.replace("LINK", str(link))
    stacks = (
        f'[{{ layer = "file", copy = "{path}" }}, {{ layer = "loop" }}]',
        f'[{{ layer = "image-copy", base = {{ file = "{path}" }} }}, {{ layer = "loop" }}]',
    )
    for stack in stacks:
        stranger.write_text(study(stack))
        ran = call("plan", str(stranger), f"--allow=read={path}")
        refused(ran, path)
        assert "which keeps none" in ran.message or "there is no" in ran.message, ran


def finished(lab: Laboratory, text: str, *options: str) -> Path:
    ended = lab.storlab("run", lab.study(text), "--out", lab.out, "--quiet", *options)
    assert ended.status == 0, ended
    return lab.out / "manifest.json"


PLAIN = f"primary = 'elapsed'\nfactors.x = [1, 2]\nstack = {FOLDER}\nprobes = {{}}\n{TAIL.replace('LOAD', COMMAND)}"


@root
def test_a_run_folder_that_says_it_was_unconfined_is_not_believed_but_asked_about(lab: Laboratory) -> None:
    manifest = finished(lab, PLAIN)
    kept = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**kept, "unconfined": True}))
    ended = lab.storlab("resume", lab.out, "--rounds", "2", f"--allow=write={lab.scratch}", trusted=False)
    refused(ended, "--unconfined: say so again")
    assert len(lab.records()) == 2
    manifest.write_text(json.dumps(kept))
    refused(
        lab.storlab("resume", lab.out, "--rounds", "2", "--unconfined", f"--allow=write={lab.scratch}", trusted=False),
        "leave out --unconfined",
    )


@root
def test_a_run_folder_allows_itself_nothing_whatever_it_says_was_allowed_or_set(lab: Laboratory) -> None:
    manifest = finished(lab, PLAIN)
    kept = json.loads(manifest.read_text())
    secret = lab.folder / "secret"
    secret.write_text("x" * 4096)
    copy = f'[{{ layer = "file", copy = "{secret}" }}, {{ layer = "loop" }}]'
    evil = {
        "study_text": kept["study_text"].replace(FOLDER, copy),
        "allowed": [f"read={secret}", f"write={lab.scratch}"],
    }
    set_itself = {"overrides": [f'stack=[{{layer = "directory", path = "{lab.folder}"}}]']}
    for words, permission in ((evil, f"read={secret}"), (set_itself, f"write={lab.folder}")):
        manifest.write_text(json.dumps(kept | words))
        ended = lab.storlab("resume", lab.out, "--rounds", "2", f"--allow=write={lab.scratch}", trusted=False)
        refused(ended, f"--allow {permission}")
        taken = lab.storlab("run", "--of", lab.out, "--rounds", "2-2", "--out", lab.folder / "part", trusted=False)
        refused(taken, f"--allow {permission}")
    assert len(lab.records()) == 2
    manifest.write_text(json.dumps(kept))
    again = lab.storlab("resume", lab.out, "--rounds", "2", f"--allow=write={lab.scratch}", trusted=False)
    assert again.status == 0 and len(lab.records()) == 4, again


@pytest.mark.parametrize("command", ["run", "plan", "noise", "crash"])
def test_what_goes_to_another_machine_is_judged_before_anything_goes_there(command: str, stranger: Path) -> None:
    stranger.write_text(WANTS["a folder"][0])
    refused(call(command, str(stranger), "--on", "nowhere.invalid"), "--allow write=/srv")
    assert "--allow" not in call(command, str(stranger), "--on", "nowhere.invalid", "--allow=write=/srv").message


def test_a_study_that_ships_may_have_what_it_ships_with_and_one_that_is_called_so_may_not(stranger: Path) -> None:
    text = named_studies()["zfs-versions"].read_text()
    named = stranger.with_name("zfs-versions.toml")
    named.write_text(text.replace("/srv/zfs-new", "/srv/another"))
    refused(call("plan", str(named)), "--allow read=/srv/another")
    assert "--allow" not in call("plan", "zfs-versions").message
