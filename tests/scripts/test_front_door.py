"""The front door, `make` and `scripts/`, in a copy of its own, with a PATH and a user of one's choosing."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from laboratory.block import TRACEFS, with_tracefs
from storlab.nodes.needs import PROGRAMS

ROOT = Path(__file__).resolve().parents[2]
_NAMED = re.compile(r"(tests/\S+\.py)::(test_\w+)")
NOBODY = 65534
Ended = subprocess.CompletedProcess[str]
_PARTS = ("Makefile", "scripts", "pyproject.toml", "uv.lock", "agent/Cargo.toml", "agent/Cargo.lock", "agent/.cargo")
_LEFT_OUT = ("cargo", "rustc", "rustup", "sudo", "python", "uv", "fio", "mmdebstrap", "apt-get")


@dataclass(frozen=True)
class FrontDoor:
    """A checkout without its Python and Rust, and a folder of programs that is all of PATH."""

    checkout: Path
    programs: Path
    home: Path

    def program(self, name: str, script: str) -> None:
        file = self.programs / name
        file.unlink(missing_ok=True)
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)

    def with_python(self) -> None:
        self.program("python3", f'exec {sys.executable} "$@"')

    def with_rust(self, version: str) -> None:
        self.program("cargo", "exit 1")
        self.program("rustc", f"echo 'rustc {version} (abcdef 2026-01-01)'")

    def run(self, *argv: str, as_nobody: bool = False) -> Ended:
        user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"] if as_nobody else []
        environment = {"PATH": str(self.programs), "HOME": str(self.home), "LC_ALL": "C"}
        return subprocess.run(
            [*user, *argv], cwd=self.checkout, env=environment, capture_output=True, text=True, check=False
        )

    def made(self) -> list[str]:
        kept = {part.split("/")[0] for part in _PARTS}
        return sorted(str(path.relative_to(self.checkout)) for path in self._files() if path.parts[-1] not in kept)

    def _files(self) -> Iterator[Path]:
        for top in self.checkout.iterdir():
            if top.name == ".make":
                yield from top.rglob("*")
            else:
                yield top


@contextmanager
def front_door() -> Iterator[FrontDoor]:
    """Owned by nobody, so that nobody may build in it. Not pytest's folder, which others can't enter."""
    with tempfile.TemporaryDirectory(prefix="storlab-front-door-") as folder:
        top = Path(folder)
        top.chmod(0o755)
        door = FrontDoor(top / "checkout", top / "bin", top / "home")
        for made in (door.checkout, door.programs, door.home):
            made.mkdir()
        for part in _PARTS:
            source, target = ROOT / part, door.checkout / part
            target.parent.mkdir(exist_ok=True)
            shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
        (door.checkout / "agent" / "src").mkdir()
        for program in (file for place in ("/usr/sbin", "/usr/bin") for file in Path(place).iterdir()):
            link = door.programs / program.name
            if not program.name.startswith(_LEFT_OUT) and not link.is_symlink():
                link.symlink_to(program)
        if os.geteuid() == 0:
            for path in (door.checkout, *door.checkout.rglob("*"), door.home):
                os.chown(path, NOBODY, NOBODY)
        yield door


@pytest.fixture
def door() -> Iterator[FrontDoor]:
    with front_door() as made:
        yield made


def only_sentence(ended: Ended) -> str:
    assert ended.returncode == 2, ended
    assert ended.stdout == ""
    (line,) = ended.stderr.splitlines()
    assert line.startswith("storlab: ") and line.endswith(".")
    return line


def test_without_rust_one_sentence_names_where_to_get_it_and_make_passes_it_on(door: FrontDoor) -> None:
    door.with_python()
    sentence = only_sentence(door.run("scripts/demo.sh"))
    assert "cargo is not on PATH" in sentence and "https://rustup.rs" in sentence
    assert door.made() == []
    door.with_python()
    for target in ("demo", "test", "lint", "bench", "agent"):
        ended = door.run("make", target)
        assert ended.returncode == 2
        assert ended.stderr.splitlines()[0].startswith("storlab: the agent is built with Rust")


@pytest.mark.parametrize(("rustup", "remedy"), [(True, "rustup update stable"), (False, "https://rustup.rs")])
def test_a_rust_that_is_too_old_is_named_with_the_remedy(door: FrontDoor, rustup: bool, remedy: str) -> None:
    door.with_python()
    door.with_rust("1.63.0")
    if rustup:
        door.program("rustup", "exit 0")
    sentence = only_sentence(door.run("scripts/demo.sh"))
    assert "rustc here is 1.63.0" in sentence and remedy in sentence


def test_a_rustup_without_a_toolchain_is_named(door: FrontDoor) -> None:
    door.with_python()
    door.with_rust("1.95.0")
    door.program("rustc", "exit 1")
    assert "rustup default stable" in only_sentence(door.run("scripts/demo.sh"))


def test_a_python_that_is_too_old_is_named_with_its_version_and_a_newer_one_beside_it_is_found(door: FrontDoor) -> None:
    door.program("python3", 'case "$2" in *version_info*) exit 1 ;; *) echo 3.9.2 ;; esac')
    sentence = only_sentence(door.run("scripts/demo.sh"))
    assert "Python 3.11 or newer, and python3 here is 3.9.2" in sentence and "make demo PYTHON=" in sentence
    door.with_python()
    (door.programs / "python3").rename(door.programs / "python3.12")
    door.program("python3", "exit 1")
    assert "cargo is not on PATH" in only_sentence(door.run("scripts/demo.sh"))


@pytest.mark.needs("root")
def test_without_root_what_is_missing_is_named_with_the_command_that_installs_it(door: FrontDoor) -> None:
    door.with_rust("1.95.0")
    door.program("python3", "exit 0")  # nobody may not read the one of these tests
    door.program("apt-get", "echo apt-get was run >&2; exit 1")
    sentence = only_sentence(door.run("scripts/demo.sh", as_nobody=True))
    assert "missing here and not to be installed without root: fio;" in sentence
    assert "`sudo apt-get install fio`" in sentence
    assert door.made() == []


@pytest.mark.needs("root")
def test_without_root_and_python_the_sentence_names_the_package(door: FrontDoor) -> None:
    door.program("apt-get", "exit 1")
    assert "`sudo apt-get install python3`" in only_sentence(door.run("scripts/demo.sh", as_nobody=True))


@pytest.mark.needs("root")
def test_a_checkout_that_belongs_to_somebody_else_is_named(door: FrontDoor) -> None:
    os.chown(door.checkout, 0, 0)
    assert "clone Storlab into a folder of your own" in only_sentence(door.run("scripts/demo.sh", as_nobody=True))


def test_without_apt_the_package_is_still_named(door: FrontDoor) -> None:
    door.with_python()
    door.with_rust("1.95.0")
    assert "package manager (Debian calls it: fio)" in only_sentence(door.run("scripts/demo.sh"))


def test_what_building_a_guest_image_needs_is_named_where_it_can_not_be_installed(door: FrontDoor) -> None:
    door.with_python()
    sentence = only_sentence(door.run("scripts/image.sh"))
    assert "missing here and not to be installed without root:" in sentence and "mmdebstrap" in sentence
    assert door.made() == []


def test_make_alone_lists_every_target(door: FrontDoor) -> None:
    listed = door.run("make").stdout
    targets = re.findall(r"^([\w-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert all(f"make {target} " in listed for target in targets)
    assert {"demo", "check", "test", "test-guests", "lint", "bench", "agent", "clean", "help"} <= set(targets)


def test_ci_elsewhere_does_what_ci_here_does_and_says_what_that_needs() -> None:
    (job,) = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"].values()
    assert job["steps"][-1] == {"run": ".ci/run"}
    options = job["container"]["options"].split()
    assert "--privileged" in options, "loop devices, mounts, namespaces"
    assert {"/dev:/dev", "/lib/modules:/lib/modules:ro"} <= {*options}, (
        "/dev/kvm, where there is one; the kernel's modules"
    )
    assert job["timeout-minutes"] == 90
    installed = " ".join(step["run"] for step in job["steps"] if "run" in step).split()
    assert {"git", "make", "python3", "clippy,rustfmt"} <= {*installed}
    run = (ROOT / ".ci/run").read_text()
    assert "for target in test test-guests" in run and 'make "$target"' in run


def test_every_program_that_storlab_drives_is_installed_by_a_make_target() -> None:
    lines = [line.split() for line in (ROOT / "scripts/packages.txt").read_text().splitlines()]
    packages = {line[1] for line in lines if line and line[0] in ("base", "root", "vm")}
    # Programs whose modules few kernels have are of no use alone; guests have both. Of NBD's servers a host has
    # QEMU's; the others are for who compares them, and one starts a daemon where it is installed.
    of_guests = {"nbd-client", "open-iscsi", "zfsutils-linux", "nbd-server", "nbdkit"}
    # Who compares databases chooses which to install; `plan` names the package of one that is missing.
    of_databases = {"mariadb-client-core", "mariadb-server-core", "postgresql", "postgresql-client", "sysbench"}
    assert {program.package for program in PROGRAMS.values()} - packages <= {"coreutils", *of_guests, *of_databases}
    assert of_databases - {"postgresql-client"} <= {line[1] for line in lines if line and line[0] == "test"}


@pytest.mark.needs("root")
@pytest.mark.parametrize("tracefs", list(TRACEFS))
def test_tests_see_no_tracefs_whether_or_not_the_machine_has_it_mounted(tracefs: str) -> None:
    script = ". scripts/lib/common.sh; as_if_fresh grep --count -E ' (tracefs|debugfs) ' /proc/self/mounts"
    ran = subprocess.run([*with_tracefs(tracefs), "bash", "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert (ran.stdout, ran.stderr) == ("0\n", "")


def test_scripts_name_tests_that_are_there() -> None:
    named = {each for path in (ROOT / "scripts").glob("*.sh") for each in _NAMED.findall(path.read_text())}
    assert named
    for file, test in named:
        assert f"\ndef {test}(" in (ROOT / file).read_text(), f"{file} has no {test}"
