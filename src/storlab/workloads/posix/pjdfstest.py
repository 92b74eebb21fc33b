"""pjdfstest where the user names one: its program and tests, sent to the node as one archive.

https://github.com/pjd/pjdfstest, built by ``autoreconf -ifs && ./configure && make``.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Annotated

from pydantic import Field, StringConstraints

from storlab.errors import UserError
from storlab.model import Model
from storlab.nodes.needs import Needs
from storlab.reach import Choice, Reach
from storlab.units import Duration, shown
from storlab.workloads.posix.checks.pjdfstest import PREFIX

PROGRAM = "pjdfstest"
NEEDS = Needs(programs=("openssl", "awk"))
"""By which its tests make up names."""

_PROGRAM = Reach(
    "Program", "has a program that runs with the capabilities of this load, which others lack", "code", sent=True
)
_HELPERS = ("conf", "misc.sh")
_MOST = 16 * 2**20  # bytes of a file; the program has 60 KiB
_TEST = "*.t"

TestName = Annotated[Choice, StringConstraints(pattern=r"^[a-z0-9_]{1,25}(/[a-z0-9_]{1,20}\.t)?$")]


class Pjdfstest(Model):
    """A pjdfstest that was built on this machine."""

    path: Annotated[str, _PROGRAM] = Field(
        pattern="^/[^\\x00]+$", max_length=4095, description="Its folder, on this machine."
    )
    files: tuple[TestName, ...] = Field((), description='Which: "rename", or "rename/00.t"; by default all.')
    limit: Duration = Field(300.0, gt=0, le=86400, description="A file that takes longer has failed.")

    def names(self) -> tuple[str, ...]:
        """The names of the checks that its files are. Raises ``UserError`` where one is not there."""
        folder = Path(self.path)
        program, helpers = folder / PROGRAM, [folder / "tests" / name for name in _HELPERS]
        if not self._has(program):
            built = "build it there with `autoreconf -ifs && ./configure && make`"
            there = "is not built" if self._has(folder / f"{PROGRAM}.c") else "is no folder of pjdfstest"
            raise UserError(f"{shown(self.path)} {there}: it has no program {PROGRAM}; {built}", ("path",))
        for helper in helpers:
            if not self._has(helper):
                raise UserError(
                    f"there is no {helper}: path leads to the folder that has pjdfstest and tests", ("path",)
                )
        found = dict.fromkeys(name for chosen in (self.files or ("",)) for name in self._chosen(chosen))
        return tuple(f"{PREFIX}{name}" for name in found)

    def _chosen(self, chosen: str) -> list[str]:
        tests = Path(self.path) / "tests"
        place = tests / chosen
        files = [place] if chosen.endswith(".t") else sorted(place.rglob(_TEST))
        names = [str(file.relative_to(tests)) for file in files if self._has(file)]
        if not names:
            at = ("files", self.files.index(chosen)) if chosen else ("path",)
            raise UserError(f"there is no test {place}" if chosen else f"there are no tests in {tests}", at)
        return names

    def archive(self) -> bytes:
        """Its program, helpers and tests as a zip file. Raises ``UserError``, ``OSError``."""
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as packed:
            tests = (f"tests/{name.removeprefix(PREFIX)}" for name in self.names())
            for name in (PROGRAM, *(f"tests/{helper}" for helper in _HELPERS), *tests):
                with (Path(self.path) / name).open("rb") as file:
                    packed.writestr(zipfile.ZipInfo(name), file.read(_MOST))
        return made.getvalue()

    def _has(self, path: Path) -> bool:
        """Whether it is a file of its own: what a link leads to might not be meant for a guest's eyes."""
        below = path.relative_to(self.path)
        return path.is_file() and path.resolve() == Path(self.path).resolve() / below
