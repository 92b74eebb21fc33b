"""Workload ``posix``: what programs may rely on in a directory, each call a check of its own.

The checks are a Python program (``checks/``), sent to the node as one file. What fails is a result, and no failure of
the trial: over 9p, NFS or SMB some of them can't but fail.
"""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path
from typing import ClassVar, Self

from pydantic import Field, model_validator

from storlab.layers.resources import Dir, Resource
from storlab.measurements import Measurements
from storlab.metrics import MetricSpec
from storlab.nodes.needs import Needs
from storlab.units import Duration
from storlab.workloads.base import ELAPSED, Launch, OptionError, RunContext, Workload

COUNTS = (
    MetricSpec("posix.passed", "1", "higher", "min", noun="checks passed"),
    MetricSpec("posix.failed", "1", "lower", "max", noun="checks failed"),
    MetricSpec("posix.unsupported", "1", "lower", "max", noun="checks unsupported"),
)
"""Several nodes have the fewest passed and the most failed of any."""

_PROGRAM = "posix.pyz"
_SOURCES = Path(__file__).parent / "checks"
_MAIN = b"from checks.__main__ import main\nimport sys\n\nmain(sys.argv[1:])\n"


class PosixWorkload(Workload):
    """Looks whether a directory does what programs rely on: rename, locks, mmap, attributes, holes, fsync."""

    kind: ClassVar[str] = "posix"
    accepts: ClassVar[tuple[type[Resource], ...]] = (Dir,)

    checks: tuple[str, ...] = Field((), description="Which, by name; by default all.")
    limit: Duration = Field(15.0, gt=0, le=600, description="A check that takes longer has failed: no answer.")

    @model_validator(mode="after")
    def _are_known(self) -> Self:
        known = _known() if self.checks else ()
        for number, name in enumerate(self.checks):
            if name not in known:
                raise OptionError(f"unknown check; there are {', '.join(known)}", "checks", number)
            if name in self.checks[:number]:
                raise OptionError(f"the check {name} is there twice", "checks", number)
        return self

    @property
    def asked(self) -> tuple[str, ...]:
        """The names of the checks that are made, in their order."""
        return self.checks or _known()

    def declares(self) -> tuple[MetricSpec, ...]:
        return (*COUNTS, *ELAPSED)

    def needs(self) -> Needs:
        return Needs(programs=("python3",))

    def leaves_out(self, warm_up: float) -> str:
        return "warm_up is left out: each check is made once" if warm_up else ""

    async def prepare(self, place: RunContext) -> None:
        await place.node.run(["rm", "-rf", "--", _root(place)])  # an earlier trial's, where stacks are kept

    async def launch(self, place: RunContext) -> Launch:
        await place.node.write(f"{place.folder}/{_PROGRAM}", program())
        argv = ("python3", "-I", _PROGRAM, _root(place), f"{self.limit:g}", *self.asked)
        return Launch(argv, env={"LC_ALL": "C.UTF-8"}, cwd=place.folder)

    def parse(self, raw: Path) -> Measurements:
        from storlab.workloads.posix.results import read_results  # polars: not needed to load a study

        return read_results(raw, self.asked)


def _known() -> tuple[str, ...]:
    from storlab.workloads.posix.checks.table import CHECKS  # with what the checks are made of: ctypes, sockets

    return tuple(CHECKS)


@cache
def program() -> bytes:
    """The checks as one file that Python runs (zipapp's format); the same bytes each time."""
    import zipfile  # takes longer to load than a study

    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr(zipfile.ZipInfo("__main__.py"), _MAIN)
        for path in sorted(_SOURCES.glob("*.py")):
            packed.writestr(zipfile.ZipInfo(f"checks/{path.name}"), path.read_bytes())
    return archive.getvalue()


def _root(place: RunContext) -> str:
    return f"{place.path.rstrip('/')}/posix-{place.name}"
