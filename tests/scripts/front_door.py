"""A copy of the front door in a folder of its own, with a PATH and a user of one's choosing."""

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

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65534
_PARTS = ("Makefile", "scripts", "pyproject.toml", "uv.lock", "agent/Cargo.toml", "agent/Cargo.lock", "agent/.cargo")
_LEFT_OUT = ("cargo", "rustc", "rustup", "sudo", "python", "uv", "fio", "mmdebstrap", "apt-get")


@dataclass(frozen=True)
class Ended:
    """Status and what was printed."""

    status: int
    out: str
    err: str


@dataclass(frozen=True)
class FrontDoor:
    """A checkout without its Python and Rust, and a folder of programs that is all of PATH."""

    checkout: Path
    programs: Path
    home: Path

    def program(self, name: str, script: str) -> None:
        """A program that this machine shall have."""
        file = self.programs / name
        file.unlink(missing_ok=True)
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)

    def with_python(self) -> None:
        """The interpreter that runs the tests."""
        self.program("python3", f'exec {sys.executable} "$@"')

    def with_rust(self, version: str) -> None:
        """A cargo that does nothing, and a rustc of that version."""
        self.program("cargo", "exit 1")
        self.program("rustc", f"echo 'rustc {version} (abcdef 2026-01-01)'")

    def run(self, *argv: str, as_nobody: bool = False) -> Ended:
        """Run something in the checkout."""
        user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"] if as_nobody else []
        environment = {"PATH": str(self.programs), "HOME": str(self.home), "LC_ALL": "C"}
        done = subprocess.run(
            [*user, *argv], cwd=self.checkout, env=environment, capture_output=True, text=True, check=False
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    def made(self) -> list[str]:
        """What was left behind."""
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
