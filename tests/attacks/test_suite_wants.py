"""What a suite, or the folder of an earlier run of one, wants of this machine is refused unless it is allowed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from attacks.test_wants import refused
from laboratory import Laboratory
from storlab.suites.bisect import PLAN, Plan, write_plan
from storlab.suites.records.folder import Here, OwnKernel
from storlab.suites.runfile import Runfile
from study.program import call
from suite.samples import SUITE, of, recorded, written

root = pytest.mark.needs("root")

GROUP = '\n[groups.g]\ntests = [{ name = "t", run = "true" }]\n'
KERNEL = '[guests]\nkernel = "bzImage"\n'
SUITES = {
    "a folder of tests": (f'folder = "/etc"{GROUP}', "folder", "/etc"),
    "one beside the suite's own": (f'folder = "../secret"{GROUP}', "folder", "secret"),
    "one behind a link": (f'folder = "link"{GROUP}', "folder", "secret"),
    "a checkout": ('adapter = "check"\nfolder = "../secret"\n', "folder", "secret"),
    "a kernel": (f'[guests]\nkernel = "/srv/k"{GROUP}', "guests.kernel", "/srv/k"),
    "its modules": (f'{KERNEL}kernel_modules = "../secret"{GROUP}', "guests.kernel_modules", "secret"),
    "a root": (f'{KERNEL}rootfs = "/"{GROUP}', "guests.rootfs", "/"),
    "a list of tests": (
        'adapter = "check"\nfolder = "own"\n[check]\nexclude_files = ["/etc/shadow"]\n', "check.exclude_files",
        "/etc/shadow",
    ),
}  # fmt: skip
COMMANDS = {
    "run": ("run",),
    "list": ("list",),
    "run elsewhere": ("run", "--on", "nowhere.invalid"),
    "list elsewhere": ("list", "--on", "nowhere.invalid"),
}


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    (tmp_path / "secret").mkdir()
    folder = tmp_path / "theirs"
    (folder / "own").mkdir(parents=True)
    (folder / "bzImage").touch()
    (folder / "link").symlink_to("../secret")
    return folder


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("what", SUITES)
def test_it_is_refused_with_its_key_and_line_and_the_option_that_allows_it(
    what: str, command: str, theirs: Path
) -> None:
    text, key, wanted = SUITES[what]
    suite, option = theirs / "suite.toml", f"read={(theirs.parent / wanted).resolve()}"
    suite.write_text(text)
    words = ["suite", *COMMANDS[command], str(suite)]
    refused(call(*words), "line ", f"{key}", f"--allow {option}", "if you trust whoever wrote this")
    refused(call(*words, "--allow", option.replace("read", "code")), f"--allow {option}")
    assert "--allow" not in call(*words, "--allow", option, "--tests", "/nowhere").message


@pytest.mark.parametrize("what", SUITES)
def test_what_it_wants_is_listed_without_a_guest(what: str, theirs: Path) -> None:
    text, key, wanted = SUITES[what]
    (theirs / "suite.toml").write_text(text)
    listed = call("suite", "list", str(theirs / "suite.toml"), "--wants", "--json")
    (row,) = json.loads(listed.output)
    assert (row["word"], row["value"]) == ("read", str((theirs.parent / wanted).resolve()))
    assert row["key"].startswith(key)


def test_a_suite_that_stays_in_its_folder_wants_nothing(theirs: Path) -> None:
    (theirs / "suite.toml").write_text(f'folder = "own"\n{KERNEL}rootfs = "./own/../own"{GROUP}')
    listed = call("suite", "list", str(theirs / "suite.toml"), "--wants")
    assert "nothing beyond its own scratch" in listed.output, listed


@pytest.mark.parametrize("kernel", ["around", "k\\u0000", "/\\u0000", "k/" * 3000])
def test_a_path_that_leads_nowhere_is_refused_in_words(kernel: str, theirs: Path) -> None:
    (theirs / "around").symlink_to("around")
    (theirs / "suite.toml").write_text(f'[guests]\nkernel = "{kernel}"{GROUP}')
    listed = call("suite", "list", str(theirs / "suite.toml"), "--wants")
    assert "Traceback" not in listed.message and "internal error" not in listed.message, listed
    if "k/" not in kernel:
        refused(call("suite", "run", str(theirs / "suite.toml")), "line 2: guests.kernel: ")


RAN = [of(SUITE, number, guest="guest-1") for number in (0, 1)]
OF_RUNS: dict[str, tuple[dict[str, Any], str, str]] = {
    "a folder of tests": ({"tests": "/root"}, "tests: ", "read=/root"),
    "a kernel": ({"kernel": OwnKernel("/srv/k")}, "kernel.image: ", "read=/srv/k"),
    "its modules": ({"kernel": OwnKernel("/srv/k", "/srv/m")}, "kernel.modules: ", "read=/srv/m"),
    "a root": ({"kernel": OwnKernel("/srv/k", None, "/")}, "kernel.rootfs: ", "read=/"),
    "a tree": ({"kernel": OwnKernel(None, tree="/srv/zfs")}, "kernel.tree: ", "read=/srv/zfs"),
}


@root
@pytest.mark.parametrize("command", ["resume", "replay"])
@pytest.mark.parametrize("what", OF_RUNS)
def test_the_folder_of_a_run_allows_itself_nothing(what: str, command: str, tmp_path: Path) -> None:
    fields, key, permission = OF_RUNS[what]
    run = recorded(written(tmp_path / "run", SUITE, *RAN), **fields)
    words = (
        ["suite", "resume", str(run.folder)] if command == "resume" else ["suite", "run", "--replay", str(run.folder)]
    )
    refused(call(*words), "suite.json: ", key, f"--allow {permission}")
    refused(call(*words, "--allow", permission.replace("read", "write")), f"--allow {permission}")


def test_a_replay_reads_no_runfile_that_a_folder_names(tmp_path: Path) -> None:
    (tmp_path / "secret.run").write_text("[DEFAULT]\n")
    runfile = Runfile(str(tmp_path / "secret.run"), "", own=True)
    run = recorded(written(tmp_path / "run", SUITE, *RAN), runfiles=(runfile,))
    refused(call("suite", "run", "--replay", str(run.folder)), f"--allow read={tmp_path}/secret.run")
    run = recorded(run, runfiles=(), name=f"zts,{tmp_path}/secret.run")
    refused(call("suite", "run", "--replay", str(run.folder)), f"--allow read={tmp_path}/secret.run")


@root
def test_the_folder_of_a_run_takes_no_machine_and_no_disk_that_the_command_line_does_not_name(tmp_path: Path) -> None:
    run = written(tmp_path / "run", SUITE, *RAN)
    here = Here("victim", "/home", ("/dev/none",), ("/dev/none",))
    words = ("suite", "resume", str(recorded(run, here=here).folder))
    refused(call(*words), "--here victim", "say so again")
    refused(call(*words, "--here", "another"), "--here victim", "say so again")
    refused(call(*words, "--here", "victim"), "--allow device=/dev/none", "--allow write=/home")
    recorded(run, here=None)
    refused(call(*words, "--here", "victim"), "run in guests")


def test_the_folder_of_a_bisection_runs_no_command_that_is_not_allowed(lab: Laboratory) -> None:
    proof, folder = lab.folder / "proof", lab.folder / "bisection"
    folder.mkdir(mode=0o700)
    plan = Plan(("a", "b; x"), ("true", "{}"), ("touch", str(proof)), 0.05, 0.05, False, 0, str(lab.folder))
    write_plan(folder, plan)
    at = f"code=cd {lab.folder} && "
    wanted = [f"{at}touch {proof}", f"{at}true '{{}}'", "code=b; x"]
    words = ["suite", "bisect", "--resume", str(folder)]
    refused(call(*words), f"{folder / PLAN}: check: ", "build: ", "candidates: ")
    for left in wanted:
        said = call(*words, *(f"--allow={each}" for each in wanted if each != left))
        refused(said, "--allow")
    assert not proof.exists()
    call(*words, *(f"--allow={each}" for each in wanted))
    assert proof.exists()
