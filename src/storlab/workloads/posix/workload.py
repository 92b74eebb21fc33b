"""Workload ``posix``: what programs may rely on in a directory, each call a check of its own.

The checks are a Python program (``checks/``), sent to the node as one file. What fails is a result, and no failure of
the trial: over 9p, NFS or SMB some of them can't but fail. Nodes on the same files look at each other's work as well,
and whoever serves the directory is looked at while files are open in it.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import Field, StringConstraints, model_validator

from storlab.base.errors import UserError
from storlab.base.reach import Choice, Reach
from storlab.base.units import Duration, shown
from storlab.layers.resources import Dir, Resource
from storlab.measurements import Measurements
from storlab.metrics import MetricSpec
from storlab.model import Model
from storlab.nodes.needs import Needs, together
from storlab.nodes.node import Node
from storlab.workloads.base import ELAPSED, Launch, OptionError, RunContext, Workload
from storlab.workloads.posix import COUNTS, SERVER, SERVER_FILE
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
    """A pjdfstest that was built on this machine; its program and tests are sent to the node as one archive.

    https://github.com/pjd/pjdfstest, built by ``autoreconf -ifs && ./configure && make``.
    """

    path: Annotated[str, _PROGRAM] = Field(
        pattern="^/[^\\x00]+$", max_length=4095, description="Its folder, on this machine."
    )
    files: tuple[TestName, ...] = Field((), description='Which: "rename", or "rename/00.t"; by default all.')
    limit: Duration = Field(300.0, gt=0, le=86400, description="A file that takes longer has failed.")

    def names(self) -> tuple[str, ...]:
        """The names of the checks that its files are. Raises ``UserError`` if one is not there."""
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


_WORKLOAD_PROGRAM = "posix.pyz"
_SOURCES = Path(__file__).parent / "checks"
_MAIN = b"from checks.__main__ import main\nimport sys\n\nmain(sys.argv[1:])\n"


class PosixWorkload(Workload):
    """Checks whether a directory does what programs rely on: rename, locks, mmap, attributes, holes, fsync."""

    kind: ClassVar[str] = "posix"
    accepts: ClassVar[tuple[type[Resource], ...]] = (Dir,)

    checks: tuple[Choice, ...] = Field((), description="The checks to run, by name; by default all that are possible.")
    limit: Duration = Field(15.0, gt=0, le=600, description="A check that takes longer has failed: no answer.")
    pjdfstest: Pjdfstest | None = Field(None, description="Also the tests of a pjdfstest that you have built.")

    @model_validator(mode="after")
    def _are_known(self) -> Self:
        known = _known() if self.checks else ()
        for number, name in enumerate(self.checks):
            if name not in known:
                raise OptionError(f"unknown check; there are {', '.join(known)}", "checks", number)
            if name in self.checks[:number]:
                raise OptionError(f"the check {name} is listed twice", "checks", number)
        return self

    def declares(self) -> tuple[MetricSpec, ...]:
        return (*COUNTS, *ELAPSED)

    def verifies(self) -> tuple[MetricSpec, ...]:
        return COUNTS

    def needs(self) -> Needs:
        return together([Needs(programs=("python3",)), *([NEEDS] if self.pjdfstest is not None else [])])

    def commands(self) -> tuple[tuple[str, ...], ...]:
        return () if self.pjdfstest is None else ((f"{self.pjdfstest.path}/{PROGRAM}",),)

    async def check_node(self, node: Node) -> None:
        if self.pjdfstest is not None:
            try:
                self.pjdfstest.names()
            except UserError as error:
                raise UserError(str(error), ("posix", "pjdfstest", *error.key)) from None

    def leaves_out(self, warm_up: float) -> str:
        return "warm_up is left out: each check is made once" if warm_up else ""

    async def prepare(self, place: RunContext) -> None:
        await place.node.run(["rm", "-rf", "--", _root(place)])  # an earlier trial's, where stacks are kept

    async def launch(self, place: RunContext) -> Launch:
        await place.node.write(_program(place), program())
        options, names = list[str](), list(self._asked(place))
        if len(place.nodes) > 1:
            common = f"--common={_base(place)}-{place.words.get('trial', '0')}"  # caches may know that of another trial
            options += [f"--nodes={','.join(place.nodes)}", f"--me={place.node.name}", common]
        if self.pjdfstest is not None:
            archive = f"{place.folder}/pjdfstest.zip"
            await place.node.write(archive, self.pjdfstest.archive())
            options += [f"--pjdfstest={archive}", f"--pjdfstest-limit={self.pjdfstest.limit:g}"]
            names += self.pjdfstest.names()
        argv = ("python3", "-I", _program(place), _root(place), f"{self.limit:g}", *options, *names)
        return Launch(argv, env={"LC_ALL": "C.UTF-8"}, cwd=place.folder)

    def _asked(self, place: RunContext) -> Iterator[str]:
        from storlab.workloads.posix.checks.table import BETWEEN

        for name in self.checks or _known():
            if name != SERVER and (self.checks or name not in BETWEEN or len(place.nodes) > 1):
                yield name

    async def conclude(self, place: RunContext) -> None:
        from storlab.workloads.posix import server

        if SERVER in self.checks or (place.served is not None and not self.checks):
            said = await server.look(place, _program(place), _root(place), self.limit)
            await place.node.write(f"{place.folder}/{SERVER_FILE}", said)

    def parse(self, raw: Path) -> Measurements:
        from storlab.workloads.posix.results import read_results  # polars: not needed to load a study

        return read_results(raw)


def _known() -> tuple[str, ...]:
    from storlab.workloads.posix.checks.table import BETWEEN, CHECKS  # with what they are made of: ctypes, sockets

    return (*CHECKS, *BETWEEN, SERVER)


@cache
def program() -> bytes:
    """The checks as one file that Python runs (zipapp's format); the same bytes each time."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr(zipfile.ZipInfo("__main__.py"), _MAIN)
        for path in sorted(_SOURCES.glob("*.py")):
            packed.writestr(zipfile.ZipInfo(f"checks/{path.name}"), path.read_bytes())
    return archive.getvalue()


def _program(place: RunContext) -> str:
    return f"{place.folder}/{_WORKLOAD_PROGRAM}"


def _base(place: RunContext) -> str:
    return f"{place.path.rstrip('/')}/posix-{place.name}"


def _root(place: RunContext) -> str:
    """The node's own folder, which is all that it leaves to others if they have the same files."""
    return f"{_base(place)}-{place.node.name}" if place.nodes else _base(place)
