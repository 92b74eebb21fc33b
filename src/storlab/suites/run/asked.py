"""What a run of a suite is to do, as its user asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from storlab.run.permissions import NO_PERMISSIONS, Permissions
from storlab.suites.adapters.base import Adapter
from storlab.suites.model import Suite
from storlab.suites.order import repeated, replayed, shuffled
from storlab.suites.own_expectations import OwnEntry
from storlab.suites.records.here import Here
from storlab.suites.records.own_kernel import OwnKernel
from storlab.suites.selection import EVERYTHING, Selection
from storlab.suites.suite_file import CPUS, MEMORY


@dataclass(frozen=True)
class Asked:
    """What a run of a suite is to do. ``names``: runfiles, or suites; ``tests``: a folder with one's own tests.

    ``here``: run them on this machine, and not in guests; ``seed``: of a random order; ``order``: that of an earlier
    run; ``limit``: seconds after which no test is begun.
    """

    names: tuple[str, ...]
    selection: Selection = EVERYTHING
    tests: Path | None = None
    guests: int = 1
    cpus: int = CPUS
    memory: int = MEMORY
    scale: float | None = None
    retries: int = 0
    allow_missing: bool = False
    times: Mapping[tuple[str, str], float] | None = None
    adapter: Adapter | None = None  # by default what the names call for
    title: str = ""
    seed: int | None = None
    order: tuple[tuple[str, str], ...] = ()
    until_failure: bool = False
    limit: float | None = None
    own: tuple[OwnEntry, ...] = ()  # what the user expects
    iterations: int = 0  # no more than these, if not 0; all of them, unless until a failure
    here: Here | None = None
    kernel: OwnKernel | None = None  # that guests boot; by default the image's
    hold: bool = False  # a shell in the guest of each test that fails
    debug: bool = False  # and what a debugger attaches to
    permissions: Permissions = NO_PERMISSIONS  # of what its files name

    @property
    def name(self) -> str:
        return self.title or ",".join(self.names)


def in_order(suite: Suite, asked: Asked) -> Suite:
    """The suite in the order that was asked for, and so many times.

    Raises ``UserError`` where an earlier run's order has nothing of it.
    """
    if asked.order:
        suite = replayed(suite, asked.order)
    if asked.seed is not None:
        suite = replace(suite, groups=tuple(shuffled(suite.groups, Random(asked.seed))))
    return suite if asked.until_failure else repeated(suite, asked.iterations)
