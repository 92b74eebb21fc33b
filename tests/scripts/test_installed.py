"""The wheel: what is in it, where it is refused, and Storlab installed from it alone, for somebody who is not root."""

import os
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tools.wheel_agent import PLACE, CannotBuild, machine_of

from laboratory.samples import sample
from storlab.base.programs import agent_path

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65534
SOURCES = [path for path in (ROOT / "src").rglob("*") if path.is_file()]


def build(kind: str, folder: Path, root: Path = ROOT, **environment: str) -> Path:
    """A ``wheel`` or ``sdist`` of the checkout, built as ``pip`` and ``uv`` do; cargo builds what is not current."""
    argv = [sys.executable, "-m", "hatchling", "build", "--target", kind, "--directory", str(folder)]
    subprocess.run(argv, cwd=root, env=os.environ | environment, capture_output=True, text=True, check=True)
    (built,) = folder.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return built


def build_for(agent: Path, folder: Path, root: Path = ROOT) -> Path:
    return build("wheel", folder, root, STORLAB_WHEEL_AGENT=str(agent))


def ordinary_user() -> list[str]:
    """What begins a command to be run as somebody who is not root."""
    if os.geteuid() != 0:
        return []
    return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]


@dataclass(frozen=True)
class Installed:
    """An environment with Storlab in it, and a home, of an ordinary user."""

    folder: Path

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def storlab(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the command with nothing of the checkout in sight."""
        environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(self.home), "COLUMNS": "100"}
        argv = [*ordinary_user(), str(self.folder / "venv" / "bin" / "storlab"), *arguments]
        return subprocess.run(argv, cwd=self.home, env=environment, capture_output=True, text=True, check=False)


@contextmanager
def installed(wheel: Path, uv: str) -> Iterator[Installed]:
    """The wheel in an empty environment, with the versions of the lock file and no extra.

    Not in pytest's folder, which others can't enter.
    """
    with tempfile.TemporaryDirectory(prefix="storlab-installed-", dir="/var/tmp") as folder:
        made = Installed(Path(folder))
        made.folder.chmod(0o755)
        made.home.mkdir()
        if os.geteuid() == 0:
            os.chown(made.home, NOBODY, NOBODY)
        locked = made.folder / "locked.txt"
        export = ["export", "--quiet", "--frozen", "--all-extras", "--no-emit-project", "--no-hashes"]
        _uv(uv, *export, "--output-file", str(locked))
        _uv(uv, "venv", "--quiet", "--python", _python(), str(made.folder / "venv"))
        python = str(made.folder / "venv" / "bin" / "python")
        _uv(uv, "pip", "install", "--quiet", "--python", python, "--constraint", str(locked), str(wheel))
        yield made


def _python() -> str:
    """An interpreter that an ordinary user may run: root's own may be in root's home."""
    ours = [getattr(sys, "_base_executable", sys.executable), "/usr/bin/python3"]
    recent = "import sys; sys.exit(sys.version_info < (3, 11))"
    for name in ours:
        argv = [*ordinary_user(), name, "-c", recent]
        if subprocess.run(argv, cwd="/", capture_output=True, check=False).returncode == 0:
            return name
    return pytest.skip("there is no Python 3.11 or newer that an ordinary user may run")


def _uv(uv: str, *arguments: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "UV_PROJECT_ENVIRONMENT"}
    subprocess.run([uv, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=True)


def find_uv() -> str | None:
    places = [str(ROOT / ".make" / "uv" / "bin"), str(Path.home() / ".local" / "bin"), os.environ.get("PATH", "")]
    return shutil.which("uv", path=os.pathsep.join(places))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", tmp_path_factory.mktemp("dist"))


EXECUTABLE_BY_ALL = 0o111
E_MACHINE = 18  # where an executable says what it is for
ANOTHER_MACHINE = (183).to_bytes(2, "little")  # EM_AARCH64
A_THIRD = (243).to_bytes(2, "little")  # EM_RISCV


def made_for(machine: bytes, folder: Path) -> Path:
    """The agent, as it would begin if it were for another machine."""
    content = bytearray(agent_path().read_bytes())
    content[E_MACHINE : E_MACHINE + 2] = machine
    (folder / "agent").write_bytes(content)
    return folder / "agent"


def test_a_wheel_names_its_machine_and_has_the_agent_as_a_program_and_every_file_of_the_package(wheel: Path) -> None:
    assert wheel.name.endswith(f"-py3-none-manylinux_2_17_{os.uname().machine}.whl")
    with zipfile.ZipFile(wheel) as packed:
        mode = packed.getinfo(PLACE).external_attr >> 16
        assert packed.read(PLACE) == agent_path().read_bytes()
    assert stat.S_ISREG(mode)
    assert mode & EXECUTABLE_BY_ALL == EXECUTABLE_BY_ALL
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


def test_what_is_no_agent_for_this_machine_or_needs_a_c_library_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CannotBuild, match="is for another machine than x86_64 or aarch64"):
        machine_of(made_for(A_THIRD, tmp_path))
    shell = shutil.which("sh")
    assert shell is not None
    with pytest.raises(CannotBuild, match="is not static"):
        machine_of(Path(shell))


def test_an_agent_that_is_not_there_ends_the_build_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError) as failed:
        build_for(tmp_path / "none", tmp_path)
    assert f"storlab: cannot read {tmp_path / 'none'}: No such file or directory" in failed.value.stderr
    assert "Traceback" not in failed.value.stderr


SAMPLES = ROOT / "tests" / "importing" / "golden"
VM = sample(__file__, "cases/guest.toml")


@pytest.fixture(scope="module")
def storlab(wheel: Path) -> Iterator[Installed]:
    uv = find_uv()
    if uv is None:
        pytest.skip("uv is not installed: `make test` brings it")
    with installed(wheel, uv) as made:
        yield made


def test_it_runs_a_study_to_its_report_and_says_what_would_draw_charts(storlab: Installed) -> None:
    quick = ["--set", "size=4M", "--set", "runtime=0.2s", "--rounds", "2"]
    ran = storlab.storlab("run", "quick-directory", "--out", "run", "--quiet", *quick)
    assert ran.returncode == 0, ran.stderr
    note = "charts need Storlab's extra `charts`: install it again as `storlab[charts]`, or as `storlab[all]`"
    assert f"storlab: the report has no charts: {note}\n" in ran.stderr
    page = (storlab.home / "run" / "report.html").read_text()
    assert f"This page has no charts: {note.replace(chr(39), '&#39;')}." in page
    assert 'class="chart' not in page and 'class="span' in page, "what is drawn in rows needs no extra"


def test_doctor_finds_the_agent_and_the_studies(storlab: Installed) -> None:
    looked = storlab.storlab("doctor")
    assert looked.returncode == 0, looked.stderr
    assert "make agent" not in looked.stdout and "quick-directory" in looked.stdout


@pytest.mark.parametrize(("kind", "sample"), [("sysbench", "sysbench-oltp.txt"), ("pcap", "pcap-ethernet.pcap")])
def test_it_imports_results_that_somebody_has(kind: str, sample: str, storlab: Installed) -> None:
    shutil.copy(SAMPLES / sample, storlab.home)
    imported = storlab.storlab("import", kind, sample, "--out", f"{kind}-run")
    assert imported.returncode == 0, imported.stderr
    shown = storlab.storlab("report", f"{kind}-run")
    assert shown.returncode == 0, shown.stderr


def test_virtual_machines_name_the_extra_that_they_need(storlab: Installed) -> None:
    Path(storlab.home / "vm.toml").write_text(VM)
    refused = storlab.storlab("plan", "vm.toml")
    assert refused.returncode == 2
    assert "virtual machines need Storlab's extra `vm`: install it again as `storlab[vm]`" in refused.stderr
    assert "Traceback" not in refused.stderr
