"""The wheel: what is in it, for which machine it says that it is, and that it is refused where it would not run."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest
from tools.wheel_agent import PLACE, CannotBuild, machine_of

from storlab.nodes.agent.binary import agent_path

from .installed import ROOT, SOURCES, build, build_for

EXECUTABLE_BY_ALL = 0o111
E_MACHINE = 18  # where an executable says what it is for
ANOTHER_MACHINE = (183).to_bytes(2, "little")  # EM_AARCH64
A_THIRD = (243).to_bytes(2, "little")  # EM_RISCV


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", tmp_path_factory.mktemp("dist"))


def made_for(machine: bytes, folder: Path) -> Path:
    """The agent, as it would begin if it were for another machine."""
    content = bytearray(agent_path().read_bytes())
    content[E_MACHINE : E_MACHINE + 2] = machine
    (folder / "agent").write_bytes(content)
    return folder / "agent"


def test_a_wheel_names_its_machine_and_has_the_agent_as_a_program(wheel: Path) -> None:
    assert wheel.name.endswith(f"-py3-none-manylinux_2_17_{os.uname().machine}.whl")
    with zipfile.ZipFile(wheel) as packed:
        mode = packed.getinfo(PLACE).external_attr >> 16
        assert packed.read(PLACE) == agent_path().read_bytes()
    assert stat.S_ISREG(mode)
    assert mode & EXECUTABLE_BY_ALL == EXECUTABLE_BY_ALL


def test_a_wheel_has_every_file_of_the_package_and_the_licences(wheel: Path) -> None:
    listed = subprocess.run(["git", "ls-files", "src"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    own = {name.removeprefix("src/") for name in listed.split()} or {
        str(path.relative_to(ROOT / "src")) for path in SOURCES if "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as packed:
        names = set(packed.namelist())
    assert own <= names
    assert {"LICENSE", "COPYING"} <= {Path(name).name for name in names if ".dist-info/licenses/" in name}
    assert {Path(name).parts[0].split("-")[0] for name in names} == {"storlab"}


def test_a_wheel_for_another_machine_takes_an_agent_that_is_built_already(tmp_path: Path) -> None:
    built = build_for(made_for(ANOTHER_MACHINE, tmp_path), tmp_path)
    assert built.name.endswith("-py3-none-manylinux_2_17_aarch64.whl")


def test_the_source_distribution_has_all_that_a_wheel_is_built_from(tmp_path: Path, wheel: Path) -> None:
    with tarfile.open(build("sdist", tmp_path)) as packed:
        packed.extractall(tmp_path, filter="data")
    (top,) = (path for path in tmp_path.iterdir() if path.is_dir())
    assert (top / "agent" / "Cargo.lock").is_file()
    assert not (top / "agent" / "target").exists()
    again = build_for(agent_path(), tmp_path, top)
    with zipfile.ZipFile(again) as one, zipfile.ZipFile(wheel) as other:
        assert sorted(one.namelist()) == sorted(other.namelist())


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"#!/bin/sh\n", "is not an executable for Linux"),
        (b"\x7fELF\x02\x01", "is not an executable for Linux"),
        (agent_path().read_bytes()[:100], "is cut off"),
    ],
)
def test_what_is_no_agent_is_refused(content: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / "agent").write_bytes(content)
    with pytest.raises(CannotBuild, match=reason):
        machine_of(tmp_path / "agent")


def test_an_agent_of_a_machine_that_storlab_does_not_know_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CannotBuild, match="is for another machine than x86_64 or aarch64"):
        machine_of(made_for(A_THIRD, tmp_path))


def test_a_program_that_needs_a_c_library_is_refused() -> None:
    shell = shutil.which("sh")
    assert shell is not None
    with pytest.raises(CannotBuild, match="is not static"):
        machine_of(Path(shell))


def test_an_agent_that_is_not_there_ends_the_build_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError) as failed:
        build_for(tmp_path / "none", tmp_path)
    assert f"storlab: cannot read {tmp_path / 'none'}: No such file or directory" in failed.value.stderr
    assert "Traceback" not in failed.value.stderr
