"""Storlab as a wheel, and installed from one in an environment that has nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from .front_door import NOBODY

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [path for path in (ROOT / "src").rglob("*") if path.is_file()]


def build(kind: str, folder: Path, root: Path = ROOT, **environment: str) -> Path:
    """A ``wheel`` or ``sdist`` of the checkout, built as ``pip`` and ``uv`` do; cargo builds what is not current."""
    argv = [sys.executable, "-m", "hatchling", "build", "--target", kind, "--directory", str(folder)]
    subprocess.run(argv, cwd=root, env=os.environ | environment, capture_output=True, text=True, check=True)
    (built,) = folder.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return built


def build_for(agent: Path, folder: Path, root: Path = ROOT) -> Path:
    """A wheel with an agent that is built already."""
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
    """uv, where `make` finds or puts it."""
    places = [str(ROOT / ".make" / "uv" / "bin"), str(Path.home() / ".local" / "bin"), os.environ.get("PATH", "")]
    return shutil.which("uv", path=os.pathsep.join(places))
