"""Suites that measure: tests/perf of the ZFS Test Suite, by variables of the shell and options."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING

from storlab.base.errors import UserError
from storlab.cli.suite.options import size_of
from storlab.cli.suite.originals import variables_for
from storlab.suites.adapters.zts import PERF, Zts, ZtsFile
from storlab.suites.run.own_files import own_adapter

if TYPE_CHECKING:
    from storlab.suites.run.plan import Asked


# The variables that say what tests/perf of the ZFS Test Suite measure, and what each may be.
#
# Source: ``perf.shlib`` of OpenZFS 2.3.2 and 2.4.

_LONGEST = 4096  # characters of a value
_SIZE = r"[1-9]\d{0,11}[kKmMgG]?"


@dataclass(frozen=True)
class Variable:
    """``pattern``: of each of its words, or of all of it if there is only ``one``; ``example`` is of the whole."""

    pattern: str
    example: str
    one: bool = False

    def refused(self, value: str) -> str | None:
        words = [value] if self.one else value.split()
        return next((word for word in words or [value] if not re.fullmatch(self.pattern, word, re.ASCII)), None)


_COUNT = r"[1-9]\d{0,4}"
VARIABLES: Mapping[str, Variable] = {
    "PERF_RUNTIME": Variable(r"[1-9]\d{0,5}", "180, in seconds", one=True),
    "PERF_NTHREADS": Variable(_COUNT, '"8 16"'),
    "PERF_NTHREADS_PER_FS": Variable(r"0|[1-9]\d{0,4}", '"0 1": 0 is for one file system for all threads'),
    "PERF_SYNC_TYPES": Variable(r"[01]", '"0 1": 1 is for synchronous I/O'),
    "PERF_IOSIZES": Variable(_SIZE, '"8k 1m"'),
    "PERF_FS_OPTS": Variable(r"[^\x00\n]+", '"-o recsize=8k -o compress=lz4"', one=True),
    "PERF_RANDSEED": Variable(r"\d{1,18}", "1234", one=True),
    "PERF_COMPPERCENT": Variable(r"\d{1,2}|100", "66", one=True),
    "PERF_COMPCHUNK": Variable(_SIZE, "4096", one=True),
    "PERF_FIO_FORMAT": Variable(r"(?:normal|terse|json\+?)(?:,(?:normal|terse|json\+?))*", "json", one=True),
    "PERF_COLLECT_SCRIPTS": Variable(r"[^\x00\n]+", '"vmstat 1, vmstat"', one=True),
    "ZINJECT_DELAYS": Variable(r"\d{1,6}:\d{1,4}", "10:1, milliseconds and how many I/Os at once", one=True),
}


def perf_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Those of an environment, checked. Raises ``UserError`` with the name of an invalid one, and what is valid."""
    found: dict[str, str] = {}
    for name, value in environment.items():
        if name in VARIABLES:
            found |= {name: _checked(name, value)} if value.strip() else {}
        elif name.startswith("PERF_") and (near := get_close_matches(name, VARIABLES, 1, 0.8)):
            raise UserError(f"{name} is not a variable of tests/perf: did you mean {near[0]}?")
    _refuse_uneven(found)
    return found


def _checked(name: str, value: str) -> str:
    variable = VARIABLES[name]
    if len(value) > _LONGEST:
        raise UserError(f"{name} has more than {_LONGEST} characters")
    if (word := variable.refused(value)) is not None:
        raise UserError(f"{name}: {word[:50]!r} is not valid; an example: {variable.example}")
    return value


def _refuse_uneven(found: Mapping[str, str]) -> None:
    """A test would end halfway: it wants as many threads in each of its file systems."""
    for threads in found.get("PERF_NTHREADS", "").split():
        for each in found.get("PERF_NTHREADS_PER_FS", "").split():
            if each != "0" and int(threads) % int(each):
                raise UserError(
                    f"PERF_NTHREADS_PER_FS: {threads} threads do not divide into {each} for each file system: write "
                    "numbers that divide all of PERF_NTHREADS, or 0"
                )


_NAMES = frozenset({PERF, "perf-regression", "perf-regression.run"})
_COLLECTORS = ("fio", "iostat", "mpstat", "perf", "vmstat")
"""What perf.shlib calls for each run of fio, and says nothing about if it is not there."""
_SMALLEST = 256 * 1024**2  # bytes: what perf.shlib's pools can be made on and filled by half


def measuring(asked: Asked, environment: Mapping[str, str], disk_size: str) -> Asked:
    """The same with disks of this size, and the variables that say what tests/perf measure.

    Raises ``UserError`` for what these can't be.
    """
    measures = not _NAMES.isdisjoint(asked.names)
    if not measures and not disk_size:
        return asked
    adapter = own_adapter(asked.names, asked.tests, asked.here, asked.permissions)
    if disk_size and isinstance(adapter, ZtsFile):
        raise UserError(
            f"--disk-size: {adapter.file} itself sets the size of its disks: change disk_size in its table guests"
        )
    if not isinstance(adapter, Zts):
        raise UserError("--disk-size is for the ZFS Test Suite: leave it out")
    options = adapter.options
    if disk_size:
        size = size_of(disk_size, "--disk-size")
        if size < _SMALLEST:
            raise UserError(f"--disk-size {disk_size}: the ZFS Test Suite's pools need 256M at least")
        options = replace(options, disk_size=size)
    if measures:
        delays = {name: value for name, value in environment.items() if name == "ZINJECT_DELAYS"}
        own = perf_variables(variables_for(environment, "", asked.here) | delays)
        options = replace(options, environment={**options.environment, **own})
        if not asked.allow_missing:  # without it, its profiles are all that lacks
            options = replace(options, programs=_COLLECTORS)
    return replace(asked, adapter=replace(adapter, options=options))
